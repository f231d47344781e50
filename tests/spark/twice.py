"""A session all of whose tasks run twice, and of whose first runs nothing arrives.

That is what a lost or a speculative task is to the work of a job: all that it does to files has
been done, but Spark takes its rows from another run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def run_twice(task: Task) -> Task:
    def twice(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = list(batches)
        for _ in task(iter(given)):
            pass
        yield from task(iter(given))

    return twice


class TwiceFrame:
    """A frame whose tasks, and those of all frames made from it, run twice."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame

    def mapInArrow(self, task: Task, schema: Any) -> TwiceFrame:  # noqa: N802 - as Spark calls it
        return TwiceFrame(self.frame.mapInArrow(run_twice(task), schema))

    def repartitionById(self, *given: Any) -> TwiceFrame:  # noqa: N802 - as Spark calls it
        return TwiceFrame(self.frame.repartitionById(*given))

    def unionAll(self, other: Any) -> TwiceFrame:  # noqa: N802 - as Spark calls it
        frame = other.frame if isinstance(other, TwiceFrame) else other
        return TwiceFrame(self.frame.unionAll(frame))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.frame, name)


class TwiceSession:
    """A session that starts every job with a frame whose tasks run twice."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def range(self, *given: int) -> TwiceFrame:
        return TwiceFrame(self.session.range(*given))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)
