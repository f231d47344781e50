"""Every place where a process is killed while a schema changes, as data.

Invariant: per change, and per state that a sweep finds, the points are those that are reached, with
how often; a test compares them with what is really reached.

What the gate leaves out: deaths before anything but the lock is written, which all changes share;
copies of the schema beyond the second file; changes whose tables move as those of `MANY` do; and
the steps of a sweep that do with a schema change what they do with any write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tests.crash.branch_cases import GATE_POINTS as WITHOUT_SCHEMA_CHANGES
from tests.crash.gate_rule import Matrix, matrix
from tests.crash.schema_world import Change
from tests.crash.schema_worlds import Stage

Route = Mapping[str, int]
"""The points that are reached, and how often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDeath:
    """An applier killed at one visit of one point."""

    change: Change
    point: str
    visit: int

    @property
    def group(self) -> Change:
        return self.change

    def __str__(self) -> str:
        return f"{self.change}-{self.point}@{self.visit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSweepDeath:
    """A sweep killed while it settles what an applier left that died at `stage`."""

    stage: Stage
    point: str
    visit: int

    @property
    def group(self) -> Stage:
        return self.stage

    def __str__(self) -> str:
        return f"{self.stage}-{self.point}@{self.visit}"


def _once(*points: str) -> dict[str, int]:
    return dict.fromkeys(points, 1)


def _moving(tables: int) -> dict[str, int]:
    return dict.fromkeys(("mutation.pre_direct_commit", "mutation.post_direct_commit"), tables)


_PLANNING = _once(
    "read.begin",
    "read.post_manifest",
    "read.verify",
    "mutation.begin",
    "mutation.post_sidecar",
    "schema.post_lock",
    "schema.post_checks",
    "schema.post_contract",
)
_STAGED = _once("mutation.validate", "mutation.post_stage")
_PUBLISHING = _once(
    "publish.pre_manifest",
    "publish.post_manifest",
    "publish.resolve",
    "publish.resolve.list",
    "publish.resolve.verify",
    "schema.pre_promote",
)
_COPYING: Route = {"schema.post_promote_file": 3}
_ENDING = _once("mutation.post_sidecar_delete", "schema.post_unlock")
_ON_MAIN: Route = {**_PUBLISHING, **_COPYING, **_ENDING}

ROUTES: Mapping[Change, Route] = {
    Change.METADATA: {**_PLANNING, **_STAGED, **_ON_MAIN},
    Change.COLUMN: {**_PLANNING, **_STAGED, **_moving(1), **_ON_MAIN},
    Change.BACKFILL: {**_PLANNING, **_STAGED, **_moving(2), **_ON_MAIN},
    Change.RENAME: {**_PLANNING, **_STAGED, **_moving(1), **_ON_MAIN},
    Change.MANY: {**_PLANNING, **_STAGED, **_moving(2), "schema.post_create": 2, **_ON_MAIN},
    Change.AGAIN: {**_PLANNING, **_STAGED, **_moving(1), **_once("schema.post_create"), **_ON_MAIN},
    Change.BRANCH: {
        **_PLANNING,
        **_once("branch.post_fork"),
        **_STAGED,
        **_moving(2),
        **_once("schema.post_create"),
        **_PUBLISHING,
        **_once("branch.pre_verify"),
        **_ENDING,
    },
}

_FOUND = _once("recovery.post_list", "recovery.decided.list", "recovery.decided.verify")
_ON_A_BRANCH = _once("recovery.post_log")
_READING_BACK = ("publish.resolve", "publish.resolve.list", "publish.resolve.verify")
_SETTLED = _once("recovery.healed", "recovery.post_sidecar_delete")


def _deciding(publishes: int = 1) -> Route:
    return {
        **_once("recovery.post_classify", "recovery.pre_manifest", "recovery.decided"),
        **dict.fromkeys(_READING_BACK, 2 * publishes),
        "publish.post_manifest": publishes,
    }


def _restoring(tables: int) -> Route:
    return {
        **_once("recovery.pre_restore_publish", "recovery.post_restore_publish"),
        **dict.fromkeys(("recovery.pre_restore", "recovery.post_restore"), tables),
    }


_BACK = _once("recovery.post_fence")
_FORWARD = _once("recovery.post_rollforward", "schema.pre_promote")
_LATE = _once("read.post_contract")
"""Whoever opens has read the manifest before the sweep gave it another schema."""

