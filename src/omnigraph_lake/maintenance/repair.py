"""Repair: decide about versions of tables above the published ones.

Invariant: only the published pointer moves, and only to a version that was classified in the same
look. Nothing is rewritten, and what is not published stays where it is.

| Class | preview | confirm | confirm and force |
|---|---|---|---|
| no_drift | nothing | nothing | nothing |
| verified_maintenance | shown | published | published |
| suspicious, unverifiable | shown | refused | published |
| there is nothing to publish, or its columns do not fit the schema | shown | refused | refused |
| it holds rows of an operation that is still being written | shown | refused | refused |
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

from omnigraph_lake.commit.fork_on_write import belongs_to
from omnigraph_lake.commit.phases import Author, Prepared, Unchanged, Verb, WriteRequest
from omnigraph_lake.commit.protocol import commit_write
from omnigraph_lake.commit.sidecar import PointedTable, WriterKind, pending_operations
from omnigraph_lake.display.cells import counted
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.maintenance.preconditions import misfit_of, require_ready
from omnigraph_lake.notes import NO_NOTE, CommitNote
from omnigraph_lake.schema.arrow import table_schema
from omnigraph_lake.storage.manifest.history import Recovery, record_recovery
from omnigraph_lake.storage.staging.drift import DriftClass, ForeignVersion, TableDrift, table_drift
from omnigraph_lake.validation.input.intake import declared_types

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph_lake.clock import Clock
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.manifest.state import ManifestState
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import TableEntry

REPAIRED: Final = "repaired"
REPAIRED_BY_FORCE: Final = "repaired_by_force"
_TABLES_AT_ONCE: Final = 8


class Remedy(StrEnum):
    """What it takes to publish the versions above a table; tokens are stable."""

    NONE = "none"
    CONFIRM = "confirm"
    FORCE = "force"
    WAIT = "wait"
    BY_HAND = "by_hand"


class RepairAction(StrEnum):
    """What a repair did about a table; tokens are stable."""

    NONE = "none"
    PREVIEWED = "previewed"
    PUBLISHED = "published"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRepair(Displayed):
    """One table: the versions above its published one, and what was done about them.

    `version` is the newest one that is not our own undone work: what is, was or would be published.
    `undone_operations` were never published, but their rows are in `version`.
    """

    table_key: str
    classification: DriftClass
    action: RepairAction
    remedy: Remedy
    reason: str
    manifest_version: int
    lance_head_version: int | None
    version: int | None
    rows: int | None
    foreign: tuple[ForeignVersion, ...]
    undone_operations: tuple[str, ...]
    commit_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport(Displayed):
    """All tables of a branch; `commit_id` is the one commit that published, if any did.

    `audited` is False if the commit could not be written down among the recoveries.
    """

    root: str
    branch: str
    commit_id: str | None
    audited: bool
    tables: tuple[TableRepair, ...]

    @property
    def published(self) -> tuple[TableRepair, ...]:
        return self._with(RepairAction.PUBLISHED)

    @property
    def refused(self) -> tuple[TableRepair, ...]:
        return self._with(RepairAction.REFUSED)

    @property
    def previewed(self) -> tuple[TableRepair, ...]:
        return self._with(RepairAction.PREVIEWED)

    def _with(self, action: RepairAction) -> tuple[TableRepair, ...]:
        return tuple(table for table in self.tables if table.action is action)

    def _page(self) -> Page:
        rows = [
            (
                table.table_key,
                table.classification.value,
                str(table.manifest_version),
                "" if table.lance_head_version is None else str(table.lance_head_version),
                table.action.value,
            )
            for table in self.tables
        ]
        lines = [
            f"{table.table_key} version {version.version}: {_make(version)}"
            for table in self.tables
            for version in table.foreign
        ]
        if self.commit_id is not None:
            lines.append(
                f"published {len(self.published)} of {counted(len(self.tables), 'table')}, "
                f"commit {self.commit_id}"
            )
        elif not self.previewed and not self.refused:
            lines.append("nothing to repair")
        header = ("type", "class", "published", "head", "action")
        return Page(
            summary=lines[-1] if lines else f"{counted(len(self.previewed), 'table')} to repair",
            facts=[("graph", f"{self.root}, branch {self.branch}")],
            tables=[TableView(header=header, rows=rows, numbers=(2, 3))],
            lines=lines,
        )


def _make(version: ForeignVersion) -> str:
    rows = ""
    if version.rows_after is not None and version.rows_before is not None:
        rows = f", {version.rows_before:,} -> {version.rows_after:,} rows"
    return f"{version.operation}{rows}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequest:
    """How far a repair may go. Force alone is a preview."""

    confirm: bool
    force: bool
    actor: str
    note: CommitNote = NO_NOTE


def repair_graph(
    objects: Objects, state: ManifestState, request: RepairRequest, clock: Clock
) -> RepairReport:
    """Look at every table of a branch, and publish what may be published as one commit.

    Raises:
        RecoveryRequiredError: a dead writer's work is undecided, or a sidecar is not understood.
    """
    contract = require_ready(objects, state, clock, verb="repair")
    repairing = _Repairing(objects, contract.catalog, request)
    if not request.confirm:
        return _report(objects, state, repairing.look(state), commit_id=None, audited=True)
    author = Author(
        operation_id=clock.new_id(), actor=request.actor, branch=state.ref, note=request.note
    )
    schema_hash = contract.model_hash
    finished = commit_write(
        WriteRequest.of(objects, clock, WriterKind.REPAIR, author, schema_hash=schema_hash),
        Verb(prepare=repairing.prepare),
    )
    if isinstance(finished, Unchanged):
        return _report(objects, state, repairing.seen, commit_id=None, audited=True)
    recovery = Recovery(
        operation_id=finished.operation_id,
        commit_id=finished.commit_id,
        kind=_kind(repairing.armed),
        original_actor=request.actor,
        writer_kind=WriterKind.REPAIR.value,
        tables=tuple(
            table.table_key for table in repairing.armed if table.action is RepairAction.PUBLISHED
        ),
        recovered_at=clock.timestamp(),
    )
    audited = _audit(objects, recovery)
    return _report(objects, state, repairing.armed, commit_id=finished.commit_id, audited=audited)


class _Repairing:
    """Looks and decides, again and again while other writers win."""

    def __init__(self, objects: Objects, catalog: Catalog, request: RepairRequest) -> None:
        self._objects = objects
        self._schemas = {
            key: table_schema(declared) for key, declared in declared_types(catalog).items()
        }
        self._request = request
        self.seen: tuple[TableRepair, ...] = ()
        self.armed: tuple[TableRepair, ...] = ()
        """The last look that found something to publish."""

    def prepare(self, state: ManifestState) -> Prepared:
        self.seen = self.look(state)
        entries = state.snapshot().tables
        pointed = tuple(
            _pointed(table, entries[table.table_key])
            for table in self.seen
            if table.action is RepairAction.PUBLISHED
        )
        if pointed:
            self.armed = self.seen
        return Prepared(changes=(), read_set=frozenset(), pointed=pointed)

    def look(self, state: ManifestState) -> tuple[TableRepair, ...]:
        entries = state.snapshot().tables.values()
        own_entries = [entry for entry in entries if belongs_to(entry, state.ref)]
        with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
            drifts = list(pool.map(partial(table_drift, self._objects.root), own_entries))
        # Asked afterwards: an operation that is not pending now had been decided when we looked, or
        # the published version has moved and this look is not used.
        pending = frozenset(pending_operations(self._objects))
        own_repairs = [
            self._decided(entry, drift, pending)
            for entry, drift in zip(own_entries, drifts, strict=True)
        ]
        inherited = [_inherited(entry) for entry in entries if entry not in own_entries]
        return tuple(sorted([*own_repairs, *inherited], key=lambda table: table.table_key))

    def _decided(
        self, entry: TableEntry, drift: TableDrift, pending: frozenset[str]
    ) -> TableRepair:
        remedy, obstacle = _remedy(drift, self._schemas.get(entry.table_key), pending)
        candidate = drift.candidate
        return TableRepair(
            table_key=entry.table_key,
            classification=drift.drift,
            action=_action(remedy, self._request),
            remedy=remedy,
            reason="; ".join(filter(None, (drift.reason, obstacle))),
            manifest_version=entry.version,
            lance_head_version=drift.head,
            version=None if candidate is None else candidate.version,
            rows=None if candidate is None else candidate.rows,
            foreign=drift.foreign,
            undone_operations=() if candidate is None else tuple(sorted(candidate.undone)),
        )


def _remedy(
    drift: TableDrift, declared: pa.Schema | None, pending: frozenset[str]
) -> tuple[Remedy, str]:
    """What it takes to publish a table's candidate, and what prevents it."""
    if drift.drift is DriftClass.NO_DRIFT:
        return Remedy.NONE, ""
    candidate = drift.candidate
    if candidate is None:
        return Remedy.BY_HAND, "restore the table from a backup"
    misfit = misfit_of(candidate.schema, declared, version=candidate.version)
    if misfit is not None:
        return Remedy.BY_HAND, misfit
    writing = candidate.undone & pending
    if writing:
        return Remedy.WAIT, f"operation {min(writing)} is still being written"
    match drift.drift:
        case DriftClass.VERIFIED_MAINTENANCE:
            return Remedy.CONFIRM, ""
        case DriftClass.SUSPICIOUS | DriftClass.UNVERIFIABLE:
            return Remedy.FORCE, ""
        case _:
            assert_never(drift.drift)


