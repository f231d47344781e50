"""What tests on clusters share; a server is started only if a test of the run asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.inputs import write_files
from tests.cluster.servers import standalone_cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster with room for two executors, for drivers started by tests."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), cores=2) as address:
        yield address


@pytest.fixture
def files(tmp_path: Path) -> str:
    return write_files(tmp_path / "input")
