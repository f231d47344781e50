"""What a query needs that goes through a node with very many edges: `just bench supernode`.

A million edges lead from one node to others; three hops go through it. Every query runs in a
process of its own, which first holds the tables in memory and then measures how much more it needs
at its peak. It must stay near the budget, and give the right rows or say that it cannot.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import omnigraph_lake as og
from omnigraph_lake.errors import QueryBudgetError

SCHEMA: Final = """
node P { k: String @key  n: I32 }
edge Knows: P -> P { w: I32 }
"""
INWARD: Final = 3
"""So many nodes lead to the large one."""
PATTERN: Final = f"$a: P  $a.n <= {INWARD}  $a $e: knows $b  $b $f: knows $c  $c $g: knows $d"
QUERIES: Final = {
    "count": f"match {{ {PATTERN} }} return {{ count(*) as found }}",
    "rows": f"match {{ {PATTERN} }} return {{ $a.k, $c.k, $d.k, $f.w }}",
    "order": f"match {{ {PATTERN} }} return {{ $a.k, $d.k, $f.w }} order {{ $f.w desc, $d.k }}",
    "first": f"match {{ {PATTERN} }} return {{ $d.k, $f.w }} order {{ $f.w desc }} limit 10",
    "groups": f"match {{ {PATTERN} }} return {{ $d.k, count(*) as found, sum($f.w) as w }}",
    "distinct": f"match {{ {PATTERN} }} return distinct {{ $a.k, $f.w, $d.k }}",
    "collect": f"match {{ {PATTERN} }} return {{ $a.k, collect($f.w) as all }}",
    "hops": "match { $a: P  $a.n <= 40  $a knows{1,3} $b } return { $a.k, $b.k }",
    "paths": "match { $a: P  $a.n <= 9  $a knows{1,3} $b as $way } return { nodes($way) }",
}
WARMING: Final = (
    *(f"match {{ $a: P }} return {{ count(distinct $a.{each}) as found }}" for each in ("k", "n")),
    "match { $a: P  $a $e: knows $b } return { sum($e.w) as found }",
    "match { $a: P { n: 0 } $a $e: knows $b } return { $b.k, $e.w } order { $e.w } limit 1",
    "match { $a: P { n: 1 } $a knows{1,1} $b as $way } return { edges($way) } limit 1",
)
SLACK_BYTES: Final = 96 << 20
"""Beyond the budget: what allocators keep, and one batch on its way out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One query in a process of its own."""

    query: str
    rows: int | None
    """None if it was refused."""
    seconds: float
    base_bytes: int
    peak_bytes: int

    @property
    def more_bytes(self) -> int:
        """What the query needed beyond the tables in memory."""
        return self.peak_bytes - self.base_bytes


def build(folder: str, *, nodes: int, edges: int) -> None:
    """Node 0 has the edges; nodes 1 to 3 lead to it, and every node to the next one."""
    chance = np.random.default_rng(11)
    keys = pa.array([f"person-{number}" for number in range(nodes)])
    away = chance.integers(1, nodes, edges)
    starts = np.concatenate([np.arange(1, INWARD + 1), np.zeros(edges, int), np.arange(1, nodes)])
    ends = np.concatenate([np.zeros(INWARD, int), away, np.arange(1, nodes) % (nodes - 1) + 1])
    graph = og.init(folder, schema=SCHEMA)
    graph.write(
        {
            "node:P": pa.table({"k": keys, "n": pa.array(np.arange(nodes), pa.int32())}),
            "edge:Knows": pa.table(
                {
                    "src": keys.take(pa.array(starts)),
                    "dst": keys.take(pa.array(ends)),
                    "w": pa.array(np.arange(len(starts)), pa.int32()),
                }
            ),
        }
    )
    graph.maintenance.optimize()


def measured(folder: str, query: str, *, memory: str) -> Measured:
    """Runs one query in a new process."""
    asked = ["--child", query, "--root", folder, "--memory", memory]
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.supernode", *asked],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(f"{query} failed:\n{ended.stderr}")
    return Measured(**json.loads(ended.stdout.splitlines()[-1]))


def _child(folder: str, query: str, memory: str) -> None:
    graph = og.open(folder)
    for text in WARMING:
        graph.query(f"query warm() {{ {text} }}", memory=memory).to_arrow()
    base = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    began = time.perf_counter()
    rows: int | None = 0
    try:
        for batch in graph.query(f"query asked() {{ {QUERIES[query]} }}", memory=memory):
            assert rows is not None
            rows += _counted(batch)
    except QueryBudgetError:
        rows = None
    seconds = round(time.perf_counter() - began, 3)
    found = Measured(
        query=query, rows=rows, seconds=seconds, base_bytes=base, peak_bytes=_status("VmHWM")
    )
    print(json.dumps(asdict(found)))


def _counted(batch: pa.RecordBatch) -> int:
    """How many rows of the pattern a batch stands for."""
    if "found" in batch.schema.names:
        return int(pc.sum(batch.column("found")).as_py())
    if "all" in batch.schema.names:
        return len(batch.column("all").flatten())
    return int(batch.num_rows)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def report(found: Iterable[Measured]) -> list[Measured]:
    """A line for each as it comes."""
    print(f"{'query':10} {'rows':>12} {'seconds':>8} {'tables MiB':>11} {'more MiB':>9}")
    shown = []
    for each in found:
        rows = "refused" if each.rows is None else f"{each.rows:,}"
        base, more = each.base_bytes >> 20, each.more_bytes >> 20
        print(f"{each.query:10} {rows:>12} {each.seconds:8.2f} {base:11} {more:9}", flush=True)
        shown.append(each)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--edges", type=int, default=1_000_000, help="of the large node")
    parser.add_argument("--memory", default="64MiB", help="the budget of a query")
    parser.add_argument("--root", help=argparse.SUPPRESS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _child(options.root, options.child, options.memory)
        return
    with tempfile.TemporaryDirectory(prefix="omnigraph-supernode-") as folder:
        root = str(Path(folder, "graph"))
        build(root, nodes=options.nodes, edges=options.edges)
        found = report(measured(root, each, memory=options.memory) for each in QUERIES)
    summary = {
        "name": "supernode",
        "edges": options.edges,
        "memory": options.memory,
        "peak_more_mib": max(each.more_bytes for each in found) >> 20,
        "refused": [each.query for each in found if each.rows is None],
        "seconds": round(sum(each.seconds for each in found), 2),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
