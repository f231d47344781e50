"""Calls: values, conditions, rankings and aggregates.

Invariant: a function here returns a typed expression, or None after a finding.
"""

from __future__ import annotations

from typing import Final

from omnigraph.query import ast
from omnigraph.query.checks.functions import (
    FUNCTIONS,
    Family,
    FunctionShape,
    Infer,
    bad_argument,
)
from omnigraph.query.checks.literals import date_constant, datetime_constant
from omnigraph.query.checks.scope import Place, Scope
from omnigraph.query.checks.searches import infer_ranking, infer_text_search
from omnigraph.query.diagnostics import Rule
from omnigraph.query.expressions import (
    Aggregate,
    AggregateFunction,
    Constant,
    Expression,
    Now,
    PartOfPath,
    PathPart,
    TypeName,
)
from omnigraph.query.types import (
    BLOB,
    F64,
    I32,
    I64,
    STRINGS,
    U64,
    ExpressionType,
    PathOf,
    is_integer,
    is_number,
    is_orderable,
    scalar_of,
    show,
)
from omnigraph.schema.catalog import ListType, Scalar, VectorType

_DISTINCT: Final = frozenset({AggregateFunction.COUNT, AggregateFunction.COLLECT})


def infer_call(call: ast.Call, scope: Scope, place: Place, infer: Infer) -> Expression | None:
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


def _may_stand(call: ast.Call, shape: FunctionShape, scope: Scope, place: Place) -> bool:
    name = call.function
    if shape.family in (Family.VALUE, Family.CONDITION):
        return True
    if place in (Place.RESULT, Place.ORDER):
        return True
    where = "`return` and `order`"
    hint = f"use it on its own in {where}, not inside another expression"
    if scope.own is not None:
        hint = "a mutation cannot rank or aggregate"
    scope.findings.error(
        Rule.FUNCTION_PLACE, name.span, f"`{name.text}` cannot be used in {place.value}", hint
    )
    return False


def _has_shape(call: ast.Call, shape: FunctionShape, scope: Scope) -> bool:
    name = call.function
    counting = name.text == AggregateFunction.COUNT
    if call.star and counting:
        return True
    distinct_fits = not call.distinct or name.text in _DISTINCT
    if not call.star and distinct_fits and shape.fewest <= len(call.arguments) <= shape.most:
        return True
    scope.findings.error(
        Rule.FUNCTION_ARGUMENTS,
        call.span,
        f"`{name.text}` is called with the wrong arguments",
        f"write `{shape.usage}`",
    )
    return False


def _value(call: ast.Call, scope: Scope, infer: Infer) -> Expression | None:
    if call.function.text == "now":
        return Now()
    if call.function.text in ("date", "datetime"):
        return _date(call, scope, infer)
    return _of_variable(call, scope, infer)


def _date(call: ast.Call, scope: Scope, infer: Infer) -> Constant | None:
    argument = call.arguments[0]
    text = infer(argument, scope, Place.INSIDE)
    if text is None:
        return None
    if not isinstance(text, Constant) or not isinstance(text.value, str):
        bad_argument(call, argument, "a string in the text", scope)
        return None
    make = date_constant if call.function.text == "date" else datetime_constant
    return make(text.value, argument.span, scope.findings)


def _of_variable(call: ast.Call, scope: Scope, infer: Infer) -> Expression | None:
    argument, name = call.arguments[0], call.function.text
    wanted = "a node or an edge" if name == "type" else "a path, named by `as $path`"
    variable = argument.name.text if isinstance(argument, ast.VariableUse) else None
    if variable is None or variable in scope.parameters:
        bad_argument(call, argument, wanted, scope)
        return None
    bound = scope.variables.get(variable)
    if bound is None:
        infer(argument, scope, Place.INSIDE)
        return None
    if isinstance(bound.type, PathOf) == (name == "type"):
        bad_argument(call, argument, wanted, scope)
        return None
    if name == "type":
        return TypeName(variable=variable, nullable=bound.nullable)
    part = PathPart(name)
    kind = I32 if part is PathPart.LENGTH else STRINGS
    return PartOfPath(part=part, variable=variable, type=kind, nullable=bound.nullable)


def _aggregate(call: ast.Call, scope: Scope, infer: Infer) -> Aggregate | None:
    function = AggregateFunction(call.function.text)
    if call.star:
        return Aggregate(function=function, argument=None, distinct=False, type=I64, nullable=False)
    argument = infer(call.arguments[0], scope, Place.INSIDE)
    if argument is None:
        return None
    result = _aggregate_type(function, argument, distinct=call.distinct)
    if result is None:
        wanted = {
            AggregateFunction.COUNT: "values other than Blob or, when distinct, Vector",
            AggregateFunction.SUM: "numbers",
            AggregateFunction.AVERAGE: "numbers",
            AggregateFunction.COLLECT: "single values",
        }.get(function, "numbers, text, Booleans or dates")
        rule = Rule.BLOB_PLACE if argument.type == BLOB else Rule.AGGREGATE_TYPE
        message = f"`{function.value}` takes {wanted}, found {show(argument.type)}"
        scope.findings.error(rule, call.arguments[0].span, message)
        return None
    return Aggregate(
        function=function,
        argument=argument,
        distinct=call.distinct,
        type=result,
        nullable=function not in _DISTINCT,
    )


def _aggregate_type(
    function: AggregateFunction, argument: Expression, *, distinct: bool
) -> ExpressionType | None:
    kind = argument.type
    scalar = scalar_of(kind)
    result: ExpressionType | None = None
    match function:
        case AggregateFunction.COUNT:
            refused = kind == BLOB or (distinct and isinstance(kind, VectorType))
            result = None if refused else I64
        case AggregateFunction.SUM if is_number(kind):
            unsigned = scalar in (Scalar.U32, Scalar.U64)
            result = U64 if unsigned else I64 if is_integer(kind) else F64
        case AggregateFunction.AVERAGE if is_number(kind):
            result = F64
        case AggregateFunction.MINIMUM | AggregateFunction.MAXIMUM if is_orderable(kind):
            result = kind
        case AggregateFunction.COLLECT if is_orderable(kind):
            assert scalar is not None
            result = ListType(item=scalar)
        case _:
            pass
    return result
