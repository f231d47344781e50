"""Which tests run: the gate's choice, everything, or one shard of everything.

A test that only the nightly runs says what it duplicates: `@pytest.mark.nightly("reason")`, or
`for_gate(...)` in the parameters of a matrix. Of a test with many similar cases the gate runs some:
`@pytest.mark.sampled(3)` is one case in three, and at least one of each test, chosen by the seed.

With `--budgets` the gate chooses by what the commit changed. Tests whose file imports a changed
module, or is about a changed file, come first; then tests that reach a changed module through
others, in an order that the seed draws, for as long as the budget of their tier pays for them. What
cannot reach the change is not even collected. OMNIGRAPH_NIGHTLY=1 runs everything.
"""

from __future__ import annotations

import json
import os
import subprocess
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

import pytest

from tests.gate import import_graph
from tests.gate.budgets import read_limits, tier_of
from tests.gate.seeds import CHECKOUT, run_seed

Case = TypeVar("Case")

COSTS: Final = CHECKOUT / "tests" / "gate" / "costs.json"
"""Mean CPU seconds of a test of each file, and what each tier uses besides; see `just costs`."""
_PACKAGE_FOLDER: Final = import_graph.PACKAGE.rpartition("/")[0]
_UNKNOWN_COST: Final = 0.1
_SHARE_TO_SPEND: Final = 0.9
"""Of a budget: what tests of a run really used was up to a tenth more than their means."""
ALWAYS: Final = ("tests/tidy/", "tests/gate/")
"""Tests of the whole tree, and of the gate itself."""
FOR_ALL: Final = ("pyproject.toml", "constraints.txt", "tests/conftest.py", "examples/", ".ci/")
"""Files that every test depends on."""


class Choice(IntEnum):
    """How near the tests of a file are to what a commit changed."""

    DIRECT = 0
    REACHED = 1
    OUTSIDE = 2


def is_nightly() -> bool:
    return os.environ.get("OMNIGRAPH_NIGHTLY", "") == "1"


def for_gate(cases: Iterable[Case], keep: Callable[[Case], bool]) -> list[Case]:
    """The cases that `keep` picks for the gate; all of them in the nightly.

    Cases that are left out are not generated, because collecting thousands of them costs more than
    running some. `keep` is called once for each case, in order.
    """
    kept = [(case, keep(case)) for case in cases]
    return [case for case, is_kept in kept if is_kept or is_nightly()]


def is_outside(path: Path, config: pytest.Config) -> bool:
    """Whether a file need not be collected."""
    if is_nightly() or not config.getoption("--budgets") or path.suffix != ".py":
        return False
    file = str(path.relative_to(CHECKOUT))
    is_test = file.startswith("tests/") and path.name.startswith("test_")
    return is_test and choice_of(file, changed_paths()) is Choice.OUTSIDE


@cache
def choice_of(file: str, changed: tuple[str, ...] | None) -> Choice:
    """How near the tests of a file are to changed files; None if these are not known."""
    if changed is None:
        return Choice.REACHED
    direct = import_graph.imported_by(file) | {file}
    if file.startswith(ALWAYS) or any(
        path in direct if path.endswith(".py") else is_about(file, path) for path in changed
    ):
        return Choice.DIRECT
    reached = import_graph.reached_by(file)
    is_reached = any(path in reached or path.startswith(FOR_ALL) for path in changed)
    return Choice.REACHED if is_reached else Choice.OUTSIDE


def is_about(file: str, data: str) -> bool:
    """Whether tests read a file that is no module.

    It is in their folder, in that of a module that they import, or they name the folder.
    """
    if data.startswith("src/"):
        folders = {module.rpartition("/")[0] for module in import_graph.imported_by(file)}
        return any(data.startswith(f"{folder}/") for folder in folders - {_PACKAGE_FOLDER})
    if data.startswith("tests/"):
        return data.startswith(f"{file.rpartition('/')[0]}/")
    top, _, below = data.partition("/")
    text = (CHECKOUT / file).read_text(encoding="utf-8")
    return f'"{top}"' in text or (bool(below) and f'"{top}/' in text)


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave only this run's share in `items`."""
    shard = parse_shard(config.getoption("--shard"))
    left_out: set[str] = set()
    if not is_nightly():
        left_out = {item.nodeid for item in items if item.get_closest_marker("nightly")}
        left_out |= _sampled_out(items)
    if shard is not None:
        left_out |= {item.nodeid for item in items if not in_shard(item.nodeid, *shard)}
    if config.getoption("--budgets") and not is_nightly():
        left_out |= _unpaid([item for item in items if item.nodeid not in left_out])
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
        items[:] = [item for item in items if item.nodeid not in left_out]


