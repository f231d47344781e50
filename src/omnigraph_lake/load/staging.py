"""Stage the rows of one piece of an input: parse it, keep its rows, and report what it held.

Rows are kept until every rule was checked: as fragments of their tables, or in files of the
operation's scratch folder where that is a folder of this machine. Spooled rows are written to their
tables only once the load was accepted, so a refused load and a dry run write nothing to the graph.

Invariants:
- A plan is picklable and read-only; two tasks with the same plan and the same piece stage the same
  rows at the same positions, so a task may run twice and either result may be used.
- Memory is bounded by the rows of one flush, for any size of a piece.
- The report of a piece does not grow with it: rows, rejected records and the places of rows are in
  files.
"""

from __future__ import annotations

import io
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pat

from omnigraph_lake.errors import InvalidInputError, StorageUnavailableError
from omnigraph_lake.failpoints import reach
from omnigraph_lake.ids import FreshIds
from omnigraph_lake.load.formats.counts import RejectedGroup, SourceCounts, group_rejected
from omnigraph_lake.load.formats.digests import DIGEST_BYTES
from omnigraph_lake.load.formats.records import (
    Parsed,
    ParsedRows,
    RecordDigests,
    RefusedRecords,
    SplitEnd,
)
from omnigraph_lake.load.report import OFFENDERS_MAX
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.runner.protocol import Task
from omnigraph_lake.runner.shuffle import BucketWriter, Scratch, StagedFile
from omnigraph_lake.schema.arrow import has_blob, table_schema
from omnigraph_lake.storage.objects.durability import make_durable
from omnigraph_lake.storage.staging import bulk
from omnigraph_lake.validation.hashed_keys import incoming_rows
from omnigraph_lake.validation.input.intake import declared_types
from omnigraph_lake.validation.input.mentions import Mentions, concat_mentions

if TYPE_CHECKING:
    from omnigraph_lake.load.formats.mapping import SourceMapping
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import TableEntry
    from omnigraph_lake.validation.schema_contract import Widening

FLUSH_BYTES: Final = 96 << 20
# No property can have these names.
NUMBER: Final = "row number"
DIGEST: Final = "digest of record"
RANK: Final = "rank of row"
_RECORD_RANK: Final = 1 << 62
_SPOOLED_ROWS: Final = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingPlan:
    """What every task of a load knows.

    `entries` are writable if rows become fragments immediately; `spool` is the folder for rows that
    do not.
    """

    root: Root
    catalog: Catalog
    entries: Mapping[str, TableEntry] = field(repr=False)
    scratch: Scratch
    spool: str | None
    keep_refused: bool
    partial: bool
    """Whether records may omit what published rows keep."""
    ids_at: int
    """Milliseconds since 1970 that generated ids carry."""
    mappings: Mapping[str, SourceMapping] = field(default_factory=dict)
    """Of frames without a type, by name."""
    end_types: Mapping[str, str] = field(default_factory=dict)
    """Node types of ends that the input does not name, by the column of types."""
    keeps_first: bool = False
    """Whether of several records of an import with one id the first stands."""

    def schema(self, table_key: str) -> pa.Schema:
        return table_schema(declared_types(self.catalog)[table_key])


