"""Everybody dies here: one sweep, one creation of every branch and one new writer must succeed.

The question is asked in every reachable state, so it covers a crash of all processes at every
point. The newcomers take the same steps as everybody else, alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from tests.model.branch_invariants import branch_violation
from tests.model.branch_lives import creator_steps
from tests.model.branch_maintenance import sweeper_steps
from tests.model.branch_scope import MAIN, BranchScope
from tests.model.branch_state import (
    BranchState,
    BranchStep,
    BranchSweeper,
    BranchWriter,
    Creator,
)
from tests.model.branch_writer import writer_steps

STEPS_MAX: Final = 40


class BranchLiveness:
    """Judges states; remembers the answer for equal contents of the store."""

    def __init__(self, scope: BranchScope) -> None:
        names = tuple(range(len(scope.parents)))
        self._names = names
        self._scope = replace(
            scope,
            parents=(MAIN,) * len(names),  # a new branch may be forked from anywhere
            creators=(*scope.creators, *names),
            writers=(*scope.writers, *names),
            same_operation=False,
            fork_tries=1,
        )
        self._old_creators, self._old_writers = len(scope.creators), len(scope.writers)
        self._known: dict[object, str | None] = {}

    def violation(self, state: BranchState) -> str | None:
        key = (state.logs, state.lines, state.forks, state.sidecars, state.tags)
        if key not in self._known:
            self._known[key] = self._find_violation(state)
        return self._known[key]

    def _find_violation(self, state: BranchState) -> str | None:
        names = len(self._names)
        state = state._replace(
            lines=(*state.lines, *(None,) * names),
            creators=(Creator("failed"),) * self._old_creators + (Creator("idle"),) * names,
            writers=(BranchWriter("idle"),) * (self._old_writers + names),
            readers=(),
            sweeper=BranchSweeper("idle", len(state.sidecars)),
        )
        state = _run(state, partial(sweeper_steps, self._scope))
        if state.sidecars:
            return "LIVENESS: the sweep does not finish a sidecar"
        for name in self._names:
            creator, writer = self._old_creators + name, self._old_writers + name
            state = _run(state, partial(creator_steps, self._scope, number=creator))
            if state.creators[creator].phase not in ("acked", "exists"):
                return f"LIVENESS: branch {name} cannot be created"
            state = _run(state, partial(writer_steps, self._scope, number=writer))
            if state.writers[writer].phase != "acked_done":
                return f"LIVENESS: branch {name} cannot be written"
        sentence = branch_violation(self._scope, state)
        return f"LIVENESS: afterwards {sentence}" if sentence else None


def _run(state: BranchState, steps: Callable[[BranchState], Iterator[BranchStep]]) -> BranchState:
    """Let one process work alone until it has nothing to do."""
    for _ in range(STEPS_MAX):
        following = next(steps(state), None)
        if following is None:
            return state
        _, state = following
    return state
