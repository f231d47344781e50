"""Every place where a process is killed, as data: what it was doing, what stood in its way.

What the gate leaves out: kinds of writers before any table has moved and after the publish, where
all leave the same; sweeps of stages that recover in the same way (armed and overtaken as staging,
healed as all moved); and migrations from later stamps, which are the states that deaths in a
migration from stamp 1 leave. Points that are reached with nothing written since the point before
are one story of deaths in a row: of writers, of sweeps, of migrations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from omnigraph_lake import names
from omnigraph_lake.failpoints import POINTS
from tests.crash.gate_rule import Matrix, matrix
from tests.crash.small_world import KINDS, LARGE_KINDS, TOUCHED, Kind
from tests.crash.worlds import Stage, World


class Rival(StrEnum):
    """What somebody else does while the victim stands still."""

    WRITES_THE_SAME_TABLES = "writes_the_same_tables"
    TAKES_THE_ROWS = "takes_the_rows"
    FOLDS = "folds"
    BREAKS_THE_STORE = "breaks_the_store"


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A writer killed at one visit of one point."""

    kind: Kind
    point: str
    visit: int = 1
    world: World = World.PLAIN

    @property
    def group(self) -> tuple[World, Kind]:
        return self.world, self.kind

    def __str__(self) -> str:
        return f"{self.world}-{self.kind}-{self.point}@{self.visit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RivalledDeath:
    """A writer that stands still at `stop` while a rival acts, goes on, and is killed."""

    kind: Kind
    stop: str
    rival: Rival
    point: str
    visit: int = 1

    @property
    def group(self) -> tuple[Kind, Rival, str]:
        return self.kind, self.rival, self.stop

    def __str__(self) -> str:
        return f"{self.kind}-{self.rival}-at-{self.stop}-{self.point}@{self.visit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepDeath:
    """A sweep killed while it settles the operation of a writer that died at `stage`."""

    kind: Kind
    stage: Stage
    point: str
    visit: int = 1

    @property
    def group(self) -> tuple[Stage, Kind]:
        return self.stage, self.kind

    def __str__(self) -> str:
        return f"{self.kind}-{self.stage}-{self.point}@{self.visit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationDeath:
    """An open killed while it migrates the manifests of a graph with an older stamp."""

    stamp: int
    branches: tuple[str, ...]
    point: str
    visit: int

    @property
    def group(self) -> tuple[int, tuple[str, ...]]:
        return self.stamp, self.branches

    def __str__(self) -> str:
        return "-".join((str(self.stamp), *self.branches, f"{self.point}@{self.visit}"))


_STRAIGHT = (
    "mutation.begin",
    "mutation.post_sidecar",
    "mutation.validate",
    "mutation.post_stage",
    "publish.pre_manifest",
    "publish.post_manifest",
    "publish.resolve",
    "mutation.post_sidecar_delete",
)
_READING_BACK = ("publish.resolve.list", "publish.resolve.verify")
_PER_TABLE = ("mutation.pre_direct_commit", "mutation.post_direct_commit")
_HEALING = (
    "mutation.open_head",
    "mutation.pre_heal",
    "mutation.post_heal",
    "mutation.pre_table_commit",
    "mutation.post_table_commit",
)
_BEFORE_STAGING = ("mutation.begin", "mutation.post_sidecar")
"""Reached twice by a mutation in parts: it has tried first to hold all rows."""
_LOADING = ("load.split_staged", "load.staged", "load.settled", "load.gathered")
_DRIFTING = ("mutation.drift", "mutation.give_up", "publish.pre_abort", "publish.post_abort")
_FOLDING = (
    "fold.post_read",
    "fold.post_history",
    "fold.pre_drop",
    "fold.post_drop",
    "manifest.post_clean",
)
_INIT = (
    "init.post_claim",
    "init.post_contract",
    "init.post_tables",
    "init.post_history",
    "init.post_manifest",
)
_READING = ("recovery.decided.list", "recovery.decided.verify")
_DECIDING = (
    "recovery.post_classify",
    "recovery.pre_manifest",
    "publish.post_manifest",
    "recovery.decided",
    "recovery.healed",
    "recovery.post_sidecar_delete",
)
_RESTORING = (
    "recovery.pre_restore",
    "recovery.post_restore",
    "recovery.pre_restore_publish",
    "recovery.post_restore_publish",
)
LOOKS_OF_WRITERS: Final = (
    "mutation.begin",
    "mutation.validate",
    "mutation.pre_direct_commit",
    "publish.resolve",
    "publish.resolve.list",
    "publish.resolve.verify",
)
"""Where a writer has written nothing since the point before."""
LOOKS_OF_SWEEPS: Final = (
    "recovery.post_list",
    *_READING,
    "recovery.post_classify",
    "recovery.pre_manifest",
    "recovery.decided",
    "recovery.post_fence",
    "recovery.pre_restore",
    "recovery.pre_restore_publish",
    "recovery.post_sidecar_delete",
)
"""The same of a sweep that puts a table back, in the order of its steps."""
_FORWARD = (Stage.ALL_MOVED, Stage.HEALED)
_RESTORED = (Stage.ONE_MOVED, Stage.INEXACT)


