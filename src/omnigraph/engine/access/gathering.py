"""Values of the entities of a column, looked up by their positions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.engine.access.access import GraphAccess
from omnigraph.engine.chunks import Column, whole
from omnigraph.engine.frames import ABSENT, EntityColumn, Positions


def gathered(access: GraphAccess, column: EntityColumn, name: str) -> Column:
    """A property of the entity of every row; null where there is no entity."""
    if column.which is None:
        return taken(access.column(column.tables[0], name), column.positions)
    parts: list[Column] = []
    places: list[Positions] = []
    for table in column.tables:
        rows = np.flatnonzero(column.of_table(table))
        parts.append(taken(access.column(table, name), column.positions[rows]))
        places.append(rows)
    rows = np.flatnonzero(column.positions == ABSENT)
    parts.append(pa.nulls(len(rows), parts[0].type))
    places.append(rows)
    order = np.argsort(np.concatenate(places), kind="stable")
    return whole(pa.chunked_array([whole(each) for each in parts])).take(pa.array(order))


def taken(values: Column, positions: Positions) -> Column:
    """The values at some positions; null at -1."""
    absent = positions == ABSENT
    return values.take(pa.array(positions, mask=absent) if absent.any() else pa.array(positions))
