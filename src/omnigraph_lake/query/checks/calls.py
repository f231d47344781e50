"""Checks calls of functions: values, conditions, searches, rankings and aggregates.

`FUNCTIONS` defines the functions of the language: their names, their signatures, and where each is
allowed.

Invariants:

- Every function is in `FUNCTIONS`, and a call is checked against its row first.
- Inference returns a typed expression, or None after a finding.
- The query of a text search or a vector search is a literal or a parameter.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from omnigraph_lake.language.diagnostics import Span
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.query import ast
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import types as qt
from omnigraph_lake.query.checks.choices import CASTS, CHOICES
from omnigraph_lake.query.checks.literals import (
    date_constant,
    datetime_constant,
    duration_constant,
    fit_vector,
)
from omnigraph_lake.query.checks.scalar_calls import Infer, infer_function
from omnigraph_lake.query.checks.scope import Bound, ExpressionContext, Findings, Scope
from omnigraph_lake.query.decimals import SUMMED_DIGITS_MAX
from omnigraph_lake.query.diagnostics import Rule
from omnigraph_lake.query.functions import ARGUMENTS_MAX, DECLARATIONS, NODE, ScalarFunction
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.indexes import declared_indexes


class Family(enum.Enum):
    """Where a function may be called."""

    VALUE = "value"
    CONDITION = "condition"
    RANKING = "ranking"
    AGGREGATE = "aggregate"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionShape:
    """How a function is called."""

    family: Family
    fewest: int
    most: int
    usage: str


ORDERED: Final = (ex.AggregateFunction.FIRST, ex.AggregateFunction.LAST)
"""Aggregates of rows in an order, which is written behind `by`."""

FUNCTIONS: Final[Mapping[str, FunctionShape]] = {
    "now": FunctionShape(family=Family.VALUE, fewest=0, most=0, usage="now()"),
    "date": FunctionShape(family=Family.VALUE, fewest=1, most=1, usage='date("2024-05-31")'),
    "datetime": FunctionShape(
        family=Family.VALUE, fewest=1, most=1, usage='datetime("2024-05-31T12:30:00Z")'
    ),
    "duration": FunctionShape(family=Family.VALUE, fewest=1, most=1, usage='duration("P1DT2H")'),
    "type": FunctionShape(family=Family.VALUE, fewest=1, most=1, usage="type($p)"),
    **{
        part.value: FunctionShape(
            family=Family.VALUE, fewest=1, most=1, usage=f"{part.value}($path)"
        )
        for part in ex.PathPart
    },
    **{
        function.value: FunctionShape(
            family=Family.VALUE,
            fewest=declaration.fewest,
            most=declaration.most,
            usage=declaration.usage,
        )
        for function, declaration in DECLARATIONS.items()
    },
    "if": FunctionShape(family=Family.VALUE, fewest=3, most=3, usage=CHOICES["if"]),
    "coalesce": FunctionShape(
        family=Family.VALUE, fewest=2, most=ARGUMENTS_MAX, usage=CHOICES["coalesce"]
    ),
    **{
        name: FunctionShape(family=Family.VALUE, fewest=1, most=1, usage=usage)
        for name, usage in CASTS.items()
    },
    NODE: FunctionShape(family=Family.VALUE, fewest=2, most=2, usage='node(Company, "acme")'),
    "search": FunctionShape(
        family=Family.CONDITION, fewest=2, most=2, usage='search($p.title, "words")'
    ),
    "match_text": FunctionShape(
        family=Family.CONDITION, fewest=2, most=2, usage='match_text($p.title, "a phrase")'
    ),
    "fuzzy": FunctionShape(
        family=Family.CONDITION, fewest=2, most=3, usage='fuzzy($p.title, "wrods", 1)'
    ),
    "nearest": FunctionShape(
        family=Family.RANKING, fewest=2, most=3, usage="nearest($p.embedding, $query)"
    ),
    "bm25": FunctionShape(family=Family.RANKING, fewest=2, most=2, usage='bm25($p.title, "words")'),
    "rrf": FunctionShape(
        family=Family.RANKING, fewest=2, most=3, usage="rrf(nearest(...), bm25(...), 60)"
    ),
    **{
        function.value: FunctionShape(
            family=Family.AGGREGATE, fewest=1, most=1, usage=f"{function.value}($p.age)"
        )
        for function in ex.AggregateFunction
    },
    ex.AggregateFunction.PERCENTILE.value: FunctionShape(
        family=Family.AGGREGATE, fewest=2, most=2, usage="percentile($p.age, 0.5)"
    ),
    **{
        function.value: FunctionShape(
            family=Family.AGGREGATE, fewest=1, most=1, usage=f"{function.value}($p.name by $p.age)"
        )
        for function in ORDERED
    },
}


def usage_of(call: ast.Call) -> str:
    return FUNCTIONS[call.function.text].usage


def bad_argument(call: ast.Call, argument: ast.Expression, expected: str, scope: Scope) -> None:
    scope.findings.error(
        Rule.FUNCTION_ARGUMENTS,
        argument.span,
        f"`{call.function.text}` takes {expected}",
        f"write `{usage_of(call)}`",
    )


EDITS_MAX: Final = 2
FUSION_K: Final = 60


def _field(
    call: ast.Call, rule: Rule, wanted: str, scope: Scope, infer: Infer
) -> ex.PropertyOf | None:
    argument = call.arguments[0]
    typed = infer(argument, scope, ExpressionContext.INSIDE)
    if typed is None:
        return None
    fits = isinstance(typed, ex.PropertyOf) and (
        isinstance(typed.type, ct.VectorType)
        if rule is Rule.VECTOR_FIELD
        else typed.type == qt.STRING
    )
    if not fits:
        scope.findings.error(
            rule,
            argument.span,
            f"`{call.function.text}` takes {wanted}, found {qt.show(typed.type)}",
            f"write `{usage_of(call)}`",
        )
        return None
    assert isinstance(typed, ex.PropertyOf)
    return typed


def _constant_argument(
    call: ast.Call, argument: ast.Expression, scope: Scope, infer: Infer
) -> ex.Constant | ex.Parameter | None:
    typed = infer(argument, scope, ExpressionContext.INSIDE)
    if typed is None or isinstance(typed, ex.Constant | ex.Parameter):
        return typed
    bad_argument(call, argument, "a literal or a parameter here", scope)
    return None


def _text_query(call: ast.Call, scope: Scope, infer: Infer) -> ex.Constant | ex.Parameter | None:
    argument = call.arguments[1]
    query = _constant_argument(call, argument, scope, infer)
    if query is not None and query.type != qt.STRING:
        bad_argument(call, argument, "a String to look for", scope)
        return None
    return query


def infer_text_search(call: ast.Call, scope: Scope, infer: Infer) -> ex.TextSearch | None:
    kind = ex.TextSearchKind(call.function.text)
    field = _field(call, Rule.SEARCH_FIELD, "a String property", scope, infer)
    query = _text_query(call, scope, infer)
    edits: ex.Expression | None = None
    if kind is ex.TextSearchKind.FUZZY:
        edits = _edits(call, scope, infer)
        if edits is None:
            return None
    if field is None or query is None:
        return None
    nullable = field.nullable or query.nullable
    return ex.TextSearch(kind=kind, field=field, query=query, edits=edits, nullable=nullable)


def _edits(call: ast.Call, scope: Scope, infer: Infer) -> ex.Expression | None:
    if len(call.arguments) < 3:
        return ex.Constant(value=EDITS_MAX, type=qt.I64)
    argument = call.arguments[2]
    edits = _constant_argument(call, argument, scope, infer)
    if edits is None:
        return None
    fits = qt.is_integer(edits.type) and not edits.nullable
    if isinstance(edits, ex.Constant) and fits:
        fits = isinstance(edits.value, int) and 0 <= edits.value <= EDITS_MAX
    if not fits:
        bad_argument(call, argument, f"at most {EDITS_MAX} edits, as an integer", scope)
        return None
    return edits


_EXACT: Final = "exact"


def infer_ranking(call: ast.Call, scope: Scope, infer: Infer) -> ex.Expression | None:
    match call.function.text:
        case "nearest":
            return _nearest(call, scope, infer)
        case "bm25":
            field = _field(call, Rule.SEARCH_FIELD, "a String property", scope, infer)
            query = _text_query(call, scope, infer)
            if field is None or query is None:
                return None
            return ex.TextScore(field=field, query=query)
        case _:
            return _fusion(call, scope, infer)


def _nearest(call: ast.Call, scope: Scope, infer: Infer) -> ex.Distance | None:
    field = _field(call, Rule.VECTOR_FIELD, "a Vector property", scope, infer)
    argument = call.arguments[1]
    query = _constant_argument(call, argument, scope, infer)
    if field is None or query is None:
        return None
    target = field.type
    assert isinstance(target, ct.VectorType)
    metric = _metric(call, field, scope)
    fitted: ex.Expression | None = query
    embed = query.type == qt.STRING
    if embed:
        fitted = query if _is_embedded(argument, field, scope) else None
    elif isinstance(query, ex.Constant):
        fitted = fit_vector(query, target, argument.span, field.name, scope.findings)
    elif query.type != target:
        message = f"`{field.name}` is {qt.show(target)}, found {qt.show(query.type)}"
        scope.findings.error(Rule.VECTOR_FIELD, argument.span, message)
        fitted = None
    exact = _is_exact(call, scope)
    if metric is None or fitted is None or exact is None:
        return None
    return ex.Distance(field=field, query=fitted, metric=metric, embed=embed, exact=exact)


def _is_exact(call: ast.Call, scope: Scope) -> bool | None:
    """Whether every vector is compared; None, with a finding, for another word."""
    for argument in call.arguments[2:]:
        if not isinstance(argument, ast.Word) or argument.name.text != _EXACT:
            bad_argument(call, argument, f"the word `{_EXACT}` or nothing", scope)
            return None
    return len(call.arguments) > 2


def _holders(field: ex.PropertyOf, scope: Scope) -> list[ct.NodeType | ct.EdgeType]:
    """The types whose property this is."""
    bound = scope.variables.get(field.variable)
    assert bound is not None
    match bound.type:
        case qt.NodeOf():
            return [scope.catalog.nodes[type_name] for type_name in bound.type.types]
        case qt.EdgeOf():
            return [scope.catalog.edges[type_name] for type_name in bound.type.types]
        case qt.PathOf():
            return []


def _metric(call: ast.Call, field: ex.PropertyOf, scope: Scope) -> ct.VectorMetric | None:
    metrics = {
        next(
            (
                declared_index.metric
                for declared_index in declared_indexes(holder)
                if declared_index.column == field.name
            ),
            None,
        )
        or ct.DEFAULT_METRIC
        for holder in _holders(field, scope)
    }
    if len(metrics) > 1:
        scope.findings.error(
            Rule.VECTOR_FIELD,
            call.arguments[0].span,
            f"the types compare `{field.name}` by different metrics: {', '.join(sorted(metrics))}",
            "bind one of the types",
        )
        return None
    return next(iter(metrics), ct.DEFAULT_METRIC)


def _is_embedded(argument: ast.Expression, field: ex.PropertyOf, scope: Scope) -> bool:
    """Whether a text can become a vector of this property: by one model for all its types."""
    embeds = [holder.properties[field.name].embed for holder in _holders(field, scope)]
    models = {None if embed is None else embed.model for embed in embeds}
    if None not in embeds and len(models) == 1:
        return True
    assert isinstance(field.type, ct.VectorType)
    scope.findings.error(
        Rule.VECTOR_FIELD,
        argument.span,
        f"`{field.name}` has no single `@embed` model, so a string cannot be compared with it",
        f"pass a vector: `$query: Vector({field.type.size})`",
    )
    return False


def _fusion(call: ast.Call, scope: Scope, infer: Infer) -> ex.Fusion | None:
    arms = [_arm(call, argument, scope, infer) for argument in call.arguments[:2]]
    k: ex.Expression | None = ex.Constant(value=FUSION_K, type=qt.I64)
    if len(call.arguments) > 2:
        argument = call.arguments[2]
        k = _constant_argument(call, argument, scope, infer)
        positive = not isinstance(k, ex.Constant) or (isinstance(k.value, int) and k.value > 0)
        if k is not None and not (qt.is_integer(k.type) and not k.nullable and positive):
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
    return ex.Fusion(first=first, second=second, k=k)


def _arm(
    call: ast.Call, argument: ast.Expression, scope: Scope, infer: Infer
) -> ex.Distance | ex.TextScore | None:
    if not isinstance(argument, ast.Call) or argument.function.text not in ("nearest", "bm25"):
        scope.findings.error(
            Rule.RANK_ARMS,
            argument.span,
            "`rrf` fuses `nearest` and `bm25` only",
            f"write `{usage_of(call)}`",
        )
        return None
    arm = infer(argument, scope, ExpressionContext.RESULT)
    assert arm is None or isinstance(arm, ex.Distance | ex.TextScore)
    return arm


_SCALAR_FUNCTIONS: Final = frozenset(ScalarFunction)
_PARTS_OF_PATHS: Final = frozenset(ex.PathPart)
_DISTINCT: Final = frozenset({ex.AggregateFunction.COUNT, ex.AggregateFunction.COLLECT})


def infer_call(
    call: ast.Call, scope: Scope, place: ExpressionContext, infer: Infer
) -> ex.Expression | None:
    """The typed form of a call."""
    name = call.function
    shape = FUNCTIONS.get(name.text)
    if shape is None:
        scope.findings.error(
            Rule.UNKNOWN_FUNCTION,
            name.span,
            f"there is no function `{name.text}`",
            scope.findings.suggestions.closest(name.text, FUNCTIONS)
            or f"the functions are {', '.join(FUNCTIONS)}",
        )
        return None
    if not _may_stand(call, shape, scope, place) or not _has_shape(call, shape, scope):
        return None
    match shape.family:
        case Family.VALUE:
            return _value(call, scope, infer)
        case Family.CONDITION:
            return infer_text_search(call, scope, infer)
        case Family.RANKING:
            return infer_ranking(call, scope, infer)
        case Family.AGGREGATE:
            return _aggregate(call, scope, infer)


def _may_stand(
    call: ast.Call, shape: FunctionShape, scope: Scope, place: ExpressionContext
) -> bool:
    name = call.function
    if shape.family is Family.CONDITION and scope.groups is not None:
        scope.findings.error(
            Rule.FUNCTION_PLACE,
            name.span,
            f"`{name.text}` cannot be used in `having`",
            "write it in `match`",
        )
        return False
    if shape.family in (Family.VALUE, Family.CONDITION):
        return True
    if place in (ExpressionContext.RESULT, ExpressionContext.ORDER):
        return True
    if shape.family is Family.AGGREGATE and scope.may_aggregate:
        return True
    where = "`return` and `order`"
    hint = f"use it on its own in {where}, not inside another expression"
    if shape.family is Family.AGGREGATE:
        hint = "use it in `return`, `order` or `having`, and not inside another aggregate"
    if scope.own is not None:
        hint = "a mutation cannot rank or aggregate"
    scope.findings.error(
        Rule.FUNCTION_PLACE, name.span, f"`{name.text}` cannot be used in {place.value}", hint
    )
    return False


def _has_shape(call: ast.Call, shape: FunctionShape, scope: Scope) -> bool:
    name = call.function
    counting = name.text == ex.AggregateFunction.COUNT
    if call.star and counting:
        return True
    distinct_fits = not call.distinct or name.text in _DISTINCT
    distinct_fits = distinct_fits and (call.by is not None) == (name.text in ORDERED)
    if not call.star and distinct_fits and shape.fewest <= len(call.arguments) <= shape.most:
        return True
    message = f"`{name.text}` is called with the wrong arguments"
    if not call.star and distinct_fits:
        count, wanted = len(call.arguments), _count_text(shape)
        message = f"`{name.text}` takes {wanted}, found {count or 'none'}"
    scope.findings.error(Rule.FUNCTION_ARGUMENTS, call.span, message, f"write `{shape.usage}`")
    return False


def _count_text(shape: FunctionShape) -> str:
    """How many arguments a function takes."""
    if shape.most == 0:
        return "no arguments"
    if shape.fewest == shape.most:
        return f"{shape.most} argument{'s' if shape.most > 1 else ''}"
    if shape.most >= ARGUMENTS_MAX:
        return f"at least {shape.fewest} arguments"
    return f"{shape.fewest} to {shape.most} arguments"


def _value(call: ast.Call, scope: Scope, infer: Infer) -> ex.Expression | None:
    if call.function.text == "now":
        return ex.Now()
    if call.function.text in _LITERALS:
        return _literal(call, scope, infer)
    if call.function.text in CASTS:
        bad_argument(call, call.arguments[0], "a value and a type", scope)
        return None
    if call.function.text == NODE:
        bad_argument(call, call.arguments[0], "a node type and an id", scope)
        return None
    if call.function.text in _SCALAR_FUNCTIONS and not _is_of_path(call, scope):
        return infer_function(call, scope, infer)
    return _of_variable(call, scope, infer)


def refuse_function_of_type(reference: ast.NodeReference, scope: Scope) -> None:
    """Report a call with a node type: of `node` in the wrong place, or of another function."""
    name = reference.function.text
    if name == NODE:
        scope.findings.error(
            Rule.FUNCTION_PLACE,
            reference.function.span,
            "`node` names an end of an edge that is inserted, and no value",
            f"write `insert Mentions {{ from: $d, to: {FUNCTIONS[NODE].usage} }}`",
        )
        return
    scope.findings.error(
        Rule.FUNCTION_ARGUMENTS,
        reference.span,
        f"`{name}` takes no node type; only `node` does",
        f"write `{FUNCTIONS[name].usage}`" if name in FUNCTIONS else "",
    )


def _is_of_path(call: ast.Call, scope: Scope) -> bool:
    """Whether a function that values and paths share is called with a path."""
    argument = call.arguments[0]
    if call.function.text not in _PARTS_OF_PATHS or not isinstance(argument, ast.VariableUse):
        return False
    bound = scope.variables.get(argument.name.text)
    return bound is not None and isinstance(bound.type, qt.PathOf)


_LITERALS: Final[Mapping[str, Callable[[str, Span, Findings], ex.Constant | None]]] = {
    "date": date_constant,
    "datetime": datetime_constant,
    "duration": duration_constant,
}


def _literal(call: ast.Call, scope: Scope, infer: Infer) -> ex.Constant | None:
    argument = call.arguments[0]
    text = infer(argument, scope, ExpressionContext.INSIDE)
    if text is None:
        return None
    if not isinstance(text, ex.Constant) or not isinstance(text.value, str):
        bad_argument(call, argument, "a string in the text", scope)
        return None
    return _LITERALS[call.function.text](text.value, argument.span, scope.findings)


def _of_variable(call: ast.Call, scope: Scope, infer: Infer) -> ex.Expression | None:
    argument, name = call.arguments[0], call.function.text
    wanted = "a node or an edge" if name == "type" else "a path, named by `as $path`"
    variable = argument.name.text if isinstance(argument, ast.VariableUse) else None
    if variable is None or variable in scope.parameters:
        bad_argument(call, argument, wanted, scope)
        return None
    bound = scope.variables.get(variable)
    if bound is None:
        infer(argument, scope, ExpressionContext.INSIDE)
        return None
    if isinstance(bound.type, qt.PathOf) == (name == "type"):
        bad_argument(call, argument, wanted, scope)
        return None
    if name == "type":
        return ex.TypeName(variable=variable, nullable=bound.nullable)
    part = ex.PathPart(name)
    if part is ex.PathPart.WEIGHT:
        return _weight(call, variable, bound, scope)
    kind = qt.I32 if part is ex.PathPart.LENGTH else qt.STRINGS
    return ex.PartOfPath(part=part, variable=variable, type=kind, nullable=bound.nullable)


def _weight(call: ast.Call, variable: str, bound: Bound, scope: Scope) -> ex.PartOfPath | None:
    assert isinstance(bound.type, qt.PathOf)
    name = bound.type.weight
    if name is None:
        bad_argument(call, call.arguments[0], "a path that has one, named by `as $path by`", scope)
        return None
    weight = scope.catalog.edges[bound.type.edges[0]].properties[name]
    return ex.PartOfPath(
        part=ex.PathPart.WEIGHT,
        variable=variable,
        type=qt.I64 if qt.is_integer(weight.type) else qt.F64,
        nullable=bound.nullable,
        property=name,
    )


def _aggregate(call: ast.Call, scope: Scope, infer: Infer) -> ex.Aggregate | None:
    function = ex.AggregateFunction(call.function.text)
    scope = replace(scope, may_aggregate=False)
    if call.star:
        return ex.Aggregate(
            function=function, argument=None, distinct=False, type=qt.I64, nullable=False
        )
    argument = infer(call.arguments[0], scope, ExpressionContext.INSIDE)
    if argument is None:
        return None
    by = _order_of_rows(call, scope, infer)
    fraction = _fraction(call, scope, infer)
    if by is None or fraction is None:
        return None
    result = _aggregate_type(function, argument, distinct=call.distinct)
    if result is None:
        wanted = {
            ex.AggregateFunction.COUNT: "values other than Blob or, when distinct, Vector",
            ex.AggregateFunction.SUM: "numbers",
            ex.AggregateFunction.AVERAGE: "numbers",
            ex.AggregateFunction.DEVIATION: "numbers",
            ex.AggregateFunction.PERCENTILE: "numbers",
            ex.AggregateFunction.COLLECT: "single values",
        }.get(function, "numbers, text, Booleans or dates")
        rule = Rule.BLOB_PLACE if argument.type == qt.BLOB else Rule.AGGREGATE_TYPE
        message = f"`{function.value}` takes {wanted}, found {qt.show(argument.type)}"
        hint = ""
        if isinstance(argument.type, ct.DecimalType):
            hint = (
                f"convert them to at most {SUMMED_DIGITS_MAX} digits: "
                f"`cast($p.x as Decimal({SUMMED_DIGITS_MAX}, 2))`"
                if (function in (ex.AggregateFunction.SUM, ex.AggregateFunction.AVERAGE))
                else "it does not take decimals"
            )
        scope.findings.error(rule, call.arguments[0].span, message, hint)
        return None
    return ex.Aggregate(
        function=function,
        argument=argument,
        distinct=call.distinct,
        type=result,
        nullable=function not in _DISTINCT,
        by=by,
        fraction=next(iter(fraction), None),
    )


def _order_of_rows(call: ast.Call, scope: Scope, infer: Infer) -> tuple[ex.Expression, ...] | None:
    """The order of `first` and `last`: the key, then the ids of all named nodes and edges."""
    if call.by is None:
        return ()
    key = infer(call.by, scope, ExpressionContext.INSIDE)
    if key is None:
        return None
    if not qt.is_orderable(key.type):
        scope.findings.error(
            Rule.AGGREGATE_TYPE, call.by.span, f"{qt.show(key.type)} has no order to choose by"
        )
        return None
    ties: list[ex.Expression] = []
    for name, bound in sorted(scope.variables.items()):
        if bound is None or "." in name or isinstance(bound.type, qt.PathOf):
            continue
        ties.append(
            ex.PropertyOf(variable=name, name=ID_COLUMN, type=qt.STRING, nullable=bound.nullable)
        )
        if not isinstance(bound.type, qt.NodeOf) or len(bound.type.types) > 1:
            ties.append(ex.TypeName(variable=name, nullable=bound.nullable))
    return key, *ties


def _fraction(call: ast.Call, scope: Scope, infer: Infer) -> tuple[ex.Expression, ...] | None:
    """The fraction of `percentile`, none for other functions; None after a finding."""
    if len(call.arguments) < 2:
        return ()
    argument = call.arguments[1]
    fraction = _constant_argument(call, argument, scope, infer)
    if fraction is None:
        return None
    fits = qt.is_number(fraction.type) and not fraction.nullable
    if isinstance(fraction, ex.Constant) and fits:
        assert isinstance(fraction.value, int | float)
        fits = 0 <= fraction.value <= 1
    if not fits:
        bad_argument(call, argument, "a number from 0 to 1", scope)
        return None
    return (fraction,)


def _aggregate_type(
    function: ex.AggregateFunction, argument: ex.Expression, *, distinct: bool
) -> qt.ExpressionType | None:
    kind = argument.type
    scalar = qt.scalar_of(kind)
    result: qt.ExpressionType | None = None
    match function:
        case ex.AggregateFunction.COUNT:
            refused = kind == qt.BLOB or (distinct and isinstance(kind, ct.VectorType))
            result = None if refused else qt.I64
        case ex.AggregateFunction.SUM if isinstance(kind, ct.DecimalType):
            if kind.precision <= SUMMED_DIGITS_MAX:
                result = ct.DecimalType(precision=ct.DECIMAL_DIGITS_MAX, scale=kind.scale)
        case ex.AggregateFunction.AVERAGE if isinstance(kind, ct.DecimalType):
            result = qt.F64 if kind.precision <= SUMMED_DIGITS_MAX else None
        case ex.AggregateFunction.SUM if qt.is_number(kind):
            unsigned = scalar in (ct.Scalar.U32, ct.Scalar.U64)
            result = qt.U64 if unsigned else qt.I64 if qt.is_integer(kind) else qt.F64
        case (
            ex.AggregateFunction.AVERAGE
            | ex.AggregateFunction.DEVIATION
            | ex.AggregateFunction.PERCENTILE
        ) if qt.is_number(kind):
            result = qt.F64
        case (
            ex.AggregateFunction.MINIMUM
            | ex.AggregateFunction.MAXIMUM
            | ex.AggregateFunction.FIRST
            | ex.AggregateFunction.LAST
        ) if qt.is_orderable(kind):
            result = kind
        case ex.AggregateFunction.COLLECT if qt.is_orderable(kind) and scalar is not None:
            result = ct.ListType(item=scalar)
        case _:
            pass
    return result
