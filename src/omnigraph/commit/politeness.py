"""Queueing: writers of one graph wait by age instead of undoing each other's work.

Invariant: nothing here decides anything. A writer that does not wait, or waits for a dead writer,
costs time and never data.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from ulid import ULID

from omnigraph import names
from omnigraph.commit.schema_commit import schema_change_under_way
from omnigraph.commit.sidecar import pending_sidecars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from omnigraph.clock import Clock
    from omnigraph.commit.sidecar import Sidecar
    from omnigraph.storage.objects.store import Objects

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
    asked = clock.now()
    deadline = asked + timedelta(seconds=FRESH_SECONDS)
    while asked < deadline and (ahead := _fresh_ones(objects, own, asked)):
        listing = (clock.now() - asked).total_seconds()
        pause = max(_SHORTEST_PAUSE_SECONDS, _PAUSE_PER_LISTING * listing) * ahead
        clock.sleep(pause * (0.5 + clock.jitter()))
        asked = clock.now()
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
