"""Types with many properties: work grows with them, and nothing with their square."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from lance import LanceDataset

import omnigraph_lake as og
from omnigraph_lake.graph import Graph

pytestmark = pytest.mark.unit

ALL = 'query all() { match { $w: Wide { k: "r1" } } return { $w.* } }'


def made(root: str, properties: int) -> Graph:
    lines = [f"p{number}: I64?" for number in range(properties)]
    graph = og.init(root, schema="\n".join(["node Wide {", "k: String @key", *lines, "}"]))
    row = {f"p{number}": number for number in range(properties)}
    graph.write({"Wide": [{"k": f"r{number}", **row} for number in range(4)]})
    graph.branches.create("dev").write({"Wide": [{"k": "r1", "p1": -1}]}, mode="merge")
    return graph


VERBS: dict[str, Callable[[Graph], object]] = {
    "write": lambda graph: graph.write({"Wide": [{"k": "r1", "p2": -2}]}, mode="merge"),
    "query": lambda graph: graph.query(ALL).to_pylist(),
    "query of a tail": lambda graph: graph.checkout("dev").query(ALL).to_pylist(),
    "merge": lambda graph: graph.merge("dev"),
    "diff": lambda graph: graph.diff("main", "dev").tables["node:Wide"].rows().read_all(),
}


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_asks_lance_as_often_whatever_the_number_of_properties(
    graph_root: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Scanners cost a plan each, and a schema is converted whole each time it is read."""
    graphs = {size: made(f"{graph_root}-{size}", size) for size in (10, 60)}
    asked: Counter[str] = Counter()
    make_scanner, read_schema = LanceDataset.scanner, vars(LanceDataset)["schema"].fget

    def scanner(dataset: LanceDataset, *given: Any, **named: Any) -> Any:
        asked["scanner"] += 1
        return make_scanner(dataset, *given, **named)

    def schema(dataset: LanceDataset) -> Any:
        asked["schema"] += 1
        return read_schema(dataset)

    monkeypatch.setattr(LanceDataset, "scanner", scanner)
    monkeypatch.setattr(LanceDataset, "schema", property(schema))
    counts = {}
    for size, graph in graphs.items():
        asked.clear()
        VERBS[name](graph)
        counts[size] = dict(asked)

    assert counts[60] == counts[10]
    assert counts[10]["scanner"] > 0


def cpu_of(call: Callable[[], object]) -> float:
    begun = time.process_time()
    call()
    return time.process_time() - begun


@pytest.mark.nightly("CPU of 2,000 properties; the gate counts what is asked of Lance")
def test_a_merge_of_one_row_costs_what_the_number_of_properties_says(graph_root: str) -> None:
    costs = {}
    for size in (100, 2000):
        write = partial(VERBS["write"], made(f"{graph_root}-{size}", size))
        costs[size] = min(cpu_of(write) for _ in range(5))

    assert costs[2000] / 2000 <= 2 * costs[100] / 100, costs


@pytest.mark.nightly("CPU of 2,000 properties; the gate counts what is asked of Lance")
def test_a_first_query_by_key_costs_a_few_scans(graph_root: str) -> None:
    made(f"{graph_root}-imports", 2).query(ALL).to_pylist()
    costs: dict[str, list[float]] = {"query": [], "scan": []}
    for name in ("query", "scan") * 4:
        root = f"{graph_root}-{name}-{len(costs[name])}"  # read by nobody before
        made(root, 2000)

        def ask(name: str = name, root: str = root) -> None:
            graph = og.open(root, read_only=True)
            rows = graph.query(ALL) if name == "query" else graph.scan("Wide").read_all()
            rows.to_pylist()

        costs[name].append(cpu_of(ask))

    assert min(costs["query"]) <= 5 * min(costs["scan"]), costs
