"""Lays out the columns that a table will have, and the field numbers of their values in Lance.

Lance takes a new schema in two ways. Alone, it may say anything about fields that keep their
numbers. Together with new data files it must say of each of these what the old one said: the same
nullability, and no name that was another's. A stored column that cannot obey is moved: it gets a
new number in its old files. Indexes are tied to numbers, so a moved column loses its own.

Lance makes schemas with numbers of its own choosing only; the one form of a schema that carries
numbers in is the one it pickles to: a protobuf record per field, parents before children. Records
are edited here entry by entry, so what is not known here stays as Lance wrote it.

Invariants:

- Where a column's values come from and where they are stored depends on the pin and on the
  requested columns alone, so every process that looks at both comes to the same layout.
- A number that the table or one of its data files knows is never given to anything new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never

import pyarrow as pa
from lance.blob import BlobType
from lance.fragment import write_fragments
from lance.schema import LanceSchema

from omnigraph_lake.errors import InvalidInputError

if TYPE_CHECKING:
    from lance import LanceDataset

    from omnigraph_lake.storage.snapshot import TableEntry


_Record: TypeAlias = tuple[tuple[int, "int | bytes"], ...]

_NAME: Final = 2
_NUMBER: Final = 3
_PARENT: Final = 4
_NULLABLE: Final = 6
_EXTENSION: Final = 9
_METADATA: Final = 10
_KEY: Final = 12
_KEY_POSITION: Final = 13
_FREE_AT_THE_TOP: Final = frozenset(
    {_NAME, _NUMBER, _PARENT, _NULLABLE, _METADATA, _KEY, _KEY_POSITION}
)
_FREE_INSIDE: Final = frozenset({_NUMBER, _PARENT})
_NO_PARENT: Final = (1 << 64) - 1
_BLOBS: Final = BlobType().extension_name.encode()
_VARINT: Final = 0
_BYTES: Final = 2
_NOWHERE: Final = "memory://columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedColumn:
    """A column and the fields inside it, parents before children."""

    records: tuple[_Record, ...]

    @property
    def name(self) -> str:
        name = dict(self.records[0])[_NAME]
        assert isinstance(name, bytes)
        return name.decode()

    @property
    def nullable(self) -> bool:
        return bool(dict(self.records[0]).get(_NULLABLE, 0))

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(_number(record, _NUMBER) for record in self.records)

    @property
    def holds_blobs(self) -> bool:
        return bool(dict(self.records[0]).get(_EXTENSION) == _BLOBS)

    @property
    def shape(self) -> object:
        """What two columns share if both can read the same stored values, nulls aside."""
        first = self.numbers[0]
        return tuple(
            (
                _number(record, _PARENT) - first if depth else None,
                sorted(
                    (entry, value)
                    for entry, value in record
                    if entry not in (_FREE_INSIDE if depth else _FREE_AT_THE_TOP)
                ),
            )
            for depth, record in enumerate(self.records)
        )

    def numbered(self, numbers: Sequence[int]) -> NumberedColumn:
        """The same column under other numbers."""
        known = dict(zip(self.numbers, numbers, strict=True))
        return replace(self, records=tuple(_renumber(record, known) for record in self.records))


def columns_of(schema: LanceSchema) -> dict[str, NumberedColumn]:
    """The columns of a schema by name, in order."""
    columns: list[list[_Record]] = []
    _, (_, *fields) = _pickled(schema)
    for record in map(_parse, fields):
        if _number(record, _PARENT) == _NO_PARENT:
            columns.append([record])
        else:
            columns[-1].append(record)
    numbered_columns = (NumberedColumn(records=tuple(records)) for records in columns)
    return {column.name: column for column in numbered_columns}


def as_lance_writes(schema: pa.Schema, *, storage_version: str) -> dict[str, NumberedColumn]:
    """What Lance makes of a schema in a new table, by name; nothing is written anywhere."""
    transaction = write_fragments(
        schema.empty_table(),
        _NOWHERE,
        mode="create",
        return_transaction=True,
        data_storage_version=storage_version,
    )
    operation: Any = transaction.operation
    return columns_of(operation.new_schema)


def with_columns(schema: LanceSchema, columns: Iterable[NumberedColumn]) -> LanceSchema:
    """The schema with exactly these columns; its own metadata stays."""
    unpickle, (metadata, *_) = _pickled(schema)
    records = chain.from_iterable(column.records for column in columns)
    new_schema = unpickle(metadata, *map(_written, records))
    assert isinstance(new_schema, LanceSchema)
    return new_schema


def first_free_number(dataset: LanceDataset) -> int:
    """The lowest number above all that the table's schema and data files know."""
    stored = (column.numbers for column in columns_of(dataset.lance_schema).values())
    files = (
        file.fields for fragment in dataset.get_fragments() for file in fragment.metadata.files
    )
    return max(chain(chain.from_iterable(stored), chain.from_iterable(files)), default=-1) + 1


