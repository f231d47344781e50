"""Starts an operation: puts its sidecar before any of its files, and waits for older writers.

Writers of one graph wait by age instead of undoing each other's work.

Invariants:

- The floor of a sidecar is what was published when the operation began, and never moves.
- Waiting decides nothing. A writer that does not wait, or waits for a dead writer, costs time and
  never data.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from ulid import ULID

from omnigraph import names
from omnigraph.commit.publish import pins_of
from omnigraph.commit.schema_commit import schema_change_under_way
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
    from collections.abc import Callable, Iterable

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
class StartedWrite:
    """What was read while the sidecar was being written."""

    pending: tuple[str, ...] | None
    """The existing sidecars, perhaps without our own; None if they could not be listed."""
    failure: BaseException | None
    """Why the operation cannot run."""

    def require_no_failure(self) -> None:
        if self.failure is not None:
            raise self.failure


def start_write(objects: Objects, sidecar: Sidecar) -> None:
    """Put the sidecar of an operation.

    Raises:
        OperationRunningError: another attempt of the same operation has one.
    """
    _require_ours(sidecar, is_ours=put_sidecar(objects, sidecar))


def start_and_read(
    objects: Objects, sidecar: Sidecar, look_ahead: Callable[[], object] | None
) -> StartedWrite:
    """Put the sidecar, list the other writers, and read ahead, all in parallel.

    Raises:
        OperationRunningError: another attempt of the same operation has a sidecar.
    """
    with ThreadPoolExecutor(2) as beside:
        put = beside.submit(put_sidecar, objects, sidecar)
        listed = beside.submit(pending_sidecars, objects)
        failure = _failure_of(look_ahead)
    _require_ours(sidecar, is_ours=put.result())
    return StartedWrite(
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


FRESH_SECONDS: Final = 2.0
_SCHEMA_CHANGE_SECONDS: Final = 30.0
_SCHEMA_CHANGE_PAUSE_SECONDS: Final = 0.1
_SHORTEST_PAUSE_SECONDS: Final = 0.002
_PAUSE_PER_LISTING: Final = 2.0


def wait_for_older(
    objects: Objects,
    own: Sidecar,
    clock: Clock,
    *,
    pending: tuple[str, ...] | None = None,
    settle: Callable[[], object],
) -> bool:
    """Let older writers of the same branch go first; True if there were any.

    Dead ones are settled at once, living ones waited for while they are young. The polling interval
    depends on the latency of the store and on the number of writers ahead. `pending` is the latest
    listing, if there is one.
    """
    if not _older(pending_sidecars(objects) if pending is None else pending, own):
        return False
    settle()
    _let_schema_change_pass(objects, own, clock)
    asked_at = clock.now()
    deadline = asked_at + timedelta(seconds=FRESH_SECONDS)
    while asked_at < deadline and (ahead := _fresh_ones(objects, own, asked_at)):
        listing = (clock.now() - asked_at).total_seconds()
        pause = max(_SHORTEST_PAUSE_SECONDS, _PAUSE_PER_LISTING * listing) * ahead
        clock.sleep(pause * (0.5 + clock.jitter()))
        asked_at = clock.now()
    return True


def _let_schema_change_pass(objects: Objects, own: Sidecar, clock: Clock) -> None:
    """A schema change may have run for minutes; one that lost a race is waited for."""
    deadline = clock.now() + timedelta(seconds=_SCHEMA_CHANGE_SECONDS)
    while clock.now() < deadline:
        lock = schema_change_under_way(objects, now=clock.now())
        if lock is None or not lock.is_impatient or lock.operation_id >= own.operation_id:
            return
        clock.sleep(_SCHEMA_CHANGE_PAUSE_SECONDS)


def back_off(attempt: int, clock: Clock) -> None:
    """Wait for a random, growing time after every lost race."""
    clock.sleep(min(0.005 * 2**attempt, 0.5) * (0.5 + clock.jitter()))


def began_at(operation_id: str) -> datetime | None:
    """When the id of an operation was created, None if the id does not encode it."""
    try:
        return ULID.from_str(operation_id).datetime
    except ValueError:
        return None


def _older(pending: Iterable[str], own: Sidecar) -> list[str]:
    owners = [names.sidecar_owner(path) for path in pending]
    return [
        operation_id
        for operation_id, incarnation in owners
        if incarnation == own.incarnation and operation_id < own.operation_id
    ]


def _fresh_ones(objects: Objects, own: Sidecar, now: datetime) -> int:
    began = map(began_at, _older(pending_sidecars(objects), own))
    return sum(
        moment is not None and (now - moment.astimezone(UTC)).total_seconds() < FRESH_SECONDS
        for moment in began
    )
