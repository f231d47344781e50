"""The names in `labels.py` are exactly those that the model emits."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Final, TypeVar

import pytest

from omnigraph_lake.commit import phases, publish, table_moves
from omnigraph_lake.commit import protocol as driver
from omnigraph_lake.commit.coordination import combine
from omnigraph_lake.failpoints import POINTS
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
    RESOLVE_READ,
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
from tests.model.schema_bounds import COLUMNS, COLUMNS_AND_ROWS, CREATE
from tests.model.schema_edits import NOTE
from tests.model.schema_scope import SchemaScope
from tests.model.scope import Scope

pytestmark = pytest.mark.model

StateT = TypeVar("StateT", bound=Hashable)

# Small searches that together take every step of a writer at least once.
WRITER_SCOPES: Final = (
    Scope(write_sets=DISJOINT, read_sets=READ_BOTH, forbidden_pairs=((0, 1),), in_flight=False),
    Scope(write_sets=ONE, foreign_writes=1, cleanup_runs=1, caller_deadline=True),
    Scope(
        write_sets=SAME_TABLE,
        direct_commit=True,
        freed_slots=True,
        in_flight=False,
        sweepers=0,
        attempts=1,
    ),
    Scope(
        write_sets=SAME_TABLE,
        combine=True,
        report=True,
        reuse_files=True,
        in_flight=False,
        sweepers=0,
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
)

# The same, of the whole protocol.
SCOPES: Final = (
    *WRITER_SCOPES,
    Scope(write_sets=SAME_TABLE, attempts=1, in_flight=False),
    Scope(
        write_sets=SAME_TABLE,
        kinds=("append", "compact"),
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
    SchemaScope(appliers=(COLUMNS_AND_ROWS,)),
    SchemaScope(appliers=(NOTE,), readers=1),
)

BRANCH_SCOPES: Final = (
    BranchScope(creators=(0, 0), writers=(0,), fork_tries=2),
    BranchScope(parents=(MAIN, 0), living=(0,), creators=(1,), deleters=(0,), reconciles=1),
    BranchScope(living=(0,), mergers=(0,), deleters=(0,), sweeps=1),
    BranchScope(living=(0,), taggers=(0,), readers=(0,)),
)


def _emitted(model: Model[StateT], *, by: tuple[str, ...] = ("",)) -> set[str]:
    """The names of all steps of a search, or of those that some processes take.

    A violation ends a search early.
    """
    names: set[str] = set()

    def recording_steps(state: StateT) -> list[tuple[str, StateT]]:
        steps = list(model.steps(state))
        names.update(name_of(label) for label, _ in steps if label.endswith(by))
        return steps

    search(Model(initial=model.initial, steps=recording_steps, violation=model.violation))
    return names


def test_the_model_emits_exactly_the_listed_names() -> None:
    emitted = _emitted(fork_protocol(ForkScope()))
    for scope in SCOPES:
        emitted |= _emitted(protocol(scope))

    assert emitted == STEP_LABELS | OUTSIDE_LABELS


# The phases of a write in the code, in their order.
PHASES: Final = (
    driver.commit_write,
    phases.start,
    phases.stage,
    phases.arm,
    phases.move,
    combine.Company.take_offers,
    combine.report,
    combine.Company.take_reports,
    phases.decide,
    driver._retry_after,
    phases.give_up,
    phases.finish,
    phases.finish_unchanged,
    phases.finish_failed,
    phases.take_back,
)
PHASE_MODULES: Final = (driver, phases, combine, table_moves, publish)


def _steps_named(function: ast.FunctionDef) -> list[str]:
    """What a docstring lists after `Steps:`."""
    _, _, after = (ast.get_docstring(function) or "").partition("Steps:")
    return after.partition("\n\n")[0].replace(",", " ").split()


@cache
def _functions(modules: tuple[ModuleType, ...]) -> Mapping[str, ast.FunctionDef]:
    """Functions and methods by name; what is defined in one belongs to it."""
    trees = [ast.parse(inspect.getsource(module)) for module in modules]
    nodes = [node for tree in trees for node in tree.body]
    nodes += [part for node in nodes if isinstance(node, ast.ClassDef) for part in node.body]
    return {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}


def _steps_taken(name: str) -> set[str]:
    """The failpoints in a function and in those that it calls, but for other phases."""
    functions, seen, waiting = _functions(PHASE_MODULES), {name}, [name]
    points: set[str] = set()
    while waiting:
        for node in ast.walk(functions[waiting.pop()]):
            if isinstance(node, ast.Constant) and node.value in POINTS:
                points.add(node.value)
            called = str(getattr(node, "attr", getattr(node, "id", "")))
            if called in functions and called not in seen and not _steps_named(functions[called]):
                seen.add(called)
                waiting.append(called)
    return points


@pytest.mark.parametrize("name", [phase.__name__ for phase in PHASES])
def test_a_phase_names_the_steps_that_it_takes(name: str) -> None:
    named = _steps_named(_functions(PHASE_MODULES)[name])
    # Whoever swaps the manifest, the steps of that are those of `decide`.
    swap = set() if name == "decide" else _steps_taken("decide")

    assert named
    assert len(named) == len(set(named))
    assert set(named) == _steps_taken(name) - swap


def test_every_step_is_named_by_a_phase_that_is_listed() -> None:
    functions = _functions(PHASE_MODULES).values()
    naming = {function.name for function in functions if _steps_named(function)}

    assert naming == {phase.__name__ for phase in PHASES}


def test_the_phases_of_the_code_take_the_steps_of_a_writer_of_the_model() -> None:
    """But for the deadline of a caller, and the two requests of a read, which are steps below."""
    by = ("[W0]", "[store]")
    emitted = {name for scope in WRITER_SCOPES for name in _emitted(protocol(scope), by=by)}
    below = {"mutation.deadline", *RESOLVE_READ}
    functions = _functions(PHASE_MODULES)
    named = {step for phase in PHASES for step in _steps_named(functions[phase.__name__])}

    assert emitted >= below
    assert named - BRANCH_STEP_LABELS == emitted - below - OUTSIDE_LABELS
    assert named & BRANCH_STEP_LABELS == {"branch.pre_verify"}


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
