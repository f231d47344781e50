"""Floors: they only rise, and below them a version counts only while something names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from omnigraph_lake import names
from omnigraph_lake.errors import DamagedGraphError, NotFoundError
from omnigraph_lake.failpoints import disarm_all
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.manifest.retention import (
    Line,
    Retention,
    line_of,
    raise_floors,
    read_retention,
)
from tests.behaviours.histories import content, put
from tests.maintenance.maintenance_graphs import DOC, TAG, doc, scattered_graph

pytestmark = pytest.mark.unit

ONE, FORK, OTHER = Line("nodes/one", None), Line("nodes/one", "f"), Line("nodes/two", None)


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    disarm_all()
    yield
    disarm_all()


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return scattered_graph(graph_root)


def test_a_graph_that_was_never_cleaned_has_no_floors(graph: Graph) -> None:
    assert read_retention(graph._objects) == Retention(entry=0, floors={})


def test_floors_rise_line_by_line_and_never_fall(graph: Graph) -> None:
    raise_floors(graph._objects, {ONE: 5, FORK: 7})
    raise_floors(graph._objects, {ONE: 3, OTHER: 2})

    assert read_retention(graph._objects).floors == {ONE: 5, FORK: 7, OTHER: 2}
    assert read_retention(graph._objects).entry == 2


def test_floors_that_stand_already_cost_no_entry(graph: Graph) -> None:
    raise_floors(graph._objects, {ONE: 5})
    before = graph._objects.list(names.RETENTION_DIR)

    again = raise_floors(graph._objects, {ONE: 4})

    assert again == read_retention(graph._objects)
    assert graph._objects.list(names.RETENTION_DIR) == before


def test_only_the_newest_entry_is_kept(graph: Graph) -> None:
    for floor in range(1, 6):
        raise_floors(graph._objects, {ONE: floor})

    assert len(graph._objects.list(names.RETENTION_DIR)) == 1


def test_floors_that_are_raised_at_once_are_all_in_force(graph: Graph) -> None:
    lines = [Line(f"nodes/{number}", None) for number in range(12)]

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda line: raise_floors(graph._objects, {line: 3}), lines))

    assert read_retention(graph._objects).floors == dict.fromkeys(lines, 3)


@pytest.mark.parametrize("junk", [b"", b"[]", b"{}", b'{"floors": [1]}', b'{"floors": [["a", 1]]}'])
def test_floors_that_cannot_be_understood_stop_everybody(graph: Graph, junk: bytes) -> None:
    graph._objects.replace(names.retention_entry(1), junk)

    with pytest.raises(DamagedGraphError, match="retention entry 1"):
        read_retention(graph._objects)
    with pytest.raises(DamagedGraphError, match="from a backup"):
        graph.maintenance.cleanup(keep_versions=3, dry_run=False)


def test_a_cleanup_raises_the_floor_of_every_line_it_removes_from(graph: Graph) -> None:
    entry = graph.snapshot().tables[DOC]

    graph.maintenance.cleanup(keep_versions=3, dry_run=False)

    floors = read_retention(graph._objects).floors
    assert floors[line_of(entry)] == 2
    assert line_of(graph.snapshot().tables[TAG]) not in floors


@pytest.mark.parametrize("use", ["read", "branch", "tag"])
def test_what_is_below_a_floor_and_named_by_nobody_cannot_be_relied_on(
    graph: Graph, use: str
) -> None:
    first = graph.snapshot().commit_id
    assert first is not None
    for number in range(3):
        put(graph, Doc=[doc(1, 100 + number)])
    line = line_of(graph.snapshot().tables[DOC])
    raise_floors(graph._objects, {line: 6})

    uses: dict[str, Callable[[], object]] = {
        "read": lambda: content(graph.at(first)),
        "branch": lambda: graph.branches.create("late", source=first),
        "tag": lambda: graph.tags.create("late", at=first),
    }
    with pytest.raises(NotFoundError, match="no longer kept"):
        uses[use]()
    assert [each.name for each in graph.branches.list()] == ["main"]
    assert graph.tags.list() == ()


def test_what_is_below_a_floor_and_named_by_a_tag_can_be_relied_on(graph: Graph) -> None:
    before = content(graph)
    graph.tags.create("first")
    put(graph, Doc=[doc(1, 100)])
    graph.maintenance.cleanup(keep_versions=1, dry_run=False, allow_unsafe_keep=True)

    branch = graph.branches.create("late", source="first")
    graph.tags.create("second", at="first")

    assert content(branch) == before
    graph.tags.delete("first")
    graph.branches.delete("late")
    graph.maintenance.cleanup(keep_versions=1, dry_run=False, allow_unsafe_keep=True)
    assert content(graph.at("second")) == before
