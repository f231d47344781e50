"""`omnigraph repair --rebuild-manifest`: what it shows, and what it brings back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from tests.cli.commands import answer, run
from tests.stores import folder_of

pytestmark = pytest.mark.unit


@pytest.fixture
def graph(graph_root: str) -> Graph:
    """A graph with a branch and two commits, without its manifest."""
    graph = og.init(graph_root, schema="node Person { name: String @key }")
    graph.write({"Person": [{"name": "Ann"}]}, operation_id="01JZZZZZZZZZZZZZZZZZZZZZZY")
    graph.branches.create("dev").write({"Person": [{"name": "Bob"}]})
    shutil.rmtree(folder_of(graph_root, "__manifest"))
    return graph


def test_every_command_names_the_rebuild(graph: Graph) -> None:
    status = run("status", graph.root)

    assert status.returncode == 8
    assert f"omnigraph repair {graph.root} --rebuild-manifest" in status.stderr
    assert "init" not in status.stderr


def test_the_preview_and_then_the_rebuild(graph: Graph) -> None:
    shown = run("repair", graph.root, "--rebuild-manifest")

    assert shown.returncode == 0
    assert "manifest  gone" in shown.stdout
    assert "node:Person" in shown.stdout
    assert "branches  main" in shown.stdout
    assert "branch 'dev' is lost" in shown.stderr
    assert "2 writes are recovered as one commit" in shown.stderr
    assert (
        f"`omnigraph repair {graph.root} --rebuild-manifest --confirm` rebuilds it" in shown.stderr
    )
    assert not folder_of(graph.root, "__manifest").exists()

    done = run("repair", graph.root, "--rebuild-manifest", "--confirm")

    assert done.returncode == 0
    commit = og.open(graph.root).commits(limit=1)[0]
    assert f"rebuilt   commit {commit.commit_id}" in done.stdout
    checked = answer("check", graph.root)
    assert (checked["ok"], checked["rows"]) == (True, 1)
    again = run("repair", graph.root, "--rebuild-manifest", "--confirm")
    assert again.returncode == 4
    assert "nothing to rebuild" in again.stderr


def test_the_preview_as_json(graph: Graph) -> None:
    report = answer("repair", graph.root, "--rebuild-manifest")

    (table,) = report["tables"]
    assert (table["version"], table["rows"], table["source"]) == (2, 1, "table")
    assert (report["dry_run"], report["lost_branches"]) == (True, ["dev"])
    assert "01JZZZZZZZZZZZZZZZZZZZZZZY" in report["unnamed_operations"]


def test_a_table_that_cannot_come_back_has_its_exit_code(graph: Graph) -> None:
    for path in folder_of(graph.root, "nodes").rglob("*.manifest"):
        path.write_bytes(b"")

    shown = run("repair", graph.root, "--rebuild-manifest")
    refused = run("repair", graph.root, "--rebuild-manifest", "--confirm")

    assert (shown.returncode, refused.returncode) == (8, 8)
    assert "node:Person cannot be recovered" in shown.stderr


@pytest.mark.parametrize("more", [("--force",), ("--branch", "dev"), ("--actor", "ada")])
def test_options_of_other_repairs_are_refused(graph: Graph, more: tuple[str, ...]) -> None:
    refused = run("repair", graph.root, "--rebuild-manifest", *more)

    assert refused.returncode == 5
    assert "can only be combined with --confirm and --json" in refused.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("repair", "--rebuild-manifest"),
        ("repair", "--rebuild-manifest", "--confirm", "--yes"),
        ("verify",),
    ],
)
def test_a_root_that_is_not_there_is_no_graph(tmp_path: Path, words: tuple[str, ...]) -> None:
    command, *options = words

    ended = run(command, str(tmp_path / "nothing"), *options)

    assert ended.returncode == 3, ended.stderr
    assert "there is no graph" in ended.stderr
    assert list(tmp_path.iterdir()) == []
