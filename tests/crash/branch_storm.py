"""A storm among branches: four processes run errands while they are killed and paused at random.

Invariant: the history of a branch explains its rows. A write is in a branch exactly if one of the
commits that the branch descends from is its commit.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.commit.orphans import Fate, listed_forks, reconcile_forks
from omnigraph_lake.commit.sidecar import pending_operations
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.refs.branches import find_branch, read_branch_log
from tests.crash.branch_storm_roles import POOL, Claim, read_claims
from tests.crash.branch_world import (
    MAIN,
    Verb,
    create,
    delete,
    look_at,
    merge,
    run_errand,
    write,
)
from tests.crash.processes import Victim, start
from tests.crash.small_world import Content, content_of, small_world
from tests.stores import folder_of, root_at

DEADLY_POINTS = (
    "branch.post_claim",
    "branch.post_manifest",
    "branch.post_parent",
    "branch.post_ready",
    "branch.pre_delete",
    "branch.post_delete",
    "branch.post_fork",
    "branch.pre_verify",
    "reconcile.post_logs",
    "reconcile.post_delete",
    "merge.staged",
    "mutation.post_sidecar",
    "mutation.post_stage",
    "mutation.post_direct_commit",
    "publish.pre_manifest",
    "publish.post_manifest",
    "recovery.post_log",
    "recovery.post_fence",
)


REFUSALS = frozenset(
    {
        None,
        "NotFoundError",
        "NoLongerKeptError",
        "ConflictError",
        "ContentionError",
        "OperationRolledBackError",
        "BranchGoneError",
    }
)
"""What others can do to an errand; anything else would be our fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long and how hard it blows: until both the seconds and the kills are over."""

    seconds: float
    kills: int = 0
    processes: int = 4
    seed: int = 0
    between_seconds: float = 0.25


@dataclass(slots=True, kw_only=True)
class Tally:
    """What happened, and what is wrong."""

    kills: int = 0
    pauses: int = 0
    live_looks: int = 0
    said: Counter[str] = field(default_factory=Counter)
    mistakes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Place:
    """One place in the storm, whose process is replaced whenever it dies."""

    process: Victim
    wakes_at: float | None = None


class BranchStorm:
    """The running processes, and the weather."""

    def __init__(self, plan: Plan, home: Path) -> None:
        self._plan = plan
        self._root = root_at(home / "graph")
        self._logs = home / "logs"
        self._logs.mkdir()
        self._chance = random.Random(plan.seed)
        self._started = 0
        self._tally = Tally()

    def blow(self) -> Tally:
        graph = small_world(self._root)
        base = content_of(graph)
        ends = time.monotonic() + self._plan.seconds
        with self._places() as places:
            while time.monotonic() < ends or self._tally.kills < self._plan.kills:
                time.sleep(self._chance.uniform(0, 2 * self._plan.between_seconds))
                self._wake_those_who_slept(places)
                self._strike(self._chance.choice(places))
                self._replace_the_dead(places)
                self._look(graph, base)
        self._settle(base)
        return self._tally

    @contextmanager
    def _places(self) -> Iterator[list[_Place]]:
        places = [_Place(self._start()) for _ in range(self._plan.processes)]
        try:
            yield places
        finally:
            for place in places:
                place.process.kill()
                place.process.end()

    def _start(self) -> Victim:
        self._started += 1
        armed = ""
        if self._chance.random() < 0.5:
            visit = self._chance.randint(1, 4)
            armed = f"{self._chance.choice(DEADLY_POINTS)}=kill@{visit}"
        log = str(self._logs / f"{self._started:05}.log")
        seed = f"{self._plan.seed}/{self._started}"
        return start(
            "run",
            self._root,
            log,
            seed,
            failpoints=armed,
            module="tests.crash.branch_storm_roles",
        )

    def _strike(self, place: _Place) -> None:
        """Stop a process, or kill it, asleep or not."""
        if self._chance.random() < 0.35:
            if place.wakes_at is None:
                place.process.stop()
                place.wakes_at = time.monotonic() + self._chance.uniform(0.1, 2.0)
                self._tally.pauses += 1
        else:
            place.process.kill()

    def _wake_those_who_slept(self, places: list[_Place]) -> None:
        for place in places:
            if place.wakes_at is not None and time.monotonic() > place.wakes_at:
                place.process.wake()
                place.wakes_at = None

    def _replace_the_dead(self, places: list[_Place]) -> None:
        for place in places:
            if not place.process.has_ended:
                continue
            try:
                self._tally.kills += place.process.end().was_killed
            except AssertionError as error:
                self._wrong(f"a process ended by itself: {error}")
            place.process, place.wakes_at = self._start(), None

    def _look(self, graph: Graph, base: Content) -> None:
        """One reader's view, in the middle of it all."""
        name = self._chance.choice((MAIN, *POOL))
        before = None if name == MAIN else find_branch(graph._objects, name)
        try:
            look_at(graph, base, only={name})
        except AssertionError as error:
            self._wrong(f"seen live: {error}")
        except OmnigraphError as error:
            if name == MAIN or before == find_branch(graph._objects, name) is not None:
                self._wrong(f"seen live on {name}, which lives: {error}")
        self._tally.live_looks += 1

    def _settle(self, base: Content) -> None:
        """One sweep, one reconciling, then compare what was said with what is there."""
        graph = og.open(self._root)
        graph.maintenance.recover(force=True)
        if pending_operations(graph._objects):
            self._wrong("operations are pending after a sweep")
        reconcile_forks(graph._objects)
        left = [each for each in listed_forks(graph._objects) if each.fate is not Fate.LEGITIMATE]
        if left:
            self._wrong(f"reconciling left {left}")
        claims = list(read_claims(self._logs))
        self._tally.said = Counter(f"{each.errand.verb} {each.said}" for each in claims)
        for claim in claims:
            if claim.error not in REFUSALS:
                self._wrong(f"{claim.error} is no answer: {claim}")
        look = look_at(graph, base)
        for name, marks in look.picture.items():
            on_branch = graph.checkout(name)
            for finding in on_branch.maintenance.check().findings:
                self._wrong(f"{name}: {finding}")
            self._compare(on_branch, marks, claims)
        self._live_on(graph, base)

    def _compare(self, graph: Graph, marks: frozenset[str], claims: list[Claim]) -> None:
        commits = graph.commits()
        known = {commit.commit_id for commit in commits}
        operations = {commit.operation_id for commit in commits}
        name = graph.branch
        for commit in commits:
            if commit.merged_parent_id not in {None, *known}:
                self._wrong(f"{name}: the commit merged by {commit.commit_id} is unknown")
        written = {
            each.errand.mark
            for each in claims
            if each.errand.verb is Verb.WRITE and each.errand.operation_id in operations
        }
        if marks != written:
            self._wrong(f"{name} holds {marks - written} too much, and not {written - marks}")
        ready = 0.0 if name == MAIN else self._ready_since(graph)
        for claim in claims:
            published = claim.errand.operation_id in operations
            due = claim.wrote and claim.errand.name == name and claim.began > ready
            if due and not published:
                self._wrong(f"{name} lost {claim}")
            if claim.said == "failed" and published:
                self._wrong(f"{name} holds what was refused: {claim}")

    def _ready_since(self, graph: Graph) -> float:
        log = read_branch_log(graph._objects, graph.branch)
        entry = names.branch_ref(graph.branch, log.last)
        return folder_of(self._root, entry).stat().st_mtime

    def _live_on(self, graph: Graph, base: Content) -> None:
        """Every name can be given up, used again, written and merged."""
        for name in POOL:
            self._delete_with_children(graph, name)
        for name in POOL:
            for errand in (create(name), write(name, f"link-{name}"), merge(name), delete(name)):
                run_errand(graph, errand)
        wanted = {f"link-{name}" for name in POOL}
        if not wanted <= look_at(graph, base).picture[MAIN]:
            self._wrong("what was merged after the storm is not in main")
        reconcile_forks(graph._objects)
        left = listed_forks(graph._objects)
        if any(each.location == names.MANIFEST or each.fate is Fate.ORPHAN for each in left):
            self._wrong(f"main alone has {left}")

    def _delete_with_children(self, graph: Graph, name: str) -> None:
        for branch in graph.branches.list():
            if branch.parent == name:
                self._delete_with_children(graph, branch.name)
        if name in {branch.name for branch in graph.branches.list()}:
            run_errand(graph, delete(name))

    def _wrong(self, mistake: str) -> None:
        self._tally.mistakes.append(mistake)
