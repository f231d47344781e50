"""Columns of any Arrow type as columns of a property's type, value by value.

Invariant: a value comes out equal to what went in, or null together with a fault that names its
position; no cast fails as a whole. Floats are the one exception to "equal": F64 rounds to F32.

Strings become dates by ISO 8601. A point in time without a zone is taken as UTC.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, assert_never

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph.rules.reasons import Reason
from omnigraph.schema.arrow import arrow_type
from omnigraph.schema.catalog import FLOATS, Scalar, ScalarType

_FAILURES: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)
_ZONED: Final = r"[T ].*(Z|z|[+-]\d{2}(:?\d{2})?)$"
_TOO_FINE: Final = re.compile(r"[.,]\d{6}\d*[1-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Positions of a column whose values could not be taken over."""

    reason: Reason
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """A column of the wanted type, null where a fault is."""

    values: pa.Array
    faults: tuple[Fault, ...] = ()


def cast_scalars(source: pa.Array, scalar: Scalar) -> Cast:
    """Take over an array as values of a base type."""
    target = arrow_type(ScalarType(scalar=scalar))
    plain = unwrapped(source)
    if scalar is Scalar.STRING and _is_text(plain.type):
        return bisected(plain, target, _valid_text, reason=Reason.WRONG_TYPE)
    if plain.type == target:
        return Cast(values=plain)
    if pat.is_null(plain.type):
        return Cast(values=pa.nulls(len(plain), target))
    if not _accepts(scalar, plain.type):
        return refused(plain, target)
    reason = Reason.WRONG_TYPE if _is_text(plain.type) else Reason.DOES_NOT_FIT
    return bisected(plain, target, _conversion(scalar, plain.type, target), reason=reason)


def _valid_text(texts: pa.Array) -> pa.Array:
    """Arrow believes whoever says that bytes are text; once stored, such a column is unreadable."""
    plain = texts.cast(pa.string())
    plain.validate(full=True)
    return plain


def refused(source: pa.Array, target: pa.DataType) -> Cast:
    """Nothing of this array can be taken over."""
    rows = tuple(pc.indices_nonzero(source.is_valid()).to_pylist())
    faults = (Fault(reason=Reason.WRONG_TYPE, rows=rows),) if rows else ()
    return Cast(values=pa.nulls(len(source), target), faults=faults)


def unwrapped(source: pa.Array) -> pa.Array:
    """The values behind dictionaries, runs and extension types."""
    if isinstance(source, pa.ExtensionArray):
        return unwrapped(source.storage)
    if pat.is_dictionary(source.type):
        return unwrapped(_decodable(source).dictionary_decode())
    if pat.is_run_end_encoded(source.type):
        return unwrapped(pc.run_end_decode(source))
    return source


def _decodable(source: pa.DictionaryArray) -> pa.DictionaryArray:
    """Arrow cannot pick values out of a dictionary of views, which polars likes to send."""
    kind = source.dictionary.type
    if not (pat.is_string_view(kind) or pat.is_binary_view(kind)):
        return source
    plain = source.dictionary.cast(pa.string() if pat.is_string_view(kind) else pa.binary())
    return pa.DictionaryArray.from_arrays(source.indices, plain)


def bisected(
    source: pa.Array,
    target: pa.DataType,
    convert: Callable[[pa.Array], pa.Array],
    *,
    reason: Reason,
) -> Cast:
    """Convert in one piece if possible; halve what fails until single values are left."""
    parts: list[pa.Array] = []
    bad: list[int] = []

    def attempt(start: int, length: int) -> None:
        try:
            parts.append(convert(source.slice(start, length)))
        except _FAILURES:
            if length <= 1:
                bad.append(start)
                parts.append(pa.nulls(1, target))
                return
            half = length // 2
            attempt(start, half)
            attempt(start + half, length - half)

    attempt(0, len(source))
    faults = (Fault(reason=reason, rows=tuple(bad)),) if bad else ()
    return Cast(values=parts[0] if len(parts) == 1 else pa.concat_arrays(parts), faults=faults)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pat.is_binary(kind)
        or pat.is_large_binary(kind)
        or pat.is_binary_view(kind)
        or pat.is_fixed_size_binary(kind)
    )


def _accepts(scalar: Scalar, kind: pa.DataType) -> bool:
    match scalar:
        case Scalar.STRING:
            return _is_text(kind)
        case Scalar.BLOB:
            return _is_bytes(kind)
        case Scalar.BOOL:
            return bool(pat.is_boolean(kind))
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            return bool(pat.is_integer(kind) or pat.is_floating(kind) or pat.is_decimal(kind))
        case Scalar.F32 | Scalar.F64:
            return bool(pat.is_integer(kind) or pat.is_floating(kind))
        case Scalar.DATE | Scalar.DATETIME:
            return bool(pat.is_date(kind) or pat.is_timestamp(kind) or _is_text(kind))
        case _:
            assert_never(scalar)


def _conversion(
    scalar: Scalar, kind: pa.DataType, target: pa.DataType
) -> Callable[[pa.Array], pa.Array]:
    if scalar in FLOATS:
        return _integers_to_floats(target) if pat.is_integer(kind) else _floats(target)
    if scalar is Scalar.DATE:
        return _texts_to_dates if _is_text(kind) else _times_to_dates
    if scalar is Scalar.DATETIME and _is_text(kind):
        return _texts_to_times
    return lambda values: values.cast(target)


def _floats(target: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    def convert(values: pa.Array) -> pa.Array:
        narrowed = values.cast(target)
        overflown = pc.and_(pc.is_inf(narrowed), pc.is_finite(values))
        if pc.any(overflown).as_py():
            raise OverflowError
        return narrowed

    return convert


def _integers_to_floats(target: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    def convert(values: pa.Array) -> pa.Array:
        try:
            return values.cast(target)
        except pa.ArrowInvalid:
            # Arrow refuses whatever is above 2**53 (2**24), though many of these are exact.
            if len(values) > 1:
                raise
        exact = values[0].as_py()
        stored = pa.array([float(exact)], pa.float64()).cast(target)
        if stored[0].as_py() != exact:
            raise OverflowError
        return stored

    return convert


def _times_to_dates(values: pa.Array) -> pa.Array:
    days = values.cast(pa.date32())
    if pat.is_timestamp(values.type) and values.type.tz is not None:
        days = values.cast(pa.timestamp(values.type.unit, "UTC")).cast(pa.date32())
    if pat.is_timestamp(values.type):
        midnight = days.cast(pa.timestamp(values.type.unit)).cast(pa.int64())
        if pc.any(pc.not_equal(midnight, values.cast(pa.int64()))).as_py():
            raise OverflowError
    return days


def _texts_to_dates(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string()).cast(pa.date32())
    except pa.ArrowInvalid:
        if len(values) > 1:
            raise
    return pa.array([dt.date.fromisoformat(values[0].as_py())], pa.date32())


def _texts_to_times(values: pa.Array) -> pa.Array:
    target = arrow_type(ScalarType(scalar=Scalar.DATETIME))
    texts = values.cast(pa.string())
    zoned = pc.match_substring_regex(texts, pattern=_ZONED)
    try:
        with_zone = pc.if_else(zoned, texts, None).cast(target)
        without = pc.if_else(zoned, None, texts).cast(pa.timestamp("us")).cast(target)
        return pc.coalesce(with_zone, without)
    except pa.ArrowInvalid:
        if len(values) > 1:
            raise
    text = texts[0].as_py()
    # Python drops digits beyond microseconds without a word.
    if _TOO_FINE.search(text):
        raise ValueError(text)
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return pa.array([moment], target)
