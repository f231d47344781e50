"""Whoever keeps house and is taken for dead, wakes up: nothing is lost, nothing needs repair.

What the gate leaves out, and why, is in `tests/crash/maintenance_cases.py`.
"""

from __future__ import annotations

import pytest

from tests.crash.branch_world import SWEEP
from tests.crash.maintenance_cases import OPTIMIZE_SLEEPS, Sleep
from tests.crash.maintenance_sleeps import sleep_through
from tests.crash.maintenance_verdict import assert_converges, assert_whole
from tests.crash.maintenance_world import with_steps
from tests.crash.maintenance_worlds import MaintenanceWorlds

pytestmark = pytest.mark.crash


@pytest.mark.usefixtures("unkept")
@pytest.mark.parametrize("case", OPTIMIZE_SLEEPS.selected, ids=str)
def test_an_optimize_that_wakes_up_loses_nothing_and_leaves_nothing_to_repair(
    case: Sleep, maintenance_worlds: MaintenanceWorlds
) -> None:
    laid = maintenance_worlds.lay_out(case.world)

    slept = sleep_through(maintenance_worlds, case, laid)

    assert slept.refused == ()
    assert slept.said == "acknowledged" or SWEEP in case.rivals, slept.answer
    expected = with_steps(laid, slept.acknowledged)
    assert_converges(assert_whole(maintenance_worlds.root, expected), expected)
