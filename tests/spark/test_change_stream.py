"""`readStream.format("omnigraph")`: changes exactly once, from a place that restarts keep."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import omnigraph_lake as og
from omnigraph_lake.diff.change_feed import changes
from omnigraph_lake.diff.table_diff import diff_table
from omnigraph_lake.errors import InvalidInputError, NotFoundError, OmnigraphError
from omnigraph_lake.graph import Graph
from omnigraph_lake.runner.spark_versions import ReadLimit, ReadMaxFiles
from omnigraph_lake.spark.change_source import (
    ChangePart,
    ChangeStreamReader,
    carried_changes,
    change_parts,
    read_part,
)
from omnigraph_lake.spark.datasource import OmnigraphDataSource, planned_stream
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.staging.row_changes import plan_row_changes
from tests.diff.test_change_feed import publish_versions, table_of
from tests.gate.seeds import case_seeds
from tests.gate.selection import for_gate
from tests.spark.test_types import EVERYTHING_SCHEMA, bits, everything
from tests.spark.versions import HAS_READ_LIMITS, arrow_table, needs_read_limits

pytestmark = pytest.mark.spark

SCHEMA = """
node Person { name: String @key  age: U64?  place: Vector(2)? }
edge Knows: Person -> Person
"""
Change = tuple[str, str, str, int | None, int | None]
PATIENCE_SECONDS = 280
"""Only a stream that hangs takes so long, however busy the machine is."""


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(OmnigraphDataSource)


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return og.init(graph_root, schema=SCHEMA)


def put(graph: Graph, *names: str, age: int | None = None) -> str:
    rows = [{"name": name, "age": age, "place": [1, 2]} for name in names]
    commit_id = graph.write({"Person": rows}, mode="merge").commit_id
    assert commit_id is not None
    return commit_id


def stream(spark: SparkSession, graph: Graph, **options: str) -> DataFrame:
    reader = spark.readStream.format("omnigraph").option("type", "Person")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(graph.root)


def started(frame: DataFrame, home: Path, *, to_the_end: bool = True) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("path", str(home / "out"))
    writer = writer.option("checkpointLocation", str(home / "checkpoint"))
    if to_the_end:
        writer = writer.trigger(availableNow=True)
    return writer.start()


def run(frame: DataFrame, home: Path) -> StreamingQuery:
    query = started(frame, home)
    assert query.awaitTermination(PATIENCE_SECONDS)
    return query


def written(spark: SparkSession, home: Path) -> list[Change]:
    """What the sink holds, in any order."""
    rows = spark.read.parquet(str(home / "out")).collect()
    return [
        (
            row["_commit"],
            row["_op"],
            row["id"],
            None if row["before"] is None or row["before"]["age"] is None else row["before"]["age"],
            None if row["after"] is None or row["after"]["age"] is None else row["after"]["age"],
        )
        for row in rows
    ]


def fed(graph: Graph) -> list[Change]:
    """What the feed says in this process."""
    found: list[Change] = []
    feed = changes(
        graph._objects, graph.schema.catalog, graph.branch, start="beginning", types=["Person"]
    )
    for commit in feed:
        for table in commit.tables:
            found += [
                (
                    commit.commit_id,
                    row["op"],
                    row["id"],
                    (row["before"] or {}).get("age"),
                    (row["after"] or {}).get("age"),
                )
                for row in table.reader().read_all().to_pylist()
            ]
    return found


@needs_read_limits
@pytest.mark.nightly("the other tests read batches in this process; this one runs two streams")
def test_a_stream_from_the_beginning_that_is_started_again_has_every_change_once(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    put(graph, "a", "b", age=2**63)
    put(graph, "a", "c", age=1)
    run(stream(spark, graph, startingCommit="beginning", maxCommitsPerBatch="9"), tmp_path)
    graph.write({"Knows": [{"src": "a", "dst": "b"}]}, actor="ann")
    graph.delete({"Person": ["b"]}, actor="bob", message="b left")
    put(graph, "d", age=4)

    again = run(stream(spark, graph, startingCommit="beginning", maxCommitsPerBatch="2"), tmp_path)

    batches = [batch["numInputRows"] for batch in again.recentProgress if batch["numInputRows"]]
    assert batches == [1, 1]
    found = written(spark, tmp_path)
    assert sorted(found) == sorted(fed(graph))
    assert {each[1] for each in found} == {"insert", "update", "delete"}
    rows = spark.read.parquet(str(tmp_path / "out"))
    gone = rows.where("_op = 'delete'").collect()
    second_newest = graph.commits()[1]
    told = ("_actor", "_message", "id", "after", "changed")
    assert [tuple(row[name] for name in told) for row in gone] == [
        ("bob", "b left", "b", None, None)
    ]
    assert gone[0]["_committed_at"].isoformat() == second_newest.created_at.removesuffix("+00:00")
    assert gone[0]["before"].asDict() == {"id": "b", "name": "b", "age": 2**63, "place": [1, 2]}
    assert [row["changed"] for row in rows.where("_op = 'update'").collect()] == [["age"]]


@pytest.mark.timeout(1800)
@pytest.mark.nightly(
    "six runs of a stream beside a writer; in the gate a stream that is started twice delivers "
    "every change once, and readers plan the same batch again"
)
def test_a_stream_that_is_stopped_and_started_again_delivers_every_change_once(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(*case_seeds("restarted-stream", 1))
    done = threading.Event()

    def write() -> None:
        for number in range(40):
            some = [f"p{n}" for n in chance.sample(range(8), 3)]
            put(graph, *some, age=number)
            if number % 7 == 6:
                graph.delete({"Person": some[:1]})
            if done.wait(chance.uniform(0, 0.5)):
                break

    writer = threading.Thread(target=write)
    writer.start()
    try:
        limit = {"maxCommitsPerBatch": "3"} if HAS_READ_LIMITS else {}
        frame = stream(spark, graph, startingCommit="beginning", **limit)
        for _ in range(5):
            query = started(frame, tmp_path, to_the_end=False)
            query.awaitTermination(chance.uniform(1, 6))  # type: ignore[arg-type]
            query.stop()
        writer.join(PATIENCE_SECONDS)
    finally:
        done.set()
        writer.join()
    run(stream(spark, graph, startingCommit="beginning"), tmp_path)

    found = written(spark, tmp_path)
    assert len(found) == len(set(found)), "exactly once"
    assert sorted(found) == sorted(fed(graph))
    assert len({each[0] for each in found}) >= 40


@pytest.mark.nightly(
    "two more runs of a stream; in the gate a reader that saw nothing keeps its place, and a "
    "stream is started again at the place of its checkpoint"
)
def test_now_is_kept_by_a_stream_that_saw_nothing(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    put(graph, "before")
    run(stream(spark, graph, startingCommit="now"), tmp_path)
    put(graph, "between")
    run(stream(spark, graph, startingCommit="now"), tmp_path)

    assert [each[2] for each in written(spark, tmp_path)] == ["between"]


@needs_read_limits
@pytest.mark.nightly("one more run of a stream; the stream from the beginning is cut into batches")
def test_a_batch_has_so_many_commits_at_most(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    first = put(graph, "p0")
    for number in range(1, 6):
        put(graph, f"p{number}")

    query = run(stream(spark, graph, startingCommit=first, maxCommitsPerBatch="2"), tmp_path)

    sizes = [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]
    assert sizes == [2, 2, 1]
    assert sorted(each[2] for each in written(spark, tmp_path)) == ["p1", "p2", "p3", "p4", "p5"]


@pytest.mark.nightly(
    "two runs of a stream; the gate refuses such a cursor in tests/diff/test_change_feed.py"
)
def test_a_branch_that_was_made_anew_is_refused(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    put(graph.branches.create("dev"), "x")
    run(stream(spark, graph, startingCommit="beginning", branch="dev"), tmp_path)
    graph.branches.delete("dev")
    put(graph.branches.create("dev"), "y")

    with pytest.raises(StreamingQueryException, match="was deleted; the branch of that name"):
        run(stream(spark, graph, startingCommit="beginning", branch="dev"), tmp_path)
    assert [each[2] for each in written(spark, tmp_path)] == ["x"]


@pytest.mark.nightly(
    "one more run of a stream; test_datasource.py reads and writes every type in the gate"
)
def test_every_type_of_the_catalog_arrives_as_it_was_written(
    graph_root: str, spark: SparkSession, tmp_path: Path
) -> None:
    graph = og.init(graph_root, schema=EVERYTHING_SCHEMA)
    graph.write({"Everything": everything()})
    reader = spark.readStream.format("omnigraph").option("type", "Everything")
    run(reader.option("startingCommit", "beginning").load(graph.root), tmp_path)
    scanned = spark.read.format("omnigraph").option("type", "Everything").load(graph.root)

    rows = spark.read.parquet(str(tmp_path / "out")).select("after.*").orderBy("id")

    scanned = scanned.select(*rows.columns).orderBy("id")
    assert bits(arrow_table(rows)) == bits(arrow_table(scanned))


WITHOUT_SENSE: list[tuple[dict[str, str], str]] = [
    ({"startingCommit": "yesterday"}, "startingCommit is 'yesterday', expected 'now'"),
    ({"maxCommitsPerBatch": "0"}, "maxCommitsPerBatch is '0', expected a number from 1"),
    ({"startingCommit": "now", "columns": "age"}, "there is no option 'columns'"),
    ({"startingCommit": "now", "type": "Persn"}, "no type 'Persn' (did you mean `Person`?)"),
    ({"startingCommit": "now", "branch": "dev"}, "has no branch 'dev'"),
]


@pytest.mark.parametrize(("options", "said"), WITHOUT_SENSE)
def test_options_without_sense_are_refused(
    graph: Graph, options: dict[str, str], said: str
) -> None:
    source = OmnigraphDataSource({"path": graph.root, "type": "Person", **options})

    with pytest.raises(OmnigraphError) as caught:
        source.schema()

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"), for_gate(WITHOUT_SENSE, lambda case: case is WITHOUT_SENSE[0])
)
def test_options_without_sense_are_refused_when_the_stream_is_loaded(
    graph: Graph, spark: SparkSession, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        stream(spark, graph, **options)

    assert said in str(caught.value)


def test_a_reader_that_does_not_say_where_it_starts_is_refused(graph: Graph) -> None:
    source = OmnigraphDataSource({"path": graph.root, "type": "Person"})

    with pytest.raises(InvalidInputError, match="needs a starting commit"):
        source.streamReader(source.schema())


@pytest.mark.nightly("one more run of a stream; the gate refuses it where Spark asks for a reader")
def test_a_stream_that_does_not_say_where_it_starts_is_refused(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(StreamingQueryException, match="needs a starting commit"):
        run(stream(spark, graph), tmp_path)


def test_a_read_that_says_where_it_starts_is_refused(graph: Graph, spark: SparkSession) -> None:
    frame = spark.read.format("omnigraph").option("type", "Person").option("startingCommit", "now")

    with pytest.raises(PySparkException, match="are options of a stream"):
        frame.load(graph.root).collect()


def reader_of(graph: Graph, **options: str) -> ChangeStreamReader:
    """The reader as a process of Spark makes it."""
    given = {"path": graph.root, "type": "Person", "startingCommit": "beginning", **options}
    return ChangeStreamReader(planned_stream(given))


def test_a_stream_of_several_types_names_them_in_the_order_of_commits(graph: Graph) -> None:
    graph.write({"Person": [{"name": "ann", "age": 1}, {"name": "bob"}]})
    graph.write({"Knows": [{"id": "k", "src": "ann", "dst": "bob"}], "Person": [{"name": "cy"}]})
    graph.delete({"Person": ["cy"]})
    options = {"path": graph.root, "startingCommit": "beginning"}
    reader = ChangeStreamReader(planned_stream({**options, "types": "Knows, Person"}))
    start = reader.initialOffset()
    end = batch(reader, start)

    changes_read = [
        row
        for part in reader.partitions(start, end)
        for rows in reader.read(part)
        for row in rows.to_pylist()
    ]

    told = [(row["_type"], row["_op"], row["id"]) for row in changes_read]
    assert told == [
        ("Person", "insert", "ann"),
        ("Person", "insert", "bob"),
        ("Person", "insert", "cy"),
        ("Knows", "insert", "k"),
        ("Person", "delete", "cy"),
    ]
    knows = changes_read[3]["after"]
    assert (knows["src"], knows["dst"], knows["name"]) == ("ann", "bob", None)
    every = planned_stream({**options, "types": "*"})
    assert every.schema.fieldNames()[:2] == ["_type", "_op"]
    assert list(every.tables) == ["node:Person", "edge:Knows"]


def test_columns_of_one_name_and_two_types_are_no_stream(tmp_path: Path) -> None:
    schema = "node A { key: String @key  x: I64? }\nnode B { key: String @key  x: String? }"
    graph = og.init(str(tmp_path / "g"), schema=schema)
    options = {"path": graph.root, "startingCommit": "now"}

    with pytest.raises(InvalidInputError, match=r"node:A.x is int64 and node:B.x is string"):
        _ = planned_stream({**options, "types": "*"}).schema
    with pytest.raises(InvalidInputError, match="types were chosen twice"):
        planned_stream({**options, "types": "*", "type": "A"})


def batch(reader: ChangeStreamReader, start: dict[str, Any], limit: int = 99) -> dict[str, Any]:
    return reader.latestOffset(start, ReadMaxFiles(limit))


def read_all(reader: ChangeStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    parts = reader.partitions(start, end)
    return [
        f"{op} {name}"
        for part in parts
        for rows in reader.read(part)
        for op, name in zip(rows["_op"].to_pylist(), rows["id"].to_pylist(), strict=True)
    ]


def test_the_first_batch_begins_where_it_began_however_often_it_is_planned(graph: Graph) -> None:
    reader = reader_of(graph, startingCommit="now")
    start = reader.initialOffset()
    put(graph, "a")
    end = batch(reader, start)
    put(graph, "b")
    moved = reader.initialOffset()

    assert moved != start
    assert read_all(reader, moved, end) == ["insert a"]
    assert read_all(reader, end, batch(reader, end)) == ["insert b"]


def test_an_offset_stays_as_it_is_while_there_is_nothing_new(graph: Graph) -> None:
    reader = reader_of(graph, startingCommit="now")
    first = batch(reader, reader.initialOffset())

    assert first["cursor"] == first["since"]
    assert batch(reader, first) == first
    assert read_all(reader, reader.initialOffset(), first) == []
    put(graph, "a")
    assert batch(reader, first) != first


def test_a_query_that_ends_by_itself_ends_at_the_head_it_was_started_at(graph: Graph) -> None:
    put(graph, "a")
    put(graph, "b")
    reader = reader_of(graph)
    reader.prepareForTriggerAvailableNow()
    put(graph, "c")

    start = reader.initialOffset()
    first = batch(reader, start, 2)
    second = batch(reader, first, 2)

    assert read_all(reader, start, first) == ["insert a"]
    assert read_all(reader, first, second) == ["insert b"]
    assert batch(reader, second) == second
    assert read_all(reader, start, reader.latestOffset(start, ReadLimit())) == [
        "insert a",
        "insert b",
    ]


def test_a_version_that_is_gone_is_a_gap(graph: Graph) -> None:
    for name in "abc":
        put(graph, name)
    table_of(graph, "node:Person").cleanup_old_versions(versions=[2])
    reader = reader_of(graph)
    start = reader.initialOffset()

    with pytest.raises(NotFoundError, match="version 2 of node:Person is not kept"):
        reader.partitions(start, batch(reader, start))


def test_a_column_that_came_later_asks_for_the_stream_to_be_loaded_again(graph: Graph) -> None:
    put(graph, "a")
    reader = reader_of(graph)
    start = reader.initialOffset()
    table = table_of(graph, "node:Person")
    table.add_columns({"nick": "'al'"})
    publish_versions(graph, {"node:Person": table.version})
    end = batch(reader, start)

    with pytest.raises(InvalidInputError, match="a column 'nick' of node:Person that the stream"):
        reader.partitions(start, end)
    again = reader_of(graph)
    assert read_all(again, start, end) == ["insert a", "update a"]


def test_a_column_that_is_gone_is_named_but_not_shown(graph: Graph) -> None:
    put(graph, "a", age=3)
    table = table_of(graph, "node:Person")
    table.drop_columns(["age"])
    publish_versions(graph, {"node:Person": table.version})
    reader = reader_of(graph)
    start = reader.initialOffset()

    rows = [
        row
        for part in reader.partitions(start, batch(reader, start))
        for found in reader.read(part)
        for row in found.to_pylist()
    ]

    assert [(row["_op"], row["changed"]) for row in rows] == [("insert", None), ("update", ["age"])]
    assert rows[1]["before"] == {"id": "a", "name": "a", "place": [1, 2]}


def test_a_column_whose_values_do_not_fit_is_refused(graph: Graph) -> None:
    put(graph, "a")
    reader = reader_of(graph)
    start = reader.initialOffset()
    table = table_of(graph, "node:Person")
    table.drop_columns(["age"])
    table.add_columns({"age": "'old'"})
    publish_versions(graph, {"node:Person": table.version})

    with pytest.raises(InvalidInputError, match=r"has node:Person\.age as string"):
        read_all(reader, start, batch(reader, start))


def split(part: ChangePart, rows: int) -> Iterator[ChangePart]:
    """The same changes in parts of few rows."""
    plan = part.diff.plan
    few = plan_row_changes(part.diff.root, plan.before, plan.after, rows_per_part=rows)
    commit = og.open(part.diff.root.uri).commits()[0]
    yield from change_parts(commit, replace(part.diff, plan=few))


@pytest.mark.parametrize("went", [False, True])
def test_rows_that_only_came_or_only_went_are_read_in_parts(graph: Graph, went: bool) -> None:
    root = parse_root(graph.root)
    empty = graph.snapshot().tables["node:Person"]
    for start in range(0, 30, 10):
        put(graph, *(f"p{n:02}" for n in range(start, start + 10)))
    full = graph.snapshot().tables["node:Person"]
    diff = diff_table(root, full, empty) if went else diff_table(root, empty, full)
    (whole,) = change_parts(graph.commits()[0], diff)
    parts = list(split(whole, 10))
    stored = lance.dataset(root.child(full.location)).schema

    assert len(parts) == 3
    assert all(each.part is not None for each in parts)
    found = [row for part in parts for each in read_part(part, stored) for row in each.to_pylist()]
    met = [row for each in read_part(replace(whole, part=None), stored) for row in each.to_pylist()]
    assert sorted(found, key=lambda row: str(row["id"])) == met
    assert len(met) == 30
    assert pa.Table.from_pylist(found, schema=carried_changes(stored)).num_rows == 30
