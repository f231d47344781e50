"""How writers of one graph take turns, by age.

A writer waits only for those that are in its way, and appends that wait are published together.
Writers of one host that have moved their tables on a disk also hand over the turn to publish, so
that they do not lose swaps to each other; one that waits for it may be published by another.

Two writers are in each other's way if one writes a table that the other writes or relies on. Which
tables these are is a guess until a writer is armed, made from the types that it names; one that
does not say may touch any.

Invariant: waiting decides nothing. A writer that does not wait, that waits for a dead one, or that
is wrong about the tables of another, costs time and never data.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from omnigraph_lake import names
from omnigraph_lake.commit.coordination.combine import report
from omnigraph_lake.commit.phases import Lost, Race
from omnigraph_lake.commit.publish import Decided, decision_in, pins_of
from omnigraph_lake.commit.recovery import sweep
from omnigraph_lake.commit.schema_commit import schema_change_under_way
from omnigraph_lake.commit.sidecar import (
    Sidecar,
    SidecarState,
    Touched,
    began_at,
    has_ended_here,
    is_abandoned,
    pending_sidecars,
    read_sidecars,
)
from omnigraph_lake.storage.manifest.swap import open_next_version, read_manifest
from omnigraph_lake.storage.objects.durability import make_durable
from omnigraph_lake.storage.objects.location import Scheme

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from omnigraph_lake.clock import Clock
    from omnigraph_lake.commit.coordination.combine import Company
    from omnigraph_lake.commit.phases import Armed, Moved, Started, WriteRequest
    from omnigraph_lake.storage.manifest.state import ManifestState
    from omnigraph_lake.storage.objects.handover import Handover
    from omnigraph_lake.storage.objects.store import Objects

_FRESH_SECONDS: Final = 2.0
_SCHEMA_CHANGE_SECONDS: Final = 30.0
_SCHEMA_CHANGE_PAUSE_SECONDS: Final = 0.1
_SHORTEST_PAUSE_SECONDS: Final = 0.002
_PAUSE_PER_LISTING: Final = 2.0
_PAUSE_OF_MEMBER_SECONDS: Final = 0.008
"""Longer than a look at the manifest takes: all members of a table look all the time."""
_POLLS_PER_LISTING: Final = 4
_SUSPECT_SECONDS: Final = 1.0
_MEMBER_WAIT_SECONDS: Final = 0.03
_TURN_WAIT_SECONDS: Final = 0.004
_PATIENCE_SECONDS: Final = 0.5
"""So long a process that publishes is waited for; then it sleeps, and the swap decides."""
_MEMBER_SECONDS: Final = 6.0
_FRESH_PER_LOOK: Final = 60.0
"""A commit is so many requests in a row, several times: a distant store needs more patience."""


def take_turn(write: WriteRequest, started: Started, attempt: int) -> ManifestState:
    """Let older writers of the same tables go first; the state to stage on."""
    queue = _Queue(objects=write.objects, own=started.sidecar, touched=started.touched, known={})
    has_waited = _wait(queue, write.clock, None if attempt else started.pending)
    if has_waited or attempt:
        return read_manifest(write.objects.root, branch=write.branch)
    return started.state


def newest_state(write: WriteRequest, started: Started, attempt: int) -> ManifestState:
    """The state to stage on without waiting, except for a schema change that lost a race.

    Dead writers are settled first.
    """
    has_settled = has_waited = False
    if not started.is_alone and not attempt:
        has_settled = _settle_suspects(write, started)
    if started.schema_change is not None or attempt:
        has_waited = _let_schema_change_pass(write.objects, started.sidecar, write.clock)
    if has_settled or has_waited or attempt:
        return read_manifest(write.objects.root, branch=write.branch)
    return started.state


def _settle_suspects(write: WriteRequest, started: Started) -> bool:
    """Settle older writers that are dead, among those that may be; True if there were any.

    A write that takes long may have died, and so has one of this process that does not run any
    more. Others are not worth a look at their sidecars.
    """
    own, now = started.sidecar, write.clock.now()
    queue = _Queue(objects=write.objects, own=own, touched=started.touched, known={})
    suspects = [path for path in queue.older(started.pending or ()) if _is_suspect(path, now)]
    sidecars = read_sidecars(write.objects, suspects)
    if not any(is_abandoned(sidecar, now=now) for sidecar in sidecars):
        return False
    sweep(write.objects, write.clock)
    return True


def _is_suspect(path: str, now: datetime) -> bool:
    operation_id, _ = names.sidecar_owner(path)
    began = began_at(operation_id)
    if began is None or (now - began.astimezone(UTC)).total_seconds() > _SUSPECT_SECONDS:
        return True
    return has_ended_here(operation_id)


def await_lead(
    write: WriteRequest, started: Started, armed: Armed, attempt: int
) -> Decided | Lost | None:
    """Wait until an older writer has published us, or until it is our turn: then None.

    Our sidecar offers what is staged. Older writers of the table may publish it with their own; if
    they publish the table without us, we are overtaken.
    """
    own, clock = armed.sidecar, write.clock
    if started.is_alone and not attempt:
        return None
    queue = _Queue(objects=write.objects, own=own, touched=own.touched, known={})
    outlook = _Outlook(write, armed)
    deadline = clock.now() + timedelta(seconds=_MEMBER_SECONDS)
    with open_next_version(armed.staged.on) as handover:
        if handover is None:
            return _await_lead_at_store(outlook, queue, clock, deadline)
        while clock.now() < deadline:
            decided = outlook.look()
            if decided is not None or not queue.has_ahead(clock, clock.now()):
                return decided
            handover.wait(_MEMBER_WAIT_SECONDS * (0.5 + clock.jitter()))
    return None


def _await_lead_at_store(
    outlook: _Outlook, queue: _Queue, clock: Clock, deadline: datetime
) -> Decided | Lost | None:
    """The same by looking again and again; the manifest is read while the queue is."""
    polls = 0
    with ThreadPoolExecutor(1) as beside:
        while clock.now() < deadline:
            asked_at = clock.now()
            looking = beside.submit(outlook.look)
            has_ahead = polls % _POLLS_PER_LISTING != 0 or queue.has_ahead(clock, asked_at)
            decided = looking.result()
            if decided is not None or not has_ahead:
                return decided
            polls += 1
            took = (clock.now() - asked_at).total_seconds()
            clock.sleep(max(_PAUSE_OF_MEMBER_SECONDS, took) * (0.5 + clock.jitter()))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A state to publish on, and the sidecars of others as they were seen with it, if they were."""

    state: ManifestState
    others: tuple[Sidecar, ...] | None = None


