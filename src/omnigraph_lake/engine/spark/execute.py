"""Builds one DataFrame from a logical plan: its pattern, ranks, groups, order and limit.

Invariants:
- The plan alone decides what is computed, and all of it is read from the snapshot of the
  `SparkTables`.
- Building the frame runs no job, unless a score counts texts, a search is deep, a part of the
  plan is used several times at several levels, or it is not known whether the pairs of nodes of a
  large edge type are unique.
- Rows of the pattern hold what later steps read. Where these only count, equal rows can be one with
  a weight; an aggregate uses weights so that its value is that of all rows.
- Columns have generated names until the last step, because those of a query may be any text. A
  whole entity is distinguished, grouped and ordered by its type and id alone.
- In groups integers are summed exactly and a sum that does not fit fails the job; an average of
  integers divides the exact sum. Nulls are skipped; values are equal if the language says so.
- Below a ranking a row stays if and only if it has a rank. A fusion ranks entities, not rows: each
  arm is ordered by score, then id, then type, over all entities that rows hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, assert_never

from pyspark.sql import Window
from pyspark.sql import functions as sql

from omnigraph_lake.engine.access.access_path import keys_as_ids
from omnigraph_lake.engine.expressions.known_parts import with_known_parts
from omnigraph_lake.engine.frames import RequiredColumns
from omnigraph_lake.engine.shapes import shape_of, simplify, variables_read
from omnigraph_lake.engine.spark import rows as spark_rows
from omnigraph_lake.engine.spark.expressions import DOUBLE, Expressions
from omnigraph_lake.engine.spark.hops import Hop, reads_below, starts_everywhere
from omnigraph_lake.engine.spark.literals import spark_type_of
from omnigraph_lake.engine.spark.patterns import (
    Scans,
    below_block,
    inside_block,
    keep_by_match,
    outer_variables,
    searches_levels,
    source_of,
    with_matches,
    with_matches_counted,
)
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import plan as lp
from omnigraph_lake.query.binding import BoundParameters, known_value
from omnigraph_lake.query.columns import TYPE_FIELD, engine_column
from omnigraph_lake.query.rewrites import inputs_of
from omnigraph_lake.query.typed import TypedProjection
from omnigraph_lake.query.types import (
    INTEGER_LIMITS,
    EdgeOf,
    NodeOf,
    is_float,
    is_integer,
    scalar_of,
)
from omnigraph_lake.runner.session import without_noise
from omnigraph_lake.runner.spark_versions import compute_once
from omnigraph_lake.schema.catalog import DECIMAL_DIGITS_MAX, Catalog, DecimalType, Scalar

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from omnigraph_lake.runner.scan import SparkTables


def ranked(
    plan: lp.Rank, rows: spark_rows.Rows, run: spark_rows.Run, expressions: Expressions
) -> spark_rows.Rows:
    """The rows that have a rank, with it."""
    if isinstance(plan.by, ex.Fusion):
        return _fuse(plan, plan.by, rows, run, expressions)
    column = run.names.fresh()
    scored = rows.frame.select("*", expressions.score(plan.by, rows).alias(column))
    frame = scored.where(sql.col(column).isNotNull())
    return replace(rows, frame=frame, scores={**rows.scores, plan.by: column})


def count_of(expression: ex.Expression | None, run: spark_rows.Run) -> int | None:
    """The number of a limit or an offset."""
    if expression is None:
        return None
    number = known_value(expression, run.parameters)
    assert isinstance(number, int)
    return number


def _fuse(
    plan: lp.Rank,
    by: ex.Fusion,
    rows: spark_rows.Rows,
    run: spark_rows.Run,
    expressions: Expressions,
) -> spark_rows.Rows:
    variable = by.first.field.variable
    if isinstance(rows.held[variable], spark_rows.Absent):
        return spark_rows.nothing(run, rows.held)
    row_limit = (count_of(plan.limit, run) or 0) + (count_of(plan.offset, run) or 0)
    k = known_value(by.k, run.parameters)
    entities = spark_rows.copied(rows, (variable,), run.names)
    held_entity = entities.held[variable]
    assert isinstance(held_entity, spark_rows.HeldEntity)
    keys = spark_rows.identity_of(held_entity)
    shares = [run.names.fresh(), run.names.fresh()]
    arms = []
    for arm, share in zip((by.first, by.second), shares, strict=True):
        depth = lp.vector_arm_depth(row_limit) if isinstance(arm, ex.Distance) else None
        arms.append(_arm(arm, entities, depth, expressions, k=k, share=share))
    fused = run.names.fresh()
    both = arms[0].unionByName(arms[1], allowMissingColumns=True)
    parts = [sql.coalesce(sql.max(share), sql.lit(0.0)) for share in shares]
    scores = both.groupBy(*keys).agg((parts[0] + parts[1]).alias(fused))
    pairs = zip(spark_rows.identity_of(rows.held[variable]), keys, strict=True)
    frame = spark_rows.inner_join(rows, scores, list(pairs))
    return replace(rows, frame=frame, scores={**rows.scores, by: fused}, few=False)


def _arm(
    arm: ex.Distance | ex.TextScore,
    entities: spark_rows.Rows,
    depth: int | None,
    expressions: Expressions,
    *,
    k: object,
    share: str,
) -> DataFrame:
    """The share of one arm in the score of each ranked entity; one task assigns the ranks."""
    assert isinstance(k, int)
    held_entity = entities.held[arm.field.variable]
    assert isinstance(held_entity, spark_rows.HeldEntity)
    keys = spark_rows.identity_of(held_entity)
    score = sql.col(share)
    best = score.asc() if isinstance(arm, ex.Distance) else score.desc()
    order = [best, *(sql.col(key).asc() for key in keys)]
    scored = entities.frame.select(*keys, expressions.score(arm, entities).alias(share))
    listed = scored.where(score.isNotNull())
    if depth is not None:
        listed = listed.orderBy(*order).limit(depth)
    # A partition for all of them, named: Spark Connect warns of every window that has none.
    rank = sql.row_number().over(Window.partitionBy(sql.lit(0)).orderBy(*order))
    return listed.select(*keys, (sql.lit(1.0) / (sql.lit(k) + rank)).alias(share))


_SUMMAND: Final = "decimal(28,0)"
"""Its sums are decimals of 38 digits, which no number of 64-bit integers can exceed."""
_FACTOR: Final = "decimal(20,0)"
"""Any 64-bit integer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """An aggregate in three steps: columns of a row, columns of a group, and the value."""

    of_row: Sequence[Column]
    of_group: Sequence[Column]
    value: Column


