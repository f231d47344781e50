"""Choices of the planner that a golden plan shows only by what is not in it."""

from __future__ import annotations

import json
import pickle
from decimal import Decimal

import pytest

from omnigraph_lake.errors import NothingWrittenError, SchemaInvalidError
from omnigraph_lake.evolution.plan import planning
from omnigraph_lake.evolution.plan.columns import CopyFill, LiteralFill, StoredColumn
from omnigraph_lake.evolution.plan.data_checks import CheckKind, NoNulls, ValuesInRange
from omnigraph_lake.evolution.plan.plan import (
    AddProperty,
    CostClass,
    DropMode,
    MakeRequired,
    Plan,
    StepKind,
)
from omnigraph_lake.evolution.plan.plan_text import plan_json, plan_text
from omnigraph_lake.evolution.plan.planning import evolve
from omnigraph_lake.schema.catalog import Catalog
from omnigraph_lake.schema.compile import compile_schema
from omnigraph_lake.schema.model import model_hash
from tests.schema.compiling import DOMAIN, compiled, rules

pytestmark = pytest.mark.unit


def plan(accepted: str, new: str, *, hard: bool = False) -> Plan:
    return evolve(compiled(accepted), new, hard=hard).plan


def needed(accepted: str, new: str) -> list[CheckKind]:
    return [each.kind for each in plan(accepted, new).needs]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("0..10", "0..10", []),
        ("0..10", "-1..10", []),
        ("0..10", "0..", []),
        ("0..10", "0.0..10.0", []),
        ("0..10", "0.5..10", [CheckKind.VALUES_IN_RANGE]),
        ("0..10", "..9", [CheckKind.VALUES_IN_RANGE]),
        ("0..", "..9", [CheckKind.VALUES_IN_RANGE]),
        ("0.1..", "0.10..", []),
    ],
)
def test_only_a_narrower_range_looks_at_rows(
    before: str, after: str, expected: list[CheckKind]
) -> None:
    accepted = f"node A {{ x: F64 @range(x, {before}) }}"

    assert needed(accepted, f"node A {{ x: F64 @range(x, {after}) }}") == expected


def test_several_ranges_together_can_imply_one() -> None:
    accepted = "node A { x: I32 @range(x, 0..20) @range(x, -5..10) }"

    assert needed(accepted, "node A { x: I32 @range(x, 0..10) }") == []


def test_a_bound_that_only_its_old_width_allowed_is_checked_when_a_float_widens() -> None:
    accepted = "node A { x: F32 @range(x, ..0.1) @range(x, 0..10) }"

    (check,) = plan(accepted, accepted.replace("F32", "F64")).needs

    assert isinstance(check, ValuesInRange)
    assert (check.low, check.high) == (None, Decimal("0.1"))


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ("@unique(a, b)", [CheckKind.TUPLE_IS_UNIQUE]),
        ("@unique(a, k)", []),
        ("@unique(u, a)", []),
        ("@unique(a, n)", []),
        ("@unique(a, f)", [CheckKind.TUPLE_IS_UNIQUE]),
    ],
)
def test_a_tuple_is_compared_only_if_nothing_makes_it_unique_already(
    constraint: str, expected: list[CheckKind]
) -> None:
    columns = "k: String @key u: I32? @unique a: I32 b: I32"

    new = f"node A {{ {columns} n: I32? f: I32 @backfill(1) {constraint} }}"

    assert needed(f"node A {{ {columns} }}", new) == expected


@pytest.mark.parametrize(
    ("accepted", "new", "expected"),
    [
        ("v: Vector(2) @embed(t)", "v: Vector(2)", [CheckKind.NO_NULLS]),
        ("v: Vector(2) @embed(t)", "v: Vector(2) @embed(u)", [CheckKind.NO_NULLS]),
        ("v: Vector(2) @embed(u)", "v: Vector(2) @embed(t)", []),
        ("v: Vector(2)", "v: Vector(2) @embed(u)", []),
        ("v: Vector(2)? @embed(t)", "v: Vector(2)?", []),
        ("v: Vector(2)?", "v: Vector(2) @embed(t)", []),
        ("v: Vector(2)?", "v: Vector(2) @embed(u)", [CheckKind.NO_NULLS]),
        ("", "v: Vector(2) @embed(t)", []),
        ("", "v: Vector(2) @embed(u)", [CheckKind.NO_NULLS]),
        (
            "v: Vector(2) @embed(t)",
            "v: Vector(2) @embed(t) w: Vector(2) @backfill(from=v)",
            [CheckKind.NO_NULLS],
        ),
        ("v: Vector(2)", "v: Vector(2) w: Vector(2) @backfill(from=v)", []),
    ],
)
def test_a_vector_may_be_missing_only_while_its_text_is_there(
    accepted: str, new: str, expected: list[CheckKind]
) -> None:
    texts = "t: String u: String?"

    assert needed(f"node A {{ {texts} {accepted} }}", f"node A {{ {texts} {new} }}") == expected


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ("", [CheckKind.VALUES_IN_SET]),
        ('@rename_value(b="a")', [CheckKind.VALUES_IN_SET]),
        ('@rename_value(b="a", c="a")', []),
    ],
)
def test_values_that_leave_are_looked_for_unless_all_are_mapped(
    mapping: str, expected: list[CheckKind]
) -> None:
    new = f"node A {{ s: enum(a) {mapping} }}"

    assert needed("node A { s: enum(a, b, c) }", new) == expected


