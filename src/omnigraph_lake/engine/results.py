"""Turns the rows of a pattern into the columns of the result.

Values are passed from the pattern to SQL as columns, and entities as their positions. Results that
consist of counts only are computed without SQL.

Invariants:
- Columns have the types that the compiler determined.
- Order, groups and distinct rows are one SQL statement over numbers and keys. An entity is passed
  and returned as its position, so a statement moves few bytes; texts and structs are read for the
  resulting rows only. Few rows are ordered without a statement, where that gives the same order.
- Counts computed without SQL equal those of SQL.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake import names
from omnigraph_lake.derived import remember_derived
from omnigraph_lake.engine.expressions.sql import aggregate_sql, sql_of
from omnigraph_lake.engine.frames import (
    ABSENT,
    EntityColumn,
    Frame,
    PathColumn,
    Positions,
    RequiredColumns,
    ascend,
    different,
    from_numbers,
    joined,
    numbers_of,
    require_countable,
    whole,
)
from omnigraph_lake.engine.grouping import Window, can_group, group_rows, is_ordered_alike
from omnigraph_lake.engine.patterns import EntityOf, Origin, PathOver, Patterns, origins
from omnigraph_lake.engine.shapes import Shape, ShapeKind, shape_of, simplify, variables_read
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query.binding import known_count
from omnigraph_lake.query.columns import arrow_schema, engine_column
from omnigraph_lake.query.plan import PLANS_KNOWN
from omnigraph_lake.query.types import STRING
from omnigraph_lake.schema.catalog import ListType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph_lake.engine.expressions.statements import Statements
    from omnigraph_lake.engine.expressions.values import Values
    from omnigraph_lake.engine.frames import Column
    from omnigraph_lake.query.plan import Order, Plan
    from omnigraph_lake.query.typed import TypedProjection
    from omnigraph_lake.schema.catalog import Catalog


class StatementInput:
    """The columns of a statement's input, named on first use."""

    def __init__(self, values: Values, known: Mapping[str, Origin]) -> None:
        self._values = values
        self._known = known
        self._leaves: dict[ex.Expression, str] = {}
        self._entities: dict[str, str] = {}
        self._paths: dict[str, str] = {}
        self.weighted = False

    def column(self, leaf: ex.Expression) -> str:
        """The name of the column of a value."""
        return self._leaves.setdefault(leaf, f"c{len(self._leaves)}")

    def identity(self, entity: ex.Entity) -> tuple[str, str]:
        """The names of two columns that identify an entity; null with it."""
        return self.entity(entity.variable)

    def entity(self, variable: str) -> tuple[str, str]:
        name = self._entities.setdefault(variable, f"e{len(self._entities)}")
        return f"{name}_which", name

    def path(self, variable: str) -> tuple[str, str]:
        """The names of the columns of the nodes and the edges of a path."""
        name = self._paths.setdefault(variable, f"p{len(self._paths)}")
        return f"{name}_nodes", f"{name}_edges"

    def variables(self, names: Iterable[str]) -> list[str]:
        """The names of all columns that bring variables back."""
        columns: list[str] = []
        for name in names:
            brought = isinstance(self._known[name], EntityOf)
            columns += self.entity(name) if brought else self.path(name)
        return columns

    def batch(self, frame: Frame) -> pa.RecordBatch:
        """A frame as the input of the statement."""
        columns: dict[str, Column] = {}
        for leaf, name in self._leaves.items():
            columns[name] = self._values.leaf(leaf, frame)
        for variable, name in self._entities.items():
            entity = frame.entities[variable]
            absent = entity.positions == ABSENT
            mask = absent if absent.any() else None
            columns[name] = pa.array(entity.positions, mask=mask)
            which = entity.which
            columns[f"{name}_which"] = (
                pa.repeat(pa.scalar(0, pa.int16()), frame.rows)
                if which is None
                else pa.array(which, mask=mask)
            )
        for variable, name in self._paths.items():
            nodes, edges = _lists(frame.paths[variable])
            columns[f"{name}_nodes"], columns[f"{name}_edges"] = nodes, edges
        if self.weighted:
            weights = frame.weights
            ones = np.ones(frame.rows, dtype=np.int64)
            columns["weight"] = pa.array(ones if weights is None else weights)
        if not columns:
            columns["none"] = pa.nulls(frame.rows, pa.int8())
        return pa.RecordBatch.from_arrays(
            [whole(column) for column in columns.values()], names=list(columns)
        )

    def entity_of(self, variable: str, table: pa.Table | pa.RecordBatch) -> EntityColumn:
        """A variable of rows that came out of the statement."""
        which_name, name = self.entity(variable)
        origin = self._known[variable]
        assert isinstance(origin, EntityOf)
        which = None
        if len(origin.tables) > 1:
            which_values = whole(table.column(which_name)).fill_null(0)
            which = np.asarray(which_values.to_numpy(zero_copy_only=False), dtype=np.int16)
        positions = whole(table.column(name)).fill_null(ABSENT)
        return EntityColumn(
            tables=origin.tables,
            positions=np.asarray(positions.to_numpy(zero_copy_only=False), dtype=np.int64),
            which=which,
        )

    def path_of(self, variable: str, table: pa.Table | pa.RecordBatch) -> PathColumn:
        origin = self._known[variable]
        assert isinstance(origin, PathOver)
        nodes_name, edges_name = self.path(variable)
        nodes, edges = whole(table.column(nodes_name)), whole(table.column(edges_name))
        lengths = edges.value_lengths().fill_null(ABSENT)
        return PathColumn(
            lengths=np.asarray(lengths.to_numpy(), dtype=np.int64),
            nodes=from_numbers(
                origin.node_tables, np.asarray(nodes.flatten().to_numpy(), dtype=np.int64)
            ),
            edges=from_numbers(
                origin.edge_tables, np.asarray(edges.flatten().to_numpy(), dtype=np.int64)
            ),
        )

    def frame_of(self, names: Iterable[str], table: pa.Table | pa.RecordBatch) -> Frame:
        """Rows that came out of the statement, as a frame again."""
        entities: dict[str, EntityColumn] = {}
        paths: dict[str, PathColumn] = {}
        for name in names:
            if isinstance(self._known[name], EntityOf):
                entities[name] = self.entity_of(name, table)
            else:
                paths[name] = self.path_of(name, table)
        return Frame(rows=table.num_rows, entities=entities, paths=paths)


