"""The indexes that a type declares: a pure function of its declarations.

Invariant: every index has one column, and a table has each column and kind at most once. Nothing
that is declared is left out: several columns in one `@index` ask for an index on each.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from omnigraph_lake.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN, index_name
from omnigraph_lake.schema import catalog as ct


class IndexKind(enum.StrEnum):
    """How an index is organised; the value is part of its name on disk."""

    BTREE = "btree"
    INVERTED = "inverted"
    VECTOR = "vector"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredIndex:
    """One index over one column; only one over vectors has a metric."""

    column: str
    kind: IndexKind
    metric: ct.VectorMetric | None = None

    @property
    def name(self) -> str:
        """Its name on disk, which no other index of the table has."""
        return index_name(self.column, self.kind)


def declared_indexes(entity: ct.NodeType | ct.EdgeType) -> tuple[DeclaredIndex, ...]:
    """Implicit columns first, then the key, then `@index` in source order; each one once."""
    indexes: dict[str, DeclaredIndex] = {}
    for index in _declared(entity):
        indexes.setdefault(index.name, index)
    return tuple(indexes.values())


def index_kinds(property_type: ct.PropertyType) -> tuple[IndexKind, ...]:
    """The indexes of a column of this type; none for lists, blobs and Json."""
    match property_type:
        case ct.ScalarType(scalar=ct.Scalar.BLOB | ct.Scalar.JSON) | ct.ListType():
            return ()
        case ct.ScalarType(scalar=ct.Scalar.STRING):
            return IndexKind.BTREE, IndexKind.INVERTED
        case ct.ScalarType() | ct.DecimalType() | ct.EnumType():
            return (IndexKind.BTREE,)
        case ct.VectorType():
            return (IndexKind.VECTOR,)
        case _:
            assert_never(property_type)


def _declared(entity: ct.NodeType | ct.EdgeType) -> Iterator[DeclaredIndex]:
    implicit = _implicit_columns(entity)
    for column in implicit:
        yield DeclaredIndex(column=column, kind=IndexKind.BTREE)
    for column, metric in _wanted(entity):
        # Ids have no full-text index.
        if column in implicit:
            continue
        kinds = index_kinds(entity.properties[column].type)
        assert kinds, "the checks refuse an index on lists and blobs"
        for kind in kinds:
            yield DeclaredIndex(column=column, kind=kind, metric=metric)


def _wanted(entity: ct.NodeType | ct.EdgeType) -> Iterator[tuple[str, ct.VectorMetric | None]]:
    if isinstance(entity, ct.NodeType) and entity.key is not None:
        for column in entity.key.properties:
            yield column, None
    for index in entity.indexes:
        for column in index.properties:
            yield column, index.metric


def _implicit_columns(entity: ct.NodeType | ct.EdgeType) -> tuple[str, ...]:
    match entity:
        case ct.NodeType():
            return (ID_COLUMN,)
        case ct.EdgeType():
            return (ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN)
        case _:
            assert_never(entity)
