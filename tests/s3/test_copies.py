"""Copies between a disk and S3, in both directions: by backup, and as plain files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from tests.behaviours.histories import Content, content, people, person, put, small_graph
from tests.s3.server import S3Server
from tests.stores import BUCKET, place_copy

pytestmark = pytest.mark.s3


@pytest.fixture
def bucket(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty place on the server."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}{tmp_path}"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """On a disk, with a branch of a branch."""
    graph = small_graph(str(tmp_path / "graph"))
    put(graph.branches.create("dev"), Person=[person("dan", age=4)])
    put(graph.branches.create("deeper", source="dev"), Person=[person("ann", age=100)])
    return graph


def _contents(root: str) -> dict[str, Content]:
    graph = og.open(root, read_only=True)
    return {branch.name: content(graph.checkout(branch.name)) for branch in graph.branches.list()}


def _verified(root: str) -> dict[str, Content]:
    report = og.verify(root)
    assert report.ok, report
    return _contents(root)


def test_a_backup_goes_from_disk_to_s3_and_is_restored_to_disk(
    graph: Graph, bucket: str, tmp_path: Path
) -> None:
    og.backup(graph.root, f"{bucket}/backup")
    put(graph.checkout("deeper"), Person=[person("eve", age=5)])
    second = og.backup(graph.root, f"{bucket}/backup")
    expected = _contents(graph.root)
    shutil.rmtree(graph.root)

    og.restore(f"{bucket}/backup", str(tmp_path / "restored"))

    assert second.files_copied <= 12
    assert _verified(f"{bucket}/backup") == _verified(str(tmp_path / "restored")) == expected


def test_a_graph_on_s3_is_backed_up_to_disk_and_restored_to_s3(
    graph: Graph, bucket: str, tmp_path: Path, reader: Mapping[str, str]
) -> None:
    """Credentials that may only read are enough for a backup."""
    og.clone(graph.root, f"{bucket}/graph")
    shutil.rmtree(graph.root)
    remote = og.open(f"{bucket}/graph")
    put(remote.checkout("deeper"), Person=[person("eve", age=5)])
    put(remote.branches.create("newer", source="deeper"), Person=[person("fay", age=6)])
    expected = _contents(remote.root)

    backup = str(tmp_path / "backup")
    first = og.backup(remote.root, backup, storage_options=reader)
    put(remote, Person=[person("gus", age=7)])
    second = og.backup(remote.root, backup, storage_options=reader)
    og.restore(backup, f"{bucket}/restored")

    assert second.files_copied < first.files_copied
    expected["main"] = content(remote)
    assert _verified(backup) == _verified(f"{bucket}/restored") == expected
    restored = og.open(f"{bucket}/restored")
    restored.merge("newer")
    assert people(restored)["fay"] == 6


def test_files_that_are_put_on_s3_by_any_tool_are_the_graph(graph: Graph, bucket: str) -> None:
    expected = _contents(graph.root)
    place_copy(Path(graph.root), f"{bucket}/moved")
    shutil.rmtree(graph.root)

    moved = og.open(f"{bucket}/moved")

    assert _contents(moved.root) == expected
    put(moved.checkout("deeper"), Person=[person("eve", age=5)])
    moved.merge("deeper")
    moved.maintenance.optimize()
    assert people(moved) == {"ann": 100, "bob": 2, "cyd": 3, "dan": 4, "eve": 5}
    assert all(
        moved.checkout(branch.name).maintenance.check().ok for branch in moved.branches.list()
    )
