"""What Spark reads is held while it is in use, and told as gone when it is."""

from __future__ import annotations

import pickle

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import omnigraph_lake as og
from omnigraph_lake.errors import InvalidInputError, NoLongerKeptError
from omnigraph_lake.graph import Graph
from omnigraph_lake.maintenance.maintain import Policy
from omnigraph_lake.runner.spark_versions import ReadLimit
from omnigraph_lake.spark.change_source import ChangeStreamReader
from omnigraph_lake.spark.datasource import planned_stream
from tests.behind import meanwhile

pytestmark = pytest.mark.spark

NUMBERS = "query q() { match { $d: Doc } return { $d.n } }"


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema="node Doc { name: String @key  n: I64 }")
    graph.write({"Doc": [{"name": "a", "n": 1}]})
    return graph


def _clean(graph: Graph) -> None:
    for n in range(2, 5):
        graph.write({"Doc": [{"name": "a", "n": n}]}, mode="merge")
    graph.maintenance.optimize()
    graph.maintenance.cleanup(keep_versions=1, allow_unsafe_keep=True, dry_run=False)


def test_frames_are_held_while_they_are_in_use_and_told_as_gone_afterwards(
    graph: Graph, spark: SparkSession
) -> None:
    with graph.spark(spark) as on_spark:
        frame = on_spark.nodes("Doc")
        assert [hold.purpose for hold in graph.holds.list()] == ["spark"]
        _clean(graph)
        assert [row["n"] for row in frame.collect()] == [1]
    assert graph.holds.list() == ()

    graph.maintenance.cleanup(keep_versions=1, allow_unsafe_keep=True, dry_run=False)
    with pytest.raises(PySparkException, match="no longer kept"):
        frame.collect()
    with pytest.raises(NoLongerKeptError, match="no longer kept"):
        on_spark.nodes("Doc")


def test_diffs_and_merges_on_spark_hold_what_they_read_and_let_go(
    graph: Graph, spark: SparkSession
) -> None:
    start = graph.snapshot().commit_id
    assert start is not None
    branch = graph.branches.create("b")
    branch.write({"Doc": [{"name": "b", "n": 2}]})

    assert graph.merge("b", spark=spark).commit_id is not None
    assert graph.diff(start, spark=spark).counts.inserted == 1
    assert graph.holds.list() == ()


def test_a_query_on_spark_is_held_while_its_frame_is_in_use(
    graph: Graph, spark: SparkSession
) -> None:
    frame = graph.query(NUMBERS, spark=spark)
    assert isinstance(frame, DataFrame)

    assert [hold.purpose for hold in graph.holds.list()] == ["spark"]
    _clean(graph)
    assert [row[0] for row in frame.collect()] == [1]
    with pytest.raises(InvalidInputError, match="mutation"):
        graph.query('query q() { insert Doc { name: "x", n: 1 } }', spark=spark)
    assert len(graph.holds.list()) == 1, "a query that is refused leaves none"


def test_a_check_on_spark_holds_what_it_reads_and_lets_go(
    graph: Graph, spark: SparkSession
) -> None:
    with meanwhile("hold.verify", lambda: [hold.purpose for hold in graph.holds.list()]) as seen:
        assert graph.maintenance.check(spark=spark).ok

    assert seen == [["check"]]
    assert graph.holds.list() == ()
    assert graph.maintenance.check().ok


def test_the_check_of_a_maintenance_run_on_spark_reads_what_a_cleanup_would_remove(
    graph: Graph, spark: SparkSession
) -> None:
    policy = Policy(optimize=False, cleanup=False)
    with meanwhile("hold.verify", lambda: _clean(graph)):
        report = graph.maintenance.run(policy, spark=spark)

    assert (report.steps[0].messages, report.exit_code) == ((), 0)
    assert graph.holds.list() == ()


def test_whoever_only_reads_holds_nothing_on_spark(graph: Graph, spark: SparkSession) -> None:
    reader = og.open(graph.root, read_only=True)
    assert reader.spark(spark).nodes("Doc").count() == 1
    frame = reader.query(NUMBERS, spark=spark)
    assert isinstance(frame, DataFrame)
    assert frame.count() == 1
    assert reader.maintenance.check(spark=spark).ok
    assert graph.holds.list() == ()


def test_a_batch_of_a_stream_is_held_until_it_is_done_if_that_is_asked_for(graph: Graph) -> None:
    options = {"path": graph.root, "type": "Doc", "startingCommit": "beginning"}
    reader = ChangeStreamReader(planned_stream({**options, "hold": "true"}))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadLimit())

    parts = reader.partitions(start, end)
    assert [hold.purpose for hold in graph.holds.list()] == ["stream"]
    _clean(graph)
    task = pickle.loads(pickle.dumps(reader))  # noqa: S301 - as Spark does
    rows = [row for part in parts for batch in task.read(part) for row in batch.to_pylist()]
    assert [row["after"]["n"] for row in rows] == [1]
    reader.commit(end)
    assert graph.holds.list() == ()

    graph.maintenance.cleanup(keep_versions=1, allow_unsafe_keep=True, dry_run=False)
    plain = ChangeStreamReader(planned_stream(options))
    with pytest.raises(NoLongerKeptError):
        plain.partitions(start, end)
    assert graph.holds.list() == ()
