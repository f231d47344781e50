"""Whoever is killed, wherever: the graph opens, nothing is half done, and the outcome is true.

What the gate leaves out of these matrices, and why, is in `tests/crash/cases.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.errors import AlreadyInitialisedError, OmnigraphError
from omnigraph_lake.validation.check import Problem
from tests.crash.cases import (
    DRIFTS,
    FOLDS,
    LOOKS_OF_SWEEPS,
    LOOKS_OF_WRITERS,
    MIGRATIONS,
    RIVALLED,
    SWEEPS,
    WRITERS,
    Death,
    MigrationDeath,
    RivalledDeath,
    SweepDeath,
    init_deaths,
)
from tests.crash.processes import run, start
from tests.crash.rivals import act, mend
from tests.crash.small_world import SCHEMA, TOUCHED, Job, Kind, after, carry_out, content_of
from tests.crash.verdict import (
    assert_all_or_nothing,
    assert_asking_again_tells_the_same,
    assert_heads_are_published,
    assert_sound,
    assert_writes_succeed,
    kinds_that_follow,
    looked_at,
    pending,
    reopened,
)
from tests.crash.worlds import Stage, World, Worlds, earlier_id
from tests.gate.selection import is_nightly
from tests.stores import folder_of, root_at

pytestmark = [pytest.mark.crash, pytest.mark.sampled(3)]

BEFORE_A_FOLD = World.MANY_COMMITS if is_nightly() else World.PLAIN
WRITE_AND_FOLD = "write" if is_nightly() else "write_and_fold"
"""A writer folds after a hundred commits; that of the gate folds after a few."""
FORWARD_ONLY = frozenset({"publish.resolve", "publish.resolve.list", "publish.resolve.verify"})


@pytest.mark.parametrize("case", WRITERS.selected, ids=str)
def test_a_killed_writer_leaves_all_or_nothing(case: Death, worlds: Worlds, root: str) -> None:
    before = worlds.copy(case.world, root)
    job = _job(case.kind)

    ended = run("write", root, job.encoded(), failpoints=f"{case.point}=kill@{case.visit}")

    assert ended.was_killed
    outcome = assert_all_or_nothing(root, job, before=before)
    if case.point in FORWARD_ONLY:
        assert outcome is OperationStatus.PUBLISHED
    graph = og.open(root)
    if case.world is World.PLAIN:
        assert_heads_are_published(graph)
    assert_asking_again_tells_the_same(graph, job, outcome)
    assert_writes_succeed(graph, after_case=case)


def test_writers_killed_where_they_only_look_leave_all_or_nothing(
    worlds: Worlds, root: str
) -> None:
    content = worlds.copy(World.PLAIN, root)

    for point in LOOKS_OF_WRITERS:
        job = Job(kind=Kind.APPEND, operation_id=str(ULID()), mark=point)
        assert run("write", root, job.encoded(), failpoints=f"{point}=kill").was_killed
        seen = looked_at(root)
        graph = reopened(root)
        published = graph.outcome(job.operation_id) is OperationStatus.PUBLISHED
        assert published == (point in FORWARD_ONLY)
        content = after(content, job) if published else content
        assert seen == content_of(graph) == content

    assert_sound(og.open(root))
    assert_writes_succeed(og.open(root), after_case=LOOKS_OF_WRITERS)


@pytest.mark.parametrize("case", DRIFTS.selected, ids=str)
def test_a_writer_killed_while_refusing_foreign_rows_leaves_them_alone(
    case: Death, worlds: Worlds, root: str
) -> None:
    before = worlds.copy(case.world, root)
    job = _job(case.kind)

    ended = run("write", root, job.encoded(), failpoints=f"{case.point}=kill")

    assert ended.was_killed
    outcome = assert_all_or_nothing(root, job, before=before, allowed=[Problem.DRIFT])
    assert outcome is OperationStatus.ROLLED_BACK
    drifted = {f.thing for f in og.open(root).maintenance.check().findings}
    assert drifted == {"node:Person", "node:City"}


@pytest.mark.parametrize("case", FOLDS.selected, ids=str)
def test_a_writer_killed_while_folding_has_published(
    case: Death, worlds: Worlds, root: str
) -> None:
    before = worlds.copy(BEFORE_A_FOLD, root)
    job = _job(case.kind)
    commits = {commit.commit_id for commit in og.open(root, read_only=True).commits()}

    ended = run(WRITE_AND_FOLD, root, job.encoded(), failpoints=f"{case.point}=kill")

    assert ended.was_killed
    outcome = assert_all_or_nothing(root, job, before=before)
    assert outcome is OperationStatus.PUBLISHED
    graph = og.open(root)
    assert_asking_again_tells_the_same(graph, job, outcome)
    assert_writes_succeed(graph, after_case=case)
    listed = [commit.commit_id for commit in graph.commits()]
    assert len(listed) == len(set(listed)) == len(commits) + 1 + len(kinds_that_follow(case))
    assert commits < set(listed)


def test_a_writer_whose_fold_fails_has_published_and_says_so(worlds: Worlds, root: str) -> None:
    before = worlds.copy(BEFORE_A_FOLD, root)
    job = _job(Kind.APPEND)
    writer = start(WRITE_AND_FOLD, root, job.encoded(), failpoints="fold.post_read=stop")
    writer.wait_until_stopped()
    data = folder_of(root, names.COMMITS, "data")
    assert not data.exists(), "nothing was folded yet"
    data.write_text("not a directory")
    writer.wake()

    said = writer.end().said

    assert said == "acknowledged"
    data.unlink()
    assert assert_all_or_nothing(root, job, before=before) is OperationStatus.PUBLISHED


@pytest.mark.parametrize("case", RIVALLED.selected, ids=str)
def test_a_writer_killed_after_a_lost_race_leaves_all_or_nothing(
    case: RivalledDeath, worlds: Worlds, root: str
) -> None:
    worlds.copy(World.PLAIN, root)
    job = _job(case.kind)
    armed = f"{case.stop}=stop,{case.point}=kill@{case.visit}"
    victim = start("write", root, job.encoded(), failpoints=armed)
    victim.wait_until_stopped()
    before = act(case.rival, root, job)
    victim.wake()

    ended = victim.end()

    assert ended.was_killed
    mend(case.rival, root)
    outcome = assert_all_or_nothing(root, job, before=before)
    graph = og.open(root)
    assert_asking_again_tells_the_same(graph, job, outcome)
    assert_writes_succeed(graph, after_case=case)


@pytest.mark.parametrize("case", SWEEPS.selected, ids=str)
def test_a_killed_sweep_is_finished_by_the_next(
    case: SweepDeath, worlds: Worlds, root: str
) -> None:
    job, before = worlds.copy_after_death(case.stage, case.kind, root)
    allowed = [Problem.DRIFT] if case.stage is Stage.DRIFTED else []

    ended = run("sweep", root, failpoints=f"{case.point}=kill@{case.visit}")

    assert ended.was_killed
    outcome = assert_all_or_nothing(root, job, before=before, allowed=allowed)
    forward = case.stage in (Stage.ALL_MOVED, Stage.HEALED, Stage.PUBLISHED)
    expected = OperationStatus.PUBLISHED if forward else OperationStatus.ROLLED_BACK
    assert outcome is expected
    graph = og.open(root)
    assert_asking_again_tells_the_same(graph, job, outcome)
    if case.stage is not Stage.DRIFTED:
        assert_writes_succeed(graph, after_case=case)


def test_sweeps_killed_one_after_the_other_are_finished_by_the_last(
    worlds: Worlds, root: str
) -> None:
    job, before = worlds.copy_after_death(Stage.ONE_MOVED, Kind.APPEND, root)

    for point in LOOKS_OF_SWEEPS:
        assert run("sweep", root, failpoints=f"{point}=kill").was_killed, point
        assert looked_at(root) == before, point

    outcome = assert_all_or_nothing(root, job, before=before)
    assert outcome is OperationStatus.ROLLED_BACK
    assert_writes_succeed(og.open(root), after_case=LOOKS_OF_SWEEPS)


def test_a_sweep_whose_restored_version_came_too_late_changes_nothing(
    worlds: Worlds, root: str
) -> None:
    job, before = worlds.copy_after_death(Stage.ONE_MOVED, Kind.APPEND, root)
    armed = "recovery.pre_restore_publish=stop,recovery.restore_publish_refused=kill"
    sweeper = start("sweep", root, failpoints=armed)
    sweeper.wait_until_stopped()
    rival = Job(kind=Kind.MERGE, operation_id=earlier_id(), mark="rival")
    carry_out(og.open(root), rival)
    sweeper.wake()

    ended = sweeper.end()

    assert ended.was_killed
    outcome = assert_all_or_nothing(root, job, before=after(before, rival))
    assert outcome is OperationStatus.ROLLED_BACK
    assert_writes_succeed(og.open(root), after_case=armed)


@pytest.mark.parametrize("case", MIGRATIONS.selected, ids=str)
def test_a_killed_migration_is_finished_by_the_next_open(
    case: MigrationDeath, worlds: Worlds, root: str
) -> None:
    worlds.copy_old(case.stamp, case.branches, root)

    ended = run("open", root, failpoints=f"{case.point}=kill@{case.visit}")

    assert ended.was_killed
    _assert_migrated(root)


def test_a_migration_killed_after_every_step_is_finished_by_the_last_open(
    worlds: Worlds, root: str
) -> None:
    worlds.copy_old(1, (), root)
    steps = names.STAMP - 1

    for point in ("migration.pre_step", *("migration.post_step",) * steps):
        assert run("open", root, failpoints=f"{point}=kill").was_killed
        assert not any(content_of(og.open(root, read_only=True)).values())

    _assert_migrated(root)


def _assert_migrated(root: str) -> None:
    """Opening the empty graph has finished its migration, and it can be written."""
    assert not any(content_of(og.open(root, read_only=True)).values())
    graph = reopened(root)
    assert graph.maintenance.status().format_stamp == names.STAMP
    assert_sound(graph)
    version = graph.snapshot().manifest_version
    assert reopened(root).snapshot().manifest_version == version
    graph.write({"Person": [{"name": "a"}], "Company": [{"name": "b"}]})
    graph.write({"WorksAt": [{"src": "a", "dst": "b"}]})
    graph.delete({"Company": ["b"]})
    assert_sound(graph)
    assert content_of(graph)["edge:WorksAt"] == {}


@pytest.mark.parametrize("point", init_deaths())
def test_a_killed_init_made_the_graph_or_can_be_forced(point: str, root: str) -> None:
    ended = run("init", root, failpoints=f"{point}=kill")

    assert ended.was_killed
    if point == "init.post_manifest":
        with pytest.raises(AlreadyInitialisedError):
            og.init(root, schema=SCHEMA, force=True)
    else:
        for read_only in (True, False):
            with pytest.raises(OmnigraphError):
                og.open(root, read_only=read_only)
        og.init(root, schema=SCHEMA, force=True)
    graph = reopened(root)
    assert pending(graph) == ()
    assert not any(content_of(graph).values())
    assert_sound(graph)
    job = Job(kind=Kind.APPEND, operation_id=str(ULID()))
    carry_out(graph, job)
    assert_sound(graph)


def test_the_kinds_of_writers_move_several_tables() -> None:
    assert {kind: len(keys) for kind, keys in TOUCHED.items() if kind in tuple(Kind)[:4]} == {
        Kind.APPEND: 2,
        Kind.MERGE: 2,
        Kind.OVERWRITE: 2,
        Kind.DELETE: 3,
    }


def _job(kind: Kind) -> Job:
    return Job(kind=kind, operation_id=str(ULID()))


@pytest.fixture
def root(tmp_path: Path) -> str:
    return root_at(tmp_path / "graph")
