"""Settling what other writers left: roll forward, roll back, or refuse. All tables or none.

Invariant: any process may do this at any time, and may be wrong about who is dead. The decision is
an ordinary publish, so a writer that wakes up later finds it and stops.

| Sidecar | Tables | Pins it depends on | Decision |
|---|---|---|---|
| any | any | its branch is gone | note it, delete the sidecar |
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

from omnigraph.commit.effects import RECOVERY_ACTOR, own_versions, roll_forward
from omnigraph.commit.publish import Decision, decision_in, publish
from omnigraph.commit.sidecar import (
    Sidecar,
    delete_sidecar,
    is_abandoned,
    pending_sidecars,
    read_sidecar,
)
from omnigraph.commit.table_moves import require_no_foreign
from omnigraph.errors import (
    DriftNeedsRepairError,
    ExpectedVersionMismatchError,
    NotFoundError,
)
from omnigraph.failpoints import left_out, reach
from omnigraph.storage.branch_refs import find_branch, is_living
from omnigraph.storage.history import Recovery, record_recovery
from omnigraph.storage.manifest import read_manifest
from omnigraph.storage.manifest_rows import GraphCommit, Operation, Outcome, TableVersion
from omnigraph.storage.snapshot import TableEntry
from omnigraph.storage.table_versions import (
    head_version,
    restore_pin,
    version_records,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.commit.clock import Clock
    from omnigraph.storage.branch_refs import BranchRef
    from omnigraph.storage.location import Root
    from omnigraph.storage.objects import Objects
    from omnigraph.storage.snapshot import Pin

ROLLED_FORWARD: Final = "rolled_forward"
ROLLED_BACK: Final = "rolled_back"
BRANCH_DELETED: Final = "branch_deleted"


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
    for path in pending_sidecars(objects):
        sidecar = read_sidecar(objects, path)
        if sidecar is None:
            continue
        if not also_living and not is_abandoned(sidecar, now=clock.now()):
            left_alone.append(sidecar.operation_id)
            continue
        recovery = _settle(objects, sidecar, clock)
        if recovery is not None:
            settled.append(recovery)
    return Swept(settled=tuple(settled), left_alone=tuple(left_alone))


def _settle(objects: Objects, sidecar: Sidecar, clock: Clock) -> Recovery | None:
    reach("recovery.post_list")
    branch = None
    if sidecar.branch is not None:
        branch = find_branch(objects, sidecar.branch)
        reach("recovery.post_log")
        if branch is None or branch.incarnation != sidecar.incarnation:
            return _discard(objects, sidecar, clock)
    try:
        return _settle_on(objects, branch, sidecar, clock)
    except NotFoundError:
        if branch is None or is_living(objects, branch):
            raise
        return _discard(objects, sidecar, clock)


def _settle_on(
    objects: Objects, branch: BranchRef | None, sidecar: Sidecar, clock: Clock
) -> Recovery | None:
    root = objects.root
    state = read_manifest(root, branch=branch, point="recovery.decided")
    decided = decision_in(root, state, sidecar.operation_id)
    if decided is not None and decided.decided_by != RECOVERY_ACTOR:
        _remove(objects, sidecar)
        return None
    own = own_versions(root, sidecar)
    reach("recovery.post_classify")
    if decided is None:
        decided = _decide(root, branch, sidecar, own, clock)
    reach("recovery.decided")
    if decided.decided_by != RECOVERY_ACTOR:
        _remove(objects, sidecar)
        return None
    forward = decided.outcome is Outcome.PUBLISHED
    recovery = _recovery(sidecar, ROLLED_FORWARD if forward else ROLLED_BACK, clock)
    if forward:
        reach("recovery.post_rollforward")
        recovery = replace(recovery, commit_id=decided.commit_id)
    else:
        reach("recovery.post_fence")
        recovery = replace(recovery, commit_id=_put_pins_back(root, branch, sidecar, clock))
    record_recovery(root, recovery)
    reach("recovery.healed")
    _remove(objects, sidecar)
    return recovery


def _discard(objects: Objects, sidecar: Sidecar, clock: Clock) -> Recovery:
    """Forget an operation whose branch is gone: nobody reads what it may still publish there."""
    recovery = _recovery(sidecar, BRANCH_DELETED, clock)
    record_recovery(objects.root, recovery)
    reach("recovery.healed")
    _remove(objects, sidecar)
    return recovery


def _decide(
    root: Root,
    branch: BranchRef | None,
    sidecar: Sidecar,
    own: Mapping[str, int] | None,
    clock: Clock,
) -> Operation:
    if own is not None:
        try:
            return publish(
                root,
                roll_forward(root, sidecar, own, clock),
                branch=branch,
                before_swap="recovery.pre_manifest",
            ).operation
        except ExpectedVersionMismatchError:
            pass
    fence = Operation(
        operation_id=sidecar.operation_id,
        branch=sidecar.branch,
        outcome=Outcome.ROLLED_BACK,
        decided_by=RECOVERY_ACTOR,
        decided_at=clock.timestamp(),
    )
    if left_out("no_fence"):
        return fence
    return publish(
        root,
        Decision(operation=fence, expected={}),
        branch=branch,
        before_swap="recovery.pre_manifest",
    ).operation


def _put_pins_back(
    root: Root, branch: BranchRef | None, sidecar: Sidecar, clock: Clock
) -> str | None:
    """Restore and publish every table the operation left above its pin; returns the commit."""
    restored: list[TableVersion] = []
    expected: dict[str, Pin] = {}
    state = read_manifest(root, branch=branch)
    snapshot = state.snapshot()
    for table in sidecar.tables:
        entry = snapshot.tables.get(table.table_key)
        if entry is None or entry.fork != table.fork:
            continue
        if left_out("restore_stale"):
            entry = replace(entry, version=table.pin)
        version = _restore(root, entry, sidecar.operation_id)
        if version is not None:
            expected[entry.table_key] = snapshot.tables[entry.table_key].pin
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
    return _publish_restored(root, branch, sidecar, tuple(restored), expected, clock)


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
    branch: BranchRef | None,
    sidecar: Sidecar,
    restored: tuple[TableVersion, ...],
    expected: Mapping[str, Pin],
    clock: Clock,
) -> str | None:
    now = clock.timestamp()
    commit = GraphCommit(
        commit_id=clock.new_id(),
        branch=sidecar.branch,
        operation_id=clock.new_id(),
        actor=RECOVERY_ACTOR,
        created_at=now,
        tables=tuple((row.table_key, row.version, row.fork) for row in restored),
    )
    operation = Operation(
        operation_id=commit.operation_id,
        branch=sidecar.branch,
        outcome=Outcome.PUBLISHED,
        decided_by=RECOVERY_ACTOR,
        decided_at=now,
        commit_id=commit.commit_id,
    )
    believed = {} if left_out("rpub_blind") else expected
    try:
        publish(
            root,
            Decision(operation=operation, expected=believed, moved=restored, commit=commit),
            branch=branch,
            before_swap="recovery.pre_restore_publish",
        )
    except ExpectedVersionMismatchError:
        # Somebody published the table meanwhile; the next writer heals what is left.
        reach("recovery.restore_publish_refused")
        return None
    reach("recovery.post_restore_publish")
    return commit.commit_id


def _recovery(sidecar: Sidecar, kind: str, clock: Clock) -> Recovery:
    return Recovery(
        operation_id=sidecar.operation_id,
        commit_id=None,
        kind=kind,
        original_actor=sidecar.actor,
        writer_kind=sidecar.kind.value,
        tables=tuple(table.table_key for table in sidecar.tables),
        recovered_at=clock.timestamp(),
    )


def _remove(objects: Objects, sidecar: Sidecar) -> None:
    delete_sidecar(objects, sidecar.path)
    reach("recovery.post_sidecar_delete")
