"""Decimals computed from Arrow arrays, where the SQL of an engine would round them.

Invariant: a result is exact, or null where the type of the result does not hold it.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.query.ast import BinaryOperator
from omnigraph_lake.schema.arrow import arrow_type
from omnigraph_lake.schema.catalog import DECIMAL_DIGITS_MAX, DecimalType
from omnigraph_lake.schema.values import (
    as_decimal,
    decimal_of_text,
    fits_decimal,
    spell_canonical,
    spell_decimal,
)

_EXACT: Final = Context(prec=3 * DECIMAL_DIGITS_MAX, rounding=ROUND_HALF_UP)
_OPERATIONS: Final[dict[BinaryOperator, Callable[[Decimal, Decimal], Decimal]]] = {
    BinaryOperator.ADD: _EXACT.add,
    BinaryOperator.SUBTRACT: _EXACT.subtract,
    BinaryOperator.MULTIPLY: _EXACT.multiply,
}


def compute_decimals(
    operator: BinaryOperator, kind: DecimalType
) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """The function that adds, subtracts or multiplies arrays of decimals."""

    def compute(left: pa.Array, right: pa.Array) -> pa.Array:
        operate = _OPERATIONS[operator]
        results = [
            None if one is None or other is None else operate(one, other)
            for one, other in zip(left.to_pylist(), right.to_pylist(), strict=True)
        ]
        fitting = [
            as_decimal(result, kind) if result is not None and fits_decimal(result, kind) else None
            for result in results
        ]
        return pa.array(fitting, arrow_type(kind))

    return compute


def negate_decimals(numbers: pa.Array) -> pa.Array:
    """Decimals with the other sign."""
    return pc.negate(numbers)


def drop_signs(numbers: pa.Array) -> pa.Array:
    """Decimals without their sign."""
    return pc.abs(numbers)


def fit_texts(texts: pa.Array, precisions: pa.Array, scales: pa.Array) -> pa.Array:
    """Numbers in the spelling of JSON with the digits of a type; null where they do not fit."""
    spellings = [
        None if text is None else _fit(text, DecimalType(precision=precision, scale=scale))
        for text, precision, scale in zip(
            texts.to_pylist(), precisions.to_pylist(), scales.to_pylist(), strict=True
        )
    ]
    return pa.array(spellings, pa.string())


def _fit(text: str, kind: DecimalType) -> str | None:
    try:
        number = decimal_of_text(text, kind)
    except ValueError:
        return None
    return None if number is None else spell_decimal(number)


def divide_texts(dividends: pa.Array, divisors: pa.Array) -> pa.Array:
    """Integral quotients, cut toward zero; null where they have too many digits."""

    def divide(dividend: str, divisor: str) -> str | None:
        return _spell_fitting(_EXACT.divide_int(Decimal(dividend), Decimal(divisor)), 0)

    pairs = zip(dividends.to_pylist(), divisors.to_pylist(), strict=True)
    return pa.array([None if None in pair else divide(*pair) for pair in pairs], pa.string())


def round_texts(texts: pa.Array, digits: pa.Array, scales: pa.Array) -> pa.Array:
    """Decimals rounded, halves away from zero, with the digits of a scale behind the point."""

    def convert(text: str, places: int, scale: int) -> str | None:
        unit = Decimal(1).scaleb(-max(min(places, scale), -2 * DECIMAL_DIGITS_MAX))
        return _spell_fitting(_EXACT.quantize(Decimal(text), unit), scale)

    rows = zip(texts.to_pylist(), digits.to_pylist(), scales.to_pylist(), strict=True)
    return pa.array([None if None in row else convert(*row) for row in rows], pa.string())


def _spell_fitting(number: Decimal, scale: int) -> str | None:
    widest = DecimalType(precision=DECIMAL_DIGITS_MAX, scale=scale)
    return spell_decimal(as_decimal(number, widest)) if fits_decimal(number, widest) else None


def spell_texts(texts: pa.Array) -> pa.Array:
    """Decimals in the spelling of any engine as ids spell them."""
    spellings = [
        None if text is None else spell_canonical(Decimal(text)) for text in texts.to_pylist()
    ]
    return pa.array(spellings, pa.string())
