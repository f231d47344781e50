"""Merges a branch, a tag or a commit into a branch, as one commit with two parents.

| A table of the source | Route |
|---|---|
| is as the target has it, or as the base had it | nothing to do |
| the target has what the base had, and may read the source's line | point there |
| is a fork of what the target has, and nothing else changed there | take its rows over |
| otherwise | decide row by row, column by column, and write what differs |

After a fast-forward the graph is what the source is, and the source kept the rules. Otherwise what
comes from both sides is checked together.

Invariants:
- What is published is the target plus what the source changed since their base, with every conflict
  decided beforehand and every rule of the schema kept; or nothing is.
- The source is captured once; a target that moves is merged into again.
- Rows are decided and written by tasks of a runner, which has no effect on the result.
- Nothing is written before every conflict is decided and, unless the target only follows the
  source, every rule of the schema is kept.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import errors, names
from omnigraph.commit.fork_on_write import belongs_to, writable_entry
from omnigraph.commit.phases import Author, Prepared, Unchanged, Verb, WriteRequest
from omnigraph.commit.protocol import commit_write, is_surely_unpublished
from omnigraph.commit.schema_commit import free_schema_lock, take_schema_lock
from omnigraph.commit.schema_move import AdoptedTable, CreatedTable, SchemaMove
from omnigraph.commit.sidecar import MergedFrom, PointedTable, WriterKind
from omnigraph.diff.table_diff import Conversion, diff_table
from omnigraph.display.cells import counted, short_id
from omnigraph.display.pages import Displayed, Page, change_table, change_words
from omnigraph.failpoints import reach
from omnigraph.load.write import TableCounts
from omnigraph.merge.conflicts import CONFLICT_SCHEMA, MergeCounts, MergePolicy, Resolution
from omnigraph.merge.converted_rows import check_converted
from omnigraph.merge.decide import (
    OPEN,
    RESOLVED,
    UPSERTS,
    BrokenByMerge,
    DecidedTable,
    TableToDecide,
    check_decided,
    decide_tables,
    first_conflicts,
)
from omnigraph.merge.lifted_tables import LiftedTables
from omnigraph.merge.plan import MergeOutcome, MergePlan, plan_merge
from omnigraph.merge.schema_conflicts import require_nothing_dropped
from omnigraph.merge.stage import StagedRows, TableToWrite, stage_columns
from omnigraph.merge.three_way import TableToMerge
from omnigraph.notes import NO_NOTE, CommitNote
from omnigraph.runner.shuffle import read_files
from omnigraph.schema.arrow import table_schema
from omnigraph.schema.ends import polymorphic_ends
from omnigraph.schema.model import model_hash
from omnigraph.storage.lance.tables import adopt_or_create_table
from omnigraph.storage.lance.value_lookups import OneOf
from omnigraph.storage.manifest.accepted_schemas import keep_schema
from omnigraph.storage.manifest.swap import read_manifest
from omnigraph.storage.refs.branches import is_living
from omnigraph.storage.refs.kept import require_retained
from omnigraph.storage.staging.edits import stage_adoption
from omnigraph.validation.constraints import table_rules
from omnigraph.validation.input.intake import declared_types
from omnigraph.validation.lookups import PinnedReads, PinnedTables, SnapshotTables
from omnigraph.validation.schema_contract import stored_form

if TYPE_CHECKING:
    from omnigraph.clock import Clock
    from omnigraph.diff.table_diff import TableDiff
    from omnigraph.evolution.lifting import TableLift
    from omnigraph.merge.schemas import TableSides
    from omnigraph.runner.protocol import Runner
    from omnigraph.runner.shuffle import Scratch
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.manifest.state import BranchRef, ManifestState
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.refs.references import Resolved
    from omnigraph.storage.snapshot import TableEntry
    from omnigraph.storage.staging.changes import StagedChange
    from omnigraph.validation.schema_contract import Contracts


_TABLES_AT_ONCE: Final = 4
_SHOWN: Final = 20
_EDGE: Final = names.edge_table_key("")
_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeWay:
    """From where to where rows are merged, under which operation, and what runs the work."""

    source_name: str
    target: BranchRef | None
    operation_id: str
    runner: Callable[[], AbstractContextManager[Runner]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedRows:
    """Staged changes, tables of new types, and the conflicts that the resolution decided."""

    changes: list[StagedChange]
    created: tuple[DecidedTable, ...] = ()
    counts: Mapping[str, TableCounts] = field(default_factory=dict)
    resolved: pa.Table = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Tables by their keys in the merged schema: read in place, new and read in place, written."""

    pointed: list[str]
    adopted: list[str]
    written: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewedRows:
    """Decided tables, and the conflicts that the resolution decided."""

    tables: tuple[DecidedTable, ...]
    resolved: pa.Table = field(repr=False)


