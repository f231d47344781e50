"""What an editor shows about a query text, also while it does not parse."""

from __future__ import annotations

import random

import pytest

from omnigraph_lake.editor.content import (
    FUNCTIONS_EXPLAINED,
    ElementKind,
    SchemaElement,
    TextRange,
)
from omnigraph_lake.editor.query_document import QueryDocument
from omnigraph_lake.editor.unfinished import recover_queries
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.language.diagnostics import Diagnostic
from omnigraph_lake.query.checks.calls import FUNCTIONS
from omnigraph_lake.query.lint import lint_queries
from omnigraph_lake.query.parser import parse_queries
from tests.drawing import seeds
from tests.editor.marked import CATALOG, CURSOR, at, offered, query, renamed, shown
from tests.query.fuzz import ADHOC_TEXT, SEED_TEXT
from tests.query.people import CATALOG as PEOPLE
from tests.schema.test_roundtrip import without_spans

VALID = """query a($email: String, $n: I32?) @description("x") {
    match {
        $p: Person { email: $email }
        $p $w: worksAt $c
        $p knows{1,2} $f as $way
        optional { $f worksAt $employer }
        not { $f knows $other  $other.age > 3 }
    }
    return { $p.name as name, $c.code, count($f) as friends }
    order { friends desc }
    limit 3
}
"""
COMPLETIONS = {
    "the start of a file": ("¦", {"query", "match"}, {"return"}),
    "the start of a body": ("query q() { ¦", {"match", "insert", "delete"}, {"return"}),
    "types of parameters": ("query q($a: ¦", {"String", "Vector"}, {"Person"}),
    "node types and interfaces": ("query q() { match { $p: Per¦", {"Person", "Named"}, {"Knows"}),
    "types of a statement": ("query q() { insert ¦", {"Person", "WorksAt"}, {"Named"}),
    "properties of a variable": (
        "query q() { match { $p: Person  $p.¦ } return { $p } }",
        {"email", "age", "name", "id"},
        {"code", "now"},
    ),
    "of one that an edge binds": (
        "query q() { match { $p: Person  $p $w: worksAt $c  $c.¦",
        {"code", "name"},
        {"email"},
    ),
    "of an edge": (
        "query q() { match { $p: Person $p $w: worksAt $c } return { $w.¦",
        {"role", "src"},
        {"age"},
    ),
    "of a binding that comes later": (
        "query q() { match { $c.¦\n $c: Company } return { $c } }",
        {"code"},
        {"email"},
    ),
    "edges of the type of a variable": (
        "query q() { match { $c: Company  $c ¦",
        {"worksAt", "and"},
        {"knows"},
    ),
    "edges behind a variable for the edge": (
        "query q() { match { $p: Person  $p $e: ¦",
        {"worksAt", "knows"},
        set(),
    ),
    "further edges": (
        "query q() { match { $c: Company  $c worksAt|¦",
        {"worksAt"},
        {"knows"},
    ),
    "further undirected edges": (
        "query q() { match { $p: Person  $p <knows|¦",
        {"worksAt", "knows"},
        set(),
    ),
    "further types": ("query q() { match { $p: Person|¦", {"Company"}, {"WorksAt"}),
    "undirected edges": ("query q() { match { $p: Person  $p <¦", {"knows"}, set()),
    "variables and parameters": (
        "query q($email: String) { match { $p: Person  $p knows $f  not { $f knows $x  $¦",
        {"$email", "$p", "$f", "$x"},
        set(),
    ),
    "not those of another block": (
        "query q() { match { $p: Person  not { $p knows $x } } return { $¦",
        {"$p"},
        {"$x"},
    ),
    "those of a sub-pattern and those around it": (
        "query q() { match { $p: Person  exists { $p knows $x  $x.age > 3  $¦",
        {"$p", "$x"},
        set(),
    ),
    "properties in a sub-pattern of a result": (
        "query q() { match { $p: Person } return { count { $p worksAt $c  $c.¦ } as jobs } }",
        {"code"},
        {"email"},
    ),
    "sub-patterns as conditions": (
        "query q() { match { $p: Person  ¦ } return { $p } }",
        {"exists", "count"},
        set(),
    ),
    "properties to match": ("query q() { match { $p: Person { ¦", {"email", "status"}, {"now"}),
    "properties to insert": (
        'query q() { insert WorksAt { from: "a", ¦',
        {"to", "role", "since"},
        {"from", "code"},
    ),
    "properties of an update": ("query q() { update Person set { ¦ } where", {"age"}, {"code"}),
    "its own properties in a condition": (
        "query q() { delete WorksAt where ¦",
        {"role", "from", "search"},
        {"count"},
    ),
    "no properties in a value of a row that is not there": (
        "query q() { insert Person { age: ¦",
        {"now"},
        {"age", "email"},
    ),
    "ends of edges": ("query q() { insert WorksAt { from: ¦", {"node"}, {"role"}),
    "types of an end": (
        "query q() { insert WorksAt { from: node(¦",
        {"Person"},
        {"Company", "Named"},
    ),
    "no types for other functions": (
        "query q() { match { $p: Person  lower(¦",
        {"$p"},
        {"Person", "node"},
    ),
    "aliases and rankings in an order": (
        "query q() { match { $p: Person } return { $p.age as years } order { ¦",
        {"years", "bm25"},
        {"search"},
    ),
    "functions of a result": (
        "query q() { match { $p: Person } return { ¦",
        {"count", "$p"},
        {"fuzzy"},
    ),
    "values of an enum": (
        "query q() { match { $p: Person  $p.status = ¦",
        {'"active"', '"away"'},
        set(),
    ),
    "values of an enum within quotes": (
        'query q() { match { $p: Person { status: "a¦" } } return { $p } }',
        {'"active"', '"away"'},
        {"$p"},
    ),
    "annotations": ("query q() ¦", {"@description", "@instruction"}, {"@key"}),
    "parts after a result": (
        "query q() { match { $p: Person } return { $p } ¦",
        {"having", "order", "limit", "offset"},
        {"match"},
    ),
    "aliases and aggregates in having": (
        "query q() { match { $p: Person } return { count(*) as people } having ¦",
        {"people", "count"},
        {"bm25"},
    ),
    "an ad-hoc text": (
        "($years: I32) match { $p: Person  $p.age > $years } return { $p.¦",
        {"email", "age"},
        {"match"},
    ),
    "types of an ad-hoc mutation": ("insert ¦", {"Person"}, {"String"}),
    "a query after a broken one": (
        "query a( { match } \n query q() { match { $p: Person  $p.¦",
        {"email"},
        set(),
    ),
}


