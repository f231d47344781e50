"""Streams whose drivers, executors and Python processes are killed: every batch once, in order.

A supervisor starts the driver again when it was killed; input arrives all the while. The nightly
sets OMNIGRAPH_EXAMPLES to the number of kills.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from tests.gate.cpu import descendants
from tests.gate.seeds import case_seeds, examples
from tests.spark.class_archive import java_options

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(7200)]

SCHEMA = """
node Person { name: String @key  age: I64? }
edge Knows: Person -> Person { n: I64? }
"""
PATIENCE_SECONDS = 900
"""Only a driver that hangs takes so long, however busy the machine is."""
ROWS = 3
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": java_options(),
}
MASTERS = {"threads": "local[2,4]", "executors": "local-cluster[2,1,1024]"}


class Supervisor:
    """Keeps a driver running, and kills parts of it."""

    def __init__(self, scenario: str, folder: Path, master: str) -> None:
        self._arguments = (scenario, str(folder), master, json.dumps(SETTINGS))
        self.folder = folder
        self._log = (folder / "log").open("wb")
        self.kills = 0
        self._driver = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        (self.folder / "ready").unlink(missing_ok=True)
        command = (sys.executable, "-m", "tests.cluster.stream_driver", *self._arguments)
        return subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def kill_something(self, chance: random.Random) -> None:
        """Kill the driver with all it started, or one process of it, at some time of a query."""
        wait_until((self.folder / "ready").exists)
        time.sleep(chance.uniform(0, 8))
        processes = descendants(self._driver.pid)
        workers = [pid for pid in processes if _is_one_of(pid, b"pyspark.daemon")]
        executors = [pid for pid in processes if _is_one_of(pid, b"CoarseGrainedExecutorBackend")]
        victims = [*workers, *executors]
        if not victims or chance.random() < 0.25:
            for pid in (self._driver.pid, *processes):
                _kill(pid)
            self._driver.wait()
            self._driver = self._start()
        else:
            _kill(chance.choice(victims))
        self.kills += 1

    def finish(self) -> None:
        """Let the driver write what is left, undisturbed."""
        (self.folder / "stop").touch()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._driver.wait(max(1.0, deadline - time.monotonic())) != 0:
            self._driver = self._start()

    def close(self) -> None:
        for pid in (self._driver.pid, *descendants(self._driver.pid)):
            _kill(pid)
        self._driver.wait()
        self._log.close()


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _is_one_of(pid: int, word: bytes) -> bool:
    try:
        return word in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@contextmanager
def supervised(scenario: str, folder: Path, master: str) -> Iterator[Supervisor]:
    supervisor = Supervisor(scenario, folder, master)
    try:
        yield supervisor
    finally:
        supervisor.close()


def put_file(folder: Path, number: int, scenario: str) -> None:
    """The input of one batch; Spark takes files in the order of their times."""
    if scenario == "append":
        rows = [{"src": "p0", "dst": "p1", "n": number} for _ in range(ROWS)]
    else:
        rows = [{"name": "last", "age": number}, {"name": f"n{number}", "age": number}]
    hidden, visible = folder / f".{number}", folder / f"{number}.json"
    hidden.write_text("\n".join(map(json.dumps, rows)))
    os.utime(hidden, (1_700_000_000 + number,) * 2)
    hidden.rename(visible)


def changes_in_order(graph: Graph) -> Iterator[tuple[str, str, int]]:
    """What every commit wrote: the op, the id and the number of each row, in order."""
    for commit in graph.changes(start="beginning"):
        for table in commit.tables:
            column = "n" if table.table_key == "edge:Knows" else "age"
            for row in table.reader().read_all().to_pylist():
                yield row["op"], row["id"], row["after"][column]


def kill_while_input_arrives(
    supervisor: Supervisor, arrive: Callable[[int], None], *, seed: str
) -> int:
    """Let input arrive and kill something, again and again; returns how much there was."""
    chance = random.Random(seed)
    kills, number = examples(2), 0
    while supervisor.kills < kills:
        for _ in range(2):
            arrive(number)
            number += 1
        supervisor.kill_something(chance)
    supervisor.finish()
    return number


NIGHTLY = pytest.mark.nightly(
    "starts a JVM for every driver that it kills; in the gate, tests/spark/test_sink.py lets "
    "commits of batches die at the steps of the protocol"
)
(SEED,) = case_seeds("stream-kills", 1)


@NIGHTLY
@pytest.mark.parametrize("kind", MASTERS)
@pytest.mark.parametrize("scenario", ["append", "merge", "foreach_batch"])
def test_every_batch_is_written_once_and_in_order(tmp_path: Path, scenario: str, kind: str) -> None:
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    graph.write({"Person": [{"name": "p0"}, {"name": "p1"}]})
    before = len(list(changes_in_order(graph)))
    (tmp_path / "input").mkdir()

    def arrive(number: int) -> None:
        put_file(tmp_path / "input", number, scenario)

    with supervised(scenario, tmp_path, MASTERS[kind]) as supervisor:
        count = kill_while_input_arrives(supervisor, arrive, seed=f"{SEED} {scenario} {kind}")

    graph = og.open(graph.root)
    written = list(changes_in_order(graph))[before:]
    if scenario == "append":
        assert [n for _, _, n in written] == [n for n in range(count) for _ in range(ROWS)]
    else:
        assert [n for _, name, n in written if name == "last"] == list(range(count))
        inserts = [name for op, name, _ in written if op == "insert" and name != "last"]
        assert inserts == [f"n{n}" for n in range(count)]
    assert graph.maintenance.check().ok


@NIGHTLY
@pytest.mark.parametrize("kind", MASTERS)
def test_a_graph_that_is_copied_by_its_feed_ends_equal(tmp_path: Path, kind: str) -> None:
    copy = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    origin = og.init(str(tmp_path / "origin"), schema=SCHEMA)
    origin.write({"Person": [{"name": "p0"}, {"name": "last"}]})

    def arrive(number: int) -> None:
        changed: list[dict[str, object]] = [
            {"name": "last", "age": number},
            {"name": f"n{number}"},
        ]
        origin.write({"Person": changed}, mode="merge")
        origin.write({"Knows": [{"src": "p0", "dst": f"n{number}", "n": number}]})

    with supervised("copy", tmp_path, MASTERS[kind]) as supervisor:
        count = kill_while_input_arrives(supervisor, arrive, seed=f"{SEED} copy {kind}")

    copy = og.open(copy.root)
    for type_name in ("Person", "Knows"):
        rows = origin.scan(type_name).read_all().sort_by("id")
        assert copy.scan(type_name).read_all().sort_by("id").equals(rows)
    assert len(copy.commits()) == len(origin.commits()) == 2 + 2 * count
    assert copy.maintenance.check().ok
