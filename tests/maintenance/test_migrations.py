from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import lance
import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.commit import refs
from omnigraph_lake.errors import FormatTooNewError
from omnigraph_lake.maintenance.legacy_upgrade import find_leftovers
from omnigraph_lake.maintenance.migrations import STEPS, MigrationContext, migrate
from omnigraph_lake.storage.manifest.state import BranchRef
from omnigraph_lake.storage.manifest.swap import manifest_branches, read_manifest, swap_manifest
from omnigraph_lake.storage.manifest_rows import GraphCommit, GraphHead
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.store import StoredObjects
from omnigraph_lake.storage.refs.logs import RefState
from omnigraph_lake.storage.refs.tags import append_tag_entry, confirm_tags, read_tag_log
from tests.forking.programs import start_code
from tests.maintenance.old_graphs import OLD_COMMIT, TABLE_KEYS, old_graph
from tests.stores import files_of, folder_of

pytestmark = pytest.mark.unit


def test_every_older_stamp_has_a_step() -> None:
    assert sorted(STEPS) == list(range(1, names.STAMP))


def test_a_new_graph_carries_the_current_stamp_and_needs_no_migration(graph_root: str) -> None:
    og.init(graph_root, schema="node A { x: String @key }")
    before = contents(graph_root)

    og.open(graph_root)

    assert read_manifest(parse_root(graph_root)).stamp == names.STAMP
    assert contents(graph_root) == before


def legacy(branch: str | None) -> BranchRef | None:
    """A branch of an old format, whose Lance branch has its name."""
    return None if branch is None else BranchRef(branch=branch, incarnation="", claimed_at="")


@pytest.mark.parametrize("stamp", [1, 2, 3, 4, 5, 6, 7, 8])
def test_opening_for_writing_brings_an_old_graph_up_to_date(graph_root: str, stamp: int) -> None:
    old_graph(graph_root, stamp=stamp)

    graph = og.open(graph_root)

    state = read_manifest(parse_root(graph_root))
    assert state.stamp == names.STAMP
    assert state.handle.schema.field("object_id").metadata == {
        names.PRIMARY_KEY_KEY.encode(): b"true"
    }
    assert tuple(sorted(graph.snapshot().tables)) == tuple(sorted(TABLE_KEYS))
    assert graph.scan("Person").read_all().num_rows == 0


def test_the_new_head_continues_the_old_history(graph_root: str) -> None:
    old_graph(graph_root, stamp=3)

    snapshot = og.open(graph_root).snapshot()

    state = read_manifest(parse_root(graph_root))
    commits = [row for row in state.rows if isinstance(row, GraphCommit)]
    assert [commit.parent_id for commit in commits] == [OLD_COMMIT]
    assert snapshot.head is not None
    assert snapshot.head.commit_id == commits[0].commit_id
    assert commits[0].actor == "omnigraph:migration"


@pytest.mark.parametrize("stamp", [1, 2, 3, 4, 5, 6, 7, 8])
def test_opening_for_reading_serves_an_old_graph_and_writes_nothing(
    graph_root: str, stamp: int
) -> None:
    old_graph(graph_root, stamp=stamp, branches=("dev",))
    before = contents(graph_root)

    status = og.open(graph_root, read_only=True).maintenance.status()

    assert status.format_stamp == stamp
    assert len(status.tables) == len(TABLE_KEYS)
    assert contents(graph_root) == before


def test_a_newer_graph_is_refused_and_left_alone(graph_root: str) -> None:
    old_graph(graph_root, stamp=names.STAMP + 1)
    before = contents(graph_root)

    for read_only in (True, False):
        with pytest.raises(FormatTooNewError, match="Upgrade omnigraph first"):
            og.open(graph_root, read_only=read_only)
    assert contents(graph_root) == before


def test_a_crash_between_annotation_and_stamp_is_completed(graph_root: str) -> None:
    old_graph(graph_root, stamp=1, annotated=True)

    og.open(graph_root)

    assert read_manifest(parse_root(graph_root)).stamp == names.STAMP


def test_stale_run_branches_are_swept_children_first_and_others_kept(graph_root: str) -> None:
    old_graph(graph_root, stamp=2, branches=("__run__01", "__run__01/a", "__run__02", "dev"))

    og.open(graph_root)

    assert list(manifest_branches(parse_root(graph_root))) == ["dev"]


def test_a_sweep_tolerates_branches_that_are_already_gone(graph_root: str) -> None:
    old_graph(graph_root, stamp=2, branches=("__run__01", "__run__02"))
    lance.dataset(f"{graph_root}/{names.MANIFEST}").branches.delete("__run__01")

    og.open(graph_root)

    assert manifest_branches(parse_root(graph_root)) == {}


@pytest.mark.parametrize("stamp", [1, 2, 3])
def test_branches_migrate_with_main(graph_root: str, stamp: int) -> None:
    old_graph(graph_root, stamp=stamp, branches=("dev", "dev/sub"))

    og.open(graph_root)

    root = parse_root(graph_root)
    for branch, parent in (("dev", None), ("dev/sub", "dev")):
        state = read_manifest(root, branch=legacy(branch))
        head = next(
            row for row in state.rows if isinstance(row, GraphHead) and row.branch == branch
        )
        assert state.stamp == names.STAMP
        assert head.parent_branch == parent
        claimed = json.loads(folder_of(graph_root, names.branch_ref(branch)).read_bytes())
        assert head.incarnation == claimed["incarnation"]


