"""Which index each declaration asks for."""

from __future__ import annotations

import pytest

from omnigraph.schema.indexes import DeclaredIndex, IndexKind, declared_indexes
from tests.schema.compiling import compiled

pytestmark = pytest.mark.unit

ID = DeclaredIndex(columns=("id",), kind=IndexKind.BTREE)
SRC = DeclaredIndex(columns=("src",), kind=IndexKind.BTREE)
DST = DeclaredIndex(columns=("dst",), kind=IndexKind.BTREE)


@pytest.mark.parametrize(
    ("spelling", "kind"),
    [
        *((each, IndexKind.BTREE) for each in ("Bool", "I32", "I64", "U32", "U64", "F32", "F64")),
        *((each, IndexKind.BTREE) for each in ("Date", "DateTime", "enum(a, b)")),
        ("String", IndexKind.INVERTED),
        ("Vector(8)", IndexKind.VECTOR),
    ],
)
def test_the_type_of_a_property_decides_its_index(spelling: str, kind: IndexKind) -> None:
    node = compiled(f"node A {{ x: {spelling} @index }}").nodes["A"]

    assert declared_indexes(node) == (ID, DeclaredIndex(columns=("x",), kind=kind))


def test_a_key_is_indexed_and_never_twice() -> None:
    node = compiled("node A { x: I32 @key @index }").nodes["A"]

    assert declared_indexes(node) == (ID, DeclaredIndex(columns=("x",), kind=IndexKind.BTREE))


def test_unique_alone_asks_for_no_index() -> None:
    assert declared_indexes(compiled("node A { x: I32 @unique }").nodes["A"]) == (ID,)


def test_composite_declarations_are_listed_as_such() -> None:
    node = compiled("node A { x: I32 y: I32 z: String @key(y, x) @index(x, z) }").nodes["A"]

    assert declared_indexes(node) == (
        ID,
        DeclaredIndex(columns=("y", "x"), kind=IndexKind.COMPOSITE),
        DeclaredIndex(columns=("x", "z"), kind=IndexKind.COMPOSITE),
    )


def test_an_edge_indexes_its_ends_and_its_declared_properties() -> None:
    edge = compiled("node A {} edge E: A -> A { w: I32 @index @index(src) @index(src, w) }").edges[
        "E"
    ]

    assert declared_indexes(edge) == (
        ID,
        SRC,
        DST,
        DeclaredIndex(columns=("w",), kind=IndexKind.BTREE),
        DeclaredIndex(columns=("src", "w"), kind=IndexKind.COMPOSITE),
    )
