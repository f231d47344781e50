"""Restoring the pinned content of tables on top of unpublished versions above it.

Invariant: only versions of decided operations, or of maintenance, are buried. The version
put on top is published, so that HEAD and manifest agree again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph_lake import errors
from omnigraph_lake.commit.effects import RECOVERY_ACTOR, moved_by
from omnigraph_lake.commit.publish import Decision, publish
from omnigraph_lake.commit.table_moves import require_no_foreign
from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.manifest_rows import GraphCommit, Operation, Outcome, TableVersion
from omnigraph_lake.storage.snapshot import Pin, TableEntry
from omnigraph_lake.storage.staging.table_versions import head_version, restore_pin, version_records

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from omnigraph_lake.clock import Clock
    from omnigraph_lake.commit.sidecar import Sidecar
    from omnigraph_lake.names import OperationId
    from omnigraph_lake.storage.lance.datasets import NewVersion
    from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.staging.table_versions import VersionRecord


def roll_back_pins(
    root: Root,
    branch: BranchRef | None,
    left: Mapping[str, Pin],
    *,
    operation_id: OperationId,
    is_ours: Callable[[VersionRecord], bool],
    clock: Clock,
) -> str | None:
    """Restore and publish every table with versions of ours above its pin; returns the commit.

    `left` names the tables by key and the pin they were left above.
    """
    restored_versions: list[TableVersion] = []
    expected: dict[str, Pin] = {}
    state = read_manifest(root, branch=branch)
    snapshot = state.snapshot()
    for table_key, pin in left.items():
        entry = snapshot.tables.get(table_key)
        if entry is None or entry.fork != pin.fork:
            continue
        new_version = _restore(root, entry, operation_id, is_ours)
        if new_version is not None:
            expected[table_key] = snapshot.tables[table_key].pin
            restored_versions.append(
                TableVersion(
                    table_key=table_key,
                    version=new_version.version,
                    branch=state.branch,
                    row_count=entry.row_count,
                    fork=entry.fork,
                    made_at=entry.made_at and new_version.made_at,
                )
            )
    if not restored_versions:
        return None
    return _publish(root, state, tuple(restored_versions), expected, clock)


def put_maintenance_back(
    root: Root, branch: BranchRef | None, sidecar: Sidecar, decided: Operation, clock: Clock
) -> str | None:
    """The same for unpublished tables of maintenance: they would look like drift."""
    moved = moved_by(root, read_manifest(root, branch=branch), decided)
    left = {
        table.table_key: Pin(table.pin, table.fork)
        for table in sidecar.tables
        if table.table_key not in moved
    }
    return roll_back_pins(
        root,
        branch,
        left,
        operation_id=sidecar.operation_id,
        is_ours=lambda record: record.is_maintenance,
        clock=clock,
    )


def _restore(
    root: Root,
    entry: TableEntry,
    operation_id: OperationId,
    is_ours: Callable[[VersionRecord], bool],
) -> NewVersion | None:
    head = head_version(root, entry)
    if head is None or head == entry.version:
        return None
    if not any(is_ours(record) for record in version_records(root, entry, above=entry.version)):
        return None
    try:
        below = head + 1
        require_no_foreign(root, entry, below=below, point="recovery.drift", is_ours=is_ours)
        reach("recovery.pre_restore")
        new_version = restore_pin(root, entry, head=head, operation_id=operation_id)
        reach("recovery.post_restore")
        if new_version is not None:
            below = new_version.version
            require_no_foreign(root, entry, below=below, point="recovery.drift", is_ours=is_ours)
    except errors.DriftNeedsRepairError:
        # Foreign rows stay visible at HEAD for `repair`; the operation itself is decided.
        return None
    return new_version


def _publish(
    root: Root,
    state: ManifestState,
    restored: tuple[TableVersion, ...],
    expected: Mapping[str, Pin],
    clock: Clock,
) -> str | None:
    now = clock.timestamp()
    name = state.branch
    commit = GraphCommit(
        commit_id=clock.new_id(),
        branch=name,
        operation_id=clock.new_id(),
        actor=RECOVERY_ACTOR,
        created_at=now,
        tables=tuple((row.table_key, row.version, row.fork) for row in restored),
    )
    operation = Operation(
        operation_id=commit.operation_id,
        branch=name,
        outcome=Outcome.PUBLISHED,
        decided_by=RECOVERY_ACTOR,
        decided_at=now,
        commit_id=commit.commit_id,
    )
    try:
        publish(
            root,
            Decision(
                operation=operation,
                expected=expected,
                moved=restored,
                commit=commit,
                schema_hash=state.schema_hash,
            ),
            branch=state.ref,
            before_swap="recovery.pre_restore_publish",
        )
    except (errors.ExpectedVersionMismatchError, errors.SchemaChangedError):
        # A concurrent writer published the table, or changed what its key means; the next writer
        # heals what is left.
        reach("recovery.restore_publish_refused")
        return None
    reach("recovery.post_restore_publish")
    return commit.commit_id
