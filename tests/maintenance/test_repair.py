"""What something else wrote into a table is shown, and published when somebody says so."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.commit.sidecar import (
    Sidecar,
    SidecarState,
    WriterKind,
    active_operation,
    delete_sidecar,
    put_sidecar,
    started_at,
    this_host,
    this_process,
)
from omnigraph_lake.errors import DriftNeedsRepairError, ReadOnlyError, RecoveryRequiredError
from omnigraph_lake.failpoints import Action, Armed, FailpointReached, arm, disarm_all
from omnigraph_lake.graph import Graph
from omnigraph_lake.maintenance.repair import Remedy, RepairAction, RepairReport, TableRepair
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.store import StoredObjects
from omnigraph_lake.storage.staging.drift import DriftClass
from tests.behind import meanwhile
from tests.commit.small_graphs import account, accounts, small_graph
from tests.stores import folder_of

pytestmark = [pytest.mark.unit, pytest.mark.sampled(3)]

KEY = "node:Account"
PUBLISHED = {"a": 1, "b": 2}


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    disarm_all()
    yield
    disarm_all()


@pytest.fixture
def graph(graph_root: str) -> Graph:
    """Accounts a and b, in a file each."""
    graph = small_graph(graph_root)
    graph.write({"Account": [account("a", 1)]})
    graph.write({"Account": [account("b", 2)]})
    return graph


def uri(graph: Graph, key: str = KEY) -> str:
    entry = graph.snapshot().tables[key]
    line = f"{entry.location}/tree/{entry.fork}" if entry.fork else entry.location
    return f"{graph.root}/{line}"


def table(graph: Graph, key: str = KEY) -> LanceDataset:
    return lance.dataset(uri(graph, key))


def pinned(graph: Graph, key: str = KEY) -> int:
    return graph.snapshot().tables[key].version


def append(graph: Graph, name: str = "x", **properties: str) -> None:
    rows = [{"id": name, "name": name, "balance": 9}]
    lance.write_dataset(
        pa.Table.from_pylist(rows, schema=table(graph).schema),
        uri(graph),
        mode="append",
        transaction_properties=properties,
    )


def compact(graph: Graph) -> None:
    table(graph).optimize.compact_files()


def index(graph: Graph) -> None:
    table(graph).create_scalar_index("name", "BTREE")


def overwrite(graph: Graph) -> None:
    rows = [{"id": "z", "name": "z", "balance": 1}]
    lance.write_dataset(
        pa.Table.from_pylist(rows, schema=table(graph).schema), uri(graph), mode="overwrite"
    )


def tagged(graph: Graph, role: str = "own") -> dict[str, str]:
    """What an operation of ours writes into the versions that it makes."""
    return {
        names.OPERATION_PROPERTY: str(ULID()),
        names.ROLE_PROPERTY: role,
        names.PIN_PROPERTY: str(pinned(graph)),
    }


def commit(graph: Graph, operation: LanceOperation.BaseOperation, **properties: str) -> None:
    head = table(graph)
    made = Transaction(head.version, operation, transaction_properties=properties)
    LanceDataset.commit(head, made)


def undone_write(graph: Graph) -> str:
    """A write that left its rows on top of HEAD, and was then refused or rolled back."""
    properties = tagged(graph)
    append(graph, "undone", **properties)
    return properties[names.OPERATION_PROPERTY]


def undone_update(graph: Graph) -> None:
    """The same for a write that leaves the number of rows as it is."""
    head = table(graph)
    rows = [{"id": "a", "name": "a", "balance": 100}]
    merging = head.merge_insert("id").when_matched_update_all()
    staged, _ = merging.execute_uncommitted(pa.Table.from_pylist(rows, schema=head.schema))
    commit(graph, staged.operation, **tagged(graph))


def healed(graph: Graph) -> None:
    """Our own way to put the published content back on top."""
    commit(graph, LanceOperation.Restore(pinned(graph)), **tagged(graph, "heal"))


def rewritten(graph: Graph, properties: Mapping[str, str], *, files: int = 2) -> None:
    """A compaction that only says what it keeps: everything, or the first file alone."""
    old = [fragment.metadata for fragment in table(graph).get_fragments()]
    group = LanceOperation.RewriteGroup(old_fragments=old, new_fragments=old[:files])
    commit(graph, LanceOperation.Rewrite(groups=[group], rewritten_indices=[]), **properties)


def manifest_file(graph: Graph, version: int) -> Path:
    return folder_of(uri(graph), "_versions", f"{2**64 - 1 - version}.manifest")


def lose(graph: Graph, version: int) -> None:
    manifest_file(graph, version).unlink()


def damage(graph: Graph, version: int) -> None:
    manifest_file(graph, version).write_bytes(b"not a manifest at all")


def of(report: RepairReport, key: str = KEY) -> TableRepair:
    (found,) = [each for each in report.tables if each.table_key == key]
    return found


def restore(graph: Graph, version: int) -> None:
    lance.dataset(uri(graph), version=version).restore()  # type: ignore[no-untyped-call]


def alter(graph: Graph, **change: Any) -> None:
    columns: Any = {"path": "balance", **change}
    table(graph).alter_columns(columns)


Deed = Callable[[Graph], object]


def deeds(*each: Deed) -> Deed:
    def act(graph: Graph) -> None:
        for deed in each:
            deed(graph)

    return act


NO_DRIFT: dict[str, Deed] = {
    "nothing": lambda _: None,
    "a write of ours that was undone": undone_write,
    "undone and healed": deeds(undone_write, healed),
    "compacted, then healed by us": deeds(compact, healed),
    "compacted over undone rows, then healed": deeds(undone_write, compact, healed),
}
MAINTENANCE: dict[str, Deed] = {
    "compacted": compact,
    "indexed": index,
    "indexed, then compacted": deeds(index, compact),
    "settings changed": lambda graph: table(graph).update_config({"a": "b"}),
    "compacted, then a write of ours undone on top": deeds(compact, undone_write),
    "compacted after we healed": deeds(undone_write, healed, compact),
    "compacted over undone maintenance of ours": deeds(
        lambda graph: rewritten(graph, tagged(graph)), compact
    ),
}
SUSPICIOUS: dict[str, tuple[Deed, dict[str, int]]] = {
    "appended": (append, {**PUBLISHED, "x": 9}),
    "appended, then compacted": (deeds(append, compact), {**PUBLISHED, "x": 9}),
    "deleted": (lambda graph: table(graph).delete("id = 'a'"), {"b": 2}),
    "updated": (lambda graph: table(graph).update({"balance": "7"}), {"a": 7, "b": 7}),
    "overwritten": (overwrite, {"z": 1}),
    "restored to an older version": (
        lambda graph: restore(graph, pinned(graph) - 1),
        {"a": 1},
    ),
    "appended, then undone by hand": (
        deeds(append, lambda graph: restore(graph, pinned(graph))),
        PUBLISHED,
    ),
    "compacted over undone rows": (deeds(undone_write, compact), {**PUBLISHED, "undone": 9}),
    "compacted over an undone update": (deeds(undone_update, compact), {**PUBLISHED, "a": 100}),
    "compacted with a loss": (lambda graph: rewritten(graph, {}, files=1), {"a": 1}),
    "appended, then a write of ours refused on top": (
        deeds(append, undone_write),
        {**PUBLISHED, "x": 9},
    ),
    "overwritten over undone rows": (deeds(undone_write, overwrite), {"z": 1}),
}
UNVERIFIABLE: dict[str, tuple[Deed, dict[str, int]]] = {
    "a version is missing": (
        deeds(compact, append, lambda graph: lose(graph, pinned(graph) + 1)),
        {**PUBLISHED, "x": 9},
    ),
    "a version cannot be read": (
        deeds(append, index, lambda graph: damage(graph, pinned(graph) + 1)),
        {**PUBLISHED, "x": 9},
    ),
    "only undone work stands above a lost version": (
        deeds(append, healed, lambda graph: lose(graph, pinned(graph) + 1)),
        PUBLISHED,
    ),
    "the published version is gone": (
        deeds(append, lambda graph: lose(graph, pinned(graph))),
        {**PUBLISHED, "x": 9},
    ),
}


@pytest.mark.parametrize("deed", NO_DRIFT.values(), ids=list(NO_DRIFT))
@pytest.mark.parametrize(("confirm", "force"), [(False, False), (True, False), (True, True)])
def test_where_nothing_drifted_nothing_is_done(
    graph: Graph, deed: Deed, *, confirm: bool, force: bool
) -> None:
    deed(graph)
    before = graph.snapshot()

    report = graph.maintenance.repair(dry_run=not confirm, force=force)

    assert of(report).classification is DriftClass.NO_DRIFT
    assert {each.action for each in report.tables} == {RepairAction.NONE}
    assert graph.snapshot() == before
    assert (report.commit_id, graph.maintenance.recoveries()) == (None, ())
    graph.write({"Account": [account("c", 3)]})
    assert accounts(graph) == {**PUBLISHED, "c": 3}


@pytest.mark.parametrize("deed", MAINTENANCE.values(), ids=list(MAINTENANCE))
@pytest.mark.parametrize("force", [False, True])
def test_maintenance_is_shown_and_published_when_confirmed(
    graph: Graph, deed: Deed, *, force: bool
) -> None:
    deed(graph)
    before = graph.snapshot()

    shown = of(graph.maintenance.repair(force=force))
    assert (shown.classification, shown.action, shown.remedy) == (
        DriftClass.VERIFIED_MAINTENANCE,
        RepairAction.PREVIEWED,
        Remedy.CONFIRM,
    )
    assert graph.snapshot() == before
    report = graph.maintenance.repair(dry_run=False, force=force, actor="ada")

    done = of(report)
    assert (done.action, done.commit_id) == (RepairAction.PUBLISHED, report.commit_id)
    assert done.manifest_version == before.tables[KEY].version
    assert pinned(graph) == done.version == shown.version
    assert accounts(graph) == PUBLISHED
    assert graph.diff(str(before.manifest_version)).tables == {}
    (recovery,) = graph.maintenance.recoveries()
    assert (recovery.kind, recovery.writer_kind) == ("repaired", "repair")
    assert (recovery.commit_id, recovery.tables) == (report.commit_id, (KEY,))
    assert (graph.commits()[0].actor, graph.commits()[0].commit_id) == ("ada", report.commit_id)
    assert graph.maintenance.check().ok
    graph.write({"Account": [account("c", 3)]})
    assert accounts(graph) == {**PUBLISHED, "c": 3}
    assert of(graph.maintenance.repair()).classification is DriftClass.NO_DRIFT


def test_published_maintenance_is_what_stood_above(graph: Graph) -> None:
    files = len(table(graph).get_fragments())
    compact(graph)
    index(graph)

    graph.maintenance.repair(dry_run=False)

    (status,) = [each for each in graph.maintenance.status().tables if each.table_key == KEY]
    assert (files, status.fragments, len(status.indexes)) == (2, 1, 1)


CHANGED = {
    **{f"suspicious: {name}": (DriftClass.SUSPICIOUS, *case) for name, case in SUSPICIOUS.items()},
    **{
        f"unverifiable: {name}": (DriftClass.UNVERIFIABLE, *case)
        for name, case in UNVERIFIABLE.items()
    },
}


@pytest.mark.parametrize(("kind", "deed", "rows"), CHANGED.values(), ids=list(CHANGED))
def test_changed_rows_are_refused_and_published_by_force_alone(
    graph: Graph, kind: DriftClass, deed: Deed, rows: dict[str, int]
) -> None:
    deed(graph)
    before = graph.snapshot()

    shown = of(graph.maintenance.repair(force=True))
    refused = of(graph.maintenance.repair(dry_run=False))
    assert (shown.classification, shown.action, shown.remedy) == (
        kind,
        RepairAction.PREVIEWED,
        Remedy.FORCE,
    )
    assert (refused.classification, refused.action) == (kind, RepairAction.REFUSED)
    assert refused.reason
    assert (graph.snapshot(), graph.maintenance.recoveries()) == (before, ())
    report = graph.maintenance.repair(dry_run=False, force=True)

    assert of(report).action is RepairAction.PUBLISHED
    assert pinned(graph) == of(report).version == shown.version
    assert accounts(graph) == rows
    assert graph.snapshot().tables[KEY].row_count == len(rows)
    (recovery,) = graph.maintenance.recoveries()
    assert (recovery.kind, recovery.tables) == ("repaired_by_force", (KEY,))
    assert kind is DriftClass.UNVERIFIABLE or graph.maintenance.check().ok
    graph.write({"Account": [account("c", 3)]})
    assert accounts(graph) == {**rows, "c": 3}


def test_a_refused_write_stays_refused_when_the_rows_below_it_are_published(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_COMMIT_IN_PLACE", "on")  # as on an object store: Lance rebases
    with (
        meanwhile("mutation.pre_direct_commit", lambda: append(graph)),
        pytest.raises(DriftNeedsRepairError),
    ):
        graph.write({"Account": [account("late", 5)]})
    assert "late" in table(graph).to_table().column("id").to_pylist(), "the case this is about"

    report = graph.maintenance.repair(dry_run=False, force=True)

    assert of(report).version == table(graph).version - 1
    assert accounts(graph) == {**PUBLISHED, "x": 9}
    graph.write({"Account": [account("late", 5)]})
    assert accounts(graph) == {**PUBLISHED, "x": 9, "late": 5}


def test_a_write_that_foreign_rows_came_before_leaves_no_version(graph: Graph) -> None:
    with (
        meanwhile("mutation.pre_direct_commit", lambda: append(graph)),
        pytest.raises(DriftNeedsRepairError),
    ):
        graph.write({"Account": [account("late", 5)]})

    assert "late" not in table(graph).to_table().column("id").to_pylist()
    graph.maintenance.repair(dry_run=False, force=True)
    assert accounts(graph) == {**PUBLISHED, "x": 9}


def test_undone_rows_below_foreign_ones_are_named(graph: Graph) -> None:
    operation_id = undone_write(graph)
    append(graph)

    assert of(graph.maintenance.repair()).undone_operations == (operation_id,)
    overwrite(graph)
    assert of(graph.maintenance.repair()).undone_operations == ()


def test_what_each_foreign_version_did_is_told(graph: Graph) -> None:
    pin = pinned(graph)
    append(graph)
    undone_write(graph)
    table(graph).delete("id = 'a'")

    found = of(graph.maintenance.repair())

    assert (found.manifest_version, found.lance_head_version) == (pin, pin + 3)
    assert [(each.version, each.operation) for each in found.foreign] == [
        (pin + 1, "Append"),
        (pin + 3, "Delete"),
    ]
    assert [(each.rows_before, each.rows_after) for each in found.foreign] == [(2, 3), (4, 3)]


def add_column(graph: Graph) -> None:
    table(graph).add_columns({"extra": "balance + 1"})


def without_marks(graph: Graph) -> None:
    schema = pa.schema([field.remove_metadata() for field in table(graph).schema])
    rows = [{"id": "z", "name": "z", "balance": 1}]
    lance.write_dataset(pa.Table.from_pylist(rows, schema=schema), uri(graph), mode="overwrite")


MISFITS: dict[str, tuple[Deed, str]] = {
    "added": (add_column, "column 'extra' of version"),
    "dropped": (
        lambda graph: table(graph).drop_columns(["balance"]),
        "column 'balance' is missing",
    ),
    "renamed": (
        lambda graph: alter(graph, name="money"),
        "column 'balance' is missing",
    ),
    "another type": (
        lambda graph: alter(graph, data_type=pa.int32()),
        "column 'balance' of version 4 is int32 not null, the schema says int64 not null",
    ),
    "nullable": (
        lambda graph: alter(graph, nullable=True),
        "is int64, the schema says int64 not null",
    ),
    "without marks": (without_marks, "lost the metadata"),
}


@pytest.mark.parametrize(("deed", "said"), MISFITS.values(), ids=list(MISFITS))
def test_columns_that_do_not_fit_the_schema_are_refused_even_by_force(
    graph: Graph, deed: Deed, said: str
) -> None:
    deed(graph)
    before = graph.snapshot()

    report = graph.maintenance.repair(dry_run=False, force=True)

    refused = of(report)
    assert (refused.classification, refused.action, refused.remedy) == (
        DriftClass.SUSPICIOUS,
        RepairAction.REFUSED,
        Remedy.BY_HAND,
    )
    assert said in refused.reason
    assert (report.commit_id, graph.snapshot()) == (None, before)


def test_a_head_behind_the_published_version_is_refused_even_by_force(graph: Graph) -> None:
    lose(graph, pinned(graph))
    before = graph.snapshot()

    report = graph.maintenance.repair(dry_run=False, force=True)

    refused = of(report)
    assert (refused.classification, refused.action, refused.remedy) == (
        DriftClass.UNVERIFIABLE,
        RepairAction.REFUSED,
        Remedy.BY_HAND,
    )
    assert refused.lance_head_version == refused.manifest_version - 1
    assert "backup" in refused.reason
    assert graph.snapshot() == before


def test_all_tables_that_may_be_published_go_in_one_commit(graph: Graph) -> None:
    graph.write({"Note": [{"text": "1"}]})
    graph.write({"Note": [{"text": "2"}]})
    append(graph)
    lance.dataset(uri(graph, "node:Note")).optimize.compact_files()
    commits = len(graph.commits())

    report = graph.maintenance.repair(dry_run=False)

    assert [each.table_key for each in report.published] == ["node:Note"]
    assert [each.table_key for each in report.refused] == [KEY]
    forced = graph.maintenance.repair(dry_run=False, force=True)
    assert [each.table_key for each in forced.published] == [KEY]
    assert len(graph.commits()) == commits + 2


def test_both_kinds_at_once_are_one_commit_by_force(graph: Graph) -> None:
    graph.write({"Note": [{"text": "1"}]})
    graph.write({"Note": [{"text": "2"}]})
    append(graph)
    lance.dataset(uri(graph, "node:Note")).optimize.compact_files()
    commits = len(graph.commits())

    report = graph.maintenance.repair(dry_run=False, force=True)

    assert {each.commit_id for each in report.published} == {report.commit_id}
    assert len(report.published) == 2
    assert len(graph.commits()) == commits + 1
    (recovery,) = graph.maintenance.recoveries()
    assert recovery.tables == (KEY, "node:Note")


def test_rows_that_break_rules_are_published_by_force_and_found_by_a_check(graph: Graph) -> None:
    append(graph, "a")

    graph.maintenance.repair(dry_run=False, force=True)

    assert [finding.problem.value for finding in graph.maintenance.check().findings] == [
        "broken_rule"
    ]


def test_a_branch_repairs_its_own_lines_and_no_other(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    append(graph, "on-main")
    inherited = of(dev.maintenance.repair(dry_run=False, force=True))
    assert (inherited.classification, inherited.action) == (
        DriftClass.NO_DRIFT,
        RepairAction.NONE,
    )
    dev.write({"Account": [account("d", 4)]})
    append(dev, "on-dev")

    report = dev.maintenance.repair(dry_run=False, force=True)

    assert report.branch == "dev"
    assert accounts(dev) == {**PUBLISHED, "d": 4, "on-dev": 9}
    assert accounts(graph) == PUBLISHED
    assert of(graph.maintenance.repair()).classification is DriftClass.SUSPICIOUS
    dev.write({"Account": [account("e", 5)]})
    assert accounts(dev) == {**PUBLISHED, "d": 4, "on-dev": 9, "e": 5}


def test_a_writer_between_preview_and_confirm_is_kept(graph: Graph) -> None:
    compact(graph)
    assert of(graph.maintenance.repair()).classification is DriftClass.VERIFIED_MAINTENANCE

    og.open(graph.root).write({"Account": [account("c", 3)]})
    report = graph.maintenance.repair(dry_run=False)

    assert of(report).classification is DriftClass.NO_DRIFT
    assert report.commit_id is None
    assert accounts(graph) == {**PUBLISHED, "c": 3}


def test_a_foreign_version_between_preview_and_confirm_is_not_published_unseen(
    graph: Graph,
) -> None:
    compact(graph)
    assert of(graph.maintenance.repair()).remedy is Remedy.CONFIRM

    append(graph)
    report = graph.maintenance.repair(dry_run=False)

    assert of(report).action is RepairAction.REFUSED
    assert accounts(graph) == PUBLISHED


def test_a_writer_that_publishes_during_a_repair_wins_and_is_kept(graph: Graph) -> None:
    compact(graph)
    older = str(ULID())
    arm("mutation.post_stage", Armed(action=Action.PAUSE, seconds=1.5))

    with ThreadPoolExecutor(1) as pool:
        repairing = pool.submit(graph.maintenance.repair, dry_run=False)
        while not og.open(graph.root, read_only=True).maintenance.status().pending_sidecars:
            time.sleep(0.01)
        time.sleep(0.5)
        graph.write({"Account": [account("c", 3)]}, operation_id=older)
        assert not repairing.done(), "the case this is about"
        report = repairing.result()

    assert of(report).action is RepairAction.NONE
    assert accounts(graph) == {**PUBLISHED, "c": 3}
    assert graph.maintenance.recoveries() == ()


@pytest.mark.parametrize(
    ("point", "published", "settled"),
    [
        ("mutation.post_sidecar", False, ["rolled_back"]),
        ("publish.pre_manifest", True, ["rolled_forward"]),
        ("publish.post_manifest", True, []),
    ],
)
def test_a_repair_that_breaks_off_is_finished_or_undone_by_the_next_open(
    graph: Graph, point: str, settled: list[str], *, published: bool
) -> None:
    append(graph)
    before = graph.snapshot()
    arm(point, Armed(action=Action.ERROR))
    with pytest.raises(FailpointReached):
        graph.maintenance.repair(dry_run=False, force=True, actor="ada")
    disarm_all()

    reopened = og.open(graph.root)

    assert accounts(reopened) == ({**PUBLISHED, "x": 9} if published else PUBLISHED)
    assert table(reopened).version == before.tables[KEY].version + 1
    assert reopened.maintenance.status().pending_sidecars == ()
    assert [each.kind for each in reopened.maintenance.recoveries()] == settled
    assert (reopened.snapshot().commit_id != before.commit_id) is published
    if not published:
        assert (
            of(reopened.maintenance.repair(dry_run=False, force=True)).action
            is RepairAction.PUBLISHED
        )
    assert of(reopened.maintenance.repair()).classification is DriftClass.NO_DRIFT
    assert reopened.maintenance.check().ok


def test_a_repair_is_refused_while_a_dead_writer_is_unsettled(graph: Graph) -> None:
    arm("mutation.post_stage", Armed(action=Action.ERROR))
    with pytest.raises(FailpointReached):
        graph.write({"Account": [account("c", 3)]})
    disarm_all()

    for confirm in (False, True):
        with pytest.raises(RecoveryRequiredError, match="omnigraph recovery run"):
            graph.maintenance.repair(dry_run=not confirm)
    assert og.open(graph.root).maintenance.repair(dry_run=False).tables


def test_a_repair_is_refused_while_a_sidecar_cannot_be_understood(graph: Graph) -> None:
    path = folder_of(graph.root, names.sidecar(str(ULID()), None))
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"format": 1}))

    with pytest.raises(RecoveryRequiredError, match="cannot be parsed"):
        graph.maintenance.repair()


def test_rows_that_are_still_being_written_are_not_published_by_force(graph: Graph) -> None:
    operation_id = names.OperationId("7" + str(ULID())[1:])
    pin = pinned(graph)
    append(graph, "writing", **{names.OPERATION_PROPERTY: operation_id})
    append(graph)
    objects = StoredObjects(parse_root(graph.root))
    sidecar = Sidecar(
        operation_id=operation_id,
        nonce="n",
        kind=WriterKind.WRITE,
        actor="ann",
        branch=None,
        incarnation=None,
        commit_id=names.CommitId(str(ULID())),
        state=SidecarState.STAGING,
        floor={},
        read_set={},
        tables=(),
        pointed=(),
        merged=None,
        schema_hash=None,
        schema_move=None,
        started_at="2026-01-01T00:00:00.000000+00:00",
        beat_at="2026-01-01T00:00:00.000000+00:00",
        host=this_host(),
        pid=this_process(),
        process_started=started_at(this_process()),
    )

    with active_operation(operation_id):
        put_sidecar(objects, sidecar)
        refused = of(graph.maintenance.repair(dry_run=False, force=True))
        delete_sidecar(objects, sidecar.path)

    assert (refused.action, refused.remedy) == (RepairAction.REFUSED, Remedy.WAIT)
    assert operation_id in refused.reason
    assert pinned(graph) == pin


def test_a_reader_may_look_but_not_repair(graph: Graph) -> None:
    append(graph)
    reader = og.open(graph.root, read_only=True)

    assert of(reader.maintenance.repair()).classification is DriftClass.SUSPICIOUS
    with pytest.raises(ReadOnlyError):
        reader.maintenance.repair(dry_run=False)


def test_what_was_published_by_force_is_in_the_diff_and_in_the_feed(graph: Graph) -> None:
    before = graph.snapshot().commit_id
    assert before is not None
    append(graph)
    table(graph).delete("id = 'a'")

    report = graph.maintenance.repair(dry_run=False, force=True)

    counts = graph.diff(before).tables[KEY].counts
    assert (counts.inserted, counts.updated, counts.deleted) == (1, 0, 1)
    (commit,) = graph.changes(start=before)
    assert commit.commit_id == report.commit_id


def test_many_foreign_versions_are_listed_without_counting_rows(graph: Graph) -> None:
    for number in range(21):
        append(graph, f"x{number}")

    found = of(graph.maintenance.repair())

    assert len(found.foreign) == 21
    assert {each.rows_after for each in found.foreign} == {None}
