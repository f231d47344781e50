"""A graph with branches is its files: moved or copied anywhere, it is the same graph there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from tests.behaviours.histories import Content, content, people, person, put, small_graph
from tests.gate.selection import is_nightly

pytestmark = [
    pytest.mark.behaviour,
    pytest.mark.local_disk("copies files behind the graph's back"),
]

BRANCHES = 20 if is_nightly() else 3


def branched_graph(root: Path) -> Graph:
    """Branches of main and of each other, each with writes; main has moved on since.

    They share its indexes, which decide what is the same person.
    """
    graph = small_graph(str(root))
    graph.maintenance.optimize()
    parent = "main"
    for number in range(BRANCHES):
        branch = graph.branches.create(f"b{number}", source=parent)
        put(branch, Person=[person(f"p{number}", age=number), person("ann", age=100 + number)])
        parent = "main" if number % 3 == 2 else f"b{number}"
    graph.tags.create("release", at="b0")
    put(graph, Person=[person("eve", age=50)])
    return graph


def contents(graph: Graph) -> dict[str, Content]:
    return {branch.name: content(graph.checkout(branch.name)) for branch in graph.branches.list()}


def moved(graph: Graph, to: Path) -> Graph:
    """The same files elsewhere, and nothing where they were."""
    shutil.copytree(graph.root, to)
    shutil.rmtree(graph.root)
    return og.open(str(to))


def files_below(root: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


def require_sound(graph: Graph) -> None:
    for branch in graph.branches.list():
        # A deep check compares the files of all branches; the nightly repeats it on each.
        deep = is_nightly() or branch.name == "main"
        report = graph.checkout(branch.name).maintenance.check(deep=deep)
        assert report.ok, report


def test_a_moved_graph_reads_the_same_on_every_branch_and_is_not_written_to(tmp_path: Path) -> None:
    original = branched_graph(tmp_path / "original")
    before, tagged = contents(original), content(original.at("release"))

    shutil.copytree(original.root, tmp_path / "copy")
    shutil.rmtree(original.root)
    files = files_below(tmp_path / "copy")
    copy = og.open(str(tmp_path / "copy"), read_only=True)

    assert contents(copy) == before
    assert content(copy.at("release")) == tagged
    assert files_below(tmp_path / "copy") == files


def test_a_copy_does_not_read_the_files_of_an_original_that_is_still_there(tmp_path: Path) -> None:
    original = branched_graph(tmp_path / "original")
    before = contents(original)
    shutil.copytree(original.root, tmp_path / "copy")
    for path in (tmp_path / "original").rglob("data/*.lance"):
        path.write_bytes(b"something else")

    assert contents(og.open(str(tmp_path / "copy"))) == before


def test_a_moved_graph_is_written_merged_and_kept_up_as_before(tmp_path: Path) -> None:
    graph = moved(branched_graph(tmp_path / "original"), tmp_path / "moved" / "deeper")
    first, last = graph.checkout("b0"), graph.checkout(f"b{BRANCHES - 1}")
    expected = people(last)

    put(last, Person=[person("p0", age=70)])
    last.delete({"Person": ["cyd"]})
    put(first, Person=[person("fay", age=71)])
    expected["p0"] = 70
    del expected["cyd"]
    assert people(last) == expected

    newer = graph.branches.create("newer", source=last.branch)
    put(newer, Person=[person("gus", age=72)])
    assert people(newer) == {**expected, "gus": 72}

    graph.merge("newer")
    assert people(graph)["gus"] == 72
    graph.maintenance.optimize()
    require_sound(graph)


def test_cleanup_of_a_moved_graph_keeps_what_its_branches_and_tags_share(tmp_path: Path) -> None:
    graph = moved(branched_graph(tmp_path / "original"), tmp_path / "moved")
    tagged = content(graph.at("release"))
    put(graph, Person=[person("bob", age=60), person("cyd", age=61)])
    graph.maintenance.optimize()
    branches = [
        graph.checkout(branch.name) for branch in graph.branches.list() if branch.name != "main"
    ]
    for branch in branches:
        branch.merge("main")  # from now on nothing is merged that is older
    put(graph, Person=[person("bob", age=62)])
    before = contents(graph)

    removed = graph.maintenance.cleanup(keep_versions=1, dry_run=False, allow_unsafe_keep=True)

    assert removed.bytes_removed > 0
    assert contents(graph) == before
    assert content(graph.at("release")) == tagged
    require_sound(graph)
