"""What a load to S3 costs beside the same load to this disk: `just bench s3_load`.

The load of `just bench load`, with Spark and every check, in one session and in turns, once to warm
up. The files that are read are on this disk in both cases; the S3 server is a process on this
machine and keeps its objects on the same disk. Prints seconds, their ratio, and what the turns
took of the processor in the server and in the processes of the load.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

import psutil

import omnigraph_lake as og
from benchmarks.load import SCHEMA, write_input
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.runner.session import SparkTarget, spark_session
from tests.s3.server import BUCKET, S3Server, binary

GOAL: Final = 1.6
MB: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a load writes to, and where its files are then."""

    name: str
    root: str
    files: Path
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One load: its time, and the processor time of the server and of everybody else."""

    seconds: float
    of_server: float
    of_load: float
    stored: int


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-", dir=options.scratch) as folder:
        home = Path(folder)
        data = home / "data"
        truth = write_input(data, nodes=options.nodes, edges=options.edges)
        size = sum(path.stat().st_size for path in data.iterdir())
        print(f"input: {options.nodes:,} nodes, {options.edges:,} edges, {size / MB:.0f} MB")
        spark_session(target=SparkTarget(settings={"spark.driver.memory": "4g"}))
        with _server(home / "s3") as server:
            turns = race(places(home, server), data, truth, rounds=options.rounds)
    _print(turns, rows=options.nodes + options.edges)


def places(home: Path, server: S3Server) -> tuple[Place, ...]:
    local = home / "graph"
    return (
        Place(name="local disk", root=str(local), files=local, options={}),
        Place(
            name="S3",
            root=f"s3://{BUCKET}/graph",
            files=server.data / BUCKET / "graph",
            options=server.options(),
        ),
    )


def race(
    where: tuple[Place, ...], data: Path, truth: Counter[str], *, rounds: int
) -> dict[str, list[Turn]]:
    """Each place once to warm up, then in turns that begin with another one each time."""
    turns: dict[str, list[Turn]] = {place.name: [] for place in where}
    for number in range(rounds + 1):
        for place in where if number % 2 else reversed(where):
            turn = load(place, data, truth)
            if number:
                turns[place.name].append(turn)
            print(f"{'turn ' + str(number) if number else 'warm up':8} {_line(place.name, [turn])}")
    return turns


def load(place: Place, data: Path, truth: Counter[str]) -> Turn:
    """One load into a new graph, whose account must be the truth."""
    shutil.rmtree(place.files, ignore_errors=True)
    before, began = _processor_seconds(), time.perf_counter()
    graph = og.init(place.root, schema=SCHEMA, storage_options=place.options)
    report = graph.load(str(data), on_error="quarantine", options=LoadOptions(engine="spark"))
    seconds, after = time.perf_counter() - began, _processor_seconds()
    assert dict(report.quarantined) == dict(truth), (report.quarantined, truth)
    assert report.read == sum(report.written.values()) + truth.total(), report
    stored = sum(path.stat().st_size for path in place.files.rglob("*") if path.is_file())
    return Turn(
        seconds=seconds,
        of_server=after[0] - before[0],
        of_load=after[1] - before[1],
        stored=stored,
    )


def _processor_seconds() -> tuple[float, float]:
    """What the server and the processes of the load took so far, those that ended included."""
    server = load = 0.0
    this = psutil.Process()
    for process in (this, *this.children(recursive=True)):
        with suppress(psutil.Error):
            used = process.cpu_times()
            seconds = used.user + used.system
            if process.name() == binary().name:
                server += seconds
            else:
                load += seconds + used.children_user + used.children_system
    return server, load


@contextmanager
def _server(home: Path) -> Iterator[S3Server]:
    server = S3Server(home)
    server.start()
    try:
        server.prepare()
        yield server
    finally:
        server.stop()


def _line(name: str, turns: list[Turn]) -> str:
    seconds, of_server, of_load, stored = (
        statistics.median(getattr(turn, fact) for turn in turns)
        for fact in ("seconds", "of_server", "of_load", "stored")
    )
    return f"{name:12}{seconds:9.2f}{of_load:14.1f}{of_server:14.1f}{stored / MB:11.0f}"


def _print(turns: Mapping[str, list[Turn]], *, rows: int) -> None:
    print(f"\n{'median':9}{'':12}{'seconds':>9}{'cpu s, load':>14}{'cpu s, server':>14}{'MB':>11}")
    for name, each in turns.items():
        print(f"{'':9}{_line(name, each)}")
    local, remote = (statistics.median(turn.seconds for turn in each) for each in turns.values())
    ratio = remote / local
    verdict = "reached" if ratio <= GOAL else "missed"
    print(f"\nS3 / local disk: {ratio:.2f}, goal {GOAL}: {verdict}")
    print(
        json.dumps(
            {
                "name": "s3_load",
                "ratio": round(ratio, 3),
                "rows": rows,
                "seconds_local": [round(turn.seconds, 2) for turn in turns["local disk"]],
                "seconds_s3": [round(turn.seconds, 2) for turn in turns["S3"]],
                "versions": {name: version(name) for name in ("pyspark", "pylance", "obstore")},
            }
        )
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=2, help="measured turns after the first")
    parser.add_argument("--scratch", help="where to put the data")
    return parser.parse_args()


if __name__ == "__main__":
    main()
