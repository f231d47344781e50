"""A logical plan as one DataFrame.

Invariant: the plan alone decides what is computed, and all of it is read from the snapshot of the
`SparkTables`. Building the frame runs no job, unless a score counts texts, a search is deep, or a
part of the plan is used several times at several levels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from omnigraph.engine.spark.blocks import outer_variables, source_of, with_matches, without_match
from omnigraph.engine.spark.expressions import Expressions
from omnigraph.engine.spark.joins import cross_join
from omnigraph.engine.spark.patterns import expand, searches_levels
from omnigraph.engine.spark.ranking import ranked
from omnigraph.engine.spark.refusals import query_errors
from omnigraph.engine.spark.results import (
    Result,
    aggregated,
    distinct,
    limited,
    named,
    ordered_result,
    ordered_rows,
    projected,
)
from omnigraph.engine.spark.rows import Rows, Run, copied, nothing
from omnigraph.engine.spark.scans import Scans
from omnigraph.query.binding import BoundParameters
from omnigraph.query.expressions import Fusion
from omnigraph.query.plan import (
    Aggregate,
    Anti,
    Cross,
    Distinct,
    Empty,
    Expand,
    Filter,
    Limit,
    Optional,
    Order,
    Outer,
    Plan,
    Project,
    Rank,
    Scan,
)
from omnigraph.query.rewrites import inputs_of
from omnigraph.runner.session import without_noise
from omnigraph.schema.catalog import Catalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from omnigraph.runner.scan import SparkTables


def query_frame(
    graph: SparkTables, plan: Plan, *, catalog: Catalog, parameters: BoundParameters
) -> DataFrame:
    """The rows of a query, in its order; columns have the names of the query.

    A value that cannot be computed, such as an integer overflow, fails the job that computes it.

    Raises:
        InvalidInputError: a limit that Spark cannot count, or a text where only a model could
            make a vector.
        QueryFailedError: a job that ran while building found a value that cannot be computed.
    """
    run = Run(graph=graph, catalog=catalog, parameters=parameters)
    with without_noise():
        return named(_Executor(run).result(plan))


class _Executor:
    """Every part of a plan is translated to rows once, however often it is used."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._expressions = Expressions(run)
        self._scans = Scans(run, self._expressions)
        self._done: dict[tuple[int, int], Rows] = {}

    def result(self, plan: Plan) -> Result:
        match plan:
            case Project():
                return projected(plan, self._rows(plan.input, None), self._run, self._expressions)
            case Aggregate():
                return aggregated(plan, self._rows(plan.input, None), self._run, self._expressions)
            case Distinct():
                return distinct(self.result(plan.input), self._run)
            case Order():
                return ordered_result(plan, self.result(plan.input))
            case Limit():
                return limited(plan, self.result(plan.input), self._run)
            case _:
                raise AssertionError(f"{type(plan).__name__} gives no columns")

    def _rows(self, plan: Plan, outer: Rows | None) -> Rows:
        key = (id(plan), id(outer))
        if key not in self._done:
            self._done[key] = self._made(plan, outer)
        return self._done[key]

    def _made(self, plan: Plan, outer: Rows | None) -> Rows:  # noqa: C901, PLR0911, PLR0912
        match plan:
            case Scan():
                return self._scans.nodes(plan)
            case Outer():
                assert outer is not None
                return outer
            case Empty():
                return nothing(self._run, plan.variables)
            case Expand():
                again = searches_levels(plan)
                rows = self._settled(plan.input, outer) if again else self._rows(plan.input, outer)
                return expand(plan, rows, self._run, self._scans)
            case Cross():
                left, right = self._rows(plan.left, outer), self._rows(plan.right, outer)
                return Rows(frame=cross_join(left, right), held={**left.held, **right.held})
            case Filter():
                rows = self._rows(plan.input, outer)
                condition = self._expressions.column(plan.predicate, rows)
                return replace(rows, frame=rows.frame.where(condition))
            case Anti() | Optional():
                return self._block(plan, outer)
            case Rank():
                again = isinstance(plan.by, Fusion)
                rows = self._settled(plan.input, outer) if again else self._rows(plan.input, outer)
                return ranked(plan, rows, self._run, self._expressions)
            case Order():
                return ordered_rows(plan, self._rows(plan.input, outer), self._expressions)
            case Project() | Aggregate() | Distinct() | Limit():
                raise AssertionError(f"{type(plan).__name__} carries no variables")
            case _:
                assert_never(plan)

    def _block(self, plan: Anti | Optional, outer: Rows | None) -> Rows:
        around = self._settled(source_of(plan), outer)
        rows = self._rows(plan.input, outer)
        start = copied(around, outer_variables(plan.inner), self._run.names)
        inner = self._rows(plan.inner, start)
        if isinstance(plan, Anti):
            return without_match(rows, start, inner)
        return with_matches(rows, start, inner, plan.introduced)

    def _settled(self, plan: Plan, outer: Rows | None) -> Rows:
        """Rows that are mentioned twice; computed now if a plan below mentions some twice too.

        Otherwise each mention would double the work below it.
        """
        rows = self._rows(plan, outer)
        if _repeats(plan):
            with query_errors():
                rows = replace(rows, frame=rows.frame.localCheckpoint())
            self._done[id(plan), id(outer)] = rows
        return rows


def _repeats(plan: Plan) -> bool:
    own = isinstance(plan, Anti | Optional) or (isinstance(plan, Expand) and searches_levels(plan))
    return own or any(_repeats(each) for each in inputs_of(plan))
