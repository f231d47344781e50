"""Shortest paths against all paths of a small graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest

from omnigraph_lake.graph import Graph
from tests.engine.small_graphs import numbered_graph, random_pairs, rows
from tests.query.differential import LIMITS, NARROW
from tests.query.random_graphs import plain_graph

pytestmark = pytest.mark.unit

NODES = 24
PAIRS = random_pairs("paths", NODES, 50)
LONGEST = 4
WAYS: dict[str, dict[str, Any]] = {
    "in memory": {"access": "resident", "limits": LIMITS},
    "in halves": {"access": "resident", "limits": NARROW},
    "looked up": {"access": "probe", "limits": LIMITS},
}
RETURNED = "return { $a.k, $b.k, length($way), nodes($way), edges($way) }"

Step: TypeAlias = tuple[str, str, str]
Found: TypeAlias = tuple[str, str, int, list[str], list[str]]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return numbered_graph(tmp_path_factory.mktemp("paths"), NODES, PAIRS)


@pytest.fixture(scope="module")
def steps(graph: Graph) -> list[Step]:
    edges = plain_graph(graph)["edges"]["Knows"]
    return [(each["src"], each["dst"], each["id"]) for each in edges]


def walks(steps: list[Step], start: str) -> Iterator[tuple[list[str], list[str]]]:
    """Every walk of at most the longest length, as nodes and edges."""
    pending: list[tuple[list[str], list[str]]] = [([start], [])]
    while pending:
        nodes, edges = pending.pop()
        if edges:
            yield nodes, edges
        if len(edges) < LONGEST:
            for source, target, edge in steps:
                if source == nodes[-1] and target not in nodes:
                    pending.append(([*nodes, target], [*edges, edge]))


def smallest(steps: list[Step]) -> list[Found]:
    """Of all shortest paths between two nodes the smallest; loops are paths of their own."""
    best: dict[tuple[str, str], tuple[int, list[str], list[str]]] = {}
    for start in map(str, range(NODES)):
        loops = [([start, start], [edge]) for one, other, edge in steps if one == other == start]
        for nodes, edges in (*walks(steps, start), *loops):
            candidate = (len(edges), nodes, edges)
            known = best.get((start, nodes[-1]))
            if known is None or candidate < known:
                best[start, nodes[-1]] = candidate
    return sorted((*ends, *path) for ends, path in best.items())


def both_ways(steps: list[Step]) -> list[Step]:
    return [*steps, *((end, start, edge) for start, end, edge in steps if start != end)]


def found(graph: Graph, pattern: str, way: str) -> list[Found]:
    return sorted(rows(graph, f"match {{ {pattern} }} {RETURNED}", **WAYS[way]))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("low", [1, 3])
def test_a_path_is_the_smallest_of_the_shortest(
    graph: Graph, steps: list[Step], low: int, way: str
) -> None:
    pattern = f"$a: P  $a knows{{{low},{LONGEST}}} $b as $way"

    assert found(graph, pattern, way) == [each for each in smallest(steps) if each[2] >= low]


@pytest.mark.parametrize("way", WAYS)
def test_an_undirected_path_is_the_smallest_of_the_shortest(
    graph: Graph, steps: list[Step], way: str
) -> None:
    pattern = f'$a: P {{ k: "3" }}  $a <knows>{{1,{LONGEST}}} $b as $way'

    expected = [each for each in smallest(both_ways(steps)) if each[0] == "3"]
    assert found(graph, pattern, way) == expected


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ["0", "2", "11"])
def test_a_path_that_is_searched_from_its_end_is_the_same_path(
    graph: Graph, steps: list[Step], end: str, way: str
) -> None:
    pattern = f'$b: P {{ k: "{end}" }}  $a: P  $a knows{{1,{LONGEST}}} $b as $way'

    expected = [each for each in smallest(steps) if each[1] == end]
    assert found(graph, pattern, way) == expected


@pytest.mark.parametrize("way", WAYS)
def test_a_path_between_two_known_nodes_is_the_same_path(
    graph: Graph, steps: list[Step], way: str
) -> None:
    wanted = [each for each in smallest(steps) if each[2] == 3][:4]

    for each in wanted:
        pattern = (
            f'$a: P {{ k: "{each[0]}" }}  $b: P {{ k: "{each[1]}" }}  $a knows{{1,4}} $b as $way'
        )
        assert found(graph, pattern, way) == [each]
    assert wanted


@pytest.mark.parametrize("way", WAYS)
def test_a_row_without_a_path_has_nulls(graph: Graph, steps: list[Step], way: str) -> None:
    text = f"""match {{ $a: P  optional {{ $a knows{{2,{LONGEST}}} $b as $way  $b.n = 1 }} }}
        return {{ $a.k, length($way), nodes($way), edges($way) }} order {{ $a.k }}"""

    answer = rows(graph, text, **WAYS[way])

    known = {each[0]: each[2:] for each in smallest(steps) if each[1] == "1" and each[2] >= 2}
    nothing = (None, None, None)
    keys = sorted(map(str, range(NODES)))
    assert answer == [(key, *known.get(key, nothing)) for key in keys]
