"""Literals of a schema as values of property types, and how columns compare numbers.

Invariant: an accepted literal has the type of its property, and is spelt in one way: equal values
are stored equally.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from decimal import Context, Decimal, InvalidOperation
from typing import Final, assert_never

from omnigraph_lake.schema import ast
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.resolve import literal_value

NUMBER_PATTERN: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
"""A number as JSON spells it."""
_NUMBER: Final = re.compile(NUMBER_PATTERN)
_EXACT: Final = Context(prec=2 * ct.DECIMAL_DIGITS_MAX)
_FLOAT_DIGITS: Final = 15
"""Numbers of so many digits are floats that are spelt alike."""
_LIMITS: Final = {
    ct.Scalar.I32: (-(2**31), 2**31 - 1),
    ct.Scalar.I64: (-(2**63), 2**63 - 1),
    ct.Scalar.U32: (0, 2**32 - 1),
    ct.Scalar.U64: (0, 2**64 - 1),
}


class SpeltFloat(float):
    """A number with a point or an exponent, and how it is written."""

    __slots__ = ("text",)

    def __new__(cls, text: str) -> SpeltFloat:
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __getnewargs__(self) -> tuple[str]:  # type: ignore[override]
        return (self.text,)

    text: str


def float_of_text(text: str) -> float:
    """A number of JSON as a float, with its digits if the float does not mean them.

    Raises:
        OverflowError: it is beyond all floats.
    """
    number = float(text)
    if math.isinf(number):
        raise OverflowError(text)
    is_exact = len(text) <= _FLOAT_DIGITS or Decimal(repr(number)) == Decimal(text)
    return number if is_exact else SpeltFloat(text)


def literal_for(wanted: ct.PropertyType, argument: ast.Literal) -> tuple[ct.Literal | None, str]:
    """The value of this type that a literal means, or None and what to write instead."""
    value = literal_value(argument)
    match wanted:
        case ct.EnumType(values=values):
            text = argument.raw if isinstance(argument, ast.NumberLiteral) else _text(argument)
            return (text, "") if text in values else (None, f"write one of {', '.join(values[:8])}")
        case ct.ScalarType(scalar=scalar):
            bare = isinstance(argument, ast.Word) and argument.text not in ("true", "false")
            return (None, _expected(scalar)) if bare else _scalar(scalar, value)
        case ct.DecimalType():
            return _decimal(wanted, value)
        case ct.ListType() | ct.VectorType():
            return None, "lists and vectors have no literals"
        case _:
            assert_never(wanted)


def _text(argument: ast.StringLiteral | ast.Word) -> str:
    return argument.text if isinstance(argument, ast.Word) else str(literal_value(argument))


def _scalar(scalar: ct.Scalar, value: ct.Literal | None) -> tuple[ct.Literal | None, str]:
    accepted: ct.Literal | None = None
    if scalar is ct.Scalar.BOOL:
        accepted = value if isinstance(value, bool) else None
    elif isinstance(value, bool) or value is None:
        accepted = None
    elif scalar in ct.INTEGERS:
        accepted = value if isinstance(value, int) and fits(value, scalar) else None
    elif scalar in ct.FLOATS:
        accepted = value if isinstance(value, int | Decimal) and _finite(value, scalar) else None
    elif isinstance(value, str):
        accepted = _from_text(scalar, value)
    return accepted, "" if accepted is not None else _expected(scalar)


def _decimal(wanted: ct.DecimalType, value: ct.Literal | None) -> tuple[ct.Literal | None, str]:
    if isinstance(value, bool | str) or value is None or not fits_decimal(value, wanted):
        return None, (
            f"write a number with at most {wanted.integer_digits} digits in front of the point "
            f"and {wanted.scale} behind it"
        )
    return (int(value) if value == int(value) else value), ""


def _finite(value: int | Decimal, scalar: ct.Scalar) -> bool:
    return math.isfinite(as_stored(value, ct.ScalarType(scalar=scalar)))


def _from_text(scalar: ct.Scalar, value: str) -> str | None:
    try:
        if scalar is ct.Scalar.DATE:
            return dt.date.fromisoformat(value).isoformat()
        if scalar is ct.Scalar.DATETIME:
            moment = dt.datetime.fromisoformat(value)
            if moment.tzinfo is None:
                return None
            return moment.astimezone(dt.UTC).isoformat(timespec="microseconds")
    except (ValueError, OverflowError):
        return None
    return value if scalar is ct.Scalar.STRING else None


def _expected(scalar: ct.Scalar) -> str:  # noqa: PLR0911 - one per kind
    match scalar:
        case ct.Scalar.STRING:
            return "write a string in double quotes"
        case ct.Scalar.BOOL:
            return "write `true` or `false`"
        case ct.Scalar.I32 | ct.Scalar.I64 | ct.Scalar.U32 | ct.Scalar.U64:
            return f"write a whole number in the range of {scalar}"
        case ct.Scalar.F32 | ct.Scalar.F64:
            return f"write a number in the range of {scalar}"
        case ct.Scalar.DATE:
            return 'write a date, as "2026-01-31"'
        case ct.Scalar.DATETIME:
            return 'write a timestamp with its offset, as "2026-01-31T12:00:00Z"'
        case ct.Scalar.BLOB:
            return "blobs have no literals"
        case ct.Scalar.JSON:
            return "Json has no literals; make the property nullable"
        case _:
            assert_never(scalar)


def fits(value: int, scalar: ct.Scalar) -> bool:
    """Whether a whole number is within the limits of an integer type."""
    low, high = _LIMITS[scalar]
    return low <= value <= high


def fits_decimal(value: ct.Number, kind: ct.DecimalType) -> bool:
    """Whether a decimal type holds exactly this number."""
    exact = Decimal(value)
    if not exact:
        return True
    _, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int), "a finite number"
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    return exponent + zeros >= -kind.scale and exact.adjusted() < kind.integer_digits


def as_decimal(value: ct.Number, kind: ct.DecimalType) -> Decimal:
    """A number that fits, with exactly the digits of its type behind the point."""
    assert fits_decimal(value, kind)
    number = _EXACT.quantize(Decimal(value), Decimal((0, (1,), -kind.scale)))
    # There is no negative zero, and arithmetic of Python rounds to 28 digits.
    return number or number.copy_abs()


def decimal_of_text(text: str, kind: ct.DecimalType) -> Decimal | None:
    """The decimal that a number of JSON means exactly; None if it does not fit.

    Raises:
        ValueError: the text is no number.
    """
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    try:
        exact = Decimal(text)
    except InvalidOperation:  # an exponent beyond those of Python
        return None
    return as_decimal(exact, kind) if fits_decimal(exact, kind) else None


def spell_decimal(value: Decimal) -> str:
    """A decimal in all its digits, never with an exponent."""
    return f"{value:f}"


def spell_canonical(value: Decimal) -> str:
    """A decimal without zeros behind its last digit, as ids have it."""
    spelling = spell_decimal(value or value.copy_abs())
    return spelling.rstrip("0").rstrip(".") if "." in spelling else spelling


def as_stored(value: ct.Number, kind: ct.NumberType) -> ct.Number | float:
    """A number as a column of this type compares it: floats rounded to their width."""
    if isinstance(kind, ct.DecimalType) or kind.scalar not in ct.FLOATS:
        return value
    try:
        rounded = float(value)
        if kind.scalar is ct.Scalar.F32:
            rounded = struct.unpack("<f", struct.pack("<f", rounded))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def within(
    value: ct.Number | float, kind: ct.NumberType, *, low: ct.Number | None, high: ct.Number | None
) -> bool:
    """Whether a stored value of this type is inside a range of the schema."""
    if low is not None and value < as_stored(low, kind):
        return False
    return high is None or value <= as_stored(high, kind)
