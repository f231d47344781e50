"""What must hold after any crash: all or nothing, one truthful outcome, and life goes on.

The gate checks a graph after it has recovered, the nightly once more after others have written.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection

import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.commit.sidecar import pending_operations
from omnigraph_lake.errors import OperationRolledBackError
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.staging.table_versions import head_version, version_records
from omnigraph_lake.validation.check import Problem
from tests.crash.small_world import KINDS, Content, Job, Kind, after, carry_out, content_of
from tests.crash.soundness import findings
from tests.gate.selection import is_nightly
from tests.stores import files_of

NOT_DONE = (OperationStatus.ROLLED_BACK, OperationStatus.UNKNOWN)


def looked_at(root: str) -> Content:
    """What a reader sees; reading must leave every file as it was."""
    files = _fingerprint(root)
    content = content_of(og.open(root, read_only=True))
    assert _fingerprint(root) == files
    return content


def reopened(root: str) -> Graph:
    """Open for writing, which settles what the dead left."""
    graph = og.open(root)
    assert pending(graph) == ()
    return graph


def pending(graph: Graph) -> tuple[str, ...]:
    return pending_operations(graph._objects)


def assert_all_or_nothing(
    root: str, job: Job, *, before: Content, allowed: Collection[Problem] = ()
) -> OperationStatus:
    """Recover, and prove that the job happened completely or not at all; returns which."""
    done = after(before, job)
    assert looked_at(root) in (before, done)

    graph = reopened(root)
    outcome = graph.outcome(job.operation_id)
    content = content_of(graph)
    if outcome is OperationStatus.PUBLISHED:
        assert content == done
        assert job.message in [commit.message for commit in graph.commits()]
    else:
        assert outcome in NOT_DONE
        assert content == before
    assert_sound(graph, allowed=allowed)
    swept = {each.operation_id for each in graph.maintenance.recoveries()}
    if job.operation_id in swept and Problem.DRIFT not in allowed:
        # Whoever gives up by itself leaves its versions to be healed by the next writer.
        assert_nothing_left_above_pins(graph, job.operation_id)
    assert_sweeping_again_changes_nothing(root)
    return outcome


def assert_sound(graph: Graph, *, allowed: Collection[Problem] = ()) -> None:
    problems = {finding.problem for finding in findings(graph, content_of(graph))}
    assert problems <= set(allowed)


def assert_nothing_left_above_pins(graph: Graph, operation_id: str) -> None:
    """No unpublished version of a settled operation lies above a pin."""
    for entry in graph.snapshot().tables.values():
        records = version_records(graph._objects.root, entry, above=entry.version)
        assert operation_id not in {record.operation_id for record in records}


def assert_heads_are_published(graph: Graph, *, only: Collection[str] | None = None) -> None:
    for key, entry in graph.snapshot().tables.items():
        if only is None or key in only:
            assert head_version(graph._objects.root, entry) == entry.version


def assert_sweeping_again_changes_nothing(root: str) -> None:
    graph = og.open(root)
    version = graph.snapshot().manifest_version
    swept = graph.maintenance.recover(force=True)

    assert swept.settled == ()
    assert og.open(root).snapshot().manifest_version == version


def assert_asking_again_tells_the_same(graph: Graph, job: Job, outcome: OperationStatus) -> None:
    """The same operation id never writes twice and never changes its answer."""
    content = content_of(graph)
    if outcome is OperationStatus.PUBLISHED:
        assert carry_out(graph, job).tables == {}
    elif outcome is OperationStatus.ROLLED_BACK:
        with pytest.raises(OperationRolledBackError):
            carry_out(graph, job)
    assert content_of(graph) == content


def kinds_that_follow(case: object) -> tuple[Kind, ...]:
    """The kinds of writes made after a case: all in the nightly, one in the gate.

    The name of the case chooses it, so that the kinds alternate over the cases of a matrix.
    """
    if is_nightly():
        return KINDS
    return (KINDS[zlib.crc32(str(case).encode()) % len(KINDS)],)


def assert_writes_succeed(graph: Graph, *, after_case: object) -> None:
    content = content_of(graph)
    written: set[str] = set()
    for kind in kinds_that_follow(after_case):
        job = Job(kind=kind, operation_id=str(ULID()), mark="follower", city="c2")
        written |= carry_out(graph, job).tables.keys()
        content = after(content, job)
        assert graph.outcome(job.operation_id) is OperationStatus.PUBLISHED
    assert content_of(graph) == content
    if is_nightly():
        assert_sound(graph)
    assert_heads_are_published(graph, only=written)


def _fingerprint(root: str) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files_of(root)}
