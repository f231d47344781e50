"""Stamp 8: a manifest has a row of a new kind for this format, as it will for every later one.

A stamp alone stops only those who look at it. A program that opened the graph before an upgrade
reads the manifest again for every operation, and decodes no row of a kind that it does not know: so
it stops before it reads or replaces anything. The swap writes row and stamp together.

To delete a tag such a program reads its log only, so the entries of tags are marked as well; before
main is stamped, because no later step returns to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.storage.manifest.state import ManifestState
from omnigraph.storage.manifest.swap import swap_manifest
from omnigraph.storage.refs.tags import confirm_tags

if TYPE_CHECKING:
    from omnigraph.maintenance.context import MigrationContext


def migrate(state: ManifestState, context: MigrationContext) -> None:
    if state.ref is None:
        confirm_tags(context.objects)
    swap_manifest(state, state.rows, operation_id=context.operation_id, stamp=8)
