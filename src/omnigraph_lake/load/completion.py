"""Complete the partial records of a merging load from each other and from the published rows.

    scatter    rows of tables with partial records go to files by a hash of their ids, and so do
               the published rows of such a table if most of them may be asked for
    complete   one task per bucket folds the records of an id, fills the rest, and checks the rows
    replace    every piece is staged again with its completed rows, at the same positions

Invariants:
- Records of an id apply one after the other; the last one stands for the row, and the others are
  superseded. Rules of single rows are judged on the completed rows.
- Positions and places of rows do not change, so a later finding names the record that it is about.
- A task holds one bucket of rows, or one piece. The driver holds counts of superseded rows.
"""

from __future__ import annotations

import io
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from omnigraph_lake.load.fill import check_filled, fill, fold
from omnigraph_lake.load.formats.counts import group_rejected
from omnigraph_lake.load.rejected import StagedLoad, refuse_rows
from omnigraph_lake.load.report import OFFENDERS_MAX
from omnigraph_lake.load.staging import (
    NUMBER,
    RANK,
    FirstRefused,
    PieceReport,
    list_rejected,
    mentions_in,
    ranks_in,
    read_derived,
    refused_of,
    stage_rows,
)
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.runner.protocol import Runner, Stage, Task, require_answers
from omnigraph_lake.runner.shuffle import (
    BucketWriter,
    Scratch,
    StagedFile,
    files_by_bucket,
    read_files,
)
from omnigraph_lake.validation.hashed_keys import incoming_rows, split_and_position
from omnigraph_lake.validation.input.intake import declared_types
from omnigraph_lake.validation.input.mentions import Mentions, mentions_of
from omnigraph_lake.validation.keyed_passes import Parcel, Refusals, RefusedRows, write_parcel
from omnigraph_lake.validation.resolve_keys import rank_arrays
from omnigraph_lake.validation.violations import Reason, Violation

if TYPE_CHECKING:
    from omnigraph_lake.validation.lookups import PinnedTables

