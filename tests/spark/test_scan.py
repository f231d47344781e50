"""A graph read by tasks: the same rows as in one process, at one snapshot, typed refusals first."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.errors import InvalidInputError, NotFoundError
from omnigraph_lake.graph import Graph
from omnigraph_lake.runner.scan import data_frame, read_group, scan_plan, scan_task
from omnigraph_lake.runner.types import from_spark
from omnigraph_lake.storage.objects.location import parse_root
from tests.s3.server import WRITER
from tests.spark.test_types import EVERYTHING_SCHEMA, bits, everything
from tests.spark.versions import arrow_table
from tests.stores import root_at

pytestmark = pytest.mark.spark

SCHEMA = """
node Person { name: String @key  age: U64?  place: Vector(2)?  photo: Blob? }
node Empty { note: String? }
edge Knows: Person -> Person { since: Date? }
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A graph that no test changes."""
    return forty_people(root_at(tmp_path_factory.mktemp("people") / "graph"))


def forty_people(root: str) -> Graph:
    """Forty people in four fragments, each of whom knows the next."""
    graph = og.init(root, schema=SCHEMA)
    for start in range(0, 40, 10):
        graph.write({"Person": [_person(n) for n in range(start, start + 10)]})
    graph.write({"Knows": [{"src": f"p{n}", "dst": f"p{n + 1}"} for n in range(39)]})
    return graph


def _person(number: int) -> dict[str, Any]:
    return {
        "name": f"p{number}",
        "age": 2**64 - 1 - number,
        "place": [number, number] if number % 2 else None,
        "photo": b"x" * number,
    }


def rows(frame: DataFrame, *by: str) -> list[dict[str, Any]]:
    return [each.asDict() for each in frame.orderBy(*by).collect()]


def test_nodes_and_edges_come_whole(graph: Graph, spark: SparkSession) -> None:
    people = rows(graph.spark(spark).nodes("Person", where="name = 'p7'"), "id")
    known = graph.spark(spark).edges("Knows")

    assert people == [
        {
            "id": "p7",
            "name": "p7",
            "age": Decimal(2**64 - 8),
            "place": [7.0, 7.0],
            "photo": b"x" * 7,
        }
    ]
    assert known.columns == ["id", "src", "dst", "since"]
    assert known.count() == 39


def test_every_type_of_the_catalog_is_read_as_it_was_written(
    graph_root: str, spark: SparkSession
) -> None:
    written = everything()
    graph = og.init(graph_root, schema=EVERYTHING_SCHEMA)
    graph.write({"Everything": written})

    read = arrow_table(graph.spark(spark).nodes("Everything").orderBy("id"))

    stored = pa.Table.from_batches(
        [from_spark(batch, written.schema) for batch in read.to_batches()], written.schema
    )
    assert bits(stored) == sorted(bits(written), key=lambda row: row["id"])


def test_columns_and_condition_narrow_what_is_read(graph: Graph, spark: SparkSession) -> None:
    oldest = 2**64 - 1
    frame = graph.spark(spark).nodes("Person", columns=["age", "name"], where=f"age > {oldest - 3}")

    assert frame.columns == ["age", "name"]
    assert [row["name"] for row in rows(frame, "name")] == ["p0", "p1", "p2"]


@pytest.mark.nightly("a frame like any other; queries of the gate join and group scans")
def test_a_scan_can_be_joined_and_grouped(graph: Graph, spark: SparkSession) -> None:
    on_spark = graph.spark(spark)
    edges = on_spark.edges("Knows", columns=["src", "dst"])
    people = on_spark.nodes("Person", columns=["id", "age"])

    older = edges.join(people, edges["dst"] == people["id"]).agg(f.sum("age")).first()

    assert older is not None
    assert older[0] == sum(2**64 - 1 - n for n in range(1, 40))


def test_what_is_published_later_stays_invisible(graph_root: str, spark: SparkSession) -> None:
    graph = forty_people(graph_root)
    pinned = graph.spark(spark)
    before = pinned.nodes("Person", columns=["id"])
    graph.write({"Person": [_person(100)]})
    graph.delete({"Person": ["p3"]})

    assert before.count() == 40
    assert pinned.nodes("Person", columns=["id"]).count() == 40
    assert pinned.edges("Knows", columns=["id"]).count() == 39
    assert graph.spark(spark).edges("Knows", columns=["id"]).count() == 37


def test_an_empty_table_is_an_empty_frame_with_all_columns(
    graph: Graph, spark: SparkSession
) -> None:
    empty = graph.spark(spark).nodes("Empty")

    assert empty.columns == ["id", "note"]
    assert empty.collect() == []


def test_a_condition_that_no_row_meets_gives_no_rows(graph: Graph, spark: SparkSession) -> None:
    assert graph.spark(spark).nodes("Person", where="name = 'nobody'").collect() == []


def test_groups_of_fragments_are_tasks_of_their_own(graph: Graph, spark: SparkSession) -> None:
    entry = graph.snapshot().tables[names.node_table_key("Person")]
    plan = scan_plan(parse_root(graph.root), entry, columns=["id"], rows_per_task=2020)

    frame = data_frame(spark, plan).withColumn("task", f.spark_partition_id())

    per_task = [row["count"] for row in rows(frame.groupBy("task").count(), "task")]
    assert len(plan.groups) == 2
    assert per_task == [20, 20]


def test_a_plan_can_be_sent_anywhere_and_read_there(graph: Graph) -> None:
    entry = graph.snapshot().tables[names.node_table_key("Person")]
    plan = scan_plan(parse_root(graph.root), entry, columns=["name"], where="name < 'p2'")

    sent = pickle.loads(pickle.dumps(plan))  # noqa: S301
    read = [row for group in range(len(sent.groups)) for row in _names(read_group(sent, group))]

    assert sent == plan
    assert sorted(read) == sorted(["p0", "p1", *(f"p1{n}" for n in range(10))])


def _names(batches: Iterator[pa.RecordBatch]) -> list[str]:
    return [name for batch in batches for name in batch.column("name").to_pylist()]


def test_options_of_the_store_travel_in_the_task_and_show_nowhere(
    graph: Graph, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    user, secret = WRITER
    options = {"aws_access_key_id": user, "aws_secret_access_key": secret}
    root = parse_root(graph.root, storage_options=options)
    entry = graph.snapshot().tables[names.node_table_key("Person")]
    plan = scan_plan(root, entry, columns=["id"])

    frame = data_frame(spark, plan)

    assert frame.count() == 40
    assert secret in str(_closure(scan_task(plan)).root.storage_options)
    assert secret not in repr(plan)
    frame.explain(extended=True)
    assert secret not in capsys.readouterr().out
    assert secret not in str(spark.sql("SET").collect())


def _closure(task: Any) -> Any:
    (plan,) = (cell.cell_contents for cell in task.__closure__)
    return plan


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"columns": ["nmae"]}, "node:Person has no column 'nmae' (did you mean `name`?)"),
        ({"columns": "name"}, "columns are 'name', expected a list"),
        ({"columns": []}, "no columns were asked for"),
        ({"columns": ["name", "name"]}, "Duplicate column name: name"),
        ({"where": "height > 3"}, "No field named height"),
        ({"where": "age"}, "does not return a boolean"),
        ({"where": 3}, "where is 3, expected a condition as text"),
    ],
)
def test_what_makes_no_sense_is_refused_before_a_job_runs(
    graph: Graph, spark: SparkSession, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        graph.spark(spark).nodes("Person", **arguments)

    assert said in caught.value.what


def test_an_unknown_type_is_refused_with_a_hint(graph: Graph, spark: SparkSession) -> None:
    with pytest.raises(NotFoundError, match=r"no node type 'Persn' \(did you mean `Person`\?\)"):
        graph.spark(spark).nodes("Persn")
    with pytest.raises(NotFoundError, match="no edge type 'Person'"):
        graph.spark(spark).edges("Person")


def test_the_session_of_the_process_is_used_if_none_is_given(
    graph: Graph, spark: SparkSession
) -> None:
    assert graph.spark().spark is spark
