"""Writes what tests cost, from the cost files of runs, for the choice of the gate.

    python -m tests.gate.costs FILE...   reads what `pytest --cost-file FILE` wrote

Kept is the mean of each file of tests, because a single test is measured with an error of 100 %.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean

from tests.gate import speed
from tests.gate.selection import COSTS


def main(paths: Iterable[str]) -> None:
    tests: defaultdict[str, list[float]] = defaultdict(list)
    besides: dict[str, float] = {}
    for path in paths:
        costs = json.loads(Path(path).read_text())
        slowness = speed.slowness(costs["samples"])
        for nodeid, seconds in costs["tests"].items():
            tests[nodeid.partition("::")[0]].append(seconds / slowness)
        for tier, seconds in costs["besides"].items():
            besides[tier] = round(max(besides.get(tier, 0.0), seconds / slowness), 1)
    means = {file: round(mean(tests[file]), 3) for file in sorted(tests)}
    COSTS.write_text(json.dumps({"besides": besides, "tests": means}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
