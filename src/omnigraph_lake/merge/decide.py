"""Decides every row that the source of a merge changed, bucket by bucket on a runner.

    scatter   rows that may differ go to files by a hash of their ids
    decide    one task per bucket: the changes of both sides are combined
    check     rules of the schema, on what was decided and the target's pinned rows

A table with few candidates is one bucket, which is read where it is stored.

Invariants:
- Rows, counts, conflicts and broken rules do not depend on the runner or the number of buckets.
- A task holds batches, never the rows of its bucket: its results are in files. This process holds
  counts, the conflicts that are kept, and for the check the columns that keyed rules read.
- Nothing is written to a table, so a merge with conflicts writes to none.
- The check looks at the decisions of all tables together. A deleted node does not cascade: an edge
  that the other side added to it is reported, not lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake import names
from omnigraph_lake.diff.bucketed import (
    BucketDiff,
    Candidates,
    Roles,
    bucket_count,
    candidate_rows,
    candidate_work,
    scatter,
)
from omnigraph_lake.diff.table_diff import HELD_BYTES_MAX, HELD_ROWS_MAX
from omnigraph_lake.merge.conflicts import CONFLICT_SCHEMA, MergeCounts
from omnigraph_lake.merge.three_way import MergeStep, TableToMerge, merge_changes
from omnigraph_lake.runner.protocol import Runner, Stage, Task, require_answers
from omnigraph_lake.runner.shuffle import (
    BucketWriter,
    Scratch,
    StagedFile,
    files_by_bucket,
    read_files,
)
from omnigraph_lake.schema.arrow import has_blob
from omnigraph_lake.storage.staging.row_changes import Sought
from omnigraph_lake.validation.constraints import EndpointExists, TypeRules, UniqueTuple, WriteMode
from omnigraph_lake.validation.keyed_checks import check_keyed
from omnigraph_lake.validation.row_checks import check_rows
from omnigraph_lake.validation.violations import (
    KEPT_MAX,
    BadRows,
    Reason,
    Violation,
    report_of,
    shown_scalar,
)
from omnigraph_lake.validation.write_effects import ProposedWrite

if TYPE_CHECKING:
    from omnigraph_lake.diff.table_diff import TableDiff
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.validation.lookups import PinnedTables

UPSERTS: Final = "upserts"
"""The role of files with whole rows that the target's table gets."""
IDS: Final = "ids"
"""The role of files with the ids of these rows, and of rows that are deleted."""
OPEN: Final = "open"
RESOLVED: Final = "resolved"

CONFLICTS_KEPT: Final = 10_000
"""Open and resolved conflicts of one table that are kept, each."""

_KEYED: Final = "keyed"
_THEIRS: Final[Roles] = ("theirs-gone", "theirs-new")
_OURS: Final[Roles] = ("ours-gone", "ours-new")
IDS_SCHEMA: Final = pa.schema([(names.ID_COLUMN, pa.string()), ("deleted", pa.bool_())])


@dataclass(frozen=True, slots=True, kw_only=True)
class TableToDecide:
    """A table that the source changed; `ours` is None if the target equals the base.

    `rules` are None if the result cannot break one. A table that is not `written` is decided only
    to check and to count.
    """

    number: int
    theirs: TableDiff = field(repr=False)
    ours: TableDiff | None = field(repr=False)
    merge: TableToMerge = field(repr=False)
    rules: TypeRules | None = field(repr=False)
    written: bool
    buckets: int

    @classmethod
    def plan(
        cls,
        number: int,
        *,
        theirs: TableDiff,
        ours: TableDiff | None,
        merge: TableToMerge,
        rules: TypeRules | None,
        written: bool,
    ) -> TableToDecide:
        """Choose the number of buckets."""
        rows = candidate_rows(theirs) + (0 if ours is None else candidate_rows(ours))
        return cls(
            number=number,
            theirs=theirs,
            ours=ours,
            merge=merge,
            rules=rules,
            written=written,
            buckets=bucket_count(rows, has_blobs=any(map(has_blob, merge.schema))),
        )

    @property
    def table_key(self) -> str:
        return self.merge.table_key

    @property
    def root(self) -> Root:
        return self.theirs.root

    @property
    def knows_rows(self) -> bool:
        """Whether rows of the target may be replaced or deleted; otherwise all rows are new."""
        return bool(self.theirs.plan.gone) or self.ours is not None

    @property
    def keyed_columns(self) -> list[str]:
        """The columns that keyed rules read."""
        columns = set(names.SYSTEM_COLUMNS)
        for rule in self.rules.keyed_rules if self.rules else ():
            if isinstance(rule, UniqueTuple | EndpointExists):
                columns |= set(rule.read_columns)
        return [name for name in self.merge.schema.names if name in columns]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bucket:
    """One bucket of a table; `files` are None if its rows are read where they are stored."""

    table: TableToDecide
    number: int
    files: tuple[StagedFile, ...] | None = field(repr=False)

    def changes(
        self, scratch: Scratch
    ) -> tuple[Iterable[pa.RecordBatch], Iterable[pa.RecordBatch]]:
        """The changes of the source within the bucket, and those of the target that matter.

        Few changes of the source are read first. Then only those rows of the target are compared
        whose ids the source changed, too.
        """
        theirs, ours = (
            diff
            if diff is None or self.files is None
            else BucketDiff.of(diff, scratch, self.files, roles)
            for diff, roles in ((self.table.theirs, _THEIRS), (self.table.ours, _OURS))
        )
        assert theirs is not None
        if ours is None:
            return theirs.reader(), ()
        needs_all = self.table.merge.writes_kept
        if needs_all or self.files is not None or candidate_rows(theirs) > HELD_ROWS_MAX:
            return theirs.reader(), ours.reader()
        reader = theirs.reader()
        batches: list[pa.RecordBatch] = []
        room = HELD_BYTES_MAX
        for batch in reader:
            batches.append(batch)
            room -= batch.nbytes
            if room < 0:
                return chain(batches, reader), ours.reader()
        ids = pa.chunked_array([batch.column("id") for batch in batches], pa.string())
        return batches, ours.reader(only=Sought(ids=ids.combine_chunks(), changes=theirs.plan))


