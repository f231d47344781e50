"""Values that were decoded by type, or cut out of texts, as Arrow columns; and which are doubted.

Invariant: a value that is not doubted comes out as `take_in` would take it over from its JSON. To
doubt too much costs time, to doubt too little would let a wrong value pass.

Why a value of the right JSON type is doubted: a float may have been an integer that no float is
equal to; a text may be no date, or a date in a form that Arrow does not know; a blob may be no
base64. Why a text that Arrow can convert is doubted: Arrow also takes `007`, `0x1F`, `.5` and `NaN`
for numbers, so a number has to match the grammar of JSON first.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, assert_never

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.arrow import arrow_type
from omnigraph_lake.schema.json_text import InvalidJson, canonical_with_names
from omnigraph_lake.validation.input.casts import (
    bisected,
    cast_scalars,
    cast_whole,
    decimals_of_texts,
    likely_times,
)
from omnigraph_lake.validation.json_encoding import BLOB_PREFIX
from omnigraph_lake.validation.violations import Reason

Mask = npt.NDArray[np.bool_]

# From here on not every integer is a float of that width.
_EXACT_BELOW: Final = {ct.Scalar.F32: 2.0**24, ct.Scalar.F64: 2.0**53}
_INTEGER: Final = "-?(?:0|[1-9][0-9]*)"
_NUMBER: Final = rf"{_INTEGER}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_STRINGS: Final = msgspec.json.Decoder(list[str])
_CANNOT_BUILD: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column in the property's type, or in one that `take_in` takes over value by value.

    `names` counts the names inside the values, if they can have any.
    """

    values: pa.Array
    doubted: Mask | None = None
    names: npt.NDArray[np.int64] | None = None


class Spelling(Enum):
    """How a value is written in a JSON text that has no escapes."""

    QUOTED = "text"
    LISTED = "list"
    BARE = "bare"


def spelling_of(kind: ct.PropertyType) -> Spelling | None:
    """How every value of a property is written; None if that differs between values or items."""
    match kind:
        case ct.ScalarType(scalar=ct.Scalar.JSON):
            return None
        case ct.ScalarType():
            return _spelling_of_scalar(kind.scalar)
        case ct.DecimalType():
            return Spelling.BARE
        case ct.EnumType():
            return Spelling.QUOTED
        case ct.ListType():
            bare = _spelling_of_scalar(kind.item) is Spelling.BARE
            return Spelling.LISTED if bare else None
        case ct.VectorType():
            return Spelling.LISTED
        case _:
            assert_never(kind)


def _spelling_of_scalar(scalar: ct.Scalar) -> Spelling:
    match scalar:
        case ct.Scalar.STRING | ct.Scalar.BLOB | ct.Scalar.DATE | ct.Scalar.DATETIME:
            return Spelling.QUOTED
        case ct.Scalar.BOOL | ct.Scalar.F32 | ct.Scalar.F64:
            return Spelling.BARE
        case ct.Scalar.JSON:
            raise AssertionError("values of Json have no common spelling")
        case ct.Scalar.I32 | ct.Scalar.I64 | ct.Scalar.U32 | ct.Scalar.U64:
            return Spelling.BARE
        case _:
            assert_never(scalar)


def spelled_column(  # noqa: PLR0911 - one per type
    texts: pa.StringArray, kind: ct.PropertyType
) -> Column:
    """The column of values that are written in the one way that `spelling_of` names.

    The texts have no quotes or brackets around them, and none is null.
    """
    match kind:
        case ct.ScalarType(scalar=ct.Scalar.BLOB):
            return _blobs(texts.to_pylist())
        case ct.ScalarType(scalar=(ct.Scalar.DATE | ct.Scalar.DATETIME) as scalar):
            return dates(texts, scalar)
        case ct.ScalarType(scalar=ct.Scalar.STRING) | ct.EnumType():
            return Column(values=texts)
        case ct.ScalarType():
            return _bare_scalars(texts, kind.scalar)
        case ct.DecimalType():
            is_null = pc.equal(texts, "null")
            return decimals(pc.if_else(is_null, None, texts), kind)
        case ct.ListType():
            return _bare_lists(texts, kind.item)
        case ct.VectorType():
            return _bare_lists(texts, ct.Scalar.F32)
        case _:
            assert_never(kind)


