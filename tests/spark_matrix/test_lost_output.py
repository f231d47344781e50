"""Executors that die while others read what they sent through a shuffle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.gate.environment import CHECKOUT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.mark.nightly("executors of its own; tests/spark/twice.py repeats tasks in the gate")
def test_a_killed_executor(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.spark_matrix.lost_output", str(tmp_path)]

    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.count("killed 1  equal") == 5
