"""Patterns on Spark: every step of a plan gives the rows that the definition gives."""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from omnigraph_lake.engine.spark import patterns
from omnigraph_lake.errors import QueryBudgetError
from omnigraph_lake.query.planning import ALL_STEPS, NO_STEPS
from tests.gate.selection import for_gate
from tests.query.people import edge, person, small_graph
from tests.spark.query_answers import World, world

pytestmark = pytest.mark.spark

PEOPLE = "$p: Person"
THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"
PATTERNS = [
    ('$p: Person { tags: "y" }', "$p.id"),
    ("$p: Person $c: Company", "$p.id, $c.id"),
    ('$p: Person { age: 20 } $p: Person { status: "away" }', "$p.id"),
    ("$x: Named", "$x.name, type($x), $x.id"),
    ('$x: Named type($x) = "Company"', "$x.id"),
    ("$x: Lonely", "$x.id"),
    ("$p: Person $c: Company $p worksAt $c", "$p.id, $c.name"),
    ("$c: Company $c worksAt $p", "$c.id, $p.email"),
    ("$p: Person $p knows $q", "$p.id, $q.age"),
    ("$p: Person $p $e: knows $q $e.weight > 1", "$e.src, $e.dst, $e.weight, $e.id"),
    ("$p: Person $p <knows> $q", "$p.id, $q.id"),
    ("$p: Person $p $e: <knows> $q", "$p.id, $e.id, $e.src, $e.dst, $q.id"),
    ("$p: Person $q: Person $p knows $q $q knows $p", "$p.id, $q.id"),
    ("$p: Person $q: Person $p $e: <knows> $q", "$p.id, $e.id"),
    ("$p: Person $p knows $p", "$p.id"),
    ("$p: Person $p knows $q $q knows $p", "$p.id, $q.id"),
    ("$x: Named $x worksAt> $c $c contains $d", "$x, $d.name"),
    ("$x: Named $y: Named $x.id = $y.id type($x) != type($y)", "type($x), type($y), $x.id"),
    ("$x: Named $y: Named $x worksAt> $y", "$x.id, $y.id"),
    ("$p: Person $p knows $_ $p wrote $_", "$p.id"),
    ("$p: Person $p worksAt{1,5} $c", "$p.id, $c.id"),
    ("$p: Person $p worksAt{1,5} $c as $w", "$p.id, nodes($w), edges($w), length($w)"),
    ("$p: Person $p worksAt{2,5} $c", "$p.id"),
    ("$p: Person $p knows $q $p.age > $q.age", "$p.id, $q.id"),
]
HOPS = [
    ("$p: Person $p knows{1,2} $q", "$p.id, $q.id"),
    ("$p: Person $p knows{2,2} $q", "$p.id, $q.id"),
    ("$p: Person $p knows{2,9} $q $q.age > 0", "$p.id, $q.id"),
    ("$p: Person $p <knows>{1,3} $q as $w", "$p.id, $q.id, length($w), nodes($w), edges($w)"),
    ("$p: Person $p knows{1,5} $q as $w", "$p.id, length($w), nodes($w), edges($w)"),
    ('$q: Person { id: "dan" } $p knows{1,3} $q as $w', "$p.id, nodes($w), edges($w)"),
    ("$p: Person $q: Person $p knows{1,2} $q as $w $p.id = $q.id", "$p.id, nodes($w)"),
    ("$p: Person $q: Person $p knows{2,3} $q", "$p.id, $q.id"),
    ("$p: Person $p knows{1,2} $q $q knows{1,2} $r", "$p.id, $q.id, $r.id"),
    ('$a: Company { id: "acme" } $a contains{1,2} $b', "$b.id"),
    ("$p: Person $p <knows>{0,} $q as $w", "$p.id, $q.id, length($w), nodes($w), edges($w)"),
    ("$p: Person $p knows{1,} $q", "$p.id, $q.id"),
    ("$p: Person $p knows{2,} $q as $w", "$p.id, nodes($w), edges($w)"),
    ("$p: Person $p knows{0,1} $q", "$p.id, $q.id"),
    ("$p: Person $p worksAt{1,} $c", "$p.id, $c.id"),
    (
        "$p: Person $p <knows>{1,} $q as $w by weight",
        "$p.id, $q.id, weight($w), length($w), nodes($w), edges($w)",
    ),
    ('$q: Person { id: "cat" } $p knows{0,} $q as $w by weight', "$p.id, weight($w), nodes($w)"),
    ("$p: Person $p knows{1,} $q as $w by weight", "$p.id, $q.id"),
    ("$p: Person optional { $p <knows>{1,} $q as $w by weight }", "$p.id, weight($w)"),
]
SEVERAL = [
    ("$p: Person $p knows|worksAt $x", "$p.id, $x.id, type($x), $x.name"),
    ("$p: Person $p $e: knows|worksAt $x", "$p.id, $e, $x.id, type($e)"),
    ("$p: Person $p knows|worksAt $x", "count(*)"),
    ("$p: Person $x: Named $p <knows|worksAt> $x as $w", "$p.id, $x, edges($w), edge_types($w)"),
    ("$c: Company $c <_>{1,2} $x as $w", "$c.id, $x.id, nodes($w), types($w), edge_types($w)"),
    ("$n: Note $x _{1,3} $n as $w", "$x.id, type($x), $n.id, nodes($w), edges($w), length($w)"),
    ("$p: Person $p <_>{2,4} $x", "$p.id, type($x), count(distinct $x.id)"),
    ("$x: _ $y: Person|Company $x <_> $y", "type($x), $x.id, type($y), $y.name"),
    ("$x: _ $x <_> $y", "$x.id, count(*)"),
    ("$x: _ optional { $x knows|contains{1,2} $y as $w }", "$x, $y, types($w)"),
    ("$p: Person not { $p worksAt|wrote $_ }", "$p.id"),
]
BLOCKS = [
    ("$p: Person not { $p knows $q }", "$p.id"),
    ("$p: Person not { $p knows $q $q.age < $p.age }", "$p.id"),
    ("$p: Person not { $p knows $q not { $q worksAt $c } }", "$p.id"),
    ("$p: Person $p knows $q not { $q knows $p }", "$p.id, $q.id"),
    ("$p: Person not { $c: Company $c.id = $p.id }", "$p.id"),
    ("$p: Person optional { $p worksAt $c }", "$p.id, $c.name, $c"),
    ('$p: Person optional { $p worksAt $c } $c.name = "Acme"', "$p.id, $c.id"),
    ('$p: Person optional { $p worksAt $c $c.name = "Acme" }', "$p.id, $c.id"),
    ("$p: Person optional { $p worksAt $c } optional { $c contains $d }", "$p.id, $d.id"),
    ("$p: Person optional { $p worksAt $c } optional { $p knows $q }", "$p.id, $c.id, $q.id"),
    ("$p: Person optional { $p worksAt $c } not { $c: Company }", "$p.id"),
    ("$p: Person optional { $p worksAt $c } $c is null", "$p.id"),
    ("$p: Person optional { $p knows $q optional { $q worksAt $c } }", "$p.id, $q.id, $c.id"),
    ("$p: Person optional { $p worksAt{2,3} $c }", "$p.id, $c.name, $c"),
    ("$p: Person optional { $p worksAt{2,3} $c } optional { $c contains $d }", "$p.id, $d"),
    ("$p: Person optional { $p knows{1,2} $q as $w }", "$p.id, $q.id, nodes($w)"),
    ("$p: Person $p $e: knows $q not { $p $f: knows $q $f.weight > $e.weight }", "$e.id"),
    ("$p: Person $p knows $q optional { $p worksAt $c }", "$p.id, $c.id, $q.id"),
    ("$x: Named optional { $x worksAt> $c }", "$x.id, type($x), $c.id"),
    ("$p: Person exists { $p knows $q $q.age < $p.age }", "$p.id"),
    (
        "$p: Person optional { $p worksAt $c } "
        "exists { $c contains $d } or count { $p knows $q } > 1",
        "$p.id, count { $p $e: knows $q not exists { $q worksAt $d } } as n, "
        "exists { $c contains $d }",
    ),
    ("$p: Person", "exists { $p worksAt $c } as e, sum(count { $p <knows>{1,2} $q }) as n"),
    ("$p: Person exists { $p worksAt{2,3} $c } or count { $p worksAt{2,3} $c } = 0", "$p.id"),
    ("$p: Person not exists { $p knows $q } exists { $p worksAt $c }", "$p.id"),
]
IN_GATE = {
    *(PATTERNS[number] for number in (2, 6, 21)),
    *(HOPS[number] for number in (2, 3, 5, 10, 15, 16, 17)),
    *(SEVERAL[number] for number in (1, 3, 4)),
    *(BLOCKS[number] for number in (3, 4, 9, 10, 14, 15, 16, 18, 20, 21, 22)),
}
"""With the gate's cases of the other tables, these reach all that the tables reach."""


