"""Holds the advisory lock of schema changes, and finishes a schema change once it is decided.

The lock is one object. It holds while its operation has a sidecar and its writer seems alive:
settling the operation also frees the lock. After the decision, the copy of the schema at the root
is written, or the unused tables are removed.

Invariants:

- Nothing is safe because of the lock. A change publishes only on the schema it was planned for,
  with or without the lock; the lock only saves a second change the work.
- The follow-up runs only after the decision was read. Tables of a change that was not published
  belong to no other operation, because their paths are the operation's own.
- A copy at the root is never trusted.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from omnigraph_lake import names
from omnigraph_lake.commit.sidecar import Sidecar, is_abandoned, pending_sidecars, read_sidecar
from omnigraph_lake.errors import ConflictError
from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage.lance.datasets import remove_unless_foreign
from omnigraph_lake.storage.manifest.accepted_schemas import promote_schema
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.manifest_rows import Operation, Outcome
from omnigraph_lake.storage.objects.documents import parsed, typed
from omnigraph_lake.storage.objects.store import Objects, Put

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaLock:
    """The operation that changes the schema; an impatient one has lost a race."""

    operation_id: str
    is_impatient: bool = False


def take_schema_lock(
    objects: Objects, operation_id: str, *, now: datetime, impatient: bool = False
) -> None:
    """Record that an operation, whose sidecar exists, changes the schema.

    Raises:
        ConflictError: another one does.
    """
    lock = SchemaLock(operation_id=operation_id, is_impatient=impatient)
    content = json.dumps(asdict(lock)).encode()
    if objects.put_if_absent(names.schema_lock(), content) is Put.EXISTED:
        change = schema_change_under_way(objects, now=now)
        if change is not None and change.operation_id != operation_id:
            raise ConflictError(
                f"operation {change.operation_id} is already changing the schema of {objects.root}",
                next_step="Run it again when that has ended; see `omnigraph status "
                f"{objects.root}`.",
            )
        objects.replace(names.schema_lock(), content)
    reach("schema.post_lock")


def free_schema_lock(objects: Objects, operation_id: str) -> None:
    """Release the lock, unless another process has it by now."""
    lock = _held(objects)
    if lock is not None and lock.operation_id == operation_id:
        objects.delete(names.schema_lock())
    reach("schema.post_unlock")


def schema_change_under_way(objects: Objects, *, now: datetime) -> SchemaLock | None:
    """The running schema change, if any."""
    lock = _held(objects)
    return lock if lock is not None and _is_working(objects, lock.operation_id, now) else None


def _is_working(objects: Objects, operation_id: str, now: datetime) -> bool:
    for path in pending_sidecars(objects):
        if names.sidecar_owner(path)[0] == operation_id:
            sidecar = read_sidecar(objects, path)
            if sidecar is not None and not is_abandoned(sidecar, now=now):
                return True
    return False


def _held(objects: Objects) -> SchemaLock | None:
    content = objects.read(names.schema_lock())
    if content is None:
        return None
    try:
        return typed(SchemaLock, parsed(content))
    except ValueError:
        return None


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
