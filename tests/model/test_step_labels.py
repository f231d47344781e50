"""The names in `labels.py` are exactly those that the model emits."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Final, TypeVar

import pytest

from omnigraph.failpoints import POINTS
from tests.model.bounds import DISJOINT, ONE, READ_BOTH, SAME_TABLE
from tests.model.branch_bounds import BRANCH_MUTANT_BOUNDS
from tests.model.branch_scope import MAIN, BranchScope
from tests.model.branches import branch_protocol
from tests.model.checker import Model, search
from tests.model.forks import ForkScope, fork_protocol
from tests.model.labels import (
    BRANCH_STEP_LABELS,
    OUTSIDE_LABELS,
    REBUILD_STEP_LABELS,
    RETENTION_STEP_LABELS,
    SCHEMA_STEP_LABELS,
    STEP_LABELS,
    UNGUARDED_LABELS,
    name_of,
)
from tests.model.mutant_bounds import MUTANT_BOUNDS, mutated
from tests.model.mutants import Mutant
from tests.model.protocol import protocol
from tests.model.rebuild import RebuildScope, rebuild_protocol
from tests.model.retention import retention_protocol
from tests.model.retention_bounds import OLD_COMMIT, THE_TAG
from tests.model.retention_scope import FROM_MAIN, RetentionScope
from tests.model.schema_apply import schema_protocol
from tests.model.schema_bounds import COLUMNS, CREATE
from tests.model.schema_edits import NOTE
from tests.model.schema_scope import SchemaScope
from tests.model.scope import Scope

pytestmark = pytest.mark.model

StateT = TypeVar("StateT", bound=Hashable)

# Small searches that together take every step of the protocol at least once.
SCOPES: Final = (
    Scope(write_sets=DISJOINT, read_sets=READ_BOTH, forbidden_pairs=((0, 1),), in_flight=False),
    Scope(write_sets=SAME_TABLE, attempts=1, in_flight=False),
    Scope(write_sets=ONE, foreign_writes=1, cleanup_runs=1, caller_deadline=True),
    Scope(
        write_sets=SAME_TABLE,
        kinds=("append", "compact"),
        freed_slots=True,
        in_flight=False,
        sweepers=0,
        attempts=1,
    ),
    Scope(
        write_sets=SAME_TABLE,
        direct_commit=True,
        freed_slots=True,
        in_flight=False,
        sweepers=0,
        attempts=1,
    ),
    Scope(
        write_sets=ONE,
        kinds=("compact",),
        optimize_forward=True,
        independent_maintenance=True,
        in_flight=False,
        sweepers=0,
        attempts=1,
    ),
    Scope(write_sets=ONE, folders=1, prunes=1, manifest_cleanups=1, in_flight=False, attempts=1),
    Scope(write_sets=ONE, folders=1, prunes=1, overwrite_publish=True, sweepers=0, attempts=1),
    Scope(
        write_sets=ONE,
        overwrite_publish=True,
        torn_reads=True,
        manifest_cleanups=1,
        unrelated_publishes=1,
        attempts=1,
    ),
    Scope(
        write_sets=ONE,
        overwrite_publish=True,
        torn_reads=True,
        caller_deadline=True,
        unrelated_publishes=1,
        folders=1,
        sweepers=0,
        attempts=1,
    ),
    Scope(
        write_sets=ONE,
        overwrite_publish=True,
        torn_reads=True,
        cleanup_runs=1,
        unrelated_publishes=1,
        sweepers=0,
        attempts=1,
    ),
)

RETENTION_SCOPES: Final = (
    RetentionScope(branches=(2,), tags=(2,), creators=(THE_TAG,), endings=(("tag", 0),)),
    RetentionScope(
        branches=(2,), taggers=(OLD_COMMIT,), endings=(("branch", 0), ("fork", 0)), abandons=1
    ),
    RetentionScope(creators=(OLD_COMMIT,)),
    RetentionScope(holders=(OLD_COMMIT,)),
    RetentionScope(pin=2, writers=1, late_puts=(2,), readers=(FROM_MAIN,), cleaners=0),
)

SCHEMA_SCOPES: Final = (
    SchemaScope(appliers=(CREATE,), sweeps=1, lock=True, gives_up=True),
    SchemaScope(appliers=(COLUMNS,), writers=(0,)),
    SchemaScope(appliers=(NOTE,), readers=1),
)

BRANCH_SCOPES: Final = (
    BranchScope(creators=(0, 0), writers=(0,), fork_tries=2),
    BranchScope(parents=(MAIN, 0), living=(0,), creators=(1,), deleters=(0,), reconciles=1),
    BranchScope(living=(0,), mergers=(0,), deleters=(0,), sweeps=1),
    BranchScope(living=(0,), taggers=(0,), readers=(0,)),
)


def _emitted(model: Model[StateT]) -> set[str]:
    """The names of all steps of a search; a violation ends it early."""
    names: set[str] = set()

    def recording_steps(state: StateT) -> list[tuple[str, StateT]]:
        steps = list(model.steps(state))
        names.update(name_of(label) for label, _ in steps)
        return steps

    search(Model(initial=model.initial, steps=recording_steps, violation=model.violation))
    return names


@pytest.mark.cost("searches one scope for each kind of step", 6)
def test_the_model_emits_exactly_the_listed_names() -> None:
    emitted = _emitted(fork_protocol(ForkScope()))
    for scope in SCOPES:
        emitted |= _emitted(protocol(scope))

    assert emitted == STEP_LABELS | OUTSIDE_LABELS


def test_the_model_of_branches_emits_exactly_the_listed_names_and_shares_the_others() -> None:
    emitted = {name for scope in BRANCH_SCOPES for name in _emitted(branch_protocol(scope))}

    assert emitted - STEP_LABELS == BRANCH_STEP_LABELS
    assert not BRANCH_STEP_LABELS & STEP_LABELS


def test_the_model_of_retention_emits_exactly_the_listed_names_and_shares_the_others() -> None:
    emitted = {name for scope in RETENTION_SCOPES for name in _emitted(retention_protocol(scope))}

    assert emitted - STEP_LABELS - BRANCH_STEP_LABELS == RETENTION_STEP_LABELS
    assert not RETENTION_STEP_LABELS & (STEP_LABELS | BRANCH_STEP_LABELS)


def test_the_model_of_schemas_emits_exactly_the_listed_names_and_shares_the_others() -> None:
    emitted = {name for scope in SCHEMA_SCOPES for name in _emitted(schema_protocol(scope))}

    assert emitted - STEP_LABELS - BRANCH_STEP_LABELS == SCHEMA_STEP_LABELS
    assert not SCHEMA_STEP_LABELS & (STEP_LABELS | BRANCH_STEP_LABELS | RETENTION_STEP_LABELS)


def test_the_code_has_a_failpoint_for_every_step_of_schema_changes() -> None:
    assert sorted(SCHEMA_STEP_LABELS - POINTS) == []


def test_the_model_of_rebuilds_emits_exactly_the_listed_names() -> None:
    emitted = _emitted(rebuild_protocol(RebuildScope(cuts=1, lost_puts=1)))

    assert emitted - OUTSIDE_LABELS - {"rebuild.refused"} == REBUILD_STEP_LABELS


def test_the_code_has_a_failpoint_for_every_step_of_a_rebuild() -> None:
    assert sorted(REBUILD_STEP_LABELS - POINTS) == []


def test_a_delete_that_drops_forks_itself_is_a_step_that_the_code_does_not_have() -> None:
    scope = replace(BRANCH_MUTANT_BOUNDS["delete_own_forks"].scope, mutant="delete_own_forks")

    emitted = _emitted(branch_protocol(scope))

    assert emitted - STEP_LABELS - BRANCH_STEP_LABELS == {"branch.post_drop"}


@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        ("early_fail", "publish.abort"),
        ("fold_hist_first", "publish.resolve.history"),
        pytest.param(
            *("no_fence", "recovery.no_fence"), marks=pytest.mark.nightly("a search of seconds")
        ),
    ],
)
def test_a_missing_guard_shows_as_a_step_that_the_code_does_not_have(
    mutant: Mutant, name: str
) -> None:
    emitted = _emitted(protocol(mutated(MUTANT_BOUNDS[mutant].scope, mutant)))

    assert emitted - STEP_LABELS - OUTSIDE_LABELS == {name}
    assert name in UNGUARDED_LABELS


def test_a_label_begins_with_its_name() -> None:
    assert name_of("publish.resolve: op row says committed [W0]") == "publish.resolve"
