"""Scans and SQL of a graph on Spark beside Parquet: `just bench spark_scan --edges 5000000`.

Both read the same rows in turns, in one session, so that a busy machine slows them alike. Prints
the medians of the rounds in seconds and in CPU seconds of the JVM and the Python workers, and their
ratios. The results of tasks may have 16 MB, which a broadcast of the edges would exceed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import psutil
import pyarrow as pa

import omnigraph_lake as og
from omnigraph_lake.runner.session import SparkTarget, spark_for_a_while, without_noise

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph_lake.graph import Graph

SCHEMA: Final = """
node Person { name: String @key  age: I32  city: String }
edge Follows: Person -> Person { since: I32 }
"""
TWO_HOPS: Final = (
    "SELECT p.city, count(*) AS paths FROM Follows a JOIN Follows b ON a.dst = b.src "
    "JOIN Person p ON p.id = a.src WHERE p.age < 30 GROUP BY p.city ORDER BY paths DESC, p.city"
)
SELECTIVE: Final = "SELECT count(*), min(dst) FROM Follows WHERE src = 'p77'"
COUNT: Final = "SELECT count(*) FROM Follows"
Case = Callable[[], object]


def main() -> None:
    options = _options()
    settings = dict(setting.split("=", 1) for setting in options.set)
    target = SparkTarget(
        master="local[2]",
        settings={
            "spark.driver.maxResultSize": "16m",
            "spark.sql.shuffle.partitions": "8",
            **settings,
        },
    )
    with (
        tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as scratch,
        spark_for_a_while(target=target) as spark,
        without_noise(),
    ):
        graph = _generate(Path(scratch, "graph"), persons=options.persons, edges=options.edges)
        cases = _cases(spark, graph, Path(scratch), options.only)
        print(f"{'':28}{'Parquet':>18}{'Omnigraph':>18}{'ratio':>14}")
        for name, sides in cases.items():
            _print_row(name, _measure(sides, rounds=options.rounds))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--persons", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], help="beginnings of names of cases")
    parser.add_argument("--set", nargs="*", default=[], help="settings of Spark, NAME=VALUE")
    return parser.parse_args()


def _generate(root: Path, *, persons: int, edges: int) -> Graph:
    dice = np.random.default_rng(7)
    ids = pa.array([f"p{number}" for number in range(persons)])
    graph = og.init(str(root), schema=SCHEMA)
    people = {
        "name": ids,
        "age": pa.array(np.arange(persons) % 90, pa.int32()),
        "city": [f"c{number % 500}" for number in range(persons)],
    }
    follows = {
        "src": ids.take(pa.array(dice.integers(0, persons, edges))),
        "dst": ids.take(pa.array(dice.integers(0, persons, edges))),
        "since": pa.array(np.arange(edges) % 30, pa.int32()),
    }
    graph.load({"Person": pa.table(people), "Follows": pa.table(follows)})
    return graph


def _cases(
    spark: SparkSession, graph: Graph, scratch: Path, only: list[str]
) -> dict[str, tuple[Case, Case]]:
    tables = graph.spark(spark)
    follows = tables.edges("Follows")
    files = {"Follows": follows, "Person": tables.nodes("Person")}
    for name, frame in files.items():
        frame.write.parquet(str(scratch / name))
        spark.read.parquet(str(scratch / name)).createOrReplaceTempView(f"{name}_files")
    parquet = spark.table("Follows_files")

    def by_files(text: str) -> DataFrame:
        for name in files:
            text = text.replace(f"{name} ", f"{name}_files ")
        return spark.sql(text)

    queries = {"count": f"{COUNT} ", "one source": SELECTIVE, "two hops": TWO_HOPS}
    tables.views()
    cases: dict[str, tuple[Case, Case]] = {
        "all columns": (lambda: _read(parquet), lambda: _read(follows)),
        "one column": (
            lambda: _read(parquet.select("dst")),
            lambda: _read(tables.edges("Follows", columns=["dst"])),
        ),
        "one column by sql": (
            lambda: _read(parquet.select("dst")),
            lambda: _read(tables.sql("SELECT dst FROM Follows")),
        ),
    }
    for name, text in queries.items():
        rival = partial(_collect, by_files, text)
        cases[f"{name} by sql"] = (rival, partial(_collect, tables.sql, text))
        cases[f"{name} by views"] = (rival, partial(_collect, spark.sql, text))
    return {
        name: sides for name, sides in cases.items() if not only or name.startswith(tuple(only))
    }


def _collect(run: Callable[[str], DataFrame], text: str) -> None:
    run(text).collect()


def _read(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _measure(sides: tuple[Case, Case], *, rounds: int) -> list[tuple[float, float]]:
    """Seconds and CPU seconds of both sides; the first round warms up."""
    taken: tuple[list[tuple[float, float]], ...] = ([], [])
    for _ in range(rounds + 1):
        for run, of_side in zip(sides, taken, strict=True):
            cpu, clock = _cpu_seconds(), time.perf_counter()
            run()
            of_side.append((time.perf_counter() - clock, _cpu_seconds() - cpu))
    return [
        (
            statistics.median(seconds for seconds, _ in of_side[1:]),
            statistics.median(cpu for _, cpu in of_side[1:]),
        )
        for of_side in taken
    ]


def _cpu_seconds() -> float:
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        times = process.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _print_row(name: str, sides: list[tuple[float, float]]) -> None:
    shown = "".join(f"{clock:10.2f} s {cpu:5.2f}c" for clock, cpu in sides)
    (clock, cpu), (clock_here, cpu_here) = sides
    print(
        f"{name:28}{shown}{clock_here / clock:7.2f} {cpu_here / max(cpu, 0.01):5.2f}c", flush=True
    )


if __name__ == "__main__":
    main()
