"""Expands the rows of a frame along edges: by one hop, by many hops, or by shortest paths.

Many hops are a search from each start, all of them level by level. Frames are reduced to what later
steps read. Steps can be over several edge types, and lead to nodes of several types; a search then
numbers nodes of all types together.

Invariants:
- One hop: without an edge variable a reached node counts once per row, with one every edge does.
- No frame made by one hop has more rows than a portion, whatever the degrees are: the steps of one
  row can be spread over several frames. Where only the reached nodes matter, a frame has at most
  one row for each node of their type.
- An end that is already bound must be that very node; any other must meet the predicate.
- Many hops: a node is reported once per start, at its smallest distance. Without a maximum a search
  ends at the first level without new nodes; every level counts against the memory of the run, and
  what does not fit is an error, never a shorter search. Starts that several rows
  share are searched from once. When a level of all starts together is more than a portion, the
  starts are searched from in halves; one start alone holds its level and the nodes it has seen.
- Of several shortest paths to a node the one with the smallest list of node ids is taken. It goes
  through the best path to the node before it, so every level remembers one parent per node. Of
  several edges between two nodes a path takes the one with the smallest id. Equal ids of different
  types compare by the names of the types.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake import names
from omnigraph_lake.engine import frames
from omnigraph_lake.engine.access.access import GraphAccess, gathered
from omnigraph_lake.engine.access.adjacency import Adjacency, runs_of

if TYPE_CHECKING:
    from omnigraph_lake.engine.expressions.values import Filters
    from omnigraph_lake.engine.run import Run
    from omnigraph_lake.query.plan import Expand
    from omnigraph_lake.query.typed import EdgeStep


def _node_tables(type_names: Iterable[str]) -> tuple[str, ...]:
    return tuple(names.node_table_key(type_name) for type_name in type_names)


def end_tables(plan: Expand) -> tuple[str, ...]:
    """The tables of the nodes that a hop reaches."""
    return _node_tables(plan.end_types)


def edge_tables(plan: Expand) -> tuple[str, ...]:
    """The tables of the edges that a hop follows."""
    return tuple(names.edge_table_key(edge) for edge in plan.edges)


def node_tables(plan: Expand) -> tuple[str, ...]:
    """The tables of all nodes that a path can have, sorted."""
    ends = {step.end_type for step in plan.steps}.union(plan.start_types, plan.end_types)
    return _node_tables(sorted(ends.union(step.start_type for step in plan.steps)))


def started(plan: Expand, frame: frames.Frame, type_names: Iterable[str]) -> frames.Frame:
    """The rows that have a node of one of these types to start from."""
    column = frame.entities[plan.start]
    there = np.zeros(frame.rows, dtype=np.bool_)
    for table in _node_tables(type_names):
        there |= column.of_table(table)
    return frame if there.all() else frame.take(there)


def allowed(
    plan: Expand,
    frame: frames.Frame,
    rows: frames.Positions,
    ends: frames.EntityColumn,
    filters: Filters,
) -> frames.Mask | None:
    """Which steps from rows of the frame end where the pattern allows; None if all of them do."""
    if plan.end_bound:
        return frames.same_entities(frame.entities[plan.end].take(rows), ends)
    if plan.predicate is not None:
        return filters.of_entities(plan.predicate, plan.end, ends)
    return None


def with_ends(
    plan: Expand,
    frame: frames.Frame,
    rows: frames.Positions,
    ends: frames.EntityColumn,
    wanted: frames.RequiredColumns,
) -> frames.Frame:
    """One row for each step: that of its start, and its end if it is read."""
    wide = frame.only(wanted.variables).take(rows)
    if plan.end in wanted.variables and not plan.end_bound:
        return wide.with_entity(plan.end, frames.within_tables(ends, end_tables(plan)))
    return wide


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hop:
    """One hop over edges between two node types, and what later steps read of it."""

    plan: Expand
    end_table: str
    wanted: frames.RequiredColumns
    access: GraphAccess
    filters: Filters
    run: Run

    def ends_at(self, positions: frames.Positions) -> frames.EntityColumn:
        return frames.EntityColumn(tables=(self.end_table,), positions=positions)

    def frame_of_ends(
        self, ends: frames.EntityColumn, weights: frames.Positions | None = None
    ) -> frames.Frame:
        """The reached nodes alone."""
        column = frames.within_tables(ends, end_tables(self.plan))
        return frames.Frame(
            rows=len(ends.positions), entities={self.plan.end: column}, weights=weights
        )


def one_hop(
    plan: Expand,
    frame: frames.Frame,
    wanted: frames.RequiredColumns,
    *,
    access: GraphAccess,
    filters: Filters,
    run: Run,
) -> Iterator[frames.Frame]:
    """The rows of a frame, each with every node or edge that one step leads to."""
    steps_by_types: dict[tuple[str, str], list[EdgeStep]] = {}
    for step in plan.single_steps:
        steps_by_types.setdefault((step.start_type, step.end_type), []).append(step)
    for (start_type, end_type), steps in steps_by_types.items():
        started_frame = started(plan, frame, (start_type,))
        if not started_frame.rows:
            continue
        hop = _Hop(
            plan=plan,
            end_table=names.node_table_key(end_type),
            wanted=wanted,
            access=access,
            filters=filters,
            run=run,
        )
        if len(steps) > 1 and plan.edge_variable is None:
            yield from _over_any(hop, started_frame, steps)
            continue
        for step in steps:
            yield from _over_each(hop, started_frame, step)


def _over_each(hop: _Hop, frame: frames.Frame, step: EdgeStep) -> Iterator[frames.Frame]:
    """The hop over one edge type."""
    plan, wanted, run = hop.plan, hop.wanted, hop.run
    starts = frame.entities[plan.start].positions
    adjacency = hop.access.adjacency(step, distinct=plan.edge_variable is None, frontier=starts)
    if _only_how_many(plan, wanted):
        yield _count(hop, frame, adjacency)
        return
    if _only_where_to(plan, frame, wanted):
        if frame.weights is None and adjacency.starts_everywhere(starts):
            yield _arrived(hop, adjacency)
            return
        if not wanted.weighed:
            yield _somewhere(hop, starts, adjacency)
            return
    kept_frame = frame.only(wanted.variables | ({plan.end} if plan.end_bound else frozenset()))
    for rows, places in _portions(adjacency, starts, run.limits.portion_rows):
        run.check()
        yield from _reached(hop, kept_frame, rows, places, adjacency, step)


def _over_any(hop: _Hop, frame: frames.Frame, steps: Sequence[EdgeStep]) -> Iterator[frames.Frame]:
    """The hop over several edge types between the same node types: each pair of nodes once."""
    plan, wanted, run = hop.plan, hop.wanted, hop.run
    most = run.limits.portion_rows
    starts = frame.entities[plan.start].positions
    adjacencies = [hop.access.adjacency(step, distinct=True, frontier=starts) for step in steps]
    degrees = np.sum([adjacency.degrees(starts) for adjacency in adjacencies], axis=0)
    kept_frame = frame.only(wanted.variables | ({plan.end} if plan.end_bound else frozenset()))
    # All steps of a row are in one run, where equal ones are found.
    for begin, end in runs_of(degrees, most):
        run.check()
        listed = [adjacency.steps(starts[begin:end]) for adjacency in adjacencies]
        owners, ends = (np.concatenate([steps[part] for steps in listed]) for part in (0, 1))
        bits = int(ends.max(initial=0)).bit_length()
        pairs = frames.different((owners << bits) | ends)
        for first in range(0, len(pairs), most):
            part = pairs[first : first + most]
            rows = (part >> bits) + begin
            reached = hop.ends_at(part & ((1 << bits) - 1))
            keep = allowed(plan, kept_frame, rows, reached, hop.filters)
            if keep is not None:
                rows, reached = rows[keep], reached.take(keep)
            if len(rows):
                yield frames.prune(with_ends(plan, kept_frame, rows, reached, wanted), wanted)


def _only_how_many(plan: Expand, wanted: frames.RequiredColumns) -> bool:
    """Whether later steps use only the number of steps."""
    new = {plan.end, plan.edge_variable}
    return (
        wanted.counted
        and not plan.end_bound
        and plan.edge_predicate is None
        and not (new & wanted.variables)
    )


def _count(hop: _Hop, frame: frames.Frame, adjacency: Adjacency) -> frames.Frame:
    plan, wanted = hop.plan, hop.wanted
    starts = frame.entities[plan.start].positions
    if plan.predicate is None:
        steps = adjacency.degrees(starts)
    else:
        meeting = hop.filters.of_table(plan.predicate, hop.end_table)
        steps = adjacency.degrees_within(starts, meeting)
    kept_frame = frame.only(wanted.variables)
    if not kept_frame.entities and not kept_frame.paths:
        # Rows without steps add nothing to the one number that is left.
        return frames.merged_equal(kept_frame.weighted(steps))
    has_steps = steps > 0
    return frames.prune(kept_frame.take(has_steps).weighted(steps[has_steps]), wanted)


def _only_where_to(plan: Expand, frame: frames.Frame, wanted: frames.RequiredColumns) -> bool:
    """Whether later steps use only which nodes are reached, and how often."""
    frame_variables = {*frame.entities, *frame.paths}
    new_edge = plan.edge_variable in wanted.variables or plan.edge_predicate is not None
    return (
        wanted.counted
        and not plan.end_bound
        and not new_edge
        and not (frame_variables & wanted.variables)
    )


def _arrived(hop: _Hop, adjacency: Adjacency) -> frames.Frame:
    """All steps of an edge type at once: its nodes by how many steps lead to them."""
    plan = hop.plan
    often = adjacency.arrival_counts
    assert often is not None
    if plan.predicate is not None:
        often = often * hop.filters.of_table(plan.predicate, hop.end_table)
    reached = np.flatnonzero(often)
    return hop.frame_of_ends(hop.ends_at(reached), often[reached])


def _somewhere(hop: _Hop, starts: frames.Positions, adjacency: Adjacency) -> frames.Frame:
    """The nodes that are reached, each once."""
    plan = hop.plan
    ends = hop.ends_at(adjacency.reached(starts, hop.run))
    if plan.predicate is not None:
        ends = ends.take(hop.filters.of_entities(plan.predicate, plan.end, ends))
    return hop.frame_of_ends(ends)


def _portions(
    adjacency: Adjacency, starts: frames.Positions, most: int
) -> Iterator[tuple[frames.Positions, frames.Positions]]:
    """All steps as pairs of row and place in the adjacency, at most so many at a time."""
    first, lengths = adjacency.extents(starts)
    cumulative_steps = np.cumsum(lengths)
    total = int(cumulative_steps[-1]) if len(cumulative_steps) else 0
    for begin in range(0, total, most):
        end = min(begin + most, total)
        steps = np.arange(begin, end, dtype=np.int64)
        low = int(np.searchsorted(cumulative_steps, begin, side="right"))
        high = int(np.searchsorted(cumulative_steps, end, side="left")) + 1
        inside = np.arange(low, high, dtype=np.int64)
        steps_per_row = np.minimum(cumulative_steps[low:high], end) - np.maximum(
            cumulative_steps[low:high] - lengths[low:high], begin
        )
        rows = np.repeat(inside, steps_per_row)
        yield rows, first[rows] + steps - (cumulative_steps[rows] - lengths[rows])


def _reached(
    hop: _Hop,
    frame: frames.Frame,
    rows: frames.Positions,
    places: frames.Positions,
    adjacency: Adjacency,
    step: EdgeStep,
) -> Iterator[frames.Frame]:
    plan, wanted = hop.plan, hop.wanted
    ends = hop.ends_at(adjacency.ends_at(places))
    keep = allowed(plan, frame, rows, ends, hop.filters)
    edges = None
    if plan.edge_variable is not None:
        edges = frames.EntityColumn(
            tables=(names.edge_table_key(step.edge),),
            positions=adjacency.edges_at(places),
        )
        if plan.edge_predicate is not None:
            meeting = hop.filters.of_entities(plan.edge_predicate, plan.edge_variable, edges)
            keep = meeting if keep is None else keep & meeting
    if keep is not None:
        rows = rows[keep]
        ends = ends.take(keep)
        edges = None if edges is None else edges.take(keep)
    if not len(rows):
        return
    wide = with_ends(plan, frame, rows, ends, wanted)
    if edges is not None and plan.edge_variable in wanted.variables:
        assert plan.edge_variable is not None
        column = frames.within_tables(edges, edge_tables(plan))
        wide = wide.with_entity(plan.edge_variable, column)
    yield frames.prune(wide, wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Nodes at one distance from their starts.

    `parents` are rows of the level before, `edges` the edges from there. `owners` are numbers of
    starts.
    """

    owners: frames.Positions
    nodes: frames.Positions
    parents: frames.Positions
    edges: frames.Positions

    def take(self, rows: frames.Positions | frames.Mask) -> Level:
        return Level(
            owners=self.owners[rows],
            nodes=self.nodes[rows],
            parents=self.parents[rows],
            edges=self.edges[rows],
        )


