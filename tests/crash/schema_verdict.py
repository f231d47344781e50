"""What must hold after an applier was killed or woke up: old or new, and life goes on.

What others see before a recovery is always read by another process. What they see after it, and
after life has gone on, is read in this process by the gate, and by another one in the nightly. The
gate checks a graph after it has recovered, the nightly once more after life has gone on.
"""

from __future__ import annotations

import pytest

import omnigraph_lake as og
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.commit.schema_commit import schema_change_under_way
from omnigraph_lake.commit.sidecar import pending_operations
from omnigraph_lake.errors import OperationRolledBackError
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.manifest_rows import Table
from omnigraph_lake.storage.refs.branches import living_branches
from tests.crash.schema_processes import run
from tests.crash.schema_world import (
    CHANGES,
    MAIN,
    Apply,
    Look,
    apply,
    changed,
    look,
    with_city,
    write_city,
)
from tests.crash.soundness import findings
from tests.crash.verdict import NOT_DONE
from tests.gate.selection import is_nightly
from tests.stores import files_of, folder_of


def seen_by_another(root: str, branch: str = MAIN) -> Look:
    """What a reader in a process of its own sees; reading leaves every file as it was."""
    files = _fingerprint(root)
    answer = run("look", root, branch).answer
    assert answer["said"] == "acknowledged", answer
    assert _fingerprint(root) == files
    return Look(text=answer["text"], rows=answer["rows"])


def seen_afresh(root: str, branch: str = MAIN) -> Look:
    """What a reader sees that opens the graph now."""
    if is_nightly():
        return seen_by_another(root, branch)
    return look(og.open(root, read_only=True).checkout(branch))


def assert_sound(graph: Graph) -> None:
    assert findings(graph, look(graph).rows) == ()


def assert_still_sound(graph: Graph) -> None:
    """Check it once more after life has gone on, in the nightly."""
    if is_nightly():
        assert_sound(graph)


def assert_old_or_new(root: str, job: Apply, *, before: Look) -> OperationStatus:
    """Recover, and prove that the change happened completely or not at all; returns which."""
    after = changed(before, job.change)
    assert seen_by_another(root, job.branch) in (before, after)

    graph = og.open(root).checkout(job.branch)
    assert_settled(graph)
    outcome = graph.outcome(job.operation_id)
    if outcome is OperationStatus.PUBLISHED:
        assert look(graph) == after
    else:
        assert outcome in NOT_DONE
        assert look(graph) == before
    assert_sound(graph)
    assert_no_table_of_nobody(graph)
    assert graph.maintenance.recover(force=True).settled == ()
    return outcome


def assert_life_goes_on(
    graph: Graph, job: Apply, outcome: OperationStatus, *, before: Look, commit: str
) -> None:
    """The change can be made, rows can be written, and the past is what it was."""
    assert_asking_again_tells_the_same(graph, job, outcome)
    repeated = graph.schema.apply(CHANGES[job.change].text)
    assert repeated.applied == (outcome is not OperationStatus.PUBLISHED)
    after = changed(before, job.change)
    assert look(graph) == after
    write_city(graph, "follower")
    assert look(graph) == with_city(after, "follower")
    assert look(graph.at(commit)) == before
    assert_still_sound(graph)
    assert_settled(graph)
    assert_no_table_of_nobody(graph)
    assert seen_afresh(graph.root, job.branch) == with_city(after, "follower")


def assert_asking_again_tells_the_same(graph: Graph, job: Apply, outcome: OperationStatus) -> None:
    """The same operation id never changes twice and never changes its answer."""
    seen = look(graph)
    if outcome is OperationStatus.PUBLISHED:
        assert apply(graph, job).applied
    elif outcome is OperationStatus.ROLLED_BACK:
        with pytest.raises(OperationRolledBackError):
            apply(graph, job)
    assert look(graph) == seen


def assert_settled(graph: Graph) -> None:
    assert pending_operations(graph._objects) == ()
    assert schema_change_under_way(graph._objects, now=SYSTEM_CLOCK.now()) is None


def assert_published_once(graph: Graph, *operations: str) -> None:
    """Every published operation has one commit, every other one none."""
    commits = [commit.operation_id for commit in graph.commits()]
    for each in operations:
        published = graph.outcome(each) is OperationStatus.PUBLISHED
        assert commits.count(each) == published


def assert_no_table_of_nobody(graph: Graph) -> None:
    """Every dataset there is belongs to a table that some manifest names."""
    objects = graph._objects
    states = [
        read_manifest(objects.root, branch=ref)
        for ref in (None, *living_branches(objects).values())
    ]
    named = {row.location for state in states for row in state.rows if isinstance(row, Table)}
    assert _datasets(graph.root) <= named


def _datasets(root: str) -> set[str]:
    """Folders of tables with at least one file in them."""
    return {
        f"{kind}/{folder.name}"
        for kind in ("nodes", "edges")
        for folder in folder_of(root, kind).glob("*")
        if any(each.is_file() for each in folder.rglob("*"))
    }


def _fingerprint(root: str) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files_of(root)}
