"""The actual rows and times of the steps of one run, for `explain --analyze`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.engine.frames import Frame
    from omnigraph.query.plan import Plan


@dataclass(slots=True)
class StepProfile:
    """Rows that a step gave, how many of them were held one by one, and its seconds.

    The seconds of a step include those of the steps below it.
    """

    rows: int = 0
    held: int = 0
    seconds: float = 0.0


class Profile:
    """Counts of every step of a plan."""

    def __init__(self) -> None:
        self._steps: dict[int, StepProfile] = {}

    def of(self, plan: Plan) -> StepProfile | None:
        return self._steps.get(id(plan))

    def watched(self, plan: Plan, frames: Iterator[Frame]) -> Iterator[Frame]:
        """The same frames, counted as they pass."""
        step = self._steps.setdefault(id(plan), StepProfile())
        while True:
            began = time.perf_counter()
            frame = next(frames, None)
            step.seconds += time.perf_counter() - began
            if frame is None:
                return
            step.rows += frame.count
            step.held += frame.rows
            yield frame
