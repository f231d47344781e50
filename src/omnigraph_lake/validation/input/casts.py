"""Columns of any Arrow type as columns of a property's type, value by value.

Invariant: a value comes out equal to what went in, or null together with a fault that names its
position; no cast fails as a whole. Floats are the one exception to "equal": F64 rounds to F32.

Strings become dates by ISO 8601. A point in time without a zone is taken as UTC.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake.schema.arrow import arrow_type, find_true
from omnigraph_lake.schema.catalog import (
    DECIMAL_DIGITS_MAX,
    FLOATS,
    DecimalType,
    Scalar,
    ScalarType,
)
from omnigraph_lake.schema.json_text import InvalidJson, JsonText, canonical_value
from omnigraph_lake.schema.values import NUMBER_PATTERN, decimal_of_text
from omnigraph_lake.validation.violations import Reason

_FAILURES: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)
_ZONED: Final = r"[T ].*(Z|z|[+-]\d{2}(:?\d{2})?)$"
_TOO_FINE: Final = re.compile(r"[.,]\d{6}\d*[1-9]")
_MONTH_AND_DAY: Final = (
    r"((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
    r"|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|[12][0-9]))"
)
_CLOCK: Final = (
    r"[T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?"
)
_WHOLE_DECIMALS: Final = pa.decimal128(20, 0)
"""Every integer of 64 bits."""
_ISO_START: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_LIKELY: Final = {
    Scalar.DATE: f"^[0-9]{{4}}-{_MONTH_AND_DAY}$",
    Scalar.DATETIME: f"^[0-9]{{4}}-{_MONTH_AND_DAY}({_CLOCK})?$",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Positions of a column whose values could not be converted."""

    reason: Reason
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """A column of the wanted type, null where a fault is."""

    values: pa.Array
    faults: tuple[Fault, ...] = ()


def cast_scalars(source: pa.Array, scalar: Scalar) -> Cast:  # noqa: PLR0911 - one per kind
    """Convert an array to values of a base type."""
    target = arrow_type(ScalarType(scalar=scalar))
    plain = unwrapped(source)
    if scalar is Scalar.JSON:
        return _cast_json(plain)
    if scalar is Scalar.STRING and _is_text(plain.type):
        return bisected(plain, target, _valid_text, reason=Reason.WRONG_TYPE)
    if plain.type == target:
        return Cast(values=plain)
    if pat.is_null(plain.type):
        return Cast(values=pa.nulls(len(plain), target))
    if not _accepts(scalar, plain.type):
        return refused(plain, target)
    if _is_text(plain.type):
        return _cast_texts(plain, scalar, target)
    convert = _conversion(scalar, plain.type, target)
    return bisected(plain, target, convert, reason=Reason.DOES_NOT_FIT)


def cast_decimals(source: pa.Array, kind: DecimalType) -> Cast:
    """Convert an array to decimals, exactly; a float means the number that it is spelt as."""
    target = arrow_type(kind)
    plain = unwrapped(source)
    if plain.type == target:
        return Cast(values=plain)
    if pat.is_null(plain.type):
        return Cast(values=pa.nulls(len(plain), target))
    if pat.is_integer(plain.type):
        plain = plain.cast(_WHOLE_DECIMALS)
    if pat.is_decimal(plain.type):
        return bisected(
            plain, target, lambda values: values.cast(target), reason=Reason.DOES_NOT_FIT
        )
    if pat.is_floating(plain.type):
        cast = decimals_of_texts(_widened(plain, np.float64).cast(pa.string()), kind)
        bad = sorted(row for fault in cast.faults for row in fault.rows)
        faults = (Fault(reason=Reason.DOES_NOT_FIT, rows=tuple(bad)),) if bad else ()
        return Cast(values=cast.values, faults=faults)
    if not _is_text(plain.type):
        return refused(plain, target)
    return decimals_of_texts(plain.cast(pa.string()), kind)


