"""What many writers get done beside one: `just bench writers`.

Processes append one row per commit, all to one table or each to a table of its own; threads of one
process do the same. Each prints commits per second, what that is beside one writer, the processor
seconds that a commit needs, and how long a commit takes. With `--latency-ms` the graph is in an S3
store on this machine behind a relay that makes every request take so long.

One writer is measured before and after the others of a row, so that a slow minute of the machine is
in both sides of a ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import lance

import omnigraph_lake as og
from benchmarks.s3_cost import running_server
from omnigraph_lake.graph import Graph
from tests.s3.relay import relay_before
from tests.s3.server import BUCKET

TABLES: Final = 8
SCHEMA: Final = "\n".join(
    f"node T{number} {{ name: String @key  value: I64? }}" for number in range(TABLES)
)
OPTIONS: Final = "OMNIGRAPH_BENCH_STORAGE"
"""The variable that tells a writer how to reach the store."""
WARM_UPS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one process of writers got done, and the processor time that it needed."""

    seconds: tuple[float, ...]
    """Of each commit."""
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What all writers of one round got done."""

    commits_per_second: float
    cpu_milliseconds: float
    p50_milliseconds: float
    p99_milliseconds: float
    slowest_writer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Writers at work at the same time."""

    processes: int = 1
    threads: int = 1
    own_tables: bool

    @property
    def name(self) -> str:
        what = "own tables" if self.own_tables else "one table"
        if self.threads > 1:
            return f"{what}, {self.threads} threads"
        return f"{what}, {self.processes} process{'es' if self.processes > 1 else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where graphs are made, and how a process reaches them."""

    uri: str
    storage_options: dict[str, str]

    def new_graph(self, name: str) -> str:
        uri = f"{self.uri}/{name}"
        og.init(uri, schema=SCHEMA, storage_options=self.storage_options or None)
        return uri

    def open(self, uri: str) -> Graph:
        return og.open(uri, storage_options=self.storage_options or None)


def main() -> None:
    arguments = _arguments()
    if arguments.work is not None:
        root, first, threads, own_tables, seconds = arguments.work
        work_as_told(
            root, int(first), int(threads), own_tables=own_tables == "own", seconds=float(seconds)
        )
        return
    ratios: dict[str, float] = {}
    with _place(arguments.latency_ms) as place:
        print(
            "writers                       commits/s  beside one   cpu ms   p50 ms   p99 ms  least"
        )
        for own_tables in (False, True):
            ratios |= _measured(place, arguments, own_tables=own_tables)
    print(
        json.dumps(
            {
                "name": "writers",
                "latency_ms": arguments.latency_ms,
                **ratios,
                "versions": {"pylance": lance.__version__, "python": sys.version.split()[0]},
            }
        )
    )


def _measured(place: Place, arguments: argparse.Namespace, *, own_tables: bool) -> dict[str, float]:
    """Rates of each crowd on new graphs, and ratios to one writer before and after them."""
    alone = Crowd(own_tables=own_tables)
    crowds = [
        alone,
        *(
            Crowd(processes=number, own_tables=own_tables)
            for number in arguments.writers
            if number > 1
        ),
        *(Crowd(threads=number, own_tables=own_tables) for number in arguments.threads),
        alone,
    ]
    rates = [
        _rate(place, f"{own_tables}-{turn}", crowd, arguments.seconds)
        for turn, crowd in enumerate(crowds)
    ]
    one = statistics.mean((rates[0].commits_per_second, rates[-1].commits_per_second))
    ratios: dict[str, float] = {}
    for crowd, rate in zip(crowds, rates, strict=True):
        ratio = rate.commits_per_second / one
        print(
            f"{crowd.name:29}{rate.commits_per_second:10.1f}{ratio:12.2f}"
            f"{rate.cpu_milliseconds:9.1f}{rate.p50_milliseconds:9.1f}"
            f"{rate.p99_milliseconds:9.1f}{rate.slowest_writer:7}",
            flush=True,
        )
        ratios[crowd.name] = round(ratio, 3)
        ratios[f"{crowd.name}, commits/s"] = round(rate.commits_per_second, 2)
    return ratios


