"""Controls one run of a query: its parameters, its limits, and the profile of its steps.

The profile has the actual rows and times of each step, for `explain --analyze`.

Invariant: every producer of rows calls `check` between two portions, so a run ends soon after its
timeout or cancellation, and accounts for memory before it is allocated.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from omnigraph_lake.errors import QueryBudgetError, QueryCancelledError

if TYPE_CHECKING:
    from omnigraph_lake.engine.frames import Frame
    from omnigraph_lake.query.binding import BoundParameters
    from omnigraph_lake.query.plan import Plan
    from omnigraph_lake.schema.catalog import Catalog


PORTION_ROWS_MAX: Final = 1 << 19
"""Rows of a pattern that are processed at once; more rows do not fit into CPU caches."""
PORTION_ROWS_LEAST: Final = 1 << 12
_BYTES_PER_ROW: Final = 256
"""Bytes per row of a pattern while it is processed, its columns and copies included."""
_NEXT_STEP: Final = (
    "Narrow the pattern, add a `limit`, raise the memory limit, or run it on Spark with "
    '`engine="spark"`.'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one run. Tables shared by several runs are bounded by the cache instead."""

    memory_bytes: int
    seconds: float | None = None

    @property
    def portion_rows(self) -> int:
        """How many rows of a pattern are held at once: a sixteenth of the memory."""
        fitting = self.memory_bytes // (16 * _BYTES_PER_ROW)
        return max(PORTION_ROWS_LEAST, min(PORTION_ROWS_MAX, fitting))


@dataclass(slots=True, kw_only=True)
class Run:
    """A running query. Not shared between queries; `cancel` may be called from any thread."""

    catalog: Catalog
    parameters: BoundParameters
    limits: Limits
    started: float = field(default_factory=time.monotonic)
    _cancelled: threading.Event = field(default_factory=threading.Event)
    _held: int = 0

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def seconds_left(self) -> float | None:
        if self.limits.seconds is None:
            return None
        return self.limits.seconds - (time.monotonic() - self.started)

    def check(self) -> None:
        """End the run here if it was cancelled or has timed out."""
        if self._cancelled.is_set():
            raise QueryCancelledError("the query was cancelled", next_step="Run it again.")
        left = self.seconds_left
        if left is not None and left < 0:
            raise out_of_time(self.limits)

    def has_room(self, size: int) -> bool:
        """Whether this many more bytes can be allocated."""
        return self._held + size <= self.limits.memory_bytes

    def hold(self, size: int, what: str) -> None:
        """Account for bytes that are held until the run ends."""
        self._held += size
        if self._held > self.limits.memory_bytes:
            raise out_of_memory(self.limits, f"{what} would take it to {self._held:,} bytes")

    def let_go(self, size: int) -> None:
        self._held -= size


def too_large(what: str, limit: int) -> QueryBudgetError:
    return QueryBudgetError(
        f"{what} takes more than the {limit:,} bytes that tables in memory may take",
        next_step="Raise OMNIGRAPH_QUERY_CACHE, start from a key so that little is read, or run "
        'it on Spark with `engine="spark"`.',
    )


def out_of_time(limits: Limits) -> QueryBudgetError:
    return QueryBudgetError(
        f"the query was not finished after {limits.seconds:g} seconds", next_step=_NEXT_STEP
    )


def out_of_memory(limits: Limits, why: str) -> QueryBudgetError:
    return QueryBudgetError(
        f"the query needs more than its {limits.memory_bytes:,} bytes of memory: {why}",
        next_step=_NEXT_STEP,
    )


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
