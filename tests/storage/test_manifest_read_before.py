"""A manifest that was read before is never taken for another one."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.lance.datasets import open_dataset
from omnigraph_lake.storage.manifest import state, swap
from omnigraph_lake.storage.manifest.swap import (
    create_manifest,
    is_whole,
    read_manifest,
    swap_manifest,
)
from omnigraph_lake.storage.manifest_rows import GraphHead
from omnigraph_lake.storage.objects.location import parse_root
from tests.forking.programs import run_code
from tests.stores import folder_of

pytestmark = pytest.mark.unit

SCHEMA = "node P { k: String @key }"
OTHER_SCHEMA = "node Q { k: String @key }"


def head(sequence: int) -> GraphHead:
    return GraphHead(
        branch=None, sequence=sequence, commit_id="c", incarnation="i", schema_hash="h"
    )


def keys(graph: Graph) -> list[str]:
    return sorted(graph.scan("P", columns=["k"]).read_all()["k"].to_pylist())


def test_reading_again_gives_the_same_state(graph_root: str) -> None:
    root = parse_root(graph_root)
    create_manifest(root, [head(1)], operation_id="init")

    first, second, third = read_manifest(root), read_manifest(root), read_manifest(root)

    assert first == second == third
    assert swap_manifest(third, [head(2)], operation_id="op").name == "ACCEPTED"
    assert read_manifest(root).rows == (head(2),)


@pytest.mark.local_disk("the file of a version is looked at")
def test_a_manifest_that_did_not_change_is_opened_twice_and_no_more(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = parse_root(graph_root)
    create_manifest(root, [head(1)], operation_id="init")
    opened: list[str] = []

    def noted(*given: Any, **options: Any) -> Any:
        opened.append(given[1])
        return open_dataset(*given, **options)

    monkeypatch.setattr(swap, "open_dataset", noted)

    states = [read_manifest(root) for _ in range(5)]

    assert len(opened) == 2
    assert states[1].handle is states[4].handle
    assert states[1].snapshot() is states[4].snapshot()


def test_what_another_process_published_is_seen_at_once(graph_root: str) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    assert [keys(graph) for _ in range(3)] == [[]] * 3
    text = f"""
import omnigraph_lake as og
graph = og.open({graph_root!r}, read_only=False)
for each in ("a", "b"):
    graph.write({{"node:P": [{{"k": each}}]}})
