"""One hop and chains of hops over edges that are parallel, loops, undirected or without an end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omnigraph_lake.engine.run import PORTION_ROWS_LEAST, Limits
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.snapshot import Snapshot
from tests.engine.small_graphs import as_bag, numbered_graph, random_pairs, rows
from tests.query.differential import LIMITS, NARROW

pytestmark = pytest.mark.unit

NODES = 40
PAIRS = random_pairs("expansion", NODES, 120)
WAYS: dict[str, dict[str, Any]] = {
    "in memory": {"access": "resident"},
    "looked up": {"access": "probe"},
    "in portions of two": {"access": "resident", "limits": NARROW},
    "looked up in portions": {"access": "probe", "limits": NARROW},
}
LITTLE = Limits(memory_bytes=16 << 20, seconds=60)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return numbered_graph(tmp_path_factory.mktemp("expansion"), NODES, PAIRS)


@pytest.fixture(params=WAYS, scope="module")
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    return WAYS[request.param]


def either(pairs: list[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Every edge both ways, a loop once."""
    for place, (start, end) in enumerate(pairs):
        yield start, end, place
        if start != end:
            yield end, start, place


def test_without_an_edge_variable_a_node_is_reached_once(graph: Graph, way: dict[str, Any]) -> None:
    found = rows(graph, "match { $a: P  $a knows $b } return { $a.n, $b.n }", **way)

    assert sorted(found) == sorted(set(PAIRS))


def test_with_an_edge_variable_every_edge_is_a_row(graph: Graph, way: dict[str, Any]) -> None:
    found = rows(graph, "match { $a: P  $a $e: knows $b } return { $a.n, $b.n, $e.w }", **way)

    assert sorted(found) == sorted((*pair, place) for place, pair in enumerate(PAIRS))


def test_undirected_edges_lead_both_ways_and_loops_once(graph: Graph, way: dict[str, Any]) -> None:
    found = rows(graph, "match { $a: P  $a $e: <knows> $b } return { $a.n, $b.n, $e.w }", **way)

    assert sorted(found) == sorted(either(PAIRS))


def test_undirected_neighbours_count_once(graph: Graph, way: dict[str, Any]) -> None:
    found = rows(graph, "match { $a: P  $a <knows> $b } return { $a.n, count($b) }", **way)

    neighbours = {(start, end) for start, end, _ in either(PAIRS)}
    assert dict(found) == Counter(start for start, _ in neighbours)


def test_loops_are_found_by_one_variable_at_both_ends(graph: Graph, way: dict[str, Any]) -> None:
    found = rows(graph, "match { $a: P  $a $e: knows $a } return { $a.n, $e.w }", **way)

    loops = [(start, place) for place, (start, end) in enumerate(PAIRS) if start == end]
    assert sorted(found) == sorted(loops)
    assert loops


@pytest.mark.parametrize("hops", [2, 3])
def test_walks_are_counted_as_they_are_listed(graph: Graph, way: dict[str, Any], hops: int) -> None:
    steps = " ".join(f"$v{each} $e{each}: knows $v{each + 1}" for each in range(hops))
    pattern = f'match {{ $v0: P {{ k: "3" }} {steps} }}'
    walks: Counter[int] = Counter({3: 1})
    for _ in range(hops):
        further: Counter[int] = Counter()
        for start, end in PAIRS:
            further[end] += walks[start]
        walks = further

    counted = rows(graph, f"{pattern} return {{ count(*) }}", **way)
    grouped = rows(graph, f"{pattern} return {{ $v{hops}.n, count(*) }}", **way)

    assert counted == [(walks.total(),)]
    assert dict(grouped) == {node: count for node, count in walks.items() if count}


