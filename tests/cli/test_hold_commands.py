"""Holds at the command line."""

from __future__ import annotations

import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from tests.cli.commands import answer, run

pytestmark = pytest.mark.unit


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema="node Person { name: String @key  age: I32? }")
    graph.write({"Person": [{"name": "Ann", "age": 1}]})
    return graph


def test_holds_are_listed_counted_and_released(graph: Graph) -> None:
    view = graph.snapshot(hold="1h")
    for age in range(2, 6):
        graph.write({"Person": [{"name": "Ann", "age": age}]}, mode="merge")

    (hold,) = answer("hold", "list", graph.root)["holds"]
    assert (hold["commit_id"], hold["purpose"]) == (view.commit_id, "view")
    assert hold["hold_id"] in run("hold", "list", graph.root).stdout
    assert "1 hold of readers" in run("status", graph.root).stderr
    assert len(answer("status", graph.root)["holds"]) == 1
    preview = run("cleanup", graph.root, "--keep", "3").stdout
    assert "kept 1 version for 1 reader, the last until" in preview

    assert answer("hold", "release", graph.root, hold["hold_id"]) == {"released": hold["hold_id"]}
    assert answer("hold", "list", graph.root) == {"holds": []}
    again = run("hold", "release", graph.root, hold["hold_id"])
    assert (again.returncode, "hold list" in again.stderr) == (3, True)
    assert "reader, the last" not in run("cleanup", graph.root, "--keep", "3").stdout