def _lists(path: PathColumn) -> tuple[pa.ListArray, pa.ListArray]:
    absent = path.lengths < 0
    mask = pa.array(absent) if absent.any() else None
    lists = []
    for values, more in ((numbers_of(path.nodes), 1), (numbers_of(path.edges), 0)):
        lengths = np.where(absent, 0, path.lengths + more)
        offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
        np.cumsum(lengths, out=offsets[1:])
        lists.append(pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), mask=mask))
    return lists[0], lists[1]


class Counter(Protocol):
    """A count over frames."""

    def add(self, frame: Frame) -> None: ...

    def total(self) -> int: ...


class RowCount:
    """How many rows there are."""

    def __init__(self) -> None:
        self._rows = 0

    def add(self, frame: Frame) -> None:
        self._rows += frame.count
        require_countable(float(self._rows))

    def total(self) -> int:
        return self._rows


class EntityCount:
    """How many different entities a variable holds."""

    def __init__(self, variable: str) -> None:
        self._variable = variable
        self._found: dict[str, list[Positions]] = {}

    def add(self, frame: Frame) -> None:
        column = frame.entities[self._variable]
        for table in column.tables:
            positions = column.positions[column.of_table(table)]
            if not ascend(positions):
                positions = different(positions)
            parts = self._found.setdefault(table, [])
            parts.append(positions)
            if len(parts) > 1 and sum(map(len, parts[1:])) > len(parts[0]):
                # Kept as one list that at least doubles, so that repeats do not pile up.
                self._found[table] = [different(np.concatenate(parts))]

    def total(self) -> int:
        return sum(
            len(parts[0]) if len(parts) == 1 else len(different(np.concatenate(parts)))
            for parts in self._found.values()
        )


def counters_of(
    expressions: Sequence[ex.Expression], known: Mapping[str, Origin]
) -> list[Counter] | None:
    """A counter for every column, or None if a column is not a count."""
    counters: list[Counter] = []
    for expression in expressions:
        if (
            not isinstance(expression, ex.Aggregate)
            or expression.function is not ex.AggregateFunction.COUNT
        ):
            return None
        if expression.argument is None:
            counters.append(RowCount())
        elif expression.distinct and _tells_apart(expression.argument, known):
            assert isinstance(expression.argument, ex.Entity | ex.PropertyOf)
            counters.append(EntityCount(expression.argument.variable))
        else:
            return None
    return counters


