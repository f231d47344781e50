"""A lost manifest: the graph says so, and a rebuild brings back what was published."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.errors import ConflictError, DamagedGraphError, NotFoundError
from omnigraph_lake.graph import Graph
from tests.behaviours.histories import SCHEMA, content, people, person, put, small_graph
from tests.behind import FailpointReached, failing_at, small_limits
from tests.stores import files_of, folder_of

pytestmark = pytest.mark.behaviour

GARBAGE = b"\xa5\x5a" * 600


@pytest.fixture
def graph(graph_root: str) -> Graph:
    """A few commits on top of the small graph."""
    graph = small_graph(graph_root)
    for number in range(3):
        put(graph, Person=[person("dan", age=number)])
    return graph


def versions(graph: Graph) -> list[Path]:
    """The files that make versions of main's manifest, newest first."""
    return sorted(folder_of(graph.root, "__manifest", "_versions").iterdir())


def remove_manifest(graph: Graph) -> None:
    shutil.rmtree(folder_of(graph.root, "__manifest"))


def spoil_newest(graph: Graph) -> None:
    versions(graph)[0].write_bytes(GARBAGE)


def zero_newest(graph: Graph) -> None:
    newest = versions(graph)[0]
    newest.write_bytes(bytes(newest.stat().st_size))


def spoil_all(graph: Graph) -> None:
    for path in versions(graph):
        path.write_bytes(GARBAGE)


def remove_rows_of_all(graph: Graph) -> None:
    shutil.rmtree(folder_of(graph.root, "__manifest", "data"))


ON_DISK = pytest.mark.local_disk("an object does not change under its tag")
SPOILED_NEWEST = pytest.param(spoil_newest, id="spoiled-newest", marks=ON_DISK)
ZEROED_NEWEST = pytest.param(zero_newest, id="zeroed-newest", marks=ON_DISK)
SPOILED = pytest.param(spoil_all, id="spoiled", marks=ON_DISK)
REMOVED = pytest.param(remove_manifest, id="removed")
WITHOUT_ROWS = pytest.param(remove_rows_of_all, id="without-rows")


def stored(root: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in files_of(root)}


@pytest.mark.parametrize("damage", [REMOVED, SPOILED])
def test_opening_says_that_the_manifest_is_lost_and_how_to_rebuild_it(
    graph: Graph, damage: Callable[[Graph], None]
) -> None:
    damage(graph)

    for read_only in (True, False):
        with pytest.raises(DamagedGraphError) as caught:
            og.open(graph.root, read_only=read_only)
        assert f"omnigraph repair {graph.root} --rebuild-manifest" in caught.value.next_step
        assert "init" not in str(caught.value)
        assert caught.value.exit_code == 8


@pytest.mark.parametrize("damage", [REMOVED, SPOILED])
@pytest.mark.parametrize("force", [False, True])
def test_nothing_is_created_over_the_data_of_a_graph_without_a_manifest(
    graph: Graph, damage: Callable[[Graph], None], force: bool
) -> None:
    damage(graph)
    before = stored(graph.root)

    with pytest.raises(DamagedGraphError, match="--rebuild-manifest") as caught:
        og.init(graph.root, schema=SCHEMA, force=force)

    assert "--force" not in str(caught.value)
    assert stored(graph.root) == before


@pytest.mark.parametrize("damage", [SPOILED_NEWEST, ZEROED_NEWEST])
def test_no_write_begins_on_an_older_state_because_the_newest_is_damaged(
    graph: Graph, damage: Callable[[Graph], None]
) -> None:
    damage(graph)

    with pytest.raises(DamagedGraphError, match="--rebuild-manifest"):
        og.open(graph.root)


