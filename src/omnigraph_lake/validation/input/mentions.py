"""Which columns the rows of an input mention: a merge keeps what a record does not mention.

A record mentions a property by naming it, also with null. A table mentions its columns in every
row; dicts and JSON records mention their own members.

Invariants:

- `None` in place of mentions says that every row mentions every column, and costs nothing.
- A cell that is not mentioned is null.
- The id is no property: it says which row is meant, and is never a part of mentions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

RowMask: TypeAlias = pa.BooleanArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Mentions:
    """The columns that some rows do not mention.

    `absent` are mentioned by no row. `partly` has, for columns that some rows mention, which rows
    do: one bit per row. Every other column is mentioned by all rows.
    """

    absent: frozenset[str] = frozenset()
    partly: Mapping[str, RowMask] = field(default_factory=dict)

    @property
    def open_columns(self) -> frozenset[str]:
        """The columns that at least one row does not mention."""
        return self.absent | self.partly.keys()

    def mask(self, column: str, row_count: int) -> RowMask:
        """The rows that mention a column."""
        mask = self.partly.get(column)
        if mask is None:
            mask = pa.repeat(pa.scalar(column not in self.absent), row_count)
        return mask

    def incomplete(self, row_count: int) -> RowMask:
        """The rows that do not mention every column."""
        if self.absent:
            return pa.repeat(pa.scalar(value=True), row_count)
        complete = pa.repeat(pa.scalar(value=True), row_count)
        for mask in self.partly.values():
            complete = pc.and_(complete, mask)
        return pc.invert(complete)

    def filter(self, rows: RowMask) -> Mentions | None:
        """The mentions of the rows that a mask selects."""
        partly = {name: mask.filter(rows) for name, mask in self.partly.items()}
        return mentions_of(self.absent, partly)

    def take(self, rows: pa.Array) -> Mentions | None:
        """The mentions of the rows at these positions, in this order."""
        partly = {name: mask.take(rows) for name, mask in self.partly.items()}
        return mentions_of(self.absent, partly)

    def completed(self, rows: RowMask) -> Mentions | None:
        """The same mentions, but the rows that a mask selects mention everything."""
        absent = dict.fromkeys(self.absent, rows)
        partly = {name: pc.or_(mask, rows) for name, mask in self.partly.items()}
        return mentions_of((), {**absent, **partly})


def mentions_of(absent: Iterable[str], masks: Mapping[str, RowMask]) -> Mentions | None:
    """Mentions in their smallest form: None if every row mentions every column."""
    counts = {name: mask.true_count for name, mask in masks.items()}
    nowhere = frozenset(absent) | {
        name for name, count in counts.items() if not count and len(masks[name])
    }
    partly = {name: mask for name, mask in masks.items() if 0 < counts[name] < len(mask)}
    return Mentions(absent=nowhere, partly=partly) if nowhere or partly else None


def concat_mentions(parts: Sequence[tuple[Mentions | None, int]]) -> Mentions | None:
    """The mentions of several tables one after the other, each with its number of rows."""
    filled = [(mentions, row_count) for mentions, row_count in parts if row_count]
    names = {name for mentions, _ in filled if mentions for name in mentions.open_columns}
    everything = Mentions()
    masks = {
        name: pa.concat_arrays(
            [(mentions or everything).mask(name, row_count) for mentions, row_count in filled]
        )
        for name in sorted(names)
    }
    return mentions_of((), masks)


def mask_of(flags: Iterable[bool] | np.ndarray) -> RowMask:
    """A mask of flags, one per row."""
    return pa.array(flags, pa.bool_())
