"""The part of a plan above its pattern: columns, groups, order, limit.

Invariant: a plan has one of three shapes: rows, distinct rows, groups.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeGuard

from omnigraph_lake.query.expressions import Aggregate as AggregateExpression
from omnigraph_lake.query.expressions import AggregateFunction, Expression, variables_of
from omnigraph_lake.query.plan import Aggregate, Distinct, Limit, Order, Plan, Project

if TYPE_CHECKING:
    from omnigraph_lake.query.typed import TypedProjection


class ShapeKind(enum.Enum):
    """How the rows of the pattern become the result."""

    ROWS = "rows"
    DISTINCT = "distinct"
    GROUPS = "groups"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The pattern of a plan and how its rows become the result."""

    kind: ShapeKind
    pattern: Plan
    projections: tuple[TypedProjection, ...]
    order: Order | None
    limit: Expression | None
    offset: Expression | None
    having: Expression | None = None
    computed: tuple[TypedProjection, ...] = ()
    """The columns of the result that are computed from those of groups; none if these are it."""

    @property
    def columns(self) -> tuple[TypedProjection, ...]:
        """The columns of the result."""
        return self.computed or self.projections

    @property
    def keys(self) -> tuple[TypedProjection, ...]:
        """The columns that are not aggregates."""
        return tuple(
            projection
            for projection in self.projections
            if not isinstance(projection.expression, AggregateExpression)
        )

    @property
    def asks_how_many(self) -> bool:
        """Whether the result depends on the number of equal rows of the pattern."""
        aggregates = [
            projection.expression
            for projection in self.projections
            if isinstance(projection.expression, AggregateExpression)
        ]
        return self.kind is not ShapeKind.DISTINCT and (
            self.kind is ShapeKind.ROWS or any(map(_repeats_matter, aggregates))
        )

    @property
    def counts_only(self) -> bool:
        """Whether equal rows of the pattern can be one row with a weight."""
        match self.kind:
            case ShapeKind.ROWS:
                return False
            case ShapeKind.DISTINCT:
                return True
            case ShapeKind.GROUPS:
                return not any(
                    isinstance(projection.expression, AggregateExpression)
                    and projection.expression.function in _OF_EVERY_ROW
                    and not projection.expression.distinct
                    for projection in self.projections
                )


_OF_EVERY_ROW: Final = frozenset(
    {AggregateFunction.COLLECT, AggregateFunction.DEVIATION, AggregateFunction.PERCENTILE}
)
"""Aggregates that see each of several equal rows."""
_UNWEIGHED: Final = frozenset(
    {
        AggregateFunction.MINIMUM,
        AggregateFunction.MAXIMUM,
        AggregateFunction.FIRST,
        AggregateFunction.LAST,
    }
)


def _repeats_matter(aggregate: AggregateExpression) -> bool:
    return not aggregate.distinct and aggregate.function not in _UNWEIGHED


def shape_of(plan: Plan) -> Shape:
    """The shape of a whole plan."""
    limit: Expression | None = None
    offset: Expression | None = None
    order: Order | None = None
    having: Expression | None = None
    if isinstance(plan, Limit):
        limit, offset = plan.limit, plan.offset
        plan = plan.input
    if isinstance(plan, Order):
        order = plan
        plan = plan.input
    computed: tuple[TypedProjection, ...] = ()
    if isinstance(plan, Project) and isinstance(plan.input, Aggregate):
        computed, plan = plan.projections, plan.input
    if isinstance(plan, Aggregate):
        kind, projections, pattern = ShapeKind.GROUPS, plan.projections, plan.input
        having = plan.having
    elif isinstance(plan, Distinct):
        assert isinstance(plan.input, Project)
        kind, projections, pattern = ShapeKind.DISTINCT, plan.input.projections, plan.input.input
    else:
        assert isinstance(plan, Project)
        kind, projections, pattern = ShapeKind.ROWS, plan.projections, plan.input
        if isinstance(pattern, Order):
            order = pattern
            pattern = pattern.input
    return Shape(
        kind=kind,
        pattern=pattern,
        projections=projections,
        order=order,
        limit=limit,
        offset=offset,
        having=having,
        computed=computed,
    )


def simplify(projections: tuple[TypedProjection, ...]) -> tuple[TypedProjection, ...]:
    """Counting something that is never null is counting rows."""
    return tuple(
        replace(projection, expression=replace(projection.expression, argument=None))
        if _counts_rows(projection.expression)
        else projection
        for projection in projections
    )


def _counts_rows(expression: Expression) -> TypeGuard[AggregateExpression]:
    return (
        isinstance(expression, AggregateExpression)
        and expression.function is AggregateFunction.COUNT
        and not expression.distinct
        and expression.argument is not None
        and not expression.argument.nullable
    )


def variables_read(shape: Shape) -> frozenset[str]:
    """The variables that columns, keys and ties read."""
    variables = frozenset[str]().union(
        *(variables_of(projection.expression) for projection in shape.projections)
    )
    if shape.order is None or shape.kind is not ShapeKind.ROWS:
        return variables
    keys = frozenset[str]().union(*(variables_of(key.expression) for key in shape.order.keys))
    ranking = frozenset[str]()
    if shape.order.ranking is not None:
        ranking = variables_of(shape.order.ranking)
    return variables | keys | ranking | frozenset(shape.order.ties)
