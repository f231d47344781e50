"""Reads the tables of a pattern on Spark, searches along edges, and joins blocks to rows.

A search is breadth-first, from all starts together. Every level is one join and one aggregate over
all that was found before, so a search of a few levels is one lazy plan. A longer one, or one
without a maximum, runs level by level and stops where nothing new is found.

Invariants:
- Everything is read from the one snapshot of the run: only the columns that are needed, filtered
  where they are read. Blobs are never read.
- A search finds a node once per start, at its smallest distance, and with it the best of the
  shortest paths. The start itself is found only over an edge from itself to itself.
- The matches of a block depend only on the variables that it reads from outside. So it runs once
  for each combination of these, and is joined by their identities, where null equals null. Rows are
  not numbered, because Spark could number them differently at every attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Final, assert_never

from pyspark.sql import functions as sql

from omnigraph_lake.engine.access.conditions import lance_filter
from omnigraph_lake.engine.frames import RequiredColumns
from omnigraph_lake.engine.spark import rows as spark_rows
from omnigraph_lake.engine.spark.expressions import Expressions
from omnigraph_lake.engine.spark.table_frames import table_frame
from omnigraph_lake.errors import QueryBudgetError
from omnigraph_lake.names import (
    END_TYPE_COLUMNS,
    ID_COLUMN,
    SOURCE_COLUMN,
    TARGET_COLUMN,
    edge_table_key,
    node_table_key,
)
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import plan as lp
from omnigraph_lake.query import types as qt
from omnigraph_lake.query.ast import BinaryOperator, EdgeDirection, SubPatternKind
from omnigraph_lake.query.binding import BoundParameters
from omnigraph_lake.query.columns import TYPE_FIELD
from omnigraph_lake.query.typed import EdgeStep
from omnigraph_lake.query.types import BLOB
from omnigraph_lake.runner.scan import ROWS_PER_TASK
from omnigraph_lake.runner.session import without_noise
from omnigraph_lake.runner.spark_versions import compute_once
from omnigraph_lake.schema.catalog import EdgeType, Property
from omnigraph_lake.schema.ends import polymorphic_ends
from omnigraph_lake.storage.lance.tables import find_entry

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_MERGED_EDGES_MIN: Final = ROWS_PER_TASK
"""Over fewer edges an exchange of rows costs more than the rows that it saves."""
_REPEATS_MIN: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Ways from one node to another: a row per edge, or two where both directions count.

    `edge` holds the edge itself where it has a variable, `edge_id` where its id is read, `weight`
    the property of the edge that a path is weighted by. The types of the ends have columns where
    there can be several. A step can count for one start of a search only, its `owner`.
    """

    frame: DataFrame
    start: str
    end: str
    start_type: str | None = None
    end_type: str | None = None
    edge_id: str | None = None
    weight: str | None = None
    owner: str | None = None
    edge: spark_rows.HeldEntity | None = None

    @property
    def start_key(self) -> tuple[str, ...]:
        return (self.start,) if self.start_type is None else (self.start, self.start_type)

    @property
    def end_key(self) -> tuple[str, ...]:
        return (self.end,) if self.end_type is None else (self.end, self.end_type)


