"""Stamp 5: schemas change, and commits remember how.

A version of a table may lie elsewhere than at its key's first path, and a program that does not
know would read the wrong rows: hence the stamp. No row of the manifest is written differently; the
history gets a column for what commits did to the schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.storage.manifest.history import ensure_history
from omnigraph.storage.manifest.state import ManifestState
from omnigraph.storage.manifest.swap import swap_manifest

if TYPE_CHECKING:
    from omnigraph.maintenance.context import MigrationContext


def migrate(state: ManifestState, context: MigrationContext) -> None:
    ensure_history(context.objects.root, operation_id=context.operation_id)
    swap_manifest(state, state.rows, operation_id=context.operation_id, stamp=5)
