"""Merges the rows of all tables of one merge: decides them, checks the rules, and stages them.

Invariants:
- Nothing is written before every conflict is decided and, unless the target only follows the
  source, every rule of the schema is kept.
- Rows are decided and written by tasks of a runner, which has no effect on the result.
- If the merge ends with an error, rows that were written and cannot be published any more are
  removed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake import errors, names
from omnigraph_lake.commit.fork_on_write import writable_entry
from omnigraph_lake.commit.protocol import is_surely_unpublished
from omnigraph_lake.diff.table_diff import Conversion, diff_table
from omnigraph_lake.display.cells import counted
from omnigraph_lake.load.write import TableCounts
from omnigraph_lake.merge.conflicts import CONFLICT_SCHEMA, MergeCounts, MergePolicy, Side
from omnigraph_lake.merge.converted_rows import check_converted
from omnigraph_lake.merge.decide import (
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
from omnigraph_lake.merge.lifted_tables import LiftedTables
from omnigraph_lake.merge.plan import MergeOutcome, MergePlan
from omnigraph_lake.merge.stage import StagedRows, TableToWrite, stage_columns
from omnigraph_lake.merge.three_way import TableToMerge
from omnigraph_lake.runner.shuffle import read_files
from omnigraph_lake.schema.arrow import table_schema
from omnigraph_lake.schema.ends import polymorphic_ends
from omnigraph_lake.storage.lance.tables import adopt_or_create_table
from omnigraph_lake.storage.lance.value_lookups import OneOf
from omnigraph_lake.validation.constraints import table_rules
from omnigraph_lake.validation.input.intake import declared_types
from omnigraph_lake.validation.lookups import PinnedReads, PinnedTables, SnapshotTables

if TYPE_CHECKING:
    from omnigraph_lake.diff.table_diff import TableDiff
    from omnigraph_lake.evolution.lifting import TableLift
    from omnigraph_lake.merge.schemas import TableSides
    from omnigraph_lake.runner.protocol import Runner
    from omnigraph_lake.runner.shuffle import Scratch
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.manifest.state import BranchRef
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import TableEntry
    from omnigraph_lake.storage.staging.changes import StagedChange

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
            counts={table.table_key: row_counts(table) for table in altered},
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
                theirs=_diff_since_base(root, sides, Side.THEIRS),
                ours=None if sides.unmoved else _diff_since_base(root, sides, Side.OURS),
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
                check_decided(
                    scratch, decided, rules, pinned, added_twice=plan.node_types_added_twice
                ),
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
            details=_first_lines(total, conflicts, self._sides_of(plan)),
            next_step="Resolve them with `--resolve ours|theirs|newest|FILE.json` (`resolve=` in "
            "Python), or fix one side.",
        )

    def _sides_of(self, plan: MergePlan) -> list[_StoredSide]:
        root = self._objects.root
        theirs = {key: sides.theirs for key, sides in plan.tables.items()}
        ours = {key: sides.ours for key, sides in plan.tables.items()}
        return [
            _StoredSide(tables=SnapshotTables(root=root, snapshot=snapshot), entries=entries)
            for snapshot, entries in ((plan.theirs, theirs), (plan.ours, ours))
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredSide:
    """The tables of one side, and its entries by their keys in the merged schema."""

    tables: SnapshotTables
    entries: Mapping[str, TableEntry | None] = field(repr=False)


def _diff_since_base(root: Root, sides: TableSides, side: Side) -> TableDiff:
    match side:
        case Side.OURS:
            after, lift, lacking = sides.ours, sides.ours_lift, sides.ours_lacks
        case Side.THEIRS:
            after, lift, lacking = sides.theirs, sides.theirs_lift, sides.theirs_lacks
        case _:
            assert_never(side)
    conversion = _conversion(sides.before_lift, lift, lacking)
    return diff_table(root, sides.before, after, conversion=conversion)


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


def row_counts(table: DecidedTable) -> TableCounts:
    counts = table.counts
    return TableCounts(inserted=counts.inserted, updated=counts.updated, deleted=counts.deleted)


def any_rows(counts: TableCounts) -> bool:
    return bool(counts.inserted or counts.updated or counts.deleted)


def _checked_keys(plan: MergePlan) -> list[str]:
    """Tables that rules look at, also those that are only pointed elsewhere: they bring rows."""
    return list(plan.keys) if plan.outcome is MergeOutcome.MERGED else []


def at_once(tables: Iterable[_Given], work: Callable[[_Given], _Made]) -> list[_Made]:
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        return list(pool.map(work, tables))


def _first_lines(total: int, conflicts: pa.Table, stored_sides: Sequence[_StoredSide]) -> str:
    lines = []
    shown = conflicts.slice(0, _SHOWN)
    ends = _edge_ends(shown, stored_sides)
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


def _edge_ends(conflicts: pa.Table, sides: Iterable[_StoredSide]) -> dict[tuple[str, str], str]:
    """Edges by their ends, as `ann -> Acme`; a later side has the last word."""
    ends: dict[tuple[str, str], str] = {}
    columns = [names.ID_COLUMN, names.SOURCE_COLUMN, names.TARGET_COLUMN]
    keys = {key for key in conflicts.column("type").to_pylist() if key.startswith(_EDGE)}
    for key, side in itertools.product(sorted(keys), sides):
        entry = side.entries.get(key)
        if entry is None:
            continue  # the other side added the type
        ids = conflicts.filter(pc.equal(conflicts.column("type"), key)).column("id")
        within = OneOf(column=names.ID_COLUMN, values=ids.combine_chunks())
        edges = PinnedReads(side.tables).rows(entry.table_key, columns, within=within)
        for batch in () if edges is None else edges:
            ends |= {(key, row["id"]): f"{row['src']} -> {row['dst']}" for row in batch.to_pylist()}
    return ends
