"""Backups: one moment of everything, beside writers; they grow with what is new."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import ConflictError, DamagedGraphError, InvalidInputError, NotFoundError
from omnigraph_lake.graph import Graph
from tests.behaviours.histories import (
    Content,
    content,
    knows,
    owns,
    people,
    person,
    put,
    small_graph,
)
from tests.behind import FailpointReached, failing_at
from tests.behind import meanwhile as during
from tests.gate.selection import is_nightly
from tests.stores import files_of, folder_of, root_at

pytestmark = pytest.mark.behaviour


@pytest.fixture
def graph(graph_root: str) -> Graph:
    """Main, a branch, a branch of that, a tag, and writes on all."""
    graph = small_graph(graph_root)
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4)])
    graph.tags.create("release", at="dev")
    deeper = graph.branches.create("deeper", source="dev")
    put(deeper, Person=[person("ann", age=100), person("fay", age=6)])
    put(graph, Person=[person("eve", age=5)])
    return graph


@pytest.fixture
def target(tmp_path: Path) -> str:
    return root_at(tmp_path / "backup")


def contents(graph: Graph) -> dict[str, Content]:
    return {branch.name: content(graph.checkout(branch.name)) for branch in graph.branches.list()}


def told(graph: Graph) -> dict[str, object]:
    """Everything that a graph says of itself and its past."""
    branches = [graph.checkout(branch.name) for branch in graph.branches.list()]
    return {
        "rows": contents(graph),
        "tags": {tag.tag: content(graph.at(tag.tag)) for tag in graph.tags.list()},
        "commits": {each.branch: each.commits() for each in branches},
        "past": {
            commit.commit_id: content(graph.at(commit.commit_id))
            for commit in graph.commits(limit=None if is_nightly() else 2)
        },
        "schema": graph.schema.text,
    }


def put_everywhere(graph: Graph, name: str) -> None:
    put(
        graph,
        Person=[person(name, age=7)],
        Pet=[{"name": name}],
        Knows=[knows(name, "ann", "bob")],
        Owns=[owns(name, "bob", "rex")],
    )


def require_sound(root: str) -> None:
    report = og.verify(root)
    assert report.ok, report


def remove(root: str) -> None:
    shutil.rmtree(folder_of(root))


def test_a_backup_is_a_graph_with_everything_and_is_restored_without_its_source(
    graph: Graph, target: str, tmp_path: Path
) -> None:
    expected = told(graph)

    report = og.backup(graph.root, target)

    assert report.branches == ("main", "deeper", "dev")
    assert report.tags == ("release",)
    assert told(og.open(target, read_only=True)) == expected
    require_sound(target)
    remove(graph.root)
    new = root_at(tmp_path / "restored")
    og.restore(target, new)
    remove(target)
    restored = og.open(new)
    assert told(restored) == expected
    put(restored.checkout("deeper"), Person=[person("gus", age=7)])
    restored.merge("deeper")
    assert people(restored) == {
        "ann": 100,
        "bob": 2,
        "cyd": 3,
        "dan": 4,
        "eve": 5,
        "fay": 6,
        "gus": 7,
    }
    require_sound(new)


def test_the_next_backup_copies_what_is_new_and_nothing_else(graph: Graph, target: str) -> None:
    first = og.backup(graph.root, target)
    unchanged = og.backup(graph.root, target)
    before = {path: path.stat().st_mtime_ns for path in files_of(target)}
    put(graph.checkout("dev"), Person=[person("gus", age=7)])

    second = og.backup(graph.root, target)

    assert (unchanged.files_copied, unchanged.is_changed) == (0, False)
    assert second.files_copied <= 12 < first.files_copied
    after = {path: path.stat().st_mtime_ns for path in files_of(target)}
    rewritten = [path for path in before.keys() & after.keys() if before[path] != after[path]]
    assert [path for path in rewritten if "_backups" not in path.parts] == []
    assert told(og.open(target, read_only=True)) == told(graph)
    require_sound(target)


@pytest.mark.nightly("the next backup copies what is new, in the gate too")
def test_deleted_branches_and_tags_are_gone_from_the_next_backup(graph: Graph, target: str) -> None:
    og.backup(graph.root, target)
    graph.branches.delete("deeper")
    graph.tags.delete("release")
    again = graph.branches.create("deeper")
    put(again, Person=[person("hal", age=8)])

    og.backup(graph.root, target)

    assert told(og.open(target, read_only=True)) == told(graph)
    require_sound(target)


@pytest.mark.nightly("the next backup copies what is new, in the gate too")
def test_maintenance_of_the_source_does_not_disturb_its_backups(graph: Graph, target: str) -> None:
    og.backup(graph.root, target)
    for age in range(3):
        put(graph, Person=[person("ann", age=age)])
    graph.maintenance.optimize()
    graph.maintenance.cleanup(keep_versions=1, dry_run=False, allow_unsafe_keep=True)

    og.backup(graph.root, target)

    assert contents(og.open(target, read_only=True)) == contents(graph)
    require_sound(target)


@contextmanager
def meanwhile(act: Callable[[], object]) -> Iterator[None]:
    """Do something again and again in another thread."""
    end = threading.Event()
    failures: list[BaseException] = []

    def repeat() -> None:
        try:
            while not end.is_set():
                act()
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
    assert failures == []


def test_a_backup_beside_a_writer_is_one_of_the_states_that_there_were(
    graph: Graph, target: str
) -> None:
    """Every commit moves two tables together, and cleanup runs between commits."""
    ages = itertools.count(10)
    has_written = threading.Event()

    def write_and_clean() -> None:
        age = next(ages)
        put(graph, Person=[person("ann", age=age)], Pet=[{"name": "rex", "kind": str(age)}])
        if age % 3 == 2:
            graph.maintenance.cleanup(keep_versions=1, dry_run=False, allow_unsafe_keep=True)
        has_written.set()

    with meanwhile(write_and_clean):
        assert has_written.wait(60)
        og.backup(graph.root, target)
        has_written.clear()
        assert has_written.wait(60)
        report = og.backup(graph.root, target)
    copy = og.open(target, read_only=True)
    rows = content(copy)

    assert rows["Pet"]["rex"]["kind"] == str(rows["Person"]["ann"]["age"])
    assert copy.commits()[0].commit_id == report.commit_id
    require_sound(target)


def test_a_clone_of_one_branch_has_main_and_that_branch(graph: Graph, target: str) -> None:
    expected = contents(graph)

    report = og.clone(graph.root, target, branch="deeper")

    assert report.branches == ("main", "deeper")
    remove(graph.root)
    clone = og.open(target)
    assert contents(clone) == {name: expected[name] for name in ("main", "deeper")}
    put(clone.checkout("deeper"), Person=[person("gus", age=7)])
    clone.merge("deeper")
    require_sound(target)


def test_a_backup_has_what_a_branch_left_that_is_gone_and_partly_tagged(
    graph: Graph, target: str
) -> None:
    put(graph.checkout("dev"), Person=[person("gus", age=7)])
    last = graph.checkout("dev").commits(limit=1)[0].commit_id
    graph.branches.delete("deeper")
    graph.branches.delete("dev")
    expected = content(graph.at(last))

    og.backup(graph.root, target)

    assert content(og.open(target, read_only=True).at(last)) == expected


@pytest.mark.local_disk("links are things of a disk")
def test_a_place_that_links_lead_into_or_out_of_is_refused(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "into").symlink_to(graph.root)
    full, linked = tmp_path / "full", tmp_path / "linked"
    full.mkdir()
    (full / "theirs").write_text("theirs")
    linked.mkdir()
    (linked / "out").symlink_to(full)
    os.utime(full, ns=(10**18, full.stat().st_mtime_ns))
    before = full.stat().st_atime_ns

    with pytest.raises(InvalidInputError, match="must not contain one another"):
        og.backup(graph.root, str(tmp_path / "into" / "backup"))
    with pytest.raises(ConflictError, match="is not empty"):
        og.backup(graph.root, str(linked))

    assert full.stat().st_atime_ns == before, "a link was followed"
    assert not (Path(graph.root) / "backup").exists()


def test_only_a_backup_of_the_same_graph_is_added_to(
    graph: Graph, target: str, tmp_path: Path
) -> None:
    other = small_graph(root_at(tmp_path / "other"))
    put(other, Person=[person("zed", age=9)])
    og.clone(graph.root, root_at(tmp_path / "clone"))

    with pytest.raises(ConflictError, match="is not empty"):
        og.backup(graph.root, other.root)
    with pytest.raises(ConflictError, match="is not empty"):
        og.restore(graph.root, root_at(tmp_path / "clone"))
    with pytest.raises(InvalidInputError, match="must not contain one another"):
        og.backup(graph.root, f"{graph.root}/backup")
    with pytest.raises(NotFoundError, match="'nope'"):
        og.clone(graph.root, target, branch="nope")
    with pytest.raises(NotFoundError):
        og.backup(root_at(tmp_path / "nowhere"), target)
    og.backup(graph.root, target)
    put(og.open(target), Person=[person("gus", age=7)])
    with pytest.raises(ConflictError, match="was written to since its last backup"):
        og.backup(graph.root, target)


def test_what_an_unfinished_backup_left_is_not_taken_for_what_a_restored_graph_wrote(
    graph: Graph, target: str, tmp_path: Path
) -> None:
    """The graph was lost with its newest commit, and its successor makes the same versions anew.

    The files of these versions are of the same size, or nearly: of four tables some are the same.
    """
    og.backup(graph.root, target)
    put_everywhere(graph, "gus")
    with failing_at("copy.pre_record"), pytest.raises(FailpointReached):
        og.backup(graph.root, target)
    remove(graph.root)
    successor = root_at(tmp_path / "graf!")
    og.restore(target, successor)
    restored = og.open(successor)
    put_everywhere(restored, "hal")

    og.backup(successor, target)

    assert told(og.open(target, read_only=True)) == told(restored)
    require_sound(target)


@pytest.mark.nightly("a backup beside a writer is in the gate")
def test_what_happens_after_the_moment_is_not_in_the_backup(graph: Graph, target: str) -> None:
    before = told(graph)

    def change_everything() -> None:
        put_everywhere(graph, "gus")
        put(graph.branches.create("newer"), Person=[person("hal", age=8)])
        graph.tags.create("later")
        schema = f"{graph.schema.text}\nnode Place {{ name: String @key }}"
        graph.schema.apply(schema, allow_diverged=True)

    with during("copy.post_claim", change_everything):
        report = og.backup(graph.root, target)

    assert report.branches == ("main", "deeper", "dev")
    assert told(og.open(target, read_only=True)) == before
    require_sound(target)
    og.backup(graph.root, target)
    assert told(og.open(target, read_only=True)) == told(graph)
    require_sound(target)


def test_of_two_backups_to_one_place_at_once_one_is_refused(graph: Graph, target: str) -> None:
    def write_and_back_up() -> None:
        put(graph, Person=[person("gus", age=7)])
        og.backup(graph.root, target)

    with (
        during("copy.pre_record", write_and_back_up),
        pytest.raises(ConflictError, match="another process made a backup"),
    ):
        og.backup(graph.root, target)

    assert told(og.open(target, read_only=True)) == told(graph)
    require_sound(target)
    og.backup(graph.root, target)


def test_a_backup_that_slept_while_two_others_were_made_is_refused(
    graph: Graph, target: str
) -> None:
    """The record that it puts has a number that was used, and is free again."""

    def write_and_back_up_twice() -> None:
        for age in range(2):
            put(graph, Person=[person("gus", age=age)])
            og.backup(graph.root, target)

    with (
        during("copy.pre_record", write_and_back_up_twice),
        pytest.raises(ConflictError, match="another process made a backup"),
    ):
        og.backup(graph.root, target)

    assert told(og.open(target, read_only=True)) == told(graph)
    assert not og.backup(graph.root, target).is_changed


def test_a_backup_of_an_earlier_state_of_a_branch_is_refused(graph: Graph, target: str) -> None:
    dev = graph.checkout("dev")

    def write_and_back_up() -> None:
        put(dev, Person=[person("gus", age=7)])
        og.backup(graph.root, target)

    with (
        during("copy.post_claim", write_and_back_up),
        pytest.raises(ConflictError, match="a later state"),
    ):
        og.backup(graph.root, target)

    assert told(og.open(target, read_only=True)) == told(graph)


@pytest.mark.nightly("a backup with everything is in the gate")
def test_a_backup_has_the_schemas_and_tables_of_older_commits(graph: Graph, target: str) -> None:
    before = graph.commits()[0].commit_id
    lines = graph.schema.text.splitlines()
    kept = "\n".join(line for line in lines if "Pet" not in line and "city" not in line)
    graph.schema.apply(f"{kept}\nnode Place {{ name: String @key }}", allow_diverged=True)
    put(graph, Place=[{"name": "home"}])

    og.backup(graph.root, target)

    copy = og.open(target, read_only=True)
    assert told(copy) == told(graph)
    assert copy.at(before).schema.text == graph.at(before).schema.text != copy.schema.text
    require_sound(target)


@pytest.mark.local_disk("an object store compares what it keeps by itself")
def test_a_damaged_file_of_the_source_is_not_copied_and_the_last_backup_stays(
    graph: Graph, target: str
) -> None:
    og.backup(graph.root, target)
    before = told(og.open(target, read_only=True))
    known = {path.name for path in files_of(target)}
    put(graph, Person=[person("gus", age=7)])
    (written,) = [
        path
        for path in files_of(graph.root)
        if path.name not in known and path.parent.name == "data" and "nodes" in path.parts
    ]
    spoilt = bytearray(written.read_bytes())
    spoilt[10] ^= 1
    written.write_bytes(spoilt)

    with pytest.raises(DamagedGraphError, match=written.name):
        og.backup(graph.root, target)

    assert told(og.open(target, read_only=True)) == before
    require_sound(target)
