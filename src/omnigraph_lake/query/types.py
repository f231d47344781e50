"""The types of expressions: those of the schema language, and entities and paths beside them.

Invariant: types are compared by value. Compatibility of two types is decided here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, assert_never

from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.show import show_type


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOf:
    """A node of one of these types, sorted by name; `interface` is what the text called them."""

    types: tuple[str, ...]
    interface: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeOf:
    """An edge of one of these types, sorted by name."""

    types: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathOf:
    """A path over edges of these types, sorted by name.

    `weight` is the property of all of them that it is weighted by.
    """

    edges: tuple[str, ...]
    weight: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NullType:
    """The type of `null`, which fits every nullable place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecimalList:
    """A list of decimals, which a query is given or contains; no property is one."""

    item: ct.DecimalType


EntityType: TypeAlias = NodeOf | EdgeOf
ParameterType: TypeAlias = ct.PropertyType | DecimalList
ColumnType: TypeAlias = ParameterType | NodeOf | EdgeOf
ExpressionType: TypeAlias = ParameterType | NodeOf | EdgeOf | PathOf | NullType

STRING: Final = ct.ScalarType(scalar=ct.Scalar.STRING)
BOOL: Final = ct.ScalarType(scalar=ct.Scalar.BOOL)
BLOB: Final = ct.ScalarType(scalar=ct.Scalar.BLOB)
I32: Final = ct.ScalarType(scalar=ct.Scalar.I32)
I64: Final = ct.ScalarType(scalar=ct.Scalar.I64)
U64: Final = ct.ScalarType(scalar=ct.Scalar.U64)
F32: Final = ct.ScalarType(scalar=ct.Scalar.F32)
F64: Final = ct.ScalarType(scalar=ct.Scalar.F64)
DATE: Final = ct.ScalarType(scalar=ct.Scalar.DATE)
DATETIME: Final = ct.ScalarType(scalar=ct.Scalar.DATETIME)
JSON: Final = ct.ScalarType(scalar=ct.Scalar.JSON)
STRINGS: Final = ct.ListType(item=ct.Scalar.STRING)
BOOLS: Final = ct.ListType(item=ct.Scalar.BOOL)

INTEGER_LIMITS: Final = {
    ct.Scalar.I32: (-(2**31), 2**31 - 1),
    ct.Scalar.I64: (-(2**63), 2**63 - 1),
    ct.Scalar.U32: (0, 2**32 - 1),
    ct.Scalar.U64: (0, 2**64 - 1),
}


def properties_in_common(
    declared_types: Sequence[ct.NodeType | ct.EdgeType],
) -> dict[str, ct.Property]:
    """The properties that all of these types have, with one type, as the first one orders them.

    A property is nullable if it is nullable in one of them.
    """
    if not declared_types:
        return {}
    first, *others = declared_types
    shared: dict[str, ct.Property] = {}
    for name, declared in first.properties.items():
        same = [other.properties[name] for other in others if name in other.properties]
        if len(same) == len(others) and all(prop.type == declared.type for prop in same):
            nullable = declared.nullable or any(prop.nullable for prop in same)
            shared[name] = declared if not others else replace(declared, nullable=nullable)
    return shared


def scalar_of(expression_type: ExpressionType) -> ct.Scalar | None:
    """The base type of a single value; an enum is a `String`, everything else has none."""
    match expression_type:
        case ct.ScalarType():
            return expression_type.scalar
        case ct.EnumType():
            return ct.Scalar.STRING
        case ct.DecimalType() | ct.ListType() | ct.VectorType() | DecimalList():
            return None
        case NodeOf() | EdgeOf() | PathOf() | NullType():
            return None
        case _:
            assert_never(expression_type)


def is_number(expression_type: ExpressionType) -> bool:
    return scalar_of(expression_type) in ct.NUMBERS


def is_integer(expression_type: ExpressionType) -> bool:
    return scalar_of(expression_type) in ct.INTEGERS


def is_float(expression_type: ExpressionType) -> bool:
    return scalar_of(expression_type) in ct.FLOATS


def is_text(expression_type: ExpressionType) -> bool:
    return scalar_of(expression_type) is ct.Scalar.STRING


def is_time(expression_type: ExpressionType) -> bool:
    """Whether values are dates or points in time."""
    return expression_type in (DATE, DATETIME)


def is_orderable(expression_type: ExpressionType) -> bool:
    """Whether values of the type have an order: numbers, text, Booleans, dates."""
    if isinstance(expression_type, ct.DecimalType):
        return True
    scalar = scalar_of(expression_type)
    return scalar is not None and scalar not in ct.WITHOUT_ORDER


def comparable(left: ExpressionType, right: ExpressionType) -> bool:
    """Whether `=` has a meaning: the same base type, or two numbers."""
    if is_number(left) and is_number(right):
        return True
    left_scalar = scalar_of(left)
    return (
        left_scalar is not None
        and left_scalar is not ct.Scalar.BLOB
        and left_scalar is scalar_of(right)
    )


def show(expression_type: ExpressionType) -> str:
    """The name of a type in messages."""
    match expression_type:
        case NodeOf():
            return expression_type.interface or " or ".join(expression_type.types)
        case EdgeOf():
            return f"edge {' or '.join(expression_type.types)}"
        case PathOf():
            return f"path over {' or '.join(expression_type.edges)}"
        case NullType():
            return "null"
        case ct.ScalarType() | ct.DecimalType() | ct.ListType() | ct.EnumType() | ct.VectorType():
            return show_type(expression_type)
        case DecimalList():
            return f"[{show_type(expression_type.item)}]"
        case _:
            assert_never(expression_type)


def show_with_null(expression_type: ExpressionType, *, nullable: bool) -> str:
    return show(expression_type) + (
        "?" if nullable and not isinstance(expression_type, NullType) else ""
    )


def as_f32(value: float) -> float:
    """The nearest 32-bit float; infinite when there is none."""
    try:
        narrowed: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except (OverflowError, struct.error):
        # An integer of many digits has no float of any size, so its sign is asked for itself.
        return -math.inf if value < 0 else math.inf
    return narrowed
