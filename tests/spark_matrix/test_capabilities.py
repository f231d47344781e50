"""What Omnigraph does on Spark, a test for each capability, on every version that is supported.

The name of a test is a line of the table that `python -m tests.spark_matrix` prints. A version that
cannot do something skips its test, and `test_what_is_missing_is_refused_by_name` runs instead.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import omnigraph_lake as og
from omnigraph_lake import spark as og_spark
from omnigraph_lake.errors import SparkUnavailableError
from omnigraph_lake.graph import Graph
from omnigraph_lake.runner.spark_versions import arrow_column, try_long, try_remainder
from omnigraph_lake.spark.analytics import components, distances, page_rank
from tests.spark.versions import HAS_DATA_SOURCES, HAS_READ_LIMITS

pytestmark = [
    pytest.mark.spark,
]

SCHEMA = """
node Person { name: String @key  age: U64?  about: String?  place: Vector(2)? }
edge Knows: Person -> Person { since: Date? }
"""
PEOPLE = [
    {"name": f"p{number}", "age": number, "about": f"likes tea {number}", "place": [number, 1]}
    for number in range(6)
]
LINKS = [{"src": f"p{number}", "dst": f"p{number + 1}"} for number in range(4)]
needs_data_sources = pytest.mark.skipif(not HAS_DATA_SOURCES, reason="from Spark 4.0")
beside_other_tests = pytest.mark.nightly(
    "what differs between versions of Spark is in the tests of this file that the gate runs"
)


@pytest.fixture
def empty(graph_root: str) -> Graph:
    return og.init(graph_root, schema=SCHEMA)


@pytest.fixture
def graph(empty: Graph) -> Graph:
    empty.write({"Person": PEOPLE, "Knows": LINKS})
    return empty


def ages(graph: Graph) -> dict[str, int | None]:
    rows = graph.scan("Person").read_all().to_pylist()
    return {row["name"]: row["age"] for row in rows}


def people(spark: SparkSession, start: int, end: int, age: str = "id") -> DataFrame:
    return spark.sql(
        f"SELECT concat('p', id) AS name, CAST({age} AS DECIMAL(20,0)) AS age, "  # noqa: S608
        f"array(CAST(id AS FLOAT), 1F) AS place FROM range({start}, {end})"
    )


def test_load_append_with_quarantine(spark: SparkSession, empty: Graph) -> None:
    links = spark.sql(
        "SELECT concat('p', id) AS src, concat('p', id + 1) AS dst, DATE'2026-01-02' AS since "
        "FROM range(10)"
    )
    frames = {"Person": people(spark, 0, 10, "18446744073709551615"), "Knows": links}

    report = empty.load(frames, on_error="quarantine", spark=spark)

    assert report.written == {"Person": 10, "Knows": 9}
    assert report.quarantined == {"missing_endpoint": 1}
    assert set(ages(empty).values()) == {2**64 - 1}
    assert empty.maintenance.check().ok


def test_load_merge(spark: SparkSession, graph: Graph) -> None:
    report = graph.load({"Person": people(spark, 4, 9, "70")}, mode="merge", spark=spark)

    assert (report.inserted, report.updated) == ({"Person": 3}, {"Person": 2})
    assert (ages(graph)["p3"], ages(graph)["p4"], ages(graph)["p8"]) == (3, 70, 70)
    abouts = {row["name"]: row["about"] for row in graph.scan("Person").read_all().to_pylist()}
    assert (abouts["p4"], abouts["p8"]) == ("likes tea 4", None)


@pytest.mark.parametrize("frames", [1, 2, 3])
@beside_other_tests
def test_load_frames_of_one_partition(spark: SparkSession, empty: Graph, frames: int) -> None:
    """A limit, a coalesce and an aggregate: from 4.1 on, Spark zips such frames in a union."""
    one_row = people(spark, 0, 40).groupBy().agg(sql.min("name").alias("dst"))
    links = one_row.withColumn("src", sql.col("dst"))
    given = {
        "Person": people(spark, 0, 50).limit(30),
        "Knows": links.select("src", "dst"),
        "Town": spark.range(100).coalesce(1).selectExpr("concat('t', id) AS name"),
    }
    empty.schema.apply(SCHEMA + "node Town { name: String @key }")

    report = empty.load({name: given[name] for name in list(given)[:frames]}, spark=spark)

    assert report.written == dict(list({"Person": 30, "Knows": 1, "Town": 100}.items())[:frames])
    assert empty.maintenance.check().ok


@beside_other_tests
def test_load_replace(spark: SparkSession, graph: Graph) -> None:
    graph.load({"Person": people(spark, 4, 9, "70")}, mode="replace", spark=spark)

    abouts = {row["name"]: row["about"] for row in graph.scan("Person").read_all().to_pylist()}
    assert (ages(graph)["p4"], abouts["p4"], abouts["p3"]) == (70, None, "likes tea 3")


@beside_other_tests
def test_load_overwrite(spark: SparkSession, graph: Graph) -> None:
    links = spark.createDataFrame([("p1", "p5")], "src string, dst string")

    report = graph.load({"Knows": links}, mode="overwrite", spark=spark)

    assert report.written == {"Knows": 1}
    assert graph.scan("Knows").read_all().select(["src", "dst"]).to_pylist() == [
        {"src": "p1", "dst": "p5"}
    ]
    assert len(ages(graph)) == 6


@beside_other_tests
def test_merge_of_branches(spark: SparkSession, graph: Graph) -> None:
    dev = graph.branches.create("dev")
    dev.write({"Person": [{"name": "p1", "age": 81}, {"name": "new"}]}, mode="merge")
    graph.write({"Person": [{"name": "p2", "age": 82}]}, mode="merge")

    graph.merge("dev", spark=spark)

    found = ages(graph)
    assert (found["p1"], found["p2"], found["p3"], found["new"]) == (81, 82, 3, None)
    assert graph.maintenance.check().ok


@beside_other_tests
def test_diff(spark: SparkSession, graph: Graph) -> None:
    dev = graph.branches.create("dev")
    dev.write({"Person": [{"name": "p1", "age": 81}, {"name": "new"}]}, mode="merge")

    there, here = graph.diff("main", "dev", spark=spark), graph.diff("main", "dev")

    assert there.tables["node:Person"].counts == here.tables["node:Person"].counts
    assert there.tables["node:Person"].rows().read_all().num_rows == 2


@beside_other_tests
def test_schema_change(spark: SparkSession, graph: Graph) -> None:
    text = SCHEMA.replace("about: String?", 'about: String?  city: String @backfill("Bonn")')

    graph.schema.apply(text, spark=spark)

    assert {row["city"] for row in graph.scan("Person").read_all().to_pylist()} == {"Bonn"}


@beside_other_tests
def test_check_and_optimize(spark: SparkSession, graph: Graph) -> None:
    graph.write({"Person": [{"name": "one more"}]})

    report = graph.maintenance.check(spark=spark)
    graph.maintenance.optimize(spark=spark)

    assert report.ok, report.findings
    assert len(ages(graph)) == 7
    assert graph.maintenance.check(deep=True).ok


def test_read_and_views(spark: SparkSession, graph: Graph) -> None:
    view = graph.spark(spark)
    view.views()

    found = spark.sql("SELECT p.age FROM Person p JOIN Knows k ON k.dst = p.id ORDER BY p.age")

    assert [int(row.age) for row in found.collect()] == [1, 2, 3, 4]
    (row,) = view.nodes("Person", columns=["id", "place"], where="name = 'p3'").collect()
    assert row.asDict() == {"id": "p3", "place": [3.0, 1.0]}


def test_query(spark: SparkSession, graph: Graph) -> None:
    text = """query reach($words: String) {
        match { $p: Person  $p knows{1,2} $q  search($q.about, $words) }
        return { $p.name as name, $q.name as other, ($q.age % 3) * 2 as n } order { name, other }
    }"""

    answer = graph.spark(spark).query(text, {"words": "tea"}).collect()

    here = graph.query(text, {"words": "tea"}).to_arrow().to_pylist()
    assert [row.asDict() for row in answer] == here
    assert len(here) == 7


@beside_other_tests
def test_query_that_ranks(spark: SparkSession, graph: Graph) -> None:
    text = """query near($place: Vector(2)) {
        match { $p: Person }
        return { $p.name as name, nearest($p.place, $place) as far } order { far } limit 3
    }"""

    answer = graph.spark(spark).query(text, {"place": [2.2, 1.0]}).collect()

    here = graph.query(text, {"place": [2.2, 1.0]}).to_arrow().to_pylist()
    assert [row.asDict() for row in answer] == here
    assert [row["name"] for row in here] == ["p2", "p3", "p4"]


def test_columns_computed_from_arrow(spark: SparkSession) -> None:
    """A NaN stays one and differs from null; operands of every size are cast and divided."""
    vectors = [[1.0, 2.0], None, [math.nan, 1.0], [math.inf, 0.5]]
    numbers = [str(2**64 - 1), "7", None, str(2**63 - 1)]
    rows = [*zip(range(4), vectors, numbers, [0, 3, 1, 2], strict=True)]
    frame = spark.createDataFrame(rows, "id int, v array<float>, n string, d bigint")
    amount = sql.col("n").cast("decimal(20,0)")

    def sums(batch: pa.Array) -> pa.Array:
        totals = [None if value is None else sum(value) for value in batch.to_pylist()]
        return pa.array(totals, pa.float64())

    def is_long(batch: pa.Array) -> pa.Array:
        return pc.greater(pc.utf8_length(batch), 4)

    answer = frame.select(
        arrow_column(sums, [sql.col("v")], takes=[pa.list_(pa.float32())], gives="double"),
        arrow_column(is_long, [sql.col("n")], takes=[pa.string()], gives="boolean"),
        try_long(amount),
        try_remainder(sql.lit(7).cast("bigint"), sql.col("d")),
    ).collect()

    np.testing.assert_equal([row[0] for row in answer], [3.0, None, math.nan, math.inf])
    assert [row[1] for row in answer] == [True, False, None, True]
    assert [row[2] for row in answer] == [None, 7, None, 2**63 - 1]
    assert [row[3] for row in answer] == [None, 1, 0, 1]


@beside_other_tests
def test_algorithms(spark: SparkSession, graph: Graph) -> None:
    view = graph.spark(spark)

    ranks = {row.id: row["rank"] for row in page_rank(view, "Person", ["Knows"]).collect()}
    groups = {row.component for row in components(view, "Person", ["Knows"]).collect()}
    hops = {row.id: row.distance for row in distances(view, "Person", ["Knows"], ["p0"]).collect()}

    assert sum(ranks.values()) == pytest.approx(1)
    assert max(ranks, key=lambda name: ranks[name]) == "p4"
    assert groups == {"p0", "p5"}
    assert hops == {"p0": 0, "p1": 1, "p2": 2, "p3": 3, "p4": 4, "p5": None}


@needs_data_sources
@beside_other_tests
def test_data_source_read(spark: SparkSession, graph: Graph) -> None:
    spark.dataSource.register(og_spark.OmnigraphDataSource)
    reader = spark.read.format("omnigraph").option("type", "Person").option("filter", "age > 3")

    found = reader.load(graph.root).orderBy("id").collect()

    assert [(row.id, int(row.age)) for row in found] == [("p4", 4), ("p5", 5)]


@needs_data_sources
@beside_other_tests
def test_data_source_write(spark: SparkSession, graph: Graph) -> None:
    spark.dataSource.register(og_spark.OmnigraphDataSource)
    writer = people(spark, 6, 9).write.format("omnigraph").option("type", "Person")

    writer.mode("append").save(graph.root)

    assert len(ages(graph)) == 9
    assert graph.maintenance.check().ok


@needs_data_sources
@beside_other_tests
def test_change_stream(spark: SparkSession, graph: Graph, tmp_path: Path) -> None:
    spark.dataSource.register(og_spark.OmnigraphDataSource)

    def run() -> list[tuple[str, str]]:
        reader = spark.readStream.format("omnigraph").option("type", "Person")
        frame = reader.option("startingCommit", "beginning").load(graph.root)
        sink = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint"))
        sink.trigger(availableNow=True).start().awaitTermination()
        rows = spark.read.parquet(str(tmp_path / "out")).collect()
        return sorted((row["_op"], row["id"]) for row in rows)

    first = run()
    graph.write({"Person": [{"name": "p1", "age": 81}, {"name": "new"}]}, mode="merge")
    second = run()

    assert first == [("insert", f"p{number}") for number in range(6)]
    assert second == sorted([*first, ("update", "p1"), ("insert", "new")])


def stream_of_people(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream of two batches: a file each."""
    for number in range(2):
        lines = [f'{{"name": "s{number}-{row}", "age": {row}}}' for row in range(3)]
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.json").write_text("\n".join(lines))
    reader = spark.readStream.schema("name string, age decimal(20,0)")
    return reader.option("maxFilesPerTrigger", 1).json(str(folder))


