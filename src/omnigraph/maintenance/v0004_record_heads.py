"""Stamp 4: the manifest itself carries commits and one head row per branch.

Earlier stamps kept the commit graph only in the history tables. The new head points at a commit of
its own, whose parent is the branch's newest commit in that history. Branch names that were never
claimed get their claim first, and history tables of the older shape the columns of today.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.storage.manifest.branch_identity import BranchRef
from omnigraph.storage.manifest.history import ensure_history, newest_commit
from omnigraph.storage.manifest.state import ManifestState
from omnigraph.storage.manifest.swap import manifest_branches, swap_manifest
from omnigraph.storage.manifest_rows import GraphCommit, GraphHead
from omnigraph.storage.refs.branches import claim_branch

if TYPE_CHECKING:
    from omnigraph.maintenance.context import MigrationContext

ACTOR: Final = f"{names.SYSTEM_ACTOR_PREFIX}migration"


def migrate(state: ManifestState, context: MigrationContext) -> None:
    root = context.objects.root
    ensure_history(root, operation_id=context.operation_id)
    claimed = claim_branch(
        context.objects,
        BranchRef(
            branch=state.branch or names.MAIN,
            incarnation=context.new_id(),
            claimed_at=context.now,
        ),
    )
    commit = GraphCommit(
        commit_id=context.new_id(),
        branch=state.branch,
        operation_id=context.operation_id,
        actor=ACTOR,
        created_at=context.now,
        parent_id=newest_commit(root, branch=state.branch),
        manifest_version=state.version + 1,
    )
    head = GraphHead(
        branch=state.branch,
        sequence=state.version + 1,
        commit_id=commit.commit_id,
        incarnation=claimed.incarnation,
        schema_hash=context.schema_hash,
        parent_branch=manifest_branches(root)[state.branch].parent if state.branch else None,
    )
    swap_manifest(state, (*state.rows, commit, head), operation_id=context.operation_id, stamp=4)
