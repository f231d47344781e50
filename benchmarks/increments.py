"""Append a few rows to tables of growing size with Spark: `just bench increments`.

For every size prints the time of an append and the bytes that Spark shuffled for it, beside those
of the smallest table: an increment must cost what it brings, not what is there. Appends without ids
from the input, appends with edge ids, and merges of known ids are measured.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import omnigraph_lake as og
from benchmarks.spark_scale import SCHEMA, frame_of, people
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.graph import Graph
from omnigraph_lake.runner.session import SparkTarget, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODES: Final = 1_000_000
ON_SPARK: Final = LoadOptions(engine="spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Increments of one kind into a table of one size."""

    edges: int
    rows: int
    kind: str
    seconds: float
    shuffled_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.edges:>12,} edges  {self.kind:10} {self.rows:>9,} rows  {self.seconds:7.2f} s"
            f"  shuffled {self.shuffled_bytes:>12,} bytes"
        )


def main() -> None:
    options = _options()
    settings = {"spark.driver.memory": "4g", "spark.ui.enabled": "true"}
    spark = spark_session(target=SparkTarget(settings=settings))
    measured: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-", dir=options.scratch) as folder:
        for edges in options.edges:
            root = Path(folder, "graph")
            graph = og.init(str(root), schema=SCHEMA)
            frames = {"Person": people(spark, NODES), "Follows": frame_of(spark, edges, NODES)}
            graph.load(frames, options=ON_SPARK)
            graph.maintenance.optimize()
            for result in _increments(spark, graph, edges, options.rows, options.rounds):
                print(result, flush=True)
                measured.append(result)
            shutil.rmtree(root)
    for job in measured:
        first = next(one for one in measured if (one.kind, one.rows) == (job.kind, job.rows))
        if job is not first:
            print(
                f"{job.kind} {job.rows:,} rows, {job.edges:,} beside {first.edges:,} edges: "
                f"time {job.seconds / first.seconds:.2f}, "
                f"shuffled bytes {job.shuffled_bytes / max(1, first.shuffled_bytes):.2f}"
            )
    print(json.dumps({"name": "increments", "jobs": [asdict(job) for job in measured]}))


def _increments(
    spark: SparkSession, graph: Graph, edges: int, counts: Sequence[int], rounds: int
) -> Iterator[Measured]:
    for rows in counts:
        for kind in ("append", "with ids", "merge"):
            seconds: list[float] = []
            shuffled: list[int] = []
            for number in range(rounds):
                frame = frame_of(spark, rows, NODES).coalesce(2)
                if kind != "append":
                    first = number * rows if kind == "with ids" else 0
                    frame = frame.selectExpr(
                        f"concat('{rows}-', monotonically_increasing_id() + {first}) as id", "*"
                    )
                before = _shuffled(spark)
                began = time.perf_counter()
                graph.load(
                    {"Follows": frame},
                    mode="merge" if kind == "merge" else "append",
                    options=ON_SPARK,
                )
                seconds.append(time.perf_counter() - began)
                shuffled.append(_shuffled(spark) - before)
            yield Measured(
                edges=edges,
                rows=rows,
                kind=kind,
                seconds=round(statistics.median(seconds), 3),
                shuffled_bytes=int(statistics.median(shuffled)),
            )


def _shuffled(spark: SparkSession) -> int:
    """The bytes that all stages of the session have shuffled so far."""
    context = spark.sparkContext
    address = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages"
    with urllib.request.urlopen(address) as answer:  # noqa: S310 - the session's own UI
        stages: list[dict[str, Any]] = json.load(answer)
    return sum(stage["shuffleWriteBytes"] for stage in stages)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, nargs="+", default=[1_000_000, 50_000_000])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", default=None, help="folder for temporary files")
    return parser.parse_args()


if __name__ == "__main__":
    main()
