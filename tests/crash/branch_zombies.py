"""Where processes that work with branches stand still, and what others do meanwhile, as data.

Invariant: every point of an errand meets every rival, in the nightly; the gate takes the points
that are named with a rival. It leaves out points where the sleeper goes on as it does after the
point before or after, and rivals that change nothing for it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from omnigraph_lake.failpoints import POINTS
from tests.crash.branch_cases import (
    FAST_FORWARD,
    FORKING,
    ONE_TABLE,
    POINTING,
    ROUTES,
    SWEEPS,
    THREE_WAY,
)
from tests.crash.branch_world import (
    AHEAD,
    DEV,
    FRESH,
    KEPT,
    MAIN,
    NEW,
    RECONCILE,
    SIDE,
    SWEEP,
    Errand,
    Verb,
    create,
    delete,
    folding,
    merge,
    read,
    tag,
    untag,
    write,
)
from tests.crash.branch_worlds import BranchWorld, Stage
from tests.crash.gate_rule import Matrix, matrix

Rivals = tuple[Errand, ...]
Meetings = Mapping[Rivals, tuple[str, ...]]
"""What others may do, and where the errand stands still meanwhile in the gate."""

_AGAIN = "link-r"
_RENEWED = {
    name: (delete(name), create(name), write(name, _AGAIN)) for name in (DEV, FRESH, SIDE, AHEAD)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchSleep:
    """An errand that stands still at a point while rivals run theirs one after the other."""

    errand: Errand
    world: BranchWorld
    point: str
    rivals: Rivals
    visit: int = 1

    @property
    def group(self) -> tuple[BranchWorld, Errand, Rivals]:
        return self.world, self.errand, self.rivals

    def __str__(self) -> str:
        return f"{self.errand}-{self.point}-{'-'.join(map(str, self.rivals))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchSweepSleep:
    """A sweep of what a dead writer left that stands still while rivals run their errands."""

    stage: Stage
    point: str
    rivals: Rivals
    visit: int = 1

    @property
    def group(self) -> tuple[Stage, Rivals]:
        return self.stage, self.rivals

    def __str__(self) -> str:
        return f"{self.stage}-{self.point}-{'-'.join(map(str, self.rivals))}"


RIVALS: Mapping[tuple[BranchWorld, Errand], Meetings] = {
    (BranchWorld.DEV, create(NEW, DEV)): {
        (create(NEW), write(NEW, _AGAIN)): ("branch.post_claim",),
        (delete(DEV), RECONCILE): ("branch.post_manifest",),
        (create(NEW), write(NEW, _AGAIN), delete(NEW), RECONCILE): (),
        (write(DEV, _AGAIN), RECONCILE): (),
        (*_RENEWED[DEV], RECONCILE): (),
        (tag(NEW, MAIN), RECONCILE): (),
    },
    (BranchWorld.DEV, delete(DEV)): {
        (*_RENEWED[DEV], RECONCILE): (),
        (write(DEV, _AGAIN), merge(DEV)): (),
        (create(NEW, DEV), write(NEW, _AGAIN), RECONCILE): (),
        (tag("t2", DEV), RECONCILE): ("branch.pre_delete",),
        (write(DEV, _AGAIN), RECONCILE): ("branch.post_delete",),
        (delete(DEV), create(DEV), merge(MAIN, DEV)): (),
    },
    (BranchWorld.FRESH, ONE_TABLE): {
        (SWEEP, *_RENEWED[FRESH], RECONCILE): ("mutation.begin",),
        (write(FRESH, _AGAIN), RECONCILE): ("mutation.post_sidecar",),
        (delete(FRESH), RECONCILE): ("branch.post_fork",),
        (*_RENEWED[FRESH], RECONCILE): (),
        (SWEEP, RECONCILE): ("mutation.post_stage",),
        (merge(FRESH), delete(FRESH), RECONCILE): (),
        (create(NEW, FRESH), RECONCILE, write(NEW, _AGAIN)): ("mutation.post_direct_commit",),
        (SWEEP, write(FRESH, _AGAIN), RECONCILE): ("publish.pre_manifest",),
        (RECONCILE,): (),
        (tag("t2", FRESH), delete(FRESH), RECONCILE): ("publish.resolve",),
        (write(FRESH, _AGAIN), folding(FRESH), RECONCILE): (),
        (SWEEP, folding(FRESH), delete(FRESH), create(FRESH), folding(MAIN)): (),
    },
    (BranchWorld.DEV, THREE_WAY): {
        (SWEEP, delete(DEV), RECONCILE): (),
        (merge(DEV), RECONCILE): ("mutation.post_sidecar",),
        (*_RENEWED[DEV], RECONCILE): (),
        (write(MAIN, "append-r"), RECONCILE): ("mutation.post_stage",),
        (write(DEV, _AGAIN), folding(DEV), delete(DEV), RECONCILE): (),
        (SWEEP, write(MAIN, "append-r"), folding(MAIN), RECONCILE): (),
    },
    (BranchWorld.AHEAD, FAST_FORWARD): {
        (write(MAIN, "append-r"), RECONCILE): (),
        (SWEEP, delete(AHEAD), RECONCILE): ("mutation.post_direct_commit",),
        (merge(AHEAD), delete(AHEAD), RECONCILE): (),
        (*_RENEWED[AHEAD], RECONCILE): (),
    },
    (BranchWorld.SIDE, FORKING): {
        (SWEEP, *_RENEWED[SIDE], RECONCILE): ("branch.post_fork",),
        (write(SIDE, "append-r"), RECONCILE): (),
        (delete(SIDE), delete(DEV), RECONCILE): (),
        (merge(DEV, SIDE), RECONCILE): (),
        (*_RENEWED[SIDE], RECONCILE): (),
        (RECONCILE,): (),
    },
    (BranchWorld.SIDE, POINTING): {
        (write(SIDE, "append-r"), RECONCILE): (),
        (*_RENEWED[SIDE], RECONCILE): ("publish.post_manifest",),
        (write(MAIN, "append-r"), RECONCILE): (),
        (SWEEP, RECONCILE): (),
        (merge(MAIN, SIDE), RECONCILE): (),
    },
    (BranchWorld.DEV, tag("t2", DEV)): {
        (delete(DEV), RECONCILE): ("retention.check",),
        (create("t2"), RECONCILE): (),
        (*_RENEWED[DEV], RECONCILE): (),
        (tag("t2", MAIN), RECONCILE): ("tag.begin",),
        (write(DEV, _AGAIN), RECONCILE): ("tag.post_put",),
    },
    (BranchWorld.DEV, read(DEV)): {
        (*_RENEWED[DEV], RECONCILE): ("read.begin",),
        (delete(DEV), RECONCILE): (),
        (write(DEV, _AGAIN),): ("read.verify",),
    },
    (BranchWorld.LEFTOVERS, RECONCILE): {
        (write(FRESH, _AGAIN),): ("cleanup.reconcile_fork",),
        (create("late", FRESH), write("late", _AGAIN), delete(FRESH)): ("reconcile.post_logs",),
        (create("revived", KEPT), untag(KEPT), write("revived", _AGAIN)): ("reconcile.post_sides",),
        (RECONCILE,): (),
        (create(DEV), write(DEV, _AGAIN)): ("reconcile.verify",),
        (tag("t3", KEPT), untag(KEPT)): (),
        (write(NEW, _AGAIN), tag("t3", NEW), delete(NEW)): ("reconcile.check",),
    },
}
SWEEP_RIVALS: Mapping[Stage, Meetings] = {
    Stage.FORKED_AND_MOVED: {
        (*_RENEWED[FRESH], RECONCILE): ("recovery.post_list",),
        (write(FRESH, "append-r"), RECONCILE): ("publish.post_manifest",),
        (SWEEP, delete(FRESH), RECONCILE): (),
        (SWEEP, write(FRESH, "append-r"), RECONCILE): (),
    },
    Stage.ONE_OF_TWO_MOVED: {
        (write(DEV, "append-r"), RECONCILE): (),
        (*_RENEWED[DEV], RECONCILE): ("recovery.post_restore",),
        (SWEEP, write(DEV, "append-r")): (),
    },
}


def branch_sleeps() -> Iterator[BranchSleep]:
    for (world, errand), meetings in RIVALS.items():
        for point in ROUTES[world, errand]:
            for rivals in meetings:
                yield BranchSleep(errand=errand, world=world, point=point, rivals=rivals)


def branch_sweep_sleeps() -> Iterator[BranchSweepSleep]:
    for stage, meetings in SWEEP_RIVALS.items():
        for point in SWEEPS[stage]:
            for rivals in meetings:
                yield BranchSweepSleep(stage=stage, point=point, rivals=rivals)


SLEEPS: Final[Matrix[BranchSleep]] = matrix(
    branch_sleeps(),
    {
        (world, errand, rivals): points
        for (world, errand), meetings in RIVALS.items()
        for rivals, points in meetings.items()
    },
    covered=POINTS,
)
SWEEP_SLEEPS: Final[Matrix[BranchSweepSleep]] = matrix(
    branch_sweep_sleeps(),
    {
        (stage, rivals): points
        for stage, meetings in SWEEP_RIVALS.items()
        for rivals, points in meetings.items()
    },
    covered=POINTS,
)


def may_fail(errand: Errand, rivals: Rivals) -> bool:
    """Whether rivals give a reason to refuse: they took the name, the branch or the writer away."""
    involved = {errand.name, errand.source}
    for rival in rivals:
        match rival.verb:
            case Verb.SWEEP:
                return errand.verb in {Verb.WRITE, Verb.MERGE}
            case Verb.DELETE if rival.name in involved:
                return True
            case Verb.CREATE | Verb.TAG if rival.name == errand.name:
                return True
            case _:
                continue
    return False
