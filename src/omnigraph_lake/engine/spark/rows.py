"""Represents rows of a pattern as a DataFrame, joins such frames, and recognises errors of rows.

Spark chooses how frames are joined, by the sizes it estimates and measures. Only a frame that has
one row, because it is read by an id, is marked for it: its estimate is the whole table.

Invariants:
- Every column has a unique name in its run, so that frames can be joined without conflicts, and no
  name of a schema or a query is used in Spark.
- A variable is null in a row if and only if the column of its id, or of the nodes of its path, is.
- A row with a weight represents that many equal rows; a weight is at least one and never null. A
  weight that does not fit into 64 bits fails the job.
- With any settings of a session, an integer that does not fit fails the job, and the failure is
  recognised by its message.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

from omnigraph_lake.engine.expressions.kernels import (
    CANNOT_CAST,
    OUTSIDE_OF_YEARS,
    TOO_MANY_DIGITS,
    next_step_after,
)
from omnigraph_lake.engine.expressions.path_weights import CORRECT_WEIGHT
from omnigraph_lake.errors import QueryFailedError
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.query.binding import BoundParameters
from omnigraph_lake.query.columns import TYPE_FIELD
from omnigraph_lake.query.expressions import Ranking
from omnigraph_lake.runner.job_failures import job_errors
from omnigraph_lake.runner.scan import SparkTables
from omnigraph_lake.schema.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldEntity:
    """The columns of a node or an edge; `src` and `dst` of an edge are among its properties.

    `types` are the possible ones; `type_column` is set if there are several.
    """

    id_column: str
    types: tuple[str, ...]
    type_column: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPath:
    """The columns of a path: the ids of its nodes and of its edges, and its weight, if any.

    Of several types, the elements are structs of `id` and `type`.
    """

    nodes: str
    edges: str
    node_types: tuple[str, ...]
    edge_types: tuple[str, ...]
    weight: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A variable that is null in every row; it has no columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMatches:
    """The column of the number of matches of a sub-pattern; 0 or 1 if only asked whether."""

    matches: str


Held: TypeAlias = HeldEntity | HeldPath | HeldMatches | Absent


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows that carry variables, and ranks once they have them.

    `weight` is the column of weights, if equal rows may be one. `few` if there is at most a row or
    two; `crowded` if many equal rows are expected.
    """

    frame: DataFrame
    held: Mapping[str, Held]
    scores: Mapping[Ranking, str] = field(default_factory=dict)
    weight: str | None = None
    few: bool = False
    crowded: bool = False


class Names:
    """Unique names of columns."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def fresh(self) -> str:
        return f"c{next(self._numbers)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The context of all steps of one run."""

    graph: SparkTables
    catalog: Catalog
    parameters: BoundParameters
    names: Names = field(default_factory=Names)


def columns_of(held_variable: Held) -> tuple[str, ...]:
    """All columns of a variable."""
    match held_variable:
        case HeldEntity():
            return tuple(
                dict.fromkeys((*identity_of(held_variable), *held_variable.properties.values()))
            )
        case HeldPath():
            weight = () if held_variable.weight is None else (held_variable.weight,)
            return *identity_of(held_variable), *weight
        case HeldMatches() | Absent():
            return identity_of(held_variable)
        case _:
            assert_never(held_variable)


def identity_of(held_variable: Held) -> tuple[str, ...]:
    """The columns that distinguish values of a variable."""
    match held_variable:
        case HeldEntity():
            typed = () if held_variable.type_column is None else (held_variable.type_column,)
            return held_variable.id_column, *typed
        case HeldPath():
            return held_variable.nodes, held_variable.edges
        case HeldMatches():
            return (held_variable.matches,)
        case Absent():
            return ()
        case _:
            assert_never(held_variable)


def property_column(held_entity: HeldEntity, name: str) -> str:
    """The column of a property, or of the id."""
    return held_entity.id_column if name == ID_COLUMN else held_entity.properties[name]


