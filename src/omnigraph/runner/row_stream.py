"""The rows of a DataFrame in this process, a few at a time.

Invariant: the driver holds the rows of one batch at a time, in the order of the frame. Values are
transferred as Arrow, so none is rounded or converted to another time zone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from omnigraph.runner.failures import job_errors
from omnigraph.runner.session import without_noise
from omnigraph.runner.types import from_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PACKED: Final = "rows"
_PACKED_DDL: Final = f"{_PACKED} binary"


class FrameRows:
    """A DataFrame as Arrow batches of a given schema."""

    def __init__(self, frame: DataFrame, schema: pa.Schema) -> None:
        self.schema = schema
        self._frame = frame

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        with without_noise(), job_errors():
            # A name with a dot in it, such as `p.age`, would be looked for inside of a column.
            plain = self._frame.toDF(*(f"c{at}" for at in range(len(self.schema))))
            packed = plain.mapInArrow(pack, _PACKED_DDL)
            for row in packed.toLocalIterator():
                with pa.ipc.open_stream(bytes(row[0])) as reader:
                    for batch in reader:
                        yield from_spark(batch.rename_columns(self.schema.names), self.schema)


def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch of a task as the bytes of a stream of its own."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        content = pa.array([sink.getvalue().to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_arrays([content], names=[_PACKED])
