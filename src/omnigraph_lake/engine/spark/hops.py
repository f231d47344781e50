"""Follows the edges of a pattern on Spark, and counts steps instead of making them where it can.

What later steps read decides how a hop runs. If they read only how many nodes it reaches, rows are
joined with the counts of their steps; if they read only the nodes that it reaches, these come once
with a count. Rows of a whole node type that are read only by id are taken from the edges.

Invariants:
- Without a variable for the edge a reached node is one row per row, however many edges lead to it;
  with one, every edge is a row. Pairs of nodes are made distinct unless they are known to be, or
  their number is not asked for. A null start, or one of another type, reaches nothing.
- Both ends of an edge exist: every commit keeps that. So the nodes of the type at an end of an edge
  need not be read to know that they are there.
- Rows become one row with a weight only where later steps allow it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from omnigraph_lake.engine.frames import RequiredColumns
from omnigraph_lake.engine.spark import rows as spark_rows
from omnigraph_lake.engine.spark.bellman_ford import search_by_weight
from omnigraph_lake.engine.spark.patterns import (
    Reached,
    Scans,
    search,
    searches_levels,
    types_on_the_way,
)
from omnigraph_lake.engine.spark.table_frames import UNIQUE_PAIRS, counts_by_end
from omnigraph_lake.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph_lake.query import plan as lp
from omnigraph_lake.query.ast import EdgeDirection
from omnigraph_lake.query.columns import TYPE_FIELD
from omnigraph_lake.query.types import is_integer
from omnigraph_lake.schema.ends import end_type_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def reads_below(plan: lp.Expand, wanted: RequiredColumns) -> RequiredColumns:
    """What the rows before a hop must have."""
    bound = (plan.end,) if plan.end_bound else ()
    new = (plan.edge_variable, plan.path_variable, *(() if plan.end_bound else (plan.end,)))
    return wanted.below((plan.start, *bound), new)


def starts_everywhere(plan: lp.Expand, wanted: RequiredColumns) -> bool:
    """Whether a hop starts from all nodes of its type, of which later steps read only the ids."""
    scan = plan.input
    return (
        isinstance(scan, lp.Scan)
        and len(plan.steps) == 1
        and scan.types == plan.start_types
        and scan.predicate is None
        and (scan.columns == () or plan.start not in wanted.variables)
        and plan.minimum == 1
        and not plan.end_bound
        and plan.path_variable not in wanted.variables
        and not searches_levels(plan)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One hop of a pattern, and what later steps read of its rows."""

    plan: lp.Expand
    wanted: RequiredColumns
    run: spark_rows.Run
    scans: Scans

    def from_everywhere(self) -> spark_rows.Rows:
        """The rows of a hop that starts from all nodes of its type."""
        plan, wanted = self.plan, self.wanted
        if self._only_counts:
            return self._counts(at_end=False)
        if wanted.counted and not {plan.start, plan.edge_variable} & wanted.variables:
            return self._with_end(self._counts(at_end=True))
        reached, new = self._one_step(None)
        rows = spark_rows.Rows(frame=reached.frame, held=new)
        rows = _with_node(rows, plan.start, reached.start, plan.start_types)
        return self._with_end(
            self._expect_repeats(_with_node(rows, plan.end, reached.end, plan.end_types))
        )

    def from_rows(self, rows: spark_rows.Rows) -> spark_rows.Rows:
        """The rows with the nodes that are reached from them."""
        plan = self.plan
        start_types = _possible_types(rows, plan.start, plan.start_types)
        end_types = plan.end_types
        if plan.end_bound:
            end_types = _possible_types(rows, plan.end, end_types)
        plan = replace(plan, start_types=start_types, end_types=end_types)
        leads_there = plan.searches or (plan.minimum == 1 and plan.single_steps)
        if not (start_types and end_types and leads_there):
            return spark_rows.nothing(self.run, lp.variables_bound(plan))
        rows = _of_types(rows, plan.start, start_types)
        rows = _of_types(rows, plan.end, end_types) if plan.end_bound else rows
        return replace(self, plan=plan).reach(rows)

    def reach(self, rows: spark_rows.Rows) -> spark_rows.Rows:
        """The rows, all of which have a node to start from, with the nodes that are reached."""
        rows = self._merge(rows)
        if self._only_counts:
            return self._join_counts(rows)
        if self.plan.weight is not None:
            reached, new = self._search_by_weight(rows)
        elif searches_levels(self.plan):
            reached, new = self._search(rows)
        else:
            reached, new = self._one_step(rows)
        return self._join(rows, reached, new)

    @property
    def _only_counts(self) -> bool:
        """Whether later steps read nothing new, so that only the number of steps matters."""
        plan, wanted = self.plan, self.wanted
        new = {plan.end, plan.edge_variable, plan.path_variable}
        return (
            wanted.counted
            and not plan.end_bound
            and not (new & wanted.variables)
            and not searches_levels(plan)
        )

    def _merge(self, rows: spark_rows.Rows) -> spark_rows.Rows:
        """Rows that are equal in all that is read from here on as one, if there can be many."""
        plan = self.plan
        read = reads_below(plan, self.wanted).variables & rows.held.keys()
        start = rows.held[plan.start]
        assert isinstance(start, spark_rows.HeldEntity)
        alone = read == {plan.start} and (
            plan.start not in self.wanted.variables or not start.properties
        )
        if not (rows.crowded and self.wanted.counted and alone):
            return rows
        return spark_rows.merge_equal(rows, plan.start, self.run.names, weighed=self.wanted.weighed)

    # Counts

    def _join_counts(self, rows: spark_rows.Rows) -> spark_rows.Rows:
        counts = self._counts(at_end=False, rows=rows)
        start = counts.held[self.plan.start]
        assert isinstance(start, spark_rows.HeldEntity)
        keys = _keys(self.plan.start, rows, spark_rows.identity_of(start))
        if counts.weight is None:
            return replace(rows, frame=spark_rows.semi_join(rows.frame, counts.frame, keys))
        frame = spark_rows.inner_join(rows, counts.frame, keys)
        return spark_rows.weigh(replace(rows, frame=frame), counts.weight, self.run.names)

    def _counts(self, *, at_end: bool, rows: spark_rows.Rows | None = None) -> spark_rows.Rows:
        """The nodes at one end of the steps with the number of their steps, if that is read.

        At the start only steps count whose end meets its condition. Without a number a node can be
        several rows.
        """
        plan, names = self.plan, self.run.names
        variable, types = (plan.end, plan.end_types) if at_end else (plan.start, plan.start_types)
        if self._is_counted_by_tasks(at_end=at_end, rows=rows):
            counted_rows = self._counts_of_tasks(at_end=at_end)
        else:
            reached, _ = self._one_step(rows)
            frame = reached.frame if at_end else self._ending_well(reached)
            node = reached.end if at_end else reached.start
            counted_rows = spark_rows.Rows(frame=frame, held={})
            counted_rows = _with_node(counted_rows, variable, node, types)
            if self.wanted.weighed:
                counted_rows = spark_rows.merge_equal(counted_rows, variable, names, weighed=True)
        return counted_rows

    def _is_counted_by_tasks(self, *, at_end: bool, rows: spark_rows.Rows | None) -> bool:
        plan = self.plan
        if not _is_one_way(plan) or plan.edge_predicate is not None:
            return False
        if end_type_columns(self.run.catalog.edges[plan.steps[0].edge]):
            return False  # tasks count ids, which nodes of several types may share
        if plan.predicate is not None and not at_end:
            return False
        return self._pairs_are_right(rows)

    def _counts_of_tasks(self, *, at_end: bool) -> spark_rows.Rows:
        plan, names = self.plan, self.run.names
        variable, types = (plan.end, plan.end_types) if at_end else (plan.start, plan.start_types)
        (step,) = plan.steps
        is_target = at_end is (step.direction is EdgeDirection.FORWARD)
        node, count = names.fresh(), names.fresh()
        end = TARGET_COLUMN if is_target else SOURCE_COLUMN
        counts = counts_by_end(self.run.graph, step.edge, end)
        rows = spark_rows.Rows(frame=counts.frame.toDF(node, count), held={}, weight=count)
        rows = _with_node(rows, variable, (node,), types)
        if not self.wanted.weighed:
            return replace(rows, weight=None)
        return rows if counts.once else spark_rows.merge_equal(rows, variable, names, weighed=True)

    def _ending_well(self, reached: Reached) -> DataFrame:
        """The steps whose end meets its condition."""
        if self.plan.predicate is None:
            return reached.frame
        nodes, end = self._ends(columns=())
        keys = list(zip(reached.end, spark_rows.identity_of(end), strict=True))
        return spark_rows.semi_join(reached.frame, nodes.frame, keys)

    # Steps

    def _one_step(self, rows: spark_rows.Rows | None) -> tuple[Reached, dict[str, spark_rows.Held]]:
        """The steps of single edges, and the variables they bring beside their end."""
        plan = self.plan
        edge, path = plan.edge_variable, plan.path_variable
        with_path = path is not None and path in self.wanted.variables
        with_edge = edge is not None and edge in self.wanted.variables
        if with_path:
            assert path is not None
            reached = self._shortest()
            assert reached.path is not None
            return reached, {path: reached.path}
        steps = self.scans.steps(plan, with_id=with_edge)
        reached = Reached(frame=steps.frame, start=steps.start_key, end=steps.end_key)
        if with_edge:
            assert edge is not None
            assert steps.edge is not None
            return reached, {edge: steps.edge}
        if self._pairs_are_right(rows):
            return reached, {}
        frame = steps.frame.select(*steps.start_key, *steps.end_key)
        if rows is not None and rows.few:
            starts = spark_rows.small_if_few(rows)
            keys = [(other, own) for own, other in _keys(plan.start, rows, steps.start_key)]
            frame = spark_rows.semi_join(frame, starts, keys)
        return replace(reached, frame=frame.distinct()), {}

    def _pairs_are_right(self, rows: spark_rows.Rows | None) -> bool:
        """Whether every edge, as it is read, is a row of its own, or repeats do not matter."""
        plan = self.plan
        if plan.edge_variable is not None or plan.end_bound or not self.wanted.weighed:
            return True
        if (rows is not None and rows.few) or not _is_one_way(plan):
            return False
        (step,) = plan.steps
        return UNIQUE_PAIRS.holds(self.run.graph, self.run.catalog.edges[step.edge])

    def _search_by_weight(
        self, rows: spark_rows.Rows
    ) -> tuple[Reached, dict[str, spark_rows.Held]]:
        plan = self.plan
        path = plan.path_variable if plan.path_variable in self.wanted.variables else None
        steps = self.scans.steps_of_search(plan, with_id=True)
        weight = self.run.catalog.edges[plan.edges[0]].properties[str(plan.weight)]
        reached = search_by_weight(
            plan,
            self._starts(rows),
            steps,
            self.run.names,
            integers=is_integer(weight.type),
            with_path=path is not None,
        )
        return self._with_path(reached, path)

    def _search(self, rows: spark_rows.Rows) -> tuple[Reached, dict[str, spark_rows.Held]]:
        plan = self.plan
        path = plan.path_variable if plan.path_variable in self.wanted.variables else None
        plan = replace(plan, path_variable=path)
        steps = self.scans.steps_of_search(plan, with_id=path is not None)
        return self._with_path(search(plan, self._starts(rows), steps, self.run.names), path)

    def _starts(self, rows: spark_rows.Rows) -> DataFrame:
        """The nodes that a search starts from, as `steps_of_search` identifies them."""
        start = rows.held[self.plan.start]
        assert isinstance(start, spark_rows.HeldEntity)
        node = sql.col(start.id_column)
        if len(types_on_the_way(self.plan)) > 1:
            node = spark_rows.id_with_type(start.id_column, spark_rows.type_of(start))
        return rows.frame.select(node.alias(self.run.names.fresh())).distinct()

    def _with_path(
        self, reached: Reached, path: str | None
    ) -> tuple[Reached, dict[str, spark_rows.Held]]:
        reached = self._with_types(reached)
        if path is None:
            return reached, {}
        assert reached.path is not None
        return reached, {path: reached.path}

    def _shortest(self) -> Reached:
        """Every pair of nodes that one step joins, once, with its path."""
        plan, names = self.plan, self.run.names
        steps = self.scans.steps_of_search(replace(plan, steps=plan.single_steps), with_id=True)
        assert steps.edge_id is not None
        start, end = sql.col(steps.start), sql.col(steps.end)
        path = spark_rows.HeldPath(
            nodes=names.fresh(),
            edges=names.fresh(),
            node_types=types_on_the_way(plan),
            edge_types=plan.edges,
        )
        nodes = sql.array(end, start) if plan.turned else sql.array(start, end)
        least = steps.frame.groupBy(start, end).agg(sql.min(steps.edge_id).alias(path.edges))
        frame = least.select(
            start, end, nodes.alias(path.nodes), sql.array(path.edges).alias(path.edges)
        )
        reached = Reached(frame=frame, start=(steps.start,), end=(steps.end,), path=path)
        return self._with_types(reached)

    def _with_types(self, reached: Reached) -> Reached:
        """The same pairs of nodes; ids with types as columns of ids and, if needed, of types."""
        plan, names = self.plan, self.run.names
        if len(types_on_the_way(plan)) == 1:
            return reached
        (start,), (end,) = reached.start, reached.end
        columns: list[Column] = []
        keys: list[tuple[str, ...]] = []
        for node, types in ((start, plan.start_types), (end, plan.end_types)):
            key = (names.fresh(), names.fresh())[: 2 if len(types) > 1 else 1]
            fields = (ID_COLUMN, TYPE_FIELD)
            columns += [
                sql.col(node)[field].alias(name) for field, name in zip(fields, key, strict=False)
            ]
            keys.append(key)
        ends = reached.frame.where(sql.col(end)[TYPE_FIELD].isin(*plan.end_types))
        return replace(reached, frame=ends.select("*", *columns), start=keys[0], end=keys[1])

    def _join(
        self, rows: spark_rows.Rows, reached: Reached, new: dict[str, spark_rows.Held]
    ) -> spark_rows.Rows:
        plan = self.plan
        keys = _keys(plan.start, rows, reached.start)
        if not plan.end_bound:
            frame = spark_rows.inner_join(rows, reached.frame, keys)
            wider = _wider(rows, frame, new)
            return self._with_end(
                self._expect_repeats(_with_node(wider, plan.end, reached.end, plan.end_types))
            )
        keys += _keys(plan.end, rows, reached.end)
        if new or plan.edge_variable is not None:
            frame = spark_rows.inner_join(rows, reached.frame, keys)
        else:
            frame = spark_rows.semi_join(rows.frame, reached.frame, keys)
        return _wider(rows, frame, new)

    def _expect_repeats(self, rows: spark_rows.Rows) -> spark_rows.Rows:
        return replace(rows, crowded=self.scans.expects_repeats(self.plan))

    def _with_end(self, rows: spark_rows.Rows) -> spark_rows.Rows:
        """The reached node; its table is read only if one of its properties is used."""
        plan = self.plan
        columns = plan.columns if plan.end in self.wanted.variables else ()
        if columns == () and plan.predicate is None:
            return rows
        nodes, end = self._ends(columns=columns)
        keys = _keys(plan.end, rows, spark_rows.identity_of(end))
        wider = _wider(rows, spark_rows.inner_join(rows, nodes.frame, keys), {plan.end: end})
        return replace(wider, crowded=rows.crowded)

    def _ends(
        self, *, columns: tuple[str, ...] | None
    ) -> tuple[spark_rows.Rows, spark_rows.HeldEntity]:
        """The nodes that may be reached."""
        plan = self.plan
        scan = lp.Scan(
            variable=plan.end, types=plan.end_types, predicate=plan.predicate, columns=columns
        )
        nodes = self.scans.nodes(scan)
        end = nodes.held[plan.end]
        assert isinstance(end, spark_rows.HeldEntity)
        return nodes, end


