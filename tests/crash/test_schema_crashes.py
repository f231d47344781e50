"""Whoever is killed while the schema changes, wherever: everybody sees the old or the new.

What the gate leaves out of these matrices, and why, is in `tests/crash/schema_cases.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake import failpoints
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.failpoints import Action, Armed
from tests.crash.schema_cases import (
    DEATHS,
    ROUTES,
    SWEEP_DEATHS,
    SWEEPS,
    SchemaDeath,
    SchemaSweepDeath,
)
from tests.crash.schema_processes import run
from tests.crash.schema_verdict import (
    assert_life_goes_on,
    assert_no_table_of_nobody,
    assert_old_or_new,
    assert_published_once,
    assert_settled,
    seen_by_another,
)
from tests.crash.schema_world import Apply, Change, apply, changed, look
from tests.crash.schema_worlds import FORWARD, SchemaWorlds, Stage

pytestmark = [pytest.mark.crash, pytest.mark.sampled(3)]

DONE_BEFORE = frozenset(
    {
        "publish.post_manifest",
        "publish.resolve",
        "publish.resolve.list",
        "publish.resolve.verify",
        "schema.pre_promote",
        "schema.post_promote_file",
        "mutation.post_sidecar_delete",
        "branch.pre_verify",
        "schema.post_unlock",
    }
)
READY_BEFORE = frozenset({*DONE_BEFORE, "publish.pre_manifest"})
"""Where nothing is missing but the decision, which a sweep then makes."""


@pytest.mark.parametrize("case", DEATHS.selected, ids=str)
def test_a_killed_applier_leaves_the_old_or_the_new(
    case: SchemaDeath, schema_worlds: SchemaWorlds
) -> None:
    before, commit = schema_worlds.lay_out(case.change)
    job, root = _job(case.change), schema_worlds.root

    ended = run("apply", root, job.encoded(), failpoints=f"{case.point}=kill@{case.visit}")

    assert ended.was_killed
    outcome = assert_old_or_new(root, job, before=before)
    assert case.point not in READY_BEFORE or outcome is OperationStatus.PUBLISHED
    graph = schema_worlds.graph(case.change)
    assert_published_once(graph, job.operation_id)
    assert_life_goes_on(graph, job, outcome, before=before, commit=commit)


@pytest.mark.parametrize("case", SWEEP_DEATHS.selected, ids=str)
def test_a_killed_sweep_of_a_schema_change_is_finished_by_the_next(
    case: SchemaSweepDeath, schema_worlds: SchemaWorlds
) -> None:
    job, before, commit = schema_worlds.lay_out_dead(case.stage)
    root = schema_worlds.root

    ended = run("sweep", root, failpoints=f"{case.point}=kill@{case.visit}")

    assert ended.was_killed
    if case.stage is Stage.BRANCH_GONE:
        graph = og.open(root)
        assert_settled(graph)
        assert_no_table_of_nobody(graph)
        assert graph.maintenance.check().findings == ()
        return
    outcome = assert_old_or_new(root, job, before=before)
    forward = case.stage in FORWARD
    assert outcome is (OperationStatus.PUBLISHED if forward else OperationStatus.ROLLED_BACK)
    graph = schema_worlds.graph(job.change)
    assert_published_once(graph, job.operation_id)
    assert_life_goes_on(graph, job, outcome, before=before, commit=commit)


@pytest.mark.nightly(
    "that the points in the tables are reached is also shown by every death there; this "
    "shows that the tables name all of them"
)
@pytest.mark.parametrize("change", Change)
def test_an_applier_is_killed_at_every_point_that_it_reaches(
    change: Change, schema_worlds: SchemaWorlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, _ = schema_worlds.lay_out(change)
    graph, job = og.open(schema_worlds.root), _job(change)

    reached = _reached(lambda: apply(graph, job), monkeypatch)

    assert reached == ROUTES[change]
    assert look(graph.checkout(job.branch)) == changed(before, change)
    assert seen_by_another(schema_worlds.root, job.branch) == changed(before, change)


@pytest.mark.nightly(
    "that the points in the tables are reached is also shown by every death there; this "
    "shows that the tables name all of them"
)
@pytest.mark.parametrize("stage", Stage)
def test_a_sweep_of_a_schema_change_is_killed_at_every_point_that_it_reaches(
    stage: Stage, schema_worlds: SchemaWorlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema_worlds.lay_out_dead(stage)

    reached = _reached(lambda: og.open(schema_worlds.root), monkeypatch)

    assert reached == SWEEPS[stage]


def _reached(run_it: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    reached: Counter[str] = Counter()
    failpoints.arm("migration.pre_step", Armed(action=Action.PAUSE))
    monkeypatch.setattr(failpoints, "_visit", lambda point: reached.update([point]))
    try:
        run_it()
    finally:
        failpoints.disarm_all()
    return reached


def _job(change: Change) -> Apply:
    return Apply(change=change, operation_id=str(ULID()))
