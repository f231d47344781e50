"""JSON texts, strictly: what is no JSON, and names that an object says twice.

Invariant: a text is taken for what RFC 8259 makes of it or refused; nothing is repaired. No parser
tells that a name occurred twice and the last one won, so names are counted: `names_at_most` never
counts too few, and only where it counts more than were decoded is a text read once more, slowly.

A number that 64 bits cannot hold stays what it is, so that a message can show it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NoReturn

import numpy as np
import numpy.typing as npt

_COLON, _QUOTE, _BACKSLASH, _NEWLINE = b':"\\\n'
_SPACES: Final = tuple(b" \t\r")
_SPACES_MAX: Final = 8
_INTEGER_DIGITS_MAX: Final = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonValue:
    """A parsed text; `repeated` is the first name that an object in it says twice."""

    value: object
    repeated: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotJson:
    """Why a text is no JSON."""

    why: str


class Unheld:
    """A number beyond what 64 bits hold; no column takes it over."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


class JsonReader:
    """Reads JSON texts, one at a time."""

    def __init__(self) -> None:
        self._repeated: list[str] = []
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._members,
            parse_float=_float,
            parse_int=_integer,
            parse_constant=_constant,
        )

    def read(self, text: bytes) -> JsonValue | NotJson:
        """Read one JSON value that fills the text."""
        self._repeated.clear()
        try:
            value = self._decoder.decode(text.decode())
        except UnicodeDecodeError as error:
            return NotJson(why=f"found bytes that are not UTF-8 at byte {error.start + 1}")
        except json.JSONDecodeError as error:
            return NotJson(why=f"found {_fault(error)} at character {error.pos + 1}")
        except RecursionError:
            return NotJson(why="found values that are nested too deeply")
        except ValueError as error:
            return NotJson(why=f"found {error}")
        return JsonValue(value=value, repeated=self._repeated[0] if self._repeated else None)

    def _members(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            self._repeated.append(_first_repeated(name for name, _ in pairs))
        return found


def _first_repeated(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("no name is repeated")


def names_at_most(data: bytes) -> npt.NDArray[np.int64]:
    """For each line of valid JSON, a number that its objects' names do not exceed.

    A name ends in a quote that no backslash makes part of it, and a colon follows, with or without
    white space. Inside a text, the same can only look so at its beginning.
    """
    codes = np.frombuffer(data, np.uint8)
    colons = np.flatnonzero(codes == _COLON)
    before = colons - 1
    for _ in range(_SPACES_MAX):
        spaced = np.flatnonzero(np.isin(codes[before], _SPACES))
        if not len(spaced):
            break
        before[spaced] -= 1
    quoted = (codes[before] == _QUOTE) & (codes[before - 1] != _BACKSLASH)
    names = colons[quoted | np.isin(codes[before], _SPACES)]
    ends = np.flatnonzero(codes == _NEWLINE)
    lines = len(ends) + (not data.endswith(b"\n"))
    return np.bincount(np.searchsorted(ends, names), minlength=lines)


def _float(text: str) -> float | Unheld:
    value = float(text)
    return value if math.isfinite(value) else Unheld(text)


def _integer(text: str) -> int | Unheld:
    return int(text) if len(text) <= _INTEGER_DIGITS_MAX else Unheld(text)


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name}, which JSON does not allow")


def _fault(error: json.JSONDecodeError) -> str:
    what = error.msg
    if what == "Extra data":
        return "more text after the value"
    if what.startswith("Unterminated string"):
        return "an unterminated string"
    return f"a fault ({what[0].lower()}{what[1:]})"
