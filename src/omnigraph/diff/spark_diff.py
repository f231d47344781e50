"""Runs pieces of work as tasks of Spark, one per piece.

Invariant: every piece reports once; what another attempt of it did does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Work = TypeVar("_Work")
_Result = TypeVar("_Result")


def run_tasks(
    spark: SparkSession,
    work: Sequence[_Work],
    do: Callable[[_Work], _Result],
    result_type: type[_Result],
) -> list[_Result]:
    """One task per piece of work; returns the result of the successful attempt of each."""
    pieces = tuple(work)
    if not pieces:
        return []

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                blob = msgspec.msgpack.encode(do(pieces[number]))
                yield pa.RecordBatch.from_pydict(
                    {
                        "number": pa.array([number], pa.int64()),
                        "blob": pa.array([blob], pa.binary()),
                    }
                )

    numbers = spark.range(0, len(pieces), 1, len(pieces))
    rows = numbers.mapInArrow(task, "number long, blob binary").collect()
    results = {
        row.number: msgspec.msgpack.decode(bytes(row.blob), type=result_type) for row in rows
    }
    assert len(results) == len(rows) == len(pieces), "every piece of work reports once"
    return [results[number] for number in range(len(pieces))]
