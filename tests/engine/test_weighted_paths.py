"""Paths with the smallest weight against a plain search of all paths, bit by bit."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake.engine.run import Limits
from omnigraph_lake.errors import QueryBudgetError, QueryFailedError, QueryInvalidError
from omnigraph_lake.graph import Graph
from tests.engine.small_graphs import rows
from tests.query.differential import LIMITS, NARROW
from tests.stores import root_at

pytestmark = pytest.mark.unit

SCHEMA = """
node P { k: String @key }
node Q { k: String @key }
edge Knows: P -> P { w: F64?  n: U64? }
edge Likes: P -> Q { w: F64?  n: I32? }
"""
WAYS: dict[str, dict[str, Any]] = {
    "in memory": {"access": "resident", "limits": LIMITS},
    "looked up": {"access": "probe", "limits": LIMITS},
    "in small portions": {"access": "resident", "limits": NARROW},
}
NODES = [f"{number:02}" for number in range(9)]
Edge = tuple[str, str, str, float | None]


def edges_of(seed: str) -> list[Edge]:
    generator = random.Random(seed)
    weights = (0.1, 0.1, 0.2, 0.3, 0.7, 1e-17, 1.0, 0.0, None)
    return [
        (f"e{at:02}", generator.choice(NODES), generator.choice(NODES), generator.choice(weights))
        for at in range(24)
    ]


def stored(folder: Path, edges: list[Edge]) -> Graph:
    graph = og.init(root_at(folder / "graph"), schema=SCHEMA)
    knows = [
        {"id": name, "src": source, "dst": target, "w": weight}
        for name, source, target, weight in edges
    ]
    graph.write({"node:P": [{"k": node} for node in NODES], "edge:Knows": knows})
    return graph


def all_paths(edges: list[Edge], start: str) -> Iterator[tuple[float, tuple[str, ...], list[str]]]:
    """Every path without a node twice, its weight added up from the start."""
    pending: list[tuple[float, tuple[str, ...], list[str]]] = [(0.0, (start,), [])]
    while pending:
        total, nodes, names = pending.pop()
        yield total, nodes, names
        for name, source, target, weight in edges:
            if source == nodes[-1] and target not in nodes and weight is not None:
                pending.append((total + weight, (*nodes, target), [*names, name]))


@pytest.mark.parametrize("way", WAYS)
def test_every_pair_has_the_smallest_of_all_sums(tmp_path: Path, way: str) -> None:
    edges = edges_of("weights")
    graph = stored(tmp_path, edges)
    text = """match { $a: P  $a knows{0,} $b as $way by w }
        return { $a.k, $b.k, weight($way), nodes($way), edges($way) }"""

    found = rows(graph, text, **WAYS[way])

    smallest: dict[tuple[str, str], float] = {}
    for start in NODES:
        for total, nodes, _ in all_paths(edges, start):
            pair = start, nodes[-1]
            smallest[pair] = min(total, smallest.get(pair, math.inf))
    weights = {name: weight for name, _, _, weight in edges}
    assert {(start, end): total.hex() for start, end, total, _, _ in found} == {
        pair: total.hex() for pair, total in smallest.items()
    }
    for start, end, total, nodes, names in found:
        added = 0.0
        for name in names:
            added += weights[name] or 0.0
        assert (nodes[0], nodes[-1], added.hex()) == (start, end, total.hex())


def test_ties_are_decided_by_edges_then_node_ids_then_edge_ids(tmp_path: Path) -> None:
    edges: list[Edge] = [
        ("e1", "00", "03", 0.5),
        ("e2", "03", "08", 0.5),
        ("e3", "00", "02", 0.25),
        ("e6", "02", "08", 0.75),
        ("e5", "02", "08", 0.75),
        ("e4", "00", "01", 0.25),
        ("e7", "01", "04", 0.25),
        ("e8", "04", "08", 0.5),
    ]
    graph = stored(tmp_path, edges)
    text = """match { $a: P { k: "00" }  $b: P { k: "08" }  $a knows{1,} $b as $way by w }
        return { weight($way), edges($way) }"""

    assert rows(graph, text) == [(1.0, ["e3", "e5"])]


@pytest.mark.parametrize("way", ["in memory", "looked up"])
def test_only_the_best_edge_between_two_types_and_from_a_node_to_itself(
    tmp_path: Path, way: str
) -> None:
    graph = stored(tmp_path, [("e1", "00", "00", 2.0), ("e2", "00", "00", 0.5)])
    likes = [("l1", None), ("l3", 0.5), ("l2", 0.5), ("l4", 1.0)]
    graph.write(
        {
            "node:Q": [{"k": "q"}],
            "edge:Likes": [{"id": name, "src": "00", "dst": "q", "w": w} for name, w in likes],
        },
        mode="merge",
    )
    over_types = 'match { $a: P { k: "00" }  $a likes{1,} $b as $way by w } '
    to_itself = 'match { $a: P { k: "00" }  $a knows{1,} $b as $way by w } '
    returned = "return { weight($way), edges($way) }"

    assert rows(graph, over_types + returned, **WAYS[way]) == [(0.5, ["l2"])]
    assert rows(graph, to_itself + returned, **WAYS[way]) == [(0.5, ["e2"])]


@pytest.mark.parametrize("weight", [-0.5, math.nan])
def test_a_negative_weight_that_is_met_is_an_error(tmp_path: Path, weight: float) -> None:
    graph = stored(tmp_path, [("e1", "00", "01", 1.0), ("e2", "01", "02", weight)])
    text = "match { $a: P { k: $k }  $a knows{1,} $b as $way by w } return { weight($way) }"

    assert rows(graph, text, k="03") == []
    with pytest.raises(QueryFailedError, match=r"the edge e2 of Knows has the w .*, expected"):
        rows(graph, text, k="00")


def test_integers_are_added_exactly_or_refused(tmp_path: Path) -> None:
    graph = stored(tmp_path, [])
    numbers = [("00", "01", 2**53), ("01", "02", 1), ("02", "03", 2**63)]
    graph.write(
        {"edge:Knows": [{"src": source, "dst": target, "n": n} for source, target, n in numbers]},
        mode="merge",
    )
    text = """match { $a: P { k: "00" }  $b: P { k: $k }  $a knows{1,} $b as $way by n }
        return { weight($way) }"""

    with pytest.raises(QueryFailedError, match="does not fit into 64 bits"):
        rows(graph, text, k="03")
    graph.mutate('query q() { delete Knows where from = "02" }')
    assert rows(graph, text, k="02") == [(2**53 + 1,)]


def test_a_search_that_does_not_fit_into_memory_is_an_error(tmp_path: Path) -> None:
    graph = stored(tmp_path, [("e1", "00", "01", 1.0)])
    text = "match { $a: P  $a knows{1,} $b as $way by w } return { weight($way) }"

    with pytest.raises(QueryBudgetError, match="what weighted paths can reach"):
        rows(graph, text, limits=Limits(memory_bytes=1000, seconds=60))


@pytest.mark.parametrize("way", ["in memory", "looked up"])
def test_a_path_over_several_edge_types_compares_ids_then_types(tmp_path: Path, way: str) -> None:
    graph = og.init(
        root_at(tmp_path / "graph"),
        schema="""
        node P { k: String @key }
        node Q { k: String @key }
        edge Knows: P -> P { w: F64? }
        edge Likes: P -> P { w: F64? }
        edge Owns: P -> Q { w: F64? }
        edge Holds: Q -> P { w: F64? }
        """,
    )
    nodes = [{"k": name} for name in "abc"]
    steps = {
        "Knows": [("e", "a", "b", 1.0), ("f", "b", "c", 1.0)],
        "Likes": [("e", "a", "b", 1.0), ("d", "b", "c", 1.0)],
        "Owns": [("g", "a", "b", 0.5)],
        "Holds": [("h", "b", "c", 1.5)],
    }
    edges = {
        f"edge:{edge}": [
            {"id": name, "src": source, "dst": target, "w": weight}
            for name, source, target, weight in rows_of_edge
        ]
        for edge, rows_of_edge in steps.items()
    }
    graph.write({"node:P": nodes, "node:Q": nodes, **edges})
    text = """match { $a: P { k: "a" }  $c: P { k: "c" }  $a EDGES{1,} $c as $way by w }
        return { weight($way), types($way), edges($way), edge_types($way) }"""

    over_two = rows(graph, text.replace("EDGES", "knows|likes"), **WAYS[way])
    over_any = rows(graph, text.replace("EDGES", "_>"), **WAYS[way])

    assert over_two == [(2.0, ["P", "P", "P"], ["e", "d"], ["Knows", "Likes"])]
    assert over_any == over_two
    graph.write({"edge:Owns": [{"id": "g", "src": "a", "dst": "b", "w": 0.25}]}, mode="merge")
    over_any = rows(graph, text.replace("EDGES", "<_>"), **WAYS[way])
    assert over_any == [(1.75, ["P", "Q", "P"], ["g", "h"], ["Owns", "Holds"])]


def test_weights_of_several_numeric_types_are_refused(tmp_path: Path) -> None:
    graph = stored(tmp_path, [])

    with pytest.raises(QueryInvalidError, match="`n` is U64 in Knows and I32 in Likes, expected"):
        rows(graph, "match { $a: P  $a knows|likes{1,} $b as $way by n } return { $b.id }")