def test_copied_values_meet_the_constraints_of_where_they_go() -> None:
    constraints = '@check(s, "x") @range(n, 0..9)'

    assert needed(
        f"node A {{ s: String? t: String n: I32? m: I32 {constraints} }}",
        "node A { s: String @backfill(from=t) t: String n: I32 @backfill(from=m) m: I32 "
        f"{constraints} }}",
    ) == [CheckKind.VALUES_MATCH, CheckKind.VALUES_IN_RANGE]


def test_a_fill_makes_what_was_exempt_count() -> None:
    accepted = "node A { u: I32? @unique v: I32 }"

    new = "node A { u: I32 @unique @backfill(0) v: I32 @unique(u, v) }"

    assert needed(accepted, new) == [CheckKind.TUPLE_IS_UNIQUE] * 2


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", "@card(1..)", []),
        ("", "@card(2..)", [CheckKind.EDGES_PER_SOURCE]),
        ("@card(2..3)", "@card(1..)", []),
        ("@card(0..3)", "@card(0..4)", []),
        ("@card(0..3)", "@card(1..2)", [CheckKind.EDGES_PER_SOURCE]),
    ],
)
def test_only_a_narrower_cardinality_counts_edges(
    before: str, after: str, expected: list[CheckKind]
) -> None:
    assert needed(
        f"node A {{}} edge E: A -> A {before}", f"node A {{}} edge E: A -> A {after}"
    ) == (expected)


def test_a_check_names_the_columns_and_the_table_that_exist_now() -> None:
    (check,) = plan(
        "node A { old: I32? }",
        'node B @rename_from("A") { new: I64 @rename_from("old") }',
    ).needs

    assert isinstance(check, NoNulls)
    assert check.table == "node:A"
    assert check.column.name == "new"
    assert check.column.stored == StoredColumn(
        name="old", type=compiled("node A { x: I32 }").nodes["A"].properties["x"].type
    )


@pytest.mark.parametrize("source", ["gone", "kept"])
def test_a_copy_reads_a_property_that_goes_or_one_under_its_new_name(source: str) -> None:
    (step,) = [
        each
        for each in plan(
            "node A { gone: I32 was: I32 }",
            f'node A {{ kept: I32 @rename_from("was") x: I64 @backfill(from={source}) }}',
        ).steps
        if isinstance(each, AddProperty)
    ]

    assert isinstance(step.fill, CopyFill)
    assert step.fill.source.name == {"gone": "gone", "kept": "was"}[source]
    assert (step.needs, step.cost, step.writes_values) == ((), CostClass.COLUMN, True)


def test_a_nullable_property_can_be_filled_too() -> None:
    (step,) = plan("node A {}", "node A { x: I32? @backfill(5) }").steps

    assert isinstance(step, AddProperty)
    assert step.fill == LiteralFill(value=5)


def test_a_hint_behind_an_interface_property_fills_every_node() -> None:
    found = evolve(
        compiled("interface I { x: I32? } node A implements I {} node B {}"),
        "interface I { x: I32 @backfill(1) } node A implements I {} node B implements I {}",
    )

    fills = [each.fill for each in found.plan.steps if isinstance(each, MakeRequired | AddProperty)]
    assert fills == [LiteralFill(value=1)] * 2
    assert found.findings == ()


def test_a_hard_drop_is_asked_for_and_a_soft_one_is_not() -> None:
    accepted, new = "node A { x: I32 } node B {}", "node A {}"

    assert [each.mode for each in plan(accepted, new).steps if hasattr(each, "mode")] == (
        [DropMode.SOFT] * 2
    )
    assert [
        each.mode for each in plan(accepted, new, hard=True).steps if hasattr(each, "mode")
    ] == ([DropMode.HARD] * 2)


def test_values_that_python_takes_for_equal_are_told_apart() -> None:
    accepted = compiled("node A @meta(u=1) { x: I32 @meta(v=1.0) @range(x, 1..) }")

    evolution = evolve(accepted, "node A @meta(u=true) { x: I32 @meta(v=1) @range(x, 1.0..) }")

    assert [each.kind for each in evolution.plan.steps] == [
        StepKind.UPDATE_TYPE_METADATA,
        StepKind.UPDATE_PROPERTY_METADATA,
        StepKind.REMOVE_CONSTRAINT,
        StepKind.ADD_CONSTRAINT,
    ]
    assert evolution.plan.needs == ()
    assert model_hash(evolution.target) != model_hash(accepted)