class StagedTable(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one table that a piece staged: in fragments of the table, or in a spooled file."""

    rows: int
    fragments: list[tuple[str, int]] = []
    spooled: str = ""

    def staged_fragments(self) -> tuple[bulk.StagedFragment, ...]:
        return tuple(
            bulk.StagedFragment(description=description, rows=rows)
            for description, rows in self.fragments
        )

    def read(
        self, root: Root, entry: TableEntry, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, in the order of the input."""
        if self.spooled:
            yield from _read_spooled(self.spooled, columns)
            return
        for fragment in self.staged_fragments():
            yield from bulk.read_staged(root, entry, fragment, columns)

    def take(
        self, root: Root, entry: TableEntry, columns: Sequence[str], positions: np.ndarray
    ) -> pa.Table:
        """Some rows; positions ascend."""
        parts: list[pa.Table] = []
        first = 0
        if self.spooled:
            for batch in _read_spooled(self.spooled, columns):
                inside = positions[(positions >= first) & (positions < first + len(batch))] - first
                first += len(batch)
                if len(inside):
                    parts.append(pa.Table.from_batches([batch.take(pa.array(inside))]))
            return pa.concat_tables(parts).select(list(columns))
        for fragment in self.staged_fragments():
            inside = positions[(positions >= first) & (positions < first + fragment.rows)] - first
            first += fragment.rows
            if len(inside):
                parts.append(bulk.take_staged(root, entry, fragment, columns, inside))
        return pa.concat_tables(parts)


def _read_spooled(path: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(path) as file:
        schema = pa.ipc.open_file(file).schema
        wanted = [schema.get_field_index(name) for name in columns]
        options = pa.ipc.IpcReadOptions(included_fields=wanted)
        reader = pa.ipc.open_file(file, options=options)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number).select(list(columns))


class FirstRefused(msgspec.Struct, frozen=True, array_like=True):
    """The part of a refused record that a report shows."""

    place: int
    type: str | None
    reason: str
    message: str


class PieceReport(msgspec.Struct, frozen=True):
    """The result of one piece, in a size that does not grow with it."""

    number: int
    source: str
    lines: int
    records: int
    refused: dict[str, int]
    first_refused: list[FirstRefused]
    tables: dict[str, StagedTable]
    given_ids: dict[str, int]
    """The number of rows whose id is in the input, by table."""
    generated: str
    """The beginning of generated ids."""
    refused_file: str | None
    places_file: str | None
    mentions: dict[str, str] = {}
    """By table, the file that says which columns partial records mention."""
    digests: list[StagedFile] = []
    """Files with the digests of the records whose ids are made of them."""
    rejected: list[RejectedGroup] = []
    """The refused records by what is wrong with them."""
    derived: dict[str, int] = {}
    """By table, how many rows stand for distinct values of records."""
    counts: SourceCounts | None = None
    """What became of the records, if a mapping was applied to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPiece:
    """The staged rows of one piece as the keyed rules see them; `RANK` is a column of theirs."""

    root: Root
    entries: Mapping[str, TableEntry] = field(repr=False)
    scratch: Scratch = field(repr=False)
    keeps_first: bool
    report: PieceReport = field(repr=False)

    @property
    def number(self) -> int:
        return self.report.number

    @property
    def rows(self) -> Mapping[str, int]:
        return {key: table.rows for key, table in self.report.tables.items()}

    @property
    def given_ids(self) -> Mapping[str, int]:
        return self.report.given_ids

    @property
    def generated(self) -> str | None:
        return self.report.generated

    def read(self, table_key: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        table, entry = self.report.tables[table_key], self.entries[table_key]
        if RANK not in columns:
            yield from table.read(self.root, entry, columns)
            return
        ranks = ranks_in(self.scratch, self.report, table_key, keeps_first=self.keeps_first)
        first = 0
        for batch in table.read(self.root, entry, [name for name in columns if name != RANK]):
            yield batch.append_column(RANK, ranks.slice(first, len(batch)))
            first += len(batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedInput:
    """Pieces that tasks have staged as fragments before the load that checks them begins.

    `plan` has the entries that they were staged for, `columns` the names of the columns of the
    input by table key, `widening` what the catalog of the plan adds to the accepted schema: nothing
    any more if another write has added it since the pieces were staged.
    """

    plan: StagingPlan
    merges_schema: bool = False
    widening: Widening | None = None
    columns: Mapping[str, tuple[str, ...]]
    reports: tuple[PieceReport, ...] = field(repr=False)


def discard_staged(objects: Objects, staged: StagedInput) -> None:
    """Remove the fragments of pieces that no load has taken."""
    for report in staged.reports:
        for table_key, table in report.tables.items():
            bulk.discard(objects, staged.plan.entries[table_key], table.staged_fragments())


def with_lines_before(reports: Iterable[PieceReport]) -> Iterator[tuple[PieceReport, int]]:
    """Each piece, in input order, and the lines of its file that earlier pieces own."""
    before: Counter[str] = Counter()
    for report in reports:
        yield report, before[report.source]
        before[report.source] += report.lines


class PieceStager:
    """Stages one piece: from parsed records to kept rows and a report."""

    def __init__(self, plan: StagingPlan, number: int, *, source: str) -> None:
        self._plan = plan
        self._number = number
        self._source = source
        self.fresh_ids = FreshIds.of_task(at_milliseconds=plan.ids_at, lot=number)
        self._rows = _row_keeper(plan, number)
        self._places: dict[str, list[np.ndarray]] = {}
        self._mentions: dict[str, list[tuple[Mentions | None, int]]] = {}
        self._derived: dict[str, list[np.ndarray]] = {}
        self._given_ids: Counter[str] = Counter()
        self._refused: list[pa.Table] = []
        self._reasons: Counter[str] = Counter()
        self._first: list[FirstRefused] = []
        self._rejected: list[RejectedGroup] = []
        self._digests = BucketWriter(plan.scratch, table=0, role="digests", buckets=1)

    def run(self, parsed: Iterable[Parsed], task: Task) -> PieceReport:
        end = SplitEnd(lines=0, records=0)
        for part in parsed:
            match part:
                case ParsedRows():
                    self._keep(part)
                    task.advance(rows=len(part.places))
                case RefusedRecords():
                    self._refuse(part.table)
                    task.advance(rows=len(part.table))
                case RecordDigests():
                    self._digests.add(0, self._digest_rows(part))
                case SplitEnd():
                    end = part
                case _:
                    assert_never(part)
        tables = self._rows.finish()
        for table in tables.values():
            task.advance(written=bulk.count_bytes(table.staged_fragments()))
        if self._plan.spool is None:
            make_durable(self._plan.root)
        reach("load.split_staged")
        return PieceReport(
            number=self._number,
            source=self._source,
            lines=end.lines,
            records=end.records,
            refused=dict(self._reasons),
            first_refused=self._first,
            rejected=self._rejected,
            tables=tables,
            given_ids=dict(self._given_ids),
            generated=self.fresh_ids.prefix,
            refused_file=self._put_refused(),
            places_file=self._put_places(),
            mentions=dict(self._put_mentions()),
            digests=self._digests.files(),
            derived={
                key: int(sum(map(np.count_nonzero, parts)))
                for key, parts in self._derived.items()
                if any(part.any() for part in parts)
            },
            counts=end.counts,
        )

    def _digest_rows(self, records: RecordDigests) -> pa.RecordBatch:
        content = pa.py_buffer(bytes.fromhex("".join(records.digests.to_pylist())))
        kind = pa.binary(DIGEST_BYTES)
        digests = pa.FixedSizeBinaryArray.from_buffers(kind, len(records.places), [None, content])
        numbers = records.places.to_numpy().astype(np.uint64) | incoming_rows(self._number, 0, 1)
        return pa.record_batch({NUMBER: pa.array(numbers), DIGEST: digests})

    def _keep(self, parsed: ParsedRows) -> None:
        key = parsed.table_key
        is_generated = pc.starts_with(parsed.rows.column(ID_COLUMN), self.fresh_ids.prefix)
        self._given_ids[key] += len(parsed.places) - (pc.sum(is_generated).as_py() or 0)
        self._places.setdefault(key, []).append(parsed.places.to_numpy())
        self._mentions.setdefault(key, []).append((parsed.mentions, len(parsed.places)))
        flags = parsed.is_derived
        self._derived.setdefault(key, []).append(
            np.zeros(len(parsed.places), np.bool_)
            if flags is None
            else flags.to_numpy(zero_copy_only=False)
        )
        self._rows.add(key, parsed.rows)

    def _refuse(self, refused: pa.Table) -> None:
        self._reasons.update(refused.column("reason").to_pylist())
        self._rejected = group_rejected(self._rejected, list_rejected(refused))
        if len(self._first) < OFFENDERS_MAX:
            shown = refused.slice(0, OFFENDERS_MAX - len(self._first))
            self._first += [
                FirstRefused(
                    refusal["place"], refusal["type"], refusal["reason"], refusal["message"]
                )
                for refusal in shown.select(["place", "type", "reason", "message"]).to_pylist()
            ]
        if self._plan.keep_refused:
            self._refused.append(refused)

    def _put_refused(self) -> str | None:
        if not self._refused:
            return None
        content = io.BytesIO()
        pq.write_table(pa.concat_tables(self._refused), content, compression="zstd")
        return self._put("refused", content.getvalue())

    def _put_places(self) -> str | None:
        """Per table, the place of each staged row, as well-compressible differences.

        With them, whether a row is derived, in tables with such rows.
        """
        if not self._places:
            return None
        steps = {
            key: np.diff(np.concatenate(parts), prepend=np.uint32(0)).tobytes()
            for key, parts in self._places.items()
        }
        derived = {
            key: np.packbits(np.concatenate(parts)).tobytes()
            for key, parts in self._derived.items()
            if any(part.any() for part in parts)
        }
        plain = msgspec.msgpack.encode(_Places(steps, derived))
        content = len(plain).to_bytes(8, "little") + pa.compress(plain, codec="zstd", asbytes=True)
        return self._put("places", content)

    def _put_mentions(self) -> Iterator[tuple[str, str]]:
        for key, parts in self._mentions.items():
            mentions = concat_mentions(parts)
            if mentions is None:
                continue
            rows = sum(count for _, count in parts)
            masks = pa.table(
                {name: mentions.mask(name, rows) for name in sorted(mentions.open_columns)}
            )
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, masks.schema) as stream:
                stream.write_table(masks)
            yield key, self._put("mentions", sink.getvalue().to_pybytes())

    def _put(self, kind: str, content: bytes) -> str:
        # Random, because a second attempt must not overwrite a file that the first has reported.
        return self._plan.scratch.put(f"{kind}-{self._number:06}-{secrets.token_hex(4)}", content)


def list_rejected(refused: pa.Table) -> Iterator[tuple[int, str | None, str, str]]:
    """Places, types, reasons and messages of refused records."""
    names = ("place", "type", "reason", "message")
    yield from zip(*(refused.column(name).to_pylist() for name in names), strict=True)


def stage_rows(plan: StagingPlan, number: int, table_key: str, rows: pa.Table) -> StagedTable:
    """Stage other rows of one table in place of those that a piece has staged."""
    keeper = _row_keeper(plan, number)
    for start in range(0, len(rows), _SPOOLED_ROWS):
        keeper.add(table_key, rows.slice(start, _SPOOLED_ROWS))
    staged = keeper.finish()[table_key]
    if plan.spool is None:
        make_durable(plan.root)
    return staged


def refuse_blobs(entry: TableEntry, schema: pa.Schema) -> None:
    """Refuse to write staged rows again, if Lance cannot read them before they are committed."""
    if any(has_blob(column) for column in schema):
        raise InvalidInputError(
            f"{entry.table_key.partition(':')[2]} has Blob properties, and rows of such a type "
            "that were staged on Spark cannot be merged with rows that exist, numbered, or moved "
            "to a new branch",
            next_step="Load it in this process, with `--engine local`.",
        )


def mentions_in(scratch: Scratch, report: PieceReport, table_key: str) -> pa.Table | None:
    """Which columns the rows of a piece mention, for those that not all mention."""
    if table_key not in report.mentions:
        return None
    with pa.ipc.open_stream(scratch.read(report.mentions[table_key])) as stream:
        return stream.read_all()


def refused_of(scratch: Scratch, report: PieceReport) -> pa.Table | None:
    """The records of a piece that were refused alone."""
    if report.refused_file is None:
        return None
    return pq.read_table(pa.BufferReader(scratch.read(report.refused_file)))


class _Places(msgspec.Struct, frozen=True, array_like=True):
    steps: dict[str, bytes]
    derived: dict[str, bytes]


def places_of(scratch: Scratch, report: PieceReport) -> Mapping[str, np.ndarray]:
    """By table, the place of each staged row of a piece."""
    return {
        key: np.cumsum(np.frombuffer(differences, np.uint32), dtype=np.uint32)
        for key, differences in _read_places(scratch, report).steps.items()
    }


def read_derived(scratch: Scratch, report: PieceReport, table_key: str) -> np.ndarray:
    """Whether each staged row of a table stands for a distinct value of records."""
    rows = report.tables[table_key].rows
    if table_key not in report.derived:
        return np.zeros(rows, np.bool_)
    bits = np.frombuffer(_read_places(scratch, report).derived[table_key], np.uint8)
    return np.unpackbits(bits, count=rows).astype(np.bool_)


def _read_places(scratch: Scratch, report: PieceReport) -> _Places:
    assert report.places_file is not None, "a piece that staged rows wrote their places"
    content = scratch.read(report.places_file).to_pybytes()
    size = int.from_bytes(content[:8], "little")
    plain = pa.decompress(content[8:], size, codec="zstd", asbytes=True)
    return msgspec.msgpack.decode(plain, type=_Places)


def ranks_in(
    scratch: Scratch, report: PieceReport, table_key: str, *, keeps_first: bool
) -> pa.Array:
    """By row of an import, a number: of the rows of one id, the greatest stands, else the last.

    A row of a record stands before derived rows: these have nothing but the values of a key.
    """
    rows = report.tables[table_key].rows
    ranks = np.where(read_derived(scratch, report, table_key), 0, _RECORD_RANK)
    if keeps_first:
        ranks += _RECORD_RANK - 1 - incoming_rows(report.number, 0, rows).astype(np.int64)
    return pa.array(ranks, pa.int64())


class _FragmentWriter:
    """Writes rows as fragments of their tables, a flush at a time."""

    def __init__(self, plan: StagingPlan) -> None:
        self._plan = plan
        self._pending: dict[str, list[pa.Table]] = {}
        self._pending_bytes: Counter[str] = Counter()
        self._written: dict[str, list[tuple[str, int]]] = {}

    def add(self, table_key: str, rows: pa.Table) -> None:
        self._pending.setdefault(table_key, []).append(_with_placeholders(rows))
        self._pending_bytes[table_key] += rows.nbytes
        if self._pending_bytes.total() > FLUSH_BYTES:
            (largest, _) = self._pending_bytes.most_common(1)[0]
            self._flush(largest)

    def finish(self) -> dict[str, StagedTable]:
        for table_key in tuple(self._pending):
            self._flush(table_key)
        return {
            key: StagedTable(rows=sum(rows for _, rows in fragments), fragments=fragments)
            for key, fragments in self._written.items()
        }

    def _flush(self, table_key: str) -> None:
        rows = pa.concat_tables(self._pending.pop(table_key))
        del self._pending_bytes[table_key]
        fragments = bulk.write_rows(self._plan.root, self._plan.entries[table_key], rows)
        self._written.setdefault(table_key, []).extend(
            (fragment.description, fragment.rows) for fragment in fragments
        )


def _with_placeholders(rows: pa.Table) -> pa.Table:
    """The rows with a value in every required column.

    A partial record has none there until it is completed, and Lance stages no null in such a
    column.
    """
    for number, column in enumerate(rows.schema):
        values = rows.column(number)
        if not column.nullable and values.null_count:
            filled = pc.if_else(values.is_valid(), values, _placeholder(column.type))
            rows = rows.set_column(number, column, filled)
    return rows


def _placeholder(kind: pa.DataType) -> pa.Scalar:  # noqa: PLR0911 - one per kind
    if pat.is_fixed_size_list(kind):
        return pa.scalar([0] * kind.list_size, kind)
    if pat.is_list(kind):
        return pa.scalar([], kind)
    if pat.is_string(kind):
        return pa.scalar("", kind)
    if pat.is_large_binary(kind):
        return pa.scalar(b"", kind)
    if pat.is_boolean(kind):
        return pa.scalar(value=False)
    if pat.is_decimal(kind):
        return pa.scalar(Decimal(0), kind)
    width = pa.int32() if pat.is_date32(kind) else pa.int64()
    return pa.scalar(0, width).cast(kind)


class _Spool:
    """Appends rows to one file per table."""

    def __init__(self, folder: str, number: int) -> None:
        self._folder = folder
        self._number = number
        self._files: dict[str, tuple[str, pa.ipc.RecordBatchFileWriter]] = {}
        self._rows: Counter[str] = Counter()

    def add(self, table_key: str, rows: pa.Table) -> None:
        try:
            if table_key not in self._files:
                name = f"rows-{self._number:06}-{len(self._files)}-{secrets.token_hex(4)}.arrow"
                path = str(Path(self._folder, name))
                self._files[table_key] = path, pa.ipc.new_file(path, rows.schema)
            self._files[table_key][1].write_table(rows)
        except OSError as error:
            raise self._full(error) from error
        self._rows[table_key] += len(rows)

    def finish(self) -> dict[str, StagedTable]:
        try:
            for _, writer in self._files.values():
                writer.close()
        except OSError as error:
            raise self._full(error) from error
        return {
            key: StagedTable(rows=self._rows[key], spooled=path)
            for key, (path, _) in self._files.items()
        }

    def _full(self, error: OSError) -> StorageUnavailableError:
        return StorageUnavailableError(
            f"rows cannot be kept in the folder {self._folder}: {error}",
            next_step="Free space there, or name another folder with TMPDIR.",
        )


def _row_keeper(plan: StagingPlan, number: int) -> _FragmentWriter | _Spool:
    """What keeps the rows of a piece until every rule was checked."""
    return _FragmentWriter(plan) if plan.spool is None else _Spool(plan.spool, number)
