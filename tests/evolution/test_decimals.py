"""Decimals in schema changes and in merges of schemas."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import SchemaRefusedError
from omnigraph_lake.evolution.plan.columns import widens
from omnigraph_lake.evolution.widening import property_type
from omnigraph_lake.schema.catalog import DecimalType, PropertyType, Scalar, ScalarType

pytestmark = pytest.mark.behaviour

SCHEMA = """
node Item {{
    number: {number} @key
    price: {price}
    count: {count}?
    @range(price, 0..1000)
}}
"""


def schema(*, number: str = "I32", price: str = "Decimal(6, 2)", count: str = "U64") -> str:
    return SCHEMA.format(number=number, price=price, count=count)


def decimal(precision: int, scale: int) -> DecimalType:
    return DecimalType(precision=precision, scale=scale)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (decimal(6, 2), decimal(8, 2), True),
        (decimal(6, 2), decimal(7, 3), True),
        (decimal(6, 2), decimal(6, 3), False),
        (decimal(6, 2), decimal(8, 1), False),
        (decimal(6, 2), decimal(6, 2), False),
        (ScalarType(scalar=Scalar.I32), decimal(10, 0), True),
        (ScalarType(scalar=Scalar.U32), decimal(11, 2), False),
        (ScalarType(scalar=Scalar.I64), decimal(19, 0), True),
        (ScalarType(scalar=Scalar.U64), decimal(19, 0), False),
        (ScalarType(scalar=Scalar.U64), decimal(38, 18), True),
        (ScalarType(scalar=Scalar.F32), decimal(38, 10), False),
        (decimal(3, 0), ScalarType(scalar=Scalar.I64), False),
    ],
)
def test_a_type_is_wider_if_neither_part_shrinks(
    old: PropertyType, new: PropertyType, expected: bool
) -> None:
    assert widens(old, new) == expected


def test_integers_and_decimals_widen_and_ids_stay(graph_root: str) -> None:
    graph = og.init(graph_root, schema=schema())
    rows = [{"number": at, "price": Decimal(at) / 4, "count": 2**64 - 1 - at} for at in range(5)]
    graph.write({"Item": rows})
    ids = sorted(graph.scan("Item").read_all().column("id").to_pylist())

    graph.schema.apply(
        schema(number="Decimal(12, 2)", price="Decimal(9, 4)", count="Decimal(38, 18)")
    )

    after = {row["id"]: row for row in graph.scan("Item").read_all().to_pylist()}
    assert sorted(after) == ids
    assert [(row["number"], row["price"], row["count"]) for row in after.values()] == [
        (row["number"], row["price"], row["count"]) for row in rows
    ]
    with pytest.raises(SchemaRefusedError, match="narrower"):
        graph.schema.apply(
            schema(number="Decimal(12, 2)", price="Decimal(8, 4)", count="Decimal(38, 18)")
        )


def test_a_merge_finds_the_decimals_that_hold_those_of_both_sides(graph_root: str) -> None:
    graph = og.init(graph_root, schema=schema())
    graph.write({"Item": [{"number": at, "price": at} for at in range(3)]})
    graph.branches.create("dev")
    dev = graph.checkout("dev")
    graph.schema.apply(schema(price="Decimal(10, 3)"))
    dev.schema.apply(schema(price="Decimal(9, 4)"))
    dev.write({"Item": [{"number": 7, "price": "7.1234"}]})
    graph.write({"Item": [{"number": 1, "price": "8.123"}]}, mode="merge")

    dev.merge("main")

    rows = dev.scan("Item").read_all()
    assert rows.schema.field("price").type == pa.decimal128(11, 4)
    assert {row["number"]: row["price"] for row in rows.to_pylist()} == {
        0: Decimal(0),
        1: Decimal("8.123"),
        2: Decimal(2),
        7: Decimal("7.1234"),
    }


def test_columns_of_decimals_become_properties() -> None:
    assert property_type(pa.decimal128(12, 2)) == decimal(12, 2)
    assert property_type(pa.decimal128(20, 0)) == ScalarType(scalar=Scalar.U64)
    assert property_type(pa.decimal256(50, 2)) is None
