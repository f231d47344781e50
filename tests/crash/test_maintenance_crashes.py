"""Maintenance that is killed at any step: nothing is lost, and the next run finishes it.

What the gate leaves out of these matrices, and why, is in `tests/crash/maintenance_cases.py`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from omnigraph_lake import failpoints
from omnigraph_lake.failpoints import Action, Armed
from tests.crash.branch_world import SWEEP
from tests.crash.maintenance_cases import (
    LATE_DEATHS,
    OPTIMIZE_DEATHS,
    REPAIR_DEATHS,
    ROUTES,
    LateDeath,
    MaintenanceDeath,
    Route,
)
from tests.crash.maintenance_verdict import assert_converges, assert_whole
from tests.crash.maintenance_world import Maintenance, keep_up, take, with_steps
from tests.crash.maintenance_worlds import MaintenanceWorld, MaintenanceWorlds
from tests.crash.small_world import content_of

pytestmark = pytest.mark.crash

COMPACTED = ("node:Person", "node:City", "edge:LivesIn")


@pytest.mark.usefixtures("unkept")
@pytest.mark.parametrize("case", OPTIMIZE_DEATHS.selected, ids=str)
def test_a_killed_optimize_changes_no_row_and_the_next_one_finishes_it(
    case: MaintenanceDeath, maintenance_worlds: MaintenanceWorlds
) -> None:
    laid = maintenance_worlds.lay_out(case.world)

    ended = maintenance_worlds.run(case.maintenance, failpoints=f"{case.point}=kill@{case.visit}")

    assert ended.was_killed
    graph = assert_whole(maintenance_worlds.root, laid.contents)
    assert_converges(graph, laid.contents)


@pytest.mark.usefixtures("unkept")
@pytest.mark.parametrize("case", LATE_DEATHS.selected, ids=str)
def test_an_optimize_killed_after_a_lost_race_leaves_nothing_to_repair(
    case: LateDeath, maintenance_worlds: MaintenanceWorlds
) -> None:
    laid = maintenance_worlds.lay_out(MaintenanceWorld.UNKEPT)
    graph = maintenance_worlds.graph()
    armed = f"{case.stop}=stop,{case.point}=kill"
    victim = maintenance_worlds.start(Maintenance.OPTIMIZE, failpoints=armed)
    victim.wait_until_stopped()
    for rival in case.rivals:
        assert take(graph, rival, laid) == "acknowledged"
    victim.wake()

    ended = victim.end()

    # Whether a table had moved when it was stopped is a race of its threads; without one there is
    # nothing to put back, and it ends.
    assert ended.was_killed or ended.said == "acknowledged"
    expected = with_steps(laid, case.rivals)
    if SWEEP in case.rivals:
        # Its sidecar is gone, and a compaction carries no name: nobody can tell it from others'.
        graph = assert_whole(maintenance_worlds.root, expected, upkept=COMPACTED)
        graph.maintenance.repair(dry_run=False)
    assert_converges(assert_whole(maintenance_worlds.root, expected), expected)


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize("case", REPAIR_DEATHS.selected, ids=str)
def test_a_killed_repair_published_everything_or_nothing(
    case: MaintenanceDeath, maintenance_worlds: MaintenanceWorlds
) -> None:
    laid = maintenance_worlds.lay_out(case.world)
    foreign = {"foreign": {"id": "foreign", "name": "foreign"}}
    main = {**laid.contents["main"], "node:Ghost": foreign}
    repaired = {**laid.contents, "main": main}

    ended = maintenance_worlds.run(case.maintenance, failpoints=f"{case.point}=kill")

    assert ended.was_killed
    published = bool(content_of(maintenance_worlds.graph())["node:Ghost"])
    drifted = () if published else ("node:Ghost", "edge:Visited")
    expected = repaired if published else laid.contents
    graph = assert_whole(maintenance_worlds.root, expected, drifted=drifted)
    assert keep_up(graph, Maintenance.REPAIR)["published"] == sorted(drifted)
    assert_converges(assert_whole(maintenance_worlds.root, repaired), repaired)


@pytest.mark.nightly(
    "that the points in the tables are reached is also shown by every death there; this "
    "shows that the tables name all of them"
)
@pytest.mark.parametrize(
    ("world", "maintenance", "route"),
    [(world, maintenance, route) for (world, maintenance), route in ROUTES.items()],
    ids=[f"{world}-{maintenance}" for world, maintenance in ROUTES],
)
def test_maintenance_is_killed_at_every_point_that_it_reaches(
    world: MaintenanceWorld,
    maintenance: Maintenance,
    route: Route,
    maintenance_worlds: MaintenanceWorlds,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    maintenance_worlds.lay_out(world)
    graph = maintenance_worlds.graph()
    reached: Counter[str] = Counter()
    failpoints.arm("migration.pre_step", Armed(action=Action.PAUSE))
    monkeypatch.setattr(failpoints, "_visit", lambda point: reached.update([point]))

    keep_up(graph, maintenance)

    failpoints.disarm_all()
    assert {point: max(visits) for point, visits in route.items()} == reached