@pytest.mark.unit
@pytest.mark.parametrize(("marked", "some", "none"), COMPLETIONS.values(), ids=COMPLETIONS.keys())
def test_completions(marked: str, some: set[str], none: set[str]) -> None:
    words = offered(*query(marked))

    assert some <= set(words)
    assert not none & set(words)
    assert len(words) == len(set(words))


@pytest.mark.unit
@pytest.mark.parametrize(
    "marked", ["// $p.¦", "/* a ¦ */", 'query q() @description("¦")', "query ¦", "query q($a¦"]
)
def test_nothing_is_offered_in_comments_texts_and_new_names(marked: str) -> None:
    assert offered(*query(marked)) == []


@pytest.mark.unit
def test_a_completion_replaces_the_word_before_the_cursor() -> None:
    text, offset = query("query q($email: String) { match { $p: Person { email: $em¦ail")

    assert at(text, text.completions(offset).range) == "$em"
    text, offset = query('query q() { match { $p: Person { status: "a¦b" } } return { $p } }')
    assert at(text, text.completions(offset).range) == '"ab"', "with the quotes"


@pytest.mark.unit
def test_without_a_schema_variables_and_keywords_are_offered() -> None:
    text = "query q($a: String) { match { $p: Person  $"

    assert offered(QueryDocument(text, None), len(text))[:2] == ["$a", "$p"]
    assert "insert" in offered(QueryDocument("query q() { ", None), 12)


