"""Which type a change is about, and what an existing row will hold in a column afterwards.

Invariant: a value of a future column depends on one existing row only, so Spark and this process
compute the same value.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from omnigraph.names import edge_table_key, node_table_key
from omnigraph.schema.catalog import (
    EdgeType,
    InterfaceType,
    Literal,
    NodeType,
    Property,
    PropertyType,
)

Declared: TypeAlias = InterfaceType | NodeType | EdgeType


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
        case InterfaceType():
            return TypeKind.INTERFACE
        case NodeType():
            return TypeKind.NODE
        case EdgeType():
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
    type: PropertyType


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteralFill:
    """One value for every row that has none.

    Numbers are exact; a `Date` is `YYYY-MM-DD`, a `DateTime` ISO 8601 in UTC with microseconds.
    """

    value: Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFill:
    """The value another column holds now, converted to the wider type where they differ."""

    source: StoredColumn


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
    type: PropertyType
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


def stored_column(each: Property) -> StoredColumn:
    return StoredColumn(name=each.name, type=each.type)
