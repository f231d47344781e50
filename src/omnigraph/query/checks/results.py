"""`return`, `order`, `limit` and `offset`: the columns of a result and which rows it has.

Invariant: the name of a column is its alias, otherwise the text of its expression without `$`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from omnigraph.query import ast
from omnigraph.query.checks.infer import infer
from omnigraph.query.checks.printing import column_text
from omnigraph.query.checks.scope import Place, Scope
from omnigraph.query.diagnostics import Rule
from omnigraph.query.expressions import (
    Aggregate,
    Constant,
    Distance,
    Expression,
    Fusion,
    Parameter,
    Ranking,
    TextScore,
)
from omnigraph.query.typed import Column, OrderKey, TypedProjection
from omnigraph.query.types import (
    BLOB,
    NodeOf,
    NullType,
    PathOf,
    is_integer,
    is_orderable,
    show,
)
from omnigraph.schema.catalog import VectorType

COLUMN_NAME_MAX: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedOrder:
    """The order of rows: a ranking in front of ordinary keys."""

    ranking: Ranking | None
    keys: tuple[OrderKey, ...]


def check_projections(body: ast.ReadBody, scope: Scope) -> tuple[tuple[TypedProjection, ...], bool]:
    """The columns, and whether rows are grouped."""
    written: list[tuple[ast.Projection, Expression]] = []
    for each in body.projections:
        typed = infer(each.expression, scope, Place.RESULT)
        if typed is not None and _can_be_column(each, typed, scope):
            written.append((each, typed))
    grouped = any(isinstance(typed, Aggregate) for _, typed in written)
    keyed = any(not isinstance(typed, Aggregate) for _, typed in written)
    projections: list[TypedProjection] = []
    taken: dict[str, str] = {}
    for each, typed in written:
        _can_be_compared(each, typed, scope, grouped=grouped, distinct=body.distinct)
        name = _column_name(each, taken, scope)
        expression = _without_needless_null(typed, keyed=keyed)
        assert not isinstance(expression.type, PathOf | NullType)
        column = Column(name=name, type=expression.type, nullable=expression.nullable)
        projections.append(TypedProjection(column=column, expression=expression))
    return tuple(projections), grouped


def _can_be_column(each: ast.Projection, typed: Expression, scope: Scope) -> bool:
    if typed.type == BLOB:
        scope.findings.error(
            Rule.BLOB_PLACE,
            each.expression.span,
            "a Blob cannot be a column of a result",
            "return the id of its owner, and read the Blob by that",
        )
        return False
    if isinstance(typed.type, NullType):
        scope.findings.error(
            Rule.VALUE_TYPE, each.expression.span, "an empty list has no type of its own"
        )
        return False
    return True


def _can_be_compared(
    each: ast.Projection, typed: Expression, scope: Scope, *, grouped: bool, distinct: bool
) -> None:
    if isinstance(typed, Distance | TextScore | Fusion) and grouped:
        scope.findings.error(
            Rule.RANK_MIX,
            each.expression.span,
            "groups cannot be ranked",
            "rank rows in one query and aggregate in another",
        )
    elif isinstance(typed.type, VectorType) and (grouped or distinct):
        scope.findings.error(
            Rule.AGGREGATE_MIX,
            each.expression.span,
            "rows cannot be distinct by a Vector",
            "leave the column out, or return the id",
        )


def _column_name(each: ast.Projection, taken: dict[str, str], scope: Scope) -> str:
    name = column_text(each.expression) if each.alias is None else each.alias.text
    span = each.expression.span if each.alias is None else each.alias.span
    if each.alias is None and len(name) > COLUMN_NAME_MAX:
        scope.findings.error(
            Rule.COLUMN_NAME,
            span,
            f"this column would have a name of {len(name)} characters, "
            f"at most {COLUMN_NAME_MAX} are allowed",
            "give it an alias: `as name`",
        )
    if name.casefold() in taken:
        other = taken[name.casefold()]
        same = "is taken" if other == name else f"differs from `{other}` only in case"
        scope.findings.error(
            Rule.DUPLICATE_COLUMN, span, f"the column name `{name[:80]}` {same}", "give it an alias"
        )
    taken[name.casefold()] = name
    return name


def _without_needless_null(typed: Expression, *, keyed: bool) -> Expression:
    """A group has at least one row, so only a null value can make its aggregate null."""
    if isinstance(typed, Aggregate) and typed.argument is not None and typed.nullable:
        return replace(typed, nullable=typed.argument.nullable or not keyed)
    return typed


def check_order(
    body: ast.ReadBody, projections: Sequence[TypedProjection], scope: Scope, *, grouped: bool
) -> CheckedOrder:
    """The keys of the order, the first of which may be a ranking."""
    ranking: Ranking | None = None
    keys: list[OrderKey] = []
    columns_only = grouped or body.distinct
    for position, each in enumerate(body.orderings):
        found = _key(each, projections, scope, columns_only=columns_only)
        if found is None:
            continue
        if isinstance(found.expression, Distance | TextScore | Fusion):
            _check_ranking(each, found.expression, position, body, scope)
            ranking = found.expression if ranking is None else ranking
            continue
        if not is_orderable(found.expression.type):
            scope.findings.error(
                Rule.ORDER_KEY,
                each.expression.span,
                f"{show(found.expression.type)} has no order",
                "order by a property such as `$p.id`"
                if isinstance(found.expression.type, NodeOf)
                else "",
            )
            continue
        keys.append(found)
    for projection, typed in zip(body.projections, projections, strict=False):
        if isinstance(typed.expression, Fusion) and typed.expression != ranking:
            scope.findings.error(
                Rule.RANK_FIRST,
                projection.expression.span,
                "the score of `rrf` exists only when rows are ordered by it",
                "add it as the first key: `order { rrf(...) }`, or order by its alias",
            )
    return CheckedOrder(ranking=ranking, keys=tuple(keys))


def _key(
    each: ast.Ordering,
    projections: Sequence[TypedProjection],
    scope: Scope,
    *,
    columns_only: bool,
) -> OrderKey | None:
    descending = each.direction is ast.Direction.DESCENDING
    if isinstance(each.expression, ast.Word):
        name = each.expression.name
        for projection in projections:
            if projection.column.name == name.text:
                return OrderKey(
                    expression=projection.expression, descending=descending, column=name.text
                )
        known = [projection.column.name for projection in projections]
        scope.findings.error(
            Rule.UNKNOWN_ALIAS,
            name.span,
            f"no column is called `{name.text}`",
            scope.findings.suggestions.closest(name.text, known)
            or "order by a column of `return`, or by a property: `$p.name`",
        )
        return None
    typed = infer(each.expression, scope, Place.ORDER)
    if typed is None:
        return None
    for projection in projections:
        if _same(projection.expression, typed):
            return OrderKey(
                expression=projection.expression,
                descending=descending,
                column=projection.column.name,
            )
    if columns_only or isinstance(typed, Aggregate):
        scope.findings.error(
            Rule.ORDER_KEY,
            each.expression.span,
            "groups and distinct rows are ordered by their columns only",
            "add it to `return`, and order by its alias",
        )
        return None
    return OrderKey(expression=typed, descending=descending)


def _same(projected: Expression, key: Expression) -> bool:
    if isinstance(projected, Aggregate) and isinstance(key, Aggregate):
        return replace(projected, nullable=key.nullable) == key
    return projected == key


def _check_ranking(
    each: ast.Ordering, ranking: Ranking, position: int, body: ast.ReadBody, scope: Scope
) -> None:
    findings = scope.findings
    best_first = (
        ast.Direction.ASCENDING if isinstance(ranking, Distance) else ast.Direction.DESCENDING
    )
    if position > 0:
        findings.error(
            Rule.RANK_FIRST, each.span, "a ranking can only be the first key of the order"
        )
    if each.direction not in (None, best_first):
        findings.error(
            Rule.RANK_DIRECTION,
            each.span,
            "a ranking returns the best rows first",
            f"leave the direction out, or write `{best_first.value}`",
        )
    if body.limit is None and not isinstance(ranking, TextScore):
        findings.error(Rule.RANK_LIMIT, each.span, "this ranking needs a limit", "add `limit 10`")


def check_count(
    expression: ast.Expression | None, word: str, scope: Scope
) -> Constant | Parameter | None:
    """The number after `limit` or `offset`."""
    if expression is None:
        return None
    typed = infer(expression, scope, Place.VALUE)
    if typed is None:
        return None
    number = isinstance(typed, Constant) and isinstance(typed.value, int) and typed.value >= 0
    declared = isinstance(typed, Parameter) and not typed.nullable
    if not (is_integer(typed.type) and (number or declared)):
        scope.findings.error(
            Rule.LIMIT_VALUE,
            expression.span,
            f"`{word}` takes a whole number or a parameter that is one and has no `?`",
        )
        return None
    assert isinstance(typed, Constant | Parameter)
    return typed
