"""Updates and deletes any number of rows by a match, each as one commit, and reports peak memory.

    python -m benchmarks.large_mutations ROWS

Every step runs in a process of its own, whose peak memory is that of the step.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

import omnigraph_lake as og
from omnigraph_lake.mutate import matched

_SCHEMA: Final = """
node Person { name: String @key  age: I64  rank: F64? }
edge Knows: Person -> Person
"""
_STEPS: Final = {
    "update": "match { $p: Person } update $p set { rank: $p.age * 0.5 }",
    "delete": "match { $p: Person  $p.age >= 0 } delete $p",
}
_PART: Final = 500_000


def main() -> None:
    """Run all steps on a new graph."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int)
    parser.add_argument("--step", choices=("load", *_STEPS))
    parser.add_argument("--root")
    arguments = parser.parse_args()
    if arguments.step is not None:
        _run(arguments.step, Path(arguments.root), arguments.rows)
        return
    with tempfile.TemporaryDirectory(prefix="omnigraph-large-") as folder:
        for step in ("load", *_STEPS):
            command = [sys.executable, "-m", "benchmarks.large_mutations", str(arguments.rows)]
            subprocess.run([*command, "--step", step, "--root", folder], check=True)


def _run(step: str, folder: Path, rows: int) -> None:
    root = str(folder / "graph")
    began = time.perf_counter()
    if step == "load":
        shown = _load(root, folder, rows)
    else:
        # In parts also if memory would hold the rows, so that sizes can be compared.
        vars(matched)["MATCHED_LIMITS"] = replace(matched.MATCHED_LIMITS, rows=10_000)
        result = og.open(root).mutate(_STEPS[step])
        shown = f"{result.tables}"
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{step} of {rows:,} rows: {seconds:.1f} s, peak {peak:,.0f} MiB; {shown}", flush=True)


def _load(root: str, folder: Path, rows: int) -> str:
    graph = og.init(root, schema=_SCHEMA)
    source = folder / "input"
    for type_name in ("Person", "Knows"):
        (source / type_name).mkdir(parents=True)
    for start in range(0, rows, _PART):
        numbers = range(start, min(start + _PART, rows))
        names = pa.array([f"p{number:09}" for number in numbers])
        ages = pa.array(list(numbers), pa.int64())
        people = pa.table({"name": names, "age": ages})
        pq.write_table(people, source / "Person" / f"part-{start}.parquet")
        edges = pa.table({"src": names[::10], "dst": names[: len(names[::10])]})
        pq.write_table(edges, source / "Knows" / f"part-{start}.parquet")
    report = graph.load(str(source))
    return str(report.written)


if __name__ == "__main__":
    main()