@pytest.fixture(scope="module")
def people(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    return world(spark, tmp_path_factory.mktemp("people"), small_graph())


@pytest.fixture
def merging(spark: SparkSession) -> Iterator[None]:
    """Every join is done as if its tables were large."""
    before = spark.conf.get(THRESHOLD)
    spark.conf.set(THRESHOLD, "-1")
    yield
    spark.conf.set(THRESHOLD, str(before))


@pytest.mark.parametrize(
    ("match", "result"), for_gate([*PATTERNS, *HOPS, *SEVERAL, *BLOCKS], IN_GATE.__contains__)
)
def test_a_pattern_gives_the_rows_that_it_means(people: World, match: str, result: str) -> None:
    people.ask(match, result)


@pytest.mark.usefixtures("merging")
@pytest.mark.parametrize(
    ("match", "result"),
    for_gate(
        [PATTERNS[1], PATTERNS[11], PATTERNS[12], HOPS[3], BLOCKS[9]],
        lambda case: case == PATTERNS[12],
    ),
)
def test_large_tables_are_joined_to_the_same_rows(people: World, match: str, result: str) -> None:
    assert people.ask(match, result)


@pytest.mark.parametrize(
    ("match", "result"),
    for_gate([PATTERNS[16], HOPS[5], BLOCKS[2], BLOCKS[14]], lambda case: case == BLOCKS[14]),
)
def test_a_plan_that_was_not_rewritten_means_the_same(
    people: World, match: str, result: str
) -> None:
    typed = people.query(match, result)

    people.same(typed, steps=NO_STEPS)
    people.same(typed, steps=replace(ALL_STEPS, pruning=False))


@pytest.mark.nightly(
    "many rounds of jobs; the gate has a search of nine levels that ends after fewer"
)
def test_a_long_search_ends_where_nothing_new_is_found(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"p{number}" for number in range(9)]
    chain = [
        edge("Knows", f"k{number}", one, other)
        for number, (one, other) in enumerate(itertools.pairwise(names))
    ]
    rows: dict[str, dict[str, list[dict[str, Any]]]] = {
        "nodes": {"Person": [person(name, name) for name in names]},
        "edges": {"Knows": chain},
    }
    there = world(spark, tmp_path_factory.mktemp("chain"), rows)

    found = there.ask('$p: Person { id: "p0" } $p knows{4,1000} $q as $w', "$q.id, length($w)")

    assert sorted(found) == [(f"p{number}", number) for number in range(4, 9)]

    endless = there.ask('$p: Person { id: "p0" } $p knows{4,} $q as $w', "$q.id, length($w)")
    assert sorted(endless) == sorted(found)
    monkeypatch.setattr(patterns, "LEVELS_MOST", 7)
    with pytest.raises(QueryBudgetError, match="still found new nodes after 7 rounds"):
        there.ask('$p: Person { id: "p0" } $p knows{4,} $q as $w', "$q.id, length($w)")


@pytest.mark.nightly("four joins more; the gate has an optional block after another")
def test_many_blocks_can_follow_each_other(people: World) -> None:
    chained = " ".join(f"optional {{ $c{number} contains $c{number + 1} }}" for number in range(4))

    people.ask(f"$c0: Company {chained}", "$c0.id, $c4.id")


def test_many_blocks_are_not_repeated_inside_of_each_other(people: World) -> None:
    apart = " ".join(f"optional {{ $c0 worksAt $p{number} }}" for number in range(6))

    plan = people.frame(people.query(f"$c0: Company {apart}", "$c0.id, $p5.id"))

    assert plan_text(plan).count("MapInArrow") < 20


def plan_text(frame: Any) -> str:
    """What Spark would do."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        frame.explain()
    return shown.getvalue()


def test_spark_chooses_how_tables_are_joined(people: World, spark: SparkSession) -> None:
    typed = people.query("$p: Person $p knows $q $c: Company not { $q worksAt $c }", "$q.name")
    small = plan_text(people.frame(typed))
    before = spark.conf.get(THRESHOLD)
    spark.conf.set(THRESHOLD, "10b")  # less than the tables have by their rows
    large = plan_text(people.frame(typed))
    spark.conf.set(THRESHOLD, str(before))

    assert "BroadcastHashJoin" in small
    assert "SortMergeJoin" in large
    assert "Broadcast" not in large


def test_only_what_is_needed_is_read_and_filtered_where_it_is_read(
    people: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, Any]] = []
    table = type(people.graph).stored_table

    def noted(self: Any, name: str, **arguments: Any) -> Any:
        asked.append((tuple(arguments["columns"]), arguments["where"]))
        return table(self, name, **arguments)

    monkeypatch.setattr(type(people.graph), "stored_table", noted)
    typed = people.query(
        '$p: Person { email: "it\'s" } $p.age >= 3 and $p.height > 1.5 and $p.status in ["away"]',
        "$p.name",
    )

    people.frame(typed)

    assert asked == [
        (
            ("id", "email", "age", "height", "status", "name"),
            "(`email` = 'it''s' AND `age` >= 3 AND `status` IN ('away'))",
        )
    ]
