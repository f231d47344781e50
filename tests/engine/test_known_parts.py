"""What reads no row is computed before a run, and is then looked up as a literal is."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import pytest

import omnigraph_lake as og
from omnigraph_lake.engine.access.access_path import keys_as_ids
from omnigraph_lake.engine.expressions.known_parts import prepare_parts, with_known_parts
from omnigraph_lake.errors import QueryFailedError
from omnigraph_lake.graph import Graph
from omnigraph_lake.query.binding import bind
from omnigraph_lake.query.compile import compile_queries
from omnigraph_lake.query.plan import Mutation, Plan
from omnigraph_lake.query.plan_text import explain
from omnigraph_lake.query.planning import plan_query
from omnigraph_lake.query.typed import TypedQuery
from tests.engine.small_graphs import values_by_every_access
from tests.stores import root_at

pytestmark = pytest.mark.unit

SCHEMA: Final = """
node Person {
    name: String @key
    age: I32
    day: Date
    at: DateTime
    amount: Decimal(12, 2)
    tags: [String]
}
edge Knows: Person -> Person
"""
NOW: Final = dt.datetime(2024, 5, 31, 12, 30, tzinfo=dt.UTC)
PEOPLE: Final = [
    {
        "name": name,
        "age": age,
        "day": NOW.date() - dt.timedelta(days=age),
        "at": NOW - dt.timedelta(hours=age),
        "amount": f"{age}.50",
        "tags": [name, "all"],
    }
    for name, age in (("ann", 7), ("bob", 14), ("cy", 40))
]
DECLARED: Final = "$x: String, $y: I64, $many: String, $zero: I64"
GIVEN: Final = {"x": "BOB", "y": 7, "many": "ann,cy", "zero": 0}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = og.init(root_at(tmp_path_factory.mktemp("known") / "graph"), schema=SCHEMA)
    knows = [{"src": "ann", "dst": "bob"}, {"src": "bob", "dst": "cy"}]
    graph.write({"Person": PEOPLE, "Knows": knows})
    return graph


def compiled(graph: Graph, match: str, result: str = "$p.name as name") -> tuple[TypedQuery, Plan]:
    text = f"query q({DECLARED}) {{ match {{ {match} }} return {{ {result} }} }}"
    catalog = graph.schema.catalog
    (typed,) = compile_queries(text, catalog=catalog, filename="known.gq").values()
    plan = plan_query(typed, catalog)
    assert not isinstance(plan, Mutation)
    return typed, plan


def answers(graph: Graph, match: str, result: str = "$p.name as name") -> list[Any]:
    typed, plan = compiled(graph, match, result)
    return values_by_every_access(graph, plan, bind(typed, GIVEN, now=NOW))


LOOKED_UP: Final = [
    ("$p.name = lower($x)", 'scan $p: Person where $p.id = "bob"', ["bob"]),
    ('$p.name in split($many, ",")', 'scan $p: Person where $p.id in ["ann", "cy"]', ["ann", "cy"]),
    ("$p.age = 2 * $y", "scan $p: Person where $p.age = 14", ["bob"]),
    ("$p.age > -$y * $zero", "scan $p: Person where $p.age > 0", ["ann", "bob", "cy"]),
    ("$p.age = div($y, $zero)", "scan $p: Person where $p.age = null", []),
    (
        '$p.day < cast(truncate(now(), "month") as Date)',
        'scan $p: Person where $p.day < date("2024-05-01")',
        ["cy"],
    ),
    (
        '$p.at < truncate(now(), "day")',
        'scan $p: Person where $p.at < datetime("2024-05-31T00:00:00+00:00")',
        ["bob", "cy"],
    ),
    (
        '$p.at = now() - duration("PT14H")',
        'scan $p: Person where $p.at = datetime("2024-05-30T22:30:00+00:00")',
        ["bob"],
    ),
    ("$p.amount > 2 * $y", ".amount as Decimal(21, 2)) > Decimal('14.00')", ["bob", "cy"]),
    ("$p.amount = cast($y as Decimal(3, 1)) + 7.5", "$p.amount = Decimal('14.50')", ["bob"]),
    ("$p.amount = cast(13 as Decimal(5, 2)) + 1.5", "$p.amount = Decimal('14.50')", ["bob"]),
    (
        "$p.amount in [7.5] or $p.amount = round(cast(14.4951 as Decimal(9, 4)), 2)",
        "$p.amount = Decimal('14.50')",
        ["ann", "bob"],
    ),
    ("$p.age > 10 and $y > 3", "scan $p: Person where $p.age > 10", ["bob", "cy"]),
    ('$p.age > 10 and lower($x) = "no"', "filter false", []),
    (
        'case when $p.age > 10 then lower($x) else upper($x) end = "bob"',
        'case when $p.age > 10 then "bob" else "BOB" end = "bob"',
        ["bob", "cy"],
    ),
    ("$p.tags contains lower($x)", '"bob" in $p.tags', ["bob"]),
]


@pytest.mark.parametrize(("condition", "shown", "expected"), LOOKED_UP)
def test_a_part_that_reads_no_row_is_a_literal(
    graph: Graph, condition: str, shown: str, expected: list[str]
) -> None:
    typed, plan = compiled(graph, f"$p: Person  {condition}")
    parameters = bind(typed, GIVEN, now=NOW)

    known = keys_as_ids(with_known_parts(plan, parameters), graph.schema.catalog, parameters)

    assert shown in explain(known)
    assert answers(graph, f"$p: Person  {condition}") == expected


def test_a_pattern_starts_from_what_is_computed(graph: Graph) -> None:
    match = "$a: Person  $a knows $p  $p.name = lower($x)"
    _, plan = compiled(graph, match)

    assert "scan $p: Person where $p.name = lower($x)" in explain(plan)
    assert answers(graph, match, "$a.name as name") == ["ann"]


def test_the_plan_is_the_same_for_all_values(graph: Graph) -> None:
    typed, plan = compiled(graph, "$p: Person  $p.name = lower($x) or $p.name = lower($x)")
    prepared = prepare_parts(plan)
    bound = [prepared.bind(bind(typed, {**GIVEN, "x": x}, now=NOW)) for x in ("BOB", "Cy")]

    assert prepare_parts(plan) is prepared
    assert len(prepared.parts) == 1
    assert [one.values["#known0"] for one in bound if one is not None] == ["bob", "cy"]


FAILS: Final = "cast($x as I64)"


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (f"$p: Person {{ age: 99 }}  $p.age = {FAILS}", []),
        (f"$p: Person  $p.age = case when $p.age > 0 then 7 else {FAILS} end", ["ann"]),
        (f"$p: Person  $p.age = if($y = 7, 14, {FAILS})", ["bob"]),
        (f"$p: Person  coalesce($p.age, {FAILS}) = 40", ["cy"]),
        (
            f"$p: Person  $p.name = lower($x)  $p.age = if($p.age > 0, 14, {FAILS})",
            ["bob"],
        ),
    ],
)
def test_a_part_that_fails_fails_only_where_a_row_needs_it(
    graph: Graph, match: str, expected: list[str]
) -> None:
    assert answers(graph, match) == expected


@pytest.mark.parametrize(
    "match",
    [
        f"$p: Person  $p.age = {FAILS}",
        f"$p: Person  $p.name = lower($x)  $p.age = {FAILS}",
        "$p: Person  $p.age = 9223372036854775807 + $y",
        '$p: Person  $p.at = add(now(), 9000, "year")',
    ],
)
def test_a_part_that_fails_is_an_error_if_there_is_a_row(graph: Graph, match: str) -> None:
    with pytest.raises(QueryFailedError):
        answers(graph, match)


def test_values_of_a_result_keep_their_meaning(graph: Graph) -> None:
    result = "lower($x) as a, concat($p.name, upper(lower($x))) as b"

    assert answers(graph, '$p: Person { name: "cy" }', result) == ["bob", "cyBOB"]


def test_scans_and_mutations_look_up_what_is_computed(graph: Graph) -> None:
    rows = graph.scan("Person", filter='name = lower("BOB") or at < truncate(now(), "year")')
    changed = graph.mutate(
        "query older($x: String) { update Person set { age: 15 } where name = lower($x) }",
        x="BOB",
        dry_run=True,
    )

    assert set(rows.read_all()["name"].to_pylist()) >= {"bob"}
    assert [table.updated for table in changed.tables.values()] == [1]
