"""The interface by which an executor reads a graph: tables in memory, or index lookups.

Invariant: within one run a position means the same entity in every column of a table. Tables may
grow during a run, positions never change. Published edges have both endpoints: in a
damaged graph a dangling edge is skipped, or its node has null properties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from omnigraph.engine.access.adjacency import Adjacency
    from omnigraph.engine.chunks import Column
    from omnigraph.engine.frames import Positions
    from omnigraph.engine.text_scores import Corpus
    from omnigraph.query.expressions import Expression, Ranking
    from omnigraph.query.typed import EdgeDirection


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Entities that may meet a condition; if it is `exact`, all of them do."""

    positions: Positions
    exact: bool = False


class GraphAccess(Protocol):
    """The tables of one snapshot as positions, columns and steps."""

    def size(self, table: str) -> int:
        """How many entities of a table have positions."""
        ...

    def column(self, table: str, name: str) -> Column:
        """A property, or `id`, `src`, `dst`, of every entity that has a position."""
        ...

    def candidates(
        self, table: str, predicate: Expression | None, columns: Sequence[str]
    ) -> Candidates | None:
        """A superset of the entities that meet a condition; None means all entities.

        `columns` are those that will be read next.
        """
        ...

    def ranked_candidates(
        self, table: str, predicate: Expression | None, by: Ranking, rows: int | None
    ) -> Positions | None:
        """A superset of the positions of the top rows of a ranking; None means all of them."""
        ...

    def corpus(self, table: str, field: str, query: str) -> Corpus:
        """The statistics that BM25 needs, over all texts of a type."""
        ...

    def adjacency(
        self,
        edge: str,
        direction: EdgeDirection,
        *,
        distinct: bool,
        frontier: Positions,
    ) -> Adjacency:
        """The steps over an edge type; at least those from the frontier are in it."""
        ...
