"""Whoever is killed, wherever: the graph opens, nothing is half done, and the outcome is true."""

from __future__ import annotations

from pathlib import Path

import pytest
from ulid import ULID

import omnigraph
from omnigraph import names
from omnigraph.errors import AlreadyInitialisedError, OmnigraphError
from omnigraph.failpoints import POINTS
from omnigraph.operations.check import Problem
from omnigraph.operations.outcome import OperationStatus
from tests.cluster.inputs import DRIVER_POINTS, TASK_POINT
from tests.crash.branch_cases import branch_deaths, branch_sweep_deaths
from tests.crash.cases import (
    Death,
    RivalledDeath,
    SweepDeath,
    drift_deaths,
    fold_deaths,
    init_deaths,
    rivalled_deaths,
    sweep_deaths,
    writer_deaths,
)
from tests.crash.processes import run, start
from tests.crash.rivals import act, mend
from tests.crash.schema_cases import schema_deaths, schema_sweep_deaths
from tests.crash.small_world import SCHEMA, TOUCHED, Job, Kind, after, carry_out, content_of
from tests.crash.upkeep_cases import late_deaths, upkeep_deaths
from tests.crash.upkeep_world import Upkeep
from tests.crash.verdict import (
    assert_all_or_nothing,
    assert_asking_again_tells_the_same,
    assert_every_kind_of_write_succeeds,
    assert_heads_are_published,
    assert_sound,
    pending,
    reopened,
)
from tests.crash.worlds import Stage, World, Worlds, earlier_id
from tests.stores import folder_of, root_at

pytestmark = pytest.mark.crash

STAMPS_AND_STEPS = [
    (stamp, branches, point, visit)
    for branches in ((), ("feature",))
    for stamp in (1, 2, 3)
    for point in ("migration.pre_step", "migration.post_step")
    for visit in range(1, (names.STAMP - stamp) * (1 + len(branches)) + 1)
    if not branches or visit > names.STAMP - stamp
]
FORWARD_ONLY = frozenset({"publish.resolve", "publish.resolve.list", "publish.resolve.verify"})


@pytest.mark.parametrize("case", list(writer_deaths()), ids=str)
def test_a_killed_writer_leaves_all_or_nothing(case: Death, worlds: Worlds, root: str) -> None:
    before = worlds.copy(case.world, root)
    job = _job(case.kind)

    ended = run("write", root, job.encoded(), failpoints=f"{case.point}=kill@{case.visit}")

    assert ended.was_killed
    outcome = assert_all_or_nothing(root, job, before=before)
    if case.point in FORWARD_ONLY:
        assert outcome is OperationStatus.PUBLISHED
    graph = omnigraph.open(root)
    if case.world is World.PLAIN:
        assert_heads_are_published(graph)
    assert_asking_again_tells_the_same(graph, job, outcome)
    assert_every_kind_of_write_succeeds(graph)


@pytest.mark.parametrize("case", list(drift_deaths()), ids=str)
def test_a_writer_killed_while_refusing_foreign_rows_leaves_them_alone(
    case: Death, worlds: Worlds, root: str
) -> None:
    before = worlds.copy(case.world, root)
    job = _job(case.kind)

    ended = run("write", root, job.encoded(), failpoints=f"{case.point}=kill")

    assert ended.was_killed
    outcome = assert_all_or_nothing(root, job, before=before, allowed=[Problem.DRIFT])
    assert outcome is OperationStatus.ROLLED_BACK
    drifted = {f.thing for f in omnigraph.open(root).check().findings}
    assert drifted == {"node:Person", "node:City"}


@pytest.mark.parametrize("case", list(fold_deaths()), ids=str)
def test_a_writer_killed_while_folding_has_published(
    case: Death, worlds: Worlds, root: str
) -> None:
    before = worlds.copy(case.world, root)
    job = _job(case.kind)
    commits = {commit.commit_id for commit in omnigraph.open(root, mode="r").commits()}

    ended = run("write", root, job.encoded(), failpoints=f"{case.point}=kill")

    assert ended.was_killed
    outcome = assert_all_or_nothing(root, job, before=before)
    assert outcome is OperationStatus.PUBLISHED
    graph = omnigraph.open(root)
    assert_asking_again_tells_the_same(graph, job, outcome)
    assert_every_kind_of_write_succeeds(graph)
    listed = [commit.commit_id for commit in graph.commits()]
    assert len(listed) == len(set(listed)) == len(commits) + 1 + 4
    assert commits < set(listed)


