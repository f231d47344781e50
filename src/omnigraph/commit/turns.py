"""How writers of one graph take turns, by age.

On an object store a writer waits only for those that are in its way, and appends that wait are
published together. On a disk all writers queue, see `gains_from_company`.

Two writers are in each other's way if one writes a table that the other writes or relies on. Which
tables these are is a guess until a writer is armed, made from the types that it names; one that
does not say may touch any.

Invariant: waiting decides nothing. A writer that does not wait, that waits for a dead one, or that
is wrong about the tables of another, costs time and never data.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.commit.phases import Lost, Race
from omnigraph.commit.publish import Decided, decision_in, pins_of
from omnigraph.commit.recovery import sweep
from omnigraph.commit.schema_commit import schema_change_under_way
from omnigraph.commit.sidecar import (
    Sidecar,
    SidecarState,
    Touched,
    began_at,
    is_abandoned,
    pending_sidecars,
    read_sidecars,
)
from omnigraph.storage.manifest.swap import read_manifest
from omnigraph.storage.objects.durability import make_durable
from omnigraph.storage.objects.location import Scheme

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omnigraph.clock import Clock
    from omnigraph.commit.phases import Armed, Started, WriteRequest
    from omnigraph.storage.manifest.state import ManifestState
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.objects.store import Objects

_VARIABLE: Final = "OMNIGRAPH_COMBINE"
_FRESH_SECONDS: Final = 2.0
_SCHEMA_CHANGE_SECONDS: Final = 30.0
_SCHEMA_CHANGE_PAUSE_SECONDS: Final = 0.1
_SHORTEST_PAUSE_SECONDS: Final = 0.002
_PAUSE_PER_LISTING: Final = 2.0
_PAUSE_OF_MEMBER_SECONDS: Final = 0.008
"""Longer than a look at the manifest takes: all members of a table look all the time."""
_POLLS_PER_LISTING: Final = 4
_MEMBER_SECONDS: Final = 6.0
_FRESH_PER_LOOK: Final = 60.0
"""A commit is so many requests in a row, several times: a distant store needs more patience."""


def gains_from_company(root: Root) -> bool:
    """Whether writers that wait are published together.

    That saves requests in a row, which take time on a distant store. On a disk a commit takes CPU
    time, of which writers that look after each other need more.
    """
    return root.scheme is not Scheme.LOCAL or os.environ.get(_VARIABLE) == "always"


def take_turn(write: WriteRequest, started: Started, attempt: int) -> ManifestState:
    """Let older writers of the same tables go first; the state to stage on."""
    # On a disk, writers of other tables would only lose swaps of the manifest to each other.
    touched = started.touched if gains_from_company(write.objects.root) else None
    queue = _Queue(objects=write.objects, own=started.sidecar, touched=touched, known={})
    has_waited = _wait(queue, write.clock, None if attempt else started.pending)
    if has_waited or attempt:
        return read_manifest(write.objects.root, branch=write.branch)
    return started.state


def newest_state(write: WriteRequest, started: Started, attempt: int) -> ManifestState:
    """The state to stage on without waiting, except for a schema change that lost a race."""
    has_waited = not started.is_alone and _let_schema_change_pass(
        write.objects, started.sidecar, write.clock
    )
    if has_waited or attempt:
        return read_manifest(write.objects.root, branch=write.branch)
    return started.state


def await_lead(
    write: WriteRequest, started: Started, armed: Armed, attempt: int
) -> Decided | Lost | None:
    """Wait until an older writer has published us, or until it is our turn: then None.

    Our sidecar offers what is staged. Older writers of the table may publish it with their own; if
    they publish the table without us, we are overtaken.
    """
    root, own, clock = write.objects.root, armed.sidecar, write.clock
    if started.is_alone and not attempt:
        return None
    queue = _Queue(objects=write.objects, own=own, touched=own.touched, known={})
    deadline = clock.now() + timedelta(seconds=_MEMBER_SECONDS)
    state, polls = armed.staged.on, 0
    while clock.now() < deadline:
        asked_at = clock.now()
        latest = read_manifest(root, branch=write.branch)
        if latest.version != state.version:
            state = latest
            decided = decision_in(root, latest, own.operation_id)
            if decided is not None:
                make_durable(root)  # the writer that decided it may not have synced yet
                return Decided(operation=decided, state=latest)
            pins = pins_of(latest)
            if any(pins.get(key) != pin for key, pin in own.pins.items()):
                return Lost(to=Race.OVERTAKEN)
        if polls % _POLLS_PER_LISTING == 0:
            sidecars = queue.read(queue.older(pending_sidecars(write.objects)))
            if any(is_abandoned(sidecar, now=asked_at) for sidecar in sidecars):
                sweep(write.objects, clock)
            looking = (clock.now() - asked_at).total_seconds()
            fresh_seconds = max(_FRESH_SECONDS, _FRESH_PER_LOOK * looking)
            if not queue.ahead(sidecars, asked_at, fresh_seconds=fresh_seconds):
                return None
        polls += 1
        looking = (clock.now() - asked_at).total_seconds()
        clock.sleep(max(_PAUSE_OF_MEMBER_SECONDS, looking) * (0.5 + clock.jitter()))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queue:
    """The older writers of a branch, as one writer sees them."""

    objects: Objects
    own: Sidecar
    touched: Touched | None
    known: dict[str, Sidecar]
    """Sidecars that say what they move: those that are armed."""

    def older(self, pending: Iterable[str]) -> list[str]:
        """The paths of older sidecars of the same branch."""
        paths: list[str] = []
        for path in pending:
            operation_id, incarnation = names.sidecar_owner(path)
            if incarnation == self.own.incarnation and operation_id < self.own.operation_id:
                paths.append(path)
        return paths

    def read(self, paths: Iterable[str]) -> list[Sidecar]:
        """The sidecars at these paths that still exist."""
        unknown = [path for path in paths if path not in self.known]
        sidecars = [self.known[path] for path in paths if path in self.known]
        for sidecar in read_sidecars(self.objects, unknown):
            sidecars.append(sidecar)
            if sidecar.state is SidecarState.ARMED:
                self.known[sidecar.path] = sidecar
        return sidecars

    def ahead(
        self, sidecars: Iterable[Sidecar], now: datetime, *, fresh_seconds: float = _FRESH_SECONDS
    ) -> int:
        """How many young writers among them are in the way."""
        return sum(
            _is_fresh(sidecar, now, fresh_seconds) and _meet(self.touched, sidecar.touched)
            for sidecar in sidecars
        )


def _wait(queue: _Queue, clock: Clock, pending: tuple[str, ...] | None) -> bool:
    """Wait while older writers are in the way; True if there were any.

    Dead ones are settled at once, living ones waited for while they are young. The polling interval
    depends on the latency of the store and on the number of writers ahead. `pending` is the latest
    listing, if there is one.
    """
    objects = queue.objects
    paths = queue.older(pending_sidecars(objects) if pending is None else pending)
    if not paths:
        return False
    sidecars = queue.read(paths)
    is_settling = any(is_abandoned(sidecar, now=clock.now()) for sidecar in sidecars)
    if not is_settling and not any(_meet(queue.touched, other.touched) for other in sidecars):
        return False
    if is_settling:
        sweep(objects, clock)
    _let_schema_change_pass(objects, queue.own, clock)
    asked_at = clock.now()
    deadline = asked_at + timedelta(seconds=_FRESH_SECONDS)
    while asked_at < deadline:
        ahead = queue.ahead(queue.read(queue.older(pending_sidecars(objects))), asked_at)
        if not ahead:
            break
        looking = (clock.now() - asked_at).total_seconds()
        pause = max(_SHORTEST_PAUSE_SECONDS, _PAUSE_PER_LISTING * looking) * ahead
        clock.sleep(pause * (0.5 + clock.jitter()))
        asked_at = clock.now()
    return True


def _let_schema_change_pass(objects: Objects, own: Sidecar, clock: Clock) -> bool:
    """Wait for a schema change that lost a race, and may have run for minutes; True if there is."""
    deadline = clock.now() + timedelta(seconds=_SCHEMA_CHANGE_SECONDS)
    has_waited = False
    while clock.now() < deadline:
        lock = schema_change_under_way(objects, now=clock.now())
        if lock is None or not lock.is_impatient or lock.operation_id >= own.operation_id:
            break
        clock.sleep(_SCHEMA_CHANGE_PAUSE_SECONDS)
        has_waited = True
    return has_waited


def _meet(own: Touched | None, other: Touched | None) -> bool:
    return own is None or other is None or own.meets(other)


def _is_fresh(sidecar: Sidecar, now: datetime, seconds: float) -> bool:
    """Whether it began, or was armed last, a short time ago."""
    began = began_at(sidecar.operation_id)
    if began is not None and sidecar.offer is not None:
        began = max(began.astimezone(UTC), datetime.fromisoformat(sidecar.beat_at))
    return began is not None and (now - began.astimezone(UTC)).total_seconds() < seconds
