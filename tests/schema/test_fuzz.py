"""Random and damaged texts give diagnostics, never an exception, and never take long."""

from __future__ import annotations

import pytest

from tests.schema.fuzz import run

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_any_text_gives_diagnostics_and_never_an_exception(seed: int) -> None:
    report = run(1000, seed)

    assert report.failures == ()
    assert report.without_errors > 0