def writer_deaths() -> Iterator[Death]:
    for kind in KINDS:
        for point in _STRAIGHT:
            yield Death(kind=kind, point=point)
        for point in _READING_BACK if kind is Kind.APPEND else ():
            yield Death(kind=kind, point=point)
        for point in _PER_TABLE:
            for visit in range(1, len(TOUCHED[kind]) + 1):
                yield Death(kind=kind, point=point, visit=visit)
        for point in _HEALING:
            for visit in (1, 2):
                yield Death(kind=kind, point=point, visit=visit, world=World.ORPHANS)
        for point in ("publish.pre_manifest", "publish.post_manifest"):
            yield Death(kind=kind, point=point, world=World.ORPHANS)


def large_deaths() -> Iterator[Death]:
    """Mutations in parts, at every visit of every point, and above versions of others."""
    for kind in LARGE_KINDS:
        for point in (*_STRAIGHT, *_READING_BACK):
            is_repeated = point in (*_BEFORE_STAGING, "mutation.post_sidecar_delete")
            for visit in (1, 2) if is_repeated else (1,):
                yield Death(kind=kind, point=point, visit=visit)
        for point in _LOADING if kind is Kind.LARGE_UPDATE else ():
            yield Death(kind=kind, point=point)
        for world, points in ((World.PLAIN, _PER_TABLE), (World.ORPHANS, _HEALING)):
            for point in points:
                for visit in range(1, len(TOUCHED[kind]) + 1):
                    yield Death(kind=kind, point=point, visit=visit, world=world)
        yield Death(kind=kind, point="publish.pre_manifest", world=World.ORPHANS)
        for point in _DRIFTING:
            yield Death(kind=kind, point=point, world=World.DRIFTED)


def drift_deaths() -> Iterator[Death]:
    for kind in KINDS:
        for point in _DRIFTING:
            yield Death(kind=kind, point=point, world=World.DRIFTED)


def fold_deaths() -> Iterator[Death]:
    for kind in (Kind.APPEND, Kind.DELETE):
        for point in _FOLDING:
            yield Death(kind=kind, point=point, world=World.MANY_COMMITS)