def _tells_apart(argument: ex.Expression, known: Mapping[str, Origin]) -> bool:
    """Whether different values of an expression are different entities: they, or ids of a type."""
    if isinstance(argument, ex.Entity):
        return argument.variable in known
    if not isinstance(argument, ex.PropertyOf) or argument.name != ID_COLUMN:
        return False
    origin = known.get(argument.variable)
    return isinstance(origin, EntityOf) and len(origin.tables) == 1


_INPUT = "rows_of_the_pattern"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPlan:
    """What a plan says about its result, the same for all runs."""

    shape: Shape
    simple_shape: Shape
    """With counts of rows for counts of something that is never null."""
    schema: pa.Schema
    group_schema: pa.Schema
    """Of the columns that others are computed from; otherwise the same."""
    origins: Mapping[str, Origin]
    required: RequiredColumns


@remember_derived(most=PLANS_KNOWN, sources=2)
def result_plan(plan: Plan, catalog: Catalog) -> ResultPlan:
    """How the rows of a plan become its result."""
    shape = shape_of(plan)
    simple_shape = replace(shape, projections=simplify(shape.projections))
    known = origins(shape.pattern)
    return ResultPlan(
        shape=shape,
        simple_shape=simple_shape,
        schema=arrow_schema(
            (engine_column(projection.column) for projection in shape.columns), catalog
        ),
        group_schema=arrow_schema(
            (engine_column(projection.column) for projection in shape.projections), catalog
        ),
        origins=known,
        required=RequiredColumns(
            variables=variables_read(simple_shape) & frozenset(known),
            counted=simple_shape.counts_only,
            weighed=simple_shape.asks_how_many,
        ),
    )


