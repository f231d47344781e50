"""The page of a result: one description, shown in a terminal, in a notebook and by `str()`.

Invariant: `str()` is one line for a report, and at most ten rows for what is a table itself. In
HTML everything that came from a graph, a file or a caller is escaped; there is no script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from omnigraph_lake.display.cells import (
    Cell,
    counted,
    cut,
    element,
    printable,
    short_id,
    spellings,
    value,
)
from omnigraph_lake.display.tables import ON_A_TERMINAL, TableView
from omnigraph_lake.names import EDGE_PREFIX

if TYPE_CHECKING:
    from datetime import datetime

WIDTH: Final = 80
"""Of texts whose terminal is not known."""
_ROWS_OF_TEXT: Final = 10
_ROWS_OF_HTML: Final = 100
_LABEL: Final = 10
_SUMMARY: Final = 200
_SIGNS: Final = {"insert": "+", "update": "~", "delete": "-"}
_IDENTITY: Final = frozenset({"id", "src", "dst"})
_VALUE_WIDTH: Final = 40
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What is said about a result.

    `facts` are labelled values above the tables, `lines` follow the tables. `summary` says all of
    it in one line; without one, the tables do.
    """

    summary: str = ""
    facts: Sequence[tuple[str, Cell]] = ()
    tables: Sequence[TableView] = ()
    lines: Sequence[str] = ()

    def text_lines(self, *, width: int | None, now: datetime | None) -> list[str]:
        """The page for a terminal."""
        facts = [
            f"{label:<{_LABEL}}{spellings(cell, now)[0]}".rstrip() for label, cell in self.facts
        ]
        tables = [
            line
            for table in self.tables
            for line in table.lines(width=width, now=now, advice=ON_A_TERMINAL)
        ]
        return [*facts, *tables, *self.lines] or [self.summary]

    def html(self) -> str:
        facts = "".join(
            f"<strong>{escape(label)}</strong> {escape(spellings(cell, None)[0])}<br>"
            for label, cell in self.facts
        )
        opening = f"<p>{facts}</p>" if facts else ""
        if not (facts or self.tables) and self.summary:
            opening = f"<p>{escape(printable(self.summary))}</p>"
        tables = "".join(
            _first(table, _ROWS_OF_HTML, TableView.html, _more_html) for table in self.tables
        )
        lines = "".join(f"<p>{escape(printable(line))}</p>" for line in self.lines)
        return f"<div>{opening}{tables}{lines}</div>"

    def __str__(self) -> str:
        if self.summary:
            return printable(self.summary)
        tables = [_first(table, _ROWS_OF_TEXT, _plain, _more_text) for table in self.tables]
        return "\n".join([*tables, *map(printable, self.lines)])


class Displayed:
    """A result that people read: short as text, a table in a notebook."""

    __slots__ = ()

    def _page(self) -> Page:
        """By default the fields of a dataclass."""
        facts = [
            (field.name, value(getattr(self, field.name)))
            for field in fields(cast("Any", self))
            if field.repr
        ]
        summary = ", ".join(f"{name.replace('_', ' ')} {text}" for name, text in facts)
        return Page(
            summary=cut(summary, _SUMMARY), facts=[(f"{name} ", text) for name, text in facts]
        )

    def __str__(self) -> str:
        return str(self._page())

    def _repr_html_(self) -> str:
        return self._page().html()

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # noqa: FBT001 - IPython's
        printer.text(str(self))


