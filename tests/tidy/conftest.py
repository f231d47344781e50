"""The source is parsed before the tests that look at it: none of them is charged for it."""

from __future__ import annotations

import pytest

from tests.tidy.sources import SOURCES, nodes_of


@pytest.fixture(scope="session")
def _parsed_sources() -> None:
    for path in SOURCES:
        nodes_of(path)
