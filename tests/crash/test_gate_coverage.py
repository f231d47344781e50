"""What the gate's share of the crash matrices covers, whichever share this run runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from omnigraph_lake.failpoints import POINTS
from tests.algorithms import test_resume
from tests.cluster.inputs import DRIVER_POINTS, TASK_POINT
from tests.crash import (
    branch_cases,
    branch_zombies,
    cases,
    maintenance_cases,
    schema_cases,
    schema_sleeps,
    test_combined_crashes,
    test_copy_crashes,
    test_hold_crashes,
    test_rebuild_crashes,
    test_reported_crashes,
    zombies,
)
from tests.crash.gate_rule import Matrix, matrix
from tests.crash.mutants import GUARDS
from tests.crash.small_world import KINDS, Kind
from tests.crash.verdict import kinds_that_follow
from tests.legacy import test_legacy_upgrade
from tests.load import test_load_crash

pytestmark = pytest.mark.crash

KILLED_BY_A_TEST_OF_ITS_OWN = frozenset(
    {
        "recovery.restore_publish_refused",
        *test_hold_crashes.READER_POINTS,
        test_hold_crashes.CLEANER_POINT,
        test_resume.POINT,
        *(test_combined_crashes.COLLECTED, test_combined_crashes.COMMITTED),
        test_reported_crashes.REPORTED,
        *test_legacy_upgrade.KILLED_IN_GATE.values(),
    }
)
"""The first by test_a_sweep_whose_restored_version_came_too_late_changes_nothing."""
ONLY_ON_A_CLUSTER = frozenset({"load.staged", TASK_POINT})
SHOWN_BY_THE_MODEL = frozenset({"no_verify"})
"""Guards that no script can show to be needed; test_guards_are_needed.py says why."""
MODULES = (
    *(cases, zombies, branch_cases, branch_zombies),
    *(schema_cases, schema_sleeps, maintenance_cases),
)
MATRICES: Mapping[str, Matrix[Any]] = {
    f"{module.__name__}.{name}": value
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, Matrix)
}


def test_every_failpoint_is_where_a_process_is_killed_in_the_gate() -> None:
    killed = KILLED_BY_A_TEST_OF_ITS_OWN | test_load_crash.IN_THE_GATE
    families = (cases, branch_cases, schema_cases, maintenance_cases)
    for module in (*families, test_copy_crashes, test_rebuild_crashes):
        killed |= module.GATE_POINTS

    assert killed | ONLY_ON_A_CLUSTER == POINTS
    assert {*DRIVER_POINTS, TASK_POINT} >= ONLY_ON_A_CLUSTER


def test_every_guard_is_shown_to_be_needed_in_the_gate() -> None:
    scripts = sorted(Path(__file__).parent.glob("test_*guards_are_needed.py"))

    named = set(_found(r'"(\w+)"', scripts))

    assert set(GUARDS) - named == SHOWN_BY_THE_MODEL
    assert not _found(r"(nightly|for_gate)", scripts)


def test_the_gate_runs_a_share_of_every_matrix() -> None:
    for name, family in MATRICES.items():
        assert {case.point for case in family.cases} <= POINTS, name
        assert set(family.gate) <= set(family.selected) <= set(family.cases), name
        assert len(set(map(str, family.cases))) == len(family.cases), name


def test_every_kind_of_write_follows_some_case_of_the_gate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups: tuple[tuple[object, ...], ...] = (
        cases.WRITERS.gate,
        (*cases.RIVALLED.gate, *cases.SWEEPS.gate),
        (*zombies.SLEEPS.gate, *zombies.SWEEP_SLEEPS.gate),
    )
    monkeypatch.delenv("OMNIGRAPH_NIGHTLY", raising=False)
    following = [{kinds_that_follow(case) for case in group} for group in groups]
    monkeypatch.setenv("OMNIGRAPH_NIGHTLY", "1")

    assert following == [{(kind,) for kind in KINDS}] * len(groups)
    assert kinds_that_follow("any") == KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Death:
    group: Kind
    point: str
    visit: int = 1


def test_a_case_is_in_the_gate_if_its_failpoint_or_its_state_is_new() -> None:
    first = _Death(group=Kind.APPEND, point="a")
    second_kind = _Death(group=Kind.MERGE, point="a")
    second_visit = _Death(group=Kind.MERGE, point="a", visit=2)
    elsewhere = _Death(group=Kind.MERGE, point="b")

    family = matrix(
        (first, second_kind, second_visit, elsewhere), {Kind.MERGE: ("a@2",)}, covered=("b",)
    )

    assert family.gate == (first, second_visit)
    with pytest.raises(AssertionError, match="no case is at"):
        matrix((first,), {Kind.MERGE: ("a",)})


def _found(pattern: str, files: Iterable[Path]) -> list[str]:
    return [each for file in files for each in re.findall(pattern, file.read_text())]
