"""Whoever is killed while it goes back: the branch is as before or gone back, never between."""

from __future__ import annotations

import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake.commit.publish import OperationStatus
from tests.crash.processes import run
from tests.crash.small_world import Job, Kind, carry_out, content_of
from tests.crash.verdict import (
    assert_heads_are_published,
    assert_sound,
    assert_sweeping_again_changes_nothing,
    looked_at,
    reopened,
)
from tests.crash.worlds import World, Worlds

pytestmark = pytest.mark.crash

ONE_MOVED = "mutation.pre_direct_commit=pause:5@2,mutation.post_direct_commit=kill"
"""The second table waits, so that exactly the first has moved."""
DEATHS = (
    "merge.staged=kill",
    "mutation.post_stage=kill",
    ONE_MOVED,
    "publish.pre_manifest=kill",
    "publish.post_manifest=kill",
)


@pytest.mark.parametrize(
    ("verb", "death"),
    [
        *(("revert", death) for death in DEATHS),
        ("restore", ONE_MOVED),
        ("restore", "publish.pre_manifest=kill"),
    ],
)
def test_going_back_is_all_or_nothing(
    verb: str, death: str, worlds: Worlds, graph_root: str
) -> None:
    root = graph_root
    earlier = worlds.copy(World.PLAIN, graph_root)
    job = Job(kind=Kind.OVERWRITE, mark="bad", operation_id=str(ULID()))
    good = og.open(root).commit("HEAD").commit_id
    carry_out(og.open(root), job)
    changed = content_of(og.open(root))
    operation_id = str(ULID())

    ended = run(verb, root, operation_id, failpoints=death)

    assert ended.was_killed
    assert looked_at(root) in (changed, earlier)
    graph = reopened(root)
    outcome = graph.outcome(operation_id)
    is_done = outcome is OperationStatus.PUBLISHED
    assert is_done == death.startswith("publish.")
    assert content_of(graph) == (earlier if is_done else changed)
    assert [commit.message == verb for commit in graph.commits(limit=1)] == [is_done]
    kinds = {recovery.writer_kind for recovery in graph.maintenance.recoveries()}
    assert kinds <= {verb}
    assert_sound(graph)
    assert_heads_are_published(graph)
    assert_sweeping_again_changes_nothing(root)
    graph.restore(good)
    assert content_of(graph) == earlier
