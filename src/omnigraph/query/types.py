"""The types of expressions: those of the schema language, and entities and paths beside them.

Invariant: types are compared by value. Compatibility of two types is decided here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from omnigraph.schema.catalog import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
)
from omnigraph.schema.show import show_type


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOf:
    """A node of one of these types, sorted by name; `interface` is what the text called them."""

    types: tuple[str, ...]
    interface: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeOf:
    """An edge of this type."""

    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PathOf:
    """A path over edges of this type."""

    edge: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NullType:
    """The type of `null`, which fits every nullable place."""


EntityType: TypeAlias = NodeOf | EdgeOf
ColumnType: TypeAlias = PropertyType | NodeOf | EdgeOf
ExpressionType: TypeAlias = PropertyType | NodeOf | EdgeOf | PathOf | NullType

STRING: Final = ScalarType(scalar=Scalar.STRING)
BOOL: Final = ScalarType(scalar=Scalar.BOOL)
BLOB: Final = ScalarType(scalar=Scalar.BLOB)
I32: Final = ScalarType(scalar=Scalar.I32)
I64: Final = ScalarType(scalar=Scalar.I64)
U64: Final = ScalarType(scalar=Scalar.U64)
F32: Final = ScalarType(scalar=Scalar.F32)
F64: Final = ScalarType(scalar=Scalar.F64)
DATE: Final = ScalarType(scalar=Scalar.DATE)
DATETIME: Final = ScalarType(scalar=Scalar.DATETIME)
STRINGS: Final = ListType(item=Scalar.STRING)

INTEGER_LIMITS: Final = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}


def scalar_of(each: ExpressionType) -> Scalar | None:
    """The base type of a single value; an enum is a `String`, everything else has none."""
    match each:
        case ScalarType():
            return each.scalar
        case EnumType():
            return Scalar.STRING
        case ListType() | VectorType() | NodeOf() | EdgeOf() | PathOf() | NullType():
            return None
        case _:
            assert_never(each)


def is_number(each: ExpressionType) -> bool:
    return scalar_of(each) in NUMBERS


def is_integer(each: ExpressionType) -> bool:
    return scalar_of(each) in INTEGERS


def is_float(each: ExpressionType) -> bool:
    return scalar_of(each) in FLOATS


def is_text(each: ExpressionType) -> bool:
    return scalar_of(each) is Scalar.STRING


def is_orderable(each: ExpressionType) -> bool:
    """Whether values of the type have an order: numbers, text, Booleans, dates."""
    return scalar_of(each) not in (None, Scalar.BLOB)


def comparable(left: ExpressionType, right: ExpressionType) -> bool:
    """Whether `=` has a meaning: the same base type, or two numbers."""
    if is_number(left) and is_number(right):
        return True
    one = scalar_of(left)
    return one is not None and one is not Scalar.BLOB and one is scalar_of(right)


def show(each: ExpressionType) -> str:
    """The name of a type in messages."""
    match each:
        case NodeOf():
            return each.interface or " or ".join(each.types)
        case EdgeOf():
            return f"edge {each.type}"
        case PathOf():
            return f"path over {each.edge}"
        case NullType():
            return "null"
        case ScalarType() | ListType() | EnumType() | VectorType():
            return show_type(each)
        case _:
            assert_never(each)


def show_with_null(each: ExpressionType, *, nullable: bool) -> str:
    return show(each) + ("?" if nullable and not isinstance(each, NullType) else "")
