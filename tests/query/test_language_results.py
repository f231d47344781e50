"""Results and rankings as they are executed: every rule with rows written by hand."""

from __future__ import annotations

import datetime as dt
import math
from pathlib import Path
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import InvalidInputError, QueryFailedError
from omnigraph_lake.graph import Graph
from tests.query.answers import contained
from tests.query.people_on_disk import people_on_disk, ran, rows
from tests.stores import root_at

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return people_on_disk(tmp_path_factory.mktemp("people"))


# Results


@pytest.mark.parametrize(
    ("result", "tail", "expected"),
    [
        (
            "$p.age, count(*) as n, collect($p.id)",
            "order { n desc }",
            [(20, 2, ("bob", "dan")), (None, 1, ("cat",)), (-5, 1, ("eve",)), (30, 1, ("ann",))],
        ),
        (
            "count(*), count($p.age), sum($p.age), avg($p.age), min($p.age), max($p.name)",
            "",
            [(5, 4, 65, 16.25, -5, "Eve_100%")],
        ),
        ("sum($p.points), count(distinct $p.age)", "", [(2**63 + 1, 3)]),
        (
            "collect(distinct $p.age), collect($p.born)",
            "",
            [((-5, 20, 30), (dt.date(2000, 1, 2),))],
        ),
        ("min($p.admin), max($p.admin), min($p.status)", "", [(False, True, "active")]),
        ("$p.id", "order { $p.age }", ["cat", "eve", "bob", "dan", "ann"]),
        ("$p.id", "order { $p.age desc }", ["ann", "bob", "dan", "eve", "cat"]),
        ("$p.id", "order { -$p.age, $p.name }", ["cat", "ann", "bob", "dan", "eve"]),
        ("$p.id", "order { $p.id } limit 2 offset 1", ["bob", "cat"]),
        ("$p.id", "order { $p.id } offset 4", ["eve"]),
        ("$p.id", "limit 0", []),
        ("$p.status, count(*)", "order { count(*) desc } limit 1", [("active", 3)]),
    ],
)
def test_results_are_grouped_ordered_and_cut(
    people: Graph, result: str, tail: str, expected: list[Any]
) -> None:
    assert rows(people, "$p: Person", result, tail) == expected


@pytest.mark.parametrize(
    ("result", "tail", "expected"),
    [
        ("$p.age, count(*) as n", "having n > 1", [(20, 2)]),
        ("$p.age, count(*) as n", "having not (n > 1) order { n }", [(None, 1), (-5, 1), (30, 1)]),
        ("$p.age, count(*) as n", "having $p.age > 0 and count(*) = 1", [(30, 1)]),
        ("$p.age, count(*) as n", "having $p.age is null", [(None, 1)]),
        ("$p.age as years, count(*)", "having years != 20 order { years }", [(-5, 1), (30, 1)]),
        ("$p.age, collect($p.id) as ids", 'having "dan" in ids', [(20, ("bob", "dan"))]),
        ("count(*) as n", "having n > 9", []),
        ("count(*) as n", "having n = 5", [5]),
        ("$p.admin, max($p.age) as m", "having m > $least order { m } limit $n", [(True, 30)]),
    ],
)
def test_groups_stay_of_which_having_is_true(
    people: Graph, result: str, tail: str, expected: list[Any]
) -> None:
    given: dict[str, Any] = {"parameters": "$least: I32, $n: I32", "least": 20, "n": 1}
    given = given if "$least" in tail else {}

    assert rows(people, "$p: Person", result, tail, **given) == expected


@pytest.mark.parametrize(
    ("result", "tail", "expected"),
    [
        ("sum($p.age) / count(*), round(avg($p.age), 1)", "", [(13.0, 16.3)]),
        (
            "$p.age, count(*) * 10 + $p.age as n",
            "order { n desc }",
            [(20, 40), (30, 40), (-5, 5), (None, None)],
        ),
        (
            '$p.admin, if(count(*) > 2, "many", "few") as how, max($p.age)',
            "order { how }",
            [(False, "few", None), (True, "few", 30), (None, "many", 20)],
        ),
        (
            "concat($p.status, cast(count(*) as String)) as s, $p.status",
            'having s = "left1"',
            [("left1", "left")],
        ),
        ("$p.age, -count(*) as n", "having n = -2", [(20, -2)]),
        ("$p.age, -count(*), count(*)", "having -count(*) < -1 and count(*) > 1", [(20, -2, 2)]),
        ("length($p.id) as l, count(*) + 1", "having length($p.id) = 3", [(3, 6)]),
        ("type($p) as kind, 2 * count(*)", 'having type($p) = "Company"', []),
        (
            "$p.status, sum($p.age) - 1 as s",
            "order { sum($p.age) - 1 desc } limit 1",
            [("active", 49)],
        ),
    ],
)
def test_columns_of_groups_are_computed_from_aggregates_and_keys(
    people: Graph, result: str, tail: str, expected: list[Any]
) -> None:
    assert rows(people, "$p: Person", result, tail) == expected


