"""How a finding looks in a terminal, on ordinary and on hostile lines."""

from __future__ import annotations

import pytest

from omnigraph_lake.language.diagnostics import (
    SHOWN_WIDTH_MAX,
    Diagnostic,
    Severity,
    did_you_mean,
    render,
    render_all,
    span_at,
)

pytestmark = pytest.mark.unit


def shown(text: str, offset: int, end: int, hint: str = "") -> list[str]:
    finding = Diagnostic(
        rule="some-rule",
        severity=Severity.ERROR,
        span=span_at(text, offset, end),
        message="it is wrong",
        hint=hint,
    )
    return render(finding, text=text, filename="a.pg").split("\n")


def test_a_finding_shows_place_rule_line_caret_and_hint() -> None:
    assert shown("one\ntwo three\nfour", 8, 13, hint="do better") == [
        "a.pg:2:5: error[some-rule]: it is wrong",
        " 2 | two three",
        "   |     ^^^^^",
        "   = hint: do better",
    ]


def test_a_finding_without_hint_has_three_lines() -> None:
    assert len(shown("abc", 0, 1)) == 3


def test_tabs_in_front_of_the_caret_keep_it_in_place() -> None:
    _, line, caret = shown("\tx\ty z", 3, 4)

    assert line.index("y") == caret.index("^")


def test_windows_line_ends_are_not_shown() -> None:
    assert shown("ab\r\ncd\r\n", 4, 6)[1:] == [" 2 | cd", "   | ^^"]


def test_a_span_over_several_lines_is_underlined_to_the_end_of_its_first() -> None:
    assert shown("ab cd\nef", 3, 8)[1:] == [" 1 | ab cd", "   |    ^^"]


@pytest.mark.parametrize("text", ["", "abc", "abc\n", "abc\r\n"])
def test_the_end_of_the_file_can_be_pointed_at(text: str) -> None:
    assert shown(text, len(text), len(text))[2].endswith("^")


def test_a_long_line_is_clipped_around_the_caret() -> None:
    text = "a" * 500 + "HERE" + "b" * 500

    _, line, caret = shown(text, 500, 504)

    assert len(line) <= SHOWN_WIDTH_MAX + len(" 1 | ")
    assert line[caret.index("^") : caret.rindex("^") + 1] == "HERE"
    assert line.startswith(" 1 | ...")
    assert line.endswith("...")


def test_a_long_span_is_clipped_too() -> None:
    _, line, caret = shown("x" * 1000, 0, 1000)

    assert len(caret) <= len(line) <= SHOWN_WIDTH_MAX + len(" 1 | ")


def test_wide_characters_move_the_caret_by_their_width() -> None:
    assert shown("漢字 x", 3, 4)[2] == "   |      ^"


def test_control_characters_are_replaced() -> None:
    assert "\x1b" not in shown("a\x1b[31mb", 0, 1)[1]


def test_findings_are_separated_by_an_empty_line() -> None:
    finding = Diagnostic(rule="r", severity=Severity.WARNING, span=span_at("x", 0, 1), message="m")

    both = render_all([finding, finding], text="x", filename="f")

    assert both.count("\n\n") == 1
    assert "warning[r]" in both


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("nod", "did you mean `node`?"),
        ("NODE", "did you mean `node`?"),
        ("edgee", "did you mean `edge`?"),
        ("zebra", ""),
        ("", ""),
        ("n" * 10_000, ""),
    ],
)
def test_a_close_word_is_suggested(word: str, expected: str) -> None:
    assert did_you_mean(word, ["node", "edge"]) == expected
