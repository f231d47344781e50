"""Rebuilding a lost manifest: which versions of tables come back, and who may rebuild."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.creation.lost_manifest import rebuilding
from omnigraph_lake.errors import ConflictError, DamagedGraphError
from omnigraph_lake.graph import Graph
from omnigraph_lake.maintenance.rebuild.rebuild import RebuildReport, apply_rebuild, plan_rebuild
from omnigraph_lake.maintenance.rebuild.tables import RebuiltTable
from omnigraph_lake.storage.manifest.state import ManifestState
from omnigraph_lake.storage.manifest.survey import stored_versions
from omnigraph_lake.storage.manifest.swap import (
    SwapAnswer,
    read_manifest,
    stored_version,
    swap_manifest,
)
from omnigraph_lake.storage.manifest_rows import ManifestRow, Operation, Outcome
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.store import StoredObjects
from tests.behind import FailpointReached, failing_at
from tests.stores import folder_of

pytestmark = pytest.mark.unit

SCHEMA = "node Person { name: String @key  age: I32? }\nnode Note { name: String @key }"
PERSON = names.table_location("node:Person")


@pytest.fixture
def graph(graph_root: str) -> Graph:
    """Person is at version 3 with two rows."""
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write({"Person": [{"name": "ann", "age": 1}]})
    graph.write({"Person": [{"name": "bob", "age": 2}]})
    return graph


def lose_manifest(graph: Graph) -> None:
    shutil.rmtree(folder_of(graph.root, names.MANIFEST))


def people(report: RebuildReport) -> RebuiltTable:
    (table,) = (table for table in report.tables if table.table_key == "node:Person")
    return table


def version_file(graph: Graph, version: int) -> Path:
    return folder_of(graph.root, f"{PERSON}/{names.lance_version(version)}")


def append_by_hand(graph: Graph) -> None:
    dataset = lance.dataset(f"{graph.root}/{PERSON}")
    rows = pa.Table.from_pylist([{"id": "eve", "name": "eve", "age": 3}], schema=dataset.schema)
    lance.write_dataset(rows, dataset.uri, mode="append")


def test_rows_that_another_program_wrote_are_left_out_and_shown_by_repair(graph: Graph) -> None:
    append_by_hand(graph)
    lose_manifest(graph)

    table = people(og.rebuild_manifest(graph.root, dry_run=False))

    assert (table.version, table.rows) == (3, 2)
    assert [(left.version, left.reason) for left in table.skipped] == [
        (4, "not written by Omnigraph")
    ]
    (drift,) = og.open(graph.root).maintenance.repair().previewed
    assert (drift.table_key, drift.version, drift.rows) == ("node:Person", 4, 3)


def test_compactions_come_back_with_the_rows_they_keep(graph: Graph) -> None:
    graph.maintenance.optimize(target_rows_per_fragment=100)
    published = graph.snapshot().tables["node:Person"]
    assert published.version > 3
    lose_manifest(graph)

    report = og.rebuild_manifest(graph.root, dry_run=False)

    assert (people(report).version, people(report).rows) == (published.version, 2)
    assert people(report).skipped == ()
    assert og.open(graph.root).maintenance.check().ok


@pytest.mark.parametrize("content", [b"", b"\xa5" * 900, bytes(900)])
def test_a_version_that_cannot_be_read_is_left_out(graph: Graph, content: bytes) -> None:
    lose_manifest(graph)
    version_file(graph, 3).write_bytes(content)

    table = people(og.rebuild_manifest(graph.root))

    assert (table.version, table.rows) == (2, 1)
    assert [(left.version, left.reason) for left in table.skipped] == [(3, "it cannot be read")]


@pytest.mark.local_disk("a store keeps its own checksums")
def test_the_checksums_of_the_published_version_still_count(graph: Graph) -> None:
    lose_manifest(graph)
    (changed, *_) = sorted(folder_of(graph.root, PERSON, "data").iterdir())
    before = changed.read_bytes()
    changed.write_bytes(before[:40] + bytes([before[40] ^ 1]) + before[41:])

    og.rebuild_manifest(graph.root, dry_run=False)

    rebuilt = og.open(graph.root, verify="first-read")
    with pytest.raises(DamagedGraphError, match=changed.name):
        rebuilt.scan("Person").read_all()


def test_a_table_of_which_nothing_is_left_stops_the_rebuild(graph: Graph) -> None:
    graph.write({"Note": [{"name": "first"}]})
    lose_manifest(graph)
    shutil.rmtree(folder_of(graph.root, PERSON))
    before = sorted(folder_of(graph.root).rglob("*"))

    preview = og.rebuild_manifest(graph.root)
    assert [table.table_key for table in preview.problems] == ["node:Person"]
    with pytest.raises(DamagedGraphError, match="node:Person can be recovered"):
        og.rebuild_manifest(graph.root, dry_run=False)

    assert sorted(folder_of(graph.root).rglob("*")) == before


def test_a_damaged_copy_of_the_schema_is_replaced_by_the_accepted_one(graph: Graph) -> None:
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  city: String?"))
    graph.write({"Person": [{"name": "cyd", "city": "Rome"}]})
    lose_manifest(graph)
    folder_of(graph.root, names.SCHEMA_STATE).write_bytes(b"{")

    og.rebuild_manifest(graph.root, dry_run=False)

    rebuilt = og.open(graph.root)
    rows = rebuilt.scan("Person").read_all().to_pylist()
    assert {row["name"]: row["city"] for row in rows} == {"ann": None, "bob": None, "cyd": "Rome"}


def test_without_any_schema_nothing_is_rebuilt(graph: Graph) -> None:
    lose_manifest(graph)
    folder_of(graph.root, names.SCHEMA_STATE).unlink()

    with pytest.raises(DamagedGraphError, match="no accepted schema can be read"):
        og.rebuild_manifest(graph.root, dry_run=False)


def test_two_processes_do_not_rebuild_at_once(graph: Graph) -> None:
    lose_manifest(graph)
    objects = StoredObjects(parse_root(graph.root))

    with (
        rebuilding(objects, SYSTEM_CLOCK.new_id(), SYSTEM_CLOCK, damaged=()),
        pytest.raises(ConflictError, match="has been rebuilding"),
    ):
        og.rebuild_manifest(graph.root, dry_run=False)

    assert not folder_of(graph.root, names.MANIFEST).exists()
    assert og.rebuild_manifest(graph.root, dry_run=False).commit_id is not None


def test_a_rebuild_that_died_does_not_block_the_next(graph: Graph) -> None:
    lose_manifest(graph)
    objects = StoredObjects(parse_root(graph.root))
    with rebuilding(objects, SYSTEM_CLOCK.new_id(), SYSTEM_CLOCK, damaged=()):
        entry = json.loads(objects.read(names.rebuild_entry(1)) or b"")
    dead = subprocess.Popen(["true"])
    dead.wait()
    objects.delete(names.rebuild_entry(2))
    objects.replace(names.rebuild_entry(1), json.dumps({**entry, "pid": dead.pid}).encode())

    assert og.rebuild_manifest(graph.root, dry_run=False).commit_id is not None


def test_versions_offered_by_two_writers_are_not_guessed_at(graph: Graph) -> None:
    """Of two writers that tried to make the newest version, it is not known who made it."""
    transactions = folder_of(graph.root, names.lance_transactions(names.MANIFEST))
    (newest,) = transactions.glob("2-*")
    (earlier,) = transactions.glob("1-*")
    shutil.copy(earlier, transactions / f"2-{earlier.name.partition('-')[2]}")
    folder_of(graph.root, f"{names.MANIFEST}/{names.lance_version(3)}").write_bytes(b"")

    assert og.rebuild_manifest(graph.root).manifest_version == 2

    (transactions / f"2-{earlier.name.partition('-')[2]}").unlink()
    assert og.rebuild_manifest(graph.root).manifest_version == 3
    assert newest.exists()


def damage(graph: Graph, *newest: int, content: bytes = b"\xa5" * 900) -> None:
    """Replace versions of the manifest, counted from the newest, which is 0."""
    objects = StoredObjects(parse_root(graph.root))
    versions = stored_versions(objects, names.MANIFEST)
    for number in newest:
        objects.replace(versions[number][1], content)


def rows_after(state: ManifestState, operation_id: str) -> tuple[ManifestRow, ...]:
    """The rows that a write of nothing would publish."""
    head = replace(state.head, sequence=state.head.sequence + 1)
    kept = tuple(row for row in state.rows if row != state.head)
    decision = Operation(
        operation_id=operation_id,
        branch=None,
        outcome=Outcome.ABORTED,
        decided_by="a test",
        decided_at=SYSTEM_CLOCK.timestamp(),
    )
    return (*kept, head, decision)


@pytest.mark.parametrize("damaged", [1, 2, 3])
def test_a_rebuild_that_comes_late_changes_nothing(graph: Graph, damaged: int) -> None:
    """Its process slept while another one rebuilt, as after an hour on another host."""
    before = sorted(graph.scan("Person").read_all()["name"].to_pylist())
    damage(graph, *range(damaged))
    objects = StoredObjects(parse_root(graph.root))
    late = plan_rebuild(objects, SYSTEM_CLOCK)
    report = og.rebuild_manifest(graph.root, dry_run=False)

    with pytest.raises(ConflictError, match="at the same time"):
        apply_rebuild(objects, late, SYSTEM_CLOCK)

    rebuilt = og.open(graph.root)
    assert rebuilt.commits(limit=1)[0].commit_id == report.commit_id
    assert sorted(rebuilt.scan("Person").read_all()["name"].to_pylist()) == before
    assert rebuilt.maintenance.check(deep=True).ok


def test_a_writer_that_read_the_version_before_it_was_damaged_is_not_overwritten(
    graph: Graph,
) -> None:
    state = read_manifest(parse_root(graph.root))
    damage(graph, 0)
    objects = StoredObjects(parse_root(graph.root))
    plan = plan_rebuild(objects, SYSTEM_CLOCK)
    operation_id = SYSTEM_CLOCK.new_id()
    answer = swap_manifest(state, rows_after(state, operation_id), operation_id=operation_id)
    assert answer is SwapAnswer.ACCEPTED

    with pytest.raises(ConflictError, match="at the same time"):
        apply_rebuild(objects, plan, SYSTEM_CLOCK)

    outcomes = [row for row in read_manifest(objects.root).rows if isinstance(row, Operation)]
    assert operation_id in {row.operation_id for row in outcomes}
    assert og.open(graph.root).scan("Person").read_all().num_rows == 2


def test_a_late_writer_finds_no_number_that_decides(graph: Graph) -> None:
    """It read the version below the damaged one; that number becomes free when it is moved."""
    newest = read_manifest(parse_root(graph.root)).version
    late = stored_version(parse_root(graph.root), newest - 1)
    damage(graph, 0)
    og.rebuild_manifest(graph.root, dry_run=False)

    swap_manifest(late, rows_after(late, "late"), operation_id="late")

    state = read_manifest(parse_root(graph.root))
    assert state.version == newest + 1
    assert "late" not in {row.operation_id for row in state.rows if isinstance(row, Operation)}
    assert og.open(graph.root).scan("Person").read_all().num_rows == 2


@pytest.mark.local_disk("a power cut of an object store is its own affair")
@pytest.mark.parametrize("content", [b"", bytes(900)], ids=["empty", "zeros"])
def test_what_a_rebuild_found_damaged_is_not_taken_for_torn_after_a_restart(
    graph: Graph, content: bytes
) -> None:
    damage(graph, 0, content=content)
    with failing_at("rebuild.planned"), pytest.raises(FailpointReached):
        og.rebuild_manifest(graph.root, dry_run=False)
    shutil.rmtree(folder_of(graph.root, names.BOOTS_DIR))  # as if the machine was started again

    for read_only in (True, False):
        with pytest.raises(DamagedGraphError, match="rebuild-manifest"):
            og.open(graph.root, read_only=read_only)

    assert not folder_of(graph.root, names.QUARANTINE_DIR).exists()
    og.rebuild_manifest(graph.root, dry_run=False)
    assert og.open(graph.root).scan("Person").read_all().num_rows == 2


def test_a_damaged_older_version_is_set_aside_and_nothing_is_published(graph: Graph) -> None:
    damage(graph, 1)
    newest = read_manifest(parse_root(graph.root)).version
    assert not og.open(graph.root).maintenance.check(deep=True).ok

    preview = og.rebuild_manifest(graph.root)
    report = og.rebuild_manifest(graph.root, dry_run=False)

    assert preview.was_published
    assert preview.damaged_versions == report.damaged_versions == (newest - 1,)
    assert (report.manifest_version, report.commit_id) == (newest, None)
    assert report.quarantine is not None
    assert og.open(graph.root).maintenance.check(deep=True).ok
    with pytest.raises(ConflictError, match="nothing to rebuild"):
        og.rebuild_manifest(graph.root, dry_run=False)
