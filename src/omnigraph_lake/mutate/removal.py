"""Finds and removes any number of rows by their ids, with the edges of nodes, on a runner.

    scatter   the ids to delete go to files by a hash
    find      ids and ends of all rows go to the same buckets, with their addresses
    match     one task per bucket: rows whose id or end is to be deleted
    remove    one task per group of fragments, which lose the rows of all buckets

Invariants:
- A row is removed if its id is deleted, an edge also if one of its ends is; each counts once.
- A task holds the ids of one bucket, or the addresses of some fragments, never rows.
- Nothing here commits: no version names what tasks wrote until the change is published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake import names
from omnigraph_lake.runner.protocol import FramePart, Runner, Stage, Task, require_answers
from omnigraph_lake.runner.shuffle import (
    BucketWriter,
    Scratch,
    StagedFile,
    files_by_bucket,
    read_files,
)
from omnigraph_lake.storage.lance.row_lineage import RowLineage
from omnigraph_lake.storage.lance.tables import grouped, plan_scan, scan_fragments
from omnigraph_lake.storage.staging import bulk
from omnigraph_lake.storage.staging.edits import Located, shrink_all

if TYPE_CHECKING:
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import TableEntry
    from omnigraph_lake.storage.staging.changes import StagedChange
    from omnigraph_lake.validation.constraints import EndpointExists

_ROWS_PER_SCAN: Final = 2_000_000
ROWS_PER_BUCKET: Final = 500_000
_VERB: Final = "delete"
_DELETED: Final = "deleted"
_FOUND: Final = "found"
_GONE: Final = "gone"
_ADDRESS: Final = names.ROW_ADDRESS
_MATCH: Final = -1
"""The number of the match among tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableToShrink:
    """A table that loses rows: by their ids, or by their ends if it has the edges of nodes."""

    number: int
    root: Root
    entry: TableEntry
    ends: tuple[EndpointExists, ...]
    groups: tuple[tuple[int, ...], ...] = field(repr=False)

    @classmethod
    def plan(
        cls, number: int, root: Root, entry: TableEntry, ends: Sequence[EndpointExists]
    ) -> TableToShrink:
        """Divide its fragments; reads metadata only."""
        scan = plan_scan(root, entry, columns=[names.ID_COLUMN], where=None)
        groups = grouped(scan.fragments, rows_max=_ROWS_PER_SCAN)
        return cls(number=number, root=root, entry=entry, ends=tuple(ends), groups=groups)

    @property
    def columns(self) -> list[str]:
        """What is read of its rows."""
        ends = [column for end in self.ends for column in end.read_columns]
        return [*dict.fromkeys(ends or [names.ID_COLUMN]), _ADDRESS]

    def keys(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """What may be among the deleted ids, with the addresses of the rows."""
        columns = [end.endpoints(rows) for end in self.ends] or [rows.column(names.ID_COLUMN)]
        for column in columns:
            keyed = pa.RecordBatch.from_arrays(
                [column, rows.column(_ADDRESS)], names=[names.ID_COLUMN, _ADDRESS]
            )
            yield keyed.filter(pc.is_valid(column)) if column.null_count else keyed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scan:
    table: TableToShrink
    group: int
    buckets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bucket:
    """The ids to delete of one bucket, and what tables have there."""

    deleted: tuple[str, ...] = field(repr=False)
    found: tuple[tuple[TableToShrink, tuple[str, ...]], ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loss:
    """Some fragments of a table, and the files with the addresses that they lose."""

    table: TableToShrink
    paths: tuple[str, ...] = field(repr=False)
    counts_only: bool


class _Shrunk(msgspec.Struct, frozen=True, array_like=True):
    """Fragments without the removed rows: their numbers, descriptions and losses."""

    fragments: list[tuple[int, str | None, int]]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What a table loses; no change if it was only counted."""

    table_key: str
    rows: int
    change: StagedChange | None


class Removal:
    """Removes the rows of one match from its table and the edges of its nodes."""

    def __init__(
        self, objects: Objects, runner: Runner, scratch: Scratch, tables: Sequence[TableToShrink]
    ) -> None:
        self._objects = objects
        self._runner = runner
        self._scratch = scratch
        self._tables = tables
        self._buckets = 1 + tables[0].entry.row_count // ROWS_PER_BUCKET

    def scatter(self, batches: Iterable[pa.RecordBatch]) -> list[StagedFile]:
        """Keep the ids of a match, its first column, in files."""
        writer = BucketWriter(self._scratch, table=_MATCH, role=_DELETED, buckets=self._buckets)
        for batch in batches:
            writer.add_by_id(_ids_of(batch))
        return writer.files()

    def scatter_frame(self, frame: object) -> list[StagedFile]:
        """As `scatter`, by tasks of the session of a frame."""
        stage = Stage(verb=_VERB, name="read the match")
        work = partial(_scatter_part, self._scratch, self._buckets)
        answers = self._runner.map_frames(stage, {_DELETED: frame}, work, list[StagedFile])
        return [file for files in require_answers(answers) for file in files]

    def run(
        self,
        deleted: Iterable[StagedFile],
        *,
        writable: Callable[[TableEntry], TableEntry],
        counts_only: bool,
    ) -> list[Removed]:
        """Remove the rows of these ids, or count them; tables that lose none are not listed."""
        gone = self._match(deleted)
        tables = {number: self._tables[number] for number in {file.table for file in gone}}
        if not counts_only:
            tables = {
                number: replace(table, entry=writable(table.entry))
                for number, table in sorted(tables.items())
            }
        losses = [
            _Loss(
                table=tables[number],
                paths=tuple(file.path for file in files),
                counts_only=counts_only,
            )
            for (number, _), files in files_by_bucket(gone).items()
        ]
        stage = Stage(verb=_VERB, name="remove rows")
        answers = self._runner.map(stage, losses, partial(_shrink, self._scratch), _Shrunk)
        shrunk: dict[int, list[_Shrunk]] = {}
        for loss, answer in zip(losses, require_answers(answers), strict=True):
            shrunk.setdefault(loss.table.number, []).append(answer)
        return [
            self._gather(tables[number], answers, counts_only=counts_only)
            for number, answers in sorted(shrunk.items())
        ]

    def _match(self, deleted: Iterable[StagedFile]) -> list[StagedFile]:
        """Files with addresses of rows to remove, by table and group of fragments."""
        paths: dict[int, list[str]] = {}
        for file in deleted:
            paths.setdefault(file.bucket, []).append(file.path)
        if not paths:
            return []
        scans = [
            _Scan(table=table, group=group, buckets=self._buckets)
            for table in self._tables
            for group in range(len(table.groups))
        ]
        stage = Stage(verb=_VERB, name="find rows")
        answers = self._runner.map(stage, scans, partial(_find, self._scratch), list[StagedFile])
        matching_files = files_by_bucket(
            file for files in require_answers(answers) for file in files
        )
        buckets = [
            _Bucket(
                deleted=tuple(bucket_paths),
                found=tuple(
                    (
                        table,
                        tuple(file.path for file in matching_files.get((table.number, bucket), ())),
                    )
                    for table in self._tables
                ),
            )
            for bucket, bucket_paths in sorted(paths.items())
        ]
        stage = Stage(verb=_VERB, name="match rows")
        work = partial(_match_bucket, self._scratch)
        answers = self._runner.map(stage, buckets, work, list[StagedFile])
        return [file for files in require_answers(answers) for file in files]

    def _gather(
        self, table: TableToShrink, answers: Iterable[_Shrunk], *, counts_only: bool
    ) -> Removed:
        parts = list(answers)
        rows = sum(part.rows for part in parts)
        if counts_only:
            return Removed(table_key=table.entry.table_key, rows=rows, change=None)
        change = bulk.gather_merge(
            self._objects,
            table.entry,
            inserted=(),
            replacing=(),
            shrunk=[
                bulk.Shrunk(fragment_id=number, description=description, rows_lost=lost)
                for part in parts
                for number, description, lost in part.fragments
            ],
            rows_deleted=rows,
        )
        return Removed(table_key=table.entry.table_key, rows=rows, change=change)


def _ids_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    ids = batch.column(0)
    rows = pa.RecordBatch.from_arrays([ids.cast(pa.string())], names=[names.ID_COLUMN])
    return rows.filter(pc.is_valid(ids)) if ids.null_count else rows


def _scatter_part(scratch: Scratch, buckets: int, part: FramePart, task: Task) -> list[StagedFile]:
    writer = BucketWriter(scratch, table=_MATCH, role=_DELETED, buckets=buckets)
    for batch in part.batches:
        task.advance(rows=batch.num_rows)
        writer.add_by_id(_ids_of(batch))
    return writer.files()


def _find(scratch: Scratch, scan: _Scan, task: Task) -> list[StagedFile]:
    table = scan.table
    writer = BucketWriter(scratch, table=table.number, role=_FOUND, buckets=scan.buckets)
    fragments = table.groups[scan.group]
    for batch in scan_fragments(
        table.root, table.entry, fragments, columns=table.columns, where=None
    ):
        task.advance(rows=batch.num_rows)
        for rows in table.keys(batch):
            writer.add_by_id(rows)
    return writer.files()


def _match_bucket(scratch: Scratch, bucket: _Bucket, task: Task) -> list[StagedFile]:
    batches = list(read_files(scratch, bucket.deleted))
    ids = pa.concat_arrays([batch.column(0) for batch in batches])
    files: list[StagedFile] = []
    for table, paths in bucket.found:
        group_of = {
            fragment: number for number, group in enumerate(table.groups) for fragment in group
        }
        writer = BucketWriter(
            scratch, table=table.number, role=_GONE, buckets=max(1, len(table.groups))
        )
        rows = [batch for batch in read_files(scratch, paths) if batch.num_rows]
        if not rows:
            continue
        task.advance(rows=sum(batch.num_rows for batch in rows))
        keyed = pa.Table.from_batches(rows)
        hit = keyed.filter(pc.is_in(keyed.column(0), value_set=ids))
        addresses = hit.column(_ADDRESS).to_numpy()
        fragments = addresses >> np.uint64(names.ADDRESS_BITS)
        for fragment in np.unique(fragments).tolist():
            gone = pa.array(addresses[fragments == fragment], pa.uint64())
            writer.add(group_of[fragment], pa.RecordBatch.from_arrays([gone], names=[_ADDRESS]))
        files += writer.files()
    return files


def _shrink(scratch: Scratch, loss: _Loss, task: Task) -> _Shrunk:
    task.advance()
    # An edge may have been found by both of its ends.
    addresses = np.unique(
        np.concatenate([rows.column(0).to_numpy() for rows in read_files(scratch, loss.paths)])
    )
    if loss.counts_only:
        return _Shrunk([], len(addresses))
    located = Located(ids=pa.array([], pa.string()), lineage=RowLineage.none(), addresses=addresses)
    shrunk = shrink_all(loss.table.root, loss.table.entry, located)
    scratch.make_durable()
    return _Shrunk(
        [(part.fragment_id, part.description, part.rows_lost) for part in shrunk], len(addresses)
    )
