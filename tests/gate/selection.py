"""Which tests run: the gate's share, everything, or one shard of everything.

A test that only the nightly runs says what it duplicates: `@pytest.mark.nightly("reason")`, or
`for_gate(...)` in the parameters of a matrix. Of a test with many similar cases the gate runs some:
`@pytest.mark.sampled(3)` is one case in three, and at least one of each test, chosen by the seed of
the commit, so that the next commit runs others. OMNIGRAPH_NIGHTLY=1 runs everything.
"""

from __future__ import annotations

import os
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

from tests.gate.seeds import run_seed

Case = TypeVar("Case")


def is_nightly() -> bool:
    return os.environ.get("OMNIGRAPH_NIGHTLY", "") == "1"


def for_gate(cases: Iterable[Case], keep: Callable[[Case], bool]) -> list[Case]:
    """The cases that `keep` picks for the gate; all of them in the nightly.

    Cases that are left out are not generated, because collecting thousands of them costs more than
    running some. `keep` is called once for each case, in order.
    """
    kept = [(case, keep(case)) for case in cases]
    return [case for case, is_kept in kept if is_kept or is_nightly()]


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave only this run's share in `items`."""
    shard = parse_shard(config.getoption("--shard"))
    sampled_out = frozenset[str]() if is_nightly() else _sampled_out(items)
    selected: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        is_ours = (
            (is_nightly() or item.get_closest_marker("nightly") is None)
            and item.nodeid not in sampled_out
            and (shard is None or in_shard(item.nodeid, *shard))
        )
        (selected if is_ours else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = selected


def _sampled_out(items: Iterable[pytest.Item]) -> frozenset[str]:
    """The cases of sampled tests that another commit runs."""
    cases: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for item in items:
        marker = item.get_closest_marker("sampled")
        if marker is not None:
            test, _, _ = item.nodeid.partition("[")
            cases[test, marker.args[0]].append(item.nodeid)
    return frozenset(
        nodeid
        for (_, one_in), nodeids in cases.items()
        for nodeid in set(nodeids) - set(sample(nodeids, one_in, run_seed()))
    )


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
