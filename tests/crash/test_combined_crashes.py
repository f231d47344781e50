"""A writer that publishes another with its own dies, sleeps or comes too late; so does the other.

The younger one, the member, waits with its rows staged. The older one, the leader, commits them on
top of its own version, and one swap publishes both. Whatever happens to either, each row is there
exactly if its writer was told so, and every commit holds the row of its author alone.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise

import pytest
from ulid import ULID

from omnigraph_lake import names
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.commit.phases import abort
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.commit.sidecar import Sidecar, read_sidecar
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.manifest.commit_graph import commit_graph
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.manifest.time_travel import _put_together, snapshot_at_commit
from tests.commit.small_graphs import account, accounts, small_graph
from tests.crash.processes import Victim, start

pytestmark = pytest.mark.crash

COLLECTED, COMMITTED = "combine.post_collect", "combine.post_commit"
SWAPPED = "publish.post_manifest"
LATER = pytest.mark.nightly("the gate kills the leader at the points that are its own")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two writers of one table: both stand still, and the member has armed its offer."""

    graph: Graph
    leader: Victim
    member: Victim
    leader_id: str
    member_id: str

    def offer(self) -> Sidecar:
        sidecar = read_sidecar(self.graph._objects, names.sidecar(self.member_id))
        assert sidecar is not None
        assert sidecar.offer is not None
        return sidecar


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = small_graph(graph_root)
    graph.write({"Account": [account("first", 1)]}, actor="first")
    return graph


def make_pair(
    graph: Graph,
    failpoint: str,
    *,
    names_of_rows: tuple[str, str] = ("leader", "member"),
    without_guard: str = "",
) -> Pair:
    """The member arms while the leader has moved its table; the leader then goes on to the point.

    Each sees the sidecar of the other from the start.
    """
    moment = time.time()
    leader_id = str(ULID.from_timestamp(moment))
    member_id = str(ULID.from_timestamp(moment + 0.005))
    member = _start(
        graph,
        member_id,
        names_of_rows[1],
        "mutation.post_sidecar=stop,mutation.post_stage=stop",
    )
    member.wait_until_stopped()
    failpoints = f"mutation.post_direct_commit=stop,{failpoint}"
    leader = _start(graph, leader_id, names_of_rows[0], failpoints, without_guard)
    leader.wait_until_stopped()
    member.wake()
    member.wait_until_stopped()
    leader.wake()
    return Pair(graph=graph, leader=leader, member=member, leader_id=leader_id, member_id=member_id)


def _start(
    graph: Graph, operation_id: str, name: str, failpoints: str, without_guard: str = ""
) -> Victim:
    return start(
        *("write", graph.root, operation_id, name),
        failpoints=failpoints,
        without_guard=without_guard,
        module="tests.crash.combined_victim",
    )


def assert_books(graph: Graph, *expected: str) -> None:
    """Exactly these rows are there, each in a commit of its own author, and nothing is pending."""
    graph.maintenance.recover(force=True)
    graph.write({"Account": [account("last", 1)]}, actor="last")
    assert accounts(graph) == dict.fromkeys(("first", *expected, "last"), 1)
    assert graph.maintenance.check().ok
    assert graph.maintenance.status().pending_sidecars == ()
    commits = graph.commits()
    for commit, parent in pairwise(commits):
        assert commit.parent_id == parent.commit_id
        added = _rows_at(graph, commit.commit_id) - _rows_at(graph, parent.commit_id)
        assert added <= {commit.actor}, "a commit holds the row of another author"
    assert _rows_at(graph, commits[0].commit_id) == {"first", *expected, "last"}


def _rows_at(graph: Graph, commit_id: str) -> frozenset[str]:
    rows = graph.at(commit_id).scan("Account", columns=["id"]).read_all()
    return frozenset(rows.column("id").to_pylist())


@pytest.mark.parametrize(
    "point",
    [
        COLLECTED,
        COMMITTED,
        pytest.param("publish.pre_manifest", marks=LATER),
        pytest.param(SWAPPED, marks=LATER),
    ],
)
def test_a_leader_that_dies_leaves_the_member_to_itself(graph: Graph, point: str) -> None:
    pair = make_pair(graph, f"{point}=kill")

    assert pair.leader.end().was_killed
    is_published = graph.outcome(pair.member_id) is OperationStatus.PUBLISHED
    pair.member.wake()

    assert is_published == (point == SWAPPED)
    assert pair.member.end().said == "acknowledged"
    graph.maintenance.recover(force=True)
    is_settled_forward = graph.outcome(pair.leader_id) is OperationStatus.PUBLISHED
    assert is_settled_forward or point != SWAPPED
    assert_books(graph, *(("leader",) if is_settled_forward else ()), "member")


def test_a_leader_that_oversleeps_does_not_publish_what_the_member_published(graph: Graph) -> None:
    pair = make_pair(graph, f"{COMMITTED}=stop")
    pair.leader.wait_until_stopped()
    pair.member.wake()

    assert pair.member.end().said == "acknowledged"
    pair.leader.wake()
    assert pair.leader.end().said == "acknowledged"
    assert_books(graph, "leader", "member")


def test_a_member_that_was_given_up_is_not_published_with_the_leader(graph: Graph) -> None:
    pair = make_pair(graph, f"{COMMITTED}=stop")
    pair.leader.wait_until_stopped()
    abort(graph._objects, pair.offer(), None, SYSTEM_CLOCK)

    pair.leader.wake()
    assert pair.leader.end().said == "acknowledged"
    pair.member.wake()
    assert pair.member.end().answer == {"said": "failed", "error": "OperationRolledBackError"}
    assert_books(graph, "leader")


@LATER
def test_a_member_that_dies_while_it_waits_is_published_by_the_leader(graph: Graph) -> None:
    pair = make_pair(graph, f"{COLLECTED}=stop")
    pair.leader.wait_until_stopped()
    pair.member.kill()
    assert pair.member.end().was_killed

    pair.leader.wake()
    assert pair.leader.end().said == "acknowledged"
    assert graph.outcome(pair.member_id) is OperationStatus.PUBLISHED
    assert len({commit.manifest_version for commit in graph.commits()[:2]}) == 1
    assert_books(graph, "leader", "member")


def test_a_branch_of_the_first_of_two_commits_of_one_swap_has_only_its_rows(graph: Graph) -> None:
    pair = make_pair(graph, f"{COLLECTED}=pause:0")
    assert pair.leader.end().said == "acknowledged"
    pair.member.wake()
    assert pair.member.end().said == "acknowledged"
    newest, first, *_ = graph.commits()
    assert newest.manifest_version == first.manifest_version
    state = read_manifest(graph._objects.root)
    commits = commit_graph(graph._objects.root, state)
    kept = snapshot_at_commit(graph._objects.root, state, first.commit_id)
    assert kept == (
        _put_together(graph._objects.root, state, commits, commits.commits[first.commit_id])
    )

    graph.branches.create("early", source=first.commit_id)

    assert accounts(graph.checkout("early")) == {"first": 1, "leader": 1}
    assert accounts(graph) == {"first": 1, "leader": 1, "member": 1}
