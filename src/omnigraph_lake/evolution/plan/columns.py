"""Describe the type a change is about and the value each existing row will have in a future column.

The conversion rules are here too: which property types hold every value of which others, and how
numbers round into them.

Invariants:
- A value of a future column depends on one existing row only, so Spark and this process compute the
  same value.
- A conversion that is called total loses nothing, for any stored value.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from omnigraph_lake.names import edge_table_key, node_table_key
from omnigraph_lake.schema import catalog as ct

Declared: TypeAlias = ct.InterfaceType | ct.NodeType | ct.EdgeType


class TypeKind(enum.StrEnum):
    """The three namespaces of type names."""

    INTERFACE = "interface"
    NODE = "node"
    EDGE = "edge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A type by its number; `name` is its new name, `was` its accepted one.

    A new type was nothing. A dropped type keeps its accepted name in both.
    """

    kind: TypeKind
    number: int
    name: str
    was: str | None

    @property
    def table(self) -> str | None:
        """The key of its table after the change; an interface has none."""
        return _table_key(self.kind, self.name)

    @property
    def stored_table(self) -> str | None:
        """The key of the table its rows are in now."""
        return None if self.was is None else _table_key(self.kind, self.was)

    @property
    def words(self) -> str:
        return f"{self.kind} {self.name}"


def kind_of(declared: Declared) -> TypeKind:
    match declared:
        case ct.InterfaceType():
            return TypeKind.INTERFACE
        case ct.NodeType():
            return TypeKind.NODE
        case ct.EdgeType():
            return TypeKind.EDGE
        case _:
            assert_never(declared)


def _table_key(kind: TypeKind, name: str) -> str | None:
    match kind:
        case TypeKind.INTERFACE:
            return None
        case TypeKind.NODE:
            return node_table_key(name)
        case TypeKind.EDGE:
            return edge_table_key(name)
        case _:
            assert_never(kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredColumn:
    """A column of the accepted table."""

    name: str
    type: ct.PropertyType


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteralFill:
    """One value for every row that has none.

    Numbers are exact; a `Date` is `YYYY-MM-DD`, a `DateTime` ISO 8601 in UTC with microseconds.
    """

    value: ct.Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFill:
    """The value another column holds now, converted to the wider type where they differ.

    `otherwise` is for rows in which that is null; only changes that are put together have it.
    """

    source: StoredColumn
    otherwise: LiteralFill | None = None


Fill: TypeAlias = LiteralFill | CopyFill


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueMapping:
    """A stored value, and the value that replaces it."""

    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FutureColumn:
    """A column after the change: the stored value, mapped and converted; the fill where it is null.

    Without `stored` the column is new, and every value is the fill, or null.
    """

    name: str
    type: ct.PropertyType
    stored: StoredColumn | None
    mapping: tuple[ValueMapping, ...] = ()
    fill: Fill | None = None

    @property
    def is_null(self) -> bool:
        """Whether no existing row has a value in it."""
        return self.stored is None and self.fill is None

    @property
    def is_untouched(self) -> bool:
        """Whether every row keeps the value it has; a wider type may hold it."""
        return self.stored is not None and self.fill is None and not self.mapping


def stored_column(prop: ct.Property) -> StoredColumn:
    return StoredColumn(name=prop.name, type=prop.type)


_WIDER: Final = {
    ct.Scalar.I32: frozenset({ct.Scalar.I64, ct.Scalar.F64}),
    ct.Scalar.U32: frozenset({ct.Scalar.U64, ct.Scalar.I64, ct.Scalar.F64}),
    ct.Scalar.F32: frozenset({ct.Scalar.F64}),
}
_STRING: Final = ct.ScalarType(scalar=ct.Scalar.STRING)
_BLOB: Final = ct.ScalarType(scalar=ct.Scalar.BLOB)


def widens(old: ct.PropertyType, new: ct.PropertyType) -> bool:
    """Whether `new` is a number type that holds every value of the number type `old`."""
    if isinstance(new, ct.DecimalType):
        exact = ct.exact_decimal(old)
        return (
            exact is not None
            and old != new
            and exact.scale <= new.scale
            and exact.integer_digits <= new.integer_digits
        )
    return (
        isinstance(old, ct.ScalarType)
        and isinstance(new, ct.ScalarType)
        and new.scalar in _WIDER.get(old.scalar, ())
    )


def copies(old: ct.PropertyType, new: ct.PropertyType) -> bool:
    """Whether every value of `old` can be stored in `new`; blobs are never copied."""
    if _BLOB in (old, new):
        return False
    if isinstance(old, ct.EnumType):
        return new == _STRING or (
            isinstance(new, ct.EnumType) and set(old.values) <= set(new.values)
        )
    return old == new or widens(old, new)


def changes_to(old: ct.PropertyType, new: ct.PropertyType) -> bool:
    """Whether a property may change its type like this; for texts, existing values decide."""
    return old == new or widens(old, new) or (_is_text(old) and _is_text(new))


def _is_text(property_type: ct.PropertyType) -> bool:
    return isinstance(property_type, ct.EnumType) or property_type == _STRING


def keeps_spelling(old: ct.PropertyType, new: ct.PropertyType) -> bool:
    """Whether widening leaves ids as they are: a 32-bit float is spelt by its own width."""
    return not (isinstance(old, ct.ScalarType) and old.scalar is ct.Scalar.F32 and old != new)
