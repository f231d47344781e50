"""Plans a typed query: folds what is known before any row is read, and makes the logical plan.

Invariants:

- Every plan is made by the same steps. Each step keeps the meaning of the plan, so that a test can
  omit any of them.
- A folded expression has the value of the original for every row and every parameter, null
  included. An error at run time, such as an overflow, is left for the run.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final, assert_never

from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import typed as tq
from omnigraph_lake.query.ast import BinaryOperator
from omnigraph_lake.query.checks.scope import ANONYMOUS
from omnigraph_lake.query.join_order import (
    ChooseStart,
    count_matches,
    fewest_rows,
    first_declared,
    merge_bindings,
    merge_in_sub_patterns,
    most_selective,
    order_joins,
)
from omnigraph_lake.query.plan import (
    Aggregate,
    Distinct,
    Limit,
    Mutation,
    Order,
    Plan,
    Project,
    Rank,
)
from omnigraph_lake.query.prune_empty import drop_empty
from omnigraph_lake.query.rewrites import narrow_scans, prune_columns, push_filters
from omnigraph_lake.query.types import BOOL, I64, INTEGER_LIMITS, NullType, PathOf
from omnigraph_lake.schema.catalog import Catalog, DecimalType, Scalar

TRUE: Final = ex.Constant(value=True, type=BOOL)
FALSE: Final = ex.Constant(value=False, type=BOOL)
UNKNOWN: Final = ex.Constant(value=None, type=BOOL)

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


def fold(expression: ex.Expression) -> ex.Expression:  # noqa: C901, PLR0911, PLR0912 - one case per kind
    """The expression with its constant parts computed."""
    match expression:
        case (
            ex.Constant()
            | ex.Parameter()
            | ex.Now()
            | ex.PropertyOf()
            | ex.TypeName()
            | ex.Entity()
            | ex.PartOfPath()
            | ex.MatchesOf()
        ):
            return expression
        case ex.Arithmetic():
            return _arithmetic(
                replace(expression, left=fold(expression.left), right=fold(expression.right))
            )
        case ex.Negation():
            return _negation(replace(expression, operand=fold(expression.operand)))
        case ex.Comparison():
            return _comparison(
                replace(expression, left=fold(expression.left), right=fold(expression.right))
            )
        case ex.StringTest():
            return _string_test(
                replace(expression, text=fold(expression.text), part=fold(expression.part))
            )
        case ex.Membership():
            item, collection = fold(expression.item), fold(expression.collection)
            return _membership(replace(expression, item=item, collection=collection))
        case ex.IsNull():
            return _null_test(replace(expression, operand=fold(expression.operand)))
        case ex.Not():
            return _not(fold(expression.operand))
        case ex.And():
            return _junction(ex.And, [fold(inner) for inner in expression.operands], ends=FALSE)
        case ex.Or():
            return _junction(ex.Or, [fold(inner) for inner in expression.operands], ends=TRUE)
        case ex.FunctionCall():
            return replace(expression, arguments=tuple(map(fold, expression.arguments)))
        case ex.Case():
            return _case(expression)
        case ex.Coalesce():
            return _coalesce(expression)
        case ex.Cast():
            return replace(expression, operand=fold(expression.operand))
        case ex.TextSearch() | ex.Distance() | ex.TextScore() | ex.Fusion():
            return expression
        case ex.Aggregate():
            return (
                expression
                if expression.argument is None
                else replace(expression, argument=fold(expression.argument))
            )
        case _:
            assert_never(expression)


def _case(case: ex.Case) -> ex.Expression:
    """Without the branches that are never chosen, and those behind one that always is."""
    branches: list[ex.CaseBranch] = []
    otherwise = fold(case.otherwise)
    for branch in case.branches:
        condition = fold(branch.condition)
        if condition == TRUE:
            otherwise = fold(branch.value)
            break
        if not isinstance(condition, ex.Constant):
            branches.append(ex.CaseBranch(condition=condition, value=fold(branch.value)))
    if not branches:
        return otherwise
    return replace(case, branches=tuple(branches), otherwise=otherwise)


def _coalesce(coalesce: ex.Coalesce) -> ex.Expression:
    """Without nulls, and without what follows an operand that cannot be null."""
    operands: list[ex.Expression] = []
    for operand in map(fold, coalesce.operands):
        if not _is_null(operand):
            operands.append(operand)
            if not operand.nullable:
                break
    if not operands:
        return ex.Constant(value=None, type=coalesce.type)
    return operands[0] if len(operands) == 1 else replace(coalesce, operands=tuple(operands))


def _is_null(expression: ex.Expression) -> bool:
    return isinstance(expression, ex.Constant) and expression.value is None


def _arithmetic(arithmetic: ex.Arithmetic) -> ex.Expression:
    left, right = arithmetic.left, arithmetic.right
    if _is_null(left) or _is_null(right):
        return ex.Constant(value=None, type=arithmetic.type)
    # Decimals are left to the engine, see `engine/expressions/known_parts.py`.
    is_decimal = isinstance(arithmetic.type, DecimalType)
    if is_decimal or not isinstance(left, ex.Constant) or not isinstance(right, ex.Constant):
        return arithmetic
    value = _compute(arithmetic.operator, left.value, right.value)
    if value is None and right.value == 0:
        return ex.Constant(value=None, type=arithmetic.type)
    if isinstance(value, int):
        low, high = INTEGER_LIMITS[Scalar.I64]
        return ex.Constant(value=value, type=I64) if low <= value <= high else arithmetic
    if value is None or not math.isfinite(value):
        return arithmetic
    return ex.Constant(value=value, type=arithmetic.type)


def _compute(word: BinaryOperator, left: ex.Value, right: ex.Value) -> int | float | None:
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


def _negation(negation: ex.Negation) -> ex.Expression:
    operand = negation.operand
    if not isinstance(operand, ex.Constant):
        return negation
    if operand.value is None:
        return ex.Constant(value=None, type=negation.type)
    if isinstance(operand.value, Decimal):
        negative = operand.value.copy_negate()
        return ex.Constant(value=negative or operand.value, type=negation.type)
    assert isinstance(operand.value, int | float)
    value = -operand.value
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return negation
    return ex.Constant(value=value, type=negation.type)


def _comparison(comparison: ex.Comparison) -> ex.Expression:
    left, right = comparison.left, comparison.right
    if _is_null(left) or _is_null(right):
        return UNKNOWN
    if not isinstance(left, ex.Constant) or not isinstance(right, ex.Constant):
        return comparison
    return _truth(_compare(comparison.operator, left.value, right.value))


def _compare(word: BinaryOperator, left: ex.Value, right: ex.Value) -> bool:
    if isinstance(left, float) or isinstance(right, float):
        # An integer is compared with a float as a float.
        assert isinstance(left, int | float)
        assert isinstance(right, int | float)
        left, right = float(left), float(right)
    return _COMPARE[word](left, right)


def _string_test(string_test: ex.StringTest) -> ex.Expression:
    text, part = string_test.text, string_test.part
    if _is_null(text) or _is_null(part):
        return UNKNOWN
    if not isinstance(text, ex.Constant) or not isinstance(part, ex.Constant):
        return string_test
    assert isinstance(text.value, str)
    assert isinstance(part.value, str)
    return _truth(_STRING_TEST[string_test.operator](text.value, part.value))


def _membership(membership: ex.Membership) -> ex.Expression:
    item, collection = membership.item, membership.collection
    if _is_null(item) or _is_null(collection):
        return UNKNOWN
    if not isinstance(collection, ex.Constant) or not isinstance(collection.value, tuple):
        return membership
    if not collection.value and not item.nullable:
        return FALSE
    if not isinstance(item, ex.Constant):
        return membership
    return _truth(
        any(_compare(BinaryOperator.EQUAL, item.value, value) for value in collection.value)
    )


def _truth(value: bool) -> ex.Constant:  # noqa: FBT001 - it is the value itself
    return TRUE if value else FALSE


def _null_test(is_null: ex.IsNull) -> ex.Expression:
    if _is_null(is_null.operand):
        return _truth(not is_null.negated)
    return is_null if is_null.operand.nullable else _truth(is_null.negated)


def _not(operand: ex.Expression) -> ex.Expression:
    match operand:
        case ex.Constant():
            return UNKNOWN if operand.value is None else _truth(not operand.value)
        case ex.Not():
            return operand.operand
        case ex.IsNull():
            return replace(operand, negated=not operand.negated)
        case _:
            return ex.Not(operand=operand, nullable=operand.nullable)


def _junction(
    kind: type[ex.And] | type[ex.Or], operands: list[ex.Expression], *, ends: ex.Constant
) -> ex.Expression:
    """`ends` decides the whole; its opposite adds nothing; nested ones of a kind are flattened."""
    flat: dict[ex.Expression, None] = {}
    for operand in operands:
        flat.update(dict.fromkeys(operand.operands if isinstance(operand, kind) else (operand,)))
    if ends in flat:
        return ends
    neutral = _truth(not ends.value)
    kept_operands = tuple(operand for operand in flat if operand != neutral)
    if not kept_operands:
        return neutral
    if len(kept_operands) == 1:
        return kept_operands[0]
    return kind(operands=kept_operands, nullable=any(operand.nullable for operand in kept_operands))


def fold_block(block: tq.Block) -> tq.Block:
    """Every condition of a pattern folded; those that are always true are removed."""
    return replace(
        block,
        bindings=tuple(
            replace(binding, conditions=_fold(binding.conditions)) for binding in block.bindings
        ),
        filters=_fold(block.filters),
        optionals=tuple(fold_block(optional) for optional in block.optionals),
        negations=tuple(fold_block(negation) for negation in block.negations),
        sub_patterns=_fold_sub_patterns(block.sub_patterns),
    )


def _fold_sub_patterns(
    sub_patterns: tuple[tq.TypedSubPattern, ...],
) -> tuple[tq.TypedSubPattern, ...]:
    return tuple(
        replace(sub_pattern, block=fold_block(sub_pattern.block)) for sub_pattern in sub_patterns
    )


def _fold(conditions: tuple[ex.Expression, ...]) -> tuple[ex.Expression, ...]:
    folded_conditions = map(fold, conditions)
    return tuple(condition for condition in folded_conditions if condition != TRUE)


def fold_projection(typed_projection: tq.TypedProjection) -> tq.TypedProjection:
    return replace(typed_projection, expression=fold(typed_projection.expression))


def fold_statement(statement: tq.TypedStatement) -> tq.TypedStatement:
    match statement:
        case tq.InsertStatement():
            return replace(statement, assignments=_assignments(statement.assignments))
        case tq.UpdateStatement():
            return replace(
                statement,
                assignments=_assignments(statement.assignments),
                condition=fold(statement.condition),
            )
        case tq.DeleteStatement():
            return replace(statement, condition=fold(statement.condition))
        case tq.MatchedStatement():
            return replace(statement, assignments=_assignments(statement.assignments))
        case _:
            assert_never(statement)


def _assignments(assignments: tuple[tq.TypedAssignment, ...]) -> tuple[tq.TypedAssignment, ...]:
    return tuple(replace(assignment, value=fold(assignment.value)) for assignment in assignments)


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
    query: tq.TypedQuery,
    catalog: Catalog,
    *,
    steps: Steps = ALL_STEPS,
    sizes: Mapping[str, int] | None = None,
) -> Plan | Mutation:
    """The logical plan of a query; `sizes` has the number of nodes of each type, if known."""
    if isinstance(query.body, tq.TypedWrite):
        statements = query.body.statements
        return Mutation(
            statements=tuple(map(fold_statement, statements)) if steps.folding else statements,
            reads=tuple(
                _plan_read(statement.read, catalog, steps=steps, sizes=sizes)
                if isinstance(statement, tq.MatchedStatement)
                else None
                for statement in statements
            ),
        )
    return _plan_read(query.body, catalog, steps=steps, sizes=sizes)


def _plan_read(
    read: tq.TypedRead, catalog: Catalog, *, steps: Steps, sizes: Mapping[str, int] | None
) -> Plan:
    body = _fold_body(read) if steps.folding else read
    if steps.merging:
        body = replace(
            body,
            block=merge_bindings(body.block),
            sub_patterns=merge_in_sub_patterns(body.sub_patterns),
        )
    start: ChooseStart = first_declared
    if steps.selective_start:
        start = most_selective if sizes is None else fewest_rows(sizes)
    pattern = order_joins(body.block, catalog, start)
    for sub_pattern in body.sub_patterns:
        pattern = count_matches(pattern, sub_pattern, catalog, start)
    plan = _result(body, pattern)
    if steps.pushing:
        plan = narrow_scans(push_filters(plan))
    if steps.dropping_empty:
        plan = drop_empty(plan)
    return prune_columns(plan) if steps.pruning else plan


def _fold_body(body: tq.TypedRead) -> tq.TypedRead:
    return replace(
        body,
        block=fold_block(body.block),
        projections=tuple(map(fold_projection, body.projections)),
        order=tuple(replace(key, expression=fold(key.expression)) for key in body.order),
        having=None if body.having is None else next(iter(_fold((body.having,))), None),
        sub_patterns=_fold_sub_patterns(body.sub_patterns),
    )


def _result(body: tq.TypedRead, pattern: Plan) -> Plan:
    plan = pattern
    ordered = body.ranking is not None or bool(body.order)
    if body.ranking is not None:
        plan = Rank(input=plan, by=body.ranking, limit=body.limit, offset=body.offset)
    columns = tuple(projection.column.name for projection in body.projections)
    if body.grouped:
        keys = tuple(
            projection.column.name
            for projection in body.projections
            if not ex.has_aggregate(projection.expression)
        )
        plan = _plan_groups(plan, body.projections, body.having)
        plan = _order(plan, body, ties=keys) if ordered else plan
    elif body.distinct:
        plan = Distinct(input=Project(input=plan, projections=body.projections))
        plan = _order(plan, body, ties=columns) if ordered else plan
    else:
        ties = tie_variables(body.block)
        plan = _order(plan, body, ties=ties) if ordered else plan
        plan = Project(input=plan, projections=body.projections)
    if body.limit is None and body.offset is None:
        return plan
    return Limit(input=plan, limit=body.limit, offset=body.offset)


def _is_computed(expression: ex.Expression) -> bool:
    """Whether a column of groups is computed from aggregates, and is not one itself."""
    return not isinstance(expression, ex.Aggregate) and ex.has_aggregate(expression)


def _plan_groups(
    plan: Plan, projections: tuple[tq.TypedProjection, ...], having: ex.Expression | None
) -> Plan:
    """One row per group of the rows of a plan, with these columns."""
    plain = [one for one in projections if not _is_computed(one.expression)]
    groups = _Groups([*plain])
    computed = tuple(replace(one, expression=groups.read(one.expression)) for one in projections)
    by_name = {one.column.name: one.expression for one in computed}
    aggregate = Aggregate(
        input=plan,
        projections=tuple(groups.columns),
        keys=tuple(
            one.column.name for one in groups.columns if not ex.has_aggregate(one.expression)
        ),
        having=None if having is None else _with_columns(having, by_name),
    )
    is_plain = len(plain) == len(projections)
    return aggregate if is_plain else Project(input=aggregate, projections=computed)


def _as_column(key: tq.OrderKey) -> tq.OrderKey:
    """A key of the order of groups, which reads the column that has its value."""
    if key.column is None or not _is_computed(key.expression):
        return key
    kind = key.expression.type
    assert not isinstance(kind, NullType | PathOf)
    column = tq.Column(name=key.column, type=kind, nullable=key.expression.nullable)
    return replace(key, expression=_read(column))


def _read(column: tq.Column) -> ex.PropertyOf:
    return ex.PropertyOf(
        variable=ex.RESULT, name=column.name, type=column.type, nullable=column.nullable
    )


def _with_columns(condition: ex.Expression, by_name: dict[str, ex.Expression]) -> ex.Expression:
    """A condition on columns of the result, on those of the groups."""
    if isinstance(condition, ex.PropertyOf):
        return by_name[condition.name]
    return ex.map_operands(condition, lambda inner: _with_columns(inner, by_name))


@dataclass(slots=True)
class _Groups:
    """The columns of groups; more come with every aggregate that is part of an expression."""

    columns: list[tq.TypedProjection] = field(default_factory=list)

    def read(self, expression: ex.Expression) -> ex.Expression:
        """An expression that reads columns of the groups instead of rows."""
        if not ex.reads_rows(expression):
            return expression
        for projection in self.columns:
            if ex.is_same(projection.expression, expression):
                return _read(projection.column)
        if ex.operands(expression) and not isinstance(expression, ex.Aggregate):
            return ex.map_operands(expression, self.read)
        kind = expression.type
        assert not isinstance(kind, NullType | PathOf)
        # No column of a result is called so.
        name = f"#{len(self.columns)}"
        column = tq.Column(name=name, type=kind, nullable=expression.nullable)
        self.columns.append(tq.TypedProjection(column=column, expression=expression))
        return _read(column)


def _order(plan: Plan, body: tq.TypedRead, *, ties: tuple[str, ...]) -> Plan:
    """The rows in order; a key with one value for all rows does not change it."""
    ordered_columns = {key.column for key in body.order}
    keys = tuple(
        _as_column(key)
        for key in body.order
        if not isinstance(key.expression, ex.Constant | ex.Parameter | ex.Now)
    )
    remaining_ties = tuple(tie for tie in ties if tie not in ordered_columns)
    if body.ranking is None and not keys and not remaining_ties:
        return plan
    return Order(input=plan, ranking=body.ranking, keys=keys, ties=remaining_ties)


def tie_variables(block: tq.Block) -> tuple[str, ...]:
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
    return tuple(sorted(name for name in names if not name.startswith(f"{ANONYMOUS}.")))
