"""Damaged files are told, or harmless: never a wrong answer, never a raw exception."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.damage.storm import LEVELS, Verdict, run
from tests.gate.seeds import run_seed

pytestmark = [
    pytest.mark.crash,
    pytest.mark.local_disk("files are damaged in place"),
]


def test_no_damage_is_answered_in_silence(tmp_path: Path) -> None:
    tally = run(tmp_path, damages=8, seed=run_seed(), people=10_000)

    assert tally.trials > 5
    assert tally.is_good, tally
    assert any(tally.count(level, Verdict.DAMAGED) for level in LEVELS), tally