def test_what_is_computed_of_no_rows_is_one_group(people: Graph) -> None:
    nothing = "$p: Person $p.age > 99"

    assert rows(people, nothing, "count(*) + 1, sum($p.age) * 2") == [(1, None)]
    assert rows(people, nothing, "coalesce(sum($p.age), 0) as s", "having s > 0") == []
    assert rows(people, nothing, "$p.age, count(*) + 1") == []


def test_having_decides_about_the_only_group_of_no_rows(people: Graph) -> None:
    nothing = "$p: Person $p.age > 99"

    assert rows(people, nothing, "count(*) as n, max($p.age) as m", "having n = 0") == [(0, None)]
    assert rows(people, nothing, "count(*) as n, max($p.age) as m", "having m > 0") == []
    assert rows(people, nothing, "$p.age, count(*) as n", "having n = 0") == []


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("stddev($p.age)", [14.93039405]),
        ("stddev($p.age * 0 + 1)", [0.0]),
        ("percentile($p.age, 0), percentile($p.age, 1)", [(-5.0, 30.0)]),
        ("percentile($p.age, 0.5), percentile($p.age, 0.9)", [(20.0, 27.0)]),
        ("first($p.id by $p.age), last($p.id by $p.age)", [("eve", "ann")]),
        ("first($p.id by 1), last($p.id by 1)", [("ann", "eve")]),
        ("first($p.age by $p.id), last($p.age by $p.name)", [(30, -5)]),
        ("first($p.born by $p.id)", [dt.date(2000, 1, 2)]),
        ("first($p.id by $p.born), last($p.id by $p.status)", [("bob", "eve")]),
    ],
)
def test_aggregates_of_numbers_and_of_an_order(
    people: Graph, result: str, expected: list[Any]
) -> None:
    found = rows(people, "$p: Person", result)

    assert contained(found, expected), found


def test_the_fraction_of_a_percentile_can_be_a_parameter_from_0_to_1(people: Graph) -> None:
    text = "match { $p: Person } return { percentile($p.age, $q) as value }"

    assert [people.query(text, q=each).scalar() for each in (0, 0.5, 1)] == [-5.0, 20.0, 30.0]
    for wrong in (-0.1, 2):
        with pytest.raises(InvalidInputError, match=r"parameter \$q .*, expected 0 to 1"):
            people.query(text, q=wrong)


def test_aggregates_of_one_value_and_of_none(people: Graph) -> None:
    result = "stddev($p.age), percentile($p.age, 0.5), first($p.id by $p.age), last($p.id by 1)"

    assert rows(people, "$p: Person { age: 30 }", result) == [(None, 30.0, "ann", "ann")]
    assert rows(people, "$p: Person $p.age > 99", result) == [(None, None, None, None)]


def test_ties_of_first_and_last_are_broken_by_the_ids_of_all_variables(people: Graph) -> None:
    pair = "$z: Person { age: 20 } $a: Person { age: 20 }"

    assert rows(people, pair, "first($z.id by $a.age), last($z.id by $z.age)") == [("bob", "dan")]
    assert rows(people, pair, "$z.id, first($a.id by 1)") == [("bob", "bob"), ("dan", "bob")]


def test_what_is_cut_off_whole_is_not_computed(people: Graph) -> None:
    too_large = "sum($p.age * 4611686018427387904)"

    with pytest.raises(QueryFailedError, match="64 bits"):
        rows(people, "$p: Person", too_large)
    assert rows(people, "$p: Person", too_large, "limit 0") == []


def test_without_rows_there_is_one_group_if_there_are_no_keys(people: Graph) -> None:
    alone = rows(
        people, "$p: Person $p.age > 99", "count(*), sum($p.age), avg($p.age), collect($p.id)"
    )

    assert alone == [(0, None, None, ())]
    assert rows(people, "$p: Person $p.age > 99", "$p.age, count(*)") == []


def test_ties_are_broken_by_the_ids_of_all_variables_by_name(people: Graph) -> None:
    pair = "$z: Person { age: 20 } $a: Person { age: 20 }"

    found = rows(people, pair, "$z.id, $a.id", "order { $z.age }")

    assert found == [("bob", "bob"), ("dan", "bob"), ("bob", "dan"), ("dan", "dan")]


def test_distinct_rows_come_once_and_nodes_are_told_apart_by_type_and_id(people: Graph) -> None:
    ages = (
        "query q() { match { $p: Person $p knows $q }"
        " return distinct { $q.age as age } order { age } }"
    )
    same = 'query q() { match { $x: Named $y: Named $x.id = "ann" } return distinct { $x } }'

    assert ran(people, ages, {}, ordered=True) == [None, 20, 30]
    found = ran(people, same, {}, ordered=False)
    assert sorted(each["type"] for each in found) == ["Company", "Person"]


