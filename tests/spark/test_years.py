"""Dates and moments of the years 1 to 9999 pass through Spark, in sessions of any time zone.

Spark shows a moment in the time zone of the session, and Python converts it by the clock of the
process: what that does to the ends of the years is said in the reference.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import omnigraph_lake as og
from omnigraph_lake import LoadOptions
from omnigraph_lake.graph import Graph
from omnigraph_lake.spark import OmnigraphDataSource
from tests.gate.seeds import examples, run_seed
from tests.spark.versions import HAS_DATA_SOURCES, arrow_table
from tests.validation import random_years
from tests.validation.random_years import EPOCH, TIMES, Row, numbered

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly(
        "tests/spark/test_types.py has the ends of the years in the gate, and "
        "tests/validation/test_years.py random ones through every entrance"
    ),
]

ZONE = "spark.sql.session.timeZone"
COLUMNS = ["k", "ts", "day"]
QUERY = "match { $a: A } return { $a.k as k, $a.ts as ts, $a.day as day }"


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return og.init(graph_root, schema=random_years.SCHEMA)


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/New_York"])
def zone(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    before = spark.conf.get(ZONE)
    assert before is not None
    spark.conf.set(ZONE, request.param)
    yield request.param
    spark.conf.set(ZONE, before)


def numbers(frame: DataFrame) -> dict[str, Row]:
    """The rows as Spark computes with them."""
    counted = frame.selectExpr("k", "unix_micros(ts) AS moment", "unix_date(day) AS day").collect()
    return {key: Row(moment=moment, day=day) for key, moment, day in counted}


def read_by(graph: Graph, spark: SparkSession) -> dict[str, DataFrame]:
    on_spark = graph.spark(spark)
    frames = {
        "nodes": on_spark.nodes("A", columns=COLUMNS),
        "sql": on_spark.sql("SELECT k, ts, day FROM A"),
        "query": on_spark.query(QUERY),
    }
    if HAS_DATA_SOURCES:
        spark.dataSource.register(OmnigraphDataSource)
        reader = spark.read.format("omnigraph").option("type", "A")
        frames["format"] = reader.load(graph.root).select(COLUMNS)
    return frames


@pytest.mark.parametrize("entrance", [*random_years.ENTRANCES, "frame"])
def test_random_years_are_loaded_and_read_by_tasks(
    graph: Graph, spark: SparkSession, zone: str, tmp_path: Path, entrance: str
) -> None:
    drawn = random_years.drawn(examples(10_000), seed=run_seed())
    source = drawn.source("parquet" if entrance == "frame" else entrance, tmp_path)
    if entrance == "frame":
        source = {"A": spark.read.parquet(str(source))}

    report = graph.load(
        source,
        on_error="quarantine",
        spark=spark,
        options=LoadOptions(
            engine="auto" if entrance in ("arrow", "frame") else "spark", max_rejected="100%"
        ),
    )

    assert (report.written["A"], report.read) == (len(drawn.inside), len(drawn.rows))
    assert numbered(graph.scan("A").read_all()) == drawn.inside
    for name, frame in read_by(graph, spark).items():
        assert numbered(arrow_table(frame)) == drawn.inside, name
        assert numbers(frame) == drawn.inside, name
    assert graph.maintenance.check(spark=spark).ok
    (table,) = graph.diff("HEAD~1", spark=spark).tables.values()
    assert table.counts.inserted == len(drawn.inside)


def test_the_ends_of_the_years_are_shown_in_the_zone_of_the_session(
    graph: Graph, spark: SparkSession, zone: str
) -> None:
    first = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
    last = dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)
    ends = pa.array([(end - EPOCH) // dt.timedelta(microseconds=1) for end in (first, last)])
    graph.write({"A": pa.table({"k": ["first", "last"], "ts": ends.cast(TIMES)})})
    frame = graph.spark(spark).nodes("A", columns=["k", "ts"]).orderBy("k")

    shown = frame.selectExpr("CAST(ts AS string)", "year(ts)").collect()
    asked = graph.spark(spark).query(
        "match { $a: A } return { cast($a.ts as String) as t, year($a.ts) as y } order { $a.k }"
    )

    assert [tuple(row) for row in shown] == {
        "UTC": [("0001-01-01 00:00:00", 1), ("9999-12-31 23:59:59", 9999)],
        "Europe/Berlin": [("0001-01-01 00:53:28", 1), ("+10000-01-01 00:59:59", 10000)],
        "America/New_York": [("0000-12-31 19:03:58", 0), ("9999-12-31 18:59:59", 9999)],
    }[zone]
    texts = [("0001-01-01T00:00:00Z", 1), ("9999-12-31T23:59:59Z", 9999)]
    assert [tuple(row) for row in asked.collect()] == texts
    with pytest.raises(ValueError, match="year 0 is out of range"):
        frame.where("k = 'first'").collect()


def test_literals_of_a_session_may_be_outside_of_the_years(
    graph: Graph, spark: SparkSession, zone: str
) -> None:
    frame = spark.sql(
        "SELECT 'first' AS k, TIMESTAMP'0001-01-01 00:00:00' AS ts "
        "UNION ALL SELECT 'last', TIMESTAMP'9999-12-31 23:59:59'"
    )

    report = graph.load(
        {"A": frame},
        on_error="quarantine",
        spark=spark,
        options=LoadOptions(engine="spark", max_rejected="100%"),
    )

    kept = {"UTC": ["first", "last"], "Europe/Berlin": ["last"], "America/New_York": ["first"]}
    assert sorted(graph.scan("A").read_all()["k"].to_pylist()) == kept[zone]
    assert {rejected.reason for rejected in report.rejected} <= {"does_not_fit"}
