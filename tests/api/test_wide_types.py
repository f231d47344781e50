"""Types with many properties: work grows with them, and nothing with their square."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
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
