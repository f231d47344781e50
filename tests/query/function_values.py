"""The values of scalar functions, one definition each, in plain Python.

No function of the package computes here, so that a mistake in one of them is not repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from omnigraph.query.functions import ScalarFunction

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
}
