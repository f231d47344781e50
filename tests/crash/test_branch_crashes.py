"""Whoever is killed while working with branches, wherever: it was done or it was not.

What the gate leaves out of these matrices, and why, is in `tests/crash/branch_cases.py`.
"""

from __future__ import annotations

from collections import Counter

import pytest

import omnigraph_lake as og
from omnigraph_lake import failpoints
from omnigraph_lake.failpoints import Action, Armed
from tests.crash.branch_cases import (
    DEATHS,
    LOOKS,
    ROUTES,
    SWEEP_DEATHS,
    BranchDeath,
    BranchSweepDeath,
    Route,
)
from tests.crash.branch_verdict import (
    assert_all_or_nothing,
    assert_errand_can_be_run_again,
    assert_tidy_and_sound,
)
from tests.crash.branch_world import SWEEP, Errand, done, look_at, run_errand
from tests.crash.branch_worlds import BranchWorld, BranchWorlds, Stage, named, run_victim

pytestmark = [pytest.mark.crash, pytest.mark.sampled(3)]

DONE_BEFORE = frozenset(
    {
        "branch.post_ready",
        "branch.post_delete",
        "tag.verify",
        "publish.post_manifest",
        "publish.resolve",
        "mutation.post_sidecar_delete",
        "branch.pre_verify",
    }
)


@pytest.mark.parametrize("case", DEATHS.selected, ids=str)
def test_a_killed_errand_was_run_or_was_not(case: BranchDeath, branch_worlds: BranchWorlds) -> None:
    before, root = branch_worlds.lay_out(case.world), branch_worlds.root
    errand = named(case.errand)

    ended = run_victim(root, errand, failpoints=f"{case.point}=kill@{case.visit}")

    assert ended.was_killed
    base = branch_worlds.base
    happened = assert_all_or_nothing(root, errand, before=before, base=base)
    assert happened or case.point not in DONE_BEFORE
    graph = og.open(root)
    assert_errand_can_be_run_again(graph, errand, happened=happened, before=before, base=base)


@pytest.mark.parametrize("world", LOOKS)
def test_errands_killed_where_they_only_look_change_nothing(
    world: BranchWorld, branch_worlds: BranchWorlds
) -> None:
    before, root = branch_worlds.lay_out(world), branch_worlds.root

    for errand, point in LOOKS[world]:
        assert run_victim(root, errand, failpoints=f"{point}=kill").was_killed, point

    base = branch_worlds.base
    assert look_at(og.open(root, read_only=True), base).picture == before
    for errand in dict.fromkeys(errand for errand, _ in LOOKS[world]):
        run_errand(og.open(root), errand)
        before = done(before, errand)
    assert assert_tidy_and_sound(og.open(root), base) == before


@pytest.mark.parametrize("case", SWEEP_DEATHS.selected, ids=str)
def test_a_killed_sweep_of_a_branch_is_finished_by_the_next(
    case: BranchSweepDeath, branch_worlds: BranchWorlds
) -> None:
    errand, before = branch_worlds.lay_out_dead(case.stage)
    root, base = branch_worlds.root, branch_worlds.base
    if case.stage is Stage.BRANCH_GONE:
        errand = SWEEP

    ended = run_victim(root, SWEEP, failpoints=f"{case.point}=kill")

    assert ended.was_killed
    happened = assert_all_or_nothing(root, errand, before=before, base=base)
    graph = og.open(root)
    if case.stage in {Stage.FORKED_AND_MOVED, Stage.POINTING}:
        assert happened
    assert_errand_can_be_run_again(graph, errand, happened=happened, before=before, base=base)


@pytest.mark.nightly(
    "that the points in the tables are reached is also shown by every death there; this "
    "shows that the tables name all of them"
)
@pytest.mark.parametrize(
    ("world", "errand", "route"),
    [(world, errand, route) for (world, errand), route in ROUTES.items()],
    ids=[f"{world}-{errand}" for world, errand in ROUTES],
)
def test_an_errand_is_killed_at_every_point_that_it_reaches(
    world: BranchWorld,
    errand: Errand,
    route: Route,
    branch_worlds: BranchWorlds,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    branch_worlds.lay_out(world)
    graph = og.open(branch_worlds.root)
    reached: Counter[str] = Counter()
    failpoints.arm("migration.pre_step", Armed(action=Action.PAUSE))
    monkeypatch.setattr(failpoints, "_visit", lambda point: reached.update([point]))

    run_errand(graph, errand)

    failpoints.disarm_all()
    assert set(reached) == set(route)
    assert {point: max(visits) for point, visits in route.items()} == reached