@pytest.mark.parametrize("damage", [REMOVED, SPOILED_NEWEST, SPOILED])
def test_a_preview_writes_nothing(graph: Graph, damage: Callable[[Graph], None]) -> None:
    damage(graph)
    before = stored(graph.root)

    report = og.rebuild_manifest(graph.root)

    assert report.dry_run
    assert report.commit_id is None
    assert {table.table_key: table.rows for table in report.tables} == {
        "node:Person": 4,
        "node:Pet": 1,
        "edge:Knows": 1,
        "edge:Owns": 1,
    }
    assert stored(graph.root) == before


@pytest.mark.parametrize("damage", [REMOVED, SPOILED_NEWEST, ZEROED_NEWEST, SPOILED, WITHOUT_ROWS])
def test_a_rebuilt_graph_has_every_row_and_can_be_written(
    graph: Graph, damage: Callable[[Graph], None]
) -> None:
    before = content(graph)
    damage(graph)

    report = og.rebuild_manifest(graph.root, dry_run=False)

    rebuilt = og.open(graph.root)
    assert content(rebuilt) == before
    newest = rebuilt.commits(limit=1)[0]
    assert (newest.commit_id, newest.actor) == (report.commit_id, "omnigraph:repair")
    recovery = rebuilt.maintenance.recoveries()[-1]
    assert (recovery.kind, recovery.commit_id) == ("manifest_rebuilt", report.commit_id)
    put(rebuilt, Person=[person("eve", age=5)])
    assert people(og.open(graph.root))["eve"] == 5
    assert rebuilt.maintenance.check().ok


@pytest.mark.parametrize("damage", [SPOILED_NEWEST, SPOILED])
def test_versions_whose_rows_are_whole_lose_no_commit_and_no_branch(
    graph: Graph, damage: Callable[[Graph], None]
) -> None:
    put(graph.branches.create("dev"), Person=[person("fay", age=6)])
    commits = [commit.commit_id for commit in graph.commits()]
    on_branch = content(graph.checkout("dev"))
    damage(graph)

    report = og.rebuild_manifest(graph.root, dry_run=False)

    rebuilt = og.open(graph.root)
    assert [commit.commit_id for commit in rebuilt.commits()] == [report.commit_id, *commits]
    assert (report.kept_branches, report.lost_branches) == (("main", "dev"), ())
    assert content(rebuilt.checkout("dev")) == on_branch
    rebuilt.merge("dev")
    assert people(rebuilt)["fay"] == 6
    assert rebuilt.maintenance.check().ok


@ON_DISK
def test_what_is_damaged_is_moved_to_the_quarantine(graph: Graph) -> None:
    spoil_all(graph)
    damaged = len(versions(graph))

    report = og.rebuild_manifest(graph.root, dry_run=False)

    assert report.quarantine is not None
    kept = [path for path in folder_of(graph.root, report.quarantine).rglob("*") if path.is_file()]
    assert [path.read_bytes() for path in kept] == [GARBAGE] * damaged


def test_an_older_whole_version_comes_back_if_the_rows_of_the_newest_are_gone(
    graph: Graph,
) -> None:
    rows_of_earlier = set(folder_of(graph.root, "__manifest", "data").iterdir())
    before = content(graph)
    last = put(graph, Person=[person("dan", age=9)])
    spoil_newest(graph)
    for path in folder_of(graph.root, "__manifest", "data").iterdir():
        if path not in rows_of_earlier:
            path.unlink()

    report = og.rebuild_manifest(graph.root, dry_run=False)

    (skipped,) = [table.skipped for table in report.tables if table.skipped]
    assert [version.reason for version in skipped] == ["written later, or never published"]
    rebuilt = og.open(graph.root)
    assert content(rebuilt) == before
    assert last not in [commit.commit_id for commit in rebuilt.commits()]
    put(rebuilt, Person=[person("dan", age=10)])
    assert people(rebuilt)["dan"] == 10
    assert rebuilt.maintenance.check().ok


