"""Arrow data that leaves Omnigraph, as Python values.

A stored column of `Json` is plain text, because the catalog says what it holds. Results leave the
catalog behind, so their fields carry a mark.

Invariants:

- A marked field holds canonical texts and nulls.
- Every value that a table can hold is read. Python has no times outside of the years 1 to 9999;
  those are texts. Writes refuse them, but earlier programs stored them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake.names import JSON_KEY
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.json_text import python_value

JSON_FIELD: Final = {JSON_KEY: "true"}
"""The metadata of a marked field."""
_JSON: Final = ct.ScalarType(scalar=ct.Scalar.JSON)

_ENDS: Final = (
    dt.datetime.min.replace(tzinfo=dt.UTC),
    dt.datetime.max.replace(tzinfo=dt.UTC),
)
"""The first and the last time that Python has."""

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
    dicts = plain_rows(rows)
    replace_json(dicts, schema, python_value)
    return dicts


def python_column(values: pa.Array | pa.ChunkedArray, field: pa.Field) -> list[Any]:
    """The values of a column; `field` has the marks, and values of `Json` are what they mean."""
    column = plain_column(values)
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


def plain_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as dicts."""
    try:
        return list(rows.to_pylist())
    except (OverflowError, ValueError):
        columns = [map(plain_value, column) for column in rows.columns]
        names = rows.schema.names
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def plain_column(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return list(map(plain_value, column))


def plain_value(value: pa.Scalar) -> Any:
    """A value; a time that Python has not is a text."""
    try:
        return value.as_py()
    except UnicodeDecodeError:
        raise
    except (OverflowError, ValueError):
        if pat.is_struct(value.type):
            return {name: plain_value(part) for name, part in value.items()}
        if pat.is_list(value.type):
            return list(map(plain_value, value.values))
        return _time_text(value)


def outside_the_years(times: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """True for dates and times that are not in the years 1 to 9999; null for null."""
    if pat.is_date(times.type):
        least, most = (pa.scalar(end, times.type) for end in (dt.date.min, dt.date.max))
    else:
        ends = pa.array(_ENDS, pa.timestamp("us", times.type.tz))
        least, most = ends.cast(times.type, safe=False)
    return pc.or_(pc.less(times, least), pc.greater(times, most))


def time_texts(times: pa.Array) -> list[str | None]:
    """Dates and times as ISO 8601 spells them, also outside of the years that it has."""
    texts = pc.replace_substring(times.cast(pa.string()), pattern=" ", replacement="T").to_pylist()
    if pat.is_date(times.type) or pat.is_timestamp(times.type):
        for place in np.flatnonzero(outside_the_years(times).fill_null(fill_value=False)):
            texts[place] = _time_text(times[place])  # Arrow keeps 16 bits of a year
    return list(texts)


def _time_text(time: pa.Scalar) -> str:
    kind = time.type
    text = str(np.datetime64(time.value, kind.unit if pat.is_timestamp(kind) else "D"))
    return f"{text}Z" if pat.is_timestamp(kind) and kind.tz is not None else text
