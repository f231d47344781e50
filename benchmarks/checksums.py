"""What checksums cost, beside the same calls without them: `just bench checksums`.

Loads, cold and warm scans and cold point queries, with nothing compared, with the default and with
`verify="first-read"`, in turns. Cold means: a new process that finds the files in the page cache,
so the disk, which would hide the cost, is not in the ratio. Ratios are medians of pairs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast
from unittest.mock import patch

import numpy as np
import pyarrow as pa

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions

SCHEMA: Final = "node P { k: String @key  n: I64  x: F64  y: F64  t: String }"
FIND: Final = "query q($k: String) { match { $p: P { k: $k } } return { $p.n } }"
BYTES_PER_ROW: Final = 70
LEVELS: Final = ("nothing", "metadata", "first-read")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", default=None, help="on the disk to measure")
    parser.add_argument("--act", nargs=3, metavar=("WHAT", "ROOT", "LEVEL"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.act:
        print(_act(*given.act))
        return
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="omnigraph-bench-") as place:
        ratios["load"] = _load_ratio(place, given.rounds)
        print(f"load of 400,000 rows: {ratios['load']:.2f} of one without checksums (goal 1.10)")
        for size in given.megabytes:
            root = f"{place}/{size}"
            _build(root, size)
            ratios |= _read_ratios(root, size, given.rounds)
    print(json.dumps({"name": "checksums", **ratios}))


def _rows(first: int, count: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    chance = np.random.default_rng(first)
    return pa.table(
        {
            "k": [f"key-{number:012}" for number in numbers],
            "n": numbers,
            "x": chance.random(count),
            "y": chance.random(count),
            "t": [f"text {number % 1000} of some length" for number in numbers],
        }
    )


def _build(root: str, megabytes: int) -> None:
    graph = og.init(root, schema=SCHEMA, durability="os")
    rows = megabytes * 1_000_000 // BYTES_PER_ROW
    for first in range(0, rows, 1_000_000):
        graph.load(
            {"P": _rows(first, min(1_000_000, rows - first))}, options=LoadOptions(engine="local")
        )
    graph.maintenance.optimize()


@contextmanager
def _without_checksums():  # type: ignore[no-untyped-def]
    """The same program, with nothing recorded and nothing compared."""
    with (
        patch("omnigraph_lake.commit.table_moves.record_change", lambda *_: None),
        patch("omnigraph_lake.storage.manifest.swap._with_checksums", lambda _, rows, __: rows),
        patch("omnigraph_lake.storage.lance.tables.verify_table", lambda *_, **__: None),
        patch("omnigraph_lake.storage.lance.dataset_cache.verify_table", lambda *_, **__: None),
    ):
        yield


def _load_ratio(place: str, rounds: int) -> float:
    pairs: list[float] = []
    for number in range(rounds):
        took: dict[bool, float] = {}
        for with_checksums in (True, False) if number % 2 else (False, True):
            graph = og.init(
                f"{place}/load-{number}-{with_checksums}", schema=SCHEMA, durability="os"
            )
            rows = _rows(0, 400_000)
            started = time.perf_counter()
            if with_checksums:
                graph.load({"P": rows}, options=LoadOptions(engine="local"))
            else:
                with _without_checksums():
                    graph.load({"P": rows}, options=LoadOptions(engine="local"))
            took[with_checksums] = time.perf_counter() - started
        pairs.append(took[True] / took[False])
    return statistics.median(pairs)


def _read_ratios(root: str, size: int, rounds: int) -> dict[str, float]:
    ratios: dict[str, float] = {}
    for what, goal in (("scan", "1.15"), ("warm", "1.00"), ("point", "")):
        took: dict[str, list[float]] = {level: [] for level in LEVELS}
        for number in range(rounds):
            for level in LEVELS[number % 3 :] + LEVELS[: number % 3]:
                took[level].append(_in_process(what, root, level))
        seconds = {level: statistics.median(times) for level, times in took.items()}
        for level in LEVELS[1:]:
            pairs = zip(took[level], took["nothing"], strict=True)
            ratios[f"{what}_{size}_{level}"] = statistics.median(a / b for a, b in pairs)
        print(
            f"{what:<6}{size:>6} MB  "
            + "  ".join(f"{level} {1e3 * seconds[level]:.1f} ms" for level in LEVELS)
            + f"  ratios {ratios[f'{what}_{size}_metadata']:.2f}"
            + f" {ratios[f'{what}_{size}_first-read']:.2f}"
            + (f" (goal {goal})" if goal else "")
        )
    return ratios


def _in_process(what: str, root: str, level: str) -> float:
    command = [sys.executable, "-m", "benchmarks.checksums", "--act", what, root, level]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def _act(what: str, root: str, level: str) -> float:
    """Seconds that one read takes in a process that has opened nothing yet."""
    for file in Path(root).rglob("*"):
        if file.is_file():
            file.read_bytes()
    if level == "nothing":
        with _without_checksums():
            return _timed(what, root, "metadata")
    return _timed(what, root, cast("og.Verify", level))


def _timed(what: str, root: str, verify: og.Verify) -> float:
    graph = og.open(root, read_only=True, verify=verify)
    acts: dict[str, Callable[[], object]] = {
        "scan": lambda: [None for _ in graph.scan("P")],
        "point": lambda: graph.query(FIND, k="key-000000000077").to_pylist(),
    }
    acts["warm"] = acts["scan"]
    if what == "warm":
        acts["scan"]()
    started = time.perf_counter()
    acts[what]()
    return time.perf_counter() - started


if __name__ == "__main__":
    main(sys.argv[1:])
