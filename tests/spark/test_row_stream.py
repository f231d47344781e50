"""Rows of a DataFrame in this process, and queries that a session runs."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

import omnigraph_lake as og
from omnigraph_lake.cli.main import app
from omnigraph_lake.errors import QueryFailedError
from omnigraph_lake.graph import Graph
from omnigraph_lake.query.columns import arrow_schema
from omnigraph_lake.query.compile import compile_queries
from omnigraph_lake.runner.scan import FrameRows

pytestmark = pytest.mark.spark

SCHEMA = """
node Item {
    name: String @key
    points: U64?
    small: U32?
    at: DateTime?
    day: Date?
    tags: [U64]?
    place: Vector(2)?
}
edge Follows: Item -> Item
"""
TEXT = """
query all() {
    match { $i: Item  optional { $i $e: follows $o } }
    return { $i.name as name, $i, $e, $i.points as points, $i.small as small, $i.at as at,
        $i.day as day, $i.tags as tags, $i.place as place }
    order { name }
}
"""


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema=SCHEMA)
    whole = {
        "name": "a",
        "points": 2**64 - 1,
        "small": 2**32 - 1,
        "at": dt.datetime(2020, 6, 1, 12, 0, 0, 1, tzinfo=dt.UTC),
        "day": dt.date(2020, 2, 29),
        "tags": [2**64 - 1, None],
        "place": [1.5, -0.5],
    }
    rows = [whole, {"name": "b"}]
    types = omnigraph_types(graph)
    graph.write({"Item": pa.Table.from_pylist(rows, schema=types)})
    graph.write({"Follows": [{"src": "a", "dst": "b"}]})
    return graph


def omnigraph_types(graph: Graph) -> pa.Schema:
    from omnigraph_lake.schema.arrow import node_schema

    stored = node_schema(graph.schema.catalog.nodes["Item"])
    return pa.schema([each.remove_metadata() for each in stored if each.name != "id"])


def test_a_query_on_spark_has_the_rows_and_types_of_one_in_this_process(
    graph: Graph, spark: SparkSession
) -> None:
    here = graph.query(TEXT).to_arrow()

    frame = graph.query(TEXT, spark=spark)

    assert isinstance(frame, DataFrame)
    (query,) = compile_queries(TEXT, catalog=graph.schema.catalog, filename="test.gq").values()
    schema = arrow_schema(query.columns, graph.schema.catalog)
    there = pa.Table.from_batches(FrameRows(frame, schema), schema=schema)
    assert there.schema == here.schema
    assert there.to_pylist() == here.to_pylist()


def test_the_command_line_prints_what_spark_finds(graph: Graph, spark: SparkSession) -> None:
    asked = ["query", graph.root, "-e", TEXT, "--format", "jsonl"]

    here, there = (
        CliRunner().invoke(app, [*asked, "--engine", engine], catch_exceptions=False)
        for engine in ("local", "spark")
    )

    assert len(here.stdout.splitlines()) == 2
    assert there.stdout == here.stdout


def test_the_command_line_reports_a_value_that_the_query_refuses_as_this_process_does(
    graph: Graph, spark: SparkSession
) -> None:
    text = "match { $i: Item } return { cast($i.id as I64) as number }"
    asked = ["query", graph.root, "-e", text, "--format", "jsonl"]

    here, there = (
        CliRunner().invoke(app, [*asked, "--engine", engine]) for engine in ("local", "spark")
    )

    assert isinstance(here.exception, QueryFailedError)
    assert isinstance(there.exception, QueryFailedError)
    assert there.exception.next_step == here.exception.next_step


def test_rows_come_in_the_order_of_the_frame(spark: SparkSession) -> None:
    schema = pa.schema([pa.field("id", pa.int64())])
    frame = spark.range(0, 5_000, numPartitions=4).orderBy("id", ascending=False)

    found = [each for batch in FrameRows(frame, schema) for each in batch.column("id").to_pylist()]

    assert found == list(range(4_999, -1, -1))


def test_a_frame_without_rows_gives_none(spark: SparkSession) -> None:
    schema = pa.schema([pa.field("id", pa.int64())])

    assert sum(batch.num_rows for batch in FrameRows(spark.range(0), schema)) == 0
