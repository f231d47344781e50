"""Random failures that were found once, each a line of JSON in this folder; README.md says how.

A line names its suite, says in one sentence what was wrong, and holds the whole case, so that it
stays the same case when a generator changes.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent


class Suite(StrEnum):
    """The random suite whose comparison a line goes through."""

    QUERY = "query"
    QUERY_TEXT = "query text"
    SCHEMA_TEXT = "schema text"
    WRITE = "write"
    MUTATION = "mutation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One case, and what was wrong with it."""

    suite: Suite
    found: str
    case: Mapping[str, Any]
    place: str = ""
    """The file and the number of the line, for messages."""

    def encoded(self) -> str:
        head = {"suite": self.suite, "found": self.found}
        return json.dumps({**head, **{name: encode(value) for name, value in self.case.items()}})


def read_lines(*suites: Suite) -> list[Line]:
    """The lines of some suites, or of all."""
    return [
        line
        for path in sorted(FOLDER.glob("*.jsonl"))
        for number, text in enumerate(path.read_text().splitlines(), start=1)
        if (line := _decoded(text, f"{path.stem}-{number}")).suite in (suites or Suite)
    ]


def _decoded(text: str, place: str) -> Line:
    members = json.loads(text)
    suite, found = Suite(members.pop("suite")), members.pop("found")
    case = {name: decode(value) for name, value in members.items()}
    return Line(suite=suite, found=found, case=case, place=place)


_READ: Final[Mapping[str, Callable[[str], object]]] = {
    "$datetime": dt.datetime.fromisoformat,
    "$date": dt.date.fromisoformat,
    "$bytes": bytes.fromhex,
    "$float": float,
    "$decimal": Decimal,
}


def encode(value: Any) -> Any:  # noqa: PLR0911 - one per kind
    """A value as JSON; what JSON lacks is an object with one member that names its kind."""
    match value:
        case Mapping():
            return {name: encode(each) for name, each in value.items()}
        case list() | tuple():
            return [encode(each) for each in value]
        case dt.date():
            kind = "$datetime" if isinstance(value, dt.datetime) else "$date"
            return {kind: value.isoformat()}
        case bytes():
            return {"$bytes": value.hex()}
        case Decimal():
            return {"$decimal": str(value)}
        case float() if not math.isfinite(value):
            return {"$float": repr(value)}
        case _:
            return value


def decode(value: Any) -> Any:
    match value:
        case dict() if len(value) == 1 and (kind := next(iter(value))) in _READ:
            return _READ[kind](value[kind])
        case dict():
            return {name: decode(each) for name, each in value.items()}
        case list():
            return [decode(each) for each in value]
        case _:
            return value
