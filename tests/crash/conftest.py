"""One set of template graphs for every worker of a test session."""

from __future__ import annotations

import pytest

from tests.crash.worlds import Worlds


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(tmp_path_factory.mktemp("worlds"))
