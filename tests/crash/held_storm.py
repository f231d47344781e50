"""A storm of readers: views are held and feeds are followed while others write and clean up.

    python -m tests.crash.held_storm --seconds 300 --seed 1

4 writers, an optimizer and a cleaner that keeps one version, 4 readers that hold views for random
times and 2 feeds, each a process; some readers and feeds are killed. Nothing that is held may be
torn or vanish, and what is gone is told as such. When all holds have ended the storage is as small
as if nobody had read.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import omnigraph_lake as og
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.graph import Graph
from omnigraph_lake.maintenance.cleanup import CleanupPolicy, cleanup_graph
from omnigraph_lake.storage.manifest.retention import line_of, versions_of
from tests.crash.held_storm_roles import ROLES, new_graph, numbers
from tests.crash.processes import Victim, start
from tests.stores import root_at

CREW = (*("writer",) * 4, "optimizer", "cleaner", *("reader",) * 4, *("feed",) * 2)
SMALL_CREW = ("writer", "cleaner", "reader", "feed")
FEEDS_KILLED = 0.1
"""Of all kills: a dead feed keeps all that it had still to read for longer than a storm lasts."""
VERSIONS_LEFT_MAX = 2
"""Of every table when all holds have ended: the one that is published, and one that is kept."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What happened, and what is wrong."""

    said: Counter[str] = field(default_factory=Counter)
    mistakes: list[str] = field(default_factory=list)
    kills: int = 0
    holds_left: int = 0
    versions_held: int = 0
    versions_left: int = 0
    bytes_held: int = 0
    bytes_left: int = 0
    bytes_unnamed: int = 0
    """Of these, files of lost races that no version names: Lance removes them after seven days."""

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {what}" for what, count in sorted(self.said.items()))
        return (
            f"held-storm: {len(self.mistakes)} torn or vanished; {counts}; {self.kills} kills; "
            f"{self.holds_left} holds of the dead kept {self.versions_held} versions and "
            f"{self.bytes_held:,} bytes, then {self.versions_left} and {self.bytes_left:,}, "
            f"{self.bytes_unnamed:,} of them unnamed"
        )


@dataclass(frozen=True, slots=True)
class _Place:
    role: str
    process: Victim


class HeldStorm:
    """Processes that write, clean, hold and follow, and some that die."""

    def __init__(self, home: Path, *, seconds: float, seed: int, without_guard: str = "") -> None:
        self._root = root_at(home / "graph")
        self._logs = home / "logs"
        self._logs.mkdir()
        self._stop = home / "stop"
        self._seconds = seconds
        self._seed = seed
        self._without_guard = without_guard
        self._started = 0

    def blow(self) -> Tally:
        chance = random.Random(self._seed)
        tally = Tally()
        new_graph(self._root)
        places = [self._start(role) for role in CREW]
        ends = time.monotonic() + self._seconds
        while time.monotonic() < ends:
            time.sleep(min(chance.uniform(4, 12), max(0, ends - time.monotonic())))
            role = "feed" if chance.random() < FEEDS_KILLED else "reader"
            at = chance.choice([at for at, place in enumerate(places) if place.role == role])
            places[at].process.kill()
            places[at].process.end()
            tally.kills += 1
            places[at] = self._start(places[at].role)
        self._stop.touch()
        for place in places:
            place.process.end()
        return settle(self._root, tally, _lines(self._logs))

    def _start(self, role: str) -> _Place:
        self._started += 1
        log = str(self._logs / f"{self._started:05}-{role}.log")
        seed = f"{self._seed}/{self._started}"
        process = start(
            *(role, self._root, log, seed, str(self._stop)),
            without_guard=self._without_guard,
            module="tests.crash.held_storm_roles",
        )
        return _Place(role, process)


def breeze(root: str, *, events: int, seed: int) -> Tally:
    """The same with threads of this process and a small crew, until so much has been said."""
    new_graph(root)
    said: list[str] = []

    def act(role: str) -> None:
        try:
            ROLES[role](root, random.Random(f"{seed}/{role}"), said.append, _is_over)
        except Exception as error:  # noqa: BLE001 - whatever ends a thread is a mistake
            said.append(f"WRONG {role} ended: {type(error).__name__} {error}")

    def _is_over() -> bool:
        return len(said) > events

    threads = [threading.Thread(target=act, args=(role,)) for role in SMALL_CREW]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return settle(root, Tally(), said)


def settle(root: str, tally: Tally, said: list[str]) -> Tally:
    """Count what was said, let all holds end, and look at what is left."""
    tally.mistakes += [line for line in said if line.startswith("WRONG")]
    tally.said = Counter(line.partition(":")[0] for line in said if not line.startswith("WRONG"))
    graph = og.open(root)
    tally.holds_left = len(graph.holds.list())
    _clean(graph, timedelta(0))
    tally.versions_held, tally.bytes_held = _versions(graph), _bytes(graph)
    _clean(graph, timedelta(days=1))
    tally.versions_left, tally.bytes_left = _versions(graph), _bytes(graph)
    if graph.holds.list():
        tally.mistakes.append(f"WRONG holds are left: {graph.holds.list()}")
    if tally.versions_left > VERSIONS_LEFT_MAX * len(graph.snapshot().tables):
        tally.mistakes.append(f"WRONG {tally.versions_left} versions are left")
    checked = graph.maintenance.check()
    tally.bytes_unnamed = checked.orphan_bytes
    if len(numbers(graph.snapshot())) != 1 or not checked.ok:
        tally.mistakes.append("WRONG the graph is broken")
    return tally


def _clean(graph: Graph, by: timedelta) -> None:
    clock = replace(SYSTEM_CLOCK, now=lambda: SYSTEM_CLOCK.now() + by)
    graph.maintenance.recover(force=True)
    cleanup_graph(graph._objects, CleanupPolicy(keep_versions=1), clock)


def _versions(graph: Graph) -> int:
    root = graph._objects.root
    tables = graph.snapshot().tables.values()
    return sum(len(versions_of(root, line_of(entry))) for entry in tables)


def _bytes(graph: Graph) -> int:
    return sum(graph._objects.sizes("nodes").values())


def _lines(logs: Path) -> list[str]:
    return [line for log in sorted(logs.glob("*.log")) for line in log.read_text().splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-guard", default="", help="to see that it would be noticed")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="held-storm-") as home:
        storm = HeldStorm(
            Path(home),
            seconds=wanted.seconds,
            seed=wanted.seed,
            without_guard=wanted.without_guard,
        )
        tally = storm.blow()
    for mistake in tally.mistakes[:20]:
        print(mistake, file=sys.stderr)
    print(tally)
    return 1 if tally.mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
