"""Where a disk can be mounted whose power is cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forking.programs import run_module
from tests.power.disk import can_mount


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("power")
    if not can_mount(place / "tried"):
        pytest.skip("needs root, ext4 and a loop device")
    if run_module("tests.power.roles", "probe", str(place / "boot")).returncode:
        pytest.skip("needs mount namespaces")
    return place
