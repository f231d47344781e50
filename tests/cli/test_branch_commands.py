"""Branches, tags, diffs and merges at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from tests.cli.commands import answer, run

pytestmark = pytest.mark.unit


@pytest.fixture
def graph(graph_root: str) -> Graph:
    """Ann is 1 on main and 2 on dev; Bob is on dev only."""
    graph = og.init(graph_root, schema="node Person { name: String @key  age: I32? }")
    graph.write({"Person": [{"name": "Ann", "age": 1}]})
    rows = [{"name": "Ann", "age": 2}, {"name": "Bob", "age": 3}]
    graph.branches.create("dev").write({"Person": rows}, mode="merge")
    return graph


def test_branches_and_tags_are_made_listed_and_deleted(graph: Graph) -> None:
    made = answer("branch", "create", graph.root, "new", "--from", "dev")
    assert made["commit_id"] == graph.checkout("dev").snapshot().commit_id
    names = [each["name"] for each in answer("branch", "list", graph.root)["branches"]]
    assert names == ["main", "dev", "new"]
    assert answer("branch", "delete", graph.root, "new") == {"deleted": "new"}

    tagged = answer("tag", "create", graph.root, "first", "--at", "dev", "--actor", "ada")
    (listed,) = answer("tag", "list", graph.root)["tags"]
    assert (listed["tag"], listed["commit_id"], listed["actor"]) == (
        "first",
        tagged["commit_id"],
        "ada",
    )
    assert answer("tag", "delete", graph.root, "first") == {"deleted": "first"}
    assert run("branch", "delete", graph.root, "new").returncode == 3


def test_a_diff_shows_counts_and_the_columns_that_differ(graph: Graph) -> None:
    shown = run("diff", graph.root, "main..dev").stdout
    assert "~ Ann: age 1 -> 2" in shown
    assert "+ Bob" in shown

    counted = answer("diff", graph.root, "main..dev")["tables"]["node:Person"]
    assert (counted["inserted"], counted["updated"], counted["deleted"]) == (1, 1, 0)
    lines = run("diff", graph.root, "main..dev", "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line)["op"] for line in lines] == ["update", "insert"]


def test_a_merge_with_open_conflicts_lists_them_and_changes_nothing(graph: Graph) -> None:
    graph.write({"Person": [{"name": "Ann", "age": 7}]}, mode="merge")

    refused = run("merge", graph.root, "dev", "--json")
    assert refused.returncode == 4
    (conflict,) = json.loads(refused.stdout)["conflicts"]
    assert (conflict["column"], conflict["ours"], conflict["theirs"]) == ("age", 7, 2)
    assert "Ann [divergent_update]" in refused.stderr

    merged = answer("merge", graph.root, "dev", "--resolve", "theirs")
    assert merged["outcome"] == "merged"
    ages = graph.scan("Person", columns=["age"]).read_all().column("age").to_pylist()
    assert sorted(ages) == [2, 3]


def test_a_load_can_go_through_a_branch(graph: Graph, tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"type": "Person", "data": {"name": "Cy"}}\n')

    report = answer("load", graph.root, str(file), "--branch", "monday", "--into", "main")

    assert report["merged"] == graph.commits()[0].commit_id
    assert graph.scan("Person").read_all().num_rows == 2


def test_changes_end_with_the_cursor_to_go_on_from(graph: Graph) -> None:
    first = answer("changes", graph.root)
    graph.write({"Person": [{"name": "Dee"}]})

    (commit,) = answer("changes", graph.root, "--cursor", first["cursor"])["commits"]

    assert commit["tables"] == {"node:Person": {"inserted": 1, "updated": 0, "deleted": 0}}
    lines = run("changes", graph.root, "--cursor", first["cursor"]).stdout.splitlines()
    assert lines[0].startswith(f"{commit['commit_id']}  {commit['actor']}  ")
    assert lines[1:] == [
        "  node:Person  1 inserted",
        f"cursor {commit['cursor']}",
    ]
