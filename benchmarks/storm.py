"""A storm: writers are killed and paused at random while wrong sweepers and folders run.

    python -m benchmarks.storm --seconds 60 --kills 60 --writers 4
    python -m benchmarks.storm --store s3 --kills 200 --pauses 100 --writers 8

On S3 every process is on a host of its own: it knows the address of the store, and of the others
only what they leave there. The server runs on this machine, unless one is named by the environment.

It ends when all of seconds, kills and pauses are reached, or early on SIGTERM or SIGINT.
Afterwards one sweep and one new write must succeed, and the books of the bank must agree with what
every writer was told.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from unittest.mock import patch

from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake.commit.publish import OperationStatus, decision_in
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.manifest_rows import Outcome
from tests.crash.bank import Transfer, carry_out, found_bank, read_books, replay
from tests.crash.storm_roles import HOST, Claims, read_claims
from tests.s3.server import S3Server
from tests.stores import SERVED_FOLDER, SWITCH, on_s3, root_at

HOME = Path(__file__).parent.parent
DEADLY_POINTS = (
    "mutation.post_sidecar",
    "mutation.post_stage",
    "mutation.pre_direct_commit",
    "mutation.post_direct_commit",
    "mutation.post_heal",
    "mutation.post_table_commit",
    "mutation.retry",
    "publish.pre_manifest",
    "publish.post_manifest",
    "publish.resolve.list",
    "recovery.post_fence",
    "recovery.post_restore",
    "fold.post_history",
    "fold.post_drop",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long and how hard it blows."""

    seconds: float = 60.0
    kills: int = 60
    pauses: int = 30
    writers: int = 4
    seed: int = 0
    between_seconds: float = 0.3


@dataclass(slots=True, kw_only=True)
class Tally:
    """What happened, and what is wrong: lost, phantom and partial must all be zero."""

    seconds: float = 0.0
    kills: int = 0
    pauses: int = 0
    live_checks: int = 0
    begun: int = 0
    commits: int = 0
    acknowledged: int = 0
    failed: int = 0
    unknown: int = 0
    unknown_became: dict[str, int] = field(default_factory=dict)
    recoveries: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    phantom: int = 0
    partial: int = 0
    mistakes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.lost or self.phantom or self.partial)

    def add(self, other: Tally) -> None:
        """Count another round's facts as well."""
        for fact in fields(self):
            mine, theirs = getattr(self, fact.name), getattr(other, fact.name)
            if isinstance(mine, dict):
                theirs = dict(Counter(mine) + Counter(theirs))
            setattr(self, fact.name, theirs if isinstance(mine, dict) else mine + theirs)


@dataclass(slots=True)
class _Role:
    """One place in the storm, whose process is replaced whenever it dies."""

    name: str
    host: str
    process: subprocess.Popen[bytes]
    wakes_at: float | None = None


