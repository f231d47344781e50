"""Settling what other writers left: roll forward, roll back, or refuse. All tables or none.

Invariant: any process may do this at any time, and may be wrong about who is dead. The decision is
an ordinary publish, so a writer that wakes up later finds it and stops.

| Sidecar | Tables | Pins it depends on | Decision |
|---|---|---|---|
| any | any | the operation is decided already | delete the sidecar |
| staging | none moved | any | roll back |
| armed | each has an exact version of this operation | unmoved | roll forward: publish them |
| armed | otherwise | any | roll back |

After a roll-back, every table that still has versions of the operation above its pin gets the pin's
content back on top, and that version is published too: HEAD and manifest agree again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from omnigraph.commit.publish import Decision, decision_in, publish
from omnigraph.commit.sidecar import (
    PlannedTable,
    Sidecar,
    SidecarState,
    delete_sidecar,
    is_abandoned,
    pending_operations,
    read_sidecar,
)
from omnigraph.commit.table_moves import require_no_foreign
from omnigraph.errors import DriftNeedsRepairError, ExpectedVersionMismatchError
from omnigraph.failpoints import left_out, reach
from omnigraph.storage.history import Recovery, record_recovery
from omnigraph.storage.manifest import read_manifest
from omnigraph.storage.manifest_rows import GraphCommit, Operation, Outcome, TableVersion
from omnigraph.storage.snapshot import TableEntry
from omnigraph.storage.table_versions import (
    Role,
    VersionRecord,
    head_version,
    restore_pin,
    rows_at,
    version_records,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.commit.clock import Clock
    from omnigraph.storage.location import Root
    from omnigraph.storage.objects import Objects

ACTOR: Final = "omnigraph:recovery"
ROLLED_FORWARD: Final = "rolled_forward"
ROLLED_BACK: Final = "rolled_back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep did: settled operations, and those it left to their living writers."""

    settled: tuple[Recovery, ...]
    left_alone: tuple[str, ...]


def sweep(objects: Objects, clock: Clock, *, also_living: bool = False) -> Swept:
    """Settle every abandoned operation; with `also_living` every operation at all.

    Raises:
        RecoveryRequiredError: a sidecar cannot be understood; it is kept.
    """
    settled: list[Recovery] = []
    left_alone: list[str] = []
    for operation_id in pending_operations(objects):
        sidecar = read_sidecar(objects, operation_id)
        if sidecar is None:
            continue
        if not also_living and not is_abandoned(sidecar, now=clock.now()):
            left_alone.append(operation_id)
            continue
        recovery = _settle(objects, sidecar, clock)
        if recovery is not None:
            settled.append(recovery)
    return Swept(settled=tuple(settled), left_alone=tuple(left_alone))


def _settle(objects: Objects, sidecar: Sidecar, clock: Clock) -> Recovery | None:
    root = objects.root
    reach("recovery.post_list")
    state = read_manifest(root, branch=sidecar.branch, point="recovery.decided")
    decided = decision_in(root, state, sidecar.operation_id)
    if decided is not None and decided.decided_by != ACTOR:
        _remove(objects, sidecar)
        return None
    own = _own_versions(root, sidecar)
    reach("recovery.post_classify")
    if decided is None:
        decided = _decide(root, sidecar, own, clock)
    reach("recovery.decided")
    if decided.decided_by != ACTOR:
        _remove(objects, sidecar)
        return None
    recovery = _recovery(sidecar, decided, clock)
    if decided.outcome is Outcome.ROLLED_BACK:
        reach("recovery.post_fence")
        commit_id = _put_pins_back(root, sidecar, clock)
        recovery = replace(recovery, commit_id=commit_id)
    else:
        reach("recovery.post_rollforward")
    record_recovery(root, recovery)
    reach("recovery.healed")
    _remove(objects, sidecar)
    return recovery


def _decide(root: Root, sidecar: Sidecar, own: Mapping[str, int] | None, clock: Clock) -> Operation:
    if own is not None:
        try:
            return publish(
                root,
                _roll_forward(root, sidecar, own, clock),
                before_swap="recovery.pre_manifest",
            ).operation
        except ExpectedVersionMismatchError:
            pass
    fence = Operation(
        operation_id=sidecar.operation_id,
        branch=sidecar.branch,
        outcome=Outcome.ROLLED_BACK,
        decided_by=ACTOR,
        decided_at=clock.timestamp(),
    )
    if left_out("no_fence"):
        return fence
    return publish(
        root, Decision(operation=fence, expected={}), before_swap="recovery.pre_manifest"
    ).operation


def _roll_forward(root: Root, sidecar: Sidecar, own: Mapping[str, int], clock: Clock) -> Decision:
    moved = tuple(
        TableVersion(
            table_key=table.table_key,
            version=own[table.table_key],
            branch=sidecar.branch,
            row_count=rows_at(root, _entry(table), own[table.table_key]) or 0,
            fork=table.fork,
        )
        for table in sidecar.tables
    )
    commit = GraphCommit(
        commit_id=sidecar.commit_id,
        branch=sidecar.branch,
        operation_id=sidecar.operation_id,
        actor=ACTOR,
        created_at=clock.timestamp(),
        tables=tuple((row.table_key, row.version, row.fork) for row in moved),
    )
    operation = Operation(
        operation_id=sidecar.operation_id,
        branch=sidecar.branch,
        outcome=Outcome.PUBLISHED,
        decided_by=ACTOR,
        decided_at=commit.created_at,
        commit_id=commit.commit_id,
    )
    expected = {} if left_out("fwd_no_pins") else dict(sidecar.pins)
    if left_out("fwd_no_read_set"):
        expected = {table.table_key: table.pin for table in sidecar.tables}
    return Decision(operation=operation, expected=expected, moved=moved, commit=commit)


