"""Literals to constants, and constants to the expected type.

Invariant: a constant is exact. A value that does not fit is reported, never rounded, except that a
decimal compared with 32-bit floats is rounded to their width, as stored values are.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final

from omnigraph_lake.language.diagnostics import Span
from omnigraph_lake.query import types as qt
from omnigraph_lake.query.ast import NumberLiteral, StringLiteral
from omnigraph_lake.query.checks.scope import Findings
from omnigraph_lake.query.decimals import exact_number
from omnigraph_lake.query.diagnostics import Rule
from omnigraph_lake.query.expressions import Constant, Expression, Parameter, Value
from omnigraph_lake.schema import ast as schema_ast
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.resolve import number_value, string_value, unknown_escapes
from omnigraph_lake.schema.values import SpeltFloat, as_decimal, fits_decimal

EMPTY_LIST = Constant(value=(), type=qt.NullType())
_DURATION_CHARACTERS_MAX: Final = 100


def string_constant(literal: StringLiteral, findings: Findings) -> Constant:
    """The value of a string, its escapes replaced."""
    written = schema_ast.StringLiteral(raw=literal.raw, span=literal.span)
    for place in unknown_escapes(written):
        findings.error(
            Rule.UNKNOWN_ESCAPE,
            place,
            "this escape does not exist",
            'the escapes are `\\"`, `\\\\`, `\\n`, `\\r` and `\\t`',
        )
    return Constant(value=string_value(written), type=qt.STRING)


def number_constant(
    literal: NumberLiteral, findings: Findings, *, negative: bool = False, span: Span | None = None
) -> Constant | None:
    """An integer of 64 bits or a double; None if it is neither."""
    place = span or literal.span
    value = number_value(schema_ast.NumberLiteral(raw=literal.raw, span=literal.span))
    if value is None:
        findings.error(Rule.NUMBER_TOO_LONG, place, "this number has more than 400 characters")
        return None
    signed: int | Decimal
    if isinstance(value, Decimal):
        signed = value.copy_negate() if negative else value
    else:
        signed = -value if negative else value
    if isinstance(signed, Decimal):
        return _double(signed, place, findings)
    if signed > qt.INTEGER_LIMITS[ct.Scalar.U64][1] or signed < qt.INTEGER_LIMITS[ct.Scalar.I64][0]:
        findings.error(
            Rule.VALUE_RANGE,
            place,
            "this integer does not fit into 64 bits",
            "write it with a point to mean a float: `1.0`",
        )
        return None
    return Constant(
        value=signed, type=qt.I64 if signed <= qt.INTEGER_LIMITS[ct.Scalar.I64][1] else qt.U64
    )


def read_sizes(sizes: Sequence[NumberLiteral]) -> tuple[int | None, ...]:
    """The numbers behind the name of a type; None for one that is no integer."""
    values = [
        number_value(schema_ast.NumberLiteral(raw=size.raw, span=size.span)) for size in sizes
    ]
    return tuple(value if isinstance(value, int) else None for value in values)


def _double(value: Decimal, span: Span, findings: Findings) -> Constant | None:
    # With its digits, which count beside decimals.
    double = SpeltFloat(f"{value:f}")
    if math.isinf(double):
        findings.error(Rule.VALUE_RANGE, span, "this number is too large for a float")
        return None
    return Constant(value=double, type=qt.F64)


def date_constant(text: str, span: Span, findings: Findings) -> Constant | None:
    try:
        return Constant(value=dt.date.fromisoformat(text), type=qt.DATE)
    except ValueError:
        findings.error(
            Rule.DATE_VALUE,
            span,
            f"{_quote(text)} is not a date",
            'write `date("2024-05-31")`',
        )
        return None


def datetime_constant(text: str, span: Span, findings: Findings) -> Constant | None:
    """An instant; without an offset it is UTC."""
    try:
        parsed = dt.datetime.fromisoformat(text)
        instant = parsed.replace(tzinfo=dt.UTC) if parsed.tzinfo is None else parsed
        return Constant(value=instant.astimezone(dt.UTC), type=qt.DATETIME)
    except (ValueError, OverflowError):
        findings.error(
            Rule.DATE_VALUE,
            span,
            f"{_quote(text)} is not an instant",
            'write `datetime("2024-05-31T12:30:00Z")`',
        )
        return None


_DURATION: Final = re.compile(
    r"(-)?P(?=.)(?:([0-9]+)W)?(?:([0-9]+)D)?"
    r"(?:T(?=.)(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)(?:\.([0-9]{1,6}))?S)?)?",
    re.ASCII,
)
_SECONDS: Final = (7 * 86_400, 86_400, 3_600, 60, 1)


def duration_constant(text: str, span: Span, findings: Findings) -> Constant | None:
    """The microseconds of a duration of ISO 8601; years and months have no fixed length."""
    parts = _DURATION.fullmatch(text) if len(text) <= _DURATION_CHARACTERS_MAX else None
    if parts is None:
        months = re.match(r"-?P[^T]*[YM]", text) is not None
        findings.error(
            Rule.DATE_VALUE,
            span,
            f"{_quote(text)} is not a duration",
            'years and months have no fixed length; write `add($t, 1, "month")`'
            if months
            else 'write `duration("P1DT2H30M")`: weeks, days, then hours, minutes, seconds',
        )
        return None
    sign, *counts, fraction = parts.groups()
    seconds = sum(int(count or 0) * length for count, length in zip(counts, _SECONDS, strict=True))
    microseconds = seconds * 1_000_000 + int((fraction or "").ljust(6, "0"))
    if microseconds > qt.INTEGER_LIMITS[ct.Scalar.I64][1]:
        findings.error(Rule.VALUE_RANGE, span, "this duration does not fit into 64 bits")
        return None
    return Constant(value=-microseconds if sign else microseconds, type=qt.I64)


def list_constant(items: Sequence[Constant], span: Span, findings: Findings) -> Constant | None:
    """A list of literals of one type."""
    if not items:
        return EMPTY_LIST
    types = {item.type for item in items}
    if all(qt.is_number(item_type) for item_type in types):
        all_i64 = types <= {qt.I64}
        target = (
            qt.F64
            if any(qt.is_float(item_type) for item_type in types)
            else qt.I64
            if all_i64
            else qt.U64
        )
        values = tuple(_as_float(item) if target == qt.F64 else item.value for item in items)
        return Constant(value=values, type=ct.ListType(item=target.scalar))
    first_type = items[0].type
    if len(types) > 1 or not isinstance(first_type, ct.ScalarType):
        shown = " and ".join(sorted(qt.show(item_type) for item_type in types))
        findings.error(
            Rule.VALUE_TYPE,
            span,
            f"a list holds values of one type, found {shown}",
        )
        return None
    return Constant(
        value=tuple(item.value for item in items), type=ct.ListType(item=first_type.scalar)
    )


def _as_float(constant: Constant) -> float:
    """A number with its digits, which count beside decimals."""
    number = _number(constant)
    return SpeltFloat(str(number)) if isinstance(number, int) else number


def _number(constant: Constant) -> int | float:
    assert isinstance(constant.value, int | float)
    return constant.value


def beside(constant: Expression, other: qt.ExpressionType) -> Expression:
    """A constant converted for a comparison with another operand."""
    if isinstance(constant, Constant) and constant.type == qt.F64 and other == qt.F32:
        assert isinstance(constant.value, float)
        return replace(constant, value=qt.as_f32(constant.value), type=qt.F32)
    return constant


def fit(
    value: Expression,
    target: ct.PropertyType,
    *,
    nullable: bool,
    span: Span,
    name: str,
    findings: Findings,
) -> Expression | None:
    """`value` as it is stored in a property of type `target`, or None with a finding."""
    if _is_null(value):
        if nullable:
            return Constant(value=None, type=target)
        findings.error(
            Rule.VALUE_TYPE, span, f"`{name}` cannot be null", "give it a value; it has no `?`"
        )
        return None
    if isinstance(value, Parameter) and value.nullable and not nullable:
        findings.error(
            Rule.VALUE_TYPE,
            span,
            f"`${value.name}` can be null, `{name}` cannot",
            f"declare the parameter without `?`: `${value.name}: {qt.show(value.type)}`",
        )
        return None
    if isinstance(value, Constant):
        return _fit_constant(value, target, span, name, findings)
    if not _storable(value.type, target):
        _mismatch(value.type, target, span, name, findings)
        return None
    return value


def _is_null(value: Expression) -> bool:
    return isinstance(value, Constant) and value.value is None


def _storable(  # noqa: PLR0911 - one per kind of type
    source: qt.ExpressionType, target: ct.PropertyType
) -> bool:
    if source == target:
        return True
    if isinstance(target, ct.DecimalType):
        return isinstance(source, ct.DecimalType) or qt.is_integer(source)
    if qt.is_integer(target):
        return qt.is_integer(source)
    if qt.is_float(target):
        return qt.is_number(source)
    if isinstance(target, ct.VectorType):
        return isinstance(source, ct.ListType) and source.item in (ct.Scalar.F32, ct.Scalar.F64)
    if isinstance(target, ct.ListType) and isinstance(source, ct.ListType):
        return _storable(ct.ScalarType(scalar=source.item), ct.ScalarType(scalar=target.item))
    return qt.is_text(target) and qt.is_text(source)


def _fit_constant(  # noqa: PLR0911 - one per kind of type
    value: Constant, target: ct.PropertyType, span: Span, name: str, findings: Findings
) -> Constant | None:
    if isinstance(target, ct.VectorType):
        return fit_vector(value, target, span, name, findings)
    if isinstance(target, ct.ListType):
        if value == EMPTY_LIST:
            return Constant(value=(), type=target)
        return _fit_list(value, target, span, name, findings)
    if isinstance(target, ct.EnumType) and isinstance(value.value, str):
        return value if _is_enum_value(value.value, target, span, findings) else None
    if isinstance(target, ct.DecimalType):
        return _fit_decimal(value, target, span, name, findings)
    scalar = qt.scalar_of(target)
    if scalar is ct.Scalar.BLOB and qt.is_text(value.type):
        return replace(value, type=target)
    if qt.is_number(target) and qt.is_number(value.type):
        return _fit_number(value, target, span, name, findings)
    if value.type != target:
        _mismatch(value.type, target, span, name, findings)
        return None
    return value


def _fit_list(
    value: Constant, target: ct.ListType, span: Span, name: str, findings: Findings
) -> Constant | None:
    if not isinstance(value.type, ct.ListType):
        _mismatch(value.type, target, span, name, findings)
        return None
    assert isinstance(value.value, tuple)
    source, item_type = ct.ScalarType(scalar=value.type.item), ct.ScalarType(scalar=target.item)
    fitted_items = [
        _fit_constant(Constant(value=item_value, type=source), item_type, span, name, findings)
        for item_value in value.value
    ]
    constants = [constant for constant in fitted_items if constant is not None]
    if len(constants) < len(fitted_items):
        return None
    return Constant(value=tuple(constant.value for constant in constants), type=target)


def _fit_decimal(
    value: Constant, target: ct.DecimalType, span: Span, name: str, findings: Findings
) -> Constant | None:
    number = exact_number(value)
    if number is None:
        _mismatch(value.type, target, span, name, findings)
        return None
    if not fits_decimal(number, target):
        findings.error(
            Rule.VALUE_RANGE,
            span,
            f"this number does not fit into `{name}`, {qt.show(target)}",
            "numbers are never rounded; write fewer digits",
        )
        return None
    return Constant(value=as_decimal(number, target), type=target)


def _fit_number(
    value: Constant, target: qt.ExpressionType, span: Span, name: str, findings: Findings
) -> Constant | None:
    number, scalar = _number(value), qt.scalar_of(target)
    if scalar in qt.INTEGER_LIMITS:
        low, high = qt.INTEGER_LIMITS[scalar]
        if isinstance(number, float):
            _mismatch(value.type, target, span, name, findings)
            return None
        if not low <= number <= high:
            findings.error(
                Rule.VALUE_RANGE, span, f"{number} does not fit into `{name}`, {qt.show(target)}"
            )
            return None
        return Constant(value=number, type=target)
    double = qt.as_f32(number) if scalar is ct.Scalar.F32 else float(number)
    if math.isinf(double):
        findings.error(Rule.VALUE_RANGE, span, f"{number} does not fit into `{name}`, F32")
        return None
    return Constant(value=double, type=target)


def fit_vector(
    value: Constant, target: ct.VectorType, span: Span, name: str, findings: Findings
) -> Constant | None:
    """A list literal as a vector of the right size."""
    numbers = value.value if isinstance(value.value, tuple) else None
    if numbers is None or not all(isinstance(number, int | float) for number in numbers):
        _mismatch(value.type, target, span, name, findings)
        return None
    if len(numbers) != target.size:
        findings.error(
            Rule.VALUE_TYPE,
            span,
            f"`{name}` has {target.size} numbers, found {len(numbers)}",
        )
        return None
    narrowed_numbers = tuple(
        qt.as_f32(number) for number in numbers if isinstance(number, int | float)
    )
    if any(math.isinf(number) for number in narrowed_numbers):
        findings.error(Rule.VALUE_RANGE, span, f"a number does not fit into `{name}`, F32")
        return None
    return Constant(value=narrowed_numbers, type=target)


def is_enum_value(value: Value, target: ct.EnumType, span: Span, findings: Findings) -> bool:
    """Whether a string is in the set; a finding if not."""
    return not isinstance(value, str) or _is_enum_value(value, target, span, findings)


def _is_enum_value(value: str, target: ct.EnumType, span: Span, findings: Findings) -> bool:
    if value in target.values:
        return True
    listed = ", ".join(target.values[:12]) + (", ..." if len(target.values) > 12 else "")
    findings.error(
        Rule.ENUM_VALUE,
        span,
        f"{_quote(value)} is not one of the values",
        findings.suggestions.closest(value, target.values) or f"the values are {listed}",
    )
    return False


def _mismatch(
    source: qt.ExpressionType, target: qt.ExpressionType, span: Span, name: str, findings: Findings
) -> None:
    hint = ""
    if source == qt.STRING and target in (qt.DATE, qt.DATETIME):
        word = "date" if target == qt.DATE else "datetime"
        hint = f'write `{word}("...")`, or declare a parameter of type {qt.show(target)}'
    elif target == qt.BOOL:
        hint = "write `true` or `false`"
    message = f"`{name}` is {qt.show(target)}, found {qt.show(source)}"
    findings.error(Rule.VALUE_TYPE, span, message, hint)


def _quote(text: str) -> str:
    return f'"{text if len(text) <= 40 else text[:37] + "..."}"'
