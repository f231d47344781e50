"""What an operation did to its tables, by its sidecar and their versions, and its commit.

Invariant: a version counts as the operation's only if it is exactly the pinned content plus its
change, as its last attempt computed it. The commit that publishes an operation does not depend on
which process publishes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omnigraph_lake import names
from omnigraph_lake.commit.legacy_sidecar import LegacySidecar, Rule, complete_version
from omnigraph_lake.commit.publish import Decision
from omnigraph_lake.commit.schema_move import all_created
from omnigraph_lake.commit.sidecar import PlannedTable, Sidecar, SidecarState
from omnigraph_lake.storage.manifest.commit_graph import commit_graph
from omnigraph_lake.storage.manifest_rows import GraphCommit, Operation, Outcome, TableVersion
from omnigraph_lake.storage.snapshot import TableEntry
from omnigraph_lake.storage.staging import table_versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from omnigraph_lake.clock import Clock
    from omnigraph_lake.storage.manifest.state import ManifestState
    from omnigraph_lake.storage.objects.location import Root

RECOVERY_ACTOR: Final = f"{names.SYSTEM_ACTOR_PREFIX}recovery"


def commit_of(
    sidecar: Sidecar, moved: Iterable[TableVersion], *, actor: str, created_at: str
) -> GraphCommit:
    """The commit that publishes an operation, the same in every process that publishes it."""
    rows = (*moved, *pointed_rows(sidecar))
    return GraphCommit(
        commit_id=sidecar.commit_id,
        branch=sidecar.branch,
        operation_id=sidecar.operation_id,
        actor=actor,
        created_at=created_at,
        merged_parent_id=None if sidecar.merged is None else sidecar.merged.commit_id,
        resolution=None if sidecar.merged is None else sidecar.merged.resolution,
        tables=tuple((row.table_key, row.version, row.fork) for row in rows),
        note=sidecar.note,
    )


def pointed_rows(sidecar: Sidecar) -> tuple[TableVersion, ...]:
    """The rows of tables that are only pointed at another version."""
    return tuple(
        TableVersion(
            table_key=table.table_key,
            version=table.version,
            branch=sidecar.branch,
            row_count=table.row_count,
            fork=table.fork,
            made_at=table.made_at,
            checksums=table.checksums,
        )
        for table in sidecar.pointed
    )


def roll_forward(root: Root, sidecar: Sidecar, own: Mapping[str, int], clock: Clock) -> Decision:
    moved = tuple(
        _row(root, sidecar, table, own[table.table_key])
        for table in sidecar.tables
        if table.table_key in own
    )
    commit = commit_of(sidecar, moved, actor=RECOVERY_ACTOR, created_at=clock.timestamp())
    operation = Operation(
        operation_id=sidecar.operation_id,
        branch=sidecar.branch,
        outcome=Outcome.PUBLISHED,
        decided_by=RECOVERY_ACTOR,
        decided_at=commit.created_at,
        commit_id=commit.commit_id,
    )
    expected = dict(sidecar.pins)
    if sidecar.kind.is_maintenance:
        expected = {key: pin for key, pin in expected.items() if key in own}
    return Decision(
        operation=operation,
        expected=expected,
        moved=(*moved, *pointed_rows(sidecar)),
        commit=commit,
        schema_hash=sidecar.schema_hash,
        schema_move=sidecar.schema_move,
    )


def _row(root: Root, sidecar: Sidecar, table: PlannedTable, version: int) -> TableVersion:
    facts = table_versions.facts_at(root, entry_of(table), version)
    return TableVersion(
        table_key=table.table_key,
        version=version,
        branch=sidecar.branch,
        row_count=0 if facts is None else facts.rows,
        fork=table.fork,
        made_at=None if facts is None else facts.made_at,
    )


def moved_by(root: Root, state: ManifestState, decided: Operation) -> dict[str, int]:
    """The versions that a decided operation moved its tables to; none if it was not published."""
    if decided.outcome is not Outcome.PUBLISHED or decided.commit_id is None:
        return {}
    commit = commit_graph(root, state).get(decided.commit_id)
    return {} if commit is None else {key: version for key, version, _ in commit.tables}


def own_versions(root: Root, sidecar: Sidecar) -> dict[str, int] | None:
    """The exact version of every planned table, or None if one has none, or a new table is missing.

    Maintenance: of every table that has one, or None if none has.
    """
    if sidecar.state is SidecarState.STAGING:
        return None
    if sidecar.legacy is not None:
        return _legacy_versions(root, sidecar, sidecar.legacy)
    if sidecar.kind.is_maintenance:
        maintenance_versions = {
            table.table_key: maintenance_version(root, table) for table in sidecar.tables
        }
        return {
            key: version for key, version in maintenance_versions.items() if version is not None
        } or None
    versions: dict[str, int] = {}
    for table in sidecar.tables:
        exact = _exact_version(root, table, sidecar)
        if exact is None:
            return None
        versions[table.table_key] = exact
    move = sidecar.schema_move
    if move is None:
        return versions
    return versions if all_created(root, move, operation_id=sidecar.operation_id) else None


def _legacy_versions(root: Root, sidecar: Sidecar, legacy: LegacySidecar) -> dict[str, int] | None:
    if legacy.rule is Rule.NEVER:
        return None
    versions: dict[str, int] = {}
    for table, said in zip(sidecar.tables, legacy.tables, strict=True):
        is_pinned = table.expected.version == table.pin
        complete = (
            complete_version(root, entry_of(table), said.planned, legacy.rule)
            if is_pinned
            else None
        )
        if complete is None:
            return None
        versions[table.table_key] = complete
    return versions


def maintenance_version(root: Root, table: PlannedTable) -> int | None:
    """The newest version that a compaction of this table may be published as.

    Everything from the pin up to it keeps the content, and every data file of it is named by the
    pin or by the sidecar: others may be about to be cleaned.
    """
    known = table_versions.data_files_at(root, entry_of(table), table.pin)
    if known is None:
        return None
    newest, below = None, table.pin
    for record in table_versions.version_records(root, entry_of(table), above=table.pin):
        if record.version != below + 1 or not record.is_maintenance:
            break
        below = record.version
        files = table_versions.data_files_at(root, entry_of(table), record.version)
        is_known = files is not None and files <= known | set(table.files)
        if files != known and is_known:
            newest = record.version
    return newest


def _exact_version(root: Root, table: PlannedTable, sidecar: Sidecar) -> int | None:
    records = table_versions.version_records(root, entry_of(table), above=table.pin)
    by_version = {record.version: record for record in records}
    for record in reversed(records):
        if not _is_own(record, sidecar, table.pin):
            continue
        base = record.version - 1
        below = by_version.get(base)
        if below is not None and _is_widened_by(below, sidecar.operation_id, table.pin):
            base -= 1
            below = by_version.get(base)
        stands_on_pin = base == table.pin or (below is not None and below.restores == table.pin)
        if stands_on_pin and not any(
            older_record.is_foreign
            for older_record in records
            if older_record.version < record.version
        ):
            return record.version
    return None


def _is_own(record: table_versions.VersionRecord, sidecar: Sidecar, pin: int) -> bool:
    """Whether it is a version of the attempt that the sidecar is armed for.

    An earlier attempt may have computed other rows from tables that have moved since.
    """
    return (
        record.operation_id == sidecar.operation_id
        and record.role is table_versions.Role.OWN
        and record.made_for_pin == pin
        and record.attempt in {None, sidecar.nonce}
    )


def _is_widened_by(
    record: table_versions.VersionRecord, operation_id: names.OperationId, pin: int
) -> bool:
    """Whether a version is only the ground of the operation's rows: the pin, with their columns."""
    return (
        record.operation_id == operation_id and record.adds_columns and record.made_for_pin == pin
    )


def entry_of(table: PlannedTable) -> TableEntry:
    """A planned table at its pin, on the line that is written."""
    return TableEntry(
        table_key=table.table_key,
        location=table.location,
        version=table.pin,
        fork=table.fork,
        branch=None,
        row_count=0,
    )