def _action(remedy: Remedy, request: RepairRequest) -> RepairAction:
    match remedy:
        case Remedy.NONE:
            return RepairAction.NONE
        case Remedy.CONFIRM:
            may = True
        case Remedy.FORCE:
            may = request.force
        case Remedy.WAIT | Remedy.BY_HAND:
            may = False
        case _:
            assert_never(remedy)
    if not request.confirm:
        return RepairAction.PREVIEWED
    return RepairAction.PUBLISHED if may else RepairAction.REFUSED


def _pointed(table: TableRepair, entry: TableEntry) -> PointedTable:
    assert table.version is not None
    assert table.rows is not None
    return PointedTable(
        table_key=table.table_key,
        version=table.version,
        fork=entry.fork,
        row_count=table.rows,
        expected=entry.pin,
    )


def _inherited(entry: TableEntry) -> TableRepair:
    """A table that the branch only reads: versions above it belong to its owner."""
    return TableRepair(
        table_key=entry.table_key,
        classification=DriftClass.NO_DRIFT,
        action=RepairAction.NONE,
        remedy=Remedy.NONE,
        reason="read from the line of another branch",
        manifest_version=entry.version,
        lance_head_version=None,
        version=None,
        rows=None,
        foreign=(),
        undone_operations=(),
    )


def _kind(tables: Sequence[TableRepair]) -> str:
    forced = any(
        table.action is RepairAction.PUBLISHED and table.remedy is Remedy.FORCE for table in tables
    )
    return REPAIRED_BY_FORCE if forced else REPAIRED


def _audit(objects: Objects, recovery: Recovery) -> bool:
    try:
        record_recovery(objects.root, recovery)
    except OmnigraphError:
        # The commit is valid, whether or not its record is written.
        return False
    return True


def _report(
    objects: Objects,
    state: ManifestState,
    tables: Sequence[TableRepair],
    *,
    commit_id: str | None,
    audited: bool,
) -> RepairReport:
    return RepairReport(
        root=objects.root.uri,
        branch=state.snapshot().branch_name,
        commit_id=commit_id,
        audited=audited,
        tables=tuple(
            replace(table, commit_id=commit_id) if table.action is RepairAction.PUBLISHED else table
            for table in tables
        ),
    )
