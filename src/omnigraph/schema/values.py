"""Literals of a schema as values of property types, and how columns compare numbers.

Invariant: an accepted literal has the type of its property, and is spelt in one way: equal values
are stored equally.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Decimal
from typing import Final, assert_never

from omnigraph.schema import ast
from omnigraph.schema import catalog as ct
from omnigraph.schema.resolve import literal_value

_LIMITS: Final = {
    ct.Scalar.I32: (-(2**31), 2**31 - 1),
    ct.Scalar.I64: (-(2**63), 2**63 - 1),
    ct.Scalar.U32: (0, 2**32 - 1),
    ct.Scalar.U64: (0, 2**64 - 1),
}


def literal_for(wanted: ct.PropertyType, argument: ast.Literal) -> tuple[ct.Literal | None, str]:
    """The value of this type that a literal means, or None and what to write instead."""
    value = literal_value(argument)
    match wanted:
        case ct.EnumType(values=values):
            text = argument.raw if isinstance(argument, ast.NumberLiteral) else _text(argument)
            return (text, "") if text in values else (None, f"write one of {', '.join(values[:8])}")
        case ct.ScalarType(scalar=scalar):
            bare = isinstance(argument, ast.Word) and argument.text not in ("true", "false")
            return (None, _expected(scalar)) if bare else _scalar(scalar, value)
        case ct.ListType() | ct.VectorType():
            return None, "lists and vectors have no literals"
        case _:
            assert_never(wanted)


def _text(argument: ast.StringLiteral | ast.Word) -> str:
    return argument.text if isinstance(argument, ast.Word) else str(literal_value(argument))


def _scalar(scalar: ct.Scalar, value: ct.Literal | None) -> tuple[ct.Literal | None, str]:
    accepted: ct.Literal | None = None
    if scalar is ct.Scalar.BOOL:
        accepted = value if isinstance(value, bool) else None
    elif isinstance(value, bool) or value is None:
        accepted = None
    elif scalar in ct.INTEGERS:
        accepted = value if isinstance(value, int) and fits(value, scalar) else None
    elif scalar in ct.FLOATS:
        accepted = value if isinstance(value, int | Decimal) and _finite(value, scalar) else None
    elif isinstance(value, str):
        accepted = _from_text(scalar, value)
    return accepted, "" if accepted is not None else _expected(scalar)


def _finite(value: int | Decimal, scalar: ct.Scalar) -> bool:
    return math.isfinite(as_stored(value, scalar))


def _from_text(scalar: ct.Scalar, value: str) -> str | None:
    try:
        if scalar is ct.Scalar.DATE:
            return dt.date.fromisoformat(value).isoformat()
        if scalar is ct.Scalar.DATETIME:
            moment = dt.datetime.fromisoformat(value)
            if moment.tzinfo is None:
                return None
            return moment.astimezone(dt.UTC).isoformat(timespec="microseconds")
    except (ValueError, OverflowError):
        return None
    return value if scalar is ct.Scalar.STRING else None


def _expected(scalar: ct.Scalar) -> str:  # noqa: PLR0911 - one per kind
    match scalar:
        case ct.Scalar.STRING:
            return "write a string in double quotes"
        case ct.Scalar.BOOL:
            return "write `true` or `false`"
        case ct.Scalar.I32 | ct.Scalar.I64 | ct.Scalar.U32 | ct.Scalar.U64:
            return f"write a whole number in the range of {scalar}"
        case ct.Scalar.F32 | ct.Scalar.F64:
            return f"write a number in the range of {scalar}"
        case ct.Scalar.DATE:
            return 'write a date, as "2026-01-31"'
        case ct.Scalar.DATETIME:
            return 'write a timestamp with its offset, as "2026-01-31T12:00:00Z"'
        case ct.Scalar.BLOB:
            return "blobs have no literals"
        case _:
            assert_never(scalar)


def fits(value: int, scalar: ct.Scalar) -> bool:
    """Whether a whole number is within the limits of an integer type."""
    low, high = _LIMITS[scalar]
    return low <= value <= high


def as_stored(value: ct.Number, scalar: ct.Scalar) -> ct.Number | float:
    """A number as a column of this type compares it: floats rounded to their width."""
    if scalar not in (ct.Scalar.F32, ct.Scalar.F64):
        return value
    try:
        rounded = float(value)
        if scalar is ct.Scalar.F32:
            rounded = struct.unpack("<f", struct.pack("<f", rounded))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def within(
    value: ct.Number | float, scalar: ct.Scalar, *, low: ct.Number | None, high: ct.Number | None
) -> bool:
    """Whether a stored value of this type is inside a range of the schema."""
    if low is not None and value < as_stored(low, scalar):
        return False
    return high is None or value <= as_stored(high, scalar)
