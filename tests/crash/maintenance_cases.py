"""Where processes that keep house are killed or stand still, and what others do meanwhile, as data.

Invariant: per step the points are those it reaches; a test compares them with what is really
reached. Every point meets every rival, in the nightly.

What the gate leaves out of deaths: the steps of an index build, a repair and a publish that leave
what a write leaves, and the second and third table after the first. What it leaves out of sleeps:
all but those where a decision is due that nothing else in the gate is about (a compaction is put
back, is swept, meets another one; names come and go while a cleanup looks, and while it removes).
Whoever claims an old commit beside a cleanup is in the gate with the guards that protect it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from omnigraph_lake.failpoints import POINTS
from tests.crash.branch_cases import GATE_POINTS as WITHOUT_MAINTENANCE
from tests.crash.branch_world import DEV, MAIN, NEW, SWEEP, create, delete, merge, tag, untag, write
from tests.crash.gate_rule import Matrix, matrix
from tests.crash.maintenance_world import FIRST, KEPT, OLD, STALE, Maintenance, Step
from tests.crash.maintenance_worlds import MaintenanceWorld

Route = Mapping[str, tuple[int, ...]]
"""The points that are reached, and the visits at which somebody is killed there."""
Rivals = tuple[Step, ...]
Meetings = Mapping[Rivals, tuple[str, ...]]
"""What others may do, and where somebody stands still meanwhile in the gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceDeath:
    """Maintenance killed at one visit of one point."""

    maintenance: Maintenance
    world: MaintenanceWorld
    point: str
    visit: int

    @property
    def group(self) -> Maintenance:
        return self.maintenance

    def __str__(self) -> str:
        return f"{self.world}-{self.maintenance}-{self.point}@{self.visit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LateDeath:
    """Maintenance that stands still at `stop` while rivals act, goes on, and is killed."""

    stop: str
    rivals: Rivals
    point: str
    visit: int = 1

    @property
    def group(self) -> Rivals:
        return self.rivals

    def __str__(self) -> str:
        return f"{_spelt(self.rivals)}-at-{self.stop}-{self.point}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleep:
    """Whoever takes `step` stands still at a point while rivals take theirs, one after another."""

    world: MaintenanceWorld
    step: Step
    point: str
    visit: int
    rivals: Rivals

    @property
    def group(self) -> tuple[Step, Rivals]:
        return self.step, self.rivals

    def __str__(self) -> str:
        return f"{self.step}-{self.point}@{self.visit}-{_spelt(self.rivals)}"


def _once(*points: str) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(points, (1,))


def _twice(*points: str) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(points, (1, 2))


_FOLDING = ("fold.post_read", "fold.post_history", "fold.pre_drop", "fold.post_drop")
_OPTIMIZING: Route = {
    **_twice("read.begin", "read.post_manifest", "read.verify"),
    **_twice("mutation.begin", "mutation.validate"),
    **dict.fromkeys(("mutation.post_sidecar", "mutation.post_stage"), (1, 2, 3)),
    **dict.fromkeys(("mutation.pre_direct_commit", "mutation.post_direct_commit"), (1, 2, 3, 4)),
    **dict.fromkeys(("optimize.pre_reserve", "mutation.post_table_commit"), (1, 2, 3)),
    **_once("optimize.post_phase_b_pre_manifest_commit"),
    **dict.fromkeys(("publish.pre_manifest", "publish.post_manifest"), (1, 2, 3)),
    **dict.fromkeys(("publish.resolve", "publish.resolve.list", "publish.resolve.verify"), (2, 4)),
    "mutation.post_sidecar_delete": (1, 2, 3),
    **_once(*_FOLDING, "manifest.post_clean"),
}
_CLEANING: Route = {
    **_once("read.begin", "read.post_manifest", "read.verify"),
    **_twice("reconcile.post_refs", "reconcile.post_logs", "reconcile.post_sides"),
    "cleanup.resolve_branch_snapshot": (1, 6),
    **_twice("reconcile.post_pins", "reconcile.verify"),
    "reconcile.check": (1, 4),
    "cleanup.reconcile_fork": (1, 4),
    "reconcile.post_delete": (1, 2, 4),
    **_twice("retention.post_logs", "cleanup.post_sides", "cleanup.post_pins"),
    **_twice("retention.post_tags", "retention.post_holds", "retention.verify"),
    **_once("cleanup.post_list", "retention.post_floor"),
    "cleanup.table_gc": (1, 3, 6),
    "cleanup.post_delete": (1, 2, 4),
    **_once("manifest.post_clean"),
}
_CLEANING_TO_ONE: Route = {**_CLEANING, "cleanup.post_delete": (1, 4, 8)}
LOOKS_OF_CLEANUP: Final = (
    "retention.post_logs",
    "cleanup.post_sides",
    "cleanup.post_pins",
    "retention.post_tags",
    "retention.post_holds",
    "retention.verify",
    "cleanup.post_list",
    "cleanup.table_gc",
)
"""Where a cleanup has looked at something and removed no version yet."""
_REPAIRING: Route = {
    **_twice("read.begin", "read.post_manifest", "read.verify"),
    **_once("mutation.begin", "mutation.post_sidecar", "mutation.validate", "mutation.post_stage"),
    **_once("publish.pre_manifest", "publish.post_manifest", "publish.resolve"),
    **_once("publish.resolve.list", "publish.resolve.verify", "mutation.post_sidecar_delete"),
}
ROUTES: Mapping[tuple[MaintenanceWorld, Maintenance], Route] = {
    (MaintenanceWorld.UNKEPT, Maintenance.OPTIMIZE): _OPTIMIZING,
    (MaintenanceWorld.KEPT, Maintenance.CLEANUP): _CLEANING,
    (MaintenanceWorld.KEPT, Maintenance.CLEANUP_TO_ONE): _CLEANING_TO_ONE,
    (MaintenanceWorld.FOREIGN, Maintenance.REPAIR): _REPAIRING,
}

