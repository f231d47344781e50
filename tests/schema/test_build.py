"""The catalog a schema gives: order, numbers, interfaces, constraints and annotations."""

from __future__ import annotations

import pickle
from decimal import Decimal

import pytest

from omnigraph_lake.errors import SchemaInvalidError
from omnigraph_lake.language.diagnostics import Severity
from omnigraph_lake.schema.catalog import (
    WITHOUT_ORDER,
    ByName,
    Cardinality,
    Check,
    Embed,
    EnumType,
    Index,
    Key,
    ListType,
    Metadata,
    MetadataKeyword,
    PropertyType,
    Range,
    Scalar,
    ScalarType,
    Spelling,
    Unique,
    VectorType,
)
from omnigraph_lake.schema.compile import compile_schema, lint_schema
from tests.schema.compiling import DOMAIN, compiled, rules

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        *((each.value, ScalarType(scalar=each)) for each in Scalar),
        *((f"[{each.value}]", ListType(item=each)) for each in Scalar if each not in WITHOUT_ORDER),
        ("enum(b, a, c-1)", EnumType(values=("a", "b", "c-1"))),
        ("Vector(1)", VectorType(size=1)),
        ("Vector(65536)", VectorType(size=65_536)),
    ],
)
def test_every_type_resolves_with_and_without_question_mark(
    spelling: str, expected: PropertyType
) -> None:
    properties = compiled(f"node A {{ x: {spelling} y: {spelling}? }}").nodes["A"].properties

    assert [(each.type, each.nullable) for each in properties.values()] == [
        (expected, False),
        (expected, True),
    ]


def test_numbers_count_up_in_source_order_a_type_before_its_properties() -> None:
    catalog = compiled("""
        node B { x: String y: String }
        interface I { z: String }
        node A implements I { w: String }
        edge E: A -> B { v: Date }
    """)

    b, a = catalog.nodes.values()
    assert (b.number, [each.number for each in b.properties.values()]) == (1, [2, 3])
    assert (catalog.interfaces["I"].number, catalog.interfaces["I"].properties["z"].number) == (
        4,
        5,
    )
    assert (a.number, [each.number for each in a.properties.values()]) == (6, [7, 8])
    assert (catalog.edges["E"].number, catalog.edges["E"].properties["v"].number) == (9, 10)
    assert catalog.next_number == 11
    assert catalog.identity_domain == DOMAIN


def test_missing_interface_properties_come_last_with_their_constraints() -> None:
    node = compiled("""
        node A implements Named, Dated { own: I32 }
        interface Named { name: String @key @description("d") @meta(note="n") }
        interface Dated { at: DateTime? @index  name: String }
    """).nodes["A"]

    assert list(node.properties) == ["own", "name", "at"]
    assert node.key == Key(properties=("name",), spelling=Spelling.PROPERTY)
    assert node.indexes == (Index(properties=("at",), spelling=Spelling.PROPERTY),)
    name = node.properties["name"]
    assert (name.declared, name.interfaces) == (False, ("Named", "Dated"))
    note = MetadataKeyword(name="note", value="n")
    assert (name.description, name.metadata) == ("d", (Metadata(name="meta", keywords=(note,)),))
    assert (node.properties["own"].declared, node.properties["own"].interfaces) == (True, ())


def test_a_nodes_own_declaration_wins_over_its_interface() -> None:
    node = compiled("""
        interface Named { name: String @unique @description("theirs") }
        node A implements Named { name: String @description("mine") other: I32 }
    """).nodes["A"]

    assert list(node.properties) == ["name", "other"]
    assert node.uniques == ()
    name = node.properties["name"]
    assert (name.description, name.declared, name.interfaces) == ("mine", True, ("Named",))


def test_both_spellings_give_the_same_constraint_with_its_provenance() -> None:
    behind = compiled("node A { x: String @key @unique @index }").nodes["A"]
    body = compiled("node A { x: String @key(x) @unique(x) @index(x) }").nodes["A"]

    assert behind.key == Key(properties=("x",), spelling=Spelling.PROPERTY)
    assert body.key == Key(properties=("x",), spelling=Spelling.BODY)
    assert behind.uniques == (Unique(properties=("x",), spelling=Spelling.PROPERTY),)
    assert body.uniques == (Unique(properties=("x",), spelling=Spelling.BODY),)
    assert behind.indexes == (Index(properties=("x",), spelling=Spelling.PROPERTY),)
    assert body.indexes == (Index(properties=("x",), spelling=Spelling.BODY),)


@pytest.mark.parametrize(
    ("written", "low", "high"),
    [
        ("0..150", 0, 150),
        ("-5..", -5, None),
        ("..7", None, 7),
        ("..-7", None, -7),
        ("0.10..2.50", Decimal("0.1"), Decimal("2.5")),
        ("1.0..1", Decimal("1.0"), 1),
        ("9007199254740993..18446744073709551615", 2**53 + 1, 2**64 - 1),
    ],
)
def test_range_bounds_are_exact_and_an_open_side_is_none(
    written: str, low: object, high: object
) -> None:
    (bound,) = compiled(f"node A {{ x: U64? @range(x, {written}) }}").nodes["A"].ranges

    assert (bound.property, bound.low, bound.high) == ("x", low, high)
    assert type(bound.low) is type(low)
    assert isinstance(bound, Range)