def test_a_condition_on_the_end_is_about_the_end(graph: Graph, way: dict[str, Any]) -> None:
    pattern = "match { $a: P  $a $e: knows $b  $b.n > 5 }"

    listed = rows(graph, f"{pattern} return {{ $a.n, $b.n }}", **way)
    counted = rows(graph, f"{pattern} return {{ $a.n, count(*) }}", **way)

    expected = [pair for pair in PAIRS if pair[1] > 5]
    assert sorted(listed) == sorted(expected)
    assert dict(counted) == Counter(start for start, _ in expected)


def test_both_ends_known_keeps_the_edges_between_them(graph: Graph, way: dict[str, Any]) -> None:
    near = "$a.n < 6  $b.n < 6  $c.n < 6"
    text = f"match {{ $a: P  $b: P  $a $e: knows $b  $c: P  $b.n = $c.n  {near} }}"

    found = rows(graph, f"{text} return {{ $a.n, $c.n }}", **way)

    assert sorted(found) == sorted(pair for pair in PAIRS if max(pair) < 6)
    assert found


# Edges whose ends are not there


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, Snapshot]:
    """A snapshot whose nodes are older than its edges, as a damaged graph would have."""
    graph = numbered_graph(tmp_path_factory.mktemp("half"), 3, [(0, 1), (1, 2)])
    before = graph.snapshot()
    graph.write(
        {
            "node:P": [{"k": "3", "n": 3}],
            "edge:Knows": [
                {"src": "0", "dst": "3", "w": 2},
                {"src": "3", "dst": "1", "w": 3},
                {"src": "3", "dst": "3", "w": 4},
            ],
        }
    )
    tables = {**graph.snapshot().tables, "node:P": before.tables["node:P"]}
    return graph, replace(graph.snapshot().pinned, tables=tables)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('match { $a: P { k: "0" } $a knows $b } return { $b.k }', [("1",)]),
        ('match { $a: P { k: "0" } $a $e: knows $b } return { $e.w }', [(0,)]),
        ('match { $a: P { k: "0" } $a knows $b } return { count(*) }', [(1,)]),
        ('match { $b: P { k: "1" } $a knows $b } return { $a.k }', [("0",)]),
        ('match { $b: P { k: "1" } $b <knows> $a } return { $a.k }', [("0",), ("2",)]),
        ('match { $a: P { k: "0" } $a knows{1,3} $b } return { $b.k }', [("1",), ("2",)]),
        ('match { $a: P { k: "0" } $a knows{1,3} $b as $w } return { length($w) }', [(1,), (2,)]),
        ('match { $a: P { k: "0" } not { $a knows $b  $b.n is null } } return { $a.k }', [("0",)]),
    ],
)
def test_an_edge_without_an_end_leads_nowhere_in_memory(
    half: tuple[Graph, Snapshot], text: str, expected: list[Any]
) -> None:
    graph, snapshot = half

    assert as_bag(rows(graph, text, snapshot=snapshot, access="resident")) == expected


# Portions


def test_little_memory_means_small_portions() -> None:
    assert LITTLE.portion_rows == PORTION_ROWS_LEAST
    assert LIMITS.portion_rows > PORTION_ROWS_LEAST
    assert Limits(memory_bytes=1 << 50).portion_rows == Limits(memory_bytes=1 << 40).portion_rows


def test_a_node_with_more_edges_than_a_portion_is_followed_in_parts(tmp_path: Path) -> None:
    fan = 3 * PORTION_ROWS_LEAST + 5
    pairs = [(0, 1 + each % 7) for each in range(fan)]
    graph = numbered_graph(tmp_path, 8, pairs)
    text = 'match { $a: P { k: "0" } $a $e: knows $b } return { $e.w, $b.n }'

    found = rows(graph, text, access="resident", limits=LITTLE)
    counted = rows(graph, "match { $a: P  $a $e: knows $b } return { $b.n, count(*) }")

    assert sorted(found) == [(place, end) for place, (_, end) in enumerate(pairs)]
    assert dict(counted) == Counter(end for _, end in pairs)
