"""A reader that dies while it holds something, and a cleaner that dies while it removes holds."""

from __future__ import annotations

from datetime import timedelta

import pytest

from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.maintenance.cleanup import CleanupPolicy, cleanup_graph
from omnigraph_lake.storage.refs.holds import Hold
from tests.crash.maintenance_verdict import assert_same
from tests.crash.maintenance_world import Laid, Maintenance, keep_up, look
from tests.crash.maintenance_worlds import MaintenanceWorld, MaintenanceWorlds
from tests.crash.old_holds import hold_old, later
from tests.crash.processes import Ended, run
from tests.crash.small_world import content_of

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("unkept")]

READER_POINTS = (
    "hold.begin",
    "hold.post_put",
    "hold.verify",
    "hold.post_renew",
    "hold.post_release",
)
CLEANER_POINT = "hold.post_remove"


def _reader(worlds: MaintenanceWorlds, laid: Laid, *, failpoints: str = "") -> Ended:
    module = "tests.crash.hold_victim"
    return run("hold", worlds.root, laid.old_commit, failpoints=failpoints, module=module)


def test_what_a_dead_reader_held_is_kept_until_its_time_is_over(
    maintenance_worlds: MaintenanceWorlds,
) -> None:
    laid = maintenance_worlds.lay_out(MaintenanceWorld.UNKEPT)
    for point in READER_POINTS:
        assert _reader(maintenance_worlds, laid, failpoints=f"{point}=kill").was_killed, point

    graph = maintenance_worlds.graph()
    left = graph.holds.list()
    assert len(left) == 3, "at the first point nothing was put yet, at the last it was released"
    view = graph.at(laid.old_commit)
    assert keep_up(graph, Maintenance.CLEANUP_TO_ONE)["failed"] == ()
    assert content_of(graph, view.pinned) == laid.old
    assert_same(look(graph), laid.contents)

    over = later(_longest(left) + timedelta(minutes=6))
    policy = CleanupPolicy(keep_versions=1)
    cleaned = cleanup_graph(graph._objects, policy, over)
    assert graph.holds.list() == ()
    assert sum(table.old_versions_removed for table in cleaned.tables) > 0
    assert_same(look(graph), laid.contents)


def _longest(holds: tuple[Hold, ...]) -> timedelta:
    return max(hold.ends for hold in holds) - SYSTEM_CLOCK.now()


def test_a_cleaner_that_dies_while_it_removes_holds_is_followed_by_the_next(
    maintenance_worlds: MaintenanceWorlds,
) -> None:
    laid = maintenance_worlds.lay_out(MaintenanceWorld.UNKEPT)
    graph = maintenance_worlds.graph()
    for _ in range(2):
        hold_old(graph, laid, later(timedelta(hours=-2)))

    ended = maintenance_worlds.run(Maintenance.CLEANUP, failpoints=f"{CLEANER_POINT}=kill")

    assert ended.was_killed
    assert len(graph.holds.list()) == 1
    assert maintenance_worlds.run(Maintenance.CLEANUP).said == "acknowledged"
    assert graph.holds.list() == ()
    assert_same(look(graph), laid.contents)
