"""Where links and base paths lead: nothing outside the root is read, and looking costs little."""

from __future__ import annotations

import os
from collections.abc import Callable
from inspect import signature
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.objects import containment
from omnigraph_lake.storage.objects.containment import (
    require_bases_inside,
    require_inside,
    require_tree_inside,
)
from omnigraph_lake.storage.objects.location import Root, Scheme, parse_root
from omnigraph_lake.storage.objects.store import StoredObjects

pytestmark = [pytest.mark.unit, pytest.mark.local_disk("links are things of a disk")]

SCHEMA = "node Person { name: String @key }"


@pytest.fixture
def root(tmp_path: Path) -> Root:
    (tmp_path / "graph" / "nodes").mkdir(parents=True)
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "secret").write_bytes(b"secret")
    return parse_root(tmp_path / "graph")


def test_a_link_that_leads_out_is_refused_by_every_operation_on_objects(
    root: Root, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    Path(root.uri, "nodes", "folder").symlink_to(victim)
    Path(root.uri, "file").symlink_to(victim / "secret")
    objects = StoredObjects(root)
    attempts: list[Callable[[], object]] = [
        lambda: objects.read("file"),
        lambda: objects.read("nodes/folder/secret"),
        lambda: objects.checksum("nodes/folder/secret"),
        lambda: objects.put_if_absent("nodes/folder/new", b""),
        lambda: objects.replace("nodes/folder/secret", b""),
        lambda: objects.delete("nodes/folder/secret"),
        lambda: objects.list("nodes"),
        lambda: objects.list(""),
        lambda: objects.sizes("nodes/folder"),
        lambda: objects.sizes(""),
        lambda: objects.folders("nodes/folder"),
    ]

    for attempt in attempts:
        with pytest.raises(DamagedGraphError, match="leads out of it"):
            attempt()

    assert [path.name for path in victim.iterdir()] == ["secret"]
    assert (victim / "secret").read_bytes() == b"secret"


def _methods_with_paths() -> list[str]:
    return [
        name
        for name, method in vars(StoredObjects).items()
        if not name.startswith("_") and {"path", "prefix"} & set(signature(method).parameters)
    ]


@pytest.mark.parametrize("method", _methods_with_paths())
def test_every_operation_on_objects_refuses_a_path_that_leaves_the_root(
    root: Root, tmp_path: Path, method: str
) -> None:
    objects = StoredObjects(root)
    Path(root.uri, "out").symlink_to(tmp_path / "victim")
    called = getattr(objects, method)
    rest = [
        iter(()) if name == "pieces" else b"" for name in list(signature(called).parameters)[1:]
    ]

    for path in ("../victim/secret", "out/secret"):
        with pytest.raises(DamagedGraphError, match="not below the root"):
            tuple(called(path, *rest) or ())
    assert (tmp_path / "victim" / "secret").read_bytes() == b"secret"


def test_links_inside_the_root_and_a_root_that_is_a_link_are_followed(
    root: Root, tmp_path: Path
) -> None:
    Path(root.uri, "nodes", "x").write_bytes(b"1")
    Path(root.uri, "again").symlink_to("nodes")
    (tmp_path / "alias").symlink_to(root.uri)
    objects = StoredObjects(parse_root(tmp_path / "alias"))

    assert objects.read("again/x") == b"1"
    assert objects.list("again") == ("again/x",)


def test_a_link_behind_a_link_and_a_circle_of_links_end(root: Root, tmp_path: Path) -> None:
    Path(root.uri, "deep").mkdir()
    Path(root.uri, "deep", "out").symlink_to(tmp_path / "victim")
    Path(root.uri, "nodes", "in").symlink_to("../deep")
    Path(root.uri, "circle").mkdir()
    Path(root.uri, "circle", "back").symlink_to(".")

    with pytest.raises(DamagedGraphError, match="leads out of it"):
        require_tree_inside(root, "nodes")
    require_tree_inside(root, "circle")


def test_what_is_neither_a_file_nor_a_folder_is_refused(root: Root) -> None:
    os.mkfifo(Path(root.uri, "nodes", "pipe"))

    with pytest.raises(DamagedGraphError, match="neither a file nor a folder"):
        require_inside(root, "nodes/pipe")
    with pytest.raises(DamagedGraphError, match="neither a file nor a folder"):
        require_tree_inside(root, "nodes")


def _fork(folder: Path) -> str:
    dataset = lance.write_dataset(pa.table({"id": [1]}), str(folder))
    dataset.create_branch("fork", (None, 1))
    return str(folder / "tree" / "fork")


def test_a_base_path_below_the_root_is_accepted_in_every_spelling(
    root: Root, tmp_path: Path
) -> None:
    (tmp_path / "alias").symlink_to(root.uri)
    for folder in (Path(root.uri), tmp_path / "alias"):
        fork = _fork(folder / "nodes" / folder.name)
        require_bases_inside(root, lance.dataset(fork))
        require_bases_inside(parse_root(tmp_path / "alias"), lance.dataset(fork))


def test_a_base_path_elsewhere_is_refused(root: Root, tmp_path: Path) -> None:
    fork = lance.dataset(_fork(tmp_path / "victim" / "table"))

    with pytest.raises(DamagedGraphError, match="not below the root") as refused:
        require_bases_inside(root, fork)
    assert str(tmp_path / "victim" / "table") in refused.value.what


def test_base_paths_of_a_bucket_stay_below_the_prefix() -> None:
    root = Root(scheme=Scheme.S3, uri="s3://bucket/graphs/a")
    below = containment._below

    assert below(root, "t", "s3://bucket/graphs/a/nodes/x") == "nodes/x"
    for address in ("s3://other/graphs/a/nodes/x", "s3://bucket/graphs/ab/x", "/etc", "x"):
        with pytest.raises(DamagedGraphError, match="not below the root"):
            below(root, "t", address)
    for path in ("../b/x", "%2e%2e/b/x", "a?b", "a#b"):
        with pytest.raises(DamagedGraphError, match="not below the root"):
            root.child(path)


def _graph(root: str) -> Graph:
    graph = og.init(root, schema=SCHEMA)
    graph.write({"Person": [{"name": "p"}]})
    return graph


def test_a_graph_with_branches_is_the_same_through_a_link_and_without_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    graph = _graph(str(tmp_path / "alias" / "graph"))
    graph.branches.create("dev").write({"Person": [{"name": "q"}]})

    for folder in ("alias", "real"):
        opened = og.open(str(tmp_path / folder / "graph"))
        opened.checkout("dev").write({"Person": [{"name": folder}]})
        assert opened.maintenance.check(deep=True).ok
    merged = og.open(str(tmp_path / "real" / "graph"))
    merged.merge("dev")
    assert merged.scan("Person").read_all().num_rows == 4


def test_a_table_is_looked_at_once_however_often_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = _graph(str(tmp_path / "graph"))
    looked: list[str] = []
    real = containment.require_tree_inside

    def counted(root: Root, path: str, **rest: frozenset[str]) -> bool:
        looked.append(path)
        return real(root, path, **rest)

    monkeypatch.setattr(containment, "require_tree_inside", counted)
    monkeypatch.setattr(containment, "_LINES", type(containment._LINES)(16))
    for _ in range(5):
        graph = og.open(graph.root, read_only=True)
        graph.query("query q() { match { $p: Person } return { $p.name } }").to_pylist()
        graph.scan("Person").read_all()

    tables = [path for path in looked if path.startswith(names.TABLE_DIRS)]
    manifests = [path for path in looked if path == names.MANIFEST]
    assert (len(tables), len(manifests)) == (1, 1)


def test_a_graph_whose_table_is_a_link_to_another_graph_is_refused(tmp_path: Path) -> None:
    victim = _graph(str(tmp_path / "victim"))
    graph = _graph(str(tmp_path / "graph"))
    (table,) = Path(graph.root, "nodes").iterdir()
    (other,) = Path(victim.root, "nodes").iterdir()
    table.rename(tmp_path / "away")
    table.symlink_to(other)
    before = sorted(Path(victim.root).rglob("*"))
    copy = tmp_path / "renamed"
    Path(graph.root).rename(copy)  # this process has looked at the table under its old path

    for act in (
        lambda: og.open(str(copy), read_only=True).scan("Person").read_all(),
        lambda: og.open(str(copy)).write({"Person": [{"name": "x"}]}),
    ):
        with pytest.raises(DamagedGraphError, match="leads out of it"):
            act()
    cleaned = og.open(str(copy)).maintenance.cleanup(keep_versions=3, dry_run=False)
    assert "leads out of it" in str(cleaned)
    assert sorted(Path(victim.root).rglob("*")) == before
