"""The jobs of a load in a plain loop: the few calls they make of Spark, without its executors.

For thousands of small cases, whose point is the rules and not the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class LoopFrame:
    def __init__(self, partitions: list[list[pa.RecordBatch]]) -> None:
        self._partitions = partitions

    def mapInArrow(self, task: Task, _: str) -> LoopFrame:  # noqa: N802
        return LoopFrame([list(task(iter(each))) for each in self._partitions])

    def repartitionById(self, count: int, column: str) -> LoopFrame:  # noqa: N802
        found: list[list[pa.RecordBatch]] = [[] for _ in range(count)]
        for partition in reversed(self._partitions):
            for batch in partition:
                for row in range(batch.num_rows):
                    found[batch.column(column)[row].as_py()].append(batch.slice(row, 1))
        return LoopFrame(found)

    def unionAll(self, other: LoopFrame) -> LoopFrame:  # noqa: N802
        return LoopFrame([*self._partitions, *other._partitions])

    def collect(self) -> list[Any]:
        return [
            SimpleNamespace(**row)
            for partition in self._partitions
            for batch in partition
            for row in batch.to_pylist()
        ]


class LoopSession:
    def range(self, start: int, end: int, step: int, partitions: int) -> LoopFrame:
        assert (start, step) == (0, 1)
        assert partitions == max(1, end)
        return LoopFrame([[pa.record_batch({"id": [number]})] for number in range(end)])

    def interruptAll(self) -> None:  # noqa: N802
        return
