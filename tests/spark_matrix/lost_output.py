"""Verbs on executors of which one is killed while others read what it has left.

    python -m tests.spark_matrix.lost_output FOLDER

Every verb runs once undisturbed and once with a kill; it ends alike. Prints a line for each. The
executors are processes of their own (`local-cluster`), so that the files of a shuffle die with one.
Merges, diffs and algorithms exchange by files of the run instead of shuffles.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from tests.cluster.ring import QUERIES, ring
from tests.cluster.servers import executors
from tests.diff.buckets import set_rows_per_bucket
from tests.spark.class_archive import java_options

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "6",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": java_options(),
    "spark.executor.extraJavaOptions": java_options(),
}
LATE_SECONDS = 0.3
"""What a task waits first, so that some are left when the executor dies."""
Verb = Callable[[Graph, Any, Path], object]


class LateFrame:
    """A frame whose tasks begin late."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def mapInArrow(self, task: Any, schema: Any) -> LateFrame:  # noqa: N802 - as Spark calls it
        seconds = LATE_SECONDS

        def late(batches: Iterator[Any]) -> Iterator[Any]:
            time.sleep(seconds)
            yield from task(batches)

        return LateFrame(self._frame.mapInArrow(late, schema))

    def repartition(self, *given: Any) -> LateFrame:
        return LateFrame(self._frame.repartition(*given))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._frame, name)


class LateSession:
    """A session whose jobs of a runner have late tasks."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def range(self, *given: int) -> LateFrame:
        return LateFrame(self.session.range(*given))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)


def load(graph: Graph, spark: Any, folder: Path) -> object:
    lines = [f'{{"type": "Person", "data": {{"name": "l{n}", "words": "x"}}}}' for n in range(300)]
    lines += [f'{{"edge": "Knows", "from": "l{n}", "to": "p{n % 60}"}}' for n in range(300)]
    for part in range(4):
        (folder / f"{part}.jsonl").write_text("\n".join(lines[part::4]) + "\n")
    options = og.LoadOptions(engine="spark")
    report = graph.load(str(folder / "*.jsonl"), mode="merge", spark=spark, options=options)
    return dict(report.written), graph.count("Knows")


def merge(graph: Graph, spark: Any, _: Path) -> object:
    dev = graph.branches.create("dev")
    dev.write({"Person": [{"name": f"p{n}", "age": 100 + n} for n in range(40)]}, mode="merge")
    graph.write({"Person": [{"name": f"p{n}", "words": "y"} for n in range(60)]}, mode="merge")
    graph.merge("dev", spark=spark)
    rows = graph.scan("Person").read_all().select(["name", "age", "words"]).to_pylist()
    return sorted(map(str, rows))


def diff(graph: Graph, spark: Any, _: Path) -> object:
    dev = graph.branches.create("dev")
    dev.write({"Person": [{"name": f"q{n}", "words": "x"} for n in range(40)]})
    dev.delete({"Person": [f"p{n}" for n in range(9)]})
    tables = graph.diff("main", "dev", spark=spark).tables
    return {key: table.counts for key, table in tables.items()}


def algorithm(graph: Graph, spark: Any, _: Path) -> object:
    result = graph.algorithms.components("Person", ["Knows"], spark=spark)
    return sorted(map(str, result.to_arrow().to_pylist()))


def query(graph: Graph, spark: Any, _: Path) -> object:
    """Four levels."""
    session = spark.session if isinstance(spark, LateSession) else spark
    frame = graph.spark(session).query(QUERIES, {"words": "EVEN"}, name="reach")
    return sorted(map(str, frame.collect()))


VERBS: dict[str, Verb] = {
    "load": load,
    "merge": merge,
    "diff": diff,
    "algorithm": algorithm,
    "query": query,
}


@contextmanager
def one_kill(spark: SparkSession) -> Iterator[list[int]]:
    """Kill an executor as soon as a stage reads a shuffle, or what an earlier job has left."""
    killed: list[int] = []
    ended = threading.Event()
    first_jobs: set[int] = set()

    def watch() -> None:
        while not ended.is_set() and not killed:
            # One may end on its own, and an address of Spark change, while it is looked at.
            with suppress(psutil.Error, ValueError, Py4JError):
                if is_in_the_middle(spark, first_jobs):
                    # The oldest: one that just replaces another has sent nothing.
                    victim = min(executors(), key=psutil.Process.create_time)
                    victim.kill()
                    killed.append(victim.pid)
            time.sleep(0.01)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield killed
    finally:
        ended.set()
        watcher.join()


def is_in_the_middle(spark: SparkSession, first_jobs: set[int]) -> bool:
    """Whether tasks run behind a stage of their job that has ended, or behind the first job."""
    status = spark.sparkContext.statusTracker()
    for job_id in status.getActiveJobsIds():
        job = status.getJobInfo(job_id)
        stages = [status.getStageInfo(number) for number in (job.stageIds if job else ())]
        known = [stage for stage in stages if stage is not None]
        running = any(stage.numActiveTasks for stage in known)
        ended = any(stage.numCompletedTasks == stage.numTasks > 0 for stage in known)
        if running and (ended or first_jobs - {job_id}):
            return True
        if not first_jobs:
            first_jobs.add(job_id)
    return False


def main(folder: Path) -> int:
    set_rows_per_bucket(pytest.MonkeyPatch(), 20)  # so that few rows are several jobs
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    failed, numbers = 0, itertools.count()
    for name, verb in VERBS.items():
        answers: list[object] = []
        places = [folder / str(next(numbers)) for _ in range(2)]
        for place in places:
            place.mkdir(parents=True)
        answers.append(verb(ring(str(places[0] / "graph")), spark, places[0]))
        graph = ring(str(places[1] / "graph"))
        with one_kill(spark) as killed:
            answers.append(verb(graph, LateSession(spark), places[1]))
        is_equal = answers[0] == answers[1] and graph.maintenance.check().ok
        print(f"{name:<10} killed {len(killed)}  {'equal' if is_equal else answers}", flush=True)
        failed += not is_equal or not killed
    spark.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
