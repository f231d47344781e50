"""A seed means the same cases in every process, whatever it has loaded and however it hashes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.corpus.digests import digests
from tests.gate.seeds import CHECKOUT, case_seeds, run_seed

pytestmark = pytest.mark.random


def test_a_seed_means_the_same_cases_in_another_process() -> None:
    (seed,) = case_seeds("digests", 1)
    # This process hashes by chance, unless it was told otherwise.
    other = {**os.environ, "PYTHONHASHSEED": str(run_seed() % 2**32)}

    found = subprocess.run(
        [sys.executable, "-m", "tests.corpus.digests", seed],
        cwd=CHECKOUT,
        env=other,
        check=True,
        capture_output=True,
        text=True,
    )

    assert json.loads(found.stdout) == digests(seed)
