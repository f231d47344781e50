"""Values of the query language as DuckDB spells them.

Invariant: a literal has exactly the SQL type of its declared type and exactly its value, whatever
the session is set to: every one carries its cast, and no number goes through a decimal.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import Final, assert_never

from omnigraph.query.binding import BoundValue
from omnigraph.query.types import EdgeOf, ExpressionType, NodeOf, NullType, PathOf
from omnigraph.schema.catalog import EnumType, ListType, Scalar, ScalarType, VectorType

_SQL_TYPES: Final = {
    Scalar.STRING: "VARCHAR",
    Scalar.BLOB: "BLOB",
    Scalar.BOOL: "BOOLEAN",
    Scalar.I32: "INTEGER",
    Scalar.I64: "BIGINT",
    Scalar.U32: "UINTEGER",
    Scalar.U64: "UBIGINT",
    Scalar.F32: "FLOAT",
    Scalar.F64: "DOUBLE",
    Scalar.DATE: "DATE",
    Scalar.DATETIME: "TIMESTAMPTZ",
}


def sql_type(each: ExpressionType) -> str:
    """The type of a column that holds such values."""
    match each:
        case ScalarType():
            return _SQL_TYPES[each.scalar]
        case EnumType():
            return "VARCHAR"
        case ListType():
            return f"{_SQL_TYPES[each.item]}[]"
        case VectorType():
            return f"FLOAT[{each.size}]"
        case NullType():
            return '"NULL"'
        case NodeOf() | EdgeOf() | PathOf():
            raise AssertionError("an entity or a path is columns, never one value")
        case _:
            assert_never(each)


def literal(value: BoundValue, declared: ExpressionType) -> str:
    """A value of a type as SQL text; null is a null of that type."""
    if value is None:
        return "NULL" if isinstance(declared, NullType) else f"CAST(NULL AS {sql_type(declared)})"
    match declared:
        case ScalarType():
            return scalar_literal(value, declared.scalar)
        case EnumType():
            return scalar_literal(value, Scalar.STRING)
        case ListType():
            return f"CAST([{_items(value, declared.item)}] AS {sql_type(declared)})"
        case VectorType():
            return f"CAST([{_items(value, Scalar.F32)}] AS {sql_type(declared)})"
        case NullType():
            assert value == ()
            return "[]"
        case NodeOf() | EdgeOf() | PathOf():
            raise AssertionError("no literal is an entity or a path")
        case _:
            assert_never(declared)


def scalar_literal(  # noqa: PLR0911 - one per type
    value: BoundValue, scalar: Scalar
) -> str:
    """A single value; None is a null of the type."""
    if value is None:
        return f"CAST(NULL AS {_SQL_TYPES[scalar]})"
    match scalar:
        case Scalar.STRING:
            assert isinstance(value, str)
            return f"CAST({quoted(value)} AS VARCHAR)"
        case Scalar.BLOB:
            return _blob(value)
        case Scalar.BOOL:
            return "true" if value else "false"
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            assert isinstance(value, int)
            return f"CAST({value} AS {_SQL_TYPES[scalar]})"
        case Scalar.F32 | Scalar.F64:
            assert isinstance(value, int | float)
            return f"CAST('{_number(float(value))}' AS {_SQL_TYPES[scalar]})"
        case Scalar.DATE:
            assert isinstance(value, dt.date)
            return f"CAST('{value.isoformat()}' AS DATE)"
        case Scalar.DATETIME:
            assert isinstance(value, dt.datetime)
            plain = value.astimezone(dt.UTC).replace(tzinfo=None)
            return f"CAST('{plain.isoformat(sep=' ')}+00' AS TIMESTAMPTZ)"
        case _:
            assert_never(scalar)


def quoted(text: str) -> str:
    """A string as SQL spells it; only the quote is escaped."""
    return "'" + text.replace("'", "''") + "'"


def name(text: str) -> str:
    """A column or table as SQL spells it."""
    return '"' + text.replace('"', '""') + '"'


def _items(value: BoundValue, item: Scalar) -> str:
    assert isinstance(value, tuple)
    return ", ".join(scalar_literal(each, item) for each in value)


def _blob(value: BoundValue) -> str:
    """Bytes are a blob; text names one, so it stays text for the caller that fetches it."""
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    assert isinstance(value, str)
    return f"CAST({quoted(value)} AS VARCHAR)"


def _number(value: float) -> str:
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)
