"""Tables fit the width they are given; nothing is cut or left out without a sign."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.display.cells import (
    ELLIPSIS,
    Cell,
    Either,
    Moment,
    counted,
    cut,
    distance,
    file_size,
    fold,
    short_ids,
    value,
)
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.language.diagnostics import display_width

pytestmark = pytest.mark.unit

NOW: Final = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)
WORDS: Final = "a rather long sentence of many short words that goes on"

CELLS = st.text(alphabet="ab é漢\x1b", max_size=30)


@given(
    rows=st.integers(1, 5).flatmap(
        lambda columns: st.lists(
            st.lists(CELLS, min_size=columns, max_size=columns), min_size=1, max_size=5
        )
    ),
    width=st.integers(1, 90),
)
def test_no_line_is_wider_than_the_terminal_unless_its_first_column_is(
    rows: list[list[str]], width: int
) -> None:
    table = TableView(header=[f"c{place}" for place in range(len(rows[0]))], rows=rows)
    lines = table.lines(width=width)
    first = max(
        map(display_width, (table.lines(width=None)[0][:2], *(value(row[0]) for row in rows)))
    )

    shown = lines[: 2 + len(rows)]  # a word of the hint may be wider than a very narrow terminal
    assert max(map(display_width, shown)) <= max(width, first)


@given(st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=5))
def test_without_a_width_every_cell_is_whole(rows: list[list[str]]) -> None:
    lines = TableView(header=("a", "b", "c"), rows=rows).lines(width=None)

    for row, line in zip(rows, lines[2:], strict=True):
        assert "".join(value(cell) for cell in row).replace(" ", "") == line.replace(" ", "")


def test_columns_that_do_not_fit_are_left_out_with_a_hint() -> None:
    table = TableView(header=("id", *"bcdef"), rows=[["01M7HZET", *[WORDS] * 5]])

    lines = table.lines(width=45, advice="use --json or a wider terminal")

    assert lines[0].split() == ["id", "b", "c"]
    assert lines[-2:] == ["3 more columns; use --json or a wider", "  terminal"]


def test_short_forms_are_used_before_texts_are_cut() -> None:
    row: list[Cell] = [
        "01M7HZET",
        Moment("2026-11-17T11:57:00+00:00"),
        Either("5 of 5, name 0%", "5 of 5"),
    ]
    table = TableView(header=("id", "when", "indexes"), rows=[row])

    assert table.lines(width=80, now=NOW)[-1].split("  ")[1:] == [
        "2026-11-17 11:57 (3 min ago)",
        "5 of 5, name 0%",
    ]
    assert table.lines(width=50, now=NOW)[-1].split("  ")[1:] == [
        "2026-11-17 11:57 (3 min ago)",
        "5 of 5",
    ]
    assert table.lines(width=30, now=NOW)[-1].split("  ")[1:] == ["3 min ago", "5 of 5"]


def test_numbers_and_the_first_column_are_never_cut() -> None:
    table = TableView(header=("id", "text", "n"), rows=[["i" * 20, WORDS, "9" * 20]], numbers=(2,))

    line = table.lines(width=60)[-1]

    assert line.startswith("i" * 20)
    assert line.endswith("9" * 20)
    assert ELLIPSIS in line


def test_a_text_is_cut_after_a_word_and_never_within_a_wide_character() -> None:
    assert cut(WORDS, 20) == f"a rather long{ELLIPSIS}"
    assert cut("x" * 30, 10) == "x" * 9 + ELLIPSIS
    assert cut("漢字漢字", 4) == f"漢{ELLIPSIS}"
    assert cut("short", 5) == "short"
    assert (
        cut("node:Person, node:Company, edge:Knows", 33) == f"node:Person, node:Company{ELLIPSIS}"
    )


@given(st.text(alphabet="ab ,é漢", max_size=40), st.integers(1, 40))
def test_what_was_cut_once_is_cut_the_same_at_its_own_width(text: str, width: int) -> None:
    once = cut(text, width)

    assert display_width(once) <= width
    if once != text:
        assert display_width(cut(text, display_width(once))) <= display_width(once)


def test_messages_are_folded_between_words_and_never_within_commands() -> None:
    message = "  the load failed: run `omnigraph load ./g people.jsonl --mode merge` again, or stop"

    assert fold(message, 50).splitlines() == [
        "  the load failed: run",
        "    `omnigraph load ./g people.jsonl --mode merge`",
        "    again, or stop",
    ]
    assert fold(" 1 | source that is longer than the width", 10) == (
        " 1 | source that is longer than the width"
    )


def test_a_table_without_rows_says_so() -> None:
    assert TableView(header=("hold",), rows=[], empty="no holds").lines(width=80) == ["no holds"]


def test_html_is_escaped() -> None:
    html = TableView(header=("<b>",), rows=[["<script>\x1b"]]).html()

    assert "<b>" not in html
    assert "<script>" not in html
    assert r"&lt;script&gt;\x1b" in html


@given(st.lists(st.text(alphabet="01AB", min_size=26, max_size=26), min_size=1, unique=True))
def test_short_ids_are_unique_prefixes_and_no_longer_than_needed(ids: list[str]) -> None:
    short = short_ids(ids)

    for text, prefix in short.items():
        assert [other for other in ids if other.startswith(prefix)] == [text]
        shorter = prefix[:-1]
        assert len(prefix) == 8 or len([one for one in ids if one.startswith(shorter)]) > 1


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "just now"), (59, "59 s ago"), (180, "3 min ago"), (7200, "2 h ago"), (-90, "in 1 min")],
)
def test_times_are_told_as_distances(seconds: int, expected: str) -> None:
    assert distance(NOW - timedelta(seconds=seconds), NOW) == expected


def test_what_is_a_month_away_is_a_date() -> None:
    table = TableView(header=("when",), rows=[[Moment(NOW - timedelta(days=40))]])

    assert table.lines(width=80, now=NOW)[-1] == "2026-10-08 12:00"


def test_counts_have_separators_and_sizes_have_units() -> None:
    assert [counted(1, "row"), counted(2000, "row")] == ["1 row", "2,000 rows"]
    assert counted(2, "query", "queries") == "2 queries"
    assert [file_size(999), file_size(1_234_567)] == ["999 B", "1.2 MB"]


def test_an_edge_is_shown_by_its_ends() -> None:
    edge = {
        "type": "WorksAt",
        "id": "01M7",
        "src": "ann",
        "dst": "Acme",
        "properties": {"since": 1},
    }

    assert value(edge) == "WorksAt ann -> Acme {since: 1}"


def test_a_float_has_at_most_15_digits_unless_it_is_whole() -> None:
    floats = [16521.149999999998, 0.1 + 0.2, 1 / 3, -2.5e-300, 1e16, 2.0**53, 3.0]

    assert [value(number) for number in floats] == [
        *("16521.15", "0.3", "0.333333333333333", "-2.5e-300", "1e+16", "9007199254740992.0"),
        "3.0",
    ]
    assert [value(float(text)) for text in ("nan", "inf", "-inf")] == ["nan", "inf", "-inf"]
    assert value([{"x": 0.1 + 0.2}]) == "[{x: 0.3}]"