_WRITES: Rivals = (write(MAIN, "append-r"), write(MAIN, "delete-c0"), write(MAIN, "merge-r"))
OPTIMIZE_RIVALS: Meetings = {
    _WRITES: ("optimize.post_phase_b_pre_manifest_commit",),
    (SWEEP,): (),
    (SWEEP, *_WRITES): (),
    (Maintenance.OPTIMIZE,): (),
    (SWEEP, Maintenance.OPTIMIZE, Maintenance.CLEANUP): ("publish.pre_manifest@2",),
    (write(MAIN, "link-r"), Maintenance.CLEANUP): (),
    (SWEEP, write(MAIN, "append-r"), Maintenance.OPTIMIZE, Maintenance.CLEANUP_TO_ONE): (),
    (*_WRITES, Maintenance.OPTIMIZE, Maintenance.CLEANUP_TO_ONE): (),
    (merge(DEV), write(STALE, "append-s"), Maintenance.OPTIMIZE): (),
}
CLEANUP_RIVALS: Meetings = {
    (create(NEW, OLD),): (),
    (tag("t2", OLD),): (),
    (create(NEW, FIRST), untag(FIRST), delete(STALE)): (),
    (create(NEW, KEPT), untag(KEPT), write(NEW, "append-n")): ("cleanup.post_pins@2",),
    (tag("t2", OLD), create(NEW, "t2"), untag("t2")): (),
    (untag(KEPT), untag(FIRST), delete(STALE), delete(DEV)): (),
    (tag("t2", STALE), delete(STALE), untag(FIRST)): (),
    (write(STALE, "append-s"), write(DEV, "delete-c0")): (),
    (merge(DEV), write(MAIN, "append-r")): (),
    (Maintenance.CLEANUP_TO_ONE, tag("t2", OLD), create(NEW, OLD)): (),
    (write(MAIN, "append-r"), Maintenance.OPTIMIZE, Maintenance.CLEANUP_TO_ONE): (
        "cleanup.post_delete",
    ),
    (create("gone"), write("gone", "append-g")): (),
}
_TIDY_UP: tuple[Rivals, ...] = (
    (Maintenance.CLEANUP_TO_ONE,),
    (untag(FIRST), delete(STALE), Maintenance.CLEANUP_TO_ONE),
    (
        write(MAIN, "append-r"),
        Maintenance.OPTIMIZE,
        Maintenance.CLEANUP_TO_ONE,
        Maintenance.CLEANUP_TO_ONE,
    ),
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
_RESTORING = (
    "publish.pre_abort",
    "recovery.pre_restore",
    "recovery.post_restore",
    "recovery.pre_restore_publish",
    "recovery.post_restore_publish",
)


def maintenance_deaths(*wanted: Maintenance) -> Iterator[MaintenanceDeath]:
    for (world, maintenance), route in ROUTES.items():
        for point, visits in route.items() if maintenance in wanted else ():
            for visit in visits:
                yield MaintenanceDeath(
                    maintenance=maintenance, world=world, point=point, visit=visit
                )


def late_deaths() -> Iterator[LateDeath]:
    """Of an optimize whose tables somebody else has moved: it has to put back what it did."""
    for rivals in (_WRITES, (SWEEP,), (SWEEP, *_WRITES)):
        for point in ("optimize.post_phase_b_pre_manifest_commit", *_RESTORING):
            if point == "publish.pre_abort" and SWEEP in rivals:
                continue
            yield LateDeath(stop="optimize.pre_reserve", rivals=rivals, point=point)


def optimize_sleeps() -> Iterator[Sleep]:
    return _met(MaintenanceWorld.UNKEPT, Maintenance.OPTIMIZE, _OPTIMIZING, tuple(OPTIMIZE_RIVALS))


def cleanup_sleeps() -> Iterator[Sleep]:
    return _met(
        MaintenanceWorld.KEPT, Maintenance.CLEANUP_TO_ONE, _CLEANING_TO_ONE, tuple(CLEANUP_RIVALS)
    )


def sleeps_beside_cleanup() -> Iterator[Sleep]:
    for step, points in BESIDE_CLEANUP.items():
        yield from _met(MaintenanceWorld.UNKEPT, step, _once(*points), _TIDY_UP)


def _met(
    world: MaintenanceWorld, step: Step, route: Route, all_rivals: tuple[Rivals, ...]
) -> Iterator[Sleep]:
    for point, visits in route.items():
        for visit in visits:
            for rivals in all_rivals:
                yield Sleep(world=world, step=step, point=point, visit=visit, rivals=rivals)


def _spelt(rivals: Rivals) -> str:
    return "-".join(map(str, rivals))


OPTIMIZE_DEATHS: Final[Matrix[MaintenanceDeath]] = matrix(
    maintenance_deaths(Maintenance.OPTIMIZE),
    {
        Maintenance.OPTIMIZE: (
            "mutation.post_direct_commit@2",
            "mutation.post_table_commit",
        )
    },
    covered=WITHOUT_MAINTENANCE,
)
REPAIR_DEATHS: Final[Matrix[MaintenanceDeath]] = matrix(
    maintenance_deaths(Maintenance.REPAIR),
    {Maintenance.REPAIR: ("mutation.post_stage",)},
    covered=WITHOUT_MAINTENANCE,
)
LATE_DEATHS: Final[Matrix[LateDeath]] = matrix(
    late_deaths(), {_WRITES: ("recovery.post_restore",)}, covered=POINTS
)
CLEANUP_DEATHS: Final[Matrix[MaintenanceDeath]] = matrix(
    (*maintenance_deaths(Maintenance.CLEANUP_TO_ONE), *maintenance_deaths(Maintenance.CLEANUP)),
    {},
    covered=WITHOUT_MAINTENANCE.union(LOOKS_OF_CLEANUP),
)
OPTIMIZE_SLEEPS: Final[Matrix[Sleep]] = matrix(
    optimize_sleeps(),
    {(Maintenance.OPTIMIZE, rivals): places for rivals, places in OPTIMIZE_RIVALS.items()},
    covered=POINTS,
)
CLEANUP_SLEEPS: Final[Matrix[Sleep]] = matrix(
    cleanup_sleeps(),
    {(Maintenance.CLEANUP_TO_ONE, rivals): places for rivals, places in CLEANUP_RIVALS.items()},
    covered=POINTS,
)
SLEEPS_BESIDE_CLEANUP: Final[Matrix[Sleep]] = matrix(
    sleeps_beside_cleanup(),
    {
        (create(NEW, KEPT), _TIDY_UP[0]): ("branch.post_claim",),
        (write(STALE, "append-s"), _TIDY_UP[2]): ("publish.pre_manifest",),
    },
    covered=POINTS,
)
GATE_POINTS: Final = frozenset(LOOKS_OF_CLEANUP).union(
    *(family.gate_points for family in (OPTIMIZE_DEATHS, REPAIR_DEATHS, CLEANUP_DEATHS))
)
"""Where maintenance is killed in the gate."""
