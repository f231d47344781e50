"""Random and damaged texts give diagnostics, never an exception, and never take long."""

from __future__ import annotations

import pytest

from tests.query.fuzz import SEED_TEXT, run
from tests.query.people import rules

pytestmark = pytest.mark.unit


def test_the_text_that_is_damaged_has_no_fault() -> None:
    assert rules(SEED_TEXT) == []


@pytest.mark.parametrize("seed", [1, 2])
def test_any_text_gives_diagnostics_and_never_an_exception(seed: int) -> None:
    report = run(200, seed)

    assert report.failures == ()
    assert report.without_errors > 0
