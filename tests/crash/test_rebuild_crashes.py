"""A rebuild that is killed leaves damage that is reported or a graph that is whole, and the next
one finishes it.

The gate kills a rebuild over a damaged newest version at every point, and over other damage at the
points around the write that decides; the nightly kills at every point and visit with all of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.errors import ConflictError, DamagedGraphError
from omnigraph_lake.graph import Graph
from tests.behaviours.histories import Content, content, person, put, small_graph
from tests.crash.copies import copy_root
from tests.crash.processes import run
from tests.gate.selection import for_gate, is_nightly
from tests.stores import folder_of

pytestmark = [pytest.mark.crash, pytest.mark.sampled(2)]

_BEFORE: Final = ("rebuild.begun", "rebuild.planned", "rebuild.pre_manifest")
_DECIDED: Final = (
    *("rebuild.post_manifest", "rebuild.synced", "rebuild.published"),
    *("rebuild.post_move", "rebuild.post_moves", "rebuild.post_audit"),
)
GATE_POINTS: Final = frozenset({*_BEFORE, *_DECIDED})
_LAST: Final = "rebuild.post_audit"
_MANY: Final = "rebuild.post_move"
"""Visited once for each damaged version."""
GARBAGE: Final = b"\xa5\x5a" * 600


def _versions(root: str) -> list[Path]:
    """The files of main's manifest versions, newest first."""
    return sorted(folder_of(root, names.lance_versions(names.MANIFEST)).iterdir())


def spoil_newest(root: str) -> int:
    return _spoil(_versions(root)[:1])


def spoil_three(root: str) -> int:
    return _spoil(_versions(root)[:3])


def spoil_all(root: str) -> int:
    return _spoil(_versions(root))


def empty_newest(root: str) -> int:
    _versions(root)[0].write_bytes(b"")
    return 1


def remove_all(root: str) -> int:
    shutil.rmtree(folder_of(root, names.MANIFEST))
    return 0


def _spoil(paths: list[Path]) -> int:
    for path in paths:
        path.write_bytes(GARBAGE)
    return len(paths)


DAMAGES: Final = (spoil_newest, spoil_three, spoil_all, empty_newest, remove_all)
_AROUND_THE_WRITE: Final = frozenset(
    {
        (spoil_three, "rebuild.post_move"),
        (spoil_all, "rebuild.pre_manifest"),
        (spoil_all, "rebuild.post_manifest"),
        (empty_newest, "rebuild.pre_manifest"),
        (empty_newest, "rebuild.post_move"),
        (remove_all, "rebuild.pre_manifest"),
        (remove_all, "rebuild.post_manifest"),
    }
)
CASES: Final = for_gate(
    [(damage, point) for damage in DAMAGES for point in (*_BEFORE, *_DECIDED)],
    lambda case: case[0] is spoil_newest or case in _AROUND_THE_WRITE,
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Content]:
    """A few commits; the last one is what an older manifest would lose."""
    graph = small_graph(str(tmp_path_factory.mktemp("rebuilds") / "graph"))
    for age in range(3):
        put(graph, Person=[person("dan", age=age)])
    return graph.root, content(graph)


@pytest.mark.local_disk("an object does not change under its tag")
@pytest.mark.parametrize(("damage", "point"), CASES)
def test_a_killed_rebuild_puts_no_older_state_in_force(
    damage: Callable[[str], int], point: str, template: tuple[str, Content], tmp_path: Path
) -> None:
    original, before = template
    for visit in _visits(point):
        root = str(tmp_path / f"graph-{visit}")
        copy_root(original, root)
        damaged = damage(root)
        ended = run(
            *("rebuild", root),
            failpoints=f"{point}=kill@{visit}",
            module="tests.crash.rebuild_victim",
        )
        if not ended.was_killed:
            assert visit > max(1, damaged) or (point == _MANY and not damaged), (visit, damaged)
            break  # every visit had its turn
        _require_no_older_state(root, before, is_decided=point in _DECIDED)
        _finish(root, is_finished=point == _LAST)
        _require_whole(og.open(root), before, damaged)


def _visits(point: str) -> Iterator[int]:
    return count(1) if is_nightly() and point == _MANY else iter((1,))


def _require_no_older_state(root: str, before: Content, *, is_decided: bool) -> None:
    for read_only in (True, False):
        if is_decided:
            assert content(og.open(root, read_only=read_only)) == before
            continue
        with pytest.raises(DamagedGraphError) as caught:
            og.open(root, read_only=read_only)
        assert f"omnigraph repair {root} --rebuild-manifest" in caught.value.next_step


def _finish(root: str, *, is_finished: bool) -> None:
    if not is_finished:
        og.rebuild_manifest(root)
        report = og.rebuild_manifest(root, dry_run=False)
        assert report.commit_id is not None
        assert report.audited
    with pytest.raises(ConflictError, match="nothing to rebuild"):
        og.rebuild_manifest(root, dry_run=False)


def _require_whole(graph: Graph, before: Content, damaged: int) -> None:
    assert content(graph) == before
    rebuilt = [commit for commit in graph.commits() if commit.actor == "omnigraph:repair"]
    recoveries = [
        found for found in graph.maintenance.recoveries() if found.kind == "manifest_rebuilt"
    ]
    assert [found.commit_id for found in recoveries] == [commit.commit_id for commit in rebuilt]
    assert len(rebuilt) == 1
    put(graph, Person=[person("eve", age=5)])
    assert graph.maintenance.check(deep=True).ok
    quarantine = folder_of(graph.root, names.QUARANTINE_DIR)
    assert len([path for path in quarantine.rglob("*.manifest") if path.is_file()]) == damaged
