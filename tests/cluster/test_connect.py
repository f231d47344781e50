"""Work through a Connect server whose tasks run on a cluster, by a client without a JVM.

One server and its two executors serve all tests of this module, as one client session, because
every session has Python workers of its own. Gate tests come first: the last of them kills an
executor, which another replaces.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.errors import QueryFailedError
from omnigraph_lake.evolution.plan.planning import evolve
from omnigraph_lake.evolution.run_checks import failed_checks
from omnigraph_lake.evolution.table_changes import table_changes
from omnigraph_lake.runner.protocol import Stage, Task
from omnigraph_lake.runner.session import SparkTarget, spark_for_a_while
from omnigraph_lake.runner.spark import SparkRunner
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.spark.batches import foreach_batch
from omnigraph_lake.spark.datasource import OmnigraphDataSource
from omnigraph_lake.storage.objects.location import parse_root
from tests.cluster import fragments, inputs, ring
from tests.cluster.servers import (
    EXECUTOR_SETTINGS,
    connect_server,
    executors,
    standalone_cluster,
)
from tests.evolution.stored import changed_by, stored
from tests.evolution.violating import ASKING, CHECKED, random_rows
from tests.schema.compiling import compiled
from tests.spark.watched_jobs import Recorder
from tests.stores import folder_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph_lake.load.report import LoadReport

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

FRAGMENTS = 6
WAITING = {"spark.executorEnv.OMNIGRAPH_FAILPOINTS": f"{inputs.TASK_POINT}=pause:2"}
"""The first load task of every Python worker waits, so that an executor can be killed meanwhile."""


@pytest.fixture(scope="module")
def connected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("connect")
    settings = {**EXECUTOR_SETTINGS, **WAITING, "spark.sql.shuffle.partitions": "2"}
    with (
        standalone_cluster(folder, cores=2) as master,
        connect_server(folder, master=master, settings=settings) as address,
        spark_for_a_while(target=SparkTarget(remote=address)) as spark,
    ):
        yield spark


def test_queries_are_answered_and_their_failures_translated(
    connected: SparkSession, graph_root: str
) -> None:
    graph = ring.ring(graph_root)

    ring.require_answers(graph, connected)
    with pytest.raises(QueryFailedError, match="does not fit"):
        ring.rows_of(graph, connected, "large")


def test_tables_are_optimized(connected: SparkSession, graph_root: str) -> None:
    graph = fragments.fragmented(graph_root, fragments=FRAGMENTS)
    before = fragments.row_ids_of(graph)

    told = graph.maintenance.optimize(target_rows_per_fragment=fragments.TARGET, spark=connected)

    assert [(stats.table_key, stats.fragments_removed, stats.committed) for stats in told] == [
        ("edge:Knows", FRAGMENTS, True),
        ("node:Person", FRAGMENTS, True),
    ]
    fragments.require_optimized(graph_root, before, fragments=FRAGMENTS)


def test_progress_of_tasks_is_told_by_the_server(connected: SparkSession, tmp_path: Path) -> None:
    recorder = Recorder()
    runner = SparkRunner(connected, parse_root(str(tmp_path)), recorder)

    def work(piece: int, _: Task) -> int:
        time.sleep(0.5)
        return piece

    for pieces in (8, 3):
        answers = runner.map(Stage(verb="test", name="wait"), range(pieces), work, int)
        assert list(answers) == list(range(pieces))

    assert [sum(advanced) for advanced in recorder.advanced] == [8, 3]
    assert len(recorder.advanced[0]) > 1, "while the job was running"
    assert recorder.addresses == []


def test_a_load_survives_the_death_of_an_executor(
    connected: SparkSession, files: str, graph_root: str
) -> None:
    graph = og.init(graph_root, schema=inputs.SCHEMA)
    with ThreadPoolExecutor(max_workers=1) as pool:
        load = pool.submit(
            graph.load,
            files,
            spark=connected,
            on_error="quarantine",
            options=LoadOptions(engine="spark"),
        )
        victims = executors_at_work(load, folder_of(graph_root, "_staging"))

        victims[0].kill()
        assert not load.done(), "the executor died too late to show anything"
        report = load.result()

    assert len(victims) == 2
    assert (report.written, report.quarantined) == (inputs.WRITTEN, inputs.QUARANTINED)
    inputs.require_loaded(graph)


def executors_at_work(load: Future[LoadReport], staging: Path) -> list[psutil.Process]:
    """The executors of a load that has staged a part of its rows."""
    while not list(staging.rglob("places-*")):
        assert not load.done(), load.result()
        time.sleep(0.05)
    return executors()


@pytest.mark.nightly(
    "loads, merges of rows and scans run in tests/spark in the gate; the gate's load and queries "
    "of this module show that the client needs no JVM"
)
def test_rows_are_loaded_merged_and_read(
    connected: SparkSession, files: str, graph_root: str
) -> None:
    graph = og.init(graph_root, schema=inputs.SCHEMA)
    people = inputs.WRITTEN["Person"]

    report = graph.load(files, spark=connected, on_error="quarantine")
    assert (report.written, report.quarantined) == (inputs.WRITTEN, inputs.QUARANTINED)
    inputs.require_loaded(graph)

    pinned = graph.spark(connected)
    older = pinned.nodes("Person", columns=["id", "name"], where="age = 7")
    assert older.count() == people
    merged = graph.load(
        {"Person": older.selectExpr("id", "name", "8 AS age")}, mode="merge", spark=connected
    )
    assert merged.updated == {"Person": people}
    assert graph.spark(connected).nodes("Person", where="age = 8").count() == people
    assert pinned.nodes("Person", where="age = 8").count() == 0
    inputs.require_loaded(graph)


@pytest.mark.nightly(
    "tests/spark/test_evolve_job.py stages columns and checks rows in the gate, on classic Spark"
)
def test_columns_are_staged_and_rows_checked(connected: SparkSession, graph_root: str) -> None:
    asking = evolve(compiled(CHECKED), ASKING)
    rows = random_rows(random.Random(5), 30)
    root, snapshot = stored(graph_root, asking.accepted, rows)
    widening = evolve(asking.accepted, CHECKED.replace("x: I32?", "x: I64?"))
    change = next(change for change in table_changes(widening) if change.columns is not None)

    runner = SparkRunner(connected, root)
    broken = failed_checks(runner, root, snapshot, asking.plan.needs)
    staged = changed_by(runner, root, snapshot.tables["node:A"], change)

    assert broken == failed_checks(ThreadRunner(), root, snapshot, asking.plan.needs)
    assert len(broken) > 5
    assert (staged.rows_updated, staged.row_count) == (30, 30)


@pytest.mark.nightly(
    "tests/spark/test_change_stream.py and test_datasource.py stream, read and write in the gate, "
    "on classic Spark"
)
def test_a_source_is_read_written_and_streamed(
    connected: SparkSession, graph_root: str, tmp_path: Path
) -> None:
    graph = og.init(graph_root, schema=inputs.SCHEMA)
    graph.write({"Person": [{"name": "ann"}]})
    connected.dataSource.register(OmnigraphDataSource)
    more = connected.createDataFrame([("bob", 1)], "name string, age int")

    more.write.format("omnigraph").option("type", "Person").mode("append").save(graph_root)
    reader = connected.readStream.format("omnigraph").option("type", "Person")
    changes = reader.option("startingCommit", "beginning").load(graph_root)
    sink = changes.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert sink.trigger(availableNow=True).start().awaitTermination(1200)

    streamed = connected.read.parquet(str(tmp_path / "out")).collect()
    source = connected.read.format("omnigraph").option("type", "Person").load(graph_root)
    assert sorted(row["id"] for row in streamed) == ["ann", "bob"]
    assert sorted(row["id"] for row in source.collect()) == ["ann", "bob"]


@pytest.mark.nightly("three queries of a stream; the gate gives batches ids in one process")
def test_batches_are_written_once_by_the_checkpoint_of_their_query(
    connected: SparkSession, graph_root: str, tmp_path: Path
) -> None:
    graph = og.init(graph_root, schema="node Person { name: String @key }")
    folder, place = tmp_path / "in", tmp_path / "place"
    folder.mkdir()

    def run(name: str) -> None:
        (folder / f"{name}.json").write_text(f'{{"name": "{name}"}}')
        rows = connected.readStream.schema("name string").json(str(folder))
        load = foreach_batch(graph.root, checkpoint=str(place), type="Person", mode="merge")
        writer = rows.writeStream.foreachBatch(load).option("checkpointLocation", str(place))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        assert query.exception() is None

    run("a")
    commits = len(graph.commits())
    for path in (place / "commits").glob("*0*"):
        path.unlink()
    run("a")
    assert len(graph.commits()) == commits
    shutil.rmtree(place)
    run("b")

    names = graph.scan("Person").read_all().column("name").to_pylist()
    assert sorted(names) == ["a", "b"]
