"""What maintenance costs, beside bare Lance, on a cluster, and in memory: `just bench optimize`.

Three measurements. A graph of many tables with many small fragments and indexes that lack them:
`graph.maintenance.optimize()` beside Lance's own compaction and index update over copies of the
same tables,
with the same number of threads. A wide table on a standalone cluster of one and of two executors,
each bound to a core of its own. And the peak memory of the executors' Python workers meanwhile,
beside a limit that is a fifth of the table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

import lance
import numpy as np
import psutil
import pyarrow as pa
from lance.fragment import write_fragments

import omnigraph_lake as og
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.commit.phases import Author, Prepared, Verb, WriteRequest
from omnigraph_lake.commit.protocol import commit_write
from omnigraph_lake.commit.sidecar import WriterKind
from omnigraph_lake.graph import Graph
from omnigraph_lake.maintenance.workers import maintenance_concurrency
from omnigraph_lake.storage.lance.tables import open_pinned, table_health
from omnigraph_lake.storage.manifest.state import ManifestState
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.store import StoredObjects
from omnigraph_lake.storage.snapshot import TableEntry
from omnigraph_lake.storage.staging.bulk import StagedFragment, gather_append
from tests.cluster.servers import executors, standalone_cluster

Rows = Callable[[str, int, int], pa.Table]

FIRST_FRAGMENTS: Final = 20
"""What a table holds when its indexes are built."""
VECTOR: Final = 1024
WIDE_SCHEMA: Final = f"node Picture {{ name: String @key  at: Vector({VECTOR}) }}"
WIDE_ROW_BYTES: Final = 4 * VECTOR
WIDE_FRAGMENTS: Final = 64
WIDE_PIECES: Final = 16
DRIVER: Final = """
import json, sys, time, omnigraph_lake as og
from omnigraph_lake.runner.session import SparkTarget, spark_for_a_while
small, root, rows, master, settings = sys.argv[1:]
with spark_for_a_while(target=SparkTarget(master=master, settings=json.loads(settings))) as spark:
    # executors warm up
    og.open(small).maintenance.optimize(target_rows_per_fragment=10, spark=spark)
    print("warm", flush=True)
    began = time.perf_counter()
    og.open(root).maintenance.optimize(target_rows_per_fragment=int(rows), spark=spark)
    print(time.perf_counter() - began, flush=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distributed:
    """One run on a cluster: seconds, and the most memory that one Python worker had."""

    executors: int
    seconds: float
    worker_rss: int


def main() -> None:
    options = _options()
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-", dir=options.scratch) as folder:
        home = Path(folder)
        beside = race_lance(home, options)
        runs = [] if options.no_cluster else distribute(home, options)
    ratio = beside["omnigraph"] / beside["lance"]
    print(f"\n{'':34}{'median s':>9}{'ours / it':>11}")
    for name, seconds in beside.items():
        print(f"{name:34}{seconds:9.2f}{beside['omnigraph'] / seconds:11.2f}")
    for run in runs:
        print(f"{f'{run.executors} executors':34}{run.seconds:9.2f}{run.worker_rss:8,} MB a worker")
    print(
        json.dumps(
            {
                "name": "optimize",
                "ratio": round(ratio, 3),
                "seconds": {name: round(each, 2) for name, each in beside.items()},
                "tables": options.tables,
                "fragments": options.fragments,
                "speedup": round(runs[0].seconds / runs[1].seconds, 2) if runs else None,
                "distributed": [asdict(run) for run in runs],
                "wide_mb": options.wide_mb,
                "limit_mb": options.wide_mb // 5,
                "load": round(os.getloadavg()[0], 1),
                "versions": {name: version(name) for name in ("pyspark", "pylance")},
            }
        )
    )


def race_lance(home: Path, options: argparse.Namespace) -> dict[str, float]:
    """Both over fresh copies of one graph, in turns; median seconds."""
    origin = home / "graph"
    build_many(origin, options)
    jobs = {"omnigraph": optimize_graph, "lance": optimize_barely}
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(options.rounds + 1):
        for name, job in jobs.items():
            copy = home / "copy"
            shutil.copytree(origin, copy)
            began = time.perf_counter()
            job(copy)
            if turn:
                seconds[name].append(time.perf_counter() - began)
            require_done(copy, at_pin=name == "omnigraph")
            shutil.rmtree(copy)
    return {name: statistics.median(each) for name, each in seconds.items()}


def optimize_graph(root: Path) -> None:
    og.open(str(root)).maintenance.optimize()


def optimize_barely(root: Path) -> None:
    """The same files and indexes, without any protocol."""

    def table(entry: TableEntry) -> None:
        dataset = lance.dataset(str(root / entry.location))
        dataset.optimize.compact_files()
        dataset.optimize.optimize_indices()

    entries = og.open(str(root), read_only=True).snapshot().tables.values()
    with ThreadPoolExecutor(maintenance_concurrency()) as pool:
        list(pool.map(table, entries))


def require_done(root: Path, *, at_pin: bool) -> None:
    """Two fragments each, of rows that were indexed and rows that were not; no row left behind."""
    graph = og.open(str(root), read_only=True)
    for entry in graph.snapshot().tables.values():
        if at_pin:
            health = table_health(parse_root(graph.root), entry)
            assert health.fragments <= 2, (entry.table_key, health)
            assert all(not index.unindexed_rows for index in health.indexes), health
        else:
            dataset = lance.dataset(str(root / entry.location))
            assert len(dataset.get_fragments()) <= 2, entry.table_key
            assert dataset.count_rows() == entry.row_count


def build_many(root: Path, options: argparse.Namespace) -> None:
    """Half node types, half edge types; indexes over the first rows, then many small appends."""
    half = options.tables // 2
    nodes = (
        f"node N{n} {{ name: String @key  age: I32 @index  city: String }}" for n in range(half)
    )
    edges = (f"edge E{n}: N{n} -> N{(n + 1) % half} {{ weight: F64 }}" for n in range(half))
    graph = og.init(str(root), schema="\n".join([*nodes, *edges]))
    append(graph, small_rows, fragments=FIRST_FRAGMENTS, rows=options.rows)
    graph.maintenance.optimize()
    append(graph, small_rows, fragments=options.fragments, rows=options.rows)


def small_rows(table_key: str, first: int, count: int) -> pa.Table:
    names = pa.array([f"{number * 2654435761 % 2**32:08x}-{first}" for number in range(count)])
    if table_key.startswith("node:"):
        ages = pa.array(np.arange(count) % 100, pa.int32())
        cities = pa.array(np.array(["Berlin", "Paris", "Rome", "Oslo"])[np.arange(count) % 4])
        return pa.table({"id": names, "name": names, "age": ages, "city": cities})
    return pa.table({"id": names, "src": names, "dst": names, "weight": np.arange(count) / 7})


def wide_rows(_: str, first: int, count: int) -> pa.Table:
    names = pa.array([f"p-{first + number:012}" for number in range(count)])
    chance = np.random.default_rng(first)
    values = pa.array(chance.random(count * VECTOR, dtype=np.float32))
    at = pa.FixedSizeListArray.from_arrays(values, VECTOR)
    return pa.table({"id": names, "name": names, "at": at})


def append(graph: Graph, make: Rows, *, fragments: int, rows: int) -> None:
    """So many fragments to every table, as one commit; rows are not checked."""
    objects = StoredObjects(parse_root(graph.root))

    def staged(entry: TableEntry) -> list[StagedFragment]:
        base = open_pinned(objects.root, entry)
        empty = base.schema
        found: list[StagedFragment] = []
        for number in range(fragments):
            content = make(entry.table_key, entry.row_count + number * rows, rows)
            written = write_fragments(content.select(empty.names).cast(empty), base, mode="append")
            found += [
                StagedFragment(description=json.dumps(each.to_json()), rows=each.physical_rows)
                for each in written
            ]
        return found

    def prepare(state: ManifestState) -> Prepared:
        entries = tuple(state.snapshot().tables.values())
        with ThreadPoolExecutor(4) as pool:
            changes = [
                gather_append(objects, entry, each)
                for entry, each in zip(entries, pool.map(staged, entries), strict=True)
            ]
        return Prepared(changes=tuple(changes), read_set=frozenset())

    author = Author(operation_id=SYSTEM_CLOCK.new_id(), actor="benchmark", branch=None)
    commit_write(
        WriteRequest.of(objects, SYSTEM_CLOCK, WriterKind.LOAD, author, schema_hash=None),
        Verb(prepare=prepare),
    )


def distribute(home: Path, options: argparse.Namespace) -> list[Distributed]:
    """The same wide table on one and on two executors."""
    rows = options.wide_mb * (1 << 20) // WIDE_ROW_BYTES // WIDE_FRAGMENTS
    build_wide(home / "wide", fragments=WIDE_FRAGMENTS, rows=rows)
    build_wide(home / "small", fragments=8, rows=5)
    return [measure(home, count, WIDE_FRAGMENTS * rows // WIDE_PIECES) for count in (1, 2)]


def build_wide(root: Path, *, fragments: int, rows: int) -> None:
    graph = og.init(str(root), schema=WIDE_SCHEMA)
    append(graph, wide_rows, fragments=fragments, rows=rows)


def measure(home: Path, count: int, target_rows: int) -> Distributed:
    for name in ("wide", "small"):
        shutil.copytree(home / name, home / f"{name}-copy", copy_function=_link)
    settings = {"spark.executor.memory": "512m", "spark.executor.cores": "1"}
    settings["spark.cores.max"] = str(count)
    roots = [str(home / "small-copy"), str(home / "wide-copy")]
    logs = home / f"cluster-{count}"
    logs.mkdir()
    with standalone_cluster(logs, workers=count) as master:
        _bind_workers()
        command = [sys.executable, "-c", DRIVER, *roots, str(target_rows), master]
        with (
            subprocess.Popen(
                [*command, json.dumps(settings)], stdout=subprocess.PIPE, text=True
            ) as driver,
            _watched() as peaks,
        ):
            told, _ = driver.communicate()
    assert driver.returncode == 0, told
    for name in ("wide", "small"):
        graph = og.open(str(home / f"{name}-copy"), read_only=True)
        (entry,) = graph.snapshot().tables.values()
        health = table_health(parse_root(graph.root), entry)
        assert all(not index.unindexed_rows for index in health.indexes), health
        shutil.rmtree(home / f"{name}-copy")
    return Distributed(
        executors=count, seconds=float(told.split()[-1]), worker_rss=max(peaks.values())
    )


def _bind_workers() -> None:
    """Give each worker, and whatever it starts, a core of its own: Lance would use all it sees."""
    workers = [each for each in psutil.process_iter() if _runs(each, "deploy.worker.Worker")]
    for number, worker in enumerate(workers):
        for thread in worker.threads():
            os.sched_setaffinity(thread.id, {number % (os.cpu_count() or 1)})


@contextmanager
def _watched() -> Iterator[dict[int, int]]:
    """The peak memory of every Python worker of every executor in MB, by process id."""
    peaks: dict[int, int] = {0: 0}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            for executor in executors():
                with suppress(psutil.Error, OSError):
                    for child in executor.children(recursive=True):
                        status = Path(f"/proc/{child.pid}/status").read_text()
                        if "VmHWM:" in status:  # a process that is ending has no memory left
                            peaks[child.pid] = int(status.split("VmHWM:")[1].split()[0]) >> 10

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peaks
    finally:
        over.set()
        thread.join()


def _runs(process: psutil.Process, program: str) -> bool:
    with suppress(psutil.Error):
        return any(program in part for part in process.cmdline())
    return False


def _link(source: str, target: str) -> str:
    Path(target).hardlink_to(source)
    return target


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=40)
    parser.add_argument("--fragments", type=int, default=200, help="small appends to every table")
    parser.add_argument("--rows", type=int, default=1000, help="rows of a small append")
    parser.add_argument("--rounds", type=int, default=3, help="measured turns, after one")
    parser.add_argument("--wide-mb", type=int, default=5000, help="size of the wide table")
    parser.add_argument("--no-cluster", action="store_true", help="only beside bare Lance")
    parser.add_argument("--scratch", help="where to put the data")
    return parser.parse_args()


if __name__ == "__main__":
    main()
