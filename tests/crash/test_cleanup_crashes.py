"""A killed cleanup: what anybody names is still there, and the next one goes on."""

from __future__ import annotations

import pytest

from omnigraph.commit.orphans import Fate, listed_forks
from tests.crash.upkeep_cases import UpkeepDeath, upkeep_deaths
from tests.crash.upkeep_verdict import assert_converges, assert_same, assert_whole
from tests.crash.upkeep_world import Upkeep, keep_up, look
from tests.crash.upkeep_worlds import UpkeepWorlds

pytestmark = pytest.mark.crash

LEAVES_SOMETHING_NEW = frozenset(
    {
        ("reconcile.post_delete", 2),
        ("retention.post_floor", 1),
        ("cleanup.post_delete", 1),
        ("cleanup.post_delete", 4),
    }
)
"""Deaths of the fast tier: each leaves on disk what no death before it does."""


@pytest.fixture(scope="session")
def upkeep_worlds(tmp_path_factory: pytest.TempPathFactory) -> UpkeepWorlds:
    return UpkeepWorlds(tmp_path_factory.getbasetemp() / "upkeep-worlds")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=str(case),
            marks=[]
            if (case.point, case.visit) in LEAVES_SOMETHING_NEW
            and case.upkeep is Upkeep.CLEANUP_TO_ONE
            else [pytest.mark.slow],
        )
        for case in upkeep_deaths(Upkeep.CLEANUP, Upkeep.CLEANUP_TO_ONE)
    ],
)
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
    assert_converges(graph, laid.contents)
