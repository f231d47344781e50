"""A session all of whose tasks run twice, and of whose first runs nothing arrives.

That is what a lost or a speculative task is to the work of a job: all that it does to files has
been done, but Spark takes its rows from another run. That run gets its messages in another order.
What crosses a shuffle must be the same rows in every run, byte for byte: from 4.2 on, Spark
compares checksums of them and gives a job up where a repeated task sends others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def run_twice(task: Task, *, is_shuffled: bool, is_unordered: bool) -> Task:
    def twice(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = list(batches)
        first = _contents(task(iter(given)))
        if is_unordered:
            given = [batch.slice(row, 1) for batch in given for row in range(batch.num_rows)]
            random.Random(len(given)).shuffle(given)
        second = list(task(iter(given)))
        if is_shuffled:
            assert first == _contents(second), "two runs of a task sent different rows"
        yield from second

    return twice


def _contents(batches: Iterable[pa.RecordBatch]) -> list[str]:
    """The rows as one multiset, to the byte."""
    return sorted(repr(row) for batch in batches for row in batch.to_pylist())


class TwiceFrame:
    """A frame whose tasks, and those of all frames made from it, run twice.

    The last task is known only when something follows it: a shuffle, or the end of the job.
    """

    def __init__(
        self, frame: Any, task: Task | None = None, schema: Any = None, *, is_unordered: bool
    ) -> None:
        self._frame = frame
        self._task = task
        self._schema = schema
        self._is_unordered = is_unordered

    def made(self, *, is_shuffled: bool = False) -> Any:
        if self._task is None:
            return self._frame
        task = run_twice(self._task, is_shuffled=is_shuffled, is_unordered=self._is_unordered)
        return self._frame.mapInArrow(task, self._schema)

    def mapInArrow(self, task: Task, schema: Any) -> TwiceFrame:  # noqa: N802 - as Spark calls it
        return TwiceFrame(self.made(), task, schema, is_unordered=self._is_unordered)

    def repartition(self, *given: Any) -> TwiceFrame:
        return TwiceFrame(self.made(is_shuffled=True).repartition(*given), is_unordered=True)

    def unionAll(self, other: Any) -> TwiceFrame:  # noqa: N802 - as Spark calls it
        frame = other.made() if isinstance(other, TwiceFrame) else other
        return TwiceFrame(self.made().unionAll(frame), is_unordered=self._is_unordered)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.made(), name)


class TwiceSession:
    """A session that starts every job with a frame whose tasks run twice."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def range(self, *given: int) -> TwiceFrame:
        return TwiceFrame(self.session.range(*given), is_unordered=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)
