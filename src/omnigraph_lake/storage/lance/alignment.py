"""Rows as Lance takes them over: decimals begin where a number of 128 bits may begin.

Arrow's files and streams align buffers to 8 bytes, Lance takes over decimals at multiples of 16 and
fails otherwise.

Invariant: values never change; columns without decimals are not copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.types as pat

_BYTES: Final = 16


def align_table(rows: pa.Table) -> pa.Table:
    """The same table with decimals that Lance takes over."""
    for place in _decimal_places(rows.schema):
        chunks = [_align(chunk) for chunk in rows.column(place).chunks]
        field = rows.schema.field(place)
        rows = rows.set_column(place, field, pa.chunked_array(chunks, field.type))
    return rows


def align_rows(rows: pa.Table | pa.RecordBatchReader) -> pa.Table | pa.RecordBatchReader:
    """The same rows with decimals that Lance takes over."""
    if not _decimal_places(rows.schema):
        return rows
    if isinstance(rows, pa.Table):
        return align_table(rows)
    return pa.RecordBatchReader.from_batches(rows.schema, _align_batches(rows))


def _align_batches(rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        columns = [_align(column) for column in batch.columns]
        yield pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _decimal_places(schema: pa.Schema) -> list[int]:
    return [place for place, kind in enumerate(schema.types) if pat.is_decimal(kind)]


def _align(column: pa.Array) -> pa.Array:
    if not pat.is_decimal(column.type):
        return column
    _, values = column.buffers()
    if values is None or values.address % _BYTES == 0:
        return column
    # Two arrays are joined in memory of their own, which Arrow aligns to 64 bytes.
    return pa.concat_arrays([column, column.slice(0, 0)])