@contextmanager
def publishing_turn(
    write: WriteRequest, moved: Moved, company: Company
) -> Iterator[Decided | Lost | Turn]:
    """The turn of a writer among those that have moved their tables.

    On a disk those of this host hand it over; elsewhere it is that of the oldest who reports its
    versions. Or it is what came before the turn did: another writer has published us, or overtaken
    us. While we wait, others may publish us.
    """
    with open_next_version(moved.armed.staged.on) as handover:
        if handover is None:
            yield _await_eldest(write, moved, company)
        else:
            yield _await_handover(write, moved, handover)


def _await_eldest(write: WriteRequest, moved: Moved, company: Company) -> Decided | Lost | Turn:
    clock, outlook, own = write.clock, _Outlook(write, moved.armed), moved.armed.sidecar
    until = clock.now() + timedelta(seconds=_FRESH_SECONDS)
    with ThreadPoolExecutor(2) as beside:
        # What is above our version would not be published with it.
        reporting = None if moved.companions else beside.submit(report, write, moved)
        while True:
            looking = beside.submit(outlook.look)
            others = company.look()
            decided = looking.result()
            if decided is not None:
                return decided
            if reporting is not None:
                reporting.result()
            has_older = any(
                other.made
                and other.operation_id < own.operation_id
                and outlook.state.operation(other.operation_id) is None
                and _is_fresh(other, clock.now(), _FRESH_SECONDS)
                for other in others
            )
            if not has_older or clock.now() > until:
                return Turn(state=outlook.state, others=others)
            clock.sleep(_PAUSE_OF_MEMBER_SECONDS * (0.5 + clock.jitter()))


def _await_handover(write: WriteRequest, moved: Moved, handover: Handover) -> Decided | Lost | Turn:
    clock, outlook = write.clock, _Outlook(write, moved.armed)
    # What is above our version would not be published with it.
    is_reported = bool(moved.companions)
    until = clock.now() + timedelta(seconds=_PATIENCE_SECONDS)
    while not handover.take():
        if clock.now() > until:
            break
        if not is_reported:
            report(write, moved)
            is_reported = True
        if handover.wait(_TURN_WAIT_SECONDS * (0.5 + clock.jitter())):
            decided = outlook.look()
            if decided is not None:
                return decided
            until = clock.now() + timedelta(seconds=_PATIENCE_SECONDS)
    return outlook.look() or Turn(state=outlook.state)


class _Outlook:
    """What a waiting writer sees of its branch."""

    def __init__(self, write: WriteRequest, armed: Armed) -> None:
        self._write = write
        self._own = armed.sidecar
        self.state = armed.staged.on

    def look(self) -> Decided | Lost | None:
        """Whether we were published or overtaken since the last look."""
        root = self._write.objects.root
        latest = read_manifest(root, branch=self._write.branch)
        if latest.version == self.state.version:
            return None
        self.state = latest
        decided = decision_in(root, latest, self._own.operation_id)
        if decided is not None:
            make_durable(root)  # the writer that decided it may not have synced yet
            return Decided(operation=decided, state=latest)
        pins = pins_of(latest)
        if any(pins.get(key) != pin for key, pin in self._own.pins.items()):
            return Lost(to=Race.OVERTAKEN)
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

    def has_ahead(self, clock: Clock, now: datetime) -> bool:
        """Whether an older writer is in the way that is young enough to be waited for.

        Dead ones are settled. From a disk no more is read than is needed.
        """
        paths = self.older(pending_sidecars(self.objects))
        is_local = self.objects.root.scheme is Scheme.LOCAL
        parts = [[path] for path in paths] if is_local else [paths]
        for part in parts:
            sidecars = self.read(part)
            if any(is_abandoned(sidecar, now=now) for sidecar in sidecars):
                sweep(self.objects, clock)
                continue
            looking = (clock.now() - now).total_seconds()
            fresh_seconds = max(_FRESH_SECONDS, _FRESH_PER_LOOK * looking)
            if self.ahead(sidecars, now, fresh_seconds=fresh_seconds):
                return True
        return False

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
    if began is not None and (sidecar.offer is not None or sidecar.made):
        began = max(began.astimezone(UTC), datetime.fromisoformat(sidecar.beat_at))
    return began is not None and (now - began.astimezone(UTC)).total_seconds() < seconds
