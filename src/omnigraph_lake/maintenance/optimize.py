"""Optimize tables: compact small fragments, and build the declared indexes over every row.

A clustered table is rewritten in the order of its sources once enough rows are out of order; until
then the ordered fragments stay, and the others are compacted.

All compactions are one commit and all indexes are one commit. A commit before them updates the
indexes that block compaction: vector and full-text indexes with entries of rows that are gone.
Files are written beforehand, so HEADs are above their pins only between a table's commit and the
publish.

Invariants:
- No row is removed or changed, and an index affects speed, never results.
- Tables without work appear in no sidecar and no commit. A table whose HEAD holds unpublished
  changes is skipped.
- If one table fails, the work on the others is published before the error is raised.
- An index that cannot be built is reported as pending with its reason, and the next run tries
  again; nothing else fails because of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never

from omnigraph_lake.commit.history_compaction import compact_commits
from omnigraph_lake.commit.maintenance import (
    MAINTENANCE_ACTOR,
    NOTHING_DONE,
    MaintenanceResult,
    commit_maintenance,
)
from omnigraph_lake.commit.phases import Author, Committed, Prepared, Verb, WriteRequest
from omnigraph_lake.commit.protocol import commit_write
from omnigraph_lake.commit.rollback import roll_back_pins
from omnigraph_lake.commit.sidecar import WriterKind
from omnigraph_lake.display.pages import Displayed, Listing, Page, page_of
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.errors import (
    DamagedGraphError,
    IndexPendingError,
    InvalidInputError,
    MaintenanceIncompleteError,
    OmnigraphError,
    StorageUnavailableError,
)
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.maintenance.edge_order import order_tables
from omnigraph_lake.maintenance.preconditions import require_ready
from omnigraph_lake.maintenance.workers import Workers, by_table, maintenance_concurrency
from omnigraph_lake.names import OperationId, edge_table_key
from omnigraph_lake.schema.catalog import Catalog, Scalar, ScalarType
from omnigraph_lake.schema.indexes import DeclaredIndex, IndexKind, declared_indexes
from omnigraph_lake.storage.indexes import segments as index_segments
from omnigraph_lake.storage.lance.clustering import (
    ClusterPlan,
    find_ordered_fragments,
    plan_clustering,
)
from omnigraph_lake.storage.lance.compaction import (
    SUPPORTS_BLOBS,
    CompactionPlan,
    CompactionWork,
    StagedRewrite,
    plan_compaction,
)
from omnigraph_lake.storage.manifest.history import compact_history
from omnigraph_lake.storage.manifest.state import ManifestState
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.manifest_rows import GraphCommit
from omnigraph_lake.storage.staging.drift import DriftClass, TableDrift, table_drift
from omnigraph_lake.storage.staging.table_versions import switch_off_cleanup

if TYPE_CHECKING:
    from omnigraph_lake.clock import Clock
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import Pin, TableEntry


_UNTRAINABLE = "no vectors to train on yet"

_Built = tuple[str, str, tuple[int, ...]]
_Plan: TypeAlias = CompactionPlan | ClusterPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingIndex(Displayed):
    """A declared index that could not be built this time, and why."""

    table_key: str
    column: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexed:
    """What came of it: the tables whose indexes moved, what is pending, and what went wrong."""

    moved: frozenset[str] = frozenset()
    pending: tuple[PendingIndex, ...] = ()
    errors: Mapping[str, OmnigraphError] = field(default_factory=dict)


def wished_indexes(catalog: Catalog) -> Mapping[str, tuple[index_segments.IndexWish, ...]]:
    """The declared indexes of every table, in the words of storage."""
    return {
        key: tuple(_wish(index) for index in declared_indexes(entity))
        for key, entity in catalog.tables().items()
    }


def plan_all(
    objects: Objects,
    state: ManifestState,
    index_wishes: Mapping[str, tuple[index_segments.IndexWish, ...]],
    tables: Iterable[str],
) -> tuple[tuple[index_segments.IndexPlan, ...], dict[str, OmnigraphError]]:
    """What the indexes of these tables need in one state of the graph, and the failures."""
    published = state.snapshot().tables
    plans, failed = by_table(
        lambda entry: index_segments.plan_indexes(
            objects.root, entry, index_wishes.get(entry.table_key, ())
        ),
        [published[key] for key in sorted(tables) if key in published],
    )
    return tuple(plans.values()), failed


def untrainable(plans: Iterable[index_segments.IndexPlan]) -> tuple[PendingIndex, ...]:
    """The declared indexes that no row can be found for yet."""
    return tuple(
        _pending(plan.entry, wish, _UNTRAINABLE) for plan in plans for wish in plan.untrainable
    )


def update_indexes(
    objects: Objects,
    index_wishes: Mapping[str, tuple[index_segments.IndexWish, ...]],
    tables: frozenset[str],
    workers: Workers,
    clock: Clock,
    *,
    schema_hash: str,
) -> Indexed:
    """Build what is missing or behind in these tables; no commit if nothing is."""
    builds = _Builds(objects=objects, wishes=index_wishes, tables=tables, workers=workers)
    author = Author(operation_id=clock.new_id(), actor=MAINTENANCE_ACTOR, branch=None)
    finished = commit_write(
        WriteRequest.of(objects, clock, WriterKind.INDEX, author, schema_hash=schema_hash),
        Verb(prepare=builds.prepare),
    )
    return Indexed(
        moved=frozenset(
            (change.table_key for change in finished.changes)
            if isinstance(finished, Committed)
            else ()
        ),
        pending=tuple(builds.pending.values()),
        errors=dict(builds.errors),
    )


@dataclass(slots=True, kw_only=True)
class _Builds:
    """Segments built so far; a lost race builds only what the new state lacks."""

    objects: Objects
    wishes: Mapping[str, tuple[index_segments.IndexWish, ...]]
    tables: frozenset[str]
    workers: Workers
    built: dict[_Built, index_segments.Segment | OmnigraphError] = field(default_factory=dict)
    pending: dict[tuple[str, str], PendingIndex] = field(default_factory=dict)
    errors: dict[str, OmnigraphError] = field(default_factory=dict)

    def prepare(self, state: ManifestState) -> Prepared:
        plans, self.errors = plan_all(self.objects, state, self.wishes, self.tables)
        self._raise_if_stale(state)
        self.pending = {(index.table_key, index.column): index for index in untrainable(plans)}
        tasks = [task for plan in plans for task in plan.tasks]
        missing = [task for task in tasks if _key(task) not in self.built]
        for task, segment in zip(missing, self.workers.index(missing), strict=True):
            self.built[_key(task)] = segment
        segments = {plan.entry.table_key: self._segments(plan) for plan in plans}
        unwanted = {plan.entry.table_key: plan.unwanted for plan in plans}
        changes, failed = by_table(
            lambda entry: index_segments.stage_indexes(
                self.objects.root, entry, segments[entry.table_key], unwanted[entry.table_key]
            ),
            [plan.entry for plan in plans if segments[plan.entry.table_key] or plan.unwanted],
        )
        self.errors.update(failed)
        return Prepared(changes=tuple(changes.values()), read_set=frozenset())

    def _raise_if_stale(self, state: ManifestState) -> None:
        """Let the protocol try again on a newer state: a cleanup may have removed older pins."""
        lost = (DamagedGraphError, StorageUnavailableError)
        errors = [error for error in self.errors.values() if isinstance(error, lost)]
        if errors and read_manifest(self.objects.root).version != state.version:
            raise errors[0]

    def _segments(self, plan: index_segments.IndexPlan) -> list[index_segments.Segment]:
        segments = [self._segment(task) for task in plan.tasks]
        return [segment for segment in segments if segment is not None]

    def _segment(self, task: index_segments.IndexTask) -> index_segments.Segment | None:
        segment = self.built[_key(task)]
        if not isinstance(segment, OmnigraphError):
            return segment
        table_key = task.entry.table_key
        if isinstance(segment, IndexPendingError):
            self.pending[table_key, task.wish.column] = _pending(
                task.entry, task.wish, segment.what
            )
        else:
            self.errors[table_key] = segment
        return None


def _key(task: index_segments.IndexTask) -> _Built:
    return task.entry.table_key, task.wish.name, task.fragments


def _pending(entry: TableEntry, wish: index_segments.IndexWish, reason: str) -> PendingIndex:
    return PendingIndex(table_key=entry.table_key, column=wish.column, reason=reason)


def _wish(index: DeclaredIndex) -> index_segments.IndexWish:
    match index.kind:
        case IndexKind.BTREE:
            organisation = index_segments.Organisation.BTREE
        case IndexKind.INVERTED:
            organisation = index_segments.Organisation.INVERTED
        case IndexKind.VECTOR:
            organisation = index_segments.Organisation.IVF_FLAT
        case _:
            assert_never(index.kind)
    return index_segments.IndexWish(
        name=index.name,
        column=index.column,
        organisation=organisation,
        metric=None if index.metric is None else index.metric.value,
    )


VERB: Final = "optimize"
_FRAGMENT_ROWS_MAX: Final = 2**31 - 1


class SkipReason(StrEnum):
    """Why a table was left as it is; tokens are stable."""

    BLOB_COLUMNS_UNSUPPORTED_BY_LANCE = "blob_columns_unsupported_by_lance"
    DRIFT_NEEDS_REPAIR = "drift_needs_repair"
    CONTENDED = "contended"

    @property
    def sentence(self) -> str:
        match self:
            case SkipReason.BLOB_COLUMNS_UNSUPPORTED_BY_LANCE:
                return "blob columns: this Lance cannot compact them"
            case SkipReason.DRIFT_NEEDS_REPAIR:
                return "HEAD differs from the manifest: run omnigraph repair"
            case SkipReason.CONTENDED:
                return "changed by a concurrent writer: run omnigraph optimize again"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptimizeStats(Displayed):
    """What became of one table; the versions are given where HEAD and manifest disagree."""

    table_key: str
    fragments_removed: int = 0
    fragments_added: int = 0
    committed: bool = False
    skipped: SkipReason | None = None
    manifest_version: int | None = None
    lance_head_version: int | None = None
    pending_indexes: tuple[PendingIndex, ...] = ()
    error: str | None = None
    """Why the work on this table failed; what `committed` says got through before."""

    def _page(self) -> Page:
        return page_of(OptimizeListing([self]))


class OptimizeListing(Listing[TableOptimizeStats]):
    """What optimize did to each table, as a table."""

    __slots__ = ()

    def _page(self) -> Page:
        rows = [
            (
                stats.table_key,
                f"{stats.fragments_removed:,} -> {stats.fragments_added:,}"
                if stats.fragments_removed
                else "unchanged",
                _outcome(stats),
            )
            for stats in self
        ]
        return Page(tables=[TableView(header=("type", "fragments", "outcome"), rows=rows)])


def _outcome(stats: TableOptimizeStats) -> str:
    if stats.error is not None:
        return f"failed: {stats.error}"
    if stats.skipped is not None:
        return f"skipped: {stats.skipped.value}"
    if not stats.committed:
        return "nothing to do"
    return "compacted, indexes updated" if stats.fragments_removed else "indexes updated"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeOptions:
    """How large fragments should become; None leaves it to Lance (about a million rows)."""

    target_rows_per_fragment: int | None = None

    def __post_init__(self) -> None:
        rows: object = self.target_rows_per_fragment
        if rows is not None and not (type(rows) is int and 0 < rows <= _FRAGMENT_ROWS_MAX):
            raise InvalidInputError(
                f"a fragment cannot have {shown(rows, 40)} rows, expected a number from 1 to "
                f"{_FRAGMENT_ROWS_MAX:,}",
                next_step="The default is about one million.",
            )

    def for_lance(self) -> dict[str, Any]:
        rows = self.target_rows_per_fragment
        return {} if rows is None else {"target_rows_per_fragment": rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Healthy:
    """The tables that may be worked on in one state, and why the others may not."""

    state: ManifestState
    skipped: Mapping[str, TableOptimizeStats]
    errors: Mapping[str, OmnigraphError]
    wanted: frozenset[str] | None = None
    """The tables to work on; None is all."""

    @property
    def entries(self) -> dict[str, TableEntry]:
        tables = self.state.snapshot().tables
        return {
            key: entry
            for key, entry in tables.items()
            if key not in self.skipped
            and key not in self.errors
            and (self.wanted is None or key in self.wanted)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compacted:
    """What compaction came to: the files of every table it tried, and what got through."""

    staged: Mapping[str, StagedRewrite]
    result: MaintenanceResult
    errors: Mapping[str, OmnigraphError]


def optimize_graph(
    objects: Objects,
    workers: Workers,
    clock: Clock,
    *,
    options: OptimizeOptions,
    erased: frozenset[str] | None = None,
) -> Listing[TableOptimizeStats]:
    """Optimize every table of main, several at a time.

    With `erased` only these tables, and every file of them that holds values of dropped columns.

    Raises:
        RecoveryRequiredError, ConflictError, DamagedGraphError: see `preconditions`.
        MaintenanceIncompleteError: a table failed; what the others achieved is published.
    """
    state = read_manifest(objects.root)
    contract = require_ready(objects, state, clock, verb=VERB)
    catalog, schema_hash = contract.catalog, contract.model_hash
    index_wishes = wished_indexes(catalog)
    healthy = _healthy(objects, state, _without_blobs(catalog), clock)
    healthy = replace(healthy, wanted=erased)
    clustered = _tables_to_cluster(catalog)
    plan_table = partial(_plan_table, objects.root, options, clustered, erased is not None)
    healthy, plans, unplanned = _plan(objects, healthy, plan_table)
    held_up = frozenset(
        plan.entry.table_key
        for plan in plans
        if isinstance(plan, CompactionPlan) and plan.is_held_up
    )
    renewed = _index(objects, index_wishes, held_up, workers, clock, schema_hash=schema_hash)
    if held_up:
        healthy = replace(healthy, state=read_manifest(objects.root))
        healthy, plans, unplanned = _plan(objects, healthy, plan_table)
    compacted = _compact(objects, healthy.state, plans, workers, clock, options)
    indexed = _index(
        objects,
        index_wishes,
        frozenset(healthy.entries) - unplanned.keys(),
        workers,
        clock,
        schema_hash=schema_hash,
    )
    _tidy_up(objects)
    # Of several errors of a table the first is the cause.
    errors = {**indexed.errors, **compacted.errors, **unplanned, **healthy.errors}
    stats = {
        key: healthy.skipped.get(key)
        or _stats(key, compacted, indexed, is_renewed=key in renewed.moved)
        for key in sorted(state.snapshot().tables)
    }
    return _account(objects.root, stats, errors)


def _account(
    root: Root, stats: Mapping[str, TableOptimizeStats], errors: Mapping[str, OmnigraphError]
) -> OptimizeListing:
    """What became of every table.

    Raises:
        MaintenanceIncompleteError: there is an error.
    """
    account = OptimizeListing(
        replace(table, error=errors[key].what) if key in errors else table
        for key, table in stats.items()
    )
    if errors:
        written = any(table.committed for table in account)
        raise MaintenanceIncompleteError(
            VERB, errors, report=account, root=root.uri, written=written
        )
    return account


def _tables_to_cluster(catalog: Catalog) -> frozenset[str]:
    """The tables whose rows are kept in the order of their sources."""
    return frozenset(
        edge_table_key(edge.name) for edge in catalog.edges.values() if edge.is_clustered
    )


def _without_blobs(catalog: Catalog) -> frozenset[str]:
    """The tables that cannot be compacted because of their blobs: none since Lance can."""
    if SUPPORTS_BLOBS:
        return frozenset()
    return frozenset(
        key
        for key, declared in catalog.tables().items()
        if any(prop.type == ScalarType(scalar=Scalar.BLOB) for prop in declared.properties.values())
    )


def _healthy(
    objects: Objects, state: ManifestState, refused: frozenset[str], clock: Clock
) -> _Healthy:
    """Look at every HEAD; undone work of ours goes, so that every table begins at its pin."""
    tables = state.snapshot().tables
    skipped = {
        key: TableOptimizeStats(table_key=key, skipped=SkipReason.BLOB_COLUMNS_UNSUPPORTED_BY_LANCE)
        for key in refused & tables.keys()
    }
    drifts, errors = by_table(
        partial(_drift, objects.root, clock.new_id()),
        [e for key, e in tables.items() if key not in skipped],
    )
    undone: dict[str, Pin] = {}
    for key, drift in drifts.items():
        if drift.drift is not DriftClass.NO_DRIFT:
            skipped[key] = TableOptimizeStats(
                table_key=key,
                skipped=SkipReason.DRIFT_NEEDS_REPAIR,
                manifest_version=tables[key].version,
                lance_head_version=drift.head,
            )
        elif drift.head != tables[key].version:
            undone[key] = tables[key].pin
    if undone:
        roll_back_pins(
            objects.root,
            state.ref,
            undone,
            operation_id=OperationId(clock.new_id()),
            is_ours=lambda record: record.operation_id is not None,
            clock=clock,
        )
        state = read_manifest(objects.root)
    return _Healthy(state=state, skipped=skipped, errors=errors)


def _drift(root: Root, operation_id: str, entry: TableEntry) -> TableDrift:
    """Look at a HEAD; a table that Lance would clean up by itself gets one without that first.

    Such a HEAD is undone work of ours, which becomes the new pin.
    """
    drift = table_drift(root, entry)
    if drift.cleans_by_itself:
        switch_off_cleanup(root, entry, head=entry.version, operation_id=operation_id)
        drift = table_drift(root, entry)
    if drift.head is None or drift.head < entry.version:
        raise DamagedGraphError(
            f"{entry.table_key} is published at version {entry.version}, but {drift.reason}",
            next_step=f"Run `omnigraph check {root}`.",
        )
    return drift


def _plan(
    objects: Objects, healthy: _Healthy, plan_table: Callable[[TableEntry], _Plan]
) -> tuple[_Healthy, list[_Plan], dict[str, OmnigraphError]]:
    """Plan on the newest state: a cleanup may have removed what an older one pins."""
    while True:
        plans, failed = by_table(plan_table, healthy.entries.values())
        newest = read_manifest(objects.root)
        if not failed or newest.version == healthy.state.version:
            return healthy, list(plans.values()), failed
        healthy = replace(healthy, state=newest)


def _plan_table(
    root: Root,
    options: OptimizeOptions,
    clustered: frozenset[str],
    erasing: bool,  # noqa: FBT001 - it is bound in front of the table
    entry: TableEntry,
) -> _Plan:
    """A clustered table is rewritten as a whole, or its ordered fragments stay as they are."""
    if entry.table_key not in clustered or erasing:
        return plan_compaction(root, entry, options=options.for_lance(), erasing=erasing)
    rewrite = plan_clustering(root, entry)
    if rewrite is not None and not rewrite.is_held_up:
        return rewrite
    compaction = plan_compaction(
        root, entry, options=options.for_lance(), excluded=find_ordered_fragments(root, entry)
    )
    return compaction if rewrite is None else replace(compaction, is_held_up=True)


def _compact(
    objects: Objects,
    state: ManifestState,
    plans: Sequence[_Plan],
    workers: Workers,
    clock: Clock,
    options: OptimizeOptions,
) -> _Compacted:
    staged: dict[str, StagedRewrite] = {}
    errors: dict[str, OmnigraphError] = {}
    productive = [plan for plan in plans if isinstance(plan, CompactionPlan) and plan.tasks]
    disordered = [plan for plan in plans if isinstance(plan, ClusterPlan)]

    def stage() -> Sequence[StagedRewrite]:
        for rewrites, failed in (
            _executed(productive, workers),
            order_tables(
                workers,
                disordered,
                rows_per_fragment=options.target_rows_per_fragment,
                new_id=clock.new_id,
            ),
        ):
            staged.update(rewrites)
            errors.update(failed)
        return tuple(staged.values())

    if not productive and not disordered:
        return _Compacted(staged={}, result=NOTHING_DONE, errors={})
    at_once = maintenance_concurrency()
    result = commit_maintenance(objects, state, stage, clock, tables_at_once=at_once)
    return _Compacted(staged=staged, result=result, errors={**errors, **result.errors})


def _executed(
    plans: Sequence[CompactionPlan], workers: Workers
) -> tuple[dict[str, StagedRewrite], dict[str, OmnigraphError]]:
    """The tasks of all tables as one batch of work; a table counts if all of its tasks did."""
    work = [CompactionWork(entry=plan.entry, task=task) for plan in plans for task in plan.tasks]
    results: dict[str, list[str]] = {plan.entry.table_key: [] for plan in plans}
    failed: dict[str, OmnigraphError] = {}
    for piece, result in zip(work, workers.compact(work), strict=True):
        if isinstance(result, OmnigraphError):
            failed[piece.entry.table_key] = result
        else:
            results[piece.entry.table_key].append(result)
    rewrites = {
        plan.entry.table_key: StagedRewrite(
            entry=plan.entry, results=tuple(results[plan.entry.table_key])
        )
        for plan in plans
        if plan.entry.table_key not in failed
    }
    return rewrites, failed


def _index(
    objects: Objects,
    index_wishes: Mapping[str, tuple[index_segments.IndexWish, ...]],
    tables: frozenset[str],
    workers: Workers,
    clock: Clock,
    *,
    schema_hash: str,
) -> Indexed:
    """Bring indexes up to date; tables that need nothing stay out of the operation."""
    if not tables:
        return Indexed()
    plans, failed = plan_all(objects, read_manifest(objects.root), index_wishes, tables)
    behind = frozenset(plan.entry.table_key for plan in plans if not plan.is_idle)
    pending = untrainable(plans)
    if not behind:
        return Indexed(pending=pending, errors=failed)
    indexed = update_indexes(objects, index_wishes, behind, workers, clock, schema_hash=schema_hash)
    waiting = frozenset(plan.entry.table_key for plan in plans if plan.waiting)
    if waiting and waiting <= indexed.moved:
        again = update_indexes(
            objects, index_wishes, waiting, workers, clock, schema_hash=schema_hash
        )
        indexed = replace(
            again,
            moved=indexed.moved | again.moved,
            pending=(
                *(index for index in indexed.pending if index.table_key not in waiting),
                *again.pending,
            ),
            errors={**indexed.errors, **again.errors},
        )
    elsewhere = tuple(index for index in pending if index.table_key not in behind)
    return replace(
        indexed, pending=(*indexed.pending, *elsewhere), errors={**failed, **indexed.errors}
    )


def _tidy_up(objects: Objects) -> None:
    """What belongs to no table: commits move to the history, and its files become fewer."""
    state = read_manifest(objects.root)
    if sum(isinstance(row, GraphCommit) for row in state.rows) > 1:
        compact_commits(objects.root, state)
    compact_history(objects.root)


def _stats(
    table_key: str, compacted: _Compacted, indexed: Indexed, *, is_renewed: bool
) -> TableOptimizeStats:
    staged = compacted.staged.get(table_key)
    got_through = table_key in compacted.result.moved
    lost = staged is not None and not got_through and table_key not in compacted.errors
    return TableOptimizeStats(
        table_key=table_key,
        fragments_removed=staged.fragments_removed if staged and got_through else 0,
        fragments_added=staged.fragments_added if staged and got_through else 0,
        committed=got_through or is_renewed or table_key in indexed.moved,
        skipped=SkipReason.CONTENDED if lost else None,
        pending_indexes=tuple(index for index in indexed.pending if index.table_key == table_key),
    )