SWEEPS: Mapping[Stage, Route] = {
    Stage.STAGING: {**_FOUND, **_deciding(), **_BACK, **_SETTLED},
    Stage.ARMED: {**_FOUND, **_deciding(), **_BACK, "schema.post_discard": 2, **_SETTLED},
    Stage.ONE_MOVED: {
        **_FOUND,
        **_deciding(2),
        **_BACK,
        **_restoring(1),
        "schema.post_discard": 2,
        **_SETTLED,
    },
    Stage.ONE_MADE: {
        **_FOUND,
        **_deciding(2),
        **_BACK,
        **_restoring(2),
        "schema.post_discard": 2,
        **_SETTLED,
    },
    Stage.ALL_MADE: {
        **_FOUND,
        **_deciding(),
        **_FORWARD,
        **_COPYING,
        **_SETTLED,
        **_LATE,
    },
    Stage.PUBLISHED: {
        **_FOUND,
        **_once("schema.pre_promote", "recovery.post_sidecar_delete"),
        **_COPYING,
    },
    Stage.COPYING: {
        **_FOUND,
        **_once("schema.pre_promote", "recovery.post_sidecar_delete"),
        **_COPYING,
    },
    Stage.RENAMED: {
        **_FOUND,
        **_deciding(),
        **_FORWARD,
        **_COPYING,
        **_SETTLED,
        **_LATE,
    },
    Stage.ON_A_BRANCH: {
        **_FOUND,
        **_ON_A_BRANCH,
        **_deciding(),
        **_FORWARD,
        **_SETTLED,
    },
    Stage.BACK_ON_A_BRANCH: {
        **_once("recovery.post_drop"),
        **_FOUND,
        **_ON_A_BRANCH,
        **_deciding(2),
        **_BACK,
        **_restoring(1),
        **_once("schema.post_discard"),
        **_SETTLED,
    },
    Stage.BRANCH_GONE: {
        **_once("recovery.post_list"),
        **_ON_A_BRANCH,
        **_once("schema.post_discard"),
        **_SETTLED,
    },
}

NOTHING_WRITTEN_BEFORE = frozenset(
    {
        "mutation.begin",
        "schema.post_checks",
        "mutation.validate",
        "mutation.pre_direct_commit",
        "publish.resolve",
        "publish.resolve.list",
        "publish.resolve.verify",
        "schema.pre_promote",
        "branch.pre_verify",
        "recovery.post_list",
        "recovery.post_log",
        "recovery.decided.list",
        "recovery.decided.verify",
        "recovery.post_classify",
        "recovery.pre_manifest",
        "recovery.decided",
        "recovery.post_fence",
        "recovery.post_rollforward",
        "recovery.pre_restore",
        "recovery.pre_restore_publish",
        "read.post_contract",
    }
)
"""Points that are reached with nothing written since the point before them."""


def schema_deaths() -> Iterator[SchemaDeath]:
    """Every change at every point; the one that does most comes first."""
    for change in (Change.MANY, *(each for each in Change if each is not Change.MANY)):
        for point, visits in ROUTES[change].items():
            for visit in range(1, visits + 1):
                yield SchemaDeath(change=change, point=point, visit=visit)


def schema_sweep_deaths() -> Iterator[SchemaSweepDeath]:
    for stage, route in SWEEPS.items():
        for point, visits in route.items():
            for visit in range(1, visits + 1):
                yield SchemaSweepDeath(stage=stage, point=point, visit=visit)


_WHERE_CHANGES_DIFFER = ("publish.pre_manifest",)
"""All is written that a change writes before it is published."""
DEATHS: Final[Matrix[SchemaDeath]] = matrix(
    schema_deaths(),
    {
        Change.MANY: (
            "mutation.post_stage",
            "mutation.post_direct_commit",
            "publish.pre_manifest",
            "schema.post_promote_file@2",
            "mutation.post_sidecar_delete",
        ),
        Change.METADATA: _WHERE_CHANGES_DIFFER,
        Change.COLUMN: _WHERE_CHANGES_DIFFER,
        Change.RENAME: _WHERE_CHANGES_DIFFER,
        Change.AGAIN: _WHERE_CHANGES_DIFFER,
        Change.BRANCH: (
            "mutation.post_direct_commit",
            "publish.pre_manifest",
            "publish.post_manifest",
        ),
    },
    covered=WITHOUT_SCHEMA_CHANGES,
)
SWEEP_DEATHS: Final[Matrix[SchemaSweepDeath]] = matrix(
    schema_sweep_deaths(),
    {
        # Tables are put back before new ones are discarded, one after the other.
        Stage.ONE_MADE: ("recovery.post_restore", "schema.post_discard"),
        Stage.ALL_MADE: ("publish.post_manifest", "schema.post_promote_file@2"),
        Stage.RENAMED: ("publish.post_manifest",),
        Stage.ON_A_BRANCH: ("publish.post_manifest",),
        Stage.BACK_ON_A_BRANCH: ("recovery.post_restore",),
        Stage.BRANCH_GONE: ("schema.post_discard",),
    },
    covered=WITHOUT_SCHEMA_CHANGES | DEATHS.gate_points,
)
GATE_POINTS: Final = DEATHS.gate_points | SWEEP_DEATHS.gate_points
"""Where processes are killed in the gate while a schema changes."""
