"""One set of template graphs for every worker of a test session."""

from __future__ import annotations

import pytest

from tests.crash.branch_worlds import BranchWorlds
from tests.crash.worlds import Worlds


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(tmp_path_factory.mktemp("worlds"))


@pytest.fixture(scope="session")
def branch_worlds(tmp_path_factory: pytest.TempPathFactory) -> BranchWorlds:
    return BranchWorlds(tmp_path_factory.mktemp("branch-worlds"))