def _rate(place: Place, name: str, crowd: Crowd, seconds: float) -> Rate:
    uri = place.new_graph(name)
    works = _run(place, uri, crowd, seconds)
    took = sorted(second for work in works for second in work.seconds)
    graph = place.open(uri)
    assert graph.maintenance.check().ok
    rows = sum(graph.snapshot().tables[f"node:T{number}"].row_count for number in range(TABLES))
    warm_ups = WARM_UPS * crowd.processes * crowd.threads
    assert rows == len(took) + warm_ups, f"{len(took)} commits were acknowledged, {rows} are there"
    return Rate(
        commits_per_second=len(took) / seconds,
        cpu_milliseconds=1e3 * sum(work.cpu_seconds for work in works) / max(1, len(took)),
        p50_milliseconds=1e3 * took[len(took) // 2],
        p99_milliseconds=1e3 * took[len(took) * 99 // 100],
        slowest_writer=min(len(work.seconds) for work in works),
    )


def _run(place: Place, uri: str, crowd: Crowd, seconds: float) -> list[Work]:
    """All processes of a crowd: they start together, when the last one is ready."""
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.writers", "--work", uri),
                *(str(number), str(crowd.threads), "own" if crowd.own_tables else "one"),
                str(seconds),
            ],
            env={**os.environ, OPTIONS: json.dumps(place.storage_options)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(crowd.processes)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    lines = [process.communicate()[0] for process in processes]
    works = [json.loads(line) for line in lines]
    return [Work(seconds=tuple(work["seconds"]), cpu_seconds=work["cpu_seconds"]) for work in works]


def work_as_told(root: str, first: int, threads: int, *, own_tables: bool, seconds: float) -> None:
    """One process of a crowd; its answer is one line of JSON."""
    options = json.loads(os.environ[OPTIONS])
    graph = og.open(root, storage_options=options or None)
    took: list[float] = []

    def write(writer: int, number: int) -> None:
        table = f"T{writer % TABLES}" if own_tables else "T0"
        graph.write({table: [{"name": f"{writer}-{number}", "value": number}]})

    def work(writer: int, stop: float) -> None:
        number = WARM_UPS
        while (started := time.perf_counter()) < stop:
            write(writer, number)
            took.append(time.perf_counter() - started)
            number += 1

    writers = range(first, first + threads)
    for writer in writers:
        for number in range(WARM_UPS):
            write(writer, number)
    print("ready", flush=True)
    sys.stdin.readline()
    before = resource.getrusage(resource.RUSAGE_SELF)
    stop = time.perf_counter() + seconds
    running = [threading.Thread(target=work, args=(writer, stop)) for writer in writers]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    print(json.dumps({"seconds": took, "cpu_seconds": cpu}))


@contextmanager
def _place(latency_ms: float) -> Iterator[Place]:
    """A folder of this disk, or a bucket behind a relay."""
    with ExitStack() as opened:
        if not latency_ms:
            folder = tempfile.TemporaryDirectory(prefix="omnigraph-bench-")
            yield Place(uri=opened.enter_context(folder), storage_options={})
            return
        server = opened.enter_context(running_server())
        relay = opened.enter_context(
            relay_before(server.endpoint, latency_seconds=latency_ms / 1e3)
        )
        yield Place(
            uri=f"s3://{BUCKET}/writers", storage_options=server.options(aws_endpoint=relay.url)
        )


def _numbers(text: str) -> Sequence[int]:
    return [int(part) for part in text.split(",") if part]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each crowd writes")
    parser.add_argument("--writers", type=_numbers, default=[2, 4, 8], help="processes")
    parser.add_argument("--threads", type=_numbers, default=[8], help="threads of one process")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="of each request to S3")
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