@pytest.mark.parametrize("stamp", [1, 2, 3])
def test_branches_can_be_made_from_a_branch_that_migrated(graph_root: str, stamp: int) -> None:
    old_graph(graph_root, stamp=stamp, branches=("dev",))
    graph = og.open(graph_root)

    graph.branches.create("child", source="dev")
    graph.branches.create("grandchild", source="child").write({"Person": [{"name": "ann"}]})

    names_of_branches = [branch.name for branch in og.open(graph_root).branches.list()]
    assert names_of_branches == ["main", "child", "dev", "grandchild"]
    assert graph.checkout("grandchild").scan("Person").read_all().num_rows == 1
    assert graph.checkout("child").scan("Person").read_all().num_rows == 0


def test_branches_of_format_4_go_on_after_the_migration(graph_root: str) -> None:
    old_graph(graph_root, stamp=4, branches=("dev",))

    graph = og.open(graph_root)

    dev = graph.checkout("dev")
    assert read_manifest(parse_root(graph_root), branch=dev._handle.ref()).stamp == names.STAMP
    dev.write({"Person": [{"name": "ann"}]})
    assert graph.merge("dev").commit_id is not None
    assert graph.scan("Person").read_all().num_rows == 1
    assert "schema_change" in lance.dataset(f"{graph_root}/{names.COMMITS}").schema.names


def test_main_is_stamped_last_so_a_walk_that_died_is_taken_up_again(graph_root: str) -> None:
    old_graph(graph_root, stamp=3, branches=("dev",))
    root = parse_root(graph_root)
    dev = read_manifest(root, branch=legacy("dev"))
    context = _context(graph_root)
    STEPS[3](dev, replace(context, leftovers=find_leftovers(context.objects)))

    assert read_manifest(root, branch=legacy("dev")).stamp == 4
    assert read_manifest(root).stamp == 3
    walks = migrate(context)

    assert [(walk.branch, walk.stamps) for walk in walks] == [
        ("dev", (4, 5, 6, 7, 8, 9)),
        (None, (3, 4, 5, 6, 7, 8, 9)),
    ]


@pytest.mark.parametrize("stamp", [5, 7])
def test_an_upgrade_marks_tags_so_that_earlier_releases_cannot_delete_them(
    graph_root: str, stamp: int
) -> None:
    old_graph(graph_root, stamp=stamp, tags=("kept", "gone"))
    objects = StoredObjects(parse_root(graph_root))
    log = read_tag_log(objects, "gone")
    assert log.living is not None
    append_tag_entry(objects, log, log.living, RefState.DELETED)
    before = {tag: read_tag_log(objects, tag) for tag in ("kept", "gone")}

    graph = og.open(graph_root)

    assert [tag.tag for tag in graph.tags.list()] == ["kept"]
    kept = read_tag_log(objects, "kept")
    assert (kept.last, kept.living) == (before["kept"].last + 1, before["kept"].living)
    assert read_tag_log(objects, "gone") == before["gone"]
    entry = folder_of(graph_root, names.ref_entry(names.TAG_REFS_DIR, "kept", kept.last))
    assert json.loads(entry.read_bytes())["format"] == names.STAMP_OF_MARKERS
    graph.tags.delete("kept")
    assert graph.tags.list() == ()
    assert graph.maintenance.check(deep=True).ok


def test_a_tag_that_an_upgrade_marks_meanwhile_is_deleted_all_the_same(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = og.init(graph_root, schema="node A { x: String @key }")
    graph.tags.create("doomed")
    objects = StoredObjects(parse_root(graph_root))
    slow_upgrades = [confirm_tags]

    def append_after_the_upgrade(*arguments: Any) -> bool:
        for upgrade in slow_upgrades:
            slow_upgrades.remove(upgrade)
            upgrade(objects)
        return append_tag_entry(*arguments)

    monkeypatch.setattr(refs, "append_tag_entry", append_after_the_upgrade)
    graph.tags.delete("doomed")

    assert graph.tags.list() == ()
    assert read_tag_log(objects, "doomed").last == 4


def test_running_a_step_on_a_state_that_moved_changes_nothing(graph_root: str) -> None:
    old_graph(graph_root, stamp=1)
    root = parse_root(graph_root)
    stale = read_manifest(root)
    swap_manifest(stale, stale.rows, operation_id="other", stamp=2)
    before = read_manifest(root)

    STEPS[1](stale, _context(graph_root))

    after = read_manifest(root)
    assert (after.version, after.stamp, after.rows) == (before.version, 2, before.rows)


def test_two_processes_may_migrate_at_once(graph_root: str) -> None:
    old_graph(graph_root, stamp=1, branches=("__run__01", "__run__02", "dev"))
    script = "import sys, omnigraph_lake as og; og.open(sys.argv[1]); print('migrated')"

    processes = [start_code(script, graph_root) for _ in range(3)]
    ended = [process.finish() for process in processes]

    assert [process.stdout.strip() for process in ended] == ["migrated"] * 3, ended
    root = parse_root(graph_root)
    for branch in (None, "dev"):
        rows = read_manifest(root, branch=legacy(branch)).rows
        assert sum(isinstance(row, GraphCommit) for row in rows) == 1
        assert sum(isinstance(row, GraphHead) and row.branch == branch for row in rows) == 1
    assert list(manifest_branches(root)) == ["dev"]


def _context(root: str) -> MigrationContext:
    ids = iter(f"id-{number}" for number in range(99))
    return MigrationContext(
        objects=StoredObjects(parse_root(root)),
        operation_id="op",
        now="2026-11-15T00:00:00.000000+00:00",
        new_id=lambda: next(ids),
    )


def contents(root: str) -> dict[str, tuple[int, int]]:
    """Every file below the root with its size and the time it was last written."""
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files_of(root)}
