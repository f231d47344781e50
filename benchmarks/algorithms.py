"""PageRank of the people graph: in process and on Spark, beside other ways to compute it.

`python -m benchmarks.algorithms [FOLDER]` generates the graph below the folder once, and prints one
line per side: rounds, seconds, and CPU seconds of all processes. The sides:

- `omnigraph`: `graph.algorithms.page_rank` in this process;
- `rustworkx`: a graph in memory, built from the Parquet file with the same edges;
- `omnigraph on spark`: the same call with `spark=`;
- `dataframes`: joins and aggregations written by hand over Parquet, with a local checkpoint per
  round, which does not survive the loss of an executor;
- `dataframes, reliable`: the same with checkpoints in a folder, which does.

Sides on Spark share one warm session with two tasks at a time and run in turn, twice. All sides
must agree.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
import pyarrow.parquet as pq
import rustworkx as rx

import omnigraph_lake as og
from benchmarks.people_graph import generate
from omnigraph_lake.runner.session import SparkTarget, spark_for_a_while

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA: Final = """
node Person { name: String  gender: String  age: I32 }
edge Follows: Person -> Person
"""
TYPES: Final = ("Person", ["Follows"])
TOLERANCE: Final = 1e-9
DAMPING: Final = 0.85
TURNS: Final = 2
SIDES: Final = {"dataframes": False, "dataframes, reliable": True}


def main(folder: Path) -> None:
    graph = _made_graph(folder)
    files = folder / "parquet"
    expected: dict[str, float] = {}
    spent: dict[str, float] = {}

    def measure(side: str, run: Callable[[], tuple[int, dict[str, float]]]) -> int:
        before, start = _cpu_seconds(), time.perf_counter()
        rounds, ranks = run()
        seconds, cpu = time.perf_counter() - start, _cpu_seconds() - before
        print(f"{side:24}{rounds:4} rounds {seconds:8.2f} s {cpu:8.2f} CPU s", flush=True)
        if not expected:
            expected.update(ranks)
        difference = max(abs(ranks[person] - rank) for person, rank in expected.items())
        assert difference < TOLERANCE * 100, f"{side} differs by {difference}"
        spent[side] = cpu  # of the last turn, which is the warm one
        return rounds

    def ours(spark: SparkSession | None = None) -> tuple[int, dict[str, float]]:
        result = graph.algorithms.page_rank(*TYPES, tolerance=TOLERANCE, spark=spark)
        rows = result.to_arrow()
        ranks = dict(zip(rows["id"].to_pylist(), rows["rank"].to_pylist(), strict=True))
        return result.rounds, ranks

    rounds = measure("omnigraph", ours)
    measure("rustworkx", partial(_counted, rounds, partial(_other_library, files)))
    settings = {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}
    target = SparkTarget(master="local[2]", settings=settings)
    with spark_for_a_while(target=target) as spark, tempfile.TemporaryDirectory() as checkpoints:
        spark.sparkContext.setCheckpointDir(checkpoints)
        for _ in range(TURNS):
            measure("omnigraph on spark", partial(ours, spark))
            for side, reliable in SIDES.items():
                run = partial(_frames, spark, files, rounds=rounds, reliable=reliable)
                measure(side, partial(_counted, rounds, run))
    ours_here, ours_on_spark = spent["omnigraph"], spent["omnigraph on spark"]
    print(
        f"CPU ratios: in process to rustworkx {ours_here / spent['rustworkx']:.2f}, on Spark to "
        f"dataframes {ours_on_spark / spent['dataframes']:.2f}, to reliable dataframes "
        f"{ours_on_spark / spent['dataframes, reliable']:.2f}"
    )


def _counted(rounds: int, run: Callable[[], dict[str, float]]) -> tuple[int, dict[str, float]]:
    return rounds, run()


def _made_graph(folder: Path) -> og.Graph:
    if (folder / "graph").exists():
        return og.open(str(folder / "graph"))
    generate(folder / "parquet")
    graph = og.init(str(folder / "graph"), schema=SCHEMA)
    tables = {name: pq.read_table(folder / "parquet" / f"{name}.parquet") for name in _NAMES}
    graph.load(tables)
    return graph


_NAMES: Final = ("Person", "Follows")


def _cpu_seconds() -> float:
    """Of this process, its JVM and its workers, also of those that have ended."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    times = [process.cpu_times() for process in processes]
    return sum(
        used.user + used.system + used.children_user + used.children_system for used in times
    )


def _other_library(files: Path) -> dict[str, float]:
    people = pq.read_table(files / "Person.parquet")["id"].to_pylist()
    number = {person: at for at, person in enumerate(people)}
    edges = pq.read_table(files / "Follows.parquet")
    model = rx.PyDiGraph()
    model.add_nodes_from(people)
    sources, targets = edges["src"].to_pylist(), edges["dst"].to_pylist()
    model.add_edges_from_no_data(
        [(number[source], number[target]) for source, target in zip(sources, targets, strict=True)]
    )
    ranks = rx.pagerank(model, alpha=DAMPING, tol=TOLERANCE / 10)
    return {people[node]: rank for node, rank in ranks.items()}


def _frames(spark: SparkSession, files: Path, *, rounds: int, reliable: bool) -> dict[str, float]:
    from pyspark.sql import functions as sql

    def keep(frame: DataFrame) -> DataFrame:
        return frame.checkpoint() if reliable else frame.localCheckpoint()

    nodes = spark.read.parquet(str(files / "Person.parquet")).select("id")
    edges = spark.read.parquet(str(files / "Follows.parquet"))
    count = nodes.count()
    degrees = edges.groupBy("src").agg(sql.count("*").alias("degree"))
    links = keep(
        edges.join(degrees, "src").select("src", "dst", (1 / sql.col("degree")).alias("s"))
    )
    sources = degrees.select(sql.col("src").alias("id"), sql.lit(1).alias("leads_on"))
    ranks = keep(nodes.join(sources, "id", "left").withColumn("rank", sql.lit(1.0 / count)))
    for _ in range(rounds):
        idle = ranks.where("leads_on IS NULL").agg(sql.sum("rank")).collect()[0][0] or 0.0
        base = (1 - DAMPING) / count + DAMPING * idle / count
        received = (
            ranks.join(links, ranks["id"] == links["src"])
            .groupBy("dst")
            .agg(sql.sum(sql.col("rank") * sql.col("s")).alias("received"))
        )
        rank = sql.coalesce("received", sql.lit(0.0)) * DAMPING + base
        joined = ranks.drop("rank").join(received, ranks["id"] == received["dst"], "left")
        ranks = keep(joined.select("id", "leads_on", rank.alias("rank")))
    return {row["id"]: row["rank"] for row in ranks.select("id", "rank").collect()}


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
