"""Patterns and units, which are known before a run: what is wrong with one, and `like` as a regex.

Invariant: every pattern that is not refused is an RE2 expression, which is matched in time linear
in the text.
"""

from __future__ import annotations

import re
from typing import Final, assert_never

from omnigraph_lake.query.functions import DATE_UNITS, TIME_UNITS, Accepts
from omnigraph_lake.schema.json_text import InvalidJson, canonical_text, parse_path

PATTERN_CHARACTERS_MAX: Final = 1000
_LIKE_ITEM: Final = re.compile(r"\\[%_\\]|[^\\]", re.DOTALL)
_IN_REGEX: Final = re.compile(r"[^0-9A-Za-z\s\x80-\U0010ffff]")


def refuse_known(  # noqa: C901, PLR0911, PLR0912 - one per kind
    accepts: Accepts, value: str
) -> str | None:
    """What is wrong with an argument whose value is known; None if nothing is."""
    match accepts:
        case Accepts.SEPARATOR:
            return None if value else "a separator cannot be empty"
        case Accepts.LIKE_PATTERN:
            if len(value) > PATTERN_CHARACTERS_MAX:
                return _too_long(value)
            if re.fullmatch(rf"(?:{_LIKE_ITEM.pattern})*", value, re.DOTALL) is None:
                return r"in a pattern `\` is followed by `%`, `_` or `\`"
            return None
        case Accepts.REGEX:
            return _too_long(value) if len(value) > PATTERN_CHARACTERS_MAX else refuse_regex(value)
        case Accepts.DATE_UNIT:
            return _refuse_unit(value, DATE_UNITS)
        case Accepts.TIME_UNIT:
            return _refuse_unit(value, TIME_UNITS)
        case Accepts.JSON_PATH:
            return _too_long(value) if len(value) > PATTERN_CHARACTERS_MAX else _refuse_path(value)
        case Accepts.JSON_TEXT:
            return _refuse_json(value)
        case (
            Accepts.TEXT
            | Accepts.INDEX
            | Accepts.INTEGER
            | Accepts.FLOAT
            | Accepts.DECIMAL
            | Accepts.NUMBER
            | Accepts.DATE
            | Accepts.DATETIME
            | Accepts.TIME
            | Accepts.LIST
            | Accepts.BOOLS
            | Accepts.JSON
        ):
            return None
        case _:
            assert_never(accepts)


def _refuse_unit(value: str, units: tuple[str, ...]) -> str | None:
    if value in units:
        return None
    kind = "dates have" if units == DATE_UNITS else "the units are"
    problem = f"`{value[:40]}` is no unit" if value not in TIME_UNITS else f"a Date has no {value}"
    return f"{problem}; {kind} {', '.join(units)}"


def _refuse_json(value: str) -> str | None:
    try:
        return "the JSON value null is null" if canonical_text(value) is None else None
    except InvalidJson as error:
        return f"this is no JSON text: it has {error}"


def _refuse_path(value: str) -> str | None:
    try:
        parse_path(value)
    except ValueError as error:
        return str(error)
    return None


def refuse_regex(source: str) -> str | None:
    """Why a text is not an RE2 expression; None if it is one."""
    # Most queries have no pattern, and an editor or a linter needs nothing else of Arrow.
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        # Arrow compiles the pattern only when there is a value to match it with.
        pc.match_substring_regex(pa.array([""], pa.string()), pattern=source)
    except pa.ArrowInvalid as refused:
        reason = str(refused).removeprefix("Invalid regular expression: ")
        if reason.startswith("invalid perl operator: (?"):
            return "look-around does not exist in RE2 regular expressions"
        return f"this is not an RE2 regular expression: {reason[:120]}"
    return None


def like_regex(pattern: str) -> str:
    """The RE2 expression that matches the texts a `like` pattern fits."""
    parts = [_item_regex(item) for item in _LIKE_ITEM.findall(pattern)]
    return rf"(?s)\A{''.join(parts)}\z"


def _item_regex(item: str) -> str:
    match item:
        case "%":
            return ".*"
        case "_":
            return "."
        case _:
            return _IN_REGEX.sub(r"\\\g<0>", item[-1])


def _too_long(value: str) -> str:
    return f"a pattern has at most {PATTERN_CHARACTERS_MAX} characters, found {len(value)}"
