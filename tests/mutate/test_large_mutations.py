"""Mutations of more rows than memory may hold: they mean the same as those in memory."""

from __future__ import annotations

import random

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import ConflictError, InvalidInputError
from tests.drawing import seeds
from tests.mutate.in_parts import forced_in_parts
from tests.mutate.random_mutations import SCHEMA, content_of, draw_body, make_graph, outcome_of

pytestmark = pytest.mark.behaviour


def compare(root: str, seed: str, mutations: int) -> None:
    rng = random.Random(seed)
    graph = make_graph(root, rng)
    small, large = graph.checkout("small"), graph.checkout("large")
    for _ in range(mutations):
        body = draw_body(rng)
        expected = outcome_of(lambda: small.mutate(body))  # noqa: B023 - called at once
        with forced_in_parts():
            previewed = outcome_of(lambda: large.mutate(body, dry_run=True))  # noqa: B023
            actual = outcome_of(lambda: large.mutate(body))  # noqa: B023
        assert actual == expected, f"seed {seed}: {body}: {actual} {expected}"
        assert previewed[:2] == expected[:2], f"seed {seed}: {body}: {previewed} {expected}"
        assert content_of(large) == content_of(small), f"seed {seed}: {body}"
    assert large.maintenance.check().ok


@pytest.mark.parametrize("seed", seeds("mutations in parts", 1))
def test_mutations_in_parts_are_those_in_memory(graph_root: str, seed: str) -> None:
    compare(graph_root, seed, 12)


@pytest.mark.nightly("360 mutations, each in two ways")
@pytest.mark.parametrize("seed", seeds("many mutations in parts", 20))
def test_many_random_mutations_in_parts(graph_root: str, seed: str) -> None:
    compare(graph_root, seed, 18)


def test_samples_heads_and_repeated_calls_are_those_of_any_mutation(graph_root: str) -> None:
    graph = make_graph(graph_root, random.Random(7))
    body = "match { $p: Person } update $p set { age: 7 }"
    head = graph.snapshot().commit_id
    expected = graph.mutate(body, dry_run=True).samples
    with forced_in_parts():
        assert graph.mutate(body, dry_run=True).samples == expected
        assert graph.snapshot().commit_id == head
        done = graph.mutate(body, operation_id="once", expect_head=head, message="seven")
        again = graph.mutate(body, operation_id="once")
        with pytest.raises(ConflictError):
            graph.mutate(body, expect_head=head)
        with pytest.raises(InvalidInputError, match="as a mutation of its own"):
            graph.mutate("match { $p: Person  $p knows $q } delete $p, $q")
        with pytest.raises(InvalidInputError, match="Bind the variable to one type"):
            graph.mutate("match { $n: Person|Tag } delete $n")

    assert again.commit_id == done.commit_id == graph.snapshot().commit_id
    assert [commit.message for commit in graph.commits(limit=1)] == ["seven"]
    assert {row["age"] for row in graph.scan("Person").read_all().to_pylist()} == {7}


def test_edges_that_nodes_must_have_are_not_deleted_in_parts(graph_root: str) -> None:
    schema = "node P { k: String @key } node Q { k: String @key } edge E: P -> Q @card(1..)"
    graph = og.init(graph_root, schema=schema)
    rows = [{"k": "a"}, {"k": "b"}]
    edges = [{"src": "a", "dst": "a"}, {"src": "b", "dst": "b"}]
    graph.write({"P": rows, "Q": rows, "E": edges})
    with forced_in_parts():
        with pytest.raises(InvalidInputError, match="E needs at least 1 edges per node"):
            graph.mutate('match { $q: Q {k: "a"} } delete $q')
        result = graph.mutate('match { $p: P {k: "a"} } delete $p')

    assert (result.statements[0].nodes, result.statements[0].edges) == (1, 1)
    assert (graph.count("P"), graph.count("Q"), graph.count("E")) == (1, 2, 1)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "match { $p: Person  $q: Person } update $p set { age: $q.age }",
            "update Person: the match gives different values for 'p0', 'p1', 'p2', 'p3', 'p4' and "
            "others",
        ),
        (
            "match { $p: Person  $q: Person } upsert Tag { word: $p.name, note: $q.name }",
            "Tag.id, id 'p0': several rows of the match make it, and also 'p1', 'p2', 'p3', 'p4', "
            "'p5'",
        ),
        (
            'match { $p: Person } insert Tag { word: "one" }',
            "Tag.id, id 'one': several rows of the match make it",
        ),
        (
            "match { $p: Person } insert Doc { id: $p.town, title: $p.name }",
            "a row of the match gives it no id",
        ),
    ],
)
def test_rows_that_make_no_entity_of_their_own_are_refused_with_the_same_words(
    graph_root: str, body: str, expected: str
) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write({"Person": [{"name": f"p{number}", "age": number} for number in range(6)]})
    with pytest.raises(InvalidInputError) as in_memory:
        graph.mutate(body)
    with forced_in_parts(), pytest.raises(InvalidInputError) as in_parts:
        graph.mutate(body)

    assert expected in str(in_memory.value)
    assert str(in_parts.value) == str(in_memory.value)
    assert type(in_parts.value) is type(in_memory.value)
