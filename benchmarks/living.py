"""Queries on a graph that is being written: `just bench living [--nodes N --edges N]`.

A generated graph, loaded and optimized once and copied for each run. Printed are CPU and wall
seconds of a count of all paths of two edges: warm, right after one committed edge, update of a node
or deletion of a node, and cold from the shell with the most memory it took; then the slowest query
of each kind beside the median of its kind in a run of mixed reads and writes, and the bytes in the
cache after 50 commits. Ladybug counts the same paths where its package is installed.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import omnigraph_lake as og
from omnigraph_lake.engine.access.column_cache import shared_cache
from omnigraph_lake.graph import Graph

HOME: Final = Path.home() / ".cache" / "omnigraph" / "bench"
SCHEMA: Final = """
node Person { k: String @key  age: I32 }
edge Follows: Person -> Person
"""
TWO_HOPS: Final = (
    "query two() { match { $a: Person  $a follows $b  $b follows $c } return { count(*) } }"
)
CYPHER: Final = "MATCH (a:Person)-[:Follows]->(:Person)-[:Follows]->(:Person) RETURN count(*)"
KINDS: Final = {
    "point by key": "query q($k: String) { match { $a: Person { k: $k } } return { $a.age } }",
    "one hop by key": (
        "query q($k: String) { match { $a: Person { k: $k } $a follows $b } return { $b.k } }"
    ),
    "two hops by key": (
        "query q($k: String) "
        "{ match { $a: Person { k: $k } $a follows $b $b follows $c } return { count(*) } }"
    ),
    "count by condition": "query q() { match { $a: Person  $a.age = 30 } return { count(*) } }",
    "all paths": TWO_HOPS,
}
COMMAND: Final = str(Path(sys.executable).parent / "omnigraph")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Seconds of one measurement."""

    cpu: float
    wall: float


# A child's peak is never below the memory of its parent: a small process in between starts it.
MEASURED: Final = """
import resource, subprocess, sys, time
began = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
"""


def main() -> None:
    options = _options()
    source = prepare(options)
    with tempfile.TemporaryDirectory(prefix="omnigraph-living-", dir=options.home) as folder:
        place = Path(folder) / "graph"
        shutil.copytree(source / "graph", place)
        figures: dict[str, Any] = {"name": "living", "nodes": options.nodes, "edges": options.edges}
        figures |= cold_from_shell(place, "cold")
        graph = og.open(str(place))
        figures |= after_writes(graph, options)
        figures |= mixed(graph, options)
        figures |= cold_from_shell(place, "cold after writes")
        figures |= rebuilds(graph, options)
        if options.ladybug:
            figures |= ladybug_counts(source, Path(folder), options)
    print(json.dumps(figures))


def prepare(options: argparse.Namespace) -> Path:
    """The graph and its rows as Parquet, made once."""
    home: Path = options.home / f"living-{options.nodes}-{options.edges}"
    done = home / "loaded.json"
    if options.fresh or not done.exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        dice = np.random.default_rng(7)
        ids = np.char.add("p", np.arange(options.nodes).astype(str))
        ages = pa.array(dice.integers(18, 80, options.nodes).astype(np.int32))
        people = pa.table({"k": pa.array(ids), "age": ages})
        ends = (dice.random((2, options.edges)) ** 1.3 * options.nodes).astype(np.int64)
        follows = pa.table({"src": pa.array(ids[ends[0]]), "dst": pa.array(ids[ends[1]])})
        pq.write_table(people, home / "people.parquet")
        pq.write_table(follows, home / "follows.parquet")
        graph = og.init(str(home / "graph"), schema=SCHEMA)
        graph.write({"node:Person": people})
        graph.write({"edge:Follows": follows})
        graph.maintenance.optimize()
        done.write_text("{}")
    return home


def measured(act: Callable[[], object]) -> Spent:
    cpu, wall = time.process_time(), time.perf_counter()
    act()
    return Spent(cpu=time.process_time() - cpu, wall=time.perf_counter() - wall)


def shown(what: str, spent: Sequence[Spent]) -> dict[str, float]:
    cpu = statistics.median(one.cpu for one in spent)
    wall = statistics.median(one.wall for one in spent)
    print(f"{what:34} CPU {cpu * 1e3:9.1f} ms   wall {wall * 1e3:9.1f} ms", flush=True)
    return {f"{what} CPU": round(cpu, 5), f"{what} wall": round(wall, 5)}


def count(graph: Graph) -> int:
    (row,) = graph.query(TWO_HOPS).to_pylist()
    return int(next(iter(row.values())))


def ask(graph: Graph, text: str, given: dict[str, str]) -> None:
    graph.query(text, given).to_pylist()


def after_writes(graph: Graph, options: argparse.Namespace) -> dict[str, Any]:
    """The first count in this process, warm ones, and the first after each kind of write."""
    dice = random.Random(1)  # noqa: S311 - no secret
    figures: dict[str, Any] = shown("first in a process", [measured(lambda: count(graph))])
    figures |= shown("warm", [measured(lambda: count(graph)) for _ in range(options.rounds)])
    for what, write in writes(graph, dice, options).items():
        spent = []
        for _ in range(options.rounds):
            write()
            spent.append(measured(lambda: count(graph)))
        figures |= shown(f"after {what}", spent)
    return figures


