"""Names of node types in differences: edges store the numbers of the types of their ends.

Invariant: both versions are named by the same rule, and a type by its newer name. So renaming a
type, or giving an end more types, changes no edge of a difference; an edge whose type is implicit
equals one that stores it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.names import END_TYPE_COLUMNS, SOURCE_COLUMN, TARGET_COLUMN

if TYPE_CHECKING:
    from omnigraph_lake.schema.catalog import EdgeEnd, EdgeType


_SYSTEM_COLUMNS: Final = 3
"""`id`, `src` and `dst`, which the types of the ends follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedEnd:
    """An end of the edges of one version: names by number, and the number that null means."""

    names: Mapping[int, str]
    implicit: int | None

    def name_types(self, numbers: pa.Array) -> pa.Array:
        if self.implicit is not None:
            numbers = numbers.fill_null(self.implicit)
        known = pa.array(self.names, pa.int64())
        named = pa.array(self.names.values(), pa.string()).take(pc.index_in(numbers, known))
        # A number of no known type is damage, which is shown and not hidden.
        return pc.coalesce(named, numbers.cast(pa.string()))


@dataclass(frozen=True, slots=True, kw_only=True)
class NameEnds:
    """The rows of one version with the names of node types at their ends; tasks receive it."""

    stored: pa.Schema = field(repr=False)
    ends: Mapping[str, NamedEnd]
    """By the column with the types."""

    @property
    def lifted(self) -> pa.Schema:
        kept = [stored for stored in self.stored if stored.name not in self.ends]
        named = [pa.field(column, pa.string()) for column in self.ends]
        return pa.schema([*kept[:_SYSTEM_COLUMNS], *named, *kept[_SYSTEM_COLUMNS:]])

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        arrays = []
        for lifted in self.lifted:
            end = self.ends.get(lifted.name)
            if end is None:
                arrays.append(rows.column(lifted.name))
            elif lifted.name in rows.schema.names:
                arrays.append(end.name_types(rows.column(lifted.name)))
            else:
                arrays.append(end.name_types(pa.nulls(len(rows), pa.int64())))
        return pa.RecordBatch.from_arrays(arrays, schema=self.lifted)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTypes:
    """The node types at the ends of an edge type in two versions; None where it did not exist."""

    before: EdgeType | None
    after: EdgeType | None

    def lift(self, stored: pa.Schema, *, is_new: bool) -> NameEnds | None:
        """How the rows of a version are named; None if no end has several types in either."""
        declared = self.after if is_new else self.before
        ends = {
            END_TYPE_COLUMNS[column]: self._end(column, declared)
            for column in (SOURCE_COLUMN, TARGET_COLUMN)
            if any(end.is_polymorphic for end in self._versions(column))
        }
        return NameEnds(stored=stored, ends=ends) if ends else None

    def _versions(self, column: str) -> list[EdgeEnd]:
        """An end, before and after."""
        return [
            declared.source if column == SOURCE_COLUMN else declared.target
            for declared in (self.before, self.after)
            if declared is not None
        ]

    def _end(self, column: str, declared: EdgeType | None) -> NamedEnd:
        versions = self._versions(column)
        names = {number: name for end in versions for name, number in end.numbers().items()}
        if declared is None:
            return NamedEnd(names=names, implicit=None)
        end = declared.source if column == SOURCE_COLUMN else declared.target
        implicit = end.implicit_number if end.is_polymorphic else end.numbers()[end.only]
        return NamedEnd(names=names, implicit=implicit)
