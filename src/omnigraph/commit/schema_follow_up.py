"""What follows a decided schema change: the copy at the root, or the removal of unused tables.

Invariant: only after the decision was read. Tables of a change that was not published belong to no
one, because their paths are the operation's own; a copy at the root is never trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.failpoints import reach
from omnigraph.storage.lance.datasets import remove_unless_foreign
from omnigraph.storage.manifest.accepted_schemas import promote_schema
from omnigraph.storage.manifest.swap import read_manifest
from omnigraph.storage.manifest_rows import Outcome

if TYPE_CHECKING:
    from omnigraph.commit.sidecar import Sidecar
    from omnigraph.storage.manifest_rows import Operation
    from omnigraph.storage.objects.store import Objects


def follow_up_schema(objects: Objects, sidecar: Sidecar, decided: Operation | None) -> None:
    """Finish the follow-up work of a schema change; idempotent, in any process.

    `decided` is None if the operation was never armed or its branch is gone: it cannot be
    published.
    """
    move = sidecar.schema_move
    if move is None:
        return
    if decided is None or decided.outcome is not Outcome.PUBLISHED:
        for table in move.created:
            remove_unless_foreign(objects, table.location, operation_id=sidecar.operation_id)
            reach("schema.post_discard")
        return
    reach("schema.pre_promote")
    in_force = read_manifest(objects.root).head.schema_hash
    if sidecar.branch is None and in_force == move.after:
        promote_schema(objects, move.after)
