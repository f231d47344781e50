"""What a merge has to do: its base, its outcome, and the tables that need work.

Invariant: decided from commits and pins alone; no row is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from omnigraph import names
from omnigraph.errors import ConflictError
from omnigraph.storage.manifest.commit_graph import base_of
from omnigraph.storage.manifest.time_travel import all_commits, snapshot_of

if TYPE_CHECKING:
    from omnigraph.storage.manifest.state import ManifestState
    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.refs.references import Resolved
    from omnigraph.storage.snapshot import Snapshot


class MergeOutcome(StrEnum):
    """How a merge ended."""

    UP_TO_DATE = "up_to_date"
    FAST_FORWARD = "fast_forward"
    MERGED = "merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """The three snapshots of a merge, and the tables that the source changed."""

    outcome: MergeOutcome
    base_commit: str
    before: Snapshot
    ours: Snapshot
    theirs: Snapshot
    keys: tuple[str, ...]
    source_is_newer: bool


def plan_merge(
    objects: Objects, source: Resolved, source_commit: str, target: ManifestState
) -> MergePlan:
    """Compare the heads of source and target with their common ancestor."""
    root = objects.root
    target_commit = target.head.commit_id
    states = (target, source.state)
    graph, base = base_of(
        root, source_commit, target_commit, states=states, further=lambda: all_commits(root)
    )
    if base is None:
        raise ConflictError(
            f"{source.name} and {target.branch or names.MAIN} have no commit in common",
            next_step="Export one and load it into the other.",
        )
    ours, theirs = target.snapshot(), source.snapshot
    if base.commit_id == source_commit:
        outcome, before = MergeOutcome.UP_TO_DATE, theirs
    elif base.commit_id == target_commit:
        outcome, before = MergeOutcome.FAST_FORWARD, ours
    else:
        outcome, before = MergeOutcome.MERGED, snapshot_of(root, states, graph, base)
    if outcome is not MergeOutcome.UP_TO_DATE:
        _require_one_schema(source, target, before)
    theirs_at, ours_at = (
        datetime.fromisoformat(graph.commits[commit_id].created_at)
        for commit_id in (source_commit, target_commit)
    )
    return MergePlan(
        outcome=outcome,
        base_commit=base.commit_id,
        before=before,
        ours=ours,
        theirs=theirs,
        keys=tuple(key for key in sorted(theirs.tables) if _differs(key, before, ours, theirs)),
        source_is_newer=theirs_at > ours_at,
    )


def _require_one_schema(source: Resolved, target: ManifestState, before: Snapshot) -> None:
    """Rows are compared column by column, so all three sides must have the same columns.

    Raises:
        ConflictError: names the side that changed the schema since they diverged.
    """
    first = target.head.first_schema
    parted = before.schema_hash or first
    theirs = source.snapshot.schema_hash or first
    ours = target.head.schema_hash
    into = target.branch or names.MAIN
    changed = [name for name, now in ((source.name, theirs), (into, ours)) if now != parted]
    if changed:
        raise ConflictError(
            f"{source.name} cannot be merged into {into}: the schema of {' and of '.join(changed)} "
            "was changed since they diverged, and rows of two schemas cannot be compared",
            next_step=f"Export what {source.name} added and load it into {into}, or create a "
            f"new branch from {into}.",
        )


def _differs(key: str, before: Snapshot, ours: Snapshot, theirs: Snapshot) -> bool:
    """Whether the source changed a table, and the target has not the very same already."""
    pins = [snapshot.tables[key].pin for snapshot in (before, ours) if key in snapshot.tables]
    return theirs.tables[key].pin not in pins
