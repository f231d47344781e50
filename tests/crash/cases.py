"""Every place where a process is killed, as data: what it was doing, what stood in its way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tests.crash.small_world import KINDS, TOUCHED, Kind
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

    def __str__(self) -> str:
        return f"{self.kind}-{self.rival}-at-{self.stop}-{self.point}@{self.visit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepDeath:
    """A sweep killed while it settles the operation of a writer that died at `stage`."""

    kind: Kind
    stage: Stage
    point: str
    visit: int = 1

    def __str__(self) -> str:
        return f"{self.kind}-{self.stage}-{self.point}@{self.visit}"


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


def sweep_deaths() -> Iterator[SweepDeath]:
    for stage in Stage:
        yield from _sweeps(Kind.APPEND, stage)
    for stage in (Stage.ONE_MOVED, Stage.ALL_MOVED):
        yield from _sweeps(Kind.DELETE, stage)


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
