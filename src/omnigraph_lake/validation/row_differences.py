"""Compare the values of rows, column by column.

Invariant: a missing value equals a missing one, and NaN equals NaN; the two zeros differ.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

Mask: TypeAlias = npt.NDArray[np.bool_]


def differ(left: pa.Array, right: pa.Array) -> Mask:
    """Where two columns differ: numbers by value, other values of different types always."""
    if left.type != right.type:
        wider = _wider(left.type, right.type)
        if wider is None:
            return as_mask(pc.or_(left.is_valid(), right.is_valid()))
        left, right = left.cast(wider), right.cast(wider)
    return as_mask(pc.xor(left.is_valid(), right.is_valid())) | (
        _lists_differ(left, right) if pat.is_nested(left.type) else _values_differ(left, right)
    )


_WIDENINGS: Final = frozenset(
    {
        (pa.int32(), pa.int64()),
        (pa.int32(), pa.float64()),
        (pa.uint32(), pa.uint64()),
        (pa.uint32(), pa.int64()),
        (pa.uint32(), pa.float64()),
        (pa.float32(), pa.float64()),
    }
)
"""The types that a change of a schema widens, each with one that holds all of its values."""
_DECIMAL_DIGITS_MAX: Final = 38
_INTEGER_DIGITS: Final = {pa.int32(): 10, pa.uint32(): 10, pa.int64(): 19, pa.uint64(): 20}


def _wider(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    for number, decimal in ((left, right), (right, left)):
        if pat.is_integer(number) and pat.is_decimal(decimal):
            holds_all = decimal.precision - decimal.scale >= _INTEGER_DIGITS[number]
            return decimal if holds_all else None
    if pat.is_decimal(left) and pat.is_decimal(right):
        scale = max(left.scale, right.scale)
        digits = max(left.precision - left.scale, right.precision - right.scale) + scale
        return pa.decimal128(digits, scale) if digits <= _DECIMAL_DIGITS_MAX else None
    if (left, right) in _WIDENINGS:
        return right
    return left if (right, left) in _WIDENINGS else None


def _values_differ(left: pa.Array, right: pa.Array) -> Mask:
    if not pat.is_floating(left.type):
        return as_mask(pc.not_equal(left, right))
    bits = {32: pa.int32(), 64: pa.int64()}[left.type.bit_width]
    numbers = pc.invert(pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return as_mask(pc.and_(pc.not_equal(left.view(bits), right.view(bits)), numbers))


def _lists_differ(left: pa.Array, right: pa.Array) -> Mask:
    different = as_mask(pc.not_equal(pc.list_value_length(left), pc.list_value_length(right)))
    alike = np.flatnonzero(~different & as_mask(pc.and_(left.is_valid(), right.is_valid())))
    left, right = left.take(pa.array(alike)), right.take(pa.array(alike))
    items = differ(pc.list_flatten(left), pc.list_flatten(right))
    different[alike[pc.list_parent_indices(left).to_numpy()[items]]] = True
    return different


def as_mask(values: pa.BooleanArray) -> Mask:
    mask: Mask = values.fill_null(fill_value=False).to_numpy(zero_copy_only=False)
    return mask
