"""What the grammar accepts, and how it reads the ambiguous corners."""

from __future__ import annotations

import pytest

from omnigraph_lake.schema.ast import (
    Annotation,
    EdgeDeclaration,
    NodeDeclaration,
    PropertyDeclaration,
    Schema,
    StringLiteral,
    body_annotations_of,
    properties_of,
)
from omnigraph_lake.schema.parser import lexemes, parse_schema
from omnigraph_lake.schema.resolve import string_value
from tests.schema.compiling import compiled, rules

pytestmark = pytest.mark.unit


def parsed(text: str) -> Schema:
    schema = parse_schema(text)
    assert isinstance(schema, Schema)
    return schema


def only_node(text: str) -> NodeDeclaration:
    (node,) = parsed(text).declarations
    assert isinstance(node, NodeDeclaration)
    return node


def test_a_text_without_declarations_is_an_empty_schema() -> None:
    assert parsed("").declarations == ()
    assert parsed(" \t\r\n// nothing\n/* here */").declarations == ()
    assert lexemes("// nothing") == ()


@pytest.mark.parametrize(
    "word",
    [
        *("node", "edge", "interface", "implements", "enum", "true", "false", "vector"),
        *("key", "unique", "index", "range", "check", "card", "_", "_row_id", "camelCase", "a1_"),
    ],
)
def test_a_property_may_have_any_name_that_starts_small(word: str) -> None:
    text = f"node A {{ {word}: String {word}2: I32? }}"

    assert [each.name.text for each in properties_of(only_node(text))] == [word, f"{word}2"]
    assert rules(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "node A{a:String b:I32}",
        "node A { a : String\n\n\tb\n:\nI32 }",
        "node/**/A//x\n{a/* : */:// }\nString b:I32/*}*/}",
        "node A {\r\n  a: String\r\n  b: I32\r\n}\r\n",
    ],
)
def test_white_space_and_comments_separate_tokens_and_mean_nothing(text: str) -> None:
    assert [each.name.text for each in properties_of(only_node(text))] == ["a", "b"]


def test_an_index_with_only_a_metric_belongs_to_the_property_in_front_of_it() -> None:
    node = only_node("node A { v: Vector(2) @index(metric=dot) @zz @index(v, metric=dot) }")

    (v,) = properties_of(node)
    assert [each.name for each in v.annotations] == ["index", "zz"]
    (constraint,) = body_annotations_of(node)
    assert isinstance(constraint, Annotation)
    assert constraint.name == "index"


def test_comments_do_not_nest() -> None:
    assert rules("/* outer /* inner */ node A {}") == []
    assert rules("/* outer /* inner */ */ node A {}") == ["syntax"]


def test_a_comment_marker_inside_a_string_is_text() -> None:
    node = compiled('node A @description("// not /* a comment") {}').nodes["A"]

    assert node.description == "// not /* a comment"


def test_the_five_escapes_are_replaced() -> None:
    node = only_node(r'node A @description("\"\\\n\r\t") {}')
    (argument,) = node.annotations[0].arguments or ()
    assert isinstance(argument, StringLiteral)

    assert string_value(argument) == '"\\\n\r\t'


def test_a_constraint_word_without_parentheses_belongs_to_the_property() -> None:
    (property_,) = properties_of(only_node("node A { x: String @unique @index }"))

    assert [each.name for each in property_.annotations] == ["unique", "index"]


@pytest.mark.parametrize("word", ["key", "unique", "index"])
def test_a_constraint_word_with_parentheses_belongs_to_the_body(word: str) -> None:
    node = only_node(f"node A {{ x: String @{word} (x) y: I32 }}")

    assert [type(each) for each in node.body] == [
        PropertyDeclaration,
        Annotation,
        PropertyDeclaration,
    ]
    assert [each.name for each in body_annotations_of(node)] == [word]


def test_words_that_start_declarations_still_start_them_behind_a_bare_annotation() -> None:
    schema = parsed("node A {} edge E: A -> A @zz edge F: A -> A @zz node B @zz implements I {}")

    assert [each.name.text for each in schema.declarations] == ["A", "E", "F", "B"]


def test_an_edge_may_leave_out_its_body() -> None:
    _, bare, empty = parsed("node A {} edge E: A -> A edge F: A -> A {}").declarations
    assert isinstance(bare, EdgeDeclaration)
    assert isinstance(empty, EdgeDeclaration)

    assert (bare.body, empty.body) == (None, ())


def test_enum_values_may_start_with_digits_and_contain_hyphens() -> None:
    assert rules("node A { x: enum(a, B, 9, a-b, _x, -, true, node) }") == []


def test_spans_point_at_the_source() -> None:
    text = "node A {\n  x: String @note(1)\n}"
    (property_,) = properties_of(only_node(text))
    (annotation,) = property_.annotations

    assert (property_.name.span.line, property_.name.span.column) == (2, 3)
    assert text[annotation.span.offset : annotation.span.end] == "@note(1)"
