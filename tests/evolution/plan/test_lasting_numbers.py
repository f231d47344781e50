"""What stays the same under another name, and what starts a new life under an old one."""

from __future__ import annotations

import pytest

from omnigraph_lake.errors import SchemaInvalidError
from omnigraph_lake.evolution.plan.plan import RenameProperty, StepKind
from omnigraph_lake.evolution.plan.planning import evolve
from omnigraph_lake.ids import node_id
from omnigraph_lake.schema.catalog import FIRST_UNIQUE_NUMBER, Catalog
from omnigraph_lake.schema.model import model_hash
from tests.schema.compiling import compiled

pytestmark = pytest.mark.unit


def history(*texts: str) -> list[Catalog]:
    """The catalogs of a graph that accepts one text after the other."""
    catalogs = [compiled(texts[0])]
    for text in texts[1:]:
        evolution = evolve(catalogs[-1], text)
        assert evolution.plan.supported
        catalogs.append(evolution.target)
    return catalogs


def refused(accepted: str, new: str) -> list[str]:
    with pytest.raises(SchemaInvalidError) as caught:
        evolve(compiled(accepted), new)
    return [each.rule for each in caught.value.diagnostics]


def kinds(accepted: str, new: str) -> list[StepKind]:
    return [each.kind for each in evolve(compiled(accepted), new).plan.steps]


def test_a_renamed_type_keeps_its_number_and_its_properties() -> None:
    before, after = history(
        "node A { x: I32 } edge E: A -> A { y: I32 }",
        'node B @rename_from("A") { x: I32 } edge E: B -> B { y: I32 }',
    )

    assert after.nodes["B"].number == before.nodes["A"].number
    assert after.nodes["B"].properties == before.nodes["A"].properties
    assert [end.only for end in (after.edges["E"].source, after.edges["E"].target)] == ["B", "B"]
    assert after.next_number == before.next_number


def test_new_numbers_are_in_source_order_and_belong_to_the_change() -> None:
    before, after = history(
        "node A { x: I32 }", "edge E: B -> A node B { y: I32 } node A { w: I32? x: I32 z: I32? }"
    )

    first = after.edges["E"].number
    assert first >= FIRST_UNIQUE_NUMBER
    assert after.nodes["B"].number == first + 1
    assert after.nodes["B"].properties["y"].number == first + 2
    assert [(each.name, each.number) for each in after.nodes["A"].properties.values()] == [
        ("x", 2),
        ("w", first + 3),
        ("z", first + 4),
    ]
    assert (before.next_number, after.next_number) == (3, 8)


def test_two_branches_never_give_one_number_to_different_things() -> None:
    base = compiled("node A { x: I32 }")
    added = "node A { x: I32 b: I32? }"

    one, same, other = (
        evolve(base, text).target for text in (added, added, "node A { x: I32 c: I32? }")
    )

    assert model_hash(one) == model_hash(same)
    assert one.nodes["A"].properties["b"].number != other.nodes["A"].properties["c"].number


def test_a_name_may_be_declared_anew_once_its_renaming_is_accepted() -> None:
    first, second, third = history(
        "node A { x: I32 }",
        'node B @rename_from("A") { x: I32 }',
        'node B @rename_from("A") { x: I32 } node A { x: String }',
    )

    assert second.nodes["B"].number == third.nodes["B"].number == first.nodes["A"].number
    assert third.nodes["A"].number >= FIRST_UNIQUE_NUMBER
    assert third.nodes["A"].properties["x"].number == third.nodes["A"].number + 1


def test_a_name_cannot_be_renamed_and_declared_anew_at_once() -> None:
    assert refused("node A {}", 'node B @rename_from("A") {} node A {}') == [
        "rename-still-declared"
    ]


