"""Functions of the language over Arrow arrays, one for every engine that calls them.

DuckDB calls a kernel as a function of its own, Spark in its tasks.

Invariants:
- Arrays are equally long. A null argument gives null, and no kernel raises because of a value.
- A kernel that `can_fail` gives null where a value is refused, and for no other arguments: whether
  that is an error or a null is decided by its caller.
- A kernel imports nothing of a query, so that tasks of Spark start quickly.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.engine.expressions.decimal_values import (
    divide_texts,
    fit_texts,
    round_texts,
    spell_texts,
)
from omnigraph_lake.engine.expressions.letter_case import lower_case, upper_case
from omnigraph_lake.ids import shortest_f32
from omnigraph_lake.schema.catalog import Scalar
from omnigraph_lake.schema.json_text import (
    ABSENT,
    WHOLE_PATH,
    Absent,
    InvalidJson,
    JsonKind,
    canonical_text,
    kind_of,
    parse_path,
    python_value,
    value_at,
)

Compute: TypeAlias = Callable[..., pa.Array]

CANNOT_CAST: Final = "a value cannot be converted"
OUTSIDE_OF_YEARS: Final = "a time is outside of the years 1 to 9999"
TOO_MANY_DIGITS: Final = "a decimal does not fit into 38 digits"
USE_SMALLER_NUMBERS: Final = "Use smaller numbers, or floats."
_NEXT_STEPS: Final = {
    CANNOT_CAST: "Use `try_cast`, which gives null for such values.",
    OUTSIDE_OF_YEARS: "Add less, or choose with `case` which times to change.",
}


def next_step_after(refusal: str) -> str:
    """What to do about a value that an expression refuses; its text may end with the value."""
    for why, next_step in _NEXT_STEPS.items():
        if refusal.startswith(why):
            return next_step
    return USE_SMALLER_NUMBERS


class Kernel(enum.StrEnum):
    """The kernels; the value is part of their name in SQL."""

    LOWER = "lower"
    UPPER = "upper"
    MATCHES = "matches"
    ROUND_I64 = "round_i64"
    ROUND_F64 = "round_f64"
    FLOOR = "floor"
    CEIL = "ceil"
    ADD_TIME = "add_time"
    TEXT_TO_I64 = "text_to_i64"
    TEXT_TO_U64 = "text_to_u64"
    TEXT_TO_F64 = "text_to_f64"
    TEXT_TO_BOOL = "text_to_bool"
    TEXT_TO_DATE = "text_to_date"
    TEXT_TO_DATETIME = "text_to_datetime"
    F64_TO_I64 = "f64_to_i64"
    F64_TO_U64 = "f64_to_u64"
    F32_TO_TEXT = "f32_to_text"
    F64_TO_TEXT = "f64_to_text"
    DATETIME_TO_TEXT = "datetime_to_text"
    TEXT_TO_DECIMAL = "text_to_decimal"
    DECIMAL_TO_TEXT = "decimal_to_text"
    DIVIDE_DECIMALS = "divide_decimals"
    ROUND_DECIMAL = "round_decimal"
    TEXT_TO_JSON = "text_to_json"
    JSON_AT = "json_at"
    JSON_TYPE = "json_type"
    JSON_TO_TEXT = "json_to_text"
    JSON_TO_I64 = "json_to_i64"
    JSON_TO_U64 = "json_to_u64"
    JSON_TO_F64 = "json_to_f64"
    JSON_TO_BOOL = "json_to_bool"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFunction:
    """What a kernel takes and gives, as Arrow types, and how it is computed.

    `refusal` says why a value is refused, if it can fail.
    """

    takes: tuple[pa.DataType, ...]
    gives: pa.DataType
    compute: Compute
    can_fail: bool = False
    refusal: str = CANNOT_CAST


def _lower(texts: pa.Array) -> pa.Array:
    return _translate(texts, pc.ascii_lower, lower_case())


def _upper(texts: pa.Array) -> pa.Array:
    return _translate(texts, pc.ascii_upper, upper_case())


def _translate(
    texts: pa.Array, of_ascii: Callable[[pa.Array], pa.Array], table: Mapping[int, int]
) -> pa.Array:
    """ASCII in one go; a text with other characters by the table."""
    is_ascii = pc.string_is_ascii(texts)
    if pc.all(is_ascii, min_count=0).as_py():
        return of_ascii(texts)
    others = pc.filter(texts, pc.invert(is_ascii))
    translated = [text.translate(table) for text in others.to_pylist()]
    return pc.replace_with_mask(
        of_ascii(texts),
        pc.fill_null(pc.invert(is_ascii), False),  # noqa: FBT003 - the value to put
        pa.array(translated, texts.type),
    )


def _matches(texts: pa.Array, patterns: pa.Array) -> pa.Array:
    """The pattern is the same in every row."""
    pattern = patterns[0].as_py() if len(patterns) else None
    if pattern is None:
        return pa.nulls(len(texts), pa.bool_())
    return pc.match_substring_regex(texts, pattern=pattern)


_DIGITS: Final = 400
"""No float has more digits in front of its point or behind it."""
_EXACT: Final = decimal.Context(prec=4 * _DIGITS, rounding=decimal.ROUND_HALF_UP)


def _round_f64(numbers: pa.Array, digits: pa.Array) -> pa.Array:
    if pc.all(pc.equal(digits, 0), min_count=0).as_py():
        values = numbers.to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            whole = np.trunc(values)
            rounded = whole + np.where(np.abs(values - whole) >= 0.5, np.sign(values), 0.0) + 0.0
        missing = pc.or_(pc.is_null(numbers), pc.is_null(digits))
        return pa.array(np.where(np.isinf(values), values, rounded), mask=np.asarray(missing))

    def convert(pair: tuple[float, int]) -> float:
        number, places = pair
        if not math.isfinite(number) or places > _DIGITS:
            return number
        # On the shortest spelling: 1.005 is meant, not the number a little below it.
        unit = decimal.Decimal(1).scaleb(-max(places, -_DIGITS))
        rounded = float(_EXACT.quantize(decimal.Decimal(repr(number)), unit))
        if math.isinf(rounded):
            raise ValueError
        return rounded + 0.0

    return _each_pair(numbers, digits, convert, pa.float64())


def _round_i64(numbers: pa.Array, digits: pa.Array) -> pa.Array:
    def convert(pair: tuple[int, int]) -> int:
        number, places = pair
        unit = int(10 ** min(max(-places, 0), 20))
        rounded = (abs(number) + unit // 2) // unit * unit
        signed = -rounded if number < 0 else rounded
        if not -(2**63) <= signed < 2**63:
            raise ValueError
        return signed

    return _each_pair(numbers, digits, convert, pa.int64())


def _each_pair(
    numbers: pa.Array, digits: pa.Array, convert: Callable[[Any], Any], gives: pa.DataType
) -> pa.Array:
    pairs = zip(numbers.to_pylist(), digits.to_pylist(), strict=True)
    return _each_value((None if None in pair else pair for pair in pairs), convert, gives)


def _floor(numbers: pa.Array) -> pa.Array:
    return pc.add(pc.floor(numbers), 0.0)


def _ceil(numbers: pa.Array) -> pa.Array:
    return pc.add(pc.ceil(numbers), 0.0)


_DAY: Final = 86_400_000_000
"""Microseconds."""
_FIRST_TIME: Final = -719_162 * _DAY
_LAST_TIME: Final = 2_932_897 * _DAY - 1
_MONTHS: Final[Mapping[str, int]] = {"year": 12, "quarter": 3, "month": 1}
_MONTHS_MAX: Final = 12 * 10_000
_SPANS: Final[Mapping[str, int]] = {
    "week": 7 * _DAY,
    "day": _DAY,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "microsecond": 1,
}


def _add_time(times: pa.Array, counts: pa.Array, units: pa.Array) -> pa.Array:
    """Times are microseconds since 1970, and the unit is the same in every row."""
    unit = units[0].as_py() if len(units) else None
    if unit is None:
        return pa.nulls(len(times), pa.int64())
    at = pc.fill_null(times, 0).to_numpy(zero_copy_only=False)
    count = pc.fill_null(counts, 0).to_numpy(zero_copy_only=False)
    outside = (at < _FIRST_TIME) | (at > _LAST_TIME)
    at = np.where(outside, 0, at)
    if unit in _MONTHS:
        most = _MONTHS_MAX // _MONTHS[unit]
        moved = _add_months(at, np.clip(count, -most, most) * _MONTHS[unit])
    else:
        # Not further than from one end of the range beyond the other, so that nothing overflows.
        most = (_LAST_TIME - _FIRST_TIME) // _SPANS[unit] + 1
        moved = at + np.clip(count, -most, most) * _SPANS[unit]
    outside |= (moved < _FIRST_TIME) | (moved > _LAST_TIME)
    missing = pc.or_(pc.is_null(times), pc.is_null(counts)).to_numpy(zero_copy_only=False)
    return pa.array(moved, pa.int64(), mask=outside | missing)


def _add_months(at: Any, count: Any) -> Any:
    """A day that the month does not have becomes its last one."""
    days = at // _DAY
    months = days.astype("datetime64[D]").astype("datetime64[M]")
    day_of_month = days - months.astype("datetime64[D]").astype(np.int64)
    target = months + count
    first = target.astype("datetime64[D]").astype(np.int64)
    length = (target + 1).astype("datetime64[D]").astype(np.int64) - first
    return (first + np.minimum(day_of_month, length - 1)) * _DAY + at % _DAY


_INTEGER: Final = re.compile(r"-?[0-9]+", re.ASCII)
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|NaN|-?Infinity", re.ASCII)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_DATETIME: Final = re.compile(
    rf"{_DATE.pattern}[T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}(\.[0-9]{{1,6}})?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?",
    re.ASCII,
)
_DIGITS_MAX: Final = 400
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SPELT: Final = {math.inf: "Infinity", -math.inf: "-Infinity"}
_DATETIMES: Final = pa.timestamp("us", "UTC")


def _each(
    values: pa.Array, convert: Callable[[Any], Any], gives: pa.DataType, refuses: type[Exception]
) -> pa.Array:
    """Every value converted by itself; null where that is refused."""
    return _each_value(values.to_pylist(), convert, gives, refuses)


def _each_value(
    values: Iterable[Any],
    convert: Callable[[Any], Any],
    gives: pa.DataType,
    refuses: type[Exception] = ValueError,
) -> pa.Array:
    def convert_one(value: Any) -> Any:
        try:
            return None if value is None else convert(value)
        except refuses:
            return None

    return pa.array([convert_one(value) for value in values], gives)


def _text_to_integer(texts: pa.Array, gives: pa.DataType, low: int, high: int) -> pa.Array:
    def convert(text: str) -> int:
        if _INTEGER.fullmatch(text) is None or len(text.lstrip("-0")) > _DIGITS_MAX:
            raise ValueError
        number = int(text.lstrip("-0") or "0") * (-1 if text.startswith("-") else 1)
        if not low <= number <= high:
            raise ValueError
        return number

    return _each(texts, convert, gives, ValueError)


def _text_to_i64(texts: pa.Array) -> pa.Array:
    return _text_to_integer(texts, pa.int64(), -(2**63), 2**63 - 1)


def _text_to_u64(texts: pa.Array) -> pa.Array:
    return _text_to_integer(texts, pa.uint64(), 0, 2**64 - 1)


def _text_to_f64(texts: pa.Array) -> pa.Array:
    def convert(text: str) -> float:
        if _NUMBER.fullmatch(text) is None:
            raise ValueError
        number = float(text)
        if math.isinf(number) and not text.endswith("Infinity"):
            raise ValueError
        return number

    return _each(texts, convert, pa.float64(), ValueError)


def _text_to_bool(texts: pa.Array) -> pa.Array:
    return _each(texts, {"true": True, "false": False}.__getitem__, pa.bool_(), KeyError)


def _text_to_date(texts: pa.Array) -> pa.Array:
    def convert(text: str) -> dt.date:
        if _DATE.fullmatch(text) is None:
            raise ValueError
        return dt.date.fromisoformat(text)

    return _each(texts, convert, pa.date32(), ValueError)


def _text_to_datetime(texts: pa.Array) -> pa.Array:
    def convert(text: str) -> dt.datetime:
        if _DATETIME.fullmatch(text) is None:
            raise ValueError
        moment = dt.datetime.fromisoformat(text)
        aware = moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment
        try:
            return aware.astimezone(dt.UTC)
        except OverflowError:
            raise ValueError from None

    return _each(texts, convert, _DATETIMES, ValueError)


def _f64_to_integer(numbers: pa.Array, gives: pa.DataType, low: int, end: int) -> pa.Array:
    def convert(number: float) -> int:
        if not (low <= number < end and number.is_integer()):
            raise ValueError
        return int(number)

    return _each(numbers, convert, gives, ValueError)


def _f64_to_i64(numbers: pa.Array) -> pa.Array:
    return _f64_to_integer(numbers, pa.int64(), -(2**63), 2**63)


def _f64_to_u64(numbers: pa.Array) -> pa.Array:
    return _f64_to_integer(numbers, pa.uint64(), 0, 2**64)


def _f64_to_text(numbers: pa.Array) -> pa.Array:
    return _each(numbers, _spell, pa.string(), ValueError)


def _f32_to_text(numbers: pa.Array) -> pa.Array:
    return _each(numbers, lambda number: _spell(shortest_f32(number)), pa.string(), ValueError)


def _spell(number: float) -> str:
    """The shortest spelling that gives the number back, as in ids; zeros are equal."""
    if not math.isfinite(number):
        return _SPELT.get(number, "NaN")
    return "0" if number == 0 else repr(number).removesuffix(".0")


def _datetime_to_text(moments: pa.Array) -> pa.Array:
    def convert(microseconds: int) -> str:
        try:
            moment = _EPOCH + dt.timedelta(microseconds=microseconds)
        except OverflowError:
            # Stored before writes refused years that Python has not.
            return f"{np.datetime64(microseconds, 'us')}Z"
        return moment.replace(tzinfo=None).isoformat() + "Z"

    return _each(moments.cast(_DATETIMES).cast(pa.int64()), convert, pa.string(), ValueError)


def _text_to_json(texts: pa.Array) -> pa.Array:
    return _each(texts, canonical_text, pa.string(), InvalidJson)


def _json_at(texts: pa.Array, paths: pa.Array) -> pa.Array:
    """What is at a path; the path is the same in every row."""

    def convert(value: str | Absent) -> str | None:
        return None if isinstance(value, Absent) or value == "null" else value

    return pa.array(map(convert, _values_at(texts, paths)), pa.string())


def _json_type(texts: pa.Array, paths: pa.Array) -> pa.Array:
    """The kind of what is at a path; the path is the same in every row."""

    def convert(value: str | Absent) -> str | None:
        return None if isinstance(value, Absent) else kind_of(value).value

    return pa.array(map(convert, _values_at(texts, paths)), pa.string())


def _values_at(texts: pa.Array, paths: pa.Array) -> Sequence[str | Absent]:
    path_text = paths[0].as_py() if len(paths) else None
    if path_text is None:
        return [ABSENT] * len(texts)
    path = parse_path(path_text) if path_text != WHOLE_PATH else ()
    return [ABSENT if text is None else value_at(text, path) for text in texts.to_pylist()]


def _json_to_text(texts: pa.Array) -> pa.Array:
    def convert(text: str) -> object:
        if kind_of(text) is not JsonKind.STRING:
            raise ValueError
        return python_value(text)

    return _each(texts, convert, pa.string(), ValueError)


def _json_to_bool(texts: pa.Array) -> pa.Array:
    return _text_to_bool(texts)


def _json_number(text: str) -> decimal.Decimal:
    if kind_of(text) is not JsonKind.NUMBER:
        raise ValueError
    return decimal.Decimal(text)


def _json_to_integer(texts: pa.Array, gives: pa.DataType, low: int, high: int) -> pa.Array:
    def convert(text: str) -> int:
        number = _json_number(text)
        if not low <= number <= high or number != number.to_integral_value():
            raise ValueError
        return int(number)

    return _each(texts, convert, gives, ValueError)


def _json_to_i64(texts: pa.Array) -> pa.Array:
    return _json_to_integer(texts, pa.int64(), -(2**63), 2**63 - 1)


def _json_to_u64(texts: pa.Array) -> pa.Array:
    return _json_to_integer(texts, pa.uint64(), 0, 2**64 - 1)


def _json_to_f64(texts: pa.Array) -> pa.Array:
    return _each(texts, lambda text: float(_json_number(text)), pa.float64(), ValueError)


def find_refusals(result: pa.Array, arguments: Sequence[pa.Array]) -> pa.Array:
    """Where a kernel that can fail refused a value."""
    refused = pc.is_null(result)
    for argument in arguments:
        refused = pc.and_(refused, pc.is_valid(argument))
    return refused


CAST_KERNELS: Final[Mapping[tuple[Scalar, Scalar], Kernel]] = {
    (Scalar.STRING, Scalar.I64): Kernel.TEXT_TO_I64,
    (Scalar.STRING, Scalar.U64): Kernel.TEXT_TO_U64,
    (Scalar.STRING, Scalar.F64): Kernel.TEXT_TO_F64,
    (Scalar.STRING, Scalar.BOOL): Kernel.TEXT_TO_BOOL,
    (Scalar.STRING, Scalar.DATE): Kernel.TEXT_TO_DATE,
    (Scalar.STRING, Scalar.DATETIME): Kernel.TEXT_TO_DATETIME,
    (Scalar.F64, Scalar.I64): Kernel.F64_TO_I64,
    (Scalar.F64, Scalar.U64): Kernel.F64_TO_U64,
    (Scalar.F32, Scalar.STRING): Kernel.F32_TO_TEXT,
    (Scalar.F64, Scalar.STRING): Kernel.F64_TO_TEXT,
    (Scalar.DATETIME, Scalar.STRING): Kernel.DATETIME_TO_TEXT,
    (Scalar.JSON, Scalar.STRING): Kernel.JSON_TO_TEXT,
    (Scalar.JSON, Scalar.I64): Kernel.JSON_TO_I64,
    (Scalar.JSON, Scalar.U64): Kernel.JSON_TO_U64,
    (Scalar.JSON, Scalar.F64): Kernel.JSON_TO_F64,
    (Scalar.JSON, Scalar.BOOL): Kernel.JSON_TO_BOOL,
}
"""The steps of conversions that are kernels."""

KERNELS: Final[Mapping[Kernel, KernelFunction]] = {
    Kernel.LOWER: KernelFunction(takes=(pa.string(),), gives=pa.string(), compute=_lower),
    Kernel.UPPER: KernelFunction(takes=(pa.string(),), gives=pa.string(), compute=_upper),
    Kernel.MATCHES: KernelFunction(
        takes=(pa.string(), pa.string()), gives=pa.bool_(), compute=_matches
    ),
    Kernel.ROUND_I64: KernelFunction(
        takes=(pa.int64(), pa.int64()), gives=pa.int64(), compute=_round_i64, can_fail=True
    ),
    Kernel.ROUND_F64: KernelFunction(
        takes=(pa.float64(), pa.int64()), gives=pa.float64(), compute=_round_f64, can_fail=True
    ),
    # A decimal on its way is text, because its type differs from call to call.
    Kernel.TEXT_TO_DECIMAL: KernelFunction(
        takes=(pa.string(), pa.int64(), pa.int64()),
        gives=pa.string(),
        compute=fit_texts,
        can_fail=True,
    ),
    Kernel.DECIMAL_TO_TEXT: KernelFunction(
        takes=(pa.string(),), gives=pa.string(), compute=spell_texts
    ),
    Kernel.DIVIDE_DECIMALS: KernelFunction(
        takes=(pa.string(), pa.string()),
        gives=pa.string(),
        compute=divide_texts,
        can_fail=True,
        refusal=TOO_MANY_DIGITS,
    ),
    Kernel.ROUND_DECIMAL: KernelFunction(
        takes=(pa.string(), pa.int64(), pa.int64()),
        gives=pa.string(),
        compute=round_texts,
        can_fail=True,
        refusal=TOO_MANY_DIGITS,
    ),
    Kernel.FLOOR: KernelFunction(takes=(pa.float64(),), gives=pa.float64(), compute=_floor),
    Kernel.CEIL: KernelFunction(takes=(pa.float64(),), gives=pa.float64(), compute=_ceil),
    Kernel.ADD_TIME: KernelFunction(
        takes=(pa.int64(), pa.int64(), pa.string()),
        gives=pa.int64(),
        compute=_add_time,
        can_fail=True,
        refusal=OUTSIDE_OF_YEARS,
    ),
    Kernel.JSON_AT: KernelFunction(
        takes=(pa.string(), pa.string()), gives=pa.string(), compute=_json_at
    ),
    Kernel.JSON_TYPE: KernelFunction(
        takes=(pa.string(), pa.string()), gives=pa.string(), compute=_json_type
    ),
    **{
        kernel: KernelFunction(takes=(takes,), gives=gives, compute=compute, can_fail=can_fail)
        for kernel, takes, gives, compute, can_fail in (
            (Kernel.TEXT_TO_I64, pa.string(), pa.int64(), _text_to_i64, True),
            (Kernel.TEXT_TO_U64, pa.string(), pa.uint64(), _text_to_u64, True),
            (Kernel.TEXT_TO_F64, pa.string(), pa.float64(), _text_to_f64, True),
            (Kernel.TEXT_TO_BOOL, pa.string(), pa.bool_(), _text_to_bool, True),
            (Kernel.TEXT_TO_DATE, pa.string(), pa.date32(), _text_to_date, True),
            (Kernel.TEXT_TO_DATETIME, pa.string(), _DATETIMES, _text_to_datetime, True),
            (Kernel.F64_TO_I64, pa.float64(), pa.int64(), _f64_to_i64, True),
            (Kernel.F64_TO_U64, pa.float64(), pa.uint64(), _f64_to_u64, True),
            (Kernel.F32_TO_TEXT, pa.float32(), pa.string(), _f32_to_text, False),
            (Kernel.F64_TO_TEXT, pa.float64(), pa.string(), _f64_to_text, False),
            (Kernel.DATETIME_TO_TEXT, _DATETIMES, pa.string(), _datetime_to_text, False),
            (Kernel.TEXT_TO_JSON, pa.string(), pa.string(), _text_to_json, True),
            (Kernel.JSON_TO_TEXT, pa.string(), pa.string(), _json_to_text, True),
            (Kernel.JSON_TO_I64, pa.string(), pa.int64(), _json_to_i64, True),
            (Kernel.JSON_TO_U64, pa.string(), pa.uint64(), _json_to_u64, True),
            (Kernel.JSON_TO_F64, pa.string(), pa.float64(), _json_to_f64, True),
            (Kernel.JSON_TO_BOOL, pa.string(), pa.bool_(), _json_to_bool, True),
        )
    },
}
