"""Reconcile: forks that nobody needs go, whatever left them, and nothing else does."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import lance
import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.commit import fork_on_write, orphans
from omnigraph_lake.commit.orphans import Fate, ReconcileReport, listed_forks
from omnigraph_lake.errors import ReadOnlyError
from omnigraph_lake.failpoints import FailpointReached, disarm_all
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.lance.forks import forks_of
from tests.behaviours.histories import content, put
from tests.forking.programs import run_code
from tests.maintenance.maintenance_graphs import (
    DOC,
    QUIET,
    TAG,
    act_at,
    armed,
    doc,
    hold_schema,
    scattered_graph,
    uri,
)
from tests.stores import folder_of

pytestmark = pytest.mark.unit

KILLED = """
import sys
import omnigraph_lake as og

row = {"name": "d1", "kind": "a", "n": 100, "text": "t", "place": [1.0, 0.0]}
og.open(sys.argv[1]).checkout("side").write({"Doc": [row]}, mode="merge")
"""


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    disarm_all()
    yield
    disarm_all()


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return scattered_graph(graph_root)


def forks(graph: Graph, key: str = DOC) -> set[str]:
    location = graph.snapshot().tables[key].location
    return set(forks_of(graph._objects.root, location))


def delete_halfway(graph: Graph, name: str) -> None:
    """The branch is gone, what it wrote is still there."""
    with armed("branch.post_delete"), pytest.raises(FailpointReached):
        graph.branches.delete(name)


def fail_after_first_fork(graph: Graph, **rows: list[dict[str, object]]) -> None:
    """A first write on a branch that breaks off when the table is forked."""
    with armed("branch.post_fork"), pytest.raises(FailpointReached):
        graph.write(rows, mode="merge")


def reclaimed(done: ReconcileReport) -> set[str]:
    return {each.location for each in done.reclaimed}


def test_what_a_deleted_branch_left_goes(graph: Graph) -> None:
    put(graph.branches.create("side"), Doc=[doc(1, 100)], Tag=[{"name": "u"}])
    delete_halfway(graph, "side")
    assert forks(graph)
    assert forks(graph, TAG)

    done = graph.maintenance.reconcile(dry_run=False)

    tables = graph.snapshot().tables
    assert reclaimed(done) == {tables[DOC].location, tables[TAG].location, names.MANIFEST}
    assert done.failures == ()
    assert forks(graph) == forks(graph, TAG) == set()
    assert graph.maintenance.reconcile(dry_run=False) == ReconcileReport()


@pytest.mark.parametrize("point", ["branch.post_fork", "mutation.post_stage"])
def test_recovery_removes_what_a_killed_first_write_forked(graph: Graph, point: str) -> None:
    branch = graph.branches.create("side")
    put(branch, Tag=[{"name": "u"}])
    killed = run_code(KILLED, graph.root, env={"OMNIGRAPH_FAILPOINTS": f"{point}=kill"})
    assert killed.returncode == -signal.SIGKILL
    assert forks(graph)

    og.open(graph.root)

    assert forks(graph) == set()
    assert forks(graph, TAG), "the table that the branch did write stays"
    put(branch, Doc=[doc(2, 200)])
    assert content(branch)["Doc"]["d2"]["n"] == 200
    assert graph.maintenance.reconcile().reclaimed == ()


def test_what_a_failed_first_write_left_on_a_living_branch_goes(graph: Graph) -> None:
    branch = graph.branches.create("side")
    put(branch, Tag=[{"name": "u"}])
    fail_after_first_fork(branch, Doc=[doc(1, 100)])
    assert forks(graph)

    og.open(graph.root)
    done = graph.maintenance.reconcile(dry_run=False)

    assert reclaimed(done) == {graph.snapshot().tables[DOC].location}
    assert forks(graph) == set()
    assert forks(graph, TAG), "the table that the branch did write stays"
    assert content(branch)["Tag"].keys() == {"t", "u"}


def test_the_fork_of_a_writer_at_work_stays(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def rival() -> None:
        assert forks(graph)
        assert graph.maintenance.reconcile(dry_run=False) == ReconcileReport()
        looked.append(forks(graph))

    looked: list[set[str]] = []
    branch = graph.branches.create("side")
    act_at(monkeypatch, fork_on_write, "branch.post_fork", rival)
    put(branch, Doc=[doc(2, 200)])

    assert [len(each) for each in looked] == [1]
    assert content(branch)["Doc"]["d2"]["n"] == 200


def test_a_write_after_a_failed_first_write_needs_no_reconcile(graph: Graph) -> None:
    branch = graph.branches.create("side")
    fail_after_first_fork(branch, Doc=[doc(1, 100)])

    put(og.open(graph.root).checkout("side"), Doc=[doc(2, 200)])
    graph.maintenance.reconcile(dry_run=False)

    assert {key: row["n"] for key, row in content(branch)["Doc"].items() if row["n"] > 9} == {
        "d2": 200
    }


def test_forks_that_living_branches_and_tags_read_stay(graph: Graph) -> None:
    branch = graph.branches.create("side")
    put(branch, Doc=[doc(1, 100)])
    put(graph.branches.create("gone"), Doc=[doc(2, 200)])
    branch_of_gone = graph.checkout("gone")
    branch_of_gone.tags.create("kept")
    before, tagged = content(branch), content(branch_of_gone)
    delete_halfway(graph, "gone")

    graph.maintenance.reconcile(dry_run=False)

    assert content(branch) == before
    assert content(graph.at("kept")) == tagged
    assert len(forks(graph)) == 2
    graph.tags.delete("kept")
    graph.maintenance.reconcile(dry_run=False)
    assert len(forks(graph)) == 1


def test_what_was_merged_stays_known_when_its_branch_is_gone(graph: Graph) -> None:
    branch = graph.branches.create("side")
    put(branch, Doc=[doc(1, 100)])
    put(graph, Doc=[doc(2, 200)])
    graph.merge("side")
    delete_halfway(graph, "side")
    known = {commit.commit_id for commit in graph.commits()}

    graph.maintenance.reconcile(dry_run=False)

    assert {commit.commit_id for commit in graph.commits()} == known
    assert content(graph)["Doc"]["d1"]["n"] == 100
    assert graph.maintenance.check().ok


def test_children_go_before_their_parents_whatever_their_names(graph: Graph) -> None:
    parent = graph.branches.create("a-parent-with-a-long-name")
    put(parent, Doc=[doc(1, 100)])
    child = parent.branches.create("z")
    put(child, Doc=[doc(2, 200)])
    delete_halfway(graph, "z")
    delete_halfway(graph, "a-parent-with-a-long-name")

    done = graph.maintenance.reconcile(dry_run=False)

    assert done.failures == ()
    assert forks(graph) == set()
    order = [
        each.fork.partition(".")[0] for each in done.reclaimed if each.location != names.MANIFEST
    ]
    assert order == ["z", "a-parent-with-a-long-name"]


def test_a_parent_whose_child_lives_stays(graph: Graph) -> None:
    parent = graph.branches.create("parent")
    put(parent, Doc=[doc(1, 100)])
    child = parent.branches.create("child")
    put(child, Doc=[doc(2, 200)])
    before = content(child)

    graph.maintenance.reconcile(dry_run=False)

    assert content(child) == before
    assert len(forks(graph)) == 2


@pytest.mark.parametrize(("visit", "name"), [(1, "main"), (2, "side")])
def test_a_branch_that_cannot_be_read_is_told_once_and_nothing_goes(
    graph: Graph, visit: int, name: str
) -> None:
    put(graph.branches.create("side"), Doc=[doc(1, 100)], Tag=[{"name": "u"}])
    put(graph.branches.create("gone"), Doc=[doc(1, 100)], Tag=[{"name": "u"}])
    delete_halfway(graph, "gone")
    before = forks(graph) | forks(graph, TAG)

    with armed("cleanup.resolve_branch_snapshot", visit=visit):
        done = graph.maintenance.reconcile(dry_run=False)

    assert done.failures == ((name, "cleanup.resolve_branch_snapshot"),)
    assert done.reclaimed == ()
    assert forks(graph) | forks(graph, TAG) == before
    assert len(graph.maintenance.reconcile(dry_run=False).reclaimed) == 3


def test_a_table_whose_forks_cannot_be_listed_is_told_by_name_and_harms_no_other(
    graph: Graph,
) -> None:
    put(graph.branches.create("gone"), Doc=[doc(1, 100)])
    delete_halfway(graph, "gone")
    version = graph.snapshot().tables[TAG].version
    head = folder_of(uri(graph, TAG), "_versions", f"{2**64 - 1 - version}.manifest")
    head.write_bytes(b"junk" * 10)

    done = graph.maintenance.reconcile(dry_run=False)

    assert [name for name, _ in done.failures] == [TAG]
    assert forks(graph) == set()


def test_a_fork_that_cannot_be_dropped_is_told_and_tried_again(graph: Graph) -> None:
    put(graph.branches.create("gone"), Doc=[doc(1, 100)])
    delete_halfway(graph, "gone")
    for visit in (1, 2):
        with armed("reconcile.check", visit=visit):
            graph.maintenance.reconcile(dry_run=False)

    assert graph.maintenance.reconcile(dry_run=False).failures == ()
    assert forks(graph) == set()


def test_a_fork_that_goes_at_the_second_attempt_is_no_failure(graph: Graph) -> None:
    put(graph.branches.create("gone"), Doc=[doc(1, 100)], Tag=[{"name": "u"}])
    delete_halfway(graph, "gone")

    with armed("cleanup.reconcile_fork"):
        done = graph.maintenance.reconcile(dry_run=False)

    assert len(done.reclaimed) == 3
    assert done.failures == ()


def test_a_branch_made_while_forks_are_looked_at_loses_nothing(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(graph.branches.create("gone"), Doc=[doc(1, 100)])
    delete_halfway(graph, "gone")

    def rival() -> None:
        put(graph.branches.create("new"), Doc=[doc(2, 200)])

    act_at(monkeypatch, orphans, "reconcile.post_pins", rival)
    done = graph.maintenance.reconcile(dry_run=False)

    assert done == ReconcileReport()
    assert content(graph.checkout("new"))["Doc"]["d2"]["n"] == 200
    assert len(graph.maintenance.reconcile(dry_run=False).reclaimed) == 2
    assert content(graph.checkout("new"))["Doc"]["d2"]["n"] == 200


@pytest.mark.parametrize("point", ["reconcile.post_refs", "reconcile.post_logs"])
def test_a_first_write_while_forks_are_looked_at_keeps_its_fork(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    branch = graph.branches.create("side")

    def rival() -> None:
        put(branch, Doc=[doc(2, 200)])

    act_at(monkeypatch, orphans, point, rival)
    graph.maintenance.reconcile(dry_run=False)

    assert content(branch)["Doc"]["d2"]["n"] == 200
    assert branch.maintenance.check().ok


def test_main_and_system_branches_are_never_candidates(graph: Graph) -> None:
    hold_schema(graph)
    dataset = lance.dataset(uri(graph, QUIET))
    dataset.create_branch(names.SCHEMA_APPLY_LOCK)

    graph.maintenance.reconcile(dry_run=False)

    assert "main" not in {each.fork for each in listed_forks(graph._objects)}
    assert forks(graph, QUIET) == {names.SCHEMA_APPLY_LOCK}
    assert len(content(graph)["Doc"]) == 9


def test_a_survey_says_what_would_become_of_every_fork(graph: Graph) -> None:
    put(graph.branches.create("side"), Doc=[doc(1, 100)])
    put(graph.branches.create("gone"), Doc=[doc(1, 100)])
    delete_halfway(graph, "gone")

    fates = {each.fork.partition(".")[0]: each.fate for each in listed_forks(graph._objects)}

    assert fates == {"side": Fate.LEGITIMATE, "gone": Fate.ORPHAN}
    assert len(forks(graph)) == 2


def test_a_reading_handle_may_not_reconcile(graph: Graph) -> None:
    with pytest.raises(ReadOnlyError, match="cannot reconcile"):
        og.open(graph.root, read_only=True).maintenance.reconcile(dry_run=False)


def test_without_confirm_it_tells_what_would_go_and_deletes_nothing(graph: Graph) -> None:
    put(graph.branches.create("gone"), Doc=[doc(1, 100)], Tag=[{"name": "u"}])
    delete_halfway(graph, "gone")
    before = forks(graph) | forks(graph, TAG)

    told = og.open(graph.root, read_only=True).maintenance.reconcile()

    assert forks(graph) | forks(graph, TAG) == before
    assert told.dry_run
    assert told.reclaimed == tuple(
        listed for listed in listed_forks(graph._objects) if listed.fate is Fate.ORPHAN
    )
    assert graph.maintenance.reconcile(dry_run=False).reclaimed == told.reclaimed


def everything_that_removes(graph: Graph) -> None:
    graph.maintenance.reconcile(dry_run=False)
    put(graph.branches.create("gone"), Doc=[doc(1, 100)])
    graph.branches.delete("gone")
    graph.maintenance.optimize()
    graph.maintenance.cleanup(keep_versions=1, dry_run=False, allow_unsafe_keep=True)
    graph.maintenance.run()


def test_a_lance_branch_that_omnigraph_did_not_make_stays_whole(graph: Graph) -> None:
    lance.dataset(uri(graph, DOC)).create_branch("mine")
    put(graph, Doc=[doc(1, 100)])
    mine = lance.dataset(uri(graph, DOC)).checkout_version(("mine", None)).to_table()

    everything_that_removes(graph)

    assert lance.dataset(uri(graph, DOC)).checkout_version(("mine", None)).to_table() == mine
    assert [listed.fork for listed in graph.maintenance.reconcile().foreign] == ["mine"]
    assert [listed.fork for listed in graph.maintenance.reconcile(also_foreign=True).reclaimed] == [
        "mine"
    ]
    assert forks(graph) == {"mine"}


def test_a_foreign_lance_branch_goes_when_that_is_asked_for(graph: Graph) -> None:
    lance.dataset(uri(graph, DOC)).create_branch("mine")

    done = graph.maintenance.reconcile(dry_run=False, also_foreign=True)

    assert [(listed.fork, listed.fate) for listed in done.reclaimed] == [("mine", Fate.FOREIGN)]
    assert forks(graph) == set()


def test_a_dropped_table_with_a_foreign_lance_branch_is_not_removed(graph: Graph) -> None:
    place = uri(graph, QUIET)
    lance.dataset(place).create_branch("mine")
    text = graph.schema.text
    without = "\n".join(line for line in text.splitlines() if QUIET.split(":")[1] not in line)

    graph.schema.apply(without, hard=True)
    graph.maintenance.cleanup(keep_versions=1, dry_run=False, allow_unsafe_keep=True)

    assert lance.dataset(place).checkout_version(("mine", None)).count_rows() == 0
