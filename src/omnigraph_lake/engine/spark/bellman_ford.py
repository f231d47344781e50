"""Searches for paths with the smallest weight on Spark (Bellman-Ford).

First come the smallest weights of all nodes that the starts reach, round by round until none gets
smaller. Then a breadth-first search from every start finds the paths, along the steps that keep the
smallest weight of both ends.

Invariants:
- A weight is added to the sum of the path in front of it, from the start on, so that sums of floats
  are those of the executor of one process. Integers are added exactly.
- A step without a weight is not followed. A negative weight, or NaN, of a step that leads from a
  node that was reached fails the job.
- Of several paths the one with the fewest edges is taken, then by nodes, then by edges. Where these
  can be of several types they are ids with types, which compare by id first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from omnigraph_lake.engine.spark import patterns
from omnigraph_lake.engine.spark import rows as spark_rows
from omnigraph_lake.engine.spark.expressions import DOUBLE
from omnigraph_lake.engine.spark.patterns import (
    Reached,
    Steps,
    search,
    too_many_rounds,
    types_on_the_way,
)
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.query.columns import TYPE_FIELD
from omnigraph_lake.runner.session import without_noise
from omnigraph_lake.runner.spark_versions import compute_once

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from omnigraph_lake.query import plan as lp


def search_by_weight(
    plan: lp.Expand,
    starts: DataFrame,
    steps: Steps,
    names: spark_rows.Names,
    *,
    integers: bool,
    with_path: bool,
) -> Reached:
    """What is reached from the starts, a frame of one column, and by which path if that is read."""
    assert steps.weight is not None
    usable = steps.frame.where(sql.col(steps.weight).isNotNull())
    number = spark_rows.EXACT_WEIGHT if integers else DOUBLE
    paths = _WeightedPaths(plan, replace(steps, frame=usable), names, number)
    totals = paths.smallest_weights(starts)
    return paths.with_paths(starts, totals) if with_path else paths.ends(starts, totals)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Totals:
    """The smallest weight of a path from a start, the owner, to a node."""

    frame: DataFrame
    owner: str
    node: str
    total: str


class _WeightedPaths:
    def __init__(self, plan: lp.Expand, steps: Steps, names: spark_rows.Names, number: str) -> None:
        assert steps.weight is not None
        assert steps.edge_id is not None
        self._plan = plan
        self._steps = steps
        self._names = names
        self._number = number
        self._weight = steps.weight
        self._edge_id = steps.edge_id

    def smallest_weights(self, starts: DataFrame) -> _Totals:
        """Round by round: a weight that became smaller is added to the steps from its node."""
        (start,) = starts.columns
        owner, node, total, before = (self._names.fresh() for _ in range(4))
        unknown = sql.lit(None).cast(self._number)
        totals = starts.select(
            sql.col(start).alias(owner),
            sql.col(start).alias(node),
            sql.lit(0).cast(self._number).alias(total),
            unknown.alias(before),
        )
        is_smaller = sql.col(before).isNull() | (sql.col(total) < sql.col(before))
        for _ in range(patterns.LEVELS_MOST):
            stayed = totals.select(owner, node, total, sql.col(total).alias(before))
            follows = sql.col(node) == sql.col(self._steps.start)
            moved = totals.where(is_smaller).join(self._steps.frame, follows)
            longer = moved.select(
                owner,
                sql.col(self._steps.end).alias(node),
                self._longer(sql.col(total)).alias(total),
                unknown.alias(before),
            )
            both = stayed.unionAll(longer).groupBy(owner, node)
            smallest = both.agg(sql.min(total).alias(total), sql.min(before).alias(before))
            with without_noise(), spark_rows.query_errors():
                totals = compute_once(smallest)
                if totals.where(is_smaller).isEmpty():
                    return _Totals(frame=totals, owner=owner, node=node, total=total)
        raise too_many_rounds(self._plan.edges)

    def ends(self, starts: DataFrame, totals: _Totals) -> Reached:
        """The nodes alone."""
        pairs = totals.frame.select(totals.owner, totals.node)
        if self._plan.minimum > 0:
            others = pairs.where(sql.col(totals.owner) != sql.col(totals.node))
            loops = self._loops(starts)
            pairs = others.unionAll(loops.frame.select(*loops.start, *loops.end))
        return Reached(frame=pairs, start=(totals.owner,), end=(totals.node,))

    def with_paths(self, starts: DataFrame, totals: _Totals) -> Reached:
        """The nodes with their paths."""
        plan = replace(self._plan, minimum=0)
        paths = search(plan, starts, self._steps_of_paths(totals), self._names)
        assert paths.path is not None
        weight = self._names.fresh()
        path = replace(paths.path, weight=weight)
        (start,), (end,) = paths.start, paths.end
        same = (sql.col(start) == sql.col(totals.owner)) & (sql.col(end) == sql.col(totals.node))
        frame = paths.frame.join(totals.frame, same).select(
            start, end, path.nodes, path.edges, sql.col(totals.total).alias(weight)
        )
        if self._plan.minimum > 0:
            loops = self._loops(starts)
            others = frame.where(sql.col(start) != sql.col(end))
            frame = others.unionAll(loops.frame)
        return replace(paths, frame=frame, path=path)

    def _loops(self, starts: DataFrame) -> Reached:
        """The starts that an edge leads from to themselves, each with the best such edge."""
        (start,) = starts.columns
        is_loop = sql.col(self._steps.start) == sql.col(self._steps.end)
        steps = self._steps.frame.where(is_loop)
        owner, node, best, weight = (self._names.fresh() for _ in range(4))
        path = spark_rows.HeldPath(
            nodes=self._names.fresh(),
            edges=self._names.fresh(),
            node_types=types_on_the_way(self._plan),
            edge_types=self._plan.edges,
            weight=weight,
        )
        candidate = sql.struct(
            self._longer(sql.lit(0).cast(self._number)).alias(weight),
            sql.col(self._edge_id).alias(path.edges),
        )
        joined = starts.join(steps, sql.col(start) == sql.col(self._steps.start))
        ways = joined.select(
            sql.col(start).alias(owner), sql.col(self._steps.end).alias(node), candidate.alias(best)
        )
        chosen = ways.groupBy(owner, node).agg(sql.min(best).alias(best))
        frame = chosen.select(
            owner,
            node,
            sql.array(owner, node).alias(path.nodes),
            sql.array(sql.col(best)[path.edges]).alias(path.edges),
            sql.col(best)[weight].alias(weight),
        )
        return Reached(frame=frame, start=(owner,), end=(node,), path=path)

    def _steps_of_paths(self, totals: _Totals) -> Steps:
        """The steps of each start that lead from the smallest weight of a node to another's."""
        there = {name: self._names.fresh() for name in totals.frame.columns}
        others = totals.frame.select(*(sql.col(old).alias(new) for old, new in there.items()))
        steps = self._steps
        joined = totals.frame.join(steps.frame, sql.col(totals.node) == sql.col(steps.start)).join(
            others,
            (sql.col(totals.owner) == sql.col(there[totals.owner]))
            & (sql.col(steps.end) == sql.col(there[totals.node])),
        )
        sum_of_both = sql.col(totals.total) + sql.col(self._weight).cast(self._number)
        kept = joined.where(sum_of_both == sql.col(there[totals.total]))
        owner, start, end, edge = (self._names.fresh() for _ in range(4))
        frame = kept.select(
            sql.col(totals.owner).alias(owner),
            sql.col(steps.start).alias(start),
            sql.col(steps.end).alias(end),
            sql.col(self._edge_id).alias(edge),
        )
        with without_noise(), spark_rows.query_errors():
            frame = compute_once(frame)
        return Steps(frame=frame, start=start, end=end, edge_id=edge, owner=owner)

    def _longer(self, total: Column) -> Column:
        """A sum and the weight of one more step."""
        weight = sql.col(self._weight).cast(self._number)
        is_wrong = weight < 0
        if self._number == DOUBLE:
            is_wrong |= sql.isnan(weight)
        edge_id, edge_type = sql.col(self._edge_id), sql.lit(self._plan.edges[0])
        if len(self._plan.edges) > 1:
            edge_id, edge_type = edge_id[ID_COLUMN], edge_id[TYPE_FIELD]
        refused = spark_rows.negative_weight(
            edge_id, edge_type, str(self._plan.weight), sql.col(self._weight)
        )
        return sql.when(is_wrong, refused).otherwise(total + weight).cast(self._number)