def _pickled(schema: LanceSchema) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """What makes the schema again, and out of what: its metadata, then its fields."""
    pickled = schema.__reduce__()
    assert isinstance(pickled, tuple)
    unpickle, arguments = pickled
    assert callable(unpickle)
    assert isinstance(arguments, tuple)
    return unpickle, arguments


def _number(record: _Record, entry: int) -> int:
    value = dict(record).get(entry, 0)
    assert isinstance(value, int)
    return value


def _renumber(record: _Record, known: Mapping[int, int]) -> _Record:
    parent = _number(record, _PARENT)
    entries = [entry for entry in record if entry[0] not in _FREE_INSIDE]
    entries.append((_NUMBER, known[_number(record, _NUMBER)]))
    entries.append((_PARENT, parent if parent == _NO_PARENT else known[parent]))
    return tuple(sorted(entries, key=lambda entry: entry[0]))


def _parse(record: bytes) -> _Record:
    rest = iter(record)
    return tuple(_entries(rest))


def _entries(rest: Iterator[int]) -> Iterator[tuple[int, int | bytes]]:
    for first in rest:
        key = _varint(first, rest)
        value = _varint(next(rest), rest)
        match key & 7:
            case 0:
                yield key >> 3, value
            case 2:
                yield key >> 3, bytes(next(rest) for _ in range(value))
            case kind:
                raise AssertionError(f"a field of Lance's has an entry of the unknown kind {kind}")


def _varint(first: int, rest: Iterator[int]) -> int:
    value, shift, byte = first & 0x7F, 7, first
    while byte & 0x80:
        byte = next(rest)
        value |= (byte & 0x7F) << shift
        shift += 7
    return value


def _written(record: _Record) -> bytes:
    parts = []
    for entry, value in record:
        if isinstance(value, int):
            parts.append(_as_varint(entry << 3 | _VARINT) + _as_varint(value))
        else:
            parts.append(_as_varint(entry << 3 | _BYTES) + _as_varint(len(value)) + value)
    return b"".join(parts)


def _as_varint(value: int) -> bytes:
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptColumn:
    """A stored column with all its values; name, nullability and metadata may be new."""

    field: pa.Field
    stored: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NullColumn:
    """A new column without a value in any row."""

    field: pa.Field


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedColumn:
    """A column whose values are computed from stored ones; it may replace a stored column."""

    field: pa.Field


WantedColumn: TypeAlias = KeptColumn | NullColumn | ComputedColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChange:
    """All columns of a table as they will be, in order; stored ones that are not kept go.

    `reads` names the stored columns that values are computed from. Without any, a computation gets
    batches with only the number of rows. `has_rows` tells that the same version changes rows.
    """

    columns: tuple[WantedColumn, ...]
    reads: tuple[str, ...] = ()
    has_rows: bool = False

    @property
    def computes(self) -> bool:
        return any(isinstance(column, ComputedColumn) for column in self.columns)


