"""Rewrites of a plan: push down conditions, drop unread properties, prune empty parts.

Invariant: a rewritten plan has the rows of the original, for every graph and every parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias, assert_never

from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import plan as lp
from omnigraph_lake.query.ast import BinaryOperator
from omnigraph_lake.query.checks.scope import SYSTEM_COLUMNS
from omnigraph_lake.query.typed import TypedProjection

_Needs: TypeAlias = Mapping[str, frozenset[str] | None]


def push_filters(plan: lp.Plan) -> lp.Plan:
    """Every condition on one variable moves to the step that binds the variable."""
    plan = map_inputs(plan, push_filters)
    if not isinstance(plan, lp.Filter):
        return plan
    target, left = plan.input, list[ex.Expression]()
    for condition in ex.conjuncts(plan.predicate):
        moved = _push(target, condition)
        if moved is None:
            left.append(condition)
        else:
            target = moved
    predicate = ex.all_of(tuple(left))
    return target if predicate is None else lp.Filter(input=target, predicate=predicate)


def narrow_scans(plan: lp.Plan) -> lp.Plan:
    """A scan whose condition says the type of its nodes reads that type alone."""
    plan = map_inputs(plan, narrow_scans)
    if not isinstance(plan, lp.Scan) or plan.predicate is None:
        return plan
    types, left = plan.types, list[ex.Expression]()
    for condition in ex.conjuncts(plan.predicate):
        match condition:
            case ex.Comparison(
                operator=BinaryOperator.EQUAL,
                left=ex.TypeName(),
                right=ex.Constant(value=str(wanted)),
            ):
                types = tuple(name for name in types if name == wanted)
            case _:
                left.append(condition)
    return replace(plan, types=types, predicate=ex.all_of(tuple(left))) if types else plan


def _push(plan: lp.Plan, condition: ex.Expression) -> lp.Plan | None:  # noqa: PLR0911 - one per kind
    names = ex.variables_of(condition)
    match plan:
        case lp.Scan() if names == {plan.variable}:
            return replace(plan, predicate=_both(plan.predicate, condition))
        case lp.Expand():
            return _pushed_to_expand(plan, condition, names)
        case lp.Cross():
            return _pushed_to_cross(plan, condition, names)
        case lp.Filter() | lp.Anti() | lp.Semi() | lp.Apply() | lp.Optional():
            if not names or not names <= lp.variables_bound(plan.input):
                return None
            moved = _push(plan.input, condition)
            if moved is None and isinstance(plan, lp.Filter):
                return None
            return replace(plan, input=_or_filtered(moved, plan.input, condition))
        case _:
            return None


def _or_filtered(moved: lp.Plan | None, plan: lp.Plan, condition: ex.Expression) -> lp.Plan:
    return lp.Filter(input=plan, predicate=condition) if moved is None else moved


def _pushed_to_cross(
    plan: lp.Cross, condition: ex.Expression, names: frozenset[str]
) -> lp.Plan | None:
    if names and names <= lp.variables_bound(plan.left):
        moved = _push(plan.left, condition)
        return replace(plan, left=_or_filtered(moved, plan.left, condition))
    if names and names <= lp.variables_bound(plan.right):
        moved = _push(plan.right, condition)
        return replace(plan, right=_or_filtered(moved, plan.right, condition))
    return None


def _pushed_to_expand(
    plan: lp.Expand, condition: ex.Expression, names: frozenset[str]
) -> lp.Plan | None:
    if names == {plan.end} and not plan.end_bound:
        return replace(plan, predicate=_both(plan.predicate, condition))
    if plan.edge_variable is not None and names == {plan.edge_variable}:
        return replace(plan, edge_predicate=_both(plan.edge_predicate, condition))
    if names and names <= lp.variables_bound(plan.input):
        moved = _push(plan.input, condition)
        return replace(plan, input=_or_filtered(moved, plan.input, condition))
    return None


def _both(predicate: ex.Expression | None, condition: ex.Expression) -> ex.Expression:
    if predicate is None:
        return condition
    operands = predicate.operands if isinstance(predicate, ex.And) else (predicate,)
    return ex.And(
        operands=(*operands, condition), nullable=predicate.nullable or condition.nullable
    )


def map_inputs(plan: lp.Plan, change: Callable[[lp.Plan], lp.Plan]) -> lp.Plan:
    """The plan with a function applied to each plan directly below it."""
    match plan:
        case lp.Scan() | lp.Outer() | lp.Empty():
            return plan
        case lp.Cross():
            return replace(plan, left=change(plan.left), right=change(plan.right))
        case lp.Anti() | lp.Semi() | lp.Apply() | lp.Optional():
            return replace(plan, input=change(plan.input), inner=change(plan.inner))
        case (
            lp.Expand()
            | lp.Filter()
            | lp.Rank()
            | lp.Project()
            | lp.Aggregate()
            | lp.Distinct()
            | lp.Order()
            | lp.Limit()
        ):
            return replace(plan, input=change(plan.input))
        case _:
            assert_never(plan)


def prune_columns(plan: lp.Plan) -> lp.Plan:
    """Every scan and hop lists the properties that are read later; a whole entity reads all."""
    return _prune(plan, {})


def _prune(plan: lp.Plan, needs: _Needs) -> lp.Plan:
    match plan:
        case lp.Scan():
            return replace(plan, columns=_columns(plan.variable, needs))
        case lp.Outer() | lp.Empty():
            return plan
        case lp.Expand():
            edge = plan.edge_variable
            return replace(
                plan,
                input=_prune(plan.input, needs),
                columns=() if plan.end_bound else _columns(plan.end, needs),
                edge_columns=() if edge is None else _columns(edge, needs),
            )
        case lp.Cross():
            return replace(plan, left=_prune(plan.left, needs), right=_prune(plan.right, needs))
        case lp.Anti() | lp.Semi() | lp.Apply() | lp.Optional():
            known = lp.variables_bound(plan.input)
            inside = {
                name: properties
                for name, properties in _all_needs(plan.inner).items()
                if name in known
            }
            inner_needs = needs if isinstance(plan, lp.Optional) else {}
            return replace(
                plan,
                input=_prune(plan.input, _joined(needs, inside)),
                inner=_prune(plan.inner, inner_needs),
            )
        case (
            lp.Filter()
            | lp.Rank()
            | lp.Project()
            | lp.Aggregate()
            | lp.Distinct()
            | lp.Order()
            | lp.Limit()
        ):
            below = _joined(needs, _needs(expressions_of(plan)))
            return replace(plan, input=_prune(plan.input, below))
        case _:
            assert_never(plan)


def _columns(variable: str, needs: _Needs) -> tuple[str, ...] | None:
    needed = needs.get(variable, frozenset())
    return None if needed is None else tuple(sorted(needed - SYSTEM_COLUMNS))


def _needs(expressions: Iterable[ex.Expression]) -> dict[str, frozenset[str] | None]:
    needs: dict[str, frozenset[str] | None] = {}
    for expression in expressions:
        for part in ex.walk(expression):
            if isinstance(part, ex.Entity):
                needs[part.variable] = None
            elif isinstance(part, ex.PropertyOf):
                properties = needs.get(part.variable, frozenset())
                needs[part.variable] = None if properties is None else properties | {part.name}
    return needs


def _joined(needs: _Needs, other_needs: _Needs) -> dict[str, frozenset[str] | None]:
    joined_needs = dict(needs)
    for name, properties in other_needs.items():
        earlier = joined_needs.get(name, frozenset())
        reads_all = earlier is None or properties is None
        joined_needs[name] = (
            None if reads_all else (earlier or frozenset()) | (properties or frozenset())
        )
    return joined_needs


def _all_needs(plan: lp.Plan) -> dict[str, frozenset[str] | None]:
    """What every expression in a plan and below it reads."""
    needs = _needs(expressions_of(plan))
    for below in inputs_of(plan):
        needs = _joined(needs, _all_needs(below))
    return needs


def inputs_of(plan: lp.Plan) -> tuple[lp.Plan, ...]:
    """The plans directly below another."""
    match plan:
        case lp.Scan() | lp.Outer() | lp.Empty():
            return ()
        case lp.Cross():
            return plan.left, plan.right
        case lp.Anti() | lp.Semi() | lp.Apply() | lp.Optional():
            return plan.input, plan.inner
        case (
            lp.Expand()
            | lp.Filter()
            | lp.Rank()
            | lp.Project()
            | lp.Aggregate()
            | lp.Distinct()
            | lp.Order()
            | lp.Limit()
        ):
            return (plan.input,)
        case _:
            assert_never(plan)


def map_expressions(  # noqa: C901, PLR0911 - one per kind
    plan: lp.Plan,
    *,
    condition: Callable[[ex.Expression], ex.Expression],
    value: Callable[[ex.Expression], ex.Expression],
) -> lp.Plan:
    """The plan with functions applied to all its conditions and to all values of its results."""

    def map_projections(projections: tuple[TypedProjection, ...]) -> tuple[TypedProjection, ...]:
        return tuple(replace(one, expression=value(one.expression)) for one in projections)

    def optional(predicate: ex.Expression | None) -> ex.Expression | None:
        return None if predicate is None else condition(predicate)

    plan = map_inputs(plan, lambda below: map_expressions(below, condition=condition, value=value))
    if isinstance(plan, lp.WithoutExpressions):
        return plan
    match plan:
        case lp.Scan():
            return replace(plan, predicate=optional(plan.predicate))
        case lp.Filter():
            return replace(plan, predicate=condition(plan.predicate))
        case lp.Expand():
            return replace(
                plan,
                predicate=optional(plan.predicate),
                edge_predicate=optional(plan.edge_predicate),
            )
        case lp.Project():
            return replace(plan, projections=map_projections(plan.projections))
        case lp.Aggregate():
            return replace(
                plan, projections=map_projections(plan.projections), having=optional(plan.having)
            )
        case lp.Order():
            keys = tuple(replace(key, expression=value(key.expression)) for key in plan.keys)
            return replace(plan, keys=keys)
        case lp.Rank():
            return plan  # what a search asks for is known before the run
        case _:
            assert_never(plan)


def expressions_of(plan: lp.Plan) -> tuple[ex.Expression, ...]:
    """The expressions that a node itself holds."""
    if isinstance(plan, lp.WithoutExpressions):
        return ()
    expressions: list[ex.Expression | None] = []
    match plan:
        case lp.Scan() | lp.Filter():
            expressions.append(plan.predicate)
        case lp.Expand():
            expressions += [plan.predicate, plan.edge_predicate]
        case lp.Rank():
            expressions.append(plan.by)
        case lp.Project():
            expressions += [projection.expression for projection in plan.projections]
        case lp.Aggregate():
            expressions += [projection.expression for projection in plan.projections]
            expressions.append(plan.having)
        case lp.Order():
            expressions += [plan.ranking, *(key.expression for key in plan.keys)]
        case _:
            assert_never(plan)
    return tuple(expression for expression in expressions if expression is not None)