def test_whole_entities_are_structs_without_blobs(people: Graph) -> None:
    (node,) = rows(people, '$c: Company { id: "acme" }', "$c")
    (edge,) = rows(people, '$p: Person $p $e: knows $q $e.id = "k3"', "$e")
    (named, _) = rows(people, '$x: Named $x.id = "ann"', "$x")
    (person,) = rows(people, '$p: Person { id: "bob" }', "$p")

    properties = {"code": "acme", "city": "Oslo", "size": 10, "name": "Acme"}
    assert node == {"id": "acme", "type": "Company", "properties": properties}
    assert (edge["src"], edge["dst"], edge["type"]) == ("bob", "cat", "Knows")
    assert edge["properties"] == {"since": None, "weight": 2, "comment": None}
    assert named["properties"] == {"name": "Ann"}
    assert "photo" not in person["properties"]


def test_a_column_is_named_by_its_alias_or_by_its_text(people: Graph) -> None:
    text = (
        "query q() { match { $p: Person }"
        " return { $p.age, $p.age + 1, count(*), sum($p.age) as s } }"
    )

    assert people.query(text).columns == ("p.age", "p.age + 1", "count(*)", "s")


def test_now_is_one_instant_in_a_whole_run(people: Graph) -> None:
    before = dt.datetime.now(dt.UTC)

    found = rows(people, "$p: Person now() = now()", "now()")

    assert len(found) == 5
    assert len(set(found)) == 1
    assert before <= found[0] <= dt.datetime.now(dt.UTC)


# Rankings


def test_rankings_put_the_best_first_and_leave_out_what_has_no_rank(people: Graph) -> None:
    near = rows(
        people, "$n: Note", "$n.id, nearest($n.vector, [0, 0]) as far", "order { far } limit 9"
    )
    words = rows(people, "$n: Note", '$n.id, bm25($n.title, "graphs") as s', "order { s desc }")

    assert near == [("n1", 0.0), ("n3", 1.0), ("n2", 5.0)]
    assert [each[0] for each in words] == ["n2", "n1"]
    rarity = math.log(1 + (4 - 2 + 0.5) / (2 + 0.5))
    assert words[0][1] == pytest.approx(rarity * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 3 / 2.25)))
    assert words[1][1] == pytest.approx(rarity * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 3 / 2.25)))


def test_conditions_count_before_the_ranking_and_later_keys_break_ties(people: Graph) -> None:
    first = rows(
        people, '$n: Note $n.id != "n1"', "$n.id", "order { nearest($n.vector, [0, 0]) } limit 1"
    )
    tied = rows(
        people,
        "$p: Person $p wrote $n",
        "$n.id, $p.id",
        "order { nearest($n.vector, [3, 4]), $p.id desc } limit 3",
    )

    assert first == ["n3"]
    assert tied == [("n2", "bob"), ("n2", "ann"), ("n3", "cat")]


def test_a_fusion_ranks_entities_by_both_arms(people: Graph) -> None:
    alone = rows(
        people,
        "$n: Note",
        '$n.id, rrf(nearest($n.vector, [3, 4]), bm25($n.title, "trees"), 1) as s',
        "order { s } limit 10",
    )
    fanned = rows(
        people,
        "$p: Person $p wrote $n",
        "$n.id, $p.id",
        'order { rrf(nearest($n.vector, [3, 4]), bm25($n.title, "tables")) } limit 3',
    )

    assert [each[0] for each in alone] == ["n3", "n2", "n1"]
    assert [each[1] for each in alone] == pytest.approx([1 / 3 + 1 / 2, 0.5, 0.25])
    assert fanned == [("n2", "ann"), ("n2", "bob"), ("n1", "ann")]


def test_the_vector_arm_of_a_fusion_ranks_ten_times_what_is_asked_for(tmp_path: Path) -> None:
    graph = og.init(
        root_at(tmp_path / "graph"),
        schema="node Note { title: String  at: Vector(1) @index(metric=l2) }",
    )
    notes = [
        {"id": f"n{at:03d}", "title": "far" if at >= 100 else "near", "at": [float(at)]}
        for at in range(120)
    ]
    graph.write({"Note": notes})
    ranking = 'rrf(nearest($n.at, [0]), bm25($n.title, "far"), 1)'

    shallow = rows(graph, "$n: Note", f"$n.id, {ranking} as s", "order { s } limit 10")
    deep = rows(graph, "$n: Note", f"$n.id, {ranking} as s", "order { s } limit 11")

    assert dict(shallow)["n100"] == pytest.approx(1 / 2)
    assert dict(deep)["n100"] == pytest.approx(1 / 2 + 1 / 102)


@pytest.mark.parametrize("state", ["written", "optimized"])
def test_texts_are_searched_behind_traversals_and_on_edges(people: Graph, state: str) -> None:
    graph = people
    if state == "optimized":
        graph = people.branches.create("indexed")
        graph.maintenance.optimize()

    reached = rows(graph, '$p: Person $p wrote $n search($n.title, "trees")', "$p.id")
    absent = rows(graph, '$p: Person not { $p wrote $n search($n.title, "graphs") }', "$p.id")
    edges = rows(graph, '$p: Person $p $e: knows $q search($e.comment, "graphs")', "$e.id")

    assert reached == ["cat"]
    assert absent == ["cat", "dan", "eve"]
    assert edges == ["k2"]