def grouped(  # noqa: C901, PLR0911, PLR0912 - one per function
    aggregate_expression: ex.Aggregate,
    rows: spark_rows.Rows,
    expressions: Expressions,
    names: spark_rows.Names,
) -> Grouped:
    """How to compute an aggregate over groups of rows."""
    result = names.fresh()
    if aggregate_expression.argument is None:
        return _count(sql.lit(1), rows, names)
    if isinstance(aggregate_expression.argument, ex.Entity):
        return _entities(aggregate_expression, aggregate_expression.argument, rows, names)
    argument = names.fresh()
    values = expressions.column(aggregate_expression.argument, rows)
    if aggregate_expression.function in (ex.AggregateFunction.SUM, ex.AggregateFunction.AVERAGE):
        if rows.weight is not None:
            return _totals_by_weight(aggregate_expression, values, sql.col(rows.weight), names)
        return _totals(aggregate_expression, values, argument, names)
    column = sql.col(argument)
    match aggregate_expression.function:
        case ex.AggregateFunction.COUNT if not aggregate_expression.distinct:
            return _count(values, rows, names)
        case ex.AggregateFunction.COUNT:
            of_group = sql.count_distinct(column)
        case ex.AggregateFunction.COLLECT:
            collected = (
                sql.collect_set(column)
                if aggregate_expression.distinct
                else sql.collect_list(column)
            )
            of_group = sql.sort_array(collected)
        case ex.AggregateFunction.MINIMUM:
            of_group = sql.min(column)
        case ex.AggregateFunction.MAXIMUM:
            of_group = sql.max(column)
        case ex.AggregateFunction.DEVIATION:
            return _deviation(values, names)
        case ex.AggregateFunction.PERCENTILE:
            assert aggregate_expression.fraction is not None
            fraction = known_value(aggregate_expression.fraction, expressions.parameters)
            return _percentile(values, fraction, names)
        case ex.AggregateFunction.FIRST | ex.AggregateFunction.LAST:
            keys = [expressions.column(key, rows) for key in aggregate_expression.by]
            return _choose_row(aggregate_expression, values, keys, names)
        case _:
            assert_never(aggregate_expression.function)
    return Grouped(
        of_row=(values.alias(argument),),
        of_group=(of_group.alias(result),),
        value=sql.col(result).cast(spark_type_of(aggregate_expression.type, None)),
    )


