"""Walks a graph's internal format forward, one stamp at a time, to the one this program writes.

Invariant: main is stamped last, so a graph whose main carries the current stamp has no branch with
an older one. Nothing is written to a graph that is current, nor to one that is newer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.errors import StorageUnavailableError
from omnigraph.failpoints import reach
from omnigraph.maintenance import (
    v0002_annotate_object_id,
    v0003_sweep_run_branches,
    v0004_record_heads,
    v0005_record_schema_changes,
    v0006_sync_manifests,
    v0007_record_checksums,
    v0008_mark_formats,
)
from omnigraph.storage.lance.datasets import cleans_by_itself
from omnigraph.storage.manifest.branch_identity import BranchRef
from omnigraph.storage.manifest.swap import keep_manifest_versions, manifest_branches, read_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from omnigraph.maintenance.context import MigrationContext
    from omnigraph.storage.manifest.branch_identity import BranchRef
    from omnigraph.storage.objects.location import Root
from omnigraph.storage.manifest.state import ManifestState

STEPS: Final[Mapping[int, Callable[[ManifestState, MigrationContext], None]]] = {
    1: v0002_annotate_object_id.migrate,
    2: v0003_sweep_run_branches.migrate,
    3: v0004_record_heads.migrate,
    4: v0005_record_schema_changes.migrate,
    5: v0006_sync_manifests.migrate,
    6: v0007_record_checksums.migrate,
    7: v0008_mark_formats.migrate,
}
_ATTEMPTS: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """Which stamps a walk went through on one branch."""

    branch: str | None
    stamps: tuple[int, ...]


def migrate(context: MigrationContext) -> tuple[Migrated, ...]:
    """Bring every branch to the current stamp; returns the branches that moved."""
    root = context.objects.root
    stamp = _stamp(root, None)
    if stamp == names.STAMP:
        return ()
    branches = sorted(name for name in manifest_branches(root) if not names.is_system_name(name))
    if stamp < names.STAMP_WITHOUT_RUNS:
        branches = [name for name in branches if not name.startswith(names.LEGACY_RUN_PREFIX)]
    walks = [_walk(context, branch) for branch in (*branches, None)]
    return tuple(walk for walk in walks if walk.stamps)


def _walk(context: MigrationContext, branch: str | None) -> Migrated:
    reached: list[int] = []
    for _ in range(_ATTEMPTS):
        state = read_manifest(context.objects.root, branch=_as_before(branch))
        if reached and state.stamp > reached[-1]:
            reached.append(state.stamp)
        if state.stamp == names.STAMP:
            return Migrated(branch=branch, stamps=tuple(reached))
        reached = reached or [state.stamp]
        if cleans_by_itself(state.handle):
            keep_manifest_versions(state)
            continue
        reach("migration.pre_step")
        STEPS[state.stamp](state, context)
        reach("migration.post_step")
    raise StorageUnavailableError(
        f"{context.objects.root} did not reach internal format {names.STAMP} "
        f"in {_ATTEMPTS} attempts",
        next_step="Check that the store accepts writes, then open the graph again.",
    )


def _as_before(branch: str | None) -> BranchRef | None:
    """Branches that old formats know share their name with their Lance branch."""
    return None if branch is None else BranchRef(branch=branch, incarnation="", claimed_at="")


def _stamp(root: Root, branch: str | None) -> int:
    return read_manifest(root, branch=_as_before(branch)).stamp
