"""One set of templates for a test session; what they cost is charged to the tier."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.adversary.stage import Known, survey
from tests.adversary.world import Adversity, Worlds


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(tmp_path_factory.mktemp("adversities"))


@pytest.fixture(scope="session")
def known(worlds: Worlds, tmp_path_factory: pytest.TempPathFactory) -> Mapping[Adversity, Known]:
    return survey(worlds, tmp_path_factory.mktemp("asked"))
