"""Cleanup beside people who make branches and tags, whoever of them stands still: nothing is lost.

What was acknowledged stays readable to the last cell, whatever the cleanup removes afterwards.
What the gate leaves out, and why, is in `tests/crash/maintenance_cases.py`. Besides, it cleans once
afterwards, where the nightly cleans twice and optimizes.
"""

from __future__ import annotations

import pytest

from omnigraph_lake.graph import Graph
from tests.crash.branch_world import MAIN, Errand, Verb, delete, merge, tag, write
from tests.crash.maintenance_cases import CLEANUP_SLEEPS, SLEEPS_BESIDE_CLEANUP, Sleep
from tests.crash.maintenance_sleeps import sleep_through, start_step
from tests.crash.maintenance_verdict import assert_converges, assert_same, assert_whole
from tests.crash.maintenance_world import (
    KEPT,
    OLD,
    STALE,
    Contents,
    Maintenance,
    keep_up,
    look,
    take,
    with_steps,
)
from tests.crash.maintenance_worlds import MaintenanceWorld, MaintenanceWorlds
from tests.gate.selection import for_gate, is_nightly

pytestmark = pytest.mark.crash


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("case", CLEANUP_SLEEPS.selected, ids=str)
def test_a_cleanup_that_wakes_up_removes_nothing_that_is_named_by_now(
    case: Sleep, maintenance_worlds: MaintenanceWorlds
) -> None:
    laid = maintenance_worlds.lay_out(case.world)

    slept = sleep_through(maintenance_worlds, case, laid)

    assert slept.said == "acknowledged", slept.answer
    for rival, answer in slept.refused:
        assert answer == "failed", (rival, answer)
        assert isinstance(rival, Errand)
        # What nobody names any more may be refused; everything else has to succeed.
        assert OLD in {each.source for each in case.rivals if isinstance(each, Errand)}
    expected = with_steps(laid, slept.acknowledged)
    graph = assert_whole(maintenance_worlds.root, expected)
    _assert_stays(graph, expected)


@pytest.mark.usefixtures("unkept")
@pytest.mark.parametrize("case", SLEEPS_BESIDE_CLEANUP.selected, ids=str)
def test_whoever_stands_still_while_a_cleanup_runs_is_told_the_truth(
    case: Sleep, maintenance_worlds: MaintenanceWorlds
) -> None:
    laid = maintenance_worlds.lay_out(case.world)

    slept = sleep_through(maintenance_worlds, case, laid)

    assert slept.refused == ()
    assert slept.said in _truths(case), slept.answer
    done = (case.step,) if slept.said == "acknowledged" else ()
    expected = with_steps(laid, (*done, *slept.acknowledged))
    graph = assert_whole(maintenance_worlds.root, expected)
    _assert_stays(graph, expected)


@pytest.mark.usefixtures("unkept")
@pytest.mark.parametrize(
    "looked",
    for_gate(
        ["retention.verify=stop@2", "cleanup.post_list=stop"], "cleanup.post_list=stop".__eq__
    ),
)
def test_what_a_writer_publishes_after_a_cleanup_looked_is_kept(
    looked: str, maintenance_worlds: MaintenanceWorlds
) -> None:
    """The first fork of a branch is read by nobody yet when the cleanup lists its versions."""
    laid = maintenance_worlds.lay_out(MaintenanceWorld.UNKEPT)
    graph = maintenance_worlds.graph()
    first = write(STALE, "append-s")
    writer = start_step(maintenance_worlds, first, laid, failpoints="publish.pre_manifest=stop")
    writer.wait_until_stopped()
    cleaner = maintenance_worlds.start(Maintenance.CLEANUP_TO_ONE, failpoints=looked)
    cleaner.wait_until_stopped()
    writer.wake()
    assert writer.end().said == "acknowledged"
    steps = (tag("t2", STALE), write(STALE, "append-t"))
    assert [take(graph, step, laid) for step in steps] == ["acknowledged"] * 2
    cleaner.wake()

    said = cleaner.end().said

    assert said == "acknowledged"
    expected = with_steps(laid, (first, *steps))
    _assert_stays(assert_whole(maintenance_worlds.root, expected), expected)


@pytest.mark.usefixtures("unkept")
@pytest.mark.parametrize(
    "point",
    for_gate(
        ["mutation.begin", "mutation.post_sidecar", "merge.staged", "mutation.post_stage"],
        "mutation.begin".__eq__,
    ),
)
def test_a_merge_points_at_nothing_that_was_removed(
    point: str, maintenance_worlds: MaintenanceWorlds
) -> None:
    laid = maintenance_worlds.lay_out(MaintenanceWorld.UNKEPT)
    rivals = (write(MAIN, "append-x"), Maintenance.OPTIMIZE, write(MAIN, "append-y"))
    case = Sleep(
        world=MaintenanceWorld.UNKEPT,
        step=merge(MAIN, STALE),
        point=point,
        visit=1,
        rivals=(*rivals, Maintenance.CLEANUP_TO_ONE),
    )

    slept = sleep_through(maintenance_worlds, case, laid)

    # Before it has a sidecar nothing protects what it found; it has to notice, not to succeed.
    assert slept.said == ("failed" if point == "mutation.begin" else "acknowledged"), slept.answer
    expected = with_steps(laid, slept.acknowledged)
    seen = look(maintenance_worlds.graph())[STALE]
    assert seen == laid.contents[MAIN if slept.said == "acknowledged" else STALE]
    graph = assert_whole(maintenance_worlds.root, {**expected, STALE: seen})
    _assert_stays(graph, {**expected, STALE: seen})


def _truths(case: Sleep) -> tuple[str, ...]:
    """What may be said: old commits may be refused, and what was taken away; writers succeed."""
    assert isinstance(case.step, Errand)
    step = case.step
    if delete(step.name) in case.rivals:
        return ("acknowledged", "failed", "gone")
    if step.verb in {Verb.WRITE, Verb.MERGE} and case.point != "mutation.begin":
        return ("acknowledged",)
    if step.verb in {Verb.CREATE, Verb.TAG} and step.source == KEPT:
        return ("acknowledged",)
    return ("acknowledged", "failed")


def _assert_stays(graph: Graph, expected: Contents) -> None:
    """However often the graph is cleaned after that."""
    for _ in range(2 if is_nightly() else 1):
        assert keep_up(graph, Maintenance.CLEANUP_TO_ONE)["failed"] == ()
        assert_same(look(graph), expected)
    if is_nightly():
        assert_converges(graph, expected)