class Scans:
    """The tables of one run."""

    def __init__(self, run: spark_rows.Run, expressions: Expressions) -> None:
        self._run = run
        self._expressions = expressions

    def nodes(self, plan: lp.Scan) -> spark_rows.Rows:
        """The nodes that a scan gives."""
        run = self._run
        if not plan.types:
            return spark_rows.nothing(run, (plan.variable,))
        shared = qt.properties_in_common([run.catalog.nodes[type_name] for type_name in plan.types])
        read_properties = _read(shared, plan.columns, plan.predicate)
        columns = [ID_COLUMN, *read_properties]
        fresh = [run.names.fresh() for _ in columns]
        type_column = run.names.fresh() if len(plan.types) > 1 else None
        where = _where(plan.predicate, run.parameters)
        frames = []
        for type_name in plan.types:
            frame = table_frame(run.graph, node_table_key(type_name), columns, where).toDF(*fresh)
            if type_column is not None:
                frame = frame.select("*", sql.lit(type_name).alias(type_column))
            frames.append(frame)
        held_entity = spark_rows.HeldEntity(
            id_column=fresh[0],
            types=plan.types,
            type_column=type_column,
            properties=dict(zip(read_properties, fresh[1:], strict=True)),
        )
        scanned_rows = spark_rows.Rows(
            frame=reduce(lambda above, below: above.unionAll(below), frames),
            held={plan.variable: held_entity},
            few=_names_one_id(plan.predicate),
        )
        return self._filter(scanned_rows, plan.predicate)

    def steps(self, plan: lp.Expand, *, with_id: bool) -> Steps:
        """The steps that edges allow, from a start of a hop at once to an end.

        The id of an edge is read if it is asked for, or if the edge has to meet a condition. Where
        starts or ends can be of several types, so do the columns of their types.
        """
        single_steps = plan.single_steps
        if len(single_steps) == 1 and len(plan.start_types) == len(plan.end_types) == 1:
            return self._edge_steps(plan, single_steps[0], with_id=with_id)
        parts = [self._edge_steps(plan, step, with_id=with_id) for step in single_steps]
        typed = (len(plan.start_types) > 1, len(plan.end_types) > 1)
        return self._all_steps(plan, list(zip(single_steps, parts, strict=True)), typed=typed)

    def steps_of_search(self, plan: lp.Expand, *, with_id: bool) -> Steps:
        """The steps of a search; nodes and edges of several types are ids with their types."""
        node_types, edges = types_on_the_way(plan), plan.edges
        parts = [
            self._add_types(self._edge_steps(plan, step, with_id=with_id), step, node_types, edges)
            for step in plan.steps
        ]
        if len(parts) == 1:
            return parts[0]
        return self._all_steps(
            plan, list(zip(plan.steps, parts, strict=True)), typed=(False, False)
        )

    def _add_types(
        self, steps: Steps, step: EdgeStep, node_types: tuple[str, ...], edges: tuple[str, ...]
    ) -> Steps:
        """The same steps; what can be of several types is identified by its id and its type."""
        names = self._run.names
        columns: list[Column] = []
        if len(node_types) > 1:
            start, end = names.fresh(), names.fresh()
            for name, column, type_name in (
                (start, steps.start, step.start_type),
                (end, steps.end, step.end_type),
            ):
                columns.append(spark_rows.id_with_type(column, sql.lit(type_name)).alias(name))
            steps = replace(steps, start=start, end=end)
        if len(edges) > 1 and steps.edge_id is not None:
            edge_id = names.fresh()
            columns.append(
                spark_rows.id_with_type(steps.edge_id, sql.lit(step.edge)).alias(edge_id)
            )
            steps = replace(steps, edge_id=edge_id)
        return replace(steps, frame=steps.frame.select("*", *columns)) if columns else steps

    def _all_steps(
        self, plan: lp.Expand, parts: Sequence[tuple[EdgeStep, Steps]], *, typed: tuple[bool, bool]
    ) -> Steps:
        """The steps over several edge types as rows of one frame."""
        names = self._run.names
        _, first = parts[0]
        start_type, end_type = (names.fresh() if is_typed else None for is_typed in typed)
        edge_type = names.fresh() if len(plan.edges) > 1 else None
        every = Steps(
            frame=first.frame,
            start=names.fresh(),
            end=names.fresh(),
            start_type=start_type,
            end_type=end_type,
            edge_id=None if first.edge_id is None else names.fresh(),
            weight=None if first.weight is None else names.fresh(),
        )
        if first.edge is not None:
            assert every.edge_id is not None
            edge = spark_rows.HeldEntity(
                id_column=every.edge_id,
                types=plan.edges,
                type_column=edge_type,
                properties={name: names.fresh() for name in first.edge.properties},
            )
            every = replace(every, edge=edge)
        frames = [_select_steps(steps, step, every) for step, steps in parts]
        return replace(every, frame=reduce(lambda above, below: above.unionAll(below), frames))

    def _edge_steps(self, plan: lp.Expand, step: EdgeStep, *, with_id: bool) -> Steps:
        """The steps over one edge type."""
        run = self._run
        read_properties: Mapping[str, Property] = {}
        if plan.edge_variable is not None:
            declared = qt.properties_in_common([run.catalog.edges[edge] for edge in plan.edges])
            read_properties = _read(declared, plan.edge_columns, plan.edge_predicate)
        ids = [ID_COLUMN] if with_id or plan.edge_predicate is not None else []
        end_types = _end_types(run.catalog.edges[step.edge], step)
        weights = [] if plan.weight is None else [plan.weight]
        columns = [SOURCE_COLUMN, TARGET_COLUMN, *ids, *weights, *read_properties]
        fresh = {name: run.names.fresh() for name in columns}
        where = _where(plan.edge_predicate, run.parameters)
        table = table_frame(run.graph, edge_table_key(step.edge), [*columns, *end_types], where)
        for name, (number, implicit) in end_types.items():
            stored = sql.col(name)
            known = stored if implicit is None else sql.coalesce(stored, sql.lit(implicit))
            table = table.where(known == number)
        frame = table.select(*columns).toDF(*fresh.values())
        steps = Steps(
            frame=frame,
            start=fresh[SOURCE_COLUMN],
            end=fresh[TARGET_COLUMN],
            edge_id=fresh.get(ID_COLUMN),
            weight=None if plan.weight is None else fresh[plan.weight],
        )
        if plan.edge_variable is not None and ids:
            properties = {name: column for name, column in fresh.items() if name != ID_COLUMN}
            edge = spark_rows.HeldEntity(
                id_column=fresh[ID_COLUMN], types=(step.edge,), properties=properties
            )
            rows = spark_rows.Rows(frame=frame, held={plan.edge_variable: edge})
            frame = self._filter(rows, plan.edge_predicate).frame
            steps = replace(steps, frame=frame, edge=edge)
        return self._directed(steps, step.direction)

    def _directed(self, steps: Steps, direction: EdgeDirection) -> Steps:
        match direction:
            case EdgeDirection.FORWARD:
                return steps
            case EdgeDirection.BACKWARD:
                return replace(steps, start=steps.end, end=steps.start)
            case EdgeDirection.EITHER:
                return self._both_ways(steps)
            case _:
                assert_never(direction)

    def _both_ways(self, steps: Steps) -> Steps:
        """An edge from a node to itself is one step, every other edge is two."""
        start, end = self._run.names.fresh(), self._run.names.fresh()
        there = sql.struct(sql.col(steps.start).alias(start), sql.col(steps.end).alias(end))
        back = sql.struct(sql.col(steps.end).alias(start), sql.col(steps.start).alias(end))
        loop = sql.col(steps.start) == sql.col(steps.end)
        ways = sql.when(loop, sql.array(there)).otherwise(sql.array(there, back))
        frame = steps.frame.select("*", sql.inline(ways).alias(start, end))
        return replace(steps, frame=frame, start=start, end=end)

    def _filter(self, rows: spark_rows.Rows, predicate: ex.Expression | None) -> spark_rows.Rows:
        if predicate is None:
            return rows
        condition = self._expressions.column(predicate, rows)
        return replace(rows, frame=rows.frame.where(condition))

    def expects_repeats(self, plan: lp.Expand) -> bool:
        """Whether a hop is expected to reach many nodes several times, over a table that counts."""
        graph = self._run.graph
        edges, nodes = (
            sum(find_entry(graph.root, graph.snapshot, key).row_count for key in table_keys)
            for table_keys in (
                map(edge_table_key, plan.edges),
                map(node_table_key, plan.end_types),
            )
        )
        return edges >= max(_MERGED_EDGES_MIN, _REPEATS_MIN * nodes)


