"""Mutations of what a match finds, on Spark: the same graph and counts as in this process."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from omnigraph_lake.errors import InvalidInputError
from tests.mutate.random_mutations import content_of, draw_body, make_graph, outcome_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BODIES = (
    "match { $p: Person  $p knows $q } update $p set { degree: count($q), age: 3 }",
    "match { $p: Person  $p knows $q } update $p set { age: $q.age }",
    'match { $p: Person  $p.age > 1 } upsert Tag { word: $p.name, note: "x" }',
    "match { $p: Person  $p.age > 2 } delete $p",
)
"""One of each way, and one that may be refused."""


def compare(spark: SparkSession, root: str, seed: str, bodies: list[str]) -> None:
    graph = make_graph(root, random.Random(seed))
    small, large = graph.checkout("small"), graph.checkout("large")
    for body in bodies:
        expected = outcome_of(lambda: small.mutate(body))  # noqa: B023 - called at once
        actual = outcome_of(lambda: large.mutate(body, spark=spark))  # noqa: B023
        assert actual == expected, f"seed {seed}: {body}"
        assert content_of(large) == content_of(small), f"seed {seed}: {body}"


def test_a_mutation_on_spark_is_that_of_this_process(spark: SparkSession, graph_root: str) -> None:
    compare(spark, graph_root, "mutations on Spark", list(BODIES))


def test_several_statements_are_refused(spark: SparkSession, graph_root: str) -> None:
    graph = make_graph(graph_root, random.Random(0))
    with pytest.raises(InvalidInputError, match="has 2 statements, expected one with a match"):
        graph.mutate("match { $p: Person  $p knows $q } delete $p, $q", spark=spark)
    with pytest.raises(InvalidInputError, match=r"2 types \(Person, Tag\), expected one type"):
        graph.mutate("match { $n: Person|Tag } delete $n", spark=spark)


@pytest.mark.nightly("120 mutations on Spark, each with several jobs")
@pytest.mark.parametrize("number", range(12))
def test_many_random_mutations_on_spark(spark: SparkSession, graph_root: str, number: int) -> None:
    rng = random.Random(number)
    compare(spark, graph_root, str(number), [draw_body(rng) for _ in range(10)])
