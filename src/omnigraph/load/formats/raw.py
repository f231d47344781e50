"""Records as they came, read again for the few that are set aside after they had become rows.

Invariant: what is shown of a record is the same whether it was refused alone or with others: a line
as its bytes, a row of Parquet or CSV as one JSON object of its own columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.load.formats.csv_records import read_csv
from omnigraph.load.formats.lines import LineBlock, read_lines
from omnigraph.load.formats.records import FileFormat, Split
from omnigraph.load.formats.refusals import shown_row
from omnigraph.load.formats.splits import not_parquet
from omnigraph.load.formats.streams import opened


def raw_records(split: Split, places: Sequence[int]) -> list[bytes]:
    """The records at these places of a split, in the order asked for.

    Raises:
        InvalidInputError: the file changed since it was read.
    """
    wanted = frozenset(places)
    match split.file.format:
        case FileFormat.JSONL:
            found = dict(_lines(split, wanted))
        case FileFormat.PARQUET:
            found = dict(_rows(split, wanted))
        case FileFormat.CSV:
            found = dict(_cells(split, wanted))
        case _:
            assert_never(split.file.format)
    return [found[place] for place in places]


def shown_at(rows: pa.Table | pa.RecordBatch, position: int) -> bytes:
    """One row of Arrow data as a JSON object."""
    return shown_row(rows.schema.names, [column[position] for column in rows.columns])


def _lines(split: Split, wanted: frozenset[int]) -> Iterator[tuple[int, bytes]]:
    places = sorted(wanted, reverse=True)
    for block in read_lines(split):
        if not places:
            return
        if not isinstance(block, LineBlock):
            continue
        behind = block.first + block.data.count(b"\n") + (not block.data.endswith(b"\n"))
        if places[-1] >= behind:
            continue
        lines = block.lines()
        while places and places[-1] < behind:
            place = places.pop()
            yield place, lines[place - block.first]


def _rows(split: Split, wanted: frozenset[int]) -> Iterator[tuple[int, bytes]]:
    with opened(split.file) as stream:
        try:
            reader = pq.ParquetFile(stream)
            first = 0
            for batch in reader.iter_batches(row_groups=list(range(split.start, split.end))):
                for place in wanted.intersection(range(first, first + batch.num_rows)):
                    yield place, shown_at(batch, place - first)
                first += batch.num_rows
        except pa.ArrowException as error:
            raise not_parquet(split.file, error) from error


def _cells(split: Split, wanted: frozenset[int]) -> Iterator[tuple[int, bytes]]:
    for batch in read_csv(split.file):
        for position, place in enumerate(batch.places.tolist()):
            if place in wanted:
                yield place, shown_at(batch.cells, position)
