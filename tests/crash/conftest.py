"""One set of template graphs for every worker of a test session.

Templates that take long to make have a fixture of their own, so that no test is charged for them.
"""

from __future__ import annotations

import pytest

from tests.crash.branch_worlds import BranchWorlds
from tests.crash.maintenance_worlds import MaintenanceWorld, MaintenanceWorlds
from tests.crash.schema_worlds import SchemaWorlds
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
def maintenance_worlds(tmp_path_factory: pytest.TempPathFactory) -> MaintenanceWorlds:
    return MaintenanceWorlds(tmp_path_factory.mktemp("maintenance-worlds"))


@pytest.fixture(scope="session")
def unkept(maintenance_worlds: MaintenanceWorlds) -> None:
    maintenance_worlds.lay_out(MaintenanceWorld.UNKEPT)


@pytest.fixture(scope="session")
def kept(maintenance_worlds: MaintenanceWorlds) -> None:
    maintenance_worlds.lay_out(MaintenanceWorld.KEPT)


@pytest.fixture(scope="session")
def foreign(maintenance_worlds: MaintenanceWorlds) -> None:
    maintenance_worlds.lay_out(MaintenanceWorld.FOREIGN)
