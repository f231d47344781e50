"""Optimize: what is rewritten, what is left alone and why, how it is published and survives."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.commit.sidecar import (
    pending_operations,
    pending_sidecars,
    read_sidecar,
)
from omnigraph_lake.errors import (
    ConflictError,
    DamagedGraphError,
    InvalidInputError,
    MaintenanceIncompleteError,
    OmnigraphError,
    ReadOnlyError,
    RecoveryRequiredError,
)
from omnigraph_lake.failpoints import Action, Armed, FailpointReached, arm, disarm_all
from omnigraph_lake.graph import Graph
from omnigraph_lake.maintenance.optimize import SkipReason, TableOptimizeStats
from omnigraph_lake.storage.lance import compaction
from omnigraph_lake.storage.lance.compaction import SUPPORTS_BLOBS
from tests.behaviours.histories import content, put, row_ids
from tests.maintenance.maintenance_graphs import (
    CITES,
    DOC,
    QUIET,
    TABLES,
    TAG,
    act_at,
    armed,
    by_key,
    coverage,
    data_files,
    doc,
    fragments,
    head,
    heads_equal_pins,
    hold_schema,
    pinned,
    scattered_graph,
    uri,
)
from tests.stores import folder_of, root_at

pytestmark = pytest.mark.unit

PUBLISHED = "optimize.post_phase_b_pre_manifest_commit"
VERBS: dict[str, Callable[[Graph], object]] = {
    "optimize": lambda graph: graph.maintenance.optimize(),
    "cleanup": lambda graph: graph.maintenance.cleanup(keep_versions=3, dry_run=False),
}


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    disarm_all()
    yield
    disarm_all()


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return scattered_graph(graph_root)


def by_hand(graph: Graph, key: str) -> None:
    """Something else compacts a table."""
    lance.dataset(uri(graph, key)).optimize.compact_files()


def maintenance_commits(graph: Graph) -> list[tuple[str, ...]]:
    """The tables of every commit of maintenance, newest first."""
    found = graph.commits(actor="omnigraph:maintenance")
    return [tuple(sorted(key for key, _, _ in commit.tables)) for commit in found]


def test_every_table_is_told_about_with_exactly_these_fields(graph: Graph) -> None:
    stats = graph.maintenance.optimize()

    assert [each.name for each in dataclasses.fields(TableOptimizeStats)] == [
        "table_key",
        "fragments_removed",
        "fragments_added",
        "committed",
        "skipped",
        "manifest_version",
        "lance_head_version",
        "pending_indexes",
        "error",
    ]
    assert stats == (
        TableOptimizeStats(table_key=CITES, fragments_removed=2, fragments_added=1, committed=True),
        TableOptimizeStats(table_key=DOC, fragments_removed=3, fragments_added=1, committed=True),
        TableOptimizeStats(table_key=QUIET),
        TableOptimizeStats(table_key=TAG, committed=True),
    )


def test_small_files_become_fewer_and_rows_and_row_ids_stay(graph: Graph) -> None:
    before, rows = content(graph), row_ids(graph, DOC)

    graph.maintenance.optimize()

    assert {key: fragments(graph, key) for key in TABLES} == {CITES: 1, DOC: 1, QUIET: 0, TAG: 1}
    assert (content(graph), row_ids(graph, DOC)) == (before, rows)
    assert heads_equal_pins(graph)
    assert graph.maintenance.check().ok


def test_all_tables_go_into_one_commit_of_compaction_and_one_of_indexes(graph: Graph) -> None:
    version = graph.snapshot().manifest_version
    graph.maintenance.optimize()

    assert maintenance_commits(graph) == [(CITES, DOC, TAG), (CITES, DOC)]
    assert graph.snapshot().manifest_version > version


def test_old_files_stay_readable_where_older_commits_name_them(graph: Graph) -> None:
    before, first = content(graph), graph.snapshot().commit_id
    assert first is not None
    files = data_files(graph, DOC)

    graph.maintenance.optimize()

    assert set(files) < set(data_files(graph, DOC))
    assert content(graph.at(first)) == before


def test_a_handle_opened_before_sees_the_new_version_at_its_next_call(graph: Graph) -> None:
    other = og.open(graph.root, read_only=True)
    past = other.at("main")
    before = content(other)

    graph.maintenance.optimize()

    assert other.snapshot().tables == graph.snapshot().tables
    assert content(other) == before
    assert past.snapshot().tables != other.snapshot().tables
    assert content(past) == before


def test_a_compacted_table_takes_strict_writes(graph: Graph) -> None:
    graph.maintenance.optimize()

    graph.write({"Doc": [doc(1, 100)]}, mode="merge")
    graph.delete({"Doc": ["d2"]})
    graph.write({"Doc": [doc(50)]})

    assert content(graph)["Doc"]["d1"]["n"] == 100
    assert content(graph)["Doc"].keys() == {*(f"d{n}" for n in range(9) if n != 2), "d50"}
    assert heads_equal_pins(graph)


def test_a_second_run_with_nothing_to_do_writes_nothing(graph: Graph) -> None:
    graph.maintenance.optimize()
    graph.maintenance.optimize()
    version = graph.snapshot().manifest_version
    heads = {key: head(graph, key) for key in TABLES}

    stats = graph.maintenance.optimize()

    assert all(each == TableOptimizeStats(table_key=each.table_key) for each in stats)
    assert graph.snapshot().manifest_version == version
    assert {key: head(graph, key) for key in TABLES} == heads


def test_a_table_without_work_is_in_no_sidecar(graph: Graph) -> None:
    with armed(PUBLISHED), pytest.raises(FailpointReached):
        graph.maintenance.optimize()

    (path,) = pending_sidecars(graph._objects)
    sidecar = read_sidecar(graph._objects, path)
    assert sidecar is not None
    assert sorted(table.table_key for table in sidecar.tables) == [CITES, DOC]
    assert sidecar.kind.value == "optimize"


def test_a_table_that_only_needs_indexes_is_not_compacted(graph: Graph) -> None:
    graph.maintenance.optimize()
    put(graph, Tag=[{"name": "u"}])
    files = data_files(graph, TAG)

    tag = by_key(graph.maintenance.optimize())[TAG]

    assert (tag.committed, tag.fragments_removed) == (True, 0)
    assert data_files(graph, TAG) == files
    assert coverage(graph, TAG)["id_btree"] == (2, 0)


def test_one_file_with_many_deleted_rows_is_rewritten(graph: Graph) -> None:
    graph.maintenance.optimize()
    graph.delete({"Doc": ["d1", "d2", "d3"]})
    assert fragments(graph, DOC) == 1

    doc_stats = by_key(graph.maintenance.optimize())[DOC]

    assert (doc_stats.fragments_removed, doc_stats.fragments_added) == (1, 1)
    assert sum(each.metadata.num_deletions for each in pinned(graph, DOC).get_fragments()) == 0
    assert len(content(graph)["Doc"]) == 6


@pytest.mark.parametrize(("target", "left"), [(None, 1), (3, 3)])
def test_the_size_of_fragments_can_be_wished(graph: Graph, target: int | None, left: int) -> None:
    graph.maintenance.optimize(target_rows_per_fragment=target)

    assert fragments(graph, DOC) == left
    assert len(content(graph)["Doc"]) == 9


@pytest.mark.parametrize("target", [0, -5, 2.5, "9", True, 2**70])
def test_a_size_of_fragments_that_cannot_be_is_refused(graph: Graph, target: Any) -> None:
    with pytest.raises(InvalidInputError, match="a fragment cannot have"):
        graph.maintenance.optimize(target_rows_per_fragment=target)
    assert graph.commits(actor="omnigraph:maintenance") == ()


def test_blob_columns_are_compacted_with_their_values(graph_root: str) -> None:
    graph = og.init(graph_root, schema="node File { name: String @key  bytes: Blob? }")
    for name in ("a", "b", "c"):
        graph.write({"File": [{"name": name, "bytes": name.encode() * 5}]})

    (stats,) = graph.maintenance.optimize()

    assert SUPPORTS_BLOBS
    assert (stats.skipped, stats.fragments_added) == (None, 1)
    table = pinned(graph, "node:File")
    ids = table.to_table(columns=["id"])["id"].to_pylist()
    blobs = table.take_blobs("bytes", indices=list(range(3)))
    assert {key: blob and blob.read() for key, blob in zip(ids, blobs, strict=True)} == {
        name: name.encode() * 5 for name in ("a", "b", "c")
    }


@pytest.mark.parametrize(
    ("reason", "token"),
    [
        (SkipReason.BLOB_COLUMNS_UNSUPPORTED_BY_LANCE, "blob_columns_unsupported_by_lance"),
        (SkipReason.DRIFT_NEEDS_REPAIR, "drift_needs_repair"),
        (SkipReason.CONTENDED, "contended"),
    ],
)
def test_reasons_have_tokens_that_never_change_and_a_sentence(
    reason: SkipReason, token: str
) -> None:
    assert str(reason) == reason.value == token
    assert ":" in reason.sentence
    assert len(SkipReason) == 3


def test_a_table_whose_head_somebody_else_moved_is_skipped_with_both_versions(
    graph: Graph,
) -> None:
    published = graph.snapshot().tables[DOC].version
    by_hand(graph, DOC)
    above = head(graph, DOC)

    stats = by_key(graph.maintenance.optimize())

    assert stats[DOC] == TableOptimizeStats(
        table_key=DOC,
        skipped=SkipReason.DRIFT_NEEDS_REPAIR,
        manifest_version=published,
        lance_head_version=above,
    )
    assert "omnigraph repair" in SkipReason.DRIFT_NEEDS_REPAIR.sentence
    assert stats[CITES].committed
    assert graph.snapshot().tables[DOC].version == published
    assert head(graph, DOC) == above


def test_a_skipped_table_is_optimized_after_its_repair(graph: Graph) -> None:
    by_hand(graph, DOC)
    graph.maintenance.optimize()
    graph.maintenance.repair(dry_run=False)

    stats = by_key(graph.maintenance.optimize())

    assert stats[DOC].skipped is None
    assert coverage(graph, DOC)["id_btree"] == (9, 0)


def test_undone_work_of_ours_is_buried_and_the_table_optimized(graph: Graph) -> None:
    before = content(graph)
    with armed("mutation.post_direct_commit"), pytest.raises(FailpointReached):
        graph.write({"Doc": [doc(70)], "Tag": [{"name": "x"}]})
    for path in pending_sidecars(graph._objects):
        graph._objects.delete(path)
    assert not heads_equal_pins(graph)

    stats = by_key(graph.maintenance.optimize())

    assert [each for each in stats.values() if each.skipped] == []
    assert stats[DOC].fragments_added == 1
    assert content(graph) == before
    assert heads_equal_pins(graph)


def head_behind(graph: Graph) -> None:
    version = graph.snapshot().tables[TAG].version
    folder_of(uri(graph, TAG), "_versions", f"{2**64 - 1 - version}.manifest").unlink()


def head_damaged(graph: Graph) -> None:
    version = graph.snapshot().tables[TAG].version
    folder_of(uri(graph, TAG), "_versions", f"{2**64 - 1 - version}.manifest").write_bytes(
        b"junk" * 9
    )


def data_gone(graph: Graph) -> None:
    data_files(graph, TAG)[0].unlink()


def table_gone(graph: Graph) -> None:
    shutil.rmtree(folder_of(uri(graph, TAG)))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (head_behind, "failed for node:Tag: node:Tag is published at version 2, but HEAD"),
        (head_damaged, "failed for node:Tag: could not open"),
        (data_gone, "failed for node:Tag: could not build index"),
        (table_gone, "failed for node:Tag: node:Tag is published at version 2"),
    ],
)
def test_a_damaged_table_is_raised_after_the_others_are_published(
    graph: Graph, damage: Callable[[Graph], None], message: str
) -> None:
    damage(graph)

    with pytest.raises(MaintenanceIncompleteError, match=message) as raised:
        graph.maintenance.optimize()

    assert list(raised.value.errors) == [TAG]
    report = by_key(raised.value.report)  # type: ignore[arg-type]
    assert list(report) == list(TABLES)
    assert (report[DOC].fragments_added, report[CITES].committed) == (1, True)
    assert not report[TAG].committed
    statistics = pinned(graph, DOC).stats.index_stats("place_vector")
    assert statistics["num_indexed_rows"] == 9


def test_a_table_whose_vectors_cannot_be_looked_at_harms_no_other(graph: Graph) -> None:
    graph.delete({"Doc": ["d1"]})
    for path in folder_of(uri(graph, DOC)).glob("_deletions/*"):
        path.unlink()

    with pytest.raises(MaintenanceIncompleteError, match="failed for node:Doc"):
        graph.maintenance.optimize()

    assert coverage(graph, TAG)["id_btree"] == (1, 0)


def test_a_failing_table_is_raised_after_the_others_are_published(graph: Graph) -> None:
    data_files(graph, DOC)[0].unlink()

    with pytest.raises(MaintenanceIncompleteError, match="failed for node:Doc") as raised:
        graph.maintenance.optimize()

    assert list(raised.value.errors) == [DOC]
    assert "the work on the other tables is kept" in str(raised.value)
    assert f"omnigraph optimize {graph.root}" in str(raised.value)
    report = by_key(raised.value.report)  # type: ignore[arg-type]
    assert list(report) == list(TABLES)
    assert report[CITES].committed
    assert report[TAG].committed
    assert not report[DOC].committed
    assert (fragments(graph, CITES), fragments(graph, DOC)) == (1, 3)
    assert coverage(graph, CITES)["id_btree"] == (2, 0)
    assert heads_equal_pins(graph)
    assert pending_operations(graph._objects) == ()


def test_a_table_that_fails_in_the_middle_of_its_commit_harms_no_other(graph: Graph) -> None:
    with armed("optimize.pre_reserve"), pytest.raises((FailpointReached, OmnigraphError)):
        graph.maintenance.optimize()

    reopened = og.open(graph.root)

    assert pending_operations(reopened._objects) == ()
    assert heads_equal_pins(reopened)
    assert len(content(reopened)["Doc"]) == 9
    reopened.maintenance.optimize()
    assert {fragments(reopened, key) for key in (CITES, DOC, TAG)} == {1}


def test_a_crash_before_the_publish_is_rolled_forward(graph: Graph) -> None:
    before = content(graph)
    with armed(PUBLISHED), pytest.raises(FailpointReached):
        graph.maintenance.optimize()
    assert fragments(graph, DOC) == 3
    assert not heads_equal_pins(graph)
    (operation_id,) = pending_operations(graph._objects)

    reopened = og.open(graph.root)

    assert reopened.outcome(operation_id) is OperationStatus.PUBLISHED
    assert (fragments(reopened, DOC), fragments(reopened, CITES)) == (1, 1)
    assert content(reopened) == before
    (recovery,) = reopened.maintenance.recoveries()
    assert (recovery.kind, recovery.writer_kind) == ("rolled_forward", "optimize")
    (commit,) = reopened.commits(actor="omnigraph:recovery")
    assert commit.commit_id == recovery.commit_id
    assert heads_equal_pins(reopened)
    assert reopened.maintenance.check().ok


def test_a_crash_in_the_index_commit_is_settled_and_tried_again(graph: Graph) -> None:
    with armed("publish.pre_manifest", visit=2), pytest.raises(FailpointReached):
        graph.maintenance.optimize()
    assert fragments(graph, DOC) == 1

    reopened = og.open(graph.root)
    assert heads_equal_pins(reopened)
    reopened.maintenance.optimize()

    assert coverage(reopened, DOC)["id_btree"] == (9, 0)
    assert len(content(reopened)["Doc"]) == 9


@pytest.mark.parametrize("confirm", [False, True])
def test_maintenance_is_refused_while_a_dead_writer_is_undecided(
    graph: Graph, confirm: bool
) -> None:
    with armed("publish.pre_manifest"), pytest.raises(FailpointReached):
        graph.write({"Doc": [doc(70)]})

    with pytest.raises(RecoveryRequiredError, match=r"optimize cannot run: .*unfinished"):
        graph.maintenance.optimize()
    with pytest.raises(RecoveryRequiredError, match=r"cleanup cannot run: .*unfinished"):
        graph.maintenance.cleanup(keep_versions=3, dry_run=not confirm)

    assert og.open(graph.root).maintenance.optimize()[1].skipped is None


def test_maintenance_is_refused_while_a_sidecar_cannot_be_understood(graph: Graph) -> None:
    path = folder_of(graph.root, names.sidecar(str(ULID()), None))
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"format": 1}))

    with pytest.raises(RecoveryRequiredError, match="cannot be parsed"):
        graph.maintenance.optimize()
    with pytest.raises(RecoveryRequiredError, match="cannot be parsed"):
        graph.maintenance.cleanup(keep_versions=3, dry_run=False)


def test_a_writer_at_work_does_not_stop_an_optimize(graph: Graph) -> None:
    arm("publish.pre_manifest", Armed(action=Action.PAUSE, seconds=1.0))
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(graph.write, {"Quiet": [{"name": "q"}]})
        while not pending_operations(graph._objects) and not writing.done():
            pass
        stats = by_key(graph.maintenance.optimize())
        writing.result()

    assert stats[DOC].committed
    assert content(graph)["Quiet"].keys() == {"q"}
    assert heads_equal_pins(graph)


@pytest.mark.parametrize("how", ["append", "update", "delete"])
def test_a_table_written_meanwhile_is_told_as_contended_and_loses_no_row(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def rival() -> None:
        match how:
            case "append":
                graph.write({"Doc": [doc(70)]})
            case "update":
                graph.write({"Doc": [doc(1, 100)]}, mode="merge")
            case _:
                graph.delete({"Doc": ["d1"]})

    graph.write({"Cites": [{"id": "0-1", "src": "d0", "dst": "d1"}]}, mode="overwrite")
    act_at(monkeypatch, compaction, "optimize.pre_reserve", rival)

    stats = by_key(graph.maintenance.optimize())

    expected = {f"d{n}": n for n in range(9)} | ({"d70": 70} if how == "append" else {})
    if how == "update":
        expected["d1"] = 100
    if how == "delete":
        del expected["d1"]
    assert {key: row["n"] for key, row in content(graph)["Doc"].items()} == expected
    assert stats[DOC].skipped is SkipReason.CONTENDED
    assert "omnigraph optimize again" in SkipReason.CONTENDED.sentence
    assert (stats[DOC].fragments_removed, stats[DOC].fragments_added) == (0, 0)
    assert heads_equal_pins(graph)
    assert pending_operations(graph._objects) == ()
    assert [each.skipped for each in graph.maintenance.optimize()] == [None] * 4
    assert fragments(graph, DOC) == 1
    assert graph.maintenance.check().ok


@pytest.mark.parametrize("verb", VERBS)
def test_maintenance_is_refused_while_the_schema_is_being_changed(graph: Graph, verb: str) -> None:
    hold_schema(graph)

    with pytest.raises(ConflictError, match=f"being changed.*(?s:.)*omnigraph {verb}"):
        VERBS[verb](graph)


@pytest.mark.parametrize("verb", VERBS)
def test_maintenance_is_refused_if_the_schema_files_disagree_with_the_manifest(
    graph: Graph, verb: str, tmp_path: Path
) -> None:
    other = og.init(root_at(tmp_path / "other"), schema="node Other { name: String @key }")
    for name in (names.SCHEMA_SOURCE, names.SCHEMA_MODEL, names.SCHEMA_STATE):
        shutil.copy(folder_of(other.root, name), folder_of(graph.root, name))

    with pytest.raises(DamagedGraphError, match="the manifest says"):
        VERBS[verb](graph)


def test_a_reading_handle_may_not_optimize(graph: Graph) -> None:
    reader = og.open(graph.root, read_only=True)

    with pytest.raises(ReadOnlyError, match="cannot optimize"):
        reader.maintenance.optimize()


def test_optimize_is_about_main_whatever_branch_a_handle_is_on(graph: Graph) -> None:
    branch = graph.branches.create("side")
    for number in (20, 21, 22):
        branch.write({"Doc": [doc(number)]})
    entry, parts = branch.snapshot().tables[DOC], fragments(branch, DOC)

    branch.maintenance.optimize()

    assert branch.snapshot().tables[DOC] == entry
    assert fragments(branch, DOC) == parts
    assert fragments(graph, DOC) == 1


def test_commits_move_to_the_history_and_its_files_become_fewer(graph: Graph) -> None:
    for number in range(3):
        graph.write({"Tag": [{"name": f"more{number}"}]})
    known = {commit.commit_id for commit in graph.commits()}

    graph.maintenance.optimize()

    history = lance.dataset(f"{graph.root}/{names.COMMITS}")
    assert len(history.get_fragments()) == 1
    assert known < {commit.commit_id for commit in graph.commits()}


def test_an_empty_graph_has_nothing_to_do(graph_root: str) -> None:
    graph = og.init(graph_root, schema="node A { name: String @key }")

    assert graph.maintenance.optimize() == (TableOptimizeStats(table_key="node:A"),)
    assert graph.commits(actor="omnigraph:maintenance") == ()
