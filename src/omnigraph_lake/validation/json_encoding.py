"""Encodes rows of a type as the JSON records that a load reads, and Arrow values as JSON.

JSON has no NaN and no infinity. Times outside of the years 1 to 9999, which only earlier programs
stored, are written as Arrow spells them, and a load rejects them by name.

Invariants:

- An encoded row reads back as an equal row, or is refused by name.
- Arrow values are neither rounded nor lost: integers are written in all their digits, and what JSON
  lacks is a text: dates, instants, blobs, `"NaN"`, `"Infinity"` and `"-Infinity"`.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable
from typing import Final, assert_never

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.names import END_TYPE_COLUMNS, ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.arrow import end_names
from omnigraph_lake.schema.python_values import is_json, time_texts
from omnigraph_lake.schema.values import spell_decimal
from omnigraph_lake.validation.violations import shown, shown_scalar

BLOB_PREFIX: Final = "base64:"
_ENCODER: Final = msgspec.json.Encoder()


def record_lines(declared: ct.NodeType | ct.EdgeType, rows: pa.RecordBatch) -> bytes:
    """One record per line, every line ended; null is written only where a default would be read.

    Ids are kept where nothing else says them: a node with a key is its key.

    Raises:
        InvalidInputError: a value has no JSON; names the type, the row and the column.
    """
    inner = {prop.name: _spelt(declared, prop, rows) for prop in declared.properties.values()}
    ids = rows.column(ID_COLUMN).to_pylist()
    match declared:
        case ct.NodeType():
            if declared.key is None:
                inner = {ID_COLUMN: ids, **inner}
            records: Iterable[object] = (
                {"type": declared.name, "data": data}
                for data in _objects(inner, len(ids), _with_default(declared))
            )
        case ct.EdgeType():
            sources = _ends(rows, SOURCE_COLUMN, declared.source)
            targets = _ends(rows, TARGET_COLUMN, declared.target)
            data = _objects({ID_COLUMN: ids, **inner}, len(ids), _with_default(declared))
            records = (
                {"edge": declared.name, "from": source, "to": target, "data": record_data}
                for source, target, record_data in zip(sources, targets, data, strict=True)
            )
        case _:
            assert_never(declared)
    return _ENCODER.encode_lines(list(records))


def _ends(rows: pa.RecordBatch, column: str, end: ct.EdgeEnd) -> list[object]:
    ids = rows.column(column).to_pylist()
    if not end.is_polymorphic:
        return list(ids)
    types = end_names(end, rows.column(END_TYPE_COLUMNS[column])).to_pylist()
    return [
        {"type": type_name, "id": node_id} for type_name, node_id in zip(types, ids, strict=True)
    ]


def _with_default(declared: ct.NodeType | ct.EdgeType) -> frozenset[str]:
    return frozenset(prop.name for prop in declared.properties.values() if prop.default is not None)


def _objects(
    columns: dict[str, list[object]], count: int, always: frozenset[str]
) -> Iterable[dict[str, object]]:
    if not columns:
        return ({} for _ in range(count))
    return (
        {
            name: value
            for name, value in zip(columns, values, strict=True)
            if value is not None or name in always
        }
        for values in zip(*columns.values(), strict=True)
    )


def _spelt(
    declared: ct.NodeType | ct.EdgeType, prop: ct.Property, rows: pa.RecordBatch
) -> list[object]:
    column = rows.column(prop.name)
    bad, json_column = _column(column, prop)
    if bad is not None and pc.any(bad).as_py():
        row = pc.index(bad, True).as_py()
        raise InvalidInputError(
            f"{declared.name} {shown(rows.column(ID_COLUMN)[row].as_py())} has "
            f"{shown_scalar(column[row])} as {prop.name}, which has no JSON",
            next_step="Export with `--format parquet`.",
        )
    return json_column


def _column(  # noqa: PLR0911 - one per type
    column: pa.Array, prop: ct.Property
) -> tuple[pa.Array | None, list[object]]:
    """Which values have no JSON, and how the others are spelt."""
    match prop.type:
        case ct.ScalarType(scalar=ct.Scalar.BLOB):
            return None, [_blob(value) for value in column]
        case ct.ScalarType(scalar=scalar) | ct.ListType(item=scalar):
            nested = isinstance(prop.type, ct.ListType)
            if scalar in ct.FLOATS:
                return _any_inside(column, _not_finite, nested=nested), column.to_pylist()
            if scalar in (ct.Scalar.DATE, ct.Scalar.DATETIME):
                return None, json_values(column)
            if scalar is ct.Scalar.JSON:
                return None, _embed(column)
            return None, column.to_pylist()
        case ct.DecimalType():
            return None, decimal_tokens(column)
        case ct.EnumType():
            return None, column.to_pylist()
        case ct.VectorType():
            return _any_inside(column, _not_finite, nested=True), column.to_pylist()
        case _:
            assert_never(prop.type)


def _any_inside(
    column: pa.Array, test: Callable[[pa.Array], pa.Array], *, nested: bool
) -> pa.BooleanArray:
    """For each value, whether it, or one of its items, fails; null never does."""
    if not nested:
        return test(column).fill_null(fill_value=False)
    failed = test(pc.list_flatten(column)).fill_null(fill_value=False)
    parents = pc.list_parent_indices(column).filter(failed)
    return pc.is_in(pa.array(range(len(column)), parents.type), parents)


def _not_finite(values: pa.Array) -> pa.Array:
    return pc.invert(pc.is_finite(values))


def _blob(value: pa.Scalar) -> str | None:
    content = value.as_py()
    return None if content is None else BLOB_PREFIX + base64.b64encode(content).decode()


def json_values(  # noqa: PLR0911 - one per kind
    values: pa.Array, described: pa.DataType | None = None
) -> list[object]:
    """Values that `msgspec` can write; decimals are tokens.

    `described` is the type of the values with marks of columns of `Json`, which are embedded;
    without it they are texts.
    """
    kind = values.type
    if pat.is_struct(kind):
        return _objects_of_json(values, described)
    if pat.is_list(kind) or pat.is_fixed_size_list(kind):
        item = None if described is None else described.value_field
        items = iter(_field_values(pc.list_flatten(values), item))
        lengths = pc.list_value_length(values).to_pylist()
        return [
            None if length is None else [next(items) for _ in range(length)] for length in lengths
        ]
    if pat.is_decimal(kind):
        return decimal_tokens(values)
    if pat.is_floating(kind):
        return [_number(value) for value in values.to_pylist()]
    if pat.is_temporal(kind):
        return list(time_texts(values))
    if pat.is_large_binary(kind):
        return [None if content is None else _blob_text(content) for content in values.to_pylist()]
    return list(values.to_pylist())


def decimal_tokens(values: pa.Array) -> list[object]:
    """Decimals as numbers of JSON in all their digits."""
    return [
        None if value is None else msgspec.Raw(spell_decimal(value)) for value in values.to_pylist()
    ]


def _field_values(values: pa.Array, described: pa.Field | None) -> list[object]:
    if described is None:
        return json_values(values)
    return _embed(values) if is_json(described) else json_values(values, described.type)


def _embed(texts: pa.Array) -> list[object]:
    """Canonical texts of JSON as they are."""
    return [None if text is None else msgspec.Raw(text.encode()) for text in texts.to_pylist()]


def _objects_of_json(values: pa.StructArray, described: pa.StructType | None) -> list[object]:
    names = [field.name for field in values.type]
    there = values.is_valid().to_pylist()
    columns = [
        _field_values(member, None if described is None else described.field(place))
        for place, member in enumerate(values.flatten())
    ]
    return [
        {name: column[row] for name, column in zip(names, columns, strict=True)}
        if present
        else None
        for row, present in enumerate(there)
    ]


def _number(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _blob_text(content: bytes) -> str:
    return BLOB_PREFIX + base64.b64encode(content).decode()