def test_a_check_keeps_its_pattern() -> None:
    node = compiled(r'node A { x: String? @check(x, "^\\d+$") }').nodes["A"]

    assert node.checks == (Check(property="x", pattern=r"^\d+$", spelling=Spelling.BODY),)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("", Cardinality(minimum=0, maximum=None)),
        ("@card(0..)", Cardinality(minimum=0, maximum=None)),
        ("@card(1..1)", Cardinality(minimum=1, maximum=1)),
        ('@description("x") @card(0 .. 5)', Cardinality(minimum=0, maximum=5)),
    ],
)
def test_cardinality(written: str, expected: Cardinality) -> None:
    edge = compiled(f"node A {{}} edge E: A -> A {written}").edges["E"]

    assert edge.cardinality == expected


@pytest.mark.parametrize("written", ["", "@cluster", '@description("x") @cluster @card(0..1)'])
def test_an_edge_is_clustered_if_it_says_so(written: str) -> None:
    edge = compiled(f"node A {{}} edge E: A -> A {written}").edges["E"]

    assert edge.is_clustered == bool(written)
    assert edge.metadata == ()


def test_edges_may_constrain_their_endpoints() -> None:
    edge = compiled("""
        node A {} node B {}
        edge E: A -> B { since: Date @unique(src, dst) @index(dst, since) }
    """).edges["E"]

    assert (str(edge.source), str(edge.target)) == ("A", "B")
    assert edge.uniques == (Unique(properties=("src", "dst"), spelling=Spelling.BODY),)
    assert edge.indexes == (Index(properties=("dst", "since"), spelling=Spelling.BODY),)


def test_interpreted_annotations_are_resolved_and_others_stored() -> None:
    node = compiled("""
        node A @description("d") @instruction("i") @rename_from("Old") @meta(zz=-5) {
            t: String @rename_from("old")
            v: Vector(3) @embed("t", model="m") @meta(unit="metre", scale=0.50, signed=true)
            w: Vector(3) @embed(t)
        }
    """).nodes["A"]

    assert (node.description, node.instruction) == ("d", "i")
    assert node.metadata == (
        Metadata(name="meta", keywords=(MetadataKeyword(name="zz", value=-5),)),
    )
    assert node.properties["t"].metadata == ()
    assert node.properties["v"].embed == Embed(source="t", model="m")
    assert node.properties["w"].embed == Embed(source="t", model=None)
    assert node.properties["v"].metadata == (
        Metadata(
            name="meta",
            keywords=(
                MetadataKeyword(name="unit", value="metre"),
                MetadataKeyword(name="scale", value=Decimal("0.5")),
                MetadataKeyword(name="signed", value=True),
            ),
        ),
    )


def test_an_embedding_may_read_an_inherited_text() -> None:
    node = compiled("""
        interface Titled { title: String }
        node A implements Titled { v: Vector(3) @embed("title") }
    """).nodes["A"]

    assert node.properties["v"].embed == Embed(source="title", model=None)


def test_a_key_member_may_be_redundantly_unique() -> None:
    assert rules("node A { x: String @key @unique y: I32 @unique(x, y) }") == []


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("node A { x: String @uniqe }", "did you mean `@unique`?"),
        ("node A { x: String @indx }", "did you mean `@index`?"),
        ('node A { x: String @default("a") }', "write the default after the type"),
        ("node A { x: String? @required }", "remove `@required`"),
        ('node A {} edge E: A -> A @cardinality("0..1")', "write `@card(0..1)`"),
        ('node A { x: I32 @unit("m") }', '`@meta(unit="m")`'),
        ("interface I { x: I32 @pii }", "`@meta(pii=true)`"),
    ],
)
def test_an_unknown_annotation_is_an_error_that_says_what_to_write(text: str, hint: str) -> None:
    with pytest.raises(SchemaInvalidError) as caught:
        compiled(text)

    (finding,) = caught.value.diagnostics
    assert (finding.rule, finding.severity) == ("unknown-annotation", Severity.ERROR)
    assert hint in finding.hint


def test_unknown_annotations_of_an_accepted_text_are_warnings_and_stay_stored() -> None:
    text = "node A @descripton(5) { x: I32 @unit(metre, scale=0.50) }"

    (first, second) = lint_schema(text, was_accepted=True)
    assert {first.severity, second.severity} == {Severity.WARNING}
    node = compile_schema(
        text, filename="test.pg", identity_domain=DOMAIN, was_accepted=True
    ).nodes["A"]
    assert node.metadata == (Metadata(name="descripton", value=5),)
    assert node.properties["x"].metadata == (
        Metadata(
            name="unit",
            value="metre",
            keywords=(MetadataKeyword(name="scale", value=Decimal("0.5")),),
        ),
    )


def test_an_invalid_schema_raises_all_findings_at_once() -> None:
    with pytest.raises(SchemaInvalidError) as caught:
        compiled("node A { x: Strng y: Vector(0) }")

    assert [each.rule for each in caught.value.diagnostics] == ["unknown-type", "vector-size"]
    assert caught.value.filename == "test.pg"


def test_a_catalog_is_hashable_picklable_and_immutable() -> None:
    catalog = compiled("node A { x: String }")

    assert pickle.loads(pickle.dumps(catalog)) == catalog  # noqa: S301 - made one line above
    assert hash(catalog) == hash(compiled("node A { x: String }"))
    with pytest.raises(AttributeError):
        catalog.nodes.anything = 1
    with pytest.raises(TypeError):
        catalog.nodes["B"] = catalog.nodes["A"]  # type: ignore[index]


def test_a_lookup_compares_by_order() -> None:
    one, two = compiled("node A {} node B {}").nodes.values()

    assert ByName([one, two]) != ByName([two, one])
    assert repr(ByName([one])).startswith("ByName(")
