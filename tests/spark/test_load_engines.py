"""The engines of a load give the same graph, the same account and the same quarantine."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from pyspark.sql import SparkSession

import omnigraph
from omnigraph.api.options import LoadOptions
from omnigraph.errors import LoadRefusedError
from omnigraph.graph import Graph
from tests.drawing import drawn
from tests.load.oracle import SCHEMA, TABLES, Case
from tests.load.random_loads import loads
from tests.load.test_load_random import any_records, spelt
from tests.stores import place_copy, root_at

if TYPE_CHECKING:
    from omnigraph.load.report import LoadReport

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(0),
    pytest.mark.nightly(
        "two loads for each random case; in the gate test_load.py has a load of every kind on "
        "Spark, and random cases meet its rules in test_load_rules.py"
    ),
]


def outcome(
    graph: Graph, files: list[str], case: Case, spark: SparkSession | None
) -> dict[str, Any]:
    """All that a load leaves behind, but for what differs by nature: times and ids made up."""
    try:
        report = graph.load(
            files,
            mode=case.mode,
            on_error="quarantine",
            spark=spark,
            options=LoadOptions(
                order_by=case.order_by,
                max_rejected="100%",
                engine="local" if spark is None else "spark",
            ),
        )
    except LoadRefusedError as error:
        report = cast("LoadReport", error.report)
        return {"refused": bool(report.broken), "graph": contents(graph)}
    quarantine = pq.read_table(report.quarantine).to_pylist() if report.quarantine else []
    return {
        "read": report.read,
        "written": dict(report.written),
        "inserted": dict(report.inserted),
        "updated": dict(report.updated),
        "quarantined": dict(report.quarantined),
        "quarantine": sorted(quarantine, key=lambda each: (each["file"], each["line"])),
        "rejected": report.rejected,
        "graph": contents(graph),
        "check": graph.maintenance.check().ok,
    }


def contents(graph: Graph) -> dict[str, Any]:
    found = {}
    for table in TABLES:
        rows = graph.scan(table)
        found[table] = {row["id"]: row for row in rows.read_all().to_pylist()}
    return found


def test_random_loads_end_alike_in_both_engines(spark: SparkSession, tmp_path: Path) -> None:
    omnigraph.init(str(tmp_path / "template"), schema=SCHEMA)
    numbers = itertools.count()

    @drawn(12)
    @given(case=loads(records=any_records()))
    def check(case: Case) -> None:
        home = tmp_path / str(next(numbers))
        home.mkdir()
        middle = len(case.records) // 2
        for number, part in enumerate((case.records[:middle], case.records[middle:])):
            (home / f"{number}.jsonl").write_text("".join(f"{spelt(each)}\n" for each in part))
        files = [str(home / "0.jsonl"), str(home / "1.jsonl")]
        outcomes = []
        for name, session in (("local", None), ("spark", spark)):
            root = root_at(home / name)
            place_copy(tmp_path / "template", root)
            graph = omnigraph.open(root)
            published = {key: list(rows.values()) for key, rows in case.published.items() if rows}
            if published:
                graph.write(published)
            outcomes.append(outcome(graph, files, case, session))
        shutil.rmtree(home)

        assert outcomes[0] == outcomes[1]

    check()
