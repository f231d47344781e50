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
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from omnigraph.commit.sidecar import MergedFrom, PointedTable, WriterKind
from omnigraph.diff.table_diff import diff_table
from omnigraph.display.cells import counted, short_id
from omnigraph.display.pages import Displayed, Page, change_table, change_words
from omnigraph.failpoints import reach
from omnigraph.load.write import TableCounts
from omnigraph.merge.conflicts import CONFLICT_SCHEMA, MergeCounts, MergePolicy, Resolution
from omnigraph.merge.decide import (
    OPEN,
    RESOLVED,
    BrokenByMerge,
    DecidedTable,
    TableToDecide,
    check_decided,
    decide_tables,
    first_conflicts,
)
from omnigraph.merge.plan import MergeOutcome, MergePlan, plan_merge
from omnigraph.merge.stage import StagedRows, TableToWrite
from omnigraph.merge.three_way import TableToMerge
from omnigraph.notes import NO_NOTE, CommitNote
from omnigraph.schema.arrow import table_schema
from omnigraph.schema.model import model_hash
from omnigraph.storage.lance.value_lookups import OneOf
from omnigraph.storage.manifest.swap import read_manifest
from omnigraph.storage.refs.branches import is_living
from omnigraph.storage.refs.kept import require_retained
from omnigraph.storage.staging.edits import stage_adoption
from omnigraph.validation.constraints import table_rules
from omnigraph.validation.input.intake import declared_types
from omnigraph.validation.lookups import PinnedReads, SnapshotTables

