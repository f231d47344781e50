"""A shuffle of the rows of two versions: files in the staging area, by a hash of the id.

Invariant: rows with one id are in one bucket, whichever task read them. A file has a unique name
and is read only if the successful attempt reported it, so tasks may run twice. A task whose
operation has ended removes its files and stops.

Rows never pass through the JVM: tasks send the names of files.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from omnigraph import names
from omnigraph.diff.table_diff import TableDiff
from omnigraph.errors import OperationRolledBackError, StorageUnavailableError
from omnigraph.runner.staging_files import remove_all
from omnigraph.storage.objects.store import StoredObjects
from omnigraph.storage.staging.row_changes import read_gone, read_new

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.staging.row_changes import Part

ROWS_PER_BUCKET: Final = 500_000
"""Rows that may differ in one bucket, of both versions together."""

BLOB_ROWS_PER_BUCKET: Final = 20_000
"""The same for rows with blobs."""

_BUCKETS_MAX: Final = 4_096
_HELD_BYTES: Final = 64 << 20
_SEED: Final = 7
_Work = TypeVar("_Work")
_Told = TypeVar("_Told")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The folder in which the tasks of one operation exchange files."""

    root: Root
    operation_id: str

    def open(self) -> None:
        """Allow tasks to write files."""
        StoredObjects(self.root).replace(names.staging_claim(self.operation_id), b"")

    def close(self) -> None:
        """Remove every file; a task that writes one later removes it itself."""
        StoredObjects(self.root).delete(names.staging_claim(self.operation_id))
        remove_all(self.root, self.operation_id)


class StagedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file with rows of one bucket, of one table and one role."""

    table: int
    bucket: int
    role: str
    path: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """One task's share of the rows that may differ; `role` says in which version and diff."""

    table: int
    role: str
    diff: TableDiff
    part: Part
    is_new: bool
    buckets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketDiff(TableDiff):
    """The difference of two versions within one bucket, read from its files."""

    place: Place
    gone_files: tuple[str, ...] = field(repr=False)
    new_files: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(
        cls, diff: TableDiff, place: Place, files: Iterable[StagedFile], roles: tuple[str, str]
    ) -> BucketDiff:
        gone, new = (tuple(each.path for each in files if each.role == role) for role in roles)
        return cls(
            root=diff.root,
            plan=diff.plan,
            columns=diff.columns,
            place=place,
            gone_files=gone,
            new_files=new,
        )

    @property
    def unchanged(self) -> bool:
        return not self.gone_files and not self.new_files

    def gone(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        return _chosen(read_files(self.place, self.gone_files), columns)

    def new(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        return _chosen(read_files(self.place, self.new_files), columns)


class BucketWriter:
    """Writes the rows of one task to files, one or more per bucket, as memory fills."""

    def __init__(self, place: Place, *, table: int, role: str, buckets: int) -> None:
        self._place = place
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
        ids = pl.Series(pl.from_arrow(rows.column(names.ID_COLUMN)))
        bucket = ids.hash(_SEED).to_numpy() % np.uint64(self._buckets)
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
        objects = StoredObjects(self._place.root)
        operation_id = self._place.operation_id
        # The claim ends with the operation. A task that outlives it cleans up after itself, because
        # nothing else knows its files.
        if self._files and objects.read(names.staging_claim(operation_id)) is None:
            for each in self._files:
                objects.delete(each.path)
            raise OperationRolledBackError(operation_id, by="another task or its driver")
        return self._files

    def _flush(self) -> None:
        objects = StoredObjects(self._place.root)
        for bucket, held in sorted(self._held.items()):
            # Random, so that a second attempt never overwrites files that the first has reported.
            part = f"{self._role}-{self._table}-{bucket:05}-{secrets.token_hex(8)}"
            path = names.staged_part(self._place.operation_id, part)
            sink = pa.BufferOutputStream()
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            with pa.ipc.new_stream(sink, held[0].schema, options=options) as stream:
                for batch in held:
                    stream.write_batch(batch)
            objects.replace(path, sink.getvalue().to_pybytes())
            rows = sum(each.num_rows for each in held)
            self._files.append(StagedFile(self._table, bucket, self._role, path, rows))
        self._held = {}
        self._bytes = 0


def read_files(place: Place, paths: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """Stream the rows of some files."""
    objects = StoredObjects(place.root)
    for path in paths:
        content = objects.read(path)
        if content is None:
            raise StorageUnavailableError(
                f"{path} of {place.root} was removed while its operation was running",
                next_step="Run the operation again, and do not clear the staging area meanwhile.",
            )
        with pa.ipc.open_stream(pa.py_buffer(content)) as stream:
            yield from stream


def bucket_count(rows: int, *, rows_per_bucket: int) -> int:
    return min(_BUCKETS_MAX, max(1, -(-rows // rows_per_bucket)))


def candidate_work(
    diff: TableDiff, *, table: int, roles: tuple[str, str], buckets: int
) -> Iterator[Candidates]:
    """The shares of all tasks that read what may differ between two versions."""
    for role, parts, is_new in zip(
        roles, (diff.plan.gone, diff.plan.new), (False, True), strict=True
    ):
        for part in parts:
            yield Candidates(
                table=table, role=role, diff=diff, part=part, is_new=is_new, buckets=buckets
            )


def scatter(place: Place, work: Candidates) -> list[StagedFile]:
    """Read one share and write its rows to their buckets."""
    writer = BucketWriter(place, table=work.table, role=work.role, buckets=work.buckets)
    read = read_new if work.is_new else read_gone
    for batch in read(work.diff.root, work.diff.plan, work.part):
        writer.add_by_id(batch)
    return writer.files()


def run_tasks(
    spark: SparkSession,
    work: Sequence[_Work],
    do: Callable[[_Work], _Told],
    told: type[_Told],
) -> list[_Told]:
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
    found = {row.number: msgspec.msgpack.decode(bytes(row.blob), type=told) for row in rows}
    assert len(found) == len(rows) == len(pieces), "every piece of work reports once"
    return [found[number] for number in range(len(pieces))]


def _chosen(
    batches: Iterator[pa.RecordBatch], columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    return batches if columns is None else (each.select(list(columns)) for each in batches)