class RowMerge:
    """Merges the rows of one merge, again after every lost race; a context, for temporary files.

    If it ends with an error, rows that were written and cannot be published any more are removed.
    """

    def __init__(self, objects: Objects, catalog: Catalog, way: MergeWay) -> None:
        self._objects = objects
        self._catalog = catalog
        self._way = way
        self._stack = ExitStack()
        self._opened: tuple[Runner, Scratch] | None = None
        self._staged = StagedRows(objects)

    def __enter__(self) -> RowMerge:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        with self._stack:
            if error is not None:
                self._discard()

    def merge(self, plan: MergePlan, routes: Routes, policy: MergePolicy) -> MergedRows:
        """Decide all tables that the source changed, and stage those that are written.

        Tables whose columns change are staged with their new columns, also those without new rows.
        """
        keys = _checked_keys(plan) or routes.written
        decided = self._decide(plan, keys, frozenset(routes.written), policy) if keys else ()
        altered = [table for table in decided if table.alters and table.table.written]
        created = tuple(table for table in altered if plan.tables[table.table_key].ours is None)
        tables = at_once(
            (table for table in altered if table not in created),
            lambda table: TableToWrite.plan(
                table,
                self.writable(plan, table.table_key),
                lift=plan.tables[table.table_key].ours_lift,
            ),
        )
        changes: list[StagedChange] = []
        resolved = CONFLICT_SCHEMA.empty_table()
        if keys:
            runner, scratch = self._running()
            changes += self._staged.stage(runner, scratch, tables)
            resolved = first_conflicts(scratch, decided, RESOLVED)
        return MergedRows(
            changes=[
                *changes,
                *self._convert_tables(
                    plan, {*routes.pointed, *(table.table_key for table in altered)}
                ),
            ],
            created=created,
            counts={table.table_key: _row_counts(table) for table in altered},
            resolved=resolved,
        )

    def _convert_tables(self, plan: MergePlan, done: set[str]) -> Iterator[StagedChange]:
        """Tables that get new columns and no rows."""
        for key, sides in plan.tables.items():
            if key in done or sides.ours_lift is None:
                continue
            if sides.ours_lift.columns is not None:
                runner, _ = self._running()
                entry = self.writable(plan, key)
                yield stage_columns(runner, self._objects.root, entry, sides.ours_lift)

    def create(self, location: str, table: DecidedTable | None, *, schema: pa.Schema) -> None:
        """Make the table of a new type, with its rows, at a path of the operation's own."""
        rows: Iterator[pa.RecordBatch] = iter(())
        if table is not None:
            _, scratch = self._running()
            paths = [path for paths in table.paths(UPSERTS).values() for path in paths]
            rows = (batch.cast(schema) for batch in read_files(scratch, paths))
        adopt_or_create_table(
            self._objects.root,
            location,
            schema,
            operation_id=self._way.operation_id,
            rows=pa.RecordBatchReader.from_batches(schema, rows),
        )

    def preview(self, plan: MergePlan, policy: MergePolicy) -> PreviewedRows:
        """What merging would do to every table; nothing is staged."""
        decided = self._decide(plan, list(plan.keys), frozenset(), policy)
        _, scratch = self._running()
        return PreviewedRows(tables=decided, resolved=first_conflicts(scratch, decided, RESOLVED))

    def writable(self, plan: MergePlan, key: str) -> TableEntry:
        entry = plan.tables[key].ours
        assert entry is not None, "a new type is created, not written"
        return writable_entry(
            self._objects.root,
            entry,
            branch=self._way.target,
            operation_id=self._way.operation_id,
        )

    def schema(self, plan: MergePlan, key: str) -> pa.Schema:
        return table_schema(declared_types(self.catalog(plan))[key])

    def catalog(self, plan: MergePlan) -> Catalog:
        """The merged schema."""
        return self._catalog if plan.schemas is None else plan.schemas.merged.catalog

    def _decide(
        self, plan: MergePlan, keys: list[str], written: frozenset[str], policy: MergePolicy
    ) -> tuple[DecidedTable, ...]:
        """Decide tables; unless the target only follows the source, check them together."""
        rules = table_rules(self.catalog(plan))
        is_checked = plan.outcome is MergeOutcome.MERGED

        def plan_table(number: int, key: str) -> TableToDecide:
            root, sides = self._objects.root, plan.tables[key]
            return TableToDecide.plan(
                number,
                theirs=_diff_of_theirs(root, sides),
                ours=None if sides.unmoved else _diff_of_ours(root, sides),
                merge=TableToMerge(
                    table_key=key,
                    schema=self.schema(plan, key),
                    policy=policy,
                    theirs_lacks=sides.theirs_lacks,
                    ours_lacks=sides.ours_lacks,
                    writes_kept=plan.moves_schema and is_checked,
                    ends=polymorphic_ends(declared_types(self.catalog(plan))[key]),
                ),
                rules=rules[key] if is_checked else None,
                written=key in written,
            )

        runner, scratch = self._running()
        tables = at_once(enumerate(keys), lambda numbered: plan_table(*numbered))
        decided = decide_tables(runner, scratch, tables)
        if is_checked:
            stored = SnapshotTables(root=self._objects.root, snapshot=plan.ours)
            pinned: PinnedTables = (
                LiftedTables(stored=stored, sides=plan.tables) if plan.moves_schema else stored
            )
            self._require_no_conflicts(
                plan,
                sum((table.counts for table in decided), MergeCounts()).open,
                first_conflicts(scratch, decided, OPEN),
                check_decided(scratch, decided, rules, pinned),
                check_converted(runner, self._objects.root, plan),
            )
        return decided

    def _running(self) -> tuple[Runner, Scratch]:
        """The runner and its temporary files, for all attempts; opened when there is work."""
        if self._opened is None:
            runner = self._stack.enter_context(self._way.runner())
            scratch = self._stack.enter_context(runner.scratch(self._way.operation_id))
            self._opened = runner, scratch
        return self._opened

    def _discard(self) -> None:
        with suppress(errors.OmnigraphError):
            if is_surely_unpublished(self._objects, self._way.operation_id, self._way.target):
                self._staged.discard()

    def _require_no_conflicts(
        self, plan: MergePlan, count: int, table: pa.Table, *broken: BrokenByMerge
    ) -> None:
        total = count + sum(part.total for part in broken)
        if not total:
            return
        conflicts = pa.concat_tables([table, *(part.conflicts for part in broken)])
        raise errors.MergeConflictError(
            f"merging {self._way.source_name} met {counted(total, 'conflict')}",
            conflicts=conflicts,
            details=_first_lines(total, conflicts, self._both_sides(plan)),
            next_step="Resolve them with `--resolve ours|theirs|newest|FILE.json`, or fix one "
            "side.",
        )

    def _both_sides(self, plan: MergePlan) -> list[SnapshotTables]:
        root = self._objects.root
        return [SnapshotTables(root=root, snapshot=side) for side in (plan.theirs, plan.ours)]


