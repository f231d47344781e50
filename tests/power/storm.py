"""Cuts the power under working processes, again and again, and judges what is left.

    python -m tests.power.storm --cuts 50 --seed 1 [--durability os]

Every round: processes work, the power goes at a random moment, the disk is mounted again, a reader
and a writer open the graph. Whatever was acknowledged must be there.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import omnigraph_lake as og
from tests.forking.programs import Running, run_module, start_module, wait_for_work
from tests.power.boots import kill_started_below, signal_with_started
from tests.power.disk import Disk, make_disk
from tests.power.roles import SCHEMA

MIXTURES = (
    ("write,update,load", "write,update"),
    ("merge,branch,tag,write", "update"),
    ("schema,write,tag", "update"),
    ("write,optimize,cleanup", "write,update"),
    ("write,update,load,merge,branch,tag,schema,optimize,cleanup", "write,cleanup"),
)
"""What the two processes of a round do."""
ON_SPARK = (("spark", "tag,untag"), ("spark", "tag,untag,branch,unbranch"))
"""What is made beside Spark is removed again: loads take long, and a judge reads every branch."""
BUSY, BESIDE_SPARK = "0 0", "0.3 0"
"""How long a process rests after each call; Spark shares the machine with it."""
ROUNDS_ON_ONE_DISK = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How often, for how long, and with which promise."""

    cuts: int
    seed: int
    durability: og.Durability = "commit"
    seconds_most: float = 4.0
    idle_seconds: tuple[float, ...] = (0.0, 0.0, 0.0, 1.0, 6.0)
    mixtures: tuple[tuple[str, str], ...] = MIXTURES


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of it."""

    cuts: int = 0
    promised: Counter[str] = field(default_factory=Counter)
    """Acknowledged calls by verb, counted anew after each cut."""
    lost: list[Any] = field(default_factory=list)
    unpromised: int = 0
    """Acknowledged without a promise that it survives a power cut, and lost in one."""
    unopened: list[str] = field(default_factory=list)
    unsound: list[Any] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.unopened or self.unsound)

    def line(self) -> str:
        return (
            f"cuts {self.cuts}, judged {dict(self.promised)}, lost {len(self.lost)} and without "
            f"a promise {self.unpromised}, "
            f"did not open {len(self.unopened)}, not sound {len(self.unsound)}; "
            f"calls that failed {dict(self.failed)}"
        )


def run(plan: Plan, place: Path) -> Tally:
    tally = Tally()
    chance = random.Random(plan.seed)
    while tally.cuts < plan.cuts:
        home = place / f"disk-{tally.cuts}"
        disk = make_disk(home)
        try:
            rounds = min(ROUNDS_ON_ONE_DISK, plan.cuts - tally.cuts)
            _one_disk(plan, disk, home, chance, tally, rounds)
        finally:
            disk.unmount()
            disk.image.unlink()
    return tally


def _one_disk(
    plan: Plan, disk: Disk, home: Path, chance: random.Random, tally: Tally, rounds: int
) -> None:
    root = str(disk.folder / "graph")
    logs = home / "logs"
    logs.mkdir()
    og.init(root, schema=SCHEMA, durability=plan.durability)
    for number in range(rounds):
        mixture = plan.mixtures[(tally.cuts + plan.seed) % len(plan.mixtures)]
        tally.cuts += 1
        with _working(plan, mixture, root, logs, number) as workers:
            if "spark" in mixture[0]:
                is_loaded = partial(_has_lines, logs / f"{number}-0.log", 2)
                wait_for_work(workers[0], is_loaded, "the first load on Spark")
            time.sleep(chance.uniform(0.3, plan.seconds_most))
            idle = chance.choice(plan.idle_seconds)
            signal_all(workers, signal.SIGSTOP)
            time.sleep(idle)
            disk.cut_power()
        disk.unmount()
        disk.mount()
        _judge(root, logs, f"boot-{number + 1}", plan, tally)


@contextmanager
def _working(
    plan: Plan, mixture: tuple[str, str], root: str, logs: Path, number: int
) -> Iterator[list[Running]]:
    """The processes of a round; none that they started is left when it ends, however it ends."""
    workers: list[Running] = []
    try:
        for n, verbs in enumerate(mixture):
            rhythm = BESIDE_SPARK if n and "spark" in mixture[0] else BUSY
            log = str(logs / f"{number}-{n}.log")
            arguments = (root, log, f"w{number}x{n}", plan.durability, verbs, f"boot-{number}")
            workers.append(start_module("tests.power.roles", "work", *arguments, rhythm))
            if "spark" in verbs:
                wait_for_work(workers[n], partial(_has_lines, Path(log), 1), "a session of Spark")
        yield workers
    finally:
        kill_started_below(logs)
        kill_all(workers)


def _has_lines(log: Path, count: int) -> bool:
    return log.exists() and len(log.read_text().splitlines()) >= count


def signal_all(workers: Iterable[Running], number: int) -> None:
    """To workers and to all that they started, which would keep the disk mounted."""
    for worker in workers:
        signal_with_started(worker.pid, number)


def kill_all(workers: Iterable[Running]) -> None:
    killed = list(workers)
    signal_all(killed, signal.SIGKILL)
    for worker in killed:
        worker.exit_code()


def _judge(root: str, logs: Path, boot: str, plan: Plan, tally: Tally) -> None:
    ended = run_module("tests.power.roles", "judge", root, str(logs), boot)
    if ended.returncode:
        tally.unopened.append(ended.stderr[-3000:])
        return
    verdict = json.loads(ended.stdout.splitlines()[-1])
    tally.promised.update(verdict["promised"])
    if plan.durability == "os":
        tally.unpromised += len(verdict["lost"])
    else:
        tally.lost += verdict["lost"]
    tally.unsound += verdict["wrong"]
    tally.unsound += verdict["findings"]
    tally.failed.update(verdict["failed"])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--durability", choices=("commit", "os"), default="commit")
    parser.add_argument("--spark", action="store_true", help="load on Spark")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="omnigraph-power-") as place:
        plan = Plan(
            cuts=given.cuts,
            seed=given.seed,
            durability=given.durability,
            mixtures=ON_SPARK if given.spark else MIXTURES,
            seconds_most=12.0 if given.spark else 4.0,
        )
        tally = run(plan, Path(place))
    for text in (*tally.unopened, *map(str, tally.lost), *map(str, tally.unsound)):
        print(text)
    print(tally.line())
    return 0 if tally.is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
