"""The physical columns of node and edge tables."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph_lake.schema.arrow import edge_schema, node_schema
from tests.schema.compiling import compiled

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("String", pa.string()),
        ("Bool", pa.bool_()),
        ("I32", pa.int32()),
        ("I64", pa.int64()),
        ("U32", pa.uint32()),
        ("U64", pa.uint64()),
        ("F32", pa.float32()),
        ("F64", pa.float64()),
        ("Date", pa.date32()),
        ("DateTime", pa.timestamp("us", tz="UTC")),
        ("Blob", pa.large_binary()),
        ("enum(a, b)", pa.string()),
        ("[I32]", pa.list_(pa.field("item", pa.int32(), nullable=True))),
        ("[DateTime]", pa.list_(pa.field("item", pa.timestamp("us", tz="UTC")))),
        ("Vector(8)", pa.list_(pa.field("item", pa.float32(), nullable=True), 8)),
    ],
)
def test_every_type_has_its_arrow_type(spelling: str, expected: pa.DataType) -> None:
    schema = node_schema(compiled(f"node A {{ x: {spelling} y: {spelling}? }}").nodes["A"])

    assert [each.type for each in schema] == [pa.string(), expected, expected]
    assert [each.nullable for each in schema] == [False, False, True]


def test_a_node_table_has_id_then_properties_with_inherited_ones_last() -> None:
    catalog = compiled("interface I { z: I32 } node A implements I { b: String a: String }")

    assert node_schema(catalog.nodes["A"]).names == ["id", "b", "a", "z"]


def test_an_edge_table_has_id_and_both_ends_first() -> None:
    schema = edge_schema(compiled("node A {} edge E: A -> A { w: F32? }").edges["E"])

    assert schema.names == ["id", "src", "dst", "w"]
    assert [each.nullable for each in schema] == [False, False, False, True]


def test_polymorphic_ends_have_a_column_with_the_number_of_the_type() -> None:
    catalog = compiled("node A {} node B {} edge E: A -> A | B { w: F32? } edge F: A | B -> B")

    assert edge_schema(catalog.edges["E"]).names == ["id", "src", "dst", "dst_type", "w"]
    assert edge_schema(catalog.edges["F"]).field("src_type") == pa.field("src_type", pa.int64())


def test_the_id_is_marked_as_primary_key_and_properties_carry_their_number() -> None:
    node = compiled("node A { x: String y: Blob? }").nodes["A"]

    schema = node_schema(node)

    assert schema.field("id").metadata == {b"lance-schema:unenforced-primary-key": b"true"}
    assert schema.field("x").metadata == {b"omnigraph:property_id": b"2"}
    assert schema.field("y").metadata == {
        b"omnigraph:property_id": b"3",
        b"lance-encoding:blob": b"true",
    }
