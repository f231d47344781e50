"""Imports on Spark end as in this process: files, and Spark DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import omnigraph_lake as og
from tests.importer.shapes import write_csv

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def content(root: str, *types: str) -> dict[str, list[str]]:
    graph = og.open(root, read_only=True)
    return {name: sorted(map(str, graph.scan(name).read_all().to_pylist())) for name in types}


def test_files_and_frames_are_imported_by_tasks_as_by_threads(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = [
        write_csv(
            tmp_path / "people.csv",
            "id,name,company_id\n" + "".join(f"{n},P{n},{n % 3}\n" for n in range(40)) + "x,Bad,9",
        ),
        write_csv(tmp_path / "companies.csv", "id,name\n0,Acme\n1,Beta\n2,Gamma"),
        write_csv(tmp_path / "logs.csv", "level,text\n" + "1,a\n,b\n" * 20 + "2,c\n"),
    ]
    mapped = og.import_data(str(tmp_path / "local"), files)
    by_tasks = og.import_data(str(tmp_path / "tasks"), files, spark=spark)
    frames = {
        name: spark.read.csv(str(tmp_path / f"{name}.csv"), header=True)
        for name in ("people", "companies", "logs")
    }
    by_frames = og.import_data(str(tmp_path / "frames"), frames, spark=spark)

    types = ("Person", "Company", "HasCompany", "Log")
    expected = content(str(tmp_path / "local"), *types)
    assert content(str(tmp_path / "tasks"), *types) == expected
    assert content(str(tmp_path / "frames"), *types) == expected
    assert mapped.load is not None
    for report in (by_tasks, by_frames):
        assert report.load is not None
        assert report.load.engine == "spark"
        assert report.load.written == mapped.load.written
        assert report.load.quarantined == mapped.load.quarantined
        assert report.load.accounts == mapped.load.accounts
    again = og.import_data(str(tmp_path / "tasks"), files, spark=spark)
    assert again.load is not None
    assert (again.load.commit_id, again.load.already_there["Log"]) == (None, 41)