def decimals_of_texts(texts: pa.StringArray, kind: DecimalType) -> Cast:
    """Numbers as JSON spells them; other texts are of the wrong type."""
    target = arrow_type(kind)
    proper = pc.match_substring_regex(texts, pattern=f"^{NUMBER_PATTERN}$")
    odd = tuple(find_true(pc.invert(proper)).to_pylist())
    numbers = pc.if_else(proper, texts, None) if odd else texts
    cast = bisected(numbers, target, _texts_to_decimals(kind), reason=Reason.DOES_NOT_FIT)
    if not odd:
        return cast
    return Cast(
        values=cast.values, faults=(*cast.faults, Fault(reason=Reason.WRONG_TYPE, rows=odd))
    )


def _texts_to_decimals(kind: DecimalType) -> Callable[[pa.Array], pa.Array]:
    target = arrow_type(kind)

    def convert(texts: pa.Array) -> pa.Array:
        longest = pc.max(pc.binary_length(texts)).as_py() or 0
        if longest <= DECIMAL_DIGITS_MAX:
            return texts.cast(target)
        # Arrow counts all digits of a text, also zeros that say nothing.
        spellings = texts.to_pylist()
        exact = [None if text is None else decimal_of_text(text, kind) for text in spellings]
        if exact.count(None) > spellings.count(None):
            raise OverflowError
        return pa.array(exact, target)

    return convert


def cast_json_values(values: Sequence[object]) -> Cast:
    """Python values as canonical texts; a `str` is a JSON string, and not a text to parse."""
    texts: list[str | None] = []
    bad: list[int] = []
    for position, value in enumerate(values):
        try:
            texts.append(canonical_value(value))
        except InvalidJson:
            texts.append(None)
            bad.append(position)
    faults = (Fault(reason=Reason.BAD_JSON, rows=tuple(bad)),) if bad else ()
    return Cast(values=pa.array(texts, pa.string()), faults=faults)


def json_values_of(source: pa.Array) -> Sequence[object]:
    """The values that a column of any Arrow type has as `Json`: texts are JSON texts."""
    if not _is_text(source.type):
        return _python_values(source)
    try:
        texts = _valid_text(source).to_pylist()
    except _FAILURES:
        texts = [_text_alone(source.slice(row, 1)) for row in range(len(source))]
    return [None if text is None else JsonText(text) for text in texts]


def _cast_json(source: pa.Array) -> Cast:
    return cast_json_values(json_values_of(source))


def _text_alone(source: pa.Array) -> str | None:
    """One text; bytes that are no text are no JSON either."""
    try:
        text: str | None = _valid_text(source)[0].as_py()
    except _FAILURES:
        return ""
    return text


def _python_values(source: pa.Array) -> Sequence[object]:
    """Values of structs, maps, lists and numbers; what Python has no value for stays of Arrow."""
    try:
        return list(source.to_pylist(maps_as_pydicts="strict"))
    except _FAILURES:
        if len(source) == 1:
            return [source[0]]
    half = len(source) // 2
    return [*_python_values(source[:half]), *_python_values(source[half:])]


def cast_whole(source: pa.Array, scalar: Scalar) -> pa.Array | None:
    """All texts at once as dates or timestamps, or None if one of them is invalid."""
    target = arrow_type(ScalarType(scalar=scalar))
    try:
        return _conversion(scalar, source.type, target)(source)
    except _FAILURES:
        return None


def likely_times(texts: pa.Array, scalar: Scalar) -> pa.BooleanArray:
    """Texts of the most common form of dates or timestamps; null for null."""
    return pc.match_substring_regex(texts, pattern=_LIKELY[scalar])


def _cast_texts(source: pa.Array, scalar: Scalar, target: pa.DataType) -> Cast:
    """Bisection would visit every invalid text many times, and there can be many."""
    texts = source if pat.is_string(source.type) else source.cast(pa.large_string())
    cast_values = cast_whole(texts, scalar)
    if cast_values is not None:
        return Cast(values=cast_values)
    likely = likely_times(texts, scalar).fill_null(fill_value=True)
    convert = _conversion(scalar, texts.type, target)
    halved = bisected(pc.if_else(likely, texts, None), target, convert, reason=Reason.WRONG_TYPE)
    bad = [row for fault in halved.faults for row in fault.rows]
    odd = find_true(pc.invert(likely)).to_pylist()
    odd_times = [_time_alone(texts.slice(row, 1), scalar) for row in odd]
    bad += [row for row, odd_time in zip(odd, odd_times, strict=True) if odd_time is None]
    values = halved.values
    if odd_times:
        null = pa.nulls(1, target)
        alone = pa.concat_arrays([null if odd_time is None else odd_time for odd_time in odd_times])
        values = pc.replace_with_mask(values, pc.invert(likely), alone)
    faults = (Fault(reason=Reason.WRONG_TYPE, rows=tuple(sorted(bad))),) if bad else ()
    return Cast(values=values, faults=faults)


