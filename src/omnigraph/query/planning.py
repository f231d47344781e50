"""A typed query to its logical plan.

Invariant: every plan is made by the same steps; each step keeps the meaning of the plan, so that a
test can omit any of them.

Conditions and values that are known before any row is read.

Invariant: a folded expression has the value of the original for every row and every parameter,
null included. An error at run time, such as an overflow, is left for the run.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

from omnigraph.query.ast import BinaryOperator
from omnigraph.query.checks.scope import ANONYMOUS
from omnigraph.query.expressions import Aggregate as AggregateExpression
from omnigraph.query.expressions import (
    And,
    Arithmetic,
    Comparison,
    Constant,
    Distance,
    Entity,
    Expression,
    Fusion,
    IsNull,
    Membership,
    Negation,
    Not,
    Now,
    Or,
    Parameter,
    PartOfPath,
    PropertyOf,
    StringTest,
    TextScore,
    TextSearch,
    TypeName,
    Value,
)
from omnigraph.query.join_order import (
    ChooseStart,
    arrange,
    fewest_rows,
    first_declared,
    merge_bindings,
    most_selective,
)
from omnigraph.query.plan import Aggregate, Distinct, Limit, Mutation, Order, Plan, Project, Rank
from omnigraph.query.prune_empty import drop_empty
from omnigraph.query.rewrites import prune_columns, push_filters
from omnigraph.query.typed import (
    Block,
    DeleteStatement,
    InsertStatement,
    OrderKey,
    TypedAssignment,
    TypedProjection,
    TypedQuery,
    TypedRead,
    TypedStatement,
    TypedWrite,
    UpdateStatement,
)
from omnigraph.query.types import BOOL, I64, INTEGER_LIMITS
from omnigraph.schema.catalog import Catalog, Scalar

TRUE: Final = Constant(value=True, type=BOOL)
FALSE: Final = Constant(value=False, type=BOOL)
UNKNOWN: Final = Constant(value=None, type=BOOL)

_COMPARE: Final[dict[BinaryOperator, Callable[[Any, Any], bool]]] = {
    BinaryOperator.EQUAL: operator.eq,
    BinaryOperator.NOT_EQUAL: operator.ne,
    BinaryOperator.LESS: operator.lt,
    BinaryOperator.LESS_EQUAL: operator.le,
    BinaryOperator.GREATER: operator.gt,
    BinaryOperator.GREATER_EQUAL: operator.ge,
}
_STRING_TEST: Final[dict[BinaryOperator, Callable[[str, str], bool]]] = {
    BinaryOperator.CONTAINS: operator.contains,
    BinaryOperator.STARTS_WITH: str.startswith,
    BinaryOperator.ENDS_WITH: str.endswith,
}


def fold(each: Expression) -> Expression:  # noqa: C901, PLR0911, PLR0912 - one case per kind
    """The expression with its constant parts computed."""
    match each:
        case Constant() | Parameter() | Now() | PropertyOf() | TypeName() | Entity() | PartOfPath():
            return each
        case Arithmetic():
            return _arithmetic(replace(each, left=fold(each.left), right=fold(each.right)))
        case Negation():
            return _negation(replace(each, operand=fold(each.operand)))
        case Comparison():
            return _comparison(replace(each, left=fold(each.left), right=fold(each.right)))
        case StringTest():
            return _string_test(replace(each, text=fold(each.text), part=fold(each.part)))
        case Membership():
            item, collection = fold(each.item), fold(each.collection)
            return _membership(replace(each, item=item, collection=collection))
        case IsNull():
            return _null_test(replace(each, operand=fold(each.operand)))
        case Not():
            return _not(fold(each.operand))
        case And():
            return _junction(And, [fold(inner) for inner in each.operands], ends=FALSE)
        case Or():
            return _junction(Or, [fold(inner) for inner in each.operands], ends=TRUE)
        case TextSearch() | Distance() | TextScore() | Fusion():
            return each
        case AggregateExpression():
            return each if each.argument is None else replace(each, argument=fold(each.argument))
        case _:
            assert_never(each)


def _is_null(each: Expression) -> bool:
    return isinstance(each, Constant) and each.value is None


def _arithmetic(each: Arithmetic) -> Expression:
    left, right = each.left, each.right
    if _is_null(left) or _is_null(right):
        return Constant(value=None, type=each.type)
    if not isinstance(left, Constant) or not isinstance(right, Constant):
        return each
    value = _computed(each.operator, left.value, right.value)
    if value is None and right.value == 0:
        return Constant(value=None, type=each.type)
    if isinstance(value, int):
        low, high = INTEGER_LIMITS[Scalar.I64]
        return Constant(value=value, type=I64) if low <= value <= high else each
    if value is None or not math.isfinite(value):
        return each
    return Constant(value=value, type=each.type)


def _computed(word: BinaryOperator, left: Value, right: Value) -> int | float | None:
    assert isinstance(left, int | float)
    assert isinstance(right, int | float)
    result: int | float | None = None
    match word:
        case BinaryOperator.ADD:
            result = left + right
        case BinaryOperator.SUBTRACT:
            result = left - right
        case BinaryOperator.MULTIPLY:
            result = left * right
        case BinaryOperator.DIVIDE if right != 0:
            result = float(left) / float(right)
        case BinaryOperator.REMAINDER if right != 0:
            assert isinstance(left, int)
            assert isinstance(right, int)
            # The sign follows the dividend, as in every engine that runs a plan.
            remainder = abs(left) % abs(right)
            result = -remainder if left < 0 else remainder
        case _:
            pass
    return result


def _negation(each: Negation) -> Expression:
    operand = each.operand
    if not isinstance(operand, Constant):
        return each
    if operand.value is None:
        return Constant(value=None, type=each.type)
    assert isinstance(operand.value, int | float)
    value = -operand.value
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return each
    return Constant(value=value, type=each.type)


def _comparison(each: Comparison) -> Expression:
    left, right = each.left, each.right
    if _is_null(left) or _is_null(right):
        return UNKNOWN
    if not isinstance(left, Constant) or not isinstance(right, Constant):
        return each
    return _truth(_compared(each.operator, left.value, right.value))


def _compared(word: BinaryOperator, one: Value, other: Value) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        # An integer is compared with a float as a float.
        assert isinstance(one, int | float)
        assert isinstance(other, int | float)
        one, other = float(one), float(other)
    return _COMPARE[word](one, other)


def _string_test(each: StringTest) -> Expression:
    text, part = each.text, each.part
    if _is_null(text) or _is_null(part):
        return UNKNOWN
    if not isinstance(text, Constant) or not isinstance(part, Constant):
        return each
    assert isinstance(text.value, str)
    assert isinstance(part.value, str)
    return _truth(_STRING_TEST[each.operator](text.value, part.value))


def _membership(each: Membership) -> Expression:
    item, collection = each.item, each.collection
    if _is_null(item) or _is_null(collection):
        return UNKNOWN
    if not isinstance(collection, Constant) or not isinstance(collection.value, tuple):
        return each
    if not collection.value and not item.nullable:
        return FALSE
    if not isinstance(item, Constant):
        return each
    return _truth(any(_compared(BinaryOperator.EQUAL, item.value, one) for one in collection.value))


def _truth(value: bool) -> Constant:  # noqa: FBT001 - it is the value itself
    return TRUE if value else FALSE


def _null_test(each: IsNull) -> Expression:
    if _is_null(each.operand):
        return _truth(not each.negated)
    return each if each.operand.nullable else _truth(each.negated)


def _not(operand: Expression) -> Expression:
    match operand:
        case Constant():
            return UNKNOWN if operand.value is None else _truth(not operand.value)
        case Not():
            return operand.operand
        case IsNull():
            return replace(operand, negated=not operand.negated)
        case _:
            return Not(operand=operand, nullable=operand.nullable)


def _junction(
    kind: type[And] | type[Or], operands: list[Expression], *, ends: Constant
) -> Expression:
    """`ends` decides the whole; its opposite adds nothing; nested ones of a kind are flattened."""
    flat: dict[Expression, None] = {}
    for each in operands:
        flat.update(dict.fromkeys(each.operands if isinstance(each, kind) else (each,)))
    if ends in flat:
        return ends
    neutral = _truth(not ends.value)
    left = tuple(each for each in flat if each != neutral)
    if not left:
        return neutral
    if len(left) == 1:
        return left[0]
    return kind(operands=left, nullable=any(each.nullable for each in left))


def fold_block(block: Block) -> Block:
    """Every condition of a pattern folded; those that are always true are removed."""
    return replace(
        block,
        bindings=tuple(
            replace(each, conditions=_folded(each.conditions)) for each in block.bindings
        ),
        filters=_folded(block.filters),
        optionals=tuple(fold_block(each) for each in block.optionals),
        negations=tuple(fold_block(each) for each in block.negations),
    )


def _folded(conditions: tuple[Expression, ...]) -> tuple[Expression, ...]:
    folded = map(fold, conditions)
    return tuple(each for each in folded if each != TRUE)


def fold_projection(each: TypedProjection) -> TypedProjection:
    return replace(each, expression=fold(each.expression))


def fold_statement(statement: TypedStatement) -> TypedStatement:
    match statement:
        case InsertStatement():
            return replace(statement, assignments=_assignments(statement.assignments))
        case UpdateStatement():
            return replace(
                statement,
                assignments=_assignments(statement.assignments),
                condition=fold(statement.condition),
            )
        case DeleteStatement():
            return replace(statement, condition=fold(statement.condition))
        case _:
            assert_never(statement)


def _assignments(written: tuple[TypedAssignment, ...]) -> tuple[TypedAssignment, ...]:
    return tuple(replace(each, value=fold(each.value)) for each in written)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Which rewrites are made; all of them unless a test says otherwise."""

    merging: bool = True
    folding: bool = True
    selective_start: bool = True
    pushing: bool = True
    dropping_empty: bool = True
    pruning: bool = True