def _select_steps(steps: Steps, step: EdgeStep, every: Steps) -> DataFrame:
    """The steps over one edge type, with the columns that all of them have."""
    columns: list[Column] = [
        sql.col(steps.start).alias(every.start),
        sql.col(steps.end).alias(every.end),
    ]
    if every.start_type is not None:
        columns.append(sql.lit(step.start_type).alias(every.start_type))
    if every.end_type is not None:
        columns.append(sql.lit(step.end_type).alias(every.end_type))
    if every.edge_id is not None:
        assert steps.edge_id is not None
        columns.append(sql.col(steps.edge_id).alias(every.edge_id))
    if every.weight is not None:
        assert steps.weight is not None
        columns.append(sql.col(steps.weight).alias(every.weight))
    if every.edge is not None:
        assert steps.edge is not None
        if every.edge.type_column is not None:
            columns.append(sql.lit(step.edge).alias(every.edge.type_column))
        columns += [
            sql.col(steps.edge.properties[name]).alias(column)
            for name, column in every.edge.properties.items()
        ]
    return steps.frame.select(*columns)


def _read(
    declared: Mapping[str, Property], later: Iterable[str] | None, predicate: ex.Expression | None
) -> Mapping[str, Property]:
    """The properties that a condition or a later step reads; all if `later` is None."""
    readable = {
        name: declared_property
        for name, declared_property in declared.items()
        if declared_property.type != BLOB
    }
    if later is None:
        return readable
    inside = () if predicate is None else ex.walk(predicate)
    wanted = {
        *later,
        *(expression.name for expression in inside if isinstance(expression, ex.PropertyOf)),
    }
    return {
        name: declared_property for name, declared_property in readable.items() if name in wanted
    }