def rivalled_deaths() -> Iterator[RivalledDeath]:
    same, folds = Rival.WRITES_THE_SAME_TABLES, Rival.FOLDS
    staged, moved = "mutation.post_stage", "publish.pre_manifest"
    for kind in KINDS:
        yield RivalledDeath(kind=kind, stop=moved, rival=folds, point="publish.refused")
        yield RivalledDeath(kind=kind, stop=staged, rival=folds, point="publish.resolve")
        yield RivalledDeath(kind=kind, stop=staged, rival=folds, point=moved, visit=2)
        yield RivalledDeath(kind=kind, stop=moved, rival=same, point="mutation.retry")
        yield RivalledDeath(kind=kind, stop=moved, rival=same, point=staged, visit=2)
        yield RivalledDeath(kind=kind, stop=staged, rival=same, point="mutation.retry")
        yield RivalledDeath(kind=kind, stop=staged, rival=same, point="mutation.validate", visit=2)
        yield RivalledDeath(
            kind=kind, stop=moved, rival=Rival.BREAKS_THE_STORE, point="publish.ambiguous"
        )
    for point in ("mutation.give_up", "publish.pre_abort", "publish.post_abort"):
        for stop in (staged, moved):
            yield RivalledDeath(
                kind=Kind.APPEND, stop=stop, rival=Rival.TAKES_THE_ROWS, point=point
            )


def large_rivalled_deaths() -> Iterator[RivalledDeath]:
    """What a mutation in parts has read is not what the rival leaves: it reads again."""
    rival = Rival.WRITES_THE_SAME_TABLES
    staged, moved = "mutation.post_stage", "publish.pre_manifest"
    for kind in LARGE_KINDS:
        for stop, point, visit in (
            (staged, "mutation.retry", 1),
            (staged, "mutation.validate", 2),
            (moved, "mutation.retry", 1),
            (moved, "mutation.validate", 2),
            (moved, staged, 2),
        ):
            yield RivalledDeath(kind=kind, stop=stop, rival=rival, point=point, visit=visit)
    # Some tables have moved twice, the others once.
    moves_again = "mutation.post_direct_commit"
    yield RivalledDeath(kind=Kind.LARGE_DELETE, stop=moved, rival=rival, point=moves_again, visit=4)


def sweep_deaths() -> Iterator[SweepDeath]:
    for stage in Stage:
        yield from _sweeps(Kind.APPEND, stage)
    for stage in (Stage.ONE_MOVED, Stage.ALL_MOVED):
        yield from _sweeps(Kind.DELETE, stage)


def migration_deaths() -> Iterator[MigrationDeath]:
    """Every step of every manifest; a branch's comes before main's and is migrated in full."""
    for branches in ((), ("feature",)):
        for stamp in (1, 2, 3):
            steps = names.STAMP - stamp
            visits = range(steps + 1 if branches else 1, steps * (1 + len(branches)) + 1)
            for point in ("migration.pre_step", "migration.post_step"):
                for visit in visits:
                    yield MigrationDeath(stamp=stamp, branches=branches, point=point, visit=visit)


def init_deaths() -> tuple[str, ...]:
    return _INIT


def _sweeps(kind: Kind, stage: Stage) -> Iterator[SweepDeath]:
    yield SweepDeath(kind=kind, stage=stage, point="recovery.post_list")
    if stage is Stage.PUBLISHED:
        yield SweepDeath(kind=kind, stage=stage, point="recovery.post_sidecar_delete")
        return
    if stage is Stage.DRIFTED:
        for point in ("recovery.drift", "recovery.post_fence", "recovery.healed"):
            yield SweepDeath(kind=kind, stage=stage, point=point)
        return
    for point in _READING if stage is Stage.ONE_MOVED else ():
        yield SweepDeath(kind=kind, stage=stage, point=point)
    for point in _DECIDING:
        yield SweepDeath(kind=kind, stage=stage, point=point)
    turn = "recovery.post_rollforward" if stage in _FORWARD else "recovery.post_fence"
    yield SweepDeath(kind=kind, stage=stage, point=turn)
    if stage in _RESTORED:
        for point in _RESTORING:
            yield SweepDeath(kind=kind, stage=stage, point=point)
        yield SweepDeath(kind=kind, stage=stage, point="publish.post_manifest", visit=2)


