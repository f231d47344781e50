"""A short storm: nothing acknowledged is lost, nothing refused appears, nothing is half done."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.storm import Plan, Storm

pytestmark = [pytest.mark.crash, pytest.mark.slow]


def test_no_transfer_is_lost_invented_or_halved_in_a_storm(tmp_path: Path) -> None:
    plan = Plan(seconds=20, kills=60, pauses=20, writers=4, seed=1)

    tally = Storm(plan, tmp_path).blow()

    assert tally.mistakes == []
    assert (tally.lost, tally.phantom, tally.partial) == (0, 0, 0)
    assert tally.kills >= 60
    assert tally.commits > 0
