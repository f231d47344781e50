"""Functions of text search and vector search.

Invariant: a search query is a literal or a parameter.
"""

from __future__ import annotations

from typing import Final

from omnigraph.query import ast
from omnigraph.query.checks.functions import Infer, bad_argument, usage_of
from omnigraph.query.checks.literals import fit_vector
from omnigraph.query.checks.scope import Place, Scope
from omnigraph.query.diagnostics import Rule
from omnigraph.query.expressions import (
    Constant,
    Distance,
    Expression,
    Fusion,
    Parameter,
    PropertyOf,
    TextScore,
    TextSearch,
    TextSearchKind,
)
from omnigraph.query.types import I64, STRING, EdgeOf, NodeOf, PathOf, is_integer, show
from omnigraph.schema.catalog import (
    DEFAULT_METRIC,
    EdgeType,
    NodeType,
    VectorMetric,
    VectorType,
)
from omnigraph.schema.indexes import declared_indexes

EDITS_MAX: Final = 2
FUSION_K: Final = 60


def _field(
    call: ast.Call, rule: Rule, wanted: str, scope: Scope, infer: Infer
) -> PropertyOf | None:
    argument = call.arguments[0]
    typed = infer(argument, scope, Place.INSIDE)
    if typed is None:
        return None
    fits = isinstance(typed, PropertyOf) and (
        isinstance(typed.type, VectorType) if rule is Rule.VECTOR_FIELD else typed.type == STRING
    )
    if not fits:
        scope.findings.error(
            rule,
            argument.span,
            f"`{call.function.text}` takes {wanted}, found {show(typed.type)}",
            f"write `{usage_of(call)}`",
        )
        return None
    assert isinstance(typed, PropertyOf)
    return typed


def _constant_argument(
    call: ast.Call, argument: ast.Expression, scope: Scope, infer: Infer
) -> Constant | Parameter | None:
    typed = infer(argument, scope, Place.INSIDE)
    if typed is None or isinstance(typed, Constant | Parameter):
        return typed
    bad_argument(call, argument, "a literal or a parameter here", scope)
    return None


def _text_query(call: ast.Call, scope: Scope, infer: Infer) -> Constant | Parameter | None:
    argument = call.arguments[1]
    query = _constant_argument(call, argument, scope, infer)
    if query is not None and query.type != STRING:
        bad_argument(call, argument, "a String to look for", scope)
        return None
    return query


def infer_text_search(call: ast.Call, scope: Scope, infer: Infer) -> TextSearch | None:
    kind = TextSearchKind(call.function.text)
    field = _field(call, Rule.SEARCH_FIELD, "a String property", scope, infer)
    query = _text_query(call, scope, infer)
    edits: Expression | None = None
    if kind is TextSearchKind.FUZZY:
        edits = _edits(call, scope, infer)
        if edits is None:
            return None
    if field is None or query is None:
        return None
    nullable = field.nullable or query.nullable
    return TextSearch(kind=kind, field=field, query=query, edits=edits, nullable=nullable)


def _edits(call: ast.Call, scope: Scope, infer: Infer) -> Expression | None:
    if len(call.arguments) < 3:
        return Constant(value=EDITS_MAX, type=I64)
    argument = call.arguments[2]
    edits = _constant_argument(call, argument, scope, infer)
    if edits is None:
        return None
    fits = is_integer(edits.type) and not edits.nullable
    if isinstance(edits, Constant) and fits:
        fits = isinstance(edits.value, int) and 0 <= edits.value <= EDITS_MAX
    if not fits:
        bad_argument(call, argument, f"at most {EDITS_MAX} edits, as an integer", scope)
        return None
    return edits


def infer_ranking(call: ast.Call, scope: Scope, infer: Infer) -> Expression | None:
    match call.function.text:
        case "nearest":
            return _nearest(call, scope, infer)
        case "bm25":
            field = _field(call, Rule.SEARCH_FIELD, "a String property", scope, infer)
            query = _text_query(call, scope, infer)
            if field is None or query is None:
                return None
            return TextScore(field=field, query=query)
        case _:
            return _fusion(call, scope, infer)