class Results:
    """The result of one run."""

    def __init__(self, plan: ResultPlan, patterns: Patterns, statements: Statements) -> None:
        self._shape = plan.shape
        self._simple_shape = plan.simple_shape
        self._known = plan.origins
        self._required = plan.required
        self._patterns = patterns
        self._statements = statements
        self._carried = StatementInput(patterns.values, self._known)
        self.schema = plan.schema
        self._group_schema = plan.group_schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The result, portion by portion; no portion if it has no rows."""
        if self._number(self._shape.limit) == 0:
            return
        match self._shape.kind:
            case ShapeKind.ROWS if self._shape.order is None:
                yield from self._rows()
            case ShapeKind.ROWS:
                yield from self._ordered_rows()
            case ShapeKind.DISTINCT:
                yield from self._group(self._distinct_sql)
            case ShapeKind.GROUPS:
                counted = self._counts()
                if counted is None:
                    yield from self._group(self._group_sql)
                elif counted.num_rows:
                    yield counted
            case _:
                assert_never(self._shape.kind)

    def _frames(self) -> Iterator[Frame]:
        return self._patterns.frames(self._shape.pattern, self._required)

    # Rows without an order

    def _rows(self) -> Iterator[pa.RecordBatch]:
        skipped = self._number(self._shape.offset) or 0
        left = self._number(self._shape.limit)
        for frame in self._frames():
            if skipped >= frame.rows:
                skipped -= frame.rows
                continue
            stop = frame.rows if left is None else min(frame.rows, skipped + left)
            if skipped or stop < frame.rows:
                frame = frame.take(np.arange(skipped, stop))  # noqa: PLW2901 - a part of it
            skipped = 0
            yield self._project(frame)
            if left is not None:
                left -= frame.rows
                if left == 0:
                    return

    def _project(self, frame: Frame) -> pa.RecordBatch:
        expressions = [projection.expression for projection in self._shape.projections]
        return self._typed(self._patterns.values.columns(expressions, frame))

    # Rows in order

    def _ordered_rows(self) -> Iterator[pa.RecordBatch]:
        order = self._shape.order
        assert order is not None
        frames = self._frames()
        first, second = next(frames, None), next(frames, None)
        if first is not None and second is None:
            in_order = self._sort_few(first, order)
            if in_order is not None:
                if in_order.rows:
                    yield self._project(in_order)
                return
        others = frames if second is None else itertools.chain([second], frames)
        wanted = sorted(self._required.variables)
        for batch in self._answer(self._order_sql(order, wanted), first, others):
            if batch.num_rows:
                yield self._project(self._carried.frame_of(wanted, batch))

    def _order_sql(self, order: Order, wanted: Sequence[str]) -> str:
        keys: list[str] = []
        if order.ranking is not None:
            direction = _direction(descending=not isinstance(order.ranking, ex.Distance))
            keys.append(f"{self._carried.column(order.ranking)} {direction}")
        for key in order.keys:
            text = self._sql(key.expression)
            keys.append(f"{text} {_direction(descending=key.descending)}")
        for tie in order.ties:
            keys += self._tie(tie)
        selected = ", ".join(self._carried.variables(wanted)) or "none"
        return f"SELECT {selected} FROM {_INPUT} ORDER BY {', '.join(keys)}{self._limit_sql()}"  # noqa: S608

    def _sort_few(self, frame: Frame, order: Order) -> Frame | None:
        """The rows of a small frame in order; None if SQL is faster or knows more about a value.

        Arrow compares as SQL does, but for nulls and NaN.
        """
        keys: list[tuple[ex.Expression, bool]] = []
        if order.ranking is not None:
            keys.append((order.ranking, not isinstance(order.ranking, ex.Distance)))
        keys += [(key.expression, key.descending) for key in order.keys]
        keys += [(_id_of(tie), False) for tie in order.ties]
        origins_of_ties = [self._known[tie] for tie in order.ties]
        is_plain = all(
            isinstance(origin, EntityOf) and len(origin.tables) == 1 for origin in origins_of_ties
        )
        if not keys or frame.rows > _SORTED_MAX or not is_plain or frame.weights is not None:
            return None
        columns: dict[str, pa.Array] = {}
        for at, (expression, _) in enumerate(keys):
            if not isinstance(expression, _SORTED_HERE):
                return None
            column = whole(self._patterns.values.leaf(expression, frame))
            if column.null_count or not is_ordered_alike(column):
                return None
            columns[f"k{at}"] = column
        directions = [
            (f"k{at}", "descending" if descending else "ascending")
            for at, (_, descending) in enumerate(keys)
        ]
        places = pc.sort_indices(pa.table(columns), sort_keys=directions).to_numpy()
        begin = self._number(self._shape.offset) or 0
        limit = self._number(self._shape.limit)
        end = len(places) if limit is None else begin + limit
        return frame.take(places[begin:end].astype(np.int64))

    def _tie(self, variable: str) -> list[str]:
        """By id, then type."""
        origin = self._known[variable]
        assert isinstance(origin, EntityOf)
        key = self._carried.column(_id_of(variable))
        keys = [f"{key} ASC NULLS FIRST"]
        if len(origin.tables) > 1:
            kind = self._carried.column(ex.TypeName(variable=variable, nullable=True))
            keys.append(f"{kind} ASC NULLS FIRST")
        return keys

    # Groups and distinct rows

    def _distinct_sql(self) -> str:
        selected = [
            text for projection in self._shape.projections for text in self._key_columns(projection)
        ]
        return f"SELECT DISTINCT {', '.join(selected)} FROM {_INPUT}"  # noqa: S608

    def _group_sql(self) -> str:
        self._carried.weighted = self._shape.counts_only
        selected: list[str] = []
        grouped: list[str] = []
        for at, projection in enumerate(self._simple_shape.projections):
            if isinstance(projection.expression, ex.Aggregate):
                text = aggregate_sql(
                    projection.expression,
                    column=self._carried.column,
                    parameters=self._patterns.run.parameters,
                    identity=self._carried.identity,
                    weight="weight" if self._carried.weighted else None,
                )
                selected.append(f"{text} AS v{at}")
            else:
                columns = self._key_columns(self._shape.projections[at])
                selected += columns
                grouped += [column.rpartition(" AS ")[0] for column in columns]
        by = f" GROUP BY {', '.join(grouped)}" if grouped else ""
        return f"SELECT {', '.join(selected)} FROM {_INPUT}{by}"  # noqa: S608

    def _key_columns(self, projection: TypedProjection) -> list[str]:
        """A key as selected columns; an entity as what identifies it, and its order."""
        at = self._shape.projections.index(projection)
        expression = projection.expression
        if not isinstance(expression, ex.Entity):
            return [f"{self._sql(expression)} AS v{at}"]
        which, position = self._carried.identity(expression)
        columns = [f"{which} AS v{at}_which", f"{position} AS v{at}"]
        if self._shape.order is not None:
            key = self._carried.column(_id_of(expression.variable))
            kind = self._carried.column(ex.TypeName(variable=expression.variable, nullable=True))
            columns += [f"{key} AS v{at}_id", f"{kind} AS v{at}_type"]
        return columns

    def _group(self, sql: Callable[[], str]) -> Iterator[pa.RecordBatch]:
        frames = self._frames()
        gathered: list[Frame] = []
        columns: list[pa.Array] | None = None
        for frame in frames:
            gathered.append(frame)
            if not can_group(sum(other.rows for other in gathered), self._patterns.run):
                break
        else:
            columns = self._group_without_sql(gathered)
        if columns is not None and len(columns[0]):
            yield self._typed(columns)
        elif not gathered and not self._shape.keys:
            alone = self._of_nothing()
            if alone is not None and alone.num_rows:
                yield alone
        elif columns is None and gathered:
            others = itertools.chain(gathered[1:], frames)
            yield from self._group_with_sql(sql(), gathered[0], others)

    def _group_without_sql(self, frames: Sequence[Frame]) -> list[pa.Array] | None:
        """The columns of the groups; None if SQL has to compute them."""
        frame = joined(frames)
        if frame is None:
            return None
        window = Window(
            offset=self._number(self._shape.offset) or 0, limit=self._number(self._shape.limit)
        )
        return group_rows(self._simple_shape, frame, window, values=self._patterns.values)

    def _group_with_sql(
        self, text: str, first: Frame, others: Iterator[Frame]
    ) -> Iterator[pa.RecordBatch]:
        ordered = ""
        if self._shape.order is not None:
            ordered = f" ORDER BY {', '.join(self._column_keys())}"
        statement = (
            f"{self._select_sql()} FROM ({text}){self._having_sql()}{ordered}{self._limit_sql()}"
        )
        for batch in self._answer(statement, first, others):
            yield self._typed(self._columns_of(batch))

    def _columns_of(self, groups: pa.RecordBatch) -> list[pa.Array]:
        """The columns of the result, of rows that SQL has made of groups."""
        columns = [
            self._key_of(at, projection, groups)
            if isinstance(projection.expression, ex.Entity)
            else groups.column(f"v{at}")
            for at, projection in enumerate(self._shape.projections)
        ]
        if not self._shape.computed:
            return columns
        of_groups = {name: columns[place] for name, place in self._places.items()}
        return [
            of_groups[projection.column.name]
            if projection.column.name in of_groups
            else groups.column(f"c{at}")
            for at, projection in enumerate(self._shape.computed)
        ]

    @functools.cached_property
    def _places(self) -> Mapping[str, int]:
        """Where the columns of groups are, by their names."""
        return {projection.column.name: at for at, projection in enumerate(self._shape.projections)}

    def _select_sql(self) -> str:
        """All columns of groups, and those of the result that are computed from them."""
        computed = [
            f"{self._sql_of_group(projection.expression)} AS c{at}"
            for at, projection in enumerate(self._shape.computed)
            if projection.column.name not in self._places
        ]
        return f"SELECT {', '.join(['*', *computed])}"

    def _sql_of_group(self, expression: ex.Expression) -> str:
        """What is computed from columns of groups, which are called as in `_group_sql`."""

        def column(leaf: ex.Expression) -> str:
            assert isinstance(leaf, ex.PropertyOf)
            return f"v{self._places[leaf.name]}"

        return sql_of(expression, column=column, parameters=self._patterns.run.parameters)

    def _having_sql(self) -> str:
        """The condition on groups."""
        if self._shape.having is None:
            return ""
        return f" WHERE {self._sql_of_group(self._shape.having)}"

    def _key_of(self, at: int, projection: TypedProjection, batch: pa.RecordBatch) -> pa.Array:
        assert isinstance(projection.expression, ex.Entity)
        variable = projection.expression.variable
        which, position = self._carried.entity(variable)
        renamed = pa.RecordBatch.from_arrays(
            [batch.column(f"v{at}_which"), batch.column(f"v{at}")], names=[which, position]
        )
        frame = self._carried.frame_of((variable,), renamed)
        return self._patterns.values.leaf(projection.expression, frame)

    def _column_keys(self) -> list[str]:
        """The order of groups and distinct rows, by their columns."""
        order = self._shape.order
        assert order is not None
        keys: list[str] = []
        if order.ranking is not None:
            at = next(
                at
                for at, projection in enumerate(self._shape.projections)
                if projection.expression == order.ranking
            )
            direction = _direction(descending=not isinstance(order.ranking, ex.Distance))
            keys.append(f"v{at} {direction}")
        for key in order.keys:
            assert key.column is not None
            keys += self._column_key(key.column, descending=key.descending)
        for tie in order.ties:
            keys += self._column_key(tie, descending=False)
        return keys

    def _column_key(self, name: str, *, descending: bool) -> list[str]:
        direction = _direction(descending=descending)
        at = self._places.get(name)
        if at is None:
            at = [computed.column.name for computed in self._shape.computed].index(name)
            text, projection = f"c{at}", self._shape.computed[at]
        else:
            text, projection = f"v{at}", self._shape.projections[at]
        if isinstance(projection.expression, ex.Entity):
            return [f"{text}_id {direction}", f"{text}_type {direction}"]
        if isinstance(projection.column.type, ListType):
            # Nulls inside of a list come first too; DuckDB alone puts them last.
            return [f"list_transform({text}, lambda x: row(x IS NOT NULL, x)) {direction}"]
        return [f"{text} {direction}"]

    def _counts(self) -> pa.RecordBatch | None:
        """The result if it consists of counts only, computed without SQL."""
        expressions = [projection.expression for projection in self._simple_shape.projections]
        counters = counters_of(expressions, self._known)
        if counters is None or self._shape.having is not None or self._shape.computed:
            return None
        for frame in self._frames():
            for counter in counters:
                counter.add(frame)
        columns = [pa.array([counter.total()], pa.int64()) for counter in counters]
        return self._limit(self._typed(columns))

    # Statements

    def _answer(
        self, text: str, first: Frame | None, frames: Iterator[Frame]
    ) -> Iterator[pa.RecordBatch]:
        """Runs a statement over the rows; a single frame is passed as a table."""
        second = next(frames, None)
        if first is None:
            return
        batch = self._carried.batch(first)
        if second is None:
            yield from self._statements.batches(text, pa.Table.from_batches([batch]))
            return

        def all_batches() -> Iterator[pa.RecordBatch]:
            assert second is not None
            yield batch
            yield self._carried.batch(second).cast(batch.schema)
            for frame in frames:
                yield self._carried.batch(frame).cast(batch.schema)

        reader = self._statements.streamed(batch.schema, all_batches())
        yield from self._statements.batches(text, reader)

    def _typed(self, columns: list[pa.Array]) -> pa.RecordBatch:
        cast_columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(
            [whole(column) for column in cast_columns], schema=self.schema
        )

    def _limit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.slice(self._number(self._shape.offset) or 0, self._number(self._shape.limit))

    def _of_nothing(self) -> pa.RecordBatch | None:
        """The one group of no rows; None if `having` is not true of it."""
        values: list[pa.Array] = []
        for projection, field in zip(self._shape.projections, self._group_schema, strict=True):
            assert isinstance(projection.expression, ex.Aggregate)
            none = {ex.AggregateFunction.COUNT: 0, ex.AggregateFunction.COLLECT: []}
            values.append(pa.array([none.get(projection.expression.function)], field.type))
        if self._shape.having is None and not self._shape.computed:
            return self._limit(pa.RecordBatch.from_arrays(values, schema=self.schema))
        group = pa.table({f"v{at}": column for at, column in enumerate(values)})
        statement = f"{self._select_sql()} FROM {_INPUT}{self._having_sql()}"
        for batch in self._statements.batches(statement, group):
            if batch.num_rows:
                return self._limit(self._typed(self._columns_of(batch)))
        return None

    def _sql(self, expression: ex.Expression) -> str:
        return sql_of(
            expression,
            column=self._carried.column,
            parameters=self._patterns.run.parameters,
        )

    def _limit_sql(self) -> str:
        limit, offset = self._number(self._shape.limit), self._number(self._shape.offset)
        return ("" if limit is None else f" LIMIT {limit}") + (
            f" OFFSET {offset}" if offset else ""
        )

    def _number(self, expression: ex.Expression | None) -> int | None:
        return (
            None if expression is None else known_count(expression, self._patterns.run.parameters)
        )


_SORTED_MAX: Final = 4096
_SORTED_HERE: Final = (ex.PropertyOf, ex.Distance, ex.TextScore, ex.Fusion)


def _direction(*, descending: bool) -> str:
    return "DESC NULLS LAST" if descending else "ASC NULLS FIRST"


def _id_of(variable: str) -> ex.PropertyOf:
    return ex.PropertyOf(variable=variable, name=names.ID_COLUMN, type=STRING, nullable=True)
