"""Finds the parts of a plan that can have no rows, before anything is read.

Invariant: a plan is called empty only if it has no rows for every graph and every parameter. An
empty plan that is not detected is only slower.
"""

from __future__ import annotations

from typing import assert_never

from omnigraph.query.ast import BinaryOperator
from omnigraph.query.expressions import (
    Comparison,
    Constant,
    Expression,
    PropertyOf,
    TypeName,
    Value,
    conjuncts,
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
from omnigraph.query.rewrites import map_inputs


def drop_empty(plan: Plan) -> Plan:
    """The plan with every impossible part replaced by `Empty`."""
    plan = map_inputs(plan, drop_empty)
    match plan:
        case Scan() | Expand() | Filter() | Cross():
            return _empty(plan) if _is_impossible(plan) else plan
        case Anti():
            nothing = isinstance(plan.input, Empty) or isinstance(plan.inner, Empty)
            return plan.input if nothing else plan
        case Optional():
            return _empty(plan) if isinstance(plan.input, Empty) else plan
        case Rank() | Order() | Distinct() | Limit():
            return plan.input if _has_no_rows(plan.input) else plan
        case Outer() | Empty() | Project() | Aggregate():
            return plan
        case _:
            assert_never(plan)


def can_have_rows(plan: Plan) -> bool:
    """Whether a plan, its empty parts dropped, may give a row."""
    return not _has_no_rows(drop_empty(plan))


def _empty(plan: Plan) -> Empty:
    return Empty(variables=tuple(sorted(variables_bound(plan))))


def _has_no_rows(plan: Plan) -> bool:
    if isinstance(plan, Project):
        return isinstance(plan.input, Empty)
    if isinstance(plan, Aggregate):
        return bool(plan.keys) and isinstance(plan.input, Empty)
    return isinstance(plan, Empty)


def _is_impossible(plan: Scan | Expand | Filter | Cross) -> bool:
    match plan:
        case Scan():
            return not plan.types or _is_contradiction(plan.predicate)
        case Expand():
            chained = plan.minimum > 1 and plan.start_type != plan.end_type
            below = isinstance(plan.input, Empty)
            conditions = (plan.predicate, plan.edge_predicate)
            return below or chained or any(_is_contradiction(each) for each in conditions)
        case Filter():
            return isinstance(plan.input, Empty) or _is_contradiction(plan.predicate)
        case Cross():
            return isinstance(plan.left, Empty) or isinstance(plan.right, Empty)
        case _:
            assert_never(plan)


def _is_contradiction(predicate: Expression | None) -> bool:
    """A condition that is never true: a constant, or one property equal to two values."""
    if predicate is None:
        return False
    equal: dict[Expression, Value] = {}
    for each in conjuncts(predicate):
        if isinstance(each, Constant) and each.value is not True:
            return True
        if not isinstance(each, Comparison) or each.operator is not BinaryOperator.EQUAL:
            continue
        for one, other in ((each.left, each.right), (each.right, each.left)):
            if isinstance(one, PropertyOf | TypeName) and isinstance(other, Constant):
                if one in equal and equal[one] != other.value:
                    return True
                equal[one] = other.value
    return False
