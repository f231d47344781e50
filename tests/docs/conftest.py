"""The zygote is started before the first test, so that no test is charged for it."""

from __future__ import annotations

import pytest

from tests.forking.client import start_for_gate


@pytest.fixture(scope="session", autouse=True)
def _zygote() -> None:
    start_for_gate()
