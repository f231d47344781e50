"""Stamp 7: what is stored carries checksums.

A program that does not know them would publish versions without: hence the stamp. The manifest gets
the digest of its rows, and the history a column for those of its rows. Versions that were published
before have no checksums until `optimize` or `scrub --record` writes them.
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
    swap_manifest(state, state.rows, operation_id=context.operation_id, stamp=7)
