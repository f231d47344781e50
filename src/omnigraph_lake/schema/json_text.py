"""Values of `Json`: one canonical text per value, checked once, and read by paths.

A number keeps all its digits: it is normalised as decimal text and never becomes a float.

Invariants:

- Two values are equal if, and only if, their canonical texts are: names are sorted by code point
  and occur once, there is no white space, and a number has one spelling.
- Every part of a canonical text that is a value is a canonical text itself.
- A canonical text fits the limits below, is valid Unicode, and is never `null`: that is the null of
  the column.
- Whatever a text or a Python value holds, it has a canonical text or raises `InvalidJson`.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NoReturn, TypeAlias

from omnigraph_lake.schema.values import SpeltFloat

BYTES_MAX: Final = 1 << 20
"""The largest canonical text, in bytes of UTF-8."""
DEPTH_MAX: Final = 64
"""How deeply arrays and objects are nested at most."""
EXPONENT_MAX: Final = 307
"""A number other than 0 is at least 1e-307 and below 1e308, so every reader of JSON has a float."""
DIGITS_MAX: Final = 308
"""How many digits a number has at most, without zeros at either end."""

_SOURCE_BYTES_MAX: Final = 8 * BYTES_MAX
_ZEROS_WRITTEN: Final = 20
_LEADING_ZEROS_WRITTEN: Final = 6
_NUMBER: Final = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_EXPONENT_DIGITS: Final = 9
_STEP: Final = re.compile(
    r"""(?P<dot>\.)?(?P<name>[^.\[\]"\s]+)|\[(?:(?P<index>0|[1-9][0-9]{0,8})"""
    r"""|(?P<quoted>"[^"\\]*(?:\\.[^"\\]*)*"))\]"""
)
_NULL: Final = "null"

WHOLE_PATH: Final = ""
"""The text of the path to a value itself, which only a compiler writes."""

JsonPath: TypeAlias = tuple[str | int, ...]


class InvalidJson(ValueError):  # noqa: N818 - a signal to the caller, never an answer
    """Why something is no value of `Json`, in words that follow "found ..."."""


@dataclass(frozen=True, slots=True)
class JsonNumber:
    """A number by its digits, where an integer or a float of Python would not spell it."""

    text: str

    def __repr__(self) -> str:
        return self.text


class JsonText(str):
    """A JSON text in place of its value, where another `str` is a JSON string."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str.__str__(self)


class _Decoder:
    """Decodes texts one at a time; says whether one holds numbers that Python spells otherwise."""

    def __init__(self) -> None:
        self.has_unusual_numbers = False
        self.name_count = 0
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._members,
            parse_float=self._number,
            parse_int=self._integer,
            parse_constant=_refuse_constant,
        )

    def decode(self, text: str) -> object:
        self.has_unusual_numbers = False
        self.name_count = 0
        try:
            return self._decoder.decode(text)
        except InvalidJson:
            raise
        except json.JSONDecodeError as error:
            raise InvalidJson(f"{_fault(error)} at character {error.pos + 1}") from None
        except RecursionError:
            raise InvalidJson(_too_deep()) from None

    def _members(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        members = dict(pairs)
        if len(members) < len(pairs):
            raise InvalidJson("a name that occurs more than once in an object")
        self.name_count += len(pairs)
        return members

    def _integer(self, text: str) -> object:
        # Few digits cannot be beyond a limit, and Python writes them as they are.
        return int(text) if len(text) <= _ZEROS_WRITTEN else self._number(text)

    def _number(self, text: str) -> object:
        value = number_value(canonical_number(text))
        if isinstance(value, JsonNumber):
            self.has_unusual_numbers = True
        return value


def canonical_text(text: str) -> str | None:
    """The canonical text of a JSON text; None if it is `null`.

    Raises:
        InvalidJson: it is no JSON, or beyond a limit.
    """
    return canonical_with_names(text)[0]


def is_canonical(text: str) -> bool:
    """Whether a text is the canonical text of a value."""
    try:
        return canonical_text(text) == text
    except InvalidJson:
        return False


def canonical_with_names(text: str) -> tuple[str | None, int]:
    """The canonical text of a JSON text, and how many names its objects have.

    Raises:
        InvalidJson: it is no JSON, or beyond a limit.
    """
    if len(text) > _SOURCE_BYTES_MAX:
        raise InvalidJson(_too_large())
    decoder = _Decoder()
    value = decoder.decode(text)
    if text.count("[") + text.count("{") > DEPTH_MAX:
        _require_depth(value, DEPTH_MAX)
    if value is None:
        return None, 0
    written = "".join(_write(value)) if decoder.has_unusual_numbers else _ENCODE(value)
    return _within_limits(written), decoder.name_count


def canonical_value(value: object) -> str | None:
    """The canonical text of a Python value: a `str` is a JSON string, `None` is null.

    Dicts with names of type `str`, lists, tuples, Booleans, and finite numbers have one.

    Raises:
        InvalidJson: it is another value, or beyond a limit.
    """
    if value is None:
        return None
    if isinstance(value, JsonText):
        return canonical_text(str(value))
    # Depth first: a value that holds itself has no end.
    _require_depth(value, DEPTH_MAX)
    return _within_limits("".join(_write(value)))


def exact_value(text: str) -> object:
    """The value of a text that is known to be JSON; numbers keep their digits."""
    return _EXACT.decode(text)


def python_value(text: str) -> object:
    """The value of a canonical text: integers, floats and `Decimal` are exact.

    A whole number is an `int`; another one that no float spells is a `Decimal`.
    """
    return _PYTHON.decode(text)


def _python_number(text: str) -> int | float | Decimal:
    exact = Decimal(text)
    if exact == exact.to_integral_value():
        return int(exact)
    number = float(text)
    return number if canonical_number(repr(number)) == text else exact


def large_integers_as_text(text: str, largest: int) -> str:
    """A canonical text with strings in place of whole numbers beyond `largest`, either sign."""

    def number(digits: str) -> object:
        exact = Decimal(digits)
        is_large = abs(exact) > largest and exact == exact.to_integral_value()
        return f"{exact:f}" if is_large else JsonNumber(digits)

    decoder = json.JSONDecoder(parse_int=number, parse_float=number)
    return "".join(_write(decoder.decode(text)))


def number_value(text: str) -> int | float | JsonNumber:
    """A number of canonical text as an integer or a float that is written the same again."""
    if "." not in text and "e" not in text:
        return int(text)
    value = float(text)
    return value if repr(value) == text else JsonNumber(text)


def canonical_number(text: str) -> str:
    """The one spelling of a number of JSON: all digits, no zeros at the ends, `-0` is `0`.

    Up to 20 zeros are written behind the digits, and 6 before them; beyond that, an exponent.

    Raises:
        InvalidJson: it is beyond a limit.
    """
    match = _NUMBER.fullmatch(text)
    assert match is not None, "a number of JSON"
    sign, whole, fraction, power = match[1], match[2], match[3] or "", match[4] or "0"
    all_digits = (whole + fraction).lstrip("0")
    digits = all_digits.rstrip("0")
    if not digits:
        return "0"
    if len(power.lstrip("+-0")) > _EXPONENT_DIGITS:
        raise InvalidJson(_number_too_large())
    # The value is the digits, times ten to this power.
    exponent = int(power) - len(fraction) + len(all_digits) - len(digits)
    magnitude = exponent + len(digits) - 1
    if abs(magnitude) > EXPONENT_MAX or len(digits) > DIGITS_MAX:
        raise InvalidJson(_number_too_large())
    if 0 <= exponent <= _ZEROS_WRITTEN:
        return sign + digits + "0" * exponent
    if exponent < 0 and magnitude >= -_LEADING_ZEROS_WRITTEN:
        padded = digits.rjust(1 - exponent, "0")
        return f"{sign}{padded[:exponent]}.{padded[exponent:]}"
    point = "." if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{point}{digits[1:]}e{magnitude}"


@dataclass(frozen=True, slots=True)
class Absent:
    """Nothing is at a path."""


ABSENT: Final = Absent()


class JsonKind(enum.StrEnum):
    """The kinds of JSON values, by the word that `json_type` gives."""

    OBJECT = "object"
    ARRAY = "array"
    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    NULL = "null"


def parse_path(text: str) -> JsonPath:
    """The steps of a path: names with dots between them, `[0]`, and `["any name"]`.

    Raises:
        ValueError: it is no path; says what is wrong.
    """
    steps: list[str | int] = []
    at = 0
    while at < len(text) or not steps:
        match = _STEP.match(text, at)
        if match is None or (match["name"] and bool(steps) is not bool(match["dot"])):
            raise ValueError(
                f"{text[:80]!r} is no path: expected a name or `[` at character {at + 1}"
            )
        if match["name"]:
            steps.append(match["name"])
        elif match["index"]:
            steps.append(int(match["index"]))
        else:
            steps.append(_parse_name(match["quoted"]))
        at = match.end()
    return tuple(steps)


def _parse_name(text: str) -> str:
    try:
        name = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{text[:80]} is no JSON string") from error
    assert isinstance(name, str)
    return name


def value_at(text: str, path: JsonPath) -> str | Absent:
    """The canonical text of what is at a path of a canonical text; may be `null`."""
    decoder = _Decoder()
    value = decoder.decode(text)
    for step in path:
        if isinstance(step, str):
            if not isinstance(value, dict) or step not in value:
                return ABSENT
            value = value[step]
        else:
            if not isinstance(value, list) or step >= len(value):
                return ABSENT
            value = value[step]
    return "".join(_write(value)) if decoder.has_unusual_numbers else _ENCODE(value)


def kind_of(text: str) -> JsonKind:
    """The kind of a canonical text."""
    return _KINDS.get(text[0], JsonKind.NUMBER)


def _write(value: object) -> Iterator[str]:
    """The pieces of a canonical text; the depth of the value is known to be small."""
    if isinstance(value, str):
        yield _ENCODE(str(value))
    elif value is None or isinstance(value, bool):
        yield _CONSTANTS[value]
    elif isinstance(value, Mapping):
        yield "{"
        for number, name in enumerate(sorted(_names(value))):
            yield ("," if number else "") + _ENCODE(name) + ":"
            yield from _write(value[name])
        yield "}"
    elif isinstance(value, list | tuple):
        yield "["
        for number, item in enumerate(value):
            if number:
                yield ","
            yield from _write(item)
        yield "]"
    else:
        yield _number_text(value)


def _names(members: Mapping[object, object]) -> Sequence[str]:
    names = [name for name in members if isinstance(name, str)]
    if len(names) < len(members):
        raise InvalidJson("a name of an object that is not text")
    return names


def _number_text(value: object) -> str:
    if isinstance(value, JsonNumber):
        return canonical_number(value.text)
    if isinstance(value, int):
        if value.bit_length() > EXPONENT_MAX * 4:
            raise InvalidJson(_number_too_large())
        return canonical_number(int.__repr__(value))
    if isinstance(value, float | Decimal):
        text = _spelling(value)
        if _NUMBER.fullmatch(text) is None:
            raise InvalidJson(f"{text[:20]}, which JSON does not allow")
        return canonical_number(text)
    raise InvalidJson(f"a value of type {type(value).__name__}, which JSON does not have")


def _spelling(value: float | Decimal) -> str:
    """The digits of a number; those of the text that a float was read from, if it is known."""
    if isinstance(value, SpeltFloat):
        return value.text
    return float.__repr__(value) if isinstance(value, float) else str(value)


def _require_depth(value: object, levels: int) -> None:
    # Without recursion: the value of a caller may be nested deeper than Python's stack.
    level = [value]
    for _ in range(levels + 1):
        containers = [item for item in level if isinstance(item, Mapping | list | tuple)]
        if not containers:
            return
        level = []
        for container in containers:
            level += container.values() if isinstance(container, Mapping) else container
            # Each takes a byte at least; a list that holds itself twice doubles with every level.
            if len(level) > BYTES_MAX:
                raise InvalidJson(_too_large())
    raise InvalidJson(_too_deep())


def _within_limits(text: str) -> str:
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise InvalidJson("text that is not valid Unicode") from None
    if size > BYTES_MAX:
        raise InvalidJson(_too_large())
    return text


def _too_large() -> str:
    return f"more than {BYTES_MAX:,} bytes"


def _too_deep() -> str:
    return f"values that are nested more than {DEPTH_MAX} deep"


def _number_too_large() -> str:
    return (
        f"a number of more than {DIGITS_MAX} digits, or not between 1e-{EXPONENT_MAX} and "
        f"1e{EXPONENT_MAX + 1}"
    )


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidJson(f"{name}, which JSON does not allow")


def _fault(error: json.JSONDecodeError) -> str:
    what = error.msg
    if what == "Extra data":
        return "more text after the value"
    if what.startswith("Unterminated string"):
        return "an unterminated string"
    return f"a fault ({what[0].lower()}{what[1:]})"


_ENCODE: Final = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), check_circular=False
).encode
_KINDS: Final = {
    "{": JsonKind.OBJECT,
    "[": JsonKind.ARRAY,
    '"': JsonKind.STRING,
    "t": JsonKind.BOOLEAN,
    "f": JsonKind.BOOLEAN,
    "n": JsonKind.NULL,
}
_CONSTANTS: Final[Mapping[object, str]] = {None: _NULL, True: "true", False: "false"}
_EXACT: Final = json.JSONDecoder(parse_int=JsonNumber, parse_float=JsonNumber)
_PYTHON: Final = json.JSONDecoder(parse_float=_python_number)
