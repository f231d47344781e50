"""What a dead writer leaves is finished or undone by the next one, and written down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.commit.history_compaction import compact_commits
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.commit.sidecar import pending_operations
from omnigraph_lake.errors import OperationRolledBackError, RecoveryRequiredError
from omnigraph_lake.failpoints import Action, Armed, FailpointReached, arm, disarm_all
from omnigraph_lake.graph import Graph
from omnigraph_lake.maintenance.protection import find_leftovers
from omnigraph_lake.storage.lance.datasets import open_dataset
from omnigraph_lake.storage.manifest_rows import Operation, Outcome
from tests.commit.small_graphs import account, accounts, small_graph
from tests.forking.programs import start_code, wait_until
from tests.stores import folder_of

pytestmark = pytest.mark.unit


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = small_graph(graph_root)
    graph.write({"Account": [account("a", 1)], "Note": [{"text": "first"}]})
    return graph


@pytest.fixture(autouse=True)
def _disarmed() -> object:
    disarm_all()
    yield
    disarm_all()


def fail_at(graph: Graph, point: str, operation_id: str | None = None) -> str:
    """A write that breaks off at a point, as if its process had died there."""
    operation_id = operation_id or str(ULID())
    arm(point, Armed(action=Action.ERROR))
    with pytest.raises(FailpointReached):
        graph.write(
            {"Account": [account("b", 2)], "Note": [{"text": "second"}]},
            actor="ada",
            operation_id=operation_id,
        )
    disarm_all()
    return operation_id


def heads_equal_pins(graph: Graph) -> bool:
    return all(table.head_version == table.version for table in graph.maintenance.status().tables)


@pytest.mark.parametrize(
    "point", ["mutation.post_sidecar", "mutation.post_stage", "mutation.pre_direct_commit"]
)
def test_a_write_that_moved_no_table_is_rolled_back(graph: Graph, point: str) -> None:
    operation_id = fail_at(graph, point)
    assert graph.outcome(operation_id) is OperationStatus.PENDING

    reopened = og.open(graph.root)

    assert accounts(reopened) == {"a": 1}
    assert reopened.outcome(operation_id) is OperationStatus.ROLLED_BACK
    (recovery,) = reopened.maintenance.recoveries()
    assert (recovery.kind, recovery.original_actor) == ("rolled_back", "ada")
    assert reopened.maintenance.status().pending_sidecars == ()
    assert heads_equal_pins(reopened)
    assert reopened.maintenance.check().ok


@pytest.mark.parametrize("point", ["mutation.post_sidecar", "mutation.pre_direct_commit"])
def test_a_key_whose_writer_died_is_attempted_again_and_published_once(
    graph: Graph, point: str
) -> None:
    key = "batch 17"
    for _ in range(3):
        fail_at(graph, point, operation_id=key)
    undone = {row.operation_id for row in operations(graph)} - published(graph)

    rows: dict[str, list[dict[str, object]]] = {
        "Account": [account("b", 2)],
        "Note": [{"text": "second"}],
    }
    first = graph.write(rows, operation_id=key)
    again = graph.write(rows, operation_id=key)

    assert len(undone) == 2, "the sweep of the third and of the last call"
    assert accounts(graph) == {"a": 1, "b": 2}
    assert again.commit_id == first.commit_id
    assert graph.outcome(key) is OperationStatus.PUBLISHED
    assert heads_equal_pins(graph)
    for operation_id in undone:
        assert graph.outcome(operation_id) is OperationStatus.ROLLED_BACK
        with pytest.raises(OperationRolledBackError):
            graph.write(rows, operation_id=operation_id)


def test_undone_attempts_with_a_key_are_forgotten_behind_the_last_one(graph: Graph) -> None:
    for _ in range(3):
        fail_at(graph, "mutation.post_sidecar", operation_id="batch 17")
    undone = {row.operation_id for row in operations(graph)} - published(graph)
    fail_at(graph, "mutation.post_sidecar", operation_id="never again")
    root = graph._objects.root

    first = graph.write({"Note": [{"text": "second"}]}, operation_id="batch 17")
    compact_commits(root, graph._handle.manifest())
    graph.write({"Note": [{"text": "third"}]})
    compact_commits(root, graph._handle.manifest())

    (kept,) = {row.operation_id for row in operations(graph)} - published(graph)
    assert graph.outcome("never again") is OperationStatus.ROLLED_BACK
    assert kept not in undone
    for operation_id in undone:
        assert graph.outcome(operation_id) is OperationStatus.ROLLED_BACK
    again = graph.write({"Note": [{"text": "second"}]}, operation_id="batch 17")
    assert again.commit_id == first.commit_id


def test_a_key_whose_write_was_rolled_forward_is_published(graph: Graph) -> None:
    fail_at(graph, "publish.pre_manifest", operation_id="batch 17")

    again = graph.write({"Account": [account("b", 3)]}, operation_id="batch 17")

    assert accounts(graph) == {"a": 1, "b": 2}
    assert again.commit_id == graph.maintenance.recoveries()[0].commit_id


def test_what_an_operation_with_a_key_left_is_removed_once_it_is_decided(graph: Graph) -> None:
    fail_at(graph, "mutation.post_sidecar", operation_id="batch 17")
    (operation_id,) = pending_operations(graph._objects)
    path = names.staged_part(operation_id, "rows")
    graph._objects.replace(path, b"rows")

    at_work = find_leftovers(graph._objects, SYSTEM_CLOCK)
    graph.maintenance.recover()
    ended = find_leftovers(graph._objects, SYSTEM_CLOCK)

    assert (at_work.paths, ended.paths) == ((), (path,))


def operations(graph: Graph) -> list[Operation]:
    return [row for row in graph._handle.manifest().rows if isinstance(row, Operation)]


def published(graph: Graph) -> set[str]:
    return {row.operation_id for row in operations(graph) if row.outcome is Outcome.PUBLISHED}


def test_a_row_of_a_recovery_says_enough_before_its_commit_is_folded(graph: Graph) -> None:
    fail_at(graph, "publish.pre_manifest")
    commit = og.open(graph.root).commits()[0]
    root = graph._objects.root

    recoveries = open_dataset(root, names.RECOVERIES)
    commits = open_dataset(root, names.COMMITS)
    assert recoveries is not None
    assert commits is not None
    (row,) = recoveries.to_table().to_pylist()
    assert (row["graph_commit_id"], row["original_actor"]) == (commit.commit_id, "ada")
    assert row["recovered_at"].isoformat() >= graph.commits()[1].created_at
    assert commits.count_rows() == 0
    graph.write({"Account": [account("c", 3)]})
    graph.maintenance.optimize()
    commits = open_dataset(root, names.COMMITS)
    assert commits is not None
    assert commit.commit_id in commits.to_table().column("graph_commit_id").to_pylist()


def test_a_write_that_moved_every_table_is_rolled_forward(graph: Graph) -> None:
    operation_id = fail_at(graph, "publish.pre_manifest")
    assert accounts(graph) == {"a": 1}

    reopened = og.open(graph.root)

    assert accounts(reopened) == {"a": 1, "b": 2}
    assert reopened.outcome(operation_id) is OperationStatus.PUBLISHED
    (commit,) = reopened.commits(actor="omnigraph:recovery")
    (recovery,) = reopened.maintenance.recoveries()
    assert (recovery.kind, recovery.commit_id) == ("rolled_forward", commit.commit_id)
    assert heads_equal_pins(reopened)
    assert reopened.maintenance.check().ok


def test_a_write_that_moved_one_of_two_tables_is_rolled_back_and_head_follows(
    graph: Graph,
) -> None:
    operation_id = fail_at(graph, "mutation.post_direct_commit")
    assert not heads_equal_pins(graph)

    reopened = og.open(graph.root)

    if reopened.outcome(operation_id) is OperationStatus.ROLLED_BACK:
        assert accounts(reopened) == {"a": 1}
    assert heads_equal_pins(reopened)
    assert reopened.maintenance.check().ok
    assert len(reopened.commits(actor="omnigraph:recovery")) == 1


def test_a_write_that_was_published_needs_nothing_but_its_sidecar_removed(graph: Graph) -> None:
    operation_id = fail_at(graph, "publish.post_manifest")
    version = graph.snapshot().manifest_version

    reopened = og.open(graph.root)

    assert reopened.outcome(operation_id) is OperationStatus.PUBLISHED
    assert reopened.snapshot().manifest_version == version
    assert reopened.maintenance.recoveries() == ()
    assert reopened.maintenance.status().pending_sidecars == ()


def test_the_next_write_in_the_same_process_settles_what_an_earlier_one_left(
    graph: Graph,
) -> None:
    operation_id = fail_at(graph, "publish.pre_manifest")

    graph.write({"Account": [account("c", 3)]})

    assert accounts(graph) == {"a": 1, "b": 2, "c": 3}
    assert graph.outcome(operation_id) is OperationStatus.PUBLISHED


def test_a_second_sweep_changes_nothing(graph: Graph) -> None:
    fail_at(graph, "publish.pre_manifest")
    graph.maintenance.recover()
    version = graph.snapshot().manifest_version

    assert graph.maintenance.recover().settled == ()
    assert graph.snapshot().manifest_version == version


def test_opening_for_reading_settles_nothing(graph: Graph) -> None:
    fail_at(graph, "publish.pre_manifest")

    reader = og.open(graph.root, read_only=True)

    assert accounts(reader) == {"a": 1}
    assert len(reader.maintenance.status().pending_sidecars) == 1


def test_a_living_writer_is_left_alone(graph: Graph, tmp_path: Path) -> None:
    script = (
        "import sys, omnigraph_lake as og\n"
        "graph = og.open(sys.argv[1])\n"
        "graph.write({'Account': [{'name': 'slow', 'balance': 7}]})\n"
        "print('done')\n"
    )
    pause = {"OMNIGRAPH_FAILPOINTS": "publish.pre_manifest=pause:3"}
    writer = start_code(script, graph.root, env=pause)
    wait_until(lambda: bool(graph.maintenance.status().pending_sidecars), "its sidecar")

    reopened = og.open(graph.root)
    swept = reopened.maintenance.recover()

    assert swept.settled == ()
    assert writer.finish().stdout == "done\n"
    assert accounts(reopened) == {"a": 1, "slow": 7}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "cannot be parsed"),
        (b"[]", "cannot be parsed"),
        (b'{"format": 1}', "cannot be parsed"),
        (json.dumps({"format": 99}).encode(), "newer Omnigraph"),
    ],
)
def test_a_sidecar_that_cannot_be_read_is_refused_aloud_and_kept(
    graph: Graph, content: bytes, why: str
) -> None:
    path = folder_of(graph.root, names.sidecar(str(ULID.from_timestamp(1))))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)

    with pytest.raises(RecoveryRequiredError, match=why):
        og.open(graph.root)
    with pytest.raises(RecoveryRequiredError, match=why):
        graph.write({"Account": [account("x", 1)]})
    assert path.read_bytes() == content
    assert accounts(og.open(graph.root, read_only=True)) == {"a": 1}


def test_a_sidecar_that_vanishes_while_it_is_listed_is_skipped(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = names.sidecar(str(ULID()))
    monkeypatch.setattr("omnigraph_lake.commit.recovery.pending_sidecars", lambda _: (gone,))

    assert graph.maintenance.recover().settled == ()
