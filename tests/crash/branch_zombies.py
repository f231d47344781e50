"""Where processes that work with branches stand still, and what others do meanwhile, as data.

Invariant: every point of an errand meets every rival; the fast tier takes each point once, with
another rival each time, and of merges and sweeps only those where they differ from others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tests.crash.branch_cases import (
    COUSINS,
    FAST_FORWARD,
    FORKING,
    NOTHING_WRITTEN_BEFORE,
    ONE_TABLE,
    POINTING,
    ROUTES,
    SWEEPS,
    THREE_WAY,
    WHERE_COUSINS_DIFFER,
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

Rivals = tuple[Errand, ...]

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

    def __str__(self) -> str:
        return f"{self.errand}-{self.point}-{'-'.join(map(str, self.rivals))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchSweepSleep:
    """A sweep of what a dead writer left that stands still while rivals run their errands."""

    stage: Stage
    point: str
    rivals: Rivals

    def __str__(self) -> str:
        return f"{self.stage}-{self.point}-{'-'.join(map(str, self.rivals))}"


RIVALS: Mapping[tuple[BranchWorld, Errand], tuple[Rivals, ...]] = {
    (BranchWorld.DEV, create(NEW, DEV)): (
        (create(NEW), write(NEW, _AGAIN)),
        (delete(DEV), RECONCILE),
        (create(NEW), write(NEW, _AGAIN), delete(NEW), RECONCILE),
        (write(DEV, _AGAIN), RECONCILE),
        (*_RENEWED[DEV], RECONCILE),
        (tag(NEW, MAIN), RECONCILE),
    ),
    (BranchWorld.DEV, delete(DEV)): (
        (*_RENEWED[DEV], RECONCILE),
        (write(DEV, _AGAIN), merge(DEV)),
        (create(NEW, DEV), write(NEW, _AGAIN), RECONCILE),
        (tag("t2", DEV), RECONCILE),
        (write(DEV, _AGAIN), RECONCILE),
        (delete(DEV), create(DEV), merge(MAIN, DEV)),
    ),
    (BranchWorld.FRESH, ONE_TABLE): (
        (SWEEP, *_RENEWED[FRESH], RECONCILE),
        (write(FRESH, _AGAIN), RECONCILE),
        (delete(FRESH), RECONCILE),
        (*_RENEWED[FRESH], RECONCILE),
        (SWEEP, RECONCILE),
        (merge(FRESH), delete(FRESH), RECONCILE),
        (create(NEW, FRESH), RECONCILE, write(NEW, _AGAIN)),
        (SWEEP, write(FRESH, _AGAIN), RECONCILE),
        (RECONCILE,),
        (tag("t2", FRESH), delete(FRESH), RECONCILE),
        (write(FRESH, _AGAIN), folding(FRESH), RECONCILE),
        (SWEEP, folding(FRESH), delete(FRESH), create(FRESH), folding(MAIN)),
    ),
    (BranchWorld.DEV, THREE_WAY): (
        (SWEEP, delete(DEV), RECONCILE),
        (merge(DEV), RECONCILE),
        (*_RENEWED[DEV], RECONCILE),
        (write(MAIN, "append-r"), RECONCILE),
        (write(DEV, _AGAIN), folding(DEV), delete(DEV), RECONCILE),
        (SWEEP, write(MAIN, "append-r"), folding(MAIN), RECONCILE),
    ),
    (BranchWorld.AHEAD, FAST_FORWARD): (
        (write(MAIN, "append-r"), RECONCILE),
        (SWEEP, delete(AHEAD), RECONCILE),
        (merge(AHEAD), delete(AHEAD), RECONCILE),
        (*_RENEWED[AHEAD], RECONCILE),
    ),
    (BranchWorld.SIDE, FORKING): (
        (SWEEP, *_RENEWED[SIDE], RECONCILE),
        (write(SIDE, "append-r"), RECONCILE),
        (delete(SIDE), delete(DEV), RECONCILE),
        (merge(DEV, SIDE), RECONCILE),
        (*_RENEWED[SIDE], RECONCILE),
        (RECONCILE,),
    ),
    (BranchWorld.SIDE, POINTING): (
        (write(SIDE, "append-r"), RECONCILE),
        (*_RENEWED[SIDE], RECONCILE),
        (write(MAIN, "append-r"), RECONCILE),
        (SWEEP, RECONCILE),
        (merge(MAIN, SIDE), RECONCILE),
    ),
    (BranchWorld.DEV, tag("t2", DEV)): (
        (delete(DEV), RECONCILE),
        (create("t2"), RECONCILE),
        (*_RENEWED[DEV], RECONCILE),
        (tag("t2", MAIN), RECONCILE),
        (write(DEV, _AGAIN), RECONCILE),
    ),
    (BranchWorld.DEV, read(DEV)): (
        (*_RENEWED[DEV], RECONCILE),
        (delete(DEV), RECONCILE),
        (write(DEV, _AGAIN),),
    ),
    (BranchWorld.LEFTOVERS, RECONCILE): (
        (write(FRESH, _AGAIN),),
        (create("late", FRESH), write("late", _AGAIN), delete(FRESH)),
        (create("revived", KEPT), untag(KEPT), write("revived", _AGAIN)),
        (RECONCILE,),
        (create(DEV), write(DEV, _AGAIN)),
        (tag("t3", KEPT), untag(KEPT)),
        (write(NEW, _AGAIN), tag("t3", NEW), delete(NEW)),
    ),
}
SWEEP_RIVALS: Mapping[Stage, tuple[Rivals, ...]] = {
    Stage.FORKED_AND_MOVED: (
        (*_RENEWED[FRESH], RECONCILE),
        (write(FRESH, "append-r"), RECONCILE),
        (SWEEP, delete(FRESH), RECONCILE),
        (SWEEP, write(FRESH, "append-r"), RECONCILE),
    ),
    Stage.ONE_OF_TWO_MOVED: (
        (write(DEV, "append-r"), RECONCILE),
        (*_RENEWED[DEV], RECONCILE),
        (SWEEP, write(DEV, "append-r")),
    ),
}


def branch_sleeps() -> Iterator[tuple[BranchSleep, bool]]:
    """Every case, and whether the fast tier leaves it out."""
    for (world, errand), all_rivals in RIVALS.items():
        route = ROUTES[world, errand]
        chosen = set(route)
        if errand.verb is Verb.MERGE:
            chosen -= NOTHING_WRITTEN_BEFORE
        if (world, errand) in COUSINS:
            chosen &= WHERE_COUSINS_DIFFER
        for point, rivals, is_fast in _met(route, all_rivals, chosen):
            sleep = BranchSleep(errand=errand, world=world, point=point, rivals=rivals)
            yield sleep, not is_fast


def branch_sweep_sleeps() -> Iterator[tuple[BranchSweepSleep, bool]]:
    for stage, all_rivals in SWEEP_RIVALS.items():
        chosen = set(SWEEPS[stage]) - NOTHING_WRITTEN_BEFORE
        for point, rivals, is_fast in _met(SWEEPS[stage], all_rivals, chosen):
            yield BranchSweepSleep(stage=stage, point=point, rivals=rivals), not is_fast


def _met(
    points: Iterable[str], all_rivals: tuple[Rivals, ...], chosen: Collection[str]
) -> Iterator[tuple[str, Rivals, bool]]:
    """Every point with all rivals; the chosen ones are fast with one of them, in turn."""
    turn = 0
    for point in points:
        for number, rivals in enumerate(all_rivals):
            yield point, rivals, point in chosen and turn % len(all_rivals) == number
        turn += point in chosen


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
