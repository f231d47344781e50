"""Search on Spark: text conditions, distances, scores and their fusion."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.query.typed import TypedQuery
from tests.gate.selection import for_gate
from tests.query.people import note, small_graph
from tests.spark.query_answers import World, world

pytestmark = pytest.mark.spark

CONDITIONS = [
    'search($n.title, "graphs")',
    'search($n.title, "GRAPHS trees")',
    'search($n.title, "  ,; ")',
    'search($n.body, "match")',
    'not search($n.body, "match")',
    'match_text($n.title, "graphs and")',
    'match_text($n.title, "graphs tables")',
    'fuzzy($n.title, "grapf", 1)',
    'fuzzy($n.title, "tres")',
    'search($n.body, "match") or $n.body is null',
    "search($n.title, $none)",
    "fuzzy($n.title, $words, $edits)",
]
GIVEN = {"none": None, "words": "strase kafe", "edits": 1}
RANKED = [
    ("$n: Note", "$n.id, nearest($n.vector, [0, 0]) as far", "order { far } limit 9"),
    ('$n: Note $n.id != "n1"', "$n.id", "order { nearest($n.vector, [0, 0]) } limit 1"),
    ("$n: Note", "$n.id, nearest($n.vector, [3, 4]), nearest($n.meaning, [1, 0, 0])", ""),
    (
        "$p: Person $p wrote $n",
        "$n.id, $p.id",
        "order { nearest($n.vector, [3, 4]), $p.id desc } limit 3",
    ),
    ("$n: Note", '$n.id, bm25($n.title, "graphs") as s', "order { s desc }"),
    ("$n: Note", '$n.id, bm25($n.body, "graphs here") as s', ""),
    ("$x: Named", '$x.id, type($x), bm25($x.name, "ann zeta") as s', "order { s desc }"),
    ("$p: Person $p $e: knows $q", '$e.id, bm25($e.comment, "old") as s', "order { s } limit 1"),
    (
        "$n: Note",
        '$n.id, rrf(nearest($n.vector, [3, 4]), bm25($n.title, "trees"), 1) as s',
        "order { s } limit 10",
    ),
    (
        "$p: Person $p wrote $n",
        "$n.id, $p.id",
        'order { rrf(nearest($n.vector, [3, 4]), bm25($n.title, "tables")) } limit 3 offset 1',
    ),
    (
        "$x: Named",
        '$x.id, rrf(bm25($x.name, "ann"), bm25($x.name, "zeta bob")) as s',
        "order { s } limit 5",
    ),
    (
        "$p: Person optional { $p wrote $n }",
        "$p.id, $n.id",
        'order { rrf(nearest($n.vector, [3, 4]), bm25($n.body, "graphs")), $p.id } limit 4',
    ),
]
RANKED_IN_GATE = [RANKED[number] for number in (6, 11)]
BOUND = [
    ('$n: Note search($n.title, "graphs") and $n.body is not null', "$n.id"),
    ('$p: Person $p wrote $n search($n.title, "trees")', "$p.id"),
    ('$p: Person not { $p wrote $n search($n.title, "graphs") }', "$p.id"),
    ('$p: Person optional { $p wrote $n search($n.title, "trees") }', "$p.id, $n.id"),
    ('$p: Person $p $e: knows $q search($e.comment, "graphs")', "$e.id"),
]


@pytest.fixture(scope="module")
def people(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    graph = small_graph()
    for number, meaning in enumerate([(0.0, 0.0, 0.0), (1.0, 1.0, 0.0), None]):
        graph["nodes"]["Note"].append(note(f"m{number}", "Straße und CAFÉ", meaning=meaning))
    return world(spark, tmp_path_factory.mktemp("people"), graph)


def all_conditions(people: World) -> TypedQuery:
    """Every condition as a column of one query."""
    columns = ", ".join(f"{text} as c{number}" for number, text in enumerate(CONDITIONS))
    parameters = "$none: String?, $words: String, $edits: I32"
    return people.query("$n: Note", f"$n.id, {columns}", "", parameters)


def test_text_conditions_compare_tokens(people: World) -> None:
    assert len(people.same(all_conditions(people), GIVEN)) == 7


@pytest.mark.parametrize(("match", "result"), for_gate(BOUND, lambda case: case is BOUND[3]))
def test_a_text_condition_works_wherever_its_variable_is_bound(
    people: World, match: str, result: str
) -> None:
    assert people.ask(match, result)


@pytest.mark.parametrize(("match", "result", "tail"), for_gate(RANKED, RANKED_IN_GATE.__contains__))
def test_a_ranking_orders_the_rows_that_have_a_rank(
    people: World, match: str, result: str, tail: str
) -> None:
    assert people.ask(match, result, tail)


@pytest.mark.nightly("the gate has other rankings of optional matches")
def test_a_fusion_of_a_variable_that_nothing_is_bound_to_ranks_no_row(people: World) -> None:
    fusion = 'rrf(nearest($n.vector, [3, 4]), bm25($n.body, "graphs"))'
    match = "$x: Named $c contains $x optional { $x wrote $n }"
    assert not people.ask(match, "$x.id", f"order {{ {fusion} }} limit 3")
    match = '$n: Note { title: "a" } $n.title = "b"'
    assert not people.ask(match, f"{fusion} as s", "order { s } limit 3")


@pytest.mark.nightly("the gate has rankings, and distinct rows in test_query_results.py")
def test_a_ranking_of_distinct_rows_is_one_of_their_columns(people: World) -> None:
    typed = people.query(
        "$p: Person $p wrote $n",
        "$n.id, nearest($n.vector, [3, 4]) as far",
        "order { far } limit 2",
        distinct="distinct",
    )

    assert len(people.same(typed)) == 2


def test_a_text_needs_a_model_to_become_a_vector(people: World) -> None:
    typed = people.query("$n: Note", "$n.id", 'order { nearest($n.meaning, "words") } limit 1')

    with pytest.raises(InvalidInputError, match="model"):
        people.frame(typed)
