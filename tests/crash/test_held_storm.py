"""Readers that hold views, and feeds, beside writers and a cleanup that keeps one version."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.held_storm import HeldStorm, breeze
from tests.gate.seeds import run_seed

pytestmark = pytest.mark.random


def test_nothing_that_is_held_is_torn_or_vanishes(graph_root: str) -> None:
    tally = breeze(graph_root, events=40, seed=run_seed())

    assert tally.mistakes == []
    assert tally.said["read"] > 0
    assert tally.said["cleanup"] > 0


@pytest.mark.nightly("takes a minute by design; the gate lets one of each kind meet by threads")
def test_nothing_that_is_held_is_torn_or_vanishes_in_a_storm(tmp_path: Path) -> None:
    tally = HeldStorm(tmp_path, seconds=60, seed=run_seed()).blow()

    assert tally.mistakes == []
    assert tally.said["view"] > 0
    assert tally.said["feed commit"] > 0
    assert tally.kills > 0
