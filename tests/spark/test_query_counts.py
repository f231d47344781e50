"""Patterns that are only counted on Spark: steps become counts, repeated pairs count once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import omnigraph_lake as og
from omnigraph_lake.engine.spark import patterns
from omnigraph_lake.engine.spark.rows import (
    HeldEntity,
    Names,
    Rows,
    merge_equal,
    query_errors,
    weigh,
)
from omnigraph_lake.engine.spark.table_frames import UNIQUE_PAIRS, UniquePairs
from omnigraph_lake.errors import QueryFailedError
from omnigraph_lake.runner import scan
from tests.gate.selection import for_gate
from tests.query.people import small_graph
from tests.spark.query_answers import World, world
from tests.spark.test_query_match import plan_text
from tests.stores import root_at

pytestmark = pytest.mark.spark

OF_AGES = "count(*), count($p.age), sum($p.age), avg($p.age), min($p.age), count(distinct $p.age)"
COUNTED = [
    # Two edges join ann and bob: one row without a variable for the edge, two with one.
    ("$p: Person $p knows $q", "$q.id, count(*)"),
    ("$p: Person $p $e: knows $q", "$q.id, count($p)"),
    ("$p: Person $p $e: knows $q $e.weight > 1", "$q.id, count(*)"),
    ("$p: Person $p <knows> $q", "$q.id, count(*)"),
    ("$p: Person $p $e: <knows> $q", "count(*)"),
    ("$p: Person $p knows $q", "$p.id, count($q)"),
    ("$p: Person $p knows $q", "$p.name, count(*)"),
    ("$p: Person $p wrote $n", "$n.title, count(*)"),
    ("$p: Person $p wrote $n", "count(*)"),
    ("$n: Note $p wrote $n", f"$p.status, {OF_AGES}"),
    ("$p: Person $p wrote $n", f"$p.status, {OF_AGES}, sum($p.height), avg($p.height)"),
    ("$p: Person $p worksAt $c", "$p.status, sum($p.points)"),
    ("$a: Person $a knows $b $b knows $c", "count(*)"),
    ("$a: Person $a knows $b $b knows $c $b.age < 30 and $c.age > 0", "count(*)"),
    ("$a: Person $a knows $b $b knows $c $c knows $d", "$d.id, count(*)"),
    ("$a: Person $a knows $b $b knows $c $c wrote $n", "$c.name, count(*)"),
    ('$a: Person { id: "ann" } $a knows $b', "count(*)"),
    ('$a: Person { id: "ann" } $a knows $b $b knows $c', "$b.id, count($c)"),
    ("$p: Person $p knows $p", "count(*)"),
    ("$p: Person $q: Person $p $e: knows $q", "count(*)"),
    ("$p: Person $p worksAt{2,5} $c", "count(*)"),
    ("$p: Person $p knows{1,2} $q", "$q.id, count(*)"),
    ("$p: Person $p knows $q as $w", "count(*)"),
    ("$x: Named $x worksAt> $c", "$c.name, count(*)"),
    ("$p: Person $c: Company $p wrote $n $c contains $d", "$p.id, count(*)"),
    ("$p: Person optional { $p wrote $n }", "$p.id, count(*)"),
    ("$p: Person optional { $p wrote $n }", "$p.id, count($n), count(*)"),
    ("$p: Person optional { $p knows $q $q wrote $n }", "count(*), count($q)"),
    ("$p: Person $p knows $q not { $q worksAt $c }", "$p.id, count(*)"),
    ("$a: Person $a knows $b $b knows $c", "count(distinct $c.id)"),
    ("$a: Person $a knows $b $b wrote $n", "min($a.age), max($a.age)"),
    ("$a: Person $a knows $b $b wrote $n", "collect(distinct $a.age)"),
    ("$a: Person $a knows $b $b wrote $n", "collect($a.age)"),
    ("$a: Person $a knows $b $b knows $c", "$a.name, count(*)"),
]
DISTINCT = [
    ("$a: Person $a knows $b", "$b.id"),
    ("$a: Person $a knows $b $b knows $c $c.age > 0", "$a.id"),
    ("$a: Person $a <knows> $b $b wrote $n", "$b.age"),
]
DISTINCT_IN_GATE = DISTINCT[1:3]
IN_GATE = {COUNTED[number] for number in (0, 3, 4, 10, 13, 14, 15, 17, 25, 26, 32, 33)}


@pytest.fixture(scope="module")
def people(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    return world(spark, tmp_path_factory.mktemp("people"), small_graph())


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal rows become one at every hop, as they do in large tables."""
    monkeypatch.setattr(patterns, "_MERGED_EDGES_MIN", 0)
    monkeypatch.setattr(patterns, "_REPEATS_MIN", 0)