def test_two_properties_swap_their_names_by_way_of_a_third() -> None:
    assert refused(
        "node T { a: I32 b: I32 }",
        'node T { a: I32 @rename_from("b") b: I32 @rename_from("a") }',
    ) == ["rename-crossed", "rename-crossed"]

    first, *_, last = history(
        "node T { a: I32 b: I32 }",
        'node T { c: I32 @rename_from("a") b: I32 }',
        'node T { c: I32 @rename_from("a") a: I32 @rename_from("b") }',
        'node T { b: I32 @rename_from("c") a: I32 @rename_from("b") }',
    )
    before, after = first.nodes["T"].properties, last.nodes["T"].properties
    assert (after["b"].number, after["a"].number) == (before["a"].number, before["b"].number)


def test_three_types_cannot_change_places_in_one_go() -> None:
    assert (
        refused(
            "node A {} node B {} node C {}",
            'node A @rename_from("B") {} node B @rename_from("C") {} node C @rename_from("A") {}',
        )
        == ["rename-crossed"] * 3
    )


def test_a_chain_of_renamings_is_followed_one_accepted_schema_at_a_time() -> None:
    first, _, last = history(
        "node A { a: I32 }",
        'node B @rename_from("A") { b: I32 @rename_from("a") }',
        'node C @rename_from("B") { c: I32 @rename_from("b") }',
    )

    assert last.nodes["C"].number == first.nodes["A"].number
    assert last.nodes["C"].properties["c"].number == first.nodes["A"].properties["a"].number


def test_a_chain_does_not_skip_an_accepted_name() -> None:
    _, second = history("node A {}", 'node B @rename_from("A") {}')

    with pytest.raises(SchemaInvalidError) as caught:
        evolve(second, 'node C @rename_from("A") {}')

    assert [each.rule for each in caught.value.diagnostics] == ["rename-unknown"]


def test_a_chain_within_one_text_is_refused_rather_than_guessed() -> None:
    assert "rename-still-declared" in refused(
        "node T { a: I32 b: I32 }",
        'node T { b: I32 @rename_from("a") c: I32 @rename_from("b") }',
    )


def test_dropped_and_declared_again_is_a_new_life() -> None:
    *_, last = history("node A { x: I32 } node B {}", "node B {}", "node A { x: I32 } node B {}")

    assert last.nodes["A"].number >= FIRST_UNIQUE_NUMBER
    assert last.nodes["A"].properties["x"].number == last.nodes["A"].number + 1
    assert list(last.nodes) == ["B", "A"]


def test_without_an_accepted_drop_the_same_name_is_the_same_property() -> None:
    first, last = history("node A { x: I32 }", "node A { x: I64 }")

    assert last.nodes["A"].properties["x"].number == first.nodes["A"].properties["x"].number


def test_a_dropped_property_that_comes_back_is_another_column() -> None:
    first, _, last = history(
        "node A { x: I32 y: I32 }", "node A { y: I32 }", "node A { x: I32? y: I32 }"
    )

    assert last.nodes["A"].properties["x"].number != first.nodes["A"].properties["x"].number
    assert last.nodes["A"].properties["x"].number >= FIRST_UNIQUE_NUMBER
    assert list(last.nodes["A"].properties) == ["y", "x"]


def test_ids_of_a_composite_key_survive_renamings_that_reverse_the_order_of_names() -> None:
    before, after = history(
        "node A { a: String b: I32 @key(a, b) }",
        """
        node A {
            z: String @rename_from("a")
            c: I64 @rename_from("b")
            @key(c, z)
        }
        """,
    )

    assert node_id(before.nodes["A"], {"a": "x", "b": 7}) == '["x","7"]'
    assert node_id(after.nodes["A"], {"z": "x", "c": 7}) == '["x","7"]'


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("I32", "I64", -(2**31)),
        ("U32", "U64", 2**32 - 1),
        ("U32", "I64", 2**32 - 1),
        ("I32", "F64", -(2**31)),
        ("U32", "F64", 2**32 - 1),
        ("I32", "F64", 0),
        ("enum(a, b)", "String", "a"),
        ("String", "enum(a, b)", "a"),
    ],
)
def test_a_key_may_change_its_type_where_its_ids_stay(old: str, new: str, value: object) -> None:
    before, after = history(f"node A {{ k: {old} @key }}", f"node A {{ k: {new} @key }}")

    assert node_id(before.nodes["A"], {"k": value}) == node_id(after.nodes["A"], {"k": value})


