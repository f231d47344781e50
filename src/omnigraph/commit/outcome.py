"""The outcome of an operation, for callers that lost the response."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from omnigraph.commit.publish import decision_in
from omnigraph.commit.sidecar import pending_operations
from omnigraph.errors import NotFoundError
from omnigraph.storage.manifest_rows import Operation, Outcome
from omnigraph.storage.refs.branches import living_branches, read_branch_manifest

if TYPE_CHECKING:
    from omnigraph.storage.objects.store import Objects


class OperationStatus(StrEnum):
    """What is known of an operation."""

    PUBLISHED = "published"
    ROLLED_BACK = "rolled_back"
    PENDING = "pending"
    UNKNOWN = "unknown"


def operation_status(objects: Objects, operation_id: str) -> OperationStatus:
    """Pending operations are settled by the next sweep; an unknown one never began.

    What was published on a branch that is deleted now is unknown again.
    """
    # The sidecar first: a decision made while we look is then found, never missed.
    pending = operation_id in pending_operations(objects)
    decided = decided_operation(objects, operation_id)
    if decided is None:
        return OperationStatus.PENDING if pending else OperationStatus.UNKNOWN
    match decided.outcome:
        case Outcome.PUBLISHED:
            return OperationStatus.PUBLISHED
        case Outcome.ROLLED_BACK | Outcome.ABORTED:
            return OperationStatus.ROLLED_BACK
        case _:
            assert_never(decided.outcome)


def decided_operation(objects: Objects, operation_id: str) -> Operation | None:
    """The decision, looked for on main and then on every other branch."""
    branches = [None, *living_branches(objects).values()]
    for branch in branches:
        with suppress(NotFoundError):
            state = read_branch_manifest(objects, branch)
            decided = decision_in(objects.root, state, operation_id)
            if decided is not None:
                return decided
    return None
