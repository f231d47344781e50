"""Stamp 3: no `__run__*` branches are left on the manifest.

An early staging scheme left them behind. Absent ones are fine, so two processes may sweep at once;
a branch that others were forked from goes after them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.errors import DamagedGraphError
from omnigraph.storage.manifest.state import ManifestState
from omnigraph.storage.manifest.swap import drop_manifest_branch, manifest_branches, swap_manifest

if TYPE_CHECKING:
    from omnigraph.maintenance.context import MigrationContext
    from omnigraph.storage.objects.location import Root

_ROUNDS: Final = 20


def migrate(state: ManifestState, context: MigrationContext) -> None:
    if state.branch is None:
        _sweep(context.objects.root)
    swap_manifest(state, state.rows, operation_id=context.operation_id, stamp=3)


def _sweep(root: Root) -> None:
    stale: set[str] = set()
    for _ in range(_ROUNDS):
        origins = manifest_branches(root)
        stale = {name for name in origins if name.startswith(names.LEGACY_RUN_PREFIX)}
        if not stale:
            return
        forked_from = {origin.parent for origin in origins.values()}
        for name in stale - forked_from:
            drop_manifest_branch(root, name)
    raise DamagedGraphError(
        f"stale branches {', '.join(sorted(stale))} of {root} cannot be removed: "
        "other branches were forked from them",
        next_step="Delete the branches forked from them first.",
    )
