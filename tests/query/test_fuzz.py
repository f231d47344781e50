"""Random and damaged texts give diagnostics, never an exception, and never take long."""

from __future__ import annotations

import pytest

from tests.fuzzing import fuzz
from tests.gate.seeds import examples, run_seed
from tests.query.fuzz import LANGUAGE, SEED_TEXT
from tests.query.people import rules


@pytest.mark.unit
def test_the_text_that_is_damaged_has_no_fault() -> None:
    assert rules(SEED_TEXT) == []


@pytest.mark.random
def test_any_text_gives_diagnostics_and_never_an_exception() -> None:
    report = fuzz(LANGUAGE, examples(50), run_seed())

    assert not report.failures, str(report)
    assert report.without_errors > 0
