"""The result of a query: columns of rows, their order, offset and limit.

Invariant: columns have generated names until the last step, because those of a query may be any
text. A whole entity is distinguished, grouped and ordered by its type and id alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql

from omnigraph.engine.spark.aggregates import grouped
from omnigraph.engine.spark.expressions import Expressions
from omnigraph.engine.spark.literals import spark_type_of
from omnigraph.engine.spark.ranking import count_of
from omnigraph.engine.spark.rows import HeldEntity, Rows, Run, type_of
from omnigraph.errors import InvalidInputError
from omnigraph.names import ID_COLUMN
from omnigraph.query.columns import TYPE_FIELD
from omnigraph.query.expressions import Aggregate as AggregateExpression
from omnigraph.query.expressions import Distance
from omnigraph.query.plan import Aggregate, Limit, Order, Project
from omnigraph.query.typed import TypedProjection
from omnigraph.query.types import EdgeOf, NodeOf

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_COUNT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Rows of columns; `columns` are the names in the frame by those of the query."""

    frame: DataFrame
    columns: Mapping[str, str]
    projections: tuple[TypedProjection, ...]

    def identity(self, name: str) -> tuple[Column, ...]:
        """What distinguishes values of a column."""
        column = sql.col(self.columns[name])
        (kind,) = (each.column.type for each in self.projections if each.column.name == name)
        if isinstance(kind, NodeOf | EdgeOf):
            return column[ID_COLUMN], column[TYPE_FIELD]
        return (column,)


def projected(plan: Project, rows: Rows, run: Run, expressions: Expressions) -> Result:
    """One column per projection."""
    columns = {each.column.name: run.names.fresh() for each in plan.projections}
    chosen = [
        _declared(each, expressions.column(each.expression, rows), run).alias(
            columns[each.column.name]
        )
        for each in plan.projections
    ]
    frame = rows.frame.select(*chosen)
    return Result(frame=frame, columns=columns, projections=plan.projections)


def aggregated(plan: Aggregate, rows: Rows, run: Run, expressions: Expressions) -> Result:
    """One row per group."""
    of_row: list[Column] = []
    of_group: list[Column] = []
    values: dict[str, Column] = {}
    keys = [each for each in plan.projections if each.column.name in plan.keys]
    key_columns = {each.column.name: run.names.fresh() for each in keys}
    for each in keys:
        column = _declared(each, expressions.column(each.expression, rows), run)
        of_row.append(column.alias(key_columns[each.column.name]))
    for each in plan.projections:
        if isinstance(each.expression, AggregateExpression):
            how = grouped(each.expression, rows, expressions, run.names)
            of_row += how.of_row
            of_group += how.of_group
            values[each.column.name] = _declared(each, how.value, run)
    narrow = rows.frame.select(*of_row) if of_row else rows.frame
    once = _once(Result(frame=narrow, columns=key_columns, projections=tuple(keys)), of_group, run)
    values |= {name: sql.col(column) for name, column in once.columns.items()}
    columns = {each.column.name: run.names.fresh() for each in plan.projections}
    frame = once.frame.select(*(values[name].alias(new) for name, new in columns.items()))
    return Result(frame=frame, columns=columns, projections=plan.projections)


def distinct(result: Result, run: Run) -> Result:
    """Every row of columns once."""
    return _once(result, [], run)


def _once(result: Result, of_group: Sequence[Column], run: Run) -> Result:
    """The groups of rows that are equal in all columns of the result, and values of the groups."""
    groups: list[Column] = []
    carried: list[Column] = []
    columns: dict[str, str] = {}
    for name, column in result.columns.items():
        identity = result.identity(name)
        columns[name] = run.names.fresh()
        if len(identity) > 1:
            groups += [each.alias(run.names.fresh()) for each in identity]
            carried.append(sql.first(column).alias(columns[name]))
        else:
            groups.append(sql.col(column).alias(columns[name]))
    values = [*carried, *of_group]
    if not groups:
        # Also of no rows there is one group.
        frame = result.frame.agg(*(values or [sql.count(sql.lit(1)).alias(run.names.fresh())]))
    elif values:
        frame = result.frame.groupBy(*groups).agg(*values)
    else:
        frame = result.frame.select(*groups).distinct()
    return replace(result, frame=frame, columns=columns)


def ordered_rows(plan: Order, rows: Rows, expressions: Expressions) -> Rows:
    """Rows in the order of a ranking, of keys, and of the ids of their entities."""
    keys: list[Column] = []
    if plan.ranking is not None:
        best_first = isinstance(plan.ranking, Distance)
        keys.append(_directed(expressions.score(plan.ranking, rows), descending=not best_first))
    for each in plan.keys:
        column = expressions.column(each.expression, rows)
        keys.append(_directed(column, descending=each.descending))
    for tie in plan.ties:
        held = rows.held[tie]
        if isinstance(held, HeldEntity):
            keys.append(_directed(sql.col(held.id_column), descending=False))
            keys += [type_of(held).asc_nulls_first()] if held.type_column is not None else []
    return replace(rows, frame=rows.frame.orderBy(*keys)) if keys else rows


def ordered_result(plan: Order, result: Result) -> Result:
    """Groups or distinct rows in the order of their columns."""
    keys: list[Column] = []
    if plan.ranking is not None:
        (name,) = (
            each.column.name for each in result.projections if each.expression == plan.ranking
        )
        column = sql.col(result.columns[name])
        keys.append(_directed(column, descending=not isinstance(plan.ranking, Distance)))
    for each in plan.keys:
        assert each.column is not None
        column = sql.col(result.columns[each.column])
        keys.append(_directed(column, descending=each.descending))
    for tie in plan.ties:
        keys += [each.asc_nulls_first() for each in result.identity(tie)]
    return replace(result, frame=result.frame.orderBy(*keys)) if keys else result


def limited(plan: Limit, result: Result, run: Run) -> Result:
    """At most so many rows after the first ones."""
    frame = result.frame
    wanted, skipped = count_of(plan.limit, run), count_of(plan.offset, run)
    for name, number in (("limit", wanted), ("offset", skipped)):
        if number is not None and number > _COUNT_MAX:
            raise InvalidInputError(
                f"{name} is {number}, and Spark counts rows up to {_COUNT_MAX}",
                next_step=f"Give a smaller {name}, or leave it out.",
            )
    frame = frame if not skipped else frame.offset(skipped)
    frame = frame if wanted is None else frame.limit(wanted)
    return replace(result, frame=frame)


def named(result: Result) -> DataFrame:
    """The frame under the names of the query."""
    return result.frame.select(
        *(sql.col(column).alias(name) for name, column in result.columns.items())
    )


def _directed(column: Column, *, descending: bool) -> Column:
    return column.desc_nulls_last() if descending else column.asc_nulls_first()


def _declared(each: TypedProjection, column: Column, run: Run) -> Column:
    if isinstance(each.column.type, NodeOf | EdgeOf):
        return column
    return column.cast(spark_type_of(each.column.type, run.catalog))
