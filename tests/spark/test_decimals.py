"""Decimals on Spark: loaded, queried, summed and read, as in this process."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import omnigraph_lake as og

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = """
node Item {
    sku: String @key
    price: Decimal(12, 2) = 0 @index
    weight: Decimal(38, 10)? @unique
    number: I64?
}

edge Next: Item -> Item { cost: Decimal(5, 1)? }
"""
LONG = "1234567890123456789012345678.0123456789"
ITEMS = (
    f'"sku": "a", "price": 1.50, "weight": {LONG}',
    '"sku": "b", "price": "-2.25", "number": 2',
    '"sku": "c", "price": 100, "weight": -1, "number": -7',
    '"sku": "d", "weight": 0.0000000001',
    '"sku": "e", "price": 1.505',
)
EDGES = (("a", "b", '"cost": 0.5'), ("a", "c", ""), ("b", "c", '"cost": -9999.9'))
QUERIES = (
    "match { $i: Item } return { $i.sku, $i.price, $i.weight, $i } order { $i.sku }",
    "match { $i: Item  $i.price > 1.495 } return { $i.sku } order { $i.price desc, $i.sku }",
    "match { $i: Item } return { sum($i.price) as s, avg($i.price) as a, min($i.weight) as m }",
    "match { $i: Item  $i next $j } return { $i.sku, sum($j.price) as s, avg($j.price) as a }"
    " order { $i.sku }",
    "match { $i: Item  $i next $j  $j.price * 2 > 3 } return { count(*) as n, sum($i.price) as s }",
    "match { $i: Item } return { $i.price, count(*) as n } order { $i.price }",
    "match { $i: Item } return { $i.sku, $i.weight * 2 as x, $i.price * $i.number as y } order"
    " { $i.sku }",
)


@pytest.mark.nightly("eight queries on Spark; the gate has the values of every expression there")
def test_spark_loads_and_queries_decimals_as_this_process_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = [f'{{"type": "Item", "data": {{{item}}}}}' for item in ITEMS]
    lines += [
        f'{{"edge": "Next", "from": "{source}", "to": "{target}", "data": {{{data}}}}}'
        for source, target, data in EDGES
    ]
    (tmp_path / "records.jsonl").write_text("\n".join(lines))
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    options = og.LoadOptions(max_rejected="90%")

    report = graph.load(
        str(tmp_path / "records.jsonl"), spark=spark, on_error="quarantine", options=options
    )

    assert [str(rejected.reason) for rejected in report.rejected] == ["does_not_fit"]
    for query in QUERIES:
        frame: Any = graph.query(query, spark=spark)
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        assert rows == graph.query(query).to_pylist()
    items = spark.createDataFrame(
        [("x", Decimal("3.10")), ("y", Decimal("0.01"))], "sku string, price decimal(20, 4)"
    )
    graph.load({"Item": items}, spark=spark)
    rows = graph.query("match { $i: Item } return { $i.sku, $i.price }").to_pylist()
    prices = {row["i.sku"]: row["i.price"] for row in rows}
    assert prices["x"] == Decimal("3.10")
    assert prices["y"] == Decimal("0.01")
