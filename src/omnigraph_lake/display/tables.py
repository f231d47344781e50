"""Tables of text that fit a width, and the same tables as HTML.

Invariant: no line is wider than the width that was given, unless the first column alone is; no cell
is cut without an ellipsis, no column left out without a hint. Without a width nothing is cut: what
goes to a file or a pipe is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from omnigraph_lake.display.cells import Cell, counted, cut, fold, printable, spellings
from omnigraph_lake.language.diagnostics import display_width

if TYPE_CHECKING:
    from datetime import datetime

_GAP: Final = 2
_CUT_MIN: Final = 12
"""A column that may be cut keeps so much, or its title, or its longest word."""
ON_A_TERMINAL: Final = "use --json or a wider terminal"
_WORD_MAX: Final = 24
"""Longer words may be cut: paths, addresses and hashes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """Rows below a header.

    `numbers` are columns that are aligned to the right and never cut; `whole` are others that are
    never cut, by default the first: what is listed first is what gets copied. `empty` is what is
    said instead of a table without rows.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numbers: Sequence[int] = ()
    whole: Sequence[int] = (0,)
    empty: str = ""

    def lines(
        self, *, width: int | None, now: datetime | None = None, advice: str = ""
    ) -> list[str]:
        """The table as lines of text; where columns are left out, how many, and some advice."""
        if not self.rows and self.empty:
            return [self.empty]
        columns = self._columns(now)
        layout = lay_out(columns, width=width)
        picked = [columns[place.position].spelled(place.is_short) for place in layout.places]
        lines = [
            layout.line([columns[place.position].title for place in layout.places]),
            layout.rule(),
            *(layout.line(row) for row in zip(*picked, strict=True)),
        ]
        if layout.hidden and width is not None:
            lines += fold(layout.hint(advice), width).splitlines()
        return lines

    def html(self) -> str:
        if not self.rows and self.empty:
            return f"<p>{escape(self.empty)}</p>"
        head = "".join(
            f"<th{self._align(place)}>{escape(printable(title))}</th>"
            for place, title in enumerate(self.header)
        )
        body = "".join(
            "<tr>"
            + "".join(
                f"<td{self._align(place)}>{escape(spellings(cell, None)[0])}</td>"
                for place, cell in enumerate(row)
            )
            + "</tr>"
            for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _align(self, position: int) -> str:
        side = "right" if position in self.numbers else "left"
        return f' style="text-align:{side}"'

    def _columns(self, now: datetime | None) -> list[Column]:
        spelled = [[spellings(cell, now) for cell in row] for row in self.rows]
        return [
            Column(
                title=printable(title),
                long=tuple(row[position][0] for row in spelled),
                short=tuple(row[position][1] for row in spelled),
                is_number=position in self.numbers,
                is_whole=position in self.whole or position in self.numbers,
            )
            for position, title in enumerate(self.header)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The cells of a column in their two forms."""

    title: str
    long: tuple[str, ...]
    short: tuple[str, ...]
    is_number: bool = False
    is_whole: bool = False

    def spelled(self, is_short: bool) -> tuple[str, ...]:  # noqa: FBT001 - one of two forms
        return self.short if is_short else self.long

    def width(self, *, is_short: bool) -> int:
        return max(map(display_width, (self.title, *self.spelled(is_short))))

    @property
    def width_min(self) -> int:
        natural = self.width(is_short=True)
        if self.is_whole:
            return natural
        words = max(map(display_width, " ".join(self.short).split()), default=0)
        return min(natural, max(display_width(self.title), _CUT_MIN, min(words, _WORD_MAX)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a column is shown, and how wide."""

    position: int
    width: int
    is_number: bool
    is_short: bool
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns that are shown; the others are hidden."""

    places: tuple[Place, ...]
    hidden: int
    is_limited: bool

    def line(self, cells: Sequence[str]) -> str:
        """Cells of the columns that are shown."""
        placed = []
        for cell, place in zip(cells, self.places, strict=True):
            text = cut(cell, place.width) if self.is_limited and not place.is_whole else cell
            space = " " * (place.width - display_width(text))
            placed.append(f"{space}{text}" if place.is_number else f"{text}{space}")
        return (" " * _GAP).join(placed).rstrip()

    def rule(self) -> str:
        return "─" * (sum(place.width for place in self.places) + _GAP * (len(self.places) - 1))

    def hint(self, advice: str = "") -> str:
        hidden = counted(self.hidden, "more column")
        return f"{hidden}; {advice}" if advice else hidden


def lay_out(columns: Sequence[Column], *, width: int | None) -> Layout:
    """Choose columns, forms and widths that fit.

    Long forms become short from the right, then cells are cut, the widest column first; columns
    that do not fit even so are left out from the right.
    """
    shown = len(columns)
    if width is not None:
        while shown > 1 and _total([column.width_min for column in columns[:shown]]) > width:
            shown -= 1
    is_short = [False] * shown
    widths = [column.width(is_short=False) for column in columns[:shown]]
    if width is not None:
        for position in reversed(range(shown)):
            if _total(widths) > width:
                is_short[position] = True
                widths[position] = columns[position].width(is_short=True)
        _shrink(widths, [column.width_min for column in columns[:shown]], _total(widths) - width)
        for position, column in enumerate(columns[:shown]):
            if not column.is_whole:
                cells = column.spelled(is_short[position])
                widths[position] = max(
                    display_width(column.title),
                    *(display_width(cut(cell, widths[position])) for cell in cells),
                    0,
                )
    return Layout(
        places=tuple(
            Place(
                position=position,
                width=widths[position],
                is_number=columns[position].is_number,
                is_short=is_short[position],
                is_whole=columns[position].is_whole,
            )
            for position in range(shown)
        ),
        hidden=len(columns) - shown,
        is_limited=width is not None,
    )


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _shrink(widths: list[int], smallest: Sequence[int], excess: int) -> None:
    """Take columns of text from the widest that can give some, one after the other."""
    for _ in range(excess):
        wide = [place for place in range(len(widths)) if widths[place] > smallest[place]]
        if not wide:
            return
        widths[max(wide, key=widths.__getitem__)] -= 1
