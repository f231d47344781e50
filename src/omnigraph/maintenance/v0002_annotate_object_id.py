"""Stamp 2: `object_id` carries Lance's primary-key annotation.

The swap writes annotation and stamp together. A graph that crashed between the two under another
program, annotated but not stamped, gets its stamp by the same swap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.storage.manifest.state import ManifestState
from omnigraph.storage.manifest.swap import swap_manifest

if TYPE_CHECKING:
    from omnigraph.maintenance.context import MigrationContext


def migrate(state: ManifestState, context: MigrationContext) -> None:
    swap_manifest(state, state.rows, operation_id=context.operation_id, stamp=2)
