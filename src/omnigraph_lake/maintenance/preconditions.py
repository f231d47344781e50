"""Check whether maintenance may start, and whether a table version has the columns of the schema.

Maintenance may start if the schema is valid and not being changed, and no write is unfinished.

Invariants:
- These checks only read.
- Active writers do not block maintenance, because their sidecars protect what they may need. A dead
  writer does, because it is not yet decided which of its versions count.
- A version whose columns do not match the schema is never published, because no reader could
  interpret it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph_lake.commit.schema_commit import schema_change_under_way
from omnigraph_lake.commit.sidecar import is_abandoned, pending_sidecars, read_sidecar
from omnigraph_lake.errors import ConflictError, RecoveryRequiredError
from omnigraph_lake.validation.schema_contract import SchemaContract, read_contract

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph_lake.clock import Clock
    from omnigraph_lake.storage.manifest.state import ManifestState
    from omnigraph_lake.storage.objects.store import Objects


def require_ready(
    objects: Objects, state: ManifestState, clock: Clock, *, verb: str
) -> SchemaContract:
    """Everything below, cheapest to fix first; returns the accepted schema."""
    contract = require_schema(objects, state)
    require_no_schema_change(objects, clock, verb=verb)
    require_settled(objects, clock, verb=verb)
    return contract


def require_schema(objects: Objects, state: ManifestState) -> SchemaContract:
    """The accepted schema that the manifest names.

    Raises:
        DamagedGraphError: no files agree with each other and with the manifest.
    """
    return read_contract(objects, state.head.schema_hash)


def require_no_schema_change(objects: Objects, clock: Clock, *, verb: str) -> None:
    if schema_change_under_way(objects, now=clock.now()) is not None:
        raise ConflictError(
            f"the schema of {objects.root} is being changed",
            next_step=f"Run `omnigraph {verb} {objects.root}` again when it has ended.",
        )


def require_settled(objects: Objects, clock: Clock, *, verb: str) -> None:
    """Refuse while a dead writer's work is undecided, or a sidecar cannot be parsed."""
    for path in pending_sidecars(objects):
        sidecar = read_sidecar(objects, path)
        if sidecar is not None and is_abandoned(sidecar, now=clock.now()):
            raise RecoveryRequiredError(
                f"{verb} cannot run: operation {sidecar.operation_id} "
                f"({sidecar.kind.value}, begun {sidecar.started_at}) was left unfinished",
                next_step=f"Run `omnigraph recovery run {objects.root}`, which settles it, then "
                f"{verb} again.",
            )


def misfit_of(columns: pa.Schema, declared: pa.Schema | None, *, version: int) -> str | None:
    """The first column that is not as the schema declares it: nothing could read it any more."""
    if declared is None:
        return "the schema has no such type"
    for field in declared:
        if field.name not in columns.names:
            return f"column {field.name!r} is missing in version {version}"
        stored = columns.field(field.name)
        if not stored.equals(field):
            return (
                f"column {field.name!r} of version {version} is "
                f"{_spelt(stored)}, the schema says {_spelt(field)}"
            )
        if not dict(field.metadata or {}).items() <= dict(stored.metadata or {}).items():
            return (
                f"column {field.name!r} of version {version} lost the metadata that Omnigraph "
                "gives its columns"
            )
    for name in columns.names:
        if name not in declared.names:
            return f"column {name!r} of version {version} is not in the schema"
    return None


def _spelt(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"
