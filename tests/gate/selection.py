"""Which tests run: the gate's share, everything, or one shard of everything.

A test that only the nightly runs says what it duplicates: `@pytest.mark.nightly("reason")`, or
`for_gate(...)` in the parameters of a matrix. OMNIGRAPH_NIGHTLY=1 runs everything.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

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
    selected: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        is_ours = (is_nightly() or item.get_closest_marker("nightly") is None) and (
            shard is None or in_shard(item.nodeid, *shard)
        )
        (selected if is_ours else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = selected


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