def _diff_of_theirs(root: Root, sides: TableSides) -> TableDiff:
    return diff_table(
        root,
        sides.before,
        sides.theirs,
        conversion=_conversion(sides.before_lift, sides.theirs_lift, sides.theirs_lacks),
    )


def _diff_of_ours(root: Root, sides: TableSides) -> TableDiff:
    return diff_table(
        root,
        sides.before,
        sides.ours,
        conversion=_conversion(sides.before_lift, sides.ours_lift, sides.ours_lacks),
    )


def _conversion(
    before: TableLift | None, after: TableLift | None, lacking: frozenset[str]
) -> Conversion:
    """How the base is compared with a side, which is lifted too unless it changed the schema."""
    is_converted = before is not None and after != before
    return Conversion(
        before=before,
        after=after,
        lacking=lacking,
        by_edits=is_converted and before is not None and before.is_known,
    )


def _row_counts(table: DecidedTable) -> TableCounts:
    counts = table.counts
    return TableCounts(inserted=counts.inserted, updated=counts.updated, deleted=counts.deleted)


def _checked_keys(plan: MergePlan) -> list[str]:
    """Tables that rules look at, also those that are only pointed elsewhere: they bring rows."""
    return list(plan.keys) if plan.outcome is MergeOutcome.MERGED else []


