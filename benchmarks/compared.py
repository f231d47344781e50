"""The tasks that `just bench compare` measures, as calls of this checkout.

    python -m benchmarks.compared prepare FOLDER PERSONS FOLLOWS
    python -m benchmarks.compared measure TASK FOLDER COUNT

Every checkout measures its own file, so names of calls may change between them. What a task does
may not: that changes in a commit of its own.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

import omnigraph_lake as og

SCHEMA: Final = """
node Person { name: String @key  age: I32  city: String @index }
edge Follows: Person -> Person { since: I32 }
"""
QUERIES: Final = (
    'query q() { match { $a: Person { name: "p7" }  $a follows{1,2} $b } return { count($b) } }',
    'query q() { match { $a: Person  $a.city = "c3" } return { $a.name, $a.age } }',
    "query q() { match { $a: Person  $a follows $b } return { $a.name, count($b) as n } "
    "order { n desc, $a.name } limit 5 }",
)
POINT: Final = "query q($name: String) { match { $a: Person { name: $name } } return { $a.age } }"
TWO_HOPS: Final = (
    "query q($name: String) { match { $a: Person { name: $name }  $a follows $b  $b follows $c } "
    "return { $c.city, count($c) as n } order { n desc, $c.city } limit 5 }"
)
CHANGED: Final = 200
"""Rows that each side of a merge changes."""
FRAGMENTS: Final = 6
"""Small commits before an `optimize`; more of them are merged by the writes themselves."""

Timed = Callable[[], object]
"""What is measured of a task; what it needs is there already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The prepared graph and its input, and the root of a graph of the task's own."""

    graph: str
    rows: Path
    own: str


def prepare(folder: Path, persons: int, follows: int) -> None:
    """Write the input of all tasks, and a graph of it."""
    draw = random.Random(7)  # noqa: S311
    with (folder / "rows.jsonl").open("w") as lines:
        for n in range(persons):
            row = {"name": f"p{n}", "age": n % 90, "city": f"c{n % 500}"}
            lines.write(json.dumps({"type": "Person", "data": row}) + "\n")
        for n in range(follows):
            ends = {"from": f"p{draw.randrange(persons)}", "to": f"p{draw.randrange(persons)}"}
            lines.write(json.dumps({"edge": "Follows", **ends, "data": {"since": n % 30}}) + "\n")
    og.init(str(folder / "graph"), schema=SCHEMA).load(folder / "rows.jsonl")


def commit(at: Places) -> Callable[[int], Timed]:
    graph = og.init(at.own, schema=SCHEMA)
    return lambda n: lambda: graph.write({"Person": [{"name": f"p{n}", "age": 1, "city": "c"}]})


def query(at: Places) -> Callable[[int], Timed]:
    graph = og.open(at.graph)
    return lambda n: lambda: graph.query(QUERIES[n % len(QUERIES)]).to_pylist()


def point(at: Places) -> Callable[[int], Timed]:
    graph = og.open(at.graph)
    return lambda n: lambda: graph.query(POINT, {"name": f"p{n % 1000}"}).to_pylist()


def two_hops(at: Places) -> Callable[[int], Timed]:
    graph = og.open(at.graph)
    return lambda n: lambda: graph.query(TWO_HOPS, {"name": f"p{n % 1000}"}).to_pylist()


def load(at: Places) -> Callable[[int], Timed]:
    def run(n: int) -> Timed:
        graph = og.init(f"{at.own}/{n}", schema=SCHEMA)
        return lambda: graph.load(at.rows)

    return run


def merge(at: Places) -> Callable[[int], Timed]:
    graph = og.init(at.own, schema=SCHEMA)
    graph.load(at.rows)

    def run(n: int) -> Timed:
        branch = graph.branches.create(f"b{n}")
        branch.write({"Person": _ages(0, n)}, mode="merge")
        graph.write({"Person": _ages(CHANGED, n)}, mode="merge")
        return lambda: graph.merge(f"b{n}")

    return run


def _ages(first: int, age: int) -> list[dict[str, object]]:
    return [{"name": f"p{n}", "age": age % 90} for n in range(first, first + CHANGED)]


def optimize(at: Places) -> Callable[[int], Timed]:
    def run(n: int) -> Timed:
        graph = og.init(f"{at.own}/{n}", schema=SCHEMA)
        for number in range(FRAGMENTS):
            names = [f"{number}-{row}" for row in range(50)]
            graph.write({"Person": [{"name": name, "age": 1, "city": "c"} for name in names]})
        return graph.maintenance.optimize

    return run


def spark_load(at: Places) -> Callable[[int], Timed]:
    from omnigraph_lake.runner.session import SparkTarget, spark_session

    target = SparkTarget(master="local[2]", settings={"spark.ui.enabled": "false"})
    spark = spark_session(target=target)

    def run(n: int) -> Timed:
        graph = og.init(f"{at.own}/{n}", schema=SCHEMA)
        return lambda: graph.load(at.rows, spark=spark)

    return run


TASKS: Final = {
    "commit": commit,
    "load": load,
    "point query": point,
    "two hops": two_hops,
    "query": query,
    "merge": merge,
    "optimize": optimize,
    "Spark load": spark_load,
}


def measure(task: str, folder: Path, count: int) -> float:
    """CPU seconds of one run of a task, all processes included, after a run that warms up."""
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as scratch:
        own = str(Path(scratch, "graph"))
        at = Places(graph=str(folder / "graph"), rows=folder / "rows.jsonl", own=own)
        run = TASKS[task](at)
        run(10**6)()
        spent = 0.0
        for n in range(count):
            timed = run(n)
            before = _cpu_seconds()
            timed()
            spent += _cpu_seconds() - before
    return spent / count


def _cpu_seconds() -> float:
    """Seconds of this process and of all below it, which a JVM and its workers are.

    The kernel counts those of other processes in hundredths, too coarse for one query.
    """
    total = time.process_time()
    own = psutil.Process()
    for process in own.children(recursive=True):
        times = process.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    ended = own.cpu_times()
    return total + ended.children_user + ended.children_system


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb == "prepare":
        prepare(Path(rest[0]), int(rest[1]), int(rest[2]))
    else:
        print(json.dumps(measure(rest[0], Path(rest[1]), int(rest[2]))))
