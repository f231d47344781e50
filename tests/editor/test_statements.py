"""What an editor is told of a text while it is typed."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Final

import pytest

from omnigraph_lake.editor.statements import (
    PieceKind,
    complete_statement,
    is_complete,
    pieces,
    split_statements,
)
from omnigraph_lake.query.parser import parse_queries
from omnigraph_lake.schema.catalog import Catalog
from omnigraph_lake.schema.compile import compile_schema
from tests.gate.seeds import run_seed

pytestmark = pytest.mark.unit

SCHEMA: Final = """
interface Named { name: String }
node Person implements Named { email: String @key  age: I32?  status: enum(active, gone) }
node Company { code: String @key  name: String }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Company { role: String? }
"""
QUERIES: Final = (
    """query friends($email: String, $limit: I64) {
        match {
            $me: Person { email: $email }
            $me $k:knows $other  // a comment
            $me worksAt $company
            optional { $other <knows> $third }
            not { $other worksAt $company }
            $other.age > 3 and $k.since = 2
        }
        return distinct { $company.name as company, count($other) as friends, $third.id }
        order { friends desc, company }
        limit $limit
        offset 2
    }""",
    """($email: String, $limit: I64) match { $me: Person { email: $email } }
        return { $me.email $me.age as company } order { company } limit $limit""",
    """query hire() {
        insert Person { email: "a@b", age: 3, status: "active" }
        insert WorksAt { from: "a@b", to: "hq", role: "new" }
        update Person set { age: 4 } where email = "a@b"
        delete Company where code = "hq"
    }""",
)
CHOSEN_BY_AUTHORS: Final = frozenset(
    {"friends", "hire", "company", "$email", "$limit", "$me", "$k", "$other", "$company", "$third"}
)
"""Names that a text introduces; no editor can know them before."""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return compile_schema(SCHEMA, filename="schema.pg", identity_domain="d")


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("", [], ""),
        ("match { $p: Person } return { $p };", ["match { $p: Person } return { $p }"], ""),
        ("match { $p: Person }\n\nreturn { $p }", [], "match { $p: Person }\n\nreturn { $p }"),
        ("match {}\nreturn { $p }\n\nlimit", ["match {}\nreturn { $p }"], "limit"),
        ("match {}\nreturn { $p }\n\n", ["match {}\nreturn { $p }"], ""),
        ("($n: I32)\n\ninsert P { a: $n }\n\nx", ["($n: I32)\n\ninsert P { a: $n }"], "x"),
        ("query a() { x }query b() { y }\n", ["query a() { x }", "query b() { y }"], "\n"),
        ('insert P { a: ";}" }; x', ['insert P { a: ";}" }'], " x"),
        (
            "delete P where a = 1 // ; no\n and b = 2;",
            ["delete P where a = 1 // ; no\n and b = 2"],
            "",
        ),
        ("\\d Person\nmatch", ["\\d Person"], "match"),
        ("\\d Person", [], "\\d Person"),
        ("\\set a={ \n\\q\n", ["\\set a={", "\\q"], ""),
        ("} ; x;", ["}", "x"], ""),
        (";;\n;", [], ""),
        ("\\set a=/*\n\\q\n", ["\\set a=/*", "\\q"], ""),
        ("// a comment\n\\d\n", ["\\d"], ""),
        ("match { \\d\n }", [], "match { \\d\n }"),
    ],
)
def test_statements_end_where_they_should(text: str, statements: list[str], rest: str) -> None:
    assert split_statements(text) == (statements, rest)


def test_any_text_is_cut_into_pieces_and_statements() -> None:
    drawn = random.Random(run_seed())
    alphabet = [
        '"',
        "{",
        "}",
        "(",
        ")",
        "\\",
        "\n",
        "\n\n",
        ";",
        "$p",
        "Person",
        "/*",
        "*/",
        "//",
        " ",
    ]
    alphabet += ["query", "match", "return", "insert", "é", "1.5", "\\d", ".", ":"]
    for _ in range(500):
        text = "".join(drawn.choices(alphabet, k=drawn.randint(0, 30)))
        cut = pieces(text)
        assert all(piece.text == text[piece.start : piece.end] for piece in cut)
        assert all(first.end <= second.start for first, second in pairwise(cut))
        statements, rest = split_statements(text)
        kept = "".join("".join([*statements, rest]).split()).replace(";", "")
        given = iter("".join(text.split()).replace(";", ""))
        assert all(letter in given for letter in kept), text  # in the same order
        if "//" not in text and "/*" not in text:
            assert next(given, None) is None, text
        assert is_complete(text) in (True, False)


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("\\d", True),
        ("match { $p: Person", False),
        ("match { $p: Person }", False),
        ("match { $p: Person } return", False),
        ("match { $p: Person } return { $p.name }", True),
        ("match { $p: Person } return { $p.name } limit", False),
        ("match { $p: Person } retrun { $p.name }", True),
        ("match { $p: Person } return // more follows", False),
        ("($n: I32)", False),
        ("($n: I32) delete Person where age = $n", True),
        ('insert Person { email: "}" }', True),
        ("delete Person", False),
        ("delete Person where true", True),
        ("query q()", False),
        ("query q() { match { $p: Person } return { $p }", False),
        ("query q() { match { $p: Person } return { $p } }", True),
        ("nonsense", True),
        ("match { $p: Person } return { $p }; match {", False),
    ],
)
def test_enter_runs_only_what_is_complete(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


def words_at(text: str, catalog: Catalog) -> set[str]:
    return {item.text for item in complete_statement(text, catalog).items}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ma", {"match"}),
        ("match { $p: Pe", {"Person"}),
        ("match { $p: ", {"Person", "Company", "Named"}),
        ("match { $p: Person  $p ", {"knows", "worksAt"}),
        ("match { $p: Person  $p wo", {"worksAt"}),
        ("match { $c: Company  $c k", set()),
        ("match { $p: Person  $p.", {"email", "age", "status", "name", "id"}),
        ("match { $p: Person  $p knows $q } return { $q.a", {"age"}),
        ("match { $p: Person  $p worksAt $c } return { $c.", {"code", "name", "id"}),
        ("match { $p: Person  $p $k:k", {"knows"}),
        ("match { $p: Person  $p $k:knows $q } return { $k.", {"since", "id", "src", "dst"}),
        (
            "match { $p: Person  $p knows{1,} $q as $w b",
            {"by", "between_days", "between_microseconds"},
        ),
        ("match { $p: Person  $p knows{1,} $q as $w by s", {"since"}),
        ("match { $p: Person  $p <knows|worksAt>{1,} $q as $w by s", set()),
        ("match { $person: Person } return { $p", {"$person"}),
        ("insert W", {"WorksAt"}),
        ("insert WorksAt { ", {"from", "to", "role", "id"}),
        ('insert Person { email: "x", s', {"status"}),
        ("update Person set { a", {"age"}),
        ("delete Company where cod", {"code"}),
        ("match { $p: Person } r", {"return", "replace"}),
        ("match { $p: Person } return { $p } o", {"order", "offset"}),
        ("query q($a: S", {"String"}),
        ("($a: S", {"String"}),
        ("($a: I32) match { $p: Pe", {"Person"}),
        ("q", {"query"}),
        ('match { $p: Person { email: "Pers', set()),
        ("match { $p: Person // Comp", set()),
    ],
)
def test_what_can_follow_is_suggested(text: str, words: set[str], catalog: Catalog) -> None:
    suggested = words_at(text, catalog)

    if text.endswith(" ") and text.strip()[-1] not in ":{":
        assert words <= suggested
    else:
        assert suggested == words


@pytest.mark.parametrize("text", QUERIES)
def test_every_word_of_a_query_is_suggested_where_it_is_written(
    text: str, catalog: Catalog
) -> None:
    assert not hasattr(parse_queries(text), "message")
    kinds = {PieceKind.TYPE, PieceKind.KEYWORD, PieceKind.NAME, PieceKind.VARIABLE}
    checked = 0
    for piece in pieces(text):
        if piece.kind not in kinds or piece.text in CHOSEN_BY_AUTHORS:
            continue
        before = text[: piece.start] + piece.text[:1]
        assert piece.text in words_at(before, catalog) or piece.text == before[-1:], before
        checked += 1
    assert checked > 10


def test_properties_that_are_called_like_keywords_are_names() -> None:
    kinds = {piece.text: piece.kind for piece in pieces("insert P { order: 1 } $p.limit match")}

    assert kinds["order"] is PieceKind.NAME
    assert kinds["limit"] is PieceKind.NAME
    assert kinds["match"] is PieceKind.KEYWORD
    assert kinds["insert"] is PieceKind.KEYWORD
