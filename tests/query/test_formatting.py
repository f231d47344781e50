"""The layout of query texts, case by case, and that formatting changes nothing but white space."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Final

import pytest

from omnigraph_lake.errors import QueryInvalidError
from omnigraph_lake.language.diagnostics import Diagnostic
from omnigraph_lake.query.formatting import WIDTH_MAX, format_queries
from omnigraph_lake.query.parser import lexemes, parse_queries
from tests.drawing import seeds
from tests.query.fuzz import ADHOC_TEXT, SEED_TEXT
from tests.schema.test_roundtrip import without_spans

HOME: Final = Path(__file__).parent.parent.parent
LONG: Final = "a_rather_long_name_of_a_property"

CASES = {
    "an empty text stays empty": (" \n\n ", ""),
    "a part of the body on each line": (
        "query q( ){match{$p:Person}return{$p.name}order{$p.name desc}limit 3 offset 4}",
        "query q() {\n    match { $p: Person }\n    return { $p.name }\n"
        "    order { $p.name desc }\n    limit 3\n    offset 4\n}\n",
    ),
    "an ad-hoc text has a part on each line": (
        "( $n:I32 ) match{$p:Person}return{$p . * , $p.id}limit $n",
        "($n: I32)\nmatch { $p: Person }\nreturn { $p.*, $p.id }\nlimit $n\n",
    ),
    "the statements of an ad-hoc text are lines": (
        "// first\n\ninsert N { a: 1 }\n\n\ndelete N where a = 1 and b = 2 // last",
        "// first\n\ninsert N { a: 1 }\n\ndelete N where a = 1 and b = 2 // last\n",
    ),
    "the parameters of an ad-hoc text that do not fit are lines": (
        f"// first\n(${LONG}: String, $b{LONG}: String, $c: [String]?) delete N where a = $c",
        f"// first\n(\n    ${LONG}: String,\n    $b{LONG}: String,\n    $c: [String]?\n)\n"
        "delete N where a = $c\n",
    ),
    "alternatives are written without spaces": (
        "query q() { match { $p : Person | Company  $p $e : knows | worksAt $f  $n : _ "
        "$n < knows | _ > { 1 , } $p } return { $p } }",
        "query q() {\n    match {\n        $p: Person|Company\n        $p $e: knows|worksAt $f\n"
        "        $n: _\n        $n <knows|_>{1,} $p\n    }\n    return { $p }\n}\n",
    ),
    "several clauses are never one line": (
        "query q() { match { $p: Person $p knows $f } return { $f } }",
        "query q() {\n    match {\n        $p: Person\n        $p knows $f\n    }\n"
        "    return { $f }\n}\n",
    ),
    "annotations are lines between the header and the body": (
        'query q($a:String?,$v:Vector( 3 ),$l:[String]) @description( "x" )@instruction("y"){'
        "insert N{}}",
        "query q($a: String?, $v: Vector(3), $l: [String])\n"
        '    @description("x")\n    @instruction("y")\n{\n    insert N {}\n}\n',
    ),
    "signs, bounds, paths and calls are tight": (
        "query q() { match { $a $e :knows $b  $b < knows > { 1 , } $c as $w  by  z  $c.x>- 1 - -2 "
        "count ( * ) = f( $a , distinct_ ) } return distinct { - $a.x as y -1 } }",
        "query q() {\n    match {\n        $a $e: knows $b\n        $b <knows>{1,} $c as $w by z\n"
        "        $c.x > -1 - -2\n        count(*) = f($a, distinct_)\n    }\n"
        "    return distinct { -$a.x as y  -1 }\n}\n",
    ),
    "an inner block that fits is one line": (
        "query q() { match { $p: P {\na: 1,\nb: 2 }\nnot {\n$p x $y\n$y.z=1\n} } return { $p } }",
        "query q() {\n    match {\n        $p: P { a: 1, b: 2 }\n"
        "        not { $p x $y  $y.z = 1 }\n    }\n    return { $p }\n}\n",
    ),
    "a block that does not fit has one item on each line": (
        f"query q() {{ match {{ $p: P }} return {{ $p.{LONG} as a, $p.{LONG} as b, "
        f"$p.{LONG} as c }} }}",
        f"query q() {{\n    match {{ $p: P }}\n    return {{\n        $p.{LONG} as a,\n"
        f"        $p.{LONG} as b,\n        $p.{LONG} as c\n    }}\n}}\n",
    ),
    "a header that does not fit has one parameter on each line": (
        f"query q(${LONG}: String, $b{LONG}: String, $c: String) {{ delete N where a = $c }}",
        f"query q(\n    ${LONG}: String,\n    $b{LONG}: String,\n    $c: String\n) {{\n"
        "    delete N where a = $c\n}\n",
    ),
    "a long condition is divided before its operators": (
        f"query q() {{ match {{ $p: P  $p.{LONG} = 1 and ($p.{LONG} > 2 or $p.x < 3) and not "
        "$p.y = 1 } return { $p } }",
        f"query q() {{\n    match {{\n        $p: P\n        $p.{LONG} = 1\n"
        f"            and ($p.{LONG} > 2 or $p.x < 3)\n            and not $p.y = 1\n    }}\n"
        "    return { $p }\n}\n",
    ),
    "arguments that do not fit have lines of their own": (
        f"query q() {{ match {{ $p: P }} return {{ rrf(nearest($p.{LONG}, $v), "
        f"bm25($p.{LONG}, $w), 60) as score_of }} }}",
        f"query q() {{\n    match {{ $p: P }}\n    return {{\n        rrf(\n"
        f"            nearest($p.{LONG}, $v),\n            bm25($p.{LONG}, $w),\n"
        "            60\n        ) as score_of\n    }\n}\n",
    ),
    "a condition in parentheses begins with them": (
        "query q() { match { $p: P  ($p.x = 1 or $p.y = 2) and $p.z = 3 } return { ($p.x) } }",
        "query q() {\n    match {\n        $p: P\n        ($p.x = 1 or $p.y = 2) and $p.z = 3\n"
        "    }\n    return { ($p.x) }\n}\n",
    ),
    "one empty line divides queries, and items if it was there": (
        "query a() {\n\n\n  insert N {}\n\n\n  insert M {}\n\n}\nquery b() { insert N {} }\n\n\n",
        "query a() {\n    insert N {}\n\n    insert M {}\n}\n\nquery b() {\n    insert N {}\n}\n",
    ),
    "comments stay where they are": (
        "// top\n/* b */ query a() // header\n{ // open\n// own\nmatch { $p: P } // behind\n"
        "return { $p.x, // first\n$p.y }\n// last\n} // closed\n// end",
        "// top\n/* b */ query a() // header\n{ // open\n    // own\n"
        "    match { $p: P } // behind\n"
        "    return {\n        $p.x, // first\n        $p.y\n    }\n    // last\n} // closed\n\n"
        "// end\n",
    ),
    "a comment within a line stays within it": (
        "query a() { match { $p: /* why */ P } return { $p.x /* c */ } }",
        "query a() {\n    match { $p: /* why */ P }\n    return { $p.x /* c */ }\n}\n",
    ),
    "a sub-pattern is a block": (
        "query q() { match { $p: P  not exists{$p x $y} and count{ $p x $y  $y.z=1 }-1>2 } "
        f"return {{ count {{ $p x $y  $y.{LONG} = 1 and exists {{ $y x $p  $p.{LONG} = 2 }} }} "
        "as n } }",
        "query q() {\n    match {\n        $p: P\n"
        "        not exists { $p x $y } and count { $p x $y  $y.z = 1 } - 1 > 2\n    }\n"
        "    return {\n        count {\n            $p x $y\n"
        f"            $y.{LONG} = 1\n"
        f"                and exists {{ $y x $p  $p.{LONG} = 2 }}\n"
        "        } as n\n    }\n}\n",
    ),
    "a file of comments only": ("/* a */ // b\n\n\n// c", "/* a */ // b\n\n// c\n"),
    "faults that are not about syntax do not matter": (
        "query a() { update Nothing set { x: $y } where z }",
        "query a() {\n    update Nothing set { x: $y } where z\n}\n",
    ),
}


@pytest.mark.unit
@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_layout(text: str, expected: str) -> None:
    assert format_queries(text) == expected
    assert format_queries(expected) == expected


@pytest.mark.unit
def test_a_text_that_does_not_parse_is_refused() -> None:
    with pytest.raises(QueryInvalidError) as caught:
        format_queries("query q( { }", filename="x.gq")

    assert caught.value.filename == "x.gq"
    assert [finding.rule for finding in caught.value.diagnostics] == ["syntax"]


def query_texts() -> set[str]:
    """Every query that is written anywhere in the documentation, the examples and the tests."""
    texts: set[str] = {SEED_TEXT}
    for folder in ("docs", "examples", "tests"):
        for path in sorted(Path(HOME, folder).rglob("*")):
            if path.suffix == ".gq":
                texts.add(path.read_bytes().decode(errors="replace"))
            elif path.suffix in (".md", ".py"):
                source = path.read_text()
                for start in re.finditer(r"\bquery \w+\(", source):
                    texts.add(_balanced(source, start.start()))
    return {text for text in texts if not isinstance(parse_queries(text), Diagnostic)}


def _balanced(source: str, start: int) -> str:
    """The text from a place up to the brace that closes the first one behind it."""
    depth = 0
    for brace in re.finditer(r"[{}]", source[start : start + 3000]):
        depth += 1 if brace.group() == "{" else -1
        if depth <= 0:
            return source[start : start + brace.end()]
    return ""


@pytest.mark.unit
def test_every_query_of_the_repository_means_the_same_when_it_is_formatted() -> None:
    texts = query_texts()

    assert len(texts) > 200
    for text in texts:
        require_same_meaning(text, format_queries(text))


@pytest.mark.unit
def test_the_examples_are_formatted() -> None:
    pages = sorted(Path(HOME, "docs").rglob("*.md"))
    shown = [
        example
        for page in pages
        for example in re.findall(r"^```gq\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        if "\n\\" not in example  # a script of the shell
    ]
    files = [path.read_text() for path in Path(HOME, "examples").glob("*.gq")]

    assert shown
    assert files
    for text in (*shown, *files):
        assert format_queries(text) == text


@pytest.mark.random
@pytest.mark.parametrize("seed", seeds("query layout", 2))
def test_odd_white_space_and_comments_do_not_change_the_meaning(seed: int) -> None:
    generator = random.Random(seed)
    for source in generator.sample(sorted(query_seeds()), 4):
        tokens = lexemes(source)
        assert not isinstance(tokens, Diagnostic)
        text = "".join(token.text + _odd_gap(generator) for token in tokens)

        formatted = format_queries(text)

        require_same_meaning(text, formatted)
        assert comments_in(formatted) == comments_in(text)


def query_seeds() -> list[str]:
    plans = [path.read_text() for path in sorted(Path(HOME, "tests/query/plans").glob("*.gq"))]
    return [SEED_TEXT, ADHOC_TEXT, Path(HOME, "examples/people.gq").read_text(), *plans]


def _odd_gap(generator: random.Random) -> str:
    spaces = (" ", " ", " ", "\n", "\n\n\n", "\t", "\r\n", "  \n  ")
    comments = ("// one\n", "//\n", "/* in */", "/**/", "/* two \n   lines */", f"/* {'x' * 80} */")
    gap = generator.choice(spaces)
    while generator.random() < 0.08:
        gap += generator.choice(comments) + generator.choice(("", *spaces))
    return gap


def require_same_meaning(text: str, formatted: str) -> None:
    before, after = parse_queries(text), parse_queries(formatted)
    assert not isinstance(before, Diagnostic)
    assert without_spans(after) == without_spans(before)
    assert format_queries(formatted) == formatted
    assert all(line == line.rstrip() for line in formatted.splitlines())


def comments_in(text: str) -> list[str]:
    """Comments in order, found between the tokens, without white space at the ends of lines."""
    tokens = lexemes(text)
    assert not isinstance(tokens, Diagnostic)
    comments: list[str] = []
    end = 0
    for start, next_end in [*((token.offset, token.end) for token in tokens), (len(text), 0)]:
        comments += re.findall(r"//[^\n]*|/\*[\s\S]*?\*/", text[end:start])
        end = next_end
    return ["\n".join(line.rstrip() for line in comment.split("\n")) for comment in comments]


@pytest.mark.unit
def test_a_line_is_too_long_only_where_nothing_can_be_divided() -> None:
    lines = format_queries(SEED_TEXT).splitlines()

    assert max(map(len, lines)) <= WIDTH_MAX