def test_a_tag_tells_of_a_commit_whose_manifest_is_gone(graph: Graph) -> None:
    rows_of_earlier = set(folder_of(graph.root, "__manifest", "data").iterdir())
    put(graph, Person=[person("dan", age=9)])
    graph.tags.create("release")
    spoil_newest(graph)
    for path in folder_of(graph.root, "__manifest", "data").iterdir():
        if path not in rows_of_earlier:
            path.unlink()

    report = og.rebuild_manifest(graph.root, dry_run=False)

    sources = {table.table_key: (table.source, table.source_name) for table in report.tables}
    assert sources["node:Person"] == ("tag", "release")
    rebuilt = og.open(graph.root)
    assert people(rebuilt)["dan"] == 9
    assert rebuilt.maintenance.check().ok


def test_tags_stay_readable_and_tell_what_was_published(graph: Graph) -> None:
    before = content(graph)
    graph.tags.create("release")
    remove_manifest(graph)

    report = og.rebuild_manifest(graph.root, dry_run=False)

    assert {table.source for table in report.tables} == {"tag"}
    assert report.unproven == ()
    rebuilt = og.open(graph.root)
    put(rebuilt, Person=[person("dan", age=9)])
    assert [tag.tag for tag in rebuilt.tags.list()] == list(report.tags) == ["release"]
    assert content(rebuilt.at("release")) == before


def test_a_branch_that_went_with_the_manifest_is_named_and_can_be_given_up(graph: Graph) -> None:
    put(graph.branches.create("dev"), Person=[person("fay", age=6)])
    remove_manifest(graph)

    report = og.rebuild_manifest(graph.root, dry_run=False)

    assert report.lost_branches == ("dev",)
    rebuilt = og.open(graph.root)
    for read in (rebuilt.branches.list, lambda: people(rebuilt.checkout("dev"))):
        with pytest.raises(DamagedGraphError, match=r"branch 'dev' of .* is damaged: its manifest"):
            read()
    assert rebuilt.maintenance.reconcile(dry_run=False).reclaimed == (), (
        "its rows stay until it is given up"
    )
    rebuilt.branches.delete("dev")
    assert [branch.name for branch in rebuilt.branches.list()] == ["main"]
    assert rebuilt.maintenance.reconcile(dry_run=False).failures == ()
    put(rebuilt.branches.create("dev"), Person=[person("gus", age=7)])
    assert people(rebuilt.checkout("dev"))["gus"] == 7
    assert rebuilt.maintenance.check().ok


