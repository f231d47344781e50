"""`format("omnigraph")`: reads pinned to a state, writes as one checked commit."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.graph import Graph
from omnigraph_lake.spark.datasource import OmnigraphDataSource, planned_stream
from tests.gate.selection import for_gate
from tests.spark.test_types import EVERYTHING_SCHEMA, bits, everything
from tests.stores import folder_of

pytestmark = pytest.mark.spark

SCHEMA = """
node Person { name: String @key  age: U64?  place: Vector(2)? }
edge Knows: Person -> Person
edge Person: Person -> Person
"""


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(OmnigraphDataSource)


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write({"node:Person": [{"name": f"p{n}", "age": n, "place": [n, n]} for n in range(10)]})
    return graph


def load(spark: SparkSession, graph: Graph, **options: str) -> DataFrame:
    reader = spark.read.format("omnigraph").option("type", "node:Person")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(graph.root)


def save(frame: DataFrame, graph: Graph, mode: str, **options: str) -> None:
    writer = frame.write.format("omnigraph").option("type", "node:Person").mode(mode)
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save(graph.root)


def staged(graph: Graph) -> list[Path]:
    return [path for path in folder_of(graph.root, names.STAGING_DIR).rglob("*") if path.is_file()]


def people(graph: Graph) -> dict[str, int | None]:
    rows = graph.scan("node:Person", columns=["id", "age"]).read_all().to_pylist()
    return {row["id"]: row["age"] for row in rows}


def test_columns_and_filter_narrow_what_is_read(graph: Graph, spark: SparkSession) -> None:
    found = load(spark, graph, columns="age, name", filter="age >= 8").orderBy("name").collect()

    assert [tuple(row) for row in found] == [(8, "p8"), (9, "p9")]


def test_a_frame_stays_at_the_state_it_was_loaded_from(graph: Graph, spark: SparkSession) -> None:
    frame = load(spark, graph)
    graph.write({"node:Person": [{"name": "later"}]})

    assert frame.count() == 10
    assert frame.where("age > 3").unionAll(frame).count() == 16
    assert load(spark, graph).count() == 11


def test_an_earlier_state_is_read_by_version_commit_or_time(
    graph: Graph, spark: SparkSession
) -> None:
    graph.write({"node:Person": [{"name": "later"}]})
    before = graph.commits()[1]

    assert load(spark, graph, version=str(before.manifest_version)).count() == 10
    assert load(spark, graph, commit=before.commit_id).count() == 10
    assert load(spark, graph, timestampAsOf=before.created_at, branch="main").count() == 10


def test_an_empty_type_is_an_empty_frame(graph: Graph, spark: SparkSession) -> None:
    frame = spark.read.format("omnigraph").option("type", "Knows").load(graph.root)

    assert frame.columns == ["id", "src", "dst"]
    assert frame.collect() == []


WITHOUT_SENSE: list[tuple[dict[str, str], str]] = [
    ({"version": "77"}, "manifest version 77"),
    ({"version": "new"}, "version is 'new', expected the number"),
    ({"commit": "nope"}, "commit is 'nope', expected the number or id of one"),
    ({"commit": "nope", "version": "1"}, "a state was chosen twice, by version and by commit"),
    ({"timestampAsOf": "2001-01-01"}, "had no commit at 2001-01-01"),
    ({"branch": "dev"}, "has no branch 'dev'"),
    ({"type": "Persn"}, "has no type 'Persn' (did you mean `Person`?)"),
    ({"type": "Person"}, "has a node type and an edge type 'Person'"),
    ({"columns": "nmae"}, "node:Person has no column 'nmae' (did you mean `name`?)"),
    ({"filter": "height > 3"}, "No field named height"),
    ({"fliter": "age > 3"}, "there is no option 'fliter' (did you mean `filter`?)"),
]


@pytest.mark.parametrize(("options", "said"), WITHOUT_SENSE)
def test_options_without_sense_are_refused(
    graph: Graph, options: dict[str, str], said: str
) -> None:
    source = OmnigraphDataSource({"path": graph.root, "type": "node:Person", **options})

    with pytest.raises(OmnigraphError) as caught:
        source.schema()

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"), for_gate(WITHOUT_SENSE, lambda case: case is WITHOUT_SENSE[-1])
)
def test_options_without_sense_are_refused_when_the_frame_is_made(
    graph: Graph, spark: SparkSession, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        load(spark, graph, **options)

    assert said in str(caught.value)


@pytest.mark.nightly("one more write; the gate appends rows of every type, as one commit")
def test_an_append_is_one_commit_that_leaves_nothing_behind(
    graph: Graph, spark: SparkSession
) -> None:
    rows = spark.range(100, 120, 1, 4).selectExpr("concat('n', id) AS name", "id AS age")

    save(rows, graph, "append", actor="pipeline")

    assert len(people(graph)) == 30
    assert people(graph)["n117"] == 117
    assert graph.commits()[0].actor == "pipeline"
    assert len(graph.commits()) == 3
    assert staged(graph) == []


def test_an_overwrite_replaces_the_type_even_by_rows_read_from_it(
    graph: Graph, spark: SparkSession
) -> None:
    save(load(spark, graph, filter="age < 3"), graph, "overwrite")

    assert people(graph) == {"p0": 0, "p1": 1, "p2": 2}
    assert staged(graph) == []


@pytest.mark.nightly("one more write; the gate overwrites a type, and reads one without rows")
def test_an_overwrite_without_rows_empties_the_type(graph: Graph, spark: SparkSession) -> None:
    save(load(spark, graph, filter="age > 99"), graph, "overwrite")

    assert people(graph) == {}


def test_every_type_of_the_catalog_can_be_read_and_written_again(
    graph_root: str, spark: SparkSession
) -> None:
    graph = og.init(graph_root, schema=EVERYTHING_SCHEMA)
    graph.write({"Everything": everything()})
    copy = og.init(f"{graph_root}-copy", schema=EVERYTHING_SCHEMA)
    source = spark.read.format("omnigraph").option("type", "Everything").load(graph.root)

    writer = source.write.format("omnigraph").option("type", "Everything")
    writer.option("actor", "pipeline").mode("append").save(copy.root)

    assert [commit.actor for commit in copy.commits()][:1] == ["pipeline"]
    assert len(copy.commits()) == 2
    assert staged(copy) == []
    columns = [name for name in everything().column_names if name != "bytes"]
    written = copy.scan("Everything", columns=columns).read_all().sort_by("id")
    assert bits(written) == bits(everything().select(columns).sort_by("id"))
    blobs = copy.spark(spark).nodes("Everything", columns=["bytes"], where="bytes IS NOT NULL")
    assert sorted(row[0] for row in blobs.collect()) == [b"", b"\x00\xff", b"y" * 100_000]


def test_rows_that_break_a_rule_are_refused_whole(graph: Graph, spark: SparkSession) -> None:
    rows = spark.createDataFrame([("new", 1), ("p3", 2)], "name string, age int")

    with pytest.raises(PySparkException, match="1 id_exists"):
        save(rows, graph, "append")

    assert len(people(graph)) == 10
    assert staged(graph) == []


def test_a_task_that_fails_leaves_neither_rows_nor_parts(graph: Graph, spark: SparkSession) -> None:
    rows = spark.range(0, 8, 1, 4).selectExpr(
        "concat('n', id) AS name", "IF(id = 7, raise_error('no more'), id) AS age"
    )

    with pytest.raises(PySparkException, match="no more"):
        save(rows, graph, "append")

    assert len(people(graph)) == 10
    # Spark reports the failure while other tasks still run.
    deadline = time.monotonic() + 280
    while staged(graph) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert staged(graph) == []


def test_a_graph_that_is_not_there_is_named(graph_root: str) -> None:
    with pytest.raises(OmnigraphError, match="there is no graph at"):
        OmnigraphDataSource({"path": graph_root, "type": "Person"}).schema()


ENDS_SCHEMA = """
node Person { name: String @key }
node Company { name: String @key }
edge Owns: Person -> Person | Company
"""


def test_types_of_ends_are_names_in_loads_frames_and_sql(
    spark: SparkSession, graph_root: str
) -> None:
    graph = og.init(graph_root, schema=ENDS_SCHEMA)
    graph.write({"Person": [{"name": "a"}], "Company": [{"name": "a"}]})
    owned = [("o1", "a", "a", "Company"), ("o2", "a", "a", "Person"), ("o3", "a", "b", "Company")]
    frame = spark.createDataFrame(owned, "id string, src string, dst string, dst_type string")

    report = graph.load(
        {"Owns": frame},
        spark=spark,
        on_error="quarantine",
        options=og.LoadOptions(max_rejected=10),
    )

    assert report.quarantined == {"missing_endpoint": 1}
    rows = spark.read.format("omnigraph").option("type", "Owns").load(graph.root)
    assert {(row.id, row.dst_type) for row in rows.collect()} == {
        ("o1", "Company"),
        ("o2", "Person"),
    }
    on_spark = graph.spark(spark)
    found = on_spark.sql("SELECT id FROM Owns WHERE dst_type = 'Company'").collect()
    assert [row.id for row in found] == ["o1"]
    with pytest.raises(OmnigraphError, match="the condition names dst_type"):
        on_spark.edges("Owns", where="dst_type = 'Company'")
    stream = planned_stream({"path": graph.root, "type": "Owns"})
    assert stream.tables["edge:Owns"].field("dst_type").type == pa.string()
