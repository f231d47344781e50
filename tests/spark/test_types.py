"""Every type of the catalog goes to Spark and comes back unchanged."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from omnigraph_lake.runner.session import without_noise
from omnigraph_lake.runner.types import (
    carried_schema,
    carried_type,
    from_spark,
    property_spark_type,
    spark_ddl,
    spark_schema,
    to_spark,
)
from omnigraph_lake.schema.arrow import arrow_type, node_schema
from omnigraph_lake.schema.catalog import ListType, PropertyType, Scalar, ScalarType, VectorType
from tests.gate.selection import for_gate
from tests.schema.compiling import compiled
from tests.spark.versions import arrow_table

pytestmark = pytest.mark.spark

EVERYTHING_SCHEMA = """
node Everything {
    text: String  kind: enum(a, b)  bytes: Blob?  flag: Bool?
    i32: I32?  i64: I64?  u32: U32?  u64: U64?  f32: F32?  f64: F64?
    day: Date?  moment: DateTime?  vector: Vector(3)?
    texts: [String]?  flags: [Bool]?  i32s: [I32]?  i64s: [I64]?  u32s: [U32]?  u64s: [U64]?
    f32s: [F32]?  f64s: [F64]?  days: [Date]?  moments: [DateTime]?
}
"""
EVERYTHING = compiled(EVERYTHING_SCHEMA).nodes["Everything"]

SPARK_TYPES = {
    Scalar.STRING: "string",
    Scalar.JSON: "string",
    Scalar.BLOB: "binary",
    Scalar.BOOL: "boolean",
    Scalar.I32: "int",
    Scalar.I64: "bigint",
    Scalar.U32: "bigint",
    Scalar.U64: "decimal(20,0)",
    Scalar.F32: "float",
    Scalar.F64: "double",
    Scalar.DATE: "date",
    Scalar.DATETIME: "timestamp",
}

EXTREMES: dict[str, list[Any]] = {
    "text": ["", "ä\u0000\U0001f600", "x" * 100_000],
    "bytes": [b"", b"\x00\xff", b"y" * 100_000],
    "flag": [True, False],
    "i32": [-(2**31), 2**31 - 1],
    "i64": [-(2**63), 2**63 - 1],
    "u32": [0, 2**32 - 1],
    "u64": [0, 2**63, 2**64 - 1],
    "f32": [0.0, -0.0, math.inf, -math.inf, math.nan, 3.4028234663852886e38, 1e-45],
    "f64": [0.0, -0.0, math.inf, -math.inf, math.nan, 1.7976931348623157e308, 5e-324],
    "day": [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)],
    "moment": [
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
        dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
    ],
    "vector": [[1.0, 2.0, 3.0], [math.inf, -0.0, 1e-45]],
}


def everything() -> pa.Table:
    """Rows that hold every extreme, an empty list and a null of every column that may be null."""
    schema = node_schema(EVERYTHING)
    columns: dict[str, list[Any]] = {}
    for name, values in EXTREMES.items():
        columns[name] = values
        if f"{name}s" in schema.names:
            columns[f"{name}s"] = [[], [None], [*values, None], values]
    length = 1 + max(len(values) for values in columns.values())
    filled: dict[str, list[Any]] = {
        name: [values[row] if row < len(values) else None for row in range(length)]
        for name, values in columns.items()
    }
    filled["id"] = [f"id{row}" for row in range(length)]
    filled["text"] = [text or "" for text in filled["text"]]
    filled["kind"] = ["a", "b"] * (length // 2) + ["a"] * (length % 2)
    return pa.table(filled, schema=schema)


def echo(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def through_spark(spark: SparkSession, rows: pa.Table) -> pa.Table:
    """What a task of Spark is given when another task returned these rows."""
    stored = rows.schema
    carried = carried_schema(stored)
    batches = [to_spark(batch, carried) for batch in rows.to_batches()]

    def give(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    with without_noise():
        schema = spark_schema(stored)
        arrived = spark.range(0, 1, 1, 1).mapInArrow(give, schema).mapInArrow(echo, schema)
        returned = arrow_table(arrived).to_batches()
    return pa.Table.from_batches([from_spark(batch, stored) for batch in returned], stored)


def bits(rows: pa.Table) -> list[dict[str, str]]:
    """Values as texts: NaN equals NaN, and the two zeros differ."""
    return [{name: repr(value) for name, value in row.items()} for row in rows.to_pylist()]


@pytest.mark.parametrize(
    "zone",
    for_gate(["UTC", "Europe/Berlin", "America/New_York"], lambda zone: zone == "America/New_York"),
)
def test_every_value_of_every_type_comes_back_the_same(spark: SparkSession, zone: str) -> None:
    rows = everything()
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    spark.conf.set("spark.sql.session.timeZone", zone)

    try:
        returned = through_spark(spark, rows)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)

    assert returned.schema.equals(rows.schema)
    assert bits(returned) == bits(rows)


@pytest.mark.parametrize("scalar", Scalar)
def test_a_base_type_has_the_spark_type_of_the_table(scalar: Scalar) -> None:
    single: PropertyType = ScalarType(scalar=scalar)
    several: PropertyType = ListType(item=scalar)

    assert property_spark_type(single).simpleString() == SPARK_TYPES[scalar]
    assert property_spark_type(several).simpleString() == f"array<{SPARK_TYPES[scalar]}>"


def test_a_vector_is_an_array_of_floats() -> None:
    assert property_spark_type(VectorType(size=8)).simpleString() == "array<float>"
    assert pa.types.is_list(carried_type(arrow_type(VectorType(size=8))))


def test_names_order_and_not_null_survive_in_schema_and_ddl(spark: SparkSession) -> None:
    stored = node_schema(EVERYTHING)

    assert [(each.name, each.nullable) for each in spark_schema(stored)] == [
        (each.name, each.nullable) for each in stored
    ]
    assert spark.createDataFrame([], spark_ddl(stored)).schema == spark_schema(stored)


@pytest.mark.parametrize(
    ("column", "carried", "stored"),
    [
        ("u32", pa.array([-1], pa.int64()), pa.uint32()),
        ("u32", pa.array([2**32], pa.int64()), pa.uint32()),
        ("u64", pa.array([2**64], pa.decimal128(20, 0)), pa.uint64()),
        ("vector", pa.array([[1.0, 2.0]], pa.list_(pa.float32())), pa.list_(pa.float32(), 3)),
    ],
)
def test_a_value_that_does_not_fit_is_refused_on_the_way_back(
    column: str, carried: pa.Array, stored: pa.DataType
) -> None:
    rows = pa.record_batch({column: carried})

    with pytest.raises(ValueError, match=r"not in range|out of bounds|expected size"):
        from_spark(rows, pa.schema([pa.field(column, stored)]))


def test_a_null_or_a_gap_where_none_may_be_is_refused_on_the_way_back() -> None:
    rows = pa.record_batch({"a": pa.array([None], pa.string())})

    with pytest.raises(ValueError, match="non-nullable"):
        from_spark(rows, pa.schema([pa.field("a", pa.string(), nullable=False)]))
    with pytest.raises(ValueError, match="no column 'b'"):
        from_spark(rows, pa.schema([pa.field("b", pa.string())]))


VECTOR = pa.list_(pa.float32(), 2)
INSIDE = {
    "alone": (pa.list_(pa.float32()), VECTOR, [None, None]),
    "in a node": (
        pa.struct(
            [("id", pa.string()), ("properties", pa.struct([("v", pa.list_(pa.float32()))]))]
        ),
        pa.struct([("id", pa.string()), ("properties", pa.struct([("v", VECTOR)]))]),
        [{"id": "a", "properties": {"v": None}}, None, {"id": "b", "properties": None}],
    ),
    "in a node that has one": (
        pa.struct([("v", pa.list_(pa.float32()))]),
        pa.struct([("v", VECTOR)]),
        [{"v": None}, None, {"v": [1.0, 2.0]}],
    ),
    "in lists": (
        pa.list_(pa.list_(pa.float32())),
        pa.list_(VECTOR),
        [[None, None], None, [], [None]],
    ),
}


@pytest.mark.parametrize("case", INSIDE)
def test_vectors_that_are_null_arrive_wherever_they_stand(case: str) -> None:
    carried, stored, values = INSIDE[case]
    sink = pa.BufferOutputStream()
    rows = pa.record_batch({"c": pa.array(values, carried)})
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)

    received = pa.ipc.open_stream(sink.getvalue()).read_all().to_batches()[0]

    found = from_spark(received, pa.schema([pa.field("c", stored)]))
    assert found.column("c").to_pylist() == values
