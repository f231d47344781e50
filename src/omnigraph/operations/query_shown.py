"""Display of rows: a text table, or a small table in a notebook.

Invariant: whatever a value holds, a cell is one line of printable text.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

CELL_CHARACTERS_MAX: Final = 200


def shown(value: object) -> str:
    """A value in a cell."""
    match value:
        case None:
            text = "null"
        case bool():
            text = str(value).lower()
        case dict() | list() | tuple():
            return _cut(_nested(value))
        case dt.datetime():
            text = value.isoformat().replace("+00:00", "Z")
        case _:
            text = str(value)
    return _cut(printable(text))


def _nested(value: object) -> str:
    """A node, an edge or a list: enough of it to be recognised."""
    match value:
        case {"type": kind, "id": key, "properties": properties}:
            return f"{kind} {printable(str(key))} {_nested(properties)}"
        case dict():
            inner = ", ".join(f"{name}: {_nested(each)}" for name, each in value.items())
            return f"{{{inner}}}"
        case list() | tuple():
            return f"[{', '.join(map(_nested, value))}]"
        case _:
            return shown(value)


def printable(text: str) -> str:
    """The text with control characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def _cut(text: str) -> str:
    return text if len(text) <= CELL_CHARACTERS_MAX else f"{text[: CELL_CHARACTERS_MAX - 3]}..."


def result_html(
    name: str,
    columns: Sequence[str],
    rows: Iterable[Mapping[str, Any]] | None,
    *,
    more: bool,
) -> str:
    """The first rows of a result; None for rows that are gone."""
    title = f"<p><strong>Query</strong> <code>{escape(name)}</code></p>"
    if rows is None:
        return f"<div>{title}<p>Its rows were already streamed.</p></div>"
    head = "".join(f"<th>{escape(printable(each))}</th>" for each in columns)
    body = [_row(shown(row[each]) for each in columns) for row in rows]
    said = f"The first {len(body)} rows; there are more." if more else _counted(len(body))
    return (
        f"<div>{title}<table><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table><p>{said}</p></div>"
    )


def _row(cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<td>{escape(each)}</td>" for each in cells) + "</tr>"


def _counted(rows: int) -> str:
    return f"{rows:,} row{'s'[: rows != 1]}."
