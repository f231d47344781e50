"""Everybody dies here: a sweep, a reader, a writer of each type and one more apply must succeed.

The question is asked in every reachable state, so it covers a crash of all processes at every
point. The newcomers take the same steps as everybody else, alone; only the sweep may lack a guard.
It also leaves no table behind that nobody names, unless a late applier makes one after its
operation was settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from tests.model.schema_applier import applier_steps
from tests.model.schema_edits import NOTE, SCHEMAS
from tests.model.schema_invariants import schema_violation
from tests.model.schema_reader import reader_steps
from tests.model.schema_scope import SchemaScope
from tests.model.schema_state import (
    Applier,
    SchemaReader,
    SchemaState,
    SchemaStep,
    SchemaSweeper,
    SchemaWriter,
    table_at,
)
from tests.model.schema_sweep import sweeper_steps
from tests.model.schema_writer import writer_steps

STEPS_MAX: Final = 40


class SchemaLiveness:
    """Judges states; remembers the answer for equal contents of the store."""

    def __init__(self, scope: SchemaScope) -> None:
        self._scope = scope
        self._known: dict[object, str | None] = {}

    def violation(self, state: SchemaState) -> str | None:
        key = (
            state.manifest,
            state.tables,
            state.contracts,
            state.files,
            state.sidecars,
            state.lock,
        )
        if key not in self._known:
            self._known[key] = self._find_violation(state)
        return self._known[key]

    def _find_violation(self, state: SchemaState) -> str | None:
        left = [
            side.work.op for side in state.sidecars if self._scope.kind_of(side.work.op) == "apply"
        ]
        swept = _run(
            state._replace(
                appliers=(),
                writers=(),
                readers=(),
                sweeper=SchemaSweeper("idle", len(state.sidecars)),
            ),
            partial(sweeper_steps, self._scope),
        )
        if swept.sidecars:
            return "LIVENESS: the sweep does not finish a sidecar"
        if sentence := schema_violation(self._scope, swept._replace(writers=())):
            return f"LIVENESS: after the sweep {sentence}"
        for op in left:
            if _is_garbage(swept, self._scope.place_of(op)):
                return f"LIVENESS: nobody removes the new table of apply {op}"
        return self._newcomers(swept)

    def _newcomers(self, state: SchemaState) -> str | None:
        numbers = tuple(each.number for each in SCHEMAS[state.head.schema].types)
        old_writers = len(self._scope.writers)
        scope = replace(
            self._scope,
            appliers=(*self._scope.appliers, NOTE),
            writers=(*self._scope.writers, *numbers),
            maintenance_runs=(),
            same_operation=False,
            gives_up=False,
            mutant="lock_sticks" if self._scope.mutant == "lock_sticks" else None,
        )
        newcomer = len(self._scope.appliers)
        state = state._replace(
            appliers=(Applier("failed_done"),) * newcomer + (Applier("idle"),),
            writers=(SchemaWriter("idle"),) * (old_writers + len(numbers)),
            readers=(SchemaReader("idle"),) * 2,
        )
        state = _run(state, partial(reader_steps, scope, number=0))
        for number in range(old_writers, old_writers + len(numbers)):
            state = _run(state, partial(writer_steps, scope, number=number))
            if state.writers[number].phase != "acked_done":
                return f"LIVENESS: a new writer ends as {state.writers[number].phase}"
        state = _run(state, partial(applier_steps, scope, number=newcomer))
        if state.appliers[newcomer].phase != "acked_done":
            return f"LIVENESS: a new apply ends as {state.appliers[newcomer].phase}"
        state = _run(state, partial(reader_steps, scope, number=1))
        if any(reader.phase != "answered" for reader in state.readers):
            return "LIVENESS: a new reader is not answered"
        # The dead appliers only fill places here: what they had said was judged before.
        sentence = schema_violation(scope, state._replace(appliers=()))
        return f"LIVENESS: afterwards {sentence}" if sentence else None


def _is_garbage(state: SchemaState, place: int) -> bool:
    named = any(pin.place == place for entry in state.manifest for pin in entry.pins)
    return table_at(state, place) is not None and not named


def _run(state: SchemaState, steps: Callable[[SchemaState], Iterator[SchemaStep]]) -> SchemaState:
    """Let one process work alone until it has nothing to do."""
    for _ in range(STEPS_MAX):
        following = next(steps(state), None)
        if following is None:
            return state
        _, state = following
    return state
