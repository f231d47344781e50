"""Defines the interface through which an executor reads a graph, from memory or by index lookups.

`Adjacency` holds one edge type as arrays of numbers (CSR). `gathered` looks up values of the
entities of a column by their positions.

Invariants:
- Within one run a position means the same entity in every column of a table. Tables may grow during
  a run; positions never change.
- Published edges have both endpoints. In a damaged graph a dangling edge is skipped, or its node
  has null properties.
- In an adjacency the ends of node `n` are at `offsets[n]` to `offsets[n + 1]`, sorted. `edges` are
  the positions of the edges in their table, beside the ends. With `distinct`, each end counts once
  per node, joined by the first of its edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine import frames
from omnigraph.query.typed import EdgeDirection

if TYPE_CHECKING:
    from omnigraph.engine.run import Run
    from omnigraph.engine.search import Corpus
    from omnigraph.query.expressions import Expression, Ranking


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Entities that may meet a condition; if it is `exact`, all of them do."""

    positions: frames.Positions
    exact: bool = False


class GraphAccess(Protocol):
    """The tables of one snapshot as positions, columns and steps."""

    def size(self, table: str) -> int:
        """How many entities of a table have positions."""
        ...

    def column(self, table: str, name: str) -> frames.Column:
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

    def adjacency(
        self,
        edge: str,
        direction: EdgeDirection,
        *,
        distinct: bool,
        frontier: frames.Positions,
    ) -> Adjacency:
        """The steps over an edge type; at least those from the frontier are in it."""
        ...


_MARKED_FACTOR: Final = 4
"""A bitmap over all nodes is faster than sorting up to this ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjacency:
    """The steps over one edge type in one direction."""

    offsets: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int32] | frames.Positions
    edges: npt.NDArray[np.int32] | frames.Positions = field(repr=False)
    arrivals: npt.NDArray[np.int64] | None = field(repr=False, default=None)
    """How many steps lead to each node, if that is known."""

    def degrees(self, nodes: frames.Positions) -> frames.Positions:
        """How many steps lead from each of these nodes."""
        return self.offsets[nodes + 1] - self.offsets[nodes]

    def steps(
        self, nodes: frames.Positions
    ) -> tuple[frames.Positions, frames.Positions, frames.Positions]:
        """All steps from these nodes: which of them, where to, and their places in the arrays."""
        starts = self.offsets[nodes]
        lengths = self.offsets[nodes + 1] - starts
        places = frames.ranges(starts, lengths)
        owners = np.repeat(np.arange(len(nodes), dtype=np.int64), lengths)
        return owners, self.ends[places].astype(np.int64, copy=False), places

    def reached(self, nodes: frames.Positions, run: Run) -> frames.Positions:
        """The distinct nodes reached by a step from any of these, in order."""
        steps = self.degrees(nodes)
        marked = None
        if self.arrivals is not None and len(self.arrivals) <= _MARKED_FACTOR * int(steps.sum()):
            marked = np.zeros(len(self.arrivals), dtype=np.bool_)
        parts: list[npt.NDArray[np.int32] | frames.Positions] = []
        for begin, end in runs_of(steps, run.limits.portion_rows):
            run.check()
            starts = self.offsets[nodes[begin:end]]
            if len(starts) == 1:
                ends = self.ends[int(starts[0]) : int(starts[0] + steps[begin])]
            else:
                ends = self.ends[frames.ranges(starts, steps[begin:end])]
            if marked is None:
                parts.append(ends)
            else:
                marked[ends] = True
        if marked is not None:
            return np.flatnonzero(marked)
        return frames.different(np.concatenate(parts, dtype=np.int64))

    def degrees_within(self, nodes: frames.Positions, wanted: frames.Mask) -> frames.Positions:
        """How many steps lead from each of these nodes to one that is wanted."""
        total = int(self.degrees(nodes).sum())
        if total * 2 < len(self.ends):
            owners, ends, _ = self.steps(nodes)
            return np.bincount(owners[wanted[ends]], minlength=len(nodes))
        before = np.zeros(len(self.ends) + 1, dtype=np.int64)
        np.cumsum(wanted[self.ends], out=before[1:])
        return before[self.offsets[nodes + 1]] - before[self.offsets[nodes]]


def runs_of(steps: frames.Positions, most: int) -> Iterator[tuple[int, int]]:
    """Runs of nodes with at most this many steps in total, or of one node with more."""
    cumulative_steps = np.cumsum(steps)
    begin = 0
    while begin < len(steps) or begin == 0:
        before = int(cumulative_steps[begin - 1]) if begin else 0
        end = max(int(np.searchsorted(cumulative_steps, before + most, side="right")), begin + 1)
        yield begin, end
        begin = end


def sorted_steps(
    sources: frames.Positions, targets: frames.Positions, direction: EdgeDirection
) -> tuple[frames.Positions, frames.Positions, frames.Positions]:
    """From, to and edge of every step, in the order of the first two; unknown ends are left out.

    An edge from a node to itself is one step, also when edges are followed both ways.
    """
    edges = np.flatnonzero((sources >= 0) & (targets >= 0))
    sources, targets = sources[edges], targets[edges]
    starts, ends = sources, targets
    if direction is EdgeDirection.BACKWARD:
        starts, ends = targets, sources
    elif direction is EdgeDirection.EITHER:
        other = sources != targets
        starts = np.concatenate([sources, targets[other]])
        ends = np.concatenate([targets, sources[other]])
        edges = np.concatenate([edges, edges[other]])
    if not len(starts):
        return starts, ends, edges
    width = int(max(starts.max(), ends.max())) + 1
    # Sorted by end as well, because `adjacency_of` recognises only adjacent steps as equal.
    order = np.argsort(starts * width + ends, kind="stable")
    return starts[order], ends[order], edges[order]


def adjacency_of(
    starts: frames.Positions,
    ends: frames.Positions,
    edges: frames.Positions,
    *,
    nodes: int,
    distinct: bool,
) -> Adjacency:
    """The arrays of sorted steps, for a table of that many nodes to start from."""
    if distinct and len(starts):
        first = np.ones(len(starts), dtype=np.bool_)
        first[1:] = (starts[1:] != starts[:-1]) | (ends[1:] != ends[:-1])
        if not first.all():
            starts, ends, edges = starts[first], ends[first], edges[first]
    offsets = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(starts, minlength=nodes), out=offsets[1:])
    return Adjacency(offsets=offsets, ends=_narrow(ends), edges=_narrow(edges))


def _narrow(values: frames.Positions) -> npt.NDArray[np.int32] | frames.Positions:
    """32-bit numbers where they fit, which halves the memory."""
    if len(values) and int(values.max()) > np.iinfo(np.int32).max:
        return values
    return values.astype(np.int32)


def gathered(access: GraphAccess, column: frames.EntityColumn, name: str) -> frames.Column:
    """A property of the entity of every row; null where there is no entity."""
    if column.which is None:
        return taken(access.column(column.tables[0], name), column.positions)
    parts: list[frames.Column] = []
    places: list[frames.Positions] = []
    for table in column.tables:
        rows = np.flatnonzero(column.of_table(table))
        parts.append(taken(access.column(table, name), column.positions[rows]))
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