def _count(values: Column, rows: spark_rows.Rows, names: spark_rows.Names) -> Grouped:
    """How many rows have a value, each as often as its weight says."""
    argument, count = names.fresh(), names.fresh()
    if rows.weight is None:
        return Grouped(
            of_row=(values.alias(argument),),
            of_group=(sql.count(argument).alias(count),),
            value=sql.col(count),
        )
    total = names.fresh()
    return Grouped(
        of_row=(sql.when(values.isNotNull(), sql.col(rows.weight)).alias(argument),),
        of_group=(sql.try_sum(argument).alias(total), sql.count(argument).alias(count)),
        value=sql.coalesce(_exact_sum(total, count), sql.lit(0).cast("bigint")),
    )


_SQUARE_FITS: Final = 1e150
"""Below it squares and sums of them are finite."""
_SCALED_DOWN: Final = 2.0**-560


def _deviation(values: Column, names: spark_rows.Names) -> Grouped:
    """The standard deviation of a sample; NaN if a value is not finite."""
    argument, count, odd, large = (names.fresh() for _ in range(4))
    plain, scaled = names.fresh(), names.fresh()
    number = sql.col(argument)
    is_odd = sql.isnan(number) | (sql.abs(number) == sql.lit(float("inf")))
    is_large = sql.abs(number) >= _SQUARE_FITS
    value = (
        sql.when(sql.col(count) < 2, sql.lit(None).cast(DOUBLE))
        .when(sql.col(odd) > 0, sql.lit(float("nan")))
        .when(sql.col(large) == 0, sql.col(plain))
        .otherwise(sql.col(scaled) / sql.lit(_SCALED_DOWN))
    )
    return Grouped(
        of_row=(values.cast(DOUBLE).alias(argument),),
        of_group=(
            sql.count(number).alias(count),
            sql.count(sql.when(is_odd, 1)).alias(odd),
            sql.count(sql.when(is_large, 1)).alias(large),
            sql.stddev_samp(sql.when(~is_large, number)).alias(plain),
            sql.stddev_samp(sql.when(~is_odd, number * _SCALED_DOWN)).alias(scaled),
        ),
        value=value,
    )


def _percentile(values: Column, fraction: object, names: spark_rows.Names) -> Grouped:
    """The value at a fraction of the sorted ones, between two of them in proportion."""
    assert isinstance(fraction, int | float)
    argument, listed = names.fresh(), names.fresh()
    numbers = sql.col(listed)
    place = (sql.size(numbers) - 1).cast(DOUBLE) * sql.lit(float(fraction))
    lower = sql.get(numbers, sql.floor(place).cast("int"))
    upper = sql.get(numbers, sql.ceil(place).cast("int"))
    share = place - sql.floor(place).cast(DOUBLE)
    between = lower * (sql.lit(1.0) - share) + upper * share
    return Grouped(
        of_row=(values.cast(DOUBLE).alias(argument),),
        of_group=(sql.sort_array(sql.collect_list(sql.col(argument))).alias(listed),),
        value=sql.when(sql.size(numbers) > 0, sql.when(lower == upper, lower).otherwise(between)),
    )