"""

    assert run_code(text).returncode == 0

    assert keys(og.open(graph_root)) == ["a", "b"]
    assert keys(graph) == ["a", "b"]


def test_a_graph_made_again_at_the_same_place_is_another(graph_root: str) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write({"node:P": [{"k": "old"}]})
    version = read_manifest(parse_root(graph_root)).version
    assert [keys(og.open(graph_root)) for _ in range(3)] == [["old"]] * 3

    shutil.rmtree(folder_of(graph_root))
    again = og.init(graph_root, schema=SCHEMA)
    again.write({"node:P": [{"k": "new"}]})

    assert read_manifest(parse_root(graph_root)).version == version
    assert keys(og.open(graph_root)) == ["new"]
    found = og.open(graph_root).query("query q() { match { $p: P } return { $p.k } }")
    assert found.to_pylist() == [{"p.k": "new"}]


def test_an_empty_graph_made_again_with_another_schema_is_another(graph_root: str) -> None:
    og.init(graph_root, schema=SCHEMA)
    for _ in range(3):
        assert list(og.open(graph_root).schema.catalog.nodes) == ["P"]

    shutil.rmtree(folder_of(graph_root))
    og.init(graph_root, schema=OTHER_SCHEMA)

    assert list(og.open(graph_root).schema.catalog.nodes) == ["Q"]


def test_a_graph_that_was_moved_away_is_gone(graph_root: str) -> None:
    og.init(graph_root, schema=SCHEMA)
    for _ in range(3):
        read_manifest(parse_root(graph_root))

    shutil.move(folder_of(graph_root), folder_of(f"{graph_root}-away"))

    with pytest.raises(og.errors.NotFoundError):
        read_manifest(parse_root(graph_root))


def test_a_branch_made_again_is_another(graph_root: str) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    first = graph.branches.create("side")
    first.write({"node:P": [{"k": "old"}]})
    for _ in range(3):
        assert keys(og.open(graph_root).checkout("side")) == ["old"]

    graph.branches.delete("side")
    second = graph.branches.create("side")
    assert keys(og.open(graph_root).checkout("side")) == []
    second.write({"node:P": [{"k": "new"}]})

    assert keys(og.open(graph_root).checkout("side")) == ["new"]
    assert keys(graph) == []


def test_branches_are_remembered_apart(graph_root: str) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    sides = [graph.branches.create(name) for name in ("one", "two")]
    for each in sides:
        each.write({"node:P": [{"k": each.branch}]})

    for _ in range(4):
        assert [keys(each) for each in (graph, *sides)] == [[], ["one"], ["two"]]


@pytest.mark.local_disk("files are exchanged behind the back of the graph")
def test_a_version_whose_file_was_exchanged_is_read_again(graph_root: str) -> None:
    root, other = parse_root(graph_root), parse_root(f"{graph_root}-other")
    for each, sequence in ((root, 1), (other, 2)):
        create_manifest(each, [head(sequence)], operation_id="init")
    for _ in range(3):
        assert read_manifest(root).rows == (head(1),)

    shutil.rmtree(folder_of(graph_root))
    shutil.copytree(folder_of(other.uri), folder_of(graph_root))

    assert [read_manifest(root).rows for _ in range(3)] == [(head(2),)] * 3


@pytest.mark.local_disk("files are exchanged behind the back of the graph")
@pytest.mark.parametrize(("one", "other"), [(3, 1), (3, 2)])
def test_a_newest_version_whose_file_is_that_of_another_is_damage(
    graph_root: str, one: int, other: int
) -> None:
    root = parse_root(graph_root)
    create_manifest(root, [head(1)], operation_id="init")
    for number in (2, 3):
        swap_manifest(read_manifest(root), [head(number)], operation_id=f"op{number}")
    folder = Path(folder_of(graph_root), names.MANIFEST)
    paths = [folder / names.lance_version(version) for version in (one, other)]
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, reversed(contents), strict=True):
        path.unlink()
        path.write_bytes(content)

    with pytest.raises(DamagedGraphError, match=r"version 3 .* its file holds another version"):
        read_manifest(root)
    assert is_whole(root, None, 3)  # no power cut tore it: it is not set aside


@pytest.mark.local_disk("a file is damaged in place")
def test_a_version_with_a_type_that_lance_does_not_know_is_damage(graph_root: str) -> None:
    root = parse_root(graph_root)
    create_manifest(root, [head(1)], operation_id="init")
    path = Path(folder_of(graph_root), names.MANIFEST, names.lance_version(1))
    content = path.read_bytes()
    path.write_bytes(content.replace(b"string", b"sdring"))

    assert path.read_bytes() != content
    with pytest.raises(DamagedGraphError, match="sdring"):
        read_manifest(root)


def test_readers_in_threads_see_what_was_published_before_they_asked(graph_root: str) -> None:
    root = parse_root(graph_root)
    create_manifest(root, [head(0)], operation_id="init")
    published = 0
    stale: list[tuple[int, int]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            before = published
            found = read_manifest(root).head.sequence
            if found < before:
                stale.append((before, found))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for each in readers:
        each.start()
    for number in range(1, 40):
        swap_manifest(read_manifest(root), [head(number)], operation_id=f"op{number}")
        published = number
        time.sleep(0.01)
    done.set()
    for each in readers:
        each.join()

    assert stale == []
    assert read_manifest(root).head.sequence == 39


def test_few_manifests_are_remembered(tmp_path: Path) -> None:
    roots = [parse_root(str(tmp_path / f"graph{each}")) for each in range(20)]
    for number, root in enumerate(roots):
        create_manifest(root, [head(number)], operation_id="init")
        read_manifest(root)

    assert len(state.KNOWN) <= 16
    assert [read_manifest(root).rows for root in roots] == [(head(each),) for each in range(20)]


@pytest.mark.local_disk("the folder of versions is listed")
def test_the_newest_version_is_the_one_that_lance_finds(graph_root: str) -> None:
    root = parse_root(graph_root)
    create_manifest(root, [head(1)], operation_id="init")
    folder = Path(names.lance_versions(f"{root.uri}/{names.MANIFEST}"))

    for sequence in range(2, 13):
        handle = read_manifest(root).handle
        # What a writer that died while it put a version leaves, and no version of this branch.
        (folder / f"{0:020}.manifest#{sequence}").touch()
        (folder / f".tmp{sequence}").touch()
        assert state._newest_listed(handle.uri) == handle.latest_version == sequence - 1
        swap_manifest(read_manifest(root), [head(sequence)], operation_id=f"op{sequence}")


@pytest.mark.local_disk("the folder of versions is listed")
def test_lance_is_asked_if_names_of_versions_are_not_as_expected(graph_root: str) -> None:
    root = parse_root(graph_root)
    create_manifest(root, [head(1)], operation_id="init")
    uri = read_manifest(root).handle.uri

    (Path(names.lance_versions(uri)) / "0.manifest").touch()

    assert state._newest_listed(uri) is None
