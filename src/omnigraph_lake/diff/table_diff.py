"""Compares two versions of one table, row by row and in the order of ids.

`before` and `after` are `TableEntry` values; None is a version without the table. Columns are

    op       string        "insert", "update" or "delete", see `Op`
    id       string        ascending by its UTF-8 bytes, unique over all batches
    changed  list<string>  for updates the columns that differ, in the order of `columns`; else null
    before   struct        the row as it was; null for an insert
    after    struct        the row as it is; null for a delete

Both structs have the same fields: `id`, the columns of `after`, then what only `before` has. A
column that one version lacks is null there. Where its type differs, each struct has its own: then
widened numbers are compared by value, and other values count as changed unless both are null.

Equality looks at every column: null differs from empty, NaN equals NaN whatever its bits, 0.0
differs from -0.0; lists, vectors and blobs are equal if all their items are. Blobs are bytes.

Invariants:
- A row is reported exactly if its content differs between the two versions, once, with everything
  in it.
- Memory use is bounded: few rows that may differ are joined in memory, more in a database on disk.
- Where rows were only inserted, or only deleted, no comparison is needed: `one_sided_rows` gives
  the same rows as `TableDiff.reader`, part by part and in the order in which they are stored. The
  parts are independent, so several readers can share them.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake.diff.column_names import RenamedColumns
from omnigraph_lake.diff.end_types import EndTypes, NameEnds
from omnigraph_lake.errors import DamagedGraphError, InvalidInputError, StorageUnavailableError
from omnigraph_lake.names import EDGE_PREFIX, END_TYPE_COLUMNS, ID_COLUMN
from omnigraph_lake.runner.databases import open_database
from omnigraph_lake.schema.arrow import concatenate
from omnigraph_lake.storage.objects.temporary_folders import temporary_folder
from omnigraph_lake.storage.staging.row_changes import (
    Part,
    RowChanges,
    Sought,
    plan_row_changes,
    read_gone,
    read_new,
)
from omnigraph_lake.validation.row_differences import Mask, as_mask, differ

if TYPE_CHECKING:
    import duckdb

    from omnigraph_lake.schema.catalog import EdgeType
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry


Side: TypeAlias = tuple[str, pa.Schema, Iterator[pa.RecordBatch]]

BATCH_ROWS: Final = 4_096
HELD_ROWS_MAX: Final = 1 << 17
HELD_BYTES_MAX: Final = 32 << 20
"""Up to so many candidates are compared in memory, if they have no more bytes than that."""
_BATCH_BYTES: Final = 16 << 20
_LOOKED_UP_MAX: Final = 100_000
_PLACES: Final = """
    coalesce(b.id, a.id) AS id, b.place AS before, a.place AS after,
    coalesce(b.size, 0) + coalesce(a.size, 0) AS size
