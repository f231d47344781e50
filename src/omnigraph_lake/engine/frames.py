"""Represents rows of a pattern as columns of positions in the tables of their variables.

`RequiredColumns` says what later steps read, and `prune` reduces a frame to that.

Invariants:
- Frames are immutable.
- A position of -1 is the null of an optional part. The positions of a variable of a sub-pattern are
  the numbers of its matches.
- A variable that can be of several types says for each row which one.
- A row with a weight represents that many equal rows; a weight is at least one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph_lake.errors import QueryFailedError

if TYPE_CHECKING:
    from omnigraph_lake.query.expressions import Ranking


Positions: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Which: TypeAlias = npt.NDArray[np.int16]
"""Which table of several the entity of a row is in."""

_Number = TypeVar("_Number", bound=np.integer)

ABSENT: Final = -1
_COUNTABLE: Final = 2.0**62
_DENSE_FACTOR: Final = 64
"""Counting into an array of all positions is faster than sorting up to this ratio."""
_DENSE_ALWAYS: Final = 1 << 26
"""Marking this many positions takes little memory, whatever the ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityColumn:
    """One entity per row: the types it can have, which one it has, and its position there."""

    tables: tuple[str, ...]
    positions: Positions
    which: Which | None = None
    """Indexes into `tables`; None if there is one only."""

    def take(self, rows: Positions | Mask) -> EntityColumn:
        return replace(
            self,
            positions=self.positions[rows],
            which=None if self.which is None else self.which[rows],
        )

    def of_table(self, table: str) -> Mask:
        """The rows that hold an entity of this table."""
        present: Mask = self.positions != ABSENT
        if self.which is None:
            return present if self.tables == (table,) else np.zeros(len(present), dtype=np.bool_)
        if table not in self.tables:
            return np.zeros(len(present), dtype=np.bool_)
        same: Mask = self.which == self.tables.index(table)
        return present & same

    @property
    def nbytes(self) -> int:
        return self.positions.nbytes + (0 if self.which is None else self.which.nbytes)


def single_table(tables: tuple[str, ...], table: str, positions: Positions) -> EntityColumn:
    """A column that can hold entities of several tables, all of them in one."""
    if len(tables) == 1:
        return EntityColumn(tables=tables, positions=positions)
    which = np.full(len(positions), tables.index(table), dtype=np.int16)
    return EntityColumn(tables=tables, positions=positions, which=which)


def same_entities(left: EntityColumn, right: EntityColumn) -> Mask:
    """The rows in which two columns hold the same entity; null is none."""
    equal: Mask = left.positions == right.positions
    in_one_table = np.zeros(len(equal), dtype=np.bool_)
    for table in right.tables:
        in_one_table |= left.of_table(table) & right.of_table(table)
    return equal & in_one_table


POSITION_BITS: Final = 34
NUMBER_BITS: Final = 46
"""A number holds a position and, above it, the table: 2**34 positions of 2**12 tables."""


def numbers_of(column: EntityColumn, tables: tuple[str, ...] | None = None) -> Positions:
    """One number for each entity, none of them null: of one table its position.

    The tables are numbered as in the column, or as in `tables`, which has those of all rows.
    """
    tables = column.tables if tables is None else tables
    if len(tables) == 1 or not column.tables:  # no row has a variable that nothing can bind
        return column.positions
    if len(tables) > 1 << (NUMBER_BITS - POSITION_BITS):
        raise QueryFailedError(
            f"a variable can be of {len(tables):,} types, too many for one search",
            next_step="Name the types or the edges instead of `_`.",
        )
    places = [tables.index(table) if table in tables else 0 for table in column.tables]
    if column.which is None:
        return column.positions | (places[0] << POSITION_BITS)
    return column.positions | (np.array(places, dtype=np.int64)[column.which] << POSITION_BITS)


def from_numbers(tables: tuple[str, ...], numbers: Positions) -> EntityColumn:
    """The entities that `numbers_of` numbered."""
    if len(tables) == 1:
        return EntityColumn(tables=tables, positions=numbers)
    return EntityColumn(
        tables=tables,
        positions=numbers & ((1 << POSITION_BITS) - 1),
        which=(numbers >> POSITION_BITS).astype(np.int16),
    )


def within_tables(column: EntityColumn, tables: tuple[str, ...]) -> EntityColumn:
    """The same entities in a column of other tables, which has those of all rows."""
    if column.tables == tables:
        return column
    return from_numbers(tables, numbers_of(column, tables))


