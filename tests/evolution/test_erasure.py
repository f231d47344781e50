"""A hard drop erases values, or names what still holds them."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from tests.cli.commands import run

pytestmark = pytest.mark.unit

SCHEMA = "node A { k: String @key  ssn: String? @index  words: [String]? }"
WITHOUT = "node A { k: String @key  words: [String]? }"
SECRET = "SECRET-123"  # noqa: S105 - what is to be erased


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    graph.write({"A": [{"k": "a", "ssn": SECRET, "words": ["x"]}]})
    graph.write({"A": [{"k": "b", "ssn": SECRET}]})
    return graph


def files_with_it(graph: Graph) -> list[Path]:
    paths = [path for path in Path(graph.root).rglob("*") if path.is_file()]
    return [path for path in paths if SECRET.encode() in path.read_bytes()]


def test_a_hard_drop_leaves_no_value_in_any_file(graph: Graph) -> None:
    graph.delete({"A": ["b"]})
    graph.maintenance.optimize()
    assert files_with_it(graph)

    changed = graph.schema.apply(WITHOUT, hard=True)

    assert changed.remains == ()
    assert files_with_it(graph) == []
    assert graph.scan("A").read_all().to_pylist() == [{"id": "a", "k": "a", "words": ["x"]}]
    assert graph.maintenance.check().ok


def test_a_dropped_type_leaves_no_value_in_any_file(graph: Graph) -> None:
    changed = graph.schema.apply("node B { k: String @key }", hard=True)

    assert changed.remains == ()
    assert files_with_it(graph) == []


def test_what_holds_dropped_values_is_named_before_and_after(graph: Graph) -> None:
    graph.tags.create("t0")
    graph.branches.create("dev").write({"A": [{"k": "c", "ssn": SECRET}]})
    holders = ["branch dev (1 version)", "tag t0 (1 version)"]

    plan = graph.schema.plan(WITHOUT, hard=True)
    changed = graph.schema.apply(WITHOUT, hard=True, allow_diverged=True)

    assert [str(holder) for holder in plan.remains] == holders
    assert [str(holder) for holder in changed.remains] == holders
    assert "no branch, tag or reader needs" in str(plan)
    assert graph.at("t0").get("A", "a") is not None
    assert files_with_it(graph)


def test_an_erasure_can_be_required(graph: Graph, tmp_path: Path) -> None:
    graph.tags.create("t0")
    without = tmp_path / "without.pg"
    without.write_text(WITHOUT)
    apply = ("schema", "apply", graph.root, str(without), "--hard", "--yes")

    planned = run("schema", "plan", graph.root, str(without), "--hard")
    applied = run(*apply, "--require-erased")

    assert "dropped values stay in tag t0 (1 version)" in planned.stderr
    assert applied.returncode == 1
    assert "dropped values stay in tag t0 (1 version)" in applied.stderr
    assert run(*apply[:-2], "--require-erased").returncode == 2
