"""A graph's whole life at once: everything that uses it, and everything that can go wrong.

    python -m tests.power.life --minutes 30 --seed 1 [--no-spark]

Every round: writers, maintenance, a process that changes the schema, branches and tags, loads on
Spark and a reader work on one graph; single processes are killed, and started again, or paused. A
round ends with a power cut, or with the death of all processes. Then a judge compares the graph
with what was promised, and the next round goes on with the same graph.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import omnigraph_lake as og
from tests.forking.programs import Running, run_module, start_module, wait_for_work
from tests.forking.waiting import has_ended
from tests.power.boots import kill_started_below
from tests.power.disk import Disk, make_disk
from tests.power.promises import read_lines
from tests.power.roles import SCHEMA
from tests.power.storm import kill_all, signal_all

_WRITER: Final = "write,update,load,delete"
_REFERENCES: Final = "branch,unbranch,merge,tag,untag"
ROLES: Final = {
    "writer": _WRITER,
    "other writer": _WRITER,
    "maintenance": "optimize,cleanup,reconcile,scrub,check",
    "shaping": f"schema,drop,{_REFERENCES},{_REFERENCES}",
    "reader": "read",
}
"""What the processes of a round do."""
SPARK: Final = {"spark": "spark"}
BUSY: Final = "0.2 0"
BESIDE_SPARK: Final = {"reader": "0.5 0", "spark": "0.2 0", "shaping": "1.0 7"}
WRITER_BESIDE_SPARK: Final = "0.2 7"
"""A load takes seconds on Spark: it loses to writers that never rest and to a change of schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long, with what, and how hard."""

    seconds: float
    seed: int
    with_spark: bool = True
    round_seconds: tuple[float, float] = (15.0, 45.0)
    between_seconds: float = 1.0
    """How long it takes on average until a process is killed or paused."""
    pause_seconds: tuple[float, float] = (0.1, 5.0)
    idle_seconds: tuple[float, ...] = (0.0, 0.0, 0.0, 1.0, 6.0)
    """How long the machine has power after its processes stopped."""
    share_of_cuts: float = 0.6
    patience_seconds: float = 60.0
    """How much longer a round may take until Spark has loaded something."""
    seconds_of_a_disk: float = 600.0
    """A graph that is older than this makes place for a new one."""

    @property
    def roles(self) -> dict[str, str]:
        return ROLES | SPARK if self.with_spark else ROLES

    def rhythm_of(self, role: str) -> str:
        return BESIDE_SPARK.get(role, WRITER_BESIDE_SPARK) if self.with_spark else BUSY


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of it."""

    rounds: int = 0
    disks: int = 0
    cuts: int = 0
    kills: int = 0
    pauses: int = 0
    promised: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    unopened: list[str] = field(default_factory=list)
    unsound: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not self.mistakes

    @property
    def mistakes(self) -> list[str]:
        return [*self.unopened, *self.lost, *self.unsound]

    def line(self) -> str:
        return (
            f"rounds {self.rounds} on {self.disks} disks, cuts {self.cuts}, kills {self.kills}, "
            f"pauses {self.pauses}, acknowledged {_counts(self.promised)}, lost {len(self.lost)}, "
            f"not opened {len(self.unopened)}, not sound {len(self.unsound)}; "
            f"calls that failed {_counts(self.failed)}"
        )


def _counts(counter: Counter[str]) -> str:
    return f"{counter.total()} ({', '.join(f'{name} {n}' for name, n in counter.most_common())})"


@dataclass(slots=True, kw_only=True)
class _Place:
    """One role, whose process is replaced whenever it is killed."""

    role: str
    process: Running
    wakes_at: float | None = None


