"""Writes through the public API: one commit or nothing, once, in somebody's name."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.commit import history_compaction, phases
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.commit.sidecar import Sidecar, replace_sidecar
from omnigraph_lake.errors import (
    DriftNeedsRepairError,
    InvalidInputError,
    OperationRolledBackError,
    ReadOnlyError,
    StorageUnavailableError,
    ValidationFailedError,
)
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.lance.tables import scan
from omnigraph_lake.storage.manifest.history import record_commits
from omnigraph_lake.storage.manifest_rows import GraphCommit, Operation, Outcome
from omnigraph_lake.storage.objects.background import WORKER
from omnigraph_lake.storage.objects.location import Root, parse_root
from omnigraph_lake.storage.objects.store import Objects
from tests.commit.small_graphs import account, accounts, pay, small_graph
from tests.forking.programs import run_code

pytestmark = pytest.mark.unit


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return small_graph(graph_root)


def test_rows_of_several_types_become_visible_in_one_commit(graph: Graph) -> None:
    before = graph.snapshot().manifest_version
    result = graph.write(
        {"Account": [account("a", 1), account("b", 2)], "Paid": [pay("a", "b", 1)]}, actor="ada"
    )

    assert graph.snapshot().manifest_version == before + 1
    assert accounts(graph) == {"a": 1, "b": 2}
    assert {key: counts.inserted for key, counts in result.tables.items()} == {
        "node:Account": 2,
        "edge:Paid": 1,
    }
    newest, first = graph.commits()
    assert (newest.commit_id, newest.actor, newest.parent_id) == (
        result.commit_id,
        "ada",
        first.commit_id,
    )
    assert [key for key, _, _ in newest.tables] == ["node:Account", "edge:Paid"]
    assert graph.maintenance.check().ok
    assert graph.maintenance.status().pending_sidecars == ()


def test_a_snapshot_taken_before_a_write_stays_what_it_was(graph: Graph) -> None:
    graph.write({"Account": [account("a", 1)]})
    earlier = graph.snapshot().pinned
    graph.write({"Account": [account("a", 5)]}, mode="merge")

    rows = scan(parse_root(graph.root), earlier.tables["node:Account"], columns=["id", "balance"])
    assert rows.read_all().to_pylist() == [{"id": "a", "balance": 1}]
    assert accounts(graph) == {"a": 5}


def test_append_refuses_known_ids_and_writes_nothing(graph: Graph) -> None:
    graph.write({"Account": [account("a", 1)]})
    before = graph.snapshot()

    with pytest.raises(ValidationFailedError, match="id_exists"):
        graph.write({"Account": [account("b", 1), account("a", 2)]})
    assert graph.snapshot() == before
    assert graph.maintenance.status().pending_sidecars == ()


def test_merge_replaces_and_inserts(graph: Graph) -> None:
    graph.write({"Account": [account("a", 1)]})
    result = graph.write({"Account": [account("a", 9), account("b", 2)]}, mode="merge")

    assert accounts(graph) == {"a": 9, "b": 2}
    counts = result.tables["node:Account"]
    assert (counts.inserted, counts.updated, counts.deleted) == (1, 1, 0)


def test_replace_inserts_and_replaces_whole_rows(graph_root: str) -> None:
    graph = og.init(graph_root, schema="node P { name: String @key  age: I32?  nick: String? }")
    graph.write({"P": [{"name": "ann", "age": 1, "nick": "a"}, {"name": "bob", "age": 2}]})

    result = graph.write({"P": [{"name": "ann", "age": 7}, {"name": "cyd"}]}, mode="replace")

    counts = result.tables["node:P"]
    assert (counts.inserted, counts.updated, counts.deleted) == (1, 1, 0)
    rows = graph.scan("P", columns=["name", "age", "nick"]).read_all().sort_by("name")
    assert rows.to_pylist() == [
        {"name": "ann", "age": 7, "nick": None},
        {"name": "bob", "age": 2, "nick": None},
        {"name": "cyd", "age": None, "nick": None},
    ]


def test_overwrite_replaces_the_types_named_and_no_others(graph: Graph) -> None:
    graph.write({"Account": [account("a", 1), account("b", 2)], "Note": [{"text": "kept"}]})
    graph.write({"Account": [account("c", 3)]}, mode="overwrite")

    assert accounts(graph) == {"c": 3}
    assert graph.scan("Note").read_all().num_rows == 1
    assert graph.maintenance.check().ok


def test_overwrite_keeps_the_columns_and_their_meaning(graph: Graph) -> None:
    before = graph.scan("Account").schema
    graph.write({"Account": [account("c", 3)]}, mode="overwrite")
    graph.write({"Account": []}, mode="overwrite")

    assert graph.scan("Account").schema.equals(before, check_metadata=True)
    assert accounts(graph) == {}
    assert graph.maintenance.check().ok


def test_overwrite_keeps_every_value_in_its_column_also_behind_a_blob(graph_root: str) -> None:
    schema = """node All { blob: Blob?  n: I64?  text: String?  m: I64?  tags: [String]?
        vector: Vector(2)?  day: Date? }"""
    graph = og.init(graph_root, schema=schema)
    row = {"id": "1", "blob": b"abc", "n": 1, "text": "x", "m": 2, "tags": ["t"]}

    for mode in ("append", "overwrite", "merge", "overwrite"):
        graph.write({"All": [{**row, "vector": [1.0, 2.0]}]}, mode=mode)

        (stored,) = graph.scan("All").read_all().to_pylist()
        assert {key: stored[key] for key in ("n", "text", "m", "tags", "vector", "day")} == {
            "n": 1,
            "text": "x",
            "m": 2,
            "tags": ["t"],
            "vector": [1.0, 2.0],
            "day": None,
        }
        entry = graph.snapshot().tables["node:All"]
        dataset = lance.dataset(f"{graph.root}/{entry.location}", version=entry.version)
        (blob,) = dataset.take_blobs("blob", indices=[0])
        assert blob is not None
        assert blob.readall() == b"abc"
    graph.write({"All": []}, mode="overwrite")
    graph.write({"All": [row]})
    assert graph.scan("All", columns=["m"]).read_all().to_pylist() == [{"m": 2}]


def test_overwrite_that_would_leave_edges_dangling_is_refused(graph: Graph) -> None:
    graph.write({"Account": [account("a", 1), account("b", 2)], "Paid": [pay("a", "b", 1)]})

    with pytest.raises(ValidationFailedError, match="missing_endpoint"):
        graph.write({"Account": [account("a", 1)]}, mode="overwrite")


def test_deleting_a_node_takes_its_edges_with_it(graph: Graph) -> None:
    graph.write(
        {
            "Account": [account("a", 1), account("b", 2), account("c", 3)],
            "Paid": [pay("a", "b", 1), pay("b", "c", 2), pay("c", "a", 3)],
        }
    )
    result = graph.delete({"Account": ["b", "nobody"]})

    assert accounts(graph) == {"a": 1, "c": 3}
    assert graph.scan("Paid").read_all().column("amount").to_pylist() == [3]
    assert {key: counts.deleted for key, counts in result.tables.items()} == {
        "node:Account": 1,
        "edge:Paid": 2,
    }
    assert graph.maintenance.check().ok


def test_a_write_without_effect_makes_no_commit(graph: Graph) -> None:
    before = graph.snapshot()

    assert graph.delete({"Account": ["nobody"]}).commit_id is None

    assert graph.write({"Account": []}).commit_id is None
    assert graph.write({}).commit_id is None
    assert graph.delete({}).commit_id is None
    assert graph.snapshot() == before
    assert graph.maintenance.status().pending_sidecars == ()


def test_arrow_pandas_like_and_dict_inputs_write_the_same_rows(graph: Graph) -> None:
    table = pa.table({"name": ["a"], "balance": [1]})
    graph.write({"Account": table})
    graph.write({"Account": pa.table({"name": ["b"], "balance": [2]}).to_reader()})

    assert accounts(graph) == {"a": 1, "b": 2}


def test_the_same_operation_id_writes_once_and_answers_the_same(graph: Graph) -> None:
    operation_id = str(ULID())
    first = graph.write({"Account": [account("a", 1)]}, operation_id=operation_id)
    again = graph.write({"Account": [account("a", 1)]}, operation_id=operation_id)

    assert again.commit_id == first.commit_id
    assert accounts(graph) == {"a": 1}
    assert graph.outcome(operation_id) is OperationStatus.PUBLISHED
    assert graph.outcome(str(ULID())) is OperationStatus.UNKNOWN


def test_an_operation_id_survives_the_fold_into_history(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_compaction, "FOLD_EVERY", 10)
    operation_id = str(ULID())
    first = graph.write({"Account": [account("a", 1)]}, operation_id=operation_id)
    for number in range(15):
        graph.write({"Note": [{"text": str(number)}]})

    state = graph._handle.manifest()
    assert not any(
        isinstance(row, Operation) and row.operation_id == operation_id for row in state.rows
    )
    assert graph.outcome(operation_id) is OperationStatus.PUBLISHED
    again = graph.write({"Account": [account("a", 1)]}, operation_id=operation_id)
    assert again.commit_id == first.commit_id
    assert len(graph.commits()) == 17
    assert len(state.rows) < 60
    assert graph.maintenance.check().ok


def test_a_fold_that_was_interrupted_adds_no_commit_twice(graph: Graph) -> None:
    for number in range(4):
        graph.write({"Note": [{"text": str(number)}]})
    root, state = graph._objects.root, graph._handle.manifest()
    commits = [row for row in state.rows if isinstance(row, GraphCommit)]
    record_commits(root, commits[:3])

    assert history_compaction.compact_commits(root, state)

    for location in (names.COMMITS, names.COMMIT_ACTORS):
        recorded = lance.dataset(f"{graph.root}/{location}").to_table().column("graph_commit_id")
        assert sorted(recorded.to_pylist()) == sorted(row.commit_id for row in commits[:-1])
    assert len(graph.commits()) == 5


@pytest.mark.parametrize("background", ["on", "off"])
def test_old_manifest_versions_are_deleted_behind_or_within_the_write_that_folds(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, background: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_BACKGROUND", background)
    monkeypatch.setattr(history_compaction, "FOLD_EVERY", 3)
    monkeypatch.setattr(names, "MANIFEST_VERSIONS_KEPT", 2)
    for number in range(5):
        graph.write({"Note": [{"text": str(number)}]})
    if background == "on":
        assert WORKER.wait(10)

    versions = lance.dataset(f"{graph.root}/{names.MANIFEST}").version_refs()
    assert len(versions) < 5
    assert len(graph.commits()) == 6
    assert graph.maintenance.check().ok


def test_a_write_whose_history_cannot_be_compacted_is_published_and_says_so(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_compaction, "FOLD_EVERY", 1)
    tried: list[int] = []

    def fail(root: Root, commits: list[GraphCommit]) -> None:
        tried.append(len(commits))
        raise StorageUnavailableError("no history today")

    monkeypatch.setattr(history_compaction, "record_commits", fail)
    first = graph.write({"Account": [account("a", 1)]})
    again = graph.write({"Account": [account("b", 2)]})

    assert tried == [1, 2]
    assert [commit.commit_id for commit in graph.commits()][:2] == [
        again.commit_id,
        first.commit_id,
    ]
    assert accounts(graph) == {"a": 1, "b": 2}


def test_any_text_is_an_idempotency_key_even_after_the_fold(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_compaction, "FOLD_EVERY", 5)
    key = "airflow: nightly load, 2026-11-17T00:00:00+00:00"
    first = graph.write({"Account": [account("a", 1)]}, operation_id=key)
    for number in range(8):
        graph.write({"Note": [{"text": str(number)}]}, operation_id=f"note {number}")
    again = graph.write({"Account": [account("a", 1)]}, operation_id=key)

    state = graph._handle.manifest()
    assert first.operation_id not in {
        row.operation_id for row in state.rows if isinstance(row, Operation)
    }
    assert (again.commit_id, again.operation_id) == (first.commit_id, first.operation_id)
    assert len(graph.commits()) == 10
    assert graph.outcome(key) is OperationStatus.PUBLISHED
    assert graph.outcome(first.operation_id) is OperationStatus.PUBLISHED
    assert graph.outcome("another run") is OperationStatus.UNKNOWN
    assert graph.write({"Note": [{"text": "no key"}]}).commit_id == graph.snapshot().commit_id


def test_a_key_belongs_to_a_branch_and_is_inherited_by_branches_made_later(graph: Graph) -> None:
    graph.branches.create("early")
    first = graph.write({"Account": [account("a", 1)]}, operation_id="load 1")
    graph.branches.create("late")

    on_late = graph.checkout("late").write({"Account": [account("a", 1)]}, operation_id="load 1")
    on_early = graph.checkout("early").write({"Account": [account("a", 1)]}, operation_id="load 1")

    assert on_late.commit_id == first.commit_id
    assert on_early.commit_id != first.commit_id
    assert accounts(graph.checkout("early")) == accounts(graph) == {"a": 1}


def test_a_write_is_aborted_if_it_is_not_known_whether_its_sidecar_was_armed(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation_id = str(ULID())

    def lose_the_answer(objects: Objects, sidecar: Sidecar) -> None:
        replace_sidecar(objects, sidecar)
        raise StorageUnavailableError("the answer was lost")

    monkeypatch.setattr(phases, "replace_sidecar", lose_the_answer)
    with pytest.raises(StorageUnavailableError, match="nothing was written"):
        graph.write({"Account": [account("a", 1)]}, operation_id=operation_id)

    state = graph._handle.manifest()
    operations = [row for row in state.rows if isinstance(row, Operation)]
    assert (operation_id, Outcome.ABORTED) in [(op.operation_id, op.outcome) for op in operations]
    assert graph.maintenance.status().pending_sidecars == ()


def test_a_reading_handle_cannot_write(graph: Graph) -> None:
    reader = og.open(graph.root, read_only=True)

    for call in (lambda: reader.write({}), lambda: reader.delete({}), reader.maintenance.recover):
        with pytest.raises(ReadOnlyError, match="opened for reading"):
            call()


def test_an_unknown_mode_is_refused(graph: Graph) -> None:
    with pytest.raises(
        InvalidInputError, match='expected "append", "merge", "replace" or "overwrite"'
    ):
        graph.write({}, mode="upsert")  # type: ignore[arg-type]


def test_foreign_rows_above_a_pin_stop_the_write_and_stay_where_they_are(graph: Graph) -> None:
    graph.write({"Account": [account("a", 1)], "Note": [{"text": "x"}]})
    entry = graph.snapshot().tables["node:Account"]
    dataset = lance.dataset(f"{graph.root}/{entry.location}")
    foreign = pa.Table.from_pylist(
        [{"id": "evil", "name": "evil", "balance": 9}], schema=dataset.schema
    )
    lance.write_dataset(foreign, dataset.uri, mode="append")
    operation_id = str(ULID())

    with pytest.raises(DriftNeedsRepairError, match="omnigraph repair"):
        graph.write(
            {"Account": [account("b", 2)], "Note": [{"text": "y"}]}, operation_id=operation_id
        )

    assert accounts(graph) == {"a": 1}
    assert graph.outcome(operation_id) is OperationStatus.ROLLED_BACK
    assert graph.maintenance.status().pending_sidecars == ()
    assert [finding.problem.value for finding in graph.maintenance.check().findings] == ["drift"]
    assert lance.dataset(dataset.uri).count_rows() >= 2
    graph.write({"Note": [{"text": "z"}]})


def test_versions_left_by_our_own_kind_are_healed_not_refused(graph: Graph) -> None:
    graph.write({"Account": [account("a", 1)]})
    entry = graph.snapshot().tables["node:Account"]
    dataset = lance.dataset(f"{graph.root}/{entry.location}")
    orphan = pa.Table.from_pylist(
        [{"id": "orphan", "name": "orphan", "balance": 9}], schema=dataset.schema
    )
    lance.write_dataset(
        orphan,
        dataset.uri,
        mode="append",
        transaction_properties={names.OPERATION_PROPERTY: str(ULID()), names.ROLE_PROPERTY: "own"},
    )

    graph.write({"Account": [account("b", 2)]})

    assert accounts(graph) == {"a": 1, "b": 2}
    assert graph.maintenance.check().ok


def test_an_aborted_operation_cannot_be_revived(graph: Graph) -> None:
    entry = graph.snapshot().tables["node:Account"]
    dataset = lance.dataset(f"{graph.root}/{entry.location}")
    lance.write_dataset(dataset.schema.empty_table(), dataset.uri, mode="append")
    operation_id = str(ULID())
    with pytest.raises(DriftNeedsRepairError):
        graph.write({"Account": [account("b", 2)]}, operation_id=operation_id)

    (row,) = [
        row
        for row in graph._handle.manifest().rows
        if isinstance(row, Operation) and row.operation_id == operation_id
    ]
    assert row.outcome is Outcome.ABORTED
    with pytest.raises(OperationRolledBackError, match="new operation id"):
        graph.write({"Account": [account("b", 2)]}, operation_id=operation_id)


IMPORTED = """
import json, sys
import omnigraph_lake as og
root, file = sys.argv[1:]
graph = og.init(root, schema="node P { name: String @key }  edge K: P -> P")
graph.write({"P": [{"name": "a"}], "K": [{"src": "a", "dst": "a"}]})
with open(file, "w") as lines:
    lines.write(json.dumps({"type": "P", "data": {"name": "b"}}) + "\\n")
graph.load(file, mode="merge")
graph.delete({"P": ["a"]})
print([name for name in ("duckdb", "polars", "pyspark") if name in sys.modules])
"""


def test_writes_and_loads_import_no_engine_of_their_own(tmp_path: Path) -> None:
    arguments = str(tmp_path / "g"), str(tmp_path / "in.jsonl")

    finished = run_code(IMPORTED, *arguments, new_process=True)

    assert finished.stdout == "[]\n", finished.stderr
