"""Everybody dies here: one sweep of every sidecar, then one new writer, must succeed.

The question is asked in every reachable state, so it covers a crash of all processes at every
point.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.model.replay import Replay
from tests.model.scope import TABLES, Scope
from tests.model.state import State, Sweeper
from tests.model.sweep import sweeper_steps
from tests.model.tables import has_foreign, version_at, writers_in

SWEEP_STEPS_MAX: Final = 30


class Liveness:
    """Judges states; remembers the answer for equal contents of the store."""

    def __init__(self, scope: Scope, replay: Replay) -> None:
        # Alone, a sweep reads in one piece and its publishes land at once.
        self._scope = replace(scope, overwrite_publish=False, torn_reads=False)
        self._replay = replay
        self._known: dict[object, str | None] = {}

    def violation(self, state: State) -> str | None:
        manifest = state.manifest
        key = (
            state.tables,
            state.files,
            manifest.pins,
            manifest.decisions,
            manifest.min_op,
            state.sidecars,
            state.history,
            state.log,
        )
        if key not in self._known:
            self._known[key] = self._find_violation(state)
        return self._known[key]

    def _find_violation(self, state: State) -> str | None:
        if any(has_foreign(versions, 0) for versions in state.tables):
            return None  # nobody may decide about foreign rows but a person
        swept = self._sweep(state)
        if swept.sidecars:
            return "LIVENESS: the sweep does not finish a sidecar"
        return self._new_writer_violation(swept)

    def _sweep(self, state: State) -> State:
        for sidecar in sorted(state.sidecars):
            sweeper = Sweeper("classify", 0, sidecar.op, sidecar.pins, attempt=sidecar.attempt)
            state = state._replace(sweepers=(sweeper,))
            for _ in range(SWEEP_STEPS_MAX):
                steps = sweeper_steps(self._scope, state, 0)
                if not steps:
                    break
                state = steps[0].state
        return state

    def _new_writer_violation(self, state: State) -> str | None:
        """A new writer builds on the pin, or on a restore of it, which has the same content."""
        decisions = state.log if self._scope.folders else state.manifest.decisions
        content = self._replay.content_after(decisions)
        for table in TABLES:
            base = version_at(state.tables[table], state.manifest.pins[table])
            if base is None:
                return f"LIVENESS: pin of table{table} is gone"
            shown, expected = writers_in(base.files), content[table]
            if shown != expected:
                return (
                    f"LIVENESS: a new writer would build on {sorted(shown)}, "
                    f"expected {sorted(expected)}"
                )
            if any((table, *file) not in state.files for file in base.files):
                return f"LIVENESS: table{table} unreadable for a new writer"
        return None
