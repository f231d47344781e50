"""Results that consist of counts only, computed without SQL.

Invariant: the counts equal those of SQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from omnigraph.engine.frames import Frame, Positions, different, require_countable
from omnigraph.engine.variables import EntityOf, Origin
from omnigraph.names import ID_COLUMN
from omnigraph.query.expressions import (
    Aggregate,
    AggregateFunction,
    Entity,
    Expression,
    PropertyOf,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Counter(Protocol):
    """A count over frames."""

    def add(self, frame: Frame) -> None: ...

    def total(self) -> int: ...


class RowCount:
    """How many rows there are."""

    def __init__(self) -> None:
        self._rows = 0

    def add(self, frame: Frame) -> None:
        self._rows += frame.count
        require_countable(float(self._rows))

    def total(self) -> int:
        return self._rows


class EntityCount:
    """How many different entities a variable holds."""

    def __init__(self, variable: str) -> None:
        self._variable = variable
        self._found: dict[str, list[Positions]] = {}

    def add(self, frame: Frame) -> None:
        column = frame.entities[self._variable]
        for table in column.tables:
            held = column.positions[column.of_table(table)]
            if len(held) > 1 and not (held[1:] > held[:-1]).all():
                held = different(held)
            parts = self._found.setdefault(table, [])
            parts.append(held)
            if len(parts) > 1 and sum(map(len, parts[1:])) > len(parts[0]):
                # Kept as one list that at least doubles, so that repeats do not pile up.
                self._found[table] = [different(np.concatenate(parts))]

    def total(self) -> int:
        return sum(
            len(each[0]) if len(each) == 1 else len(different(np.concatenate(each)))
            for each in self._found.values()
        )


def counters_of(
    expressions: Sequence[Expression], known: Mapping[str, Origin]
) -> list[Counter] | None:
    """A counter for every column, or None if a column is not a count."""
    found: list[Counter] = []
    for each in expressions:
        if not isinstance(each, Aggregate) or each.function is not AggregateFunction.COUNT:
            return None
        if each.argument is None:
            found.append(RowCount())
        elif each.distinct and _tells_apart(each.argument, known):
            assert isinstance(each.argument, Entity | PropertyOf)
            found.append(EntityCount(each.argument.variable))
        else:
            return None
    return found


def _tells_apart(argument: Expression, known: Mapping[str, Origin]) -> bool:
    """Whether different values of an expression are different entities: they, or ids of a type."""
    if isinstance(argument, Entity):
        return argument.variable in known
    if not isinstance(argument, PropertyOf) or argument.name != ID_COLUMN:
        return False
    origin = known.get(argument.variable)
    return isinstance(origin, EntityOf) and len(origin.tables) == 1
