"""`omnigraph backup`, `restore`, `clone` and `verify`: what they show, and how they end."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from tests.cli.commands import answer, run
from tests.stores import files_of, root_at

pytestmark = pytest.mark.unit


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema="node Person { name: String @key }")
    graph.write({"Person": [{"name": "Ann"}]})
    graph.branches.create("dev").write({"Person": [{"name": "Bob"}]})
    graph.branches.create("other")
    return graph


def test_a_backup_is_made_checked_and_restored(graph: Graph, tmp_path: Path) -> None:
    backup, new = root_at(tmp_path / "backup"), root_at(tmp_path / "new")

    made = run("backup", graph.root, backup)
    again = run("backup", graph.root, backup)
    checked = run("check", backup, "--deep", "--branch", "dev")
    verified = answer("verify", backup)
    restored = answer("restore", backup, new)

    assert made.returncode == 0, made.stderr
    assert f"source    {graph.root}" in made.stdout
    assert "branches  main, dev, other" in made.stdout
    assert "copied    nothing: the target is up to date" in again.stdout
    assert (checked.returncode, checked.stdout.splitlines()[-1]) == (0, "ok")
    assert (verified["ok"], verified["branches"]) == (True, ["main", "dev", "other"])
    assert (restored["kind"], restored["target"]) == ("restore", new)
    assert og.open(new).checkout("dev").scan("Person").read_all().num_rows == 2


def test_a_clone_takes_one_branch(graph: Graph, tmp_path: Path) -> None:
    cloned = answer("clone", graph.root, root_at(tmp_path / "clone"), "--branch", "dev")

    assert cloned["branches"] == ["main", "dev"]


def test_refusals_have_the_exit_codes_of_their_kind(graph: Graph, tmp_path: Path) -> None:
    backup = root_at(tmp_path / "backup")

    missing = run("backup", root_at(tmp_path / "nowhere"), backup)
    nested = run("restore", graph.root, f"{graph.root}/inside")
    run("backup", graph.root, backup)
    og.open(backup).write({"Person": [{"name": "Cyd"}]})
    touched = run("backup", graph.root, backup)

    assert (missing.returncode, nested.returncode, touched.returncode) == (3, 5, 4)
    assert "was written to since its last backup; nothing was written." in touched.stderr


@pytest.mark.local_disk("an object store compares what it keeps by itself")
def test_verify_names_a_damaged_file(graph: Graph, tmp_path: Path) -> None:
    backup = root_at(tmp_path / "backup")
    run("backup", graph.root, backup)
    victim = next(
        path for path in files_of(backup) if path.parent.name == "data" and "nodes" in path.parts
    )
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")

    verified = run("verify", backup)

    assert verified.returncode == 8
    assert victim.name in verified.stdout