def first_level(starts: frames.Positions) -> Level:
    """The starts themselves, at distance zero."""
    nothing = np.full(len(starts), -1, dtype=np.int64)
    owners = np.arange(len(starts), dtype=np.int64)
    return Level(owners=owners, nodes=starts, parents=nothing, edges=nothing)


class PathTracker:
    """Stores the levels of one search, and the order of the paths of each."""

    def __init__(self, plan: Expand, access: GraphAccess) -> None:
        self._turned = plan.turned
        self._access = access
        self._node_tables = node_tables(plan)
        self._edge_tables = edge_tables(plan)
        self._levels: list[Level] = []
        self._ranks: frames.Positions | None = None

    def best(self, candidates: Level, before: Level) -> Level:
        """Each node once per start, with the parent and the edge of its smallest path."""
        if not self._levels or self._levels[-1] is not before:
            self._levels.append(before)
            self._ranks = self._rank(before)
        assert self._ranks is not None
        edges = order_of_ids(self._access, self._edge_tables, candidates.edges)
        # The edge decides last, because paths compare by node ids first: before the parent's rank,
        # a small edge id would win over smaller node ids.
        order = np.lexsort(
            (edges, self._ranks[candidates.parents], candidates.nodes, candidates.owners)
        )
        owners, nodes = candidates.owners[order], candidates.nodes[order]
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = (owners[1:] != owners[:-1]) | (nodes[1:] != nodes[:-1])
        return candidates.take(order[first])

    def paths(self, level: Level) -> frames.PathColumn:
        """The paths to the nodes of the level after the last remembered one."""
        length = len(self._levels)
        nodes, edges = [level.nodes], [level.edges]
        rows = level.parents
        for earlier in reversed(self._levels):
            nodes.append(earlier.nodes[rows])
            edges.append(earlier.edges[rows])
            rows = earlier.parents[rows]
        edges = edges[:length]
        if not self._turned:
            nodes.reverse()
            edges.reverse()
        return frames.PathColumn(
            lengths=np.full(len(level.nodes), length, dtype=np.int64),
            nodes=frames.from_numbers(self._node_tables, np.stack(nodes, axis=1).reshape(-1)),
            edges=frames.from_numbers(
                self._edge_tables,
                np.stack(edges, axis=1).reshape(-1) if edges else np.zeros(0, np.int64),
            ),
        )

    def _rank(self, level: Level) -> frames.Positions:
        """How the paths to the nodes of a level compare, as numbers.

        A path that runs the other way begins with its last node; one that runs this way compares
        by the path to the parent first, which the level before knows.
        """
        ids = order_of_ids(self._access, self._node_tables, level.nodes)
        if self._turned or self._ranks is None:
            return ids
        order = np.lexsort((ids, self._ranks[level.parents]))
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order), dtype=np.int64)
        return ranks