def _choose_row(
    aggregate_expression: ex.Aggregate,
    values: Column,
    keys: Sequence[Column],
    names: spark_rows.Names,
) -> Grouped:
    """The value of the first or last row that has a value and a key."""
    argument, order, result = names.fresh(), names.fresh(), names.fresh()
    key, *ties = keys
    first = key
    if is_float(aggregate_expression.by[0].type):
        # Both zeros are equal.
        first = sql.when(key == 0, sql.lit(0).cast(DOUBLE)).otherwise(key.cast(DOUBLE))
    columns = [column.alias(f"k{at}") for at, column in enumerate((first, *ties))]
    present = values.isNotNull() & key.isNotNull()
    is_first = aggregate_expression.function is ex.AggregateFunction.FIRST
    choose = sql.min_by if is_first else sql.max_by
    return Grouped(
        of_row=(values.alias(argument), sql.when(present, sql.struct(*columns)).alias(order)),
        of_group=(choose(sql.col(argument), sql.col(order)).alias(result),),
        value=sql.col(result),
    )


def _exact_sum(total: str, count: str) -> Column:
    """A sum, null if it is of nothing; one that is too large fails the job."""
    lost = sql.col(total).isNull() & (sql.col(count) > 0)
    return sql.when(lost, spark_rows.out_of_range()).otherwise(sql.col(total))


def _entities(
    aggregate_expression: ex.Aggregate,
    argument: ex.Entity,
    rows: spark_rows.Rows,
    names: spark_rows.Names,
) -> Grouped:
    assert aggregate_expression.function is ex.AggregateFunction.COUNT
    keys = [sql.col(name) for name in spark_rows.identity_of(rows.held[argument.variable])]
    if not keys:
        return Grouped(of_row=(), of_group=(), value=sql.lit(0).cast("bigint"))
    if not aggregate_expression.distinct:
        return _count(keys[0], rows, names)
    columns, result = [names.fresh() for _ in keys], names.fresh()
    return Grouped(
        of_row=[key.alias(column) for key, column in zip(keys, columns, strict=True)],
        of_group=(sql.count_distinct(*columns).alias(result),),
        value=sql.col(result),
    )


def _totals_by_weight(
    aggregate_expression: ex.Aggregate, values: Column, weight: Column, names: spark_rows.Names
) -> Grouped:
    """Sums and averages of rows with weights: of the products, over the sum of the weights."""
    assert aggregate_expression.argument is not None
    if isinstance(aggregate_expression.argument.type, DecimalType):
        return _decimal_totals(aggregate_expression, values, weight, names)
    exact = is_integer(aggregate_expression.argument.type)
    product, factor = names.fresh(), names.fresh()
    total, count, weights = names.fresh(), names.fresh(), names.fresh()
    if exact:
        number = values.cast(_FACTOR)
        raw = sql.try_multiply(number, weight.cast(_FACTOR))
        lost = raw.isNull() & number.isNotNull()
        summand = sql.when(lost, spark_rows.out_of_range()).otherwise(raw)
    else:
        summand = values.cast(DOUBLE) * weight.cast(DOUBLE)
    of_group = (
        sql.try_sum(product).alias(total),
        sql.count(product).alias(count),
        sql.try_sum(factor).alias(weights),
    )
    value = _exact_sum(total, count)
    if aggregate_expression.function is ex.AggregateFunction.AVERAGE:
        divisor = _exact_sum(weights, count)
        value = sql.try_divide(value.cast(DOUBLE), divisor.cast(DOUBLE))
    elif exact:
        value = _fitting(aggregate_expression, value)
    factors = sql.when(values.isNotNull(), weight)
    return Grouped(
        of_row=(summand.alias(product), factors.alias(factor)), of_group=of_group, value=value
    )


