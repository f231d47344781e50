"""Compares two versions of many tables on Spark, bucket by bucket after a shuffle by id.

The shuffle writes files to the staging area, by a hash of the id. Rows never pass through the JVM:
tasks send the names of files.

Invariants:
- The changes are the same as those of `omnigraph.diff.table_diff`, which compares each bucket. The
  driver receives counts and names of files, never rows.
- Rows with one id are in one bucket, whichever task read them. Within a file changes are in the
  order of ids; files of one table divide its ids by a hash.
- A file has a unique name and is read only if the successful attempt reported it, so tasks may run
  twice. A task whose operation has ended removes its files and stops.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from omnigraph import errors, names
from omnigraph.diff.table_diff import ChangeCounts, Op, TableDiff, diff_table, is_one_sided
from omnigraph.runner.job_failures import job_errors
from omnigraph.runner.key_hash import hash_keys
from omnigraph.runner.session import without_noise
from omnigraph.storage.objects.store import StoredObjects, delete_all
from omnigraph.storage.staging.row_changes import Part, read_gone, read_new

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import TableEntry


ROWS_PER_BUCKET: Final = 500_000
"""Rows that may differ in one bucket, of both versions together."""

BLOB_ROWS_PER_BUCKET: Final = 20_000
"""The same for rows with blobs."""

_BUCKETS_MAX: Final = 4_096
_HELD_BYTES: Final = 64 << 20
# Decides the file of a row, never whether rows are equal: it need not be secret.
_SEED: Final = b"diff"
_Work = TypeVar("_Work")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingFolder:
    """The folder in which the tasks of one operation exchange files."""

    root: Root
    operation_id: str

    def open(self) -> None:
        """Allow tasks to write files."""
        StoredObjects(self.root).replace(names.staging_claim(self.operation_id), b"")

    def close(self) -> None:
        """Remove every file; a task that writes one later removes it itself."""
        objects = StoredObjects(self.root)
        objects.delete(names.staging_claim(self.operation_id))
        delete_all(objects, names.staging(self.operation_id))


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

    place: StagingFolder
    gone_files: tuple[str, ...] = field(repr=False)
    new_files: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(
        cls,
        diff: TableDiff,
        place: StagingFolder,
        files: Iterable[StagedFile],
        roles: tuple[str, str],
    ) -> BucketDiff:
        gone_files, new_files = (
            tuple(file.path for file in files if file.role == role) for role in roles
        )
        return cls(
            root=diff.root,
            plan=diff.plan,
            columns=diff.columns,
            place=place,
            gone_files=gone_files,
            new_files=new_files,
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

    def __init__(self, place: StagingFolder, *, table: int, role: str, buckets: int) -> None:
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
        hashes = hash_keys([rows.column(names.ID_COLUMN)], _SEED)
        bucket = hashes.first % np.uint64(self._buckets)
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
            for file in self._files:
                objects.delete(file.path)
            raise errors.OperationRolledBackError(operation_id, by="another task or its driver")
        return self._files

    def _flush(self) -> None:
        objects = StoredObjects(self._place.root)
        for bucket, batches in sorted(self._held.items()):
            # Random, so that a second attempt never overwrites files that the first has reported.
            part = f"{self._role}-{self._table}-{bucket:05}-{secrets.token_hex(8)}"
            path = names.staged_part(self._place.operation_id, part)
            sink = pa.BufferOutputStream()
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            with pa.ipc.new_stream(sink, batches[0].schema, options=options) as stream:
                for batch in batches:
                    stream.write_batch(batch)
            objects.replace(path, sink.getvalue().to_pybytes())
            rows = sum(batch.num_rows for batch in batches)
            self._files.append(StagedFile(self._table, bucket, self._role, path, rows))
        self._held = {}
        self._bytes = 0


def read_files(place: StagingFolder, paths: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """Stream the rows of some files."""
    objects = StoredObjects(place.root)
    for path in paths:
        content = objects.read(path)
        if content is None:
            raise errors.StorageUnavailableError(
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


def scatter(place: StagingFolder, work: Candidates) -> list[StagedFile]:
    """Read one share and write its rows to their buckets."""
    writer = BucketWriter(place, table=work.table, role=work.role, buckets=work.buckets)
    read = read_new if work.is_new else read_gone
    for batch in read(work.diff.root, work.diff.plan, work.part):
        writer.add_by_id(batch)
    return writer.files()


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


def _chosen(
    batches: Iterator[pa.RecordBatch], columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    return batches if columns is None else (batch.select(list(columns)) for batch in batches)


_ROLES: Final = ("gone", "new")
_GROUP_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChanges:
    """What changed in one table: how many rows, and the files that have them, if wanted."""

    table_key: str
    counts: ChangeCounts
    files: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bucket:
    """One bucket of one table, and where its changes are written."""

    table_key: str
    number: int
    diff: BucketDiff = field(repr=False)
    directory: str | None


class _BucketChanges(msgspec.Struct, frozen=True, array_like=True):
    inserted: int
    updated: int
    deleted: int
    file: str | None


def diff_on_spark(
    spark: SparkSession,
    root: Root,
    pairs: Mapping[str, tuple[TableEntry | None, TableEntry | None]],
    *,
    operation_id: str,
    directory: str | os.PathLike[str] | None = None,
) -> Mapping[str, TableChanges]:
    """Compare two versions of every table; tables in which no row changed are left out.

    Args:
        spark: The session whose tasks read and compare.
        root: Where the graph lives.
        pairs: By table key, the versions before and after; None is a version without the table.
        operation_id: Names the temporary folder of the tasks.
        directory: Where tasks write Parquet files of changes, `op`, `id`, `changed`, `before`,
            `after`; every executor must reach it. It must be empty or absent.

    Raises:
        ConflictError: the directory exists and is not empty.
    """
    target = None if directory is None else _empty(Path(directory).absolute())
    diffs = {key: diff_table(root, *pair) for key, pair in pairs.items()}
    changed_diffs = {key: diff for key, diff in diffs.items() if not diff.unchanged}
    place = StagingFolder(root=root, operation_id=operation_id)
    table_changes: dict[str, TableChanges] = {}
    if target is None:
        # Rows that were only inserted or only deleted are counted by metadata.
        one_sided_diffs = {key: diff for key, diff in changed_diffs.items() if is_one_sided(diff)}
        table_changes = {key: _counted(key, diff) for key, diff in one_sided_diffs.items()}
        changed_diffs = {
            key: diff for key, diff in changed_diffs.items() if key not in one_sided_diffs
        }
    place.open()
    try:
        with without_noise(), job_errors():
            buckets = _buckets(spark, place, changed_diffs, target)
            all_changes = run_tasks(spark, buckets, _compare, _BucketChanges)
    finally:
        with suppress(errors.OmnigraphError):
            place.close()
    for key in changed_diffs:
        changes_of_table = [
            changes
            for bucket, changes in zip(buckets, all_changes, strict=True)
            if bucket.table_key == key
        ]
        table_changes[key] = _sum(key, changes_of_table)
    return {
        key: table_changes[key]
        for key in pairs
        if key in table_changes and table_changes[key].counts.total
    }


def _counted(table_key: str, diff: TableDiff) -> TableChanges:
    counts = ChangeCounts(inserted=diff.plan.new_rows, deleted=diff.plan.gone_rows)
    return TableChanges(table_key=table_key, counts=counts)


def _sum(table_key: str, bucket_changes: Sequence[_BucketChanges]) -> TableChanges:
    return TableChanges(
        table_key=table_key,
        counts=ChangeCounts(
            inserted=sum(changes.inserted for changes in bucket_changes),
            updated=sum(changes.updated for changes in bucket_changes),
            deleted=sum(changes.deleted for changes in bucket_changes),
        ),
        files=tuple(Path(changes.file) for changes in bucket_changes if changes.file is not None),
    )


def _buckets(
    spark: SparkSession, place: StagingFolder, diffs: Mapping[str, TableDiff], target: Path | None
) -> list[_Bucket]:
    """Distribute rows that may differ to their buckets."""
    keys = list(diffs)
    work: list[Candidates] = []
    for number, diff in enumerate(diffs.values()):
        rows = diff.plan.gone_rows + diff.plan.new_rows
        buckets = bucket_count(rows, rows_per_bucket=_rows_per_bucket(diff))
        work += candidate_work(diff, table=number, roles=_ROLES, buckets=buckets)
    files_by_task = run_tasks(spark, work, lambda piece: scatter(place, piece), list[StagedFile])
    files_by_bucket: dict[tuple[int, int], list[StagedFile]] = {}
    for file in (file for task_files in files_by_task for file in task_files):
        files_by_bucket.setdefault((file.table, file.bucket), []).append(file)
    return [
        _Bucket(
            table_key=keys[table],
            number=number,
            diff=BucketDiff.of(diffs[keys[table]], place, bucket_files, _ROLES),
            directory=None if target is None else str(_folder(target, keys[table])),
        )
        for (table, number), bucket_files in sorted(files_by_bucket.items())
    ]


def _rows_per_bucket(diff: TableDiff) -> int:
    blobs = any(pa.types.is_large_binary(column.types[1]) for column in diff.columns)
    few = BLOB_ROWS_PER_BUCKET if blobs else ROWS_PER_BUCKET
    return min(few, ROWS_PER_BUCKET)


def _compare(bucket: _Bucket) -> _BucketChanges:
    """Compare one bucket; its changes are counted, and written where they are wanted."""
    reader = bucket.diff.reader()
    counts = dict.fromkeys(Op, 0)
    if bucket.directory is None:
        for batch in reader:
            _count(batch, counts)
        return _BucketChanges(counts[Op.INSERT], counts[Op.UPDATE], counts[Op.DELETE], None)
    path = Path(bucket.directory, names.export_part(bucket.number))
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with pq.ParquetWriter(partial, reader.schema, compression="zstd") as writer:
                for group in _groups(reader, counts):
                    writer.write_table(group)
            if any(counts.values()):
                partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise errors.StorageUnavailableError(
            f"cannot write {path}: {error}",
            next_step="Name a directory that every executor can write to.",
        ) from error
    file = str(path) if any(counts.values()) else None
    return _BucketChanges(counts[Op.INSERT], counts[Op.UPDATE], counts[Op.DELETE], file)


def _groups(batches: Iterable[pa.RecordBatch], counts: dict[Op, int]) -> Iterable[pa.Table]:
    """Row groups that fit into the memory of a reader."""
    held_batches: list[pa.RecordBatch] = []
    for batch in batches:
        _count(batch, counts)
        held_batches.append(batch)
        if sum(held_batch.nbytes for held_batch in held_batches) >= _GROUP_BYTES:
            yield pa.Table.from_batches(held_batches)
            held_batches = []
    if held_batches:
        yield pa.Table.from_batches(held_batches)


def _count(batch: pa.RecordBatch, counts: dict[Op, int]) -> None:
    for op in counts:
        counts[op] += int(pc.sum(pc.equal(batch.column("op"), op.value)).as_py() or 0)


def _folder(target: Path, table_key: str) -> Path:
    kind, _, type_name = table_key.partition(":")
    return target / f"{kind}s" / type_name


def _empty(target: Path) -> Path:
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise errors.ConflictError(
            f"{target} exists and is not an empty directory",
            next_step="Name a directory that does not exist yet.",
        )
    return target
