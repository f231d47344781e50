"""Merges rows on Spark: shuffles rows that may differ, then decides, checks and writes them.

    scatter    rows that may differ, and where the target's rows are, go to files by a hash of ids
    decide     one task per bucket: the changes of both sides are combined, as in one process
    check      keyed rules, on the target with what was decided in place of its old rows
    write      decided rows become fragments; fragments of the target lose old rows

Invariants:
- The rows, counts and conflicts are the same as in one process.
- The driver holds descriptions, counts, and the conflicts that are kept; never rows or ids.
- No table is written before every conflict of every table is decided and the rules of the schema
  hold for the result. So a violation is found before the merge can be published, even by a
  recovery.
- For the check a table that the merge changes is a DataFrame of its pinned rows, without those that
  are deleted or replaced, and the decided rows; nothing is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import names
from omnigraph.diff.bucketed import (
    Candidates,
    bucket_count,
    candidate_rows,
    candidate_work,
    files_by_bucket,
    scatter,
)
from omnigraph.diff.spark_diff import run_tasks
from omnigraph.diff.table_diff import TableDiff
from omnigraph.errors import OmnigraphError
from omnigraph.merge.conflicts import CONFLICT_SCHEMA, MergeCounts, MergePolicy
from omnigraph.merge.spark_tasks import (
    CONFLICTS_KEPT,
    GONE,
    KEYED,
    OPEN,
    OURS_ROLES,
    RESOLVED,
    SOURCES,
    THEIRS_ROLES,
    UPSERTS,
    Bucket,
    Decided,
    Described,
    Lost,
    PinnedIds,
    TableWork,
    Written,
    bad_rows_of,
    decide,
    minimum_of,
    removed,
    scatter_pinned,
    shrink_group,
    write_bucket,
)
from omnigraph.merge.table_merge import BrokenByMerge
from omnigraph.merge.three_way import TableToMerge
from omnigraph.names import ID_COLUMN
from omnigraph.runner.job_failures import job_errors
from omnigraph.runner.protocol import Task
from omnigraph.runner.scan import SparkTables
from omnigraph.runner.session import without_noise
from omnigraph.runner.shuffle import StagedFile, StoredScratch, read_files
from omnigraph.runner.types import carried_schema, spark_schema, to_spark
from omnigraph.schema.arrow import has_blob
from omnigraph.storage.lance.tables import find_entry, grouped, plan_scan, scan_fragments
from omnigraph.storage.staging import bulk
from omnigraph.validation.constraints import EndpointExists, TypeRules
from omnigraph.validation.integrity_job import BrokenRule, broken_rules_on_spark
from omnigraph.validation.violations import BadRows, Reason, report_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.snapshot import Snapshot, TableEntry
    from omnigraph.storage.staging.changes import StagedChange


_EXAMPLES_MAX: Final = 5
_ADDRESS: Final = names.LANCE_COLUMNS[1]
_Read = Callable[[StoredScratch, int], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Altered:
    """The effect of a merge on one table, in files: addresses by group, and decided rows."""

    groups: tuple[tuple[int, ...], ...] = field(repr=False)
    gone: Mapping[int, tuple[str, ...]] = field(repr=False)
    keyed: tuple[tuple[str, ...], ...] = field(repr=False)


class WouldBeGraph(SparkTables):
    """A snapshot with the changed tables; only columns that rules read can be read."""

    def __init__(
        self,
        spark: SparkSession,
        place: StoredScratch,
        snapshot: Snapshot,
        altered: Mapping[str, Altered],
    ) -> None:
        super().__init__(spark, place.root, snapshot)
        self._place = place
        self._altered = altered

    def table(
        self, table_key: str, *, columns: Sequence[str] | None = None, where: str | None = None
    ) -> DataFrame:
        altered = self._altered.get(table_key)
        if altered is None:
            return super().table(table_key, columns=columns, where=where)
        assert columns is not None
        assert where is None
        entry = find_entry(self.root, self.snapshot, table_key)
        stored = plan_scan(self.root, entry, columns=columns, where=None).schema.remove_metadata()
        count = len(altered.groups) + len(altered.keyed)
        return self._frame(count, _altered_rows(entry, altered, stored), stored)

    def sources(self, files: Sequence[str]) -> DataFrame:
        """Nodes that lose an edge, from the files that name them."""

        def rows(place: StoredScratch, number: int) -> Iterator[pa.RecordBatch]:
            return read_files(place, [files[number]])

        stored = pa.schema([pa.field(names.SOURCE_COLUMN, pa.string())])
        return self._frame(len(files), rows, stored).distinct()

    def _frame(self, count: int, read: _Read, stored: pa.Schema) -> DataFrame:
        place, carried = self._place, carried_schema(stored)

        def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    for rows in read(place, number):
                        yield to_spark(rows, carried)

        with without_noise():
            numbers = self.spark.range(0, count, 1, max(1, count))
            return numbers.mapInArrow(task, spark_schema(stored))


def _altered_rows(entry: TableEntry, altered: Altered, stored: pa.Schema) -> _Read:
    """Remaining pinned rows, by group of fragments; then decided rows, by bucket."""

    def rows(place: StoredScratch, number: int) -> Iterator[pa.RecordBatch]:
        if number >= len(altered.groups):
            for batch in read_files(place, altered.keyed[number - len(altered.groups)]):
                yield batch.select(stored.names)
            return
        gone_addresses = removed(place, altered.gone.get(number, ()))
        columns = [*stored.names, _ADDRESS]
        group = altered.groups[number]
        for batch in scan_fragments(place.root, entry, group, columns=columns, where=None):
            stays = ~np.isin(batch.column(_ADDRESS).to_numpy(), gone_addresses)
            yield batch.select(stored.names).filter(pa.array(stays))

    return rows


def broken_by_merge(
    graph: WouldBeGraph,
    rules: Mapping[str, TypeRules],
    touched: frozenset[str],
    sources: Mapping[str, Sequence[StagedFile]],
) -> Iterator[BrokenRule]:
    """Keyed rules that the result violates, of changed tables and of edges to changed nodes."""
    checked_rules = {
        key: type_rules
        for key, type_rules in rules.items()
        if key in touched or _nodes_of(type_rules) & touched
    }
    nodes = {node for type_rules in checked_rules.values() for node in _nodes_of(type_rules)}
    tables = {
        key: entry
        for key, entry in graph.snapshot.tables.items()
        if key in checked_rules or key in nodes
    }
    full_snapshot = graph.snapshot
    graph.snapshot = replace(full_snapshot, tables=tables)
    try:
        yield from broken_rules_on_spark(graph, checked_rules)
        for key, files in sources.items():
            yield from _abandoned(graph, rules[key], [file.path for file in files])
    finally:
        graph.snapshot = full_snapshot


def _nodes_of(rules: TypeRules) -> frozenset[str]:
    ends = [rule for rule in rules.keyed_rules if isinstance(rule, EndpointExists)]
    return frozenset(rule.node_key for rule in ends)


def _abandoned(graph: WouldBeGraph, rules: TypeRules, files: Sequence[str]) -> Iterator[BrokenRule]:
    """Remaining nodes that lose their last edge, although they need one."""
    rule = minimum_of(rules)
    if rule is None or not files:
        return
    source = names.SOURCE_COLUMN
    edges = graph.table(rules.table_key, columns=(source,))
    nodes = graph.table(rule.source_key, columns=(names.ID_COLUMN,))
    nodes = nodes.withColumnRenamed(names.ID_COLUMN, source)
    left = graph.sources(files).join(edges, source, "left_anti").join(nodes, source, "left_semi")
    count = left.count()
    if count:
        first = left.orderBy(source).limit(_EXAMPLES_MAX).collect()
        yield BrokenRule(
            table_key=rules.table_key,
            reason=Reason.TOO_FEW_EDGES,
            count=count,
            examples=tuple(str(row[0]) for row in first),
        )


_PINNED_ROWS_PER_TASK: Final = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TableToDecide:
    """A table that the source changed; `ours` is None if the target equals the base.

    `rules` are None if the result cannot break one; `written` says whether the table is written,
    or its pin alone changes.
    """

    pinned: TableEntry
    theirs: TableDiff = field(repr=False)
    ours: TableDiff | None = field(repr=False)
    schema: pa.Schema = field(repr=False)
    rules: TypeRules | None = field(repr=False)
    written: bool

    @property
    def rows(self) -> int:
        """Rows that may differ, according to metadata."""
        return candidate_rows(self.theirs) + (candidate_rows(self.ours) if self.ours else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedTable:
    """The effect of a merge on one table, in files that tasks wrote."""

    work: TableWork
    files: tuple[StagedFile, ...] = field(repr=False)
    counts: MergeCounts
    deleted: int
    broken: tuple[BadRows, ...] = field(repr=False)

    @property
    def table_key(self) -> str:
        return self.work.table_key

    @property
    def alters(self) -> bool:
        """Whether the target's table has to change."""
        return any(file.role in (UPSERTS, GONE) for file in self.files)

    def paths(self, role: str) -> Mapping[int, tuple[str, ...]]:
        """Files of one role by bucket; those with addresses by group of fragments."""
        paths_by_bucket: dict[int, tuple[str, ...]] = {}
        for file in self.files:
            if file.role == role:
                paths_by_bucket[file.bucket] = (*paths_by_bucket.get(file.bucket, ()), file.path)
        return dict(sorted(paths_by_bucket.items()))


