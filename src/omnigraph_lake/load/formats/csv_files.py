"""Read a CSV file as rows of one type and refused records.

The header is line one, and every record after it counts as one line, whatever newlines its values
contain; so a place is the number of the record. Without a header the first record is line one. A
record without any value is a blank line.

A cell without quotes and without text is null. Texts, enum values, dates and points in time are the
text of the cell; a blob is `base64:` and its data. All other values are spelt as in JSON: `true`,
`-12`, `0.5`, `[1, 2]`. A cell that is spelt otherwise is a text, and refused where the type does
not accept a text.

Invariants:
- Every record is returned once. A refused one is shown as a JSON object of its cells, or as it is
  in the file if the cells do not match the header.
- The rules for cells are the same for every type, and nothing is guessed.
- A record with too few or too many cells is refused; the others are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Semaphore
from typing import Any, BinaryIO, Final, assert_never

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.load.formats import json_record
from omnigraph_lake.load.formats.input_names import choose_columns
from omnigraph_lake.load.formats.raw_batches import RawRecords, TabularBatch, require_distinct
from omnigraph_lake.load.formats.records import (
    NOT_TEXT,
    Parsed,
    Refusal,
    SourceFile,
    Split,
    SplitEnd,
    shown_row,
)
from omnigraph_lake.load.formats.row_validator import (
    Places,
    RowValidator,
    ValidatedRows,
    in_input_order,
    together,
)
from omnigraph_lake.load.formats.splits import opened, shrunk
from omnigraph_lake.load.formats.values import (
    Column,
    dates,
    decimals,
    large_floats,
    typed_column,
    unknown_column,
)
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.arrow import arrow_type
from omnigraph_lake.schema.json_text import JsonText
from omnigraph_lake.validation.violations import Reason

# Whatever has so few digits is in the range of 64 bits.
_INTEGER: Final = r"^(0|-?[1-9][0-9]{0,17})$"
_INTEGER_BELOW: Final = 10**18
_NUMBER: Final = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_TEXTS: Final = frozenset({ct.Scalar.STRING, ct.Scalar.BLOB, ct.Scalar.DATE, ct.Scalar.DATETIME})


def cell_column(cells: pa.StringArray, kind: ct.PropertyType) -> Column:
    """The cells of one column as values; those that are not plainly one are doubted."""
    match kind:
        case ct.ScalarType(scalar=ct.Scalar.STRING | ct.Scalar.JSON) | ct.EnumType():
            column = Column(values=cells)
        case ct.ScalarType(scalar=ct.Scalar.BLOB):
            column = typed_column(cells.to_pylist(), kind) or unknown_column(len(cells), kind)
        case ct.ScalarType(scalar=(ct.Scalar.DATE | ct.Scalar.DATETIME) as scalar):
            column = dates(cells, scalar)
        case ct.ScalarType(scalar=ct.Scalar.BOOL):
            column = _booleans(cells)
        case ct.ScalarType(scalar=(ct.Scalar.F32 | ct.Scalar.F64) as scalar):
            column = _floats(cells, scalar)
        case ct.ScalarType(scalar=scalar):
            column = _integers(cells, scalar)
        case ct.DecimalType():
            column = decimals(cells, kind)
        case ct.ListType() | ct.VectorType():
            column = _lists(cells, kind)
        case _:
            assert_never(kind)
    return column


def cell_row(
    declared: ct.NodeType | ct.EdgeType, cells: Mapping[str, str | None]
) -> dict[str, object]:
    """The cells of one row as the JSON values they spell, column by column."""
    row = {
        name: cell if cell is None or _is_text(declared, name) else _json_value(cell)
        for name, cell in cells.items()
    }
    row |= {
        name: JsonText(cell)
        for name, cell in cells.items()
        if cell is not None and json_record.is_json(declared, name)
    }
    return json_record.with_stored_values(declared, row)


def _is_text(declared: ct.NodeType | ct.EdgeType, name: str) -> bool:
    prop = declared.properties.get(name)
    if prop is None or isinstance(prop.type, ct.EnumType):
        return True
    return isinstance(prop.type, ct.ScalarType) and prop.type.scalar in _TEXTS


def _json_value(cell: str) -> object:
    parsed = json_record.JsonReader().read(cell.encode())
    if isinstance(parsed, json_record.JsonValue) and isinstance(
        parsed.value, bool | int | float | list | json_record.Unheld
    ):
        return parsed.value
    return cell


def _booleans(cells: pa.StringArray) -> Column:
    plain = pc.is_in(cells, pa.array(["true", "false"]))
    values = pc.if_else(plain, pc.equal(cells, "true"), None)
    return Column(values=values, doubted=_doubted(cells, values))


def plain_integers(cells: pa.StringArray) -> pa.Int64Array | None:
    """The integers that all cells are, as `_INTEGER` spells them; cheaper than its pattern."""
    try:
        numbers = cells.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    low, high = pc.min_max(numbers).as_py().values()
    if low is None or low <= -_INTEGER_BELOW or high >= _INTEGER_BELOW:
        return None
    is_padded = pc.and_(pc.starts_with(cells, "0"), pc.greater(pc.binary_length(cells), 1))
    is_padded = pc.or_(is_padded, pc.starts_with(cells, "-0"))
    return None if pc.any(is_padded).as_py() else numbers


def _integers(cells: pa.StringArray, scalar: ct.Scalar) -> Column:
    wide = plain_integers(cells)
    if wide is None:
        plain = pc.match_substring_regex(cells, pattern=_INTEGER)
        wide = pc.if_else(plain, cells, None).cast(pa.int64())
    target = arrow_type(ct.ScalarType(scalar=scalar))
    limits = np.iinfo(str(target))  # without pandas, pyarrow 19 gives no dtype
    low, high = max(limits.min, -(2**63)), min(limits.max, 2**63 - 1)
    inside = pc.and_(pc.greater_equal(wide, low), pc.less_equal(wide, high))
    values = pc.if_else(inside, wide, None).cast(target)
    return Column(values=values, doubted=_doubted(cells, values))


def _floats(cells: pa.StringArray, scalar: ct.Scalar) -> Column:
    plain = pc.match_substring_regex(cells, pattern=_NUMBER)
    values = pc.if_else(plain, cells, None).cast(pa.float64())
    return Column(values=values, doubted=_doubted(cells, values) | large_floats(values, scalar))


def _lists(cells: pa.StringArray, kind: ct.ListType | ct.VectorType) -> Column:
    decoder = msgspec.json.Decoder(json_record.decoded_type(kind))
    lists: Sequence[Any] = [_decode(decoder, cell) for cell in cells.to_pylist()]
    column = typed_column(lists, kind) or unknown_column(len(cells), kind)
    doubted = np.array([items is None for items in lists], np.bool_) & ~_nulls(cells)
    return Column(
        values=column.values,
        doubted=doubted if column.doubted is None else doubted | column.doubted,
    )


def _decode(decoder: msgspec.json.Decoder[Any], cell: str | None) -> Any:
    if cell is None:
        return None
    try:
        return decoder.decode(cell)
    except msgspec.MsgspecError:
        return None


def _doubted(cells: pa.StringArray, values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Where there was a cell and is no value."""
    return _nulls(values) & ~_nulls(cells)


