"""Many hops against a plain search from every start."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from omnigraph_lake.engine.run import Limits
from omnigraph_lake.errors import QueryBudgetError
from omnigraph_lake.graph import Graph
from tests.engine.small_graphs import Pairs, numbered_graph, random_pairs, rows
from tests.query.differential import LIMITS

pytestmark = [pytest.mark.unit, pytest.mark.sampled(3)]

NODES = 300
PAIRS = random_pairs("breadth first", NODES, 500)
BOUNDS: list[tuple[int, int | None]] = [
    *((1, 1), (1, 2), (2, 3), (2, 6), (4, 9)),
    *((0, 2), (0, None), (1, None), (5, None)),
]


class Portions(Limits):
    """Levels of more than fifty steps are searched in halves."""

    @property
    def portion_rows(self) -> int:
        return 50


SMALL = Portions(memory_bytes=1 << 30, seconds=60)
WAYS: dict[str, dict[str, Any]] = {
    "in memory": {"access": "resident", "limits": LIMITS},
    "in halves": {"access": "resident", "limits": SMALL},
    "looked up": {"access": "probe", "limits": LIMITS},
    "looked up in halves": {"access": "probe", "limits": SMALL},
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return numbered_graph(tmp_path_factory.mktemp("breadth"), NODES, PAIRS)


def distances(pairs: Pairs, start: int) -> dict[int, int]:
    """The smallest distance of every node; the start has one if it has a loop."""
    following = defaultdict(set)
    for source, target in pairs:
        following[source].add(target)
    found = {start: 1} if start in following[start] else {}
    seen, level, distance = {start}, {start}, 0
    while level:
        distance += 1
        level = {end for node in level for end in following[node]} - seen
        seen |= level
        found |= dict.fromkeys(level, distance)
    return found


def expected(pairs: Pairs, bounds: tuple[int, int | None]) -> list[tuple[int, int]]:
    low, high = bounds
    return sorted(
        (start, end)
        for start in range(NODES)
        for end, distance in (distances(pairs, start) | ({start: 0} if low == 0 else {})).items()
        if low <= distance <= (NODES if high is None else high)
    )


def both_ways(pairs: Pairs) -> Pairs:
    return [*pairs, *((end, start) for start, end in pairs)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_every_start_reaches_what_is_within_the_bounds(
    graph: Graph, bounds: tuple[int, int | None], way: str
) -> None:
    low, high = bounds
    hops = f"{{{low},{'' if high is None else high}}}"
    text = f"match {{ $a: P  $a knows{hops} $b }} return {{ $a.n, $b.n }}"

    assert sorted(rows(graph, text, **WAYS[way])) == expected(PAIRS, bounds)


@pytest.mark.parametrize("way", WAYS)
def test_an_undirected_search_goes_both_ways(graph: Graph, way: str) -> None:
    text = "match { $a: P  $a <knows>{2,3} $b  $a.n < 60 } return { $a.n, $b.n }"

    found = rows(graph, text, **WAYS[way])

    assert sorted(found) == [each for each in expected(both_ways(PAIRS), (2, 3)) if each[0] < 60]


@pytest.mark.parametrize("way", WAYS)
def test_a_search_to_a_known_end_is_the_same_search(graph: Graph, way: str) -> None:
    text = 'match { $b: P { k: "7" }  $a: P  $a knows{1,4} $b } return { $a.n }'

    found = rows(graph, text, **WAYS[way])

    assert sorted(found) == [(start,) for start, end in expected(PAIRS, (1, 4)) if end == 7]


@pytest.mark.parametrize("way", WAYS)
def test_conditions_are_about_the_node_that_is_reported(graph: Graph, way: str) -> None:
    text = "match { $a: P  $a knows{1,3} $b  $b.n > 250  $a.n < 50 } return { $a.n, $b.n }"

    found = rows(graph, text, **WAYS[way])

    assert sorted(found) == [
        (start, end) for start, end in expected(PAIRS, (1, 3)) if start < 50 and end > 250
    ]


@pytest.mark.parametrize("way", WAYS)
def test_rows_that_share_a_start_each_have_its_nodes(graph: Graph, way: str) -> None:
    text = """match { $x: P  $x $e: knows $a  $a knows{2,2} $b  $x.n < 20 }
        return { $x.n, $e.w, $b.n }"""
    reached = expected(PAIRS, (2, 2))

    found = rows(graph, text, **WAYS[way])

    assert sorted(found) == sorted(
        (source, place, end)
        for place, (source, target) in enumerate(PAIRS)
        for start, end in reached
        if source < 20 and start == target
    )


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_counted_as_they_are_listed(graph: Graph, way: str) -> None:
    found = rows(graph, "match { $a: P  $a knows{1,3} $b } return { count(*) }", **WAYS[way])

    assert found == [(len(expected(PAIRS, (1, 3))),)]


def test_one_start_with_more_steps_than_a_portion_is_searched_alone(tmp_path: Path) -> None:
    middle = range(1, 201)
    pairs = [(0, each) for each in middle] + [(each, 201 + each % 30) for each in middle]
    graph = numbered_graph(tmp_path, 231, pairs)
    text = "match { $a: P  $a knows{1,2} $b as $way } return { $a.n, $b.n, length($way) }"

    found = rows(graph, text, access="resident", limits=SMALL)

    from_middle = [(each, 201 + each % 30, 1) for each in middle]
    far = [(0, each, 2) for each in range(201, 231)]
    assert sorted(found) == sorted([*((0, each, 1) for each in middle), *far, *from_middle])


@pytest.mark.parametrize("way", ["in memory", "looked up"])
def test_a_search_without_a_maximum_ends_in_a_cycle(tmp_path: Path, way: str) -> None:
    # One lookup per hop costs some milliseconds of CPU, so the cycle that is looked up is shorter.
    length = 1500 if way == "in memory" else 200
    graph = numbered_graph(
        tmp_path, length, [(node, (node + 1) % length) for node in range(length)]
    )
    text = (
        'match { $a: P { k: "3" }  $a knows{1,} $b as $way } return { max(length($way)), count(*) }'
    )

    assert rows(graph, text, **WAYS[way]) == [(length - 1, length - 1)]


def test_a_search_that_does_not_fit_into_memory_is_an_error(tmp_path: Path) -> None:
    length = 1500
    graph = numbered_graph(tmp_path, length, [(node, node + 1) for node in range(length - 1)])
    text = 'match { $a: P { k: "0" }  $a knows{1,} $b as $way } return { length($way) }'

    with pytest.raises(QueryBudgetError, match="a search of many hops"):
        rows(graph, text, limits=Limits(memory_bytes=4 << 20, seconds=60))
