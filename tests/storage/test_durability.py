"""Syncs: when they are made, that threads share them, and that no directory is forgotten."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import InvalidInputError, OutcomeUnknownError
from omnigraph_lake.storage.objects import durability
from omnigraph_lake.storage.objects.location import DURABILITY_VARIABLE, Durability, parse_root

pytestmark = [pytest.mark.unit, pytest.mark.local_disk("an object store syncs by itself")]

SCHEMA = "node P { k: String @key }"


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DURABILITY_VARIABLE, raising=False)


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders whose file systems were synced, in order."""
    synced: list[str] = []
    monkeypatch.setattr(durability, "_syncfs", synced.append)
    return synced


def test_a_durable_write_syncs_before_and_after_its_swap(
    graph_root: str, folders: list[str]
) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    folders.clear()

    graph.write({"P": [{"k": "a"}]})

    assert folders == [graph_root] * 2


def test_a_write_that_leaves_it_to_the_system_syncs_nothing(
    graph_root: str, folders: list[str]
) -> None:
    og.init(graph_root, schema=SCHEMA)
    graph = og.open(graph_root, durability="os")
    folders.clear()

    graph.write({"P": [{"k": "a"}]})

    assert folders == []


def test_a_link_to_nothing_does_not_keep_a_write_from_being_synced(
    graph_root: str, folders: list[str]
) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    Path(graph_root, "link").symlink_to("nothing")
    folders.clear()

    graph.write({"P": [{"k": "a"}]})

    assert folders == [graph_root] * 2


def test_branches_and_tags_are_synced_before_they_are_acknowledged(
    graph_root: str, folders: list[str]
) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    for act in (
        lambda: graph.branches.create("dev"),
        lambda: graph.tags.create("first"),
        lambda: graph.tags.delete("first"),
        lambda: graph.branches.delete("dev"),
    ):
        folders.clear()
        act()
        assert len(folders) >= 2


def test_the_setting_of_a_graph_counts_unless_a_caller_says_otherwise(
    graph_root: str, folders: list[str]
) -> None:
    og.init(graph_root, schema=SCHEMA, durability="os")

    given: tuple[tuple[og.Durability | None, int], ...] = (
        (None, 0),
        ("commit", 2),
        ("os", 0),
    )
    for durability_given, syncs in given:
        graph = og.open(graph_root, durability=durability_given)
        folders.clear()
        graph.write({"P": [{"k": f"{durability_given}"}]})
        assert len(folders) == syncs


def test_the_variable_counts_before_the_setting_of_the_graph(
    graph_root: str, folders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    og.init(graph_root, schema=SCHEMA)
    monkeypatch.setenv(DURABILITY_VARIABLE, "os")
    graph = og.open(graph_root)
    folders.clear()

    graph.write({"P": [{"k": "a"}]})

    assert folders == []
    assert parse_root(graph_root).durability is Durability.OS


def test_a_word_that_is_no_durability_is_refused(graph_root: str) -> None:
    with pytest.raises(InvalidInputError, match="expected 'commit' or 'os'"):
        og.init(graph_root, schema=SCHEMA, durability="always")  # type: ignore[arg-type]


def test_a_commit_whose_sync_fails_is_not_acknowledged(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = og.init(graph_root, schema=SCHEMA)

    def fail(folder: str) -> None:
        raise OSError(5, "Input/output error", folder)

    monkeypatch.setattr(durability, "_syncfs", fail)

    with pytest.raises(OutcomeUnknownError, match="may or may not have been written"):
        graph.write({"P": [{"k": "a"}]})


def test_threads_that_wait_at_the_same_time_share_a_sync(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    og.init(graph_root, schema=SCHEMA)
    root = parse_root(graph_root)
    made: list[float] = []

    def slow(_: str) -> None:
        made.append(time.monotonic())
        time.sleep(0.5)

    monkeypatch.setattr(durability, "_syncfs", slow)
    threads = [threading.Thread(target=durability.sync, args=(root,)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 1 <= len(made) <= 4


def test_a_sync_that_began_before_a_write_is_not_taken_for_it(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    og.init(graph_root, schema=SCHEMA)
    root = parse_root(graph_root)
    began, go_on = threading.Event(), threading.Event()
    count = 0

    def held(_: str) -> None:
        nonlocal count
        count += 1
        if count == 1:
            began.set()
            go_on.wait(30)

    monkeypatch.setattr(durability, "_syncfs", held)
    first = threading.Thread(target=durability.sync, args=(root,))
    first.start()
    began.wait(30)
    second = threading.Thread(target=durability.sync, args=(root,))
    second.start()
    time.sleep(0.05)
    go_on.set()
    first.join()
    second.join()

    assert count == 2


def test_a_real_sync_works_here(graph_root: str) -> None:
    og.init(graph_root, schema=SCHEMA)
    before = durability.syncs_made()

    durability.sync(parse_root(graph_root))

    assert durability.syncs_made() == before + 1