def _time_alone(text: pa.Array, scalar: Scalar) -> pa.Array | None:
    """One text in another form; Arrow parses none that begins differently."""
    try:
        time_text = text[0].as_py()
        if scalar is Scalar.DATETIME and _ISO_START.match(time_text):
            return cast_whole(text, scalar)
        value = (
            _time_of(time_text) if scalar is Scalar.DATETIME else dt.date.fromisoformat(time_text)
        )
        return pa.array([value], arrow_type(ScalarType(scalar=scalar)))
    except _FAILURES:
        return None


def _valid_text(texts: pa.Array) -> pa.Array:
    """Arrow does not verify that bytes are text; once stored, such a column is unreadable."""
    plain = texts.cast(pa.string())
    plain.validate(full=True)
    return plain


def refused(source: pa.Array, target: pa.DataType) -> Cast:
    """No value of this array can be converted."""
    rows = tuple(find_true(source.is_valid()).to_pylist())
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
    """Arrow cannot take values from a dictionary of views, which polars produces."""
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
    """Convert all values at once if possible; otherwise bisect down to single values."""
    parts: list[pa.Array] = []
    bad: list[int] = []
    # Without a function that calls itself: the cycle would keep the values until the next garbage
    # collection.
    pending = [(0, len(source))]
    while pending:
        start, length = pending.pop()
        try:
            parts.append(convert(source.slice(start, length)))
        except _FAILURES:
            if length <= 1:
                bad.append(start)
                parts.append(pa.nulls(1, target))
                continue
            half = length // 2
            pending += [(start + half, length - half), (start, half)]
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


def _accepts(scalar: Scalar, kind: pa.DataType) -> bool:  # noqa: PLR0911 - one per kind
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
        case Scalar.JSON:
            return True
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
        values = _widened(values, np.float32)
        narrowed = values.cast(target)
        overflown = pc.and_(pc.is_inf(narrowed), pc.is_finite(values))
        if pc.any(overflown).as_py():
            raise OverflowError
        return narrowed

    return convert


def _widened(values: pa.Array, wider: type[np.floating]) -> pa.Array:
    """Numbers of half precision as wider ones; before 21, pyarrow itself has no cast for them."""
    if not pat.is_float16(values.type):
        return values
    numbers = values.to_numpy(zero_copy_only=False).astype(wider)
    return pa.array(numbers, mask=values.is_null().to_numpy(zero_copy_only=False))


def _integers_to_floats(target: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    def convert(values: pa.Array) -> pa.Array:
        try:
            return values.cast(target)
        except pa.ArrowInvalid:
            # Arrow refuses all values above 2**53 (2**24), although many of them are exact.
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
        return values.cast(pa.date32())
    except pa.ArrowInvalid:
        if len(values) > 1:
            raise
    return pa.array([dt.date.fromisoformat(values[0].as_py())], pa.date32())


def _texts_to_times(values: pa.Array) -> pa.Array:
    target = arrow_type(ScalarType(scalar=Scalar.DATETIME))
    zoned = pc.match_substring_regex(values, pattern=_ZONED)
    try:
        with_zone = pc.if_else(zoned, values, None).cast(target)
        without = pc.if_else(zoned, None, values).cast(pa.timestamp("us")).cast(target)
        return pc.coalesce(with_zone, without)
    except pa.ArrowInvalid:
        if len(values) > 1:
            raise
    return pa.array([_time_of(values[0].as_py())], target)


def _time_of(text: str) -> dt.datetime:
    # Python drops digits beyond microseconds silently.
    if _TOO_FINE.search(text):
        raise ValueError(text)
    moment = dt.datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
