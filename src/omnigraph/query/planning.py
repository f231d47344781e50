"""A typed query to its logical plan.

Invariant: every plan is made by the same steps; each step keeps the meaning of the plan, so that a
test can omit any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from omnigraph.query.checks.scope import ANONYMOUS
from omnigraph.query.expressions import Aggregate as AggregateExpression
from omnigraph.query.fold import fold, fold_block, fold_projection, fold_statement
from omnigraph.query.join_order import (
    ChooseStart,
    arrange,
    fewest_rows,
    first_declared,
    merge_bindings,
    most_selective,
)
from omnigraph.query.plan import (
    Aggregate,
    Distinct,
    Limit,
    Mutation,
    Order,
    Plan,
    Project,
    Rank,
)
from omnigraph.query.prune_empty import drop_empty
from omnigraph.query.rewrites import prune_columns, push_filters
from omnigraph.query.typed import Block, OrderKey, TypedQuery, TypedRead, TypedWrite
from omnigraph.schema.catalog import Catalog


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
    body = _folded(query.body) if steps.folding else query.body
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


def _folded(body: TypedRead) -> TypedRead:
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
