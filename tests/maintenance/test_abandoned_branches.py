"""Branches with an owner and an expiry: told when abandoned, removed only if a policy says so."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.clock import Clock
from omnigraph_lake.commit.refs import abandoned_branches, delete_branch, list_branches
from omnigraph_lake.errors import InvalidInputError, NotFoundError
from omnigraph_lake.graph import Graph
from omnigraph_lake.maintenance.maintain import (
    Policy,
    Step,
    StepReport,
    maintain_graph,
    parse_policy,
)
from omnigraph_lake.maintenance.workers import Workers
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.storage.refs.branches import find_branch
from tests.behaviours.histories import put
from tests.maintenance.maintenance_graphs import doc, scattered_graph

pytestmark = pytest.mark.unit

WEEK, DAY = timedelta(days=7), timedelta(days=1)
REMOVES = parse_policy("[branches]\nremove_abandoned = true\n", name="nightly.toml")


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return scattered_graph(graph_root)


def _later(by: timedelta) -> Clock:
    return replace(SYSTEM_CLOCK, now=lambda: SYSTEM_CLOCK.now() + by)


def _step(graph: Graph, policy: Policy, clock: Clock) -> StepReport:
    objects = graph._objects
    workers = Workers(root=objects.root, runner=ThreadRunner(parallel=1))
    wanted = replace(policy, check=False, optimize=False, cleanup=False)
    report = maintain_graph(objects, graph.schema.catalog, wanted, workers, clock)
    (step,) = (step for step in report.steps if step.step is Step.BRANCHES)
    return step


def test_a_branch_says_who_it_is_for_and_until_when(graph: Graph) -> None:
    graph.branches.create("try", owner="anna", expires="7d")
    graph.branches.create("plain")

    branches = {branch.name: branch for branch in graph.branches.list()}
    assert branches["try"].owner == "anna"
    assert branches["try"].expires_at is not None
    assert branches["try"].expires_at > SYSTEM_CLOCK.timestamp()
    assert (branches["plain"].owner, branches["plain"].expires_at) == (None, None)
    assert not any(branch.abandoned for branch in branches.values())
    for days, expected in ((6, set()), (8, {"try"})):
        later = list_branches(graph._objects, _later(days * DAY))
        assert {branch.name for branch in later if branch.abandoned} == expected


def test_an_abandoned_branch_is_told_and_removed_only_if_the_policy_says_so(graph: Graph) -> None:
    put(graph.branches.create("try", owner="anna", expires="7d"), Doc=[doc(1, n=5)])

    assert _step(graph, REMOVES, SYSTEM_CLOCK).counts == {"abandoned": 0, "removed": 0}
    told = _step(graph, Policy(), _later(WEEK + DAY))
    assert (told.counts, "anna" in told.messages[0]) == ({"abandoned": 1, "removed": 0}, True)
    graph.checkout("try")

    gone = _step(graph, REMOVES, _later(WEEK + DAY))
    assert gone.counts == {"abandoned": 1, "removed": 1}
    with pytest.raises(NotFoundError):
        graph.checkout("try")


def test_a_branch_that_somebody_wrote_to_after_its_time_is_not_abandoned(graph: Graph) -> None:
    branch = graph.branches.create("try", expires=timedelta(microseconds=1))
    assert list_branches(graph._objects, _later(DAY))[1].abandoned

    put(branch, Doc=[doc(1, n=5)])

    assert not list_branches(graph._objects, _later(DAY))[1].abandoned
    assert _step(graph, REMOVES, _later(DAY)).counts["abandoned"] == 0


def test_an_abandoned_branch_that_others_were_made_from_stays(graph: Graph) -> None:
    graph.branches.create("try", expires="1d").branches.create("child")

    kept = _step(graph, REMOVES, _later(WEEK))

    assert kept.counts == {"abandoned": 1, "removed": 0}
    assert "child" in kept.messages[0]
    graph.checkout("try")


def test_a_later_branch_of_the_same_name_is_not_taken_for_the_abandoned_one(graph: Graph) -> None:
    graph.branches.create("try", expires="1d")
    ((abandoned, _),) = abandoned_branches(graph._objects, _later(WEEK))
    graph.branches.delete("try")
    graph.branches.create("try")

    with pytest.raises(NotFoundError, match="created again"):
        delete_branch(graph._objects, "try", incarnation=abandoned.incarnation)
    assert find_branch(graph._objects, "try") is not None


@pytest.mark.parametrize("expires", ["soon", "0s", timedelta(0), 7])
def test_a_time_that_means_nothing_is_refused(graph: Graph, expires: str) -> None:
    with pytest.raises(InvalidInputError):
        graph.branches.create("try", expires=expires)
    with pytest.raises(InvalidInputError, match="owner"):
        graph.branches.create("try", owner="\x1b[31m")
    assert len(graph.branches.list()) == 1
