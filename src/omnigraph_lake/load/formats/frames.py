"""Arrow rows of one type, from Parquet files and frames, as rows of the type and refusals.

Invariant: positions count through all batches, so a place is a row number of the input from zero;
a refused row is shown as it came, with its own column names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat

from omnigraph_lake.load.formats.input_names import choose_columns
from omnigraph_lake.load.formats.records import Parsed, Split, SplitEnd, shown_row
from omnigraph_lake.load.formats.row_validator import (
    RowValidator,
    ValidatedRows,
    in_input_order,
    together,
)
from omnigraph_lake.load.formats.splits import not_parquet, opened
from omnigraph_lake.load.formats.values import dates
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.schema.catalog import EdgeType, NodeType, Scalar, ScalarType
from omnigraph_lake.validation.constraints import TypeRules
from omnigraph_lake.validation.input.casts import unwrapped
from omnigraph_lake.validation.input.intake import NewIds

BATCH_ROWS_MAX: Final = 65_536
_BATCH_BYTES: Final = 16 << 20
_SAMPLED_ROWS: Final = 16
_SAMPLE_BYTES: Final = 64 << 10
_TIMES: Final = frozenset({Scalar.DATE, Scalar.DATETIME})


def parse_batches(  # noqa: PLR0913 - rows, their type, and how they are read
    batches: Iterable[pa.RecordBatch],
    declared: NodeType | EdgeType,
    rules: TypeRules,
    *,
    new_ids: NewIds,
    first_place: int = 0,
    partial: bool = False,
    end_types: Mapping[str, str] | None = None,
) -> Iterator[Parsed]:
    """Read batches of a frame; their columns are called like those of the type.

    With `partial`, a column that the frame does not have is kept by published rows.

    Raises:
        InvalidInputError: the frame has a column that the type does not have.
    """
    validator = RowValidator(
        declared=declared,
        rules=rules,
        new_ids=new_ids,
        partial=partial,
        end_types=end_types or {},
    )
    where = f"the frame of {declared.name}"
    return _parse(batches, validator, columns={}, where=where, first_place=first_place)


def parse_parquet(split: Split, validator: RowValidator, *, block_rows: int) -> Iterator[Parsed]:
    """Read the row groups of a split."""
    file = split.file
    batches = parquet_batches(split, block_rows=block_rows)
    return _parse(batches, validator, columns=file.columns, where=file.path, first_place=0)


def parquet_batches(split: Split, *, block_rows: int = BATCH_ROWS_MAX) -> Iterator[pa.RecordBatch]:
    """The rows of a split as they are stored; the first batch is empty and has the columns.

    Raises:
        InvalidInputError: the file is no Parquet file, or damaged.
    """
    with opened(split.file) as stream:
        try:
            reader = pq.ParquetFile(stream)
            # Without a buffer, a few rows would cost whole columns of the group.
            sampler = pq.ParquetFile(stream, metadata=reader.metadata, buffer_size=_SAMPLE_BYTES)
            yield pa.RecordBatch.from_pylist([], schema=reader.schema_arrow)
            for group in range(split.start, split.end):
                at_once = _rows_at_once(sampler, group, block_rows)
                yield from reader.iter_batches(batch_size=at_once, row_groups=[group])
        except (pa.ArrowException, OSError) as error:
            raise not_parquet(split.file, error) from error


def _rows_at_once(reader: pq.ParquetFile, group: int, block_rows: int) -> int:
    """How many rows of a group to decode together, by what its first rows need.

    A file can be far smaller than its values: a long one that repeats is stored once.
    """
    if reader.metadata.row_group(group).num_rows <= _SAMPLED_ROWS:
        return block_rows
    sample = next(reader.iter_batches(batch_size=_SAMPLED_ROWS, row_groups=[group]))
    return min(block_rows, _rows_that_fit(sample))


def _rows_that_fit(batch: pa.RecordBatch) -> int:
    """How many rows like the first ones to validate together; a dictionary is counted decoded."""
    sample = batch.slice(0, _SAMPLED_ROWS)
    size: int = sum(unwrapped(column).nbytes for column in sample.columns)
    return max(1, _BATCH_BYTES * max(1, len(sample)) // max(1, size))


def _parse(
    batches: Iterable[pa.RecordBatch],
    validator: RowValidator,
    *,
    columns: Mapping[str, str],
    where: str,
    first_place: int,
) -> Iterator[Parsed]:
    place = first_place
    for batch in batches:
        chosen = choose_columns(
            batch.schema.names, validator.declared, columns=columns, where=where
        )
        rows = min(BATCH_ROWS_MAX, _rows_that_fit(batch))
        for start in range(0, batch.num_rows, rows):
            part = batch.slice(start, rows)
            yield from in_input_order(_validate(part, chosen, validator, place))
            place += part.num_rows
    yield SplitEnd(lines=place - first_place, records=place - first_place)


def _validate(
    batch: pa.RecordBatch, chosen: Mapping[str, str], validator: RowValidator, place: int
) -> ValidatedRows:
    # The id is always there, because a table without columns has no rows.
    columns = {ID_COLUMN: pa.nulls(batch.num_rows, pa.string())}
    columns |= {name: batch.column(own) for name, own in chosen.items()}
    input_rows = pa.table(columns)
    doubted = _doubted_times(columns, validator.declared)
    sure = np.flatnonzero(~doubted)
    kept_columns = columns
    if doubted.any():
        mask = pa.array(~doubted)
        kept_columns = {name: column.filter(mask) for name, column in columns.items()}
    passed, bad = validator.passed(kept_columns, (sure + place).astype(np.uint32))
    doubted[sure[bad]] = True
    again = np.flatnonzero(doubted)
    if not len(again):
        return ValidatedRows(rows=(passed,))
    raws = [
        shown_row(batch.schema.names, [column[row] for column in batch.columns])
        for row in again.tolist()
    ]
    in_words = validator.rows(input_rows.take(pa.array(again)), (again + place).tolist(), raws)
    return together([ValidatedRows(rows=(passed,)), in_words])


def _doubted_times(
    columns: dict[str, pa.Array], declared: NodeType | EdgeType
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Turn texts into dates all at once; the rows where that fails are for the slow way."""
    doubted = np.zeros(len(columns[ID_COLUMN]), np.bool_)
    for name, column in columns.items():
        prop = declared.properties.get(name)
        if prop is None or not isinstance(prop.type, ScalarType) or prop.type.scalar not in _TIMES:
            continue
        plain = unwrapped(column)
        if pat.is_string(plain.type) or pat.is_large_string(plain.type):
            date_column = dates(plain.cast(pa.string()), prop.type.scalar)
            columns[name] = date_column.values
            if date_column.doubted is not None:
                doubted |= date_column.doubted
    return doubted