def _totals(
    aggregate_expression: ex.Aggregate, values: Column, argument: str, names: spark_rows.Names
) -> Grouped:
    """Sums and averages, from one sum and one count."""
    assert aggregate_expression.argument is not None
    assert not aggregate_expression.distinct, "only counts and lists distinguish values"
    if isinstance(aggregate_expression.argument.type, DecimalType):
        return _decimal_totals(aggregate_expression, values, sql.lit(1), names)
    exact = is_integer(aggregate_expression.argument.type)
    total, count = names.fresh(), names.fresh()
    column = sql.col(argument)
    if aggregate_expression.function is ex.AggregateFunction.AVERAGE:
        value = sql.try_divide(sql.col(total).cast(DOUBLE), sql.col(count).cast(DOUBLE))
    elif exact:
        value = _fitting(aggregate_expression, sql.col(total))
    else:
        value = sql.col(total)
    return Grouped(
        of_row=(values.cast(_SUMMAND if exact else DOUBLE).alias(argument),),
        of_group=(sql.sum(column).alias(total), sql.count(column).alias(count)),
        value=value,
    )


def _decimal_totals(
    aggregate_expression: ex.Aggregate, values: Column, weight: Column, names: spark_rows.Names
) -> Grouped:
    """Sums and averages of decimals of at most 28 digits, each as often as its weight says."""
    assert aggregate_expression.argument is not None
    kind = aggregate_expression.argument.type
    assert isinstance(kind, DecimalType)
    product, factor = names.fresh(), names.fresh()
    total, count, weights = names.fresh(), names.fresh(), names.fresh()
    # Spark has a digit more for a product than for both factors, and loses digits beyond 38.
    most = min(18, DECIMAL_DIGITS_MAX - 1 - kind.precision)
    factors = sql.when(values.isNotNull(), weight.cast("bigint"))
    narrow = sql.when(factors < 10**most, factors).otherwise(spark_rows.out_of_range())
    wide = f"decimal({DECIMAL_DIGITS_MAX},{kind.scale})"
    summand = sql.when(values.isNotNull(), (values * narrow.cast(f"decimal({most},0)")).cast(wide))
    value = _exact_sum(total, count)
    if aggregate_expression.function is ex.AggregateFunction.AVERAGE:
        divisor = _exact_sum(weights, count)
        value = sql.try_divide(value.cast(DOUBLE), divisor.cast(DOUBLE))
    return Grouped(
        of_row=(summand.alias(product), factors.alias(factor)),
        of_group=(
            sql.try_sum(product).alias(total),
            sql.count(product).alias(count),
            sql.try_sum(factor).alias(weights),
        ),
        value=value,
    )


def _fitting(aggregate_expression: ex.Aggregate, total: Column) -> Column:
    scalar = scalar_of(aggregate_expression.type)
    assert scalar in (Scalar.I64, Scalar.U64)
    low, high = (sql.lit(str(bound)).cast("decimal(38,0)") for bound in INTEGER_LIMITS[scalar])
    kept = sql.when(
        total.between(low, high), total.cast(spark_type_of(aggregate_expression.type, None))
    )
    return sql.when(total.isNotNull(), kept.otherwise(spark_rows.out_of_range()))


