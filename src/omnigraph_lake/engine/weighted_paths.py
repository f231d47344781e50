"""Expands the rows of a frame along paths with the smallest weight (Dijkstra).

All that the starts can reach is listed once, level by level. Then every start is searched from on
its own: first for the smallest weight of every node, then, breadth first and only along edges that
keep the smallest weight, for the path. Nodes of all types are numbered together, and so are edges.

Invariants:
- A weight is added to the sum of the path in front of it, from the start on, so that sums of floats
  do not depend on how a query runs.
- Of several paths with the smallest weight to a node the one with the fewest edges is taken, then
  that with the smallest list of nodes, then of edges, which compare by their ids, then by the names
  of their types. Every part of a path that begins at its start is the path to its last node.
- An edge without a weight is not followed. A negative weight, or NaN, of an edge that leads from a
  node that was reached is an error.
- What is reached is held as a whole and counts against the memory of the run.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from omnigraph_lake import names
from omnigraph_lake.engine import frames
from omnigraph_lake.engine.access.access import GraphAccess
from omnigraph_lake.engine.access.adjacency import runs_of
from omnigraph_lake.engine.expansion import (
    ReachedNodes,
    Visited,
    edge_tables,
    end_tables,
    node_tables,
    order_of_ids,
    reach,
)
from omnigraph_lake.engine.expressions.path_weights import negative_weight

if TYPE_CHECKING:
    from omnigraph_lake.engine.expressions.values import Filters
    from omnigraph_lake.engine.run import Run
    from omnigraph_lake.query.plan import Expand
    from omnigraph_lake.query.typed import EdgeStep

_BYTES_PER_STEP: Final = 200
"""A step in arrays and in lists of Python numbers."""
_BYTES_PER_NODE: Final = 600
"""A node that was reached: its sum, its parent and its place in the queue."""
_BYTES_PER_ID: Final = 24
"""A node or an edge on a path, in lists and in arrays."""

Weight: TypeAlias = int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A way to another node; nodes are places within what is reached."""

    end: int
    weight: Weight
    edge: int
    rank: int
    """The place of the edge in the order of ids."""


