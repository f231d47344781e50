"""The order of phases of every write, and how writers take turns; no other module knows them.

    begin      read one manifest state; put the sidecar, before any data file exists
    prepare    validate and stage on that state's pins; HEADs do not move. What validation reads may
               be read while the sidecar is on its way
    arm        record in the sidecar which tables move from which pins; meanwhile HEADs are read
    move       each table, to exactly one version past its pin
    publish    one swap of the manifest decides; read back, then acknowledge
    finish     delete the sidecar, best effort; move old commits out of the manifest if that is due

A lost race starts again at prepare, under the same operation id and the same sidecar, whose floor
and schema stay. A failure is reported as definite only when no process can publish the operation
any more; of any other, a sweep decides. Each phase is a function of `phases`.

Writers of one graph wait by age instead of undoing each other's work. Waiting decides nothing: a
writer that does not wait, or waits for a dead writer, costs time and never data.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, assert_never

from omnigraph import errors, names
from omnigraph.commit import phases
from omnigraph.commit.history_compaction import fold_if_due
from omnigraph.commit.phases import Committed, Finished, Lost, Race, Started, Verb, WriteRequest
from omnigraph.commit.publish import Decided, decision_in, require_schema
from omnigraph.commit.recovery import sweep
from omnigraph.commit.schema_commit import schema_change_under_way
from omnigraph.commit.sidecar import (
    Sidecar,
    active_operation,
    began_at,
    pending_sidecars,
    read_sidecar,
)
from omnigraph.failpoints import reach
from omnigraph.storage.manifest.swap import read_manifest
from omnigraph.storage.manifest_rows import Outcome
from omnigraph.storage.objects.durability import make_durable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omnigraph.clock import Clock
    from omnigraph.storage.manifest.state import BranchRef, ManifestState
    from omnigraph.storage.objects.store import Objects

_ATTEMPTS_MAX: Final = 40


def commit_write(write: WriteRequest, verb: Verb) -> Finished:
    """Run one operation through all phases.

    Steps: mutation.begin
    """
    root = write.objects.root
    state = read_manifest(root, branch=write.branch)
    reach("mutation.begin")
    earlier = decision_in(root, state, write.operation_id)
    if earlier is not None:
        make_durable(root)
        finished: Finished = phases.acknowledge(Decided(operation=earlier, state=state), ())
    else:
        require_schema(state, write.schema_hash, is_early=True)
        with active_operation(write.operation_id):
            finished = _drive(write, verb, phases.start(write, verb, state))
    if isinstance(finished, Committed):
        with suppress(errors.OmnigraphError):
            # It is published; a compaction that fails now is due again at the next write.
            fold_if_due(root, finished.state)
    return finished


def _drive(write: WriteRequest, verb: Verb, started: Started) -> Finished:
    """Attempt a started operation until it is finished."""
    visible = started.sidecar
    try:
        started.require_no_failure()
        for attempt in range(_ATTEMPTS_MAX):
            state = _take_turn(write, started, attempt)
            staged = phases.stage(write, verb, state, visible)
            if isinstance(staged, Lost):
                _retry_after(staged, attempt, write.clock)
                continue
            if staged.prepared.changes_nothing:
                return phases.finish_unchanged(write, visible)
            # From here on: an armed sidecar may arrive though the answer to its put is lost.
            visible = phases.plan_moves(write, staged, visible)
            armed = phases.arm(write, staged, visible)
            moved = phases.move(write, armed)
            decided = moved if isinstance(moved, Lost) else phases.decide(write, moved)
            if isinstance(decided, Decided):
                return phases.finish(write, armed, decided)
            _retry_after(decided, attempt, write.clock)
    except (errors.NothingWrittenError, KeyboardInterrupt) as error:
        return phases.finish_failed(write, visible, error)
    except BaseException:
        phases.take_back(write, visible)
        raise
    contention = errors.ContentionError(write.operation_id, _ATTEMPTS_MAX)
    return phases.finish_failed(write, visible, contention)


def is_surely_unpublished(objects: Objects, operation_id: str, branch: BranchRef | None) -> bool:
    """Whether an operation whose writer has stopped is unpublished and can no longer be published.

    While its sidecar exists a sweep may still roll it forward.
    """
    incarnation = None if branch is None else branch.incarnation
    if read_sidecar(objects, names.sidecar(operation_id, incarnation)) is not None:
        return False
    state = read_manifest(objects.root, branch=branch)
    decided = decision_in(objects.root, state, operation_id)
    return decided is None or decided.outcome is not Outcome.PUBLISHED


_FRESH_SECONDS: Final = 2.0
_SCHEMA_CHANGE_SECONDS: Final = 30.0
_SCHEMA_CHANGE_PAUSE_SECONDS: Final = 0.1
_SHORTEST_PAUSE_SECONDS: Final = 0.002
_PAUSE_PER_LISTING: Final = 2.0


def _retry_after(lost: Lost, attempt: int, clock: Clock) -> None:
    """Wait for a random, growing time after a race that others may be running too.

    Steps: mutation.retry
    """
    match lost.to:
        case Race.STATE_CLEANED:
            return  # there is a newer state already
        case Race.HEAD_MOVED | Race.PIN_MOVED | Race.SCHEMA_MOVED:
            reach("mutation.retry")
            clock.sleep(min(0.005 * 2**attempt, 0.5) * (0.5 + clock.jitter()))
        case _:
            assert_never(lost.to)


def _take_turn(write: WriteRequest, started: Started, attempt: int) -> ManifestState:
    """Let older writers go first; the state to stage on."""
    has_waited = _wait_for_older(write, started, None if attempt else started.pending)
    if has_waited or attempt:
        return read_manifest(write.objects.root, branch=write.branch)
    return started.state


def _wait_for_older(write: WriteRequest, started: Started, pending: tuple[str, ...] | None) -> bool:
    """Let older writers of the same branch go first; True if there were any.

    Dead ones are settled at once, living ones waited for while they are young. The polling interval
    depends on the latency of the store and on the number of writers ahead. `pending` is the latest
    listing, if there is one.
    """
    objects, own, clock = write.objects, started.sidecar, write.clock
    if not _older(pending_sidecars(objects) if pending is None else pending, own):
        return False
    sweep(objects, clock)
    _let_schema_change_pass(objects, own, clock)
    asked_at = clock.now()
    deadline = asked_at + timedelta(seconds=_FRESH_SECONDS)
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
        moment is not None and (now - moment.astimezone(UTC)).total_seconds() < _FRESH_SECONDS
        for moment in began
    )
