"""Which indexes a type asks for: a pure function of its declarations.

Invariant: every declaration is represented. What cannot be built yet is still listed, so that
a builder refuses it aloud instead of forgetting it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from omnigraph.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph.schema.catalog import (
    EdgeType,
    EnumType,
    ListType,
    NodeType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
)


class IndexKind(enum.Enum):
    """How an index is organised."""

    BTREE = "btree"
    INVERTED = "inverted"
    VECTOR = "vector"
    COMPOSITE = "composite"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredIndex:
    """One index over one column, or over several when the kind is composite."""

    columns: tuple[str, ...]
    kind: IndexKind


def declared_indexes(entity: NodeType | EdgeType) -> tuple[DeclaredIndex, ...]:
    """Implicit columns first, then the key, then `@index` in source order; each one once."""
    return tuple(dict.fromkeys(_declared(entity)))


def index_kind(property_type: PropertyType) -> IndexKind | None:
    """The index of a single column, or None for types that have none."""
    match property_type:
        case ScalarType():
            if property_type.scalar is Scalar.BLOB:
                return None
            return IndexKind.INVERTED if property_type.scalar is Scalar.STRING else IndexKind.BTREE
        case EnumType():
            return IndexKind.BTREE
        case VectorType():
            return IndexKind.VECTOR
        case ListType():
            return None
        case _:
            assert_never(property_type)


def _declared(entity: NodeType | EdgeType) -> Iterator[DeclaredIndex]:
    implicit = _implicit_columns(entity)
    for column in implicit:
        yield DeclaredIndex(columns=(column,), kind=IndexKind.BTREE)
    wanted = [each.properties for each in entity.indexes]
    if isinstance(entity, NodeType) and entity.key is not None:
        wanted.insert(0, entity.key.properties)
    for columns in wanted:
        if len(columns) > 1:
            yield DeclaredIndex(columns=columns, kind=IndexKind.COMPOSITE)
        elif columns[0] not in implicit:
            kind = index_kind(entity.properties[columns[0]].type)
            assert kind is not None, "the checks refuse an index on lists and blobs"
            yield DeclaredIndex(columns=columns, kind=kind)


def _implicit_columns(entity: NodeType | EdgeType) -> tuple[str, ...]:
    match entity:
        case NodeType():
            return (ID_COLUMN,)
        case EdgeType():
            return (ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN)
        case _:
            assert_never(entity)
