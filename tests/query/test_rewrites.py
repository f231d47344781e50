"""Each rewrite alone: what it changes, what it leaves, and that plans keep their meaning."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omnigraph_lake.query.expressions import Constant, Expression
from omnigraph_lake.query.plan import Mutation, Plan
from omnigraph_lake.query.plan_text import explain, text_of
from omnigraph_lake.query.planning import (
    ALL_STEPS,
    FALSE,
    NO_STEPS,
    TRUE,
    UNKNOWN,
    Steps,
    fold,
    plan_query,
)
from omnigraph_lake.query.typed import TypedRead
from tests.gate.seeds import examples, run_seed
from tests.query.evaluator import evaluate
from tests.query.people import CATALOG, read, small_graph
from tests.query.random_queries import disagreements, run

pytestmark = pytest.mark.unit


def plan(match: str, steps: Steps, result: str = "$p.id", tail: str = "") -> Plan:
    found = plan_query(read(match, result, tail, "$none: I32?, $x: I32"), CATALOG, steps=steps)
    assert not isinstance(found, Mutation)
    return found


def condition(text: str) -> Expression:
    body = read(f"$p: Person {text}", "$p.id", parameters="$none: I32?, $x: I32").body
    assert isinstance(body, TypedRead)
    return body.block.filters[0]


@pytest.mark.random
def test_random_queries_mean_the_same_with_and_without_each_rewrite() -> None:
    count = examples(50)

    compiled, fruitful, wrong = run(count, run_seed())

    assert wrong == []
    assert compiled > count // 6
    assert fruitful > count // 50


@pytest.mark.parametrize(
    ("match", "result", "tail"),
    [
        ('$q: Person { id: "dan" } $p knows{1,3} $q as $w', "$p.id, nodes($w), edges($w)", ""),
        ('$q: Person { id: "bob" } $p <knows>{1,2} $q as $w', "$p.id, nodes($w), edges($w)", ""),
        ('$p: Person $q: Person { id: "dan" } $p knows{1,3} $q as $w', "nodes($w)", ""),
        ('$c: Company { id: "acme" } $p worksAt $c $p $e: knows $q', "$p.id, $e.id", ""),
        ("$x: Named $x worksAt> $c $c contains $d", "$x, $d.name", ""),
        ("$p: Person optional { $p worksAt $c } not { $c: Company }", "$p.id", ""),
        ("$p: Person optional { $p worksAt $c $c.size > 5 }", "$c, count(*) as n", "order { n }"),
        (
            "$p: Person $p wrote $n",
            "$n.id, $p.id",
            'order { rrf(nearest($n.vector, [3, 4]), bm25($n.title, "tables")), $p.id } limit 3',
        ),
        ("$n: Note", '$n.id, bm25($n.title, "graphs") as s', "order { s desc } limit 1 offset 1"),
        ("$p: Person not { $p knows $q $q.age < $p.age }", "$p.name", "order { $p.age desc }"),
        ("$p: Person", "$p.age, collect($p.id), sum($p.points)", "order { $p.age } offset 1"),
    ],
)
def test_plans_of_special_cases_mean_the_same(match: str, result: str, tail: str) -> None:
    typed = read(match, result, tail, "$none: I32?")

    assert disagreements("", typed, small_graph()) == []
    assert evaluate(typed, CATALOG, small_graph(), {"none": None}).rows


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3 = 7", TRUE),
        ("7 / 2 = 3.5", TRUE),
        ("-7 % 4 = -3", TRUE),
        ("1 = 1.0", TRUE),
        ('"abc" contains "b"', TRUE),
        ('"abc" starts_with "b"', FALSE),
        ("3 in [1, 2]", FALSE),
        ("1 / 0 = 1", UNKNOWN),
        ("1 / 0 is null", TRUE),
        ("$p.name is null", FALSE),
        ("$p.age is null and false", FALSE),
        ("$p.age > 1 or true", TRUE),
        ("not (1 = 1)", FALSE),
        ("$p.name in []", FALSE),
        ("not (1 / 0 = 1)", UNKNOWN),
    ],
)
def test_a_condition_known_beforehand_is_folded(text: str, expected: Constant) -> None:
    assert fold(condition(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$p.age > 1 + 1", "$p.age > 2"),
        ("$p.age in []", "$p.age in []"),
        ("not not ($p.age > 1)", "$p.age > 1"),
        ("not ($p.age is null)", "$p.age is not null"),
        ("true and $p.age > 1 and $p.age > 1", "$p.age > 1"),
        ("$p.age > 1 and ($p.age < 9 and $p.age != 5)", None),
        ("9223372036854775807 + 1 > 0", "(9223372036854775807 + 1) > 0"),
        ("$x = 1", "$x = 1"),
    ],
)
def test_what_a_row_or_a_run_decides_is_left(text: str, expected: str | None) -> None:
    folded = text_of(fold(condition(text)))

    assert folded == (expected or "($p.age > 1) and ($p.age < 9) and ($p.age != 5)")


@pytest.mark.parametrize(
    ("match", "line"),
    [
        ("$p: Person $p.age > 1", "  scan $p: Person where $p.age > 1"),
        (
            "$p: Person $p knows $q $q.age > 1",
            "  expand $p -[Knows]-> $q: Person where $q.age > 1",
        ),
        (
            "$p: Person $p $e: knows $q $e.weight > 1",
            "  expand $p -[$e: Knows]-> $q: Person where edge $e.weight > 1",
        ),
        (
            "$p: Person optional { $p worksAt $c } $c.size > 1",
            "  filter $c.size > 1",
        ),
        (
            "$p: Person $p knows $q $p.age > $q.age",
            "  filter $p.age > $q.age",
        ),
        (
            "$p: Person $p knows{1,2} $q as $w length($w) = 2",
            "  filter length($w) = 2",
        ),
    ],
)
def test_a_filter_moves_to_what_brings_its_variable(match: str, line: str) -> None:
    pushed = explain(plan(match, replace(NO_STEPS, pushing=True)))
    unpushed = explain(plan(match, NO_STEPS))

    assert any(each.startswith(line) for each in pushed.splitlines())
    assert "\n  filter" in unpushed


def test_a_filter_is_below_the_ranking() -> None:
    found = explain(
        plan(
            "$n: Note $n.title = $n.body",
            ALL_STEPS,
            "$n.id",
            "order { nearest($n.vector, [1, 2]) } limit 3",
        )
    ).splitlines()

    assert [line.split()[0] for line in found] == ["limit", "project", "order", "rank", "scan"]


@pytest.mark.parametrize(
    ("match", "start"),
    [
        ('$a: Person $a knows $p $p.email = "x"', "$p"),
        ('$p: Person { name: "x" } $p worksAt $c $c.city = "x"', "$c"),
        ('$a: Person $a knows $p $p.id = "x"', "$p"),
        ('$a: Person $a knows $p $p.name = "x"', "$p"),
        ("$a: Person $a knows $p $p.age > 1", "$p"),
        ("$a: Person $a knows $p", "$a"),
        ("$s: Seat { row: 1 } $p: Person", "$s"),
    ],
)
def test_a_pattern_starts_where_the_fewest_rows_are(match: str, start: str) -> None:
    found = explain(plan(match, ALL_STEPS))
    declared = explain(plan(match, replace(ALL_STEPS, selective_start=False)))

    assert f"scan {start}:" in found
    assert "scan $a:" in declared or "scan $p:" in declared


def test_a_part_of_a_key_is_less_than_a_key() -> None:
    whole = plan("$s: Seat { row: 1, place: 2 } $p: Person", ALL_STEPS)
    assert "scan $s: Seat where ($s.row = 1) and ($s.place = 2)" in explain(whole)


def test_bindings_of_one_variable_become_one() -> None:
    match = "$p: Person { age: 1 } $p: Person { age: 1 } $p.age > 0 $p.age > 0"

    merged = explain(plan(match, replace(ALL_STEPS, merging=True)))
    apart = explain(plan(match, replace(ALL_STEPS, merging=False)))

    assert merged.count("$p.age = 1") == 1
    assert apart.count("$p.age = 1") == 2


@pytest.mark.parametrize(
    ("result", "columns"),
    [
        ("$p.id", ""),
        ("$p.name, $q.age", "read name"),
        ("$p", "read all"),
        ("count(*)", ""),
        ("max($p.age) as m", "read age"),
    ],
)
def test_only_properties_that_are_read_are_asked_for(result: str, columns: str) -> None:
    found = explain(plan("$p: Person $p knows $q", ALL_STEPS, result)).splitlines()

    assert found[-1].strip() == f"scan $p: Person {columns}".strip()


def test_what_a_block_reads_of_the_rows_around_it_is_asked_for() -> None:
    found = explain(plan("$p: Person not { $p knows $q $q.age > $p.age }", ALL_STEPS))

    assert "scan $p: Person read age" in found


def test_two_blocks_with_one_name_keep_their_own_properties() -> None:
    match = "$p: Person not { $p knows $b $b.age > $p.age } not { $p worksAt $b $b.city = $p.name }"
    found = explain(plan(match, replace(ALL_STEPS, pushing=False)))

    assert "$b: Person read age" in found
    assert "$b: Company read city" in found


@pytest.mark.parametrize(
    "match",
    [
        "$p: Person 1 = 2",
        "$p: Person $p.age = 1 $p.age = 2",
        "$p: Person $p worksAt{2,3} $c",
        "$p: Person $l: Lonely",
        '$p: Person type($p) = "A" type($p) = "B"',
        "$p: Person $p knows $q 1 / 0 = 1",
    ],
)
def test_a_pattern_that_cannot_match_is_empty(match: str) -> None:
    assert explain(plan(match, ALL_STEPS)) == "project p.id = $p.id\n  empty\n"


@pytest.mark.parametrize(
    ("match", "result"),
    [
        ("$p: Person optional { $p worksAt{2,3} $c }", "$p.id"),
        ("$p: Person not { $p.age = 1 and $p.age = 2 }", "$p.id"),
        ("$p: Person 1 = 2", "count(*)"),
        ("$p: Person $p.age = 1 or $p.age = 2", "$p.id"),
    ],
)
def test_a_result_that_can_have_rows_is_not_empty(match: str, result: str) -> None:
    found = explain(plan(match, ALL_STEPS, result))

    assert not found.endswith("\n  empty\n") or "aggregate" in found
