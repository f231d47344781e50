"""What tests of promises share."""

from __future__ import annotations

import pytest

from tests.forking.client import start_for_gate


@pytest.fixture(scope="session")
def _forks() -> None:
    """Import everything that forks need now: no test that starts one is charged for it."""
    start_for_gate()
