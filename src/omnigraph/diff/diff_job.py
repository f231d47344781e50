"""What changed between two versions of many tables, found by the tasks of Spark.

Invariant: the same changes as `omnigraph.diff.table_diff`, which compares each bucket. The driver
receives counts and names of files, never rows.

Within a file changes are in the order of ids; files of one table divide its ids by a hash.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from omnigraph import names
from omnigraph.diff import spark_diff
from omnigraph.diff.one_sided import is_one_sided
from omnigraph.diff.spark_diff import (
    BucketDiff,
    Candidates,
    Place,
    StagedFile,
    bucket_count,
    candidate_work,
    run_tasks,
    scatter,
)
from omnigraph.diff.table_diff import ChangeCounts, Op, TableDiff, diff_table
from omnigraph.errors import ConflictError, OmnigraphError, StorageUnavailableError
from omnigraph.runner.failures import job_errors
from omnigraph.runner.session import without_noise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import TableEntry

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


class _Told(msgspec.Struct, frozen=True, array_like=True):
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
    changed = {key: diff for key, diff in diffs.items() if not diff.unchanged}
    place = Place(root=root, operation_id=operation_id)
    found: dict[str, TableChanges] = {}
    if target is None:
        # Rows that were only inserted or only deleted are counted by metadata.
        alone = {key: diff for key, diff in changed.items() if is_one_sided(diff)}
        found = {key: _counted(key, diff) for key, diff in alone.items()}
        changed = {key: diff for key, diff in changed.items() if key not in alone}
    place.open()
    try:
        with without_noise(), job_errors():
            buckets = _buckets(spark, place, changed, target)
            told = run_tasks(spark, buckets, _compare, _Told)
    finally:
        with suppress(OmnigraphError):
            place.close()
    for key in changed:
        mine = [each for bucket, each in zip(buckets, told, strict=True) if bucket.table_key == key]
        found[key] = _summed(key, mine)
    return {key: found[key] for key in pairs if key in found and found[key].counts.total}


def _counted(table_key: str, diff: TableDiff) -> TableChanges:
    counts = ChangeCounts(inserted=diff.plan.new_rows, deleted=diff.plan.gone_rows)
    return TableChanges(table_key=table_key, counts=counts)


def _summed(table_key: str, told: Sequence[_Told]) -> TableChanges:
    return TableChanges(
        table_key=table_key,
        counts=ChangeCounts(
            inserted=sum(each.inserted for each in told),
            updated=sum(each.updated for each in told),
            deleted=sum(each.deleted for each in told),
        ),
        files=tuple(Path(each.file) for each in told if each.file is not None),
    )


def _buckets(
    spark: SparkSession, place: Place, diffs: Mapping[str, TableDiff], target: Path | None
) -> list[_Bucket]:
    """Distribute rows that may differ to their buckets."""
    keys = list(diffs)
    work: list[Candidates] = []
    for number, diff in enumerate(diffs.values()):
        rows = diff.plan.gone_rows + diff.plan.new_rows
        buckets = bucket_count(rows, rows_per_bucket=_rows_per_bucket(diff))
        work += candidate_work(diff, table=number, roles=_ROLES, buckets=buckets)
    files = run_tasks(spark, work, lambda piece: scatter(place, piece), list[StagedFile])
    found: dict[tuple[int, int], list[StagedFile]] = {}
    for each in (file for told in files for file in told):
        found.setdefault((each.table, each.bucket), []).append(each)
    return [
        _Bucket(
            table_key=keys[table],
            number=number,
            diff=BucketDiff.of(diffs[keys[table]], place, mine, _ROLES),
            directory=None if target is None else str(_folder(target, keys[table])),
        )
        for (table, number), mine in sorted(found.items())
    ]


def _rows_per_bucket(diff: TableDiff) -> int:
    blobs = any(pa.types.is_large_binary(each.types[1]) for each in diff.columns)
    few = spark_diff.BLOB_ROWS_PER_BUCKET if blobs else spark_diff.ROWS_PER_BUCKET
    return min(few, spark_diff.ROWS_PER_BUCKET)


def _compare(bucket: _Bucket) -> _Told:
    """Compare one bucket; its changes are counted, and written where they are wanted."""
    reader = bucket.diff.reader()
    counts = dict.fromkeys(Op, 0)
    if bucket.directory is None:
        for batch in reader:
            _count(batch, counts)
        return _Told(counts[Op.INSERT], counts[Op.UPDATE], counts[Op.DELETE], None)
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
        raise StorageUnavailableError(
            f"cannot write {path}: {error}",
            next_step="Name a directory that every executor can write to.",
        ) from error
    file = str(path) if any(counts.values()) else None
    return _Told(counts[Op.INSERT], counts[Op.UPDATE], counts[Op.DELETE], file)


def _groups(batches: Iterable[pa.RecordBatch], counts: dict[Op, int]) -> Iterable[pa.Table]:
    """Row groups that fit into the memory of a reader."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        _count(batch, counts)
        held.append(batch)
        if sum(each.nbytes for each in held) >= _GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _count(batch: pa.RecordBatch, counts: dict[Op, int]) -> None:
    for op in counts:
        counts[op] += int(pc.sum(pc.equal(batch.column("op"), op.value)).as_py() or 0)


def _folder(target: Path, table_key: str) -> Path:
    kind, _, type_name = table_key.partition(":")
    return target / f"{kind}s" / type_name


def _empty(target: Path) -> Path:
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise ConflictError(
            f"{target} exists and is not an empty directory",
            next_step="Name a directory that does not exist yet.",
        )
    return target