_WHERE_KINDS_DIFFER = ("mutation.post_direct_commit", "publish.pre_manifest")
"""Some tables have moved, or all: by an append, an update or an overwrite."""
WRITERS: Final[Matrix[Death]] = matrix(
    writer_deaths(),
    {
        (World.PLAIN, Kind.MERGE): _WHERE_KINDS_DIFFER,
        (World.PLAIN, Kind.OVERWRITE): _WHERE_KINDS_DIFFER,
        (World.PLAIN, Kind.DELETE): _WHERE_KINDS_DIFFER,
        # An append lands above the versions of others and is rebased; an overwrite is refused.
        (World.ORPHANS, Kind.APPEND): (
            "mutation.open_head@2",
            "mutation.post_heal@2",
            "publish.pre_manifest",
        ),
        (World.ORPHANS, Kind.OVERWRITE): ("mutation.post_heal", "publish.pre_manifest"),
    },
    covered=LOOKS_OF_WRITERS,
)
LARGE: Final[Matrix[Death]] = matrix(
    large_deaths(),
    {
        # Rows are written and no table has moved; some tables have lost rows.
        (World.PLAIN, Kind.LARGE_UPDATE): ("load.gathered",),
        (World.PLAIN, Kind.LARGE_DELETE): ("mutation.validate", "mutation.post_direct_commit@2"),
    },
    covered=POINTS,
)
DRIFTS: Final[Matrix[Death]] = matrix(
    drift_deaths(),
    {
        # Of its tables one drifted and one moved, of the other's three one drifted.
        (World.DRIFTED, Kind.OVERWRITE): ("mutation.drift",),
        (World.DRIFTED, Kind.DELETE): ("mutation.drift",),
    },
)
FOLDS: Final[Matrix[Death]] = matrix(fold_deaths(), {})
_STAGED, _MOVED = "mutation.post_stage", "publish.pre_manifest"
RIVALLED: Final[Matrix[RivalledDeath]] = matrix(
    rivalled_deaths(),
    {
        (Kind.APPEND, Rival.WRITES_THE_SAME_TABLES, _MOVED): ("mutation.post_stage@2",),
        (Kind.APPEND, Rival.WRITES_THE_SAME_TABLES, _STAGED): ("mutation.retry",),
        # The rival has published over one of its two tables: only the other is put back.
        (Kind.OVERWRITE, Rival.WRITES_THE_SAME_TABLES, _MOVED): ("mutation.retry",),
        (Kind.APPEND, Rival.TAKES_THE_ROWS, _STAGED): ("publish.post_abort",),
    },
    covered=WRITERS.gate_points | DRIFTS.gate_points | {*LOOKS_OF_WRITERS},
)
LARGE_RIVALLED: Final[Matrix[RivalledDeath]] = matrix(
    large_rivalled_deaths(),
    {(Kind.LARGE_UPDATE, Rival.WRITES_THE_SAME_TABLES, _MOVED): ("mutation.post_stage@2",)},
    covered=POINTS,
)
SWEEPS: Final[Matrix[SweepDeath]] = matrix(
    sweep_deaths(),
    {
        (Stage.STAGING, Kind.APPEND): ("publish.post_manifest",),
        (Stage.ONE_MOVED, Kind.APPEND): (
            "publish.post_manifest",
            "recovery.post_restore",
            "recovery.post_restore_publish",
        ),
        (Stage.ALL_MOVED, Kind.APPEND): ("recovery.healed",),
        (Stage.INEXACT, Kind.APPEND): ("recovery.post_restore",),
    },
    covered=WRITERS.gate_points | {*LOOKS_OF_SWEEPS},
)
MIGRATIONS: Final[Matrix[MigrationDeath]] = matrix(
    migration_deaths(),
    # The branch is done, main is not begun.
    {(1, ("feature",)): (f"migration.pre_step@{names.STAMP}",)},
    covered=("migration.pre_step", "migration.post_step"),
)
GATE_POINTS: Final = frozenset({*_INIT, *LOOKS_OF_WRITERS, *LOOKS_OF_SWEEPS}).union(
    ("migration.pre_step", "migration.post_step"),
    *(family.gate_points for family in (WRITERS, DRIFTS, FOLDS, RIVALLED, SWEEPS, MIGRATIONS)),
)
"""Where processes on one branch are killed in the gate."""
