"""Every place where a process that works with branches is killed, as data.

Invariant: per errand the points are those it reaches, in their order; a test compares them with
what is really reached.

What the gate leaves out: the steps of a write that leave on a branch what they leave on main; a
second and third table after the first; and errands that take the way of another (a branch of a
branch, a fast-forward, a merge that forks). Points where an errand has only looked at something are
one story of deaths in a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tests.crash.branch_world import (
    AHEAD,
    DEV,
    FRESH,
    KEPT,
    MAIN,
    NEW,
    RECONCILE,
    SIDE,
    Errand,
    create,
    delete,
    merge,
    read,
    tag,
    untag,
    write,
)
from tests.crash.branch_worlds import BranchWorld, Stage
from tests.crash.cases import GATE_POINTS as ON_ONE_BRANCH
from tests.crash.gate_rule import Matrix, matrix

Route = Mapping[str, tuple[int, ...]]
"""The points an errand reaches, and the visits at which it is killed there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchDeath:
    """An errand killed at one visit of one point."""

    errand: Errand
    world: BranchWorld
    point: str
    visit: int

    @property
    def group(self) -> tuple[BranchWorld, Errand]:
        return self.world, self.errand

    def __str__(self) -> str:
        return f"{self.world}-{self.errand}-{self.point}@{self.visit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchSweepDeath:
    """A sweep killed while it settles what an errand left that died at `stage`."""

    stage: Stage
    point: str
    visit: int = 1

    @property
    def group(self) -> Stage:
        return self.stage

    def __str__(self) -> str:
        return f"{self.stage}-{self.point}"


ONE_TABLE, THREE_TABLES = write(FRESH, "link-a"), write(FRESH, "delete-c0")
SECOND = write(DEV, "append-b")
FAST_FORWARD, THREE_WAY = merge(AHEAD), merge(DEV)
POINTING, FORKING = merge(MAIN, SIDE), merge(DEV, SIDE)

_READING = ("read.begin", "read.post_manifest", "read.verify")
_CREATING = (
    *_READING,
    "branch.begin",
    "branch.post_claim",
    "branch.post_manifest",
    "retention.check",
    "branch.post_parent",
    "branch.post_ready",
)
_LOOKING = (
    "reconcile.post_refs",
    "reconcile.post_logs",
    "reconcile.post_sides",
    "reconcile.post_pins",
    "reconcile.verify",
)
_STARTING = ("mutation.begin", "mutation.post_sidecar")
_STAGED = ("mutation.validate", "mutation.post_stage")
_PUBLISHING = (
    "publish.pre_manifest",
    "publish.post_manifest",
    "publish.resolve",
    "publish.resolve.list",
    "publish.resolve.verify",
    "mutation.post_sidecar_delete",
)
_ON_A_BRANCH = "branch.pre_verify"


def _once(*points: str) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(points, (1,))


def _moving(*visits: int) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(("mutation.pre_direct_commit", "mutation.post_direct_commit"), visits)


_LOOKING_TWICE = dict.fromkeys(_LOOKING, (1, 2))

ROUTES: Mapping[tuple[BranchWorld, Errand], Route] = {
    (BranchWorld.DEV, create(NEW)): _once(*_CREATING),
    (BranchWorld.DEV, create(NEW, DEV)): _once(*_CREATING),
    (BranchWorld.HALF_MADE, create(NEW)): _once(
        *_CREATING[:4], "branch.post_abandon", *_CREATING[4:]
    ),
    (BranchWorld.DEV, delete(DEV)): {
        **_once(*_READING),
        **_once("branch.pre_delete", "branch.post_delete"),
        **_LOOKING_TWICE,
        "cleanup.resolve_branch_snapshot": (1, 2),
        "reconcile.check": (1, 2),
        "cleanup.reconcile_fork": (1, 2),
        "reconcile.post_delete": (1, 2),
    },
    (BranchWorld.FRESH, ONE_TABLE): {
        **_once(*_STARTING, "branch.post_fork", *_STAGED),
        **_moving(1),
        **_once(*_PUBLISHING, _ON_A_BRANCH),
    },
    (BranchWorld.FRESH, THREE_TABLES): {
        **_once(*_STARTING),
        "branch.post_fork": (1, 2, 3),
        **_once(*_STAGED),
        **_moving(1, 2, 3),
        **_once(*_PUBLISHING, _ON_A_BRANCH),
    },
    (BranchWorld.DEV, SECOND): {
        **_once(*_STARTING, *_STAGED),
        **_moving(1, 2),
        **_once(*_PUBLISHING, _ON_A_BRANCH),
    },
    (BranchWorld.AHEAD, FAST_FORWARD): {
        **_once(*_READING, *_STARTING, "merge.staged", *_STAGED),
        **_moving(1, 2),
        **_once(*_PUBLISHING),
    },
    (BranchWorld.DEV, THREE_WAY): {
        **_once(*_READING, *_STARTING, "merge.staged", *_STAGED),
        **_moving(1, 3),
        **_once(*_PUBLISHING),
    },
    (BranchWorld.SIDE, POINTING): {
        **_once(*_READING, *_STARTING, "retention.check", "merge.staged", *_STAGED),
        **_once(*_PUBLISHING, _ON_A_BRANCH),
    },
    (BranchWorld.SIDE, FORKING): {
        **_once(*_READING, *_STARTING),
        "branch.post_fork": (1, 2),
        **_once("merge.staged", *_STAGED),
        **_moving(1, 3),
        **_once(*_PUBLISHING, _ON_A_BRANCH),
    },
    (BranchWorld.DEV, tag("t2", DEV)): _once(
        *_READING, "tag.begin", "tag.post_put", "retention.check", "tag.verify"
    ),
    (BranchWorld.HALF_MADE, tag("t2", DEV)): _once(
        *_READING,
        "tag.begin",
        "tag.post_abandon",
        "tag.post_put",
        "retention.check",
        "tag.verify",
    ),
    (BranchWorld.DEV, untag(KEPT)): {**dict.fromkeys(_READING, (1, 2)), **_once("tag.post_delete")},
    (BranchWorld.DEV, read(DEV)): _once(*_READING),
    (BranchWorld.LEFTOVERS, RECONCILE): {
        **_LOOKING_TWICE,
        "cleanup.resolve_branch_snapshot": (1, 2, 3, 4, 5, 6),
        "reconcile.check": (1, 2, 3, 4),
        "cleanup.reconcile_fork": (1, 2, 3, 4),
        "reconcile.post_delete": (1, 2, 3, 4),
    },
}

