"""What generated ids cost a large write: `just bench write`.

The same edges are written as one commit with ids of their own and without, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time

import numpy as np
import pyarrow as pa

import omnigraph_lake as og

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"
NAMES = pa.array([f"p{number}" for number in range(1_000)])


def main() -> None:
    options = _options()
    draw = np.random.default_rng(7)
    ends = {
        end: NAMES.take(pa.array(draw.integers(0, len(NAMES), options.edges)))
        for end in ("src", "dst")
    }
    ids = pa.array([f"{number:026d}" for number in range(options.edges)])
    inputs = {"with ids": pa.table({"id": ids, **ends}), "without ids": pa.table(ends)}
    measure(inputs["with ids"].slice(0, 1_000))
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in inputs}
    for _ in range(options.rounds):
        for name, edges in inputs.items():
            taken[name].append(measure(edges))
    print(f"{options.edges:,} edges as one commit, medians of {options.rounds}")
    for clock, unit in enumerate(("wall", "CPU")):
        own, generated = (
            statistics.median(seconds[clock] for seconds in taken[name]) for name in inputs
        )
        print(
            f"{unit:<5} with ids {own:6.2f} s  without {generated:6.2f} s  "
            f"ratio {generated / own:.2f} (goal 1.20)"
        )


def measure(edges: pa.Table) -> tuple[float, float]:
    """Seconds on the clock and of CPU that one write takes."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        graph = og.init(f"{folder}/graph", schema=SCHEMA)
        graph.write({"Person": pa.table({"name": NAMES})})
        wall, cpu = time.perf_counter(), time.process_time()
        graph.write({"Knows": edges})
        return time.perf_counter() - wall, time.process_time() - cpu


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
