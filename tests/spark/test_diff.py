"""A diff on Spark finds the same changes as one in this process, and writes the same files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from omnigraph_lake.errors import ConflictError
from omnigraph_lake.graph import Graph
from tests.diff.buckets import set_rows_per_bucket
from tests.diff.documents import change_documents, document, document_graph
from tests.gate.seeds import case_seeds
from tests.gate.selection import for_gate
from tests.spark.twice import TwiceSession
from tests.stores import folder_of

pytestmark = pytest.mark.spark


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return document_graph(graph_root)


def staged_files(graph: Graph) -> list[Path]:
    return [path for path in folder_of(graph.root, "_staging").rglob("*") if path.is_file()]


def file_contents(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("seed", for_gate(range(3), lambda number: number == 0))
def test_counts_and_files_are_those_of_one_process(
    seed: int, graph: Graph, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_rows_per_bucket(monkeypatch, 7)
    dev = graph.branches.create("dev")
    change_documents(dev, random.Random(case_seeds("diff", 3)[seed]))

    here = graph.diff("main", "dev")
    there = graph.diff("main", "dev", spark=spark)
    here.to_parquet(tmp_path / "here")
    files = there.to_parquet(tmp_path / "there")

    assert {key: table.counts for key, table in there.tables.items()} == {
        key: table.counts for key, table in here.tables.items()
    }
    assert len(files) > len(there.tables)
    assert file_contents(tmp_path / "there") == file_contents(tmp_path / "here")
    assert staged_files(graph) == []


@pytest.mark.nightly("a diff whose tasks run twice; the gate loads and merges that way")
def test_tasks_may_run_twice(graph: Graph, spark: SparkSession) -> None:
    dev = graph.branches.create("dev")
    change_documents(dev, random.Random(11))

    here = graph.diff("main", "dev")
    there = graph.diff("main", "dev", spark=cast("SparkSession", TwiceSession(spark)))

    assert {key: table.counts for key, table in there.tables.items()} == {
        key: table.counts for key, table in here.tables.items()
    }


@pytest.mark.nightly(
    "two more diffs; counts of one direction are those of one process in the gate, where "
    "tests/diff/test_table_diff.py compares both directions"
)
def test_a_branch_is_compared_with_another_and_back(graph: Graph, spark: SparkSession) -> None:
    dev = graph.branches.create("dev")
    change_documents(dev, random.Random(7))
    graph.write({"Doc": [document(1, 3)]}, mode="merge")

    there = graph.diff("main", "dev", spark=spark)
    back = graph.diff("dev", "main", spark=spark)

    assert there.tables.keys() == back.tables.keys()
    for key, table in there.tables.items():
        opposite = back.tables[key].counts
        assert (table.counts.inserted, table.counts.updated, table.counts.deleted) == (
            opposite.deleted,
            opposite.updated,
            opposite.inserted,
        )


def test_equal_versions_have_no_changes_and_a_full_directory_is_refused(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    graph.branches.create("dev")
    (tmp_path / "kept").write_text("mine")

    diff = graph.diff("main", "dev", spark=spark)

    assert dict(diff.tables) == {}
    with pytest.raises(ConflictError, match="is not an empty directory"):
        diff.to_parquet(tmp_path)
