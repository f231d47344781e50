"""Who is joined to whom, against plain lists of edges."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from omnigraph_lake.engine.access import adjacency as adjacency_module
from omnigraph_lake.engine.access.adjacency import (
    Adjacency,
    EdgeChanges,
    Patch,
    Steps,
    adjacency_of,
    patch_of,
    sorted_steps,
)
from omnigraph_lake.engine.run import Limits, Run
from omnigraph_lake.errors import QueryCancelledError
from omnigraph_lake.query.ast import EdgeDirection
from omnigraph_lake.query.binding import BoundParameters
from omnigraph_lake.schema.compile import compile_schema
from tests.drawing import seeds
from tests.query.evaluator import EPOCH

pytestmark = pytest.mark.unit

NODES = 12
DIRECTIONS = list(EdgeDirection)
CATALOG = compile_schema("node P { k: String @key }", filename="p.pg", identity_domain="test")


class Portions(Limits):
    """Limits with portions of a given size."""

    @property
    def portion_rows(self) -> int:
        return self.memory_bytes


def run_of_portions(rows: int) -> Run:
    parameters = BoundParameters(values={}, now=EPOCH)
    return Run(catalog=CATALOG, parameters=parameters, limits=Portions(memory_bytes=rows))


def ends(seed: str) -> list[tuple[int, int]]:
    """Edges with parallels, loops and ends that do not exist."""
    generator = random.Random(seed)
    return [
        (generator.randrange(-1, NODES), generator.randrange(-1, NODES))
        for _ in range(generator.choice([0, 1, 5, 60]))
    ]


def plain_steps(
    edges: list[tuple[int, int]], direction: EdgeDirection
) -> Iterator[tuple[int, int, int]]:
    """From, to and edge of every step."""
    for edge, (source, target) in enumerate(edges):
        if source < 0 or target < 0:
            continue
        if direction is not EdgeDirection.BACKWARD:
            yield source, target, edge
        if direction is EdgeDirection.BACKWARD or (
            direction is EdgeDirection.EITHER and source != target
        ):
            yield target, source, edge


def made(edges: list[tuple[int, int]], direction: EdgeDirection, *, distinct: bool) -> Adjacency:
    sources = np.array([source for source, _ in edges], dtype=np.int64)
    targets = np.array([target for _, target in edges], dtype=np.int64)
    steps = sorted_steps(sources, targets, direction)
    return adjacency_of(*steps, nodes=NODES, distinct=distinct)


@pytest.mark.random
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("seed", seeds("adjacency", 6))
def test_every_step_is_there_once(seed: str, direction: EdgeDirection) -> None:
    edges = ends(seed)
    nodes = np.arange(NODES, dtype=np.int64)

    adjacency = made(edges, direction, distinct=False)
    owners, reached, places = adjacency.steps(nodes)

    found = list(
        zip(owners.tolist(), reached.tolist(), adjacency.edges_at(places).tolist(), strict=True)
    )
    assert sorted(found) == sorted(plain_steps(edges, direction))
    assert [each[:2] for each in found] == sorted(each[:2] for each in found)


@pytest.mark.random
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("seed", seeds("adjacency", 6))
def test_distinct_ends_count_once_by_one_of_their_edges(
    seed: str, direction: EdgeDirection
) -> None:
    edges = ends(seed)
    steps = set(plain_steps(edges, direction))

    adjacency = made(edges, direction, distinct=True)
    owners, reached, places = adjacency.steps(np.arange(NODES, dtype=np.int64))

    pairs = list(zip(owners.tolist(), reached.tolist(), strict=True))
    assert pairs == sorted({(start, end) for start, end, _ in steps})
    by = adjacency.edges_at(places).tolist()
    assert {(*pair, edge) for pair, edge in zip(pairs, by, strict=True)} <= steps


@pytest.mark.random
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("asked", [[3], [3, 3, 0], list(range(NODES))], ids=["one", "some", "all"])
@pytest.mark.parametrize("seed", seeds("adjacency", 3))
def test_degrees_are_the_numbers_of_steps(
    seed: str, asked: list[int], direction: EdgeDirection
) -> None:
    edges = ends(seed)
    wanted = np.arange(NODES) % 3 == 0
    steps = list(plain_steps(edges, direction))
    nodes = np.array(asked, dtype=np.int64)

    adjacency = made(edges, direction, distinct=False)

    degrees = [sum(start == each for start, _, _ in steps) for each in asked]
    assert adjacency.degrees(nodes).tolist() == degrees
    within = [sum(start == each and end % 3 == 0 for start, end, _ in steps) for each in asked]
    assert adjacency.degrees_within(nodes, wanted).tolist() == within


def test_nodes_without_edges_have_no_steps() -> None:
    adjacency = made([], EdgeDirection.EITHER, distinct=True)

    owners, reached, places = adjacency.steps(np.arange(NODES, dtype=np.int64))

    assert len(owners) == len(reached) == len(places) == 0
    assert adjacency.degrees(np.arange(NODES, dtype=np.int64)).tolist() == [0] * NODES


def test_positions_beyond_32_bits_are_kept() -> None:
    start, end, edge = (np.array([each], dtype=np.int64) for each in (0, 2**33, 2**34))

    adjacency = adjacency_of(start, end, edge, nodes=1, distinct=False)

    _, reached, places = adjacency.steps(np.array([0]))
    assert (reached.tolist(), adjacency.edges_at(places).tolist()) == ([2**33], [2**34])


@pytest.mark.random
@pytest.mark.parametrize("at_once", [1, 7, 10_000])
@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("seed", seeds("adjacency", 6))
def test_what_is_reached_is_where_steps_lead_to_each_once(
    seed: str, counted: bool, at_once: int
) -> None:
    edges = ends(seed)
    adjacency = made(edges, EdgeDirection.FORWARD, distinct=False)
    if counted:
        arrivals = np.bincount(adjacency.ends, minlength=NODES)
        adjacency = replace(adjacency, arrivals=arrivals)
    generator = random.Random(seed)
    starts = generator.sample(range(NODES), k=generator.randint(1, NODES))

    found = adjacency.reached(np.array(starts), run_of_portions(at_once))

    steps = plain_steps(edges, EdgeDirection.FORWARD)
    assert found.tolist() == sorted({end for start, end, _ in steps if start in starts})
    assert found.dtype == np.int64


def test_a_search_that_was_cancelled_stops_before_the_next_nodes() -> None:
    adjacency = made([(0, 1)], EdgeDirection.FORWARD, distinct=False)
    run = run_of_portions(1)
    run.cancel()

    with pytest.raises(QueryCancelledError):
        adjacency.reached(np.array([0]), run)


@pytest.mark.random
@pytest.mark.parametrize("sought", [0, 2, 4_096])
@pytest.mark.parametrize("seed", seeds("patched", 4))
def test_changed_nodes_have_their_steps_however_they_are_sought(
    seed: str, sought: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adjacency_module, "_SOUGHT_MOST", sought)
    generator = random.Random(seed)
    edges = [pair for pair in ends(seed) if -1 not in pair]
    more = [(generator.randrange(NODES), generator.randrange(NODES)) for _ in range(4)]
    base = adjacency_in(edges)
    added = Steps(
        np.array([start for start, _ in more]),
        np.array([end for _, end in more]),
        np.arange(len(edges), len(edges) + len(more)),
    )
    nothing = np.zeros(0, dtype=np.int64)
    changes = EdgeChanges(removed=Steps(nothing, nothing, nothing), added=added)
    patched = replace(base, patch=patch_of(base, changes, EdgeDirection.FORWARD, distinct=None))
    expected = adjacency_in([*edges, *more])
    asked = [
        list(range(NODES)),
        sorted(generator.sample(range(NODES), 5)),
        [generator.randrange(NODES) for _ in range(NODES)],
        [],
    ]

    for nodes in (np.array(each, dtype=np.int64) for each in asked):
        assert patched.degrees(nodes).tolist() == expected.degrees(nodes).tolist()
        owners, reached, _ = patched.steps(nodes)
        expected_owners, expected_ends, _ = expected.steps(nodes)
        assert owners.tolist() == expected_owners.tolist()
        assert reached.tolist() == expected_ends.tolist()


def adjacency_in(edges: list[tuple[int, int]]) -> Adjacency:
    """The steps of edges, forward."""
    sources, targets = (np.array([pair[end] for pair in edges], dtype=np.int64) for end in (0, 1))
    steps = sorted_steps(sources, targets, EdgeDirection.FORWARD)
    return adjacency_of(*steps, nodes=NODES, distinct=False)


def test_an_earlier_version_counts_no_arrivals_at_nodes_that_it_does_not_have() -> None:
    """Node 2 and the edges to it came later than what is asked; the arrays have them."""
    patch = Patch(
        nodes=np.array([0]),
        offsets=np.array([0, 1]),
        ends=np.array([1]),
        edges=np.array([0]),
        replaced_ends=np.array([1, 2, 2]),
    )
    later = Adjacency(
        offsets=np.array([0, 3, 3, 3]),
        ends=np.array([1, 2, 2]),
        edges=np.array([0, 1, 2]),
        arrivals=np.array([0, 1, 2]),
    )

    earlier = replace(later, patch=patch, start_size=2, end_size=2).arrival_counts
    larger = replace(later, end_size=4).arrival_counts

    assert earlier is not None
    assert larger is not None
    assert (earlier.tolist(), larger.tolist()) == ([0, 1], [0, 1, 2, 0])