def writes(
    graph: Graph, dice: random.Random, options: argparse.Namespace
) -> dict[str, Callable[[], object]]:
    deleted: set[str] = set()

    def key() -> str:
        while (chosen := f"p{dice.randrange(options.nodes)}") in deleted:
            pass
        return chosen

    def delete() -> None:
        chosen = key()
        deleted.add(chosen)
        graph.delete({"node:Person": [chosen]})

    return {
        "one edge": lambda: graph.write({"edge:Follows": [{"src": key(), "dst": key()}]}),
        "one update of a node": lambda: graph.write(
            {"node:Person": [{"k": key(), "age": dice.randrange(18, 80)}]}, mode="merge"
        ),
        "one deletion of a node": delete,
    }


def mixed(graph: Graph, options: argparse.Namespace) -> dict[str, Any]:
    """Reads and writes in a random order; the slowest read of each kind over its median."""
    dice = random.Random(2)  # noqa: S311 - no secret
    kinds = list(KINDS)
    ways = list(writes(graph, dice, options).values())
    acts = ["write"] * options.writes + ["read"] * options.reads
    dice.shuffle(acts)
    spent: dict[str, list[Spent]] = {kind: [] for kind in kinds}
    for act in acts:
        if act == "write":
            dice.choice(ways)()
            continue
        kind = dice.choices(kinds, weights=[40, 30, 20, 5, 5])[0]
        given = {"k": f"p{dice.randrange(options.nodes)}"} if "$k" in KINDS[kind] else {}
        spent[kind].append(measured(partial(ask, graph, KINDS[kind], given)))
    figures: dict[str, Any] = {}
    for kind, reads in spent.items():
        for what in ("wall", "cpu"):
            seconds = [getattr(read, what) for read in reads] or [1.0]
            median, slowest = statistics.median(seconds), max(seconds)
            print(
                f"{kind:26}{what:>8} median {median * 1e3:8.2f} ms   slowest "
                f"{slowest * 1e3:8.1f} ms   {slowest / median:6.1f}x",
                flush=True,
            )
            figures[f"{kind} {what} slowest/median"] = round(slowest / median, 1)
            figures[f"{kind} {what} median"] = round(median, 6)
    return figures


def rebuilds(graph: Graph, options: argparse.Namespace) -> dict[str, Any]:
    dice = random.Random(3)  # noqa: S311 - no secret
    (write, *_) = writes(graph, dice, options).values()
    for _ in range(50):
        write()
        count(graph)
    cache = shared_cache()
    print(
        f"{'cache after 50 commits':34} {cache.memory_bytes / 1e6:,.0f} MB in memory, "
        f"{cache.disk_bytes / 1e6:,.0f} MB on disk, limit {cache.limit_bytes / 1e6:,.0f} MB"
    )
    return {"cache_bytes": cache.memory_bytes, "cache_limit": cache.limit_bytes}


def cold_from_shell(place: Path, what: str) -> dict[str, Any]:
    """A process of the shell that answers once; the page cache is warm."""
    spent, peaks = [], []
    for _ in range(3):
        command = [COMMAND, "query", str(place), "-e", TWO_HOPS, "--format", "jsonl"]
        answer = subprocess.run(
            [sys.executable, "-S", "-c", MEASURED, *command], check=True, capture_output=True
        )
        wall, cpu, peak = map(float, answer.stdout.split())
        spent.append(Spent(cpu=cpu, wall=wall))
        peaks.append(int(peak) * 1024)
    figures: dict[str, Any] = shown(f"{what} from the shell", spent)
    print(f"{'':34} most memory {max(peaks) / 1e6:,.0f} MB")
    return figures | {f"{what} peak": max(peaks)}


def ladybug_counts(source: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    try:
        import ladybug
    except ImportError:
        return {}
    connection = ladybug.Connection(ladybug.Database(str(folder / "ladybug")))
    connection.execute("CREATE NODE TABLE Person(k STRING, age INT32, PRIMARY KEY(k))")
    connection.execute("CREATE REL TABLE Follows(FROM Person TO Person)")
    connection.execute(f'COPY Person FROM "{source / "people.parquet"}"')
    connection.execute(f'COPY Follows FROM "{source / "follows.parquet"}"')

    def counted() -> None:
        result = connection.execute(CYPHER)
        assert not isinstance(result, list)
        result.get_next()

    counted()
    figures = shown("Ladybug warm", [measured(counted) for _ in range(options.rounds)])
    spent = []
    for number in range(options.rounds):
        connection.execute(
            f"MATCH (a:Person {{k: 'p{number}'}}), (b:Person {{k: 'p{number + 9}'}}) "
            "CREATE (a)-[:Follows]->(b)"
        )
        spent.append(measured(counted))
    return figures | shown("Ladybug after one edge", spent)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--reads", type=int, default=2_000)
    parser.add_argument("--writes", type=int, default=200)
    parser.add_argument("--ladybug", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--home", type=Path, default=HOME)
    return parser.parse_args()


if __name__ == "__main__":
    main()
