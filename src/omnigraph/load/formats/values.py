"""Values that were decoded by type, as Arrow columns; and which of them are better looked at again.

Invariant: a value that is not doubted comes out as `take_in` would take it over from its JSON. To
doubt too much costs time, to doubt too little would let a wrong value pass.

Why a value of the right JSON type is doubted: a float may have been an integer that no float is
equal to; a text may be no date, or a date in a form that Arrow does not know; a blob may be no
base64.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema import catalog as ct
from omnigraph.schema.arrow import arrow_type
from omnigraph.validation.input.casts import cast_scalars, cast_whole, likely_times
from omnigraph.validation.json_encoding import BLOB_PREFIX

Mask = npt.NDArray[np.bool_]

# From here on not every integer is a float of that width.
_EXACT_BELOW: Final = {ct.Scalar.F32: 2.0**24, ct.Scalar.F64: 2.0**53}
_CANNOT_BUILD: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column in the property's type, or in one that `take_in` takes over value by value."""

    values: pa.Array
    doubted: Mask | None = None


def typed_column(values: Sequence[Any], kind: ct.PropertyType) -> Column | None:
    """The column of decoded values, null for None; None if Arrow cannot hold one of them."""
    try:
        return _typed(values, kind)
    except _CANNOT_BUILD:
        return None


def unknown_column(length: int, kind: ct.PropertyType) -> Column:
    """Stands for a column that cannot be built: every row of it is doubted."""
    return Column(values=pa.nulls(length, arrow_type(kind)), doubted=np.ones(length, np.bool_))


def _typed(values: Sequence[Any], kind: ct.PropertyType) -> Column:
    target = arrow_type(kind)
    match kind:
        case ct.ScalarType(scalar=ct.Scalar.BLOB):
            return _blobs(values)
        case ct.ScalarType(scalar=(ct.Scalar.DATE | ct.Scalar.DATETIME) as scalar):
            return dates(pa.array(values, pa.string()), scalar)
        case ct.ScalarType(scalar=(ct.Scalar.F32 | ct.Scalar.F64) as scalar):
            return _floats(values, scalar)
        case ct.ScalarType() | ct.EnumType():
            return Column(values=pa.array(values, target))
        case ct.ListType():
            return _lists(values, kind.item, target)
        case ct.VectorType():
            return _lists(values, ct.Scalar.F32, target)
        case _:
            assert_never(kind)


def dates(texts: pa.Array, scalar: ct.Scalar) -> Column:
    """Texts as dates or points in time, all at once if every text is valid."""
    values = cast_whole(texts, scalar)
    if values is not None:
        return Column(values=values)
    likely = likely_times(texts, scalar)
    doubted = _mask(pc.invert(likely))
    left = pc.if_else(likely, texts, None)
    values = cast_whole(left, scalar)
    if values is None:
        cast = cast_scalars(left, scalar)
        values = cast.values
        for fault in cast.faults:
            doubted[list(fault.rows)] = True
    return Column(values=values, doubted=doubted)


def large_floats(values: pa.Array, scalar: ct.Scalar) -> Mask:
    """The floats that an integer may have been rounded to."""
    return _mask(pc.greater_equal(pc.abs(values), _EXACT_BELOW[scalar]))


def _floats(values: Sequence[Any], scalar: ct.Scalar) -> Column:
    try:
        wide = pa.array(values, pa.float64())
    except pa.ArrowInvalid:
        wide = pa.array([float(v) if isinstance(v, int) else v for v in values], pa.float64())
    doubted = large_floats(wide, scalar)
    for row in np.flatnonzero(doubted).tolist():
        doubted[row] = isinstance(values[row], int)
    return Column(values=wide, doubted=doubted)


def _lists(values: Sequence[list[Any] | None], item: ct.Scalar, target: pa.DataType) -> Column:
    if item in (ct.Scalar.DATE, ct.Scalar.DATETIME):
        return Column(values=pa.array(values, pa.list_(pa.string())))
    if item not in ct.FLOATS:
        return Column(values=pa.array(values, target))
    lists = pa.array(values, pa.list_(pa.float64()))
    large = pc.list_parent_indices(lists).to_numpy()[large_floats(pc.list_flatten(lists), item)]
    doubted = np.zeros(len(lists), np.bool_)
    for row in np.unique(large).tolist():
        doubted[row] = any(isinstance(number, int) for number in values[row] or ())
    return Column(values=lists, doubted=doubted)


def _blobs(values: Sequence[str | None]) -> Column:
    contents = [None if value is None else blob_bytes(value) for value in values]
    doubted = [
        content is None and value is not None
        for content, value in zip(contents, values, strict=True)
    ]
    return Column(values=pa.array(contents, pa.large_binary()), doubted=np.array(doubted, np.bool_))


def blob_bytes(text: str) -> bytes | None:
    """The bytes that a text of the form `base64:...` encodes, or None if it has another form."""
    if not isinstance(text, str):
        raise TypeError(type(text).__name__)
    if not text.startswith(BLOB_PREFIX):
        return None
    try:
        return base64.b64decode(text[len(BLOB_PREFIX) :], validate=True)
    except (binascii.Error, ValueError):
        return None


def _mask(values: pa.Array) -> Mask:
    mask: Mask = np.array(pc.fill_null(values, fill_value=False).to_numpy(zero_copy_only=False))
    return mask
