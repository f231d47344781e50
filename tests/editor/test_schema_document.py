"""What an editor shows about a schema text, also while it does not parse."""

from __future__ import annotations

import random

import pytest

from omnigraph_lake.editor.content import (
    ANNOTATIONS_EXPLAINED,
    TYPES_EXPLAINED,
    ElementKind,
    SchemaElement,
)
from omnigraph_lake.editor.schema_document import SchemaDocument
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.schema.checks.annotations import INTERPRETED, META
from omnigraph_lake.schema.compile import lint_schema
from omnigraph_lake.schema.parser import BASE_TYPE_NAMES, CONSTRAINT_WORDS
from tests.drawing import seeds
from tests.editor.marked import CURSOR, SCHEMA, at, offered, renamed, schema, shown

COMPLETIONS = {
    "declarations": ("¦", {"node", "edge", "interface"}, {"implements"}),
    "types of a property": ("node A { a: ¦", {"String", "Vector", "enum"}, {"A"}),
    "items of a list": ("node A { a: [¦", {"String"}, {"enum"}),
    "ends of an edge": ("node A {}\nnode B {}\nedge E: ¦", {"A", "B"}, {"String"}),
    "the other end": ("node A {}\nedge E: A -> ¦", {"A"}, {"String"}),
    "one more type at an end": (
        "interface I {}\nnode A {}\nedge E: A -> A | ¦",
        {"A", "I"},
        {"String"},
    ),
    "interfaces": ("interface I {}\nnode A implements ¦", {"I"}, {"A"}),
    "annotations of a property": ("node A { a: String @¦", {"@key", "@index"}, {"@card"}),
    "annotations of an edge": ("edge E: A -> B @¦", {"@card", "@description"}, {"@key"}),
    "members of a constraint": ("node A { a: I32 b: I32 @key(¦", {"a", "b"}, {"String"}),
    "metrics": ("node A { v: Vector(3) @index(metric=¦", {"cosine", "l2", "dot"}, {"v"}),
    "defaults of an enum": (
        "node A { a: I32 @key b: enum(x, y)? = ¦",
        {"x", "y"},
        {"a", "true"},
    ),
    "defaults of a Boolean": ("node A { a: I32 @key b: Bool = ¦", {"true", "false"}, {"a"}),
    "defaults of a number": ("node A { a: I32 @key b: I32 = ¦", set(), {"a", "true"}),
    "a declaration after a broken one": (
        "node A { a: \nnode B { b: ¦",
        {"String"},
        set(),
    ),
}


@pytest.mark.unit
@pytest.mark.parametrize(("marked", "some", "none"), COMPLETIONS.values(), ids=COMPLETIONS.keys())
def test_completions(marked: str, some: set[str], none: set[str]) -> None:
    words = offered(*schema(marked))

    assert some <= set(words)
    assert not none & set(words)


@pytest.mark.unit
@pytest.mark.parametrize("marked", ["// @¦", 'node A @description("¦', "node ¦"])
def test_nothing_is_offered_in_comments_texts_and_new_names(marked: str) -> None:
    assert offered(*schema(marked)) == []


@pytest.mark.unit
def test_every_annotation_and_every_type_is_explained() -> None:
    assert ANNOTATIONS_EXPLAINED.keys() == {*INTERPRETED, META, *CONSTRAINT_WORDS}
    assert list(TYPES_EXPLAINED) == [*BASE_TYPE_NAMES, "Decimal", "Vector"]


def marked_in_schema(marked: str) -> tuple[SchemaDocument, int]:
    plain = marked.replace(CURSOR, "")
    assert plain in SCHEMA
    return schema(SCHEMA.replace(plain, marked, 1))


@pytest.mark.unit
def test_hover() -> None:
    assert "Person.age: I32?\n    index, range 0..150" in shown(*marked_in_schema("ag¦e: I32"))
    assert "Person.age: I32?" in shown(*marked_in_schema("@range(ag¦e"))
    assert "node Person implements Named" in shown(*marked_in_schema(": Pers¦on ->"))
    assert "from Named" in shown(*marked_in_schema('@embed("na¦me")'))
    assert "Both bounds are included" in shown(*marked_in_schema("@ran¦ge"))
    assert "32 bits" in shown(*marked_in_schema("I3¦2"))
    assert shown(*schema("nod¦e A {}")) == ""


@pytest.mark.unit
def test_definitions() -> None:
    text, offset = marked_in_schema("-> Comp¦any")
    place = text.definition(offset)
    assert (at(text, place), text.definition(offset)) == ("Company", place)
    inherited, offset = marked_in_schema('@embed("na¦me")')
    found = inherited.definition(offset)
    assert found == inherited.find(
        SchemaElement(kind=ElementKind.INTERFACE, type="Named", property="name")
    )


@pytest.mark.unit
def test_renaming_changes_every_place_of_a_type_or_property_and_no_other() -> None:
    text, offset = marked_in_schema("node Pers¦on")
    human = renamed(text, offset, "Human")
    assert human == SCHEMA.replace("Person", "Human")
    assert lint_schema(human) == ()
    age, offset = marked_in_schema("ag¦e: I32")
    assert renamed(age, offset, "years") == SCHEMA.replace("age", "years")
    name, offset = marked_in_schema("nam¦e: String")
    title = renamed(name, offset, "title")
    assert title == SCHEMA.replace("name: String", "title: String").replace('"name"', '"title"')
    assert lint_schema(title) == ()


@pytest.mark.unit
def test_a_property_of_an_interface_is_renamed_in_the_nodes_that_declare_it_too() -> None:
    text = (
        "interface I { a: I32 }\nnode A implements I { a: I32 @range(a, 0..) }\nnode B { a: I32 }"
    )

    edited, offset = schema(text.replace("node A implements I { a", "node A implements I { a¦"))

    assert renamed(edited, offset, "z") == (
        "interface I { z: I32 }\nnode A implements I { z: I32 @range(z, 0..) }\nnode B { a: I32 }"
    )


@pytest.mark.unit
@pytest.mark.parametrize(
    ("marked", "name", "why"),
    [
        ("node Pers¦on", "Company", "is declared twice"),
        ("node Pers¦on", "person", "is not a name here"),
        ("ag¦e: I32", "email", "the schema has an error"),
        ("ag¦e: I32", "id", "the schema has an error"),
        ("¦node Person", "X", "no type or property"),
    ],
)
def test_a_rename_that_breaks_the_schema_is_refused(marked: str, name: str, why: str) -> None:
    text, offset = marked_in_schema(marked)

    with pytest.raises(InvalidInputError, match=why):
        text.rename(offset, name)


@pytest.mark.unit
def test_a_text_that_does_not_parse_is_not_renamed() -> None:
    text, offset = schema("node A¦ {")

    with pytest.raises(InvalidInputError, match="does not parse: line 1"):
        text.rename(offset, "B")


@pytest.mark.random
@pytest.mark.parametrize("seed", seeds("schemas in an editor", 3))
def test_any_text_and_any_place_is_answered(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(8):
        text = SCHEMA[: generator.randrange(len(SCHEMA))]
        place = generator.randrange(len(text) + 1)
        text = text[:place] + generator.choice(['"', "/*", "🙂", "}", "{", "@", "("]) + text[place:]
        edited = SchemaDocument(text)
        offset = generator.randrange(len(text) + 1)

        assert edited.diagnostics() == lint_schema(text)
        assert edited.completions(offset).range.start <= offset
        edited.hover(offset)
        edited.definition(offset)
        edited.renamable(offset)
