"""The values that existing rows will have in columns of a new schema.

Invariant: pure. A value depends on its row alone, and every value of the accepted schema has one:
no data makes it fail. The same rows give the same values in this process and in a task.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import assert_never

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.evolution.plan.columns import (
    CopyFill,
    Fill,
    FutureColumn,
    LiteralFill,
    StoredColumn,
    ValueMapping,
)
from omnigraph.evolution.plan.conversions import as_stored
from omnigraph.schema.arrow import arrow_type
from omnigraph.schema.catalog import (
    FLOATS,
    Literal,
    PropertyType,
    Scalar,
    ScalarType,
)


def future_values(batch: pa.RecordBatch, columns: Sequence[FutureColumn]) -> pa.RecordBatch:
    """Compute columns, by their new names and types, from the stored ones that they read."""
    arrays = [_values(batch, each) for each in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[each.name for each in columns])


def columns_read(columns: Iterable[FutureColumn]) -> tuple[str, ...]:
    """The stored columns that the values of these are made from, each once."""
    return tuple(dict.fromkeys(name for each in columns for name in sources_of(each)))


def sources_of(column: FutureColumn) -> tuple[str, ...]:
    """Where a value may come from: the column is null in a row exactly if all of these are.

    A column that a literal fills is never null.
    """
    stored = () if column.stored is None else (column.stored.name,)
    match column.fill:
        case CopyFill(source=source):
            return (*stored, source.name)
        case LiteralFill() | None:
            return stored
        case _:
            assert_never(column.fill)


def _values(batch: pa.RecordBatch, column: FutureColumn) -> pa.Array:
    kind = arrow_type(column.type)
    if column.stored is None:
        if column.fill is None:
            return pa.nulls(batch.num_rows, kind)
        filling = _filling(batch, column.fill, column.type)
        return pa.repeat(filling, batch.num_rows) if isinstance(filling, pa.Scalar) else filling
    values = _converted(_mapped(_stored(batch, column.stored), column.mapping), kind)
    if column.fill is None or not values.null_count:
        return values
    return pc.coalesce(values, _filling(batch, column.fill, column.type))


def _stored(batch: pa.RecordBatch, column: StoredColumn) -> pa.Array:
    return _converted(batch.column(column.name), arrow_type(column.type))


def _mapped(values: pa.Array, mapping: Sequence[ValueMapping]) -> pa.Array:
    """All values at once: the result of one pair is not an input of another."""
    if not mapping:
        return values
    old = pa.array([each.old for each in mapping], values.type)
    new = pa.array([each.new for each in mapping], values.type)
    return pc.coalesce(new.take(pc.index_in(values, value_set=old)), values)


def _converted(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)


def _filling(batch: pa.RecordBatch, fill: Fill, kind: PropertyType) -> pa.Array | pa.Scalar:
    match fill:
        case LiteralFill():
            return pa.scalar(_literal(fill.value, kind), arrow_type(kind))
        case CopyFill():
            return _converted(_stored(batch, fill.source), arrow_type(kind))
        case _:
            assert_never(fill)


def _literal(value: Literal, kind: PropertyType) -> object:
    """The value as Arrow takes it for a column of this type, rounded as its constraints are."""
    if not isinstance(kind, ScalarType):
        return value
    if kind.scalar in FLOATS:
        assert not isinstance(value, str | bool)
        return float(as_stored(value, kind.scalar))
    if kind.scalar is Scalar.DATE:
        return dt.date.fromisoformat(str(value))
    if kind.scalar is Scalar.DATETIME:
        return dt.datetime.fromisoformat(str(value))
    return value