def test_an_unfinished_write_of_a_lost_branch_does_not_block_the_graph(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    with failing_at("publish.pre_manifest"), pytest.raises(FailpointReached):
        put(dev, Person=[person("fay", age=6)])
    remove_manifest(graph)

    og.rebuild_manifest(graph.root, dry_run=False)

    assert og.open(graph.root).maintenance.check().pending_operations == ()


def test_the_history_names_older_commits_and_what_they_left(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_limits(monkeypatch, commits_in_manifest=3)
    graph = small_graph(graph_root)
    commits = [put(graph, Person=[person("dan", age=number)]) for number in range(6)]
    then = content(graph.at(commits[1]))
    remove_manifest(graph)

    report = og.rebuild_manifest(graph.root, dry_run=False)

    rebuilt = og.open(graph.root)
    named = [commit.commit_id for commit in rebuilt.commits()]
    assert named[0] == report.commit_id
    assert commits[1] in named
    assert commits[-1] not in named
    assert report.unnamed_operations
    assert content(rebuilt.at(commits[1])) == then
    assert people(rebuilt)["dan"] == 5
    assert rebuilt.maintenance.check().ok


def test_an_operation_whose_rows_came_back_is_not_written_again(graph: Graph) -> None:
    operation_id = "01JZZZZZZZZZZZZZZZZZZZZZZY"
    rows = {"Person": [person("hal", age=8)]}
    graph.write(rows, operation_id=operation_id)
    remove_manifest(graph)

    report = og.rebuild_manifest(graph.root, dry_run=False)

    rebuilt = og.open(graph.root)
    assert rebuilt.outcome(operation_id) is OperationStatus.PUBLISHED
    assert rebuilt.write(rows, operation_id=operation_id).commit_id == report.commit_id


def test_the_preview_names_a_write_that_may_never_have_been_published(graph: Graph) -> None:
    result = graph.write({"Person": [person("ivy", age=9)]})
    remove_manifest(graph)

    report = og.rebuild_manifest(graph.root)

    assert [(table.table_key, table.unproven) for table in report.unproven] == [
        ("node:Person", result.operation_id)
    ]


def test_a_write_that_another_table_proves_is_not_in_doubt(graph: Graph) -> None:
    graph.write({"Person": [person("ivy", age=9)], "Pet": [{"name": "tom"}]})
    graph.write({"Pet": [{"name": "kim"}]})
    remove_manifest(graph)

    report = og.rebuild_manifest(graph.root)

    assert [table.table_key for table in report.unproven] == ["node:Pet"]


def test_an_unfinished_write_is_left_to_the_next_open(graph: Graph) -> None:
    before = content(graph)
    with failing_at("publish.pre_manifest"), pytest.raises(FailpointReached):
        put(graph, Person=[person("ivy", age=9)])
    remove_manifest(graph)

    report = og.rebuild_manifest(graph.root, dry_run=False)

    (skipped,) = [table.skipped for table in report.tables if table.skipped]
    assert "unfinished write" in skipped[0].reason
    assert content(og.open(graph.root, read_only=True)) == before
    settled = og.open(graph.root)
    assert people(settled)["ivy"] == 9
    assert settled.maintenance.check().ok


def test_tables_of_changed_schemas_are_found_again(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = small_graph(graph_root)
    changed = SCHEMA.replace("node Pet {", 'node Animal @rename_from("Pet") {').replace(
        "-> Pet", "-> Animal"
    )
    graph.schema.apply(changed + "\nnode Toy { name: String @key }")
    put(graph, Toy=[{"name": "ball"}], Animal=[{"name": "tom"}])
    before = content(graph)
    remove_manifest(graph)

    og.rebuild_manifest(graph.root, dry_run=False)

    rebuilt = og.open(graph.root)
    assert content(rebuilt) == before
    last = put(rebuilt, Toy=[{"name": "kite"}])
    small_limits(monkeypatch, manifest_versions=1)
    put(rebuilt, Animal=[{"name": "kim"}])
    assert set(content(rebuilt.at(last))["Toy"]) == {"ball", "kite"}
    assert rebuilt.maintenance.check().ok


@pytest.mark.parametrize("damage", [REMOVED, SPOILED_NEWEST])
def test_a_manifest_is_rebuilt_once(graph: Graph, damage: Callable[[Graph], None]) -> None:
    with pytest.raises(ConflictError, match="nothing to rebuild"):
        og.rebuild_manifest(graph.root, dry_run=False)
    damage(graph)
    og.rebuild_manifest(graph.root, dry_run=False)
    before = stored(graph.root)

    for confirm in (False, True):
        with pytest.raises(ConflictError, match="nothing to rebuild"):
            og.rebuild_manifest(graph.root, dry_run=not confirm)

    assert stored(graph.root) == before


def test_a_manifest_can_be_lost_again(graph: Graph) -> None:
    remove_manifest(graph)
    og.rebuild_manifest(graph.root, dry_run=False)
    put(og.open(graph.root), Person=[person("eve", age=5)])
    before = content(og.open(graph.root))
    remove_manifest(graph)

    og.rebuild_manifest(graph.root, dry_run=False)

    assert content(og.open(graph.root)) == before


def test_a_root_without_a_graph_has_nothing_to_rebuild(graph_root: str) -> None:
    folder_of(graph_root).mkdir(parents=True)

    with pytest.raises(NotFoundError, match="nothing to rebuild"):
        og.rebuild_manifest(graph_root, dry_run=False)
