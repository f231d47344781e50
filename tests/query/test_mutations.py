"""The effects of statements, alone and one after another."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tests.query.expression_values import EvaluationError
from tests.query.people import change, small_graph

pytestmark = pytest.mark.unit


def by_id(rows: Any) -> dict[str, Any]:
    return {row["id"]: row for row in rows}


NEW = '{ email: "new", name: "New", status: "active" }'


def test_insert_adds_one_entity_with_nulls_for_what_is_not_given() -> None:
    outcome = change(f"insert Person {NEW}")

    assert (outcome.nodes, outcome.edges) == (1, 0)
    assert by_id(outcome.graph["nodes"]["Person"])["new"]["age"] is None


def test_insert_of_an_existing_key_is_a_conflict() -> None:
    with pytest.raises(EvaluationError):
        change('insert Person { email: "ann", name: "Other", status: "away" }')


def test_replace_sets_the_whole_entity_or_creates_it() -> None:
    outcome = change('replace Person { email: "ann", name: "Other", status: "away" }')

    ann = by_id(outcome.graph["nodes"]["Person"])["ann"]
    assert (ann["name"], ann["age"], ann["tags"]) == ("Other", None, None)
    assert len(outcome.graph["nodes"]["Person"]) == 5
    assert len(change(f"replace Person {NEW}").graph["nodes"]["Person"]) == 6


def test_upsert_keeps_what_it_does_not_assign_or_creates_it() -> None:
    outcome = change('upsert Person { email: "ann", status: "away" }')

    ann = by_id(outcome.graph["nodes"]["Person"])["ann"]
    assert (ann["name"], ann["status"]) == ("Ann", "away")
    assert len(change(f"upsert Person {NEW}").graph["nodes"]["Person"]) == 6


def test_a_node_without_a_key_gets_a_new_id_or_the_given_one() -> None:
    outcome = change('insert Note { title: "a" } insert Note { id: "mine", title: "b" }')

    assert {"mine", "new-1"} <= set(by_id(outcome.graph["nodes"]["Note"]))


def test_an_edge_joins_ids() -> None:
    outcome = change('insert Knows { from: "eve", to: "ann", weight: 3 }')

    added = outcome.graph["edges"]["Knows"][-1]
    assert (added["src"], added["dst"], added["weight"]) == ("eve", "ann", 3)
    assert (outcome.nodes, outcome.edges) == (0, 1)


def test_update_sets_every_match_from_its_own_old_row() -> None:
    outcome = change("update Person set { age: age + 1, points: null } where age < 30")

    people = by_id(outcome.graph["nodes"]["Person"])
    assert [people[each]["age"] for each in ("ann", "bob", "cat", "dan", "eve")] == [
        30,
        21,
        None,
        21,
        -4,
    ]
    assert people["eve"]["points"] is None
    assert outcome.nodes == 3


def test_assignments_of_one_update_all_read_the_old_row() -> None:
    outcome = change("update Knows set { weight: 9, comment: comment } where weight = 5")

    assert by_id(outcome.graph["edges"]["Knows"])["k2"]["weight"] == 9


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ('from = "ann" and to = "bob"', ["k1", "k2"]),
        ('from = "ann" or to = "ann"', ["k1", "k2", "k5", "k7"]),
        ("weight is null", ["k4", "k6", "k7"]),
        ("not (weight > 1)", ["k1"]),
        ("weight in [5, 7]", ["k2", "k5"]),
        ('id = "k3"', ["k3"]),
        ('search(comment, "old")', ["k2"]),
        ("true", ["k1", "k2", "k3", "k4", "k5", "k6", "k7"]),
    ],
)
def test_delete_takes_any_condition_over_own_properties(
    condition: str, expected: list[str]
) -> None:
    outcome = change(f"delete Knows where {condition}")

    before, after = by_id(small_graph()["edges"]["Knows"]), by_id(outcome.graph["edges"]["Knows"])
    assert sorted(before.keys() - after.keys()) == expected
    assert outcome.edges == len(expected)


def test_deleting_a_node_deletes_its_edges_and_counts_each_once() -> None:
    outcome = change('delete Person where id = "cat" or id = "bob"')

    assert outcome.nodes == 2
    assert sorted(by_id(outcome.graph["edges"]["Knows"])) == ["k7"]
    assert sorted(by_id(outcome.graph["edges"]["WorksAt"])) == ["w1", "w3"]
    assert sorted(by_id(outcome.graph["edges"]["Wrote"])) == ["o1", "o2"]
    assert outcome.edges == 6 + 1 + 2


def test_a_node_of_another_type_with_the_same_id_keeps_its_edges() -> None:
    outcome = change('delete Company where code = "ann"')

    assert sorted(by_id(outcome.graph["edges"]["WorksAt"])) == ["w1", "w2"]
    assert len(outcome.graph["edges"]["Knows"]) == 7


def test_later_statements_see_earlier_ones() -> None:
    outcome = change(
        f"insert Person {NEW} "  # noqa: S608 - not SQL
        'update Person set { age: 7 } where email = "new" '
        "delete Person where age = 30 "
        'insert Person { email: "ann", name: "Again", status: "left" }'
    )

    people = by_id(outcome.graph["nodes"]["Person"])
    assert people["new"]["age"] == 7
    assert people["ann"]["name"] == "Again"
    assert [each["id"] for each in outcome.graph["edges"]["WorksAt"]] == ["w2", "w3"]


def test_nothing_matched_is_no_effect() -> None:
    outcome = change("delete Person where age > 1000")

    assert (outcome.nodes, outcome.edges) == (0, 0)
    assert outcome.graph == small_graph()


def test_now_is_one_instant_in_a_whole_run() -> None:
    outcome = change('update Person set { joined: now() } where id = "ann" or id = "bob"')

    people = by_id(outcome.graph["nodes"]["Person"])
    assert people["ann"]["joined"] == people["bob"]["joined"]
    assert people["ann"]["joined"] == dt.datetime(2024, 5, 31, 12, 0, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    "body",
    [
        "update Person set { age: age * 1000000000 } where age = 20",
        "update Person set { name: $name } where true",
        'update Person set { points: age } where id = "eve"',
    ],
)
def test_a_value_that_cannot_be_stored_is_refused_in_the_run(body: str) -> None:
    parameters = "$name: String" if "$name" in body else ""
    given = {"name": None} if parameters else {}
    with pytest.raises(EvaluationError):
        change(body, parameters, **given)
