"""The order of phases of every write; no other module knows it.

    begin      read one manifest state; put the sidecar, before any data file exists
    prepare    validate and stage on that state's pins; HEADs do not move. What validation reads may
               be read while the sidecar is on its way
    arm        record in the sidecar which tables move from which pins; meanwhile HEADs are read
    move       each table, to exactly one version past its pin
    publish    one swap of the manifest decides; read back, then acknowledge
    finish     delete the sidecar, best effort; move old commits out of the manifest if that is due

A lost race starts again at prepare, under the same operation id and the same sidecar, whose floor
and schema stay. A failure is reported as definite only when no process can publish the operation
any more; of any other, a sweep decides. Each phase is a function of `phases`; `coordination` tells
when a writer waits for others, and which of them it publishes with its own, which decides nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, assert_never

from omnigraph_lake import errors, names
from omnigraph_lake.commit import phases
from omnigraph_lake.commit.coordination.combine import Company, is_shared, offer_of, remember_own
from omnigraph_lake.commit.coordination.turns import (
    await_lead,
    newest_state,
    publishing_turn,
    take_turn,
)
from omnigraph_lake.commit.history_compaction import fold_if_due
from omnigraph_lake.commit.legacy_tables import find_legacy_tables, rewriting
from omnigraph_lake.commit.phases import (
    Armed,
    Committed,
    Finished,
    Lost,
    Race,
    Started,
    Verb,
    WriteRequest,
)
from omnigraph_lake.commit.publish import Decided, decision_in, require_schema
from omnigraph_lake.commit.sidecar import active_operation, read_sidecar
from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.manifest_rows import Outcome
from omnigraph_lake.storage.objects.durability import make_durable

if TYPE_CHECKING:
    from omnigraph_lake.clock import Clock
    from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
    from omnigraph_lake.storage.objects.store import Objects

_ATTEMPTS_MAX: Final = 40
_OFFERS_MAX: Final = 20
"""After so many attempts a write waits for its turn before it is staged."""


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
        state = rewrite_legacy_tables(write.objects, write.clock, state)
        finished = _commit_undecided(write, verb, state)
    if isinstance(finished, Committed) and finished.has_swapped:
        with suppress(errors.OmnigraphError):
            # It is published; a compaction that fails now is due again at the next write.
            fold_if_due(root, finished.state)
    return finished


def rewrite_legacy_tables(objects: Objects, clock: Clock, state: ManifestState) -> ManifestState:
    """Rewrite the tables of a branch that nothing may be written on; returns its newest state."""
    if not find_legacy_tables(objects.root, state):
        return state
    _commit_undecided(*rewriting(objects, clock, state.ref), state)
    return read_manifest(objects.root, branch=state.ref)


def _commit_undecided(write: WriteRequest, verb: Verb, state: ManifestState) -> Finished:
    with active_operation(write.operation_id):
        return _drive(write, verb, phases.start(write, verb, state))


def _drive(write: WriteRequest, verb: Verb, started: Started) -> Finished:
    """Attempt a started operation until it is finished."""
    visible = started.sidecar
    try:
        started.require_no_failure()
        for attempt in range(_ATTEMPTS_MAX):
            may_wait_staged = verb.may_be_offered and attempt < _OFFERS_MAX
            await_state = newest_state if may_wait_staged else take_turn
            state = await_state(write, started, attempt)
            staged = phases.stage(write, verb, state, visible)
            if isinstance(staged, Lost):
                _retry_after(staged, attempt, write.clock)
                continue
            if staged.prepared.changes_nothing:
                return phases.finish_unchanged(write, visible)
            is_offered = may_wait_staged and is_shared(write, staged)
            offer = offer_of(staged.prepared) if is_offered else None
            # From here on: an armed sidecar may arrive though the answer to its put is lost.
            visible = phases.plan_moves(write, staged, visible, offer=offer)
            armed = phases.arm(write, staged, visible)
            decided = await_lead(write, started, armed, attempt) if is_offered else None
            if decided is None:
                is_alone = started.is_alone and not attempt
                company = None if is_alone else Company(write=write, own=visible)
                decided = _publish(write, armed, company, is_offered=is_offered)
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


def _publish(
    write: WriteRequest, armed: Armed, company: Company | None, *, is_offered: bool
) -> Decided | Lost:
    """Move the tables and publish them, with what other writers offer and report."""
    moved = phases.move(write, armed)
    if isinstance(moved, Lost):
        return moved
    if company is None:
        decided = phases.decide(write, moved, believed=armed.staged.on)
    else:
        if is_offered:
            moved = company.take_offers(moved)
        with publishing_turn(write, moved, company) as turn:
            if isinstance(turn, Decided | Lost):
                decided = turn
            else:
                moved = company.take_reports(moved, turn.others)
                decided = phases.decide(write, moved, believed=turn.state)
    if isinstance(decided, Decided):
        remember_own(write, moved, company)
    return decided


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


def _retry_after(lost: Lost, attempt: int, clock: Clock) -> None:
    """Wait for a random, growing time after a race that others may be running too.

    Steps: mutation.retry
    """
    match lost.to:
        case Race.STATE_CLEANED | Race.OVERTAKEN:
            return  # there is a newer state already
        case Race.HEAD_MOVED | Race.PIN_MOVED | Race.SCHEMA_MOVED:
            reach("mutation.retry")
            clock.sleep(min(0.005 * 2**attempt, 0.5) * (0.5 + clock.jitter()))
        case _:
            assert_never(lost.to)
