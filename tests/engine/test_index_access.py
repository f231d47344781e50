"""Looking things up finds what tables in memory would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph_lake.engine import query
from omnigraph_lake.engine.access import access_path
from omnigraph_lake.engine.access.column_cache import shared_cache
from omnigraph_lake.graph import Graph
from tests.engine.small_graphs import as_bag, numbered_graph, random_pairs, rows
from tests.query.differential import LIMITS, NARROW

pytestmark = [pytest.mark.unit, pytest.mark.sampled(3)]

NODES = 60
PATTERNS = [
    "$a: P { k: $k }  $a knows $b",
    "$a: P { k: $k }  $a $e: knows $b",
    "$a: P { k: $k }  $a knows $b  $b knows $c",
    "$a: P { k: $k }  $b knows $a  $c knows $b",
    "$a: P { k: $k }  $a <knows> $b  $b <knows> $c  $c.n < 30",
    "$a: P { k: $k }  $a knows $b  $b knows $a",
    "$a: P { k: $k }  $a knows{1,3} $b",
    "$a: P { k: $k }  $a knows{2,3} $b as $way",
    '$a: P  $a.k in ["0", "3", "none"]  $a knows $b  $b.n >= 10',
    "$a: P { k: $k }  $a knows $b  not { $b knows $c  $c.n > 20 }",
    "$a: P { k: $k }  optional { $a knows $b  $b.n > 40 }",
    "$a: P { k: $k }  $a knows $b  optional { $b knows $c  $c.n > 30 }",
    '$a: P { k: $k }  $b: P { k: "1" }  $a knows{1,4} $b',
    "$a: P { k: $k }  $b: P  $b.n < 3",
    "$a: P { n: 0 }  $a knows $b  $b.n % 2 = 0",
]


@pytest.fixture(scope="module", params=["sparse", "dense", "optimized"])
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    edges = {"sparse": 120, "dense": 400, "optimized": 200}[request.param]
    pairs = random_pairs(request.param, NODES, edges)
    graph = numbered_graph(tmp_path_factory.mktemp("probing"), NODES, pairs)
    if request.param == "optimized":
        graph.maintenance.optimize()
    return graph


def returned(pattern: str) -> str:
    variables = [each for each in ("a", "b", "c") if f"${each}" in pattern.partition("not")[0]]
    columns = ", ".join(f"${each}.k, ${each}.n" for each in variables)
    edge = ", $e.w" if "$e" in pattern else ""
    way = ", nodes($way), edges($way)" if "$way" in pattern else ""
    return f"match {{ {pattern} }} return {{ {columns}{edge}{way} }}"


@pytest.mark.parametrize("limits", [LIMITS, NARROW], ids=["whole", "portions"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_lookups_find_what_tables_in_memory_do(graph: Graph, pattern: str, limits: Any) -> None:
    text = returned(pattern)
    some = 0
    for key in ("0", "7", "59", "none"):
        given = {"k": key} if "$k" in text else {}

        looked_up = rows(graph, text, access="probe", limits=limits, **given)
        in_memory = rows(graph, text, access="resident", limits=limits, **given)

        assert as_bag(looked_up) == as_bag(in_memory)
        some += len(looked_up)
    assert some


@pytest.mark.parametrize("result", ["$c.k, count(*)", "count(*)", "count(distinct $c)", "$b, $c"])
def test_results_are_the_same_too(graph: Graph, result: str) -> None:
    text = f'match {{ $a: P {{ k: "0" }} $a knows $b  $b $e: knows $c }} return {{ {result} }}'

    looked_up = rows(graph, text, access="probe")

    assert as_bag(looked_up) == as_bag(rows(graph, text, access="resident"))


@pytest.mark.parametrize("most", [1, 5, 40, 10_000])
@pytest.mark.parametrize("tail", ["", "order { $c.n desc, $b.n }"], ids=["rows", "ordered"])
def test_meeting_too_much_changes_nothing_in_the_answer(
    tmp_path: Path, tail: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small portions: much has been seen when the bound is met, inside of a statement too."""
    graph = numbered_graph(tmp_path, NODES, random_pairs(f"much {most}", NODES, 300))
    text = f'match {{ $a: P {{ k: "0" }} $a knows $b  $b knows $c }} return {{ $b.n, $c.n }} {tail}'
    monkeypatch.setattr(access_path, "_SMALL_ROWS", 0)
    monkeypatch.setattr(query, "MET_MOST", most)

    found = rows(graph, text, limits=NARROW)

    in_memory = rows(graph, text, access="resident")
    assert as_bag(found) == as_bag(in_memory)
    if tail:
        assert [each[1] for each in found] == [each[1] for each in in_memory]
    shared_cache().clear()
