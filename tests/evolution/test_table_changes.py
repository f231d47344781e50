"""A plan says exactly which columns of which tables change, and which values are computed."""

from __future__ import annotations

import pickle
from decimal import Decimal

import pytest
from hypothesis import given

from omnigraph_lake.evolution.plan.columns import (
    CopyFill,
    FutureColumn,
    LiteralFill,
    StoredColumn,
    ValueMapping,
)
from omnigraph_lake.evolution.plan.planning import Evolution, evolve
from omnigraph_lake.evolution.table_changes import TableChange, table_changes
from omnigraph_lake.schema.arrow import table_schema
from omnigraph_lake.schema.catalog import Scalar, ScalarType
from omnigraph_lake.storage.staging.column_layout import (
    ComputedColumn,
    KeptColumn,
    NullColumn,
    WantedColumn,
)
from tests.drawing import drawn
from tests.evolution.plan.pairs import pair
from tests.evolution.plan.plan_cases import CASES, PlanCase
from tests.evolution.plan.test_random_pairs import evolved, seeds
from tests.schema.compiling import compiled

pytestmark = pytest.mark.unit

I32, F32, F64, STRING = (
    ScalarType(scalar=each) for each in (Scalar.I32, Scalar.F32, Scalar.F64, Scalar.STRING)
)


def changes(accepted: str, new: str) -> dict[str, TableChange]:
    found = table_changes(evolve(compiled(accepted), new))
    return {each.new_key: each for each in found}


def shown(change: TableChange) -> str | None:
    """The columns in order: kept by name, `new<-stored`, `+new` without values, `=computed`."""
    if change.columns is None:
        assert change.computed == ()
        return None
    return " ".join(map(_shown, change.columns.columns))


def _shown(column: WantedColumn) -> str:
    mark = "" if column.field.nullable else "!"
    match column:
        case KeptColumn():
            name = column.field.name
            return (name if column.stored == name else f"{name}<-{column.stored}") + mark
        case NullColumn():
            return f"+{column.field.name}{mark}"
        case ComputedColumn():
            return f"={column.field.name}{mark}"


STEPS = {
    "nothing": ("node A { x: I32 }", "node A { x: I32 }", None, ()),
    "description": (
        "node A { x: I32 }",
        'node A @description("d") { x: I32 @description("e") @meta(unit=1) }',
        None,
        (),
    ),
    "constraints": (
        "node A { x: I32 s: String? }",
        'node A { x: I32 @unique @index s: String? @range(x, 0..9) @check(s, "a") }',
        None,
        (),
    ),
    "rename": (
        "node A { x: I32 s: String }",
        'node A { y: I32 @rename_from("x") s: String }',
        "id! y<-x! s!",
        (),
    ),
    "rename the type": ("node B { x: I32 }", 'node A @rename_from("B") { x: I32 }', None, ()),
    "rename onto a dropped name": (
        "node A { x: I32 y: I32? }",
        'node A { z: I32 @rename_from("x") }',
        "id! z<-x!",
        (),
    ),
    "widen": ("node A { x: I32 y: F32? }", "node A { x: I64 y: F64? }", "id! =x! =y", ("x", "y")),
    "widen and rename": (
        "node A { x: I32? s: String }",
        'node A { y: F64? @rename_from("x") s: String }',
        "id! =y s!",
        ("x",),
    ),
    "extend an enum": ("node A { s: enum(a, b) }", "node A { s: enum(a, b, c) }", None, ()),
    "narrow an enum": ("node A { s: enum(a, b) }", "node A { s: enum(a) }", None, ()),
    "map values": (
        "node A { s: enum(a, b) }",
        "node A { s: enum(a, c) @rename_value(b=c) }",
        "id! =s!",
        ("s",),
    ),
    "enum to string": ("node A { s: enum(a, b) }", "node A { s: String }", None, ()),
    "string to enum": ("node A { s: String? }", "node A { s: enum(a, b)? }", None, ()),
    "make nullable": ("node A { x: I32 }", "node A { x: I32? }", "id! x", ()),
    "make required": ("node A { x: I32? }", "node A { x: I32 }", "id! x!", ()),
    "make required with a literal": (
        "node A { x: I32? }",
        "node A { x: I32 @backfill(1) }",
        "id! =x!",
        ("x",),
    ),
    "make required with a copy": (
        "node A { x: I32? y: I32 }",
        "node A { x: I32 @backfill(from=y) y: I32 }",
        "id! =x! y!",
        ("x", "y"),
    ),
    "embed": (
        "node A { s: String v: Vector(2) }",
        "node A { s: String v: Vector(2) @embed(s) }",
        "id! s! v",
        (),
    ),
    "add": ("node A { x: I32 }", "node A { y: Date? x: I32 }", "id! x! +y", ()),
    "add with a literal": (
        "node A { x: I32 }",
        "node A { x: I32 y: I32? @backfill(3) }",
        "id! x! =y",
        (),
    ),
    "add with a copy": (
        "node A { x: I32 e: enum(a, b) }",
        "node A { x: I32 e: enum(a, b) s: String? @backfill(from=e) y: F64 @backfill(from=x) }",
        "id! x! e! =s =y!",
        ("e", "x"),
    ),
    "add a required one": ("node A { x: I32 }", "node A { x: I32 y: I32 }", "id! x! +y!", ()),
    "add a required vector with its text": (
        "node A { s: String }",
        "node A { s: String v: Vector(2) @embed(s) }",
        "id! s! +v",
        (),
    ),
    "drop": ("node A { x: I32 y: I32 b: Blob? }", "node A { y: I32 }", "id! y!", ()),
    "copy what is dropped": (
        "node A { x: I32 }",
        "node A { y: I64 @backfill(from=x) }",
        "id! =y!",
        ("x",),
    ),
    "copy what is renamed": (
        "node A { x: I32 }",
        'node A { z: I32 @rename_from("x") y: I64 @backfill(from=z) }',
        "id! z<-x! =y!",
        ("x",),
    ),
    "change interfaces": (
        "interface I { x: I32? } node A { s: String }",
        "interface I { x: I32? } node A implements I { s: String }",
        "id! s! +x",
        (),
    ),
    "retype a promise": (
        "interface I { x: I32? } node A implements I {}",
        "interface I { x: I64? } node A implements I {}",
        "id! =x",
        ("x",),
    ),
}


