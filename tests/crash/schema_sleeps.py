"""Where appliers and writers stand still while the schema changes, and what others do meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

import omnigraph
from omnigraph import names
from omnigraph.graph import Graph
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

    SWEPT_AND_WRITTEN = "swept_and_written"
    SWEPT_AND_APPLIED = "swept_and_applied"
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

    def __str__(self) -> str:
        return f"{self.change}-{self.point}@{self.visit}-{self.meanwhile}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSleep:
    """A sweep stopped while it settles what a dead applier left."""

    stage: Stage
    point: str
    visit: int

    def __str__(self) -> str:
        return f"{self.stage}-{self.point}@{self.visit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSleep:
    """A writer stopped at a point while a change of the schema is published."""

    verb: WriterVerb
    point: str
    change: Change
    ending: Ending

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
_IN_THE_GATE: Final = frozenset(
    {
        (Change.MANY, Meanwhile.SWEPT_AND_WRITTEN),
        (Change.MANY, Meanwhile.SWEPT_AND_APPLIED),
    }
)
_WHERE_ALL_MEET: Final = frozenset({"schema.post_contract", "publish.pre_manifest"})


def applier_sleeps() -> Iterator[tuple[ApplierSleep, bool]]:
    """Each case, and whether it is for the slow tier."""
    for change in Change:
        for meanwhile in Meanwhile:
            for point, visits in ROUTES[change].items():
                for visit in range(1, visits + 1):
                    case = ApplierSleep(
                        change=change, point=point, visit=visit, meanwhile=meanwhile
                    )
                    if meanwhile in _EVERYWHERE or point not in NOTHING_WRITTEN_BEFORE:
                        yield case, not _is_for_the_gate(case)


def _is_for_the_gate(case: ApplierSleep) -> bool:
    if (case.change, case.meanwhile) in _IN_THE_GATE:
        applied = case.meanwhile is Meanwhile.SWEPT_AND_APPLIED
        return case.point not in NOTHING_WRITTEN_BEFORE or (applied and case.visit == 1)
    is_there = case.change in (Change.RENAME, Change.MANY, Change.BRANCH)
    return is_there and case.point in _WHERE_ALL_MEET


def sweep_sleeps() -> Iterator[tuple[SweepSleep, bool]]:
    """Where a sweep may be overtaken by another, and by another schema."""
    for stage in (Stage.ALL_MADE, Stage.ONE_MADE, Stage.PUBLISHED, Stage.ON_A_BRANCH):
        for point, visits in SWEEPS[stage].items():
            for visit in range(1, visits + 1):
                is_repeated = visit > 1 or point in NOTHING_WRITTEN_BEFORE
                is_cousin = stage in (Stage.PUBLISHED, Stage.ON_A_BRANCH)
                if point != "read.post_contract":
                    case = SweepSleep(stage=stage, point=point, visit=visit)
                    yield case, is_repeated or is_cousin


def writer_sleeps() -> Iterator[tuple[WriterSleep, bool]]:
    for verb in WriterVerb:
        for point in _OPTIMIZING if verb is WriterVerb.OPTIMIZE else _WRITING:
            for change in (Change.COLUMN, Change.MANY, Change.RENAME):
                for ending in Ending:
                    case = WriterSleep(verb=verb, point=point, change=change, ending=ending)
                    is_last = point == "publish.pre_manifest"
                    wakes = ending is Ending.WAKES
                    of_one = verb is WriterVerb.WRITE and change is Change.COLUMN and wakes
                    yield case, not ((is_last and change is not Change.RENAME) or of_one)


def pass_time(meanwhile: Meanwhile, root: str, branch: str) -> None:
    graph = omnigraph.open(root).branch(branch)
    match meanwhile:
        case Meanwhile.SWEPT_AND_WRITTEN:
            graph.recover(also_living=True)
            write_city(graph, RIVAL_CITY, operation_id=RIVAL_ID)
        case Meanwhile.SWEPT_AND_APPLIED:
            graph.recover(also_living=True)
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
