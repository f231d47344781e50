"""Rows written to disk between two steps, so that memory use depends on the batch size only.

Invariant: rows are read as they were written, any number of times. The owner of the directory
removes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


class Spool:
    """Batches of one schema in one file."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.schema = schema
        self.rows = 0
        self._path = path

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write everything; once."""
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(str(self._path), self.schema, options=options) as stream:
            for batch in batches:
                if batch.num_rows:
                    stream.write_batch(batch)
                    self.rows += batch.num_rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Everything that was written, in order."""
        with pa.OSFile(str(self._path)) as file, pa.ipc.open_stream(file) as stream:
            yield from stream

    def columns(self, names: Iterable[str]) -> pa.Table:
        """Some columns of all rows, in memory."""
        wanted = [name for name in self.schema.names if name in set(names)]
        schema = pa.schema([self.schema.field(name) for name in wanted])
        parts = [batch.select(wanted) for batch in self.batches()]
        return pa.Table.from_batches(parts, schema=schema)
