"""Everything that uses a graph works at once, and what goes wrong loses nothing: a short run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gate.seeds import run_seed
from tests.power.life import Life, Plan

pytestmark = [
    pytest.mark.crash,
    pytest.mark.local_disk("a power cut of an object store is its own affair"),
    pytest.mark.nightly(
        "takes its time by design; the gate cuts the power under fewer processes "
        "(test_power_cuts.py) and kills at every point where this run kills"
    ),
]


@pytest.mark.usefixtures("place")
def test_a_short_life_loses_nothing(tmp_path: Path) -> None:
    plan = Plan(
        seconds=15.0,
        seed=run_seed(),
        with_spark=False,
        round_seconds=(3.0, 6.0),
        between_seconds=0.5,
        idle_seconds=(0.0,),
    )

    tally = Life(plan, tmp_path).run()

    assert tally.is_good, tally.mistakes
    assert tally.promised.total() > 0, tally
    assert tally.kills + tally.pauses > 0, tally
