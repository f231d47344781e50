"""Ranks, components and distances on Spark are those of another library."""

from __future__ import annotations

import itertools
import random

import pytest
import rustworkx as rx
from pyspark.sql import SparkSession

import omnigraph
from omnigraph.errors import ConflictError, InvalidInputError
from omnigraph.graph import Graph
from omnigraph.spark import SparkGraph
from omnigraph.spark.analytics import components, distances, page_rank, with_property
from tests.gate.seeds import case_seeds

pytestmark = pytest.mark.spark

SCHEMA = """
node Person { name: String @key  rank: F64?  note: String? }
edge Knows: Person -> Person { }
edge Likes: Person -> Person { }
"""


TYPES = ["Knows", "Likes"]
MANY_ROUNDS = pytest.mark.nightly(
    "many rounds of jobs; the gate ranks a small graph, by rounds of the same kind"
)


def random_graph(root: str, seed: str, *, people: int, edges: int) -> tuple[Graph, rx.PyDiGraph]:
    chance = random.Random(seed)
    links = [
        (chance.choice(("Knows", "Likes")), chance.randrange(people), chance.randrange(people))
        for _ in range(edges)
    ]
    return made_graph(root, [f"p{number}" for number in range(people)], links)


def made_graph(
    root: str, people: list[str], links: list[tuple[str, int, int]]
) -> tuple[Graph, rx.PyDiGraph]:
    """People and their links, here and in the other library."""
    model = rx.PyDiGraph()
    model.add_nodes_from(people)
    rows: dict[str, list[dict[str, str]]] = {"Knows": [], "Likes": []}
    for kind, source, target in links:
        rows[kind].append({"src": people[source], "dst": people[target]})
        model.add_edge(source, target, 1.0)
    graph = omnigraph.init(root, schema=SCHEMA)
    graph.write({"Person": [{"name": name, "note": name} for name in people], **rows})
    return graph, model


def hops_from_first(model: rx.PyDiGraph) -> dict[str, int]:
    found = dict(rx.dijkstra_shortest_path_lengths(model, 0, float))
    return {model[node]: round(length) for node, length in ({0: 0.0} | found).items()}


def test_a_small_graph_has_the_ranks_of_another_library(
    spark: SparkSession, graph_root: str
) -> None:
    parallel = [("Knows", 0, 1), ("Likes", 0, 1)]
    links = [*parallel, ("Knows", 0, 2), ("Likes", 1, 2)]
    graph, model = made_graph(graph_root, ["p0", "p1", "p2", "p3", "p4"], links)

    require_same_ranks(graph.spark(spark), model, tolerance=1e-2, difference=1e-2)


@MANY_ROUNDS
@pytest.mark.parametrize(
    ("seed", "people", "edges"),
    [
        pytest.param(seed, 20 + 20 * number, (20 + 20 * number) * (1 + number % 3), id=str(number))
        for number, seed in enumerate(case_seeds("analytics", 5))
    ],
)
def test_random_graphs_have_the_results_of_another_library(
    spark: SparkSession, graph_root: str, seed: str, people: int, edges: int
) -> None:
    graph, model = random_graph(graph_root, seed, people=people, edges=edges)

    pinned = graph.spark(spark)
    require_same_ranks(pinned, model, tolerance=1e-6, difference=1e-4)
    found = {r["id"]: r["component"] for r in components(pinned, "Person", TYPES).collect()}
    hops = {r["id"]: r["distance"] for r in distances(pinned, "Person", TYPES, ["p0"]).collect()}
    for each in rx.weakly_connected_components(model):
        together = {model[node] for node in each}
        assert {found[node] for node in together} == {min(together)}
    reachable = hops_from_first(model)
    assert hops == {node: reachable.get(node) for node in model.nodes()}


def require_same_ranks(
    pinned: SparkGraph, model: rx.PyDiGraph, *, tolerance: float, difference: float
) -> None:
    ranks = page_rank(pinned, "Person", TYPES, tolerance=tolerance).collect()

    expected = rx.pagerank(model, weight_fn=float, tol=1e-10)
    assert {row["id"]: row["rank"] for row in ranks} == pytest.approx(
        {model[node]: rank for node, rank in expected.items()}, abs=difference
    )


@MANY_ROUNDS
def test_components_of_a_long_path_are_found(spark: SparkSession, graph_root: str) -> None:
    graph = omnigraph.init(graph_root, schema=SCHEMA)
    people = [f"p{number:03}" for number in range(200)]
    chance = random.Random(1)
    shuffled = chance.sample(people, len(people))
    links = [{"src": a, "dst": b} for a, b in itertools.pairwise(shuffled)]
    graph.write({"Person": [{"name": each} for each in people], "Knows": links})

    found = components(graph.spark(spark), "Person", ["Knows"]).collect()

    assert {row["component"] for row in found} == {"p000"}
    assert len(found) == 200


@MANY_ROUNDS
def test_distances_stop_at_the_hops_asked_for(spark: SparkSession, graph_root: str) -> None:
    graph, model = random_graph(graph_root, "hops", people=40, edges=80)

    near = distances(graph.spark(spark), "Person", ["Knows", "Likes"], ["p0"], hops_max=2)

    expected = {node: hops for node, hops in hops_from_first(model).items() if hops <= 2}
    assert {
        r["id"]: r["distance"] for r in near.where("distance IS NOT NULL").collect()
    } == expected


def test_a_result_takes_the_place_of_a_property_beside_the_others(
    spark: SparkSession, graph_root: str
) -> None:
    graph, _ = random_graph(graph_root, "property", people=5, edges=0)
    pinned = graph.spark(spark)
    ranks = pinned.nodes("Person", columns=["id"]).selectExpr("id", "0.2D AS share")

    rows = with_property(pinned, "Person", "rank", ranks, column="share").collect()

    assert {row["note"] for row in rows} == {row["id"] for row in rows}
    assert sum(row["rank"] for row in rows) == pytest.approx(1.0)


def test_what_cannot_be_computed_is_refused_by_name(spark: SparkSession, graph_root: str) -> None:
    graph, _ = random_graph(graph_root, "refused", people=5, edges=9)
    pinned = graph.spark(spark)

    with pytest.raises(InvalidInputError, match="nobody"):
        distances(pinned, "Person", ["Knows"], ["nobody"])
    with pytest.raises(InvalidInputError, match="expected a list"):
        components(pinned, "Person", [])
    with pytest.raises(InvalidInputError, match="no property"):
        with_property(pinned, "Person", "fame", pinned.nodes("Person"), column="id")
    with pytest.raises(ConflictError, match="after 1 rounds"):
        page_rank(pinned, "Person", ["Knows"], tolerance=0.0, rounds_max=1)
