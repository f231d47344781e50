"""Holds the steps over one edge type as arrays of numbers (CSR), and changes of them on top.

`Adjacency` has the arrays of a base and a `Patch`: all steps of the nodes whose steps are no longer
those of the base. Every node is in one of both, so a step is found at the cost of one lookup more.

Invariants:
- In the arrays the ends of node `n` are at `offsets[n]` to `offsets[n + 1]`, sorted; nodes behind
  the arrays have no steps there. `edges` are the positions of the edges in their table, beside the
  ends. With `distinct`, each end counts once per node, joined by the first of its edges.
- The place of a step is its index in the arrays, or, behind them, in those of the patch.
- A patched adjacency has the same steps as one that is built from the changed edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from omnigraph_lake.engine import frames
from omnigraph_lake.query.ast import EdgeDirection

if TYPE_CHECKING:
    from omnigraph_lake.engine.run import Run

Numbers: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.int64]

_MARKED_FACTOR: Final = 4
"""A bitmap over all nodes is faster than sorting up to this ratio."""
_SOUGHT_MOST: Final = 4_096
"""Up to so many nodes are sought among those of a patch; more are marked."""
_LISTED_FACTOR: Final = 4
"""The degrees of all nodes are computed at once for one node in so many, or more."""
_PACKED_BITS: Final = 63


class Steps(NamedTuple):
    """From, to and edge of steps."""

    starts: frames.Positions
    ends: frames.Positions
    edges: frames.Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """All steps of some nodes, as arrays like those of an adjacency; `nodes` are in order."""

    nodes: frames.Positions
    offsets: frames.Positions
    ends: frames.Positions
    edges: frames.Positions
    replaced_ends: frames.Positions
    """The ends that the arrays of the base have for these nodes."""


@dataclass(frozen=True, kw_only=True)
class Adjacency:
    """The steps over one edge type in one direction."""

    offsets: Numbers
    ends: Numbers
    edges: Numbers = field(repr=False)
    arrivals: Numbers | None = field(repr=False, default=None)
    """How many steps of the arrays lead to each node, if that is known."""
    patch: Patch | None = None
    starts_live: int | None = None
    """How many nodes there are to start from, if that is known."""
    start_size: int | None = None
    """How many positions the table of the starts has, if that can be more than in the arrays."""
    end_size: int | None = None

    def extents(self, nodes: frames.Positions) -> tuple[frames.Positions, frames.Positions]:
        """The place of the first step from each of these nodes, and how many steps there are."""
        first, lengths = self._base_extents(nodes)
        if self.patch is not None:
            rows, at = self._find_patched(nodes)
            if len(rows):
                begin = self.patch.offsets[at]
                first[rows] = begin + len(self.ends)
                lengths[rows] = self.patch.offsets[at + 1] - begin
        return first, lengths

    def degrees(self, nodes: frames.Positions) -> frames.Positions:
        """How many steps lead from each of these nodes."""
        last = len(self.offsets) - 1
        if len(nodes) * _LISTED_FACTOR < last or self._is_behind(nodes):
            return self.extents(nodes)[1]
        lengths: frames.Positions = np.diff(self.offsets)[nodes].astype(np.int64, copy=False)
        if self.patch is not None:
            rows, at = self._find_patched(nodes)
            lengths[rows] = self.patch.offsets[at + 1] - self.patch.offsets[at]
        return lengths

    def ends_at(self, places: frames.Positions) -> frames.Positions:
        """Where the steps at some places lead to."""
        return self._at(places, self.ends, None if self.patch is None else self.patch.ends)

    def edges_at(self, places: frames.Positions) -> frames.Positions:
        """The edges of the steps at some places."""
        return self._at(places, self.edges, None if self.patch is None else self.patch.edges)

    def steps(
        self, nodes: frames.Positions
    ) -> tuple[frames.Positions, frames.Positions, frames.Positions]:
        """All steps from these nodes: which of them, where to, and their places."""
        first, lengths = self.extents(nodes)
        places = frames.ranges(first, lengths)
        owners = np.repeat(np.arange(len(nodes), dtype=np.int64), lengths)
        return owners, self.ends_at(places), places

    @property
    def has_parallels(self) -> bool:
        """Whether two steps of the arrays lead from one node to the same one."""
        equal = self.ends[1:] == self.ends[:-1]
        borders = self.offsets[1:-1]
        equal[borders[(borders > 0) & (borders < len(self.ends))] - 1] = False
        return bool(equal.any())

    def all_steps(self) -> Steps:
        """The steps of the arrays, in order."""
        lengths = np.diff(self.offsets)
        return Steps(
            np.repeat(np.arange(len(lengths), dtype=np.int64), lengths),
            self.ends.astype(np.int64),
            self.edges.astype(np.int64),
        )

    @cached_property
    def arrival_counts(self) -> frames.Positions | None:
        """How many steps lead to each node, if that is known."""
        if self.arrivals is None:
            return None
        size = len(self.arrivals) if self.end_size is None else self.end_size
        # The arrays may be those of a later version, with nodes that this one does not have: the
        # patch takes away all steps to them.
        counts = np.zeros(max(size, len(self.arrivals)), dtype=np.int64)
        counts[: len(self.arrivals)] = self.arrivals
        if self.patch is not None:
            np.subtract.at(counts, self.patch.replaced_ends, 1)
            np.add.at(counts, self.patch.ends, 1)
        return counts[:size]

    def starts_everywhere(self, nodes: frames.Positions) -> bool:
        """Whether these are all nodes there are, each once."""
        return self.starts_live == len(nodes) and self.arrivals is not None and frames.ascend(nodes)

    def reached(self, nodes: frames.Positions, run: Run) -> frames.Positions:
        """The distinct nodes reached by a step from any of these, in order."""
        first, steps = self.extents(nodes)
        marked = None
        if self.arrivals is not None:
            size = len(self.arrivals) if self.end_size is None else self.end_size
            if size <= _MARKED_FACTOR * int(steps.sum()):
                marked = np.zeros(size, dtype=np.bool_)
        parts: list[frames.Positions] = []
        for begin, end in runs_of(steps, run.limits.portion_rows):
            run.check()
            ends = self.ends_at(frames.ranges(first[begin:end], steps[begin:end]))
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
        first, lengths = self._base_extents(nodes)
        before = _count_before(wanted[self.ends])
        degrees: frames.Positions = before[first + lengths] - before[first]
        if self.patch is not None:
            rows, at = self._find_patched(nodes)
            before = _count_before(wanted[self.patch.ends])
            degrees[rows] = before[self.patch.offsets[at + 1]] - before[self.patch.offsets[at]]
        return degrees

    def _base_extents(self, nodes: frames.Positions) -> tuple[frames.Positions, frames.Positions]:
        if self._is_behind(nodes):
            last = len(self.offsets) - 1
            first = self.offsets[np.minimum(nodes, last)].astype(np.int64, copy=False)
            return first, self.offsets[np.minimum(nodes + 1, last)] - first
        first = self.offsets[nodes].astype(np.int64, copy=False)
        return first, self.offsets[nodes + 1] - first

    def _is_behind(self, nodes: frames.Positions) -> bool:
        """Whether some of the nodes came after the arrays were built."""
        last = len(self.offsets) - 1
        if self.start_size is None or self.start_size <= last:
            return False
        return int(nodes.max(initial=0)) >= last

    def _find_patched(self, nodes: frames.Positions) -> tuple[frames.Positions, frames.Positions]:
        """Which of these nodes are in the patch, and where there."""
        assert self.patch is not None
        if len(nodes) > max(_SOUGHT_MOST, len(self.patch.nodes)) and frames.ascend(nodes):
            rows, same = _find_each(self.patch.nodes, nodes)
            return rows[same], np.flatnonzero(same)
        if len(nodes) > _SOUGHT_MOST:
            rows = np.flatnonzero(self._marks[np.minimum(nodes, len(self._marks) - 1)])
        else:
            rows = np.arange(len(nodes), dtype=np.int64)
        at, same = _find_each(nodes[rows], self.patch.nodes)
        return rows[same], at[same]

    @cached_property
    def _marks(self) -> frames.Mask:
        """Which nodes are in the patch; the last one stands for those behind it."""
        assert self.patch is not None
        marks = np.zeros(int(self.patch.nodes[-1]) + 2, dtype=np.bool_)
        marks[self.patch.nodes] = True
        return marks

    def _at(
        self, places: frames.Positions, base: Numbers, patched: frames.Positions | None
    ) -> frames.Positions:
        if patched is None or not len(places) or int(places.max()) < len(base):
            return base[places].astype(np.int64, copy=False)
        values = np.empty(len(places), dtype=np.int64)
        inside = places < len(base)
        values[inside] = base[places[inside]]
        values[~inside] = patched[places[~inside] - len(base)]
        return values


def _find_each(
    wanted: frames.Positions, ascending: frames.Positions
) -> tuple[frames.Positions, frames.Mask]:
    """Where some nodes would be among others, of which there are some, and which are there."""
    at = np.searchsorted(ascending, wanted)
    same: frames.Mask = ascending[np.minimum(at, len(ascending) - 1)] == wanted
    return at, same


def _count_before(mask: frames.Mask) -> frames.Positions:
    """How many are true before each place."""
    before = np.zeros(len(mask) + 1, dtype=np.int64)
    np.cumsum(mask, out=before[1:])
    return before


def runs_of(steps: frames.Positions, most: int) -> Iterator[tuple[int, int]]:
    """Runs of nodes with at most this many steps in total, or of one node with more."""
    cumulative_steps = np.cumsum(steps)
    begin = 0
    while begin < len(steps) or begin == 0:
        before = int(cumulative_steps[begin - 1]) if begin else 0
        end = max(int(np.searchsorted(cumulative_steps, before + most, side="right")), begin + 1)
        yield begin, end
        begin = end


def sorted_steps(sources: Numbers, targets: Numbers, direction: EdgeDirection) -> Steps:
    """Every step in the order of its nodes; edges with an unknown end (-1) are skipped.

    An edge from a node to itself is one step, also when edges are followed both ways.
    """
    edges = np.flatnonzero((sources >= 0) & (targets >= 0))
    if len(edges) < len(sources):
        sources, targets = sources[edges], targets[edges]
    return _in_order(
        direct_steps(
            sources.astype(np.int64, copy=False),
            targets.astype(np.int64, copy=False),
            edges,
            direction,
        )
    )


def direct_steps(
    sources: frames.Positions,
    targets: frames.Positions,
    edges: frames.Positions,
    direction: EdgeDirection,
) -> Steps:
    """The steps that some edges allow."""
    if direction is EdgeDirection.FORWARD:
        return Steps(sources, targets, edges)
    if direction is EdgeDirection.BACKWARD:
        return Steps(targets, sources, edges)
    other = sources != targets
    return Steps(
        np.concatenate([sources, targets[other]]),
        np.concatenate([targets, sources[other]]),
        np.concatenate([edges, edges[other]]),
    )


def _in_order(steps: Steps) -> Steps:
    """Sorted by end and edge as well: `adjacency_of` recognises only adjacent steps as equal."""
    if not len(steps.starts):
        return steps
    end_bits, edge_bits = (int(part.max()).bit_length() for part in (steps.ends, steps.edges))
    if int(steps.starts.max()).bit_length() + end_bits + edge_bits <= _PACKED_BITS:
        # One number holds a whole step, and sorting numbers is several times faster than places.
        packed = (steps.starts << (end_bits + edge_bits)) | (steps.ends << edge_bits) | steps.edges
        packed.sort()
        return Steps(
            packed >> (end_bits + edge_bits),
            (packed >> edge_bits) & ((1 << end_bits) - 1),
            packed & ((1 << edge_bits) - 1),
        )
    order = np.lexsort((steps.edges, steps.ends, steps.starts))
    return Steps(steps.starts[order], steps.ends[order], steps.edges[order])


def _first_of_equals(steps: Steps) -> frames.Mask:
    first = np.ones(len(steps.starts), dtype=np.bool_)
    first[1:] = (steps.starts[1:] != steps.starts[:-1]) | (steps.ends[1:] != steps.ends[:-1])
    return first


def distinct_steps(steps: Steps) -> Steps:
    """Of steps in order, the first one between each two nodes."""
    first = _first_of_equals(steps)
    return steps if first.all() else Steps(*(part[first] for part in steps))


def adjacency_of(
    starts: frames.Positions,
    ends: frames.Positions,
    edges: frames.Positions,
    *,
    nodes: int,
    distinct: bool,
) -> Adjacency:
    """The arrays of sorted steps, for a table of that many nodes to start from."""
    steps = Steps(starts, ends, edges)
    if distinct and len(starts):
        steps = distinct_steps(steps)
    offsets = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(steps.starts, minlength=nodes), out=offsets[1:])
    return Adjacency(offsets=narrow(offsets), ends=narrow(steps.ends), edges=narrow(steps.edges))


def narrow(values: Numbers) -> Numbers:
    """32-bit numbers where they fit, which halves the memory."""
    if len(values) and int(values.max()) > np.iinfo(np.int32).max:
        return values
    return values.astype(np.int32, copy=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeChanges:
    """Edges that a base has and a version has not, and the other way round, with their nodes."""

    removed: Steps
    added: Steps

    @property
    def count(self) -> int:
        return len(self.removed.edges) + len(self.added.edges)


def patch_of(
    base: Adjacency, changes: EdgeChanges, direction: EdgeDirection, *, distinct: Adjacency | None
) -> Patch | None:
    """What changes of edges make of a base that has all parallel steps; None if they are none.

    `distinct` is the base without parallel steps, for a patch of that one.
    """
    removed = direct_steps(*changes.removed, direction)
    added = direct_steps(*changes.added, direction)
    nodes = frames.different(np.concatenate([removed.starts, added.starts]))
    if not len(nodes):
        return None
    known = nodes[nodes < len(base.offsets) - 1]
    owners, ends, places = base.steps(known)
    edges = base.edges_at(places)
    kept = ~np.isin(edges, removed.edges)
    steps = _in_order(
        Steps(
            np.concatenate([known[owners[kept]], added.starts]),
            np.concatenate([ends[kept], added.ends]),
            np.concatenate([edges[kept], added.edges]),
        )
    )
    if distinct is not None:
        steps = distinct_steps(steps) if len(steps.starts) else steps
        ends = distinct.steps(known)[1]
    offsets = np.zeros(len(nodes) + 1, dtype=np.int64)
    counts = np.bincount(np.searchsorted(nodes, steps.starts), minlength=len(nodes))
    np.cumsum(counts, out=offsets[1:])
    return Patch(
        nodes=nodes, offsets=offsets, ends=steps.ends, edges=steps.edges, replaced_ends=ends
    )
