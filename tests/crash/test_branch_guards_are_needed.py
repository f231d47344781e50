"""Each guard of branches, left out on purpose: a script in which the graph then breaks or lies.

Every script runs twice on real tables, with the guard and without it. There is no chance in them:
processes stand still at named points while others act.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from omnigraph_lake.validation.check import Problem
from tests.crash.branch_world import (
    DEV,
    FRESH,
    KEPT,
    RECONCILE,
    SWEEP,
    Errand,
    Verb,
    create,
    delete,
    look_at,
    marks_in,
    read,
    run_errand,
    tag,
    untag,
    write,
)
from tests.crash.branch_worlds import (
    BranchWorld,
    BranchWorlds,
    named,
    run_victim,
    start_errand,
)
from tests.crash.worlds import earlier_id

pytestmark = pytest.mark.crash

ON = ""


def test_a_write_is_acknowledged_only_while_its_branch_lives(branch_worlds: BranchWorlds) -> None:
    def told_and_true(guard: str) -> tuple[str | None, bool]:
        graph = _graph(branch_worlds, BranchWorld.FRESH)
        writer = start_errand(
            graph.root,
            named(write(FRESH, "link-a")),
            failpoints="publish.pre_manifest=stop",
            without_guard=guard,
        )
        writer.wait_until_stopped()
        _run(graph, delete(FRESH), create(FRESH))
        writer.wake()
        said = writer.end().said
        return said, "link-a" in look_at(graph, branch_worlds.base).picture[FRESH]

    assert told_and_true(ON) == ("gone", False)
    assert told_and_true("no_incarnation_check") == ("acknowledged", False)


def test_a_read_is_believed_only_while_its_branch_lives(branch_worlds: BranchWorlds) -> None:
    def told_and_missed(guard: str) -> tuple[str | None, bool]:
        graph = _graph(branch_worlds, BranchWorld.DEV)
        _run(graph, tag("all-forks", DEV))
        late = start_errand(
            graph.root, named(write(DEV, "link-late")), failpoints="publish.pre_manifest=stop"
        )
        late.wait_until_stopped()
        acknowledged = write(DEV, "append-acknowledged")
        _run(graph, acknowledged)
        reader = start_errand(
            graph.root, read(DEV), failpoints="read.begin=stop", without_guard=guard
        )
        reader.wait_until_stopped()
        _run(graph, delete(DEV))
        late.wake()
        assert late.end().said == "gone"
        reader.wake()
        answer = reader.end().answer
        seen = marks_in(answer["content"], branch_worlds.base) if "content" in answer else ()
        return answer["said"], acknowledged.mark not in seen

    # The late writer's manifest has taken the number of the one that was acknowledged.
    assert told_and_missed(ON) == ("failed", True)
    assert told_and_missed("read_unverified") == ("acknowledged", True)


def test_the_fork_of_a_writer_at_work_is_nobodys_orphan(branch_worlds: BranchWorlds) -> None:
    def told_and_problems(guard: str) -> tuple[str | None, set[Problem]]:
        graph = _graph(branch_worlds, BranchWorld.FRESH)
        writer = start_errand(
            graph.root, named(write(FRESH, "link-a")), failpoints="publish.pre_manifest=stop"
        )
        writer.wait_until_stopped()
        assert start_errand(graph.root, RECONCILE, without_guard=guard).end().said == "acknowledged"
        writer.wake()
        return writer.end().said, _problems(graph, FRESH)

    assert told_and_problems(ON) == ("acknowledged", set())
    told, problems = told_and_problems("reconcile_no_sidecars")
    assert told == "acknowledged"
    assert Problem.UNREADABLE_PIN in problems


def test_a_sweep_keeps_the_forks_of_what_was_published(branch_worlds: BranchWorlds) -> None:
    def problems(guard: str) -> set[Problem]:
        graph = _graph(branch_worlds, BranchWorld.FRESH)
        errand = named(write(FRESH, "link-a"))
        assert run_victim(graph.root, errand, failpoints="publish.post_manifest=kill").was_killed
        assert start_errand(graph.root, SWEEP, without_guard=guard).end().said == "acknowledged"
        return _problems(graph, FRESH)

    assert problems(ON) == set()
    assert Problem.UNREADABLE_PIN in problems("sweep_drops_published")


def test_nothing_is_deleted_if_a_branch_was_made_meanwhile(branch_worlds: BranchWorlds) -> None:
    def problems(guard: str) -> set[Problem]:
        graph = _graph(branch_worlds, BranchWorld.DEV)
        _run(graph, delete(DEV))
        reconciling = start_errand(
            graph.root, RECONCILE, failpoints="reconcile.post_logs=stop", without_guard=guard
        )
        reconciling.wait_until_stopped()
        # The tag was all that named the forks; now the new branch is.
        _run(graph, create("revived", KEPT), untag(KEPT))
        reconciling.wake()
        assert reconciling.end().said == "acknowledged"
        return _problems(graph, "revived")

    # Orphans are looked at twice, with their floors raised in between: one look at the logs would
    # be enough for forks of tables.
    assert problems(ON) == set()
    assert problems("reconcile_logs_once") == set()


def _graph(worlds: BranchWorlds, world: BranchWorld) -> Graph:
    worlds.lay_out(world)
    return og.open(worlds.root)


def _run(graph: Graph, *errands: Errand) -> None:
    for errand in errands:
        needs_id = errand.verb is Verb.WRITE
        run_errand(graph, replace(errand, operation_id=earlier_id()) if needs_id else errand)


def _problems(graph: Graph, branch: str) -> set[Problem]:
    return {finding.problem for finding in graph.checkout(branch).maintenance.check().findings}
