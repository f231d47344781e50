"""Define what reading an input passes on to writing a graph: splits, rows of a type, refusals.

Invariants:
- Every record of a split is returned once, as a row or as a refusal, and carries its place.
- Places are line indexes within the split, from zero, so a line number needs only the number of
  lines of the earlier splits of the same file.
- Every record can be shown, also one that was never a line: a value that JSON cannot represent is
  shown as text, never omitted.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

import pyarrow as pa

from omnigraph_lake.load.formats.counts import SourceCounts
from omnigraph_lake.load.formats.mapping import SourceMapping
from omnigraph_lake.storage.objects.location import Root
from omnigraph_lake.validation.input.mentions import Mentions
from omnigraph_lake.validation.json_encoding import BLOB_PREFIX
from omnigraph_lake.validation.violations import Reason, Violation


class FileFormat(StrEnum):
    """How a file holds records. Those below the first four are read with a mapping only."""

    JSONL = "jsonl"
    JSONL_OF_0_7 = "jsonl-0.7"
    """An export of Omnigraph 0.7."""
    CSV = "csv"
    PARQUET = "parquet"
    JSON = "json"
    ARROW = "arrow"
    SQLITE = "sqlite"
    DUCKDB = "duckdb"
    GRAPHML = "graphml"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One input file. `type_name` is set where its records do not name their type themselves.

    `columns` maps property names to the file's own column names, for CSV and Parquet. `bucket` is
    set if the file is on an object store, where `tag` changes with its content.

    With a `mapping`, records have no type: its rules say what becomes of them. `table` is the part
    of a database or a document that is read. If it is an object of JSON whose members are the
    records, `key_column` is the column for their names. `delimiter` is that of a CSV file, and
    `column_names` are those of a CSV file without a header, or of records that are arrays of JSON.
    `encoding` is set if it is not UTF-8. `origin` is what a report calls the file, if it is a copy.
    """

    path: str
    format: FileFormat
    size: int
    gzipped: bool = False
    type_name: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    bucket: Root | None = None
    tag: str | None = None
    mapping: SourceMapping | None = None
    table: str = ""
    delimiter: str = ","
    column_names: tuple[str, ...] = ()
    key_column: str = ""
    encoding: str = ""
    origin: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether its bytes are what is read, so that a part of them can be."""
        return not (self.gzipped or self.encoding)

    @property
    def label(self) -> str:
        """What a report calls the file; its tables have line numbers of their own."""
        path = self.origin or self.path
        return f"{path}#{self.table}" if self.table else path


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A part of a file that one task reads; numbers follow the order of the input.

    Plain lines are cut by bytes: a split owns the lines that begin in [start, end). A CSV file is
    cut where records end; the header belongs to its first split. Parquet is cut by row groups, with
    `start` and `end` counting those. Everything else is one split.
    """

    number: int
    file: SourceFile
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRows:
    """Rows of one type that passed every check one row can pass alone, in input order.

    `mentions` says what partial records mention; None if every row mentions every column, and for
    an input that is not read as partial records.
    """

    table_key: str
    rows: pa.Table
    places: pa.UInt32Array
    mentions: Mentions | None = None
    is_derived: pa.BooleanArray | None = None
    """Which rows stand for distinct values of records; None if none does."""


REFUSED_SCHEMA: Final = pa.schema(
    [
        pa.field("place", pa.uint32(), nullable=False),
        pa.field("type", pa.string()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
        pa.field("raw", pa.binary(), nullable=False),
    ]
)
"""Refused records: `type` is the name the record claims, `raw` its bytes without the line end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecords:
    """Records that cannot become rows, one reason each: the first that was found."""

    table: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitEnd:
    """The last thing a split says: how many lines it owns, and how many records they held.

    `counts` says what became of the records, if a mapping was applied to them.
    """

    lines: int
    records: int
    counts: SourceCounts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDigests:
    """The digests of records, as hexadecimal digits, whose rows have ids that are made of them."""

    digests: pa.StringArray
    places: pa.UInt32Array


Parsed: TypeAlias = ParsedRows | RefusedRecords | RecordDigests | SplitEnd


NAME_SHOWN_MAX: Final = 128
NOT_TEXT: Final = "found bytes that are not UTF-8, expected text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One record that cannot become a row."""

    place: int
    type_name: str | None
    reason: Reason
    message: str
    raw: bytes


def refusal_of(place: int, type_name: str, violation: Violation, raw: bytes) -> Refusal:
    """The refusal of a record that would be a row if this were not wrong with it."""
    return Refusal(
        place=place,
        type_name=type_name,
        reason=violation.reason,
        message=f"{', '.join(violation.columns)}: {violation.message}",
        raw=raw,
    )


def refused_records(refusals: Iterable[Refusal]) -> RefusedRecords:
    """Refusals as a table, in input order."""
    ordered = sorted(refusals, key=lambda refusal: refusal.place)
    columns = {
        "place": [refusal.place for refusal in ordered],
        "type": [
            None if refusal.type_name is None else _storable(refusal.type_name)
            for refusal in ordered
        ],
        "reason": [refusal.reason.value for refusal in ordered],
        "message": [_storable(refusal.message) for refusal in ordered],
        "raw": [refusal.raw for refusal in ordered],
    }
    return RefusedRecords(table=pa.table(columns, schema=REFUSED_SCHEMA))


def shown_row(names: Sequence[str], cells: Sequence[pa.Scalar]) -> bytes:
    """A row as one JSON object."""
    row = {name: _plain(cell) for name, cell in zip(names, cells, strict=True)}
    return json.dumps(row, ensure_ascii=False).encode(errors="replace")


def _storable(text: str) -> str:
    clipped = text if len(text) <= 1000 else f"{text[:997]}..."
    return clipped.encode(errors="replace").decode()


def _plain(cell: pa.Scalar) -> object:
    try:
        return _json_value(cell.as_py())
    except (ValueError, OverflowError):
        return _without_python(cell)


def _without_python(cell: pa.Scalar) -> object:
    """Texts that are not UTF-8 as bytes, the year 30,000 and nanoseconds as texts."""
    for kind in (pa.binary(), pa.string()):
        try:
            return _json_value(cell.cast(kind).as_py())
        except (pa.ArrowException, ValueError):
            continue
    return f"a value of type {cell.type}"


def _json_value(value: object) -> object:
    if isinstance(value, bytes):
        return f"{BLOB_PREFIX}{base64.b64encode(value).decode()}"
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): _json_value(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | None) else str(value)
