"""Moving old commits out of the manifest, so that the cost of publishing stays constant.

Invariant: a commit is in the history before it leaves the manifest, and exactly the rows that were
added there leave, by an ordinary swap of the state they were read from. A process that looks for a
decision looks in the manifest first, then in the history. Deleting manifest versions that no reader
believes any more decides nothing, so that may happen later, or never if the process is killed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from omnigraph_lake.failpoints import reach
from omnigraph_lake.names import OperationKey
from omnigraph_lake.storage.manifest.history import record_commits
from omnigraph_lake.storage.manifest.state import ManifestState
from omnigraph_lake.storage.manifest.swap import SwapAnswer, forget_old_versions, swap_manifest
from omnigraph_lake.storage.manifest_rows import GraphCommit, ManifestRow, Operation, Outcome
from omnigraph_lake.storage.objects.background import WORKER
from omnigraph_lake.storage.objects.durability import sync

if TYPE_CHECKING:
    from omnigraph_lake.storage.manifest.state import BranchRef
    from omnigraph_lake.storage.objects.location import Root

FOLD_EVERY: Final = 100
_UNPUBLISHED_KEPT_MAX: Final = 500


def fold_if_due(root: Root, state: ManifestState) -> None:
    """Fold once enough commits have gathered.

    No writer waits until the old versions are deleted, unless nothing runs in the background.
    """
    if sum(isinstance(row, GraphCommit) for row in state.rows) <= FOLD_EVERY:
        return
    if not move_to_history(root, state):
        return
    if WORKER.is_allowed:
        # A program that ends after each write would otherwise never delete them.
        WORKER.submit(
            ("forget", root.uri, state.branch),
            lambda _: _forget(root, state.ref),
            runs_at_exit=True,
        )
    else:
        _forget(root, state.ref)


def compact_commits(root: Root, state: ManifestState) -> bool:
    """Fold the commits of this state, all but the newest, and forget old manifest versions.

    True if rows left the manifest.
    """
    if not move_to_history(root, state):
        return False
    _forget(root, state.ref)
    return True


def move_to_history(root: Root, state: ManifestState) -> bool:
    """Add the commits of this state to the history, and take them out; False if others swapped."""
    head = state.head
    commits = [
        row
        for row in state.rows
        if isinstance(row, GraphCommit) and row.commit_id != head.commit_id
    ]
    reach("fold.post_read")
    record_commits(root, commits)
    reach("fold.post_history")
    sync(root)  # no power cut may take the history and leave the manifest without the commits
    reach("fold.pre_drop")
    answer = swap_manifest(state, _without(state, commits), operation_id=f"fold:{head.sequence}")
    reach("fold.post_drop")
    return answer is SwapAnswer.ACCEPTED


def _forget(root: Root, branch: BranchRef | None) -> None:
    forget_old_versions(root, branch=branch)
    reach("manifest.post_clean")


def _without(state: ManifestState, commits: list[GraphCommit]) -> list[ManifestRow]:
    head = state.head
    folded = {commit.commit_id for commit in commits}
    operations = {commit.operation_id for commit in commits if not _has_key(commit.operation_id)}
    pruned = _prunable(state)
    leaving = pruned | _attempts_before_last(state)
    kept = [row for row in state.rows if row is not head and not _leaves(row, folded, leaving)]
    return [
        *kept,
        replace(
            head,
            sequence=head.sequence + 1,
            folded_operation=max(filter(None, [head.folded_operation, *operations]), default=None),
            pruned_operation=max(filter(None, [head.pruned_operation, *pruned]), default=None),
        ),
    ]


def _leaves(row: ManifestRow, folded: set[str], pruned: set[str]) -> bool:
    match row:
        case GraphCommit():
            return row.commit_id in folded
        case Operation(outcome=Outcome.PUBLISHED):
            return row.commit_id in folded
        case Operation():
            return row.operation_id in pruned
        case _:
            return False


def _prunable(state: ManifestState) -> set[str]:
    """Rolled-back operations beyond those to keep: all up to a mark, so the mark covers them."""
    undone = sorted(
        row.operation_id
        for row in state.rows
        if isinstance(row, Operation)
        and row.outcome is not Outcome.PUBLISHED
        and not _has_key(row.operation_id)
    )
    return set(undone[: max(0, len(undone) - _UNPUBLISHED_KEPT_MAX)])


def _attempts_before_last(state: ManifestState) -> set[str]:
    """Rolled-back operations with a key that was attempted again: the last one tells of them."""
    keyed = sorted(
        row.operation_id
        for row in state.rows
        if isinstance(row, Operation) and _has_key(row.operation_id)
    )
    last = {OperationKey.of_operation(operation_id): operation_id for operation_id in keyed}
    return set(keyed) - set(last.values())


def _has_key(operation_id: str) -> bool:
    return OperationKey.of_operation(operation_id) is not None
