"""Groups the rows of a frame with NumPy: a statement costs more than few rows do.

Keys are properties or entities of one type; equal keys are found by the positions of entities, so
each text is read once per entity and not once per row.

Invariants:
- The groups, their values and their order are those of SQL. What NumPy would compute differently
  (floats, sums beyond 53 bits, nulls in an order, lists, other aggregates, conditions on groups) is
  left to SQL.
- Memory is asked for before it is allocated; without it SQL, which can spill, takes over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake.engine.frames import (
    ABSENT,
    EntityColumn,
    Frame,
    Positions,
    ascend,
    different,
    whole,
)
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query.types import is_integer

if TYPE_CHECKING:
    import numpy.typing as npt

    from omnigraph_lake.engine.expressions.values import Values
    from omnigraph_lake.engine.frames import Mask
    from omnigraph_lake.engine.run import Run
    from omnigraph_lake.engine.shapes import Shape
    from omnigraph_lake.query.plan import Order
    from omnigraph_lake.query.typed import TypedProjection

ROWS_MOST = 1 << 22
"""More rows are grouped by SQL, which can use all cores and spill."""
_BYTES_PER_ROW: Final = 64
_EXACT: Final = 2**53
_CODES_MOST: Final = 2**62
_DENSE_FACTOR: Final = 4
_CUT_FACTOR: Final = 4
"""A limit of fewer groups than one in so many is applied before all groups are ordered."""


class NeedsSql(Exception):  # noqa: N818 - a signal within this module, never an answer
    """The groups are left to SQL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The rows of a result that are wanted, after the first ones."""

    offset: int
    limit: int | None

    @property
    def end(self) -> int | None:
        return None if self.limit is None else self.offset + self.limit


def can_group(rows: int, run: Run) -> bool:
    """Whether so many rows are grouped without SQL, as far as their number decides."""
    return rows <= ROWS_MOST and run.has_room(rows * _BYTES_PER_ROW)


def group_rows(
    shape: Shape, frame: Frame, window: Window, *, values: Values
) -> list[pa.Array] | None:
    """The columns of the result of groups or distinct rows; None if SQL has to compute them."""
    if (
        shape.having is not None
        or shape.computed
        or (shape.order is None and window.limit is not None)
    ):
        return None
    try:
        return _Grouping(shape.projections, frame, values).result(shape.order, window)
    except NeedsSql:
        return None


class _Grouping:
    """The rows of a frame by the number of their group."""

    def __init__(
        self, projections: Sequence[TypedProjection], frame: Frame, values: Values
    ) -> None:
        self._projections = projections
        self._frame = frame
        self._values = values
        rows = np.arange(frame.rows, dtype=np.int64)
        codes = self._combined_codes(_deciding_keys(projections))
        if codes is None:
            self._size, self._groups, self._first = frame.rows, rows, rows
        else:
            distinct, inverse = _number(codes)
            self._size = len(distinct)
            self._groups = rows if inverse is None else inverse
            self._first = np.zeros(self._size, dtype=np.int64)
            self._first[self._groups] = rows
        self._aggregates: dict[int, pa.Array] = {
            at: self._aggregate(projection.expression)
            for at, projection in enumerate(projections)
            if isinstance(projection.expression, ex.Aggregate)
        }

    def result(self, order: Order | None, window: Window) -> list[pa.Array]:
        chosen = (
            np.arange(self._size, dtype=np.int64)[window.offset : window.end]
            if order is None
            else self._order(order, window)
        )
        return [self._column(at, chosen) for at in range(len(self._projections))]

    def _column(self, at: int, groups: Positions) -> pa.Array:
        """A column of the result, of some groups."""
        aggregate = self._aggregates.get(at)
        if aggregate is not None:
            return aggregate.take(pa.array(groups))
        rows = self._frame.take(self._first[groups])
        return whole(self._values.leaf(self._projections[at].expression, rows))

    # Keys

    def _combined_codes(self, keys: Sequence[ex.Expression]) -> Positions | None:
        """A number for every row, the same for equal keys; None if no two rows have equal keys."""
        combined, bound = np.zeros(self._frame.rows, dtype=np.int64), 1
        for key in keys:
            codes, size = self._codes(key)
            if size == self._frame.rows and _is_entity(key):
                return None
            if bound * size >= _CODES_MOST:
                raise NeedsSql
            combined = codes if bound == 1 else combined * size + codes
            bound *= max(size, 1)
        return combined

    def _codes(self, key: ex.Expression) -> tuple[Positions, int]:
        """A number below a bound for every row, the same for equal keys."""
        assert isinstance(key, ex.PropertyOf | ex.Entity)
        entities = self._entities(key.variable)
        positions, inverse = _number(entities.positions)
        if not _is_entity(key):
            one_each = Frame(
                rows=len(positions),
                entities={key.variable: EntityColumn(tables=entities.tables, positions=positions)},
            )
            texts = whole(self._values.leaf(key, one_each))
            if not _is_plain(texts.type):
                raise NeedsSql
            encoded = texts.dictionary_encode()
            bound = len(encoded.dictionary) + 1
            codes = encoded.indices.fill_null(bound - 1).to_numpy().astype(np.int64)
            return (codes if inverse is None else codes[inverse]), bound
        numbers = np.arange(len(positions), dtype=np.int64) if inverse is None else inverse
        return numbers, len(positions)

    def _entities(self, variable: str) -> EntityColumn:
        column = self._frame.entities.get(variable)
        if column is None or column.which is not None:
            raise NeedsSql
        return column

    # Values of groups

    def _aggregate(self, aggregate: ex.Aggregate) -> pa.Array:
        argument, function = aggregate.argument, aggregate.function
        if argument is None:
            return pa.array(self._total(self._weights()))
        if not isinstance(argument, ex.PropertyOf | ex.Entity):
            raise NeedsSql
        if function is ex.AggregateFunction.COUNT:
            if aggregate.distinct:
                return pa.array(self._count_distinct(argument))
            return pa.array(self._total(np.where(self._present(argument), self._weights(), 0)))
        if aggregate.distinct or isinstance(argument, ex.Entity) or not is_integer(argument.type):
            raise NeedsSql
        numbers, present = self._numbers(argument)
        if function not in {ex.AggregateFunction.SUM, ex.AggregateFunction.AVERAGE}:
            raise NeedsSql
        weights = self._weights()
        totals = self._total(np.where(present, numbers, 0), weights)
        counts = self._total(np.where(present, weights, 0))
        if function is ex.AggregateFunction.SUM:
            return pa.array(totals, mask=counts == 0)
        means = totals.astype(np.float64) / np.maximum(counts, 1)
        return pa.array(means, mask=counts == 0)

    def _weights(self) -> Positions:
        if self._frame.weights is not None:
            return self._frame.weights
        return np.ones(self._frame.rows, dtype=np.int64)

    def _total(self, numbers: Positions, weights: Positions | None = None) -> Positions:
        """The sums of groups, while a double can hold them."""
        # The least integer has no absolute value of its type.
        largest = max(float(numbers.max(initial=0)), -float(numbers.min(initial=0)))
        if weights is not None:
            largest *= float(weights.max(initial=0))
        if largest * max(len(numbers), 1) >= _EXACT:
            raise NeedsSql
        products = numbers if weights is None else numbers * weights
        sums = np.bincount(self._groups, weights=products, minlength=self._size)
        return sums.astype(np.int64)

    def _present(self, argument: ex.PropertyOf | ex.Entity) -> Mask:
        if isinstance(argument, ex.Entity):
            there: Mask = self._entities(argument.variable).positions != ABSENT
            return there
        self._entities(argument.variable)
        column = whole(self._values.leaf(argument, self._frame))
        valid: Mask = column.is_valid().to_numpy(zero_copy_only=False)
        return valid

    def _numbers(self, argument: ex.PropertyOf) -> tuple[Positions, Mask]:
        self._entities(argument.variable)
        column = whole(self._values.leaf(argument, self._frame))
        if not pat.is_integer(column.type) or column.type == pa.uint64():
            raise NeedsSql
        present: Mask = column.is_valid().to_numpy(zero_copy_only=False)
        numbers = (column.fill_null(0) if column.null_count else column).to_numpy()
        return numbers.astype(np.int64), present

    def _count_distinct(self, argument: ex.PropertyOf | ex.Entity) -> Positions:
        """How many different entities each group has."""
        if not _is_entity(argument):
            raise NeedsSql
        positions = self._entities(argument.variable).positions
        there = positions != ABSENT
        bound = int(positions.max(initial=0)) + 1
        if self._size * bound >= _CODES_MOST:
            raise NeedsSql
        pairs = different(self._groups[there] * bound + positions[there])
        return np.bincount(pairs // bound, minlength=self._size).astype(np.int64)

    # Order

    def _order(self, order: Order, window: Window) -> Positions:
        if order.ranking is not None:
            raise NeedsSql
        places = {projection.column.name: at for at, projection in enumerate(self._projections)}
        keys = [(places[str(key.column)], key.descending) for key in order.keys]
        keys += [(places[tie], False) for tie in order.ties]
        if any(isinstance(self._projections[at].expression, ex.Entity) for at, _ in keys):
            raise NeedsSql
        groups = self._cut(*keys[0], window)
        columns = {f"k{at}": self._column(at, groups) for at, _ in keys}
        for column in columns.values():
            if column.null_count or not is_ordered_alike(column):
                raise NeedsSql
        directions = [
            (f"k{at}", "descending" if descending else "ascending") for at, descending in keys
        ]
        in_order = pc.sort_indices(pa.table(columns), sort_keys=directions).to_numpy()
        chosen: Positions = groups[in_order[window.offset : window.end].astype(np.int64)]
        return chosen

    def _cut(self, at: int, descending: bool, window: Window) -> Positions:  # noqa: FBT001
        """The groups that can be in the window, by the first key alone."""
        aggregate, end = self._aggregates.get(at), window.end
        groups = np.arange(self._size, dtype=np.int64)
        if aggregate is None or aggregate.null_count or end is None:
            return groups
        if not end or end * _CUT_FACTOR >= self._size:
            return groups
        numbers: npt.NDArray[np.float64 | np.int64] = aggregate.to_numpy()
        ranked = -numbers if descending else numbers
        reached: Positions = groups[ranked <= np.partition(ranked, end - 1)[end - 1]]
        return reached


def _deciding_keys(projections: Sequence[TypedProjection]) -> list[ex.Expression]:
    """Entities first, and no property of one: it is equal wherever the entity is."""
    keys = [
        projection.expression
        for projection in projections
        if not isinstance(projection.expression, ex.Aggregate)
    ]
    if not all(isinstance(key, ex.PropertyOf | ex.Entity) for key in keys):
        raise NeedsSql
    entities = {key.variable for key in keys if _is_entity(key)}
    deciding = [
        key
        for key in keys
        if _is_entity(key) or (isinstance(key, ex.PropertyOf) and key.variable not in entities)
    ]
    return sorted(deciding, key=lambda key: not _is_entity(key))


def _is_entity(key: ex.Expression) -> TypeGuard[ex.PropertyOf | ex.Entity]:
    return isinstance(key, ex.Entity) or (isinstance(key, ex.PropertyOf) and key.name == ID_COLUMN)


def is_ordered_alike(column: pa.Array) -> bool:
    """Whether Arrow orders these values, none of them null, as SQL does."""
    if pat.is_floating(column.type):
        return not pc.any(pc.is_nan(column)).as_py()
    return _is_plain(column.type)


def _is_plain(kind: pa.DataType) -> bool:
    """Whether Arrow compares values of the type, none of them null, as SQL does."""
    return bool(
        pat.is_string(kind)
        or pat.is_integer(kind)
        or pat.is_boolean(kind)
        or pat.is_date(kind)
        or pat.is_timestamp(kind)
    )


def _number(values: Positions) -> tuple[Positions, Positions | None]:
    """The different values in order, and the place of each value among them, None if the same."""
    if ascend(values):
        return values, None
    low = int(values.min(initial=0))
    size = int(values.max(initial=0)) - low + 1
    if size > _DENSE_FACTOR * len(values):
        distinct, inverse = np.unique(values, return_inverse=True)
        return distinct, inverse
    shifted = values - low
    is_there = np.zeros(size, dtype=np.bool_)
    is_there[shifted] = True
    distinct = np.flatnonzero(is_there)
    places = np.cumsum(is_there) - 1
    return distinct + low, places[shifted]
