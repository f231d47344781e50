"""A manifest that was read before is never taken for another one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import omnigraph
from omnigraph.graph import Graph
from omnigraph.storage import manifest
from omnigraph.storage.location import parse_root
from omnigraph.storage.manifest import create_manifest, read_manifest, swap_manifest
from omnigraph.storage.manifest_rows import GraphHead
from tests.stores import folder_of

pytestmark = pytest.mark.unit

SCHEMA = "node P { k: String @key }"
OTHER_SCHEMA = "node Q { k: String @key }"


def head(sequence: int) -> GraphHead:
    return GraphHead(
        branch=None, sequence=sequence, commit_id="c", incarnation="i", schema_hash="h"
    )


def keys(graph: Graph) -> list[str]:
    return sorted(graph.nodes("P", columns=["k"]).read_all()["k"].to_pylist())


def test_reading_again_gives_the_same_state(graph_root: str) -> None:
    root = parse_root(graph_root)
    create_manifest(root, [head(1)], operation_id="init")

    first, second = read_manifest(root), read_manifest(root)

    assert first == second
    assert second.handle is not first.handle
    assert swap_manifest(second, [head(2)], operation_id="op").name == "ACCEPTED"
    assert read_manifest(root).rows == (head(2),)


def test_what_another_process_published_is_seen_at_once(graph_root: str) -> None:
    graph = omnigraph.init(graph_root, schema=SCHEMA)
    assert keys(graph) == []
    text = f"""
import omnigraph
graph = omnigraph.open({graph_root!r}, mode="rw")
for each in ("a", "b"):
    graph.write({{"node:P": [{{"k": each}}]}})
"""

    subprocess.run([sys.executable, "-c", text], check=True)

    assert keys(omnigraph.open(graph_root)) == ["a", "b"]
    assert keys(graph) == ["a", "b"]


def test_a_graph_made_again_at_the_same_place_is_another(graph_root: str) -> None:
    graph = omnigraph.init(graph_root, schema=SCHEMA)
    graph.write({"node:P": [{"k": "old"}]})
    version = read_manifest(parse_root(graph_root)).version
    assert keys(omnigraph.open(graph_root)) == ["old"]

    shutil.rmtree(folder_of(graph_root))
    again = omnigraph.init(graph_root, schema=SCHEMA)
    again.write({"node:P": [{"k": "new"}]})

    assert read_manifest(parse_root(graph_root)).version == version
    assert keys(omnigraph.open(graph_root)) == ["new"]
    found = omnigraph.open(graph_root).query("query q() { match { $p: P } return { $p.k } }")
    assert found.to_pylist() == [{"p.k": "new"}]


def test_an_empty_graph_made_again_with_another_schema_is_another(graph_root: str) -> None:
    omnigraph.init(graph_root, schema=SCHEMA)
    assert list(omnigraph.open(graph_root).catalog.nodes) == ["P"]

    shutil.rmtree(folder_of(graph_root))
    omnigraph.init(graph_root, schema=OTHER_SCHEMA)

    assert list(omnigraph.open(graph_root).catalog.nodes) == ["Q"]


def test_a_graph_that_was_moved_away_is_gone(graph_root: str) -> None:
    omnigraph.init(graph_root, schema=SCHEMA)
    read_manifest(parse_root(graph_root))

    shutil.move(folder_of(graph_root), folder_of(f"{graph_root}-away"))

    with pytest.raises(omnigraph.errors.NotFoundError):
        read_manifest(parse_root(graph_root))


def test_a_branch_made_again_is_another(graph_root: str) -> None:
    graph = omnigraph.init(graph_root, schema=SCHEMA)
    first = graph.create_branch("side")
    first.write({"node:P": [{"k": "old"}]})
    assert keys(omnigraph.open(graph_root).branch("side")) == ["old"]

    graph.delete_branch("side")
    second = graph.create_branch("side")
    assert keys(omnigraph.open(graph_root).branch("side")) == []
    second.write({"node:P": [{"k": "new"}]})

    assert keys(omnigraph.open(graph_root).branch("side")) == ["new"]
    assert keys(graph) == []


def test_branches_are_remembered_apart(graph_root: str) -> None:
    graph = omnigraph.init(graph_root, schema=SCHEMA)
    sides = [graph.create_branch(name) for name in ("one", "two")]
    for each in sides:
        each.write({"node:P": [{"k": each.branch_name}]})

    for _ in range(2):
        assert [keys(each) for each in (graph, *sides)] == [[], ["one"], ["two"]]


def test_few_manifests_are_remembered(tmp_path: Path) -> None:
    roots = [parse_root(str(tmp_path / f"graph{each}")) for each in range(20)]
    for number, root in enumerate(roots):
        create_manifest(root, [head(number)], operation_id="init")
        read_manifest(root)

    assert len(manifest._KNOWN) <= 16
    assert [read_manifest(root).rows for root in roots] == [(head(each),) for each in range(20)]
