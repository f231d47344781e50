"""Finds the parts of a plan that can have no rows, before anything is read.

Invariant: a plan is called empty only if it has no rows for every graph and every parameter. An
empty plan that is not detected is only slower.
"""

from __future__ import annotations

from typing import assert_never

from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import plan as lp
from omnigraph_lake.query.ast import BinaryOperator
from omnigraph_lake.query.rewrites import map_inputs


def drop_empty(plan: lp.Plan) -> lp.Plan:
    """The plan with every impossible part replaced by `Empty`."""
    plan = map_inputs(plan, drop_empty)
    match plan:
        case lp.Scan() | lp.Expand() | lp.Filter() | lp.Cross():
            return _empty(plan) if _is_impossible(plan) else plan
        case lp.Anti():
            nothing = isinstance(plan.input, lp.Empty) or isinstance(plan.inner, lp.Empty)
            return plan.input if nothing else plan
        case lp.Semi():
            nothing = isinstance(plan.input, lp.Empty) or isinstance(plan.inner, lp.Empty)
            return _empty(plan) if nothing else plan
        case lp.Apply() | lp.Optional():
            return _empty(plan) if isinstance(plan.input, lp.Empty) else plan
        case lp.Rank() | lp.Order() | lp.Distinct() | lp.Limit():
            return plan.input if _has_no_rows(plan.input) else plan
        case lp.Outer() | lp.Empty() | lp.Project() | lp.Aggregate():
            return plan
        case _:
            assert_never(plan)


def can_have_rows(plan: lp.Plan) -> bool:
    """Whether a plan, its empty parts dropped, may give a row."""
    return not _has_no_rows(drop_empty(plan))


def _empty(plan: lp.Plan) -> lp.Empty:
    return lp.Empty(variables=tuple(sorted(lp.variables_bound(plan))))


def _has_no_rows(plan: lp.Plan) -> bool:
    if isinstance(plan, lp.Project):
        return _has_no_rows(plan.input)
    if isinstance(plan, lp.Aggregate):
        if _is_contradiction(plan.having):
            return True
        return bool(plan.keys) and isinstance(plan.input, lp.Empty)
    return isinstance(plan, lp.Empty)


def _is_impossible(plan: lp.Scan | lp.Expand | lp.Filter | lp.Cross) -> bool:
    match plan:
        case lp.Scan():
            return not plan.types or _is_contradiction(plan.predicate)
        case lp.Expand():
            chained = plan.minimum > 1 and not plan.chains
            below = isinstance(plan.input, lp.Empty)
            conditions = (plan.predicate, plan.edge_predicate)
            return below or chained or any(_is_contradiction(condition) for condition in conditions)
        case lp.Filter():
            return isinstance(plan.input, lp.Empty) or _is_contradiction(plan.predicate)
        case lp.Cross():
            return isinstance(plan.left, lp.Empty) or isinstance(plan.right, lp.Empty)
        case _:
            assert_never(plan)


def _is_contradiction(predicate: ex.Expression | None) -> bool:
    """A condition that is never true: a constant, or one property equal to two values."""
    if predicate is None:
        return False
    equal: dict[ex.Expression, ex.Value] = {}
    for conjunct in ex.conjuncts(predicate):
        if isinstance(conjunct, ex.Constant) and conjunct.value is not True:
            return True
        if not isinstance(conjunct, ex.Comparison) or conjunct.operator is not BinaryOperator.EQUAL:
            continue
        for operand, other in ((conjunct.left, conjunct.right), (conjunct.right, conjunct.left)):
            if isinstance(operand, ex.PropertyOf | ex.TypeName) and isinstance(other, ex.Constant):
                if operand in equal and equal[operand] != other.value:
                    return True
                equal[operand] = other.value
    return False
