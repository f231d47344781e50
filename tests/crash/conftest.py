"""One set of template graphs for every worker of a test session.

Templates that take long to make have a fixture of their own, so that no test is charged for them.
"""

from __future__ import annotations

import pytest

from tests.crash.branch_worlds import BranchWorlds
from tests.crash.schema_worlds import SchemaWorlds
from tests.crash.upkeep_worlds import UpkeepWorld, UpkeepWorlds
from tests.crash.worlds import Worlds


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(tmp_path_factory.mktemp("worlds"))


@pytest.fixture(scope="session")
def branch_worlds(tmp_path_factory: pytest.TempPathFactory) -> BranchWorlds:
    return BranchWorlds(tmp_path_factory.mktemp("branch-worlds"))


@pytest.fixture(scope="session")
def schema_worlds(tmp_path_factory: pytest.TempPathFactory) -> SchemaWorlds:
    return SchemaWorlds(tmp_path_factory.mktemp("schema-worlds"))


@pytest.fixture(scope="session")
def upkeep_worlds(tmp_path_factory: pytest.TempPathFactory) -> UpkeepWorlds:
    return UpkeepWorlds(tmp_path_factory.mktemp("upkeep-worlds"))


@pytest.fixture(scope="session")
def unkept(upkeep_worlds: UpkeepWorlds) -> None:
    upkeep_worlds.lay_out(UpkeepWorld.UNKEPT)


@pytest.fixture(scope="session")
def kept(upkeep_worlds: UpkeepWorlds) -> None:
    upkeep_worlds.lay_out(UpkeepWorld.KEPT)


@pytest.fixture(scope="session")
def foreign(upkeep_worlds: UpkeepWorlds) -> None:
    upkeep_worlds.lay_out(UpkeepWorld.FOREIGN)
