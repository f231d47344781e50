"""The values of scalar functions, one definition each, in plain Python.

No function of the package computes here, so that a mistake in one of them is not repeated.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from omnigraph_lake.query.functions import ScalarFunction
from omnigraph_lake.query.types import INTEGER_LIMITS
from omnigraph_lake.schema.catalog import INTEGERS, Scalar

WHITE_SPACE: Final = frozenset(
    map(
        chr,
        (
            *range(0x9, 0xE),
            *(0x20, 0x85, 0xA0, 0x1680),
            *range(0x2000, 0x200B),
            *(0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
        ),
    )
)


def function_value(function: ScalarFunction, arguments: Sequence[Any]) -> Any:
    """The value of a call; null if an argument is."""
    return None if None in arguments else VALUES[function](*arguments)


def decimal_value(function: ScalarFunction, arguments: Sequence[Any]) -> Fraction | None:
    """The value of a function of decimals, as a fraction; null if an argument is."""
    if None in arguments:
        return None
    number, *others = (Fraction(argument) for argument in arguments)
    match function:
        case ScalarFunction.ABS:
            return abs(number)
        case ScalarFunction.FLOOR:
            return Fraction(math.floor(number))
        case ScalarFunction.CEIL:
            return Fraction(math.ceil(number))
        case ScalarFunction.ROUND:
            unit = Fraction(10) ** -max(min(int(others[0]), 100), -100)
            units = math.floor(abs(number) / unit + Fraction(1, 2))
            return units * unit * (-1 if number < 0 else 1)
        case _:
            assert function is ScalarFunction.DIV
            return Fraction(math.trunc(number / others[0])) if others[0] else None


def simple_lower(character: str) -> str:
    """The simple mapping of Unicode: one character for one."""
    lowered = character.lower()
    return lowered if len(lowered) == 1 else {"\u0130": "i"}[character]


def simple_upper(character: str) -> str:
    """As above; where only the title case is one character, it is the simple mapping."""
    raised, titled = character.upper(), character.title()
    if len(raised) == 1:
        return raised
    return titled if len(titled) == 1 else character


def _trim(text: str) -> str:
    kept = [at for at, character in enumerate(text) if character not in WHITE_SPACE]
    return text[kept[0] : kept[-1] + 1] if kept else ""


def _substring(text: str, start: int, count: int | None = None) -> str | None:
    if start < 0 or (count is not None and count < 0):
        return None
    return text[start:] if count is None else text[start : start + count]


def _replace(text: str, part: str, by: str) -> str:
    return text.replace(part, by) if part else text


def _like(text: str, pattern: str) -> bool:
    """Positions of the pattern that the text so far can have reached."""
    items: list[tuple[str, bool]] = []
    at = 0
    while at < len(pattern):
        escaped = pattern[at] == "\\"
        items.append((pattern[at + escaped], not escaped and pattern[at] in "%_"))
        at += 1 + escaped
    reached = _past_any(items, {0})
    for character in text:
        following = set()
        for place in reached:
            if place == len(items):
                continue
            symbol, special = items[place]
            if special and symbol == "%":
                following.add(place)
            elif special or symbol == character:
                following.add(place + 1)
        reached = _past_any(items, following)
    return len(items) in reached


def _past_any(items: Sequence[tuple[str, bool]], places: set[int]) -> set[int]:
    """The places, and those that follow where `%` matches nothing."""
    further = set(places)
    for place in range(len(items)):
        if place in further and items[place] == ("%", True):
            further.add(place + 1)
    return further


def _matches(text: str, pattern: str) -> bool:
    """For patterns that mean the same to RE2 and to Python but for `$`."""
    exact = pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern
    return re.search(exact, text, re.ASCII) is not None


def _abs(number: float) -> Any:
    return _fitting(abs(number))


def _fitting(number: Any) -> Any:
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        raise ValueError(number)
    return number


def _div(dividend: int, divisor: int) -> int | None:
    if divisor == 0:
        return None
    sign = 1 if (dividend < 0) == (divisor < 0) else -1
    return int(_fitting(sign * (abs(dividend) // abs(divisor))))


def _round(number: Any, digits: int) -> Any:
    """By fractions: the number as it is spelt, in units of the last digit, and one half."""
    if isinstance(number, float) and (not math.isfinite(number) or digits > 350):
        return number
    if isinstance(number, int) and digits >= 0:
        return number
    unit = Fraction(10) ** -max(digits, -350)
    exact = Fraction(repr(number))
    units = math.floor(abs(exact) / unit + Fraction(1, 2))
    rounded = units * unit * (-1 if exact < 0 else 1)
    if isinstance(number, int):
        return int(_fitting(int(rounded)))
    try:
        return float(rounded)
    except OverflowError as error:
        raise ValueError(number) from error


def _floor(number: float) -> float:
    return number if not math.isfinite(number) else float(math.floor(number))


def _truncate(time: dt.date, unit: str) -> dt.date:
    if unit == "week":
        time -= dt.timedelta(days=time.weekday())
    months: Mapping[str, Mapping[str, int]] = {
        "year": {"month": 1, "day": 1},
        "quarter": {"month": (time.month - 1) // 3 * 3 + 1, "day": 1},
        "month": {"day": 1},
    }
    start = time.replace(**months.get(unit, {}))
    if not isinstance(start, dt.datetime):
        return start
    start = start.replace(microsecond=0)
    if unit == "second":
        return start
    start = start.replace(second=0)
    if unit == "minute":
        return start
    return start.replace(minute=0) if unit == "hour" else start.replace(minute=0, hour=0)


def _add(time: dt.date, count: int, unit: str) -> dt.date:
    months = {"year": 12, "quarter": 3, "month": 1}.get(unit)
    if months is None:
        seconds = {"week": 7 * 86400, "day": 86400, "hour": 3600, "minute": 60, "second": 1}
        micros = 1 if unit == "microsecond" else seconds[unit] * 1_000_000
        # A date counts from midnight, and its units are whole days.
        at = time if isinstance(time, dt.datetime) else dt.datetime.combine(time, dt.time())
        try:
            moved = at + dt.timedelta(microseconds=count * micros)
        except OverflowError as error:
            raise ValueError(time) from error
        return moved if isinstance(time, dt.datetime) else moved.date()
    year, month = divmod(time.year * 12 + time.month - 1 + count * months, 12)
    for day in range(time.day, 0, -1):
        if not 1 <= year <= 9999:
            break
        try:
            return time.replace(year=year, month=month + 1, day=day)
        except ValueError:
            continue
    raise ValueError(time)


def _microseconds(start: dt.date, end: dt.date) -> int:
    moments = (
        one
        if isinstance(one, dt.datetime)
        else dt.datetime(one.year, one.month, one.day, tzinfo=dt.UTC)
        for one in (start, end)
    )
    first, second = moments
    return (second - first) // dt.timedelta(microseconds=1)


def _between_days(start: dt.date, end: dt.date) -> int:
    span = _microseconds(start, end)
    return abs(span) // 86_400_000_000 * (-1 if span < 0 else 1)


def _slice(items: Sequence[Any], start: int, end: int | None = None) -> Any:
    return None if start < 0 or (end is not None and end < 0) else tuple(items[start:end])


def _any(items: Sequence[bool | None]) -> bool | None:
    return True if True in items else None if None in items else False


def _all(items: Sequence[bool | None]) -> bool | None:
    return False if False in items else None if None in items else True


def _canonical(text: str) -> str:
    """The canonical text of a JSON text whose numbers need no exponent."""
    value = json.loads(text, parse_float=Fraction, parse_int=Fraction)
    if value is None:
        raise ValueError(text)
    return json_text(value)


def json_text(value: Any) -> str:
    """The canonical text of a Python value whose numbers need no exponent."""
    if isinstance(value, dict):
        names = sorted(value)
        return f"{{{','.join(f'{json_text(name)}:{json_text(value[name])}' for name in names)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(json_text, value))}]"
    if value is None or isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    value = Fraction(str(value))
    scale = next(places for places in range(40) if (value * 10**places).denominator == 1)
    digits = str(abs(int(value * 10**scale))).rjust(scale + 1, "0")
    whole, part = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return f"{'-' if value < 0 else ''}{whole}{'.' if part else ''}{part}"


def _at(text: str, path: str) -> str | None:
    """The part of a canonical text that a path leads to; None if it leads nowhere."""
    for step in re.findall(r'[^.\[\]"]+|\["(?:[^"\\]|\\.)*"\]|\[\d+\]', path):
        parts = _parts(text)
        if step.startswith("["):
            key = json.loads(step)[0]
            wanted = str(key) if isinstance(key, int) else json.dumps(key, ensure_ascii=False)
        else:
            key, wanted = step, json.dumps(step, ensure_ascii=False)
        if text[0] != ("[" if isinstance(key, int) else "{") or wanted not in parts:
            return None
        text = parts[wanted]
    return text


def _parts(text: str) -> dict[str, str]:
    """The values directly inside a canonical text, by the text of their name or their index."""
    parts: dict[str, str] = {}
    depth = start = 0
    quoted = escaped = False
    name: str | None = None
    for at, character in enumerate(text):
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
            continue
        quoted = character == '"'
        ends = depth == 1 and character in ",]}"
        depth += (character in "[{") - (character in "]}")
        if depth == 1 and character in "[{" and not start:
            start = at + 1
        elif depth == 1 and character == ":" and name is None:
            name, start = text[start:at], at + 1
        elif ends and at > start:
            parts[str(len(parts)) if name is None else name] = text[start:at]
            name, start = None, at + 1
    return parts


def _none_of_null(text: str | None) -> str | None:
    return None if text == "null" else text


def _kind(text: str | None) -> str | None:
    if text is None:
        return None
    kinds = {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean"}
    return "null" if text == "null" else kinds.get(text[0], "number")


VALUES: Final[Mapping[ScalarFunction, Callable[..., Any]]] = {
    ScalarFunction.LOWER: lambda text: "".join(map(simple_lower, text)),
    ScalarFunction.UPPER: lambda text: "".join(map(simple_upper, text)),
    ScalarFunction.TRIM: _trim,
    ScalarFunction.LENGTH: len,
    ScalarFunction.CONCAT: lambda *texts: "".join(texts),
    ScalarFunction.SUBSTRING: _substring,
    ScalarFunction.REPLACE: _replace,
    ScalarFunction.SPLIT: lambda text, separator: tuple(text.split(separator)),
    ScalarFunction.LIKE: _like,
    ScalarFunction.MATCHES: _matches,
    ScalarFunction.ABS: _abs,
    ScalarFunction.ROUND: _round,
    ScalarFunction.FLOOR: _floor,
    ScalarFunction.CEIL: lambda number: -_floor(-number),
    ScalarFunction.SQRT: lambda number: None if number < 0 else math.sqrt(number),
    ScalarFunction.DIV: _div,
    ScalarFunction.YEAR: lambda time: time.year,
    ScalarFunction.MONTH: lambda time: time.month,
    ScalarFunction.DAY: lambda time: time.day,
    ScalarFunction.HOUR: lambda time: time.hour,
    ScalarFunction.MINUTE: lambda time: time.minute,
    ScalarFunction.SECOND: lambda time: time.second,
    ScalarFunction.WEEKDAY: lambda time: time.isoweekday(),
    ScalarFunction.WEEK: lambda time: time.isocalendar().week,
    ScalarFunction.TRUNCATE: _truncate,
    ScalarFunction.ADD: _add,
    ScalarFunction.BETWEEN_DAYS: _between_days,
    ScalarFunction.BETWEEN_MICROSECONDS: _microseconds,
    ScalarFunction.SLICE: _slice,
    ScalarFunction.ANY: _any,
    ScalarFunction.ALL: _all,
    ScalarFunction.JSON: lambda text, path=None: (
        _canonical(text) if path is None else _none_of_null(_at(text, path))
    ),
    ScalarFunction.JSON_TYPE: lambda text, path: _kind(_at(text, path)),
}


# Conversions


def cast_value(  # noqa: PLR0911 - one per type
    value: Any, source: Scalar, target: Scalar
) -> Any:
    """A value in another type; a ValueError if it has none there."""
    if source is Scalar.JSON:
        return _from_json(value, target)
    if target is Scalar.STRING:
        return _spelt(value, source)
    if source is Scalar.STRING:
        return _read(value, target)
    if target in INTEGERS:
        low, high = INTEGER_LIMITS[target]
        if value != value or math.isinf(value) or value != math.floor(value):  # noqa: PLR0124
            raise ValueError(value)
        if not low <= int(value) <= high:
            raise ValueError(value)
        return int(value)
    if target is Scalar.F32:
        return _single(float(value))
    if target is Scalar.DATE:
        return value.date()
    if target is Scalar.DATETIME:
        return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    assert target is Scalar.F64
    return float(value)


def _from_json(text: str, target: Scalar) -> Any:
    """A JSON string is a text, a number a number, and `true` and `false` are Booleans."""
    wanted = {Scalar.STRING: "string", Scalar.BOOL: "boolean"}.get(target, "number")
    if _kind(text) != wanted:
        raise ValueError(text)
    if target in INTEGERS:
        exact = Fraction(text)
        low, high = INTEGER_LIMITS[target]
        if exact.denominator != 1 or not low <= exact <= high:
            raise ValueError(text)
        return int(exact)
    return json.loads(text) if target is not Scalar.F64 else float(Fraction(text))


def _single(value: float) -> float:
    if not math.isfinite(value):
        return value
    try:
        narrowed: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError as error:
        raise ValueError(value) from error
    return narrowed


def _spelt(value: Any, source: Scalar) -> str:  # noqa: PLR0911 - one per type
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.datetime):
        plain = value.astimezone(dt.UTC)
        fraction = f".{plain.microsecond:06}" if plain.microsecond else ""
        day = f"{plain.year:04}-{plain.month:02}-{plain.day:02}"
        return f"{day}T{plain.hour:02}:{plain.minute:02}:{plain.second:02}{fraction}Z"
    if isinstance(value, dt.date):
        return f"{value.year:04}-{value.month:02}-{value.day:02}"
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "0"
    digits = range(1, 18)
    width = _single if source is Scalar.F32 else float
    shortest = next(text for count in digits if width(float(text := f"{value:.{count}g}")) == value)
    spelt = repr(float(shortest))
    return spelt.removesuffix(".0")


_PART: Final = r"(\d{4})-(\d\d)-(\d\d)"
_ZONED: Final = _PART + r"[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?(?:(Z)|([+-])(\d\d):(\d\d))?"


def _read(text: str, target: Scalar) -> Any:
    def parts(pattern: str) -> tuple[str | None, ...]:
        found = re.fullmatch(pattern, text, re.ASCII)
        if found is None:
            raise ValueError(text)
        return found.groups()

    if target is Scalar.BOOL:
        return parts("(true)|(false)")[0] is not None
    if target in INTEGERS:
        parts(r"-?\d+")
        low, high = INTEGER_LIMITS[target]
        if not low <= int(text) <= high:
            raise ValueError(text)
        return int(text)
    if target is Scalar.F64:
        if text in ("NaN", "Infinity", "-Infinity"):
            return float(text)
        parts(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
        if math.isinf(float(text)):
            raise ValueError(text)
        return float(text)
    if target is Scalar.DATE:
        year, month, day = (int(part or 0) for part in parts(_PART))
        return dt.date(year, month, day)
    return _moment(parts(_ZONED))


def _moment(parts: Sequence[str | None]) -> dt.datetime:
    *moment, fraction, _, sign, hours, minutes = parts
    at = dt.datetime(*(int(part or 0) for part in moment))  # type: ignore[arg-type]  # noqa: DTZ001
    at = at.replace(microsecond=int((fraction or "").ljust(6, "0")))
    offset = dt.timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    if int(hours or 0) > 23 or int(minutes or 0) > 59:
        raise ValueError(parts)
    try:
        at += offset if sign == "-" else -offset
    except OverflowError as error:
        raise ValueError(parts) from error
    return at.replace(tzinfo=dt.UTC)
