"""Checks `case`, `if`, `coalesce`, `cast` and `try_cast`.

Invariant: all values of a checked choice have the type of the whole; numbers of other types are
converted, where every value of theirs has one there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from omnigraph_lake.language.diagnostics import Span
from omnigraph_lake.query import ast
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import types as qt
from omnigraph_lake.query.checks.literals import EMPTY_LIST, read_sizes
from omnigraph_lake.query.checks.scope import ExpressionContext, Scope
from omnigraph_lake.query.conversion_steps import can_fail, cast_steps
from omnigraph_lake.query.decimals import exact_type, widen
from omnigraph_lake.query.diagnostics import Rule
from omnigraph_lake.query.functions import ARGUMENTS_MAX
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.resolve import DECIMAL, DECIMAL_HINT

InferValue: TypeAlias = Callable[[ast.Expression, Scope, ExpressionContext], ex.Expression | None]
InferCondition: TypeAlias = Callable[[ast.Expression, Scope], ex.Expression | None]

CHOICES: Final[Mapping[str, str]] = {
    "if": 'if($p.age < 18, "child", "adult")',
    "coalesce": "coalesce($p.nick, $p.name)",
}
"""Functions that do not need all of their arguments, and how they are called."""
CASTS: Final[Mapping[str, str]] = {
    "cast": "cast($p.age as String)",
    "try_cast": "try_cast($p.name as I64)",
}


def infer_case(
    case: ast.Case, scope: Scope, infer_value: InferValue, infer_condition: InferCondition
) -> ex.Expression | None:
    """The typed form of `case ... end`."""
    conditions = [infer_condition(branch.condition, scope) for branch in case.branches]
    written = [branch.value for branch in case.branches]
    written += [] if case.otherwise is None else [case.otherwise]
    values = _infer_values(written, "case", case.span, scope, infer_value)
    if values is None or None in conditions:
        return None
    otherwise: ex.Expression = ex.Constant(value=None, type=values[0].type)
    if case.otherwise is not None:
        *values, otherwise = values
    return _choose([condition for condition in conditions if condition], values, otherwise)


def infer_choice(
    call: ast.Call, scope: Scope, infer_value: InferValue, infer_condition: InferCondition
) -> ex.Expression | None:
    """The typed form of `if` and `coalesce`."""
    name = call.function.text
    fewest, most = (3, 3) if name == "if" else (2, ARGUMENTS_MAX)
    if call.star or call.distinct or not fewest <= len(call.arguments) <= most:
        wanted = "3 arguments" if name == "if" else "at least 2 arguments"
        _report_call(call.span, f"`{name}` takes {wanted}", CHOICES[name], scope)
        return None
    if name == "coalesce":
        operands = _infer_values(call.arguments, name, call.span, scope, infer_value)
        if operands is None:
            return None
        return ex.Coalesce(
            operands=tuple(operands),
            type=operands[0].type,
            nullable=all(operand.nullable for operand in operands),
        )
    condition = infer_condition(call.arguments[0], scope)
    values = _infer_values(call.arguments[1:], name, call.span, scope, infer_value)
    if condition is None or values is None:
        return None
    return _choose([condition], values[:1], values[1])


def _choose(
    conditions: Sequence[ex.Expression], values: Sequence[ex.Expression], otherwise: ex.Expression
) -> ex.Case:
    return ex.Case(
        branches=tuple(
            ex.CaseBranch(condition=condition, value=value)
            for condition, value in zip(conditions, values, strict=True)
        ),
        otherwise=otherwise,
        type=otherwise.type,
        nullable=any(value.nullable for value in (*values, otherwise)),
    )


def _infer_values(
    written: Sequence[ast.Expression],
    word: str,
    span: Span,
    scope: Scope,
    infer_value: InferValue,
) -> list[ex.Expression] | None:
    """The values of a choice in one type; None after a finding."""
    inferred = [infer_value(value, scope, ExpressionContext.VALUE) for value in written]
    values = [value for value in inferred if value is not None]
    if len(values) < len(inferred):
        return None
    for value, text in zip(values, written, strict=True):
        if value.type == qt.BLOB:
            scope.findings.error(Rule.BLOB_PLACE, text.span, f"`{word}` cannot give a Blob")
            return None
    common = _common_type(values)
    if common is not None:
        return [_convert(value, common) for value in values]
    types = dict.fromkeys(qt.show(value.type) for value in values if value != _NULL)
    if types:
        message = f"`{word}` gives values of one type, found {' and '.join(types)}"
        hint = "convert one of them: `cast(... as String)`"
    else:
        message, hint = f"`{word}` gives null only, which has no type", "give one of them a type"
    scope.findings.error(Rule.OPERAND_TYPES, span, message, hint)
    return None


_NULL: Final = ex.Constant(value=None, type=qt.NullType())


def _common_type(  # noqa: PLR0911 - one per kind of type
    values: Sequence[ex.Expression],
) -> qt.ExpressionType | None:
    """The type of a choice between values; None if there is none."""
    typed = [value for value in values if value not in (_NULL, EMPTY_LIST)]
    types = {value.type for value in typed}
    if len(types) == 1:
        (only,) = types
        return only
    if not types:
        return None
    if EMPTY_LIST in values:
        return None
    if any(isinstance(kind, ct.DecimalType) for kind in types):
        exact = [exact_type(value) for value in typed]
        decimals = [kind for kind in exact if kind is not None]
        return ct.join_decimals(decimals) if len(decimals) == len(exact) else None
    if all(map(qt.is_integer, types)):
        return _common_integer(typed)
    if all(map(qt.is_number, types)):
        return qt.F64
    return qt.STRING if all(map(qt.is_text, types)) else None


def _common_integer(values: Sequence[ex.Expression]) -> qt.ExpressionType | None:
    """A type that holds all integers; a literal takes the type of the others if it fits."""
    constants = [value.value for value in values if isinstance(value, ex.Constant)]
    literals = [value for value in constants if isinstance(value, int)]
    types = {
        qt.scalar_of(value.type) for value in values if not isinstance(value, ex.Constant)
    } or {qt.scalar_of(value.type) for value in values}
    candidates = [*types, ct.Scalar.I64, ct.Scalar.U64]
    for candidate in candidates:
        if candidate is None:
            continue
        low, high = qt.INTEGER_LIMITS[candidate]
        held = all(
            low <= qt.INTEGER_LIMITS[scalar][0] and qt.INTEGER_LIMITS[scalar][1] <= high
            for scalar in types
            if scalar is not None
        )
        if held and all(low <= value <= high for value in literals):
            return ct.ScalarType(scalar=candidate)
    return None


def _convert(value: ex.Expression, target: qt.ExpressionType) -> ex.Expression:
    if isinstance(target, ct.DecimalType) and value != _NULL:
        return widen(value, target)
    if isinstance(value, ex.Constant):
        number = value.value
        if target == qt.F64 and isinstance(number, int):
            return ex.Constant(value=float(number), type=target)
        return replace(value, type=target)
    source, wanted = qt.scalar_of(value.type), qt.scalar_of(target)
    if source is None or wanted is None:
        return value
    return chain_casts(value, source, wanted, lenient=False)


def chain_casts(
    operand: ex.Expression, source: ct.Scalar, target: ct.Scalar, *, lenient: bool
) -> ex.Expression:
    """An operand converted step by step."""
    steps = cast_steps(source, target)
    assert steps is not None
    for step in steps:
        operand = ex.Cast(
            operand=operand,
            type=ct.ScalarType(scalar=step),
            lenient=lenient,
            nullable=operand.nullable or (lenient and can_fail(source, step)),
        )
        source = step
    return operand


def to_double(operand: ex.Expression) -> ex.Expression:
    """A decimal as the nearest float; other numbers as they are."""
    if not isinstance(operand.type, ct.DecimalType):
        return operand
    return chain_casts(_to_text(operand), ct.Scalar.STRING, ct.Scalar.F64, lenient=False)


def _to_text(operand: ex.Expression) -> ex.Expression:
    """A number as text."""
    if isinstance(operand.type, ct.DecimalType):
        return ex.Cast(operand=operand, type=qt.STRING, lenient=False, nullable=operand.nullable)
    source = qt.scalar_of(operand.type)
    assert source is not None
    return chain_casts(operand, source, ct.Scalar.STRING, lenient=False)


def _cast_to_decimal(cast: ast.Cast, operand: ex.Expression, scope: Scope) -> ex.Expression | None:
    """A number or a text as a decimal that holds it exactly."""
    sizes = () if cast.listed else read_sizes(cast.sizes)
    target = None
    if len(sizes) == 2 and sizes[0] is not None and sizes[1] is not None:
        target = ct.decimal_type(sizes[0], sizes[1])
    if target is None:
        scope.findings.error(
            Rule.FUNCTION_ARGUMENTS, cast.type.span, "this is not a decimal type", DECIMAL_HINT
        )
        return None
    exact = exact_type(operand)
    if exact is not None and ct.join_decimals((exact, target)) == target:
        return widen(operand, target)
    if not (exact is not None or qt.is_number(operand.type) or qt.is_text(operand.type)):
        message = f"{qt.show(operand.type)} cannot be converted to {qt.show(target)}"
        scope.findings.error(Rule.OPERAND_TYPES, cast.span, message)
        return None
    lenient = cast.function.text == "try_cast"
    text = operand if qt.is_text(operand.type) else _to_text(operand)
    return ex.Cast(operand=text, type=target, lenient=lenient, nullable=operand.nullable or lenient)


def infer_cast(  # noqa: PLR0911 - one per finding
    cast: ast.Cast, scope: Scope, infer_value: InferValue
) -> ex.Expression | None:
    """The typed form of `cast` and `try_cast`."""
    name = cast.function.text
    operand = infer_value(cast.operand, scope, ExpressionContext.INSIDE)
    if name not in CASTS:
        message = f"`{name}` takes no type; only `cast` and `try_cast` do"
        _report_call(cast.span, message, CASTS["cast"], scope)
        return None
    if operand is None:
        return None
    if cast.type.text == DECIMAL:
        return _cast_to_decimal(cast, operand, scope)
    scalars = {scalar.value: scalar for scalar in ct.Scalar if scalar not in ct.WITHOUT_ORDER}
    target = None if cast.listed or cast.sizes else scalars.get(cast.type.text)
    if target is None:
        hint = "" if cast.listed else scope.findings.suggestions.closest(cast.type.text, scalars)
        if cast.type.text == ct.Scalar.JSON:
            hint = "write `json(...)` for the value of a JSON text"
        message = f"`{name}` converts to {', '.join(scalars)} and Decimal(p, s)"
        scope.findings.error(Rule.FUNCTION_ARGUMENTS, cast.type.span, message, hint)
        return None
    lenient = name == "try_cast"
    if isinstance(operand.type, ct.DecimalType) and target in {*ct.NUMBERS, ct.Scalar.STRING}:
        return chain_casts(_to_text(operand), ct.Scalar.STRING, target, lenient=lenient)
    source = qt.scalar_of(operand.type)
    if source is None or cast_steps(source, target) is None:
        message = f"{qt.show(operand.type)} cannot be converted to {target.value}"
        scope.findings.error(Rule.OPERAND_TYPES, cast.span, message)
        return None
    converted = chain_casts(operand, source, target, lenient=lenient)
    if converted is operand and operand.type != ct.ScalarType(scalar=target):
        # The text of an enum: a choice with one value gives it the other type.
        return ex.Coalesce(
            operands=(operand,), type=ct.ScalarType(scalar=target), nullable=operand.nullable
        )
    return converted


def _report_call(span: Span, message: str, usage: str, scope: Scope) -> None:
    scope.findings.error(Rule.FUNCTION_ARGUMENTS, span, message, f"write `{usage}`")
