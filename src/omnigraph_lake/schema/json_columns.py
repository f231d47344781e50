"""Columns of `Json` in Arrow data that leaves Omnigraph: marked by their field, read as values.

A stored column is plain text, because the catalog says what it holds. Results leave the catalog
behind, so their fields carry a mark.

Invariant: a marked field holds canonical texts and nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.types as pat

from omnigraph_lake.names import JSON_KEY
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.json_text import python_value

JSON_FIELD: Final = {JSON_KEY: "true"}
"""The metadata of a marked field."""
_JSON: Final = ct.ScalarType(scalar=ct.Scalar.JSON)

_Reading: TypeAlias = Callable[[Any], object]


def result_field(name: str, kind: pa.DataType, declared: object, *, nullable: bool) -> pa.Field:
    """A field of a result, with the mark if it is declared to be `Json`."""
    metadata = JSON_FIELD if declared == _JSON else None
    return pa.field(name, kind, nullable=nullable, metadata=metadata)


def with_json_marks(declared: ct.NodeType | ct.EdgeType, schema: pa.Schema) -> pa.Schema:
    """The columns of a table that leave it, with the marks of its type."""
    for place, field in enumerate(schema):
        prop = declared.properties.get(field.name)
        if prop is not None and prop.type == _JSON:
            metadata = {**(field.metadata or {}), **JSON_FIELD}
            schema = schema.set(place, field.with_metadata(metadata))
    return schema


def is_json(field: pa.Field) -> bool:
    """Whether a field has the mark."""
    return JSON_KEY.encode() in (field.metadata or {})


def python_rows(rows: pa.Table | pa.RecordBatch, schema: pa.Schema) -> list[dict[str, Any]]:
    """Rows as dicts; `schema` has the marks, and values of `Json` are what they mean."""
    dicts: list[dict[str, Any]] = rows.to_pylist()
    replace_json(dicts, schema, python_value)
    return dicts


def python_column(values: pa.Array | pa.ChunkedArray, field: pa.Field) -> list[Any]:
    """The values of a column; `field` has the marks, and values of `Json` are what they mean."""
    column: list[Any] = values.to_pylist()
    reading = _reading(field, python_value)
    return column if reading is None else [reading(value) for value in column]


def replace_json(
    rows: Iterable[dict[str, Any]], fields: Iterable[pa.Field], replacement: Callable[[str], object]
) -> None:
    """Put something else in place of the canonical texts of marked fields."""
    readings = {
        field.name: reading
        for field in fields
        if (reading := _reading(field, replacement)) is not None
    }
    if not readings:
        return
    for row in rows:
        for name, reading in readings.items():
            row[name] = reading(row[name])


def _reading(field: pa.Field, replacement: Callable[[str], object]) -> _Reading | None:
    """How a value of a field is read; None if it is taken as it is."""
    if is_json(field):
        return lambda text: None if text is None else replacement(text)
    if pat.is_struct(field.type):
        return _struct_reading(field.type, replacement)
    if pat.is_list(field.type):
        item = _reading(field.type.value_field, replacement)
        if item is not None:
            return lambda items: None if items is None else [item(value) for value in items]
    return None


def _struct_reading(kind: pa.StructType, replacement: Callable[[str], object]) -> _Reading | None:
    readings = {member.name: _reading(member, replacement) for member in kind}
    readings = {name: reading for name, reading in readings.items() if reading is not None}
    if not readings:
        return None

    def read(members: dict[str, Any] | None) -> dict[str, Any] | None:
        if members is None:
            return None
        return {
            name: value if (reading := readings.get(name)) is None else reading(value)
            for name, value in members.items()
        }

    return read
