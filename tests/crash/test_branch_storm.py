"""A storm among branches: what was acknowledged is there, and the history explains every row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.branch_storm import BranchStorm, Plan

pytestmark = pytest.mark.crash


@pytest.mark.parametrize(
    ("seconds", "kills"),
    [
        pytest.param(10.0, 10, id="short"),
        pytest.param(60.0, 60, id="long", marks=pytest.mark.slow),
    ],
)
def test_branches_come_and_go_in_a_storm_and_no_row_is_lost(
    seconds: float, kills: int, tmp_path: Path
) -> None:
    tally = BranchStorm(Plan(seconds=seconds, seed=int(seconds)), tmp_path).blow()

    assert tally.mistakes == []
    assert tally.kills >= kills
    assert tally.said["merge acknowledged"] > 0
    assert tally.said["delete acknowledged"] > 0
