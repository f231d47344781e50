"""Words that could be two things, and trees that print to themselves."""

from __future__ import annotations

import pytest

from omnigraph_lake.query import ast
from omnigraph_lake.query.checks.results import expression_text
from omnigraph_lake.query.parser import parse_queries
from tests.query.fuzz import ADHOC_TEXT, SEED_TEXT, without_places
from tests.query.golden_cases import PLANS, golden_cases
from tests.query.printing import print_queries

pytestmark = pytest.mark.unit


def clauses(text: str, parameters: str = "") -> list[str]:
    parsed = parse_queries(f"query q({parameters}) {{ match {{ {text} }} return {{ 1 }} }}")
    assert isinstance(parsed, ast.QueryFile), parsed
    body = parsed.queries[0].body
    assert isinstance(body, ast.ReadBody)
    return [type(each).__name__ for each in body.clauses]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$a knows $b", ["Traversal"]),
        ("$a contains $b", ["Traversal"]),
        ("$a starts_with $b", ["Traversal"]),
        ("$given contains $b.name", ["Filter"]),
        ("$given contains $b", ["Filter"]),
        ("$undeclared contains $b.name", ["Filter"]),
        ("$a contains{1,2} $b", ["Traversal"]),
        ("$a.tags contains $b", ["Filter"]),
        ("$a <contains> $b", ["Traversal"]),
        ("$a $e: contains $b", ["Traversal"]),
        ("$a $e: <knows> $b", ["Traversal"]),
        ("$a < $b", ["Filter"]),
        ("$a.x < $b.x > $c", ["Filter"]),
        ("$a order $b", ["Traversal"]),
        ("$a limit $b", ["Traversal"]),
        ("$a.x = $given $b: Person", ["Filter", "Binding"]),
        ("$a.x = $given $b knows $c", ["Filter", "Traversal"]),
        ("$a.x = $given $b $e: knows $c", ["Filter", "Traversal"]),
        ("$a.x = $given not { $a knows $b }", ["Filter", "NotBlock"]),
        ("$a.x = $given optional { $a knows $b }", ["Filter", "OptionalBlock"]),
        ("$a.x = $given search($a.y, $given)", ["Filter", "Filter"]),
        ("$given and $other", ["Filter"]),
        ("$given in $other", ["Filter"]),
        ("not $given = 3 not { $a knows $b }", ["Filter", "NotBlock"]),
        ("$a.limit = 3 $a.in is null $a.order = $a.match", ["Filter"] * 3),
        ("$a: T { limit: 3, match: 4, null: 5 }", ["Binding"]),
        ("$given $a: Person", ["Filter", "Binding"]),
        ("$a knows{1,} $b as $w by weight $b: T", ["Traversal", "Binding"]),
        ("$a knows{1,} $b as $w by limit ($b.x = 1)", ["Traversal", "Filter"]),
        ("$a knows{1,} $b as $w by by $b by $c $c by{1,2} $d", ["Traversal"] * 3),
        ("exists { $a knows $b } count { $a knows $b } > 1", ["Filter"] * 2),
        ("$a.x = $given exists { $a knows $b }", ["Filter"] * 2),
        ("not exists { $a knows $b } not { $a knows $b }", ["Filter", "NotBlock"]),
        ("$a exists $b $b count{1,2} $c $c <exists> $d", ["Traversal"] * 3),
        ("$given = count { 1 < $a.x } $a.count = 1 $a.exists", ["Filter"] * 3),
    ],
)
def test_neighbours_decide_what_a_word_is(text: str, expected: list[str]) -> None:
    assert clauses(text, "$given: [String], $other: Bool") == expected


@pytest.mark.parametrize(
    "text",
    [
        "query set() { match { $p: T } return { 1 as order 2 as set } order { order desc, set } }",
        "query q($limit: I32) { match { $p: T } return { 1 } limit $limit offset $limit }",
        "query q() { update T set { order: limit, where: 3 } where limit = 3 and order > 2 }",
        "query q() { insert T { a: 1 b: -2, c: x - 1 d: [] } delete T where a delete T where b }",
        "query q() { match { $p: T } return { $p.a $p.b, count(*) count(distinct $p.a) } }",
        "query by() { match { $a by $b } return { last($a.by by $b.having) as by } having by > 1 }",
        "query q($n: I32) { match { $p: T } return { count(*) as n } having n > $n limit $n }",
        "query q() { match { $a having $b } return { 1 as having } order { having, by } }",
        "query q() { match { $p: T } return { 1 as count 2 as exists } order { count, exists } }",
        "query exists() { insert T { exists: 1 count: 2 } delete T where count = 1 or exists }",
    ],
)
def test_keywords_can_be_names(text: str) -> None:
    assert isinstance(parse_queries(text), ast.QueryFile)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", "1 + 2 * 3"),
        ("(1 + 2) * 3", "(1 + 2) * 3"),
        ("1 - (2 - 3)", "1 - (2 - 3)"),
        ("(1 - 2) - 3", "1 - 2 - 3"),
        ("- - 1", "-(-1)"),
        ("not (not true)", "not (not true)"),
        ("not a = b and c", "not a = b and c"),
        ("(a or b) and c", "(a or b) and c"),
        ("a or (b and c)", "a or b and c"),
        ("(a = b) = c", "(a = b) = c"),
        ("(a and b) is null", "(a and b) is null"),
        ("a + 1 is not null", "a + 1 is not null"),
        ("((a))", "a"),
        ("a and (b and c)", "a and (b and c)"),
        ("not (exists { $a b $c })", "not exists { $a b $c }"),
        (
            "count{$a: T {x: 1} $a $e: <b>{1,} $_ as $w not{$a c $d} $e.y=1 optional{$a f $g}}+1",
            "count { $a: T { x: 1 }  $a $e: <b>{1,} $_ as $w  not { $a c $d }  ($e.y = 1)  "
            "optional { $a f $g } } + 1",
        ),
    ],
)
def test_an_expression_prints_with_the_parentheses_it_needs(text: str, expected: str) -> None:
    parsed = parse_queries(f"query q() {{ delete T where {text} }}")
    assert isinstance(parsed, ast.QueryFile), parsed
    body = parsed.queries[0].body
    assert isinstance(body, ast.WriteBody)
    statement = body.statements[0]
    assert isinstance(statement, ast.Delete)

    assert expression_text(statement.condition) == expected


NAMES_ALONE = "query q() { match { $t: P ($x) y $x: Q } return { $x.k } }"


@pytest.mark.parametrize(
    "text", [SEED_TEXT, ADHOC_TEXT, NAMES_ALONE, *(case.text() for case in golden_cases(PLANS))]
)
def test_a_tree_prints_to_a_text_with_the_same_tree(text: str) -> None:
    parsed = parse_queries(text)
    assert isinstance(parsed, ast.QueryFile)

    printed = print_queries(parsed)

    assert without_places(parse_queries(printed)) == without_places(parsed)
    again = parse_queries(printed)
    assert isinstance(again, ast.QueryFile)
    assert print_queries(again) == printed
