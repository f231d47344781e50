"""Defines the interface through which an executor reads a graph, from memory or by index lookups.

`gathered` looks up values of the entities of a column by their positions.

Invariants:
- Within one run a position means the same entity in every column of a table. Tables may grow during
  a run; positions never change. There may be positions without an entity, which nothing leads to.
- Published edges have both endpoints. In a damaged graph a dangling edge is skipped, or its node
  has null properties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from omnigraph_lake.engine import frames

if TYPE_CHECKING:
    from omnigraph_lake.engine.access.adjacency import Adjacency
    from omnigraph_lake.engine.search import Corpus
    from omnigraph_lake.query.expressions import Expression, Ranking
    from omnigraph_lake.query.typed import EdgeStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Entities that may meet a condition; if it is `exact`, all of them do.

    Entities that were found by a ranking may have their scores by it.
    """

    positions: frames.Positions
    exact: bool = False
    scores: frames.Column | None = None


class GraphAccess(Protocol):
    """The tables of one snapshot as positions, columns and steps."""

    def size(self, table: str) -> int:
        """How many positions a table has."""
        ...

    def positions(self, table: str) -> frames.Positions:
        """The positions of all entities of a table, in order."""
        ...

    def column(self, table: str, name: str) -> frames.Column:
        """A property, or `id`, `src`, `dst`, of all entities, in the order of their positions."""
        ...

    def values(self, table: str, name: str, positions: frames.Positions) -> frames.Column:
        """The same of the entities at some positions; null at -1."""
        ...

    def candidates(
        self, table: str, predicate: Expression | None, columns: Sequence[str]
    ) -> Candidates | None:
        """A superset of the entities that meet a condition; None means all entities.

        `columns` are those that will be read next.
        """
        ...

    def ranked_candidates(
        self,
        table: str,
        predicate: Expression | None,
        by: Ranking,
        rows: int | None,
        columns: Sequence[str],
    ) -> Candidates | None:
        """A superset of the top rows of a ranking; None means all of them.

        `columns` are those that will be read next.
        """
        ...

    def corpus(self, table: str, field: str, query: str) -> Corpus:
        """The statistics that BM25 needs, over all texts of a type."""
        ...

    def adjacency(self, step: EdgeStep, *, distinct: bool, frontier: frames.Positions) -> Adjacency:
        """The steps over an edge type between two node types; at least those from the frontier."""
        ...


def gathered(access: GraphAccess, column: frames.EntityColumn, name: str) -> frames.Column:
    """A property of the entity of every row; null where there is no entity."""
    if column.which is None:
        return access.values(column.tables[0], name, column.positions)
    parts: list[frames.Column] = []
    places: list[frames.Positions] = []
    for table in column.tables:
        rows = np.flatnonzero(column.of_table(table))
        parts.append(access.values(table, name, column.positions[rows]))
        places.append(rows)
    rows = np.flatnonzero(column.positions == frames.ABSENT)
    parts.append(pa.nulls(len(rows), parts[0].type))
    places.append(rows)
    order = np.argsort(np.concatenate(places), kind="stable")
    return frames.whole(pa.chunked_array([frames.whole(part) for part in parts])).take(
        pa.array(order)
    )


def taken(values: frames.Column, positions: frames.Positions) -> frames.Column:
    """The values at some positions; null at -1."""
    absent = positions == frames.ABSENT
    return values.take(pa.array(positions, mask=absent) if absent.any() else pa.array(positions))
