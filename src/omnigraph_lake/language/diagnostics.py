"""Places in a source text, findings about them, and how a finding looks in a terminal.

Invariant: rendering is pure and total: any span over any text gives plain text, never an error.
Both languages share this module; it knows neither of them.
"""

from __future__ import annotations

import difflib
import enum
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

SHOWN_WIDTH_MAX: Final = 100
"""Longer source lines are clipped around the caret."""

_ELLIPSIS: Final = "..."
_TAB: Final = "    "

REFUSED_CHARACTER: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufeff\ud800-\udfff]")
"""No text of ours may hold one: control characters, a byte order mark, half a surrogate pair."""


class Severity(enum.Enum):
    """Whether a finding stops the text from being used."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The text from `offset` up to, not including, `end`; line and column count from one."""

    offset: int
    line: int
    column: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One finding: the broken rule, where, what is wrong and what to do about it."""

    rule: str
    severity: Severity
    span: Span
    message: str
    hint: str = ""


def span_at(text: str, offset: int, end: int) -> Span:
    """The span of `text[offset:end]`, for places that no token knows."""
    line_start = text.rfind("\n", 0, offset) + 1
    return Span(
        offset=offset,
        line=text.count("\n", 0, offset) + 1,
        column=offset - line_start + 1,
        end=max(end, offset),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A place at which a grammar does not accept a text, and what it expects there."""

    text: str
    offset: int
    found: str
    expected: frozenset[str]

    @classmethod
    def at(
        cls, text: str, offset: int, expected: Collection[str], *, word: re.Pattern[str]
    ) -> Self:
        """The refusal of the word at `offset`, or of the end of the text without its spaces."""
        if offset >= len(text):
            offset, refused_word = len(text.rstrip(" \t\r\n")), ""
        else:
            word_match = word.match(text, offset)
            refused_word = word_match.group() if word_match else text[offset]
        return cls(text=text, offset=offset, found=refused_word, expected=frozenset(expected))

    @property
    def span(self) -> Span:
        return span_at(self.text, self.offset, self.offset + max(len(self.found), 1))


def shown(value: object, most: int = 80) -> str:
    """What a caller handed in, for a message: its beginning, or its type if it has no repr."""
    try:
        return repr(value)[:most]
    except Exception:  # noqa: BLE001 - too deep, too many digits, or a class of the caller's own
        return f"a {type(value).__name__}"


def did_you_mean(word: str, candidates: Iterable[str], *, similarity_min: float = 0.6) -> str:
    """A ready hint naming the closest candidate, or an empty string."""
    known = sorted(set(candidates))
    folded = {name.casefold(): name for name in known}
    same = folded.get(word.casefold())
    if same is not None:
        return f"did you mean `{same}`?"
    # A comparison costs the product of both lengths, and no one mistypes hundreds of letters.
    if len(word) > 64:
        return ""
    close = difflib.get_close_matches(word, known, n=1, cutoff=similarity_min)
    if not close:
        match = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=similarity_min)
        close = [folded[name] for name in match]
    return f"did you mean `{close[0]}`?" if close else ""


class Suggestions:
    """Spelling suggestions for one text, within a budget of compared words.

    Each suggestion looks at every candidate, so a large text full of mistakes would take
    quadratic time. When the budget is spent, findings come without a suggestion.
    """

    def __init__(self, *, comparisons_max: int = 20_000) -> None:
        self._comparisons_left = comparisons_max

    def closest(self, word: str, candidates: Collection[str]) -> str:
        """`did_you_mean`, or an empty string once the budget is spent."""
        self._comparisons_left -= len(candidates)
        return did_you_mean(word, candidates) if self._comparisons_left >= 0 else ""


def render(diagnostic: Diagnostic, *, text: str, filename: str) -> str:
    """The finding with its place, the source line, a caret underline and the hint."""
    span = diagnostic.span
    line, caret = _pointed_line(text, span)
    gutter = " " * len(str(span.line))
    parts = [
        f"{filename}:{span.line}:{span.column}: "
        f"{diagnostic.severity.value}[{diagnostic.rule}]: {diagnostic.message}",
        f" {span.line} | {line}".rstrip(),
        f" {gutter} | {caret}",
    ]
    if diagnostic.hint:
        parts.append(f" {gutter} = hint: {diagnostic.hint}")
    return "\n".join(parts)


def render_all(diagnostics: Sequence[Diagnostic], *, text: str, filename: str) -> str:
    """Every finding in the given order, separated by an empty line."""
    return "\n\n".join(
        render(diagnostic, text=text, filename=filename) for diagnostic in diagnostics
    )


def _pointed_line(text: str, span: Span) -> tuple[str, str]:
    start = min(max(span.offset, 0), len(text))
    line_start = text.rfind("\n", 0, start) + 1
    newline = text.find("\n", start)
    line_end = len(text) if newline < 0 else newline
    before = text[line_start:start]
    pointed = text[start : min(max(span.end, start), line_end)].rstrip("\r")
    after = text[start + len(pointed) : line_end].rstrip("\r")
    return _clip(_visible(before), _visible(pointed), _visible(after))


def _visible(raw: str) -> str:
    if raw.isascii() and raw.isprintable():
        return raw
    return "".join(
        _TAB if char == "\t" else char if char.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for char in raw
    )


def _clip(before: str, pointed: str, after: str) -> tuple[str, str]:
    if len(before) + len(pointed) + len(after) > SHOWN_WIDTH_MAX:
        pointed = _cut_right(pointed, SHOWN_WIDTH_MAX - 20)
        room = SHOWN_WIDTH_MAX - len(pointed)
        after = _cut_right(after, max(room // 2, room - len(before)))
        before = _cut_left(before, room - len(after))
    carets = "^" * max(display_width(pointed), 1)
    return before + pointed + after, " " * display_width(before) + carets


def _cut_right(shown: str, width_max: int) -> str:
    if len(shown) <= width_max:
        return shown
    return shown[: width_max - len(_ELLIPSIS)] + _ELLIPSIS


def _cut_left(shown: str, width_max: int) -> str:
    if len(shown) <= width_max:
        return shown
    return _ELLIPSIS + shown[len(shown) - width_max + len(_ELLIPSIS) :]


def display_width(shown: str) -> int:
    """How many columns of a terminal a printable text takes."""
    if shown.isascii():
        return len(shown)
    return sum(_character_columns(char) for char in shown)


def _character_columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
