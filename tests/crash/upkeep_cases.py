"""Where processes that keep house are killed or stand still, and what others do meanwhile, as data.

Invariant: per step the points are those it reaches; a test compares them with what is really
reached. Every point meets every rival; the fast tier takes few, each with another rival.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.crash.branch_world import DEV, MAIN, NEW, SWEEP, create, delete, merge, tag, untag, write
from tests.crash.upkeep_world import FIRST, KEPT, OLD, STALE, Step, Upkeep
from tests.crash.upkeep_worlds import UpkeepWorld

Route = Mapping[str, tuple[int, ...]]
"""The points that are reached, and the visits at which somebody is killed there."""
Rivals = tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepDeath:
    """Upkeep killed at one visit of one point."""

    upkeep: Upkeep
    world: UpkeepWorld
    point: str
    visit: int

    def __str__(self) -> str:
        return f"{self.world}-{self.upkeep}-{self.point}@{self.visit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LateDeath:
    """Upkeep that stands still at `stop` while rivals act, goes on, and is killed."""

    stop: str
    rivals: Rivals
    point: str

    def __str__(self) -> str:
        return f"{_spelt(self.rivals)}-at-{self.stop}-{self.point}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleep:
    """Whoever takes `step` stands still at a point while rivals take theirs, one after another."""

    world: UpkeepWorld
    step: Step
    point: str
    visit: int
    rivals: Rivals

    def __str__(self) -> str:
        return f"{self.step}-{self.point}@{self.visit}-{_spelt(self.rivals)}"


def _once(*points: str) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(points, (1,))


def _twice(*points: str) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(points, (1, 2))


_FOLDING = ("fold.post_read", "fold.post_history", "fold.pre_drop", "fold.post_drop")
_OPTIMIZING: Route = {
    **_twice("mutation.begin", "mutation.validate"),
    **dict.fromkeys(("mutation.post_sidecar", "mutation.post_stage"), (1, 2, 3)),
    **dict.fromkeys(("mutation.pre_direct_commit", "mutation.post_direct_commit"), (1, 2, 3)),
    **dict.fromkeys(("optimize.pre_reserve", "mutation.post_table_commit"), (1, 2, 3)),
    **_once("optimize.post_phase_b_pre_manifest_commit"),
    **dict.fromkeys(("publish.pre_manifest", "publish.post_manifest"), (1, 2, 3)),
    **dict.fromkeys(("publish.resolve", "publish.resolve.list", "publish.resolve.verify"), (2, 4)),
    "mutation.post_sidecar_delete": (1, 2, 3),
    **_once(*_FOLDING, "manifest.post_clean"),
}
_CLEANING: Route = {
    **_twice("reconcile.post_refs", "reconcile.post_logs", "reconcile.post_sides"),
    "cleanup.resolve_branch_snapshot": (1, 6),
    **_twice("reconcile.post_pins", "reconcile.verify"),
    "reconcile.check": (1, 4),
    "cleanup.reconcile_fork": (1, 4),
    "reconcile.post_delete": (1, 2, 4),
    **_twice("retention.post_logs", "cleanup.post_sides", "cleanup.post_pins"),
    **_twice("retention.post_tags", "retention.verify"),
    **_once("cleanup.post_list", "retention.post_floor"),
    "cleanup.table_gc": (1, 3, 6),
    "cleanup.post_delete": (1, 2, 4),
    **_once("manifest.post_clean"),
}
_CLEANING_TO_ONE: Route = {**_CLEANING, "cleanup.post_delete": (1, 4, 8)}
_REPAIRING: Route = _once(
    "read.begin",
    "read.post_manifest",
    "read.verify",
    "mutation.begin",
    "mutation.post_sidecar",
    "mutation.validate",
    "mutation.post_stage",
    "publish.pre_manifest",
    "publish.post_manifest",
    "publish.resolve",
    "publish.resolve.list",
    "publish.resolve.verify",
    "mutation.post_sidecar_delete",
)
ROUTES: Mapping[tuple[UpkeepWorld, Upkeep], Route] = {
    (UpkeepWorld.UNKEPT, Upkeep.OPTIMIZE): _OPTIMIZING,
    (UpkeepWorld.KEPT, Upkeep.CLEANUP): _CLEANING,
    (UpkeepWorld.KEPT, Upkeep.CLEANUP_TO_ONE): _CLEANING_TO_ONE,
    (UpkeepWorld.FOREIGN, Upkeep.REPAIR): _REPAIRING,
}

_WRITES: Rivals = (write(MAIN, "append-r"), write(MAIN, "delete-c0"), write(MAIN, "merge-r"))
OPTIMIZE_RIVALS: tuple[Rivals, ...] = (
    _WRITES,
    (SWEEP,),
    (SWEEP, *_WRITES),
    (Upkeep.OPTIMIZE,),
    (SWEEP, Upkeep.OPTIMIZE, Upkeep.CLEANUP),
    (write(MAIN, "link-r"), Upkeep.CLEANUP),
    (SWEEP, write(MAIN, "append-r"), Upkeep.OPTIMIZE, Upkeep.CLEANUP_TO_ONE),
    (*_WRITES, Upkeep.OPTIMIZE, Upkeep.CLEANUP_TO_ONE),
    (merge(DEV), write(STALE, "append-s"), Upkeep.OPTIMIZE),
)
CLEANUP_RIVALS: tuple[Rivals, ...] = (
    (create(NEW, OLD),),
    (tag("t2", OLD),),
    (create(NEW, FIRST), untag(FIRST), delete(STALE)),
    (create(NEW, KEPT), untag(KEPT), write(NEW, "append-n")),
    (tag("t2", OLD), create(NEW, "t2"), untag("t2")),
    (untag(KEPT), untag(FIRST), delete(STALE), delete(DEV)),
    (tag("t2", STALE), delete(STALE), untag(FIRST)),
    (write(STALE, "append-s"), write(DEV, "delete-c0")),
    (merge(DEV), write(MAIN, "append-r")),
    (Upkeep.CLEANUP_TO_ONE, tag("t2", OLD), create(NEW, OLD)),
    (write(MAIN, "append-r"), Upkeep.OPTIMIZE, Upkeep.CLEANUP_TO_ONE),
    (create("gone"), write("gone", "append-g")),
)
_TIDY_UP: tuple[Rivals, ...] = (
    (Upkeep.CLEANUP_TO_ONE,),
    (untag(FIRST), delete(STALE), Upkeep.CLEANUP_TO_ONE),
    (write(MAIN, "append-r"), Upkeep.OPTIMIZE, Upkeep.CLEANUP_TO_ONE, Upkeep.CLEANUP_TO_ONE),
)
_CREATING = (
    "branch.begin",
    "branch.post_claim",
    "branch.post_manifest",
    "retention.check",
    "branch.post_parent",
    "branch.post_ready",
)
_TAGGING = ("tag.begin", "tag.post_put", "retention.check", "tag.verify")
_WRITING = (
    "mutation.begin",
    "mutation.post_sidecar",
    "mutation.validate",
    "mutation.post_stage",
    "mutation.pre_direct_commit",
    "mutation.post_direct_commit",
    "publish.pre_manifest",
    "publish.post_manifest",
)
BESIDE_CLEANUP: Mapping[Step, tuple[str, ...]] = {
    create(NEW, OLD): _CREATING,
    create(NEW, FIRST): _CREATING,
    create(NEW, KEPT): _CREATING,
    tag("t2", OLD): _TAGGING,
    tag("t2", FIRST): _TAGGING,
    write(STALE, "append-s"): (*_WRITING, "branch.post_fork"),
    write(MAIN, "delete-c0"): _WRITING,
    merge(DEV): (*_WRITING, "merge.staged"),
}
_CLAIMED = frozenset({"branch.post_claim", "tag.post_put", "publish.pre_manifest"})
_RESTORING = (
    "publish.pre_abort",
    "recovery.pre_restore",
    "recovery.post_restore",
    "recovery.pre_restore_publish",
    "recovery.post_restore_publish",
)


def upkeep_deaths(*wanted: Upkeep) -> Iterator[UpkeepDeath]:
    for (world, upkeep), route in ROUTES.items():
        for point, visits in route.items() if upkeep in wanted else ():
            for visit in visits:
                yield UpkeepDeath(upkeep=upkeep, world=world, point=point, visit=visit)


def late_deaths() -> Iterator[LateDeath]:
    """Of an optimize whose tables somebody else has moved: it has to put back what it did."""
    for rivals in (_WRITES, (SWEEP,), (SWEEP, *_WRITES)):
        for point in ("optimize.post_phase_b_pre_manifest_commit", *_RESTORING):
            if point == "publish.pre_abort" and SWEEP in rivals:
                continue
            yield LateDeath(stop="optimize.pre_reserve", rivals=rivals, point=point)


def optimize_sleeps() -> Iterator[tuple[Sleep, bool]]:
    """Every case, and whether the fast tier leaves it out."""
    route = [(point, visit) for point, visits in _OPTIMIZING.items() for visit in visits]
    chosen = route[::5]
    yield from _met(UpkeepWorld.UNKEPT, Upkeep.OPTIMIZE, route, OPTIMIZE_RIVALS, chosen)


def cleanup_sleeps() -> Iterator[tuple[Sleep, bool]]:
    route = [(point, visit) for point, visits in _CLEANING_TO_ONE.items() for visit in visits]
    chosen = route[::5]
    yield from _met(UpkeepWorld.KEPT, Upkeep.CLEANUP_TO_ONE, route, CLEANUP_RIVALS, chosen)


def sleeps_beside_cleanup() -> Iterator[tuple[Sleep, bool]]:
    for step, points in BESIDE_CLEANUP.items():
        route = [(point, 1) for point in points]
        chosen = [(point, 1) for point in points if point in _CLAIMED]
        yield from _met(UpkeepWorld.UNKEPT, step, route, _TIDY_UP, chosen)


def _met(
    world: UpkeepWorld,
    step: Step,
    route: Collection[tuple[str, int]],
    all_rivals: tuple[Rivals, ...],
    chosen: Sequence[tuple[str, int]],
) -> Iterator[tuple[Sleep, bool]]:
    """Every point with all rivals; the chosen ones are fast with one of them, in turn."""
    for place in route:
        point, visit = place
        turn = chosen.index(place) % len(all_rivals) if place in chosen else None
        for number, rivals in enumerate(all_rivals):
            sleep = Sleep(world=world, step=step, point=point, visit=visit, rivals=rivals)
            yield sleep, turn != number


def _spelt(rivals: Rivals) -> str:
    return "-".join(map(str, rivals))
