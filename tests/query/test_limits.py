"""Texts at and beyond the limits of size and depth."""

from __future__ import annotations

import pytest

from omnigraph.query.parser import NESTING_MAX, QUERY_BYTES_MAX
from tests.query.people import rules

pytestmark = pytest.mark.unit

EMPTY = "query q() { match { $p: Person } return { $p.id } }"


def test_a_text_may_have_the_largest_size_and_not_a_byte_more() -> None:
    padding = " " * (QUERY_BYTES_MAX - len(EMPTY))

    assert rules(EMPTY + padding) == []
    assert rules(EMPTY + padding + " ") == ["query-too-large"]


def test_the_size_is_counted_in_bytes() -> None:
    assert rules(f"{EMPTY}//{'é' * (QUERY_BYTES_MAX // 2)}") == ["query-too-large"]


@pytest.mark.parametrize(
    ("opened", "closed"),
    [("not (", ")"), ("-(", ")"), ("1 + ", ""), ("(1 + ", ")"), ("true and (false or ", ")")],
)
def test_nesting_beyond_the_limit_is_one_finding(opened: str, closed: str) -> None:
    deep = opened * (NESTING_MAX + 5) + "1" + closed * (NESTING_MAX + 5)
    text = f"query q() {{ match {{ $p: Person $p.age = 1 and {deep} }} return {{ 1 }} }}"

    assert rules(text) == ["nesting-too-deep"]


def test_parentheses_alone_do_not_nest() -> None:
    deep = "(" * 500 + "1" + ")" * 500

    assert rules(f"query q() {{ match {{ $p: Person $p.age = {deep} }} return {{ $p.id }} }}") == []


def test_long_lists_and_long_alternatives_are_not_deep() -> None:
    listed = ", ".join(map(str, range(5000)))
    either = " or ".join(f"$p.age = {each}" for each in range(2000))

    assert (
        rules(f"query q() {{ match {{ $p: Person $p.age in [{listed}] }} return {{ 1 }} }}") == []
    )
    assert rules(f"query q() {{ match {{ $p: Person {either} }} return {{ 1 }} }}") == []


def test_a_file_can_be_empty() -> None:
    assert rules("") == []
    assert rules("// nothing\n") == []
