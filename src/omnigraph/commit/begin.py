"""The first thing of an operation that others can see: its sidecar, before any file of it.

Invariant: the floor of a sidecar is what was published when the operation began, and never moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.commit.publish import pins_of
from omnigraph.commit.sidecar import (
    Sidecar,
    SidecarState,
    WriterKind,
    put_sidecar,
    started_at,
    this_host,
    this_process,
)
from omnigraph.errors import OperationRunningError
from omnigraph.failpoints import reach

if TYPE_CHECKING:
    from omnigraph.commit.clock import Clock
    from omnigraph.storage.manifest import ManifestState
    from omnigraph.storage.objects import Objects


def begin(  # noqa: PLR0913 - each is a field of the sidecar
    objects: Objects,
    state: ManifestState,
    clock: Clock,
    *,
    operation_id: str,
    kind: WriterKind,
    actor: str,
    commit_id: str,
) -> Sidecar:
    """Put the sidecar of an operation that starts from a manifest state.

    Raises:
        OperationRunningError: another attempt of the same operation has one.
    """
    now = clock.timestamp()
    sidecar = Sidecar(
        operation_id=operation_id,
        nonce=clock.new_id(),
        kind=kind,
        actor=actor,
        branch=state.branch,
        incarnation=None if state.ref is None else state.ref.incarnation,
        commit_id=commit_id,
        state=SidecarState.STAGING,
        floor=pins_of(state),
        read_set={},
        tables=(),
        pointed=(),
        merged=None,
        started_at=now,
        beat_at=now,
        host=this_host(),
        pid=this_process(),
        process_started=started_at(this_process()),
    )
    if not put_sidecar(objects, sidecar):
        raise OperationRunningError(operation_id)
    reach("mutation.post_sidecar")
    return sidecar