class ColumnPlacement(StrEnum):
    """Where the values of a column are after a change."""

    AS_STORED = "as_stored"
    """In the files and under the numbers they have."""
    MOVED = "moved"
    """In the files they are in, under new numbers; fragments without a file of it get one."""
    NOWHERE = "nowhere"
    """In no file: Lance reads null."""
    NULLS_WRITTEN = "nulls_written"
    """In new files that hold null alone, because a stored column had the name."""
    COMPUTED = "computed"
    """In new files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedColumn:
    """A column as it will be, with its numbers, and the stored one that it goes on with."""

    field: pa.Field
    column: NumberedColumn
    place: ColumnPlacement
    stored: NumberedColumn | None = None

    @property
    def becomes_required(self) -> bool:
        return self.stored is not None and self.stored.nullable and not self.field.nullable


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """All columns of a change, each in its place."""

    columns: tuple[PlacedColumn, ...]

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset(number for column in self.columns for number in column.column.numbers)

    @property
    def moves(self) -> Mapping[int, int]:
        """The new numbers of stored fields that do not keep theirs."""
        return {
            old: new
            for column in self.columns
            if column.place is ColumnPlacement.MOVED and column.stored is not None
            for old, new in zip(column.stored.numbers, column.column.numbers, strict=True)
        }

    def refuse_new_blobs(self, entry: TableEntry, base: LanceDataset) -> None:
        """Refuse a new column of blobs with new rows, if columns were dropped or get new files.

        Lance numbers the fields of blobs in new rows as if the table had no other numbers, so other
        columns of these rows would be read as null.
        """
        in_place = (ColumnPlacement.AS_STORED, ColumnPlacement.NOWHERE)
        has_new_files = any(column.place not in in_place for column in self.columns)
        stored = columns_of(base.lance_schema).values()
        numbers = sorted(number for column in stored for number in column.numbers)
        if not has_new_files and numbers == list(range(base.max_field_id + 1)):
            return
        for column in self.columns:
            if column.stored is None and column.column.holds_blobs:
                raise InvalidInputError(
                    f"column {column.field.name} of {entry.table_key} holds blobs and is new to "
                    "the table, and a change that brings it cannot also bring rows",
                    next_step="Merge or restore a commit first that has one of both only, or "
                    "export the rows (`omnigraph export --at REF`) and load them.",
                )


def lay_out(entry: TableEntry, base: LanceDataset, change: ColumnChange) -> Layout:
    """Find every column its place.

    Raises:
        InvalidInputError: blobs would have to be written again, or values be read as another type.
    """
    stored = columns_of(base.lance_schema)
    target = pa.schema([wanted_column.field for wanted_column in change.columns])
    kept_names = [
        wanted_column.stored
        for wanted_column in change.columns
        if isinstance(wanted_column, KeptColumn)
    ]
    assert len(set(target.names)) == len(target.names), "every column has a name of its own"
    assert len(set(kept_names)) == len(kept_names), "a stored column is kept once"
    lance_columns = as_lance_writes(target, storage_version=base.data_storage_version)
    has_rows = bool(base.get_fragments())
    has_new_files = change.has_rows or (has_rows and change.computes)
    free = first_free_number(base)
    placed_columns: list[PlacedColumn] = []
    for wanted_column in change.columns:
        # A version that changes rows, too, may replace all those that have no value.
        assert (
            not has_rows
            or change.has_rows
            or wanted_column.field.nullable
            or not isinstance(wanted_column, NullColumn)
        )
        column = lance_columns[wanted_column.field.name]
        place = _place(wanted_column, stored, has_new_files=has_new_files)
        if place is not ColumnPlacement.AS_STORED:
            column = column.numbered(range(free, free + len(column.numbers)))
            free += len(column.numbers)
        old = (
            _stored(entry, stored, wanted_column, column)
            if isinstance(wanted_column, KeptColumn)
            else None
        )
        if old is not None and place is ColumnPlacement.AS_STORED:
            column = column.numbered(old.numbers)
        if place not in (ColumnPlacement.AS_STORED, ColumnPlacement.NOWHERE):
            _refuse_blobs(entry, wanted_column.field, column)
        placed_columns.append(
            PlacedColumn(field=wanted_column.field, column=column, place=place, stored=old)
        )
    return Layout(columns=tuple(placed_columns))


def lay_out_added(entry: TableEntry, base: LanceDataset, schema: pa.Schema) -> Layout:
    """The layout of a table that keeps its columns and gets those that only `schema` has."""
    kept = set(base.schema.names)
    return lay_out(
        entry,
        base,
        ColumnChange(
            columns=tuple(
                KeptColumn(field=field, stored=field.name)
                if field.name in kept
                else NullColumn(field=field)
                for field in schema
            )
        ),
    )


def _place(
    wanted: WantedColumn, stored: Mapping[str, NumberedColumn], *, has_new_files: bool
) -> ColumnPlacement:
    name = wanted.field.name
    match wanted:
        case KeptColumn():
            changes_nullability = stored[wanted.stored].nullable != wanted.field.nullable
            takes_a_name = name != wanted.stored and name in stored
            is_refused = has_new_files and (changes_nullability or takes_a_name)
            return ColumnPlacement.MOVED if is_refused else ColumnPlacement.AS_STORED
        case NullColumn():
            return (
                ColumnPlacement.NULLS_WRITTEN
                if has_new_files and name in stored
                else ColumnPlacement.NOWHERE
            )
        case ComputedColumn():
            return ColumnPlacement.COMPUTED
        case _:
            assert_never(wanted)


def _stored(
    entry: TableEntry,
    stored: Mapping[str, NumberedColumn],
    wanted: KeptColumn,
    column: NumberedColumn,
) -> NumberedColumn:
    old = stored[wanted.stored]
    if old.shape != column.shape:
        raise InvalidInputError(
            f"column {wanted.stored} of {entry.table_key} is not stored as {wanted.field.type}, "
            "so its values cannot be read as such",
            next_step="Compute the column from the stored one.",
        )
    return old


def _refuse_blobs(entry: TableEntry, field: pa.Field, column: NumberedColumn) -> None:
    if column.holds_blobs:
        raise InvalidInputError(
            f"column {field.name} of {entry.table_key} holds blobs, and a change that computes "
            "values of other columns cannot also change whether it may be null, give it another "
            "column's name, or compute it",
            next_step="Change this column first, and the others in a change of their own.",
        )
