"""Text conditions and rankings."""

from __future__ import annotations

import pytest

from omnigraph_lake.query.diagnostics import Rule
from omnigraph_lake.query.lint import lint_queries
from omnigraph_lake.query.plan import Mutation
from omnigraph_lake.query.plan_text import explain
from omnigraph_lake.query.planning import plan_query
from tests.query import text_search
from tests.query.people import CATALOG, ask, read, values

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ('search($n.title, "graphs")', ["n1", "n2"]),
        ('search($n.title, "GRAPHS trees")', ["n1", "n2", "n3"]),
        ('search($n.title, "graph")', ["n4"]),
        ('search($n.title, "  ,; ")', []),
        ('match_text($n.title, "graphs and")', ["n1"]),
        ('match_text($n.title, "tables graphs")', ["n2"]),
        ('match_text($n.title, "graphs tables")', []),
        ('match_text($n.title, "")', []),
        ('fuzzy($n.title, "graf", 1)', []),
        ('fuzzy($n.title, "grapf", 1)', ["n4"]),
        ('fuzzy($n.title, "graphz", 1)', ["n1", "n2", "n4"]),
        ('fuzzy($n.title, "tres")', ["n3"]),
        ('fuzzy($n.title, "trees", 0)', ["n3"]),
        ('not search($n.title, "graphs")', ["n3", "n4"]),
        ('search($n.body, "match") or $n.body is null', ["n2", "n3", "n4"]),
        ('not search($n.body, "match")', ["n1"]),
    ],
)
def test_a_text_condition_compares_tokens(condition: str, expected: list[str]) -> None:
    assert values(f"$n: Note {condition}", "$n.id") == expected


def test_a_text_condition_works_behind_a_traversal_and_inside_blocks() -> None:
    reached = values('$p: Person $p wrote $n search($n.title, "trees")', "$p.id")
    absent = values('$p: Person not { $p wrote $n search($n.title, "graphs") }', "$p.id")
    optional = values(
        '$p: Person optional { $p wrote $n search($n.title, "trees") }', "$p.id, $n.id"
    )

    assert reached == ["cat"]
    assert absent == ["cat", "dan", "eve"]
    assert ("cat", "n3") in optional
    assert len(optional) == 5


def test_a_text_condition_works_on_edges() -> None:
    assert values('$p: Person $p $e: knows $q search($e.comment, "graphs")', "$e.id") == ["k2"]


def test_nearest_can_be_asked_to_compare_every_vector() -> None:
    for exact in ("", ", exact"):
        tail = f"order {{ nearest($n.vector, [0, 0]{exact}) }} limit 2"
        assert values("$n: Note", "$n.id", tail) == ["n1", "n3"]
        plan = plan_query(read("$n: Note", "$n.id", tail), CATALOG)
        assert not isinstance(plan, Mutation)
        assert f"nearest($n.vector, [0.0, 0.0], l2{exact})" in explain(plan)


@pytest.mark.parametrize("word", ["exactly", "true", '"exact"', "$n.id"])
def test_another_word_than_exact_is_refused(word: str) -> None:
    query = (
        "query q() { match { $n: Note } return { $n.id }"
        f" order {{ nearest($n.vector, [0, 0], {word}) }} limit 2 }}"
    )

    (finding,) = lint_queries(query, catalog=CATALOG).findings

    assert finding.rule == Rule.FUNCTION_ARGUMENTS
    assert "`exact`" in str(finding.message)


def test_nearest_gives_the_best_rows_first_and_none_without_a_vector() -> None:
    found = values("$n: Note", "$n.id, nearest($n.vector, [0, 0]) as far", "order { far } limit 9")

    assert found == [("n1", 0.0), ("n3", 1.0), ("n2", 5.0)]


def test_filters_count_before_the_ranking() -> None:
    found = values(
        '$n: Note $n.id != "n1"',
        "$n.id",
        "order { nearest($n.vector, $q) } limit 1",
        parameters="$q: Vector(2)",
        q=(0.0, 0.0),
    )

    assert found == ["n3"]


def test_a_score_without_an_order_is_a_column_that_may_be_null() -> None:
    found = values("$n: Note", "$n.id, nearest($n.vector, [3, 4])")

    assert found[0] == ("n1", 5.0)
    assert found[3] == ("n4", None)


def test_later_keys_break_ties_of_a_ranking() -> None:
    found = values(
        "$p: Person $p wrote $n",
        "$n.id, $p.id",
        "order { nearest($n.vector, [3, 4]), $p.id desc } limit 3",
    )

    assert found == [("n2", "bob"), ("n2", "ann"), ("n3", "cat")]


def test_bm25_prefers_texts_with_more_of_the_words() -> None:
    found = ask("$n: Note", '$n.id, bm25($n.title, "graphs") as s', "order { s desc }").rows

    assert [row["n.id"] for row in found] == ["n2", "n1"]
    assert found[0]["s"] > found[1]["s"] > 0


def test_a_fusion_adds_the_ranks_of_both_arms() -> None:
    found = ask(
        "$n: Note",
        '$n.id, rrf(nearest($n.vector, [3, 4]), bm25($n.title, "trees"), 1) as s',
        "order { s } limit 10",
    ).rows

    assert [(row["n.id"], round(row["s"], 6)) for row in found] == [
        ("n3", round(1 / 3 + 1 / 2, 6)),
        ("n2", 0.5),
        ("n1", 0.25),
    ]


def test_a_fusion_ranks_entities_however_many_rows_they_have() -> None:
    found = values(
        "$p: Person $p wrote $n",
        "$n.id, $p.id",
        'order { rrf(nearest($n.vector, [3, 4]), bm25($n.title, "tables")) } limit 3',
    )

    assert found == [("n2", "ann"), ("n2", "bob"), ("n1", "ann")]


def test_tokens_are_runs_of_letters_and_digits_in_small_letters() -> None:
    assert text_search.tokens("Ein_Straßen-Café: 42nd!") == ["ein", "straßen", "café", "42nd"]


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [("", "ab", 2), ("kitten", "sitting", 3), ("ab", "ba", 2), ("same", "same", 0)],
)
def test_edits_insert_delete_and_replace(one: str, other: str, distance: int) -> None:
    assert text_search.levenshtein(one, other) == distance
