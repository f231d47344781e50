"""Shortest paths: of several to one node, the one with the smallest list of node ids.

Invariant: the best path to a node goes through the best path to the node before it, so every level
remembers one parent per node. Of several edges between two nodes a path takes the one with the
smallest id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import names
from omnigraph.engine.frames import Mask, PathColumn, Positions

if TYPE_CHECKING:
    from omnigraph.engine.access.access import GraphAccess
    from omnigraph.query.plan import Expand


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Nodes at one distance from their starts.

    `parents` are rows of the level before, `edges` the edges from there. `owners` are numbers of
    starts.
    """

    owners: Positions
    nodes: Positions
    parents: Positions
    edges: Positions

    def take(self, rows: Positions | Mask) -> Level:
        return Level(
            owners=self.owners[rows],
            nodes=self.nodes[rows],
            parents=self.parents[rows],
            edges=self.edges[rows],
        )


def first_level(starts: Positions) -> Level:
    """The starts themselves, at distance zero."""
    nothing = np.full(len(starts), -1, dtype=np.int64)
    owners = np.arange(len(starts), dtype=np.int64)
    return Level(owners=owners, nodes=starts, parents=nothing, edges=nothing)


class PathTracker:
    """Stores the levels of one search, and the order of the paths of each."""

    def __init__(self, plan: Expand, access: GraphAccess) -> None:
        self._turned = plan.turned
        self._access = access
        self._start_table = names.node_table_key(plan.start_type)
        self._end_table = names.node_table_key(plan.end_type)
        self._edge_table = names.edge_table_key(plan.edge)
        self._levels: list[Level] = []
        self._ranks: Positions | None = None

    def best(self, candidates: Level, before: Level) -> Level:
        """Each node once per start, with the parent and the edge of its smallest path."""
        if not self._levels or self._levels[-1] is not before:
            self._levels.append(before)
            self._ranks = self._ranked(before)
        assert self._ranks is not None
        edges = self._order_of(self._edge_table, candidates.edges)
        order = np.lexsort(
            (edges, self._ranks[candidates.parents], candidates.nodes, candidates.owners)
        )
        owners, nodes = candidates.owners[order], candidates.nodes[order]
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = (owners[1:] != owners[:-1]) | (nodes[1:] != nodes[:-1])
        return candidates.take(order[first])

    def paths(self, level: Level) -> PathColumn:
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
        return PathColumn(
            first_table=self._end_table if self._turned else self._start_table,
            node_table=self._start_table if self._turned else self._end_table,
            edge_table=self._edge_table,
            lengths=np.full(len(level.nodes), length, dtype=np.int64),
            nodes=np.stack(nodes, axis=1).reshape(-1),
            edges=np.stack(edges, axis=1).reshape(-1),
        )

    def _ranked(self, level: Level) -> Positions:
        """How the paths to the nodes of a level compare, as numbers.

        A path that runs the other way begins with its last node; one that runs this way compares
        by the path to the parent first, which the level before knows.
        """
        table = self._start_table if len(self._levels) == 1 else self._end_table
        ids = self._order_of(table, level.nodes)
        if self._turned or self._ranks is None:
            return ids
        order = np.lexsort((ids, self._ranks[level.parents]))
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order), dtype=np.int64)
        return ranks

    def _order_of(self, table: str, positions: Positions) -> Positions:
        """The places of entities in the order of their ids."""
        unique, inverse = np.unique(positions, return_inverse=True)
        ids = self._access.column(table, names.ID_COLUMN).take(pa.array(unique))
        ranks = np.empty(len(unique), dtype=np.int64)
        ranks[np.asarray(pc.sort_indices(ids).to_numpy())] = np.arange(len(unique), dtype=np.int64)
        return ranks[inverse]