def unescape(texts: pa.StringArray) -> tuple[pa.StringArray, Mask]:
    """Contents of JSON strings as the texts that they mean, and which of them are doubted."""
    escaped = pc.match_substring(texts, pattern="\\")
    mask = _mask(escaped)
    if not mask.any():
        return texts, mask
    quoted = '","'.join(texts.filter(escaped).to_pylist())
    try:
        meant = pa.array(_STRINGS.decode(f'["{quoted}"]'), pa.string())
        return pc.replace_with_mask(texts, escaped, meant), np.zeros(len(texts), np.bool_)
    except (msgspec.MsgspecError, *_CANNOT_BUILD):
        return texts, mask


def _bare_scalars(texts: pa.StringArray, scalar: ct.Scalar) -> Column:
    """Texts of numbers, `true` and `false`; the text `null` is null."""
    target = arrow_type(ct.ScalarType(scalar=scalar))
    if scalar in ct.INTEGERS and (numbers := _canonical_integers(texts, target)) is not None:
        return Column(values=numbers)
    proper = pc.match_substring_regex(texts, pattern=f"^{_grammar(scalar)}$")
    if pc.all(proper).as_py():
        return _proper_scalars(texts, scalar)
    column = _proper_scalars(pc.if_else(proper, texts, None), scalar)
    odd = _mask(pc.invert(pc.or_(proper, pc.equal(texts, "null"))))
    return Column(
        values=column.values, doubted=odd if column.doubted is None else odd | column.doubted
    )


def _proper_scalars(texts: pa.StringArray, scalar: ct.Scalar) -> Column:
    """Texts that match the grammar of the type, or are null."""
    if scalar is ct.Scalar.BOOL:
        return Column(values=pc.equal(texts, "true"))
    if scalar in ct.FLOATS:
        return _spelled_floats(texts, scalar)
    target = arrow_type(ct.ScalarType(scalar=scalar))
    cast = bisected(texts, target, lambda part: part.cast(target), reason=Reason.DOES_NOT_FIT)
    doubted = np.zeros(len(texts), np.bool_)
    for fault in cast.faults:
        doubted[list(fault.rows)] = True
    return Column(values=cast.values, doubted=doubted)


def _canonical_integers(texts: pa.StringArray, target: pa.DataType) -> pa.Array | None:
    """The integers, if every text is what Arrow writes for one: cheaper than a pattern."""
    try:
        numbers = texts.cast(target)
    except pa.ArrowInvalid:
        return None
    return numbers if numbers.cast(pa.string()).equals(texts) else None


def _grammar(scalar: ct.Scalar) -> str:
    if scalar is ct.Scalar.BOOL:
        return "(?:true|false)"
    return _NUMBER if scalar in ct.FLOATS else _INTEGER


def _spelled_floats(texts: pa.StringArray, scalar: ct.Scalar) -> Column:
    values = texts.cast(pa.float64())
    plain = values.to_numpy(zero_copy_only=False)
    doubted: Mask = np.isinf(plain)
    large = large_floats(values, scalar)
    if large.any():
        doubted |= large & ~_mask(pc.match_substring_regex(texts, pattern="[.eE]"))
    # An integer has no negative zero.
    negative_zeros = (plain == 0) & np.signbit(plain)
    if negative_zeros.any():
        doubted |= _mask(pc.equal(texts, "-0"))
    return Column(values=values, doubted=doubted)


