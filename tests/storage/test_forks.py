"""Forks of a table are listed while others come and go."""

from __future__ import annotations

from threading import Event, Thread

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.storage.lance.forks import drop_fork, fork_table, forks_of
from omnigraph_lake.storage.staging.changes import stage_append
from omnigraph_lake.storage.staging.table_versions import commit_staged

pytestmark = pytest.mark.unit


def test_forks_that_are_deleted_meanwhile_do_not_break_a_listing(graph_root: str) -> None:
    graph = og.init(graph_root, schema="node P { k: String @key }")
    graph.write({"P": [{"k": "a"}]})
    root, entry = graph._objects.root, graph.snapshot().tables["node:P"]
    is_over = Event()

    def come_and_go() -> None:
        for _ in range(4):
            names = [f"fork-{number}" for number in range(3)]
            for name in names:
                fork_table(root, entry, fork=name, branch="dev")
            for name in names:
                drop_fork(root, entry.location, name)
        is_over.set()

    other = Thread(target=come_and_go)
    other.start()
    while not is_over.is_set():
        assert set(forks_of(root, entry.location)) <= {"fork-0", "fork-1", "fork-2"}
    other.join()

    assert forks_of(root, entry.location) == ()


@pytest.mark.parametrize("has_moved", [False, True])
def test_a_fork_of_another_version_is_not_taken_for_one_of_the_pin(
    graph_root: str, has_moved: bool
) -> None:
    graph = og.init(graph_root, schema="node P { k: String @key }")
    graph.write({"P": [{"k": "a"}]})
    root, before = graph._objects.root, graph.snapshot().tables["node:P"]
    fork = fork_table(root, before, fork="dev", branch="dev")
    assert fork is not None
    if has_moved:
        rows = pa.table({"id": ["x"], "k": ["x"]})
        change = stage_append(root, fork, rows)
        assert commit_staged(root, change, on_version=fork.version, operation_id="op") is not None
    graph.write({"P": [{"k": "b"}]})
    after = graph.snapshot().tables["node:P"]
    assert after.version == before.version + 1

    assert fork_table(root, after, fork="dev", branch="dev") is None
    assert fork_table(root, before, fork="dev", branch="dev") == fork