class Life:
    """One graph after the other, each on a disk of its own."""

    def __init__(self, plan: Plan, home: Path) -> None:
        self._plan = plan
        self._home = home
        self._chance = random.Random(plan.seed)
        self._ends_at = time.monotonic() + plan.seconds
        self._started = 0
        self._boot = 0
        self._tally = Tally()

    def run(self) -> Tally:
        while self._goes_on():
            self._tally.disks += 1
            home = self._home / f"disk-{self._tally.disks}"
            disk = make_disk(home, size="4G")
            try:
                self._one_disk(disk, home / "logs")
            finally:
                disk.unmount()
            if self._tally.is_good:
                shutil.rmtree(home)
        return self._tally

    def _goes_on(self) -> bool:
        return self._tally.is_good and time.monotonic() < self._ends_at

    def _one_disk(self, disk: Disk, logs: Path) -> None:
        root = str(disk.folder / "graph")
        logs.mkdir()
        og.init(root, schema=SCHEMA, durability="commit")
        promised, failed = self._tally.promised, self._tally.failed
        deadline = time.monotonic() + self._plan.seconds_of_a_disk
        while self._goes_on() and time.monotonic() < deadline:
            self._tally.rounds += 1
            with self._processes(root, logs) as places:
                self._live(root, logs, places)
                self._end(disk, places)
            counts = self._judge(root, logs)
            # A judge counts the lines of all rounds on this disk.
            self._tally.promised = promised + counts["promised"]
            self._tally.failed = failed + counts["failed"]
            print(self._tally.line(), flush=True)

    @contextmanager
    def _processes(self, root: str, logs: Path) -> Iterator[list[_Place]]:
        """One process for each role; none is left when a round ends, however it ends."""
        places: list[_Place] = []
        try:
            for role in self._plan.roles:
                process = self._start(role, root, logs)
                places.append(_Place(role=role, process=process))
            yield places
        finally:
            kill_started_below(logs)
            kill_all(place.process for place in places)

    def _start(self, role: str, root: str, logs: Path) -> Running:
        self._started += 1
        name = f"w{self._plan.seed}x{self._started}"
        return start_module(
            "tests.power.roles",
            *("work", root, str(self._log_of(self._started, logs)), name, "commit"),
            *(self._plan.roles[role], self._boot_name(), self._plan.rhythm_of(role)),
        )

    def _boot_name(self) -> str:
        return f"boot-{self._boot}"

    def _log_of(self, number: int, logs: Path) -> Path:
        return logs / f"{number:05d}.log"

    def _live(self, root: str, logs: Path, places: list[_Place]) -> None:
        loaded = partial(_loads_on_spark, logs)
        before = loaded()
        if self._plan.with_spark:
            log = self._log_of(self._started, logs)  # Spark is the last role
            wait_for_work(places[-1].process, log.exists, "a session of Spark")
        ends_at = time.monotonic() + self._chance.uniform(*self._plan.round_seconds)
        latest = ends_at + (self._plan.patience_seconds if self._plan.with_spark else 0.0)
        while (now := time.monotonic()) < latest and (now < ends_at or loaded() == before):
            time.sleep(self._chance.uniform(0, 2 * self._plan.between_seconds))
            self._wake(places)
            (struck,) = self._chance.choices(places, [_exposure(place) for place in places])
            self._strike(struck, root, logs)
            self._look_for_ended(places, root, logs)

    def _wake(self, places: list[_Place]) -> None:
        for place in places:
            if place.wakes_at is not None and time.monotonic() > place.wakes_at:
                signal_all([place.process], signal.SIGCONT)
                place.wakes_at = None

    def _strike(self, place: _Place, root: str, logs: Path) -> None:
        """Stop a process, or kill it, asleep or not."""
        if self._chance.random() < 0.5:
            if place.wakes_at is None:
                signal_all([place.process], signal.SIGSTOP)
                place.wakes_at = time.monotonic() + self._chance.uniform(*self._plan.pause_seconds)
                self._tally.pauses += 1
        elif not has_ended(place.process.pid):
            kill_all([place.process])
            self._tally.kills += 1
            place.process, place.wakes_at = self._start(place.role, root, logs), None

    def _look_for_ended(self, places: list[_Place], root: str, logs: Path) -> None:
        """A process that ends although it was not killed met something that it must not meet."""
        for place in places:
            if has_ended(place.process.pid):
                ended = place.process.finish()
                code, said = ended.returncode, ended.stderr[-3000:]
                self._tally.unsound.append(f"{place.role} ended with {code}: {said}")
                place.process, place.wakes_at = self._start(place.role, root, logs), None

    def _end(self, disk: Disk, places: list[_Place]) -> None:
        processes = [place.process for place in places]
        if self._chance.random() >= self._plan.share_of_cuts:
            for process in self._chance.sample(processes, len(processes)):
                signal_all([process], signal.SIGKILL)
            places.clear()
            for process in processes:
                process.exit_code()
            return
        signal_all(processes, signal.SIGSTOP)
        time.sleep(self._chance.choice(self._plan.idle_seconds))
        disk.cut_power()
        self._tally.cuts += 1
        places.clear()
        kill_all(processes)
        disk.unmount()
        disk.mount()
        self._boot += 1

    def _judge(self, root: str, logs: Path) -> dict[str, Counter[str]]:
        ended = run_module("tests.power.roles", "judge", root, str(logs), self._boot_name(), "deep")
        if ended.returncode:
            self._tally.unopened.append(ended.stderr[-3000:])
            return {"promised": Counter(), "failed": Counter()}
        verdict = json.loads(ended.stdout.splitlines()[-1])
        self._tally.lost += map(str, verdict["lost"])
        self._tally.unsound += verdict["wrong"]
        self._tally.unsound += verdict["findings"]
        return {name: Counter(verdict[name]) for name in ("promised", "failed")}


def _exposure(place: _Place) -> float:
    """How often a process is struck; a session of Spark takes long to start again."""
    return 0.1 if place.role in SPARK else 1.0


def _loads_on_spark(logs: Path) -> int:
    return sum(line.get("verb") == "spark" for line in read_lines(logs))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument(
        "--keep", type=Path, help="a folder for disks and logs; bad ones stay there"
    )
    given = parser.parse_args(arguments)
    plan = Plan(seconds=given.minutes * 60, seed=given.seed, with_spark=not given.no_spark)
    with tempfile.TemporaryDirectory(prefix="omnigraph-life-") as scratch:
        tally = Life(plan, given.keep or Path(scratch)).run()
    for text in tally.mistakes[:20]:
        print(text)
    print(tally.line())
    return 0 if tally.is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