def _end_types(edge: EdgeType, step: EdgeStep) -> dict[str, tuple[int, int | None]]:
    """By column, the number of the type that an end of a step has, and what null means there."""
    types = (step.start_type, step.end_type)
    if step.direction is EdgeDirection.BACKWARD:
        types = types[::-1]
    chosen = dict(zip((SOURCE_COLUMN, TARGET_COLUMN), types, strict=True))
    return {
        END_TYPE_COLUMNS[column]: (end.numbers()[chosen[column]], end.implicit_number)
        for column, end in polymorphic_ends(edge).items()
    }


def _where(predicate: ex.Expression | None, parameters: BoundParameters) -> str | None:
    return None if predicate is None else lance_filter(predicate, parameters)


def _names_one_id(predicate: ex.Expression | None) -> bool:
    """Whether only one entity of a type can meet the condition."""
    if predicate is None:
        return False
    equal = [
        (side, other)
        for conjunct in ex.conjuncts(predicate)
        if isinstance(conjunct, ex.Comparison) and conjunct.operator is BinaryOperator.EQUAL
        for side, other in ((conjunct.left, conjunct.right), (conjunct.right, conjunct.left))
    ]
    return any(
        isinstance(side, ex.PropertyOf)
        and side.name == ID_COLUMN
        and isinstance(other, ex.Constant | ex.Parameter)
        for side, other in equal
    )


LEVELS_AT_ONCE: Final = 3
LEVELS_MOST: Final = 10_000
"""A search without a maximum that finds new nodes for so many rounds is an error."""
TYPED_ID: Final = f"struct<{ID_COLUMN}:string,{TYPE_FIELD}:string>"
"""The type of `spark_rows.id_with_type`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Which nodes are reached from which, and over which path if it has a variable.

    `start` and `end` are the columns of ids and, where there can be several, of types.
    """

    frame: DataFrame
    start: tuple[str, ...]
    end: tuple[str, ...]
    path: spark_rows.HeldPath | None = None


def search(plan: lp.Expand, starts: DataFrame, steps: Steps, names: spark_rows.Names) -> Reached:
    """What is reached from the starts, a frame of one column, within the bounds of the hop."""
    (start,) = starts.columns
    return _Search(plan, steps, names).run(starts, start)


