"""What upserts leave in the manifest of a table, beside bare Lance: `just bench upserts`.

Edges are loaded, and some rounds of upserts replace a share of them, chosen at random, each round
in random order. `optimize` runs at the end. Bytes of row ids and of row versions in the manifest
are counted apart, per updated row, after every step, with the bytes of files that hold them
instead; the size of the manifest and the time to open the table are beside them. The same rounds
run by `merge_insert` and `compact_files` of bare Lance on a dataset of the same rows, in turns; it
has no index, with which its `merge_insert` takes minutes per round, and checks no endpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

import lance
import numpy as np
import pyarrow as pa

import omnigraph_lake as og
from omnigraph_lake.graph import Graph

SCHEMA: Final = """
node Person { name: String @key }
edge Knows: Person -> Person { weight: I64 }
"""
PERSONS: Final = 1_000
OPENS: Final = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What one version of a table keeps of its rows' identity, and what it costs to open."""

    step: str
    seconds: float
    cpu_seconds: float
    updated_rows: int
    fragments: int
    row_id_bytes: int
    version_bytes: int
    hidden_bytes: int
    manifest_bytes: int
    open_ms: float

    def per_updated_row(self, size: int) -> float:
        return size / max(1, self.updated_rows)


def main() -> None:
    options = _options()
    os.environ.setdefault("LANCE_MEM_POOL_SIZE", str(4 << 30))  # its merge_insert needs more
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-", dir=options.scratch) as folder:
        home = Path(folder)
        sides = run(home, options)
    for side, footprints in sides.items():
        show(side, footprints)
    print(
        json.dumps(
            {
                "name": "upserts",
                "edges": options.edges,
                "rounds": options.rounds,
                "share": options.share,
                "steps": {side: [asdict(step) for step in steps] for side, steps in sides.items()},
                "load": round(os.getloadavg()[0], 1),
                "versions": {name: version(name) for name in ("pylance",)},
            }
        )
    )


def run(home: Path, options: argparse.Namespace) -> dict[str, list[Footprint]]:
    """The same rounds on both sides, in turns."""
    graph, bare = load_graph(home / "graph", options.edges), home / "bare"
    entry = graph.snapshot().tables["edge:Knows"]
    table = home / "graph" / entry.location
    lance.write_dataset(lance.dataset(table).to_table(), bare, enable_stable_row_ids=True)
    sides: dict[str, list[Footprint]] = {
        "omnigraph": [footprint(table, "load", (0.0, 0.0), 0)],
        "bare Lance": [footprint(bare, "load", (0.0, 0.0), 0)],
    }
    chance = np.random.default_rng(1)
    updated = 0
    for number in range(1, options.rounds + 1):
        rows = changed_edges(chance, options)
        updated += len(rows)
        step = f"upsert {number}"
        seconds = timed(partial(graph.load, {"Knows": rows}, mode="replace"))
        sides["omnigraph"].append(footprint(table, step, seconds, updated))
        seconds = timed(partial(merge_barely, bare, rows))
        sides["bare Lance"].append(footprint(bare, step, seconds, updated))
        for side, footprints in sides.items():
            show(side, footprints[-1:])
    seconds = timed(graph.maintenance.optimize)
    sides["omnigraph"].append(footprint(table, "optimize", seconds, updated))
    seconds = timed(lance.dataset(bare).optimize.compact_files)
    sides["bare Lance"].append(footprint(bare, "optimize", seconds, updated))
    require_complete(table, options.edges)
    return sides


def load_graph(root: Path, edges: int) -> Graph:
    graph = og.init(str(root), schema=SCHEMA)
    graph.load({"Person": pa.table({"name": [f"p{number}" for number in range(PERSONS)]})})
    graph.load({"Knows": edges_of(np.arange(edges), weight=0)})
    graph.maintenance.optimize()
    return graph


def edges_of(numbers: np.ndarray, *, weight: int) -> pa.Table:
    persons = pa.array([f"p{number}" for number in range(PERSONS)])
    return pa.table(
        {
            "id": pa.array(numbers).cast(pa.string()),
            "src": persons.take(pa.array(numbers % PERSONS)),
            "dst": persons.take(pa.array(numbers // PERSONS % PERSONS)),
            "weight": pa.array(np.full(len(numbers), weight)),
        }
    )


def changed_edges(chance: np.random.Generator, options: argparse.Namespace) -> pa.Table:
    numbers = chance.choice(options.edges, int(options.edges * options.share), replace=False)
    return edges_of(numbers, weight=int(chance.integers(1 << 30)))


def merge_barely(root: Path, rows: pa.Table) -> None:
    lance.dataset(root).merge_insert("id").when_matched_update_all().execute(rows)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock, and of the CPU."""
    began, began_cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - began_cpu


def footprint(root: Path, step: str, seconds: tuple[float, float], updated: int) -> Footprint:
    dataset = lance.dataset(root)
    fragments = [fragment.metadata.to_json() for fragment in dataset.get_fragments()]
    hidden = [
        file
        for fragment in fragments
        for file in fragment["files"]
        if file["fields"] and max(file["fields"]) < 0
    ]
    newest = max((root / "_versions").glob("*.manifest"), key=lambda path: path.stat().st_mtime_ns)
    openings = [timed(lambda: lance.dataset(root).count_rows())[0] for _ in range(OPENS)]
    return Footprint(
        step=step,
        seconds=round(seconds[0], 2),
        cpu_seconds=round(seconds[1], 2),
        updated_rows=updated,
        fragments=len(fragments),
        row_id_bytes=sum(inline_bytes(fragment["row_id_meta"]) for fragment in fragments),
        version_bytes=sum(
            inline_bytes(fragment[f"{kind}_version_meta"])
            for fragment in fragments
            for kind in ("created_at", "last_updated_at")
        ),
        hidden_bytes=sum(file["file_size_bytes"] or 0 for file in hidden),
        manifest_bytes=newest.stat().st_size,
        open_ms=round(1000 * statistics.median(openings), 2),
    )


def inline_bytes(sequence: object) -> int:
    """How long a sequence is that the manifest holds."""
    if not isinstance(sequence, dict):
        return 0
    return max((len(value) for value in sequence.values()), default=0)


def require_complete(table: Path, edges: int) -> None:
    """No row is missing, row ids are unique, and every index knows every row."""
    dataset = lance.dataset(table)
    numbers = dataset.to_table(columns=["_rowid"])["_rowid"].to_numpy()
    assert len(np.unique(numbers)) == len(numbers) == edges
    for index in dataset.describe_indices():
        statistics_of_index = dataset.stats.index_stats(index.name)
        assert statistics_of_index["num_unindexed_rows"] == 0, statistics_of_index


def show(side: str, footprints: list[Footprint]) -> None:
    print(
        f"\n{side:12}{'s':>8}{'CPU s':>8}{'fragments':>10}{'row ids B/row':>15}"
        f"{'versions B/row':>15}{'hidden B/row':>13}{'manifest':>12}{'open ms':>9}"
    )
    for step in footprints:
        print(
            f"{step.step:12}{step.seconds:8.1f}{step.cpu_seconds:8.1f}{step.fragments:10}"
            f"{step.per_updated_row(step.row_id_bytes):15.4f}"
            f"{step.per_updated_row(step.version_bytes):15.4f}"
            f"{step.per_updated_row(step.hidden_bytes):13.2f}"
            f"{step.manifest_bytes:12,}{step.open_ms:9.2f}"
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--scratch", default=None)
    return parser.parse_args()


if __name__ == "__main__":
    main()