def test_a_writer_whose_fold_fails_has_published_and_says_so(worlds: Worlds, root: str) -> None:
    before = worlds.copy(World.MANY_COMMITS, root)
    job = _job(Kind.APPEND)
    writer = start("write", root, job.encoded(), failpoints="fold.post_read=stop")
    writer.wait_until_stopped()
    data = folder_of(root, names.COMMITS, "data")
    assert not data.exists(), "nothing was folded yet"
    data.write_text("not a directory")
    writer.wake()

    said = writer.end().said

    assert said == "acknowledged"
    data.unlink()
    assert assert_all_or_nothing(root, job, before=before) is OperationStatus.PUBLISHED


@pytest.mark.parametrize("case", list(rivalled_deaths()), ids=str)
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
    graph = omnigraph.open(root)
    assert_asking_again_tells_the_same(graph, job, outcome)
    assert_every_kind_of_write_succeeds(graph)


@pytest.mark.parametrize("case", list(sweep_deaths()), ids=str)
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
    graph = omnigraph.open(root)
    assert_asking_again_tells_the_same(graph, job, outcome)
    if case.stage is not Stage.DRIFTED:
        assert_every_kind_of_write_succeeds(graph)


def test_a_sweep_whose_restored_version_came_too_late_changes_nothing(
    worlds: Worlds, root: str
) -> None:
    job, before = worlds.copy_after_death(Stage.ONE_MOVED, Kind.APPEND, root)
    armed = "recovery.pre_restore_publish=stop,recovery.restore_publish_refused=kill"
    sweeper = start("sweep", root, failpoints=armed)
    sweeper.wait_until_stopped()
    rival = Job(kind=Kind.MERGE, operation_id=earlier_id(), mark="rival")
    carry_out(omnigraph.open(root), rival)
    sweeper.wake()

    ended = sweeper.end()

    assert ended.was_killed
    outcome = assert_all_or_nothing(root, job, before=after(before, rival))
    assert outcome is OperationStatus.ROLLED_BACK
    assert_every_kind_of_write_succeeds(omnigraph.open(root))


@pytest.mark.parametrize(("stamp", "branches", "point", "visit"), STAMPS_AND_STEPS)
def test_a_killed_migration_is_finished_by_the_next_open(
    stamp: int, branches: tuple[str, ...], point: str, visit: int, worlds: Worlds, root: str
) -> None:
    worlds.copy_old(stamp, branches, root)

    ended = run("open", root, failpoints=f"{point}=kill@{visit}")

    assert ended.was_killed
    assert not any(content_of(omnigraph.open(root, mode="r")).values())
    graph = reopened(root)
    assert graph.status().format_stamp == names.STAMP
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
            omnigraph.init(root, schema=SCHEMA, force=True)
    else:
        for mode in ("r", "rw"):
            with pytest.raises(OmnigraphError):
                omnigraph.open(root, mode=mode)
        omnigraph.init(root, schema=SCHEMA, force=True)
    graph = reopened(root)
    assert pending(graph) == ()
    assert not any(content_of(graph).values())
    assert_sound(graph)
    job = Job(kind=Kind.APPEND, operation_id=str(ULID()))
    carry_out(graph, job)
    assert_sound(graph)


def test_every_failpoint_is_where_somebody_is_killed() -> None:
    killed = {case.point for case in (*writer_deaths(), *drift_deaths(), *fold_deaths())}
    killed |= {case.point for case in rivalled_deaths()}
    killed |= {case.point for case in sweep_deaths()}
    killed |= {point for _, _, point, _ in STAMPS_AND_STEPS}
    killed |= {*init_deaths(), "recovery.restore_publish_refused"}
    killed |= {case.point for case in branch_deaths()}
    killed |= {case.point for case in branch_sweep_deaths()}
    killed |= {case.point for case in upkeep_deaths(*Upkeep)}
    killed |= {case.point for case in late_deaths()}
    killed |= {case.point for case in schema_deaths()}
    killed |= {case.point for case in schema_sweep_deaths()}

    assert killed | {*DRIVER_POINTS, TASK_POINT} == POINTS


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
