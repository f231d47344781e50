"""Runs searches by hand and prints their size: `python -m tests.model.run quick`.

The exit code is 0 if every bound is exhausted, clean and of the recorded size, every mutant is
caught in the recorded number of steps, and the unsafe variants are refuted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import TypeVar

from tests.model.bounds import FORKS, QUICK, QUICK_COMBINED, QUICK_LEAN, Bound, Counts
from tests.model.bounds_full import FULL, FULL_COMBINED, FULL_LEAN
from tests.model.branch_bounds import (
    BRANCH_MUTANT_BOUNDS,
    FINISHING_A_TORN_CREATION,
    FINISHING_WITHOUT_A_PARENT,
    FULL_BRANCHES,
    QUICK_BRANCHES,
    SWEEP_ON_A_DEAD_BRANCH,
    BranchBound,
)
from tests.model.branches import branch_protocol
from tests.model.checker import Model, SearchResult, search
from tests.model.forks import ForkScope, fork_protocol
from tests.model.maintenance_bounds import (
    FULL_MAINTENANCE,
    MAINTENANCE_MUTANT_BOUNDS,
    QUICK_MAINTENANCE,
)
from tests.model.mutant_bounds import (
    COMMON_FORK_NAME,
    DROPPED_BEFORE_DECIDED,
    LEAN_MUTANT_BOUNDS,
    LOOSE_CLEANUP,
    MUTANT_BOUNDS,
    SIDECARS_BEFORE_REFS,
    in_lean_form,
    mutated,
)
from tests.model.protocol import protocol
from tests.model.retention import retention_protocol
from tests.model.retention_bounds import (
    FULL_RETENTION,
    LISTED_LATE,
    QUICK_RETENTION,
    RETENTION_MUTANT_BOUNDS,
    RetentionBound,
)
from tests.model.schema_apply import schema_protocol
from tests.model.schema_bounds import (
    FULL_SCHEMAS,
    NO_GUARDS_OF_SCHEMAS,
    QUICK_SCHEMAS,
    SCHEMA_MUTANT_BOUNDS,
    SchemaBound,
)
from tests.model.scope import Scope

SETS: dict[str, tuple[Bound, ...]] = {
    "quick": QUICK + QUICK_LEAN + QUICK_MAINTENANCE + QUICK_COMBINED,
    "combined": QUICK_COMBINED + FULL_COMBINED,
    "lean": QUICK_LEAN + FULL_LEAN,
    "maintenance": QUICK_MAINTENANCE + FULL_MAINTENANCE,
    "full": FULL_LEAN + FULL + FULL_MAINTENANCE + FULL_COMBINED,
    "branches": (),
    "retention": (),
    "schemas": (),
    "mutants": (),
    "all": QUICK + QUICK_LEAN + QUICK_MAINTENANCE + FULL_LEAN + FULL + FULL_MAINTENANCE,
}
BRANCH_SETS: dict[str, tuple[BranchBound, ...]] = {
    "quick": QUICK_BRANCHES,
    "full": (*FULL_BRANCHES, SWEEP_ON_A_DEAD_BRANCH),
    "branches": (*QUICK_BRANCHES, *FULL_BRANCHES, SWEEP_ON_A_DEAD_BRANCH),
    "all": (*QUICK_BRANCHES, *FULL_BRANCHES, SWEEP_ON_A_DEAD_BRANCH),
}
RETENTION_SETS: dict[str, tuple[RetentionBound, ...]] = {
    "quick": (*QUICK_RETENTION, LISTED_LATE),
    "full": FULL_RETENTION,
    "retention": (*QUICK_RETENTION, LISTED_LATE, *FULL_RETENTION),
    "all": (*QUICK_RETENTION, LISTED_LATE, *FULL_RETENTION),
}
SCHEMA_SETS: dict[str, tuple[SchemaBound, ...]] = {
    "quick": (*QUICK_SCHEMAS, *NO_GUARDS_OF_SCHEMAS),
    "full": FULL_SCHEMAS,
    "schemas": (*QUICK_SCHEMAS, *NO_GUARDS_OF_SCHEMAS, *FULL_SCHEMAS),
    "all": (*QUICK_SCHEMAS, *NO_GUARDS_OF_SCHEMAS, *FULL_SCHEMAS),
}
WITH_BRANCH_MUTANTS = ("quick", "branches", "mutants", "all")
WITH_RETENTION_MUTANTS = ("quick", "retention", "mutants", "all")
WITH_SCHEMA_MUTANTS = ("quick", "schemas", "mutants", "all")
WITH_MAINTENANCE_MUTANTS = ("quick", "maintenance", "mutants", "all")
WITH_MUTANTS = ("quick", "mutants", "all")

StateT = TypeVar("StateT", bound=Hashable)


def main() -> int:
    parser = argparse.ArgumentParser(description="Search the model of the commit protocol.")
    parser.add_argument("what", nargs="?", default="quick", choices=list(SETS))
    parser.add_argument("-v", "--verbose", action="store_true", help="print every shortest trace")
    arguments = parser.parse_args()
    bounds = SETS[arguments.what]
    good = [_exhausts(bound.name, protocol(bound.scope), bound.counts) for bound in bounds]
    good += [
        _exhausts(branch.name, branch_protocol(branch.scope), branch.counts)
        for branch in BRANCH_SETS.get(arguments.what, ())
    ]
    good += [
        _exhausts(bound.name, retention_protocol(bound.scope), bound.counts)
        for bound in RETENTION_SETS.get(arguments.what, ())
    ]
    good += [
        _exhausts(bound.name, schema_protocol(bound.scope), bound.counts)
        for bound in SCHEMA_SETS.get(arguments.what, ())
    ]
    good += _chosen_mutants(arguments.what, verbose=arguments.verbose)
    return 0 if all(good) else 1


def _chosen_mutants(what: str, *, verbose: bool) -> Iterable[bool]:
    if what in WITH_BRANCH_MUTANTS:
        yield from _branch_mutants(verbose=verbose)
    if what in WITH_RETENTION_MUTANTS:
        yield from _retention_mutants(verbose=verbose)
    if what in WITH_SCHEMA_MUTANTS:
        yield from _schema_mutants(verbose=verbose)
    if what in WITH_MAINTENANCE_MUTANTS:
        yield from _maintenance_mutants(verbose=verbose)
    if what in WITH_MUTANTS:
        yield from _mutants(verbose=verbose)


def _mutants(*, verbose: bool) -> Iterable[bool]:
    for mutant, caught in MUTANT_BOUNDS.items():
        yield _catches(f"mutant {mutant}", mutated(caught.scope, mutant), caught.steps, verbose)
    for mutant, caught in LEAN_MUTANT_BOUNDS.items():
        scope = in_lean_form(mutated(caught.scope, mutant))
        yield _catches(f"lean form, mutant {mutant}", scope, caught.steps, verbose)
    yield _catches("cleanup of all unpinned", LOOSE_CLEANUP.scope, LOOSE_CLEANUP.steps, verbose)
    yield _exhausts("forks, unique names", fork_protocol(ForkScope()), FORKS)
    for name, fork in (
        ("forks, one name for all", COMMON_FORK_NAME),
        ("forks, sidecars before refs", SIDECARS_BEFORE_REFS),
        ("forks, dropped before decided", DROPPED_BEFORE_DECIDED),
    ):
        yield _refutes(name, search(fork_protocol(fork.scope)), fork.steps, verbose)


def _branch_mutants(*, verbose: bool) -> Iterable[bool]:
    for mutant, caught in BRANCH_MUTANT_BOUNDS.items():
        result = search(branch_protocol(replace(caught.scope, mutant=mutant)))
        yield _refutes(f"branches, mutant {mutant}", result, caught.steps, verbose)
    for name, refuted in (
        ("branches, finish a torn creation", FINISHING_A_TORN_CREATION),
        ("branches, finish without a parent", FINISHING_WITHOUT_A_PARENT),
    ):
        yield _refutes(name, search(branch_protocol(refuted.scope)), refuted.steps, verbose)


def _retention_mutants(*, verbose: bool) -> Iterable[bool]:
    for mutant, caught in RETENTION_MUTANT_BOUNDS.items():
        result = search(retention_protocol(replace(caught.scope, mutant=mutant)))
        yield _refutes(f"retention, mutant {mutant}", result, caught.steps, verbose)


def _schema_mutants(*, verbose: bool) -> Iterable[bool]:
    for mutant, caught in SCHEMA_MUTANT_BOUNDS.items():
        result = search(schema_protocol(replace(caught.scope, mutant=mutant)))
        yield _refutes(f"schemas, mutant {mutant}", result, caught.steps, verbose)


def _maintenance_mutants(*, verbose: bool) -> Iterable[bool]:
    for mutant, caught in MAINTENANCE_MUTANT_BOUNDS.items():
        scope = mutated(caught.scope, mutant)
        yield _catches(f"maintenance, mutant {mutant}", scope, caught.steps, verbose)


def _exhausts(name: str, model: Model[StateT], expected: Counts) -> bool:
    result = search(model)
    counts = Counts(result.states, result.transitions, result.depth)
    verdict = result.violation or ("clean, exhaustive" if result.clean else "stopped: too large")
    changed = "" if counts == expected else f"; CHANGED, expected {expected}"
    print(
        f"{name:66s} states={result.states:>9,} transitions={result.transitions:>10,} "
        f"depth={result.depth:>3} {result.seconds:>6.1f}s  {verdict}{changed}",
        flush=True,
    )
    _print_trace(result)
    return result.clean and counts == expected


def _catches(name: str, scope: Scope, expected: int, verbose: bool) -> bool:
    return _refutes(name, search(protocol(scope)), expected, verbose)


def _refutes(name: str, result: SearchResult, expected: int, verbose: bool) -> bool:
    steps = len(result.trace)
    changed = "" if steps == expected else f" (CHANGED, expected {expected})"
    verdict = f"caught in {steps:2d} steps{changed}" if result.violation else "MISSED"
    print(
        f"{name:38s} {verdict}, {result.states:>8,} states {result.seconds:>6.1f}s: "
        f"{result.violation}",
        flush=True,
    )
    if verbose:
        _print_trace(result)
    return result.violation is not None and steps == expected


def _print_trace(result: SearchResult) -> None:
    for number, label in enumerate(result.trace, 1):
        print(f"     {number:2d}. {label}")


if __name__ == "__main__":
    sys.exit(main())
