"""Values of groups.

Invariant: integers are summed exactly and a sum that does not fit fails the job; an average of
integers divides the exact sum. Nulls are skipped; values are equal if the language says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

from pyspark.sql import functions as sql

from omnigraph.engine.spark.arithmetic import DOUBLE
from omnigraph.engine.spark.expressions import Expressions
from omnigraph.engine.spark.literals import spark_type_of
from omnigraph.engine.spark.refusals import out_of_range
from omnigraph.engine.spark.rows import HeldEntity, Names, Rows, identity_of
from omnigraph.query.expressions import Aggregate, AggregateFunction, Entity
from omnigraph.query.types import INTEGER_LIMITS, is_integer, scalar_of
from omnigraph.schema.catalog import Scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

_SUMMAND: Final = "decimal(28,0)"
"""Its sums are decimals of 38 digits, which no number of 64-bit integers can exceed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """An aggregate in three steps: columns of a row, columns of a group, and the value."""

    of_row: Sequence[Column]
    of_group: Sequence[Column]
    value: Column


def grouped(each: Aggregate, rows: Rows, expressions: Expressions, names: Names) -> Grouped:
    """How to compute an aggregate over groups of rows."""
    result = names.fresh()
    if each.argument is None:
        count = sql.count(sql.lit(1)).alias(result)
        return Grouped(of_row=(), of_group=(count,), value=sql.col(result))
    if isinstance(each.argument, Entity):
        return _entities(each, each.argument, rows, result)
    argument = names.fresh()
    values = expressions.column(each.argument, rows)
    if each.function in (AggregateFunction.SUM, AggregateFunction.AVERAGE):
        return _totals(each, values, argument, names)
    column = sql.col(argument)
    match each.function:
        case AggregateFunction.COUNT:
            of_group = sql.count_distinct(column) if each.distinct else sql.count(column)
        case AggregateFunction.COLLECT:
            collected = sql.collect_set(column) if each.distinct else sql.collect_list(column)
            of_group = sql.sort_array(collected)
        case AggregateFunction.MINIMUM:
            of_group = sql.min(column)
        case AggregateFunction.MAXIMUM:
            of_group = sql.max(column)
        case _:
            assert_never(each.function)
    return Grouped(
        of_row=(values.alias(argument),),
        of_group=(of_group.alias(result),),
        value=sql.col(result).cast(spark_type_of(each.type, None)),
    )


def _entities(each: Aggregate, argument: Entity, rows: Rows, result: str) -> Grouped:
    assert each.function is AggregateFunction.COUNT
    held = rows.held[argument.variable]
    keys = [sql.col(name) for name in identity_of(held)]
    if not keys:
        return Grouped(of_row=(), of_group=(), value=sql.lit(0).cast("bigint"))
    assert isinstance(held, HeldEntity)
    count = sql.count_distinct(*keys) if each.distinct else sql.count(keys[0])
    return Grouped(of_row=keys, of_group=(count.alias(result),), value=sql.col(result))


def _totals(each: Aggregate, values: Column, argument: str, names: Names) -> Grouped:
    """Sums and averages, from one sum and one count."""
    assert each.argument is not None
    assert not each.distinct, "only counts and lists distinguish values"
    exact = is_integer(each.argument.type)
    total, count = names.fresh(), names.fresh()
    column = sql.col(argument)
    if each.function is AggregateFunction.AVERAGE:
        value = sql.try_divide(sql.col(total).cast(DOUBLE), sql.col(count).cast(DOUBLE))
    elif exact:
        value = _fitting(each, sql.col(total))
    else:
        value = sql.col(total)
    return Grouped(
        of_row=(values.cast(_SUMMAND if exact else DOUBLE).alias(argument),),
        of_group=(sql.sum(column).alias(total), sql.count(column).alias(count)),
        value=value,
    )


def _fitting(each: Aggregate, total: Column) -> Column:
    scalar = scalar_of(each.type)
    assert scalar in (Scalar.I64, Scalar.U64)
    low, high = (sql.lit(str(bound)).cast("decimal(38,0)") for bound in INTEGER_LIMITS[scalar])
    kept = sql.when(total.between(low, high), total.cast(spark_type_of(each.type, None)))
    return sql.when(total.isNotNull(), kept.otherwise(out_of_range()))
