"""The adjacency of one edge type, as two arrays of numbers (CSR).

Invariant: the ends of node `n` are at `offsets[n]` to `offsets[n + 1]`, sorted; `edges` are the
positions of the edges in their table, beside the ends. With `distinct`, each end counts once per
node, joined by the first of its edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from omnigraph.engine.frames import Mask, Positions, different, ranges
from omnigraph.query.typed import EdgeDirection

if TYPE_CHECKING:
    from omnigraph.engine.run import Run

_MARKED_FACTOR: Final = 4
"""A bitmap over all nodes is faster than sorting up to this ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjacency:
    """The steps over one edge type in one direction."""

    offsets: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int32] | Positions
    edges: npt.NDArray[np.int32] | Positions = field(repr=False)
    arrivals: npt.NDArray[np.int64] | None = field(repr=False, default=None)
    """How many steps lead to each node, if that is known."""

    def degrees(self, nodes: Positions) -> Positions:
        """How many steps lead from each of these nodes."""
        return self.offsets[nodes + 1] - self.offsets[nodes]

    def steps(self, nodes: Positions) -> tuple[Positions, Positions, Positions]:
        """All steps from these nodes: which of them, where to, and their places in the arrays."""
        starts = self.offsets[nodes]
        lengths = self.offsets[nodes + 1] - starts
        places = ranges(starts, lengths)
        owners = np.repeat(np.arange(len(nodes), dtype=np.int64), lengths)
        return owners, self.ends[places].astype(np.int64, copy=False), places

    def reached(self, nodes: Positions, run: Run) -> Positions:
        """The distinct nodes reached by a step from any of these, in order."""
        steps = self.degrees(nodes)
        marked = None
        if self.arrivals is not None and len(self.arrivals) <= _MARKED_FACTOR * int(steps.sum()):
            marked = np.zeros(len(self.arrivals), dtype=np.bool_)
        parts: list[npt.NDArray[np.int32] | Positions] = []
        for begin, end in runs_of(steps, run.limits.portion_rows):
            run.check()
            starts = self.offsets[nodes[begin:end]]
            if len(starts) == 1:
                ends = self.ends[int(starts[0]) : int(starts[0] + steps[begin])]
            else:
                ends = self.ends[ranges(starts, steps[begin:end])]
            if marked is None:
                parts.append(ends)
            else:
                marked[ends] = True
        if marked is not None:
            return np.flatnonzero(marked)
        return different(np.concatenate(parts, dtype=np.int64))

    def degrees_within(self, nodes: Positions, wanted: Mask) -> Positions:
        """How many steps lead from each of these nodes to one that is wanted."""
        total = int(self.degrees(nodes).sum())
        if total * 2 < len(self.ends):
            owners, ends, _ = self.steps(nodes)
            return np.bincount(owners[wanted[ends]], minlength=len(nodes))
        before = np.zeros(len(self.ends) + 1, dtype=np.int64)
        np.cumsum(wanted[self.ends], out=before[1:])
        return before[self.offsets[nodes + 1]] - before[self.offsets[nodes]]


def runs_of(steps: Positions, most: int) -> Iterator[tuple[int, int]]:
    """Runs of nodes with at most this many steps in total, or of one node with more."""
    done = np.cumsum(steps)
    begin = 0
    while begin < len(steps) or begin == 0:
        before = int(done[begin - 1]) if begin else 0
        end = max(int(np.searchsorted(done, before + most, side="right")), begin + 1)
        yield begin, end
        begin = end


def sorted_steps(
    sources: Positions, targets: Positions, direction: EdgeDirection
) -> tuple[Positions, Positions, Positions]:
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
    order = np.argsort(starts * width + ends, kind="stable")
    return starts[order], ends[order], edges[order]


def adjacency_of(
    starts: Positions, ends: Positions, edges: Positions, *, nodes: int, distinct: bool
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


def _narrow(values: Positions) -> npt.NDArray[np.int32] | Positions:
    """32-bit numbers where they fit, which halves the memory."""
    if len(values) and int(values.max()) > np.iinfo(np.int32).max:
        return values
    return values.astype(np.int32)
