"""Seeds and sizes of random tests: new for every commit, the same for everyone who repeats it.

A run draws all its randomness from one number. It is OMNIGRAPH_SEED if that is set and is derived
from the hash of the commit's files otherwise, which another message does not change; pytest prints
it in its header. No seed depends on the order of a set or on PYTHONHASHSEED.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent.parent


@cache
def run_seed() -> int:
    """The number that all random cases of this run are drawn from."""
    asked = os.environ.get("OMNIGRAPH_SEED")
    if asked is not None:
        return int(asked)
    tree = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD^{tree}"],
        cwd=CHECKOUT,
        check=False,
        capture_output=True,
        text=True,
    )
    return int(tree.stdout, 16) if tree.returncode == 0 else 0


def case_seeds(suite: str, count: int) -> list[str]:
    """Seeds of the cases of one suite, for `random.Random`."""
    return [f"{suite}-{run_seed()}-{number}" for number in range(count)]


def examples(gate: int) -> int:
    """How many random cases to draw: the gate's number, or OMNIGRAPH_EXAMPLES in long runs."""
    return int(os.environ.get("OMNIGRAPH_EXAMPLES", gate))
