"""Which index each declaration asks for."""

from __future__ import annotations

import dataclasses

import pytest

from omnigraph_lake.schema.catalog import EdgeType, Index, NodeType, Spelling, VectorMetric
from omnigraph_lake.schema.indexes import DeclaredIndex, IndexKind, declared_indexes
from tests.schema.compiling import compiled

pytestmark = pytest.mark.unit

ENDPOINTS = ["id_btree", "src_btree", "dst_btree"]


def only_node(body: str) -> NodeType:
    return compiled(f"node A {{ {body} }}").nodes["A"]


def only_edge(body: str) -> EdgeType:
    return compiled(f"node A {{}} edge E: A -> A {{ {body} }}").edges["E"]


def index_names(entity: NodeType | EdgeType) -> list[str]:
    return [each.name for each in declared_indexes(entity)]


BY_TYPE = {
    **dict.fromkeys(("Bool", "I32", "I64", "U32", "U64", "F32", "F64"), ("x_btree",)),
    **dict.fromkeys(("Date", "DateTime", "enum(a, b)"), ("x_btree",)),
    "String": ("x_btree", "x_inverted"),
    "Vector(8)": ("x_vector",),
}


@pytest.mark.parametrize(("spelling", "wanted"), BY_TYPE.items(), ids=BY_TYPE.keys())
@pytest.mark.parametrize("declaration", ["@index", "@index(x)"])
@pytest.mark.parametrize("nullable", ["", "?"])
def test_the_type_of_a_property_decides_its_indexes(
    spelling: str, wanted: tuple[str, ...], declaration: str, nullable: str
) -> None:
    body = f"x: {spelling}{nullable} {declaration}"

    assert index_names(only_node(body)) == ["id_btree", *wanted]
    assert index_names(only_edge(body)) == [*ENDPOINTS, *wanted]


@pytest.mark.parametrize("declaration", ["@key", "@key(x)", "@key @index", "@index @key(x)"])
def test_a_key_is_indexed_like_any_property_and_never_twice(declaration: str) -> None:
    assert index_names(only_node(f"x: I32 {declaration}")) == ["id_btree", "x_btree"]
    assert index_names(only_node(f"x: String {declaration}")) == [
        "id_btree",
        "x_btree",
        "x_inverted",
    ]


def test_unique_alone_asks_for_no_index() -> None:
    assert index_names(only_node("x: I32 @unique")) == ["id_btree"]


def test_several_columns_ask_for_an_index_on_each_key_first() -> None:
    node = only_node("w: Bool @index x: I32 y: I32 z: String @index(x, z) @key(y, x)")

    assert index_names(node) == [
        *("id_btree", "y_btree", "x_btree"),
        *("w_btree", "z_btree", "z_inverted"),
    ]


def test_the_ends_of_an_edge_keep_the_index_they_have_anyway() -> None:
    edge = only_edge("w: I32 @index(src) @index(dst, w) @index(src, dst)")

    assert index_names(edge) == [*ENDPOINTS, "w_btree"]


@pytest.mark.parametrize(
    ("declaration", "metric"),
    [
        ("@index", VectorMetric.COSINE),
        ("@index(v)", VectorMetric.COSINE),
        *((f"@index(metric={each})", each) for each in VectorMetric),
        *((f"@index(v, metric={each})", each) for each in VectorMetric),
    ],
)
def test_a_vector_index_has_a_metric(declaration: str, metric: VectorMetric) -> None:
    vector = DeclaredIndex(column="v", kind=IndexKind.VECTOR, metric=metric)

    assert declared_indexes(only_node(f"v: Vector(8) {declaration}"))[1:] == (vector,)
    assert declared_indexes(only_edge(f"v: Vector(8) {declaration}"))[3:] == (vector,)


def test_no_other_index_has_a_metric() -> None:
    node = only_node("k: String @key a: I32 @index v: Vector(8) @index(metric=dot)")

    assert {each.kind for each in declared_indexes(node) if each.metric is not None} == {
        IndexKind.VECTOR
    }


def test_an_inherited_vector_keeps_its_metric() -> None:
    node = compiled("interface I { v: Vector(8) @index(metric=l2) } node A implements I {}").nodes[
        "A"
    ]

    assert declared_indexes(node)[1].metric is VectorMetric.L2


def test_a_vector_declared_twice_has_one_index() -> None:
    node = only_node("v: Vector(8) @index(metric=dot)")
    twice = dataclasses.replace(
        node,
        indexes=(
            *node.indexes,
            Index(properties=("v",), spelling=Spelling.BODY, metric=VectorMetric.DOT),
        ),
    )

    assert declared_indexes(twice) == declared_indexes(node)


def test_the_names_of_all_indexes_of_a_table_differ() -> None:
    node = only_node("a: String @index a_btree: String @index a_inverted: I32 a_: I32 @index")

    names = index_names(node)

    assert len(set(names)) == len(names) == 6
