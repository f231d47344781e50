"""The value of `@backfill(value)` for a property: of its type, and allowed by its constraints.

Invariant: a literal that is accepted here can be stored in every row without breaking a rule that
looks at one value.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import assert_never

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.evolution.plan.conversions import as_stored, fits, within
from omnigraph.evolution.plan.findings import shown
from omnigraph.schema.ast import NumberLiteral, StringLiteral, Word
from omnigraph.schema.catalog import (
    FLOATS,
    INTEGERS,
    EdgeType,
    EnumType,
    InterfaceType,
    ListType,
    Literal,
    NodeType,
    Property,
    Scalar,
    ScalarType,
    VectorType,
)
from omnigraph.schema.resolve import literal_value


def literal_for(
    wanted: Property, argument: StringLiteral | NumberLiteral | Word
) -> tuple[Literal | None, str]:
    """The value, or None and what to write instead."""
    value = literal_value(argument)
    match wanted.type:
        case EnumType(values=values):
            text = argument.raw if isinstance(argument, NumberLiteral) else _text(argument)
            return (text, "") if text in values else (None, f"write one of {', '.join(values[:8])}")
        case ScalarType(scalar=scalar):
            bare = isinstance(argument, Word) and argument.text not in ("true", "false")
            return (None, _expected(scalar)) if bare else _scalar(scalar, value)
        case ListType() | VectorType():
            return None, "there are no literals of this type; copy with `@backfill(from=property)`"
        case _:
            assert_never(wanted.type)


def broken_rule(
    owner: NodeType | EdgeType | InterfaceType, wanted: Property, value: Literal
) -> str | None:
    """The constraint of the property that this value breaks, as it is written."""
    if not isinstance(owner, NodeType) or not isinstance(wanted.type, ScalarType):
        return None
    scalar = wanted.type.scalar
    for each in owner.ranges:
        if each.property == wanted.name and isinstance(value, int | Decimal):
            stored = as_stored(value, scalar)
            if not within(stored, scalar, low=each.low, high=each.high):
                return f"@range({each.property}, {_bound(each.low)}..{_bound(each.high)})"
    for check in owner.checks:
        if check.property == wanted.name and isinstance(value, str):
            found = pc.match_substring_regex(pa.array([value], pa.string()), pattern=check.pattern)
            if not found[0].as_py():
                return f'@check({check.property}, "{shown(check.pattern)}")'
    return None


def _bound(value: int | Decimal | None) -> str:
    return "" if value is None else f"{value:f}" if isinstance(value, Decimal) else str(value)


def _text(argument: StringLiteral | Word) -> str:
    return argument.text if isinstance(argument, Word) else str(literal_value(argument))


def _scalar(scalar: Scalar, value: Literal | None) -> tuple[Literal | None, str]:
    accepted: Literal | None = None
    if scalar is Scalar.BOOL:
        accepted = value if isinstance(value, bool) else None
    elif isinstance(value, bool) or value is None:
        accepted = None
    elif scalar in INTEGERS:
        accepted = value if isinstance(value, int) and fits(value, scalar) else None
    elif scalar in FLOATS:
        accepted = value if isinstance(value, int | Decimal) and _finite(value, scalar) else None
    elif isinstance(value, str):
        accepted = _from_text(scalar, value)
    return accepted, "" if accepted is not None else _expected(scalar)


def _finite(value: int | Decimal, scalar: Scalar) -> bool:
    return math.isfinite(as_stored(value, scalar))


def _from_text(scalar: Scalar, value: str) -> str | None:
    try:
        if scalar is Scalar.DATE:
            return dt.date.fromisoformat(value).isoformat()
        if scalar is Scalar.DATETIME:
            moment = dt.datetime.fromisoformat(value)
            if moment.tzinfo is None:
                return None
            return moment.astimezone(dt.UTC).isoformat(timespec="microseconds")
    except (ValueError, OverflowError):
        return None
    return value if scalar is Scalar.STRING else None


def _expected(scalar: Scalar) -> str:  # noqa: PLR0911 - one per kind
    match scalar:
        case Scalar.STRING:
            return "write a string in double quotes"
        case Scalar.BOOL:
            return "write `true` or `false`"
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            return f"write a whole number in the range of {scalar}"
        case Scalar.F32 | Scalar.F64:
            return f"write a number in the range of {scalar}"
        case Scalar.DATE:
            return 'write a date, as "2026-01-31"'
        case Scalar.DATETIME:
            return 'write a timestamp with its offset, as "2026-01-31T12:00:00Z"'
        case Scalar.BLOB:
            return "blobs cannot be filled; make it nullable"
        case _:
            assert_never(scalar)