@dataclass(frozen=True, slots=True, kw_only=True)
class PathColumn:
    """One path per row as nodes and edges, row after row; null rows have a length of -1."""

    lengths: Positions
    nodes: EntityColumn
    edges: EntityColumn

    def take(self, rows: Positions | Mask) -> PathColumn:
        chosen = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        edge_counts = np.maximum(self.lengths, 0)
        node_counts = np.where(self.lengths < 0, 0, self.lengths + 1)
        return replace(
            self,
            lengths=self.lengths[chosen],
            nodes=self.nodes.take(ranges(_starts(node_counts)[chosen], node_counts[chosen])),
            edges=self.edges.take(ranges(_starts(edge_counts)[chosen], edge_counts[chosen])),
        )

    @property
    def nbytes(self) -> int:
        return self.lengths.nbytes + self.nodes.nbytes + self.edges.nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Some rows of a pattern."""

    rows: int
    entities: Mapping[str, EntityColumn] = field(default_factory=dict)
    paths: Mapping[str, PathColumn] = field(default_factory=dict)
    weights: Positions | None = None

    def take(self, rows: Positions | Mask) -> Frame:
        count = int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)
        return Frame(
            rows=count,
            entities={name: column.take(rows) for name, column in self.entities.items()},
            paths={name: path.take(rows) for name, path in self.paths.items()},
            weights=None if self.weights is None else self.weights[rows],
        )

    def with_entity(self, name: str, column: EntityColumn) -> Frame:
        return replace(self, entities={**self.entities, name: column})

    def with_path(self, name: str, column: PathColumn) -> Frame:
        return replace(self, paths={**self.paths, name: column})

    def weighted(self, factors: Positions) -> Frame:
        """Every row repeated this many times."""
        if self.weights is None:
            return replace(self, weights=factors)
        if _largest(self.weights) * _largest(factors) >= _COUNTABLE:
            require_countable(float((self.weights.astype(np.float64) * factors).max(initial=0)))
        return replace(self, weights=self.weights * factors)

    def only(self, names: frozenset[str]) -> Frame:
        """Without the variables that are no longer read."""
        return replace(
            self,
            entities={name: column for name, column in self.entities.items() if name in names},
            paths={name: path for name, path in self.paths.items() if name in names},
        )

    def parts(self, rows: int) -> Iterable[Frame]:
        """The same rows in frames of at most this many."""
        if self.rows <= rows:
            yield self
            return
        for start in range(0, self.rows, rows):
            yield self.take(np.arange(start, min(start + rows, self.rows)))

    @property
    def count(self) -> int:
        """How many rows it represents."""
        if self.weights is None:
            return self.rows
        if _largest(self.weights) * self.rows >= _COUNTABLE:
            require_countable(float(self.weights.sum(dtype=np.float64)))
        return int(self.weights.sum())

    @property
    def nbytes(self) -> int:
        columns: list[EntityColumn | PathColumn] = [*self.entities.values(), *self.paths.values()]
        own = 0 if self.weights is None else self.weights.nbytes
        return own + sum(column.nbytes for column in columns)


def ranges(starts: Positions, lengths: Positions) -> Positions:
    """The numbers from each start on, that many each, one after the other."""
    total = int(lengths.sum())
    if not total:
        return np.zeros(0, dtype=np.int64)
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(total, dtype=np.int64)


def different(numbers: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """Each number once, in order; much quicker than NumPy's own `unique`."""
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def ascend(positions: Positions) -> bool:
    """Whether each position is behind the one before it."""
    return bool((positions[1:] > positions[:-1]).all())


def _largest(numbers: Positions) -> float:
    return float(numbers.max(initial=0))


def _starts(lengths: Positions) -> Positions:
    return np.cumsum(lengths) - lengths


def joined(frames: Sequence[Frame]) -> Frame | None:
    """All rows of frames that have the same variables."""
    if len(frames) <= 1:
        return frames[0] if frames else None
    first = frames[0]
    weights = None
    if any(frame.weights is not None for frame in frames):
        weights = np.concatenate([_weights(frame) for frame in frames])
    return Frame(
        rows=sum(frame.rows for frame in frames),
        entities={
            name: _joined_entities([frame.entities[name] for frame in frames])
            for name in first.entities
        },
        paths={
            name: _joined_paths([frame.paths[name] for frame in frames]) for name in first.paths
        },
        weights=weights,
    )