@pytest.fixture(scope="module")
def spread(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Tables of two fragments, and no pair twice."""
    folder = tmp_path_factory.mktemp("spread")
    rows, first = small_graph(), small_graph()
    del rows["edges"]["Knows"][1]
    first["edges"] = {name: entities[:2] for name, entities in rows["edges"].items()}
    there = world(spark, folder, first)
    graph = og.open(root_at(folder / "graph"))
    graph.write({name: entities[2:] for name, entities in rows["edges"].items() if entities[2:]})
    return replace(there, graph=graph.spark(spark), rows=rows)


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize(("match", "result"), for_gate(COUNTED, IN_GATE.__contains__))
def test_a_count_is_that_of_the_rows(people: World, match: str, result: str) -> None:
    assert people.ask(match, result)


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize(("match", "result"), for_gate(DISTINCT, DISTINCT_IN_GATE.__contains__))
def test_distinct_rows_need_no_distinct_steps(people: World, match: str, result: str) -> None:
    typed = people.query(match, result, distinct="distinct")

    assert people.same(typed)


@pytest.mark.nightly("the same cases; the gate has them with merged rows")
@pytest.mark.parametrize(("match", "result"), COUNTED)
def test_a_count_of_few_rows_is_the_same(people: World, match: str, result: str) -> None:
    assert people.ask(match, result)


@pytest.mark.parametrize(
    ("match", "result"),
    for_gate(
        [COUNTED[number] for number in (5, 7, 8, 12, 16, 25)], lambda case: case == COUNTED[12]
    ),
)
def test_counts_of_several_tasks_are_added(
    spread: World, monkeypatch: pytest.MonkeyPatch, match: str, result: str
) -> None:
    assert scan.scan_plan.__kwdefaults__ is not None
    monkeypatch.setitem(scan.scan_plan.__kwdefaults__, "rows_per_task", 1)

    assert spread.ask(match, result)


@pytest.fixture(scope="module")
def edges(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    graph = og.init(
        root_at(tmp_path_factory.mktemp("edges") / "graph"),
        schema="""
        node Page {}
        edge Links: Page -> Page
        edge Cites: Page -> Page
        edge Quotes: Page -> Page { @unique(src, dst) }
        edge Follows: Page -> Page @card(0..1)
        edge Likes: Page -> Page @card(0..2) { at: I64  @unique(src, at) }
        """,
    )
    pairs = [{"src": "a", "dst": "b"}, {"src": "b", "dst": "a"}]
    graph.write(
        {
            "Page": [{"id": "a"}, {"id": "b"}],
            "Links": [*pairs, {"src": "a", "dst": "a"}],
            "Cites": [*pairs, {"src": "a", "dst": "b"}],
            "Likes": [{"src": "a", "dst": "b", "at": at} for at in (1, 2)],
        }
    )
    return graph.spark(spark), graph.schema.catalog.edges


@pytest.mark.parametrize("driver_rows_max", [0, 100], ids=["tasks", "driver"])
def test_unique_pairs_are_found_out(edges: Any, driver_rows_max: int) -> None:
    graph, types = edges
    pairs = UniquePairs(driver_rows_max=driver_rows_max)

    assert {name: pairs.holds(graph, types[name]) for name in ("Links", "Cites", "Likes")} == {
        "Links": True,
        "Cites": False,
        "Likes": False,
    }


def test_unique_pairs_of_the_schema_need_no_rows(
    edges: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, types = edges
    monkeypatch.setattr(UniquePairs, "_measure", None)

    assert all(UniquePairs().holds(graph, types[name]) for name in ("Quotes", "Follows"))


def test_a_version_is_measured_once_and_a_later_one_again(
    spark: SparkSession, tmp_path: Any
) -> None:
    graph = og.init(root_at(tmp_path / "graph"), schema="node Page {}  edge Links: Page -> Page")
    edge = graph.schema.catalog.edges["Links"]
    link = {"src": "a", "dst": "a"}
    graph.write({"Page": [{"id": "a"}], "Links": [link]})
    before = graph.spark(spark)
    pairs = UniquePairs()

    assert pairs.holds(before, edge)
    graph.write({"Links": [link]})
    assert not pairs.holds(graph.spark(spark), edge)
    assert pairs.holds(before, edge)
    assert len(pairs._by_version) == 2


def test_counted_edges_are_read_once_and_joined_to_nothing(people: World) -> None:
    plan = plan_text(people.frame(people.query("$p: Person $p wrote $n", "$n.id, count(*)")))

    assert plan.count("MapInArrow") == 1
    assert plan.count("Exchange") <= 1
    assert "Join" not in plan


def test_a_repeated_pair_is_made_distinct_only_where_it_counts(people: World) -> None:
    match = "$p: Person $p knows $q $q knows $r"
    assert not UNIQUE_PAIRS.holds(people.graph, people.stored.edges["Knows"])

    counted = plan_text(people.frame(people.query(match, "count(*)")))
    listed = plan_text(people.frame(people.query(match, "$p.id", distinct="distinct")))

    assert counted.count("MapInArrow") == listed.count("MapInArrow") == 2
    assert counted.count("HashAggregate") > listed.count("HashAggregate")


def test_a_count_beyond_64_bits_fails(spark: SparkSession) -> None:
    names = Names()
    frame = spark.range(2).selectExpr("'a' AS node", f"{2**62} AS one", "2 AS two")
    rows = Rows(frame=frame, held={"a": HeldEntity(id_column="node", types=("A",))}, weight="one")

    for too_large in (weigh(rows, "two", names), merge_equal(rows, "a", names, weighed=True)):
        with query_errors(), pytest.raises(QueryFailedError, match="64 bits"), query_errors():
            too_large.frame.collect()
