"""A killed cleanup: what anybody names is still there, and the next one goes on.

Of the deaths that leave every version in place, the gate plays each in one story; see also
`tests/crash/upkeep_cases.py`.
"""

from __future__ import annotations

import pytest

from omnigraph.commit.orphans import Fate, listed_forks
from tests.crash.upkeep_cases import CLEANUP_DEATHS, LOOKS_OF_CLEANUP, UpkeepDeath
from tests.crash.upkeep_verdict import assert_converges, assert_same, assert_whole
from tests.crash.upkeep_world import Upkeep, keep_up, look
from tests.crash.upkeep_worlds import UpkeepWorld, UpkeepWorlds
from tests.gate.selection import is_nightly

pytestmark = pytest.mark.crash


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("case", CLEANUP_DEATHS.selected, ids=str)
def test_a_killed_cleanup_keeps_what_is_named_and_the_next_one_goes_on(
    case: UpkeepDeath, upkeep_worlds: UpkeepWorlds
) -> None:
    laid = upkeep_worlds.lay_out(case.world)

    ended = upkeep_worlds.run(case.upkeep, failpoints=f"{case.point}=kill@{case.visit}")

    assert ended.was_killed
    graph = assert_whole(upkeep_worlds.root, laid.contents)
    assert keep_up(graph, case.upkeep)["failed"] == ()
    assert {each.fate for each in listed_forks(graph._objects)} == {Fate.LEGITIMATE}
    again = graph.cleanup(keep_versions=3, confirm=True)
    assert sum(each.old_versions_removed for each in again.tables) == 0
    assert_same(look(graph), laid.contents)
    if is_nightly():
        assert_converges(graph, laid.contents)


@pytest.mark.usefixtures("kept")
def test_cleanups_that_are_killed_before_they_remove_anything_keep_everything(
    upkeep_worlds: UpkeepWorlds,
) -> None:
    laid = upkeep_worlds.lay_out(UpkeepWorld.KEPT)

    for point in LOOKS_OF_CLEANUP:
        ended = upkeep_worlds.run(Upkeep.CLEANUP_TO_ONE, failpoints=f"{point}=kill")
        assert ended.was_killed, point

    graph = upkeep_worlds.graph()
    assert_same(look(graph), laid.contents)
    assert keep_up(graph, Upkeep.CLEANUP_TO_ONE)["failed"] == ()
    assert_same(look(graph), laid.contents)
