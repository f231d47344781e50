"""Whoever was taken for dead and wakes up: it tells the truth, and nobody loses a row.

What the gate leaves out of the matrices, and why, is in `tests/crash/zombies.py`. Of the rest it
leaves out: an init that is forced over a slow one where that has written only the contract (another
test begins there), migrations from later stamps (those from stamp 1 pass through them), and folds
that have dropped commits from the manifest already (nothing is left for them to do).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.graph import Graph
from tests.crash.cases import init_deaths
from tests.crash.processes import start
from tests.crash.small_world import SCHEMA, Content, Job, Kind, carry_out, content_of
from tests.crash.verdict import (
    NOT_DONE,
    assert_sound,
    assert_sweeping_again_changes_nothing,
    assert_writes_succeed,
    pending,
)
from tests.crash.worlds import Stage, World, Worlds
from tests.crash.zombies import (
    FOLDING,
    RIVAL,
    SLEEPS,
    SWEEP_SLEEPS,
    Meanwhile,
    Sleep,
    SweepSleep,
    fold_and_clean,
    pass_time,
    replayed,
)
from tests.gate.selection import for_gate, is_nightly
from tests.stores import root_at

pytestmark = [pytest.mark.crash, pytest.mark.sampled(3)]

DONE_BEFORE_IT_SLEPT = frozenset(
    {
        "publish.post_manifest",
        "publish.resolve.list",
        "publish.resolve.verify",
        "mutation.post_sidecar_delete",
    }
)
BEFORE_THE_GRAPH_EXISTS = init_deaths()[:-1]


@pytest.mark.parametrize("case", SLEEPS.selected, ids=str)
def test_a_writer_that_wakes_up_tells_the_truth(case: Sleep, worlds: Worlds, root: str) -> None:
    before = worlds.copy(case.world, root)
    job = Job(kind=case.kind, operation_id=str(ULID()))
    armed = f"{case.point}=stop@{case.visit}"
    sleeper = start("write", root, job.encoded(), failpoints=armed)
    sleeper.wait_until_stopped()
    pass_time(case.meanwhile, root)
    sleeper.wake()

    said = sleeper.end().said

    graph = og.open(root)
    outcome = graph.outcome(job.operation_id)
    if said == "acknowledged":
        assert outcome is OperationStatus.PUBLISHED
    else:
        assert said == "failed"
        assert outcome in NOT_DONE
        assert case.point not in DONE_BEFORE_IT_SLEPT
    _assert_nobody_lost_a_row(graph, before, job, after_case=case)


@pytest.mark.parametrize("case", SWEEP_SLEEPS.selected, ids=str)
def test_a_sweep_that_wakes_up_does_no_harm(case: SweepSleep, worlds: Worlds, root: str) -> None:
    job, before = worlds.copy_after_death(case.stage, Kind.APPEND, root)
    sleeper = start("sweep", root, failpoints=f"{case.point}=stop")
    sleeper.wait_until_stopped()
    pass_time(Meanwhile.SWEPT_AND_WRITTEN, root)
    decided = og.open(root, read_only=True).outcome(job.operation_id)
    sleeper.wake()

    said = sleeper.end().said

    assert said == "acknowledged"
    graph = og.open(root)
    forward = case.stage is Stage.ALL_MOVED
    assert decided is (OperationStatus.PUBLISHED if forward else OperationStatus.ROLLED_BACK)
    assert graph.outcome(job.operation_id) is decided
    recoveries = [
        each for each in graph.maintenance.recoveries() if each.operation_id == job.operation_id
    ]
    assert [each.kind for each in recoveries] == ["rolled_forward" if forward else "rolled_back"]
    _assert_nobody_lost_a_row(graph, before, job, after_case=case)


@pytest.mark.parametrize("point", for_gate(FOLDING, FOLDING[:2].__contains__))
def test_a_fold_that_wakes_up_loses_no_commit(point: str, worlds: Worlds, root: str) -> None:
    before = worlds.copy(World.MANY_COMMITS if is_nightly() else World.PLAIN, root)
    sleeper = start("fold", root, failpoints=f"{point}=stop")
    sleeper.wait_until_stopped()
    graph = og.open(root)
    commits = {commit.commit_id for commit in graph.commits()}
    job = Job(kind=Kind.APPEND, operation_id=str(ULID()))
    carry_out(graph, job)
    fold_and_clean(graph)
    sleeper.wake()

    said = sleeper.end().said

    assert said == "acknowledged"
    listed = [commit.commit_id for commit in graph.commits()]
    assert len(listed) == len(set(listed)) == len(commits) + 1
    assert commits < set(listed)
    assert graph.outcome(job.operation_id) is OperationStatus.PUBLISHED
    _assert_nobody_lost_a_row(graph, before, job, after_case=point)


@pytest.mark.parametrize("point", init_deaths())
def test_an_init_that_wakes_up_leaves_the_graph_that_was_forced_meanwhile(
    point: str, root: str
) -> None:
    sleeper = start("init", root, failpoints=f"{point}=stop")
    sleeper.wait_until_stopped()
    exists = point == "init.post_manifest"
    graph = og.open(root) if exists else og.init(root, schema=SCHEMA, force=True)
    job = Job(kind=Kind.APPEND, operation_id=str(ULID()))
    carry_out(graph, job)
    content = content_of(graph)
    sleeper.wake()

    said = sleeper.end().said

    assert (said == "acknowledged") == exists
    assert content_of(og.open(root)) == content
    assert_sound(og.open(root))
    assert og.open(root).schema.catalog == graph.schema.catalog


@pytest.mark.parametrize(
    "slow", for_gate(["init.post_contract", "init.post_history"], "init.post_history".__eq__)
)
@pytest.mark.parametrize("forced", BEFORE_THE_GRAPH_EXISTS)
def test_a_forced_init_and_the_living_one_it_replaces_do_no_damage(
    slow: str, forced: str, root: str
) -> None:
    said = _force_while_another_is_slow(root, slow=slow, forced=forced)

    assert said.count("acknowledged") <= 1
    if "acknowledged" not in said:
        with pytest.raises(OmnigraphError):
            og.open(root)
        return
    graph = og.open(root)
    carry_out(graph, Job(kind=Kind.APPEND, operation_id=str(ULID())))
    assert_sound(graph)


def test_a_forced_init_that_meets_the_tables_of_the_deposed_one_ends_sound(root: str) -> None:
    said = _force_while_another_is_slow(
        root, slow="init.post_contract", forced="init.post_contract"
    )

    graph = og.open(root) if "acknowledged" in said else og.init(root, schema=SCHEMA, force=True)

    assert_sound(graph)


@pytest.mark.parametrize("stamp", for_gate([1, 2, 3], lambda stamp: stamp == 1))
@pytest.mark.parametrize("point", ["migration.pre_step", "migration.post_step"])
def test_a_migration_that_wakes_up_changes_nothing(
    stamp: int, point: str, worlds: Worlds, root: str
) -> None:
    worlds.copy_old(stamp, (), root)
    sleeper = start("open", root, failpoints=f"{point}=stop")
    sleeper.wait_until_stopped()
    graph = og.open(root)
    graph.write({"Person": [{"name": "a"}], "Company": [{"name": "b"}]})
    content = content_of(graph)
    version = graph.snapshot().manifest_version
    sleeper.wake()

    said = sleeper.end().said

    assert said == "acknowledged"
    assert content_of(og.open(root)) == content
    assert og.open(root).snapshot().manifest_version == version
    assert_sound(og.open(root))


def _force_while_another_is_slow(root: str, *, slow: str, forced: str) -> list[str | None]:
    """Stop an init, stop a forced one that replaces it, wake both in turn: what they said."""
    replaced = start("init", root, failpoints=f"{slow}=stop")
    replaced.wait_until_stopped()
    forcing = start("force_init", root, failpoints=f"{forced}=stop")
    forcing.wait_until_stopped()
    replaced.wake()
    said = [replaced.end().said]
    forcing.wake()
    return [*said, forcing.end().said]


def _assert_nobody_lost_a_row(
    graph: Graph, before: Content, job: Job, *, after_case: object
) -> None:
    assert pending(graph) == ()
    assert content_of(graph) == replayed(graph, before, RIVAL, job)
    published = graph.outcome(job.operation_id) is OperationStatus.PUBLISHED
    assert [commit.operation_id for commit in graph.commits()].count(job.operation_id) == published
    assert_sound(graph)
    assert_sweeping_again_changes_nothing(graph.root)
    assert_writes_succeed(graph, after_case=after_case)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return root_at(tmp_path / "graph")
