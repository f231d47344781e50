"""Bring rows of one schema to another one, by the conversions of the changes in between.

A commit that changes the schema records what it wrote into rows: the fills and the mappings, by the
numbers of types and properties. Names and types follow from the two catalogs. So rows that were
written elsewhere under the old schema get the values that the change would have given them.

Invariants:
- Pure: a lifted row depends on the row and on the recorded changes alone. The same rows give the
  same values in this process and in a Spark task.
- A row that a change converted equals the lifted row that it was before, unless the values of the
  change are not known. Older commits recorded none: then new properties are null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from omnigraph_lake.evolution.plan import columns as ec
from omnigraph_lake.evolution.plan.plan import Step
from omnigraph_lake.evolution.table_changes import (
    WrittenValues,
    future_columns,
    future_values,
    sources_of,
    stores_alike,
    values_of,
)
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.arrow import arrow_type, table_schema
from omnigraph_lake.schema.model import model_hash
from omnigraph_lake.storage.staging import column_layout

Declared: TypeAlias = ct.NodeType | ct.EdgeType


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaStep:
    """One change of a schema, and what is known of the values that it wrote into rows."""

    before: ct.Catalog
    after: ct.Catalog
    values: WrittenValues
    is_known: bool = True
    """Whether it wrote no other values."""


def encode_values(values: WrittenValues, before: ct.Catalog) -> list[dict[str, Any]]:
    """The values of one change as JSON."""
    types = {declared.number: declared for declared in before.tables().values()}
    return [
        {
            "type": type_number,
            "property": number,
            **_fill_json(values.fills.get((type_number, number)), types.get(type_number)),
            **_mapping_json(values.mappings.get((type_number, number), ())),
        }
        for type_number, number in sorted({*values.fills, *values.mappings})
        if type_number in types
    ]


def _fill_json(fill: ec.Fill | None, declared: Declared | None) -> dict[str, Any]:
    match fill:
        case None:
            return {}
        case ec.LiteralFill(value=Decimal() as value):
            return {"decimal": f"{value:f}"}
        case ec.LiteralFill(value=value):
            return {"value": value}
        case ec.CopyFill(source=source, otherwise=otherwise):
            assert declared is not None
            copied = {"copy": declared.properties[source.name].number}
            return {**copied, **_fill_json(otherwise, None)}


def _mapping_json(mapping: Sequence[ec.ValueMapping]) -> dict[str, Any]:
    return {"mapping": [[pair.old, pair.new] for pair in mapping]} if mapping else {}


def decode_values(values: Sequence[Mapping[str, Any]], before: ct.Catalog) -> WrittenValues:
    """What `encode_values` wrote of a change of this catalog.

    Raises:
        KeyError: a copied property is not one of the catalog.
    """
    types = {declared.number: declared for declared in before.tables().values()}
    fills: dict[tuple[int, int], ec.Fill] = {}
    mappings: dict[tuple[int, int], tuple[ec.ValueMapping, ...]] = {}
    for value in values:
        place = int(value["type"]), int(value["property"])
        literal: ec.LiteralFill | None = None
        if "decimal" in value:
            literal = ec.LiteralFill(value=Decimal(value["decimal"]))
        elif "value" in value:
            literal = ec.LiteralFill(value=value["value"])
        if "copy" in value:
            numbered = {prop.number: prop for prop in types[place[0]].properties.values()}
            source = ec.stored_column(numbered[int(value["copy"])])
            fills[place] = ec.CopyFill(source=source, otherwise=literal)
        elif literal is not None:
            fills[place] = literal
        if "mapping" in value:
            mappings[place] = tuple(
                ec.ValueMapping(old=old, new=new) for old, new in value["mapping"]
            )
    return WrittenValues(fills=fills, mappings=mappings)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """A change of a schema as a commit records it: two hashes, and the values if they are known."""

    before: str
    after: str
    values: tuple[Mapping[str, Any], ...] | None
    same: tuple[tuple[int, int], ...] = ()
    """Numbers that a merge took for one: that of the source, and that of the target."""
    is_of_source: bool = False
    """Whether it leads from the schema of the source of a merge, not from that of the target."""


def describe_change(before: ct.Catalog, after: ct.Catalog, steps: Iterable[Step]) -> str:
    """What the commit of one change records."""
    values = tuple(encode_values(values_of(steps), before))
    return encode_steps(
        [RecordedStep(before=model_hash(before), after=model_hash(after), values=values)]
    )


def encode_steps(steps: Iterable[RecordedStep]) -> str:
    """What a commit records of its change: one step, or those that a merge brought."""
    return json.dumps(
        [
            {
                "before": step.before,
                "after": step.after,
                "values": step.values,
                **({"same": step.same} if step.same else {}),
                **({"source": True} if step.is_of_source else {}),
            }
            for step in steps
        ],
        sort_keys=True,
    )


def decode_steps(text: str) -> tuple[RecordedStep, ...]:
    """What `encode_steps` wrote."""
    return tuple(
        RecordedStep(
            before=str(step["before"]),
            after=str(step["after"]),
            values=None if step["values"] is None else tuple(step["values"]),
            same=tuple((int(number), int(other)) for number, other in step.get("same", ())),
            is_of_source=bool(step.get("source")),
        )
        for step in json.loads(text)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLift:
    """How rows of one type are brought to another schema: the columns after every step."""

    steps: tuple[tuple[ec.FutureColumn, ...], ...]
    stored: pa.Schema = field(repr=False)
    schema: pa.Schema = field(repr=False)
    is_known: bool
    """Whether every value is known; otherwise rows have to be compared with the converted ones."""

    @property
    def is_needed(self) -> bool:
        """Whether a row looks different afterwards."""
        return self.columns is not None or self.stored.names != self.schema.names

    @property
    def columns(self) -> column_layout.ColumnChange | None:
        """The change of a stored table; None if it stays as it is."""
        wanted = tuple(self._place(arrow_field) for arrow_field in self.schema)
        computed = [
            column.field.name
            for column in wanted
            if isinstance(column, column_layout.ComputedColumn)
        ]
        if not computed and self.schema.equals(self.stored, check_metadata=True):
            return None
        reads = tuple(sorted(self._stages(computed)[0])) if computed else ()
        return column_layout.ColumnChange(columns=wanted, reads=reads)

    @property
    def computed(self) -> tuple[str, ...]:
        """The columns whose values are computed."""
        return tuple(
            arrow_field.name
            for arrow_field in self.schema
            if isinstance(self._place(arrow_field), column_layout.ComputedColumn)
        )

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """All columns of these rows as they are afterwards."""
        return self.lift(rows, self.schema.names)

    def compute(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The computed columns, of rows with the columns that these are made from."""
        return self.lift(rows, self.computed)

    def lift(self, rows: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        """Some columns of rows that have at least what these are made from."""
        if not columns:
            return rows.select([])
        stages = self._stages(columns)
        for step, needed in zip(self.steps, stages[1:], strict=True):
            properties = {column.name for column in step}
            kept = [name for name in rows.schema.names if name in needed - properties]
            values = future_values(rows, [column for column in step if column.name in needed])
            if not kept and not values.columns:
                rows = rows.select([])  # what follows needs their number
                continue
            rows = pa.RecordBatch.from_arrays(
                [*(rows.column(name) for name in kept), *values.columns],
                names=[*kept, *values.schema.names],
            )
        fields = [(name, self.schema.field(name).type) for name in columns]
        return pa.RecordBatch.from_arrays(
            [rows.column(name) for name in columns], schema=pa.schema(fields)
        )

    @property
    def lifted(self) -> pa.Schema:
        """The columns of lifted rows, any of which may be null."""
        return pa.schema([(arrow_field.name, arrow_field.type) for arrow_field in self.schema])

    def sources(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The stored columns that some columns are made from."""
        return tuple(sorted(self._stages(columns)[0]))

    def name_of_stored(self, column: str) -> str | None:
        """The stored column with the values of a column; None if they are computed or new."""
        wanted = self._place(self.schema.field(column))
        return wanted.stored if isinstance(wanted, column_layout.KeptColumn) else None

    def _stages(self, columns: Iterable[str]) -> list[set[str]]:
        """The names of columns that are needed before the first step, after it, and so on."""
        stages = [set(columns)]
        for step in reversed(self.steps):
            future = {column.name: column for column in step}
            stages.append(
                {
                    source
                    for name in stages[-1]
                    for source in (sources_of(future[name]) if name in future else (name,))
                }
            )
        return stages[::-1]

    def _place(self, arrow_field: pa.Field) -> column_layout.WantedColumn:
        name = arrow_field.name
        for step in reversed(self.steps):
            column = next((column for column in step if column.name == name), None)
            if column is None:
                continue  # not a property: it keeps its name
            if column.is_null:
                return column_layout.NullColumn(field=arrow_field)
            if column.stored is None or not column.is_untouched:
                return column_layout.ComputedColumn(field=arrow_field)
            if not stores_alike(column.stored.type, column.type):
                return column_layout.ComputedColumn(field=arrow_field)
            name = column.stored.name
        return column_layout.KeptColumn(field=arrow_field, stored=name)


def table_lift(steps: Sequence[SchemaStep], number: int) -> TableLift | None:
    """How rows of the type with a number are lifted; None if it is not there all the way."""
    if not steps:
        return None
    lifted: list[tuple[ec.FutureColumn, ...]] = []
    for step in steps:
        before, after = (_of_number(catalog, number) for catalog in (step.before, step.after))
        if before is None or after is None:
            return None
        lifted.append(tuple(future_columns(before, after, step.values)))
    first, last = _of_number(steps[0].before, number), _of_number(steps[-1].after, number)
    assert first is not None
    assert last is not None
    return TableLift(
        steps=tuple(lifted),
        stored=table_schema(first),
        schema=table_schema(last),
        is_known=all(step.is_known or _is_same(step, number) for step in steps),
    )


def _is_same(step: SchemaStep, number: int) -> bool:
    return _of_number(step.before, number) == _of_number(step.after, number)


def _of_number(catalog: ct.Catalog, number: int) -> Declared | None:
    declared_types = catalog.tables().values()
    return next((declared for declared in declared_types if declared.number == number), None)


def missing_properties(stored: ct.Catalog, merged: ct.Catalog, number: int) -> frozenset[str]:
    """The properties of a type, by their new names, that a schema has no column for."""
    before, after = (_of_number(catalog, number) for catalog in (stored, merged))
    assert after is not None
    known = set() if before is None else {prop.number for prop in before.properties.values()}
    return frozenset(prop.name for prop in after.properties.values() if prop.number not in known)


def properties_to_drop(stored: ct.Catalog, merged: ct.Catalog, number: int) -> tuple[str, ...]:
    """The properties of a type, by their stored names, that another schema has no column for."""
    before, after = (_of_number(catalog, number) for catalog in (stored, merged))
    assert before is not None
    kept = set() if after is None else {prop.number for prop in after.properties.values()}
    return tuple(prop.name for prop in before.properties.values() if prop.number not in kept)


def properties_to_narrow(
    stored: ct.Catalog, merged: ct.Catalog, number: int
) -> tuple[tuple[str, ct.PropertyType], ...]:
    """The numbers among the properties of a type whose type in another schema may not hold them.

    By their stored names, with the other type. Only going back to an earlier schema narrows.
    """
    before, after = (_of_number(catalog, number) for catalog in (stored, merged))
    if before is None or after is None:
        return ()
    types = {prop.number: prop.type for prop in after.properties.values()}
    return tuple(
        (prop.name, types[prop.number])
        for prop in before.properties.values()
        if prop.number in types
        and arrow_type(prop.type) != arrow_type(types[prop.number])
        and not ec.widens(prop.type, types[prop.number])
    )