ALL_STEPS = Steps()
NO_STEPS = Steps(
    merging=False,
    folding=False,
    selective_start=False,
    pushing=False,
    dropping_empty=False,
    pruning=False,
)


def plan_query(
    query: TypedQuery,
    catalog: Catalog,
    *,
    steps: Steps = ALL_STEPS,
    sizes: Mapping[str, int] | None = None,
) -> Plan | Mutation:
    """The logical plan of a query; `sizes` has the number of nodes of each type, if known."""
    if isinstance(query.body, TypedWrite):
        statements = query.body.statements
        return Mutation(
            statements=tuple(map(fold_statement, statements)) if steps.folding else statements
        )
    body = _fold_body(query.body) if steps.folding else query.body
    block = merge_bindings(body.block) if steps.merging else body.block
    start: ChooseStart = first_declared
    if steps.selective_start:
        start = most_selective if sizes is None else fewest_rows(sizes)
    plan = _result(body, arrange(block, catalog, start))
    if steps.pushing:
        plan = push_filters(plan)
    if steps.dropping_empty:
        plan = drop_empty(plan)
    return prune_columns(plan) if steps.pruning else plan


def _fold_body(body: TypedRead) -> TypedRead:
    return replace(
        body,
        block=fold_block(body.block),
        projections=tuple(map(fold_projection, body.projections)),
        order=tuple(replace(each, expression=fold(each.expression)) for each in body.order),
    )


