"""Compares two versions of many tables on a runner, bucket by bucket.

Rows that may differ are divided by a hash of their ids into buckets that one task can compare.
`omnigraph_lake.diff.table_diff` compares each bucket.

Invariants:
- The changes, and the files they are written to, do not depend on the runner.
- A table with few candidates is one bucket, which is read where it is stored. Otherwise tasks
  exchange rows through files, and this process receives counts and names of files, never rows.
- Within a bucket changes are in the order of ids; the buckets of a table divide its ids by a hash.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph_lake import names
from omnigraph_lake.diff.table_diff import ChangeCounts, TableDiff, count_changes, is_one_sided
from omnigraph_lake.runner.protocol import Runner, Stage, Task, require_answers
from omnigraph_lake.runner.shuffle import (
    BucketWriter,
    Scratch,
    StagedFile,
    files_by_bucket,
    read_files,
)
from omnigraph_lake.schema.arrow import parquet_rows, parquet_schema
from omnigraph_lake.storage.objects.paths import cannot_write
from omnigraph_lake.storage.staging.row_changes import Part, Sought

Roles = tuple[str, str]
"""The roles of the files with rows of the version before, and of the version after."""

ROWS_PER_BUCKET: Final = 500_000
"""Rows that may differ in one bucket, of both versions together."""

BLOB_ROWS_PER_BUCKET: Final = 20_000
"""The same for rows with blobs."""

UNDIVIDED_BUCKETS: Final = 4
"""Candidates that would fill so few buckets are one: an exchange would cost more than it saves."""

_BUCKETS_MAX: Final = 4_096
_GROUP_BYTES: Final = 32 << 20
_ROLES: Final = ("gone", "new")


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

    scratch: Scratch
    gone_files: tuple[str, ...] = field(repr=False)
    new_files: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(
        cls, diff: TableDiff, scratch: Scratch, files: Iterable[StagedFile], roles: Roles
    ) -> BucketDiff:
        gone_files, new_files = (
            tuple(file.path for file in files if file.role == role) for role in roles
        )
        return cls(
            root=diff.root,
            plan=diff.plan,
            columns=diff.columns,
            conversion=diff.conversion,
            scratch=scratch,
            gone_files=gone_files,
            new_files=new_files,
        )

    @property
    def unchanged(self) -> bool:
        return not self.gone_files and not self.new_files

    def gone(
        self,
        columns: Sequence[str] | None = None,
        *,
        only: Sought | None = None,  # noqa: ARG002 - these files are read in any case
    ) -> Iterator[pa.RecordBatch]:
        return _select(read_files(self.scratch, self.gone_files), columns)

    def new(
        self,
        columns: Sequence[str] | None = None,
        *,
        only: Sought | None = None,  # noqa: ARG002 - these files are read in any case
    ) -> Iterator[pa.RecordBatch]:
        return _select(read_files(self.scratch, self.new_files), columns)


def _select(
    batches: Iterator[pa.RecordBatch], columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    return batches if columns is None else (batch.select(list(columns)) for batch in batches)


def candidate_rows(diff: TableDiff) -> int:
    """Rows that may differ, according to metadata."""
    return diff.plan.gone_rows + diff.plan.new_rows


def bucket_count(rows: int, *, has_blobs: bool) -> int:
    """How many buckets so many candidates of one table are divided into."""
    few = BLOB_ROWS_PER_BUCKET if has_blobs else ROWS_PER_BUCKET
    buckets = -(-rows // min(few, ROWS_PER_BUCKET))
    return 1 if buckets <= UNDIVIDED_BUCKETS else min(_BUCKETS_MAX, buckets)


def candidate_work(
    diff: TableDiff, *, table: int, roles: Roles, buckets: int
) -> Iterator[Candidates]:
    """The shares of all tasks that read what may differ between two versions."""
    for role, parts, is_new in zip(
        roles, (diff.plan.gone, diff.plan.new), (False, True), strict=True
    ):
        for part in parts:
            yield Candidates(
                table=table, role=role, diff=diff, part=part, is_new=is_new, buckets=buckets
            )


def scatter(scratch: Scratch, work: Candidates, task: Task) -> list[StagedFile]:
    """Read one share and write its rows to their buckets."""
    writer = BucketWriter(scratch, table=work.table, role=work.role, buckets=work.buckets)
    for batch in work.diff.part(work.part, is_new=work.is_new):
        task.advance(rows=batch.num_rows)
        writer.add_by_id(batch)
    return writer.files()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bucket:
    """One bucket of one table."""

    table_key: str
    number: int
    diff: TableDiff = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _BucketFile:
    """A bucket and the file to which its changes are written."""

    bucket: _Bucket
    path: str


class _BucketCounts(msgspec.Struct, frozen=True, array_like=True):
    inserted: int
    updated: int
    deleted: int


def count_tables(
    runner: Runner, diffs: Mapping[str, TableDiff], new_id: Callable[[], str]
) -> Mapping[str, ChangeCounts]:
    """Count what changed in every table.

    Rows that were only inserted or only deleted are counted by metadata.
    """
    compared = {key: diff for key, diff in diffs.items() if not is_one_sided(diff)}
    totals = {key: count_changes(diff) for key, diff in diffs.items() if key not in compared}
    stage = Stage(verb="diff", name="compare rows")
    with _divide(runner, compared, new_id) as buckets:
        answers = require_answers(runner.map(stage, buckets, _count, _BucketCounts))
    for bucket, counts in zip(buckets, answers, strict=True):
        total = totals.get(bucket.table_key, ChangeCounts())
        totals[bucket.table_key] = ChangeCounts(
            inserted=total.inserted + counts.inserted,
            updated=total.updated + counts.updated,
            deleted=total.deleted + counts.deleted,
        )
    return totals


def write_tables(
    runner: Runner, diffs: Mapping[str, TableDiff], folder: Path, new_id: Callable[[], str]
) -> tuple[Path, ...]:
    """Write the changes of every table as Parquet files: `op`, `id`, `changed`, `before`, `after`.

    Every bucket becomes a file; every task must reach the folder.
    """
    for key in diffs:
        _folder_of(folder, key).mkdir(parents=True)
    stage = Stage(verb="diff", name="write changes")
    with _divide(runner, diffs, new_id) as buckets:
        pieces = [
            _BucketFile(
                bucket=bucket,
                path=str(_folder_of(folder, bucket.table_key) / names.export_part(bucket.number)),
            )
            for bucket in buckets
        ]
        return tuple(map(Path, require_answers(runner.map(stage, pieces, _write, str))))


@contextmanager
def _divide(
    runner: Runner, diffs: Mapping[str, TableDiff], new_id: Callable[[], str]
) -> Iterator[list[_Bucket]]:
    """The buckets of all tables, in order; candidates of large tables are distributed to them."""
    work: list[Candidates] = []
    for table, diff in enumerate(diffs.values()):
        buckets = bucket_count(candidate_rows(diff), has_blobs=_has_blobs(diff))
        if buckets > 1:
            work += candidate_work(diff, table=table, roles=_ROLES, buckets=buckets)
    if not work:
        yield [_Bucket(table_key=key, number=0, diff=diff) for key, diff in diffs.items()]
        return
    stage = Stage(verb="diff", name="read rows that may differ")
    with runner.scratch(new_id()) as scratch:
        answers = runner.map(stage, work, partial(scatter, scratch), list[StagedFile])
        files = files_by_bucket(file for files in require_answers(answers) for file in files)
        divided: list[_Bucket] = []
        for table, (key, diff) in enumerate(diffs.items()):
            parts: dict[int, TableDiff] = {
                number: BucketDiff.of(diff, scratch, bucket_files, _ROLES)
                for (owner, number), bucket_files in files.items()
                if owner == table
            }
            divided += [
                _Bucket(table_key=key, number=number, diff=part)
                for number, part in (parts or {0: diff}).items()
            ]
        yield divided


def _has_blobs(diff: TableDiff) -> bool:
    return any(pa.types.is_large_binary(column.types[1]) for column in diff.columns)


def _count(bucket: _Bucket, task: Task) -> _BucketCounts:
    task.advance()
    counts = count_changes(bucket.diff)
    return _BucketCounts(counts.inserted, counts.updated, counts.deleted)


def _write(target: _BucketFile, task: Task) -> str:
    """Write the changes of a bucket; the file is complete or not there."""
    path = Path(target.path)
    # Random, so that two attempts do not write to one file.
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    reader = target.bucket.diff.reader()
    schema = parquet_schema(reader.schema)
    try:
        with pq.ParquetWriter(unfinished, schema, compression="zstd") as writer:
            for group in _groups(reader):
                task.advance(rows=group.num_rows)
                writer.write_table(parquet_rows(group, schema))
        unfinished.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return target.path


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Row groups that fit into the memory of a reader."""
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(rows.nbytes for rows in group) >= _GROUP_BYTES:
            yield pa.Table.from_batches(group)
            group = []
    if group:
        yield pa.Table.from_batches(group)


def _folder_of(folder: Path, table_key: str) -> Path:
    kind, _, type_name = table_key.partition(":")
    return folder / f"{kind}s" / type_name
