"""The ways in which the texts of a column can be read, and which of them fit all texts.

A reading is a type of property and how a text is parsed. Every batch of texts removes the readings
that do not fit, so that what is left at the end fits every text of the input, in one pass.

Invariants:
- A number with a leading zero, and a date whose day and month could be exchanged, are texts:
  nothing that could be meant otherwise is guessed.
- A reading fits a text only if an import reads it without a rejected record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.load.formats.csv_files import cell_column
from omnigraph_lake.load.formats.mapped import parse_texts
from omnigraph_lake.load.formats.mapping import Parse, ValueMapping
from omnigraph_lake.schema import catalog as ct

Accepts = Callable[[pa.StringArray], bool]

_ANY: Final = ValueMapping(column="")
_INTEGER: Final = r"[+-]?(0|[1-9][0-9]*)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How texts are read. `implies` names readings that fit whatever this one fits."""

    name: str
    scalar: ct.Scalar
    value: ValueMapping = _ANY
    pattern: str | None = None
    words: tuple[str, ...] = ()
    implies: frozenset[str] = frozenset()
    rival: str | None = None
    """The reading that would give another value to the same texts."""

    @property
    def kind(self) -> ct.ScalarType:
        return ct.ScalarType(scalar=self.scalar)

    def fits(self, texts: pa.StringArray) -> bool:
        """Whether all texts, none of which is null, are read by an import."""
        if self.words and not pc.all(pc.is_in(texts, pa.array(self.words))).as_py():
            return False
        matches = self.pattern is None or pc.match_substring_regex(texts, pattern=self.pattern)
        if matches is not True and not pc.all(matches).as_py():
            return False
        if not self.value.is_plain:
            texts = parse_texts(texts, self.value, self.kind)
        column = cell_column(texts, self.kind)
        if column.values.null_count:
            return False
        return column.doubted is None or not column.doubted.any()


def _boolean(true: str, false: str) -> Reading:
    value = replace(_ANY, parse=Parse.BOOLEAN, true=(true,), false=(false,))
    return Reading(name=f"{true}/{false}", scalar=ct.Scalar.BOOL, value=value, words=(true, false))


def _date_reading(
    form: str, pattern: str, *, time: bool = False, rival: str | None = None
) -> Reading:
    return Reading(
        name=form,
        scalar=ct.Scalar.DATETIME if time else ct.Scalar.DATE,
        value=replace(_ANY, parse=Parse.DATETIME if time else Parse.DATE, format=form),
        pattern=pattern,
        rival=rival,
    )


