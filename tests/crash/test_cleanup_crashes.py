"""A killed cleanup: what anybody names is still there, and the next one goes on.

Of the deaths that leave every version in place, the gate plays each in one story; see also
`tests/crash/maintenance_cases.py`.
"""

from __future__ import annotations

import pytest

from omnigraph_lake.commit.orphans import Fate, listed_forks
from tests.crash.maintenance_cases import CLEANUP_DEATHS, LOOKS_OF_CLEANUP, MaintenanceDeath
from tests.crash.maintenance_verdict import assert_converges, assert_same, assert_whole
from tests.crash.maintenance_world import Maintenance, keep_up, look
from tests.crash.maintenance_worlds import MaintenanceWorld, MaintenanceWorlds
from tests.gate.selection import is_nightly

pytestmark = pytest.mark.crash


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("case", CLEANUP_DEATHS.selected, ids=str)
def test_a_killed_cleanup_keeps_what_is_named_and_the_next_one_goes_on(
    case: MaintenanceDeath, maintenance_worlds: MaintenanceWorlds
) -> None:
    laid = maintenance_worlds.lay_out(case.world)

    ended = maintenance_worlds.run(case.maintenance, failpoints=f"{case.point}=kill@{case.visit}")

    assert ended.was_killed
    graph = assert_whole(maintenance_worlds.root, laid.contents)
    assert keep_up(graph, case.maintenance)["failed"] == ()
    assert {each.fate for each in listed_forks(graph._objects)} == {Fate.LEGITIMATE}
    again = graph.maintenance.cleanup(keep_versions=3, dry_run=False)
    assert sum(each.old_versions_removed for each in again.tables) == 0
    assert_same(look(graph), laid.contents)
    if is_nightly():
        assert_converges(graph, laid.contents)


@pytest.mark.usefixtures("kept")
def test_cleanups_that_are_killed_before_they_remove_anything_keep_everything(
    maintenance_worlds: MaintenanceWorlds,
) -> None:
    laid = maintenance_worlds.lay_out(MaintenanceWorld.KEPT)

    for point in LOOKS_OF_CLEANUP:
        ended = maintenance_worlds.run(Maintenance.CLEANUP_TO_ONE, failpoints=f"{point}=kill")
        assert ended.was_killed, point

    graph = maintenance_worlds.graph()
    assert_same(look(graph), laid.contents)
    assert keep_up(graph, Maintenance.CLEANUP_TO_ONE)["failed"] == ()
    assert_same(look(graph), laid.contents)
