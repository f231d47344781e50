"""A process with a Spark session of its own whose jobs are watched and interrupted.

It prints one JSON object. The session is classic with a UI, or that of a Connect server whose
address is given.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from omnigraph_lake.runner.protocol import Hop, Sent, Stage, Task, require_answers
from omnigraph_lake.runner.session import SparkTarget, spark_for_a_while
from omnigraph_lake.runner.spark import SparkRunner
from omnigraph_lake.storage.objects.location import parse_root
from tests.spark.class_archive import java_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

PIECES = 6
PARTITIONS = 2
PIECE_SECONDS = 0.8
CLASSIC = SparkTarget(
    master="local[2]",
    settings={
        "spark.driver.extraJavaOptions": java_options(),
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
    },
)


class Recorder:
    """An observer that remembers everything."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []
        self.advanced: list[list[int]] = []
        self.addresses: list[str] = []

    def begin(self, stage: Stage, *, pieces: int) -> None:
        self.begun.append((str(stage), pieces))
        self.advanced.append([])

    def advance(self, *, pieces: int = 0, rows: int = 0, size: int = 0) -> None:
        assert rows == size == 0
        if pieces:
            self.advanced[-1].append(pieces)

    def watch_at(self, address: str) -> None:
        self.addresses.append(address)


def _slow(piece: int, task: Task) -> int:
    time.sleep(PIECE_SECONDS)
    return piece + task.number


def _send(piece: int, _: Task) -> Iterator[Sent]:
    time.sleep(PIECE_SECONDS)
    yield piece % PARTITIONS, b"."


def _count(messages: Iterator[bytes], task: Task) -> Iterator[Sent]:
    yield task.number, str(len(list(messages))).encode()


def watch(spark: SparkSession) -> dict[str, Any]:
    recorder = Recorder()
    runner = SparkRunner(spark, parse_root(tempfile.gettempdir()), recorder)
    stage = Stage(verb="load", type="Knows", name="check keys, twice")
    answers = require_answers(runner.map(stage, range(PIECES), _slow, int))
    hop = Hop(partitions=PARTITIONS, receive=_count)
    sent = runner.exchange(Stage(verb="load", name="exchange"), range(PIECES), _send, hop)
    return {
        "answers": answers,
        "sent": sorted((number, content.decode()) for number, content in sent),
        "begun": recorder.begun,
        "advanced": recorder.advanced,
        "addresses": recorder.addresses,
        "interrupt": interrupt(spark),
    }


def interrupt(spark: SparkSession) -> dict[str, Any]:
    """Interrupt one of two jobs, in the main thread."""
    runner = SparkRunner(spark, parse_root(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp())
    other: list[object] = []

    def wait_for(name: str, task: Task) -> str:
        Path(folder, f"{name}-started").touch()
        while not Path(folder, f"{name}-ends").exists():
            time.sleep(0.05)
        return f"{name} {task.number}"

    def run(name: str) -> list[object]:
        return list(runner.map(Stage(verb="test", name=name), [name], wait_for, str))

    def interrupt_once_both_run() -> None:
        while not all(Path(folder, f"{name}-started").exists() for name in ("mine", "other")):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    running = threading.Thread(target=lambda: other.extend(run("other")))
    running.start()
    threading.Thread(target=interrupt_once_both_run, daemon=True).start()
    outcome = "not interrupted"
    try:
        run("mine")
    except KeyboardInterrupt:
        outcome = "interrupted"
    was_running = running.is_alive()
    Path(folder, "other-ends").touch()
    running.join()
    return {
        "outcome": outcome,
        "other was running": was_running,
        "other": other,
        "handler is restored": signal.getsignal(signal.SIGINT) is handler,
        "afterwards": list(runner.map(Stage(verb="test", name="next"), [1, 2], _slow, int)),
    }


def jobs_of_ui(spark: SparkSession, address: str) -> list[dict[str, Any]]:
    """What the UI knows of the jobs, the oldest first."""
    url = f"{address}/api/v1/applications/{spark.sparkContext.applicationId}/jobs"
    with urlopen(url) as response:  # noqa: S310 - an address of this process
        jobs: list[dict[str, Any]] = json.load(response)
    return sorted(jobs, key=lambda job: int(job["jobId"]))


def main(remote: str | None = None) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job may ignore it
    target = CLASSIC if remote is None else SparkTarget(remote=remote)
    with spark_for_a_while(target=target) as spark:
        if remote is None:
            spark.sparkContext.setJobDescription("of the caller")
        report = watch(spark)
        if remote is None:
            context = spark.sparkContext
            report["description of the caller"] = context.getLocalProperty("spark.job.description")
            report["jobs"] = [
                {name: job.get(name) for name in ("description", "status", "jobTags")}
                for job in jobs_of_ui(spark, *report["addresses"])
            ]
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
