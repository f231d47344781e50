"""What durable commits cost, beside the bare syncs that they need: `just bench durability`.

One row per commit, by one writer and by eight threads of a process. The bare form writes as many
files into as many folders as a commit does, and makes the same calls of sync; the threads share
them as commits do.
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
from typing import Final

import omnigraph
from omnigraph.storage import durability
from omnigraph.storage.location import Durability, Root, Scheme

SCHEMA: Final = "node P { k: String @key  n: I64 }"
FOLDERS_BEFORE: Final = ("recovery", "data", "transactions", "versions")
"""A commit writes these before its swap: sidecar, rows, transaction, version."""
FOLDERS_OF_SWAP: Final = ("manifest-data", "manifest-transactions", "manifest-versions")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=150, help="by each writer")
    parser.add_argument("--folder", default=None, help="on the disk to measure")
    given = parser.parse_args(arguments)
    ratios: dict[str, float] = {}
    print("writers  os p50  commit p50  difference  bare syncs  ratio  syncs per commit")
    for writers in (1, 8):
        with tempfile.TemporaryDirectory(dir=given.folder, prefix="omnigraph-bench-") as place:
            commits = given.commits if writers == 1 else max(10, given.commits // writers)
            without = _commits(f"{place}/os", "os", writers, commits)
            before = durability.syncs_made()
            durable = _commits(f"{place}/commit", "commit", writers, commits)
            syncs = (durability.syncs_made() - before) / (writers * commits)
            bare = _bare(place, writers, commits)
        difference = durable - without
        ratios[f"ratio_{writers}"] = difference / bare
        print(
            f"{writers:>7}{1e3 * without:>8.2f}{1e3 * durable:>12.2f}{1e3 * difference:>12.2f}"
            f"{1e3 * bare:>12.2f}{difference / bare:>7.2f}{syncs:>18.2f}"
        )
    print(json.dumps({"name": "durability", **ratios}))


def _commits(root: str, promise: str, writers: int, commits: int) -> float:
    """The median seconds of a commit."""
    graph = omnigraph.init(root, schema=SCHEMA, durability=promise)

    def commit(writer: int, number: int) -> None:
        graph.write({"P": [{"k": f"{writer}-{number}", "n": number}]})

    return _median(writers, commits, commit)


def _bare(place: str, writers: int, commits: int) -> float:
    """The median seconds that the two syncs of a commit take, beside as many small files."""
    root = Root(scheme=Scheme.LOCAL, uri=f"{place}/bare", durability=Durability.COMMIT)
    folders = [Path(root.uri, name) for name in (*FOLDERS_BEFORE, *FOLDERS_OF_SWAP)]
    for folder in folders:
        folder.mkdir(parents=True)
    before, swap = folders[: len(FOLDERS_BEFORE)], folders[len(FOLDERS_BEFORE) :]

    def write(writer: int, number: int, *, is_synced: bool) -> None:
        for part in (before, swap):
            for folder in part:
                (folder / f"{is_synced}-{writer}-{number}").write_bytes(b"x" * 1000)
            if is_synced:
                durability.sync(root)

    def synced(writer: int, number: int) -> None:
        write(writer, number, is_synced=True)

    def unsynced(writer: int, number: int) -> None:
        write(writer, number, is_synced=False)

    without = _median(writers, commits, unsynced)
    return _median(writers, commits, synced) - without


def _median(writers: int, commits: int, act: Callable[[int, int], None]) -> float:
    taken: list[float] = []

    def run(writer: int) -> None:
        for number in range(commits):
            started = time.perf_counter()
            act(writer, number)
            taken.append(time.perf_counter() - started)

    threads = [threading.Thread(target=run, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statistics.median(taken)


if __name__ == "__main__":
    main(sys.argv[1:])
