"""Every place where a process that works with branches is killed, as data.

Invariant: per errand the points are those it reaches, in their order; a test compares them with
what is really reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

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
    def kind(self) -> object:
        return self.world, self.errand

    def __str__(self) -> str:
        return f"{self.world}-{self.errand}-{self.point}@{self.visit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchSweepDeath:
    """A sweep killed while it settles what an errand left that died at `stage`."""

    stage: Stage
    point: str

    @property
    def kind(self) -> object:
        return self.stage

    def __str__(self) -> str:
        return f"{self.stage}-{self.point}"


Case = TypeVar("Case", BranchDeath, BranchSweepDeath)

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


COUSINS: frozenset[object] = frozenset(
    {
        (BranchWorld.DEV, create(NEW, DEV)),
        (BranchWorld.HALF_MADE, create(NEW)),
        (BranchWorld.FRESH, THREE_TABLES),
        (BranchWorld.DEV, SECOND),
        (BranchWorld.AHEAD, FAST_FORWARD),
        (BranchWorld.SIDE, POINTING),
        (BranchWorld.SIDE, FORKING),
        Stage.FORKED,
        Stage.POINTING,
    }
)
"""Errands, and states before a sweep, that go a way which others go too."""
WHERE_COUSINS_DIFFER = frozenset(
    {
        "branch.post_claim",
        "branch.post_manifest",
        "branch.post_fork",
        "mutation.post_stage",
        "mutation.post_direct_commit",
        "publish.post_manifest",
        "recovery.healed",
    }
)

_LOOKING_TWICE = dict.fromkeys(_LOOKING, (1, 2))

ROUTES: Mapping[tuple[BranchWorld, Errand], Route] = {
    (BranchWorld.DEV, create(NEW)): _once(*_CREATING),
    (BranchWorld.DEV, create(NEW, DEV)): _once(*_CREATING),
    (BranchWorld.HALF_MADE, create(NEW)): _once(
        *_CREATING[:4], "branch.post_abandon", *_CREATING[4:]
    ),
    (BranchWorld.DEV, delete(DEV)): {
        **_once(*_READING, "branch.pre_delete", "branch.post_delete"),
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
    (BranchWorld.DEV, untag(KEPT)): _once("tag.post_delete"),
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
    Stage.FORKED: _BACK,
    Stage.FORKED_AND_MOVED: _FORWARD,
    Stage.ONE_OF_TWO_MOVED: (*_BACK, *_RESTORING),
    Stage.POINTING: _FORWARD,
    Stage.BRANCH_GONE: ("recovery.post_list", "recovery.post_log", *_ENDING),
}


NOTHING_WRITTEN_BEFORE = frozenset(
    {
        *_READING[1:],
        "branch.begin",
        "branch.post_parent",
        *_LOOKING,
        "reconcile.check",
        "cleanup.reconcile_fork",
        "cleanup.resolve_branch_snapshot",
        "mutation.begin",
        "merge.staged",
        "mutation.pre_direct_commit",
        "publish.pre_manifest",
        "publish.resolve",
        "publish.resolve.list",
        "publish.resolve.verify",
        "branch.pre_verify",
        "tag.begin",
        "retention.check",
        "recovery.post_log",
        "recovery.decided.list",
        "recovery.decided.verify",
        "recovery.post_classify",
        "recovery.pre_manifest",
        "recovery.decided",
        "recovery.post_rollforward",
        "recovery.post_fence",
        "recovery.pre_restore",
        "recovery.pre_restore_publish",
    }
)
"""Points that are reached with nothing written since the point before them."""


def branch_deaths() -> Iterator[BranchDeath]:
    for (world, errand), route in ROUTES.items():
        for point, visits in route.items():
            for visit in visits:
                yield BranchDeath(errand=errand, world=world, point=point, visit=visit)


def branch_sweep_deaths() -> Iterator[BranchSweepDeath]:
    for stage, points in SWEEPS.items():
        for point in points:
            yield BranchSweepDeath(stage=stage, point=point)


def repeats(cases: Iterable[Case]) -> Iterator[tuple[Case, bool]]:
    """Each case, and whether others before it are killed at much the same: for the slow tier.

    The first death at each point is new. So is one that leaves on disk what no death before it on
    its way does; of errands that go a way others have gone, only deaths where they differ.
    """
    seen: set[str] = set()
    for case in cases:
        repeated = case.point in NOTHING_WRITTEN_BEFORE or (
            case.kind in COUSINS and case.point not in WHERE_COUSINS_DIFFER
        )
        yield case, repeated and case.point in seen
        seen.add(case.point)
