"""Mutations of more rows than memory may hold: they mean the same as those in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

import omnigraph
from omnigraph.engine import query
from omnigraph.errors import ConflictError, InvalidInputError
from omnigraph.load import completion
from omnigraph.mutate import matched, removal, statements
from tests.drawing import seeds
from tests.mutate.random_mutations import content_of, draw_body, make_graph, outcome_of

pytestmark = pytest.mark.behaviour


@contextmanager
def forced_in_parts() -> Iterator[None]:
    """Let a mutation hold no row of a match, and no table that it can stream."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query, "STREAMED_LEAST", 0)
        patch.setattr(completion, "ROWS_PER_BUCKET", 3)
        patch.setattr(removal, "ROWS_PER_BUCKET", 3)
        limits = replace(matched.MATCHED_LIMITS, rows=0)
        patch.setattr(matched, "MATCHED_LIMITS", limits)
        patch.setattr(statements, "MATCHED_LIMITS", limits)
        yield


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


@pytest.mark.cost("compares two ways to run a dozen mutations", 6)
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
    graph = omnigraph.init(graph_root, schema=schema)
    rows = [{"k": "a"}, {"k": "b"}]
    edges = [{"src": "a", "dst": "a"}, {"src": "b", "dst": "b"}]
    graph.write({"P": rows, "Q": rows, "E": edges})
    with forced_in_parts():
        with pytest.raises(InvalidInputError, match="E needs at least 1 edges per node"):
            graph.mutate('match { $q: Q {k: "a"} } delete $q')
        result = graph.mutate('match { $p: P {k: "a"} } delete $p')

    assert (result.statements[0].nodes, result.statements[0].edges) == (1, 1)
    assert (graph.count("P"), graph.count("Q"), graph.count("E")) == (1, 2, 1)
