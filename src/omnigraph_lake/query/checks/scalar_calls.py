"""Checks calls of scalar functions against their declarations.

Invariant: a checked call fits one signature, and the values of arguments that must be known before
the run are valid, those of parameters excepted, which are checked when the query is bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from omnigraph_lake.query import ast
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import types as qt
from omnigraph_lake.query.checks.choices import chain_casts
from omnigraph_lake.query.checks.literals import EMPTY_LIST
from omnigraph_lake.query.checks.scope import ExpressionContext, Scope
from omnigraph_lake.query.decimals import as_decimals, quotient_type, type_of_rounded
from omnigraph_lake.query.diagnostics import Rule
from omnigraph_lake.query.functions import (
    DECLARATIONS,
    KNOWN,
    Accepts,
    FunctionDeclaration,
    ScalarFunction,
    Signature,
    accepts_type,
    signature_of,
)
from omnigraph_lake.query.text_patterns import refuse_known
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.json_text import WHOLE_PATH

Infer: TypeAlias = Callable[[ast.Expression, Scope, ExpressionContext], ex.Expression | None]


def infer_function(call: ast.Call, scope: Scope, infer: Infer) -> ex.Expression | None:
    """The typed form of a call whose number of arguments fits."""
    function = ScalarFunction(call.function.text)
    declaration = DECLARATIONS[function]
    inferred = [infer(argument, scope, ExpressionContext.INSIDE) for argument in call.arguments]
    arguments = tuple(_with_type(argument) for argument in inferred if argument is not None)
    if len(arguments) < len(inferred):
        return None
    if function is ScalarFunction.DIV:
        arguments = as_decimals(arguments)
    types = [argument.type for argument in arguments]
    signature = signature_of(function, types)
    if signature is None:
        _report_type(call, declaration, types, scope)
        return None
    if not _check_known_arguments(call, signature, arguments, scope):
        return None
    if signature.identity:
        return arguments[0]
    if isinstance(types[0], ct.DecimalType):
        return _of_decimal(function, arguments, types[0])
    if function is ScalarFunction.ROUND:
        arguments = _complete_round(arguments)
    if function is ScalarFunction.JSON_TYPE and len(arguments) == 1:
        arguments = (*arguments, ex.Constant(value=WHOLE_PATH, type=qt.STRING))
    if signature.converts is not None:
        arguments = _convert(arguments, signature)
    return ex.FunctionCall(
        function=function,
        arguments=arguments,
        type=types[0] if signature.result is None else signature.result,
        nullable=signature.gives_null or any(argument.nullable for argument in arguments),
    )


def _with_type(argument: ex.Expression) -> ex.Expression:
    """An empty list has no type of its own; every other argument as it is."""
    return replace(EMPTY_LIST, type=qt.BOOLS) if argument == EMPTY_LIST else argument


def _of_decimal(
    function: ScalarFunction, arguments: tuple[ex.Expression, ...], kind: ct.DecimalType
) -> ex.Expression:
    """A function of a decimal, with the type that holds its values."""
    result, gives_null = kind, False
    if function is ScalarFunction.DIV:
        divisor = arguments[1]
        assert isinstance(divisor.type, ct.DecimalType)
        result = quotient_type(kind, divisor.type)
        gives_null = not (isinstance(divisor, ex.Constant) and divisor.value)
    elif function is not ScalarFunction.ABS:
        number, digits = _complete_round(arguments)
        places = digits.value if isinstance(digits, ex.Constant) else None
        assert places is None or isinstance(places, int)
        if places is not None and places >= kind.scale:
            return number
        result = type_of_rounded(kind, places)
        if function is ScalarFunction.ROUND:
            arguments = (number, _as_integer(digits))
    nullable = gives_null or any(argument.nullable for argument in arguments)
    return ex.FunctionCall(function=function, arguments=arguments, type=result, nullable=nullable)


def _as_integer(digits: ex.Expression) -> ex.Expression:
    source = qt.scalar_of(digits.type)
    assert source is not None
    return chain_casts(digits, source, ct.Scalar.I64, lenient=False)


def _complete_round(arguments: tuple[ex.Expression, ...]) -> tuple[ex.Expression, ...]:
    """With the number of digits, and an F32 as the F64 that is spelt like it."""
    number, *digits = arguments
    if number.type == qt.F32:
        number = chain_casts(number, ct.Scalar.F32, ct.Scalar.STRING, lenient=False)
        number = chain_casts(number, ct.Scalar.STRING, ct.Scalar.F64, lenient=False)
    return (number, *digits) if digits else (number, ex.Constant(value=0, type=qt.I64))


def _convert(arguments: Sequence[ex.Expression], signature: Signature) -> tuple[ex.Expression, ...]:
    """Numbers in the type of the signature; the digits of a rounded float stay integers."""
    converted: list[ex.Expression] = []
    for position, argument in enumerate(arguments):
        if not qt.is_number(argument.type):
            converted.append(argument)
            continue
        # A second argument is a number of digits, a divisor or a count.
        source = qt.scalar_of(argument.type)
        target = ct.Scalar.I64 if position else signature.converts
        assert source is not None
        assert target is not None
        converted.append(chain_casts(argument, source, target, lenient=False))
    return tuple(converted)


def _report_type(
    call: ast.Call,
    declaration: FunctionDeclaration,
    types: Sequence[qt.ExpressionType],
    scope: Scope,
) -> None:
    """A finding about the first argument that no signature takes."""
    candidates = [
        one for one in declaration.signatures if one.fewest <= len(types) <= one.most
    ] or list(declaration.signatures)
    for position, argument in enumerate(types):
        fitting = [one for one in candidates if accepts_type(one.parameter(position), argument)]
        if not fitting:
            wanted = dict.fromkeys(one.parameter(position).value for one in candidates)
            _report(
                call,
                position,
                f"`{call.function.text}` takes {' or '.join(wanted)}, found {qt.show(argument)}",
                scope,
            )
            return
        candidates = fitting


def _check_known_arguments(
    call: ast.Call, signature: Signature, arguments: Sequence[ex.Expression], scope: Scope
) -> bool:
    for position, argument in enumerate(arguments):
        problem = _refuse(signature.parameter(position), argument, call.function.text)
        if problem is not None:
            _report(call, position, problem, scope)
            return False
    return True


def _refuse(accepts: Accepts, argument: ex.Expression, function: str) -> str | None:
    if accepts in KNOWN and not isinstance(argument, ex.Constant | ex.Parameter):
        return f"`{function}` takes {accepts.value} here"
    if not isinstance(argument, ex.Constant):
        return None
    value = argument.value
    if accepts is Accepts.INDEX and isinstance(value, int) and value < 0:
        return f"`{function}` takes {accepts.value}, found {value}"
    return refuse_known(accepts, value) if isinstance(value, str) else None


def _report(call: ast.Call, position: int, message: str, scope: Scope) -> None:
    usage = DECLARATIONS[ScalarFunction(call.function.text)].usage
    scope.findings.error(
        Rule.FUNCTION_ARGUMENTS, call.arguments[position].span, message, f"write `{usage}`"
    )
