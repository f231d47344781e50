"""CPU of this checkout beside another one, task by task: `just bench compare DIR`.

Each round runs every task once per checkout, in turns and in processes of their own, so that a busy
machine slows both alike; the ratio is taken within a round. Printed are the medians, the median
ratio, and the interval that holds the true median ratio in 95 of 100 cases. A limit is broken only
if the whole interval is above it. Both checkouts have the calls in their `benchmarks/compared.py`.

`--python` names the interpreter of a plain install, whose starts are measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.processes import run_process

HERE: Final = Path(__file__).parent.parent
COUNTS: Final = {
    "commit": 30,
    "load": 1,
    "point query": 200,
    "two hops": 50,
    "query": 15,
    "merge": 3,
    "optimize": 2,
    "Spark load": 1,
}
"""How often a process runs a task."""
STARTS: Final = {
    "import": ("-c", "import omnigraph_lake as og; og.Graph"),
    "cold query": (
        "-m",
        "omnigraph_lake",
        "query",
        "GRAPH",
        "-e",
        'match { $a: Person { name: "p7" } } return { $a.age }',
    ),
}
"""Processes that are measured as a whole."""
CONFIDENCE: Final = 0.95
ROUNDS_MIN: Final = 6
"""All of 5 values are above the true median in 1 of 16 cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A median with the interval that holds the true one."""

    median: float
    low: float
    high: float


def main() -> None:
    options = _options()
    checkouts = {"other": Path(options.other).resolve(), "this": HERE}
    tasks = options.tasks or [*STARTS, *COUNTS]
    taken: dict[str, dict[str, list[float]]] = {
        task: {name: [] for name in checkouts} for task in tasks
    }
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as scratch:
        folders = {name: Path(scratch, name) for name in checkouts}
        for name, folder in folders.items():
            folder.mkdir()
            sizes = (str(options.persons), str(options.follows))
            _run(checkouts[name], "prepare", str(folder), *sizes)
        for round_number in range(options.rounds):
            # The second of a pair finds warmer caches of the machine, so the order alternates.
            names = list(checkouts) if round_number % 2 else list(reversed(checkouts))
            for task in tasks:
                for name in names:
                    seconds = _cost(task, checkouts[name], folders[name], options.python)
                    taken[task][name].append(seconds)
    ratios = {task: _print(task, measured) for task, measured in taken.items()}
    broken = [task for task, ratio in ratios.items() if ratio.low > options.limit]
    print(
        json.dumps(
            {
                "name": "compare",
                "rounds": options.rounds,
                "limit": options.limit,
                "broken": broken,
                "ratios": {
                    task: [round(ratio.low, 3), round(ratio.median, 3), round(ratio.high, 3)]
                    for task, ratio in ratios.items()
                },
            }
        )
    )
    sys.exit(1 if broken else 0)


def _cost(task: str, checkout: Path, folder: Path, python: str) -> float:
    if task in STARTS:
        words = [str(folder / "graph") if word == "GRAPH" else word for word in STARTS[task]]
        return run_process([python, *words], env=_environment(checkout)).cpu
    return float(_run(checkout, "measure", task, str(folder), str(COUNTS[task])))


def _run(checkout: Path, *words: str) -> str:
    command = [sys.executable, "-m", "benchmarks.compared", *words]
    return run_process(command, env=_environment(checkout), cwd=checkout).output


def _environment(checkout: Path) -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": str(checkout / "src")}


def _print(task: str, measured: Mapping[str, Sequence[float]]) -> Interval:
    other, this = (1000 * statistics.median(measured[name]) for name in ("other", "this"))
    ratio = median_interval(
        [new / old for old, new in zip(measured["other"], measured["this"], strict=True)]
    )
    print(
        f"{task:<12} other {other:10.2f} ms  this {this:10.2f} ms  "
        f"ratio {ratio.median:.3f}  [{ratio.low:.3f}, {ratio.high:.3f}]",
        flush=True,
    )
    return ratio


def median_interval(values: Sequence[float]) -> Interval:
    """The median, and the narrowest pair of values that holds the true one often enough.

    Each value is below the true median with probability 1/2, whatever their distribution, so the
    number of those below it is binomial.
    """
    ranked = sorted(values)
    rank = 0
    outside = 2 / 2 ** len(ranked)
    while rank + 1 < len(ranked) / 2:
        outside += 2 * math.comb(len(ranked), rank + 1) / 2 ** len(ranked)
        if outside > 1 - CONFIDENCE:
            break
        rank += 1
    return Interval(median=statistics.median(ranked), low=ranked[rank], high=ranked[-1 - rank])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", help="the other checkout")
    parser.add_argument("--tasks", nargs="*", choices=[*STARTS, *COUNTS])
    parser.add_argument("--limit", type=float, default=1.05)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--persons", type=int, default=20_000)
    parser.add_argument("--follows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    if options.rounds < ROUNDS_MIN:
        parser.error(f"an interval needs at least {ROUNDS_MIN} rounds")
    return options


if __name__ == "__main__":
    main()
