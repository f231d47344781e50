"""A killed backup leaves the last one or the new one, a killed restore goes on where it stopped.

The gate kills a first backup and a restore at the first visit of every point, and a later backup
around the record that decides; the nightly kills all at every visit of every point.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import DamagedGraphError, NotFoundError
from omnigraph_lake.graph import Graph
from tests.behaviours.histories import Content, content, person, put, small_graph
from tests.crash.processes import Ended, run
from tests.gate.selection import for_gate, is_nightly

pytestmark = pytest.mark.crash

_BEFORE: Final = ("copy.post_claim", "copy.post_file", "copy.post_content", "copy.pre_record")
_DECIDED: Final = (
    *("copy.post_record", "copy.post_put", "copy.post_publish"),
    *("copy.post_version", "copy.post_end"),
)
_VISIBLE: Final = frozenset({"copy.post_publish", "copy.post_version", "copy.post_end"})
GATE_POINTS: Final = frozenset({*_BEFORE, *_DECIDED})
_AROUND_THE_RECORD: Final = frozenset({"copy.pre_record", "copy.post_record", "copy.post_put"})
_MANY: Final = frozenset({"copy.post_file", "copy.post_version", "copy.post_put"})
"""Points that a copy visits more than once."""

_numbers = itertools.count(1)


def _contents(graph: Graph) -> dict[str, Content]:
    return {branch.name: content(graph.checkout(branch.name)) for branch in graph.branches.list()}


def _write(graph: Graph) -> None:
    """Commits on main, one on a branch, and sometimes a new branch: what one backup brings."""
    number = next(_numbers)
    for age in range(2):
        put(graph, Person=[person(f"p{number}", age=age)])
    put(graph.checkout("dev"), Person=[person(f"d{number}", age=number)])
    if number % 4 == 0:
        put(graph.branches.create(f"b{number}"), Person=[person("ann", age=number)])


def _sound(root: str) -> dict[str, Content]:
    if is_nightly():
        report = og.verify(root)
        assert report.ok, report
    return _contents(og.open(root, read_only=True))


def _visits(point: str) -> Iterator[int]:
    return itertools.count(1) if is_nightly() and point in _MANY else iter((1,))


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = small_graph(str(tmp_path / "graph"))
    put(graph.branches.create("dev"), Person=[person("dan", age=4)])
    return graph


@pytest.mark.parametrize("point", for_gate([*_BEFORE, *_DECIDED], _AROUND_THE_RECORD.__contains__))
def test_a_killed_backup_leaves_the_last_one_or_the_new_one(
    point: str, graph: Graph, tmp_path: Path
) -> None:
    target = str(tmp_path / "backup")
    og.backup(graph.root, target)
    for visit in _visits(point):
        before = _contents(graph)
        _write(graph)
        after = _contents(graph)
        if not _backup(graph, target, point, visit).was_killed:
            break  # every visit had its turn

        for name, rows in _contents(og.open(target, read_only=True)).items():
            assert rows in (before.get(name), after.get(name)), (visit, name)
        restored = _restored(target, tmp_path / f"restored-{visit}", point)
        assert restored in (before, after), visit
        is_new = restored == after
        assert is_new or point not in _DECIDED, visit
        assert not is_new or point not in _BEFORE or point == "copy.post_file", visit
        assert _sound(target) == (after if is_new else before), visit
        og.backup(graph.root, target)
        assert _sound(target) == after, visit


def _restored(target: str, new: Path, point: str) -> dict[str, Content]:
    """What a restore gives; one that was not needed to finish the backup finds it sound."""
    if point in _BEFORE or point in _VISIBLE:
        _sound(target)
    og.restore(target, str(new))
    return _sound(str(new))


def test_a_first_backup_that_was_killed_is_no_graph_until_it_is_decided(
    graph: Graph, tmp_path: Path
) -> None:
    expected = _contents(graph)
    for point in (*_BEFORE, *_DECIDED):
        target = str(tmp_path / point)
        assert _backup(graph, target, point, 1).was_killed, point
        if point not in _VISIBLE:
            with pytest.raises((DamagedGraphError, NotFoundError)):
                og.open(target, read_only=True)
        og.backup(graph.root, target)
        assert _sound(target) == expected, point


def test_a_killed_restore_goes_on_where_it_stopped(graph: Graph, tmp_path: Path) -> None:
    backup = str(tmp_path / "backup")
    og.backup(graph.root, backup)
    expected = _contents(graph)
    for point in (*_BEFORE, *_DECIDED[:-1]):
        for visit in _visits(point):
            new = str(tmp_path / f"{point}-{visit}")
            ended = run(
                *("restore", backup, new),
                failpoints=f"{point}=kill@{visit}",
                module="tests.crash.copy_victim",
            )
            if not ended.was_killed:
                break
            og.restore(backup, new)
            graph = og.open(new)
            assert _contents(graph) == expected, (point, visit)
    put(graph, Person=[person("zoe", age=1)])
    assert og.verify(graph.root).ok


def _backup(graph: Graph, target: str, point: str, visit: int) -> Ended:
    return run(
        *("backup", graph.root, target),
        failpoints=f"{point}=kill@{visit}",
        module="tests.crash.copy_victim",
    )