def order_of_ids(
    access: GraphAccess, tables: tuple[str, ...], numbers: frames.Positions
) -> frames.Positions:
    """The places of entities in the order of their ids, then of the names of their types."""
    unique, inverse = np.unique(numbers, return_inverse=True)
    column = frames.from_numbers(tables, unique)
    ids = gathered(access, column, names.ID_COLUMN)
    if column.which is None:
        order = pc.sort_indices(ids)
    else:
        # Tables are sorted by the names of their types.
        keys = pa.table({"id": ids, "which": column.which})
        order = pc.sort_indices(keys, [("id", "ascending"), ("which", "ascending")])
    ranks = np.empty(len(unique), dtype=np.int64)
    ranks[np.asarray(order.to_numpy())] = np.arange(len(unique), dtype=np.int64)
    return ranks[inverse]


_STARTS_AT_ONCE: Final = 1 << 16
"""The first level is built before any split and is not charged, so its size is bounded here."""
_NUMBERS_PER_NODE: Final = 10
"""Numbers per node that was found: its level, its key, and copies while sorting."""
_NUMBERS_PER_PATH: Final = 60
"""Additional numbers for comparing paths: the ids of nodes and edges, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedNodes:
    """Nodes that were reached, with the number of the start each was reached from."""

    owners: frames.Positions
    ends: frames.Positions
    path: frames.PathColumn | None = None

    def take(self, rows: frames.Positions) -> ReachedNodes:
        path = None if self.path is None else self.path.take(rows)
        return ReachedNodes(owners=self.owners[rows], ends=self.ends[rows], path=path)


def many_hops(
    plan: Expand,
    frame: frames.Frame,
    wanted: frames.RequiredColumns,
    *,
    access: GraphAccess,
    filters: Filters,
    run: Run,
) -> Iterator[frames.Frame]:
    """The rows of a frame, each with every node that a chain of steps leads to."""
    search = _Search(plan, access, run)
    yield from reach(plan, frame, wanted, search.reached, filters=filters, run=run)


def reach(
    plan: Expand,
    frame: frames.Frame,
    wanted: frames.RequiredColumns,
    search: Callable[[frames.Positions], Iterator[ReachedNodes]],
    *,
    filters: Filters,
    run: Run,
) -> Iterator[frames.Frame]:
    """The rows of a frame, each with every node that a search finds from its start.

    A search gets different starts, as numbers, and gives nodes with the places of their starts.
    """
    frame = started(plan, frame, plan.start_types)
    # Rows that share a start share its search. `order` lists the rows by start; those of a start
    # begin at `first` and are `counts` many.
    numbers = frames.numbers_of(frame.entities[plan.start], node_tables(plan))
    starts, owners = np.unique(numbers, return_inverse=True)
    order = np.argsort(owners, kind="stable")
    counts = np.bincount(owners, minlength=len(starts))
    first = np.cumsum(counts) - counts
    for begin in range(0, len(starts), _STARTS_AT_ONCE):
        chosen_starts = np.arange(begin, min(begin + _STARTS_AT_ONCE, len(starts)), dtype=np.int64)
        for reached_nodes in search(starts[chosen_starts]):
            start_numbers = chosen_starts[reached_nodes.owners]
            for rows, which in _hand_out(order, first[start_numbers], counts[start_numbers], run):
                yield from _join(plan, frame, rows, reached_nodes.take(which), wanted, filters)


def _hand_out(
    order: frames.Positions, first: frames.Positions, counts: frames.Positions, run: Run
) -> Iterator[tuple[frames.Positions, frames.Positions]]:
    """Pairs of a row and a reached node, portion by portion."""
    cumulative_counts = np.cumsum(counts)
    begin = 0
    while begin < len(counts):
        before = int(cumulative_counts[begin - 1]) if begin else 0
        end = int(
            np.searchsorted(cumulative_counts, before + run.limits.portion_rows, side="right")
        )
        # At least one node, even if more rows share its start than a portion has.
        end = max(end, begin + 1)
        run.check()
        part = slice(begin, end)
        which = np.repeat(np.arange(begin, end, dtype=np.int64), counts[part])
        yield order[frames.ranges(first[part], counts[part])], which
        begin = end


def _join(
    plan: Expand,
    frame: frames.Frame,
    rows: frames.Positions,
    reached_nodes: ReachedNodes,
    wanted: frames.RequiredColumns,
    filters: Filters,
) -> Iterator[frames.Frame]:
    ends = frames.from_numbers(node_tables(plan), reached_nodes.ends)
    keep = allowed(plan, frame, rows, ends, filters)
    path = reached_nodes.path
    if keep is not None:
        kept_rows = np.flatnonzero(keep)
        rows, ends = rows[kept_rows], ends.take(kept_rows)
        path = None if path is None else path.take(kept_rows)
    if not len(rows):
        return
    wide = with_ends(plan, frame, rows, ends, wanted)
    if path is not None and plan.path_variable in wanted.variables:
        assert plan.path_variable is not None
        wide = wide.with_path(plan.path_variable, path)
    yield frames.prune(wide, wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepsAhead:
    """The steps over one edge type from some rows of a level."""

    step: EdgeStep
    rows: frames.Positions
    nodes: frames.Positions
    adjacency: Adjacency
    degrees: frames.Positions


_NO_ROWS: Final[frames.Positions] = np.zeros(0, dtype=np.int64)


class _Search:
    """Searches from several starts at once."""

    def __init__(self, plan: Expand, access: GraphAccess, run: Run) -> None:
        self._plan = plan
        self._access = access
        self._run = run
        self._tables = node_tables(plan)
        self._edge_tables = edge_tables(plan)
        self._most = run.limits.portion_rows
        self._held = 0

    def reached(self, starts: frames.Positions) -> Iterator[ReachedNodes]:
        """The nodes that every start reaches; owners are numbers of starts."""
        pending = [np.arange(len(starts), dtype=np.int64)]
        while pending:
            chosen_starts = pending.pop()
            self._held = 0
            reached_levels = self._together(starts[chosen_starts])
            if reached_levels is None:
                # The first half is popped next, so that results keep the order of the starts.
                half = len(chosen_starts) // 2
                pending += [chosen_starts[half:], chosen_starts[:half]]
            for reached_nodes in reached_levels or ():
                yield ReachedNodes(
                    owners=chosen_starts[reached_nodes.owners],
                    ends=reached_nodes.ends,
                    path=reached_nodes.path,
                )
            self._run.let_go(self._held)

    def _together(self, starts: frames.Positions) -> list[ReachedNodes] | None:
        """All levels of all starts; None if they are too many to be searched from together."""
        plan = self._plan
        tracker = None
        if plan.path_variable is not None:
            tracker = PathTracker(plan, self._access)
        level = first_level(starts)
        visited = Visited()
        visited.add(_keys(level.owners, level.nodes))
        reached_levels: list[ReachedNodes] = []
        if plan.minimum == 0:
            own_level = self._at_ends(level)
            path = None if tracker is None else tracker.paths(own_level)
            reached_levels.append(
                ReachedNodes(owners=own_level.owners, ends=own_level.nodes, path=path)
            )
        for depth in self._depths():
            self._run.check()
            next_level = self._following(level, starts, visited, depth, tracker)
            if next_level is None:
                return None
            if not self._holds(next_level, depth, alone=len(starts) == 1):
                return None
            # Nodes below the minimum stay visited: the bounds are on the smallest distance, so a
            # longer way to such a node must not report it.
            end_level = self._at_ends(next_level)
            if depth >= plan.minimum and len(end_level.owners):
                path = None if tracker is None else tracker.paths(end_level)
                reached_levels.append(
                    ReachedNodes(owners=end_level.owners, ends=end_level.nodes, path=path)
                )
            # A loop reports the start itself, but the search never starts from it again.
            new_level = next_level.take(next_level.nodes != starts[next_level.owners])
            if not len(new_level.owners):
                break
            # All levels, not only the last: a directed edge can lead back to any of them, and its
            # end would be reported again.
            visited.add(_keys(new_level.owners, new_level.nodes))
            level = new_level
        return reached_levels

    def _depths(self) -> Iterable[int]:
        if self._plan.maximum is None:
            return itertools.count(1)
        return range(1, self._plan.maximum + 1)

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

    def _at_ends(self, level: Level) -> Level:
        """The nodes of a level that are of a type that can be reached."""
        if len(self._tables) == 1:
            return level
        reachable = np.isin(self._tables, end_tables(self._plan))
        return level.take(reachable[level.nodes >> frames.POSITION_BITS])

    def _following(
        self,
        level: Level,
        starts: frames.Positions,
        visited: Visited,
        depth: int,
        tracker: PathTracker | None,
    ) -> Level | None:
        """The nodes that one more step reaches; None if these are too many for several starts."""
        steps_ahead = list(self._steps_ahead(level, distinct=tracker is None))
        # Several starts are split before their steps are listed; one alone is listed in runs.
        total = sum(int(ahead.degrees.sum()) for ahead in steps_ahead)
        if total > self._most and len(starts) > 1:
            return None
        parts: list[Level] = []
        for ahead in steps_ahead:
            for begin, end in runs_of(ahead.degrees, self._most):
                self._run.check()
                inside, positions, places = ahead.adjacency.steps(ahead.nodes[begin:end])
                parents = ahead.rows[inside + begin]
                ends = self._number_nodes(positions, ahead.step.end_type)
                owners = level.owners[parents]
                keys = _keys(owners, ends)
                fresh = ~visited.contains(keys)
                # The start is visited, but an edge from it to itself is a result at distance 1.
                if depth == 1 and self._plan.minimum > 0:
                    fresh |= ends == starts[owners]
                fresh_rows = np.flatnonzero(fresh)
                edges = ahead.adjacency.edges_at(places[fresh_rows])
                candidates = Level(
                    owners=owners[fresh_rows],
                    nodes=ends[fresh_rows],
                    parents=parents[fresh_rows],
                    edges=self._number_edges(edges, ahead.step.edge),
                )
                # Deduplicated per run: otherwise all steps of a large level would be held at once.
                parts.append(self._best(candidates, level, tracker))
        if len(parts) == 1:
            return parts[0]
        # Several runs, or several edges, may have reached the same node.
        return self._best(_all(parts), level, tracker) if parts else level.take(_NO_ROWS)

    def _steps_ahead(self, level: Level, *, distinct: bool) -> Iterator[_StepsAhead]:
        """The steps from the nodes of a level.

        Parallel edges reach the same node; they differ only in the edge ids of a path.
        """
        column = frames.from_numbers(self._tables, level.nodes)
        for step in self._plan.steps:
            rows = np.flatnonzero(column.of_table(names.node_table_key(step.start_type)))
            if not len(rows):
                continue
            nodes = column.positions[rows]
            adjacency = self._access.adjacency(step, distinct=distinct, frontier=nodes)
            yield _StepsAhead(
                step=step,
                rows=rows,
                nodes=nodes,
                adjacency=adjacency,
                degrees=adjacency.degrees(nodes),
            )

    def _number_nodes(self, positions: frames.Positions, end_type: str) -> frames.Positions:
        table = names.node_table_key(end_type)
        column = frames.EntityColumn(tables=(table,), positions=positions)
        return frames.numbers_of(column, self._tables)

    def _number_edges(self, positions: frames.Positions, edge: str) -> frames.Positions:
        table = names.edge_table_key(edge)
        column = frames.EntityColumn(tables=(table,), positions=positions)
        return frames.numbers_of(column, self._edge_tables)

    def _best(self, candidates: Level, level: Level, tracker: PathTracker | None) -> Level:
        """Each node once per start; of several ways the one that a path takes."""
        if tracker is not None:
            return tracker.best(candidates, level)
        _, first = np.unique(_keys(candidates.owners, candidates.nodes), return_index=True)
        return candidates.take(first)


def _all(parts: list[Level]) -> Level:
    return Level(
        owners=np.concatenate([part.owners for part in parts]),
        nodes=np.concatenate([part.nodes for part in parts]),
        parents=np.concatenate([part.parents for part in parts]),
        edges=np.concatenate([part.edges for part in parts]),
    )


def _keys(owners: frames.Positions, nodes: frames.Positions) -> frames.Positions:
    # A start is part of the key: a node that one start has reached is still new to the others.
    return (owners << frames.NUMBER_BITS) | nodes


class Visited:
    """The keys of all nodes found so far.

    Sorted runs, each at least twice as long as the next: a search of many small levels does not
    sort all keys again at each of them.
    """

    def __init__(self) -> None:
        self._runs: list[frames.Positions] = []

    def add(self, keys: frames.Positions) -> None:
        runs = self._runs
        runs.append(np.sort(keys))
        while len(runs) > 1 and len(runs[-2]) < 2 * len(runs[-1]):
            last = runs.pop()
            runs[-1] = np.sort(np.concatenate([runs[-1], last]))

    def contains(self, keys: frames.Positions) -> frames.Mask:
        is_member = np.zeros(len(keys), dtype=np.bool_)
        for run in self._runs:
            is_member |= _is_in(keys, run)
        return is_member


def _is_in(keys: frames.Positions, sorted_keys: frames.Positions) -> frames.Mask:
    """Which keys are among sorted ones."""
    if not len(sorted_keys):
        return np.zeros(len(keys), dtype=np.bool_)
    places = np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)
    is_member: frames.Mask = sorted_keys[places] == keys
    return is_member
