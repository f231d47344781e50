"""Every runner finds the same changes, and writes the same files."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph_lake.diff import bucketed
from omnigraph_lake.diff.diff import Comparison, GraphDiff, diff_snapshots
from omnigraph_lake.diff.table_diff import ChangeCounts, count_changes, diff_table
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.graph import Graph
from omnigraph_lake.runner.protocol import Runner
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.storage.snapshot import Snapshot
from omnigraph_lake.ulids import new_ulid
from tests.diff.buckets import set_rows_per_bucket
from tests.diff.documents import change_documents, document_graph
from tests.gate.selection import for_gate
from tests.runner.random_runner import RandomRunner
from tests.stores import folder_of

pytestmark = pytest.mark.behaviour

RUNNERS: dict[str, Callable[[], Runner]] = {
    "threads": lambda: ThreadRunner(parallel=4),
    **{
        f"random {seed}": partial(RandomRunner, seed)
        for seed in for_gate(range(4), lambda seed: seed == 0)
    },
}


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return document_graph(graph_root)


def diffed(
    graph: Graph, before: Snapshot, after: Snapshot, runner: Callable[[], Runner]
) -> GraphDiff:
    comparison = Comparison(runner=lambda: nullcontext(runner()), new_id=new_ulid)
    return diff_snapshots(
        graph._objects.root,
        before,
        after,
        comparison=comparison,
        catalogs=lambda: (graph.schema.catalog, graph.schema.catalog),
    )


def file_contents(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("rows_per_bucket", [20, 500_000], ids=["scattered", "read in place"])
def test_runners_count_and_write_the_same_changes(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_per_bucket: int
) -> None:
    set_rows_per_bucket(monkeypatch, rows_per_bucket)
    before = graph.snapshot().pinned
    change_documents(graph, random.Random(5))
    after = graph.snapshot().pinned
    expected, contents = counts_in_place(graph, before, after), {}

    for name, runner in RUNNERS.items():
        diff = diffed(graph, before, after, runner)
        diff.to_parquet(tmp_path / name)
        contents[name] = file_contents(tmp_path / name)

        counts = {key: table.counts for key, table in diff.tables.items()}
        assert counts == expected
    assert all(files == contents["threads"] for files in contents.values())
    files = sorted((tmp_path / "threads" / "nodes" / "Doc").iterdir())
    assert (len(files) > 1) == (rows_per_bucket == 20)
    rows = pa.concat_tables(pq.read_table(file, partitioning=None) for file in files)
    streamed = diffed(graph, before, after, ThreadRunner).rows("node:Doc").read_all()
    assert rows.sort_by("id").to_pylist() == streamed.to_pylist()


def counts_in_place(graph: Graph, before: Snapshot, after: Snapshot) -> dict[str, ChangeCounts]:
    diffs = {
        key: diff_table(graph._objects.root, before.tables[key], after.tables[key])
        for key in after.tables
    }
    counts = {key: count_changes(diff) for key, diff in diffs.items()}
    return {key: table_counts for key, table_counts in counts.items() if table_counts.total}


def test_a_directory_that_cannot_be_finished_is_not_there(graph: Graph, tmp_path: Path) -> None:
    before = graph.snapshot().pinned
    change_documents(graph, random.Random(5))
    diff = diffed(graph, before, graph.snapshot().pinned, ThreadRunner)
    folder = tmp_path / "out"
    folder.mkdir()
    for file in folder_of(graph.root, "nodes").rglob("data/*"):
        file.unlink()

    with pytest.raises(OmnigraphError):
        diff.to_parquet(folder / "changes")

    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("rows", "has_blobs", "buckets"),
    [
        (0, False, 1),
        (2_000_000, False, 1),
        (2_000_001, False, 5),
        (80_000, True, 1),
        (80_001, True, 5),
        (10**12, False, 4_096),
    ],
)
def test_few_candidates_are_not_divided(rows: int, has_blobs: bool, buckets: int) -> None:
    assert bucketed.bucket_count(rows, has_blobs=has_blobs) == buckets
