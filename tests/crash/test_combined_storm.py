"""Writers that publish each other are killed and paused at random; the books must agree."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from omnigraph_lake.graph import Graph, GraphView
from tests.commit.small_graphs import account, small_graph
from tests.crash.processes import HOME

pytestmark = [
    pytest.mark.crash,
    pytest.mark.nightly("kills of chance; the gate kills a leader at every point of its own"),
]

WRITERS: Final = 6
SECONDS: Final = 40.0
DEADLY_POINTS: Final = (
    *("mutation.post_stage", "mutation.post_direct_commit", "mutation.post_heal"),
    *("combine.post_collect", "combine.post_commit", "combine.post_commit"),
    *("combine.post_report", "combine.post_collect"),
    *("publish.pre_manifest", "publish.post_manifest", "mutation.post_sidecar_delete"),
)


@pytest.mark.timeout(300)
def test_a_storm_over_writers_of_one_table_loses_and_invents_nothing(
    graph_root: str, tmp_path: Path
) -> None:
    graph = small_graph(graph_root)

    with running_writers(graph, tmp_path) as writers:
        strike_until(time.monotonic() + SECONDS, writers)

    graph.maintenance.recover(force=True)
    graph.write({"Account": [account("last", 1)]}, actor="last")
    claims = read_claims(tmp_path)
    rows = set(rows_of(graph))
    assert {row for row, _ in claims["acknowledged"]} <= rows
    assert rows - {"last"} <= {row for row, _ in claims["begun"]}
    assert graph.maintenance.check().ok
    assert_every_commit_adds_a_row_of_its_author(graph, claims)


class Writers:
    """The processes, each replaced when it dies."""

    def __init__(self, graph: Graph, logs: Path) -> None:
        self._graph = graph
        self._logs = logs
        self._started = 0
        self.chance = random.Random(4711)
        self.running = [self.start() for _ in range(WRITERS)]

    def start(self) -> subprocess.Popen[bytes]:
        self._started += 1
        points = ""
        if self.chance.random() < 0.7:
            points = f"{self.chance.choice(DEADLY_POINTS)}=kill@{self.chance.randint(1, 8)}"
        name = f"w{self._started}"
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.crash.combined_victim", "storm"),
                *(self._graph.root, name, str(self._logs / f"{name}.log")),
            ],
            cwd=HOME,
            env={**os.environ, "OMNIGRAPH_FAILPOINTS": points},
        )

    def replace_the_dead(self) -> None:
        for place, process in enumerate(self.running):
            code = process.poll()
            if code is not None:
                assert code == -signal.SIGKILL, f"a writer ended with {code}"
                self.running[place] = self.start()


@contextmanager
def running_writers(graph: Graph, logs: Path) -> Iterator[Writers]:
    writers = Writers(graph, logs)
    try:
        yield writers
    finally:
        for process in writers.running:
            process.kill()
            process.wait()


def strike_until(end: float, writers: Writers) -> None:
    sleeping: dict[int, float] = {}
    while time.monotonic() < end:
        time.sleep(0.1)
        process = writers.chance.choice(writers.running)
        if writers.chance.random() < 0.15 and process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            sleeping[process.pid] = time.monotonic() + writers.chance.uniform(0.05, 3.0)
        for waking in writers.running:
            if time.monotonic() > sleeping.get(waking.pid, math.inf):
                del sleeping[waking.pid]
                waking.send_signal(signal.SIGCONT)
        writers.replace_the_dead()


def read_claims(logs: Path) -> dict[str, list[tuple[str, str]]]:
    """The rows and operations that writers began, and what they were told, by what it was."""
    claims: dict[str, list[tuple[str, str]]] = {
        word: [] for word in ("begun", "acknowledged", "failed", "unknown")
    }
    for log in logs.glob("*.log"):
        for line in log.read_text().splitlines():
            word, operation_id, row = line.split()
            claims[word].append((row, operation_id))
    return claims


def assert_every_commit_adds_a_row_of_its_author(
    graph: Graph, claims: dict[str, list[tuple[str, str]]]
) -> None:
    row_of = {operation_id: row for row, operation_id in claims["begun"]}
    failed = {operation_id for _, operation_id in claims["failed"]}
    commits = [commit for commit in graph.commits() if commit.actor != "last"]
    together = Counter(commit.manifest_version for commit in commits)
    assert max(together.values()) > 1, "no swap published several commits"
    published = {commit.operation_id for commit in commits if commit.operation_id in row_of}
    assert not published & failed, "published, though its writer was told otherwise"
    assert {operation_id for _, operation_id in claims["acknowledged"]} <= published
    assert Counter(row_of[operation_id] for operation_id in published).most_common(1)[0][1] == 1
    for commit, parent in pairwise(commits):
        assert commit.parent_id == parent.commit_id
    for commit, parent in list(pairwise(commits))[::7]:
        added = _rows_at(graph, commit.commit_id) - _rows_at(graph, parent.commit_id)
        assert added == ({row_of[commit.operation_id]} if commit.operation_id in row_of else set())


def rows_of(graph: Graph | GraphView) -> Counter[str]:
    """The rows of both tables; each is there once."""
    rows: Counter[str] = Counter()
    for kind, column in (("Account", "id"), ("Note", "text")):
        rows.update(graph.scan(kind, columns=[column]).read_all().column(column).to_pylist())
    assert max(rows.values()) == 1
    return rows


def _rows_at(graph: Graph, commit_id: str) -> frozenset[str]:
    return frozenset(rows_of(graph.at(commit_id)))
