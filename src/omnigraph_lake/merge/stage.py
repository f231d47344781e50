"""Writes what a merge decided: new rows, new contents of known rows, fragments without old rows.

    find     where the target's rows are that are replaced or deleted
    write    decided rows become fragments, one task per bucket
    shrink   fragments of the target lose rows that were replaced or deleted

Invariants:
- Nothing here commits: no version names what tasks wrote until the change is published.
- Replaced rows keep their stable row ids.
- One task shrinks a fragment, with its rows of all buckets.
- A task holds the ids of one bucket, never its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake import names
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.evolution.column_work import write_columns
from omnigraph_lake.merge.decide import IDS, IDS_SCHEMA, UPSERTS, DecidedTable
from omnigraph_lake.runner.protocol import Runner, Stage, Task, require_answers
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
from omnigraph_lake.storage.staging.column_changes import (
    RowEdits,
    fragments_to_compute,
    stage_with_rows,
    staged_from,
)
from omnigraph_lake.storage.staging.edits import (
    LOCATED_COLUMNS,
    PROBE_IDS_MAX,
    Located,
    can_locate_changed,
    fragment_parts,
    locate,
    locate_changed,
    shrink_all,
    write_edits,
)

if TYPE_CHECKING:
    from omnigraph_lake.evolution.lifting import TableLift
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import TableEntry
    from omnigraph_lake.storage.staging.changes import StagedChange
    from omnigraph_lake.storage.staging.column_layout import ColumnChange

ROWS_PER_SCAN: Final = 4_000_000
"""About so many rows of the target are scanned for their ids by one task."""

_ROWS_PER_SEARCH: Final = 1 << 20
_FOUND: Final = "found"
_GONE: Final = "gone"
_ADDRESS: Final = names.ROW_ADDRESS


class Access(Enum):
    """How the target's rows are found that a merge replaces or deletes."""

    NONE = auto()
    """There are none: every row is new."""
    LOOKUP = auto()
    """The task that writes looks up its ids, by the index if they are few."""
    CHANGES = auto()
    """The task that writes looks where the base had them, and among what the target wrote."""
    FILTER = auto()
    """Tasks scan parts of the target for the decided ids."""
    EXCHANGE = auto()
    """Tasks send all ids of the target to their buckets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableToWrite:
    """A decided table and the version to write on; `groups` are fragments to scan for ids."""

    decided: DecidedTable
    entry: TableEntry
    access: Access
    groups: tuple[tuple[int, ...], ...] = field(repr=False)
    lift: TableLift | None = field(default=None, repr=False)
    """How the columns of the table change in the same version; None if they stay."""

    @classmethod
    def plan(
        cls, decided: DecidedTable, entry: TableEntry, *, lift: TableLift | None = None
    ) -> TableToWrite:
        """Choose how the target's rows are found; reads metadata only."""
        table, access = decided.table, Access.LOOKUP
        if not table.knows_rows:
            access = Access.NONE
        elif table.buckets > 1:
            access = Access.EXCHANGE
        elif decided.upserted + decided.deleted > PROBE_IDS_MAX:
            changes = table.theirs.plan, None if table.ours is None else table.ours.plan
            if can_locate_changed(table.root, entry, *changes):
                access = Access.CHANGES
            elif entry.row_count > ROWS_PER_SCAN:
                access = Access.FILTER
        groups: tuple[tuple[int, ...], ...] = ()
        if access in (Access.FILTER, Access.EXCHANGE):
            scan = plan_scan(table.root, entry, columns=[names.ID_COLUMN], where=None)
            groups = grouped(scan.fragments, rows_max=ROWS_PER_SCAN)
        is_changed = lift is not None and lift.columns is not None
        return cls(
            decided=decided,
            entry=entry,
            access=access,
            groups=groups,
            lift=lift if is_changed else None,
        )

    @property
    def number(self) -> int:
        return self.decided.table.number

    @property
    def buckets(self) -> int:
        return self.decided.table.buckets

    @property
    def columns(self) -> ColumnChange | None:
        """The columns that the rows are written with; None if the table has them."""
        columns = None if self.lift is None else self.lift.columns
        return None if columns is None else replace(columns, has_rows=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scan:
    """Some fragments of the target whose ids are sought."""

    table: TableToWrite
    group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bucket:
    """One bucket of a table; `found` are files with places of the target's rows."""

    table: TableToWrite
    number: int
    upserts: tuple[str, ...] = field(repr=False)
    ids: tuple[str, ...] = field(repr=False)
    found: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loss:
    """Some fragments of the target that lose rows, and the files with their addresses."""

    table: TableToWrite
    paths: tuple[str, ...] = field(repr=False)


class _Fragment(msgspec.Struct, frozen=True, array_like=True):
    """A fragment that a task wrote."""

    description: str
    rows: int


class _Shrunk(msgspec.Struct, frozen=True, array_like=True):
    """A fragment of the target without the removed rows; no description if none remain."""

    fragment_id: int
    description: str | None
    rows: int


class _Written(msgspec.Struct, frozen=True, array_like=True):
    """What the task of one bucket wrote; `gone` are files with addresses of removed rows."""

    inserted: list[_Fragment]
    replacing: list[_Fragment]
    shrunk: list[_Shrunk]
    gone: list[StagedFile]
    deleted: int


class StagedRows:
    """The fragments that one merge wrote, of all its attempts."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._fragments: list[tuple[TableEntry, bulk.StagedFragment]] = []

    def stage(
        self, runner: Runner, scratch: Scratch, tables: Sequence[TableToWrite]
    ) -> list[StagedChange]:
        """Write what was decided, one change per table; no HEAD moves."""
        buckets = _find(runner, scratch, tables)
        stage = Stage(verb="merge", name="write rows")
        answers = runner.map(stage, buckets, partial(_write, scratch), _Written)
        written: dict[int, list[_Written]] = {table.number: [] for table in tables}
        for bucket, answer in zip(buckets, answers, strict=True):
            if not isinstance(answer, OmnigraphError):
                written[bucket.table.number].append(answer)
                self._note(bucket.table.entry, answer)
        require_answers(answers)
        shrunk = _shrink(runner, scratch, tables, written)
        return [
            self._gather(table, written[table.number], shrunk[table.number])
            if table.columns is None
            else self._gather_converted(
                runner, table, table.columns, written[table.number], shrunk[table.number]
            )
            for table in tables
        ]

    def discard(self) -> None:
        """Remove the files, if none of them will ever be published."""
        for entry, fragment in self._fragments:
            bulk.discard(self._objects, entry, [fragment])

    def _note(self, entry: TableEntry, written: _Written) -> None:
        for fragment in _fragments([*written.inserted, *written.replacing]):
            self._fragments.append((entry, fragment))

    def _gather(
        self, table: TableToWrite, written: Sequence[_Written], shrunk: Sequence[_Shrunk]
    ) -> StagedChange:
        inserted = _fragments(fragment for bucket in written for fragment in bucket.inserted)
        if not shrunk:
            return bulk.gather_append(self._objects, table.entry, inserted)
        return bulk.gather_merge(
            self._objects,
            table.entry,
            inserted=inserted,
            replacing=_fragments(fragment for bucket in written for fragment in bucket.replacing),
            shrunk=_as_shrunk(shrunk),
            rows_deleted=sum(bucket.deleted for bucket in written),
        )

    def _gather_converted(
        self,
        runner: Runner,
        table: TableToWrite,
        columns: ColumnChange,
        written: Sequence[_Written],
        shrunk: Sequence[_Shrunk],
    ) -> StagedChange:
        """New columns of all rows, and the rows that were written with them, as one change."""
        assert table.lift is not None
        root, fewer_rows = self._objects.root, _as_shrunk(shrunk)
        by_number = {fragment.fragment_id: fragment for fragment in fewer_rows}
        fragments = {
            number: by_number.get(number)
            for number in fragments_to_compute(root, table.entry, columns)
        }
        return stage_with_rows(
            self._objects,
            table.entry,
            columns,
            write_columns(runner, root, table.entry, columns, table.lift.compute, fragments),
            RowEdits(
                inserted=_fragments(fragment for bucket in written for fragment in bucket.inserted),
                shrunk=fewer_rows,
                rows_deleted=sum(bucket.deleted for bucket in written),
            ),
        )


def stage_columns(runner: Runner, root: Root, entry: TableEntry, lift: TableLift) -> StagedChange:
    """Stage the new columns of a table whose rows are not changed otherwise."""
    columns = lift.columns
    assert columns is not None
    fragments = dict.fromkeys(fragments_to_compute(root, entry, columns))
    files = write_columns(runner, root, entry, columns, lift.compute, fragments)
    return staged_from(root, entry, columns, files)


def _as_shrunk(shrunk: Iterable[_Shrunk]) -> list[bulk.Shrunk]:
    return [
        bulk.Shrunk(
            fragment_id=fragment.fragment_id,
            description=fragment.description,
            rows_lost=fragment.rows,
        )
        for fragment in shrunk
    ]


def _find(runner: Runner, scratch: Scratch, tables: Sequence[TableToWrite]) -> list[_Bucket]:
    """The buckets of all tables, with the places of the target's rows where tasks found them."""
    scans = [
        _Scan(table=table, group=group) for table in tables for group in range(len(table.groups))
    ]
    stage = Stage(verb="merge", name="find rows of the target")
    answers = runner.map(stage, scans, partial(_scan, scratch), list[StagedFile]) if scans else ()
    files = files_by_bucket(file for files in require_answers(answers) for file in files)
    buckets: list[_Bucket] = []
    for table in tables:
        upserts, ids = table.decided.paths(UPSERTS), table.decided.paths(IDS)
        buckets += [
            _Bucket(
                table=table,
                number=number,
                upserts=upserts.get(number, ()),
                ids=paths,
                found=tuple(file.path for file in files.get((table.number, number), ())),
            )
            for number, paths in ids.items()
        ]
    return buckets


def _scan(scratch: Scratch, scan: _Scan, task: Task) -> list[StagedFile]:
    """Write where the target's rows are, and what they keep, to their buckets."""
    table = scan.table
    writer = BucketWriter(scratch, table=table.number, role=_FOUND, buckets=table.buckets)
    rows = _advance(
        task,
        scan_fragments(
            table.decided.table.root,
            table.entry,
            table.groups[scan.group],
            columns=LOCATED_COLUMNS,
            where=None,
        ),
    )
    if table.access is Access.FILTER:
        paths = [path for paths in table.decided.paths(IDS).values() for path in paths]
        rows = _matching(rows, _ids(scratch, paths).column(names.ID_COLUMN))
    for batch in rows:
        writer.add_by_id(batch)
    return writer.files()


def _write(scratch: Scratch, bucket: _Bucket, task: Task) -> _Written:
    """Write decided rows into their table: new ones, and new contents of known ones."""
    table, root = bucket.table, bucket.table.decided.table.root
    ids = _ids(scratch, bucket.ids)
    known = _locate(scratch, bucket, ids.column(names.ID_COLUMN).combine_chunks())
    rows = _advance(task, read_files(scratch, bucket.upserts))
    columns = table.columns
    replacing: list[bulk.StagedFragment] = []
    if columns is None:
        inserted, replacing = write_edits(root, table.entry, rows, known)
    else:
        inserted = [
            fragment
            for part in fragment_parts(rows)
            for fragment in bulk.write_rows(root, table.entry, part, columns=columns)
        ]
    shrunk: Iterable[bulk.Shrunk] = ()
    gone: list[StagedFile] = []
    if table.buckets == 1:
        shrunk = shrink_all(root, table.entry, known)
    else:
        gone = _gone_files(scratch, table, known.addresses)
    scratch.make_durable()
    deleted = ids.filter(ids.column("deleted")).column(names.ID_COLUMN)
    return _Written(
        inserted=_describe(inserted),
        replacing=_describe(replacing),
        shrunk=_describe_shrunk(shrunk),
        gone=gone,
        deleted=int(pc.sum(pc.is_in(known.ids, deleted.combine_chunks())).as_py() or 0),
    )


def _advance(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        task.advance(rows=batch.num_rows)
        yield batch


def _ids(scratch: Scratch, paths: Iterable[str]) -> pa.Table:
    return pa.Table.from_batches(read_files(scratch, paths), IDS_SCHEMA)


def _locate(scratch: Scratch, bucket: _Bucket, ids: pa.StringArray) -> Located:
    """Where the target's rows with these ids are."""
    table = bucket.table
    match table.access:
        case Access.NONE:
            return Located.of(())
        case Access.LOOKUP:
            return locate(table.decided.table.root, table.entry, ids)
        case Access.CHANGES:
            sides = table.decided.table
            ours = None if sides.ours is None else sides.ours.plan
            return locate_changed(sides.root, table.entry, sides.theirs.plan, ours, ids)
        case Access.FILTER | Access.EXCHANGE:
            return _read_found(scratch, bucket.found, ids)
        case _:
            assert_never(table.access)


def _read_found(scratch: Scratch, paths: Iterable[str], ids: pa.StringArray) -> Located:
    return Located.of(list(_matching(read_files(scratch, paths), ids)))


def _matching(
    batches: Iterable[pa.RecordBatch], ids: pa.StringArray | pa.ChunkedArray
) -> Iterator[pa.RecordBatch]:
    """The rows with these ids. Every search builds a table of the ids, so it is of many rows."""
    for part in _parts(batches):
        rows = part.filter(pc.is_in(part.column(names.ID_COLUMN), ids))
        yield from rows.combine_chunks().to_batches()


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    part: list[pa.RecordBatch] = []
    for batch in batches:
        part.append(batch)
        if sum(rows.num_rows for rows in part) >= _ROWS_PER_SEARCH:
            yield pa.Table.from_batches(part)
            part = []
    if part:
        yield pa.Table.from_batches(part)


def _gone_files(scratch: Scratch, table: TableToWrite, addresses: np.ndarray) -> list[StagedFile]:
    """Addresses of removed or replaced rows, in files by the group of their fragment."""
    group_of = {fragment: number for number, group in enumerate(table.groups) for fragment in group}
    writer = BucketWriter(scratch, table=table.number, role=_GONE, buckets=len(table.groups))
    # The upper half of a row address is the fragment. Replaced rows are removed, too: their new
    # contents are written elsewhere under the same row ids.
    fragments = addresses >> np.uint64(names.ADDRESS_BITS)
    # By group and not by bucket: one task has to shrink a fragment, with its rows of all buckets.
    for fragment in np.unique(fragments).tolist():
        rows = pa.array(addresses[fragments == fragment], pa.uint64())
        writer.add(group_of[fragment], pa.RecordBatch.from_arrays([rows], names=[_ADDRESS]))
    return writer.files()


def _shrink(
    runner: Runner,
    scratch: Scratch,
    tables: Iterable[TableToWrite],
    written: dict[int, list[_Written]],
) -> dict[int, list[_Shrunk]]:
    """Fragments of the target without removed rows, by table."""
    losses: list[_Loss] = []
    shrunk: dict[int, list[_Shrunk]] = {}
    for table in tables:
        buckets = written[table.number]
        shrunk[table.number] = [fragment for bucket in buckets for fragment in bucket.shrunk]
        files = files_by_bucket(file for bucket in buckets for file in bucket.gone)
        losses += [
            _Loss(table=table, paths=tuple(file.path for file in group_files))
            for group_files in files.values()
        ]
    stage = Stage(verb="merge", name="remove replaced rows")
    work = partial(_shrink_group, scratch)
    answers = runner.map(stage, losses, work, list[_Shrunk]) if losses else ()
    for loss, fragments in zip(losses, require_answers(answers), strict=True):
        shrunk[loss.table.number] += fragments
    return shrunk


def _shrink_group(scratch: Scratch, loss: _Loss, task: Task) -> list[_Shrunk]:
    task.advance()
    addresses = [rows.column(_ADDRESS).to_numpy() for rows in read_files(scratch, loss.paths)]
    # Fragments are found by the addresses alone.
    rows = Located(
        ids=pa.array([], pa.string()),
        lineage=RowLineage.none(),
        addresses=np.concatenate(addresses),
    )
    shrunk = shrink_all(loss.table.decided.table.root, loss.table.entry, rows)
    scratch.make_durable()
    return _describe_shrunk(shrunk)


def _describe(fragments: Iterable[bulk.StagedFragment]) -> list[_Fragment]:
    return [_Fragment(fragment.description, fragment.rows) for fragment in fragments]


def _describe_shrunk(fragments: Iterable[bulk.Shrunk]) -> list[_Shrunk]:
    return [
        _Shrunk(fragment.fragment_id, fragment.description, fragment.rows_lost)
        for fragment in fragments
    ]


def _fragments(described: Iterable[_Fragment]) -> list[bulk.StagedFragment]:
    return [
        bulk.StagedFragment(description=fragment.description, rows=fragment.rows)
        for fragment in described
    ]
