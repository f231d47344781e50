"""A storm among branches: what was acknowledged is there, and the history explains every row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.branch_storm import BranchStorm, Plan
from tests.gate.seeds import run_seed

pytestmark = [
    pytest.mark.random,
    pytest.mark.nightly(
        "takes its time by design; the gate kills at every point where a storm kills, and lets "
        "pairs of sleepers meet by chance (test_branch_chance.py)"
    ),
]


@pytest.mark.parametrize(
    ("seconds", "kills"), [pytest.param(10.0, 10, id="short"), pytest.param(60.0, 60, id="long")]
)
def test_branches_come_and_go_in_a_storm_and_no_row_is_lost(
    seconds: float, kills: int, tmp_path: Path
) -> None:
    tally = BranchStorm(Plan(seconds=seconds, kills=kills, seed=run_seed()), tmp_path).blow()

    assert tally.mistakes == []
    assert tally.kills >= kills
    assert tally.said["merge acknowledged"] > 0
    assert tally.said["delete acknowledged"] > 0