def test_a_plan_is_hashable_and_can_be_sent_elsewhere() -> None:
    found = plan("node A { x: I32? }", "node A { x: I32 @unique } node B {}")

    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301 - made one line above
    assert hash(found) == hash(plan("node A { x: I32? }", "node A { x: I32 @unique } node B {}"))


def test_an_invalid_text_is_refused_as_ever() -> None:
    with pytest.raises(SchemaInvalidError) as caught:
        evolve(compiled("node A {}"), "node A { x: Strng }", filename="new.pg")

    assert [each.rule for each in caught.value.diagnostics] == ["unknown-type"]
    assert caught.value.filename == "new.pg"


def test_what_a_string_smuggles_in_stays_on_its_line() -> None:
    accepted = compiled("node A { s: String v: Vector(2) @embed(s) }")

    evolution = evolve(
        accepted,
        r"""
        node A @rename_from("A\nB") {
            s: enum(a) @rename_value("x\n\t=a", "y=a")
            m: String @backfill("a\nb") @check(m, "\n")
            v: Vector(2)
        }
        """,
    )

    lines = plan_text(evolution.plan).split("\n")
    assert all(each.isprintable() for each in lines)
    assert all(each.message.isprintable() for each in evolution.plan.warnings)
    assert json.loads(plan_json(evolution.plan))["supported"]


def test_a_difference_without_a_step_is_never_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "constraint_differences", lambda _: iter(()))

    with pytest.raises(NothingWrittenError, match="bug in Omnigraph"):
        evolve(compiled("node A { x: I32 }"), "node A { x: I32 @index }")


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("@backfill(1)", []),
        ("@backfill(-1.5)", []),
        ('@backfill("x")', []),
        ("@backfill(true)", []),
        ("@backfill(from=y)", []),
        ('@backfill(from="y")', []),
        ("@backfill", ["annotation-arguments"]),
        ("@backfill(1, 2)", ["annotation-arguments"]),
        ("@backfill(0..1)", ["annotation-arguments"]),
        ("@backfill(form=y)", ["annotation-arguments"]),
        ("@backfill(from=1)", ["annotation-arguments"]),
        ("@backfill(1, from=y)", ["annotation-arguments"]),
        ("@backfill(1) @backfill(2)", ["duplicate-annotation"]),
        ("@backfil(1)", ["unknown-annotation"]),
        ('@rename_value(a="b")', []),
        ("@rename_value(a=b)", []),
        ('@rename_value(a="b", "B-1=c")', []),
        ("@rename_value", ["annotation-arguments"]),
        ('@rename_value("a")', ["annotation-arguments"]),
        ('@rename_value("=a")', ["annotation-arguments"]),
        ("@rename_value(a=1)", ["annotation-arguments"]),
        ('@rename_value(a="")', ["annotation-arguments"]),
        ('@rename_value(a="b", "a=c")', ["annotation-arguments"]),
    ],
)
def test_the_form_of_a_hint_is_checked_with_the_text(hint: str, expected: list[str]) -> None:
    assert rules(f"node A {{ x: I32 {hint} y: I32 }}") == expected


@pytest.mark.parametrize("hint", ["@backfill(1)", '@rename_value(a="b")'])
def test_a_hint_about_values_belongs_to_a_property(hint: str) -> None:
    assert rules(f"node A {hint} {{}} edge E: A -> A {hint}") == ["misplaced-annotation"] * 2


def test_hints_are_never_stored() -> None:
    plain = compiled("interface I { i: I32 } node A { x: I32 s: enum(b) }")

    hinted = compiled("""
        interface I { i: I32 @backfill(1) }
        node A @rename_from("B") {
            x: I32 @backfill(1) @rename_from("y") s: enum(b) @rename_value(a="b")
        }
    """)

    assert hinted == plain


LEGACY = 'node A @audit { x: I32 @unit("m") }'


def accepted_earlier() -> Catalog:
    return compile_schema(LEGACY, filename="a.pg", identity_domain=DOMAIN, was_accepted=True)


def test_unknown_annotations_of_the_accepted_schema_are_warnings_until_it_is_changed() -> None:
    again = evolve(accepted_earlier(), f"// as it was\n{LEGACY}").plan

    assert again.steps == ()
    assert [each.code for each in again.warnings] == ["unknown-annotation"] * 2
    with pytest.raises(SchemaInvalidError, match="`@unit` is not an annotation"):
        evolve(accepted_earlier(), LEGACY.replace("I32", "I64"))
    with pytest.raises(SchemaInvalidError, match="`@indx` is not an annotation"):
        evolve(accepted_earlier(), LEGACY.replace("@unit", "@indx"))


def test_unknown_annotations_become_metadata_without_touching_rows() -> None:
    new = 'node A @meta(audit=true) { x: I32 @meta(unit="m") }'

    steps = evolve(accepted_earlier(), new).plan.steps

    assert [each.kind for each in steps] == [
        StepKind.UPDATE_TYPE_METADATA,
        StepKind.UPDATE_PROPERTY_METADATA,
    ]
    assert {each.cost for each in steps} == {CostClass.METADATA}
