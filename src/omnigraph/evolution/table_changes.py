"""From the plan of a schema change to the change of every stored table.

Invariant: pure; it depends on the two catalogs and the steps between them, and reads no table. The
new schema of a table is the Arrow schema of its target type, and only values that a step writes are
computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa

from omnigraph.evolution.future_values import columns_read
from omnigraph.evolution.plan.columns import (
    Fill,
    FutureColumn,
    ValueMapping,
    stored_column,
)
from omnigraph.evolution.plan.plan import Step
from omnigraph.evolution.plan.planning import Evolution
from omnigraph.evolution.plan.property_steps import AddProperty, MakeRequired, MapValues
from omnigraph.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph.schema.arrow import arrow_type, table_schema
from omnigraph.schema.catalog import EdgeType, NodeType, Property
from omnigraph.storage.staging.column_layout import (
    ColumnChange,
    ComputedColumn,
    KeptColumn,
    NullColumn,
    WantedColumn,
)

_SYSTEM_COLUMNS: Final = frozenset({ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN})
_Number: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """A table that is kept: its keys before and after, and its columns after.

    Without `columns` the table itself stays as it is. `computed` says what the computed columns
    among them hold, in the same order.
    """

    stored_key: str
    new_key: str
    columns: ColumnChange | None
    computed: tuple[FutureColumn, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """What steps write into existing rows, by the numbers of type and property."""

    fills: Mapping[_Number, Fill] = field(default_factory=dict)
    mappings: Mapping[_Number, tuple[ValueMapping, ...]] = field(default_factory=dict)


def table_changes(evolution: Evolution) -> tuple[TableChange, ...]:
    """One change per node and edge type that is kept, in the order of the target catalog."""
    assert evolution.plan.supported, "a plan with refusals is not applied"
    written = _written(evolution.plan.steps)
    stored = {each.number: (key, each) for key, each in evolution.accepted.tables().items()}
    return tuple(
        _table_change(*stored[after.number], new_key, after, written)
        for new_key, after in evolution.target.tables().items()
        if after.number in stored
    )


def _written(steps: Iterable[Step]) -> _Written:
    fills: dict[_Number, Fill] = {}
    mappings: dict[_Number, tuple[ValueMapping, ...]] = {}
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
    return _Written(fills=fills, mappings=mappings)


def _table_change(
    stored_key: str,
    before: NodeType | EdgeType,
    new_key: str,
    after: NodeType | EdgeType,
    written: _Written,
) -> TableChange:
    future = {each.name: each for each in _future_columns(before, after, written)}
    schema = table_schema(after)
    wanted = tuple(_wanted(each, future.get(each.name)) for each in schema)
    computed = tuple(future[each.field.name] for each in wanted if isinstance(each, ComputedColumn))
    if not computed and schema.equals(table_schema(before), check_metadata=True):
        return TableChange(stored_key=stored_key, new_key=new_key, columns=None)
    return TableChange(
        stored_key=stored_key,
        new_key=new_key,
        columns=ColumnChange(columns=wanted, reads=columns_read(computed)),
        computed=computed,
    )


def _future_columns(
    before: NodeType | EdgeType, after: NodeType | EdgeType, written: _Written
) -> Iterator[FutureColumn]:
    stored: dict[int, Property] = {each.number: each for each in before.properties.values()}
    for each in after.properties.values():
        old = stored.get(each.number)
        number = (after.number, each.number)
        yield FutureColumn(
            name=each.name,
            type=each.type,
            stored=None if old is None else stored_column(old),
            mapping=written.mappings.get(number, ()),
            fill=written.fills.get(number),
        )


def _wanted(field: pa.Field, column: FutureColumn | None) -> WantedColumn:
    if column is None:
        assert field.name in _SYSTEM_COLUMNS, "every other column is a property"
        return KeptColumn(field=field, stored=field.name)
    if column.is_null:
        return NullColumn(field=field)
    if column.stored is None or not column.is_untouched:
        return ComputedColumn(field=field)
    # Enums and strings are stored alike; a wider number is not.
    if arrow_type(column.stored.type) != arrow_type(column.type):
        return ComputedColumn(field=field)
    return KeptColumn(field=field, stored=column.stored.name)