def _own_versions(root: Root, sidecar: Sidecar) -> dict[str, int] | None:
    """The exact version of every planned table, or None if one has none."""
    if sidecar.state is SidecarState.STAGING or not sidecar.tables:
        return None
    versions: dict[str, int] = {}
    for table in sidecar.tables:
        exact = _exact_version(root, table, sidecar.operation_id)
        if exact is None:
            return None
        versions[table.table_key] = exact
    return versions


def _exact_version(root: Root, table: PlannedTable, operation_id: str) -> int | None:
    records = version_records(root, _entry(table), above=table.pin)
    by_version = {record.version: record for record in records}
    for record in reversed(records):
        if not _is_own(record, operation_id, table.pin):
            continue
        if left_out("fwd_inexact"):
            return record.version
        below = by_version.get(record.version - 1)
        stands_on_pin = record.version - 1 == table.pin or (
            below is not None and below.restores == table.pin
        )
        if stands_on_pin and not any(
            each.is_foreign for each in records if each.version < record.version
        ):
            return record.version
    return None


def _is_own(record: VersionRecord, operation_id: str, pin: int) -> bool:
    return (
        record.operation_id == operation_id
        and record.role is Role.OWN
        and (record.made_for_pin == pin or left_out("fwd_inexact"))
    )


def _put_pins_back(root: Root, sidecar: Sidecar, clock: Clock) -> str | None:
    """Restore and publish every table the operation left above its pin; returns the commit."""
    restored: list[TableVersion] = []
    expected: dict[str, int] = {}
    state = read_manifest(root, branch=sidecar.branch)
    snapshot = state.snapshot()
    for table in sidecar.tables:
        entry = snapshot.tables.get(table.table_key)
        if entry is None or entry.fork != table.fork:
            continue
        if left_out("restore_stale"):
            entry = replace(entry, version=table.pin)
        version = _restore(root, entry, sidecar.operation_id)
        if version is not None:
            expected[entry.table_key] = snapshot.tables[entry.table_key].version
            restored.append(
                TableVersion(
                    table_key=entry.table_key,
                    version=version,
                    branch=sidecar.branch,
                    row_count=entry.row_count,
                    fork=entry.fork,
                )
            )
    if not restored:
        return None
    return _publish_restored(root, sidecar, tuple(restored), expected, clock)


def _restore(root: Root, entry: TableEntry, operation_id: str) -> int | None:
    head = head_version(root, entry)
    if head is None or head == entry.version:
        return None
    if not any(
        record.operation_id == operation_id
        for record in version_records(root, entry, above=entry.version)
    ):
        return None
    try:
        require_no_foreign(root, entry, below=head + 1, point="recovery")
        reach("recovery.pre_restore")
        version = restore_pin(root, entry, head=head, operation_id=operation_id)
        reach("recovery.post_restore")
        if version is not None:
            require_no_foreign(root, entry, below=version, point="recovery")
    except DriftNeedsRepairError:
        # Foreign rows stay visible at HEAD for `repair`; the operation itself is decided.
        return None
    return version


def _publish_restored(
    root: Root,
    sidecar: Sidecar,
    restored: tuple[TableVersion, ...],
    expected: Mapping[str, int],
    clock: Clock,
) -> str | None:
    now = clock.timestamp()
    commit = GraphCommit(
        commit_id=clock.new_id(),
        branch=sidecar.branch,
        operation_id=clock.new_id(),
        actor=ACTOR,
        created_at=now,
        tables=tuple((row.table_key, row.version, row.fork) for row in restored),
    )
    operation = Operation(
        operation_id=commit.operation_id,
        branch=sidecar.branch,
        outcome=Outcome.PUBLISHED,
        decided_by=ACTOR,
        decided_at=now,
        commit_id=commit.commit_id,
    )
    believed = {} if left_out("rpub_blind") else expected
    try:
        publish(
            root,
            Decision(operation=operation, expected=believed, moved=restored, commit=commit),
            before_swap="recovery.pre_restore_publish",
        )
    except ExpectedVersionMismatchError:
        # Somebody published the table meanwhile; the next writer heals what is left.
        reach("recovery.restore_publish_refused")
        return None
    reach("recovery.post_restore_publish")
    return commit.commit_id


def _recovery(sidecar: Sidecar, decided: Operation, clock: Clock) -> Recovery:
    forward = decided.outcome is Outcome.PUBLISHED
    return Recovery(
        operation_id=sidecar.operation_id,
        commit_id=decided.commit_id,
        kind=ROLLED_FORWARD if forward else ROLLED_BACK,
        original_actor=sidecar.actor,
        writer_kind=sidecar.kind.value,
        tables=tuple(table.table_key for table in sidecar.tables),
        recovered_at=clock.timestamp(),
    )


def _remove(objects: Objects, sidecar: Sidecar) -> None:
    delete_sidecar(objects, sidecar.operation_id)
    reach("recovery.post_sidecar_delete")


def _entry(table: PlannedTable) -> TableEntry:
    return TableEntry(
        table_key=table.table_key,
        location=table.location,
        version=table.pin,
        fork=table.fork,
        branch=None,
        row_count=0,
    )
