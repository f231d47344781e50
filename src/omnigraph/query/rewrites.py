"""Rewrites of a plan: push down conditions, drop unread properties, prune empty parts.

Invariant: a rewritten plan has the rows of the original, for every graph and every parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias, assert_never

from omnigraph.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph.query.expressions import (
    And,
    Entity,
    Expression,
    PropertyOf,
    all_of,
    conjuncts,
    variables_of,
    walk,
)
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
    variables_bound,
)

_SYSTEM = frozenset({ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN})
_Needs: TypeAlias = Mapping[str, frozenset[str] | None]


def push_filters(plan: Plan) -> Plan:
    """Every condition on one variable moves to the step that binds the variable."""
    plan = map_inputs(plan, push_filters)
    if not isinstance(plan, Filter):
        return plan
    target, left = plan.input, list[Expression]()
    for condition in conjuncts(plan.predicate):
        moved = _pushed(target, condition)
        if moved is None:
            left.append(condition)
        else:
            target = moved
    predicate = all_of(tuple(left))
    return target if predicate is None else Filter(input=target, predicate=predicate)


def _pushed(plan: Plan, condition: Expression) -> Plan | None:  # noqa: PLR0911 - one per kind
    names = variables_of(condition)
    match plan:
        case Scan() if names == {plan.variable}:
            return replace(plan, predicate=_both(plan.predicate, condition))
        case Expand():
            return _pushed_to_expand(plan, condition, names)
        case Cross():
            return _pushed_to_cross(plan, condition, names)
        case Filter() | Anti() | Optional():
            if not names or not names <= variables_bound(plan.input):
                return None
            moved = _pushed(plan.input, condition)
            if moved is None and isinstance(plan, Filter):
                return None
            return replace(plan, input=_or_filtered(moved, plan.input, condition))
        case _:
            return None


def _or_filtered(moved: Plan | None, plan: Plan, condition: Expression) -> Plan:
    return Filter(input=plan, predicate=condition) if moved is None else moved


def _pushed_to_cross(plan: Cross, condition: Expression, names: frozenset[str]) -> Plan | None:
    if names and names <= variables_bound(plan.left):
        moved = _pushed(plan.left, condition)
        return replace(plan, left=_or_filtered(moved, plan.left, condition))
    if names and names <= variables_bound(plan.right):
        moved = _pushed(plan.right, condition)
        return replace(plan, right=_or_filtered(moved, plan.right, condition))
    return None


def _pushed_to_expand(plan: Expand, condition: Expression, names: frozenset[str]) -> Plan | None:
    if names == {plan.end} and not plan.end_bound:
        return replace(plan, predicate=_both(plan.predicate, condition))
    if plan.edge_variable is not None and names == {plan.edge_variable}:
        return replace(plan, edge_predicate=_both(plan.edge_predicate, condition))
    if names and names <= variables_bound(plan.input):
        moved = _pushed(plan.input, condition)
        return replace(plan, input=_or_filtered(moved, plan.input, condition))
    return None


def _both(one: Expression | None, other: Expression) -> Expression:
    if one is None:
        return other
    earlier = one.operands if isinstance(one, And) else (one,)
    return And(operands=(*earlier, other), nullable=one.nullable or other.nullable)


def map_inputs(plan: Plan, change: Callable[[Plan], Plan]) -> Plan:
    """The plan with a function applied to each plan directly below it."""
    match plan:
        case Scan() | Outer() | Empty():
            return plan
        case Cross():
            return replace(plan, left=change(plan.left), right=change(plan.right))
        case Anti() | Optional():
            return replace(plan, input=change(plan.input), inner=change(plan.inner))
        case (
            Expand() | Filter() | Rank() | Project() | Aggregate() | Distinct() | Order() | Limit()
        ):
            return replace(plan, input=change(plan.input))
        case _:
            assert_never(plan)


def prune_columns(plan: Plan) -> Plan:
    """Every scan and hop lists the properties that are read later; a whole entity reads all."""
    return _pruned(plan, {})


def _pruned(plan: Plan, needs: _Needs) -> Plan:
    match plan:
        case Scan():
            return replace(plan, columns=_columns(plan.variable, needs))
        case Outer() | Empty():
            return plan
        case Expand():
            edge = plan.edge_variable
            return replace(
                plan,
                input=_pruned(plan.input, needs),
                columns=() if plan.end_bound else _columns(plan.end, needs),
                edge_columns=() if edge is None else _columns(edge, needs),
            )
        case Cross():
            return replace(plan, left=_pruned(plan.left, needs), right=_pruned(plan.right, needs))
        case Anti() | Optional():
            known = variables_bound(plan.input)
            inside = {
                name: properties
                for name, properties in _all_needs(plan.inner).items()
                if name in known
            }
            inner_needs = needs if isinstance(plan, Optional) else {}
            return replace(
                plan,
                input=_pruned(plan.input, _joined(needs, inside)),
                inner=_pruned(plan.inner, inner_needs),
            )
        case Filter() | Rank() | Project() | Aggregate() | Distinct() | Order() | Limit():
            below = _joined(needs, _needs(expressions_of(plan)))
            return replace(plan, input=_pruned(plan.input, below))
        case _:
            assert_never(plan)


def _columns(variable: str, needs: _Needs) -> tuple[str, ...] | None:
    needed = needs.get(variable, frozenset())
    return None if needed is None else tuple(sorted(needed - _SYSTEM))


def _needs(expressions: Iterable[Expression]) -> dict[str, frozenset[str] | None]:
    found: dict[str, frozenset[str] | None] = {}
    for expression in expressions:
        for each in walk(expression):
            if isinstance(each, Entity):
                found[each.variable] = None
            elif isinstance(each, PropertyOf):
                earlier = found.get(each.variable, frozenset())
                found[each.variable] = None if earlier is None else earlier | {each.name}
    return found


def _joined(one: _Needs, other: _Needs) -> dict[str, frozenset[str] | None]:
    together = dict(one)
    for name, properties in other.items():
        earlier = together.get(name, frozenset())
        whole = earlier is None or properties is None
        together[name] = None if whole else (earlier or frozenset()) | (properties or frozenset())
    return together


def _all_needs(plan: Plan) -> dict[str, frozenset[str] | None]:
    """What every expression in a plan and below it reads."""
    found = _needs(expressions_of(plan))
    for below in inputs_of(plan):
        found = _joined(found, _all_needs(below))
    return found


def inputs_of(plan: Plan) -> tuple[Plan, ...]:
    """The plans directly below another."""
    match plan:
        case Scan() | Outer() | Empty():
            return ()
        case Cross():
            return plan.left, plan.right
        case Anti() | Optional():
            return plan.input, plan.inner
        case (
            Expand() | Filter() | Rank() | Project() | Aggregate() | Distinct() | Order() | Limit()
        ):
            return (plan.input,)
        case _:
            assert_never(plan)


def expressions_of(plan: Plan) -> tuple[Expression, ...]:
    """The expressions that a node itself holds."""
    found: list[Expression | None] = []
    match plan:
        case Scan() | Filter():
            found.append(plan.predicate)
        case Expand():
            found += [plan.predicate, plan.edge_predicate]
        case Rank():
            found.append(plan.by)
        case Project() | Aggregate():
            found += [each.expression for each in plan.projections]
        case Order():
            found += [plan.ranking, *(each.expression for each in plan.keys)]
        case Outer() | Empty() | Cross() | Anti() | Optional() | Distinct() | Limit():
            pass
        case _:
            assert_never(plan)
    return tuple(each for each in found if each is not None)
