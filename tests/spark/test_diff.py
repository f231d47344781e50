"""A diff on Spark tells the same changes as one in this process."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import omnigraph
from omnigraph.api.system_clock import new_id
from omnigraph.diff import spark_diff
from omnigraph.diff.spark_diff import TableChanges, diff_on_spark
from omnigraph.diff.table_diff import count_changes, diff_table
from omnigraph.errors import ConflictError
from omnigraph.graph import Graph
from omnigraph.storage.snapshot import Snapshot, TableEntry
from tests.gate.seeds import case_seeds
from tests.gate.selection import for_gate
from tests.stores import folder_of

pytestmark = pytest.mark.spark

SCHEMA = """
node Doc { name: String @key  size: I64?  raw: Blob?  at: Vector(2)?  words: [String]? }
node Note { text: String @key }
edge Cites: Doc -> Doc { page: I32? }
"""
Pairs = dict[str, tuple[TableEntry | None, TableEntry | None]]


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = omnigraph.init(graph_root, schema=SCHEMA)
    graph.write(
        {
            "Doc": [doc(number, 0) for number in range(30)],
            "Cites": [cites(number, 0) for number in range(20)],
        }
    )
    return graph


def doc(number: int, salt: int) -> dict[str, Any]:
    return {
        "name": f"d{number}",
        "size": None if salt == 3 else salt,
        "raw": bytes([salt]) * (number * 1000),
        "at": [float(salt), -0.0],
        "words": [str(salt)] * (number % 3),
    }


def cites(number: int, salt: int) -> dict[str, Any]:
    return {"id": f"c{number}", "src": f"d{number}", "dst": "d0", "page": salt}


def change_something(graph: Graph, rng: random.Random) -> None:
    for _ in range(3):
        docs = rng.sample(range(40), 8)
        graph.write({"Doc": [doc(n, rng.randrange(4)) for n in docs]}, mode="merge")
        graph.delete({"Doc": [f"d{rng.randrange(5, 40)}"], "Cites": [f"c{rng.randrange(20)}"]})
    graph.write({"Note": [{"text": f"n{n}"} for n in range(10)]})


def pairs_of(before: Snapshot, after: Snapshot) -> Pairs:
    return {key: (before.tables.get(key), entry) for key, entry in after.tables.items()}


def on_spark(
    graph: Graph, spark: SparkSession, pairs: Pairs, directory: Path | None = None
) -> dict[str, TableChanges]:
    root = graph._objects.root
    found = diff_on_spark(spark, root, pairs, operation_id=new_id(), directory=directory)
    assert [each for each in folder_of(graph.root, "_staging").rglob("*") if each.is_file()] == []
    return dict(found)


@pytest.mark.parametrize("seed", for_gate(range(3), lambda number: number == 0))
def test_counts_and_files_are_those_of_one_process(
    seed: int, graph: Graph, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_diff, "ROWS_PER_BUCKET", 7)
    before = graph.snapshot().pinned
    change_something(graph, random.Random(case_seeds("diff", 3)[seed]))
    pairs = pairs_of(before, graph.snapshot().pinned)
    here = {key: diff_table(graph._objects.root, *pair) for key, pair in pairs.items()}
    expected = {key: count_changes(diff) for key, diff in here.items()}

    counted = on_spark(graph, spark, pairs)
    written = on_spark(graph, spark, pairs, tmp_path / "out")

    changed = {key: counts for key, counts in expected.items() if counts.total}
    assert {key: each.counts for key, each in counted.items()} == changed
    assert {key: each.counts for key, each in written.items()} == changed
    assert len(written["node:Doc"].files) > 1
    for key, each in written.items():
        rows = pa.concat_tables(pq.read_table(path, partitioning=None) for path in each.files)
        told = here[key].reader().read_all()
        assert rows.sort_by("id").to_pylist() == told.to_pylist()
    files = {path for each in written.values() for path in each.files}
    assert {path for path in (tmp_path / "out").rglob("*") if path.is_file()} == files


@pytest.mark.nightly(
    "two more diffs; counts of one direction are those of one process in the gate, where "
    "tests/diff/test_table_diff.py compares both directions"
)
def test_a_branch_is_compared_with_another_and_back(graph: Graph, spark: SparkSession) -> None:
    dev = graph.branches.create("dev")
    change_something(dev, random.Random(7))
    graph.write({"Doc": [doc(1, 3)]}, mode="merge")

    there = on_spark(graph, spark, pairs_of(graph.snapshot().pinned, dev.snapshot().pinned))
    back = on_spark(graph, spark, pairs_of(dev.snapshot().pinned, graph.snapshot().pinned))

    assert there.keys() == back.keys()
    for key, each in there.items():
        opposite = back[key].counts
        assert (each.counts.inserted, each.counts.updated, each.counts.deleted) == (
            opposite.deleted,
            opposite.updated,
            opposite.inserted,
        )


def test_equal_versions_have_no_changes_and_a_full_directory_is_refused(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    pairs = pairs_of(graph.snapshot().pinned, graph.snapshot().pinned)
    (tmp_path / "kept").write_text("mine")

    assert on_spark(graph, spark, pairs) == {}
    with pytest.raises(ConflictError, match="is not an empty directory"):
        on_spark(graph, spark, pairs, tmp_path)


def test_a_graph_is_compared_by_tasks_where_a_session_is_given(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    branch = graph.branches.create("dev")
    change_something(branch, random.Random(3))

    here = graph.diff("main", "dev")
    there = graph.diff("main", "dev", spark=spark)
    files = there.to_parquet(tmp_path / "changes")

    assert {key: each.counts for key, each in there.tables.items()} == {
        key: each.counts for key, each in here.tables.items()
    }
    assert sum(pq.read_metadata(file).num_rows for file in files) == here.counts.total