def forget_last_commit(checkpoint: Path) -> None:
    """What a driver leaves that dies after its batch was published: Spark repeats the batch."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


@needs_data_sources
@beside_other_tests
def test_stream_sink(spark: SparkSession, graph: Graph, tmp_path: Path) -> None:
    spark.dataSource.register(og_spark.OmnigraphDataSource)
    for _ in range(2):
        writer = stream_of_people(spark, tmp_path / "in").writeStream.format("omnigraph")
        writer = writer.option("type", "Person").option("path", graph.root)
        writer = writer.option("checkpointLocation", str(tmp_path / "place"))
        writer.trigger(availableNow=True).start().awaitTermination()
        forget_last_commit(tmp_path / "place")

    assert sum(name.startswith("s") for name in ages(graph)) == 6
    assert graph.maintenance.check().ok


@beside_other_tests
def test_stream_by_foreach_batch(spark: SparkSession, graph: Graph, tmp_path: Path) -> None:
    load = og_spark.foreach_batch(graph.root, stream="people", type="Person")
    for _ in range(2):
        writer = stream_of_people(spark, tmp_path / "in").writeStream.foreachBatch(load)
        writer = writer.option("checkpointLocation", str(tmp_path / "place"))
        writer.trigger(availableNow=True).start().awaitTermination()
        forget_last_commit(tmp_path / "place")

    assert sum(name.startswith("s") for name in ages(graph)) == 6
    assert graph.maintenance.check().ok


@pytest.mark.skipif(HAS_READ_LIMITS, reason="nothing is missing from Spark 4.2")
def test_what_is_missing_is_refused_by_name(spark: SparkSession, graph: Graph) -> None:
    if not HAS_DATA_SOURCES:
        with pytest.raises(SparkUnavailableError) as caught:
            _ = og_spark.OmnigraphDataSource
        way_out = "graph.load({TYPE: frame})"
    else:
        options = {"type": "Person", "path": graph.root, "startingCommit": "now"}
        limit = {"maxCommitsPerBatch": "3"}
        with pytest.raises(SparkUnavailableError) as caught:
            og_spark.OmnigraphDataSource({**options, **limit}).schema()
        way_out = "Remove the option"
    assert spark.version in str(caught.value)
    assert way_out in str(caught.value)
