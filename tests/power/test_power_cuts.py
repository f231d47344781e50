"""What was acknowledged survives a power cut, and every graph opens after one, on a real disk."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from omnigraph_lake import Durability
from tests.forking.programs import run_module
from tests.forking.waiting import has_ended, wait_for_end
from tests.gate.seeds import run_seed
from tests.power.boots import BOOT_SUFFIX, kill_started_below
from tests.power.storm import Plan, run

pytestmark = [
    pytest.mark.crash,
    pytest.mark.local_disk("a power cut of an object store is its own affair"),
]


@pytest.mark.parametrize("durability", ["commit", "os"])
def test_power_cuts_lose_nothing_that_was_promised(place: Path, durability: Durability) -> None:
    home = place / durability
    plan = Plan(
        cuts=6, seed=run_seed(), durability=durability, seconds_most=1.5, idle_seconds=(0.0,)
    )

    tally = run(plan, home)

    assert tally.is_good, tally
    assert tally.promised.total() > 0, tally


def test_what_a_worker_left_behind_is_ended_with_the_round(place: Path) -> None:
    """A JVM that outlives its worker would keep the disk mounted."""
    logs = place / "logs"
    logs.mkdir()
    left = int(run_module("tests.power.roles", "leave", str(logs / f"w{BOOT_SUFFIX}")).stdout)
    assert not has_ended(left)

    kill_started_below(place)
    assert not has_ended(left), "it is another round's"
    kill_started_below(logs)

    with suppress(ProcessLookupError):
        wait_for_end(left, 30)
    assert has_ended(left)
