"""Read the records of a split in any format before they have a type.

Invariant: a split gives the same records at the same places whenever it is read, in memory bounded
by a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, assert_never

import msgspec
import numpy as np
import pyarrow as pa

from omnigraph.load.formats.csv_files import raw_csv
from omnigraph.load.formats.document_files import graphml_records, json_records, not_an_object
from omnigraph.load.formats.frames import parquet_batches
from omnigraph.load.formats.raw_batches import (
    ObjectBatch,
    RawRecords,
    TabularBatch,
    require_distinct,
)
from omnigraph.load.formats.records import FileFormat, Refusal, Split
from omnigraph.load.formats.splits import LineBlock, LongLine, read_lines
from omnigraph.load.formats.table_files import table_records
from omnigraph.validation.violations import Reason

_DECODER: Final = msgspec.json.Decoder()


def read_raw(split: Split) -> Iterator[RawRecords]:
    """The records of a split, in order.

    Raises:
        NotFoundError: the file is not there.
        InvalidInputError: the file as a whole cannot be read.
        StorageUnavailableError: the file cannot be opened.
    """
    match split.file.format:
        case FileFormat.JSONL:
            return _lines(split)
        case FileFormat.CSV:
            return raw_csv(split.file)
        case FileFormat.PARQUET:
            return raw_frame(parquet_batches(split), split.file.path)
        case FileFormat.JSON:
            return json_records(split.file)
        case FileFormat.GRAPHML:
            return graphml_records(split.file)
        case FileFormat.ARROW | FileFormat.SQLITE | FileFormat.DUCKDB:
            return table_records(split.file)
        case _:
            assert_never(split.file.format)


def raw_at(split: Split, wanted: frozenset[int]) -> Iterator[tuple[int, bytes]]:
    """The records at some places, as they came."""
    for records in read_raw(split):
        batch = records.batch
        inside = np.flatnonzero(np.isin(batch.places, list(wanted)))
        for row in inside.tolist():
            yield int(batch.places[row]), batch.raw(row)


def raw_frame(batches: Iterable[pa.RecordBatch], where: str) -> Iterator[RawRecords]:
    """The rows of Arrow batches."""
    place = 0
    for batch in batches:
        require_distinct(batch.schema.names, where)
        places = np.arange(place, place + len(batch), dtype=np.uint32)
        place += len(batch)
        yield RawRecords(batch=TabularBatch(table=batch, places=places), lines=place)


def _lines(split: Split) -> Iterator[RawRecords]:
    lines = 0
    for block in read_lines(split):
        match block:
            case LineBlock():
                lines = block.first + len(block.lines)
                yield _decode(block, lines)
            case LongLine():
                lines = block.place + 1
                refusal = Refusal(
                    place=block.place,
                    type_name=None,
                    reason=Reason.MALFORMED,
                    message=f"found a line of {block.size:,} bytes, expected a shorter one",
                    raw=block.head,
                )
                empty = ObjectBatch(records=(), places=np.array([], np.uint32), show=bytes)
                yield RawRecords(batch=empty, lines=lines, refusals=(refusal,))
            case _:
                assert_never(block)


def _decode(block: LineBlock, lines: int) -> RawRecords:
    records: list[dict[str, Any]] = []
    places: list[int] = []
    refusals: list[Refusal] = []
    for number, line in enumerate(block.lines):
        if not line.strip():
            continue
        place = block.first + number
        try:
            value = _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            refusals.append(
                Refusal(
                    place=place,
                    type_name=None,
                    reason=Reason.MALFORMED,
                    message=f"found a line that is not JSON: {error!s:.100}",
                    raw=line,
                )
            )
            continue
        if isinstance(value, dict):
            records.append(value)
            places.append(place)
        else:
            refusals.append(not_an_object(place, line, value))
    first = block.first
    return RawRecords(
        batch=ObjectBatch(
            records=records,
            places=np.array(places, np.uint32),
            show=lambda row: block.lines[places[row] - first],
        ),
        lines=lines,
        refusals=tuple(refusals),
    )
