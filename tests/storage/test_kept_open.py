"""Tables that stay open are the ones that were pinned, or nothing."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import DamagedGraphError, OmnigraphError
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.lance import dataset_cache as module
from omnigraph_lake.storage.lance.dataset_cache import cached_dataset, look_up
from omnigraph_lake.storage.lance.tables import open_pinned
from omnigraph_lake.storage.objects.location import Root, parse_root
from omnigraph_lake.storage.snapshot import TableEntry
from tests.stores import folder_of

pytestmark = pytest.mark.unit

SCHEMA = "node P { k: String @key  n: I32? @index }"


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return made(graph_root, "old")


def made(where: str, key: str) -> Graph:
    graph = og.init(where, schema=SCHEMA)
    graph.write({"node:P": [{"k": key, "n": 1}]})
    return graph


def entry_of(graph: Graph) -> TableEntry:
    return graph.snapshot().tables["node:P"]


def keys(root: Root, entry: TableEntry, where: str | None = None) -> list[str]:
    return sorted(look_up(root, entry, ["k"], where).read_all()["k"].to_pylist())


def test_a_table_is_opened_once(graph: Graph) -> None:
    root, entry = parse_root(graph.root), entry_of(graph)

    assert cached_dataset(root, entry) is cached_dataset(root, entry)
    assert keys(root, entry) == ["old"]
    assert keys(root, entry, "n = 2") == []


def test_every_version_is_its_own(graph: Graph) -> None:
    root, before = parse_root(graph.root), entry_of(graph)
    assert keys(root, before) == ["old"]

    graph.write({"node:P": [{"k": "more", "n": 2}]})

    assert keys(root, entry_of(graph)) == ["more", "old"]
    assert keys(root, before) == ["old"]


def test_a_branch_is_its_own(graph: Graph) -> None:
    side = graph.branches.create("side")
    side.write({"node:P": [{"k": "aside", "n": 2}]})
    graph.write({"node:P": [{"k": "main", "n": 2}]})
    root = parse_root(graph.root)

    assert keys(root, entry_of(graph)) == ["main", "old"]
    assert keys(root, entry_of(side)) == ["aside", "old"]


def test_a_table_made_again_at_the_same_place_is_another(graph: Graph) -> None:
    root, before = parse_root(graph.root), entry_of(graph)
    assert keys(root, before) == ["old"]
    shutil.rmtree(folder_of(graph.root))

    again = made(graph.root, "new")

    assert keys(root, entry_of(again)) == ["new"]


def test_a_version_that_was_replaced_is_told_as_damage(graph: Graph) -> None:
    root, entry = parse_root(graph.root), entry_of(graph)
    other = replace(entry, made_at="2001-01-01T00:00:00.000000+00:00")

    for read in (open_pinned, cached_dataset):
        with pytest.raises(DamagedGraphError, match="that version is gone"):
            read(root, other)


def test_a_version_that_never_was_is_told_as_damage(graph: Graph) -> None:
    root, entry = parse_root(graph.root), entry_of(graph)

    for read in (open_pinned, cached_dataset):
        with pytest.raises(DamagedGraphError, match="that version is gone"):
            read(root, replace(entry, version=99))


def test_a_table_that_is_gone_is_told_as_damage(graph: Graph) -> None:
    entry = entry_of(graph)
    never_opened = replace(parse_root(graph.root), storage_options={"number": "1"})
    shutil.rmtree(folder_of(graph.root, entry.location))

    for read in (open_pinned, cached_dataset):
        with pytest.raises(DamagedGraphError, match="that version is gone"):
            read(never_opened, entry)


def test_files_that_are_gone_are_an_error_of_ours_and_no_rows(graph: Graph) -> None:
    root, entry = parse_root(graph.root), entry_of(graph)
    cached_dataset(root, entry)
    shutil.rmtree(folder_of(graph.root, entry.location))

    with pytest.raises(OmnigraphError):
        keys(root, entry)


def test_a_version_without_a_moment_is_opened_every_time(graph: Graph) -> None:
    root, entry = parse_root(graph.root), replace(entry_of(graph), made_at=None)

    assert cached_dataset(root, entry) is not cached_dataset(root, entry)
    assert keys(root, entry) == ["old"]


def test_roots_with_other_options_are_apart(graph: Graph) -> None:
    root, entry = parse_root(graph.root), entry_of(graph)
    other = replace(root, storage_options={"allow_http": "true"})

    assert cached_dataset(root, entry) is not cached_dataset(other, entry)
    assert cached_dataset(other, entry) is cached_dataset(other, entry)


def test_few_tables_stay_open(graph: Graph) -> None:
    root, entry = parse_root(graph.root), entry_of(graph)
    first = cached_dataset(root, entry)

    for each in range(70):
        cached_dataset(replace(root, storage_options={"number": str(each)}), entry)

    assert len(module._KEPT) <= 64
    assert cached_dataset(root, entry) is not first


def test_threads_read_one_handle(graph: Graph) -> None:
    root, entry = parse_root(graph.root), entry_of(graph)
    found: list[list[str]] = []

    def read() -> None:
        found.extend(keys(root, entry, "k = 'old'") for _ in range(10))

    threads = [threading.Thread(target=read) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert found == [["old"]] * 60
