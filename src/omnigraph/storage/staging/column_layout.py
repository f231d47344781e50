"""The columns a table will have, and the field numbers under which Lance will find their values.

Invariant: where a column's values come from and where they are stored depends on the pin and on the
wish alone, so every process that looks at both comes to the same layout.

Lance takes a new schema in two ways. Alone, it may say anything about fields that keep their
numbers. Together with new data files it must say of each of these what the old one said: the same
nullability, and no name that was another's. A stored column that cannot obey is moved: it gets a
new number in its old files. Indexes are tied to numbers, so a moved column loses its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias, assert_never

import pyarrow as pa

from omnigraph.errors import InvalidInputError
from omnigraph.storage.staging.field_numbers import (
    NumberedColumn,
    as_lance_writes,
    columns_of,
    first_free_number,
)

if TYPE_CHECKING:
    from lance import LanceDataset

    from omnigraph.storage.snapshot import TableEntry


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
    batches with only the number of rows.
    """

    columns: tuple[WantedColumn, ...]
    reads: tuple[str, ...] = ()

    @property
    def computes(self) -> bool:
        return any(isinstance(each, ComputedColumn) for each in self.columns)


class Place(StrEnum):
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
    place: Place
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
        return frozenset(number for each in self.columns for number in each.column.numbers)

    @property
    def moves(self) -> Mapping[int, int]:
        """The new numbers of stored fields that do not keep theirs."""
        return {
            old: new
            for each in self.columns
            if each.place is Place.MOVED and each.stored is not None
            for old, new in zip(each.stored.numbers, each.column.numbers, strict=True)
        }


def lay_out(entry: TableEntry, base: LanceDataset, change: ColumnChange) -> Layout:
    """Find every column its place.

    Raises:
        InvalidInputError: blobs would have to be written again, or values be read as another type.
    """
    stored = columns_of(base.lance_schema)
    target = pa.schema([each.field for each in change.columns])
    kept = [each.stored for each in change.columns if isinstance(each, KeptColumn)]
    assert len(set(target.names)) == len(target.names), "every column has a name of its own"
    assert len(set(kept)) == len(kept), "a stored column is kept once"
    made = as_lance_writes(target, storage_version=base.data_storage_version)
    has_rows = bool(base.get_fragments())
    free = first_free_number(base)
    placed: list[PlacedColumn] = []
    for each in change.columns:
        assert not has_rows or each.field.nullable or not isinstance(each, NullColumn)
        column = made[each.field.name]
        place = _place(each, stored, has_new_files=has_rows and change.computes)
        if place is not Place.AS_STORED:
            column = column.numbered(range(free, free + len(column.numbers)))
            free += len(column.numbers)
        old = _stored(entry, stored, each, column) if isinstance(each, KeptColumn) else None
        if old is not None and place is Place.AS_STORED:
            column = column.numbered(old.numbers)
        if place not in (Place.AS_STORED, Place.NOWHERE):
            _refuse_blobs(entry, each.field, column)
        placed.append(PlacedColumn(field=each.field, column=column, place=place, stored=old))
    return Layout(columns=tuple(placed))


def _place(
    wanted: WantedColumn, stored: Mapping[str, NumberedColumn], *, has_new_files: bool
) -> Place:
    name = wanted.field.name
    match wanted:
        case KeptColumn():
            changes_nullability = stored[wanted.stored].nullable != wanted.field.nullable
            takes_a_name = name != wanted.stored and name in stored
            is_refused = has_new_files and (changes_nullability or takes_a_name)
            return Place.MOVED if is_refused else Place.AS_STORED
        case NullColumn():
            return Place.NULLS_WRITTEN if has_new_files and name in stored else Place.NOWHERE
        case ComputedColumn():
            return Place.COMPUTED
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