@dataclass(slots=True, kw_only=True)
class _Listing:
    """Steps while they are listed: from where, to where, over which edge, with which weight."""

    sources: list[frames.Positions] = field(default_factory=list)
    ends: list[frames.Positions] = field(default_factory=list)
    edges: list[frames.Positions] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reachable:
    """All that some starts reach: nodes in the order of their ids, and the steps from each.

    `is_end` says of each node whether it is of a type that can be reported.
    """

    nodes: frames.Positions
    is_end: list[bool]
    steps: list[list[_Step]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TreeNode:
    """A node of the tree of paths from one start, and how it was reached."""

    node: int
    parent: int
    """The place of the node before it in the tree."""
    edge: int


def hop_by_weight(
    plan: Expand,
    frame: frames.Frame,
    wanted: frames.RequiredColumns,
    *,
    access: GraphAccess,
    filters: Filters,
    run: Run,
) -> Iterator[frames.Frame]:
    """The rows of a frame, each with every node that a path with weights leads to."""
    with_path = plan.path_variable is not None and plan.path_variable in wanted.variables
    weighted_search = _WeightedSearch(plan, access, run, with_path=with_path)
    yield from reach(plan, frame, wanted, weighted_search.search, filters=filters, run=run)


class _WeightedSearch:
    """Searches from several starts, one after the other."""

    def __init__(self, plan: Expand, access: GraphAccess, run: Run, *, with_path: bool) -> None:
        assert plan.weight is not None
        self._with_path = with_path
        self._plan = plan
        self._access = access
        self._run = run
        self._weight = plan.weight
        self._tables = node_tables(plan)
        self._edge_tables = edge_tables(plan)

    def search(self, starts: frames.Positions) -> Iterator[ReachedNodes]:
        """The nodes that every start reaches; owners are places of starts."""
        bytes_held = 0
        try:
            reachable, bytes_held = self._reachable(starts)
            places = np.searchsorted(np.sort(reachable.nodes), starts)
            by_number = np.argsort(reachable.nodes, kind="stable")
            for owner, start in enumerate(by_number[places].tolist()):
                self._run.check()
                yield from self._from_start(owner, start, reachable)
        finally:
            self._run.let_go(bytes_held)

    # Edges

    def _reachable(self, starts: frames.Positions) -> tuple[_Reachable, int]:
        """What the starts reach together, and the bytes that it takes."""
        bytes_held = 0
        listing = _Listing()
        frontier = np.unique(starts)
        levels = [frontier]
        visited = Visited()
        while len(frontier):
            visited.add(frontier)
            first = len(listing.ends)
            for count in self._list_steps(frontier, listing):
                size = count * _BYTES_PER_STEP
                self._run.hold(size, "what weighted paths can reach")
                bytes_held += size
            new = listing.ends[first:]
            arrived = np.unique(np.concatenate(new)) if new else frontier[:0]
            frontier = arrived[~visited.contains(arrived)]
            levels.append(frontier)
        known = np.sort(np.concatenate(levels))
        size = len(known) * _BYTES_PER_NODE
        self._run.hold(size, "what weighted paths can reach")
        return self._build(known, listing), bytes_held + size

    def _list_steps(self, frontier: frames.Positions, listing: _Listing) -> Iterator[int]:
        """Adds the steps that can be followed from some nodes, and says how many at a time."""
        column = frames.from_numbers(self._tables, frontier)
        for step in self._plan.steps:
            rows = np.flatnonzero(column.of_table(names.node_table_key(step.start_type)))
            if not len(rows):
                continue
            nodes = column.positions[rows]
            adjacency = self._access.adjacency(step, distinct=False, frontier=nodes)
            for begin, end in runs_of(adjacency.degrees(nodes), self._run.limits.portion_rows):
                self._run.check()
                inside, ends, places = adjacency.steps(nodes[begin:end])
                edges = adjacency.edges_at(places)
                weights = self._weights(step, edges)
                usable = np.array(
                    [place for place, weight in enumerate(weights) if weight is not None],
                    dtype=np.int64,
                )
                listing.weights += [weight for weight in weights if weight is not None]
                listing.sources.append(frontier[rows[inside[usable] + begin]])
                listing.ends.append(
                    _numbers(self._tables, names.node_table_key(step.end_type), ends[usable])
                )
                listing.edges.append(
                    _numbers(self._edge_tables, names.edge_table_key(step.edge), edges[usable])
                )
                yield len(usable)

    def _weights(self, step: EdgeStep, edges: frames.Positions) -> list[Weight | None]:
        table = names.edge_table_key(step.edge)
        column = self._access.values(table, self._weight, edges)
        weights: list[Weight | None] = frames.whole(column).to_pylist()
        for place, weight in enumerate(weights):
            if weight is not None and (weight < 0 or math.isnan(weight)):
                ids = self._access.values(table, names.ID_COLUMN, edges[place : place + 1])
                (edge_id,) = frames.whole(ids).to_pylist()
                raise negative_weight(step.edge, self._weight, edge_id, weight)
        return weights

    def _build(self, known: frames.Positions, listing: _Listing) -> _Reachable:
        order = np.argsort(order_of_ids(self._access, self._tables, known))
        place_of = np.empty(len(known), dtype=np.int64)
        place_of[order] = np.arange(len(known), dtype=np.int64)
        steps: list[list[_Step]] = [[] for _ in range(len(known))]
        if listing.weights:
            edges = np.concatenate(listing.edges)
            rows = zip(
                place_of[np.searchsorted(known, np.concatenate(listing.sources))].tolist(),
                place_of[np.searchsorted(known, np.concatenate(listing.ends))].tolist(),
                edges.tolist(),
                order_of_ids(self._access, self._edge_tables, edges).tolist(),
                listing.weights,
                strict=True,
            )
            for source, end, edge, rank, weight in rows:
                steps[source].append(_Step(end=end, weight=weight, edge=edge, rank=rank))
        nodes = known[order]
        return _Reachable(nodes=nodes, is_end=self._ends_among(nodes), steps=steps)

    def _ends_among(self, nodes: frames.Positions) -> list[bool]:
        if len(self._tables) == 1:
            return [True] * len(nodes)
        is_end_table = np.isin(self._tables, end_tables(self._plan))
        is_end: list[bool] = is_end_table[nodes >> frames.POSITION_BITS].tolist()
        return is_end

    # Paths

    def _from_start(self, owner: int, start: int, reachable: _Reachable) -> Iterator[ReachedNodes]:
        smallest = _smallest_weights(start, reachable)
        loop = _loop(start, reachable)
        is_end = reachable.is_end
        if not self._with_path:
            is_reported = self._plan.minimum == 0 or bool(loop)
            ends = [node for node in smallest if is_end[node] and (node != start or is_reported)]
            owners = np.full(len(ends), owner, dtype=np.int64)
            nodes = reachable.nodes[np.array(ends, dtype=np.int64)]
            yield ReachedNodes(owners=owners, ends=nodes)
            return
        tree = _paths(start, smallest, reachable)
        size = _ids_on_paths(tree) * _BYTES_PER_ID
        self._run.hold(size, "weighted paths")
        paths = [_path_to(place, tree) for place in range(len(tree))]
        if self._plan.minimum > 0:
            paths[:1] = loop
        yield self._column(owner, [path for path in paths if is_end[path[0][-1]]], reachable.nodes)
        self._run.let_go(size)

    def _column(
        self, owner: int, paths: list[tuple[list[int], list[int]]], nodes: frames.Positions
    ) -> ReachedNodes:
        listed = [node for path_nodes, _ in paths for node in path_nodes]
        edges = np.array([edge for _, edges in paths for edge in edges], dtype=np.int64)
        ends = np.array([path_nodes[-1] for path_nodes, _ in paths], dtype=np.int64)
        path = frames.PathColumn(
            lengths=np.array([len(edges) for _, edges in paths], dtype=np.int64),
            nodes=frames.from_numbers(self._tables, nodes[np.array(listed, dtype=np.int64)]),
            edges=frames.from_numbers(self._edge_tables, edges),
        )
        owners = np.full(len(paths), owner, dtype=np.int64)
        return ReachedNodes(owners=owners, ends=nodes[ends], path=path)


def _numbers(tables: tuple[str, ...], table: str, positions: frames.Positions) -> frames.Positions:
    column = frames.EntityColumn(tables=(table,), positions=positions)
    return frames.numbers_of(column, tables)


def _smallest_weights(start: int, reachable: _Reachable) -> dict[int, Weight]:
    """The smallest weight of a path to every node that the start reaches."""
    smallest: dict[int, Weight] = {}
    known: dict[int, Weight] = {start: 0}
    queue: list[tuple[Weight, int]] = [(0, start)]
    while queue:
        total, node = heapq.heappop(queue)
        if node in smallest:
            continue
        smallest[node] = total
        for step in reachable.steps[node]:
            longer = total + step.weight
            if step.end not in smallest and (step.end not in known or longer < known[step.end]):
                known[step.end] = longer
                heapq.heappush(queue, (longer, step.end))
    return smallest


def _paths(start: int, smallest: dict[int, Weight], reachable: _Reachable) -> list[_TreeNode]:
    """The nodes in the order of their paths: by number of edges, then by node ids.

    Nodes are numbered by their ids, and those of a level are visited in the order of their paths,
    so the first that reaches a node has the best path to it.
    """
    tree = [_TreeNode(node=start, parent=-1, edge=-1)]
    visited = {start}
    level = range(1)
    while level:
        best: dict[int, tuple[int, int, int]] = {}
        for place in level:
            node = tree[place].node
            for step in reachable.steps[node]:
                keeps = smallest[node] + step.weight == smallest[step.end]
                if not keeps or step.end in visited:
                    continue
                way = (place, step.rank, step.edge)
                best[step.end] = min(best.get(step.end, way), way)
        visited.update(best)
        begin = len(tree)
        for place, node in sorted((way[0], node) for node, way in best.items()):
            tree.append(_TreeNode(node=node, parent=place, edge=best[node][2]))
        level = range(begin, len(tree))
    return tree


def _ids_on_paths(tree: list[_TreeNode]) -> int:
    """How many nodes and edges the paths to all nodes have."""
    lengths = [0] * len(tree)
    for place, node in enumerate(tree[1:], start=1):
        lengths[place] = lengths[node.parent] + 1
    return 2 * sum(lengths) + len(lengths)


def _path_to(place: int, tree: list[_TreeNode]) -> tuple[list[int], list[int]]:
    nodes, edges = [tree[place].node], list[int]()
    while tree[place].parent >= 0:
        edges.append(tree[place].edge)
        place = tree[place].parent
        nodes.append(tree[place].node)
    return nodes[::-1], edges[::-1]


def _loop(start: int, reachable: _Reachable) -> list[tuple[list[int], list[int]]]:
    """The path from the start to itself over the best edge that leads there, if there is one."""
    loops = [step for step in reachable.steps[start] if step.end == start]
    if not loops:
        return []
    best = min(loops, key=lambda step: (step.weight, step.rank))
    return [([start, start], [best.edge])]
