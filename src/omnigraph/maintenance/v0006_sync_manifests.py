"""Stamp 6: a manifest says whether what it names was synced before it was put.

Programs that do not know would put manifests that name what a power cut can take, without saying
so: hence the stamp. The swap syncs everything that was written before; no row changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.storage.manifest.state import ManifestState
from omnigraph.storage.manifest.swap import swap_manifest

if TYPE_CHECKING:
    from omnigraph.maintenance.context import MigrationContext


def migrate(state: ManifestState, context: MigrationContext) -> None:
    swap_manifest(state, state.rows, operation_id=context.operation_id, stamp=6)
