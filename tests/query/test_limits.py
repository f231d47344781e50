"""Texts at and beyond the limits of size and depth."""

from __future__ import annotations

import pytest

from omnigraph_lake.query.lint import lint_queries
from omnigraph_lake.query.parser import (
    CLAUSES_MAX,
    NESTING_MAX,
    NODES_MAX,
    QUERIES_MAX,
    QUERY_BYTES_MAX,
)
from tests.query.people import CATALOG, rules

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
    either = " or ".join(f"$p.age = {each}" for each in range(1500))

    assert (
        rules(f"query q() {{ match {{ $p: Person $p.age in [{listed}] }} return {{ 1 }} }}") == []
    )
    assert rules(f"query q() {{ match {{ $p: Person {either} }} return {{ 1 }} }}") == []


@pytest.mark.parametrize(
    "clause", ["$p knows $_ ", "$p.age > 1 ", "not { $p knows $q } ", "optional { $p wrote $n } "]
)
def test_as_many_clauses_as_allowed_are_planned_and_one_more_is_refused(clause: str) -> None:
    count = (CLAUSES_MAX - 1) // (2 if "{" in clause else 1)
    most = f"query q() {{ match {{ $p: Person {clause * count} }} return {{ $p.id }} }}"
    more = f"query q() {{ match {{ $p: Person {clause * (count + 1)} }} return {{ $p.id }} }}"

    assert not lint_queries(most, catalog=CATALOG).has_errors
    assert rules(more) == ["query-too-complex"]


def test_blocks_as_deep_as_allowed_are_planned() -> None:
    depth = CLAUSES_MAX // 2 - 1
    blocks = "not { $p knows $q " * depth + "}" * depth
    text = f"query q() {{ match {{ $p: Person {blocks} }} return {{ $p.id }} }}"

    assert not lint_queries(text, catalog=CATALOG).has_errors


def test_a_tree_beyond_the_limit_is_refused_but_long_lists_are_not() -> None:
    conditions = " and ".join(["$p.age = 1"] * (NODES_MAX // 4))
    listed = ", ".join(["1"] * (NODES_MAX * 2))

    start = "query q() { match { $p: Person "
    assert rules(f"{start} {conditions} }} return {{ 1 }} }}") == ["query-too-complex"]
    assert rules(f"{start} $p.age in [{listed}] }} return {{ 1 }} }}") == []


def test_a_file_has_a_largest_number_of_queries() -> None:
    texts = [f"query q{number}() {{ delete Person where true }}" for number in range(QUERIES_MAX)]

    assert rules(" ".join(texts)) == []
    assert rules(" ".join([*texts, EMPTY])) == ["query-too-complex"]


def test_a_file_can_be_empty() -> None:
    assert rules("") == []
    assert rules("// nothing\n") == []


def test_headers_that_are_not_closed_are_each_read_once() -> None:
    """Each was read to the end of the text: this took minutes."""
    assert rules("query q(" * 10_000) == ["syntax"]
