"""The commit protocol as a model: table HEADs move first, the manifest decides.

A step is one storage call that another process can observe. A read of the manifest followed by a
publish that expects the version just read is a single step: if anything came in between, the
publish would fail and nothing would have changed.
"""

from __future__ import annotations

from functools import partial

from tests.model.checker import Model
from tests.model.cleanup import cleaner_steps
from tests.model.fold import folder_steps
from tests.model.invariants import Invariants
from tests.model.manifest import readers
from tests.model.outside import outside_steps
from tests.model.publish import land_put, land_swap
from tests.model.scope import TABLES, Scope
from tests.model.state import (
    EARLIER,
    INDEXED,
    Cleaner,
    Folder,
    Manifest,
    ManifestSlots,
    Outside,
    State,
    Step,
    Sweeper,
    Version,
    Writer,
)
from tests.model.sweep import sweeper_steps
from tests.model.writer import writer_steps


def protocol(scope: Scope) -> Model[State]:
    """The model of one scope, ready to be searched."""
    return Model(
        initial=initial_state(scope),
        steps=partial(all_steps, scope),
        violation=Invariants(scope).violation,
    )


def initial_state(scope: Scope) -> State:
    """Tables at version 1, published, and nobody at work; empty unless writes merge files."""
    files = frozenset({(EARLIER, 0), (INDEXED, 0)} if scope.tail_merge else ())
    return State(
        tables=((Version(1, "initial", -1, 0, 0, files),),) * len(TABLES),
        files=frozenset((table, *file) for table in TABLES for file in files),
        manifest=Manifest(version=1, pins=(1,) * len(TABLES), decisions=(), min_op=-1),
        slots=ManifestSlots(0, frozenset(), (None,) * readers(scope)),
        history=(),
        sidecars=frozenset(),
        swaps=frozenset(),
        puts=frozenset(),
        writers=(Writer("idle"),) * scope.writers,
        sweepers=(Sweeper("idle", scope.sweep_runs),) * scope.sweepers,
        cleaner=Cleaner("idle", scope.cleanup_runs),
        folders=(Folder("idle", 1),) * scope.folders,
        outside=Outside(
            scope.foreign_writes,
            scope.manifest_cleanups,
            scope.prunes,
            scope.unrelated_publishes,
        ),
        log=(),
    )


def all_steps(scope: Scope, state: State) -> list[Step]:
    """Everything that can happen next, in an order that does not vary between runs."""
    steps: list[Step] = []
    for op in range(scope.writers):
        steps += writer_steps(scope, state, op)
    for swap in sorted(state.swaps):
        steps += land_swap(scope, state, swap)
    for put in sorted(state.puts):
        steps += land_put(scope, state, put)
    for number in range(scope.sweepers):
        steps += sweeper_steps(scope, state, number)
    steps += cleaner_steps(scope, state)
    steps += outside_steps(scope, state)
    for number in range(scope.folders):
        steps += folder_steps(scope, state, number)
    return steps
