"""Algorithms on Spark have the bits of those in this process, and their values are written back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from omnigraph_lake.algorithms.blocks import Sizes
from omnigraph_lake.errors import InvalidInputError, NotConvergedError
from omnigraph_lake.runner.spark import SparkRunner
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.spark.analytics import (
    components,
    distances,
    label_propagation,
    page_rank,
    triangle_count,
    with_property,
)
from tests.algorithms.random_graphs import EDGE_TYPES, made_graph, random_graph
from tests.gate.seeds import case_seeds
from tests.spark.twice import TwiceSession

pytestmark = pytest.mark.spark

MANY_ROUNDS = pytest.mark.nightly(
    "many rounds of jobs; the gate ranks a small graph, and tests/algorithms has all algorithms "
    "on a runner that repeats tasks"
)


def test_ranks_on_spark_have_the_bits_of_those_in_this_process(
    spark: SparkSession, graph_root: str
) -> None:
    made = random_graph(graph_root, "bits on spark", people=12, edges=30)

    here = made.graph.algorithms.page_rank("Person", EDGE_TYPES, tolerance=1e-2)
    there = made.graph.algorithms.page_rank(
        "Person", EDGE_TYPES, tolerance=1e-2, spark=spark, write_to="rank"
    )

    assert here.to_arrow().combine_chunks().equals(there.to_arrow().combine_chunks())
    rows = made.graph.scan("Person").read_all().to_pylist()
    assert {row["id"]: row["rank"] for row in rows} == dict(
        zip(*here.to_arrow().to_pydict().values(), strict=True)
    )
    assert all(row["note"] == row["name"] for row in rows)


@MANY_ROUNDS
@pytest.mark.parametrize(
    ("seed", "people", "edges", "session"),
    [
        pytest.param(
            seed,
            20 + 20 * number,
            (20 + 20 * number) * (1 + number % 3),
            (TwiceSession, lambda spark: spark)[number % 2],
            id=str(number),
        )
        for number, seed in enumerate(case_seeds("analytics", 3))
    ],
)
def test_all_algorithms_have_the_same_bits_on_spark(
    spark: SparkSession,
    graph_root: str,
    seed: str,
    people: int,
    edges: int,
    session: Callable[[SparkSession], Any],
) -> None:
    """Also if tasks run twice."""
    made = random_graph(graph_root, seed, people=people, edges=edges)
    runner = SparkRunner(session(spark), made.root)
    blocks = people // 3

    for algorithm in made.all_algorithms():
        sizes = Sizes(block_nodes=blocks, range_nodes=people // 2, piece_rows=1)
        there = made.run(algorithm, runner, sizes=sizes, is_stored=True)
        here = made.run(algorithm, ThreadRunner(), sizes=Sizes(block_nodes=blocks))
        assert here.to_arrow().combine_chunks().equals(there.to_arrow().combine_chunks())


@MANY_ROUNDS
def test_functions_of_a_pinned_graph_return_frames(spark: SparkSession, graph_root: str) -> None:
    links = [("Knows", "a", "b"), ("Likes", "b", "c"), ("Knows", "c", "a")]
    made = made_graph(graph_root, ["a", "b", "c", "d"], links)
    pinned = made.graph.spark(spark)
    made.graph.write({"Person": [{"name": "later"}]})

    frames = {
        "rank": page_rank(pinned, "Person", EDGE_TYPES, tolerance=1e-3),
        "component": components(pinned, "Person", EDGE_TYPES),
        "label": label_propagation(pinned, "Person", EDGE_TYPES),
        "triangles": triangle_count(pinned, "Person", EDGE_TYPES),
        "distance": distances(pinned, "Person", EDGE_TYPES, ["a"]),
    }

    values = {
        name: {row["id"]: row[name] for row in frame.collect()} for name, frame in frames.items()
    }
    assert sum(values.pop("rank").values()) == pytest.approx(1.0)
    assert values == {
        "component": {"a": "a", "b": "a", "c": "a", "d": "d"},
        "label": {"a": "a", "b": "a", "c": "a", "d": "d"},
        "triangles": {"a": 1, "b": 1, "c": 1, "d": 0},
        "distance": {"a": 0, "b": 1, "c": 2, "d": None},
    }


def test_a_result_takes_the_place_of_a_property_beside_the_others(
    spark: SparkSession, graph_root: str
) -> None:
    made = random_graph(graph_root, "property", people=5, edges=0)
    pinned = made.graph.spark(spark)
    ranks = pinned.nodes("Person", columns=["id"]).selectExpr("id", "0.2D AS share")

    rows = with_property(pinned, "Person", "rank", ranks, column="share").collect()

    assert {row["note"] for row in rows} == {row["id"] for row in rows}
    assert sum(row["rank"] for row in rows) == pytest.approx(1.0)


def test_what_cannot_be_computed_is_refused_by_name(spark: SparkSession, graph_root: str) -> None:
    made = random_graph(graph_root, "refused", people=5, edges=9)
    pinned = made.graph.spark(spark)

    with pytest.raises(InvalidInputError, match="nobody"):
        distances(pinned, "Person", ["Knows"], ["nobody"])
    with pytest.raises(InvalidInputError, match="expected a list"):
        components(pinned, "Person", [])
    with pytest.raises(InvalidInputError, match="no property"):
        with_property(pinned, "Person", "fame", pinned.nodes("Person"), column="id")
    with pytest.raises(NotConvergedError, match="in 1 round"):
        page_rank(pinned, "Person", ["Knows"], tolerance=0.0, rounds_max=1)
