"""Where appliers and writers stand still while the schema changes, and what others do meanwhile.

What the gate leaves out: points where an applier goes on as any writer does; changes that go the
way of `MANY` when they wake up; and mutations and deletes, which meet another schema as writes do,
at their publish.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.failpoints import POINTS
from omnigraph_lake.graph import Graph
from tests.crash.gate_rule import Matrix, matrix
from tests.crash.schema_cases import NOTHING_WRITTEN_BEFORE, ROUTES, SWEEPS
from tests.crash.schema_world import (
    Apply,
    Change,
    Look,
    add_rival_type,
    changed,
    with_city,
    with_rival_type,
    write_city,
)
from tests.crash.schema_worlds import Stage
from tests.crash.schema_writers import WriterVerb
from tests.crash.worlds import earlier_id

RIVAL_CITY: Final = "rival"
RIVAL_ID: Final = earlier_id()
"""Older than any sleeper, so that the rival waits for nobody."""


class Meanwhile(StrEnum):
    """What happens while an applier stands still; a sweep takes it for dead."""

    SWEPT_AND_APPLIED = "swept_and_applied"
    SWEPT_AND_WRITTEN = "swept_and_written"
    WRITTEN = "written"
    APPLIED_WITHOUT_LOCK = "applied_without_lock"


class Ending(StrEnum):
    """How a writer goes on that stood still while the schema changed."""

    WAKES = "wakes"
    DIES = "dies"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplierSleep:
    """An applier stopped at one visit of one point."""

    change: Change
    point: str
    visit: int
    meanwhile: Meanwhile

    @property
    def group(self) -> tuple[Change, Meanwhile]:
        return self.change, self.meanwhile

    def __str__(self) -> str:
        return f"{self.change}-{self.point}@{self.visit}-{self.meanwhile}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSleep:
    """A sweep stopped while it settles what a dead applier left."""

    stage: Stage
    point: str
    visit: int

    @property
    def group(self) -> Stage:
        return self.stage

    def __str__(self) -> str:
        return f"{self.stage}-{self.point}@{self.visit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSleep:
    """A writer stopped at a point while a change of the schema is published."""

    verb: WriterVerb
    point: str
    change: Change
    ending: Ending
    visit: int = 1

    @property
    def group(self) -> tuple[WriterVerb, Change, Ending]:
        return self.verb, self.change, self.ending

    def __str__(self) -> str:
        return f"{self.verb}-{self.point}-{self.change}-{self.ending}"


_WRITING: Final = (
    "mutation.begin",
    "mutation.post_sidecar",
    "mutation.validate",
    "mutation.post_stage",
    "mutation.post_direct_commit",
    "publish.pre_manifest",
)
_OPTIMIZING: Final = (
    "mutation.post_sidecar",
    "mutation.post_stage",
    "mutation.post_direct_commit",
    "publish.pre_manifest",
)
_EVERYWHERE: Final = (Meanwhile.SWEPT_AND_WRITTEN, Meanwhile.SWEPT_AND_APPLIED)


def applier_sleeps() -> Iterator[ApplierSleep]:
    for change in Change:
        for meanwhile in Meanwhile:
            for point, visits in ROUTES[change].items():
                for visit in range(1, visits + 1):
                    if meanwhile in _EVERYWHERE or point not in NOTHING_WRITTEN_BEFORE:
                        yield ApplierSleep(
                            change=change, point=point, visit=visit, meanwhile=meanwhile
                        )


def sweep_sleeps() -> Iterator[SweepSleep]:
    """Where a sweep may be overtaken by another, and by another schema."""
    for stage in (Stage.ALL_MADE, Stage.ONE_MADE, Stage.PUBLISHED, Stage.ON_A_BRANCH):
        for point, visits in SWEEPS[stage].items():
            for visit in range(1, visits + 1):
                if point != "read.post_contract":
                    yield SweepSleep(stage=stage, point=point, visit=visit)


def writer_sleeps() -> Iterator[WriterSleep]:
    for verb in WriterVerb:
        for point in _OPTIMIZING if verb is WriterVerb.OPTIMIZE else _WRITING:
            for change in (Change.COLUMN, Change.MANY, Change.RENAME):
                for ending in Ending:
                    yield WriterSleep(verb=verb, point=point, change=change, ending=ending)


_DECIDING: Final = ("publish.pre_manifest",)
"""Everything is ready; whether it is published depends on what has happened meanwhile."""
APPLIERS: Final[Matrix[ApplierSleep]] = matrix(
    applier_sleeps(),
    {
        (Change.MANY, Meanwhile.SWEPT_AND_APPLIED): (
            "mutation.begin",
            "schema.post_contract",
            "schema.post_create",
            "publish.pre_manifest",
            "publish.post_manifest",
            "schema.post_promote_file",
        ),
        (Change.MANY, Meanwhile.SWEPT_AND_WRITTEN): ("schema.post_contract", *_DECIDING),
        (Change.MANY, Meanwhile.WRITTEN): _DECIDING,
        (Change.MANY, Meanwhile.APPLIED_WITHOUT_LOCK): _DECIDING,
        # The rival wrote another table: it publishes again what it has.
        (Change.RENAME, Meanwhile.WRITTEN): _DECIDING,
        (Change.BRANCH, Meanwhile.SWEPT_AND_APPLIED): _DECIDING,
    },
    covered=POINTS,
)
SWEEP_SLEEPS: Final[Matrix[SweepSleep]] = matrix(
    sweep_sleeps(),
    {
        Stage.ALL_MADE: ("publish.post_manifest", "schema.post_promote_file"),
        Stage.ONE_MADE: (
            "publish.post_manifest",
            "recovery.post_restore",
            "schema.post_discard",
        ),
    },
    covered=POINTS,
)
WRITERS: Final[Matrix[WriterSleep]] = matrix(
    writer_sleeps(),
    {
        (WriterVerb.WRITE, Change.MANY, Ending.WAKES): _DECIDING,
        (WriterVerb.WRITE, Change.COLUMN, Ending.DIES): _DECIDING,
        (WriterVerb.LOAD, Change.MANY, Ending.WAKES): _DECIDING,
        (WriterVerb.MERGE, Change.MANY, Ending.WAKES): _DECIDING,
        # It is undone table by table; under `MANY` the rival has moved the table already.
        (WriterVerb.OPTIMIZE, Change.COLUMN, Ending.WAKES): _DECIDING,
        (WriterVerb.OPTIMIZE, Change.COLUMN, Ending.DIES): _DECIDING,
    },
    covered=POINTS,
)


def pass_time(meanwhile: Meanwhile, root: str, branch: str) -> None:
    graph = og.open(root).checkout(branch)
    match meanwhile:
        case Meanwhile.SWEPT_AND_WRITTEN:
            graph.maintenance.recover(force=True)
            write_city(graph, RIVAL_CITY, operation_id=RIVAL_ID)
        case Meanwhile.SWEPT_AND_APPLIED:
            graph.maintenance.recover(force=True)
            add_rival_type(graph, operation_id=RIVAL_ID)
        case Meanwhile.WRITTEN:
            write_city(graph, RIVAL_CITY, operation_id=RIVAL_ID)
        case Meanwhile.APPLIED_WITHOUT_LOCK:
            graph._objects.delete(names.schema_lock())
            add_rival_type(graph, operation_id=RIVAL_ID)
        case _:
            assert_never(meanwhile)


def replayed(graph: Graph, before: Look, job: Apply, meanwhile: Meanwhile) -> Look:
    """What the published ones of the two leave, in the order of their commits."""
    seen = before
    for commit in reversed(graph.commits()):
        if commit.operation_id == job.operation_id:
            seen = changed(seen, job.change)
        if commit.operation_id == RIVAL_ID:
            wrote = meanwhile in (Meanwhile.SWEPT_AND_WRITTEN, Meanwhile.WRITTEN)
            seen = with_city(seen, RIVAL_CITY) if wrote else with_rival_type(seen)
    return seen