class _Search:
    """One search; its rows hold a start, a node, and the best way known between them."""

    def __init__(self, plan: lp.Expand, steps: Steps, names: spark_rows.Names) -> None:
        self._plan = plan
        self._steps = steps
        self._start, self._node, self._loop = names.fresh(), names.fresh(), names.fresh()
        self._distance, self._found = names.fresh(), names.fresh()
        self._path: spark_rows.HeldPath | None = None
        if plan.path_variable is not None:
            self._path = spark_rows.HeldPath(
                nodes=names.fresh(),
                edges=names.fresh(),
                node_types=types_on_the_way(plan),
                edge_types=plan.edges,
            )
        self._edge_type = TYPED_ID if len(plan.edges) > 1 and self._path is not None else "string"

    def run(self, starts: DataFrame, start: str) -> Reached:
        reached_rows = starts.select(
            sql.col(start).alias(self._start),
            sql.col(start).alias(self._node),
            sql.lit(None).cast(self._edge_type).alias(self._loop),
            self._way(sql.lit(0), nodes=sql.array(start), edges=self._no_edges()).alias(
                self._found
            ),
        )
        maximum = self._plan.maximum
        lazy = maximum is not None and maximum <= LEVELS_AT_ONCE
        for level in range(LEVELS_MOST if maximum is None else maximum):
            reached_rows = self._level(reached_rows, level)
            if lazy:
                continue
            with without_noise(), spark_rows.query_errors():
                reached_rows = compute_once(reached_rows)
                if reached_rows.where(sql.col(self._found)[self._distance] == level + 1).isEmpty():
                    break
        else:
            if maximum is None:
                raise too_many_rounds(self._plan.edges)
        return self._within_bounds(reached_rows)

    def _no_edges(self) -> Column:
        return sql.array().cast(f"array<{self._edge_type}>")

    def _way(self, distance: Column, *, nodes: Column, edges: Column) -> Column:
        """Ways compare by distance, then by node ids, then by edge ids."""
        parts = [distance.alias(self._distance)]
        if self._path is not None:
            parts += [nodes.alias(self._path.nodes), edges.alias(self._path.edges)]
        return sql.struct(*parts)

    def _level(self, data_frame: DataFrame, level: int) -> DataFrame:
        """All nodes found, and those reached from the newest of them."""
        steps = self._steps
        newest = sql.col(self._found)[self._distance] == level
        follows = (sql.col(self._node) == sql.col(steps.start)) & newest
        if steps.owner is not None:
            follows &= sql.col(self._start) == sql.col(steps.owner)
        joined = data_frame.join(steps.frame, follows, "left")
        stayed_row = self._row(sql.col(self._node), sql.col(self._loop), sql.col(self._found))
        moved_row = self._row(sql.col(steps.end), self._loop_edge(level), self._longer(level))
        has_step = sql.col(steps.end).isNotNull()
        both = sql.when(has_step, sql.array(stayed_row, moved_row)).otherwise(sql.array(stayed_row))
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
            return sql.lit(None).cast(self._edge_type)
        edge = sql.lit("") if self._path is None else sql.col(str(self._steps.edge_id))
        return sql.when(sql.col(self._steps.end) == sql.col(self._start), edge)

    def _longer(self, level: int) -> Column:
        distance = sql.lit(level + 1)
        if self._path is None:
            return self._way(distance, nodes=self._no_edges(), edges=self._no_edges())
        way, end = sql.col(self._found), sql.array(sql.col(self._steps.end))
        edge = sql.array(sql.col(str(self._steps.edge_id)))
        nodes, edges = way[self._path.nodes], way[self._path.edges]
        if self._plan.turned:
            return self._way(distance, nodes=sql.concat(end, nodes), edges=sql.concat(edge, edges))
        return self._way(distance, nodes=sql.concat(nodes, end), edges=sql.concat(edges, edge))

    def _within_bounds(self, data_frame: DataFrame) -> Reached:
        plan, start, node = self._plan, sql.col(self._start), sql.col(self._node)
        loop = (start == node) & sql.col(self._loop).isNotNull() & sql.lit(plan.minimum == 1)
        distance = sql.col(self._found)[self._distance]
        within = distance >= plan.minimum
        if plan.maximum is not None:
            within &= distance <= plan.maximum
        kept = data_frame.where(loop | ((start != node) | sql.lit(plan.minimum == 0)) & within)
        columns = [start, node]
        if self._path is not None:
            way, edges = sql.col(self._found), sql.array(sql.col(self._loop))
            over_loop = (start == node) & sql.lit(plan.minimum == 1)
            nodes = sql.when(over_loop, sql.array(start, start))
            columns.append(nodes.otherwise(way[self._path.nodes]).alias(self._path.nodes))
            chosen = sql.when(over_loop, edges).otherwise(way[self._path.edges])
            columns.append(chosen.alias(self._path.edges))
        return Reached(
            frame=kept.select(*columns), start=(self._start,), end=(self._node,), path=self._path
        )


