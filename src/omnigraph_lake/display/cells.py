"""Values as people read them: cells of tables, counts, sizes, times and ids.

Invariant: whatever a value holds, a cell is one line of printable text.
"""

from __future__ import annotations

import datetime as dt
import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Final

from omnigraph_lake.language.diagnostics import display_width

ELLIPSIS: Final = "…"
_SOURCE: Final = re.compile(r" *\d* \| ")
"""A line of source, and the carets below it."""
_CODE: Final = re.compile("`[^`]+`")
_NO_BREAK: Final = "\0"
CELL_CHARACTERS_MAX: Final = 200
SHORT_ID: Final = 8
"""An id is shown with at least so many letters."""
_ALONE_ID: Final = 12
"""The time of a ULID to the millisecond and two random letters, where its siblings are unknown."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time; a terminal also says how long ago it was."""

    at: str | dt.datetime | None


@dataclass(frozen=True, slots=True)
class Either:
    """A text, and what stands for it where there is not enough room."""

    long: str
    short: str


Cell = str | Moment | Either


def spellings(cell: Cell, now: dt.datetime | None) -> tuple[str, str]:
    """The long and the short form of a cell."""
    match cell:
        case Moment(at):
            return _moment(at, now)
        case Either(long, short):
            return printable(long), printable(short)
        case _:
            return printable(cell), printable(cell)


def _moment(at: str | dt.datetime | None, now: dt.datetime | None) -> tuple[str, str]:
    if not at:
        return "", ""
    moment = dt.datetime.fromisoformat(at) if isinstance(at, str) else at
    date = f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M}"
    relative = "" if now is None else distance(moment, now)
    return (f"{date} ({relative})", relative) if relative else (date, date)


def distance(moment: dt.datetime, now: dt.datetime) -> str:
    """Such as `3 min ago` or `in 2 h`; empty for what is a month away, where a date says more."""
    seconds = int((now - moment).total_seconds())
    amount = abs(seconds)
    if amount >= 30 * 86_400:
        return ""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        if amount >= size:
            passed = f"{amount // size} {unit}"
            return f"{passed} ago" if seconds > 0 else f"in {passed}"
    return "just now"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Such as `1 row` or `2,000 rows`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def file_size(count: int) -> str:
    """Bytes, such as `1.2 MB`."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def short_ids(ids: Collection[str]) -> dict[str, str]:
    """The shortest prefix of every id that no other of them starts with, of at least 8 letters."""
    ordered = sorted(set(ids))
    needed = dict.fromkeys(ordered, SHORT_ID)
    for first, second in pairwise(ordered):
        shared = _shared(first, second) + 1
        needed[first] = max(needed[first], shared)
        needed[second] = max(needed[second], shared)
    return {text: text[:length] for text, length in needed.items()}


def short_id(text: str) -> str:
    """An id whose siblings are not known, by enough of it that another is improbable."""
    return text[:_ALONE_ID]


def _shared(first: str, second: str) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next(
        (place for place, (left, right) in pairs if left != right), min(map(len, (first, second)))
    )


def value(content: object) -> str:
    """A value of a row in a cell."""
    match content:
        case None:
            text = "null"
        case bool():
            text = str(content).lower()
        case dict() | list() | tuple():
            return _limit(_nested(content))
        case float() if not content.is_integer():
            # More digits are those of the binary fraction: 16521.149999999998.
            text = str(float(f"{content:.15g}"))
        case Decimal():
            text = f"{content:f}"
        case dt.datetime():
            text = content.isoformat().replace("+00:00", "Z")
        case _:
            text = str(content)
    return _limit(printable(text))


def _nested(content: object) -> str:
    """A node, an edge or a list: enough of it to be recognised."""
    match content:
        case {"type": kind, "src": source, "dst": target, "properties": properties}:
            ends = f"{printable(str(source))} -> {printable(str(target))}"
            return f"{kind} {ends} {_nested(properties)}"
        case {"type": kind, "id": key, "property": name, "size": size}:
            return f"{kind}.{name} of {printable(str(key))}, {size:,} bytes"
        case {"type": kind, "id": key, "properties": properties}:
            return f"{kind} {printable(str(key))} {_nested(properties)}"
        case dict():
            inner = ", ".join(f"{name}: {_nested(part)}" for name, part in content.items())
            return f"{{{inner}}}"
        case list() | tuple():
            return f"[{', '.join(map(_nested, content))}]"
        case _:
            return value(content)


def element(
    row: Mapping[str, object], *, is_edge: bool, end_type_columns: Sequence[str] = ()
) -> str:
    """A node or an edge by what people know it by: the id of a node, the ends of an edge.

    An end that may have several node types is its type and its id, as in `doc1 -> Company acme`.
    """
    if not is_edge:
        return str(row["id"])
    ends = (
        f"{row[f'{end}_type']} {row[end]}" if f"{end}_type" in end_type_columns else f"{row[end]}"
        for end in ("src", "dst")
    )
    return " -> ".join(ends)


def printable(text: str) -> str:
    """The text with control characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def cut(text: str, width: int) -> str:
    """As much of a text as fits, with an ellipsis; after a word unless that is far before."""
    if display_width(text) <= width:
        return text
    kept, room = "", width - 1
    for letter in text:
        room -= display_width(letter)
        if room < 0:
            break
        kept += letter
    words = kept.rpartition(" ")[0].rstrip(" ,;")
    if text[len(kept)] not in " ,;" and 3 * display_width(words) >= width:
        kept = words
    return f"{kept.rstrip(' ,;')}{ELLIPSIS}" if width > 0 else ""


def fold(text: str, width: int) -> str:
    """Long lines of a message broken between words, but never within a command in backticks."""
    lines = []
    for line in text.split("\n"):
        if _SOURCE.match(line):
            lines.append(line)
            continue
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        joined = _CODE.sub(lambda code: code[0].replace(" ", _NO_BREAK), line)
        lines += textwrap.wrap(
            joined,
            width,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
            drop_whitespace=True,
        ) or [""]
    return "\n".join(lines).replace(_NO_BREAK, " ")


def _limit(text: str) -> str:
    return (
        text if len(text) <= CELL_CHARACTERS_MAX else f"{text[: CELL_CHARACTERS_MAX - 1]}{ELLIPSIS}"
    )
