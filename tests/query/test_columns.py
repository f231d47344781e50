from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph_lake.query.columns import arrow_schema
from tests.query.people import CATALOG, read

pytestmark = pytest.mark.unit

TEXTS = [("id", pa.string()), ("type", pa.string())]


def schema(match: str, returned: str) -> pa.Schema:
    return arrow_schema(read(match, returned).columns, CATALOG)


@pytest.mark.parametrize(
    ("returned", "kind", "nullable"),
    [
        ("$p.name", pa.string(), False),
        ("$p.status", pa.string(), False),
        ("$p.age", pa.int32(), True),
        ("$p.points", pa.uint64(), True),
        ("$p.height", pa.float32(), True),
        ("$p.admin", pa.bool_(), True),
        ("$p.born", pa.date32(), True),
        ("$p.joined", pa.timestamp("us", "UTC"), True),
        ("$p.tags", pa.list_(pa.field("item", pa.string())), True),
        ("$p.age + 1", pa.int64(), True),
        ("count(*)", pa.int64(), False),
        ("sum($p.points)", pa.uint64(), True),
        ("collect($p.age)", pa.list_(pa.field("item", pa.int32())), False),
    ],
)
def test_a_value_has_the_type_of_its_property_or_function(
    returned: str, kind: pa.DataType, nullable: bool
) -> None:
    (field,) = schema("$p: Person", returned)

    assert field.type == kind
    assert field.nullable is nullable


def test_a_vector_has_its_size() -> None:
    (field,) = schema("$n: Note", "$n.vector")

    assert field.type == pa.list_(pa.field("item", pa.float32()), 2)


def test_a_node_is_a_struct_of_its_properties_without_blobs() -> None:
    (field,) = schema("$p: Person", "$p")

    properties = field.type.field("properties").type
    assert [(each.name, each.type) for each in field.type][:2] == TEXTS
    assert set(properties.names) == set(CATALOG.nodes["Person"].properties) - {"photo"}
    assert properties.field("points").type == pa.uint64()


def test_a_node_bound_by_an_interface_has_the_properties_of_the_interface() -> None:
    (field,) = schema("$n: Named", "$n")

    assert field.type.field("properties").type.names == ["name"]


def test_an_edge_has_its_ends_and_perhaps_no_properties() -> None:
    (field,) = schema("$p: Person  $p $e: wrote $n", "$e")

    assert field.type.names == ["id", "type", "src", "dst", "properties"]
    assert field.type.field("properties").type == pa.struct([])


def test_what_is_optional_is_nullable() -> None:
    fields = schema("$p: Person  optional { $p worksAt $c }", "$p, $c, $c.name")

    assert [each.nullable for each in fields] == [False, True, True]
