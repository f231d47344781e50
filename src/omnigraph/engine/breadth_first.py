"""Many hops from every row of a frame: a search from each start, all of them level by level.

Invariant: a node is reported once per start, at its smallest distance. Starts that several rows
share are searched from once. When a level of all starts together is more than a portion, the
starts are searched from in halves; one start alone holds its level and the nodes it has seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from omnigraph.engine.access.adjacency import runs_of
from omnigraph.engine.ends import allowed, ends_at, started, with_ends
from omnigraph.engine.frames import Frame, Mask, PathColumn, Positions, ranges
from omnigraph.engine.paths import Level, PathTracker, first_level
from omnigraph.engine.wanted import Wanted, fewer

if TYPE_CHECKING:
    from omnigraph.engine.access.access import GraphAccess
    from omnigraph.engine.expressions.filters import Filters
    from omnigraph.engine.run import Run
    from omnigraph.query.plan import Expand

_STARTS_AT_ONCE: Final = 1 << 16
_NUMBERS_PER_NODE: Final = 10
"""Numbers per node that was found: its level, its key, and copies while sorting."""
_NUMBERS_PER_PATH: Final = 60
"""Additional numbers for comparing paths: the ids of nodes and edges, sorted."""
_NODE_BITS: Final = 40
"""A start and a node in one 64-bit number: up to 2**40 nodes and 2**23 starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Nodes that were reached, with the number of the start each was reached from."""

    owners: Positions
    ends: Positions
    path: PathColumn | None = None

    def take(self, rows: Positions) -> Found:
        path = None if self.path is None else self.path.take(rows)
        return Found(owners=self.owners[rows], ends=self.ends[rows], path=path)


def many_hops(
    plan: Expand,
    frame: Frame,
    wanted: Wanted,
    *,
    access: GraphAccess,
    filters: Filters,
    run: Run,
) -> Iterator[Frame]:
    """The rows of a frame, each with every node that a chain of steps leads to."""
    frame = started(plan, frame)
    # Rows that share a start share its search. `order` lists the rows by start; those of a start
    # begin at `first` and are `counts` many.
    starts, owners = np.unique(frame.entities[plan.start].positions, return_inverse=True)
    order = np.argsort(owners, kind="stable")
    counts = np.bincount(owners, minlength=len(starts))
    first = np.cumsum(counts) - counts
    search = _Search(plan, access, run)
    for begin in range(0, len(starts), _STARTS_AT_ONCE):
        chosen = np.arange(begin, min(begin + _STARTS_AT_ONCE, len(starts)), dtype=np.int64)
        for found in search.reached(starts[chosen]):
            mine = chosen[found.owners]
            for rows, which in _handed_out(order, first[mine], counts[mine], run):
                yield from _joined(plan, frame, rows, found.take(which), wanted, filters)


def _handed_out(
    order: Positions, first: Positions, counts: Positions, run: Run
) -> Iterator[tuple[Positions, Positions]]:
    """Pairs of a row and a reached node, portion by portion."""
    done = np.cumsum(counts)
    begin = 0
    while begin < len(counts):
        before = int(done[begin - 1]) if begin else 0
        end = int(np.searchsorted(done, before + run.limits.portion_rows, side="right"))
        # At least one node, even if more rows share its start than a portion has.
        end = max(end, begin + 1)
        run.check()
        part = slice(begin, end)
        which = np.repeat(np.arange(begin, end, dtype=np.int64), counts[part])
        yield order[ranges(first[part], counts[part])], which
        begin = end


def _joined(
    plan: Expand,
    frame: Frame,
    rows: Positions,
    found: Found,
    wanted: Wanted,
    filters: Filters,
) -> Iterator[Frame]:
    ends = ends_at(plan, found.ends)
    keep = allowed(plan, frame, rows, ends, filters)
    path = found.path
    if keep is not None:
        kept = np.flatnonzero(keep)
        rows, ends = rows[kept], ends.take(kept)
        path = None if path is None else path.take(kept)
    if not len(rows):
        return
    wide = with_ends(plan, frame, rows, ends, wanted)
    if path is not None and plan.path_variable in wanted.variables:
        assert plan.path_variable is not None
        wide = wide.with_path(plan.path_variable, path)
    yield fewer(wide, wanted)


class _Search:
    """Searches from several starts at once."""

    def __init__(self, plan: Expand, access: GraphAccess, run: Run) -> None:
        self._plan = plan
        self._access = access
        self._run = run
        self._chains = plan.start_type == plan.end_type
        self._most = run.limits.portion_rows
        self._held = 0

    def reached(self, starts: Positions) -> Iterator[Found]:
        """The nodes that every start reaches; owners are numbers of starts."""
        pending = [np.arange(len(starts), dtype=np.int64)]
        while pending:
            chosen = pending.pop()
            self._held = 0
            found = self._together(starts[chosen])
            if found is None:
                # The first half is popped next, so that results keep the order of the starts.
                half = len(chosen) // 2
                pending += [chosen[half:], chosen[:half]]
            for each in found or ():
                yield Found(owners=chosen[each.owners], ends=each.ends, path=each.path)
            self._run.let_go(self._held)

    def _together(self, starts: Positions) -> list[Found] | None:
        """All levels of all starts; None if they are too many to be searched from together."""
        plan = self._plan
        tracker = None
        if plan.path_variable is not None:
            tracker = PathTracker(plan, self._access)
        level = first_level(starts)
        # An edge between two types cannot be followed twice, so no node is reached again.
        visited = _keys(level.owners, level.nodes) if self._chains else np.zeros(0, np.int64)
        found: list[Found] = []
        for depth in range(1, (plan.maximum if self._chains else 1) + 1):
            self._run.check()
            following = self._following(level, starts, visited, depth, tracker)
            if following is None:
                return None
            if not self._holds(following, depth, alone=len(starts) == 1):
                return None
            if depth >= plan.minimum and len(following.owners):
                path = None if tracker is None else tracker.paths(following)
                found.append(Found(owners=following.owners, ends=following.nodes, path=path))
            # A loop reports the start itself, but the search never starts from it again.
            new = following.take(following.nodes != starts[following.owners])
            if not self._chains or not len(new.owners):
                break
            # Sorted, because membership is a binary search.
            visited = np.sort(np.concatenate([visited, _keys(new.owners, new.nodes)]))
            level = new
        return found

    def _holds(self, level: Level, depth: int, *, alone: bool) -> bool:
        """Account for the memory of a level; False if the starts have to be split."""
        numbers = _NUMBERS_PER_NODE
        if self._plan.path_variable is not None:
            numbers += 2 * depth + 2 + _NUMBERS_PER_PATH
        size = len(level.nodes) * numbers * 8
        if not alone and not self._run.has_room(size):
            return False
        self._run.hold(size, "a search of many hops")
        self._held += size
        return True

    def _following(
        self,
        level: Level,
        starts: Positions,
        visited: Positions,
        depth: int,
        tracker: PathTracker | None,
    ) -> Level | None:
        # Parallel edges reach the same node; they differ only in the edge ids of a path.
        adjacency = self._access.adjacency(
            self._plan.edge,
            self._plan.direction,
            distinct=tracker is None,
            frontier=level.nodes,
        )
        steps = adjacency.degrees(level.nodes)
        # Several starts are split before their steps are listed; one alone is listed in runs.
        if int(steps.sum()) > self._most and len(starts) > 1:
            return None
        parts: list[Level] = []
        for begin, end in runs_of(steps, self._most):
            self._run.check()
            inside, ends, places = adjacency.steps(level.nodes[begin:end])
            parents = inside + begin
            owners = level.owners[parents]
            keys = _keys(owners, ends)
            fresh = ~_is_in(keys, visited)
            # The start is visited, but an edge from it to itself is a result at distance 1.
            if depth == 1 and self._chains:
                fresh |= ends == starts[owners]
            kept = np.flatnonzero(fresh)
            edges = adjacency.edges[places[kept]].astype(np.int64, copy=False)
            candidates = Level(
                owners=owners[kept], nodes=ends[kept], parents=parents[kept], edges=edges
            )
            parts.append(self._best(candidates, level, tracker))
        if len(parts) == 1:
            return parts[0]
        # Several runs may have reached the same node.
        return self._best(_all(parts), level, tracker)

    def _best(self, candidates: Level, level: Level, tracker: PathTracker | None) -> Level:
        """Each node once per start; of several ways the one that a path takes."""
        if tracker is not None:
            return tracker.best(candidates, level)
        _, first = np.unique(_keys(candidates.owners, candidates.nodes), return_index=True)
        return candidates.take(first)


def _all(parts: list[Level]) -> Level:
    return Level(
        owners=np.concatenate([each.owners for each in parts]),
        nodes=np.concatenate([each.nodes for each in parts]),
        parents=np.concatenate([each.parents for each in parts]),
        edges=np.concatenate([each.edges for each in parts]),
    )


def _keys(owners: Positions, nodes: Positions) -> Positions:
    return (owners << _NODE_BITS) | nodes


def _is_in(keys: Positions, held: Positions) -> Mask:
    """Which keys are among sorted ones."""
    if not len(held):
        return np.zeros(len(keys), dtype=np.bool_)
    places = np.minimum(np.searchsorted(held, keys), len(held) - 1)
    found: Mask = held[places] == keys
    return found