def _bare_lists(texts: pa.StringArray, item: ct.Scalar) -> Column:
    """Texts of values with commas between them; the list of an empty text is empty."""
    # Programs put the same space after every comma, or none.
    comma = ", " if ", " in texts[0].as_py() else ","
    same = f"^{_grammar(item)}(?:{comma}{_grammar(item)})*$"
    if pc.all(pc.match_substring_regex(texts, pattern=same)).as_py():
        lists = pc.split_pattern(texts, pattern=comma)
        return _list_column(_proper_scalars(pc.list_flatten(lists), item), _lengths(lists))
    lists = pc.split_pattern(texts, pattern=",")
    empty = _mask(pc.equal(pc.ascii_trim(texts, characters=" "), ""))
    lengths = np.where(empty, 0, _lengths(lists))
    items = pc.list_flatten(lists.filter(pa.array(~empty)))
    return _list_column(_bare_scalars(pc.ascii_trim(items, characters=" "), item), lengths)


def _lengths(lists: pa.ListArray) -> npt.NDArray[np.int64]:
    lengths: npt.NDArray[np.int64] = pc.list_value_length(lists).to_numpy().astype(np.int64)
    return lengths


def _list_column(items: Column, lengths: npt.NDArray[np.int64]) -> Column:
    """Lists of items, each of which is doubted where an item is."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    doubted = np.zeros(len(lengths), np.bool_)
    if items.doubted is not None:
        doubted[np.repeat(np.arange(len(lengths)), lengths)[items.doubted]] = True
    values = pa.ListArray.from_arrays(pa.array(offsets), items.values)
    return Column(values=values, doubted=doubted)


def typed_column(values: Sequence[Any], kind: ct.PropertyType) -> Column | None:
    """The column of decoded values, null for None; None if Arrow cannot hold one of them."""
    try:
        return _typed(values, kind)
    except _CANNOT_BUILD:
        return None


def unknown_column(length: int, kind: ct.PropertyType) -> Column:
    """Stands for a column that cannot be built: every row of it is doubted."""
    return Column(values=pa.nulls(length, arrow_type(kind)), doubted=np.ones(length, np.bool_))


def _typed(  # noqa: PLR0911 - one per type
    values: Sequence[Any], kind: ct.PropertyType
) -> Column:
    target = arrow_type(kind)
    match kind:
        case ct.ScalarType(scalar=ct.Scalar.BLOB):
            return _blobs(values)
        case ct.ScalarType(scalar=(ct.Scalar.DATE | ct.Scalar.DATETIME) as scalar):
            return dates(pa.array(values, pa.string()), scalar)
        case ct.ScalarType(scalar=ct.Scalar.JSON):
            return _json(values)
        case ct.ScalarType(scalar=(ct.Scalar.F32 | ct.Scalar.F64) as scalar):
            return _floats(values, scalar)
        case ct.ScalarType() | ct.EnumType():
            return Column(values=pa.array(values, target))
        case ct.DecimalType():
            return decimals(pa.array(map(_decimal_text, values), pa.string()), kind)
        case ct.ListType():
            return _lists(values, kind.item, target)
        case ct.VectorType():
            return _lists(values, ct.Scalar.F32, target)
        case _:
            assert_never(kind)


def decimals(texts: pa.StringArray, kind: ct.DecimalType) -> Column:
    """Numbers in the spelling of JSON as decimals; whatever does not fit is doubted."""
    cast = decimals_of_texts(texts, kind)
    doubted = np.zeros(len(texts), np.bool_)
    for fault in cast.faults:
        doubted[list(fault.rows)] = True
    return Column(values=cast.values, doubted=doubted)


def _decimal_text(value: msgspec.Raw | None) -> str | None:
    """A number, or the text of one, as it is written; escapes are no digits, so they remain."""
    if value is None:
        return None
    token = bytes(value).decode()
    return token[1:-1] if token.startswith('"') else token


def _json(values: Sequence[msgspec.Raw | None]) -> Column:
    """Canonical texts of JSON texts; those that have none are doubted."""
    texts: list[str | None] = []
    doubted = np.zeros(len(values), np.bool_)
    names = np.zeros(len(values), np.int64)
    for row, value in enumerate(values):
        text = None
        if value is not None:
            try:
                text, names[row] = canonical_with_names(bytes(value).decode())
            except (InvalidJson, UnicodeDecodeError):
                doubted[row] = True
        texts.append(text)
    return Column(values=pa.array(texts, pa.string()), doubted=doubted, names=names)


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
