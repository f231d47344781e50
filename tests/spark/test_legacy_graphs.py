"""Graphs that the published program wrote, read and written on Spark."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.spark.datasource import OmnigraphDataSource
from tests.legacy.legacy_graphs import exports, found, place_graph
from tests.legacy.rows import exported_rows, of_type, stored_rows

pytestmark = pytest.mark.spark

AT = dt.datetime(2024, 4, 4, 10, 11, 12, tzinfo=dt.UTC)


def test_frames_and_queries_give_what_the_program_exports(
    spark: SparkSession, graph_root: str
) -> None:
    place_graph("0.7.1/branches", graph_root)
    spark.dataSource.register(OmnigraphDataSource)
    wanted = of_type(exports("0.7.1/branches")["dev"], "Thing")
    columns = ["id", "slug", "name", "at", "day", "i32", "f64", "kind"]

    frame = (
        spark.read.format("omnigraph")
        .option("type", "node:Thing")
        .option("branch", "dev")
        .load(graph_root)
        .select(columns)
    )

    expected = [{key: value for key, value in row if key in columns} for row in wanted]
    assert stored_rows(frame.toArrow().to_pylist()) == stored_rows(expected)
    graph = og.open(graph_root, read_only=True)
    returned = "return { $t.slug as s, $t.at as at }"
    text = f"query q($at: DateTime) {{ match {{ $t: Thing $t.at = $at }} {returned} }}"
    on_spark = graph.spark(spark).query(text, {"at": AT}).toArrow().to_pylist()
    assert on_spark == graph.query(text, {"at": AT}).to_pylist() == [{"s": "t3", "at": AT}]


def test_loads_on_spark_go_into_an_upgraded_graph(
    spark: SparkSession, graph_root: str, tmp_path: Path
) -> None:
    graph = og.open(place_graph("0.7.1/history", graph_root))
    lines = tmp_path / "more.jsonl"
    thing = {"slug": "s1", "name": "S", "kind": "beta", "at": "2026-01-02T03:04:05.678901Z"}
    records = [
        {"type": "Thing", "data": {**thing, "link": "http://x/s1", "data": "base64:AAE="}},
        {"type": "Plain", "data": {"slug": "s2", "name": "S"}},
        {"edge": "Owns", "from": "s2", "to": "s1", "data": {}},
    ]
    lines.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    before = exported_rows(graph, tmp_path)
    on_spark = LoadOptions(engine="spark")

    graph.load(lines, spark=spark, options=on_spark)
    plain = tmp_path / "plain.jsonl"
    plain.write_text(json.dumps({"type": "Plain", "data": {"slug": "s2", "name": "again"}}))
    graph.load(plain, mode="merge", spark=spark, options=on_spark)

    assert found(graph, "Thing", "s1")["at"] == dt.datetime(
        2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC
    )
    assert found(graph, "Plain", "s2")["name"] == "again"
    assert len(exported_rows(graph, tmp_path)) == len(before) + len(records)
    with pytest.raises(InvalidInputError, match="Blob"):
        graph.load(lines, mode="merge", spark=spark, options=on_spark)
    assert graph.maintenance.check(deep=True).ok