@pytest.mark.parametrize(("accepted", "new", "columns", "reads"), STEPS.values(), ids=STEPS.keys())
def test_every_kind_of_step_changes_its_columns_and_no_others(
    accepted: str, new: str, columns: str | None, reads: tuple[str, ...]
) -> None:
    change = changes(accepted, new)["node:A"]

    assert shown(change) == columns
    assert (change.columns.reads if change.columns else ()) == reads


def test_edges_keep_their_ends_and_renamed_types_their_tables() -> None:
    found = changes(
        "node Human { x: I32 } edge Knows: Human -> Human { since: Date? w: I32 } node Gone {}",
        """
        node New {}
        node Person @rename_from("Human") { x: I32 }
        edge Met: Person -> Person @rename_from("Knows") @card(0..2) { w: I64 }
        """,
    )

    assert [(each.stored_key, each.new_key) for each in found.values()] == [
        ("node:Human", "node:Person"),
        ("edge:Knows", "edge:Met"),
    ]
    assert shown(found["node:Person"]) is None
    assert shown(found["edge:Met"]) == "id! src! dst! =w!"


def test_computed_columns_say_what_they_hold() -> None:
    change = changes(
        "node A { a: I32? s: enum(a, b) n: I32 }",
        """
        node A {
            b: F64 @rename_from("a") @backfill(0.1)
            s: enum(a, c)? @rename_value(b=c)
            n: I32
            t: I64 @backfill(from=n)
            f: F32? @backfill(7)
        }
        """,
    )["node:A"]

    stored = StoredColumn(name="n", type=I32)
    (b, s, t, f) = change.computed
    assert b == FutureColumn(
        name="b",
        type=F64,
        stored=StoredColumn(name="a", type=I32),
        fill=LiteralFill(value=Decimal("0.1")),
    )
    assert s.mapping == (ValueMapping(old="b", new="c"),)
    assert (t.stored, t.fill) == (None, CopyFill(source=stored))
    assert f == FutureColumn(name="f", type=F32, stored=None, fill=LiteralFill(value=7))
    assert change.columns is not None
    assert change.columns.reads == ("a", "s", "n")


@pytest.mark.parametrize("case", CASES, ids=[each.name for each in CASES])
def test_every_golden_plan_gives_the_columns_of_its_target(case: PlanCase) -> None:
    evolution = case.evolution()
    if evolution.plan.supported:
        _leads_to_the_target(evolution)


@pytest.mark.random
@drawn(12, one_in=2)
@given(seeds)
def test_random_plans_give_the_columns_of_their_targets(seed: int) -> None:
    evolution = evolved(*pair(seed))
    if evolution.plan.supported:
        _leads_to_the_target(evolution)


def _leads_to_the_target(evolution: Evolution) -> None:
    before = evolution.accepted.tables()
    after = evolution.target.tables()
    found = table_changes(evolution)

    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301
    for each in found:
        old, new = table_schema(before[each.stored_key]), table_schema(after[each.new_key])
        if each.columns is None:
            assert old.equals(new, check_metadata=True)
            continue
        columns = each.columns.columns
        assert [column.field for column in columns] == list(new)
        assert all(
            column.field.equals(new.field(column.field.name), check_metadata=True)
            for column in columns
        )
        kept = [column.stored for column in columns if isinstance(column, KeptColumn)]
        assert len(set(kept)) == len(kept)
        assert set(kept) | set(each.columns.reads) <= set(old.names)
        computed = [c.field.name for c in columns if isinstance(c, ComputedColumn)]
        assert [column.name for column in each.computed] == computed
        assert computed or not old.equals(new, check_metadata=True)
