"""Nodes within some hops of others, by a breadth-first search of all starts together.

Invariant: a node is found once per start, at its smallest distance, and with it the best of the
shortest paths. The start itself is found only over an edge from itself to itself.

Every level is one join and one aggregate over all that was found before, so that a search of a few
levels is one lazy plan. A longer one runs level by level and stops where nothing new is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql

from omnigraph.engine.spark.joins import is_small
from omnigraph.engine.spark.refusals import query_errors
from omnigraph.engine.spark.rows import HeldPath, Names
from omnigraph.engine.spark.scans import Steps
from omnigraph.query.plan import Expand
from omnigraph.runner.session import without_noise

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LEVELS_AT_ONCE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Which nodes are reached from which, and over which path if it has a variable."""

    frame: DataFrame
    start: str
    end: str
    path: HeldPath | None = None
    bytes_most: int | None = None


def neighbours(plan: Expand, steps: Steps, names: Names) -> Reached:
    """Every pair of nodes that one step joins, once."""
    start, end = sql.col(steps.start), sql.col(steps.end)
    if plan.path_variable is None:
        return Reached(
            frame=steps.frame.select(start, end).distinct(),
            start=steps.start,
            end=steps.end,
            bytes_most=steps.bytes_most,
        )
    assert steps.edge_id is not None
    path = HeldPath(nodes=names.fresh(), edges=names.fresh())
    nodes = sql.array(end, start) if plan.turned else sql.array(start, end)
    least = steps.frame.groupBy(start, end).agg(sql.min(steps.edge_id).alias(path.edges))
    frame = least.select(
        start, end, nodes.alias(path.nodes), sql.array(path.edges).alias(path.edges)
    )
    return Reached(
        frame=frame, start=steps.start, end=steps.end, path=path, bytes_most=steps.bytes_most
    )


def search(plan: Expand, starts: DataFrame, steps: Steps, names: Names) -> Reached:
    """What is reached from the starts, a frame of one column, within the bounds of the hop."""
    (start,) = starts.columns
    return _Search(plan, steps, names).run(starts, start)


class _Search:
    """One search; its rows hold a start, a node, and the best way known between them."""

    def __init__(self, plan: Expand, steps: Steps, names: Names) -> None:
        self._plan = plan
        self._steps = steps
        self._start, self._node, self._loop = names.fresh(), names.fresh(), names.fresh()
        self._distance, self._found = names.fresh(), names.fresh()
        self._path: HeldPath | None = None
        if plan.path_variable is not None:
            self._path = HeldPath(nodes=names.fresh(), edges=names.fresh())

    def run(self, starts: DataFrame, start: str) -> Reached:
        found = starts.select(
            sql.col(start).alias(self._start),
            sql.col(start).alias(self._node),
            sql.lit(None).cast("string").alias(self._loop),
            self._way(sql.lit(0), nodes=sql.array(start), edges=_no_ids()).alias(self._found),
        )
        lazy = self._plan.maximum <= LEVELS_AT_ONCE
        for level in range(self._plan.maximum):
            found = self._level(found, level)
            if lazy:
                continue
            with without_noise(), query_errors():
                found = found.localCheckpoint()
                if found.where(sql.col(self._found)[self._distance] == level + 1).isEmpty():
                    break
        return self._within_bounds(found)

    def _way(self, distance: Column, *, nodes: Column, edges: Column) -> Column:
        """Ways compare by distance, then by node ids, then by edge ids."""
        parts = [distance.alias(self._distance)]
        if self._path is not None:
            parts += [nodes.alias(self._path.nodes), edges.alias(self._path.edges)]
        return sql.struct(*parts)

    def _level(self, found: DataFrame, level: int) -> DataFrame:
        """All nodes found, and those reached from the newest of them."""
        steps = self._steps
        newest = sql.col(self._found)[self._distance] == level
        right = (
            sql.broadcast(steps.frame) if is_small(steps.bytes_most) else steps.frame.hint("merge")
        )
        joined = found.join(right, (sql.col(self._node) == sql.col(steps.start)) & newest, "left")
        stayed = self._row(sql.col(self._node), sql.col(self._loop), sql.col(self._found))
        moved = self._row(sql.col(steps.end), self._loop_edge(level), self._longer(level))
        went = sql.col(steps.end).isNotNull()
        both = sql.when(went, sql.array(stayed, moved)).otherwise(sql.array(stayed))
        spread = joined.select(sql.inline(both))
        return spread.groupBy(self._start, self._node).agg(
            sql.min(self._loop).alias(self._loop), sql.min(self._found).alias(self._found)
        )

    def _row(self, node: Column, loop: Column, way: Column) -> Column:
        return sql.struct(
            sql.col(self._start).alias(self._start),
            node.alias(self._node),
            loop.alias(self._loop),
            way.alias(self._found),
        )

    def _loop_edge(self, level: int) -> Column:
        """The edge from a start to itself; without a path only whether there is one."""
        if level:
            return sql.lit(None).cast("string")
        edge = sql.lit("") if self._path is None else sql.col(str(self._steps.edge_id))
        return sql.when(sql.col(self._steps.end) == sql.col(self._start), edge)

    def _longer(self, level: int) -> Column:
        distance = sql.lit(level + 1)
        if self._path is None:
            return self._way(distance, nodes=_no_ids(), edges=_no_ids())
        way, end = sql.col(self._found), sql.array(sql.col(self._steps.end))
        edge = sql.array(sql.col(str(self._steps.edge_id)))
        nodes, edges = way[self._path.nodes], way[self._path.edges]
        if self._plan.turned:
            return self._way(distance, nodes=sql.concat(end, nodes), edges=sql.concat(edge, edges))
        return self._way(distance, nodes=sql.concat(nodes, end), edges=sql.concat(edges, edge))

    def _within_bounds(self, found: DataFrame) -> Reached:
        plan, start, node = self._plan, sql.col(self._start), sql.col(self._node)
        loop = (start == node) & sql.col(self._loop).isNotNull() & sql.lit(plan.minimum == 1)
        distance = sql.col(self._found)[self._distance]
        other = (start != node) & distance.between(plan.minimum, plan.maximum)
        kept = found.where(loop | other)
        columns = [start, node]
        if self._path is not None:
            way, edges = sql.col(self._found), sql.array(sql.col(self._loop))
            nodes = sql.when(start == node, sql.array(start, start))
            columns.append(nodes.otherwise(way[self._path.nodes]).alias(self._path.nodes))
            chosen = sql.when(start == node, edges).otherwise(way[self._path.edges])
            columns.append(chosen.alias(self._path.edges))
        return Reached(
            frame=kept.select(*columns), start=self._start, end=self._node, path=self._path
        )


def _no_ids() -> Column:
    return sql.array().cast("array<string>")
