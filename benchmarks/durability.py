"""What durable commits cost, beside the bare syncs that they need: `just bench durability`.

One row per commit, by one writer and by eight threads of a process. Rounds of commits with and
without syncs take turns on two graphs, and so do rounds of the bare form: it writes the files of a
commit, as large and into as many folders, and makes the same calls of sync, which its threads share
as commits do. What earlier rounds left is synced before each round, outside of its time. The
median of a difference is that of pairs of rounds, so that a slow minute of the machine is in both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.objects import durability
from omnigraph_lake.storage.objects.location import Durability, Root, Scheme

SCHEMA: Final = "node P { k: String @key  n: I64 }"
COMMITS_BEFORE: Final = 50
"""The manifest lists recent commits: its size is taken where it has some."""
SIDECAR_BYTES: Final = 1000
"""A commit's sidecar is gone when the commit ends, so its size is not found afterwards."""


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="of one commit by each writer")
    parser.add_argument("--folder", default=None, help="on the disk to measure")
    given = parser.parse_args(arguments)
    ratios: dict[str, float] = {}
    print("writers  os p50  commit p50  difference  bare syncs  ratio  syncs per commit")
    for writers in (1, 8):
        with tempfile.TemporaryDirectory(dir=given.folder, prefix="omnigraph-bench-") as place:
            cost = _measured(place, writers, given.rounds)
        ratios[f"ratio_{writers}"] = cost.difference / cost.bare
        print(
            f"{writers:>7}{1e3 * cost.without:>8.2f}{1e3 * cost.durable:>12.2f}"
            f"{1e3 * cost.difference:>12.2f}{1e3 * cost.bare:>12.2f}"
            f"{cost.difference / cost.bare:>7.2f}{cost.syncs:>18.2f}"
        )
    print(json.dumps({"name": "durability", **ratios}))


class Cost(NamedTuple):
    """Seconds: medians of commits, of the difference of their pairs, and of that of bare files."""

    without: float
    durable: float
    difference: float
    bare: float
    syncs: float


def _measured(place: str, writers: int, rounds: int) -> Cost:
    plain = og.init(f"{place}/os", schema=SCHEMA, durability="os")
    durable = og.init(f"{place}/commit", schema=SCHEMA, durability="commit")
    root = Root(scheme=Scheme.LOCAL, uri=place, durability=Durability.COMMIT)
    _files_of_a_commit(plain, Path(place, "os"))  # so that both graphs have the same history
    files = _Files(f"{place}/bare", _files_of_a_commit(durable, Path(place, "commit")))
    took: dict[str, list[float]] = {"os": [], "commit": [], "unsynced": [], "synced": []}
    syncs = 0

    def commit(graph: Graph, number: int) -> Callable[[int], None]:
        return lambda writer: _commit(graph, f"{writer}-{number}")

    for number in range(rounds):
        # What is first gets another turn each time.
        parts: list[tuple[str, Callable[[int], None]]] = [
            ("os", commit(plain, number)),
            ("commit", commit(durable, number)),
            ("unsynced", files.writing(number, is_synced=False)),
            ("synced", files.writing(number, is_synced=True)),
        ]
        for name, act in parts[number % 4 :] + parts[: number % 4]:
            durability.sync(root)
            before = durability.syncs_made()
            took[name].append(_round(writers, act))
            syncs += durability.syncs_made() - before if name == "commit" else 0
    return Cost(
        without=statistics.median(took["os"]),
        durable=statistics.median(took["commit"]),
        difference=_difference(took["commit"], took["os"]),
        bare=_difference(took["synced"], took["unsynced"]),
        syncs=syncs / (writers * rounds),
    )


def _difference(longer: list[float], shorter: list[float]) -> float:
    return statistics.median(a - b for a, b in zip(longer, shorter, strict=True))


def _commit(graph: Graph, key: str) -> None:
    graph.write({"P": [{"k": key, "n": 1}]})


def _files_of_a_commit(graph: Graph, root: Path) -> dict[Path, int]:
    """The sizes of the files that one commit adds, by their paths below the root."""
    for number in range(COMMITS_BEFORE):
        _commit(graph, f"before-{number}")
    known = set(root.rglob("*"))
    _commit(graph, "listed")
    return {
        path.relative_to(root): path.stat().st_size
        for path in set(root.rglob("*")) - known
        if path.is_file()
    } | {Path("__recovery", "sidecar"): SIDECAR_BYTES}


class _Files:
    """Files like those of a commit: those before its swap of the manifest, and of the swap."""

    def __init__(self, place: str, sizes: dict[Path, int]) -> None:
        self._root = Root(scheme=Scheme.LOCAL, uri=place, durability=Durability.COMMIT)
        files = [(Path(place, path), b"x" * size) for path, size in sizes.items()]
        swap = Path(place, names.MANIFEST)
        self._parts = (
            [(path, content) for path, content in files if not path.is_relative_to(swap)],
            [(path, content) for path, content in files if path.is_relative_to(swap)],
        )
        for path, _ in files:
            path.parent.mkdir(parents=True, exist_ok=True)

    def writing(self, number: int, *, is_synced: bool) -> Callable[[int], None]:
        def write(writer: int) -> None:
            for files in self._parts:
                for path, content in files:
                    path.with_name(f"{is_synced}-{writer}-{number}-{path.name}").write_bytes(
                        content
                    )
                if is_synced:
                    durability.sync(self._root)

        return write


def _round(writers: int, act: Callable[[int], None]) -> float:
    """The mean seconds that one act of each writer takes, all at the same time."""
    took: list[float] = []

    def run(writer: int) -> None:
        started = time.perf_counter()
        act(writer)
        took.append(time.perf_counter() - started)

    if writers == 1:
        run(0)
        return took[0]
    threads = [threading.Thread(target=run, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statistics.mean(took)


if __name__ == "__main__":
    main(sys.argv[1:])
