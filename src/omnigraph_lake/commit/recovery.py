"""Recovery of unfinished writes: roll forward, roll back, or refuse.

All tables of an operation or none; but of maintenance, whose tables are independent, those that got
through.

Invariant: any process may do this at any time, and may be wrong about who is dead. The decision is
an ordinary publish, so a writer that resumes later finds it and stops.

| Sidecar | Tables | Pins it depends on | Decision |
|---|---|---|---|
| any | any | its branch is gone | note it, delete the sidecar |
| any | any | the operation is decided already | delete the sidecar |
| staging | none moved | any | roll back |
| armed | each has an exact version of this operation | unmoved | roll forward: publish them |
| armed, schema change | and every new one is there | unmoved, and so the schema | the same |
| armed, maintenance | some hold only maintenance of known files | unmoved | publish these |
| armed | otherwise | any | roll back |

After a roll-back, every table that still has versions of the operation above its pin gets the pin's
content back on top, and that version is published too: HEAD and manifest agree again. The forks of
an operation that was not published are deleted.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from omnigraph_lake.commit.effects import (
    RECOVERY_ACTOR,
    entry_of,
    own_versions,
    roll_forward,
)
from omnigraph_lake.commit.fork_on_write import drop_forks
from omnigraph_lake.commit.publish import Decision, decision_in, pins_of, publish
from omnigraph_lake.commit.rollback import put_maintenance_back, roll_back_pins
from omnigraph_lake.commit.schema_commit import follow_up_schema
from omnigraph_lake.commit.sidecar import (
    Sidecar,
    delete_sidecar,
    is_abandoned,
    pending_sidecars,
    read_sidecar,
)
from omnigraph_lake.display.cells import counted
from omnigraph_lake.display.pages import Displayed, Page, page_of
from omnigraph_lake.errors import (
    ExpectedVersionMismatchError,
    NotFoundError,
    OmnigraphError,
    SchemaChangedError,
)
from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage.manifest.history import Recovery, RecoveryListing, record_recovery
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.manifest_rows import Operation, Outcome
from omnigraph_lake.storage.refs.branches import find_branch, is_living
from omnigraph_lake.storage.snapshot import Pin
from omnigraph_lake.storage.staging.table_versions import head_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph_lake.clock import Clock
    from omnigraph_lake.commit.legacy_sidecar import LegacySidecar
    from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.staging.table_versions import VersionRecord

ROLLED_FORWARD: Final = "rolled_forward"
ROLLED_BACK: Final = "rolled_back"
BRANCH_DELETED: Final = "branch_deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport(Displayed):
    """The result of a sweep: settled operations, and those left to their living writers.

    `ended` are operations that were already decided; only their sidecars were removed.
    """

    settled: tuple[Recovery, ...]
    left_alone: tuple[str, ...]
    ended: tuple[str, ...] = ()

    def _page(self) -> Page:
        lines = [f"settled {counted(len(self.settled), 'write')}"]
        if not self.settled:
            lines = ["nothing to settle"]
        if self.ended:
            lines.append(
                f"removed the record of {counted(len(self.ended), 'write')} that had already "
                f"ended: {', '.join(self.ended)}"
            )
        tables = page_of(RecoveryListing(self.settled)).tables if self.settled else ()
        return Page(summary="; ".join(lines), tables=tables, lines=lines)


def sweep(objects: Objects, clock: Clock, *, force: bool = False) -> RecoveryReport:
    """Settle every abandoned operation; with `force` every operation at all.

    Raises:
        RecoveryRequiredError: a sidecar cannot be parsed; it is kept.
    """
    settled: list[Recovery] = []
    left_alone: list[str] = []
    ended: list[str] = []
    for path in pending_sidecars(objects):
        sidecar = read_sidecar(objects, path)
        if sidecar is None:
            continue
        if not force and not is_abandoned(sidecar, now=clock.now()):
            left_alone.append(sidecar.operation_id)
            continue
        recovery = _settle(objects, sidecar, clock)
        if recovery is None:
            ended.append(sidecar.operation_id)
        else:
            settled.append(recovery)
    return RecoveryReport(settled=tuple(settled), left_alone=tuple(left_alone), ended=tuple(ended))


def _settle(objects: Objects, sidecar: Sidecar, clock: Clock) -> Recovery | None:
    reach("recovery.post_list")
    branch = None
    if sidecar.branch is not None:
        branch = find_branch(objects, sidecar.branch)
        reach("recovery.post_log")
        # Omnigraph 0.7 names no incarnation of a branch.
        names_it = sidecar.legacy is None
        if branch is None or (names_it and branch.incarnation != sidecar.incarnation):
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
    legacy = sidecar.legacy
    if legacy is not None:
        pins = pins_of(state)
        sidecar = _on_pins(sidecar, pins)
        if decided is None and _was_published(root, sidecar, legacy, pins):
            recovery = _recovery(sidecar, ROLLED_FORWARD, clock)
            return _close(objects, replace(recovery, commit_id=state.head.commit_id), sidecar)
    if decided is not None and decided.decided_by != RECOVERY_ACTOR:
        _follow_up(objects, state, sidecar, decided, clock)
        return None
    own = own_versions(root, sidecar)
    reach("recovery.post_classify")
    if decided is None:
        decided = _decide(root, branch, sidecar, own, clock)
    reach("recovery.decided")
    if decided.decided_by != RECOVERY_ACTOR:
        _follow_up(objects, state, sidecar, decided, clock)
        return None
    forward = decided.outcome is Outcome.PUBLISHED
    recovery = _recovery(sidecar, ROLLED_FORWARD if forward else ROLLED_BACK, clock)
    if forward:
        reach("recovery.post_rollforward")
        recovery = replace(recovery, commit_id=decided.commit_id)
        if sidecar.kind.is_maintenance:
            put_maintenance_back(root, branch, sidecar, decided, clock)
    else:
        reach("recovery.post_fence")
        restored = roll_back_pins(
            root,
            branch,
            {table.table_key: Pin(table.pin, table.fork) for table in sidecar.tables},
            operation_id=sidecar.operation_id,
            is_ours=partial(_is_left_by, sidecar),
            clock=clock,
        )
        recovery = replace(recovery, commit_id=restored)
    _drop_forks(objects, state, decided)
    follow_up_schema(objects, sidecar, decided)
    return _close(objects, recovery, sidecar)


def _on_pins(sidecar: Sidecar, pins: Mapping[str, Pin]) -> Sidecar:
    """A sidecar of Omnigraph 0.7, which names versions only, with the pins of its tables."""
    tables = (
        replace(table, expected=pins.get(table.table_key, table.expected))
        for table in sidecar.tables
    )
    return replace(sidecar, tables=tuple(tables))


def _was_published(
    root: Root, sidecar: Sidecar, legacy: LegacySidecar, pins: Mapping[str, Pin]
) -> bool:
    """Whether a writer of Omnigraph 0.7 ended between its publish and the end of its sidecar."""
    heads = ((table, head_version(root, entry_of(table))) for table in sidecar.tables)
    created = [key for key, _ in legacy.created]
    has_moved = any(table.expected.version > table.pin for table in sidecar.tables)
    return (
        bool(has_moved or created or legacy.dropped)
        and all(head == table.expected.version for table, head in heads)
        and pins.keys() >= set(created)
        and pins.keys().isdisjoint(legacy.dropped)
    )


def _close(objects: Objects, recovery: Recovery, sidecar: Sidecar) -> Recovery:
    record_recovery(objects.root, recovery)
    reach("recovery.healed")
    _remove(objects, sidecar)
    return recovery


def _follow_up(
    objects: Objects, state: ManifestState, sidecar: Sidecar, decided: Operation, clock: Clock
) -> None:
    """The operation is decided, but its follow-up work may be missing."""
    if sidecar.kind.is_maintenance:
        put_maintenance_back(objects.root, state.ref, sidecar, decided, clock)
    _drop_forks(objects, state, decided)
    follow_up_schema(objects, sidecar, decided)
    _remove(objects, sidecar)


def _drop_forks(objects: Objects, state: ManifestState, decided: Operation) -> None:
    """Delete what a first write on a branch left that was not published."""
    if decided.outcome is Outcome.PUBLISHED:
        return
    with suppress(OmnigraphError):  # reconciling finds what stays
        drop_forks(objects, state, decided.operation_id)


def _discard(objects: Objects, sidecar: Sidecar, clock: Clock) -> Recovery:
    """Forget an operation whose branch is gone: what it may still publish there is never read."""
    recovery = _recovery(sidecar, BRANCH_DELETED, clock)
    follow_up_schema(objects, sidecar, None)
    return _close(objects, recovery, sidecar)


def _decide(
    root: Root,
    branch: BranchRef | None,
    sidecar: Sidecar,
    own: Mapping[str, int] | None,
    clock: Clock,
) -> Operation:
    while own is not None:
        try:
            return publish(
                root,
                roll_forward(root, sidecar, own, clock),
                branch=branch,
                before_swap="recovery.pre_manifest",
            ).operation
        except ExpectedVersionMismatchError as moved:
            own = _without(own, moved.table_key) if sidecar.kind.is_maintenance else None
        except SchemaChangedError:
            own = None
    fence = Operation(
        operation_id=sidecar.operation_id,
        branch=sidecar.branch,
        outcome=Outcome.ROLLED_BACK,
        decided_by=RECOVERY_ACTOR,
        decided_at=clock.timestamp(),
    )
    return publish(
        root,
        Decision(operation=fence, expected={}),
        branch=branch,
        before_swap="recovery.pre_manifest",
    ).operation


def _without(own: Mapping[str, int], table_key: str) -> Mapping[str, int] | None:
    """The tables of maintenance that no concurrent writer moved: each is independent."""
    return {key: version for key, version in own.items() if key != table_key} or None


def _is_left_by(sidecar: Sidecar, record: VersionRecord) -> bool:
    """Whether a version above a pin was made by the operation; maintenance leaves no name."""
    if sidecar.legacy is not None:
        return record.operation_id is None
    if sidecar.kind.is_maintenance:
        return record.is_maintenance
    return record.operation_id == sidecar.operation_id


def _recovery(sidecar: Sidecar, kind: str, clock: Clock) -> Recovery:
    return Recovery(
        operation_id=sidecar.operation_id,
        commit_id=None,
        kind=kind,
        original_actor=sidecar.actor,
        writer_kind=sidecar.kind.value,
        tables=tuple(table.table_key for table in sidecar.moved),
        recovered_at=clock.timestamp(),
    )


def _remove(objects: Objects, sidecar: Sidecar) -> None:
    delete_sidecar(objects, sidecar.path)
    reach("recovery.post_sidecar_delete")