def type_of(held_entity: HeldEntity) -> Column:
    """The name of the type of an entity, null where there is none."""
    if held_entity.type_column is not None:
        return sql.col(held_entity.type_column)
    (only,) = held_entity.types
    return sql.when(sql.col(held_entity.id_column).isNotNull(), sql.lit(only))


def id_with_type(id_column: str, type_name: Column) -> Column:
    """An id and the type that it is an id of, as one value; ordered by id first."""
    return sql.struct(sql.col(id_column).alias(ID_COLUMN), type_name.alias(TYPE_FIELD))


def nothing(run: Run, variables: Iterable[str]) -> Rows:
    """No rows."""
    frame = run.graph.spark.range(0).toDF(run.names.fresh())
    return Rows(frame=frame, held=dict.fromkeys(variables, Absent()), few=True)


def copied(rows: Rows, variables: Iterable[str], names: Names) -> Rows:
    """Some variables of rows under new names, each combination of them once.

    The properties of an entity follow from its identity, so that identities are compared alone.
    """
    held_variables = {variable: rows.held[variable] for variable in variables}
    identity = list(
        dict.fromkeys(
            name for held_variable in held_variables.values() for name in identity_of(held_variable)
        )
    )
    columns = dict.fromkeys(
        name for held_variable in held_variables.values() for name in columns_of(held_variable)
    )
    renamed = {name: names.fresh() for name in columns}
    renamed_variables = {
        name: _moved(held_variable, renamed) for name, held_variable in held_variables.items()
    }
    if identity:
        once = rows.frame.select(*columns).dropDuplicates(identity)
        frame = once.select(*(sql.col(old).alias(new) for old, new in renamed.items()))
    else:
        frame = rows.frame.select(sql.lit(1).alias(names.fresh())).limit(1)
    return Rows(frame=frame, held=renamed_variables, few=rows.few)


def _moved(held_variable: Held, renamed: Mapping[str, str]) -> Held:
    match held_variable:
        case HeldEntity():
            type_column = held_variable.type_column
            return replace(
                held_variable,
                id_column=renamed[held_variable.id_column],
                type_column=None if type_column is None else renamed[type_column],
                properties={
                    name: renamed[column] for name, column in held_variable.properties.items()
                },
            )
        case HeldPath():
            weight = held_variable.weight
            return replace(
                held_variable,
                nodes=renamed[held_variable.nodes],
                edges=renamed[held_variable.edges],
                weight=None if weight is None else renamed[weight],
            )
        case HeldMatches():
            return HeldMatches(matches=renamed[held_variable.matches])
        case Absent():
            return held_variable
        case _:
            assert_never(held_variable)


def inner_join(left: Rows, right: DataFrame, keys: Sequence[tuple[str, str]]) -> DataFrame:
    """Every pair of rows whose keys are equal; a null key equals nothing."""
    return small_if_few(left).join(right, _equal(keys))


def semi_join(left: DataFrame, right: DataFrame, keys: Sequence[tuple[str, str]]) -> DataFrame:
    """The rows of one side that have a partner on the other."""
    return left.join(right, _equal(keys), "left_semi")


def block_join(
    left: DataFrame, right: DataFrame, keys: Sequence[tuple[str, str]], how: str
) -> DataFrame:
    """The rows of one side with, or without, what a block found for them; null equals null."""
    if not keys:
        # All that the block reads is null in every row, so it found the same for all of them.
        return left.join(right, sql.lit(1) == 1, how)
    pairs: list[Column] = [
        sql.col(left_key).eqNullSafe(sql.col(right_key)) for left_key, right_key in keys
    ]
    return left.join(right, reduce(and_, pairs), how)


def cross_join(left: Rows, right: Rows, names: Names) -> Rows:
    """Every row of one side with every row of the other."""
    frame = small_if_few(left).crossJoin(small_if_few(right))
    rows = Rows(frame=frame, held={**left.held, **right.held}, weight=left.weight)
    return rows if right.weight is None else weigh(rows, right.weight, names)


def small_if_few(rows: Rows) -> DataFrame:
    """The frame, to be broadcast if it has hardly any rows."""
    return sql.broadcast(rows.frame) if rows.few else rows.frame