def _nulls(values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    nulls: np.ndarray[tuple[int], np.dtype[np.bool_]] = values.is_null().to_numpy(
        zero_copy_only=False
    )
    return nulls


RECORD_BYTES_MAX: Final = 8 << 20
"""A record that is longer makes the file unreadable: most likely, a quote is not closed."""
_HEADER_BYTES: Final = 64 << 10
# Arrow parses a first batch to open a file; where it ends the next block tells.
_BLOCKS_OPENED: Final = 2
_AWAITED_SECONDS: Final = 1.0
_RAW_ROWS: Final = 16_384
_LINE_END: Final = re.compile(rb"\r\n?|\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ragged:
    """A record that has not as many cells as the header."""

    place: int
    raw: bytes
    expected: int
    found: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvBatch:
    """Records in order: cells as texts, null where there is nothing between two commas.

    `lines` counts all lines of the split up to here. Its first batch has no records, only the
    header's names.
    """

    cells: pa.RecordBatch
    places: Places
    ragged: tuple[Ragged, ...]
    lines: int


def read_csv(split: Split) -> Iterator[CsvBatch]:
    """Everything a split holds; an empty file has no batch at all.

    Raises:
        InvalidInputError: the file is not CSV, or a quote in it is not closed.
    """
    with opened(split.file, until=split.end) as stream:
        yield from _CsvReader(stream, split).batches()


class _SplitBytes:
    """The bytes of a part of a file, below the header of the file if it has one."""

    def __init__(self, stream: BinaryIO, split: Split) -> None:
        self._stream = stream
        self._split = split
        has_header = split.start and not split.file.column_names
        self._header = _read_header(split.file) if has_header else b""
        self._missing = split.end - split.start
        stream.seek(split.start)

    def read(self, size: int) -> bytes:
        if self._header:
            data, self._header = self._header[:size], self._header[size:]
            return data
        data = self._stream.read(min(size, self._missing))
        if self._missing and not data:
            raise shrunk(self._split.file, found=self._split.end - self._missing)
        self._missing -= len(data)
        return data


def _read_header(file: SourceFile) -> bytes:
    data = b""
    with opened(file, until=min(_HEADER_BYTES, file.size)) as stream:
        while len(data) < RECORD_BYTES_MAX and (piece := stream.read(_HEADER_BYTES)):
            data += piece
            end = _first_record_end(data)
            if end:
                return data[:end]
    return data


def _first_record_end(data: bytes) -> int:
    """Where the first record ends; 0 if that is not in the data, or a quote is part of a value."""
    ends = (
        match for match in _LINE_END.finditer(data) if data.count(b'"', 0, match.start()) % 2 == 0
    )
    return next((match.end() for match in ends), 0)


class _WholeLines:
    """A stream whose last line is ended, and that knows whether its quotes come in pairs.

    A thread of Arrow reads it, up to 32 blocks ahead of the records that are asked for. `room` has
    the blocks that it may read now: one more for every batch.
    """

    closed = False

    def __init__(self, stream: BinaryIO | _SplitBytes) -> None:
        self._stream = stream
        self._last = b""
        self._peeked = b""
        self.quote_is_open = False
        self.room = Semaphore(_BLOCKS_OPENED)
        # A batch that is asked for may need further blocks: one may have no record.
        self.is_awaited = True

    @property
    def is_empty(self) -> bool:
        return not self._last

    def peek_record(self, size: int) -> bytes:
        """The first record, which is read again later; at most so many bytes.

        More than the record is returned where its end is not found.
        """
        self._peeked = self.read(size)
        return self._peeked[: _first_record_end(self._peeked) or None]

    def read(self, size: int) -> bytes:
        if self._peeked:
            data, self._peeked = self._peeked[:size], self._peeked[size:]
            return data
        while not self.room.acquire(timeout=_AWAITED_SECONDS) and not self.is_awaited:
            pass
        pieces: list[bytes] = []
        missing = size
        while missing and (piece := self._stream.read(missing)):
            pieces.append(piece)
            missing -= len(piece)
            self._last = piece[-1:]
        if missing and self._last not in (b"", b"\n"):
            # The header is only found if its end comes in the same piece.
            pieces.append(b"\n")
            self._last = b"\n"
        data = b"".join(pieces)
        self.quote_is_open ^= data.count(b'"') % 2 == 1
        return data


class _CsvReader:
    """Reads one file, and keeps count of its records."""

    def __init__(self, stream: BinaryIO, split: Split) -> None:
        self._file = split.file
        is_whole = split.start == 0 and split.end == split.file.size
        self._stream = _WholeLines(stream if is_whole else _SplitBytes(stream, split))
        self._aside: dict[int, Ragged] = {}
        self._lines = 0 if split.file.column_names else 1
        self._header_lines = self._lines if split.start else 0
        """Lines that are read and belong to another split."""

    def batches(self) -> Iterator[CsvBatch]:
        reader = self._opened()
        if reader is None:
            return
        last = header = pa.RecordBatch.from_pylist([], schema=reader.schema)
        try:
            yield self._batch(header)
            while (cells := self._next(reader)) is not None:
                last = cells if cells.num_rows else last
                yield self._batch(cells)
        finally:
            # The reader is released when its thread has ended.
            self._stream.is_awaited = True
            self._stream.room.release()
        if self._stream.quote_is_open and _ends_in_newline(last):
            raise self._unreadable("a quote is not closed")
        if self._aside:
            self._lines = max(self._aside) + 1
            yield self._batch(header)

    def _batch(self, cells: pa.RecordBatch) -> CsvBatch:
        places = self._place(cells.num_rows)
        passed = [place for place in self._aside if place < self._lines]
        ragged = (self._aside.pop(place) for place in passed)
        return CsvBatch(
            cells=cells,
            places=places - np.uint32(self._header_lines),
            ragged=tuple(replace(r, place=r.place - self._header_lines) for r in ragged),
            lines=self._lines - self._header_lines,
        )

    def _place(self, count: int) -> Places:
        """The places of the next records, between those that were set aside."""
        numbers = np.arange(self._lines, self._lines + count + len(self._aside))
        places = numbers[~np.isin(numbers, list(self._aside))][:count]
        if count:
            self._lines = int(places[-1]) + 1
        return places.astype(np.uint32)

    def _column_names(self) -> list[str]:
        """The names in the header, as Arrow reads them: every column is asked for as text."""
        if self._file.column_names:
            return list(self._file.column_names)
        header = self._stream.peek_record(RECORD_BYTES_MAX)
        options = csv.ParseOptions(
            delimiter=self._file.delimiter,
            newlines_in_values=True,
            invalid_row_handler=lambda _: "skip",
        )
        reader = csv.open_csv(pa.BufferReader(header), parse_options=options)
        names: list[str] = reader.schema.names
        return names

    def _opened(self) -> csv.CSVStreamingReader | None:
        try:
            names = self._column_names()
            return csv.open_csv(
                self._stream,
                read_options=csv.ReadOptions(
                    use_threads=False,
                    block_size=RECORD_BYTES_MAX,
                    column_names=self._file.column_names,
                ),
                parse_options=csv.ParseOptions(
                    delimiter=self._file.delimiter,
                    newlines_in_values=True,
                    ignore_empty_lines=False,
                    invalid_row_handler=self._set_aside,
                ),
                convert_options=csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    check_utf8=False,
                ),
            )
        except (pa.ArrowException, UnicodeDecodeError) as error:
            if self._stream.is_empty:
                return None
            raise self._unreadable(error) from error

    def _next(self, reader: csv.CSVStreamingReader) -> pa.RecordBatch | None:
        self._stream.is_awaited = True
        self._stream.room.release()
        try:
            return reader.read_next_batch()
        except StopIteration:
            return None
        except pa.ArrowException as error:
            raise self._unreadable(error) from error
        finally:
            self._stream.is_awaited = False

    def _set_aside(self, row: csv.InvalidRow) -> str:
        place = row.number - 1
        self._aside[place] = Ragged(
            place=place,
            raw=row.text.encode(errors="replace"),
            expected=row.expected_columns,
            found=row.actual_columns,
        )
        return "skip"

    def _unreadable(self, why: object) -> InvalidInputError:
        return InvalidInputError(
            f"{self._file.path} cannot be read as CSV: {why!s:.200}",
            next_step="Close every quote, and keep records below "
            f"{RECORD_BYTES_MAX >> 20} MiB; or load another format.",
        )


def _ends_in_newline(cells: pa.RecordBatch) -> bool:
    """Whether the last record could be the rest of a file after a quote."""
    if not cells.num_rows:
        return False
    last = [column.cast(pa.binary())[-1].as_py() for column in cells.columns]
    return any(cell is not None and cell.endswith(b"\n") for cell in last)


_TEXT: Final = ct.ScalarType(scalar=ct.Scalar.STRING)


def parse_csv(split: Split, validator: RowValidator) -> Iterator[Parsed]:
    """Read a split.

    Raises:
        InvalidInputError: the file is not CSV, or has different columns than the type.
    """
    lines = records = 0
    for batch in read_csv(split):
        chosen = choose_columns(
            batch.cells.schema.names,
            validator.declared,
            columns=split.file.columns,
            where=split.file.path,
        )
        has_value = _held(batch.cells)
        lines = batch.lines
        records += int(has_value.sum()) + len(batch.ragged)
        yield from in_input_order(_validate(batch, has_value, chosen, validator))
    yield SplitEnd(lines=lines, records=records)


def raw_csv(split: Split) -> Iterator[RawRecords]:
    """The records of a split without a type; blank lines are skipped."""
    for batch in read_csv(split):
        require_distinct(batch.cells.schema.names, split.file.path)
        garbled = _garbled(batch.cells)
        refusals = [_ragged(record, None) for record in batch.ragged]
        refusals += [_not_text(batch, row, None) for row in np.flatnonzero(garbled).tolist()]
        has_value = _held(batch.cells) & ~garbled
        # Fewer at a time than are read at once: what rules make of records is many times as large.
        for start in range(0, max(1, len(has_value)), _RAW_ROWS):
            part = slice(start, start + _RAW_ROWS)
            raw = TabularBatch(table=batch.cells.slice(start, _RAW_ROWS), places=batch.places[part])
            rows = np.flatnonzero(has_value[part])
            yield RawRecords(
                batch=raw if len(rows) == len(raw) else raw.take(rows),
                lines=batch.lines,
                refusals=() if start else tuple(refusals),
            )


def _held(cells: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """The records that have a value; the others are blank lines."""
    has_value = np.zeros(cells.num_rows, np.bool_)
    for column in cells.columns:
        has_value |= column.is_valid().to_numpy(zero_copy_only=False)
    return has_value


def _validate(
    batch: CsvBatch,
    has_value: npt.NDArray[np.bool_],
    chosen: dict[str, str],
    validator: RowValidator,
) -> ValidatedRows:
    garbled = _garbled(batch.cells)
    type_name = validator.declared.name
    refusals = [_ragged(record, type_name) for record in batch.ragged]
    refusals += [_not_text(batch, row, type_name) for row in np.flatnonzero(garbled).tolist()]
    read = has_value & ~garbled
    cells = batch.cells if read.all() else batch.cells.filter(pa.array(read))
    checked = _validate_cells(cells, batch.places[read], chosen, validator)
    return together([ValidatedRows(refusals=tuple(refusals)), checked])


def _validate_cells(
    cells: pa.RecordBatch, places: Places, chosen: dict[str, str], validator: RowValidator
) -> ValidatedRows:
    # The id is always there, because a table without columns has no rows.
    columns = {ID_COLUMN: pa.nulls(cells.num_rows, pa.string())}
    doubted = np.zeros(cells.num_rows, np.bool_)
    properties = validator.declared.properties
    for name, own in chosen.items():
        kind = properties[name].type if name in properties else _TEXT
        column = cell_column(cells.column(own), kind)
        columns[name] = column.values
        if column.doubted is not None:
            doubted |= column.doubted
    sure = np.flatnonzero(~doubted)
    mask = pa.array(~doubted)
    kept = {name: column.filter(mask) for name, column in columns.items()}
    passed, bad = validator.passed(kept, places[sure])
    doubted[sure[bad]] = True
    claims = [
        _claim(cells, row, int(places[row]), chosen, validator)
        for row in np.flatnonzero(doubted).tolist()
    ]
    return together([ValidatedRows(rows=(passed,)), validator.claims(claims)])


def _claim(
    cells: pa.RecordBatch, row: int, place: int, chosen: dict[str, str], validator: RowValidator
) -> json_record.Claim:
    texts = {name: cells.column(own)[row].as_py() for name, own in chosen.items()}
    return json_record.Claim(
        place=place,
        claimed=validator.declared.name,
        raw=_shown(cells, row),
        declared=validator.declared,
        row=cell_row(validator.declared, texts),
    )


def _ragged(record: Ragged, type_name: str | None) -> Refusal:
    message = f"found {record.found} cells, expected {record.expected}"
    return _refused(record.place, type_name, message, raw=record.raw)


def _not_text(batch: CsvBatch, row: int, type_name: str | None) -> Refusal:
    raw = _shown(batch.cells, row)
    return _refused(int(batch.places[row]), type_name, NOT_TEXT, raw=raw)


def _refused(place: int, type_name: str | None, message: str, *, raw: bytes) -> Refusal:
    return Refusal(
        place=place,
        type_name=type_name,
        reason=Reason.MALFORMED,
        message=message,
        raw=raw,
    )


def _shown(cells: pa.RecordBatch, row: int) -> bytes:
    return shown_row(cells.schema.names, [column[row] for column in cells.columns])


def _garbled(cells: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """The records with a cell that is not UTF-8."""
    garbled = np.zeros(cells.num_rows, np.bool_)
    for column in cells.columns:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            garbled |= [not _is_utf8(cell) for cell in column.cast(pa.binary()).to_pylist()]
    return garbled


def _is_utf8(cell: bytes | None) -> bool:
    try:
        return cell is None or isinstance(cell.decode(), str)
    except UnicodeDecodeError:
        return False
