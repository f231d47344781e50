"""Which property types hold every value of which others, and how numbers round into them.

Invariant: a conversion that is called total loses nothing, for any stored value.
"""

from __future__ import annotations

import math
import struct
from typing import Final

from omnigraph.schema.catalog import EnumType, Number, PropertyType, Scalar, ScalarType

_WIDER: Final = {
    Scalar.I32: frozenset({Scalar.I64, Scalar.F64}),
    Scalar.U32: frozenset({Scalar.U64, Scalar.I64, Scalar.F64}),
    Scalar.F32: frozenset({Scalar.F64}),
}
_STRING: Final = ScalarType(scalar=Scalar.STRING)
_BLOB: Final = ScalarType(scalar=Scalar.BLOB)
_LIMITS: Final = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}


def widens(old: PropertyType, new: PropertyType) -> bool:
    """Whether `new` is a number type that holds every value of the number type `old`."""
    return (
        isinstance(old, ScalarType)
        and isinstance(new, ScalarType)
        and new.scalar in _WIDER.get(old.scalar, ())
    )


def copies(old: PropertyType, new: PropertyType) -> bool:
    """Whether every value of `old` can be stored in `new`; blobs are never copied."""
    if _BLOB in (old, new):
        return False
    if isinstance(old, EnumType):
        return new == _STRING or (isinstance(new, EnumType) and set(old.values) <= set(new.values))
    return old == new or widens(old, new)


def changes_to(old: PropertyType, new: PropertyType) -> bool:
    """Whether a property may change its type like this; for texts, existing values decide."""
    return old == new or widens(old, new) or (_is_text(old) and _is_text(new))


def _is_text(each: PropertyType) -> bool:
    return isinstance(each, EnumType) or each == _STRING


def keeps_spelling(old: PropertyType, new: PropertyType) -> bool:
    """Whether widening leaves ids as they are: a 32-bit float is spelt by its own width."""
    return not (isinstance(old, ScalarType) and old.scalar is Scalar.F32 and old != new)


def fits(value: int, scalar: Scalar) -> bool:
    """Whether a whole number is within the limits of an integer type."""
    low, high = _LIMITS[scalar]
    return low <= value <= high


def as_stored(value: Number, scalar: Scalar) -> Number | float:
    """A number as a column of this type compares it: floats rounded to their width."""
    if scalar not in (Scalar.F32, Scalar.F64):
        return value
    try:
        rounded = float(value)
        if scalar is Scalar.F32:
            rounded = struct.unpack("<f", struct.pack("<f", rounded))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def within(
    value: Number | float, scalar: Scalar, *, low: Number | None, high: Number | None
) -> bool:
    """Whether a stored value of this type is inside a range of the schema."""
    if low is not None and value < as_stored(low, scalar):
        return False
    return high is None or value <= as_stored(high, scalar)