class SparkMerge:
    """The tables of one merge; every attempt decides again and writes at most once."""

    def __init__(self, spark: SparkSession, objects: Objects, operation_id: str) -> None:
        self._spark = spark
        self._objects = objects
        self._place = StoredScratch(root=objects.root, operation_id=operation_id)
        self._staged: list[tuple[TableEntry, bulk.StagedFragment]] = []

    def decide(
        self, tables: Iterable[TableToDecide], policy: MergePolicy
    ) -> tuple[DecidedTable, ...]:
        """Decide every row that the source changed; writes to no table."""
        work = [self._plan(number, table, policy) for number, table in enumerate(tables)]
        self._place.open()
        with self._job():
            files = self._scattered(work)
            return tuple(self._decided(work, files_by_bucket(files)))

    def conflicts(self, tables: Iterable[DecidedTable], *, is_open: bool) -> pa.Table:
        """The first open or decided conflicts of every table, in the order of ids."""
        role = OPEN if is_open else RESOLVED
        first_conflicts = [self._first_conflicts(table.paths(role).values()) for table in tables]
        return pa.concat_tables([CONFLICT_SCHEMA.empty_table(), *first_conflicts])

    def broken(
        self,
        tables: Sequence[DecidedTable],
        snapshot: Snapshot,
        rules: Mapping[str, TypeRules],
        touched: frozenset[str],
    ) -> BrokenByMerge:
        """Rules that the result would violate; `snapshot` has tables whose pin alone changes."""
        report = report_of(finding for table in tables for finding in table.broken)
        rows = [
            _broken_row(
                violation.table_key,
                violation.id,
                violation.columns,
                violation.message,
                violation.reason.value,
            )
            for violation in report.kept
        ]
        graph = WouldBeGraph(
            self._spark,
            self._place,
            snapshot,
            {table.table_key: _altered(table) for table in tables if table.alters},
        )
        sources = {
            table.table_key: [file for file in table.files if file.role == SOURCES]
            for table in tables
        }
        with self._job():
            broken_rules = list(broken_by_merge(graph, rules, touched, sources))
        rows += [row for broken_rule in broken_rules for row in _rows_of(broken_rule)]
        return BrokenByMerge(
            conflicts=pa.Table.from_pylist(rows, schema=CONFLICT_SCHEMA),
            total=report.total + sum(broken_rule.count for broken_rule in broken_rules),
        )

    def stage(
        self, tables: Iterable[DecidedTable], writable: Callable[[str], TableEntry]
    ) -> list[StagedChange]:
        """Write what was decided, one change per table; no HEAD moves."""
        altered = [table for table in tables if table.alters]
        entries = {table.table_key: writable(table.table_key) for table in altered}
        writes = [(t, paths) for t in altered for paths in t.paths(UPSERTS).values()]
        losses = [(t, paths) for t in altered for paths in t.paths(GONE).values()]
        place = self._place
        with self._job():
            written_buckets = run_tasks(
                self._spark,
                [(entries[table.table_key], paths) for table, paths in writes],
                lambda work: write_bucket(place, *work),
                Written,
            )
            for (table, _), bucket in zip(writes, written_buckets, strict=True):
                fragments = _fragments([*bucket.inserted, *bucket.replacing])
                self._staged += [(entries[table.table_key], fragment) for fragment in fragments]
            lost_groups = run_tasks(
                self._spark,
                [(entries[table.table_key], paths) for table, paths in losses],
                lambda work: shrink_group(place, *work),
                list[Lost],
            )
        changes = []
        for table in altered:
            table_buckets = [
                bucket for (t, _), bucket in zip(writes, written_buckets, strict=True) if t is table
            ]
            table_losses = [
                group for (t, _), group in zip(losses, lost_groups, strict=True) if t is table
            ]
            changes.append(
                self._gathered(entries[table.table_key], table, table_buckets, table_losses)
            )
        return changes

    def clean_up(self, *, unpublished: bool) -> None:
        """Remove temporary files; of written rows only those that will never be published."""
        with suppress(OmnigraphError):
            self._place.close()
            for entry, fragment in self._staged if unpublished else ():
                bulk.discard(self._objects, entry, [fragment])

    def _gathered(
        self,
        entry: TableEntry,
        table: DecidedTable,
        written_buckets: Sequence[Written],
        lost_groups: Sequence[list[Lost]],
    ) -> StagedChange:
        inserted = _fragments(
            fragment for bucket in written_buckets for fragment in bucket.inserted
        )
        if not lost_groups:
            return bulk.gather_append(self._objects, entry, inserted)
        return bulk.gather_merge(
            self._objects,
            entry,
            inserted=inserted,
            replacing=_fragments(
                fragment for bucket in written_buckets for fragment in bucket.replacing
            ),
            shrunk=[
                bulk.Shrunk(
                    fragment_id=fragment.fragment_id,
                    description=fragment.description,
                    rows_lost=fragment.rows,
                )
                for group in lost_groups
                for fragment in group
            ],
            rows_deleted=table.deleted,
        )

    def _plan(self, number: int, table: TableToDecide, policy: MergePolicy) -> TableWork:
        scan = plan_scan(self._place.root, table.pinned, columns=[ID_COLUMN], where=None)
        return TableWork(
            number=number,
            pinned=table.pinned,
            theirs=table.theirs,
            ours=table.ours,
            merge=TableToMerge(
                table_key=table.pinned.table_key, schema=table.schema, policy=policy
            ),
            rules=table.rules,
            groups=grouped(scan.fragments, rows_max=_PINNED_ROWS_PER_TASK),
            buckets=bucket_count(table.rows, has_blobs=any(map(has_blob, table.schema))),
            written=table.written,
        )

    def _scattered(self, tables: Iterable[TableWork]) -> Iterator[StagedFile]:
        work: list[Candidates | PinnedIds] = []
        for table in tables:
            for diff, roles in ((table.theirs, THEIRS_ROLES), (table.ours, OURS_ROLES)):
                if diff is not None:
                    work += candidate_work(
                        diff, table=table.number, roles=roles, buckets=table.buckets
                    )
            if table.knows_rows:
                work += [
                    PinnedIds(table=table, group=number) for number in range(len(table.groups))
                ]
        place = self._place

        def read(piece: Candidates | PinnedIds) -> list[StagedFile]:
            if isinstance(piece, PinnedIds):
                return scatter_pinned(place, piece)
            return scatter(place, piece, Task(0))

        for files in run_tasks(self._spark, work, read, list[StagedFile]):
            yield from files

    def _decided(
        self,
        tables: Sequence[TableWork],
        files: Mapping[tuple[int, int], list[StagedFile]],
    ) -> Iterator[DecidedTable]:
        buckets = [
            Bucket(table=tables[table], number=number, files=tuple(bucket_files))
            for (table, number), bucket_files in sorted(files.items())
            if any(file.role in THEIRS_ROLES for file in bucket_files)
        ]
        place = self._place
        decisions = run_tasks(self._spark, buckets, lambda bucket: decide(place, bucket), Decided)
        for table in tables:
            table_decisions = [
                decision
                for bucket, decision in zip(buckets, decisions, strict=True)
                if bucket.table is table
            ]
            yield DecidedTable(
                work=table,
                files=tuple(file for decision in table_decisions for file in decision.files),
                counts=sum(
                    (MergeCounts(**decision.counts) for decision in table_decisions), MergeCounts()
                ),
                deleted=sum(decision.deleted for decision in table_decisions),
                broken=tuple(
                    bad_rows_of(table.table_key, broken_rows)
                    for decision in table_decisions
                    for broken_rows in decision.broken
                ),
            )

    def _first_conflicts(self, buckets: Iterable[tuple[str, ...]]) -> pa.Table:
        """Every bucket has its first conflicts in order, so the first of all are among them."""
        kept_conflicts = CONFLICT_SCHEMA.empty_table()
        for paths in buckets:
            conflicts = pa.Table.from_batches(read_files(self._place, paths), CONFLICT_SCHEMA)
            both = pa.concat_tables([kept_conflicts, conflicts])
            order = pc.sort_indices(both.column(ID_COLUMN))
            kept_conflicts = both.take(order.slice(0, CONFLICTS_KEPT)).combine_chunks()
        return kept_conflicts

    @contextmanager
    def _job(self) -> Iterator[None]:
        try:
            with without_noise(), job_errors():
                yield
        except KeyboardInterrupt:
            with suppress(Exception):
                self._spark.interruptAll()
            raise


def _altered(table: DecidedTable) -> Altered:
    return Altered(
        groups=table.work.groups,
        gone=table.paths(GONE),
        keyed=tuple(table.paths(KEYED).values()),
    )


def _fragments(described_fragments: Iterable[Described]) -> list[bulk.StagedFragment]:
    return [
        bulk.StagedFragment(description=fragment.description, rows=fragment.rows)
        for fragment in described_fragments
    ]


def _rows_of(broken: BrokenRule) -> Iterator[Mapping[str, str | None]]:
    """A violated rule as conflicts, one for each of its examples."""
    more = broken.count - len(broken.examples)
    for number, example in enumerate(broken.examples):
        others = f", and {more} more" if more > 0 and not number else ""
        message = f"found {broken.reason.value} at {example}{others}"
        yield _broken_row(broken.table_key, example, (), message, broken.reason.value)


def _broken_row(
    table_key: str, name: str | None, columns: Sequence[str], message: str, kind: str
) -> Mapping[str, str | None]:
    return {
        "type": table_key,
        "id": name or "",
        "column": ", ".join(columns) or None,
        "base": None,
        "ours": None,
        "theirs": message,
        "kind": kind,
        "resolution": None,
    }