class Storm:
    """The running processes, and the weather."""

    def __init__(self, plan: Plan, home: Path) -> None:
        self._plan = plan
        self._root = root_at(home / "graph")
        self._logs = home / "logs"
        self._logs.mkdir()
        self._chance = random.Random(plan.seed)  # noqa: S311
        self._started = 0
        self._tally = Tally()
        self._is_calmed = False

    def calm(self) -> None:
        """End early, but still settle and compare."""
        self._is_calmed = True

    @property
    def was_calmed(self) -> bool:
        return self._is_calmed

    def blow(self) -> Tally:
        found_bank(self._root)
        began = time.monotonic()
        with self._roles() as roles:
            while not self._is_over(began):
                time.sleep(self._chance.uniform(0, 2 * self._plan.between_seconds))
                self._wake_those_who_slept(roles)
                self._strike(self._chance.choice(roles))
                self._replace_the_dead(roles)
                self._look()
        self._tally.seconds = round(time.monotonic() - began, 1)
        self._settle()
        return self._tally

    def _is_over(self, began: float) -> bool:
        plan, tally = self._plan, self._tally
        return self._is_calmed or (
            time.monotonic() - began >= plan.seconds
            and tally.kills >= plan.kills
            and tally.pauses >= plan.pauses
        )

    @contextmanager
    def _roles(self) -> Iterator[list[_Role]]:
        names = [*("writer" for _ in range(self._plan.writers)), "sweeper", "folder"]
        hosts = [f"host-{number}" if on_s3() else "" for number in range(len(names))]
        roles = [
            _Role(name, host, self._start(name, host))
            for name, host in zip(names, hosts, strict=True)
        ]
        try:
            yield roles
        finally:
            for role in roles:
                role.process.kill()
                role.process.wait()

    def _start(self, name: str, host: str) -> subprocess.Popen[bytes]:
        self._started += 1
        arguments = [self._root]
        if name == "writer":
            arguments += [str(self._logs / f"{self._started}.log"), str(self._started)]
        points = ""
        if name == "writer" and self._chance.random() < 0.5:
            visit = self._chance.randint(1, 6)
            points = f"{self._chance.choice(DEADLY_POINTS)}=kill@{visit}"
        environment = {name: value for name, value in os.environ.items() if name != SERVED_FOLDER}
        with (self._logs / "errors").open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.crash.storm_roles", name, *arguments],
                cwd=HOME,
                env={**environment, "OMNIGRAPH_FAILPOINTS": points, HOST: host},
                stderr=errors,
            )

    def _strike(self, role: _Role) -> None:
        """Stop a process, or kill it, asleep or not."""
        if self._chance.random() < 0.35:
            if role.wakes_at is None:
                role.process.send_signal(signal.SIGSTOP)
                role.wakes_at = time.monotonic() + self._chance.uniform(0.1, 5.0)
                self._tally.pauses += 1
        else:
            role.process.kill()
            role.process.wait()

    def _wake_those_who_slept(self, roles: list[_Role]) -> None:
        for role in roles:
            if role.wakes_at is not None and time.monotonic() > role.wakes_at:
                role.process.send_signal(signal.SIGCONT)
                role.wakes_at = None

    def _replace_the_dead(self, roles: list[_Role]) -> None:
        for role in roles:
            code = role.process.poll()
            if code is None:
                continue
            if code == -signal.SIGKILL:
                self._tally.kills += 1
            else:
                self._wrong(f"a {role.name} ended with {code}, see its errors")
            role.process, role.wakes_at = self._start(role.name, role.host), None

    def _look(self) -> None:
        """One reader's view, in the middle of it all."""
        graph = og.open(self._root, read_only=True)
        for mistake in read_books(graph).mistakes:
            self._wrong(f"seen live: {mistake}")
        self._tally.live_checks += 1

    def _wrong(self, mistake: str) -> None:
        self._tally.partial += 1
        self._tally.mistakes.append(mistake)

    def _settle(self) -> None:
        """One sweep, one new write, then compare what everybody was told with what is there."""
        graph = og.open(self._root)
        graph.maintenance.recover(force=True)
        last = Transfer(operation_id=str(ULID()), source="a0", target="a1", amount=1, writer=0)
        if carry_out(graph, last) is None:
            self._wrong("the write after the storm did nothing")
        books = read_books(graph)
        report = graph.maintenance.check()
        for mistake in (*books.mistakes, *replay(graph, books), *map(str, report.findings)):
            self._wrong(mistake)
        if report.pending_operations:
            self._wrong(f"still pending: {report.pending_operations}")
        committed = frozenset(books.transfers) - {last.operation_id}
        self._tally.recoveries = dict(Counter(each.kind for each in graph.maintenance.recoveries()))
        self._compare(graph, committed, read_claims(self._logs))

    def _compare(self, graph: Graph, committed: frozenset[str], claims: Claims) -> None:
        tally = self._tally
        tally.begun, tally.commits = len(claims.begun), len(committed)
        tally.acknowledged, tally.failed = len(claims.acknowledged), len(claims.failed)
        tally.unknown = len(claims.unknown)
        tally.lost = len(claims.acknowledged - committed)
        tally.phantom = len(claims.failed & committed) + len(committed - claims.begun)
        became = {each: graph.outcome(each) for each in sorted(claims.unknown)}
        tally.unknown_became = dict(Counter(each.value for each in became.values()))
        for operation_id, status in became.items():
            if (status is OperationStatus.PUBLISHED) != (operation_id in committed):
                self._wrong(f"{operation_id} is said to be {status}")
            if status is OperationStatus.PENDING:
                self._wrong(f"{operation_id} is never decided")
        state = read_manifest(graph._objects.root)  # noqa: SLF001
        for operation_id in sorted(claims.begun - claims.unknown):
            decided = decision_in(graph._objects.root, state, operation_id)  # noqa: SLF001
            published = decided is not None and decided.outcome is Outcome.PUBLISHED
            if published != (operation_id in committed):
                self._wrong(f"{operation_id} is decided as {decided}")


def _share(plan: Plan, number: int, rounds: int) -> Plan:
    return replace(
        plan,
        seconds=plan.seconds / rounds,
        kills=-(-plan.kills // rounds),
        pauses=-(-plan.pauses // rounds),
        seed=plan.seed + number,
    )


@contextmanager
def store(kind: str, home: Path) -> Iterator[None]:
    """Keep graphs in a store of this kind; on S3 start a server, unless one is named already."""
    with ExitStack() as opened:
        opened.enter_context(patch.dict(os.environ, {SWITCH: kind}))
        if kind == "s3" and SERVED_FOLDER not in os.environ:
            server = S3Server(home / "s3")
            server.start()
            opened.callback(server.stop)
            server.prepare()
            os.environ.update(server.environment())
        yield


def main(arguments: list[str] | None = None) -> int:
    plan = Plan()
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in asdict(plan).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("--rounds", type=int, default=1, help="share the blows over new graphs")
    parser.add_argument("--keep", help="a directory to keep graphs and logs in")
    parser.add_argument("--store", choices=("local", "s3"), default="s3" if on_s3() else "local")
    options = vars(parser.parse_args(arguments))
    rounds, keep, kind = (options.pop(name) for name in ("rounds", "keep", "store"))
    tally = Tally()
    with tempfile.TemporaryDirectory() as scratch, store(kind, Path(keep or scratch)):
        for number in range(rounds):
            home = Path(keep or scratch, str(number))
            home.mkdir(parents=True)
            storm = Storm(_share(Plan(**options), number, rounds), home)
            for signal_number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(signal_number, lambda *_, current=storm: current.calm())
            tally.add(storm.blow())
            print(f"round {number + 1}: {tally.kills} kills so far, ok: {tally.ok}", flush=True)
            if storm.was_calmed or not tally.ok:
                break
    for mistake in tally.mistakes[:20]:
        print(f"WRONG: {mistake}")
    facts = asdict(tally)
    for name in ("kills", "pauses", "commits", "acknowledged", "lost", "phantom", "partial"):
        print(f"{name:>14} {facts[name]}")
    print(json.dumps({**facts, "mistakes": len(tally.mistakes)}))
    return 0 if tally.ok else 1


if __name__ == "__main__":
    sys.exit(main())