@pytest.mark.unit
def test_every_function_is_explained() -> None:
    assert FUNCTIONS_EXPLAINED.keys() == FUNCTIONS.keys()


HOVERS = {
    "a parameter": ("$em¦ail }", "$email: String"),
    "a nullable parameter": ("$n¦: I32", "$n: I32?"),
    "a variable": ("$¦c.code", "$c: Company\n\nnode Company"),
    "a variable of an edge": ("$w¦:", "edge WorksAt: Person -> Company, 0..1 per Person"),
    "a path": ("$wa¦y", "path over Knows"),
    "one of an optional block": ("$employ¦er", "$employer: Company?"),
    "one of a block": ("$oth¦er.age", "$other: Person"),
    "a property": ("ag¦e > 3", "Person.age: I32?\n    index, range 0..150"),
    "an inherited one": ("na¦me as", 'from Named, "What it is called"'),
    "one in braces": ("emai¦l: $email", "Person.email: String\n    key"),
    "an edge": ("work¦sAt $c", "edge WorksAt: Person -> Company"),
    "a type": ("Pers¦on", "node Person implements Named"),
    "a function": ("cou¦nt(", "count(*) | count(x)"),
    "an annotation": ("@descri¦ption", '@description("...")'),
    "a base type": ("Strin¦g,", "Text, in UTF-8."),
}


def marked_in_valid(marked: str) -> tuple[QueryDocument, int]:
    plain = marked.replace(CURSOR, "")
    assert plain in VALID
    return query(VALID.replace(plain, marked, 1))


@pytest.mark.unit
@pytest.mark.parametrize(("marked", "expected"), HOVERS.values(), ids=HOVERS.keys())
def test_hover(marked: str, expected: str) -> None:
    assert expected in shown(*marked_in_valid(marked))


@pytest.mark.unit
def test_keywords_and_numbers_have_no_hover() -> None:
    assert [shown(*marked_in_valid(marked)) for marked in ("mat¦ch", "limi¦t 3", "lim¦it")] == [
        ""
    ] * 3


@pytest.mark.unit
def test_definitions() -> None:
    def definition(marked: str) -> object:
        text, offset = marked_in_valid(marked)
        place = text.definition(offset)
        if isinstance(place, TextRange):
            return at(text, place), text.text.count("\n", 0, place.start)
        return place

    assert definition("$ema¦il }") == ("$email", 0)
    assert definition("$p¦.name") == ("$p", 2)
    assert definition("$w¦:") == ("$w", 3)
    assert definition("$f¦)") == ("$f", 4)
    assert definition("frie¦nds desc") == ("friends", 8)
    node = ElementKind.NODE
    assert definition("Pers¦on") == SchemaElement(kind=node, type="Person")
    assert definition("co¦de,") == SchemaElement(kind=node, type="Company", property="code")
    assert definition("knows{1,2} $f¦") == ("$f", 4)
    assert definition("know¦s{") == SchemaElement(kind=ElementKind.EDGE, type="Knows")


def rules(text: QueryDocument) -> list[str]:
    return [finding.rule for finding in text.diagnostics()]


@pytest.mark.unit
def test_renaming_changes_one_query_and_keeps_its_meaning() -> None:
    other = VALID.replace("query a", "query b")
    text, offset = query(VALID.replace("count($f)", "count($f¦)") + other)

    result = renamed(text, offset, "friend")

    assert result == VALID.replace("$f ", "$friend ").replace("$f)", "$friend)") + other
    assert rules(QueryDocument(result, CATALOG)) == rules(text)
    alias, offset = marked_in_valid("frien¦ds desc")
    assert renamed(alias, offset, "many").count("many") == 2
    parameter, offset = marked_in_valid("$ema¦il }")
    assert "email: $mail }" in renamed(parameter, offset, "mail")


@pytest.mark.unit
@pytest.mark.parametrize(
    ("marked", "name", "why"),
    [
        ("$p¦.name", "c", "`c` is used in this query already"),
        ("$p¦.name", "email", "`email` is used"),
        ("$p¦.name", "Big", "is not a name"),
        ("$p¦.name", "_", "is not a name"),
        ("mat¦ch", "x", "no variable, parameter or alias"),
    ],
)
def test_a_rename_that_would_change_the_meaning_is_refused(
    marked: str, name: str, why: str
) -> None:
    text, offset = marked_in_valid(marked)

    with pytest.raises(InvalidInputError, match=why):
        text.rename(offset, name)


