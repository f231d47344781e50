"""Load edges from DataFrames and Parquet with Spark, at growing sizes: `just bench spark_scale`.

For every size prints edges per second and the peak memory of a Python worker, beside plain Spark
that writes the same rows as Parquet in the same session, in turns. Memory must not grow with the
input.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.runner.session import SparkTarget, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA: Final = """
node Person { name: String @key }
edge Follows: Person -> Person { since: I32 }
"""
ROWS_PER_PARTITION: Final = 1_250_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One job."""

    name: str
    edges: int
    seconds: float
    worker_mb: int

    def __str__(self) -> str:
        rate = self.edges / self.seconds
        return (
            f"{self.edges:>12,}  {self.name:28} {self.seconds:8.1f} s  {rate:>10,.0f} edges/s"
            f"  worker {self.worker_mb:>5} MB"
        )


def main() -> None:
    options = _options()
    settings = {"spark.driver.memory": "4g", "spark.ui.enabled": "false"}
    spark = spark_session(target=SparkTarget(settings=settings))
    measured: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-", dir=options.scratch) as folder:
        for edges in options.edges:
            for job in _measure(spark, Path(folder), edges, nodes=options.nodes):
                print(job, flush=True)
                measured.append(job)
    print(json.dumps({"name": "scale", "jobs": [asdict(job) for job in measured]}))


def _measure(spark: SparkSession, home: Path, edges: int, *, nodes: int) -> Iterator[Measured]:
    persons, follows = people(spark, nodes), frame_of(spark, edges, nodes)
    parquet = home / "follows"
    yield _timed(
        "plain Spark to Parquet",
        edges,
        lambda: follows.write.mode("overwrite").parquet(str(parquet)),
    )
    root = home / "graph"
    graph = og.init(str(root), schema=SCHEMA)
    on_spark = LoadOptions(engine="spark")
    yield _timed(
        "load of frames",
        edges,
        lambda: graph.load({"Person": persons, "Follows": follows}, options=on_spark),
    )
    shutil.rmtree(root)
    graph = og.init(str(root), schema=SCHEMA)
    graph.load({"Person": persons}, options=on_spark)
    files = home / "Follows"
    files.mkdir()
    for number, path in enumerate(sorted(parquet.glob("part-*.parquet"))):
        path.rename(files / f"{number:05}.Follows.parquet")
    sources = [str(path) for path in sorted(files.iterdir())]
    yield _timed(
        "load of Parquet", edges, lambda: graph.load(sources, type="Follows", options=on_spark)
    )
    shutil.rmtree(root)
    shutil.rmtree(files)
    shutil.rmtree(parquet)


def people(spark: SparkSession, nodes: int) -> DataFrame:
    return spark.range(0, nodes, 1, max(2, nodes // ROWS_PER_PARTITION)).selectExpr(
        "concat('person-', id) as name"
    )


def frame_of(spark: SparkSession, edges: int, nodes: int) -> DataFrame:
    """Edges between random persons, the same ones every time they are computed."""
    rows = spark.range(0, edges, 1, max(2, edges // ROWS_PER_PARTITION))
    return rows.selectExpr(
        f"concat('person-', pmod(xxhash64(id, 1), {nodes})) as src",
        f"concat('person-', pmod(xxhash64(id, 2), {nodes})) as dst",
        "cast(pmod(id, 20) + 2000 as int) as since",
    )


def _timed(name: str, edges: int, job: Callable[[], object]) -> Measured:
    with _watched() as peak:
        began = time.perf_counter()
        job()
        seconds = time.perf_counter() - began
    return Measured(name=name, edges=edges, seconds=round(seconds, 1), worker_mb=peak())


@contextmanager
def _watched() -> Iterator[Callable[[], int]]:
    """The most memory that one Python worker of this process had, while the block ran."""
    peak = 0
    ended = threading.Event()

    def watch() -> None:
        nonlocal peak
        own = psutil.Process()
        while not ended.wait(0.05):
            with suppress(psutil.Error):
                for process in own.children(recursive=True):
                    with suppress(psutil.Error):
                        if "python" in process.name():
                            peak = max(peak, process.memory_full_info().uss)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: peak >> 20
    finally:
        ended.set()
        watcher.join()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, nargs="+", default=[20_000_000, 200_000_000])
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--scratch", default=None, help="folder for temporary files")
    return parser.parse_args()


if __name__ == "__main__":
    main()