def _weights(frame: Frame) -> Positions:
    return np.ones(frame.rows, dtype=np.int64) if frame.weights is None else frame.weights


def _joined_entities(columns: Sequence[EntityColumn]) -> EntityColumn:
    which = [column.which for column in columns if column.which is not None]
    return replace(
        columns[0],
        positions=np.concatenate([column.positions for column in columns]),
        which=np.concatenate(which) if which else None,
    )


def _joined_paths(columns: Sequence[PathColumn]) -> PathColumn:
    return replace(
        columns[0],
        lengths=np.concatenate([column.lengths for column in columns]),
        nodes=_joined_entities([column.nodes for column in columns]),
        edges=_joined_entities([column.edges for column in columns]),
    )


def merged_equal(frame: Frame, *, weighed: bool = True) -> Frame:
    """Equal rows as one row with their weight, or without it if the count is not needed.

    Rows of several variables are left alone: finding equal ones costs more than it saves.
    """
    if frame.paths or len(frame.entities) > 1:
        return frame
    if not frame.entities:
        total = frame.count
        weights = np.array([total], dtype=np.int64)
        return Frame(rows=1, weights=weights) if total else Frame(rows=0)
    ((name, column),) = frame.entities.items()
    if column.which is not None:
        return frame
    shifted = column.positions - ABSENT
    size = int(shifted.max(initial=0)) + 1
    if not weighed:
        slots = _each_once(shifted, size, frame.rows)
        return Frame(rows=len(slots), entities={name: replace(column, positions=slots + ABSENT)})
    if size <= _DENSE_FACTOR * max(frame.rows, 1):
        counted = count_slots(shifted, frame.weights, size)
        slots = np.flatnonzero(counted)
        totals = counted[slots]
    else:
        slots, inverse = np.unique(shifted, return_inverse=True)
        totals = count_slots(inverse, frame.weights, len(slots))
    return Frame(
        rows=len(slots),
        entities={name: replace(column, positions=slots + ABSENT)},
        weights=totals,
    )


def _each_once(shifted: Positions, size: int, rows: int) -> Positions:
    # Numbers of matches can be far apart, unlike positions in a table.
    if size > _DENSE_FACTOR * max(rows, 1) and size > _DENSE_ALWAYS:
        return different(shifted)
    there = np.zeros(size, dtype=np.bool_)
    there[shifted] = True
    return np.flatnonzero(there)


def count_slots(slots: Positions, weights: Positions | None, size: int) -> Positions:
    """How often each slot occurs, exactly: a float carries 53 bits of a weight, no more."""
    if weights is None:
        return np.bincount(slots, minlength=size)
    if int(weights.max(initial=0)) * max(len(weights), 1) < 2**53:
        return np.bincount(slots, weights=weights, minlength=size).astype(np.int64)
    require_countable(float(weights.sum(dtype=np.float64)))
    counted = np.zeros(size, dtype=np.int64)
    np.add.at(counted, slots, weights)
    return counted


def require_countable(rows: float) -> None:
    if rows >= _COUNTABLE:
        raise QueryFailedError(
            f"the pattern has about {rows:.0e} rows, more than 64 bits can count",
            next_step="Narrow the pattern.",
        )


Column: TypeAlias = pa.Array | pa.ChunkedArray


def whole(column: Column) -> pa.Array:
    """All chunks as one; texts of more than 2 GiB cannot be, and are refused by Arrow."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredColumns:
    """What later steps read.

    With `counted` equal rows may become one with a weight; without `weighed` it is not needed.
    """

    variables: frozenset[str]
    counted: bool
    weighed: bool = True

    def below(self, read: Iterable[str], new: Iterable[str | None] = ()) -> RequiredColumns:
        """What the steps below must provide to a step that reads some variables and adds others."""
        return replace(self, variables=self.variables.union(read).difference(new))


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """What a later ranking needs: its best rows, or all rows that have a rank."""

    by: Ranking
    rows: int | None


def prune(frame: Frame, wanted: RequiredColumns) -> Frame:
    """Only what later steps read; equal rows as one where that is allowed."""
    frame = frame.only(wanted.variables)
    return merged_equal(frame, weighed=wanted.weighed) if wanted.counted else frame