_TIME: Final = r" \d{1,2}:\d{2}"
TEXT: Final = Reading(name="text", scalar=ct.Scalar.STRING)
READINGS: Final = (
    Reading(name="true/false", scalar=ct.Scalar.BOOL, words=("true", "false")),
    *(
        _boolean(true, false)
        for true, false in (
            ("True", "False"),
            ("TRUE", "FALSE"),
            ("yes", "no"),
            ("Yes", "No"),
            ("YES", "NO"),
            ("Y", "N"),
            ("y", "n"),
            ("t", "f"),
            ("T", "F"),
        )
    ),
    Reading(
        name="integer",
        scalar=ct.Scalar.I64,
        pattern=r"^(0|-?[1-9][0-9]{0,17})$",
        implies=frozenset({"float", "1,234.5", "1.234,5"}),
    ),
    Reading(name="float", scalar=ct.Scalar.F64, implies=frozenset()),
    Reading(
        name="1,234.5",
        scalar=ct.Scalar.F64,
        value=replace(_ANY, parse=Parse.NUMBER, thousands=",", decimal="."),
        pattern=rf"^({_INTEGER}|[+-]?[1-9][0-9]{{0,2}}(,[0-9]{{3}})+)(\.[0-9]+)?$",
        rival="1.234,5",
    ),
    Reading(
        name="1.234,5",
        scalar=ct.Scalar.F64,
        value=replace(_ANY, parse=Parse.NUMBER, thousands=".", decimal=","),
        pattern=rf"^({_INTEGER}|[+-]?[1-9][0-9]{{0,2}}(\.[0-9]{{3}})+)(,[0-9]+)?$",
        rival="1,234.5",
    ),
    Reading(name="ISO date", scalar=ct.Scalar.DATE, pattern=r"^\d{4}-\d{2}-\d{2}$"),
    Reading(name="ISO time", scalar=ct.Scalar.DATETIME, pattern=r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:"),
    _date_reading("%d.%m.%Y", r"^\d{1,2}\.\d{1,2}\.\d{4}$"),
    _date_reading("%d/%m/%Y", r"^\d{1,2}/\d{1,2}/\d{4}$", rival="%m/%d/%Y"),
    _date_reading("%m/%d/%Y", r"^\d{1,2}/\d{1,2}/\d{4}$", rival="%d/%m/%Y"),
    _date_reading("%d-%m-%Y", r"^\d{1,2}-\d{1,2}-\d{4}$", rival="%m-%d-%Y"),
    _date_reading("%m-%d-%Y", r"^\d{1,2}-\d{1,2}-\d{4}$", rival="%d-%m-%Y"),
    _date_reading("%Y/%m/%d", r"^\d{4}/\d{1,2}/\d{1,2}$"),
    _date_reading("%d %b %Y", r"^\d{1,2} [A-Za-z]{3} \d{4}$"),
    _date_reading("%Y-%m-%d %H:%M", rf"^\d{{4}}-\d{{2}}-\d{{2}}{_TIME}$", time=True),
    _date_reading("%d.%m.%Y %H:%M", rf"^\d{{1,2}}\.\d{{1,2}}\.\d{{4}}{_TIME}$", time=True),
    _date_reading(
        "%d/%m/%Y %H:%M",
        rf"^\d{{1,2}}/\d{{1,2}}/\d{{4}}{_TIME}$",
        time=True,
        rival="%m/%d/%Y %H:%M",
    ),
    _date_reading(
        "%m/%d/%Y %H:%M",
        rf"^\d{{1,2}}/\d{{1,2}}/\d{{4}}{_TIME}$",
        time=True,
        rival="%d/%m/%Y %H:%M",
    ),
    _date_reading(
        "%m/%d/%Y %H:%M:%S",
        rf"^\d{{1,2}}/\d{{1,2}}/\d{{4}}{_TIME}:\d{{2}}$",
        time=True,
        rival="%d/%m/%Y %H:%M:%S",
    ),
    _date_reading(
        "%d/%m/%Y %H:%M:%S",
        rf"^\d{{1,2}}/\d{{1,2}}/\d{{4}}{_TIME}:\d{{2}}$",
        time=True,
        rival="%m/%d/%Y %H:%M:%S",
    ),
    TEXT,
)
QUOTED: Final = tuple(
    reading
    for reading in READINGS
    if reading is TEXT or reading.scalar in {ct.Scalar.DATE, ct.Scalar.DATETIME}
)
"""The readings of texts that are quoted in JSON: a number in quotes is a text."""


def fitting(readings: tuple[Reading, ...], texts: pa.StringArray) -> tuple[Reading, ...]:
    """Those of some readings that fit all texts, of which none is null."""
    if readings == (TEXT,) or not len(texts):
        return readings
    implied: set[str] = set()
    left: list[Reading] = []
    for reading in readings:
        if reading is TEXT or reading.name in implied or reading.fits(texts):
            left.append(reading)
            implied |= reading.implies
    return tuple(left)


def best(readings: tuple[Reading, ...]) -> tuple[Reading, str]:
    """The reading to use, and why it is not a more specific one, if it could be several."""
    names = {reading.name for reading in readings}
    for reading in readings:
        if reading.rival is not None and reading.rival in names:
            if not names & {"integer", "float"}:
                return TEXT, f"could be read as {reading.name} or as {reading.rival}"
            continue
        return reading, ""
    return TEXT, ""