if TYPE_CHECKING:
    from omnigraph.clock import Clock
    from omnigraph.runner.protocol import Runner
    from omnigraph.runner.shuffle import Scratch
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.manifest.state import BranchRef, ManifestState
    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.refs.references import Resolved
    from omnigraph.storage.snapshot import TableEntry
    from omnigraph.storage.staging.changes import StagedChange


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
class TableSides:
    """The versions of one table: at the common ancestor, and on each side now."""

    before: TableEntry | None
    ours: TableEntry | None
    theirs: TableEntry

    @property
    def unmoved(self) -> bool:
        """Whether the target has what the base had."""
        before, ours = self.before, self.ours
        if before is None or ours is None:
            return ours is before
        return ours == before or ours.pin == before.pin


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedRows:
    """Staged changes, and the conflicts that the resolution decided."""

    changes: list[StagedChange]
    resolved: pa.Table = field(repr=False)


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

    def merge(self, plan: MergePlan, written: list[str], policy: MergePolicy) -> MergedRows:
        """Decide all tables that the source changed, and stage those that are `written`."""
        keys = _checked_keys(plan) or written
        if not keys:
            return MergedRows(changes=[], resolved=CONFLICT_SCHEMA.empty_table())
        decided = self._decide(plan, keys, frozenset(written), policy)
        altered = [table for table in decided if table.alters and table.table.written]
        tables = at_once(
            altered,
            lambda table: TableToWrite.plan(table, self.writable(plan, table.table_key)),
        )
        runner, scratch = self._running()
        return MergedRows(
            changes=self._staged.stage(runner, scratch, tables),
            resolved=first_conflicts(scratch, decided, RESOLVED),
        )

    def preview(self, plan: MergePlan, policy: MergePolicy) -> PreviewedRows:
        """What merging would do to every table; nothing is staged."""
        decided = self._decide(plan, list(plan.keys), frozenset(), policy)
        _, scratch = self._running()
        return PreviewedRows(tables=decided, resolved=first_conflicts(scratch, decided, RESOLVED))

    def writable(self, plan: MergePlan, key: str) -> TableEntry:
        return writable_entry(
            self._objects.root,
            plan.ours.tables[key],
            branch=self._way.target,
            operation_id=self._way.operation_id,
        )

    def schema(self, key: str) -> pa.Schema:
        return table_schema(declared_types(self._catalog)[key])

    def _decide(
        self, plan: MergePlan, keys: list[str], written: frozenset[str], policy: MergePolicy
    ) -> tuple[DecidedTable, ...]:
        """Decide tables; unless the target only follows the source, check them together."""
        rules = table_rules(self._catalog)
        is_checked = plan.outcome is MergeOutcome.MERGED

        def plan_table(number: int, key: str) -> TableToDecide:
            root, sides = self._objects.root, self._sides(plan, key)
            return TableToDecide.plan(
                number,
                theirs=diff_table(root, sides.before, sides.theirs),
                ours=None if sides.unmoved else diff_table(root, sides.before, sides.ours),
                merge=TableToMerge(table_key=key, schema=self.schema(key), policy=policy),
                rules=rules[key] if is_checked else None,
                written=key in written,
            )

        runner, scratch = self._running()
        tables = at_once(enumerate(keys), lambda numbered: plan_table(*numbered))
        decided = decide_tables(runner, scratch, tables)
        if is_checked:
            pinned = SnapshotTables(root=self._objects.root, snapshot=plan.ours)
            self._require_no_conflicts(
                plan,
                sum((table.counts for table in decided), MergeCounts()).open,
                first_conflicts(scratch, decided, OPEN),
                check_decided(scratch, decided, rules, pinned),
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
        self, plan: MergePlan, count: int, table: pa.Table, broken: BrokenByMerge
    ) -> None:
        total = count + broken.total
        if not total:
            return
        conflicts = pa.concat_tables([table, broken.conflicts])
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

    def _sides(self, plan: MergePlan, key: str) -> TableSides:
        return TableSides(
            before=plan.before.tables.get(key),
            ours=plan.ours.tables.get(key),
            theirs=plan.theirs.tables[key],
        )


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
class MergeRequest:
    """Source and target of a merge, and how to resolve conflicts."""

    source: Resolved
    target: BranchRef | None
    resolution: Resolution
    column_level: bool
    actor: str
    operation_id: str
    runner: Callable[[], AbstractContextManager[Runner]]
    """Opens what decides and writes rows."""
    note: CommitNote = NO_NOTE

    @property
    def target_name(self) -> str | None:
        return None if self.target is None else self.target.branch

    @property
    def source_commit(self) -> str:
        return self.source.snapshot.commit_id or self.source.state.head.commit_id


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
    objects: Objects, catalog: Catalog, request: MergeRequest, clock: Clock
) -> MergeResult:
    """Run one merge as one commit.

    Raises:
        MergeConflictError: unresolved conflicts, or rules that the result would violate; all of
            them, and nothing was written.
    """
    _require_two(request)
    with RowMerge(objects, catalog, _way(request)) as rows:
        merging = _Merging(objects, request, rows)
        author = Author(
            operation_id=request.operation_id,
            actor=request.actor,
            branch=request.target,
            note=request.note,
        )
        schema_hash = model_hash(catalog)
        finished = commit_write(
            WriteRequest.of(objects, clock, WriterKind.MERGE, author, schema_hash=schema_hash),
            Verb(prepare=merging.prepare),
        )
    if isinstance(finished, Unchanged):
        return merging.result(None)
    return merging.result(finished.commit_id)


def preview_merge(
    objects: Objects, catalog: Catalog, request: MergeRequest, target: ManifestState
) -> MergeResult:
    """What a merge into this state would do; nothing is staged or published.

    Raises:
        MergeConflictError: as a merge would.
    """
    _require_two(request)
    with RowMerge(objects, catalog, _way(request)) as rows:
        return _Merging(objects, request, rows).preview(target)


def _require_two(request: MergeRequest) -> None:
    if request.source.name == (request.target_name or names.MAIN):
        raise errors.InvalidInputError(
            f"{request.source.name} cannot be merged into itself",
            next_step="Name two different branches.",
        )


def _way(request: MergeRequest) -> MergeWay:
    return MergeWay(
        source_name=request.source.name,
        target=request.target,
        operation_id=request.operation_id,
        runner=request.runner,
    )


