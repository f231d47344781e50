"""The records of a CSV file as batches of cells.

Invariant: the header is line one, and every record after it counts as one line, whatever newlines
its values contain; so a place is the number of the record. A record without any value is a blank
line. One with too few or too many cells is set aside, the others are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa
from pyarrow import csv

from omnigraph.errors import InvalidInputError
from omnigraph.load.formats.records import SourceFile
from omnigraph.load.formats.row_validator import Places
from omnigraph.load.formats.streams import opened

RECORD_BYTES_MAX: Final = 8 << 20
"""A record that is longer makes the file unreadable: most likely, a quote is not closed."""


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

    `lines` counts all lines of the file up to here. The first batch of a file has no records, only
    the header's names.
    """

    cells: pa.RecordBatch
    places: Places
    ragged: tuple[Ragged, ...]
    lines: int


def read_csv(file: SourceFile) -> Iterator[CsvBatch]:
    """Everything a file holds; an empty file has no batch at all.

    Raises:
        InvalidInputError: the file is not CSV, or a quote in it is not closed.
    """
    with opened(file) as stream:
        yield from _CsvReader(stream, file).batches()


class _WholeLines:
    """A stream whose last line is ended, and that knows whether its quotes come in pairs."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._last = b""
        self.quote_is_open = False

    @property
    def is_empty(self) -> bool:
        return not self._last

    def read(self, size: int) -> bytes:
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

    def __init__(self, stream: BinaryIO, file: SourceFile) -> None:
        self._file = file
        self._stream = _WholeLines(stream)
        self._aside: dict[int, Ragged] = {}
        self._lines = 1

    def batches(self) -> Iterator[CsvBatch]:
        reader = self._opened()
        if reader is None:
            return
        last = header = pa.RecordBatch.from_pylist([], schema=reader.schema)
        yield CsvBatch(cells=header, places=np.array([], np.uint32), ragged=(), lines=self._lines)
        while (cells := self._next(reader)) is not None:
            last = cells if cells.num_rows else last
            yield self._batch(cells)
        if self._stream.quote_is_open and _ends_in_newline(last):
            raise self._unreadable("a quote is not closed")
        if self._aside:
            self._lines = max(self._aside) + 1
            yield self._batch(header)

    def _batch(self, cells: pa.RecordBatch) -> CsvBatch:
        places = self._placed(cells.num_rows)
        passed = [place for place in self._aside if place < self._lines]
        ragged = tuple(self._aside.pop(place) for place in passed)
        return CsvBatch(cells=cells, places=places, ragged=ragged, lines=self._lines)

    def _placed(self, count: int) -> Places:
        """The places of the next records, between those that were set aside."""
        numbers = np.arange(self._lines, self._lines + count + len(self._aside))
        places = numbers[~np.isin(numbers, list(self._aside))][:count]
        if count:
            self._lines = int(places[-1]) + 1
        return places.astype(np.uint32)

    def _opened(self) -> csv.CSVStreamingReader | None:
        try:
            return csv.open_csv(
                self._stream,
                read_options=csv.ReadOptions(use_threads=False, block_size=RECORD_BYTES_MAX),
                parse_options=csv.ParseOptions(
                    newlines_in_values=True,
                    ignore_empty_lines=False,
                    invalid_row_handler=self._set_aside,
                ),
                convert_options=csv.ConvertOptions(
                    default_column_type=pa.string(),
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
        try:
            return reader.read_next_batch()
        except StopIteration:
            return None
        except pa.ArrowException as error:
            raise self._unreadable(error) from error

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
