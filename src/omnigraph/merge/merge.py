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
- Rows are decided and written in this process or in tasks of Spark, with the same rows, counts and
  conflicts. The number of rows that may differ alone decides between the engines.
- Nothing is written before every conflict is decided and, unless the target only follows the
  source, every rule of the schema is kept.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
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
from omnigraph.merge.plan import MergeOutcome, MergePlan, plan_merge
from omnigraph.merge.table_merge import (
    BrokenByMerge,
    MergedTable,
    TableSides,
    check_merged,
    merge_table,
)
from omnigraph.runner.session import given_spark, is_at_hand
from omnigraph.schema.arrow import table_schema
from omnigraph.schema.model import model_hash
from omnigraph.storage.manifest.swap import read_manifest
from omnigraph.storage.refs.branches import is_living
from omnigraph.storage.refs.kept import require_retained
from omnigraph.storage.staging.edits import stage_adoption, stage_edits
from omnigraph.storage.staging.row_changes import plan_row_changes
from omnigraph.validation.constraints import EdgeCount, TypeRules, table_rules
from omnigraph.validation.input.intake import declared_types
from omnigraph.validation.lookups import PinnedReads, SnapshotTables, Within

if TYPE_CHECKING:
    from omnigraph.clock import Clock
    from omnigraph.merge.spark_merge import SparkMerge, TableToDecide
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.manifest.state import BranchRef, ManifestState
    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.refs.references import Resolved
    from omnigraph.storage.snapshot import TableEntry
    from omnigraph.storage.staging.changes import StagedChange


LOCAL_ROWS_MAX: Final = 2_000_000
"""Up to so many rows that may differ, of all tables, a merge runs in this process."""

_TABLES_AT_ONCE: Final = 4
_SHOWN: Final = 20
_EDGE: Final = names.edge_table_key("")
_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeWay:
    """From where to where rows are merged, under which operation, and on which Spark, if any."""

    source_name: str
    target: BranchRef | None
    operation_id: str
    spark: object | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedRows:
    """Staged changes, and the conflicts that the resolution decided."""

    changes: list[StagedChange]
    resolved: pa.Table = field(repr=False)


