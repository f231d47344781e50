"""Counts: exact, and of different entities however the rows came about."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import QueryFailedError
from omnigraph_lake.graph import Graph
from tests.engine.small_graphs import rows
from tests.query.differential import LIMITS, NARROW
from tests.stores import root_at

pytestmark = [pytest.mark.unit, pytest.mark.sampled(2)]

LOOPS = 1024
SCHEMA = """
interface Thing { x: I32? }
node A implements Thing { k: String @key }
node B implements Thing { k: String @key }
node C implements Thing { k: String @key }
node P { k: String @key  n: I32? }
edge Loop: P -> P
edge Of: A -> P
"""


def graph_of(folder: Path, **things: int) -> Graph:
    """So many of each thing; p0 has very many loops and leads to p1, p1 to p2."""
    graph = og.init(root_at(folder / "graph"), schema=SCHEMA)
    graph.write(
        {
            **{
                f"node:{name}": [{"k": f"{name}{each}", "x": each} for each in range(count)]
                for name, count in things.items()
            },
            "node:P": [{"k": f"p{each}", "n": 5 + each} for each in range(3)],
            "edge:Loop": [
                *({"src": "p0", "dst": "p0"} for _ in range(LOOPS)),
                {"src": "p0", "dst": "p1"},
                *({"src": "p1", "dst": "p2"} for _ in range(4 * LOOPS)),
            ],
        }
    )
    return graph


@pytest.fixture(scope="module")
def one_kind(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return graph_of(tmp_path_factory.mktemp("one"), A=2)


@pytest.fixture(scope="module")
def three_kinds(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return graph_of(tmp_path_factory.mktemp("three"), A=3, B=3, C=3)


def hops(count: int) -> str:
    steps = " ".join(f"$v{each} $e{each}: loop $v{each + 1}" for each in range(count))
    return f'$v0: P {{ k: "p0" }} {steps}'


def walks(count: int) -> int:
    """How many walks of that many edges start at p0."""
    at = {"p0": 1, "p1": 0, "p2": 0}
    for _ in range(count):
        at = {"p0": at["p0"] * LOOPS, "p1": at["p0"], "p2": at["p1"] * 4 * LOOPS}
    return sum(at.values())


PATTERNS = [
    "$a: Thing",
    "$a: Thing  $c: P",
    "$a: Thing  $c: P  $a.x < $c.n",
    "$a: Thing  $c: P  $a.x < $c.n  $d: P",
    "$d: P  $a: Thing  $c: P  $a.x < $c.n",
    "$a: Thing  $c: P  $d: P  $a.x < $c.n  $d loop $e",
    "$a: Thing  $d: Thing  $c: P  $a.x < $c.n  $d.x < $c.n",
    "$a: Thing  $c: P  $a.x < $c.n  optional { $c loop $d  $d.n > 5 }",
]


@pytest.mark.parametrize("limits", [LIMITS, NARROW], ids=["whole", "portions"])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("kinds", ["one_kind", "three_kinds"])
def test_different_entities_are_counted_once(
    kinds: str, pattern: str, limits: Any, request: pytest.FixtureRequest
) -> None:
    graph: Graph = request.getfixturevalue(kinds)
    listed = rows(graph, f"match {{ {pattern} }} return {{ $a }}", limits=limits)
    text = f"match {{ {pattern} }} return {{ count(distinct $a), count(*) }}"

    found = rows(graph, text, limits=limits)

    different = {(each["type"], each["id"]) for (each,) in listed}
    assert found == [(len(different), len(listed))]
    assert rows(graph, f"match {{ {pattern} }} return {{ count(distinct $a) }}", limits=limits) == [
        (len(different),)
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6])
def test_counts_are_exact_as_long_as_they_fit(one_kind: Graph, count: int) -> None:
    found = rows(one_kind, f"match {{ {hops(count)} }} return {{ count(*) }}")

    assert found == [(walks(count),)]
    assert count < 6 or walks(count) > 2**60


@pytest.mark.parametrize("count", [5, 6])
def test_groups_are_counted_exactly_too(one_kind: Graph, count: int) -> None:
    found = rows(one_kind, f"match {{ {hops(count)} }} return {{ $v{count}.k, count(*) }}")

    assert dict(found)["p0"] == LOOPS**count
    assert sum(each for _, each in found) == walks(count)


RESULTS = ["count(*)", "count(*), count(distinct $v6)", "$v6.k, count(*)", "sum($v6.n)"]


@pytest.mark.parametrize(
    ("more", "result"),
    [
        *itertools.product(["$i: Thing"], RESULTS),
        *itertools.product(["$i: Thing  $j: Thing  $k: Thing"], RESULTS),
    ],
)
def test_a_count_that_does_not_fit_is_an_error(three_kinds: Graph, more: str, result: str) -> None:
    """One thing more: every part of the pattern fits, all of them together do not."""
    assert 9 * walks(6) > 2**63

    with pytest.raises(QueryFailedError, match="64 bits"):
        rows(three_kinds, f"match {{ {more}  {hops(6)} }} return {{ {result} }}")


def test_nothing_is_counted_as_zero(tmp_path: Path) -> None:
    graph = graph_of(tmp_path)

    for text in ("count(*)", "count($a)", "count(distinct $a)", "count(distinct $a.x)"):
        assert rows(graph, f"match {{ $a: Thing }} return {{ {text} }}") == [(0,)]
