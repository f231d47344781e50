"""Which tests run: the gate's share, everything, or one shard of everything.

A test that only the nightly runs says what it duplicates: `@pytest.mark.nightly("reason")`, or
`for_gate(...)` in the parameters of a matrix. Of a test with many similar cases the gate runs some:
`@pytest.mark.sampled(3)` is one case in three, and at least one of each test, chosen by the seed of
the commit, so that the next commit runs others. Of the folders in `ROTATED` the gate runs a share
of every file in the same way, unless the commit changes what they are about; other runs than those
with `--budgets` run them whole. OMNIGRAPH_NIGHTLY=1 runs everything.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeVar

import pytest

from tests.gate.seeds import CHECKOUT, run_seed

Case = TypeVar("Case")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """One test in `one_in` of each file; all tests if the commit changed one of `subjects`."""

    one_in: int
    subjects: tuple[str, ...]


def _package(name: str, one_in: int = 2) -> Rotation:
    return Rotation(one_in=one_in, subjects=(f"src/omnigraph_lake/{name}", f"tests/{name}"))


ROTATED: Final[Mapping[str, Rotation]] = {
    "tests/guards/": Rotation(
        one_in=3, subjects=("constraints.txt", "pyproject.toml", "tests/guards/")
    ),
    "tests/gate/": Rotation(one_in=2, subjects=("tests/gate/", "tests/conftest.py")),
    **{
        f"tests/{name}/": _package(name)
        for name in ("cli", "editor", "engine", "importer", "maintenance", "runner", "view")
    },
    **{
        f"tests/spark/test_{about}.py": Rotation(
            one_in=2,
            subjects=(
                "src/omnigraph_lake/spark",
                "src/omnigraph_lake/engine/spark",
                "tests/spark/",
            ),
        )
        for about in (
            *("sink", "datasource", "views", "change_stream", "merge", "sql"),
            *("query_match", "query_counts", "query_results"),
        )
    },
}
"""Parts of the suite by how their ids begin; tests of the tiers `unit` and `spark` rotate.

Folders whose tests keep rows whole (load, storage, validation, diff, merge, commit) never rotate:
a change anywhere below them can lose a row.
"""


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
    sampled_out = frozenset[str]()
    if not is_nightly():
        sampled_out = _sampled_out(items, rotates=config.getoption("--budgets"))
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


def _sampled_out(items: Iterable[pytest.Item], *, rotates: bool) -> frozenset[str]:
    """The cases of sampled tests, and the tests of rotated files, that another commit runs."""
    cases: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for item in items:
        marker = item.get_closest_marker("sampled")
        if marker is not None:
            test, _, _ = item.nodeid.partition("[")
            cases[test, marker.args[0]].append(item.nodeid)
        elif rotates and _can_rotate(item):
            file, _, _ = item.nodeid.partition("::")
            cases[file, share_of(item.nodeid, changed_paths())].append(item.nodeid)
    return frozenset(
        nodeid
        for (_, one_in), nodeids in cases.items()
        for nodeid in set(nodeids) - set(sample(nodeids, one_in, run_seed()))
    )


def _can_rotate(item: pytest.Item) -> bool:
    """Random cases and those of the nightly have sizes of their own."""
    return any(map(item.get_closest_marker, ("unit", "spark"))) and not any(
        map(item.get_closest_marker, ("random", "nightly"))
    )


def share_of(nodeid: str, changed: Iterable[str]) -> int:
    """One test in so many runs beside this one, if a commit changes these files."""
    for prefix, rotation in ROTATED.items():
        if nodeid.startswith(prefix):
            is_subject = any(path.startswith(rotation.subjects) for path in changed)
            return 1 if is_subject else rotation.one_in
    return 1


@cache
def changed_paths() -> tuple[str, ...]:
    """The files that the commit changed, and those that were changed on top of it."""
    names = subprocess.run(
        ["git", "diff", "--name-only", "HEAD~1"],
        cwd=CHECKOUT,
        check=False,
        capture_output=True,
        text=True,
    )
    return tuple(names.stdout.split())


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