def _result(body: TypedRead, pattern: Plan) -> Plan:
    plan = pattern
    ordered = body.ranking is not None or bool(body.order)
    if body.ranking is not None:
        plan = Rank(input=plan, by=body.ranking, limit=body.limit, offset=body.offset)
    columns = tuple(each.column.name for each in body.projections)
    if body.grouped:
        keys = tuple(
            each.column.name
            for each in body.projections
            if not isinstance(each.expression, AggregateExpression)
        )
        plan = Aggregate(input=plan, projections=body.projections, keys=keys)
        plan = _ordered(plan, body, ties=keys) if ordered else plan
    elif body.distinct:
        plan = Distinct(input=Project(input=plan, projections=body.projections))
        plan = _ordered(plan, body, ties=columns) if ordered else plan
    else:
        ties = tie_variables(body.block)
        plan = _ordered(plan, body, ties=ties) if ordered else plan
        plan = Project(input=plan, projections=body.projections)
    if body.limit is None and body.offset is None:
        return plan
    return Limit(input=plan, limit=body.limit, offset=body.offset)


def _ordered(plan: Plan, body: TypedRead, *, ties: tuple[str, ...]) -> Order:
    named = {each.column for each in body.order}
    keys: tuple[OrderKey, ...] = body.order
    left = tuple(each for each in ties if each not in named)
    return Order(input=plan, ranking=body.ranking, keys=keys, ties=left)


def tie_variables(block: Block) -> tuple[str, ...]:
    """The nodes and edges whose ids break ties, sorted by name; `$_` and paths do not count."""
    names: set[str] = set()
    for binding in block.bindings:
        names.add(binding.variable)
    for traversal in block.traversals:
        names |= {traversal.left, traversal.right}
        if traversal.edge_variable is not None:
            names.add(traversal.edge_variable)
    for inner in block.optionals:
        names |= set(tie_variables(inner))
    return tuple(sorted(each for each in names if not each.startswith(f"{ANONYMOUS}.")))