@pytest.mark.unit
def test_a_text_that_does_not_parse_is_not_renamed() -> None:
    text, offset = query("query q() { match { $p¦: Person }")

    assert text.renamable(offset) is not None
    with pytest.raises(InvalidInputError, match="does not parse: line 1"):
        text.rename(offset, "x")


@pytest.mark.unit
def test_one_query_with_an_error_does_not_hide_the_findings_of_the_others() -> None:
    text = QueryDocument(
        "query a() { match { $p: Persn } return { $p.name } }\n"
        "query b() { match { $p: Person  } return { $p. } }\n"
        "query c() { match { $p: Person } return { $p.nme } }\n"
        "query d() { match { $p: Person } return { $p.name } limit 1.5e3 }\n"
        "query e() { match { $p: Person } return { $p.name }\n",
        CATALOG,
    )

    findings = [(found.rule, found.span.line) for found in text.diagnostics()]

    assert findings == [
        ("unknown-type", 1),
        ("syntax", 2),
        ("unknown-property", 3),
        ("syntax", 4),
        ("syntax", 5),
    ]


@pytest.mark.unit
def test_without_a_schema_only_the_syntax_is_checked() -> None:
    assert QueryDocument("query a() { match { $p: X } return { $p } }", None).diagnostics() == ()
    assert len(QueryDocument("query a() { match }", None).diagnostics()) == 1


@pytest.mark.unit
@pytest.mark.parametrize("text", [SEED_TEXT, ADHOC_TEXT], ids=["file", "ad hoc"])
def test_a_text_that_parses_is_read_and_checked_as_by_the_compiler(text: str) -> None:
    parsed = parse_queries(text)
    assert not isinstance(parsed, Diagnostic)
    recovered = recover_queries(text)

    assert all(read.refusal is None for read in recovered)
    assert [read.declaration for read in recovered] == list(parsed.queries)
    report = lint_queries(text, catalog=PEOPLE)
    assert QueryDocument(text, PEOPLE).diagnostics() == report.findings


@pytest.mark.unit
@pytest.mark.parametrize(
    "hostile",
    [
        "{" * 8_000,
        "query q(" * 200,
        "query q() { match { " + "not { " * 1_000,
        "$p . ) ( ] " * 1_000,
    ],
    ids=["braces", "headers", "blocks", "signs"],
)
def test_a_text_of_errors_is_read_in_bounded_time(hostile: str) -> None:
    """The number of repairs that are tried is limited, in a query and in a text."""
    document = QueryDocument(hostile, CATALOG)

    assert document.diagnostics()
    document.completions(len(hostile) // 2)


@pytest.mark.random
@pytest.mark.parametrize("seed", seeds("texts in an editor", 2))
def test_any_text_and_any_place_is_answered(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(6):
        start = generator.randrange(len(SEED_TEXT))
        text = SEED_TEXT[:start] + SEED_TEXT[start + generator.randrange(40) :]
        text = text[: generator.randrange(len(text))]
        if generator.random() < 0.3:
            place = generator.randrange(len(text) + 1)
            text = (
                text[:place]
                + generator.choice(['"', "/*", "\\", "é", "🙂", "}", "{", "query ", "$"])
                + text[place:]
            )
        edited = QueryDocument(text, PEOPLE)
        parsed = parse_queries(text)

        assert bool(edited.diagnostics()) >= isinstance(parsed, Diagnostic)
        for _ in range(3):
            offset = generator.randrange(len(text) + 1)
            assert edited.completions(offset).range.start <= offset
            edited.hover(offset)
            edited.definition(offset)
            edited.renamable(offset)
        if not isinstance(parsed, Diagnostic):
            trees = [query.declaration for query in recover_queries(text)]
            assert without_spans(tuple(trees)) == without_spans(parsed.queries)