def searches_levels(plan: lp.Expand) -> bool:
    """Whether a hop is a search from each start, which uses the rows before it twice."""
    return plan.edge_variable is None and (plan.searches or plan.weight is not None)


def too_many_rounds(edges: tuple[str, ...]) -> QueryBudgetError:
    return QueryBudgetError(
        f"the search along {', '.join(edges)} still found new nodes after {LEVELS_MOST:,} rounds",
        next_step="Give the hops a maximum, such as `{1,20}`, or run the query with "
        '`engine="local"`.',
    )


def types_on_the_way(plan: lp.Expand) -> tuple[str, ...]:
    """The types of all nodes that a path can have, sorted."""
    types = {step.end_type for step in plan.steps} | {step.start_type for step in plan.steps}
    return tuple(sorted(types.union(plan.start_types, plan.end_types)))


def outer_variables(inner: lp.Plan) -> tuple[str, ...]:
    """What a block reads from outside."""
    match inner:
        case lp.Outer():
            return inner.variables
        case lp.Expand() | lp.Filter() | lp.Anti() | lp.Semi() | lp.Apply() | lp.Optional():
            return outer_variables(inner.input)
        case lp.Cross():
            return tuple(
                dict.fromkeys((*outer_variables(inner.left), *outer_variables(inner.right)))
            )
        case _:
            return ()


def source_of(plan: lp.BlockJoin, wanted: RequiredColumns) -> tuple[lp.Plan, RequiredColumns]:
    """The lowest plan that has every variable the block reads, and what its rows are asked for.

    It may have more rows than the input of the block, but other blocks between the two are not
    evaluated for it.
    """
    needed = frozenset(outer_variables(plan.inner))
    source: lp.Plan = plan.input
    below = below_block(plan, wanted)
    while isinstance(source, lp.BlockJoin) and needed <= lp.variables_bound(source.input):
        below = below_block(source, below)
        source = source.input
    return source, below


def below_block(plan: lp.BlockJoin, wanted: RequiredColumns) -> RequiredColumns:
    """What the rows around a block must have."""
    introduced: tuple[str, ...] = ()
    match plan:
        case lp.Optional():
            introduced = plan.introduced
        case lp.Apply():
            introduced = (plan.variable,)
        case lp.Anti() | lp.Semi():
            pass
        case _:
            assert_never(plan)
    return wanted.below(outer_variables(plan.inner), introduced)


def inside_block(plan: lp.BlockJoin, wanted: RequiredColumns) -> RequiredColumns:
    """What the rows of a block must have: the variables around it, and those it introduces."""
    around = frozenset(outer_variables(plan.inner))
    if not isinstance(plan, lp.Optional):
        counts = isinstance(plan, lp.Apply) and plan.kind is SubPatternKind.COUNT
        return RequiredColumns(variables=around, counted=True, weighed=counts)
    return replace(wanted, variables=around | (wanted.variables & frozenset(plan.introduced)))