class BrokenRows(msgspec.Struct, frozen=True, array_like=True):
    """A row rule that decided rows violate: how often, and the first by id and message."""

    reason: str
    columns: tuple[str, ...]
    count: int
    first: list[tuple[str, str]]


class _Decision(msgspec.Struct, frozen=True, array_like=True):
    """The result of one bucket; rows, ids and conflicts are in the files."""

    files: list[StagedFile]
    counts: dict[str, int]
    upserted: int
    deleted: int
    broken: list[BrokenRows]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedTable:
    """The effect of a merge on one table, in files that tasks wrote."""

    table: TableToDecide
    files: tuple[StagedFile, ...] = field(repr=False)
    counts: MergeCounts
    upserted: int
    deleted: int
    broken: tuple[BrokenRows, ...] = field(repr=False)

    @property
    def table_key(self) -> str:
        return self.table.table_key

    @property
    def alters(self) -> bool:
        """Whether the target's table has to change."""
        return bool(self.upserted or self.deleted)

    def paths(self, role: str) -> Mapping[int, tuple[str, ...]]:
        """Files of one role by bucket."""
        paths: dict[int, tuple[str, ...]] = {}
        for file in self.files:
            if file.role == role:
                paths[file.bucket] = (*paths.get(file.bucket, ()), file.path)
        return dict(sorted(paths.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenByMerge:
    """Broken rules in the shape of conflicts: the first of them, and how many there are."""

    conflicts: pa.Table = field(repr=False)
    total: int


def decide_tables(
    runner: Runner, scratch: Scratch, tables: Sequence[TableToDecide]
) -> tuple[DecidedTable, ...]:
    """Decide every row that the source changed; writes to no table."""
    buckets = _divide(runner, scratch, tables)
    stage = Stage(verb="merge", name="decide rows")
    answers = runner.map(stage, buckets, partial(_decide, scratch), _Decision)
    decisions: list[list[_Decision]] = [[] for _ in tables]
    for bucket, decision in zip(buckets, require_answers(answers), strict=True):
        decisions[bucket.table.number].append(decision)
    return tuple(map(_join, tables, decisions))


def _divide(runner: Runner, scratch: Scratch, tables: Sequence[TableToDecide]) -> list[_Bucket]:
    """The buckets of all tables, in order; candidates of large tables are distributed to them."""
    work: list[Candidates] = []
    for table in tables:
        for diff, roles in ((table.theirs, _THEIRS), (table.ours, _OURS)):
            if diff is not None and table.buckets > 1:
                work += candidate_work(diff, table=table.number, roles=roles, buckets=table.buckets)
    stage = Stage(verb="merge", name="read rows that may differ")
    answers = runner.map(stage, work, partial(scatter, scratch), list[StagedFile]) if work else ()
    files = files_by_bucket(file for files in require_answers(answers) for file in files)
    whole = {
        (t.number, 0): _Bucket(table=t, number=0, files=None) for t in tables if t.buckets == 1
    }
    divided = {
        (table, number): _Bucket(table=tables[table], number=number, files=tuple(bucket_files))
        for (table, number), bucket_files in files.items()
    }
    return [bucket for _, bucket in sorted((whole | divided).items())]


def _join(table: TableToDecide, decisions: Sequence[_Decision]) -> DecidedTable:
    return DecidedTable(
        table=table,
        files=tuple(file for decision in decisions for file in decision.files),
        counts=sum((MergeCounts(**decision.counts) for decision in decisions), MergeCounts()),
        upserted=sum(decision.upserted for decision in decisions),
        deleted=sum(decision.deleted for decision in decisions),
        broken=tuple(rows for decision in decisions for rows in decision.broken),
    )


def _decide(scratch: Scratch, bucket: _Bucket, task: Task) -> _Decision:
    """Decide every id of a bucket that the source changed."""
    theirs, ours = bucket.changes(scratch)
    results = _Results(scratch, bucket)
    for step in merge_changes(theirs, ours, bucket.table.merge):
        task.advance(rows=step.upserts.num_rows + step.deletes.num_rows)
        results.add(step)
    return results.decision()


class _Results:
    """Collects the steps of one bucket's merge."""

    def __init__(self, scratch: Scratch, bucket: _Bucket) -> None:
        self._table = bucket.table
        self._bucket = bucket.number
        self._writers = {
            # `add` gets the number of the bucket; `buckets` only matters where ids are hashed.
            role: BucketWriter(scratch, table=bucket.table.number, role=role, buckets=1)
            for role in (UPSERTS, IDS, _KEYED, OPEN, RESOLVED)
        }
        self._kept = {OPEN: 0, RESOLVED: 0}
        self._counts = MergeCounts()
        self._upserted = self._deleted = 0
        self._broken: dict[tuple[str, tuple[str, ...]], BrokenRows] = {}

    def add(self, step: MergeStep) -> None:
        upserts, deletes = step.upserts, step.deletes
        self._counts += step.counts
        self._upserted += upserts.num_rows
        self._deleted += deletes.num_rows
        self._keep(step.conflicts)
        for rows, is_deleted in ((upserts, False), (deletes, True)):
            flags = pa.repeat(pa.scalar(is_deleted), rows.num_rows)
            ids = pa.RecordBatch.from_arrays(
                [rows.column(names.ID_COLUMN), flags], schema=IDS_SCHEMA
            )
            self._write(IDS, ids)
        if self._table.written:
            self._write(UPSERTS, upserts)
        if self._table.rules is not None and upserts.num_rows:
            self._write(_KEYED, upserts.select(self._table.keyed_columns))
            for finding in check_rows(upserts, self._table.rules):
                self._note(finding)

    def decision(self) -> _Decision:
        return _Decision(
            files=[file for writer in self._writers.values() for file in writer.files()],
            counts=asdict(self._counts),
            upserted=self._upserted,
            deleted=self._deleted,
            broken=list(self._broken.values()),
        )

    def _write(self, role: str, rows: pa.RecordBatch) -> None:
        self._writers[role].add(self._bucket, rows)

    def _keep(self, conflicts: pa.RecordBatch) -> None:
        is_open = pc.is_null(conflicts.column("resolution"))
        for role, mask in ((OPEN, is_open), (RESOLVED, pc.invert(is_open))):
            # All are counted; those beyond the limit are not kept. Steps ascend by id, so the kept
            # ones are the first of the bucket, among which are the first of all.
            kept_conflicts = conflicts.filter(mask).slice(0, CONFLICTS_KEPT - self._kept[role])
            self._write(role, kept_conflicts)
            self._kept[role] += kept_conflicts.num_rows

    def _note(self, finding: BadRows) -> None:
        rule = finding.reason.value, finding.columns
        noted = self._broken.get(rule, BrokenRows(*rule, 0, []))
        first = [(violation.id or "", violation.message) for violation in finding.kept]
        self._broken[rule] = BrokenRows(
            *rule, noted.count + finding.count, [*noted.first, *first][:KEPT_MAX]
        )


def first_conflicts(scratch: Scratch, tables: Iterable[DecidedTable], role: str) -> pa.Table:
    """The first open or resolved conflicts of every table, in the order of ids."""
    kept_conflicts = [CONFLICT_SCHEMA.empty_table()]
    for table in tables:
        first = CONFLICT_SCHEMA.empty_table()
        for paths in table.paths(role).values():
            conflicts = pa.Table.from_batches(read_files(scratch, paths), CONFLICT_SCHEMA)
            both = pa.concat_tables([first, conflicts])
            # The sort is stable: conflicts of one row stay in the order of its columns.
            order = pc.sort_indices(both.column(names.ID_COLUMN))
            first = both.take(order.slice(0, CONFLICTS_KEPT)).combine_chunks()
        kept_conflicts.append(first)
    return pa.concat_tables(kept_conflicts)


def check_decided(
    scratch: Scratch,
    tables: Sequence[DecidedTable],
    rules: Mapping[str, TypeRules],
    pinned: PinnedTables,
    *,
    added_twice: Mapping[int, str] | None = None,
) -> BrokenByMerge:
    """Rules that the target would break with what was decided in place of its rows.

    `added_twice` names the node types that both sides added, by the numbers that are not used any
    more; edges may still store them.
    """
    findings = [
        finding for table in tables for finding in _row_findings(table, rules[table.table_key])
    ]
    ids = {table.table_key: _deleted_ids(scratch, table) for table in tables if table.deleted}
    write = ProposedWrite(
        tables={table.table_key: _keyed_rows(scratch, table) for table in tables},
        mode=WriteMode.MERGE,
        deleted=ids,
        cascades=False,
    )
    findings += check_keyed(write, rules, pinned).findings
    report = report_of(findings)
    rows = [
        _conflict(_name_end_type(violation, write.tables, added_twice or {}))
        for violation in report.kept
    ]
    return BrokenByMerge(
        conflicts=pa.Table.from_pylist(rows, schema=CONFLICT_SCHEMA), total=report.total
    )


def _row_findings(table: DecidedTable, rules: TypeRules) -> Iterator[BadRows]:
    """Rules of single rows, which a combination of columns of both sides may violate.

    They are in the order of the rules, and the violations of a rule in the order of ids.
    """
    for reason, columns in dict.fromkeys((rule.reason, (rule.column,)) for rule in rules.row_rules):
        parts = [part for part in table.broken if (part.reason, part.columns) == (reason, columns)]
        first = sorted((row for part in parts for row in part.first), key=lambda row: row[0])
        if parts:
            yield _bad_rows(table.table_key, reason, columns, parts, first[:KEPT_MAX])


def _bad_rows(
    table_key: str,
    reason: Reason,
    columns: tuple[str, ...],
    parts: Iterable[BrokenRows],
    first: Iterable[tuple[str, str]],
) -> BadRows:
    """The finding, without the positions of rows."""
    return BadRows(
        table_key=table_key,
        reason=reason,
        columns=columns,
        count=sum(part.count for part in parts),
        rows=pa.array([], pa.int64()),
        kept=tuple(
            Violation(
                table_key=table_key,
                reason=reason,
                columns=columns,
                row=None,
                id=violating_id,
                message=message,
            )
            for violating_id, message in first
        ),
    )


def _keyed_rows(scratch: Scratch, table: DecidedTable) -> pa.Table:
    fields = [table.table.merge.schema.field(name) for name in table.table.keyed_columns]
    return _in_order(scratch, table, _KEYED, pa.schema(fields))


def _deleted_ids(scratch: Scratch, table: DecidedTable) -> pa.StringArray:
    ids = _in_order(scratch, table, IDS, IDS_SCHEMA)
    return ids.filter(ids.column("deleted")).column(names.ID_COLUMN).combine_chunks()


def _in_order(scratch: Scratch, table: DecidedTable, role: str, schema: pa.Schema) -> pa.Table:
    """All rows of one role, in the order of ids: findings are listed in the order of rows."""
    buckets = table.paths(role)
    paths = [path for bucket_paths in buckets.values() for path in bucket_paths]
    rows = pa.Table.from_batches(read_files(scratch, paths), schema)
    return rows.sort_by(names.ID_COLUMN) if len(buckets) > 1 else rows


def _name_end_type(
    violation: Violation, tables: Mapping[str, pa.Table], added_twice: Mapping[int, str]
) -> Violation:
    """A missing end is another conflict if its node is there, under another number of its type."""
    column = names.END_TYPE_COLUMNS.get(violation.columns[0]) if violation.columns else None
    rows = tables.get(violation.table_key)
    if column is None or rows is None or violation.row is None or column not in rows.column_names:
        return violation
    type_name = added_twice.get(rows.column(column)[violation.row].as_py())
    if violation.reason is not Reason.MISSING_ENDPOINT or type_name is None:
        return violation
    end = shown_scalar(rows.column(violation.columns[0])[violation.row])
    return replace(
        violation,
        reason=Reason.ENDPOINT_TYPE,
        message=f"{type_name} {end}: both sides added the node type {type_name}, and edges to it "
        "cannot be merged; delete them in the source, merge, and add them again",
    )


def _conflict(violation: Violation) -> Mapping[str, str | None]:
    return {
        "type": violation.table_key,
        "id": violation.id or "",
        "column": ", ".join(violation.columns) or None,
        "base": None,
        "ours": None,
        "theirs": violation.message,
        "kind": violation.reason.value,
        "resolution": None,
    }
