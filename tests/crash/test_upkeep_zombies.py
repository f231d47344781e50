"""Whoever keeps house and is taken for dead, wakes up: nothing is lost, nothing needs repair."""

from __future__ import annotations

import pytest

from tests.crash.branch_world import SWEEP
from tests.crash.upkeep_cases import Sleep, optimize_sleeps
from tests.crash.upkeep_sleeps import sleep_through, table
from tests.crash.upkeep_verdict import assert_converges, assert_whole
from tests.crash.upkeep_world import with_steps
from tests.crash.upkeep_worlds import UpkeepWorlds

pytestmark = pytest.mark.crash


@pytest.fixture(scope="session")
def upkeep_worlds(tmp_path_factory: pytest.TempPathFactory) -> UpkeepWorlds:
    return UpkeepWorlds(tmp_path_factory.getbasetemp() / "upkeep-worlds")


@pytest.mark.parametrize("case", table(optimize_sleeps()))
def test_an_optimize_that_wakes_up_loses_nothing_and_leaves_nothing_to_repair(
    case: Sleep, upkeep_worlds: UpkeepWorlds
) -> None:
    laid = upkeep_worlds.lay_out(case.world)

    slept = sleep_through(upkeep_worlds, case, laid)

    assert slept.refused == ()
    assert slept.said == "acknowledged" or SWEEP in case.rivals, slept.answer
    expected = with_steps(laid, slept.acknowledged)
    assert_converges(assert_whole(upkeep_worlds.root, expected), expected)
