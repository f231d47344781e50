"""What a merge costs: time beside bare Lance, memory, requests: `just bench merge`.

A graph of many nodes and edges; branches that differ by growing shares of them. A fast-forward is
timed beside a bare Lance append of the rows that changed, a three-way merge beside a bare upsert of
them by id, both to tables of the same size and in turns with it: medians of wall and CPU time.
Every merge runs in a process of its own, whose peak memory is printed. Requests are counted on a
small graph with a short and a long history, and for making a branch of a graph with many tables.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

import lance
import numpy as np
import pyarrow as pa

import omnigraph_lake
from benchmarks.open_cost import wide_schema
from omnigraph_lake.graph import Graph

SCHEMA: Final = """
node Person { name: String @key  age: I32  city: String  score: F64 }
edge Knows: Person -> Person { weight: F64 }
"""
MERGER: Final = """
import json, sys, time
from pathlib import Path
import omnigraph_lake as og
import omnigraph_lake.merge.merge  # imports are no part of a merge
graph = og.open(sys.argv[1])
began, cpu_began = time.perf_counter(), time.process_time()
merged = graph.merge(sys.argv[2])
wall, cpu = time.perf_counter() - began, time.process_time() - cpu_began
print(json.dumps({
    "outcome": merged.outcome.value, "wall": wall, "cpu": cpu,
    "rows": sum(c.inserted + c.updated + c.deleted for c in merged.tables.values()),
    "rss": int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) // 1024,
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Medians of several rounds."""

    wall: float
    cpu: float

    @classmethod
    def of(cls, rounds: Sequence[tuple[float, float]]) -> Cost:
        walls, cpus = zip(*rounds, strict=True)
        return cls(wall=statistics.median(walls), cpu=statistics.median(cpus))


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A measured merge, and bare Lance with the same rows: an append, or an upsert by id."""

    share: float
    outcome: str
    rows: int
    ours: Cost
    bare: Cost
    rss: int

    def record(self) -> dict[str, object]:
        return {
            **asdict(self),
            "ratio_wall": round(self.ours.wall / self.bare.wall, 2),
            "ratio_cpu": round(self.ours.cpu / self.bare.cpu, 2),
        }


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-", dir=options.scratch) as folder:
        home = Path(folder)
        build(home / "graph", nodes=options.nodes, edges=options.edges)
        print(
            "share   outcome       rows changed  wall s   CPU s  bare wall  bare CPU  "
            "wall ratio  CPU ratio  peak RSS MB"
        )
        runs = []
        for share in options.shares:
            for diverged in (False, True):
                run = measure(home, share, diverged=diverged, options=options)
                runs.append(run)
                print(
                    f"{run.share:6.1%}  {run.outcome:12}  {run.rows:12,}  {run.ours.wall:6.2f}  "
                    f"{run.ours.cpu:6.2f}  {run.bare.wall:9.3f}  {run.bare.cpu:8.3f}  "
                    f"{run.ours.wall / run.bare.wall:10.1f}  {run.ours.cpu / run.bare.cpu:9.1f}  "
                    f"{run.rss:11,}"
                )
        requests = {commits: merge_requests(home, commits) for commits in options.histories}
        creation = creation_requests(home)
    for commits, count in requests.items():
        print(f"merge after {commits:,} commits: {count} requests")
    print(f"making a branch of a graph with 500 tables: {creation} requests")
    print(
        json.dumps(
            {
                "name": "merge",
                "runs": [run.record() for run in runs],
                "requests": requests,
                "requests_branch": creation,
                "rows": options.nodes + options.edges,
                "versions": {"pylance": version("pylance")},
            }
        )
    )


def build(root: Path, *, nodes: int, edges: int) -> None:
    """Load the graph in a few commits, so that its tables have several fragments."""
    graph = omnigraph_lake.init(str(root), schema=SCHEMA)
    chance = np.random.default_rng(7)
    graph.write({"Person": people(np.arange(nodes), chance)})
    for part in np.array_split(np.arange(edges), max(1, edges // 1_000_000)):
        graph.write({"Knows": friendships(part, nodes, chance)})


def people(numbers: np.ndarray, chance: np.random.Generator) -> pa.Table:
    cities = np.array(["Berlin", "Paris", "Rome", "Oslo"])
    return pa.table(
        {
            "name": [f"person-{number}" for number in numbers],
            "age": pa.array(chance.integers(0, 100, len(numbers)), pa.int32()),
            "city": cities[chance.integers(0, 4, len(numbers))],
            "score": chance.random(len(numbers)),
        }
    )


def friendships(numbers: np.ndarray, nodes: int, chance: np.random.Generator) -> pa.Table:
    sources, targets = chance.integers(0, nodes, (2, len(numbers)))
    return pa.table(
        {
            "id": [f"edge-{number}" for number in numbers],
            "src": [f"person-{number}" for number in sources],
            "dst": [f"person-{number}" for number in targets],
            "weight": chance.random(len(numbers)),
        }
    )


def measure(home: Path, share: float, *, diverged: bool, options: argparse.Namespace) -> Merged:
    """Change a share of all rows on a branch, other rows on main if asked, and merge.

    Every round merges a copy of the same graph, in turns with bare Lance.
    """
    prepared = _copy(home / "graph", home / "prepared")
    graph = omnigraph_lake.open(str(prepared))
    branch = graph.branches.create("dev")
    chance = np.random.default_rng(11)
    changed = change(branch, share, chance, options, fresh=options.edges)
    if diverged:
        change(graph, share, chance, options, fresh=2 * options.edges)
    merges, bare = [], []
    for _ in range(options.rounds):
        root = _copy(prepared, home / "work")
        done = subprocess.run(
            [sys.executable, "-c", MERGER, str(root), "dev"],
            check=True,
            capture_output=True,
            text=True,
        )
        merges.append(json.loads(done.stdout))
        bare.append(write_barely(home, changed, is_upsert=diverged))
    assert {merge["outcome"] for merge in merges} == {"merged" if diverged else "fast_forward"}
    return Merged(
        share=share,
        outcome=merges[0]["outcome"],
        rows=merges[0]["rows"],
        ours=Cost.of([(merge["wall"], merge["cpu"]) for merge in merges]),
        bare=Cost.of(bare),
        rss=max(merge["rss"] for merge in merges),
    )


def change(
    graph: Graph,
    share: float,
    chance: np.random.Generator,
    options: argparse.Namespace,
    *,
    fresh: int,
) -> dict[str, pa.Table]:
    """Half of the nodes' share are updates of theirs, the edges' share are half new, half updates.

    Main and branch take different halves of the numbers, so that they never meet in a row.
    """
    nodes, edges = int(options.nodes * share), int(options.edges * share)
    half = 0 if graph.branch != "main" else 1
    known = chance.choice(options.edges // 2, edges // 2, replace=False) * 2 + half
    rows = {
        "Person": people(
            chance.choice(options.nodes // 2, nodes // 2, replace=False) * 2 + half, chance
        ),
        "Knows": friendships(
            np.concatenate([known, fresh + np.arange(edges // 2)]), options.nodes, chance
        ),
    }
    graph.write(rows, mode="merge")
    return rows


def write_barely(
    home: Path, changed: Mapping[str, pa.Table], *, is_upsert: bool
) -> tuple[float, float]:
    """Append the changed rows to the tables of the graph, or upsert them, without any protocol."""
    copy = _copy(home / "graph", home / "bare")
    tables = omnigraph_lake.open(str(copy), read_only=True).snapshot().tables
    wall = cpu = 0.0
    for name, rows in changed.items():
        location = next(e.location for key, e in tables.items() if key.endswith(f":{name}"))
        table = lance.dataset(str(copy / location))
        full = rows.append_column("id", rows.column("name")) if name == "Person" else rows
        content = full.select(table.schema.names).cast(table.schema)
        began, cpu_began = time.perf_counter(), time.process_time()
        if is_upsert:
            upsert = table.merge_insert("id").when_matched_update_all()
            upsert.when_not_matched_insert_all().execute(content)
        else:
            lance.write_dataset(content, table, mode="append")
        wall += time.perf_counter() - began
        cpu += time.process_time() - cpu_began
    return wall, cpu


def merge_requests(home: Path, commits: int) -> int:
    """Requests of one small three-way merge after so many commits on main.

    The commits replace the table, so that it has one fragment whatever its history.
    """
    root = home / f"history-{commits}"
    graph = omnigraph_lake.init(str(root), schema="node Note { text: String @key }")
    for number in range(commits):
        graph.write({"Note": [{"text": f"n{number}"}]}, mode="overwrite")
    branch = graph.branches.create("dev")
    branch.write({"Note": [{"text": "theirs"}]})
    graph.write({"Note": [{"text": "ours"}]})
    reads, files = lance.iops_counter(), _files(root)
    graph.merge("dev")
    return lance.iops_counter() - reads + len(_files(root) - files)


def creation_requests(home: Path) -> int:
    root = home / "wide"
    graph = omnigraph_lake.init(str(root), schema=wide_schema(500))
    reads, files = lance.iops_counter(), _files(root)
    graph.branches.create("dev")
    return lance.iops_counter() - reads + len(_files(root) - files)


def _files(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if path.is_file()}


def _copy(source: Path, target: Path) -> Path:
    """Files of a graph are never changed in place, so links are enough."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, copy_function=_link)
    return target


def _link(source: str, target: str) -> str:
    Path(target).hardlink_to(source)
    return target


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.001, 0.01, 0.1])
    parser.add_argument("--rounds", type=int, default=3, help="merges of each share")
    parser.add_argument("--histories", type=int, nargs="+", default=[20, 420])
    parser.add_argument("--scratch", help="where to put the data")
    return parser.parse_args()


if __name__ == "__main__":
    main()
