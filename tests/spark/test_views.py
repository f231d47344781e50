"""What the types of a graph are called in Spark SQL, and what the views show."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import omnigraph_lake as og
from omnigraph_lake.errors import InvalidInputError, ReadOnlyError
from omnigraph_lake.graph import Graph
from omnigraph_lake.runner.scan import view_names

pytestmark = pytest.mark.spark

SCHEMA = """
node Person { name: String @key  age: I64? }
node Likes { what: String @key }
edge Knows: Person -> Person
edge Likes: Person -> Likes
"""


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write(
        {
            "Person": [{"name": "ann", "age": 3}, {"name": "bob", "age": 4}],
            "Knows": [{"src": "ann", "dst": "bob"}],
            "node:Likes": [{"what": "tea"}],
            "edge:Likes": [{"src": "ann", "dst": "tea"}, {"src": "bob", "dst": "tea"}],
        }
    )
    return graph


def test_every_type_is_a_view_and_sql_joins_them(graph: Graph, spark: SparkSession) -> None:
    registered = graph.spark(spark).views()

    assert sorted(registered) == ["Knows", "Person", "edge_Likes", "node_Likes"]
    found = spark.sql(
        "SELECT p.age, l.dst FROM Person p JOIN Knows k ON k.dst = p.id "
        "JOIN edge_Likes l ON l.src = p.id JOIN node_likes ON node_likes.id = l.dst"
    ).collect()
    assert [tuple(row) for row in found] == [(4, "tea")]


def test_views_stay_at_their_snapshot_until_registered_again(
    graph: Graph, spark: SparkSession
) -> None:
    graph.spark(spark).views(types=["Person"])
    graph.write({"Person": [{"name": "cid"}]})

    before = spark.sql("SELECT * FROM person").count()
    graph.spark(spark).views(types=["Person"])
    after = spark.sql("SELECT * FROM person").count()

    assert (before, after) == (2, 3)


def test_a_view_has_the_columns_that_were_chosen(graph: Graph, spark: SparkSession) -> None:
    graph.spark(spark).views(columns={"Person": ["age"], "edge:Likes": ["dst", "src"]})

    assert spark.table("Person").columns == ["age"]
    assert spark.table("edge_Likes").columns == ["dst", "src"]
    assert spark.table("node_Likes").columns == ["id", "what"]


def test_a_wrong_column_or_type_registers_no_view(graph: Graph, spark: SparkSession) -> None:
    spark.catalog.dropTempView("Knows")

    with pytest.raises(InvalidInputError, match="node:Person has no column 'weight'"):
        graph.spark(spark).views(columns={"Person": ["weight"]})
    with pytest.raises(InvalidInputError, match=r"no type 'Persn' .* \(did you mean `Person`\?\)"):
        graph.spark(spark).views(types=["Persn"])
    assert not spark.catalog.tableExists("Knows")


def test_names_that_differ_only_in_case_get_their_kind_in_front() -> None:
    assert view_names(["node:Person", "edge:PERSON", "edge:Knows"]) == {
        "node:Person": "node_Person",
        "edge:PERSON": "edge_PERSON",
        "edge:Knows": "Knows",
    }


@pytest.mark.parametrize(
    "keys", [["node:Person", "node:PERSON"], ["node:A", "edge:A", "node:node_A"]]
)
def test_types_that_cannot_be_told_apart_are_refused(keys: list[str]) -> None:
    with pytest.raises(InvalidInputError, match="because Spark ignores case"):
        view_names(keys)


def test_a_graph_on_spark_answers_queries_at_its_snapshot_and_loads_on_its_session(
    graph: Graph, spark: SparkSession
) -> None:
    text = "query older($least: I64) { match { $p: Person  $p.age > $least } return { $p.name } }"
    people = spark.createDataFrame([("cid", 9)], "name string, age bigint")

    with graph.spark(spark) as on_spark:
        report = on_spark.load({"Person": people}, actor="ann")
        before = on_spark.query(text, least=3).collect()
    after = graph.spark(spark).query(text, {"least": 3}, name="older").collect()

    assert (report.engine, report.inserted) == ("spark", {"Person": 1})
    assert graph.commits(limit=1)[0].actor == "ann"
    assert [row[0] for row in before] == ["bob"]
    assert sorted(row[0] for row in after) == ["bob", "cid"]


def test_a_view_on_spark_is_read_only(graph: Graph, spark: SparkSession) -> None:
    with pytest.raises(ReadOnlyError, match="a view of"):
        graph.snapshot().spark(spark).load({"Person": spark.createDataFrame([("x",)], ["name"])})
