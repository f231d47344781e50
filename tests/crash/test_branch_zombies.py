"""Whoever wakes up among changed branches: some order of all errands explains what is there.

What the gate leaves out of the matrices, and why, is in `tests/crash/branch_zombies.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import omnigraph_lake as og
from omnigraph_lake.api.handle import OpenMode
from omnigraph_lake.commit.sidecar import pending_operations
from omnigraph_lake.graph import Graph
from tests.crash.branch_order import Told, explained, moment_of
from tests.crash.branch_verdict import assert_tidy_and_sound
from tests.crash.branch_world import (
    DEV,
    MAIN,
    SWEEP,
    Picture,
    Verb,
    delete,
    look_at,
    marks_in,
    tag,
    told,
    untag,
    write,
)
from tests.crash.branch_worlds import BranchWorld, BranchWorlds, named, start_errand
from tests.crash.branch_zombies import (
    SLEEPS,
    SWEEP_SLEEPS,
    BranchSleep,
    BranchSweepSleep,
    Rivals,
    may_fail,
)
from tests.crash.worlds import earlier_id

pytestmark = [pytest.mark.crash, pytest.mark.sampled(3)]

LAST = "append_everywhere-last"


@pytest.mark.parametrize("case", SLEEPS.selected, ids=str)
def test_an_errand_that_wakes_up_is_explained_by_some_order(
    case: BranchSleep, branch_worlds: BranchWorlds
) -> None:
    before, root = branch_worlds.lay_out(case.world), branch_worlds.root
    graph = og.open(root)
    errand = named(case.errand)
    sleeper = start_errand(root, errand, failpoints=f"{case.point}=stop")
    sleeper.wait_until_stopped()
    rivals = _run(graph, case.rivals)
    sleeper.wake()

    ended = sleeper.end()

    assert ended.said is not None
    slow = Told(errand=errand, said=ended.said)
    assert slow.said in ("acknowledged", "failed", "gone"), ended.answer
    assert slow.said == "acknowledged" or may_fail(errand, case.rivals), ended.answer
    if errand.verb is Verb.READ and slow.said == "acknowledged":
        _assert_was_true_once(
            marks_in(ended.answer["content"], branch_worlds.base), slow, rivals, before
        )
    _assert_explained(branch_worlds, slow, rivals, before)


@pytest.mark.parametrize("case", SWEEP_SLEEPS.selected, ids=str)
def test_a_sweep_that_wakes_up_among_branches_does_no_harm(
    case: BranchSweepSleep, branch_worlds: BranchWorlds
) -> None:
    dead, before = branch_worlds.lay_out_dead(case.stage)
    root = branch_worlds.root
    sleeper = start_errand(root, SWEEP, failpoints=f"{case.point}=stop")
    sleeper.wait_until_stopped()
    # Opening would settle what the dead writer left; whoever was there before does not.
    graph = og.open(root, read_only=True)
    graph._handle.mode = OpenMode.READ_WRITE
    rivals = _run(graph, case.rivals)
    sleeper.wake()

    ended = sleeper.end()

    assert ended.said == "acknowledged", ended.answer
    _assert_explained(branch_worlds, Told(errand=dead, said="unknown"), rivals, before)


@pytest.mark.parametrize(
    "others",
    [
        (delete(DEV), tag("t2", MAIN)),
        (tag("t2", DEV), untag("t2"), tag("t2", MAIN)),
    ],
    ids=["taken-over", "made-deleted-and-made"],
)
def test_a_tag_that_fails_late_leaves_the_tag_of_another_alone(
    branch_worlds: BranchWorlds, others: Rivals
) -> None:
    branch_worlds.lay_out(BranchWorld.DEV)
    graph = og.open(branch_worlds.root)
    sleeper = start_errand(graph.root, tag("t2", DEV), failpoints="tag.post_put=stop")
    sleeper.wait_until_stopped()
    rivals = _run(graph, others)
    sleeper.wake()

    said = sleeper.end().said

    assert said == "failed"
    assert {rival.said for rival in rivals} == {"acknowledged"}
    picture = assert_tidy_and_sound(graph, branch_worlds.base, after_zombies=True)
    assert picture["tag:t2"] == picture[MAIN]


def _run(graph: Graph, rivals: Rivals) -> list[Told]:
    """Run errands one after the other, as writers that wait for nobody."""
    found = []
    for rival in rivals:
        ours = replace(named(rival), operation_id=earlier_id()) if named(rival) != rival else rival
        found.append(Told(errand=rival, said=str(told(graph, ours)["said"])))
    return found


def _assert_explained(
    worlds: BranchWorlds, slow: Told, rivals: list[Told], before: Picture
) -> None:
    graph = og.open(worlds.root)
    assert pending_operations(graph._objects) == ()
    used = {slow.errand.name, *(rival.errand.name for rival in rivals)}
    picture = assert_tidy_and_sound(graph, worlds.base, after_zombies=True, used=used)
    assert picture in explained(moment_of(before), [slow], rivals), (slow, rivals)
    name = slow.errand.name if slow.errand.name in picture else MAIN
    assert told(graph, write(name, LAST))["said"] == "acknowledged"
    written = look_at(graph, worlds.base, only={name}).picture
    assert written == {name: picture[name] | {LAST}}


def _assert_was_true_once(
    marks: frozenset[str], slow: Told, rivals: list[Told], before: Picture
) -> None:
    moments = [
        picture
        for number in range(len(rivals) + 1)
        for picture in explained(moment_of(before), [slow], rivals[:number])
    ]
    assert marks in [picture.get(slow.errand.name) for picture in moments]
