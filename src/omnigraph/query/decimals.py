"""Decimals beside other exact numbers: the types that hold both, and operands of these types.

A number in the text of a query means its digits, so that it is a decimal beside decimals.

Invariant: an operand keeps its value. What needs more than 38 digits has no type.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from omnigraph.query import expressions as ex
from omnigraph.schema import catalog as ct
from omnigraph.schema.values import SpeltFloat, as_decimal

SUMMED_DIGITS_MAX: Final = 28
"""Sums of so many digits fit for ten thousand million rows, in any order."""


def exact_type(operand: ex.Expression) -> ct.DecimalType | None:
    """The smallest decimal type that holds an operand: a decimal, an integer or a literal."""
    if isinstance(operand.type, ct.DecimalType):
        return operand.type
    if isinstance(operand, ex.Constant):
        number = exact_number(operand)
        return None if number is None else type_of_number(number)
    return ct.exact_decimal(operand.type) if isinstance(operand.type, ct.ScalarType) else None


def widen(operand: ex.Expression, target: ct.DecimalType) -> ex.Expression:
    """An operand as a decimal of a type that holds it."""
    if operand.type == target:
        return operand
    if isinstance(operand, ex.Constant):
        number = exact_number(operand)
        assert number is not None
        return ex.Constant(value=as_decimal(number, target), type=target)
    return ex.Cast(operand=operand, type=target, lenient=False, nullable=operand.nullable)


def exact_number(constant: ex.Constant) -> Decimal | None:
    """The number that a literal means, digit by digit; None if it is none."""
    match constant.value:
        case bool():
            return None
        case int() | Decimal():
            return Decimal(constant.value)
        case SpeltFloat():
            return Decimal(constant.value.text)
        case _:
            return None


def type_of_number(number: Decimal) -> ct.DecimalType | None:
    """The type with just the digits of a number; None if they are too many."""
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    scale = max(0, -(exponent + zeros)) if number else 0
    integer_digits = max(0, number.adjusted() + 1) if number else 0
    return ct.decimal_type(max(integer_digits + scale, 1), scale)
