"""Derive the change of every stored table from a plan, and compute the new values of existing rows.

Invariants:
- Both are pure. A table change depends on the two catalogs and the steps between them, and reads no
  table.
- The new schema of a table is the Arrow schema of its target type, and only values that a step
  writes are computed.
- A value depends on its row alone, and every value of the accepted schema has one: no data makes
  the computation fail. The same rows give the same values in this process and in a Spark task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.evolution.plan import columns as ec
from omnigraph_lake.evolution.plan.plan import AddProperty, MakeRequired, MapValues, Step
from omnigraph_lake.names import END_TYPE_COLUMNS, SYSTEM_COLUMNS
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.arrow import arrow_type, literal_scalar, table_schema
from omnigraph_lake.schema.ends import end_type_columns
from omnigraph_lake.schema.json_text import InvalidJson, canonical_text
from omnigraph_lake.storage.staging import column_layout

if TYPE_CHECKING:
    from omnigraph_lake.evolution.plan.planning import Evolution


def future_values(batch: pa.RecordBatch, columns: Sequence[ec.FutureColumn]) -> pa.RecordBatch:
    """Compute columns, by their new names and types, from the stored ones that they read."""
    arrays = [_values(batch, column) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def columns_read(columns: Iterable[ec.FutureColumn]) -> tuple[str, ...]:
    """The stored columns that the values of these are made from, each once."""
    return tuple(dict.fromkeys(name for column in columns for name in sources_of(column)))


def sources_of(column: ec.FutureColumn) -> tuple[str, ...]:
    """Where a value may come from: the column is null in a row exactly if all of these are.

    A column that a literal fills is never null.
    """
    stored = () if column.stored is None else (column.stored.name,)
    match column.fill:
        case ec.CopyFill(source=source):
            return (*stored, source.name)
        case ec.LiteralFill() | None:
            return stored
        case _:
            assert_never(column.fill)


def _values(batch: pa.RecordBatch, column: ec.FutureColumn) -> pa.Array:
    kind = arrow_type(column.type)
    if column.stored is None:
        if column.fill is None:
            return pa.nulls(batch.num_rows, kind)
        filling = _filling(batch, column.fill, column.type)
        return pa.repeat(filling, batch.num_rows) if isinstance(filling, pa.Scalar) else filling
    values = _convert(_map(_stored(batch, column.stored), column.mapping), kind)
    if column.type == _JSON and column.stored.type != _JSON:
        values = _canonical(values)
    if column.fill is None or not values.null_count:
        return values
    return pc.coalesce(values, _filling(batch, column.fill, column.type))


def _canonical(texts: pa.Array) -> pa.Array:
    """The canonical texts; what is no JSON, or `null`, stays, for the rule of the column."""

    def canonical(text: str | None) -> str | None:
        try:
            return text and (canonical_text(text) or text)
        except InvalidJson:
            return text

    return pa.array([canonical(text) for text in texts.to_pylist()], texts.type)


def stores_alike(old: ct.PropertyType, new: ct.PropertyType) -> bool:
    """Whether stored values stay: enums are texts, and so is Json, but not every text is Json."""
    return arrow_type(old) == arrow_type(new) and (old == new or new != _JSON)


def _stored(batch: pa.RecordBatch, column: ec.StoredColumn) -> pa.Array:
    return _convert(batch.column(column.name), arrow_type(column.type))


def _map(values: pa.Array, mapping: Sequence[ec.ValueMapping]) -> pa.Array:
    """All values at once: the result of one pair is not an input of another."""
    if not mapping:
        return values
    old = pa.array([pair.old for pair in mapping], values.type)
    new = pa.array([pair.new for pair in mapping], values.type)
    return pc.coalesce(new.take(pc.index_in(values, value_set=old)), values)


def _convert(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else exact_or_null(values, kind)


def exact_or_null(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Numbers as another type; null where it has no equal one, which widening never meets."""
    is_rounded = pa.types.is_floating(values.type) and pa.types.is_floating(kind)
    if not is_rounded or kind.bit_width >= values.type.bit_width:
        with suppress(pa.ArrowInvalid):
            return values.cast(kind)
    if pa.types.is_decimal(values.type):
        converted = (_convert_one(values.slice(place, 1), kind) for place in range(len(values)))
        return pa.concat_arrays([pa.nulls(0, kind), *converted])
    converted = values.cast(kind, safe=False)
    back = converted.cast(values.type, safe=False)
    is_nan = pc.is_nan(values) if pa.types.is_floating(kind) else False
    return pc.if_else(pc.or_(pc.equal(back, values), is_nan), converted, pa.scalar(None, kind))


