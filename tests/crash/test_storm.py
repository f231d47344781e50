"""A short storm: nothing acknowledged is lost, nothing refused appears, nothing is half done."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.storm import Plan, Storm
from tests.gate.seeds import run_seed

pytestmark = [
    pytest.mark.random,
    pytest.mark.nightly(
        "takes 20 seconds by design; the gate kills and pauses writers, sweepers and folders at "
        "every point of theirs (test_crash_matrix.py, test_zombies.py)"
    ),
]


def test_no_transfer_is_lost_invented_or_halved_in_a_storm(tmp_path: Path) -> None:
    plan = Plan(seconds=20, kills=60, pauses=20, writers=4, seed=run_seed())

    tally = Storm(plan, tmp_path).blow()

    assert tally.mistakes == []
    assert (tally.lost, tally.phantom, tally.partial) == (0, 0, 0)
    assert tally.kills >= 60
    assert tally.commits > 0