def _nearest(call: ast.Call, scope: Scope, infer: Infer) -> Distance | None:
    field = _field(call, Rule.VECTOR_FIELD, "a Vector property", scope, infer)
    argument = call.arguments[1]
    query = _constant_argument(call, argument, scope, infer)
    if field is None or query is None:
        return None
    target = field.type
    assert isinstance(target, VectorType)
    metric = _metric(call, field, scope)
    fitted: Expression | None = query
    embed = query.type == STRING
    if embed:
        fitted = query if _is_embedded(argument, field, scope) else None
    elif isinstance(query, Constant):
        fitted = fit_vector(query, target, argument.span, field.name, scope.findings)
    elif query.type != target:
        message = f"`{field.name}` is {show(target)}, found {show(query.type)}"
        scope.findings.error(Rule.VECTOR_FIELD, argument.span, message)
        fitted = None
    if metric is None or fitted is None:
        return None
    return Distance(field=field, query=fitted, metric=metric, embed=embed)


def _holders(field: PropertyOf, scope: Scope) -> list[NodeType | EdgeType]:
    """The types whose property this is."""
    bound = scope.variables.get(field.variable)
    assert bound is not None
    match bound.type:
        case NodeOf():
            return [scope.catalog.nodes[each] for each in bound.type.types]
        case EdgeOf():
            return [scope.catalog.edges[bound.type.type]]
        case PathOf():
            return []


def _metric(call: ast.Call, field: PropertyOf, scope: Scope) -> VectorMetric | None:
    found = {
        next((each.metric for each in declared_indexes(holder) if each.column == field.name), None)
        or DEFAULT_METRIC
        for holder in _holders(field, scope)
    }
    if len(found) > 1:
        scope.findings.error(
            Rule.VECTOR_FIELD,
            call.arguments[0].span,
            f"the types compare `{field.name}` by different metrics: {', '.join(sorted(found))}",
            "bind one of the types",
        )
        return None
    return next(iter(found), DEFAULT_METRIC)


def _is_embedded(argument: ast.Expression, field: PropertyOf, scope: Scope) -> bool:
    """Whether a text can become a vector of this property: by one model for all its types."""
    embeds = [each.properties[field.name].embed for each in _holders(field, scope)]
    models = {None if each is None else each.model for each in embeds}
    if None not in embeds and len(models) == 1:
        return True
    assert isinstance(field.type, VectorType)
    scope.findings.error(
        Rule.VECTOR_FIELD,
        argument.span,
        f"`{field.name}` has no single `@embed` model, so a string cannot be compared with it",
        f"pass a vector: `$query: Vector({field.type.size})`",
    )
    return False


def _fusion(call: ast.Call, scope: Scope, infer: Infer) -> Fusion | None:
    arms = [_arm(call, each, scope, infer) for each in call.arguments[:2]]
    k: Expression | None = Constant(value=FUSION_K, type=I64)
    if len(call.arguments) > 2:
        argument = call.arguments[2]
        k = _constant_argument(call, argument, scope, infer)
        positive = not isinstance(k, Constant) or (isinstance(k.value, int) and k.value > 0)
        if k is not None and not (is_integer(k.type) and not k.nullable and positive):
            bad_argument(call, argument, "an integer above 0 as its third argument", scope)
            return None
    first, second = arms
    if first is None or second is None or k is None:
        return None
    if first.field.variable != second.field.variable:
        scope.findings.error(
            Rule.RANK_ARMS,
            call.span,
            f"both arms rank one variable, found `${first.field.variable}` and "
            f"`${second.field.variable}`",
        )
        return None
    return Fusion(first=first, second=second, k=k)


def _arm(
    call: ast.Call, argument: ast.Expression, scope: Scope, infer: Infer
) -> Distance | TextScore | None:
    if not isinstance(argument, ast.Call) or argument.function.text not in ("nearest", "bm25"):
        scope.findings.error(
            Rule.RANK_ARMS,
            argument.span,
            "`rrf` fuses `nearest` and `bm25` only",
            f"write `{usage_of(call)}`",
        )
        return None
    arm = infer(argument, scope, Place.RESULT)
    assert arm is None or isinstance(arm, Distance | TextScore)
    return arm