class Listing(tuple[_T, ...], Displayed):
    """Several results of one kind: a tuple that shows itself as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        return Displayed.__str__(self)


def page_of(result: Displayed) -> Page:
    return result._page()  # noqa: SLF001 - users of a result see only what is made of its page


class Changes(Protocol):
    """How many rows of a type were changed."""

    @property
    def inserted(self) -> int: ...
    @property
    def updated(self) -> int: ...
    @property
    def deleted(self) -> int: ...


def change_table(tables: Mapping[str, Changes]) -> TableView:
    """Changes by type."""
    return TableView(
        header=("type", "inserted", "updated", "deleted"),
        rows=[
            (name, f"{counts.inserted:,}", f"{counts.updated:,}", f"{counts.deleted:,}")
            for name, counts in tables.items()
        ],
        numbers=(1, 2, 3),
    )


def change_words(tables: Mapping[str, Changes], *, of_types: bool = True) -> str:
    """Changes of all types together, such as `3 inserted, 1 deleted in 2 types`."""
    totals = {
        "inserted": sum(counts.inserted for counts in tables.values()),
        "updated": sum(counts.updated for counts in tables.values()),
        "deleted": sum(counts.deleted for counts in tables.values()),
    }
    words = ", ".join(f"{count:,} {word}" for word, count in totals.items() if count)
    words = words or "no rows changed"
    return f"{words} in {counted(len(tables), 'type')}" if of_types else words


def change_page(
    tables: Mapping[str, Changes], commit_id: str | None, *, otherwise: str = "nothing to write"
) -> Page:
    """The page of a write; with changes but no commit, of its dry run."""
    if commit_id is not None:
        line = f"commit {short_id(commit_id)}"
    elif tables:
        line = "dry run, nothing was written"
    else:
        return Page(summary=otherwise)
    if not tables:
        return Page(summary=line)
    return Page(
        summary=f"{line}: {change_words(tables)}", tables=[change_table(tables)], lines=[line]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLines:
    """How changed rows of a type are shown."""

    is_edge: bool
    end_type_columns: tuple[str, ...]
    whole_rows: bool

    @classmethod
    def of_table(
        cls, table_key: str, end_type_columns: tuple[str, ...] = (), *, whole_rows: bool = False
    ) -> RowLines:
        return cls(
            is_edge=table_key.startswith(EDGE_PREFIX),
            end_type_columns=end_type_columns,
            whole_rows=whole_rows,
        )

    def of(self, change: dict[str, Any]) -> Iterator[tuple[str, str]]:
        """A changed row with its sign: what people know it by, and its values."""
        before, after = change["before"], change["after"]
        if change["op"] != "update":
            row = after or before
            yield _SIGNS[change["op"]], self._text(row, self._values(row))
        elif self.whole_rows:
            yield "-", self._text(before, self._values(before))
            yield "+", self._text(after, self._values(after))
        else:
            edits = [
                f"{column} {_quote(before[column])} -> {_quote(after[column])}"
                for column in change["changed"]
            ]
            yield _SIGNS["update"], self._text(after, edits)

    def _text(self, row: dict[str, Any], texts: list[str]) -> str:
        known_by = element(row, is_edge=self.is_edge, end_type_columns=self.end_type_columns)
        name = printable(known_by)
        return f"{name}: {', '.join(texts)}" if texts else name

    def _values(self, row: dict[str, Any]) -> list[str]:
        identity = {*_IDENTITY, *self.end_type_columns}
        return [
            f"{column} {_quote(content)}"
            for column, content in row.items()
            if content is not None and column not in identity and content != row["id"]
        ]


def _quote(content: object) -> str:
    # What changed may be the last digit of a float.
    text = cut(str(content) if isinstance(content, float) else value(content), _VALUE_WIDTH)
    return f"'{text}'" if isinstance(content, str) else text


def _plain(table: TableView) -> str:
    return "\n".join(table.lines(width=WIDTH))


def _more_text(count: int) -> str:
    return f"\n... and {counted(count, 'more row')}"


def _more_html(count: int) -> str:
    return f"<p>... and {counted(count, 'more row')}</p>"


def _first(
    table: TableView, count: int, form: Callable[[TableView], str], more: Callable[[int], str]
) -> str:
    """The first rows of a table in some form, and how many follow."""
    if len(table.rows) <= count:
        return form(table)
    return f"{form(replace(table, rows=table.rows[:count]))}{more(len(table.rows) - count)}"
