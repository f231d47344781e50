from __future__ import annotations

import itertools
import random

import pytest
import rustworkx as rx
from pyspark.sql import SparkSession

import omnigraph
from omnigraph.errors import ConflictError, InvalidInputError
from omnigraph.graph import Graph
from omnigraph.spark.analytics import components, distances, page_rank, with_property

pytestmark = pytest.mark.spark

SCHEMA = """
node Person { name: String @key  rank: F64?  note: String? }
edge Knows: Person -> Person { }
edge Likes: Person -> Person { }
"""


def random_graph(root: str, seed: int) -> tuple[Graph, rx.PyDiGraph]:
    chance = random.Random(seed)
    people = [f"p{number}" for number in range(20 + 20 * seed)]
    model = rx.PyDiGraph()
    model.add_nodes_from(people)
    rows: dict[str, list[dict[str, str]]] = {"Knows": [], "Likes": []}
    for _ in range(len(people) * (1 + seed % 3)):
        source, target = chance.randrange(len(people)), chance.randrange(len(people))
        rows[chance.choice(("Knows", "Likes"))].append(
            {"src": people[source], "dst": people[target]}
        )
        model.add_edge(source, target, 1.0)
    graph = omnigraph.init(root, schema=SCHEMA)
    graph.write({"Person": [{"name": each, "note": each} for each in people], **rows})
    return graph, model


def hops_from_first(model: rx.PyDiGraph) -> dict[str, int]:
    found = dict(rx.dijkstra_shortest_path_lengths(model, 0, float))
    return {model[node]: round(length) for node, length in ({0: 0.0} | found).items()}


@pytest.mark.parametrize("seed", range(5))
def test_results_equal_those_of_another_library(
    spark: SparkSession, graph_root: str, seed: int
) -> None:
    graph, model = random_graph(graph_root, seed)
    pinned, types = graph.spark(spark), ["Knows", "Likes"]

    ranks = {r["id"]: r["rank"] for r in page_rank(pinned, "Person", types).collect()}
    found = {r["id"]: r["component"] for r in components(pinned, "Person", types).collect()}
    hops = {r["id"]: r["distance"] for r in distances(pinned, "Person", types, ["p0"]).collect()}

    expected = rx.pagerank(model, weight_fn=float, tol=1e-10)
    assert ranks == pytest.approx({model[n]: rank for n, rank in expected.items()}, abs=1e-4)
    for each in rx.weakly_connected_components(model):
        together = {model[node] for node in each}
        assert {found[node] for node in together} == {min(together)}
    reachable = hops_from_first(model)
    assert hops == {node: reachable.get(node) for node in model.nodes()}


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


def test_distances_stop_at_the_hops_asked_for(spark: SparkSession, graph_root: str) -> None:
    graph, model = random_graph(graph_root, 1)

    near = distances(graph.spark(spark), "Person", ["Knows", "Likes"], ["p0"], hops_max=2)

    expected = {node: hops for node, hops in hops_from_first(model).items() if hops <= 2}
    assert {
        r["id"]: r["distance"] for r in near.where("distance IS NOT NULL").collect()
    } == expected


def test_a_result_takes_the_place_of_a_property_beside_the_others(
    spark: SparkSession, graph_root: str
) -> None:
    graph, _ = random_graph(graph_root, 0)
    pinned = graph.spark(spark)
    ranks = page_rank(pinned, "Person", ["Knows"])

    rows = with_property(pinned, "Person", "rank", ranks, column="rank").collect()

    assert {row["note"] for row in rows} == {row["id"] for row in rows}
    assert sum(row["rank"] for row in rows) == pytest.approx(1.0)


def test_what_cannot_be_computed_is_refused_by_name(spark: SparkSession, graph_root: str) -> None:
    graph, _ = random_graph(graph_root, 0)
    pinned = graph.spark(spark)

    with pytest.raises(InvalidInputError, match="nobody"):
        distances(pinned, "Person", ["Knows"], ["nobody"])
    with pytest.raises(InvalidInputError, match="expected a list"):
        components(pinned, "Person", [])
    with pytest.raises(InvalidInputError, match="no property"):
        with_property(pinned, "Person", "fame", pinned.nodes("Person"), column="id")
    with pytest.raises(ConflictError, match="after 1 rounds"):
        page_rank(pinned, "Person", ["Knows"], tolerance=0.0, rounds_max=1)
