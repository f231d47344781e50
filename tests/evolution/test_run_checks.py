"""Checks of a schema change name the rows that a write under the new schema would refuse."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import DamagedGraphError, NotFoundError, OmnigraphError
from omnigraph_lake.evolution.plan.columns import (
    CopyFill,
    Fill,
    FutureColumn,
    LiteralFill,
    StoredColumn,
)
from omnigraph_lake.evolution.plan.data_checks import (
    CheckKind,
    DataCheck,
    EdgesPerSource,
    NoNulls,
    TableIsEmpty,
    TupleIsUnique,
)
from omnigraph_lake.evolution.plan.planning import Evolution, evolve
from omnigraph_lake.evolution.run_checks import Offenders, failed_checks
from omnigraph_lake.evolution.table_changes import table_changes
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.schema.catalog import Catalog, Scalar, ScalarType
from omnigraph_lake.storage.lance.tables import open_pinned
from tests.evolution.plan.rows import Row, migrated
from tests.evolution.stored import as_stored_in, changed, stored
from tests.schema.compiling import compiled

pytestmark = [pytest.mark.unit, pytest.mark.sampled(2)]

NAN = math.nan


def found(root: str, evolution: Evolution, rows: dict[str, list[Row]]) -> list[Offenders]:
    where, snapshot = stored(root, evolution.accepted, rows)
    return list(failed_checks(ThreadRunner(), where, snapshot, evolution.plan.needs))


def told(offenders: Sequence[Offenders]) -> list[tuple[str, int, str]]:
    return [(each.check.kind.value, each.rows, " ".join(each.examples)) for each in offenders]


def xs(*values: Any) -> list[Row]:
    return [{"x": value} for value in values]


SINGLE = 0.10000000149011612
CASES: dict[str, tuple[str, str, list[Row], list[tuple[str, int, str]]]] = {
    "required in an empty table": ("x: I32?", "x: I32? y: I32", [], []),
    "required in a table with rows": (
        "x: I32?",
        "x: I32? y: I32",
        xs(1, None),
        [("table_is_empty", 2, "r0000 r0001")],
    ),
    "no nulls": ("x: I32?", "x: I32", xs(1, 2), []),
    "nulls": ("x: I32?", "x: I32", xs(1, None, 3, None), [("no_nulls", 2, "r0001 r0003")]),
    "null lists": ("x: [I32]?", "x: [I32]", xs([], None, [None]), [("no_nulls", 1, "r0001")]),
    "null vectors": (
        "x: Vector(2)?",
        "x: Vector(2)",
        xs([1, 2], None),
        [("no_nulls", 1, "r0001")],
    ),
    "null blobs": ("x: Blob?", "x: Blob", xs(b"", None, b"x"), [("no_nulls", 1, "r0001")]),
    "empty texts are no nulls": ("x: String?", "x: String", xs("", "a"), []),
    "nan is no null": ("x: F64?", "x: F64", xs(NAN), []),
    "filled from a column with nulls": (
        "x: I32? y: I32?",
        "x: I32? y: I32? z: I64 @backfill(from=x)",
        [{"x": 1, "y": None}, {"x": None, "y": 1}],
        [("no_nulls", 1, "r0001")],
    ),
    "nulls filled from a column with nulls": (
        "x: I32? y: I32?",
        "x: I32 @backfill(from=y) y: I32?",
        [{"x": 1, "y": None}, {"x": None, "y": 1}, {"x": None, "y": None}],
        [("no_nulls", 1, "r0002")],
    ),
    "a vector is missing where its text is": (
        "s: String? v: Vector(2)?",
        "s: String? v: Vector(2) @embed(s)",
        [
            {"s": "a", "v": None},
            {"s": None, "v": [1, 2]},
            {"s": None, "v": None},
            {"s": "", "v": None},
        ],
        [("no_nulls", 1, "r0002")],
    ),
    "a new vector of a text": (
        "s: String?",
        "s: String? v: Vector(2) @embed(s)",
        [{"s": "a"}, {"s": None}],
        [("no_nulls", 1, "r0001")],
    ),
    "in range": ("x: I32?", "x: I32? @range(x, 0..9)", xs(0, 9, None), []),
    "out of range": (
        "x: I32?",
        "x: I32? @range(x, 0..9)",
        xs(0, 10, None, -1),
        [("values_in_range", 2, "r0001 r0003")],
    ),
    "floats out of range, nan among them": (
        "x: F64?",
        "x: F64? @range(x, 0..0.1)",
        xs(0.1, NAN, math.inf, -0.0, None, 0.2, -5e-324),
        [("values_in_range", 4, "r0001 r0002 r0005 r0006")],
    ),
    "a bound is as wide as its column": (
        "x: F32?",
        "x: F32? @range(x, ..0.1)",
        xs(SINGLE, 0.5),
        [("values_in_range", 1, "r0001")],
    ),
    "a wider column has a sharper bound": (
        "x: F32? @range(x, ..0.1)",
        "x: F64? @range(x, ..0.1)",
        xs(SINGLE, 0.0),
        [("values_in_range", 1, "r0000")],
    ),
    "fractions bound whole numbers": (
        "x: U64?",
        "x: U64? @range(x, 0.5..1.5)",
        xs(0, 1, 2, 2**64 - 1),
        [("values_in_range", 3, "r0000 r0002 r0003")],
    ),
    "a range that nothing fits": (
        "x: I32?",
        "x: I32? @range(x, 0.2..0.8)",
        xs(0, None),
        [("values_in_range", 1, "r0000")],
    ),
    "copies out of range": (
        "x: I32?",
        "x: I32? y: I64? @backfill(from=x) @range(y, ..5)",
        xs(5, 6, None),
        [("values_in_range", 1, "r0001")],
    ),
    "matching": ("x: String?", 'x: String? @check(x, "^a|b")', xs("a", "xb", None), []),
    "not matching": (
        "x: String?",
        'x: String? @check(x, "^a|b$")',
        xs("ab", "ba", "", "\nb", "ä"),
        [("values_match", 3, "r0001 r0002 r0004")],
    ),
    "mapped into the set": (
        "x: enum(a, b, c)?",
        "x: enum(a, b)? @rename_value(c=a)",
        xs("a", "c", None),
        [],
    ),
    "not in the set": (
        "x: enum(a, b, c)?",
        "x: enum(a)? @rename_value(b=a)",
        xs("a", "b", "c", None),
        [("values_in_set", 1, "r0002")],
    ),
    "texts not in the set": (
        "x: String?",
        "x: enum(a, b)? @rename_value(z=b)",
        xs("a", "A", "", "z", None),
        [("values_in_set", 2, "r0001 r0002")],
    ),
    "unique": ("x: String?", "x: String? @unique", xs("a", "A", None, None, "ä", "a "), []),
    "not unique": (
        "x: String?",
        "x: String? @unique",
        xs("b", "a", "b", None, "c", "b"),
        [("tuple_is_unique", 3, "r0000 r0002 r0005")],
    ),
    "zeros and nans are alike": (
        "x: F64?",
        "x: F64? @unique",
        xs(0.0, NAN, -0.0, 1.0, NAN),
        [("tuple_is_unique", 4, "r0000 r0001 r0002 r0004")],
    ),
    "large numbers are exact": (
        "x: U64?",
        "x: U64? @unique",
        xs(2**64 - 1, 2**64 - 2, 2**53, 2**53 + 1),
        [],
    ),
    "tuples": (
        "x: I32? y: I32?",
        "x: I32? y: I32? @unique(x, y)",
        [{"x": 1, "y": y} for y in (1, 2, None, None, 2)],
        [("tuple_is_unique", 2, "r0001 r0004")],
    ),
    "not unique once mapped": (
        "x: enum(a, b)? @unique",
        "x: enum(a)? @unique @rename_value(b=a)",
        xs("a", "b", None),
        [("tuple_is_unique", 2, "r0000 r0001")],
    ),
    "not unique once filled": (
        "x: I32? @unique",
        "x: I32 @backfill(1) @unique",
        xs(1, None, 2),
        [("tuple_is_unique", 2, "r0000 r0001")],
    ),
    "a new literal is not unique": (
        "x: I32?",
        'x: I32? y: Date @backfill("2026-01-31") @unique',
        xs(1, 2),
        [("tuple_is_unique", 2, "r0000 r0001")],
    ),
    "several at once, in the order of the plan": (
        "x: I32? s: String?",
        'x: I64 s: String? y: I32 @range(x, 5..) @check(s, "a") @unique(x)',
        [{"x": None, "s": "b"}, {"x": 1, "s": "a"}, {"x": 1, "s": None}],
        [
            ("no_nulls", 1, "r0000"),
            ("table_is_empty", 3, "r0000 r0001 r0002"),
            ("tuple_is_unique", 2, "r0001 r0002"),
            ("values_in_range", 2, "r0001 r0002"),
            ("values_match", 1, "r0000"),
        ],
    ),
}


def is_written(schema: str, rows: dict[str, list[Row]], root: str) -> bool:
    """Whether a fresh graph of this schema takes the rows."""
    graph = og.init(root, schema=schema)
    try:
        graph.write({key.partition(":")[2]: given for key, given in rows.items() if given})
    except OmnigraphError:
        return False
    return True


def after(evolution: Evolution, rows: list[Row], number: int, catalog: Catalog) -> list[Row]:
    steps = [each for each in evolution.plan.steps if each.subject.number == number]
    declared = next(each for each in catalog.tables().values() if each.number == number)
    made = as_stored_in(migrated(rows, steps), declared)
    return [{n: NAN if v == "nan" else v for n, v in row.items()} for row in made]


@pytest.mark.parametrize(("accepted", "new", "rows", "expected"), CASES.values(), ids=CASES.keys())
def test_a_check_fails_for_the_rows_that_a_write_would_refuse(
    tmp_path: Path,
    accepted: str,
    new: str,
    rows: list[Row],
    expected: list[tuple[str, int, str]],
) -> None:
    evolution = evolve(compiled(f"node A {{ {accepted} }}"), f"node A {{ {new} }}")

    offenders = found(str(tmp_path / "old"), evolution, {"node:A": rows})

    assert told(offenders) == expected
    number = evolution.target.nodes["A"].number
    written = after(evolution, rows, number, evolution.target)
    fresh = f"node A {{ {new} }}"
    assert is_written(fresh, {"node:A": written}, str(tmp_path / "new")) == (not expected)


EDGES = {
    "enough": ("@card(2..3)", "aabbb", []),
    "too many": ("@card(0..2)", "aabbbcccc", [("edges_per_source", 2, "b c")]),
    "too few": ("@card(2..)", "abbc", [("edges_per_source", 2, "a c")]),
    "too few and too many": ("@card(2..2)", "abbccc", [("edges_per_source", 2, "a c")]),
    "a source without edges is not counted": ("@card(1..1)", "ab", []),
    "no edges": ("@card(2..3)", "", []),
}


@pytest.mark.parametrize(("card", "sources", "expected"), EDGES.values(), ids=EDGES.keys())
def test_sources_with_too_many_or_too_few_edges_are_named(
    tmp_path: Path, card: str, sources: str, expected: list[tuple[str, int, str]]
) -> None:
    new = f"node A {{ x: I32? }} edge E: A -> A {card}"
    evolution = evolve(compiled("node A { x: I32? } edge E: A -> A"), new)
    rows: dict[str, list[Row]] = {
        "node:A": [{"id": each} for each in "abcd"],
        "edge:E": [{"src": source, "dst": "d"} for source in sources],
    }

    offenders = found(str(tmp_path / "old"), evolution, rows)

    assert told(offenders) == expected
    assert is_written(new, rows, str(tmp_path / "new")) == (not expected)


def test_the_ends_of_edges_can_be_unique(graph_root: str) -> None:
    evolution = evolve(
        compiled("node A {} edge E: A -> A { w: I32? }"),
        "node A {} edge E: A -> A { w: I64? @unique(src, dst, w) }",
    )
    edges = [("a", "b", 1), ("a", "b", None), ("b", "a", 1), ("a", "b", 1), ("a", "b", None)]
    rows = {"edge:E": [{"src": s, "dst": d, "w": w} for s, d, w in edges]}

    offenders = found(graph_root, evolution, rows)

    assert told(offenders) == [("tuple_is_unique", 2, "r0000 r0003")]


def test_at_most_ten_of_the_smallest_ids_are_named(graph_root: str) -> None:
    evolution = evolve(
        compiled("node A { x: I32? } edge E: A -> A"),
        "node A { x: I32 y: I32 @unique(x) @range(x, 5..) } edge E: A -> A @card(2..)",
    )
    ids = ["é", "z", "A", "a", *(f"n{n:02}" for n in range(30))]
    random.Random(3).shuffle(ids)
    nodes: list[Row] = [{"id": each, "x": None if n % 2 else 1} for n, each in enumerate(ids)]
    edges = [{"src": each, "dst": "a"} for each in ids]

    offenders = found(graph_root, evolution, {"node:A": nodes, "edge:E": edges})

    expected = {
        CheckKind.NO_NULLS: [each["id"] for each in nodes if each["x"] is None],
        CheckKind.VALUES_IN_RANGE: [each["id"] for each in nodes if each["x"] == 1],
        CheckKind.TUPLE_IS_UNIQUE: [each["id"] for each in nodes if each["x"] == 1],
        CheckKind.TABLE_IS_EMPTY: ids,
        CheckKind.EDGES_PER_SOURCE: ids,
    }
    assert {each.check.kind for each in offenders} == set(expected)
    for each in offenders:
        whole = sorted(expected[each.check.kind])
        assert (each.rows, each.examples) == (len(whole), tuple(whole[:10]))


def held(name: str) -> StoredColumn:
    return StoredColumn(name=name, type=ScalarType(scalar=Scalar.I32))


def column(name: str, *, fill: Fill | None = None, is_new: bool = False) -> FutureColumn:
    stored = held(name)
    return FutureColumn(name=name, type=stored.type, stored=None if is_new else stored, fill=fill)


NULLS = {
    "held": (column("x"), None, "r0000 r0001"),
    "either": (column("x"), column("y"), "r0000"),
    "a literal fills": (column("x", fill=LiteralFill(value=1)), None, ""),
    "a literal fills the other": (column("x"), column("z", fill=LiteralFill(value=1)), ""),
    "nothing fills": (column("z", is_new=True), None, "r0000 r0001 r0002 r0003"),
    "a copy fills": (
        column(
            "z", is_new=True, fill=CopyFill(source=StoredColumn(name="y", type=column("y").type))
        ),
        None,
        "r0000 r0002",
    ),
    "another case": (column("xY"), None, "r0000 r0002 r0003"),
}


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize(("first", "other", "expected"), NULLS.values(), ids=NULLS.keys())
def test_nulls_are_found_with_and_without_an_index(
    graph_root: str,
    first: FutureColumn,
    other: FutureColumn | None,
    expected: str,
    *,
    indexed: bool,
) -> None:
    catalog = compiled("node A { x: I32? y: I32? xY: I32? }")
    rows: list[Row] = [
        {"x": None, "y": None, "xY": None},
        {"x": None, "y": 1, "xY": 1},
        {"x": 1, "y": None, "xY": None},
        {"x": 1, "y": 1, "xY": None},
    ]
    where, snapshot = stored(graph_root, catalog, {"node:A": rows})
    if indexed:
        for name in ("x", "y"):
            entry = snapshot.tables["node:A"]
            dataset = open_pinned(where, entry)
            dataset.create_scalar_index(name, "BTREE")
            moved = replace(entry, version=dataset.version, made_at=None)
            snapshot = replace(snapshot, tables={"node:A": moved})
    check = NoNulls(table="node:A", column=first, unless_present=other)

    offenders = failed_checks(ThreadRunner(), where, snapshot, [check])

    assert [" ".join(each.examples) for each in offenders] == [expected] * bool(expected)


def test_columns_that_older_rows_have_no_file_of_are_null_there(graph_root: str) -> None:
    first = evolve(compiled("node A { x: I32 }"), "node A { x: I32 y: I32? }")
    where, snapshot = stored(graph_root, first.accepted, {"node:A": xs(1, 2)})
    (change,) = table_changes(first)
    entry = changed(where, snapshot.tables["node:A"], change)
    then = evolve(first.target, "node A { x: I32 y: I32 }")

    offenders = failed_checks(
        ThreadRunner(), where, replace(snapshot, tables={"node:A": entry}), then.plan.needs
    )

    assert told(offenders) == [("no_nulls", 2, "r0000 r0001")]


@pytest.mark.parametrize(
    "check",
    [
        TableIsEmpty(table="node:A", column="y"),
        TupleIsUnique(table="node:A", columns=(column("x"),)),
    ],
)
def test_a_check_that_is_asked_twice_is_answered_once(graph_root: str, check: DataCheck) -> None:
    where, snapshot = stored(graph_root, compiled("node A { x: I32 }"), {"node:A": xs(1, 1)})

    offenders = failed_checks(ThreadRunner(), where, snapshot, [check, check])

    assert offenders == (Offenders(check=check, rows=2, examples=("r0000", "r0001")),)


def test_a_table_that_is_not_there_is_named(graph_root: str) -> None:
    where, snapshot = stored(graph_root, compiled("node A { x: I32 }"), {})

    with pytest.raises(NotFoundError, match="'B'"):
        failed_checks(ThreadRunner(), where, snapshot, [TableIsEmpty(table="node:B", column="y")])


@pytest.mark.local_disk("takes a file away")
@pytest.mark.parametrize(
    "check",
    [
        TupleIsUnique(table="node:A", columns=(column("x"),)),
        EdgesPerSource(table="edge:E", minimum=2, maximum=None),
    ],
)
def test_a_lost_file_is_told_as_such_while_rows_are_compared(
    tmp_path: Path, check: DataCheck
) -> None:
    catalog = compiled("node A { x: I32 } edge E: A -> A")
    rows = {"node:A": xs(1, 2), "edge:E": [{"src": "r0000", "dst": "r0001"}]}
    where, snapshot = stored(str(tmp_path / "graph"), catalog, rows)
    for each in tmp_path.rglob("data/*.lance"):
        each.unlink()

    with pytest.raises(DamagedGraphError, match=f"^could not read {check.table}"):
        failed_checks(ThreadRunner(), where, snapshot, [check])
