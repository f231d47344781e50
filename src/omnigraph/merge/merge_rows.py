"""Merging and writing the rows: in this process, or in tasks of Spark.

Invariant: either engine gives the same rows, counts and conflicts, so the number of rows that may
differ alone decides between them. Nothing is written before every conflict is decided and, unless
the target only follows the source, every rule of the schema is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from omnigraph.commit.fork_on_write import writable_entry
from omnigraph.commit.protocol import is_surely_unpublished
from omnigraph.diff.table_diff import diff_table
from omnigraph.display.cells import counted
from omnigraph.errors import MergeConflictError, OmnigraphError, SparkUnavailableError
from omnigraph.merge.conflicts import CONFLICT_SCHEMA, MergeCounts, MergePolicy
from omnigraph.merge.merge_checks import BrokenByMerge, check_merged
from omnigraph.merge.plan import MergeOutcome, MergePlan
from omnigraph.merge.table_merge import MergedTable, TableSides, merge_table
from omnigraph.runner.session import given_spark
from omnigraph.schema.arrow import table_schema
from omnigraph.storage.staging.edits import stage_edits
from omnigraph.storage.staging.row_changes import plan_row_changes
from omnigraph.validation.constraints import EdgeCount, TypeRules, table_rules
from omnigraph.validation.input.named_types import declared_types
from omnigraph.validation.pinned import SnapshotTables

if TYPE_CHECKING:
    from pathlib import Path

    from omnigraph.merge.spark_merge import SparkMerge, TableToDecide
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.manifest.branch_identity import BranchRef
    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.snapshot import TableEntry
    from omnigraph.storage.staging.changes import StagedChange

LOCAL_ROWS_MAX: Final = 2_000_000
"""Up to so many rows that may differ, of all tables, a merge runs in this process."""

_TABLES_AT_ONCE: Final = 4
_SHOWN: Final = 20
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
        return MergedRows(changes=changes, resolved=_joined(each.conflicts for each in merged))

    def _decided(self, plan: MergePlan, keys: list[str], policy: MergePolicy) -> list[MergedTable]:
        """Decide tables in this process; unless the target only follows, check them together."""
        merged = at_once(keys, lambda key: self._table_merge(plan, key, policy))
        if plan.outcome is MergeOutcome.MERGED:
            pinned = SnapshotTables(root=self._objects.root, snapshot=plan.ours)
            self._require_no_conflicts(
                sum((each.counts for each in merged), MergeCounts()).open,
                _joined(each.open_conflicts for each in merged),
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
                sum((each.counts for each in decided), MergeCounts()).open,
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
        """The engine on Spark if it is wanted, or if there is much to do and Spark is there."""
        given = self._way.spark
        if not keys or (given is None and not self._is_large(plan, keys)):
            return None
        if self._spark is None:
            try:
                session = self._engines.enter_context(given_spark(given))
            except SparkUnavailableError:
                if given is not None:
                    raise
                return None
            from omnigraph.merge.spark_merge import SparkMerge  # needs pyspark

            self._spark = SparkMerge(session, self._objects, self._way.operation_id)
            self._engines.callback(self._clean_up, self._spark)
        return self._spark

    def _is_large(self, plan: MergePlan, keys: list[str]) -> bool:
        """Whether more rows may differ than one process should look at; reads no row."""
        snapshots = (plan.before, plan.ours, plan.theirs)
        found = [each.tables[key] for key in keys for each in snapshots if key in each.tables]
        if sum(entry.row_count for entry in found) <= LOCAL_ROWS_MAX:
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
        with suppress(OmnigraphError):
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

    def _require_no_conflicts(self, count: int, found: pa.Table, broken: BrokenByMerge) -> None:
        total = count + broken.total
        if not total:
            return
        conflicts = pa.concat_tables([found, broken.conflicts])
        raise MergeConflictError(
            f"merging {self._way.source_name} met {counted(total, 'conflict')}",
            conflicts=conflicts,
            details=_first_lines(total, conflicts),
            next_step="Resolve them with `--resolve ours|theirs|newest|FILE.json`, or fix one "
            "side.",
        )

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


def _joined(conflicts: Iterable[pa.Table]) -> pa.Table:
    return pa.concat_tables([CONFLICT_SCHEMA.empty_table(), *conflicts])


def _first_lines(total: int, conflicts: pa.Table) -> str:
    lines = []
    for row in conflicts.slice(0, _SHOWN).to_pylist():
        column = "" if row["column"] is None else f".{row['column']}"
        sides = [f"{side} {row[side]}" for side in ("base", "ours", "theirs") if row[side]]
        lines.append(
            f"  {row['type']}{column} {row['id']} [{row['kind']}]"
            + (f": {', '.join(sides)}" if sides else "")
        )
    if total > _SHOWN:
        lines.append(f"  ... and {total - _SHOWN:,} more")
    return "\n".join(lines)