def keep_by_match(
    rows: spark_rows.Rows, outer: spark_rows.Rows, inner: spark_rows.Rows, *, kept: bool
) -> spark_rows.Rows:
    """The rows for which the block, started from `outer`, found something, or those without."""
    if not _can_match(outer, inner):
        return replace(rows, frame=rows.frame.limit(0)) if kept else rows
    keys = _keys(rows, outer)
    matches = inner.frame.select(*(other for _, other in keys))
    how = "left_semi" if kept else "left_anti"
    return replace(rows, frame=spark_rows.block_join(rows.frame, matches, keys, how))


def with_matches_counted(
    plan: lp.Apply,
    rows: spark_rows.Rows,
    outer: spark_rows.Rows,
    inner: spark_rows.Rows,
    names: spark_rows.Names,
) -> spark_rows.Rows:
    """Each row with how often the block found something for it, or whether it did."""
    matches = names.fresh()
    held = {**rows.held, plan.variable: spark_rows.HeldMatches(matches=matches)}
    none = sql.lit(0).cast("bigint")
    if not _can_match(outer, inner):
        return replace(rows, frame=rows.frame.select("*", none.alias(matches)), held=held)
    keys = _keys(rows, outer)
    others = list(dict.fromkeys(other for _, other in keys))
    number = names.fresh()
    if plan.kind is SubPatternKind.COUNT:
        total, present = names.fresh(), names.fresh()
        summand = sql.lit(1) if inner.weight is None else sql.col(inner.weight)
        sums = inner.frame.groupBy(*others).agg(
            sql.try_sum(summand).alias(total), sql.count(sql.lit(1)).alias(present)
        )
        # Without keys there is a sum of nothing, which is null.
        is_lost = sql.col(total).isNull() & (sql.col(present) > 0)
        exact = sql.when(is_lost, spark_rows.out_of_range()).otherwise(sql.col(total))
        counted = sums.select(*others, exact.alias(number))
    elif others:
        counted = inner.frame.select(*others).distinct().select("*", sql.lit(1).alias(number))
    else:
        counted = inner.frame.select(sql.lit(1).alias(number)).limit(1)
    joined = spark_rows.block_join(rows.frame, counted, keys, "left")
    value = sql.coalesce(sql.col(number).cast("bigint"), none)
    return replace(rows, frame=joined.select(*rows.frame.columns, value.alias(matches)), held=held)


def with_matches(
    rows: spark_rows.Rows,
    outer: spark_rows.Rows,
    inner: spark_rows.Rows,
    introduced: tuple[str, ...],
    names: spark_rows.Names,
) -> spark_rows.Rows:
    """Each row with every match of the block, or once with the new variables null."""
    if not _can_match(outer, inner):
        return replace(rows, held={**rows.held, **dict.fromkeys(introduced, spark_rows.Absent())})
    new = {name: inner.held[name] for name in introduced if name in inner.held}
    keys = _keys(rows, outer)
    columns = [
        column for held_variable in new.values() for column in spark_rows.columns_of(held_variable)
    ]
    factor = names.fresh()
    weight = () if inner.weight is None else (sql.col(inner.weight).alias(factor),)
    matches = inner.frame.select(*dict.fromkeys((*(other for _, other in keys), *columns)), *weight)
    frame = spark_rows.block_join(rows.frame, matches, keys, "left")
    wider = replace(rows, frame=frame, held={**rows.held, **new}, few=False)
    if inner.weight is None:
        return wider
    once = sql.coalesce(sql.col(factor), sql.lit(1).cast("bigint"))
    return spark_rows.weigh(replace(wider, frame=frame.withColumn(factor, once)), factor, names)


def _can_match(outer: spark_rows.Rows, inner: spark_rows.Rows) -> bool:
    """Whether the block kept the rows it started from; one that is empty beforehand did not."""
    return all(inner.held.get(name) == held_variable for name, held_variable in outer.held.items())


def _keys(rows: spark_rows.Rows, outer: spark_rows.Rows) -> list[tuple[str, str]]:
    """Pairs of columns that identify the variables on both sides."""
    return [
        pair
        for name, held_variable in outer.held.items()
        for pair in zip(
            spark_rows.identity_of(rows.held[name]),
            spark_rows.identity_of(held_variable),
            strict=True,
        )
    ]