ROWS_PER_BUCKET: Final = 250_000
_ROWS_PER_SCAN: Final = 2_000_000
SCATTERED_SHARE: Final = 1 / 8
"""From this share of a table on, each of several buckets would read all of it."""
# No property can have such a name.
_MENTIONED: Final = "mentions "
_RECORDS, _PUBLISHED = "records", "published"
_COMPLETED, _SUPERSEDED, _INVALID = "completed", "superseded", "invalid"
_INVALID_SCHEMA: Final = pa.schema(
    [
        (NUMBER, pa.uint64()),
        ("reason", pa.string()),
        ("columns", pa.list_(pa.string())),
        ("message", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The pieces with completed rows, and the rows that are not written."""

    reports: Sequence[PieceReport]
    superseded: Refusals = field(default_factory=Refusals)
    invalid: Refusals = field(default_factory=Refusals)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TableWork:
    """A table with partial records; `open_columns` are those that some record does not mention."""

    table_key: str
    number: int
    open_columns: tuple[str, ...]
    order_by: str | None
    buckets: int
    scatters_published: bool
    """Whether the published rows go to the buckets, too, instead of being looked up by each."""

    @property
    def published_columns(self) -> tuple[str, ...]:
        return ID_COLUMN, *self.open_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scatter:
    table: _TableWork
    report: PieceReport = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScatterPublished:
    table: _TableWork
    fragments: tuple[int, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bucket:
    table: _TableWork
    paths: tuple[str, ...] = field(repr=False)
    published: tuple[str, ...] = field(repr=False)
    """Files with the published rows of the bucket, if these were scattered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replace:
    report: PieceReport = field(repr=False)
    files: Mapping[str, tuple[StagedFile, ...]] = field(repr=False)


class _ReplacedPiece(msgspec.Struct, frozen=True):
    report: PieceReport
    superseded: Parcel | None
    invalid: Parcel | None


def complete(
    runner: Runner,
    load: StagedLoad,
    reports: Sequence[PieceReport],
    pinned: PinnedTables,
    *,
    order_by: str | None,
) -> Completed:
    """Complete the records of every table that has partial ones."""
    tables = tuple(_tables(load, reports, pinned, order_by))
    if not tables:
        return Completed(reports=reports)
    stage = partial(Stage, verb="load")
    records = runner.map(
        stage(name="exchange partial records"),
        [
            _Scatter(table=table, report=report)
            for table in tables
            for report in reports
            if table.table_key in report.tables
        ],
        partial(_scatter, load),
        list[StagedFile],
    )
    buckets = files_by_bucket(file for files in require_answers(records) for file in files)
    published = _scatter_published(runner, load, tables, pinned)
    completed = runner.map(
        stage(name="complete records"),
        [
            _Bucket(
                table=tables[number],
                paths=tuple(file.path for file in files),
                published=tuple(file.path for file in published.get((number, bucket), ())),
            )
            for (number, bucket), files in buckets.items()
        ],
        partial(_complete_bucket, load, pinned),
        list[StagedFile],
    )
    by_piece: dict[int, dict[str, list[StagedFile]]] = {}
    for file in (file for files in require_answers(completed) for file in files):
        table_key = tables[file.table].table_key
        by_piece.setdefault(file.bucket, {}).setdefault(table_key, []).append(file)
    work = [
        _Replace(
            report=report,
            files={key: tuple(files) for key, files in by_piece.get(report.number, {}).items()},
        )
        for report in reports
    ]
    touched = [piece for piece in work if piece.files]
    answers = runner.map(
        stage(name="stage completed records"), touched, partial(_replace, load), _ReplacedPiece
    )
    return _gather(reports, require_answers(answers), load.plan.scratch)


def _tables(
    load: StagedLoad, reports: Sequence[PieceReport], pinned: PinnedTables, order_by: str | None
) -> Iterator[_TableWork]:
    partial_tables = [
        key for key in load.rules if any(key in report.mentions for report in reports)
    ]
    for number, table_key in enumerate(partial_tables):
        partials = [report for report in reports if table_key in report.mentions]
        columns: dict[str, None] = {}
        for report in partials:
            masks = mentions_in(load.plan.scratch, report, table_key)
            assert masks is not None
            columns |= dict.fromkeys(masks.column_names)
        rows = sum(r.tables[table_key].rows for r in reports if table_key in r.tables)
        published_rows = pinned.row_count(table_key)
        scatters_published = rows > ROWS_PER_BUCKET and rows >= published_rows * SCATTERED_SHARE
        held_rows = max(rows, published_rows) if scatters_published else rows
        yield _TableWork(
            table_key=table_key,
            number=number,
            open_columns=tuple(sorted(columns)),
            order_by=order_by if order_by in (RANK, *load.plan.schema(table_key).names) else None,
            buckets=max(1, -(-held_rows // ROWS_PER_BUCKET)),
            scatters_published=scatters_published,
        )


def _scatter_published(
    runner: Runner, load: StagedLoad, tables: Sequence[_TableWork], pinned: PinnedTables
) -> Mapping[tuple[int, int], list[StagedFile]]:
    """Files with the published rows of tables, by table and bucket."""
    work = [
        _ScatterPublished(table=table, fragments=fragments)
        for table in tables
        if table.scatters_published and pinned.row_count(table.table_key)
        for fragments in pinned.groups(table.table_key, rows_max=_ROWS_PER_SCAN)
    ]
    if not work:
        return {}
    answers = runner.map(
        Stage(verb="load", name="exchange published rows"),
        work,
        partial(_scatter_fragments, load, pinned),
        list[StagedFile],
    )
    return files_by_bucket(file for files in require_answers(answers) for file in files)


def _scatter_fragments(
    load: StagedLoad, pinned: PinnedTables, work: _ScatterPublished, task: Task
) -> list[StagedFile]:
    table = work.table
    writer = BucketWriter(
        load.plan.scratch, table=table.number, role=_PUBLISHED, buckets=table.buckets
    )
    columns = table.published_columns
    for batch in pinned.scan_group(table.table_key, work.fragments, columns):
        task.advance(rows=len(batch))
        writer.add_by_id(batch.select(list(columns)))
    return writer.files()


def _scatter(load: StagedLoad, work: _Scatter, task: Task) -> list[StagedFile]:
    """Send the rows of a piece, with what they mention, to the buckets of their ids."""
    plan, table = load.plan, work.table
    masks = mentions_in(plan.scratch, work.report, table.table_key)
    masked = {} if masks is None else dict(zip(masks.column_names, masks.columns, strict=True))
    writer = BucketWriter(plan.scratch, table=table.number, role=_RECORDS, buckets=table.buckets)
    ranks = None
    if table.order_by == RANK:
        key, keeps_first = table.table_key, plan.keeps_first
        ranks = ranks_in(plan.scratch, work.report, key, keeps_first=keeps_first)
    first = 0
    columns = plan.schema(table.table_key).names
    staged = work.report.tables[table.table_key]
    for batch in staged.read(plan.root, plan.entries[table.table_key], columns):
        task.advance(rows=len(batch))
        numbers = incoming_rows(work.report.number, first, len(batch))
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        arrays[NUMBER] = pa.array(numbers)
        if ranks is not None:
            arrays[RANK] = ranks.slice(first, len(batch))
        for name in table.open_columns:
            flags = pa.repeat(pa.scalar(value=True), len(batch))
            if name in masked:
                flags = masked[name].slice(first, len(batch)).combine_chunks()
                values = arrays[name]
                arrays[name] = pc.if_else(flags, values, pa.scalar(None, values.type))
            arrays[f"{_MENTIONED}{name}"] = flags
        added = [pa.field(name, arrays[name].type) for name in list(arrays)[batch.num_columns :]]
        schema = pa.schema([*batch.schema, *added])
        writer.add_by_id(pa.RecordBatch.from_arrays(list(arrays.values()), schema=schema))
        first += len(batch)
    return writer.files()


def _complete_bucket(
    load: StagedLoad, pinned: PinnedTables, work: _Bucket, task: Task
) -> list[StagedFile]:
    """Fold and fill the records of some ids, and check the completed rows."""
    plan, table = load.plan, work.table
    table_key = table.table_key
    schema = plan.schema(table_key)
    records = pa.Table.from_batches(read_files(plan.scratch, work.paths)).sort_by(NUMBER)
    task.advance(rows=len(records))
    numbers = records.column(NUMBER).to_numpy()
    rows = _with_schema(records, schema)
    masks = {
        name: records.column(f"{_MENTIONED}{name}").combine_chunks() for name in table.open_columns
    }
    order: tuple[np.ndarray, ...] = ()
    if table.order_by is not None:
        order = rank_arrays(records.column(table.order_by).combine_chunks())
    folded = fold(rows, mentions_of((), masks), order)
    published = _published(load, pinned, work, folded.rows, folded.mentions)
    declared = declared_types(plan.catalog)[table_key]
    filled = fill(declared, folded.rows, folded.mentions, published)
    kept_numbers = numbers[folded.positions.to_numpy()]
    violations = _violations(load, table_key, filled)
    files = PieceOutputs(plan.scratch, table.number)
    files.add(_COMPLETED, filled.append_column(NUMBER, pa.array(kept_numbers)))
    is_superseded = np.ones(len(numbers), dtype=np.bool_)
    is_superseded[folded.positions.to_numpy()] = False
    files.add(_SUPERSEDED, pa.table({NUMBER: pa.array(numbers[is_superseded], pa.uint64())}))
    files.add(_INVALID, _invalid_rows(kept_numbers, violations))
    return files.written()


def _published(
    load: StagedLoad, pinned: PinnedTables, work: _Bucket, rows: pa.Table, mentions: Mentions | None
) -> pa.Table:
    """What the published rows of incomplete records, at least, have in the omitted columns."""
    table = work.table
    columns = [ID_COLUMN, *sorted(mentions.open_columns if mentions else ())]
    empty = rows.select(columns).slice(0, 0)
    if mentions is None or not pinned.row_count(table.table_key):
        return empty
    if table.scatters_published:
        batches = list(read_files(load.plan.scratch, work.published))
    else:
        ids = rows.column(ID_COLUMN).combine_chunks().filter(mentions.incomplete(len(rows)))
        batches = list(pinned.take(table.table_key, ids, columns))
    return pa.Table.from_batches(batches).select(columns) if batches else empty


def _violations(load: StagedLoad, table_key: str, rows: pa.Table) -> dict[int, Violation]:
    """The first violation of every completed row that is invalid."""
    declared = declared_types(load.plan.catalog)[table_key]
    rules = load.rules[table_key]
    bad = {
        row for finding in check_filled(declared, rules, rows) for row in finding.rows.to_pylist()
    }
    first: dict[int, Violation] = {}
    for row in sorted(bad):
        # One row at a time: a finding lists a limited number of violations.
        (violation, *_) = (
            violation
            for finding in check_filled(declared, rules, rows.slice(row, 1))
            for violation in finding.kept
        )
        first[row] = violation
    return first


def _invalid_rows(numbers: np.ndarray, violations: Mapping[int, Violation]) -> pa.Table:
    rows = [
        {
            NUMBER: int(numbers[row]),
            "reason": violation.reason.value,
            "columns": list(violation.columns),
            "message": violation.message,
        }
        for row, violation in violations.items()
    ]
    return pa.Table.from_pylist(rows, schema=_INVALID_SCHEMA)


class PieceOutputs:
    """Writes rows to files by the piece that their numbers name."""

    def __init__(self, scratch: Scratch, table: int) -> None:
        self._scratch = scratch
        self._table = table
        self._files: list[StagedFile] = []

    def add(self, role: str, rows: pa.Table) -> None:
        pieces, _ = split_and_position(rows.column(NUMBER).to_numpy())
        writer = BucketWriter(self._scratch, table=self._table, role=role, buckets=1)
        for piece in np.unique(pieces).tolist():
            for batch in rows.filter(pa.array(pieces == piece)).to_batches():
                writer.add(piece, batch)
        self._files += writer.files()

    def written(self) -> list[StagedFile]:
        return self._files


def _replace(load: StagedLoad, work: _Replace, task: Task) -> _ReplacedPiece:
    """Stage a piece again, with completed rows in the places of the records they stand for."""
    # A copy: what it counts grows.
    plan, report = load.plan, deepcopy(work.report)
    tables = dict(report.tables)
    superseded: dict[str, RefusedRows] = {}
    invalid: dict[str, RefusedRows] = {}
    refused: list[pa.Table] = []
    for table_key, files in work.files.items():
        task.advance()
        schema = plan.schema(table_key)
        staged = report.tables[table_key]
        batches = staged.read(plan.root, plan.entries[table_key], schema.names)
        original = _with_schema(pa.Table.from_batches(batches), schema)
        completed = _rows_of(plan.scratch, files, _COMPLETED)
        rows = original
        if completed is not None:
            rows = _with_rows(original, completed, schema)
        tables[table_key] = stage_rows(plan, report.number, table_key, rows)
        if (lost := _rows_of(plan.scratch, files, _SUPERSEDED)) is not None:
            superseded[table_key] = _as_refused(lost)
        if (broken := _rows_of(plan.scratch, files, _INVALID)) is not None:
            violations = dict(_as_violations(table_key, broken))
            invalid[table_key] = _as_refused(broken)
            refused.append(refuse_rows(load, report, table_key, violations))
            if report.counts is not None:
                is_derived = read_derived(plan.scratch, report, table_key)
                of_type = report.counts.of_type(table_key)
                for position, violation in violations.items():
                    of_type.reject(violation.reason.value, is_derived=bool(is_derived[position]))
    changed = msgspec.structs.replace(report, tables=tables)
    parcels = [
        write_parcel(plan.scratch, report.number, rows) if rows else None
        for rows in (superseded, invalid)
    ]
    plan.scratch.require_open(parcel.path for parcel in parcels if parcel is not None)
    return _ReplacedPiece(_with_refused(load, changed, refused), *parcels)


def _as_refused(rows: pa.Table) -> RefusedRows:
    return RefusedRows.with_one_verdict(np.sort(rows.column(NUMBER).to_numpy()))


def _rows_of(scratch: Scratch, files: Sequence[StagedFile], role: str) -> pa.Table | None:
    paths = [file.path for file in files if file.role == role]
    return pa.Table.from_batches(read_files(scratch, paths)) if paths else None


def _with_rows(original: pa.Table, completed: pa.Table, schema: pa.Schema) -> pa.Table:
    _, positions = split_and_position(completed.column(NUMBER).to_numpy())
    source = np.arange(len(original))
    source[positions] = len(original) + np.arange(len(completed))
    both = pa.concat_tables([original, _with_schema(completed, schema)])
    return both.take(pa.array(source))


def _with_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema; a partial record has nulls where a complete row may not."""
    columns = [rows.column(column.name).cast(column.type) for column in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _as_violations(table_key: str, rows: pa.Table) -> Iterator[tuple[int, Violation]]:
    _, positions = split_and_position(rows.column(NUMBER).to_numpy())
    for position, row in zip(positions.tolist(), rows.to_pylist(), strict=True):
        yield (
            position,
            Violation(
                table_key=table_key,
                reason=Reason(row["reason"]),
                columns=tuple(row["columns"]),
                row=None,
                id=None,
                message=row["message"],
            ),
        )


def _with_refused(
    load: StagedLoad, report: PieceReport, refused: Sequence[pa.Table]
) -> PieceReport:
    """The report with more records that were refused by themselves."""
    if not refused:
        return report
    added = pa.concat_tables(refused)
    reasons = Counter(report.refused)
    reasons.update(added.column("reason").to_pylist())
    first = [*report.first_refused, *(_first_refused(added))]
    path = report.refused_file
    if load.plan.keep_refused:
        earlier = refused_of(load.plan.scratch, report)
        both = [added] if earlier is None else [earlier, added]
        content = io.BytesIO()
        pq.write_table(pa.concat_tables(both), content, compression="zstd")
        name = f"refused-{report.number:06}-{secrets.token_hex(4)}"
        path = load.plan.scratch.put(name, content.getvalue())
    return msgspec.structs.replace(
        report,
        refused=dict(reasons),
        rejected=group_rejected(report.rejected, list_rejected(added)),
        first_refused=sorted(first, key=lambda record: record.place)[:OFFENDERS_MAX],
        refused_file=path,
    )


def _first_refused(refused: pa.Table) -> Iterator[FirstRefused]:
    for row in refused.sort_by("place").slice(0, OFFENDERS_MAX).to_pylist():
        yield FirstRefused(row["place"], row["type"], row["reason"], row["message"])


def _gather(
    reports: Sequence[PieceReport], pieces: Sequence[_ReplacedPiece], scratch: Scratch
) -> Completed:
    replaced = {piece.report.number: piece.report for piece in pieces}
    superseded = [piece.superseded for piece in pieces if piece.superseded is not None]
    invalid = [piece.invalid for piece in pieces if piece.invalid is not None]
    return Completed(
        reports=tuple(replaced.get(report.number, report) for report in reports),
        superseded=Refusals.of_parcels(superseded, scratch),
        invalid=Refusals.of_parcels(invalid, scratch),
    )