_COUNT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Rows of columns; `columns` are the names in the frame by those of the query."""

    frame: DataFrame
    columns: Mapping[str, str]
    projections: tuple[TypedProjection, ...]

    def as_rows(self) -> spark_rows.Rows:
        """Its rows, for expressions that read its columns."""
        row = spark_rows.HeldEntity(
            types=(), id_column="", type_column=None, properties=self.columns
        )
        return spark_rows.Rows(frame=self.frame, held={ex.RESULT: row})

    def identity(self, name: str) -> tuple[Column, ...]:
        """What distinguishes values of a column."""
        column = sql.col(self.columns[name])
        (kind,) = (
            projection.column.type
            for projection in self.projections
            if projection.column.name == name
        )
        if isinstance(kind, NodeOf | EdgeOf):
            return column[ID_COLUMN], column[TYPE_FIELD]
        return (column,)


def projected(
    plan: lp.Project, rows: spark_rows.Rows, run: spark_rows.Run, expressions: Expressions
) -> Result:
    """One column per projection."""
    columns = {projection.column.name: run.names.fresh() for projection in plan.projections}
    chosen = [
        _declared(projection, expressions.column(projection.expression, rows), run).alias(
            columns[projection.column.name]
        )
        for projection in plan.projections
    ]
    frame = rows.frame.select(*chosen)
    return Result(frame=frame, columns=columns, projections=plan.projections)


def aggregated(
    plan: lp.Aggregate, rows: spark_rows.Rows, run: spark_rows.Run, expressions: Expressions
) -> Result:
    """One row per group."""
    of_row: list[Column] = []
    of_group: list[Column] = []
    values: dict[str, Column] = {}
    keys = [projection for projection in plan.projections if projection.column.name in plan.keys]
    key_columns = {key.column.name: run.names.fresh() for key in keys}
    for projection in keys:
        column = _declared(projection, expressions.column(projection.expression, rows), run)
        of_row.append(column.alias(key_columns[projection.column.name]))
    for projection in simplify(plan.projections):
        if isinstance(projection.expression, ex.Aggregate):
            how = grouped(projection.expression, rows, expressions, run.names)
            of_row += how.of_row
            of_group += how.of_group
            values[projection.column.name] = _declared(projection, how.value, run)
    narrow = rows.frame.select(*of_row) if of_row else rows.frame
    once = _once(Result(frame=narrow, columns=key_columns, projections=tuple(keys)), of_group, run)
    values |= {name: sql.col(column) for name, column in once.columns.items()}
    columns = {projection.column.name: run.names.fresh() for projection in plan.projections}
    frame = once.frame.select(*(values[name].alias(new) for name, new in columns.items()))
    result = Result(frame=frame, columns=columns, projections=plan.projections)
    if plan.having is not None:
        condition = expressions.column(plan.having, result.as_rows())
        result = replace(result, frame=frame.where(condition))
    return result


def distinct(result: Result, run: spark_rows.Run) -> Result:
    """Every row of columns once."""
    return _once(result, [], run)


def _once(result: Result, of_group: Sequence[Column], run: spark_rows.Run) -> Result:
    """The groups of rows that are equal in all columns of the result, and values of the groups."""
    groups: list[Column] = []
    carried: list[Column] = []
    columns: dict[str, str] = {}
    for name, column in result.columns.items():
        identity = result.identity(name)
        columns[name] = run.names.fresh()
        if len(identity) > 1:
            groups += [key_column.alias(run.names.fresh()) for key_column in identity]
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


def ordered_rows(
    plan: lp.Order, rows: spark_rows.Rows, expressions: Expressions
) -> spark_rows.Rows:
    """Rows in the order of a ranking, of keys, and of the ids of their entities."""
    keys: list[Column] = []
    if plan.ranking is not None:
        best_first = isinstance(plan.ranking, ex.Distance)
        keys.append(_directed(expressions.score(plan.ranking, rows), descending=not best_first))
    for key in plan.keys:
        column = expressions.column(key.expression, rows)
        keys.append(_directed(column, descending=key.descending))
    for tie in plan.ties:
        held_variable = rows.held[tie]
        if isinstance(held_variable, spark_rows.HeldEntity):
            keys.append(_directed(sql.col(held_variable.id_column), descending=False))
            keys += (
                [spark_rows.type_of(held_variable).asc_nulls_first()]
                if held_variable.type_column is not None
                else []
            )
    return replace(rows, frame=rows.frame.orderBy(*keys)) if keys else rows


def ordered_result(plan: lp.Order, result: Result) -> Result:
    """Groups or distinct rows in the order of their columns."""
    keys: list[Column] = []
    if plan.ranking is not None:
        (name,) = (
            projection.column.name
            for projection in result.projections
            if projection.expression == plan.ranking
        )
        column = sql.col(result.columns[name])
        keys.append(_directed(column, descending=not isinstance(plan.ranking, ex.Distance)))
    for key in plan.keys:
        assert key.column is not None
        column = sql.col(result.columns[key.column])
        keys.append(_directed(column, descending=key.descending))
    for tie in plan.ties:
        keys += [key_column.asc_nulls_first() for key_column in result.identity(tie)]
    return replace(result, frame=result.frame.orderBy(*keys)) if keys else result


def limited(plan: lp.Limit, result: Result, run: spark_rows.Run) -> Result:
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


def _declared(typed_projection: TypedProjection, column: Column, run: spark_rows.Run) -> Column:
    declared = engine_column(typed_projection.column).type
    if isinstance(declared, NodeOf | EdgeOf):
        return column
    return column.cast(spark_type_of(declared, run.catalog))


def query_frame(
    graph: SparkTables, plan: lp.Plan, *, catalog: Catalog, parameters: BoundParameters
) -> DataFrame:
    """The rows of a query, in its order; columns have the names of the query.

    A value that cannot be computed, such as an integer overflow, fails the job that computes it.

    Raises:
        InvalidInputError: a limit that Spark cannot count, or a text where only a model could
            make a vector.
        QueryFailedError: a job that ran while building found a value that cannot be computed.
    """
    plan = keys_as_ids(with_known_parts(plan, parameters), catalog, parameters)
    return plan_frame(graph, plan, catalog=catalog, parameters=parameters)


def plan_frame(
    graph: SparkTables, plan: lp.Plan, *, catalog: Catalog, parameters: BoundParameters
) -> DataFrame:
    """As `query_frame`, with every part of every expression computed by Spark."""
    run = spark_rows.Run(graph=graph, catalog=catalog, parameters=parameters)
    with without_noise():
        return named(_Executor(run, _requirements(plan)).result(plan))


def _requirements(plan: lp.Plan) -> RequiredColumns:
    """What the result reads of the rows of its pattern."""
    shape = shape_of(plan)
    shape = replace(shape, projections=simplify(shape.projections))
    return RequiredColumns(
        variables=variables_read(shape), counted=shape.counts_only, weighed=shape.asks_how_many
    )


class _Executor:
    """Every part of a plan is translated to rows once, however often it is used."""

    def __init__(self, run: spark_rows.Run, wanted: RequiredColumns) -> None:
        self._run = run
        self._wanted = wanted
        self._expressions = Expressions(run)
        self._scans = Scans(run, self._expressions)
        self._done: dict[tuple[int, RequiredColumns, int], spark_rows.Rows] = {}
        # Kept, because what was made is found by the identity of the rows around it.
        self._starts: list[spark_rows.Rows] = []

    def result(self, plan: lp.Plan) -> Result:
        match plan:
            case lp.Project(input=lp.Aggregate()):
                groups = self.result(plan.input).as_rows()
                return projected(plan, groups, self._run, self._expressions)
            case lp.Project():
                rows = self._rows(plan.input, self._wanted, None)
                return projected(plan, rows, self._run, self._expressions)
            case lp.Aggregate():
                rows = self._rows(plan.input, self._wanted, None)
                return aggregated(plan, rows, self._run, self._expressions)
            case lp.Distinct():
                return distinct(self.result(plan.input), self._run)
            case lp.Order():
                return ordered_result(plan, self.result(plan.input))
            case lp.Limit():
                return limited(plan, self.result(plan.input), self._run)
            case _:
                raise AssertionError(f"{type(plan).__name__} gives no columns")

    def _rows(
        self, plan: lp.Plan, wanted: RequiredColumns, outer: spark_rows.Rows | None
    ) -> spark_rows.Rows:
        key = (id(plan), wanted, id(outer))
        if key not in self._done:
            self._done[key] = self._make(plan, wanted, outer)
        return self._done[key]

    def _make(  # noqa: C901, PLR0911, PLR0912 - one case per kind
        self, plan: lp.Plan, wanted: RequiredColumns, outer: spark_rows.Rows | None
    ) -> spark_rows.Rows:
        match plan:
            case lp.Scan():
                return self._scans.nodes(plan)
            case lp.Outer():
                assert outer is not None
                return outer
            case lp.Empty():
                return spark_rows.nothing(self._run, plan.variables)
            case lp.Expand():
                return self._hop(plan, wanted, outer)
            case lp.Cross():
                left = self._rows(plan.left, wanted, outer)
                right = self._rows(plan.right, wanted, outer)
                return spark_rows.cross_join(left, right, self._run.names)
            case lp.Filter():
                below = wanted.below(ex.variables_of(plan.predicate))
                rows = self._rows(plan.input, below, outer)
                condition = self._expressions.column(plan.predicate, rows)
                return replace(rows, frame=rows.frame.where(condition))
            case lp.Anti() | lp.Semi() | lp.Apply() | lp.Optional():
                return self._block(plan, wanted, outer)
            case lp.Rank():
                again = isinstance(plan.by, ex.Fusion)
                below = wanted.below(ex.variables_of(plan.by))
                make = self._settle if again else self._rows
                return ranked(plan, make(plan.input, below, outer), self._run, self._expressions)
            case lp.Order():
                rows = self._rows(plan.input, wanted, outer)
                return ordered_rows(plan, rows, self._expressions)
            case lp.Project() | lp.Aggregate() | lp.Distinct() | lp.Limit():
                raise AssertionError(f"{type(plan).__name__} carries no variables")
            case _:
                assert_never(plan)

    def _hop(
        self, plan: lp.Expand, wanted: RequiredColumns, outer: spark_rows.Rows | None
    ) -> spark_rows.Rows:
        hop = Hop(plan=plan, wanted=wanted, run=self._run, scans=self._scans)
        if starts_everywhere(plan, wanted):
            return hop.from_everywhere()
        make = self._settle if searches_levels(plan) else self._rows
        return hop.from_rows(make(plan.input, reads_below(plan, wanted), outer))

    def _block(
        self,
        plan: lp.BlockJoin,
        wanted: RequiredColumns,
        outer: spark_rows.Rows | None,
    ) -> spark_rows.Rows:
        around = self._settle(*source_of(plan, wanted), outer)
        rows = self._rows(plan.input, below_block(plan, wanted), outer)
        start = spark_rows.copied(around, outer_variables(plan.inner), self._run.names)
        self._starts.append(start)
        inner = self._rows(plan.inner, inside_block(plan, wanted), start)
        match plan:
            case lp.Anti() | lp.Semi():
                return keep_by_match(rows, start, inner, kept=isinstance(plan, lp.Semi))
            case lp.Apply():
                return with_matches_counted(plan, rows, start, inner, self._run.names)
            case lp.Optional():
                return with_matches(rows, start, inner, plan.introduced, self._run.names)
            case _:
                assert_never(plan)

    def _settle(
        self, plan: lp.Plan, wanted: RequiredColumns, outer: spark_rows.Rows | None
    ) -> spark_rows.Rows:
        """Rows that are mentioned twice; computed now if a plan below mentions some twice too.

        Otherwise each mention would double the work below it.
        """
        rows = self._rows(plan, wanted, outer)
        if _repeats(plan):
            with spark_rows.query_errors():
                rows = replace(rows, frame=compute_once(rows.frame))
            self._done[id(plan), wanted, id(outer)] = rows
        return rows


def _repeats(plan: lp.Plan) -> bool:
    own = isinstance(plan, lp.BlockJoin) or (isinstance(plan, lp.Expand) and searches_levels(plan))
    return own or any(_repeats(input_plan) for input_plan in inputs_of(plan))