_DECIDING = (
    "recovery.post_list",
    "recovery.post_log",
    "recovery.decided.list",
    "recovery.decided.verify",
    "recovery.post_classify",
    "recovery.pre_manifest",
    "publish.post_manifest",
    "recovery.decided",
)
_ENDING = ("recovery.healed", "recovery.post_sidecar_delete")
_FORWARD = (*_DECIDING, "recovery.post_rollforward", *_ENDING)
_BACK = (*_DECIDING, "recovery.post_fence", *_ENDING)
_RESTORING = (
    "recovery.pre_restore",
    "recovery.post_restore",
    "recovery.pre_restore_publish",
    "recovery.post_restore_publish",
)
SWEEPS: Mapping[Stage, tuple[str, ...]] = {
    Stage.FORKED: (*_BACK, "recovery.post_drop"),
    Stage.FORKED_AND_MOVED: _FORWARD,
    Stage.ONE_OF_TWO_MOVED: (*_BACK, *_RESTORING),
    Stage.POINTING: _FORWARD,
    Stage.BRANCH_GONE: ("recovery.post_list", "recovery.post_log", *_ENDING),
}


def branch_deaths() -> Iterator[BranchDeath]:
    for (world, errand), route in ROUTES.items():
        for point, visits in route.items():
            for visit in visits:
                yield BranchDeath(errand=errand, world=world, point=point, visit=visit)


def branch_sweep_deaths() -> Iterator[BranchSweepDeath]:
    for stage, points in SWEEPS.items():
        for point in points:
            yield BranchSweepDeath(stage=stage, point=point)


LOOKS: Final[Mapping[BranchWorld, tuple[tuple[Errand, str], ...]]] = {
    BranchWorld.DEV: (
        *((create(NEW), point) for point in (*_READING, "branch.begin")),
        (tag("t2", DEV), "tag.begin"),
    ),
    BranchWorld.LEFTOVERS: tuple(
        (RECONCILE, point)
        for point in (
            *_LOOKING,
            "cleanup.resolve_branch_snapshot",
            "reconcile.check",
            "cleanup.reconcile_fork",
        )
    ),
}
"""Errands, and where they have looked at something and changed nothing that others see."""
_LOOKED_AT = frozenset(point for errands in LOOKS.values() for _, point in errands)

DEATHS: Final[Matrix[BranchDeath]] = matrix(
    branch_deaths(),
    {
        (BranchWorld.DEV, create(NEW, DEV)): ("branch.post_manifest",),
        # A dead attempt was given up, and the name is claimed again.
        (BranchWorld.HALF_MADE, create(NEW)): ("branch.post_claim",),
        (BranchWorld.HALF_MADE, tag("t2", DEV)): ("tag.post_put",),
        (BranchWorld.DEV, delete(DEV)): ("reconcile.post_delete@2",),
        (BranchWorld.LEFTOVERS, RECONCILE): ("reconcile.post_delete@3",),
        (BranchWorld.FRESH, ONE_TABLE): (
            "mutation.post_sidecar",
            "mutation.post_stage",
            "mutation.post_direct_commit",
            "publish.post_manifest",
        ),
        # Some of its tables are forked, some of the forks have moved.
        (BranchWorld.FRESH, THREE_TABLES): ("branch.post_fork@2", "mutation.post_direct_commit"),
        (BranchWorld.DEV, SECOND): ("mutation.post_direct_commit", "publish.post_manifest"),
        (BranchWorld.DEV, THREE_WAY): ("mutation.post_direct_commit", "publish.pre_manifest"),
        (BranchWorld.SIDE, POINTING): ("mutation.post_stage",),
        (BranchWorld.SIDE, FORKING): ("mutation.post_direct_commit",),
    },
    covered=ON_ONE_BRANCH | _LOOKED_AT,
)
SWEEP_DEATHS: Final[Matrix[BranchSweepDeath]] = matrix(
    branch_sweep_deaths(),
    {
        Stage.FORKED: ("publish.post_manifest", "recovery.post_drop"),
        Stage.FORKED_AND_MOVED: ("publish.post_manifest",),
        Stage.ONE_OF_TWO_MOVED: ("recovery.post_restore", "recovery.post_restore_publish"),
        Stage.POINTING: ("publish.post_manifest",),
        Stage.BRANCH_GONE: ("recovery.healed",),
    },
    covered=ON_ONE_BRANCH,
)
GATE_POINTS: Final = ON_ONE_BRANCH | _LOOKED_AT | DEATHS.gate_points | SWEEP_DEATHS.gate_points
"""Where processes are killed in the gate, on one branch or on several."""
