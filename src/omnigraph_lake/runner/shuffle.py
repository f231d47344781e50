"""Exchange rows between the tasks of one operation through files, divided by a hash of the id.

Rows of a diff or a merge are wide, so they never pass through the JVM: tasks exchange names of
files. `Scratch` is where the files are: a folder of this machine for threads, the staging area of
the graph for a cluster.

Invariants:
- Rows with one id are in one bucket, whichever task read them.
- A file has a unique name and is read only if a counted attempt reported it, so tasks may run
  twice. A task whose operation has ended removes its files and stops.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from omnigraph_lake import errors, names
from omnigraph_lake.runner.key_hash import hash_keys
from omnigraph_lake.storage.objects import durability
from omnigraph_lake.storage.objects.store import StoredObjects, delete_all, remove_empty_folder
from omnigraph_lake.ulids import new_ulid

if TYPE_CHECKING:
    from omnigraph_lake.storage.objects.location import Root

_HELD_BYTES: Final = 64 << 20
# Decides the file of a row, never whether rows are equal: it need not be secret.
_SEED: Final = b"diff"


class Scratch(Protocol):
    """Files of one operation that every task reaches; picklable."""

    def put(self, name: str, content: bytes) -> str:
        """Write a file; returns its path."""
        ...

    def read(self, path: str) -> pa.Buffer:
        """The content of a file.

        Raises:
            StorageUnavailableError: it is not there any more.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file; one that is already gone is fine."""
        ...

    def require_open(self, paths: Iterable[str]) -> None:
        """Remove files that were written after the end of the operation.

        Raises:
            OperationRolledBackError: the operation has ended.
        """
        ...

    def make_durable(self) -> None:
        """Before a task answers: what it wrote to the graph survives a power cut of its host."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalScratch:
    """A folder of this machine, which outlives every task of the operation."""

    folder: str

    def put(self, name: str, content: bytes) -> str:
        path = Path(self.folder, name)
        try:
            path.write_bytes(content)
        except OSError as error:
            raise errors.StorageUnavailableError(
                f"rows cannot be exchanged in the folder {self.folder}: {error}",
                next_step="Free space there, or name another folder with TMPDIR.",
            ) from error
        return str(path)

    def read(self, path: str) -> pa.Buffer:
        with pa.memory_map(path) as file:
            return file.read_buffer()

    def remove(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    def require_open(self, paths: Iterable[str]) -> None:
        del paths

    def make_durable(self) -> None:
        """The commit syncs what this process wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredScratch:
    """The staging folder of an operation in the graph; files count while its claim exists."""

    root: Root
    operation_id: str

    def open(self) -> None:
        """Allow tasks to write files; the claim tells since when."""
        opened = new_ulid().encode()
        StoredObjects(self.root).replace(names.staging_claim(self.operation_id), opened)

    def close(self) -> None:
        """Remove every file; a task that writes one later removes it itself."""
        objects = StoredObjects(self.root)
        objects.delete(names.staging_claim(self.operation_id))
        delete_all(objects, names.staging(self.operation_id))
        remove_empty_folder(self.root, names.staging(self.operation_id))

    def put(self, name: str, content: bytes) -> str:
        path = names.staged_part(self.operation_id, name)
        StoredObjects(self.root).replace(path, content)
        return path

    def read(self, path: str) -> pa.Buffer:
        content = StoredObjects(self.root).read(path)
        if content is None:
            raise errors.StorageUnavailableError(
                f"{path} of {self.root} was removed while its operation was running",
                next_step="Run the operation again, and do not clear the staging area meanwhile.",
            )
        return pa.py_buffer(content)

    def remove(self, path: str) -> None:
        StoredObjects(self.root).delete(path)

    def require_open(self, paths: Iterable[str]) -> None:
        objects = StoredObjects(self.root)
        # The claim ends with the operation. A task that outlives it cleans up after itself, because
        # nothing else knows its files.
        if objects.read(names.staging_claim(self.operation_id)) is None:
            for path in paths:
                objects.delete(path)
            raise errors.OperationRolledBackError(
                self.operation_id, by="another task or its driver"
            )

    def make_durable(self) -> None:
        durability.make_durable(self.root)


class StagedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file with rows of one bucket, of one table and one role."""

    table: int
    bucket: int
    role: str
    path: str
    rows: int


class BucketWriter:
    """Writes the rows of one task to files, one or more per bucket, as memory fills."""

    def __init__(self, scratch: Scratch, *, table: int, role: str, buckets: int) -> None:
        self._scratch = scratch
        self._table = table
        self._role = role
        self._buckets = buckets
        self._held: dict[int, list[pa.RecordBatch]] = {}
        self._bytes = 0
        self._files: list[StagedFile] = []

    def add_by_id(self, rows: pa.RecordBatch) -> None:
        """Add rows to the buckets of their ids."""
        if self._buckets == 1:
            self.add(0, rows)
            return
        self.add_by_hash(rows, hash_keys([rows.column(names.ID_COLUMN)], _SEED).first)

    def add_by_hash(self, rows: pa.RecordBatch, hashes: np.ndarray) -> None:
        """Add rows to the buckets of their hashes."""
        bucket = hashes % np.uint64(self._buckets)
        order = np.argsort(bucket, kind="stable")
        ends = np.searchsorted(bucket[order], np.arange(self._buckets + 1))
        for number in np.flatnonzero(np.diff(ends)).tolist():
            self.add(number, rows.take(pa.array(order[ends[number] : ends[number + 1]])))

    def add(self, bucket: int, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        self._held.setdefault(bucket, []).append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= _HELD_BYTES:
            self._flush()

    def files(self) -> list[StagedFile]:
        """All files, after all rows were added."""
        self._flush()
        if self._files:
            self._scratch.require_open(file.path for file in self._files)
        return self._files

    def _flush(self) -> None:
        for bucket, batches in sorted(self._held.items()):
            # Random, so that a second attempt never overwrites files that the first has reported.
            part = f"{self._role}-{self._table}-{bucket:05}-{secrets.token_hex(8)}"
            sink = pa.BufferOutputStream()
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            with pa.ipc.new_stream(sink, batches[0].schema, options=options) as stream:
                for batch in batches:
                    stream.write_batch(batch)
            path = self._scratch.put(part, sink.getvalue().to_pybytes())
            rows = sum(batch.num_rows for batch in batches)
            self._files.append(StagedFile(self._table, bucket, self._role, path, rows))
        self._held = {}
        self._bytes = 0


def files_by_bucket(files: Iterable[StagedFile]) -> Mapping[tuple[int, int], list[StagedFile]]:
    """Files by the numbers of their tables and buckets, in order."""
    buckets: dict[tuple[int, int], list[StagedFile]] = {}
    for file in files:
        buckets.setdefault((file.table, file.bucket), []).append(file)
    return dict(sorted(buckets.items()))


def read_files(scratch: Scratch, paths: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """Stream the rows of some files."""
    for path in paths:
        with pa.ipc.open_stream(scratch.read(path)) as stream:
            yield from stream
