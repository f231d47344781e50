"""Conditions on one entity, evaluated for a whole table or for given entities.

Invariant: the result is the same either way. A whole table is evaluated only if it is not much
larger than the given entities, and once per run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from omnigraph.engine.frames import EntityColumn, Frame, Mask

if TYPE_CHECKING:
    from omnigraph.engine.access.access import GraphAccess
    from omnigraph.engine.expressions.values import Values
    from omnigraph.query.expressions import Expression

_WHOLE_TABLE_FACTOR: Final = 4


class Filters:
    """The conditions of one run."""

    def __init__(self, access: GraphAccess, values: Values) -> None:
        self._access = access
        self._values = values
        self._known: dict[tuple[str, Expression], Mask] = {}

    def of_table(self, predicate: Expression, table: str) -> Mask:
        """Which entities of a table meet a condition, by position."""
        known = self._known.get((table, predicate))
        if known is None or len(known) != self._access.size(table):
            known = self._values.holds_in_table(predicate, table)
            self._known[table, predicate] = known
        return known

    def of_entities(self, predicate: Expression, variable: str, column: EntityColumn) -> Mask:
        """Which of these entities, none of them null, meet a condition."""
        if column.which is None:
            table = column.tables[0]
            size = self._access.size(table)
            if (table, predicate) in self._known or size <= _WHOLE_TABLE_FACTOR * len(
                column.positions
            ):
                return self.of_table(predicate, table)[column.positions]
            unique, inverse = np.unique(column.positions, return_inverse=True)
            once = Frame(
                rows=len(unique),
                entities={variable: EntityColumn(tables=column.tables, positions=unique)},
            )
            return self._values.holds(predicate, once)[inverse]
        rows = Frame(rows=len(column.positions), entities={variable: column})
        return self._values.holds(predicate, rows)
