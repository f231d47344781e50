"""What passes between reading an input and writing a graph: splits, rows of a type, refusals.

Invariant: every record of a split comes out once, as a row or as a refusal, and carries its place.
Places are line indexes within the split, from zero, so a line number needs only the number of lines
of the earlier splits of the same file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

import pyarrow as pa


class FileFormat(StrEnum):
    """How a file holds records."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One input file. `type_name` is set where its records do not name their type themselves.

    `columns` maps property names to the file's own column names, for CSV and Parquet.
    """

    path: str
    format: FileFormat
    size: int
    gzipped: bool = False
    type_name: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A part of a file that one task reads; numbers follow the order of the input.

    Plain lines are cut by bytes: a split owns the lines that begin in [start, end). Parquet is cut
    by row groups, with `start` and `end` counting those. Everything else is one split.
    """

    number: int
    file: SourceFile
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRows:
    """Rows of one type that passed every check one row can pass alone, in input order."""

    table_key: str
    rows: pa.Table
    places: pa.UInt32Array


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
    """The last thing a split says: how many lines it owns, and how many records they held."""

    lines: int
    records: int


Parsed: TypeAlias = ParsedRows | RefusedRecords | SplitEnd