def _equal(keys: Sequence[tuple[str, str]]) -> Column:
    return reduce(and_, [sql.col(left_key) == sql.col(right_key) for left_key, right_key in keys])


def weigh(rows: Rows, factor: str, names: Names) -> Rows:
    """The rows, each as many times as a column says."""
    if rows.weight is None:
        return replace(rows, weight=factor)
    product, weight = sql.try_multiply(rows.weight, factor), names.fresh()
    exact = sql.when(product.isNull(), out_of_range()).otherwise(product)
    return replace(rows, frame=rows.frame.select("*", exact.alias(weight)), weight=weight)


def merge_equal(rows: Rows, variable: str, names: Names, *, weighed: bool) -> Rows:
    """The rows that hold the same entity as one, with its weight if that is needed."""
    held_entity = rows.held[variable]
    assert isinstance(held_entity, HeldEntity)
    merged = Rows(frame=rows.frame, held={variable: replace(held_entity, properties={})})
    keys = identity_of(held_entity)
    if not weighed:
        return replace(merged, frame=rows.frame.select(*keys).distinct())
    total, weight = names.fresh(), names.fresh()
    summand = sql.lit(1) if rows.weight is None else sql.col(rows.weight)
    totals = rows.frame.groupBy(*keys).agg(sql.try_sum(summand).alias(total))
    exact = sql.when(sql.col(total).isNull(), out_of_range()).otherwise(sql.col(total))
    return replace(merged, frame=totals.select(*keys, exact.alias(weight)), weight=weight)


OUT_OF_RANGE: Final = "an integer or a sum does not fit into 64 bits"
_REFUSALS: Final = (OUT_OF_RANGE, TOO_MANY_DIGITS, CANNOT_CAST, OUTSIDE_OF_YEARS)


def out_of_range() -> Column:
    """A value that fails the job when a row evaluates it."""
    return refuse(OUT_OF_RANGE)


def cannot_cast() -> Column:
    """As above, for a value that another type does not have."""
    return refuse(CANNOT_CAST)


def refuse(why: str) -> Column:
    """As above, for one of the reasons that a query has."""
    # On separate lines, like an `OmnigraphError` of a task.
    name = f"omnigraph_lake.errors.{QueryFailedError.__name__}"
    return sql.raise_error(sql.lit(f"\n{name}: {why}.\n{next_step_after(why)}\n"))


EXACT_WEIGHT: Final = "decimal(38,0)"
"""Sums of the weights of any path, before it is known whether they fit into 64 bits."""
_WEIGHT_REFUSED: Final = re.compile(r"the edge .* has the .*, expected a weight of 0 or more")


def negative_weight(edge_id: Column, edge_type: Column, name: str, weight: Column) -> Column:
    """A value that fails the job when a row evaluates it."""
    error = f"\nomnigraph.errors.{QueryFailedError.__name__}: "
    return sql.raise_error(
        sql.concat(
            sql.lit(f"{error}the edge "),
            edge_id,
            sql.lit(" of "),
            edge_type,
            sql.lit(f" has the {name} "),
            weight.cast("string"),
            sql.lit(f", expected a weight of 0 or more.\n{CORRECT_WEIGHT}\n"),
        )
    )


def refusal_of(error: BaseException) -> QueryFailedError | None:
    """The error that the query itself raised on Spark, if it was one."""
    if not isinstance(error, PySparkException | Py4JError):
        return None
    text = str(error)
    for why in _REFUSALS:
        if why in text:
            return QueryFailedError(why, next_step=next_step_after(why))
    refused = _WEIGHT_REFUSED.search(text)
    if refused is None:
        return None
    return QueryFailedError(refused.group(), next_step=CORRECT_WEIGHT)


@contextmanager
def query_errors() -> Iterator[None]:
    """Translate failures of jobs that run a query to errors of this package."""
    with job_errors():
        try:
            yield
        except (PySparkException, Py4JError) as error:
            refusal = refusal_of(error)
            if refusal is not None:
                raise refusal from error
            raise
