"""Branches: made from anything, read and written apart, deleted without a trace."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.errors import (
    BranchGoneError,
    ConflictError,
    DamagedGraphError,
    InvalidInputError,
    NotFoundError,
    ReadOnlyError,
)
from omnigraph_lake.graph import Graph
from tests.behaviours.histories import content, forks, knows, people, person, put, small_graph
from tests.behind import (
    claim_system_branch,
    raise_floor_of_removed_table,
    requests_of,
    small_limits,
    wide_schema,
)
from tests.gate.selection import for_gate, is_nightly
from tests.stores import folder_of

pytestmark = pytest.mark.behaviour


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return small_graph(graph_root)


def names_of(graph: Graph) -> list[str]:
    return [branch.name for branch in graph.branches.list()]


def test_a_branch_starts_with_the_content_of_main_and_then_goes_its_own_way(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    before = content(graph)

    assert content(dev) == before

    put(dev, Person=[person("dan", age=4)])
    put(graph, Person=[person("eve", age=5)])

    assert people(dev) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 4}
    assert people(graph) == {"ann": 1, "bob": 2, "cyd": 3, "eve": 5}


def test_making_a_branch_copies_no_row_and_forks_no_table(graph: Graph) -> None:
    dev = graph.branches.create("dev")

    assert dev.snapshot().tables == graph.snapshot().tables
    assert forks(dev) == set()


def test_a_branch_of_a_branch_that_has_not_written_yet_has_what_that_one_reads(
    graph: Graph,
) -> None:
    written = graph.branches.create("written")
    put(written, Person=[person("dan", age=4)])
    unwritten = graph.branches.create("unwritten", source="written")

    grandchild = graph.branches.create("grandchild", source="unwritten")
    great_grandchild = graph.branches.create("great-grandchild", source="grandchild")

    expected = {"ann": 1, "bob": 2, "cyd": 3, "dan": 4}
    assert people(unwritten) == people(grandchild) == people(great_grandchild) == expected
    put(great_grandchild, Person=[person("eve", age=5)])
    assert people(great_grandchild) == {**expected, "eve": 5}
    assert people(grandchild) == expected


@pytest.mark.parametrize(
    ("write", "forked"),
    [
        pytest.param({"Person": [person("dan")]}, {"Person"}, id="nodes"),
        pytest.param({"Knows": [knows("k", "bob", "cyd")]}, {"Knows"}, id="edges"),
        pytest.param(
            {"Pet": [{"name": "kit"}], "Knows": [knows("k", "bob", "cyd")]},
            {"Pet", "Knows"},
            id="both",
        ),
    ],
)
def test_only_the_types_that_a_branch_writes_are_forked(
    graph: Graph, write: dict[str, og.Rows], forked: set[str]
) -> None:
    dev = graph.branches.create("dev")

    dev.write(write)

    assert forks(dev) == forked
    assert forks(graph) == set()
    unwritten = set(dev.snapshot().tables) - {
        key for key in dev.snapshot().tables if key.partition(":")[2] in forked
    }
    for key in unwritten:
        assert dev.snapshot().tables[key].pin == graph.snapshot().tables[key].pin


def test_a_second_write_stays_on_the_first_fork(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Pet=[{"name": "kit"}])
    fork = dev.snapshot().tables["node:Pet"].fork

    put(dev, Pet=[{"name": "kat"}])

    assert dev.snapshot().tables["node:Pet"].fork == fork


def test_a_write_that_is_refused_leaves_a_branch_as_it_was(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    before = dev.snapshot()

    with pytest.raises(InvalidInputError):
        dev.write({"Knows": [knows("k", "bob", "nobody")]})

    assert dev.snapshot() == before
    assert dev.maintenance.check().ok


def test_deleting_a_node_on_a_branch_takes_its_edges_there_and_nowhere_else(graph: Graph) -> None:
    dev = graph.branches.create("dev")

    dev.delete({"Person": ["bob"]})

    assert set(content(dev)["Person"]) == {"ann", "cyd"}
    assert content(dev)["Knows"] == {}
    assert set(content(graph)["Knows"]) == {"ann-bob"}
    assert forks(dev) == {"Person", "Knows"}


def test_a_branch_of_a_branch_inherits_what_that_one_wrote(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4)])
    inner = dev.branches.create("inner")

    put(inner, Pet=[{"name": "kit"}])
    put(dev, Person=[person("eve", age=5)])

    assert people(inner) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 4}
    assert set(content(inner)["Pet"]) == {"rex", "kit"}
    assert inner.snapshot().tables["node:Person"].fork is not None
    put(inner, Person=[person("fay", age=6)])
    assert people(inner) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 4, "fay": 6}
    assert people(dev) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 4, "eve": 5}
    assert inner.maintenance.check().ok


def test_a_read_that_began_stays_at_its_pin(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4)])
    reader = dev.scan("Person", columns=["id"])
    pinned = dev.at("dev")

    put(dev, Person=[person("eve", age=5)])
    dev.delete({"Person": ["ann"]})

    assert set(reader.read_all().column("id").to_pylist()) == {"ann", "bob", "cyd", "dan"}
    assert people(pinned) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 4}


def test_a_branch_is_made_from_a_branch_tag_commit_version_or_time(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    commit_id = put(dev, Person=[person("dan", age=4)])
    version = dev.snapshot().manifest_version
    moment = dev.commits(limit=1)[0].created_at
    dev.tags.create("first-dan")
    expected = content(dev)
    put(dev, Person=[person("dan", age=40), person("eve", age=5)])

    made = [
        dev.branches.create("from-branch", source="dev"),
        dev.branches.create("from-tag", source="first-dan"),
        dev.branches.create("from-commit", source=commit_id),
        dev.branches.create("from-version", source=version),
        dev.branches.create("from-time", source=moment),
        graph.branches.create("from-elsewhere", source=commit_id),
    ]

    assert [content(each) for each in made] == [content(dev), *[expected] * 5]
    for each in made:
        assert put(each, Person=[person("fay", age=6)])
        assert people(each)["fay"] == 6
    for branch in made if is_nightly() else made[1:2]:
        assert branch.maintenance.check().ok
    assert people(dev) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 40, "eve": 5}


def test_a_branch_is_made_from_a_commit_whose_manifest_version_is_gone(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_limits(monkeypatch, manifest_versions=4, commits_in_manifest=4)
    commit_id = put(graph, Person=[person("old", age=9)])
    version = graph.snapshot().manifest_version
    expected = content(graph)
    for number in range(10):
        put(graph, Pet=[{"name": f"pet{number}"}])
    with pytest.raises(NotFoundError, match="no longer kept"):
        graph.at(version)

    made = graph.branches.create("made", source=commit_id)

    assert content(made) == expected
    put(made, Pet=[{"name": "new"}])
    assert set(content(made)["Pet"]) == {"rex", "new"}
    assert made.maintenance.check().ok


def test_a_branch_of_an_old_version_stays_readable_when_main_forgets_that_version(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_limits(monkeypatch, manifest_versions=4, commits_in_manifest=4)
    untouched = graph.branches.create("untouched", source=graph.snapshot().manifest_version)
    expected = content(untouched)
    for number in range(12):
        put(graph, Pet=[{"name": f"pet{number}"}])

    assert content(untouched) == expected
    put(untouched, Pet=[{"name": "kit"}])
    assert set(content(untouched)["Pet"]) == {"rex", "kit"}
    assert untouched.maintenance.check().ok


def test_the_list_has_main_first_and_no_branch_of_the_system(graph: Graph) -> None:
    graph.branches.create("zoo")
    dev = graph.branches.create("dev")
    dev.branches.create("dev/inner")
    put(dev, Person=[person("dan")])
    claim_system_branch(graph, "__hidden")

    listed = {branch.name: branch for branch in graph.branches.list()}

    assert list(listed) == ["main", "dev", "dev/inner", "zoo"]
    assert [listed[name].parent for name in listed] == [None, "main", "dev", "main"]
    assert [listed[name].tables_written for name in list(listed)[1:]] == [1, 0, 0]
    assert listed["dev"].commit_id == dev.commits(limit=1)[0].commit_id
    with pytest.raises(NotFoundError):
        graph.checkout("__hidden")


GOOD_NAMES = (
    *("dev", "a/b", "a/b/c", "Dev.2-x_y", "-x", "_x", "HEADS", "MAIN", "x/main", "1a", "v"),
    *("ä", "日本", "x.json", "a.lock/b", "v1.0", "2026-13-45", "nul", "x" * 160),
)
BAD_NAMES: tuple[Any, ...] = (
    *("main", " main ", "main/x", "__x", "01M7FMJP2JQ64ACNXDJ6GSS1KF", "v17", "17", "2026-11-01"),
    *("", ".", "..", "a..b", "a@b", "@", "a b", "a//b", "/a", "a/", "a.", "x.lock", "*", "a\nb"),
    *("a\0b", "🐍", "x" * 161, None, 5),
)
LONG_NAMES = ("é" * 80, "日" * 53, "日" * 13, "a/" * 60 + "b", "ä/" * 20 + "b")


def test_good_names_can_be_made_beside_each_other(graph: Graph) -> None:
    for name in GOOD_NAMES:
        graph.branches.create(f"  {name} ")

    assert sorted(names_of(graph)) == sorted(["main", *GOOD_NAMES])
    assert graph.maintenance.check().ok


UNLIKE_OTHERS = ("a/b/c", "Dev.2-x_y", "日本", "a.lock/b", "x" * 160)
"""Good names that are stored in ways of their own: nested, with signs, not ASCII, long."""


@pytest.mark.parametrize("name", for_gate(GOOD_NAMES, UNLIKE_OTHERS.__contains__))
def test_a_good_name_can_be_written_deleted_and_made_again(graph: Graph, name: str) -> None:
    put(graph.branches.create(name), Pet=[{"name": "kit"}])

    assert names_of(graph) == ["main", name]
    assert set(content(graph.checkout(name))["Pet"]) == {"rex", "kit"}
    graph.branches.delete(name)
    assert names_of(graph) == ["main"]
    again = graph.branches.create(name)
    assert again.snapshot().tables == graph.snapshot().tables
    assert content(graph)["Pet"].keys() == {"rex"}


def test_a_bad_name_is_refused_and_nothing_is_made(graph: Graph) -> None:
    for name in BAD_NAMES:
        with pytest.raises(InvalidInputError):
            pytest.fail(f"{graph.branches.create(name)} is made as {name!r:.40}")

    assert names_of(graph) == ["main"]


def test_a_long_name_is_refused_at_once_or_can_be_written(graph: Graph) -> None:
    for name in LONG_NAMES:
        try:
            made = graph.branches.create(name)
        except InvalidInputError:
            assert names_of(graph) == ["main"]
            continue
        put(made, Pet=[{"name": "kit"}])
        assert set(content(graph.checkout(name))["Pet"]) == {"rex", "kit"}
        graph.branches.delete(name)


def test_neighbours_in_the_tree_of_names_live_and_die_apart(graph: Graph) -> None:
    made = [graph.branches.create(name) for name in ("a", "a/b", "a/b/c", "a/d", "x/main")]
    for each in made:
        put(each, Pet=[{"name": each.branch}])

    graph.branches.delete("a/b")
    graph.branches.delete("x/main")

    for each in (made[0], made[2], made[3]):
        assert set(content(each)["Pet"]) == {"rex", each.branch}
    assert made[3].maintenance.check().ok
    assert graph.maintenance.check().ok


def test_a_name_that_is_taken_is_refused(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Pet=[{"name": "kit"}])
    graph.tags.create("release")

    with pytest.raises(ConflictError, match="already has a branch 'dev'"):
        graph.branches.create("dev")
    with pytest.raises(ConflictError, match="tag 'release'"):
        graph.branches.create("release")
    with pytest.raises(ConflictError, match="has a branch 'dev'"):
        graph.tags.create("dev")

    assert set(content(dev)["Pet"]) == {"rex", "kit"}
    assert names_of(graph) == ["main", "dev"]


def test_a_branch_made_again_starts_fresh(graph: Graph) -> None:
    first = graph.branches.create("dev")
    first_commit = put(first, Person=[person("dan", age=4)])
    graph.branches.delete("dev")
    put(graph, Person=[person("eve", age=5)])

    again = graph.branches.create("dev")

    assert people(again) == {"ann": 1, "bob": 2, "cyd": 3, "eve": 5}
    assert forks(again) == set()
    assert first_commit not in [commit.commit_id for commit in again.commits()]
    put(again, Person=[person("fay", age=6)])
    assert people(again) == {"ann": 1, "bob": 2, "cyd": 3, "eve": 5, "fay": 6}
    assert again.maintenance.check().ok


def test_a_branch_made_again_from_a_tag_of_its_earlier_life_leaves_the_tag_alone(
    graph: Graph,
) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4)])
    dev.tags.create("kept")
    put(dev, Person=[person("eve", age=5)])
    graph.branches.delete("dev")

    again = graph.branches.create("dev", source="kept")
    put(again, Person=[person("fay", age=6)])

    assert people(again) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 4, "fay": 6}
    assert people(graph.at("kept")) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 4}
    assert again.maintenance.check().ok
    graph.branches.delete("dev")
    assert people(graph.at("kept")) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 4}


def test_a_branch_with_descendants_cannot_be_deleted(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4)])
    commit_id = dev.commits(limit=1)[0].commit_id
    put(dev, Person=[person("eve", age=5)])
    graph.branches.create("by-commit", source=commit_id)
    dev.branches.create("by-name")

    with pytest.raises(ConflictError, match="cannot be deleted") as caught:
        graph.branches.delete("dev")

    assert "by-commit" in caught.value.what
    assert "by-name" in caught.value.what
    assert people(dev)["eve"] == 5
    for name in ("by-commit", "by-name", "dev"):
        graph.branches.delete(name)
    assert names_of(graph) == ["main"]


def test_a_branch_made_from_a_tag_outlives_the_tag_and_the_branch_it_was_on(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4)])
    dev.tags.create("release")
    hotfix = graph.branches.create("hotfix", source="release")
    graph.tags.delete("release")

    try:
        graph.branches.delete("dev")
    except ConflictError:
        assert "dev" in names_of(graph)

    assert people(hotfix) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 4}
    put(hotfix, Person=[person("eve", age=5)])
    assert people(hotfix) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 4, "eve": 5}
    assert hotfix.maintenance.check().ok


def test_a_branch_made_from_a_commit_in_the_history_outlives_the_branch_it_was_on(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_limits(monkeypatch, manifest_versions=4, commits_in_manifest=4)
    dev = graph.branches.create("dev")
    commit_id = put(dev, Person=[person("dan", age=4)])
    for number in range(8):
        put(dev, Pet=[{"name": f"pet{number}"}])
    hotfix = graph.branches.create("hotfix", source=commit_id)

    try:
        graph.branches.delete("dev")
    except ConflictError:
        assert "dev" in names_of(graph)

    assert people(hotfix) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 4}
    assert hotfix.maintenance.check().ok


def test_what_is_not_there_cannot_be_deleted(graph: Graph) -> None:
    graph.branches.create("gone")
    graph.branches.delete("gone")

    for name in ("nope", "gone"):
        with pytest.raises(NotFoundError, match=f"has no branch '{name}'"):
            graph.branches.delete(name)
    for name in ("main", "__x", "a@b"):
        with pytest.raises(InvalidInputError):
            graph.branches.delete(name)

    assert graph.maintenance.check().ok


READS_OF_EVERY_BRANCH = {
    "branches": lambda graph, _: graph.branches.list(),
    "branch": lambda graph, _: people(graph.checkout("dev")),
    "outcome": lambda graph, _: graph.outcome("01ARZ3NDEKTSV4RRFFQ69G5FAV"),
    "commit": lambda graph, _: graph.at("01ARZ3NDEKTSV4RRFFQ69G5FAV"),
    "deep check": lambda graph, _: graph.maintenance.check(deep=True),
    "backup": lambda graph, folder: og.backup(graph.root, str(folder / "copy")),
}


@pytest.mark.parametrize("read", READS_OF_EVERY_BRANCH.values(), ids=READS_OF_EVERY_BRANCH)
def test_a_branch_without_its_manifest_is_damage_and_can_be_deleted(
    graph: Graph, tmp_path: Path, read: Callable[[Graph, Path], object]
) -> None:
    put(graph.branches.create("dev"), Person=[person("dan", age=4)])
    graph.branches.create("other")
    for path in folder_of(graph.root, "__manifest", "tree").glob("dev.*"):
        shutil.rmtree(path)
    reader = og.open(graph.root)

    with pytest.raises(DamagedGraphError, match=r"branch 'dev' of .* is damaged") as caught:
        read(reader, tmp_path)

    assert f"omnigraph branch delete {graph.root} dev`" in caught.value.next_step
    graph.branches.delete("dev")
    assert names_of(og.open(graph.root)) == ["main", "other"]


def test_a_handle_of_a_deleted_branch_reads_and_writes_nothing(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4)])
    graph.branches.delete("dev")

    for use in (
        lambda: dev.write({"Person": [person("eve")]}),
        lambda: dev.delete({"Person": ["ann"]}),
        lambda: dev.merge("main"),
        lambda: graph.merge("main", into="dev"),
        lambda: content(dev),
        dev.commits,
        dev.maintenance.check,
        dev.snapshot,
    ):
        with pytest.raises(NotFoundError, match="has no branch 'dev'"):
            use()

    assert people(graph) == {"ann": 1, "bob": 2, "cyd": 3}
    assert graph.maintenance.check().ok


def test_a_handle_of_a_branch_made_again_means_the_new_one(graph: Graph) -> None:
    old = graph.branches.create("dev")
    put(old, Person=[person("dan", age=4)])
    graph.branches.delete("dev")
    new = graph.branches.create("dev")

    put(old, Person=[person("eve", age=5)])

    assert people(new) == people(old) == {"ann": 1, "bob": 2, "cyd": 3, "eve": 5}


def test_a_write_whose_branch_is_deleted_and_made_anew_meanwhile_reaches_neither(
    graph: Graph,
) -> None:
    dev = graph.branches.create("dev")
    schema = pa.schema([("name", pa.string()), ("age", pa.int32())])

    def rows() -> Iterator[pa.RecordBatch]:
        graph.branches.delete("dev")
        graph.branches.create("dev")
        yield pa.RecordBatch.from_pylist([{"name": "dan", "age": 4}], schema=schema)

    with pytest.raises(BranchGoneError, match="was deleted concurrently"):
        dev.write({"Person": pa.RecordBatchReader.from_batches(schema, rows())})

    for branch in ("main", "dev"):
        assert people(graph.checkout(branch)) == {"ann": 1, "bob": 2, "cyd": 3}
    assert forks(graph.checkout("dev")) == set()
    assert graph.checkout("dev").maintenance.check().ok


def test_a_load_and_an_export_on_a_branch_stay_there(graph: Graph, tmp_path: Path) -> None:
    dev = graph.branches.create("dev")
    source = tmp_path / "more.jsonl"
    lines = [
        {"type": "Person", "data": {"name": "dan", "age": 4}},
        {"edge": "Knows", "from": "dan", "to": "ann", "data": {"since": 7}},
    ]
    source.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    by_handle = dev.load(source)
    by_name = graph.load(source, mode="merge", options=LoadOptions(branch="dev"))
    dev.export(tmp_path / "dev.jsonl")
    graph.export(tmp_path / "main.jsonl")

    assert by_handle.commit_id is not None
    assert by_name.commit_id is not None
    assert people(graph) == {"ann": 1, "bob": 2, "cyd": 3}
    assert people(dev) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 4}
    assert forks(dev) == {"Person", "Knows"}
    exported = [
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("dev.jsonl", "main.jsonl")
    ]
    found = [
        {line["data"]["name"] for line in lines if line.get("type") == "Person"}
        for lines in exported
    ]
    assert found == [{"ann", "bob", "cyd", "dan"}, {"ann", "bob", "cyd"}]
    assert dev.maintenance.check().ok


def test_a_branch_has_the_commits_of_its_parent_up_to_the_fork_and_its_own(graph: Graph) -> None:
    shared = [commit.commit_id for commit in graph.commits()]
    dev = graph.branches.create("dev")
    own = [put(dev, Pet=[{"name": name}]) for name in ("kit", "kat")]
    put(graph, Pet=[{"name": "later"}])

    commits = dev.commits()

    assert [commit.commit_id for commit in commits] == [own[1], own[0], *shared]
    assert [commit.branch for commit in commits] == ["dev", "dev", *[None] * len(shared)]
    assert commits[0].parent_id == own[0]
    assert commits[1].parent_id == shared[0]
    assert dev.commits(limit=1)[0].commit_id == own[1]


def test_an_operation_on_a_branch_can_be_asked_for_and_repeated(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    written = dev.write({"Person": [person("dan", age=4)]})

    assert graph.outcome(written.operation_id).value == "published"
    assert dev.outcome(written.operation_id).value == "published"
    again = dev.write({"Person": [person("dan", age=4)]}, operation_id=written.operation_id)
    assert again.commit_id == written.commit_id
    assert again.tables == {}


def test_a_check_of_a_branch_is_about_the_branch(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4)])

    report = dev.maintenance.check()

    assert report.ok
    assert report.branch == "dev"
    assert report.rows == graph.maintenance.check().rows + 1
    assert report.commits == len(graph.commits()) + 1
    assert report.orphan_files == 0


def test_a_branch_read_only_cannot_be_written_made_or_deleted(graph: Graph) -> None:
    put(graph.branches.create("dev"), Person=[person("dan", age=4)])
    reader = og.open(graph.root, read_only=True)

    assert people(reader.checkout("dev")) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 4}
    for use in (
        lambda: reader.branches.create("more"),
        lambda: reader.branches.delete("dev"),
        lambda: reader.merge("dev"),
        lambda: reader.tags.create("t"),
        lambda: reader.checkout("dev").write({"Pet": [{"name": "kit"}]}),
    ):
        with pytest.raises(ReadOnlyError):
            use()

    assert names_of(graph) == ["main", "dev"]


@pytest.mark.parametrize("cleaned", [False, True], ids=["new", "cleaned"])
def test_making_a_branch_of_many_tables_takes_fewer_than_20_requests(
    graph_root: str, cleaned: bool
) -> None:
    graph = og.init(graph_root, schema=wide_schema(60))
    if cleaned:
        raise_floor_of_removed_table(graph)

    assert requests_of(graph_root, lambda: graph.branches.create("dev")) < 20
