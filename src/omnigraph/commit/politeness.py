"""Waiting one's turn: writers of one graph queue up by age instead of healing each other away.

Invariant: nothing here decides anything. Whoever does not wait, or waits for a dead writer, costs
time and never data.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ulid import ULID

from omnigraph.commit.sidecar import pending_operations

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnigraph.commit.clock import Clock
    from omnigraph.storage.objects import Objects

FRESH_SECONDS: Final = 2.0
_FIRST_PAUSE_SECONDS: Final = 0.002
_LONGEST_PAUSE_SECONDS: Final = 0.05


def wait_for_older(
    objects: Objects, operation_id: str, clock: Clock, *, settle: Callable[[], object]
) -> bool:
    """Let older writers go first; True if there were any.

    Dead ones are settled at once, living ones waited for while they are young.
    """
    if not _older(objects, operation_id):
        return False
    settle()
    pause, waited = _FIRST_PAUSE_SECONDS, 0.0
    while waited < FRESH_SECONDS and _older_and_fresh(objects, operation_id, clock.now()):
        nap = pause * (0.5 + clock.jitter())
        clock.sleep(nap)
        waited += nap
        pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)
    return True


def back_off(attempt: int, clock: Clock) -> None:
    """Pause longer after every lost race, by chance, so that two losers do not meet again."""
    clock.sleep(min(0.005 * 2**attempt, 0.5) * (0.5 + clock.jitter()))


def began_at(operation_id: str) -> datetime | None:
    """When an operation drew its id, None if the id does not tell."""
    try:
        return ULID.from_str(operation_id).datetime
    except ValueError:
        return None


def _older(objects: Objects, operation_id: str) -> list[str]:
    return [other for other in pending_operations(objects) if other < operation_id]


def _older_and_fresh(objects: Objects, operation_id: str, now: datetime) -> bool:
    began = (began_at(other) for other in _older(objects, operation_id))
    return any(
        moment is not None and (now - moment.astimezone(UTC)).total_seconds() < FRESH_SECONDS
        for moment in began
    )
