"""Every place where a process is killed while a schema changes, as data.

Invariant: per change, and per state that a sweep finds, the points are those that are reached, with
how often; a test compares them with what is really reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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

    def __str__(self) -> str:
        return f"{self.change}-{self.point}@{self.visit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSweepDeath:
    """A sweep killed while it settles what an applier left that died at `stage`."""

    stage: Stage
    point: str
    visit: int

    def __str__(self) -> str:
        return f"{self.stage}-{self.point}@{self.visit}"


def _once(*points: str) -> dict[str, int]:
    return dict.fromkeys(points, 1)


def _moving(tables: int) -> dict[str, int]:
    return dict.fromkeys(("mutation.pre_direct_commit", "mutation.post_direct_commit"), tables)


_PLANNING = _once(
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
WHERE_CHANGES_DIFFER = frozenset(
    {
        "mutation.post_direct_commit",
        "schema.post_create",
        "publish.pre_manifest",
        "publish.post_manifest",
        "branch.post_fork",
    }
)
"""Points at which every change leaves something of its own on disk."""
WHERE_STAGES_DIFFER = frozenset(
    {
        "publish.post_manifest",
        "recovery.post_restore",
        "recovery.post_restore_publish",
        "schema.post_discard",
        "recovery.healed",
    }
)


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


def is_for_the_gate(case: SchemaDeath | SchemaSweepDeath, seen: set[str]) -> bool:
    """Whether a death is unlike those before it: the rest is for the slow tier.

    The first at each point is, and so is one that leaves on disk what others do not.
    """
    is_first = case.point not in seen
    seen.add(case.point)
    if isinstance(case, SchemaDeath):
        differs, is_whole = WHERE_CHANGES_DIFFER, case.change is Change.MANY
    else:
        differs, is_whole = WHERE_STAGES_DIFFER, case.stage is Stage.ONE_MADE
    is_new = is_whole and case.point not in NOTHING_WRITTEN_BEFORE
    return is_first or is_new or case.point in differs
