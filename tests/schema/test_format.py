"""The layout of the formatter, case by case; test_roundtrip.py has the general promise."""

from __future__ import annotations

import pytest

from omnigraph_lake.errors import SchemaInvalidError
from omnigraph_lake.schema.format import format_schema

pytestmark = pytest.mark.unit

CASES = {
    "an empty text stays empty": (" \n\n ", ""),
    "one property per line": (
        "node A{a:String b:I32?c:[ I32 ]@index d:enum( x,y )}",
        "node A {\n    a: String\n    b: I32?\n    c: [I32] @index\n    d: enum(x, y)\n}\n",
    ),
    "an empty body closes at once": ("node A {\n\n}", "node A {}\n"),
    "headers are one line": (
        'node A\n  @description( "x" )\n  implements  I ,J\n{ }\nedge E :A->B|\nC\n @card( 0 .. )',
        'node A @description("x") implements I, J {}\nedge E: A -> B | C @card(0..)\n',
    ),
    "a default has spaces around its sign": (
        'node A { a: I32=-5 b: enum(x)?  =  x c: String="x=y" @index @unique(a) d: Bool=true }',
        'node A {\n    a: I32 = -5\n    b: enum(x)? = x\n    c: String = "x=y" @index\n'
        "    @unique(a)\n    d: Bool = true\n}\n",
    ),
    "arguments are spaced evenly": (
        'node A { a: F64 @note( "x" ,n = 1 ) @range( a , .. 5 ) @unique(a,a) v: Vector ( 3 ) }',
        'node A {\n    a: F64 @note("x", n=1)\n    @range(a, ..5)\n    @unique(a, a)\n'
        "    v: Vector(3)\n}\n",
    ),
    "an index with only a metric stays behind its property": (
        "node A { v: Vector(3) @index( metric = dot ) @zz @index(v,metric = l2) w: Vector(3)\n"
        "@index // why\n(metric=l2) @key(metric=a) }",
        "node A {\n    v: Vector(3) @index(metric=dot) @zz\n    @index(v, metric=l2)\n"
        "    w: Vector(3) @index // why\n        (metric=l2)\n    @key(metric=a)\n}\n",
    ),
    "many blank lines become one": (
        "\n\nnode A {\n\n\n    a: String\n\n\n\n    b: String\n\n}\n\n\n\nedge E: A -> A\n\n",
        "node A {\n    a: String\n\n    b: String\n}\n\nedge E: A -> A\n",
    ),
    "a body is followed by a blank line": (
        "node A {\n    a: String\n}\nnode B {}\nnode C {}",
        "node A {\n    a: String\n}\n\nnode B {}\nnode C {}\n",
    ),
    "leading and trailing comments stay": (
        "// top\nnode A { // open\n// own\na: String // behind\n} // closed\n// end",
        "// top\nnode A { // open\n    // own\n    a: String // behind\n} // closed\n\n// end\n",
    ),
    "a comment alone in a body stays there": (
        "node A {\n// nothing yet\n}",
        "node A {\n    // nothing yet\n}\n",
    ),
    "a comment before the closing brace stays inside": (
        "node A { a: String\n\n// later\n}",
        "node A {\n    a: String\n\n    // later\n}\n",
    ),
    "a comment inside a line stays inside it": (
        "node A { a: /* why */ String /* c */ @key }",
        "node A {\n    a: /* why */ String /* c */ @key\n}\n",
    ),
    "a line comment inside a property continues on the next line": (
        "node A { a: enum(x, // first\ny) }",
        "node A {\n    a: enum(x, // first\n        y)\n}\n",
    ),
    "a block comment in front of something stays in front": (
        "/* c */ node A { a: String\n/* p */ b: String }",
        "/* c */ node A {\n    a: String\n    /* p */ b: String\n}\n",
    ),
    "the lines of a block comment are kept": (
        "/* one  \r\n     two */\r\nnode A {}\r\n",
        "/* one\n     two */\nnode A {}\n",
    ),
    "a file of comments only": ("/* a */ // b\n\n\n// c", "/* a */ // b\n\n// c\n"),
    "faults that are not about syntax do not matter": (
        "node A { id: Strng @key @unique(id) @late }",
        "node A {\n    id: Strng @key\n    @unique(id)\n    @late\n}\n",
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_layout(text: str, expected: str) -> None:
    assert format_schema(text) == expected
    assert format_schema(expected) == expected


def test_a_text_that_does_not_parse_is_refused() -> None:
    with pytest.raises(SchemaInvalidError) as caught:
        format_schema("node A { a String }", filename="x.pg")

    assert caught.value.filename == "x.pg"
    assert [each.rule for each in caught.value.diagnostics] == ["syntax"]
