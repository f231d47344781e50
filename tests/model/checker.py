"""A breadth-first explicit-state checker: visits every reachable state of a model.

Breadth first means that the trace of a violation is a shortest one. The checker knows nothing
about the protocol: a model is a first state, the steps out of a state, and a judgement of a
state.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

StateT = TypeVar("StateT", bound=Hashable)

STATES_MAX = 3_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Model(Generic[StateT]):
    """What to search: `violation` answers None for a good state and a sentence for a bad one."""

    initial: StateT
    steps: Callable[[StateT], Iterable[tuple[str, StateT]]]
    violation: Callable[[StateT], str | None]


class Size(NamedTuple):
    """How many states and steps an exhausted search has.

    Another size means another model: recorded sizes are changed only on purpose.
    """

    states: int
    transitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What a search found; `depth` counts the steps to the deepest state, or to the violation."""

    states: int
    transitions: int
    depth: int
    seconds: float
    exhausted: bool
    violation: str | None
    trace: tuple[str, ...]

    @property
    def size(self) -> Size:
        return Size(self.states, self.transitions)

    @property
    def clean(self) -> bool:
        """Every reachable state was visited, and none was bad."""
        return self.exhausted and self.violation is None


class _Search(Generic[StateT]):
    """One running search: which step first led to each state."""

    def __init__(self, model: Model[StateT]) -> None:
        self.model = model
        self.started = time.monotonic()
        self.parents: dict[StateT, tuple[StateT, str] | None] = {model.initial: None}
        self.transitions = 0

    def run(self, states_max: int) -> SearchResult:
        model, parents = self.model, self.parents
        if sentence := model.violation(model.initial):
            return self.result(0, violation=sentence, at=model.initial)
        depth = 0
        waiting = deque([(model.initial, 0)])
        while waiting:
            state, depth = waiting.popleft()
            for label, following in model.steps(state):
                self.transitions += 1
                # One lookup instead of two, because hashing a state is expensive.
                known = len(parents)
                parents.setdefault(following, (state, label))
                if len(parents) == known:
                    continue
                if sentence := model.violation(following):
                    return self.result(depth + 1, violation=sentence, at=following)
                if len(parents) > states_max:
                    return self.result(depth, exhausted=False)
                waiting.append((following, depth + 1))
        return self.result(depth)

    def result(
        self,
        depth: int,
        *,
        exhausted: bool = True,
        violation: str | None = None,
        at: StateT | None = None,
    ) -> SearchResult:
        trace: list[str] = []
        while at is not None and (parent := self.parents[at]):
            at, label = parent
            trace.append(label)
        return SearchResult(
            states=len(self.parents),
            transitions=self.transitions,
            depth=depth,
            seconds=time.monotonic() - self.started,
            exhausted=exhausted and violation is None,
            violation=violation,
            trace=tuple(reversed(trace)),
        )


def search(model: Model[StateT], *, states_max: int = STATES_MAX) -> SearchResult:
    """Visit every reachable state, or stop at the first bad one."""
    return _Search(model).run(states_max)