def _convert_one(value: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return value.cast(kind)
    except pa.ArrowInvalid:
        return pa.nulls(1, kind)


def _filling(batch: pa.RecordBatch, fill: ec.Fill, kind: ct.PropertyType) -> pa.Array | pa.Scalar:
    match fill:
        case ec.LiteralFill():
            return literal_scalar(fill.value, kind)
        case ec.CopyFill():
            copied = _convert(_stored(batch, fill.source), arrow_type(kind))
            if fill.otherwise is None:
                return copied
            return pc.coalesce(copied, literal_scalar(fill.otherwise.value, kind))
        case _:
            assert_never(fill)


_JSON: Final = ct.ScalarType(scalar=ct.Scalar.JSON)
_END_TYPE: Final = ct.ScalarType(scalar=ct.Scalar.I64)
_SYSTEM_COLUMNS: Final = frozenset({*SYSTEM_COLUMNS, *END_TYPE_COLUMNS.values()})
TypeAndProperty: TypeAlias = tuple[int, int]
"""The numbers of a type and of a property of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """A table that is kept: its keys before and after, and its columns after.

    Without `columns` the table itself stays as it is. `computed` says what the computed columns
    among them hold, in the same order.
    """

    stored_key: str
    new_key: str
    columns: column_layout.ColumnChange | None
    computed: tuple[ec.FutureColumn, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenValues:
    """What steps write into existing rows, by the numbers of type and property."""

    fills: Mapping[TypeAndProperty, ec.Fill] = field(default_factory=dict)
    mappings: Mapping[TypeAndProperty, tuple[ec.ValueMapping, ...]] = field(default_factory=dict)


def table_changes(evolution: Evolution) -> tuple[TableChange, ...]:
    """One change per node and edge type that is kept, in the order of the target catalog."""
    assert evolution.plan.supported, "a plan with refusals is not applied"
    values = values_of(evolution.plan.steps)
    stored_types = {
        declared_type.number: (key, declared_type)
        for key, declared_type in evolution.accepted.tables().items()
    }
    return tuple(
        _table_change(*stored_types[after.number], new_key, after, values)
        for new_key, after in evolution.target.tables().items()
        if after.number in stored_types
    )


def values_of(steps: Iterable[Step]) -> WrittenValues:
    """The values that steps give to existing rows."""
    fills: dict[TypeAndProperty, ec.Fill] = {}
    mappings: dict[TypeAndProperty, tuple[ec.ValueMapping, ...]] = {}
    for step in steps:
        match step:
            case AddProperty(fill=fill) if fill is not None:
                fills[step.subject.number, step.added.number] = fill
            case MakeRequired(fill=fill) if fill is not None:
                fills[step.subject.number, step.number] = fill
            case MapValues():
                mappings[step.subject.number, step.number] = step.mapping
            case _:
                continue
    return WrittenValues(fills=fills, mappings=mappings)


def _table_change(
    stored_key: str,
    before: ct.NodeType | ct.EdgeType,
    new_key: str,
    after: ct.NodeType | ct.EdgeType,
    values: WrittenValues,
) -> TableChange:
    by_name = {column.name: column for column in future_columns(before, after, values)}
    schema = table_schema(after)
    wanted_columns = tuple(
        _wanted(arrow_field, by_name.get(arrow_field.name)) for arrow_field in schema
    )
    computed_columns = tuple(
        by_name[column.field.name]
        for column in wanted_columns
        if isinstance(column, column_layout.ComputedColumn)
    )
    if not computed_columns and schema.equals(table_schema(before), check_metadata=True):
        return TableChange(stored_key=stored_key, new_key=new_key, columns=None)
    return TableChange(
        stored_key=stored_key,
        new_key=new_key,
        columns=column_layout.ColumnChange(
            columns=wanted_columns, reads=columns_read(computed_columns)
        ),
        computed=computed_columns,
    )


def future_columns(
    before: ct.NodeType | ct.EdgeType, after: ct.NodeType | ct.EdgeType, values: WrittenValues
) -> Iterator[ec.FutureColumn]:
    """The values of every property of a type in rows that are there, and new types of ends."""
    for name in end_type_columns(after):
        if name not in end_type_columns(before):
            yield ec.FutureColumn(name=name, type=_END_TYPE, stored=None)
    stored_properties: dict[int, ct.Property] = {
        prop.number: prop for prop in before.properties.values()
    }
    for prop in after.properties.values():
        old = stored_properties.get(prop.number)
        number = (after.number, prop.number)
        yield ec.FutureColumn(
            name=prop.name,
            type=prop.type,
            stored=None if old is None else ec.stored_column(old),
            mapping=values.mappings.get(number, ()),
            fill=values.fills.get(number),
        )


def _wanted(field: pa.Field, column: ec.FutureColumn | None) -> column_layout.WantedColumn:
    if column is None:
        assert field.name in _SYSTEM_COLUMNS, "every other column is a property"
        return column_layout.KeptColumn(field=field, stored=field.name)
    if column.is_null:
        return column_layout.NullColumn(field=field)
    if column.stored is None or not column.is_untouched:
        return column_layout.ComputedColumn(field=field)
    if not stores_alike(column.stored.type, column.type):
        return column_layout.ComputedColumn(field=field)
    return column_layout.KeptColumn(field=field, stored=column.stored.name)
