"""Starting an operation: its sidecar is put before any of its files.

Invariant: the floor of a sidecar is what was published when the operation began, and never moves.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.commit.publish import pins_of
from omnigraph.commit.sidecar import (
    Sidecar,
    SidecarState,
    WriterKind,
    pending_sidecars,
    put_sidecar,
    started_at,
    this_host,
    this_process,
)
from omnigraph.errors import DamagedGraphError, OperationRunningError, StorageUnavailableError
from omnigraph.failpoints import reach

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnigraph.clock import Clock
    from omnigraph.storage.manifest.state import ManifestState
    from omnigraph.storage.objects.store import Objects


def new_sidecar(
    state: ManifestState,
    clock: Clock,
    *,
    operation_id: str,
    kind: WriterKind,
    actor: str,
    commit_id: str,
) -> Sidecar:
    """The sidecar of an operation that starts from a manifest state."""
    now = clock.timestamp()
    return Sidecar(
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
        schema_hash=state.schema_hash,
        schema_move=None,
        started_at=now,
        beat_at=now,
        host=this_host(),
        pid=this_process(),
        process_started=started_at(this_process()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What was read while the sidecar was being written."""

    pending: tuple[str, ...] | None
    """The existing sidecars, perhaps without our own; None if they could not be listed."""
    failure: BaseException | None
    """Why the operation cannot run."""

    def require_no_failure(self) -> None:
        if self.failure is not None:
            raise self.failure


def begin(objects: Objects, sidecar: Sidecar) -> None:
    """Put the sidecar of an operation.

    Raises:
        OperationRunningError: another attempt of the same operation has one.
    """
    _require_ours(sidecar, is_ours=put_sidecar(objects, sidecar))


def begin_and_look(
    objects: Objects, sidecar: Sidecar, look_ahead: Callable[[], object] | None
) -> Begun:
    """Put the sidecar, list the other writers, and read ahead, all in parallel.

    Raises:
        OperationRunningError: another attempt of the same operation has a sidecar.
    """
    with ThreadPoolExecutor(2) as beside:
        put = beside.submit(put_sidecar, objects, sidecar)
        listed = beside.submit(pending_sidecars, objects)
        failure = _failure_of(look_ahead)
    _require_ours(sidecar, is_ours=put.result())
    return Begun(
        pending=None if listed.exception() is not None else listed.result(), failure=failure
    )


def _require_ours(sidecar: Sidecar, *, is_ours: bool) -> None:
    if not is_ours:
        raise OperationRunningError(sidecar.operation_id)
    reach("mutation.post_sidecar")


def _failure_of(look_ahead: Callable[[], object] | None) -> BaseException | None:
    try:
        if look_ahead is not None:
            look_ahead()
    except (DamagedGraphError, StorageUnavailableError):
        # Nothing protects yet what is read; a second read is protected.
        return None
    except BaseException as error:  # noqa: BLE001 - raised again when the sidecar is there
        return error
    return None
