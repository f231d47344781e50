"""Every guard is needed: without it, some schedule breaks a promise, and the model sees it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import get_args

import pytest

from tests.model.branch_bounds import (
    BRANCH_MUTANT_BOUNDS,
    FINISHING_A_TORN_CREATION,
    FINISHING_WITHOUT_A_PARENT,
    CaughtBranch,
)
from tests.model.branch_scope import BRANCH_MUTANTS, BRANCH_NOT_A_GUARD, BranchMutant
from tests.model.branches import branch_protocol
from tests.model.checker import SearchResult, search
from tests.model.forks import fork_protocol
from tests.model.maintenance_bounds import MAINTENANCE_MUTANT_BOUNDS
from tests.model.mutant_bounds import (
    COMMON_FORK_NAME,
    DROPPED_BEFORE_DECIDED,
    LEAN_MUTANT_BOUNDS,
    LOOSE_CLEANUP,
    MUTANT_BOUNDS,
    SIDECARS_BEFORE_REFS,
    CaughtFork,
    in_lean_form,
    mutated,
)
from tests.model.mutants import MUTANTS, NOT_A_GUARD, Mutant
from tests.model.protocol import protocol
from tests.model.retention import retention_protocol
from tests.model.retention_bounds import RETENTION_MUTANT_BOUNDS
from tests.model.retention_scope import (
    RETENTION_MUTANTS,
    RETENTION_NOT_A_GUARD,
    RetentionMutant,
)
from tests.model.schema_apply import schema_protocol
from tests.model.schema_bounds import SCHEMA_MUTANT_BOUNDS
from tests.model.schema_scope import SCHEMA_MUTANTS, SCHEMA_NOT_A_GUARD, SchemaMutant

pytestmark = [pytest.mark.model, pytest.mark.sampled(3)]


LONG_SEARCHES = frozenset(
    {
        *("fence_on_answer", "fail_no_log", "read_unverified", "opt_any_file"),
        *("prune_no_watermark", "cl_pins_first", "combine_kept_report"),
    }
)
"""Mutants that only a search of seconds catches."""
LONG = pytest.mark.nightly("a long search; the gate has every mutant that a short one catches")


def _by_name(mutants: Iterable[str]) -> list[object]:
    return [
        pytest.param(mutant, marks=LONG if mutant in LONG_SEARCHES else ()) for mutant in mutants
    ]


def _assert_caught(result: SearchResult, steps: int) -> None:
    assert result.violation is not None, f"{result.states} states, and nothing was found"
    assert len(result.trace) == steps, "\n".join((result.violation, *result.trace))


def test_every_guard_has_a_mutant_and_every_mutant_a_search() -> None:
    assert len(MUTANTS) == 63
    assert set(MUTANT_BOUNDS) == set(MUTANTS)
    assert set(get_args(Mutant)) == {*MUTANTS, NOT_A_GUARD}


def test_every_guard_of_branches_has_a_mutant_and_every_mutant_a_search() -> None:
    assert set(BRANCH_MUTANT_BOUNDS) == set(BRANCH_MUTANTS)
    assert set(get_args(BranchMutant)) == {*BRANCH_MUTANTS, BRANCH_NOT_A_GUARD}


def test_every_guard_of_retention_has_a_mutant_and_every_mutant_a_search() -> None:
    assert set(RETENTION_MUTANT_BOUNDS) == set(RETENTION_MUTANTS)
    assert set(get_args(RetentionMutant)) == {*RETENTION_MUTANTS, RETENTION_NOT_A_GUARD}


def test_every_guard_of_schemas_has_a_mutant_and_every_mutant_a_search() -> None:
    assert set(SCHEMA_MUTANT_BOUNDS) == set(SCHEMA_MUTANTS)
    assert set(get_args(SchemaMutant)) == {*SCHEMA_MUTANTS, SCHEMA_NOT_A_GUARD}


@pytest.mark.parametrize("mutant", _by_name(SCHEMA_MUTANT_BOUNDS))
def test_schema_changes_fail_without_the_guard(mutant: SchemaMutant) -> None:
    scope, steps = SCHEMA_MUTANT_BOUNDS[mutant]

    result = search(schema_protocol(replace(scope, mutant=mutant)))

    _assert_caught(result, steps)


@pytest.mark.parametrize("mutant", _by_name(RETENTION_MUTANT_BOUNDS))
def test_retention_fails_without_the_guard(mutant: RetentionMutant) -> None:
    scope, steps = RETENTION_MUTANT_BOUNDS[mutant]

    result = search(retention_protocol(replace(scope, mutant=mutant)))

    _assert_caught(result, steps)


@pytest.mark.parametrize("mutant", _by_name(BRANCH_MUTANT_BOUNDS))
def test_branches_fail_without_the_guard(mutant: BranchMutant) -> None:
    scope, steps = BRANCH_MUTANT_BOUNDS[mutant]

    result = search(branch_protocol(replace(scope, mutant=mutant)))

    _assert_caught(result, steps)


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(FINISHING_A_TORN_CREATION, id="Lance did not finish"),
        pytest.param(FINISHING_WITHOUT_A_PARENT, id="the parent is gone"),
    ],
)
def test_a_creation_that_others_have_to_finish_can_be_stuck_for_ever(
    variant: CaughtBranch,
) -> None:
    result = search(branch_protocol(variant.scope))

    _assert_caught(result, variant.steps)


@pytest.mark.parametrize("mutant", _by_name(MUTANT_BOUNDS))
def test_the_protocol_fails_without_the_guard(mutant: Mutant) -> None:
    scope, steps = MUTANT_BOUNDS[mutant]

    result = search(protocol(mutated(scope, mutant)))

    _assert_caught(result, steps)


@pytest.mark.parametrize("mutant", _by_name(LEAN_MUTANT_BOUNDS))
def test_the_lean_form_fails_without_the_guard(mutant: Mutant) -> None:
    scope, steps = LEAN_MUTANT_BOUNDS[mutant]

    result = search(protocol(in_lean_form(mutated(scope, mutant))))

    _assert_caught(result, steps)


@pytest.mark.parametrize("mutant", _by_name(MAINTENANCE_MUTANT_BOUNDS))
def test_independent_maintenance_fails_without_the_guard(mutant: Mutant) -> None:
    scope, steps = MAINTENANCE_MUTANT_BOUNDS[mutant]

    result = search(protocol(mutated(scope, mutant)))

    _assert_caught(result, steps)


@LONG
def test_cleanup_of_every_unpinned_version_loses_a_pin() -> None:
    result = search(protocol(LOOSE_CLEANUP.scope))

    _assert_caught(result, LOOSE_CLEANUP.steps)


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(COMMON_FORK_NAME, id="one name for all"),
        pytest.param(SIDECARS_BEFORE_REFS, id="sidecars listed before refs"),
        pytest.param(DROPPED_BEFORE_DECIDED, id="dropped before it is decided"),
    ],
)
def test_another_rule_deletes_a_placed_fork(variant: CaughtFork) -> None:
    result = search(fork_protocol(variant.scope))

    _assert_caught(result, variant.steps)