def test_a_hint_behind_an_interface_property_renames_what_nodes_hold_for_it() -> None:
    before, after = history(
        """
        interface I { name: String }
        node A implements I {}
        node B implements I { name: String }
        node C { name: String }
        """,
        """
        interface I { title: String @rename_from("name") }
        node A implements I {}
        node B implements I {}
        node C { name: String }
        """,
    )

    for name in ("A", "B"):
        old, new = before.nodes[name].properties["name"], after.nodes[name].properties["title"]
        assert new.number == old.number
    assert after.interfaces["I"].properties["title"].number == 2


def test_an_inherited_hint_does_not_take_what_a_node_holds_for_itself() -> None:
    evolution = evolve(
        compiled("interface I { name: String } node A { name: String }"),
        'interface I { title: String? @rename_from("name") } node A implements I {}',
    )

    assert [each.kind for each in evolution.plan.steps if each.subject.name == "A"] == [
        StepKind.CHANGE_INTERFACES,
        StepKind.ADD_PROPERTY,
        StepKind.DROP_PROPERTY,
    ]
    assert not [
        each
        for each in evolution.plan.steps
        if isinstance(each, RenameProperty) and each.subject.name == "A"
    ]


def test_two_inherited_hints_cannot_share_one_property() -> None:
    assert refused(
        "interface I { x: I32 } interface J { x: I32 } node A implements I, J {}",
        """
        interface I { y: I32 @rename_from("x") }
        interface J { z: I32 @rename_from("x") }
        node A implements I, J {}
        """,
    ) == ["rename-twice"]


def test_an_interface_under_another_name_leaves_columns_alone() -> None:
    assert kinds(
        "interface I { x: I32 @index } node A implements I {}",
        "interface J { x: I32 @index } node A implements J {}",
    ) == [
        StepKind.ADD_TYPE,
        StepKind.DROP_TYPE,
        StepKind.CHANGE_INTERFACES,
        StepKind.CHANGE_ORIGIN,
    ]


def test_an_interface_can_go_while_its_properties_stay() -> None:
    before, after = history(
        "interface I { x: I32 @index } node A implements I {}", "node A { x: I32 @index }"
    )

    assert after.nodes["A"].properties["x"].number == before.nodes["A"].properties["x"].number


def test_a_renamed_property_may_change_in_the_same_text() -> None:
    assert kinds(
        "node A { s: enum(a) n: I32? }",
        """
        node A {
            t: enum(a, b) @rename_from("s")
            m: I64 @rename_from("n") @backfill(0)
            @range(m, 0..)
        }
        """,
    ) == [
        StepKind.RENAME_PROPERTY,
        StepKind.RENAME_PROPERTY,
        StepKind.EXTEND_ENUM,
        StepKind.WIDEN_PROPERTY,
        StepKind.MAKE_REQUIRED,
        StepKind.ADD_CONSTRAINT,
    ]


def test_steps_come_by_kind_then_type_and_drops_come_last() -> None:
    steps = evolve(
        compiled(
            """
            edge Old: B -> B edge E: B -> B { x: I32 }
            node B { x: I32 y: I32? @index }
            node Gone {} interface Lost {} interface I {}
            """
        ),
        """
        edge E: B -> B @card(0..1)
        node New {}
        node B @description("d") implements I { z: I32 @rename_from("x") w: I32? @index }
        interface I { i: I32? }
        """,
    ).plan.steps

    assert [(each.subject.name, each.kind.value) for each in steps] == [
        ("I", "add_property"),
        ("Lost", "drop_type"),
        ("B", "update_type_metadata"),
        ("B", "change_interfaces"),
        ("B", "rename_property"),
        ("B", "add_property"),
        ("B", "add_property"),
        ("B", "remove_constraint"),
        ("B", "add_constraint"),
        ("B", "drop_property"),
        ("New", "add_type"),
        ("Gone", "drop_type"),
        ("E", "change_cardinality"),
        ("E", "drop_property"),
        ("Old", "drop_type"),
    ]