def _sampled_out(items: Iterable[pytest.Item]) -> set[str]:
    """The cases of sampled tests that another commit runs."""
    cases: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for item in items:
        marker = item.get_closest_marker("sampled")
        if marker is not None:
            test, _, _ = item.nodeid.partition("[")
            cases[test, marker.args[0]].append(item.nodeid)
    return {
        nodeid
        for (_, one_in), nodeids in cases.items()
        for nodeid in set(nodeids) - set(sample(nodeids, one_in, run_seed()))
    }


def _unpaid(items: Iterable[pytest.Item]) -> set[str]:
    """The tests that the budgets of their tiers do not pay for."""
    tests: defaultdict[str, list[str]] = defaultdict(list)
    for item in items:
        tests[tier_of(item) or "unit"].append(item.nodeid)
    besides, limits = read_costs()["besides"], read_limits(CHECKOUT)
    unpaid: set[str] = set()
    for tier, nodeids in tests.items():
        if tier in limits:
            seconds = _SHARE_TO_SPEND * limits[tier] - besides.get(tier, 0.0)
            unpaid |= {*nodeids} - {*pay(nodeids, changed_paths(), seconds, run_seed())}
    return unpaid


def pay(
    nodeids: Iterable[str], changed: tuple[str, ...] | None, seconds: float, seed: int
) -> list[str]:
    """The tests that so many CPU seconds pay for: the nearest first, then as the seed draws.

    One is always paid, so that no tier falls silent because its first test is expensive.
    """
    costs = read_costs()["tests"]

    def turn(nodeid: str) -> tuple[Choice, int]:
        drawn = zlib.crc32(f"{seed} {nodeid}".encode())
        return choice_of(nodeid.partition("::")[0], changed), drawn

    paid: list[str] = []
    for nodeid in sorted(nodeids, key=turn):
        seconds -= costs.get(nodeid.partition("::")[0], _UNKNOWN_COST)
        if seconds < 0 and paid:
            break
        paid.append(nodeid)
    return paid


@cache
def read_costs() -> Mapping[str, Mapping[str, float]]:
    costs: Mapping[str, Mapping[str, float]] = json.loads(COSTS.read_text())
    return costs


@cache
def changed_paths() -> tuple[str, ...] | None:
    """The files that were changed since a commit, by default the one before the last.

    OMNIGRAPH_GATE_BASE names another one, where several commits land together. None in a checkout
    that does not have it.
    """
    base = os.environ.get("OMNIGRAPH_GATE_BASE") or "HEAD~1"
    names = subprocess.run(
        ["git", "diff", "--name-only", base],
        cwd=CHECKOUT,
        check=False,
        capture_output=True,
        text=True,
    )
    return tuple(names.stdout.split()) if names.returncode == 0 else None


def sample(nodeids: Iterable[str], one_in: int, seed: int) -> list[str]:
    """One case in `one_in`, at least one, in an order that only the seed decides."""
    shuffled = sorted(nodeids, key=lambda nodeid: zlib.crc32(f"{seed} {nodeid}".encode()))
    return shuffled[: max(1, len(shuffled) // one_in)]


def parse_shard(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    number, count = map(int, text.split("/"))
    if not 0 <= number < count:
        raise pytest.UsageError(f"--shard {text}: expected N/COUNT with N from 0 to COUNT - 1")
    return number, count


def in_shard(nodeid: str, number: int, count: int) -> bool:
    """Whether a test belongs to a shard; a test keeps its shard when others come and go."""
    return zlib.crc32(nodeid.encode()) % count == number