class RowMerge:
    """Merges the rows of one merge, again after every lost race."""

    def __init__(
        self,
        objects: Objects,
        catalog: Catalog,
        way: MergeWay,
        *,
        scratch: Path,
        engines: ExitStack,
    ) -> None:
        self._objects = objects
        self._catalog = catalog
        self._way = way
        self._scratch = scratch
        self._engines = engines
        self._spark: SparkMerge | None = None
        self._attempts = 0

    def merge(self, plan: MergePlan, written: list[str], policy: MergePolicy) -> MergedRows:
        """Decide all tables that the source changed, and stage those that are `written`."""
        self._attempts += 1
        spark = self._spark_for(plan, _checked_keys(plan) or written)
        if spark is None:
            return self._in_process(plan, written, policy)
        return self._on_spark(spark, plan, written, policy)

    def preview(self, plan: MergePlan, policy: MergePolicy) -> tuple[MergedTable, ...]:
        """What merging would do to every table, decided in this process; nothing is staged."""
        self._attempts += 1
        return tuple(self._decided(plan, list(plan.keys), policy))

    def writable(self, plan: MergePlan, key: str) -> TableEntry:
        return writable_entry(
            self._objects.root,
            plan.ours.tables[key],
            branch=self._way.target,
            operation_id=self._way.operation_id,
        )

    def _in_process(self, plan: MergePlan, written: list[str], policy: MergePolicy) -> MergedRows:
        merged = self._decided(plan, _checked_keys(plan) or written, policy)
        changes = at_once(
            [table for table in merged if table.alters and table.table_key in written],
            lambda table: self._staged(plan, table),
        )
        return MergedRows(changes=changes, resolved=_join(table.conflicts for table in merged))

    def _decided(self, plan: MergePlan, keys: list[str], policy: MergePolicy) -> list[MergedTable]:
        """Decide tables in this process; unless the target only follows, check them together."""
        merged = at_once(keys, lambda key: self._table_merge(plan, key, policy))
        if plan.outcome is MergeOutcome.MERGED:
            pinned = SnapshotTables(root=self._objects.root, snapshot=plan.ours)
            self._require_no_conflicts(
                plan,
                sum((table.counts for table in merged), MergeCounts()).open,
                _join(table.open_conflicts for table in merged),
                check_merged(merged, self._catalog, pinned),
            )
        return merged

    def _on_spark(
        self, spark: SparkMerge, plan: MergePlan, written: list[str], policy: MergePolicy
    ) -> MergedRows:
        rules = table_rules(self._catalog)
        checked = plan.outcome is MergeOutcome.MERGED
        # Of tables that are only pointed elsewhere, rules may ask which edges were lost.
        keys = [
            key for key in plan.keys if key in written or (checked and _counts_edges(rules[key]))
        ]
        decided = spark.decide(
            [self._to_decide(plan, key, rules, written=key in written) for key in keys], policy
        )
        if checked:
            pointed = {key: plan.theirs.tables[key] for key in plan.keys if key not in written}
            would_be = replace(plan.ours, tables={**plan.ours.tables, **pointed})
            self._require_no_conflicts(
                plan,
                sum((table.counts for table in decided), MergeCounts()).open,
                spark.conflicts(decided, is_open=True),
                spark.broken(decided, would_be, rules, frozenset(plan.keys)),
            )
        return MergedRows(
            changes=spark.stage(decided, lambda key: self.writable(plan, key)),
            resolved=spark.conflicts(decided, is_open=False),
        )

    def _to_decide(
        self, plan: MergePlan, key: str, rules: Mapping[str, TypeRules], *, written: bool
    ) -> TableToDecide:
        from omnigraph.merge.spark_merge import TableToDecide  # needs pyspark

        root, sides = self._objects.root, self._sides(plan, key)
        return TableToDecide(
            pinned=plan.ours.tables[key],
            theirs=diff_table(root, sides.before, sides.theirs),
            ours=None if _is_unmoved(sides) else diff_table(root, sides.before, sides.ours),
            schema=self.schema(key),
            rules=rules[key] if plan.outcome is MergeOutcome.MERGED else None,
            written=written,
        )

    def _spark_for(self, plan: MergePlan, keys: list[str]) -> SparkMerge | None:
        """The engine on Spark if it is wanted, or if there is much to do and Spark is at hand."""
        caller_spark = self._way.spark
        if not keys:
            return None
        if caller_spark is None and not (self._is_large(plan, keys) and is_at_hand()):
            return None
        if self._spark is None:
            session = self._engines.enter_context(given_spark(caller_spark))
            from omnigraph.merge.spark_merge import SparkMerge  # needs pyspark

            self._spark = SparkMerge(session, self._objects, self._way.operation_id)
            self._engines.callback(self._clean_up, self._spark)
        return self._spark

    def _is_large(self, plan: MergePlan, keys: list[str]) -> bool:
        """Whether more rows may differ than one process should look at; reads no row."""
        snapshots = (plan.before, plan.ours, plan.theirs)
        entries = [
            snapshot.tables[key] for key in keys for snapshot in snapshots if key in snapshot.tables
        ]
        if sum(entry.row_count for entry in entries) <= LOCAL_ROWS_MAX:
            return False
        rows = 0
        for key in keys:
            sides = self._sides(plan, key)
            for after in (sides.theirs, *(() if _is_unmoved(sides) else (sides.ours,))):
                planned = plan_row_changes(self._objects.root, sides.before, after)
                rows += planned.gone_rows + planned.new_rows
        return rows > LOCAL_ROWS_MAX

    def _clean_up(self, spark: SparkMerge) -> None:
        way, unpublished = self._way, False
        with suppress(errors.OmnigraphError):
            unpublished = is_surely_unpublished(self._objects, way.operation_id, way.target)
        spark.clean_up(unpublished=unpublished)

    def _table_merge(self, plan: MergePlan, key: str, policy: MergePolicy) -> MergedTable:
        return merge_table(
            self._objects.root,
            self._sides(plan, key),
            schema=self.schema(key),
            policy=policy,
            scratch=self._scratch / f"{self._attempts}-{plan.keys.index(key)}",
        )

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

    def _staged(self, plan: MergePlan, merged: MergedTable) -> StagedChange:
        return stage_edits(
            self._objects,
            self.writable(plan, merged.table_key),
            merged.upserts.batches(),
            upserted=merged.upserted,
            deleted=merged.deleted,
        )

    def schema(self, key: str) -> pa.Schema:
        return table_schema(declared_types(self._catalog)[key])

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


def _counts_edges(rules: TypeRules) -> bool:
    return any(isinstance(rule, EdgeCount) and rule.minimum for rule in rules.keyed_rules)


def _is_unmoved(sides: TableSides) -> bool:
    """Whether the target has what the base had."""
    before, ours = sides.before, sides.ours
    return ours == before or (ours is not None and before is not None and ours.pin == before.pin)


def _join(conflicts: Iterable[pa.Table]) -> pa.Table:
    return pa.concat_tables([CONFLICT_SCHEMA.empty_table(), *conflicts])


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
        within = Within(column=names.ID_COLUMN, values=ids.combine_chunks())
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
    spark: object | None = None
    """A session or a `SparkTarget` to use; with None the number of rows decides."""

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
    with (
        tempfile.TemporaryDirectory(prefix="omnigraph-merge-") as scratch,
        ExitStack() as engines,
    ):
        rows = RowMerge(objects, catalog, _way(request), scratch=Path(scratch), engines=engines)
        merging = _Merging(objects, request, rows)
        author = Author(
            operation_id=request.operation_id, actor=request.actor, branch=request.target
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
    if request.spark is not None:
        raise errors.InvalidInputError(
            "a dry run of a merge runs in this process, and Spark is given",
            next_step="Leave out `spark`, or the dry run.",
        )
    with (
        tempfile.TemporaryDirectory(prefix="omnigraph-merge-") as scratch,
        ExitStack() as engines,
    ):
        rows = RowMerge(objects, catalog, _way(request), scratch=Path(scratch), engines=engines)
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
        spark=request.spark,
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
            merged = self._rows.preview(plan, self._policy(plan))
            self._counts = {
                table.table_key: TableCounts(
                    inserted=table.counts.inserted,
                    updated=table.counts.updated,
                    deleted=table.counts.deleted,
                )
                for table in merged
                if table.alters
            }
            self._resolved = pa.concat_tables(
                [self._resolved, *(table.conflicts for table in merged)]
            )
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
