"""Durations in text form: `30m`, `12h`, `7d`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from omnigraph.errors import InvalidInputError
from omnigraph.language.diagnostics import shown

_UNITS: Final = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}


def parse_age(text: str) -> timedelta:
    """A number and its unit: s, m, h, d or w."""
    matched = re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip())
    if matched is None:
        raise InvalidInputError(
            f"{shown(text, 40)} is not a duration", next_step="Write it as 45s, 30m, 12h, 7d or 4w."
        )
    number, unit = matched.groups()
    return int(number) * _UNITS[unit]