def _is_one_way(plan: lp.Expand) -> bool:
    """Whether a hop follows one edge type in one direction."""
    return len(plan.steps) == 1 and plan.steps[0].direction is not EdgeDirection.EITHER


def _possible_types(
    rows: spark_rows.Rows, variable: str, types: tuple[str, ...]
) -> tuple[str, ...]:
    """Those of some types that a variable can have."""
    held_variable = rows.held[variable]
    if not isinstance(held_variable, spark_rows.HeldEntity):
        return ()
    return tuple(type_name for type_name in types if type_name in held_variable.types)


def _of_types(rows: spark_rows.Rows, variable: str, types: tuple[str, ...]) -> spark_rows.Rows:
    """The rows in which a variable has one of some types."""
    held_entity = rows.held[variable]
    assert isinstance(held_entity, spark_rows.HeldEntity)
    if held_entity.type_column is None or set(held_entity.types) <= set(types):
        return rows
    return replace(rows, frame=rows.frame.where(sql.col(held_entity.type_column).isin(*types)))


def _keys(variable: str, rows: spark_rows.Rows, key: tuple[str, ...]) -> list[tuple[str, str]]:
    """Pairs of the columns of a variable and those of a key, which may lack its type."""
    held_entity = rows.held[variable]
    assert isinstance(held_entity, spark_rows.HeldEntity)
    return list(zip(spark_rows.identity_of(held_entity), key, strict=False))


def _with_node(
    rows: spark_rows.Rows, variable: str, key: tuple[str, ...], types: tuple[str, ...]
) -> spark_rows.Rows:
    id_column, type_column = key if len(key) > 1 else (*key, None)
    assert id_column is not None
    node = spark_rows.HeldEntity(id_column=id_column, types=types, type_column=type_column)
    return replace(rows, held={**rows.held, variable: node})


def _wider(
    rows: spark_rows.Rows, frame: DataFrame, new: dict[str, spark_rows.Held]
) -> spark_rows.Rows:
    return replace(rows, frame=frame, held={**rows.held, **new}, few=False, crowded=False)
