"""Read a split of any format: as rows of types and refusals, or as raw records without a type.

Records are read again in their original form for the few that are refused after they became rows.

Invariants:
- A split gives the same records at the same places whenever it is read.
- Every record of a split is returned once, as a row that passed all checks of a single row, or as a
  refusal. The last item is `SplitEnd`.
- Memory is bounded by a block, whatever the size of the split.
- A record is shown in the same form whether it was refused alone or with others: a line as its
  bytes, a row of Parquet or CSV as one JSON object of its own columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, assert_never

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph_lake.load.formats.csv_files import parse_csv, raw_csv, read_csv
from omnigraph_lake.load.formats.document_files import graphml_records, json_records, not_an_object
from omnigraph_lake.load.formats.frames import parquet_batches, parse_parquet
from omnigraph_lake.load.formats.jsonl import parse_lines
from omnigraph_lake.load.formats.mapped import MappedParser
from omnigraph_lake.load.formats.raw_batches import (
    ObjectBatch,
    RawRecords,
    TabularBatch,
    require_distinct,
)
from omnigraph_lake.load.formats.records import FileFormat, Parsed, Refusal, Split, shown_row
from omnigraph_lake.load.formats.row_validator import RowValidator
from omnigraph_lake.load.formats.splits import (
    BLOCK_BYTES,
    LineBlock,
    LongLine,
    not_parquet,
    opened,
    read_lines,
)
from omnigraph_lake.load.formats.table_files import table_records
from omnigraph_lake.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph_lake.schema.values import float_of_text
from omnigraph_lake.validation.constraints import rules_of
from omnigraph_lake.validation.input.intake import NewIds, type_named
from omnigraph_lake.validation.violations import Reason

BLOCK_ROWS: Final = 8192
_DECODER: Final = msgspec.json.Decoder(float_hook=float_of_text)


def parse_split(  # noqa: PLR0913 - a part of a file, and how it is read
    split: Split,
    catalog: Catalog,
    *,
    new_ids: NewIds,
    block_bytes: int = BLOCK_BYTES,
    block_rows: int = BLOCK_ROWS,
    partial: bool = False,
    end_types: Mapping[str, str] | None = None,
) -> Iterator[Parsed]:
    """Read a split; what it holds comes in input order, type by type within a block.

    Args:
        split: The part of a file to read.
        catalog: The schema the records must keep.
        new_ids: Makes ids for records that need one and have none.
        block_bytes: How much text is read at once.
        block_rows: How many Parquet rows are read at once.
        partial: Records may omit properties, which their published rows then keep; the rows say
            what they mention. Without it, what is omitted is null.
        end_types: Node types of ends that records do not name, by the column of types.

    Raises:
        NotFoundError: the file is not there.
        InvalidInputError: the file as a whole cannot be read, or its columns are not the type's.
        StorageUnavailableError: the file cannot be opened.
    """
    if split.file.mapping is not None:
        parser = MappedParser(
            split.file.mapping, catalog, new_ids=new_ids, partial=partial, where=split.file.path
        )
        return parser.parse(read_raw(split))
    match split.file.format:
        case FileFormat.JSONL | FileFormat.JSONL_OF_0_7:
            return parse_lines(
                split,
                catalog,
                new_ids=new_ids,
                block_bytes=block_bytes,
                partial=partial,
                end_types=end_types,
            )
        case FileFormat.CSV | FileFormat.PARQUET:
            assert split.file.type_name is not None, "sources give such files a type"
            declared = type_named(split.file.type_name, catalog)
            validator = _validator(declared, new_ids, partial=partial, end_types=end_types)
            if split.file.format is FileFormat.CSV:
                return parse_csv(split, validator)
            return parse_parquet(split, validator, block_rows=block_rows)
        case (
            FileFormat.JSON
            | FileFormat.ARROW
            | FileFormat.SQLITE
            | FileFormat.DUCKDB
            | FileFormat.GRAPHML
        ):
            raise AssertionError("such files have a mapping")
        case _:
            assert_never(split.file.format)


def _validator(
    declared: NodeType | EdgeType,
    new_ids: NewIds,
    *,
    partial: bool,
    end_types: Mapping[str, str] | None,
) -> RowValidator:
    return RowValidator(
        declared=declared,
        rules=rules_of(declared),
        new_ids=new_ids,
        partial=partial,
        end_types=end_types or {},
    )


def raw_records(split: Split, places: Sequence[int]) -> list[bytes]:
    """The records at these places of a split, in the order asked for.

    Raises:
        InvalidInputError: the file changed since it was read.
    """
    wanted = frozenset(places)
    match split.file.format:
        case FileFormat.JSONL | FileFormat.JSONL_OF_0_7:
            raw_by_place = dict(_lines(split, wanted))
        case FileFormat.PARQUET:
            raw_by_place = dict(_rows(split, wanted))
        case FileFormat.CSV:
            raw_by_place = dict(_cells(split, wanted))
        case (
            FileFormat.JSON
            | FileFormat.ARROW
            | FileFormat.SQLITE
            | FileFormat.DUCKDB
            | FileFormat.GRAPHML
        ):
            raw_by_place = dict(_raw_at(split, wanted))
        case _:
            assert_never(split.file.format)
    return [raw_by_place[place] for place in places]


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
        behind = block.first + len(block.lines)
        while places and places[-1] < behind:
            place = places.pop()
            yield place, block.lines[place - block.first]


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
    for batch in read_csv(split):
        for position, place in enumerate(batch.places.tolist()):
            if place in wanted:
                yield place, shown_at(batch.cells, position)


def read_raw(split: Split) -> Iterator[RawRecords]:
    """The records of a split, in order.

    Raises:
        NotFoundError: the file is not there.
        InvalidInputError: the file as a whole cannot be read.
        StorageUnavailableError: the file cannot be opened.
    """
    match split.file.format:
        case FileFormat.JSONL | FileFormat.JSONL_OF_0_7:
            return _raw_lines(split)
        case FileFormat.CSV:
            return raw_csv(split)
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


def _raw_at(split: Split, wanted: frozenset[int]) -> Iterator[tuple[int, bytes]]:
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


def _raw_lines(split: Split) -> Iterator[RawRecords]:
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
        except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError) as error:
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
