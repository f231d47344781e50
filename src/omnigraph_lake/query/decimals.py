"""Decimals beside other exact numbers: the types that hold both, and those of computed values.

A number in the text of a query means its digits, so that it is a decimal beside decimals.

Invariant: an operand keeps its value. What needs more than 38 digits has no type.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import types as qt
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.values import SpeltFloat, as_decimal, fits_decimal

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


def as_decimals(operands: tuple[ex.Expression, ...]) -> tuple[ex.Expression, ...]:
    """Operands as they are, but the exact ones as decimals if there is a decimal among them."""
    if not any(isinstance(operand.type, ct.DecimalType) for operand in operands):
        return operands
    types = map(exact_type, operands)
    return tuple(
        operand if kind is None else widen(operand, kind)
        for operand, kind in zip(operands, types, strict=True)
    )


def type_of_rounded(kind: ct.DecimalType, digits: int | None) -> ct.DecimalType:
    """The decimals rounded to so many digits behind the point; None if only the run knows them.

    Rounding up can need one more digit in front of the point.
    """
    scale = kind.scale if digits is None else max(digits, 0)
    precision = min(kind.integer_digits + 1 + scale, ct.DECIMAL_DIGITS_MAX)
    return ct.DecimalType(precision=precision, scale=scale)


def quotient_type(dividend: ct.DecimalType, divisor: ct.DecimalType) -> ct.DecimalType:
    """The integral quotients; they have the most digits if the divisor is its smallest unit."""
    digits = max(dividend.integer_digits + divisor.scale, 1)
    return ct.DecimalType(precision=min(digits, ct.DECIMAL_DIGITS_MAX), scale=0)


def remainder_type(dividend: ct.DecimalType, divisor: ct.DecimalType) -> ct.DecimalType:
    """The remainders, which are below both operands."""
    digits = min(dividend.integer_digits, divisor.integer_digits)
    scale = max(dividend.scale, divisor.scale)
    return ct.DecimalType(precision=digits + scale, scale=scale)


def exact_list(collection: ex.Expression, item: qt.ExpressionType) -> ex.Expression:
    """A list in the text as decimals of the type of an item, without those that it cannot be."""
    if not isinstance(collection, ex.Constant) or not isinstance(item, ct.DecimalType):
        return collection
    assert isinstance(collection.value, tuple)
    constants = [ex.Constant(value=value, type=qt.F64) for value in collection.value]
    numbers = [exact_number(constant) for constant in constants]
    exact = [number for number in numbers if number is not None]
    if len(exact) < len(numbers):
        return collection
    fitting = tuple(as_decimal(number, item) for number in exact if fits_decimal(number, item))
    return ex.Constant(value=fitting, type=qt.DecimalList(item=item))


def item_decimals(collection: ex.Expression) -> ct.DecimalType | None:
    """The decimals that hold the items of a list; None if they are no exact numbers."""
    match collection.type:
        case qt.DecimalList():
            return collection.type.item
        case ct.ListType():
            return ct.exact_decimal(ct.ScalarType(scalar=collection.type.item))
        case _:
            return None


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