def at_once(tables: Iterable[_Given], work: Callable[[_Given], _Made]) -> list[_Made]:
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        return list(pool.map(work, tables))


def _first_lines(total: int, conflicts: pa.Table, snapshots: Sequence[SnapshotTables]) -> str:
    lines = []
    shown = conflicts.slice(0, _SHOWN)
    ends = _edge_ends(shown, snapshots)
    for row in shown.to_pylist():
        column = "" if row["column"] is None else f".{row['column']}"
        sides = [f"{side} {row[side]}" for side in ("base", "ours", "theirs") if row[side]]
        edge = ends.get((row["type"], row["id"]))
        row_text = row["id"] if edge is None else f"{edge} ({row['id']})"
        lines.append(
            f"  {row['type']}{column} {row_text} [{row['kind']}]"
            + (f": {', '.join(sides)}" if sides else "")
        )
    if total > _SHOWN:
        lines.append(f"  ... and {total - _SHOWN:,} more")
    return "\n".join(lines)


def _edge_ends(conflicts: pa.Table, sides: Iterable[SnapshotTables]) -> dict[tuple[str, str], str]:
    """Edges by their ends, as `ann -> Acme`; a later side has the last word."""
    ends: dict[tuple[str, str], str] = {}
    columns = [names.ID_COLUMN, names.SOURCE_COLUMN, names.TARGET_COLUMN]
    keys = {key for key in conflicts.column("type").to_pylist() if key.startswith(_EDGE)}
    for key, side in itertools.product(sorted(keys), sides):
        ids = conflicts.filter(pc.equal(conflicts.column("type"), key)).column("id")
        within = OneOf(column=names.ID_COLUMN, values=ids.combine_chunks())
        edges = PinnedReads(side).rows(key, columns, within=within)
        for batch in () if edges is None else edges:
            ends |= {(key, row["id"]): f"{row['src']} -> {row['dst']}" for row in batch.to_pylist()}
    return ends


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTerms:
    """The branch that rows are merged into, by whom, and how to resolve conflicts."""

    target: BranchRef | None
    resolution: Resolution
    column_level: bool
    actor: str
    operation_id: str
    runner: Callable[[], AbstractContextManager[Runner]]
    """Opens what decides and writes rows."""
    note: CommitNote = NO_NOTE

    @property
    def author(self) -> Author:
        return Author(
            operation_id=self.operation_id, actor=self.actor, branch=self.target, note=self.note
        )

    def way(self, source_name: str) -> MergeWay:
        """How the rows of a source, which messages name like that, come to the target."""
        return MergeWay(
            source_name=source_name,
            target=self.target,
            operation_id=self.operation_id,
            runner=self.runner,
        )

    def policy(self, *, source_is_newer: bool) -> MergePolicy:
        return MergePolicy(
            resolution=self.resolution,
            column_level=self.column_level,
            source_is_newer=source_is_newer,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """The source of a merge, and its terms."""

    source: Resolved
    terms: MergeTerms

    @property
    def target_name(self) -> str:
        target = self.terms.target
        return names.MAIN if target is None else target.branch

    @property
    def source_commit(self) -> str:
        return self.source.commit_id


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult(Displayed):
    """A finished merge. `commit_id` is None if there was nothing to merge.

    `tables` counts the rows changed in the target; `resolved` are the conflicts that the resolution
    decided, as a table. Of a merge that an earlier call with the same operation id had published
    only the commit is known.
    """

    outcome: MergeOutcome
    operation_id: str
    commit_id: str | None
    source_commit_id: str
    base_commit_id: str | None
    tables: Mapping[str, TableCounts]
    resolved: pa.Table = field(repr=False)

    def _page(self) -> Page:
        outcome = self.outcome.value.replace("_", " ")
        line = (
            outcome if self.commit_id is None else f"{outcome}, commit {short_id(self.commit_id)}"
        )
        resolved = counted(len(self.resolved), "conflict")
        return Page(
            summary=f"{line}: {change_words(self.tables)}" if self.tables else line,
            tables=[change_table(self.tables)] if self.tables else (),
            lines=[*([f"resolved {resolved}"] if len(self.resolved) else []), line],
        )


def merge_graph(
    objects: Objects,
    contracts: Contracts,
    catalog: Catalog,
    request: MergeRequest,
    clock: Clock,
) -> MergeResult:
    """Run one merge as one commit.

    Raises:
        MergeConflictError: unresolved conflicts, or rules that the result would violate; all of
            them, and nothing was written.
    """
    _require_two(request)
    with RowMerge(objects, catalog, request.terms.way(request.source.name)) as rows:
        merging = _Merging(objects, contracts, request, rows, clock)
        write = WriteRequest.of(
            objects, clock, WriterKind.MERGE, request.terms.author, schema_hash=model_hash(catalog)
        )
        try:
            finished = commit_write(write, Verb(prepare=merging.prepare))
        finally:
            merging.free_lock()
    if isinstance(finished, Unchanged):
        return merging.result(None)
    return merging.result(finished.commit_id)


def preview_merge(
    objects: Objects,
    contracts: Contracts,
    catalog: Catalog,
    request: MergeRequest,
    target: ManifestState,
    clock: Clock,
) -> MergeResult:
    """What a merge into this state would do; nothing is staged or published.

    Raises:
        MergeConflictError: as a merge would.
    """
    _require_two(request)
    with RowMerge(objects, catalog, request.terms.way(request.source.name)) as rows:
        return _Merging(objects, contracts, request, rows, clock).preview(target)


def _require_two(request: MergeRequest) -> None:
    if request.source.name == request.target_name:
        raise errors.InvalidInputError(
            f"{request.source.name} cannot be merged into itself",
            next_step="Name two different branches.",
        )


class _Merging:
    """Prepares one merge, again after every lost race."""

    def __init__(
        self,
        objects: Objects,
        contracts: Contracts,
        request: MergeRequest,
        rows: RowMerge,
        clock: Clock,
    ) -> None:
        self._objects = objects
        self._contracts = contracts
        self._clock = clock
        self._has_lock = False
        self._request = request
        self._rows = rows
        self._plan: MergePlan | None = None
        self._counts: dict[str, TableCounts] = {}
        self._resolved = CONFLICT_SCHEMA.empty_table()

    def prepare(self, state: ManifestState) -> Prepared:
        try:
            return self._prepare(state)
        except (errors.DamagedGraphError, errors.StorageUnavailableError) as error:
            self._require_source(error)
            raise

    def preview(self, state: ManifestState) -> MergeResult:
        """The result that a merge into this state would have, but for a commit."""
        request = self._request
        plan = self._plan = plan_merge(
            self._objects,
            self._contracts,
            request.source,
            request.source_commit,
            state,
            request.terms.resolution,
        )
        if plan.outcome is not MergeOutcome.UP_TO_DATE:
            require_nothing_dropped(self._objects.root, plan)
            previewed = self._rows.preview(plan, self._policy(plan))
            self._counts = {
                table.table_key: TableCounts(
                    inserted=table.counts.inserted,
                    updated=table.counts.updated,
                    deleted=table.counts.deleted,
                )
                for table in previewed.tables
                if table.alters
            }
            self._resolved = _all_resolved(plan, previewed.resolved)
        return self.result(None)

    def _require_source(self, error: errors.OmnigraphError) -> None:
        """What cannot be read of a source that was deleted, or moved on and was cleaned."""
        source = self._request.source.state
        if source.ref is not None and not is_living(self._objects, source.ref):
            raise errors.ConflictError(
                f"branch {source.ref.branch!r} was deleted concurrently",
                next_step="Merge a tag or commit of it instead.",
            ) from error
        if read_manifest(self._objects.root, branch=source.ref).version != source.version:
            raise errors.ConflictError(
                f"{self._request.source.name} was changed during the merge, and its earlier "
                "state is no longer kept",
                next_step="Merge it again.",
            ) from error

    def _prepare(self, state: ManifestState) -> Prepared:
        plan = self._plan = plan_merge(
            self._objects,
            self._contracts,
            self._request.source,
            self._request.source_commit,
            state,
            self._request.terms.resolution,
        )
        if plan.outcome is MergeOutcome.UP_TO_DATE:
            return Prepared(changes=(), read_set=frozenset())
        self._take_lock(plan)
        require_nothing_dropped(self._objects.root, plan)
        routes = self._routes(plan)
        changes: list[StagedChange] = []
        if plan.outcome is MergeOutcome.FAST_FORWARD:
            taken = at_once(routes.written, lambda key: self._take_over(plan, key))
            changes = [change for change in taken if change is not None]
            left = [key for key, change in zip(routes.written, taken, strict=True) if not change]
            routes = replace(routes, written=left)
        merged = self._rows.merge(plan, routes, self._policy(plan))
        keys = {sides.ours.table_key: key for key, sides in plan.tables.items() if sides.ours}
        self._counts = {keys[change.table_key]: _counts(change) for change in changes}
        self._counts |= {key: counts for key, counts in merged.counts.items() if any_rows(counts)}
        changes += merged.changes
        self._resolved = _all_resolved(plan, merged.resolved)
        edited = {*self._counts, *routes.pointed, *routes.adopted}
        move = self._move(plan, routes, merged.created, edited)
        reach("merge.staged")
        return Prepared(
            changes=tuple(changes),
            read_set=frozenset(plan.ours.tables),
            pointed=tuple(_pointed(plan, key) for key in routes.pointed),
            merged=self._merged_from(),
            schema_move=move,
            create_tables=None
            if move is None
            else lambda: self._create(plan, move, merged.created),
        )

    def free_lock(self) -> None:
        """Release the lock of schema changes, if this merge has it."""
        if self._has_lock:
            with suppress(errors.OmnigraphError):
                # A lock whose operation has no sidecar blocks nothing.
                free_schema_lock(self._objects, self._request.terms.operation_id)

    def _take_lock(self, plan: MergePlan) -> None:
        if plan.moves_schema:
            take_schema_lock(
                self._objects,
                self._request.terms.operation_id,
                now=self._clock.now(),
                impatient=self._has_lock,
            )
            self._has_lock = True

    def _routes(self, plan: MergePlan) -> Routes:
        pointed = [key for key in plan.keys if self._can_point(plan, key)]
        adopted = [key for key in plan.keys if self._can_adopt(plan, key)]
        in_place = {
            entry.table_key: entry
            for key in (*pointed, *adopted)
            if (entry := plan.tables[key].theirs) is not None
        }
        if in_place:
            # They were found before this merge had a sidecar; from now on that protects them.
            kept = replace(plan.theirs, tables=in_place)
            require_retained(self._objects, kept, thing=self._request.source.name)
        return Routes(
            pointed=pointed,
            adopted=adopted,
            written=[key for key in plan.keys if key not in (*pointed, *adopted)],
        )

    def _move(
        self,
        plan: MergePlan,
        routes: Routes,
        created: Iterable[DecidedTable],
        edited: Iterable[str],
    ) -> SchemaMove | None:
        """The change of the target's schema; the new one is kept before a manifest can name it."""
        schemas = plan.schemas
        if schemas is None or not schemas.moves_ours:
            return None
        for contract in (schemas.ours, schemas.merged):
            keep_schema(self._objects, contract.model_hash, stored_form(contract))
        reach("schema.post_contract")
        rows = {table.table_key: table.upserted for table in created}
        kept = {sides.ours.table_key for sides in plan.tables.values() if sides.ours}
        declared = schemas.merged.catalog.tables()
        return SchemaMove(
            before=schemas.ours.model_hash,
            after=schemas.merged.model_hash,
            created=tuple(
                CreatedTable(
                    table_key=key,
                    location=names.table_location(key, self._request.terms.operation_id),
                    type_number=declared[key].number,
                    row_count=rows.get(key, 0),
                )
                for key, sides in plan.tables.items()
                if sides.ours is None and key not in routes.adopted
            ),
            renamed=tuple(
                (sides.ours.table_key, key)
                for key, sides in plan.tables.items()
                if sides.ours and sides.ours.table_key != key
            ),
            dropped=tuple(key for key in plan.ours.tables if key not in kept),
            adopted=tuple(
                _adoption(plan.tables[key], declared[key].number) for key in routes.adopted
            ),
            values=schemas.values,
            edited=tuple(sorted(edited)),
        )

    def _create(self, plan: MergePlan, move: SchemaMove, created: Iterable[DecidedTable]) -> None:
        tables = {table.table_key: table for table in created}
        for table in move.created:
            self._rows.create(
                table.location,
                tables.get(table.table_key),
                schema=self._rows.schema(plan, table.table_key),
            )
            reach("schema.post_create")

    def result(self, commit_id: str | None) -> MergeResult:
        plan = self._plan
        return MergeResult(
            outcome=MergeOutcome.MERGED if plan is None else plan.outcome,
            operation_id=self._request.terms.operation_id,
            commit_id=commit_id,
            source_commit_id=self._request.source_commit,
            base_commit_id=None if plan is None else plan.base_commit,
            tables=self._counts,
            resolved=self._resolved,
        )

    def _can_point(self, plan: MergePlan, key: str) -> bool:
        """Whether the target may read the source's version in place."""
        sides = plan.tables[key]
        ours, theirs, target = sides.ours, sides.theirs, self._request.terms.target
        if ours is None or theirs is None or target is None:
            return False
        if sides.theirs_lift is not None or theirs.location != ours.location:
            return False
        return sides.unmoved and (
            theirs.fork is None or belongs_to(theirs, self._request.terms.target)
        )

    def _can_adopt(self, plan: MergePlan, key: str) -> bool:
        """Whether the target, a branch, may read the table of a new type of main in place."""
        sides = plan.tables[key]
        is_from_main = self._request.source.state.ref is None and sides.theirs is not None
        return (
            self._request.terms.target is not None
            and is_from_main
            and sides.ours is None
            and sides.theirs is not None
            and sides.theirs.fork is None
        )

    def _take_over(self, plan: MergePlan, key: str) -> StagedChange | None:
        sides = plan.tables[key]
        if sides.ours is None or sides.theirs is None or sides.ours_lift is not None:
            return None
        return stage_adoption(
            self._objects,
            sides.ours,
            self._rows.writable(plan, key),
            sides.theirs,
            schema=self._rows.schema(plan, key),
        )

    def _policy(self, plan: MergePlan) -> MergePolicy:
        return self._request.terms.policy(source_is_newer=plan.source_is_newer)

    def _merged_from(self) -> MergedFrom:
        resolution = self._request.terms.resolution.to_json()
        return MergedFrom(
            commit_id=self._request.source_commit,
            resolution=json.dumps(resolution, sort_keys=True) if resolution else None,
        )


def _all_resolved(plan: MergePlan, of_rows: pa.Table) -> pa.Table:
    """Conflicts that the resolution decided, those of the schemas first."""
    if plan.schemas is None:
        return of_rows
    return pa.concat_tables([plan.schemas.resolved, of_rows])


def _pointed(plan: MergePlan, key: str) -> PointedTable:
    sides = plan.tables[key]
    theirs = sides.theirs
    assert theirs is not None
    assert sides.ours is not None
    return PointedTable(
        table_key=sides.ours.table_key,
        version=theirs.version,
        fork=theirs.fork,
        row_count=theirs.row_count,
        expected=sides.ours.pin,
        made_at=theirs.made_at,
        checksums=None if theirs.checksums is None else theirs.checksums.digest,
    )


def _adoption(sides: TableSides, number: int) -> AdoptedTable:
    theirs = sides.theirs
    assert theirs is not None
    return AdoptedTable(
        table_key=sides.key,
        location=theirs.location,
        type_number=number,
        version=theirs.version,
        row_count=theirs.row_count,
        made_at=theirs.made_at,
        checksums=None if theirs.checksums is None else theirs.checksums.digest,
    )


def any_rows(counts: TableCounts) -> bool:
    return bool(counts.inserted or counts.updated or counts.deleted)


def _counts(change: StagedChange) -> TableCounts:
    return TableCounts(
        inserted=change.rows_inserted, updated=change.rows_updated, deleted=change.rows_deleted
    )