class _Merging:
    """Prepares one merge, again after every lost race."""

    def __init__(
        self,
        objects: Objects,
        request: MergeRequest,
        rows: RowMerge,
    ) -> None:
        self._objects = objects
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
        plan = self._plan = plan_merge(self._objects, request.source, request.source_commit, state)
        if plan.outcome is not MergeOutcome.UP_TO_DATE:
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
            self._resolved = previewed.resolved
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
            self._objects, self._request.source, self._request.source_commit, state
        )
        if plan.outcome is MergeOutcome.UP_TO_DATE:
            return Prepared(changes=(), read_set=frozenset())
        pointed = [key for key in plan.keys if self._can_point(plan, key)]
        if pointed:
            # They were found before this merge had a sidecar; from now on that protects them.
            kept = replace(plan.theirs, tables={key: plan.theirs.tables[key] for key in pointed})
            require_retained(self._objects, kept, thing=self._request.source.name)
        written = [key for key in plan.keys if key not in pointed]
        changes: list[StagedChange] = []
        if plan.outcome is MergeOutcome.FAST_FORWARD:
            adopted = at_once(written, lambda key: self._adopt(plan, key))
            changes = [change for change in adopted if change is not None]
            written = [key for key, change in zip(written, adopted, strict=True) if change is None]
        policy = self._policy(plan)
        merged = self._rows.merge(plan, written, policy)
        changes += merged.changes
        self._resolved = merged.resolved
        reach("merge.staged")
        self._counts = {change.table_key: _counts(change) for change in changes}
        return Prepared(
            changes=tuple(changes),
            read_set=frozenset(plan.ours.tables),
            pointed=tuple(_pointed(plan, key) for key in pointed),
            merged=self._merged_from(),
        )

    def result(self, commit_id: str | None) -> MergeResult:
        plan = self._plan
        return MergeResult(
            outcome=MergeOutcome.MERGED if plan is None else plan.outcome,
            operation_id=self._request.operation_id,
            commit_id=commit_id,
            source_commit_id=self._request.source_commit,
            base_commit_id=None if plan is None else plan.base_commit,
            tables=self._counts,
            resolved=self._resolved,
        )

    def _can_point(self, plan: MergePlan, key: str) -> bool:
        """Whether the target may read the source's version in place."""
        ours, theirs = plan.ours.tables.get(key), plan.theirs.tables[key]
        if ours is None or self._request.target is None:
            return False
        unmoved = ours.pin == plan.before.tables[key].pin
        return unmoved and (theirs.fork is None or belongs_to(theirs, self._request.target))

    def _adopt(self, plan: MergePlan, key: str) -> StagedChange | None:
        return stage_adoption(
            self._objects,
            plan.ours.tables[key],
            self._rows.writable(plan, key),
            plan.theirs.tables[key],
            schema=self._rows.schema(key),
        )

    def _policy(self, plan: MergePlan) -> MergePolicy:
        return MergePolicy(
            resolution=self._request.resolution,
            column_level=self._request.column_level,
            source_is_newer=plan.source_is_newer,
        )

    def _merged_from(self) -> MergedFrom:
        resolution = self._request.resolution.to_json()
        return MergedFrom(
            commit_id=self._request.source_commit,
            resolution=json.dumps(resolution, sort_keys=True) if resolution else None,
        )


def _pointed(plan: MergePlan, key: str) -> PointedTable:
    theirs = plan.theirs.tables[key]
    return PointedTable(
        table_key=key,
        version=theirs.version,
        fork=theirs.fork,
        row_count=theirs.row_count,
        expected=plan.ours.tables[key].pin,
        made_at=theirs.made_at,
        checksums=None if theirs.checksums is None else theirs.checksums.digest,
    )


def _counts(change: StagedChange) -> TableCounts:
    return TableCounts(
        inserted=change.rows_inserted, updated=change.rows_updated, deleted=change.rows_deleted
    )
