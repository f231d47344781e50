"""Labelled steps of one process of a model whose state holds its processes as tuples."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from tests.model.state import replaced

StateT = TypeVar("StateT")
PhaseT = TypeVar("PhaseT", bound=str)


class ProcessSteps(Generic[StateT, PhaseT]):
    """Steps that change one process, and perhaps the rest of the state.

    `group` is the field of the state that holds processes of this kind; labels end with the first
    letter of its name and the number of the process.
    """

    def __init__(self, state: StateT, group: str, number: int) -> None:
        self._state = state
        self._group = group
        self._number = number

    def __call__(
        self, label: str, phase: PhaseT, changed: StateT | None = None, **fields: Any
    ) -> tuple[str, StateT]:
        before: Any = self._state if changed is None else changed
        processes = getattr(before, self._group)
        process = processes[self._number]._replace(phase=phase, **fields)
        after: StateT = before._replace(**{self._group: replaced(processes, self._number, process)})
        return f"{label} [{self._group[0].upper()}{self._number}]", after