"""
_TYPE_COLUMNS: Final = frozenset(END_TYPE_COLUMNS.values())
_NOTHING: Final = pa.schema([(ID_COLUMN, pa.string())])
_NOTED: Final = pa.schema([("id", pa.string()), ("place", pa.int64()), ("size", pa.int64())])
_SETTINGS: Final = {"memory_limit": "256MB", "threads": str(min(4, os.cpu_count() or 1))}


class Op(StrEnum):
    """What happened to a row."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCounts:
    """How many rows differ, by what happened to them."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def total(self) -> int:
        return self.inserted + self.updated + self.deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffColumn:
    """A column of either version, and its type in each; None where a version lacks it.

    `renamed_from` is its name in the version before, if that is another one.
    """

    name: str
    before: pa.DataType | None
    after: pa.DataType | None
    renamed_from: str | None = None

    @property
    def types(self) -> tuple[pa.DataType, pa.DataType]:
        """The types in the two structs."""
        return self.before or self.after, self.after or self.before


class Lift(Protocol):
    """Brings rows of a version to the columns that are compared; picklable, the same everywhere."""

    @property
    def lifted(self) -> pa.Schema:
        """The columns of lifted rows."""
        ...

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """How two versions of different schemas are compared: both are lifted to the same columns.

    A version of None needs no lift. `lacking` are columns that the version after has no values for:
    these count as unchanged, and as filled where there was no row before. With `by_edits` only rows
    that were written are compared, because the lift gives what a change of the schema computed.
    """

    before: Lift | None = None
    after: Lift | None = None
    lacking: frozenset[str] = frozenset()
    by_edits: bool = False

    def schema(self, plan: RowChanges, *, is_new: bool) -> pa.Schema:
        """The columns of the rows of one side."""
        lift, stored = (
            (self.after, plan.stored_after) if is_new else (self.before, plan.stored_before)
        )
        return stored if lift is None or not stored.names else lift.lifted

    def lift(self, rows: Iterator[pa.RecordBatch], *, is_new: bool) -> Iterator[pa.RecordBatch]:
        """Rows of one side."""
        lift = self.after if is_new else self.before
        return rows if lift is None else map(lift, rows)


_AS_STORED: Final = Conversion()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDiff:
    """The difference between two versions of one table; cheap to create, readable repeatedly."""

    root: Root
    plan: RowChanges
    columns: tuple[DiffColumn, ...]
    conversion: Conversion = _AS_STORED

    @property
    def entries(self) -> tuple[TableEntry | None, TableEntry | None]:
        """The two versions."""
        return self.plan.before, self.plan.after

    @property
    def table_key(self) -> str:
        entry = self.plan.after or self.plan.before
        return entry.table_key if entry else ""

    @property
    def unchanged(self) -> bool:
        """Metadata alone shows that no row differs."""
        return self.plan.unchanged

    @property
    def end_type_columns(self) -> tuple[str, ...]:
        """The columns with the names of node types at ends of edges."""
        lift = self.conversion.after
        return tuple(lift.ends) if isinstance(lift, NameEnds) else ()

    @property
    def schema(self) -> pa.Schema:
        before, after = (
            pa.struct([(column.name, column.types[side]) for column in self.columns])
            for side in (0, 1)
        )
        return pa.schema(
            [
                pa.field("op", pa.string(), nullable=False),
                pa.field("id", pa.string(), nullable=False),
                pa.field("changed", pa.list_(pa.string())),
                pa.field("before", before),
                pa.field("after", after),
            ]
        )

    def reader(
        self, *, batch_rows: int = BATCH_ROWS, only: Sought | None = None
    ) -> pa.RecordBatchReader:
        """Stream the rows that differ, or of these those that are sought.

        Batches have at most so many rows, fewer with blobs.
        """
        return pa.RecordBatchReader.from_batches(self.schema, self._batches(batch_rows, only))

    def gone(
        self, columns: Sequence[str] | None = None, *, only: Sought | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Stream the rows of `before` that may differ, or some columns of them.

        Rows that are not sought may be missing.
        """
        for part in self.plan.gone:
            yield from self.part(part, columns, only=only, is_new=False)

    def new(
        self, columns: Sequence[str] | None = None, *, only: Sought | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Stream the rows of `after` that may differ, as `gone` does."""
        for part in self.plan.new:
            yield from self.part(part, columns, only=only, is_new=True)

    def part(
        self,
        part: Part,
        columns: Sequence[str] | None = None,
        *,
        only: Sought | None = None,
        is_new: bool,
    ) -> Iterator[pa.RecordBatch]:
        """Stream the candidates of one part of one side, lifted if all columns are read."""
        lifts = (self.conversion.before, self.conversion.after)
        assert columns is None or list(columns) == [ID_COLUMN] or lifts == (None, None)
        read = read_new if is_new else read_gone
        rows = read(self.root, self.plan, part, columns=columns, only=only)
        return rows if columns is not None else self.conversion.lift(rows, is_new=is_new)

    def _batches(self, batch_rows: int, only: Sought | None) -> Iterator[pa.RecordBatch]:
        if self.unchanged:
            return
        held_rows = _hold(self, only)
        if held_rows is not None:
            yield from held_rows.changes(batch_rows)
            return
        with _meeting(self) as meeting:
            meeting.bring_rows(only=None if only is None else only.ids)
            yield from meeting.changes(batch_rows)


def diff_table(
    root: Root,
    before: TableEntry | None,
    after: TableEntry | None,
    *,
    columns: Sequence[str] | None = None,
    conversion: Conversion = _AS_STORED,
) -> TableDiff:
    """Plan the comparison of two versions of a table, of whatever forks; reads metadata only.

    `columns` are the columns to compare besides `id`; all by default, and all if rows are lifted.

    Raises:
        InvalidInputError: a column that neither version has.
    """
    plan = plan_row_changes(root, before, after, columns=columns, by_edits=conversion.by_edits)
    diff_columns = _diff_columns(plan, conversion)
    known_columns = {column.name for column in diff_columns if column.before or column.after}
    for column in columns or ():
        if column not in known_columns and known_columns:
            raise InvalidInputError(f"neither version has a column {column!r:.80}")
    return TableDiff(root=root, plan=plan, columns=diff_columns, conversion=conversion)


def _diff_columns(
    plan: RowChanges, conversion: Conversion, renamed: Mapping[str, str] | None = None
) -> tuple[DiffColumn, ...]:
    before_types, after_types = (
        dict(zip(side.names, side.types, strict=True))
        for side in (conversion.schema(plan, is_new=False), conversion.schema(plan, is_new=True))
    )
    earlier_names = {new: old for old, new in (renamed or {}).items()}
    return tuple(
        DiffColumn(
            name=name,
            before=before_types.get(name),
            after=after_types.get(name),
            renamed_from=earlier_names.get(name),
        )
        for name in dict.fromkeys([ID_COLUMN, *after_types, *before_types])
    )


def with_renamed_columns(diff: TableDiff, renamed: Mapping[str, str]) -> TableDiff:
    """The comparison with columns of the version before under their names in the one after."""
    if not renamed:
        return diff
    conversion = replace(
        diff.conversion,
        before=RenamedColumns(
            columns=diff.conversion.schema(diff.plan, is_new=False),
            renamed=renamed,
            first=diff.conversion.before,
        ),
    )
    columns = _diff_columns(diff.plan, conversion, renamed)
    return replace(diff, conversion=conversion, columns=columns)


def with_end_types(
    diff: TableDiff, end_types: Callable[[], tuple[EdgeType | None, EdgeType | None]]
) -> TableDiff:
    """The comparison with the names of node types at the ends of edges instead of their numbers.

    `end_types` gives the edge type before and after; it is asked only if rows may store types.
    """
    plan = diff.plan
    stored_names = {*plan.stored_before.names, *plan.stored_after.names}
    is_edge = diff.table_key.startswith(EDGE_PREFIX)
    if not is_edge or stored_names.isdisjoint(_TYPE_COLUMNS):
        return diff
    before, after = end_types()
    types = EndTypes(before=before, after=after)
    conversion = replace(
        diff.conversion,
        before=types.lift(plan.stored_before, is_new=False),
        after=types.lift(plan.stored_after, is_new=True),
    )
    return replace(diff, conversion=conversion, columns=_diff_columns(plan, conversion))


def count_changes(diff: TableDiff) -> ChangeCounts:
    """Count the rows that differ, without making images of them.

    Only ids are read, except for rows in both versions that may differ; nothing is read if
    rows were only added or only deleted.
    """
    if not diff.plan.gone or not diff.plan.new:
        return ChangeCounts(inserted=diff.plan.new_rows, deleted=diff.plan.gone_rows)
    with _meeting(diff) as meeting:
        gone_count, new_count, both_count = meeting.bring_ids()
        updated_count = meeting.updated(both_count) if both_count else 0
        return ChangeCounts(
            inserted=new_count - both_count, updated=updated_count, deleted=gone_count - both_count
        )


@contextmanager
def _meeting(diff: TableDiff) -> Iterator[_Meeting]:
    import duckdb  # most tables need no meeting

    try:
        with (
            temporary_folder("diff") as home,
            open_database(home / "ids", _SETTINGS) as database,
        ):
            yield _Meeting(diff, home, database)
    except (duckdb.Error, OSError) as error:
        raise StorageUnavailableError(
            f"could not compare the rows of {diff.table_key}: {str(error).splitlines()[0]}",
            next_step=f"Check the space in {tempfile.gettempdir()}, or set TMPDIR.",
        ) from error


class _Spool:
    """Rows in a file, written in sequence and read in any order."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._writer = pa.ipc.new_file(path, schema)
        self._starts = [0]

    def add(self, rows: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """Append rows; returns their positions, and about how many bytes each of them has."""
        self._writer.write_batch(rows)
        self._starts.append(self._starts[-1] + len(rows))
        sizes = np.full(len(rows), rows.nbytes // len(rows))
        for column in rows.columns:
            if pat.is_large_binary(column.type):
                sizes += pc.binary_length(column).fill_null(0).to_numpy()
        return pa.array(np.arange(*self._starts[-2:])), pa.array(sizes)

    def close(self) -> None:
        self._writer.close()
        with self._path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        reader = pa.ipc.open_file(pa.py_buffer(self._map))
        self._batches = [reader.get_batch(number) for number in range(len(self._starts) - 1)]
        self._none = pa.RecordBatch.from_pylist([], schema=reader.schema)

    def take(self, positions: pa.Array) -> pa.RecordBatch:
        """A copy of the rows at these positions; a row of nulls where a position is null."""
        wanted_positions = positions.drop_null().to_numpy()
        order = np.argsort(wanted_positions)
        owners = np.searchsorted(self._starts, wanted_positions[order], "right") - 1
        taken_batches = []
        for owner in np.unique(owners):
            batch_positions = wanted_positions[order[owners == owner]] - self._starts[owner]
            taken_batches.append(self._batches[owner].take(pa.array(batch_positions)))
        places = np.zeros(len(positions), np.int64)
        places[positions.is_valid().to_numpy(zero_copy_only=False)] = np.argsort(order)
        rows = concatenate(taken_batches or [self._none])
        # The kernel may keep these pages, but they no longer count as memory of this process.
        self._map.madvise(mmap.MADV_DONTNEED)
        return rows.take(pa.array(places, mask=positions.is_null().to_numpy(zero_copy_only=False)))


def _spool(
    spool: _Spool, batches: Iterator[pa.RecordBatch], only: pa.Array | None
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = batch if only is None else _with_ids(batch, only)
        if len(rows):
            noted = [rows.column(ID_COLUMN), *spool.add(rows)]
            yield pa.RecordBatch.from_arrays(noted, schema=_NOTED)


def _with_ids(rows: pa.RecordBatch, ids: pa.Array) -> pa.RecordBatch:
    return rows.filter(pc.is_in(rows.column(ID_COLUMN), value_set=ids))


class _Join(ABC):
    """The rows of both versions by their ids: pairs of positions, and rows at positions."""

    def __init__(self, diff: TableDiff) -> None:
        self._diff = diff
        self._sources: list[_Source] = []

    @abstractmethod
    def _pieces(self, join: str, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The positions of the rows of each id, ordered by id, in parts that fit into memory."""

    def changes(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows that differ, in the order of ids."""
        schema = self._diff.schema
        names = pa.array([column.name for column in self._diff.columns], pa.string())
        for few in self._pieces("FULL JOIN", batch_rows):
            differs, sides = self._compared(few)
            was, now = (few.column(name).is_valid() for name in ("before", "after"))
            rows, which = np.nonzero(differs.T)
            changed_names = pa.ListArray.from_arrays(
                np.searchsorted(rows, np.arange(len(few) + 1)),
                names.take(pa.array(which)),
                mask=pc.invert(pc.and_(was, now)),
            )
            images = [
                pa.StructArray.from_arrays(
                    columns, fields=list(schema.field(name).type), mask=few.column(name).is_null()
                )
                for name, columns in zip(("before", "after"), sides, strict=True)
            ]
            op = pc.if_else(was, pc.if_else(now, Op.UPDATE, Op.DELETE), Op.INSERT)
            arrays = [op, few.column(ID_COLUMN), changed_names, *images]
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
            if differs.any():
                yield batch.filter(pa.array(differs.any(0)))

    def _compared(self, few: pa.RecordBatch) -> tuple[Mask, list[list[pa.Array]]]:
        """Which columns of which rows differ, and the columns of both versions."""
        sides = []
        for side, (name, source) in enumerate(zip(("before", "after"), self._sources, strict=True)):
            rows = source.take(few.column(name))
            columns = dict(zip(rows.schema.names, rows.columns, strict=True))
            kinds = [(column.name, column.types[side]) for column in self._diff.columns]
            sides.append(
                [
                    columns[name] if name in columns else pa.nulls(len(few), kind)
                    for name, kind in kinds
                ]
            )
        lacking = self._diff.conversion.lacking
        if lacking:
            _settle(self._diff.columns, lacking, sides, few.column("before").is_valid())
        return np.array([*map(differ, *sides)]), sides


def _settle(
    columns: Sequence[DiffColumn],
    lacking: frozenset[str],
    sides: Sequence[list[pa.Array]],
    was: pa.BooleanArray,
) -> None:
    """Give rows that were there before their values of columns that the version after lacks."""
    before, after = sides
    for number, column in enumerate(columns):
        if column.name in lacking:
            after[number] = pc.if_else(was, before[number], after[number])


class _HeldRows:
    """Rows in memory."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.rows = rows

    def take(self, positions: pa.Array) -> pa.RecordBatch:
        """The rows at these positions; a row of nulls where a position is null."""
        return self.rows.take(positions)


_Source: TypeAlias = "_Spool | _HeldRows"


class _HeldJoin(_Join):
    """A join of few rows, in memory."""

    def __init__(self, diff: TableDiff, gone: pa.RecordBatch, new: pa.RecordBatch) -> None:
        super().__init__(diff)
        self._sources = [_HeldRows(gone), _HeldRows(new)]
        self._ids = [rows.column(ID_COLUMN) for rows in (gone, new)]
        for ids in self._ids:
            if repeated := len(ids) - len(ids.unique()):
                raise _repeated_ids(diff, repeated)

    def _pieces(self, join: str, batch_rows: int) -> Iterator[pa.RecordBatch]:
        assert join == "FULL JOIN"
        gone, new = self._ids
        alone = np.flatnonzero(as_mask(pc.invert(pc.is_in(gone, new))))
        ids = pa.concat_arrays([new, gone.take(pa.array(alone))])
        order = pc.sort_indices(ids)
        before = pa.concat_arrays(
            [pc.index_in(new, gone).cast(pa.int64()), pa.array(alone, pa.int64())]
        )
        after = pa.concat_arrays([pa.array(np.arange(len(new))), pa.nulls(len(alone), pa.int64())])
        pairs = pa.RecordBatch.from_arrays(
            [column.take(order) for column in (ids, before, after)],
            names=[ID_COLUMN, "before", "after"],
        )
        for start in range(0, len(pairs), batch_rows):
            yield pairs.slice(start, batch_rows)


def _hold(diff: TableDiff, only: Sought | None) -> _HeldJoin | None:
    """All candidates, or those that are sought, if they are few."""
    plan = diff.plan
    if plan.gone_rows + plan.new_rows > HELD_ROWS_MAX:
        return None
    room = HELD_BYTES_MAX
    sides = []
    for schema, batches in (
        (diff.conversion.schema(plan, is_new=False), diff.gone(only=only)),
        (diff.conversion.schema(plan, is_new=True), diff.new(only=only)),
    ):
        rows = [pa.RecordBatch.from_pylist([], schema=schema or _NOTHING)]
        for batch in batches:
            wanted = batch if only is None else _with_ids(batch, only.ids)
            room -= wanted.nbytes
            if room < 0:
                return None
            rows.append(wanted)
        sides.append(concatenate(rows))
    return _HeldJoin(diff, *sides)


def _repeated_ids(diff: TableDiff, repeated: int) -> DamagedGraphError:
    return DamagedGraphError(
        f"{diff.table_key} has {repeated} rows with duplicate ids",
        next_step=f"Run `omnigraph check {diff.root}`.",
    )


class _Meeting(_Join):
    """A join of the rows of both versions: their ids in a database, their contents in files."""

    def __init__(self, diff: TableDiff, home: Path, database: duckdb.DuckDBPyConnection) -> None:
        super().__init__(diff)
        self._home, self._database = home, database

    def bring_ids(self) -> tuple[int, int, int]:
        """Read the ids of all candidates; how many there are in either version, and in both."""
        for side, _, batches in self._sides([ID_COLUMN]):
            self._fill(f"{side}_ids", pa.schema([_NOTED.field(ID_COLUMN)]), batches)
        self._database.sql("CREATE TABLE met AS FROM gone_ids SEMI JOIN new_ids USING (id)")
        gone_count, new_count, both_count = (
            self._count(table) for table in ("gone_ids", "new_ids", "met")
        )
        return gone_count, new_count, both_count

    def bring_rows(self, *, only: pa.Array | None = None) -> None:
        """Read all candidates, or only those with these ids."""
        for side, schema, batches in self._sides():
            spool = _Spool(self._home / side, schema)
            self._fill(side, _NOTED, _spool(spool, batches, only))
            spool.close()
            self._sources.append(spool)

    def updated(self, both: int) -> int:
        """How many of the rows whose ids were found in both versions differ."""
        few = both <= _LOOKED_UP_MAX
        self.bring_rows(only=self._database.sql("FROM met").to_arrow_table()[0] if few else None)
        pieces = self._pieces("JOIN", BATCH_ROWS)
        return sum(int(self._compared(piece)[0].any(0).sum()) for piece in pieces)

    def _sides(self, columns: Sequence[str] | None = None) -> Iterator[Side]:
        diff = self._diff
        for side, is_new, batches in (
            ("gone", False, diff.gone(columns)),
            ("new", True, diff.new(columns)),
        ):
            yield side, diff.conversion.schema(diff.plan, is_new=is_new), batches

    def _fill(self, table: str, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> None:
        self._database.register("incoming", schema.empty_table())
        self._database.sql(f"CREATE TABLE {table} AS FROM incoming")
        for row in rows:
            self._database.register("incoming", row)
            self._database.sql(f"INSERT INTO {table} FROM incoming")
        once = f"(SELECT DISTINCT id FROM {table})"  # noqa: S608
        if repeated := self._count(table) - self._count(once):
            raise _repeated_ids(self._diff, repeated)

    def _count(self, table: str) -> int:
        [(count,)] = self._database.sql(f"SELECT count(*) FROM {table}").fetchall()  # noqa: S608
        return int(count)

    def _pieces(self, join: str, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The positions of the rows of each id, ordered by id, in parts that fit into memory."""
        pairs = f"SELECT {_PLACES} FROM gone AS b {join} new AS a ON b.id = a.id ORDER BY 1"  # noqa: S608
        for batch in self._database.sql(pairs).to_arrow_reader(batch_rows):
            piece = np.cumsum(batch.column("size").to_numpy()) // _BATCH_BYTES
            starts = np.flatnonzero(np.diff(piece, prepend=-1))
            for start, stop in pairwise([*starts, len(batch)]):
                yield batch.slice(start, stop - start)


def is_one_sided(diff: TableDiff) -> bool:
    """Whether every row that differs is in one of the two versions only."""
    return not (diff.plan.gone and diff.plan.new)


def one_sided_parts(diff: TableDiff) -> tuple[Part, ...]:
    """The parts of a diff that is one-sided, each for a reader of its own."""
    return diff.plan.gone or diff.plan.new


def one_sided_rows(diff: TableDiff, parts: Iterable[Part]) -> Iterator[pa.RecordBatch]:
    """Stream some parts of a one-sided diff in the shape of the diff."""
    assert is_one_sided(diff)
    is_delete = bool(diff.plan.gone)
    for part in parts:
        for rows in diff.part(part, is_new=not is_delete):
            yield _images(diff, rows, Op.DELETE if is_delete else Op.INSERT)


def _images(diff: TableDiff, rows: pa.RecordBatch, op: Op) -> pa.RecordBatch:
    schema, count = diff.schema, len(rows)
    present, absent = ("before", "after") if op is Op.DELETE else ("after", "before")
    fields = list(schema.field(present).type)
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    image = pa.StructArray.from_arrays(
        [
            columns[field.name] if field.name in columns else pa.nulls(count, field.type)
            for field in fields
        ],
        fields=fields,
    )
    columns = {
        "op": pa.repeat(pa.scalar(op.value, pa.string()), count),
        "id": rows.column(ID_COLUMN),
        "changed": pa.nulls(count, schema.field("changed").type),
        present: image,
        absent: pa.nulls(count, schema.field(absent).type),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
