"""A writer: sidecar, staged files, table commits, one publish, and an honest answer.

The order is the protocol. The sidecar exists before the first data file and keeps its floor over
retries. A publish expects the pins of everything the writer wrote or read. No answer is believed:
success and failure are both reported only after the writer has read its own operation row. A
writer that gives up publishes an aborting row first, because otherwise a sweep could still roll
it forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.model.combine import combine_steps, report_steps, with_members
from tests.model.labels import RESOLVE_READ
from tests.model.manifest import published, read_manifest, verdict_on, with_listing
from tests.model.scope import Scope
from tests.model.state import (
    COMPACTED,
    Manifest,
    Pins,
    Put,
    Sidecar,
    State,
    Step,
    Swap,
    Verdict,
    Writer,
    WriterPhase,
    without_sidecar,
)
from tests.model.table_commit import WriterTurn, at_table_start, commit_tables
from tests.model.tables import moved_where_held, new_pins, own_file, violates_constraint


def writer_steps(scope: Scope, state: State, op: int) -> list[Step]:
    """Everything that writer `op` can do next."""
    writer = state.writers[op]
    phase_steps = PHASES.get(writer.phase)
    if phase_steps is None:
        return []
    turn = WriterTurn(scope, state, op, writer)
    steps = phase_steps(turn)
    if scope.combine or scope.report:
        steps += _combine(turn)
    if scope.caller_deadline and _may_give_up(turn):
        steps.append(_meet_deadline(turn))
    return steps


def _begin(turn: WriterTurn) -> list[Step]:
    scope, state, op, writer = turn
    if scope.staggered and op and state.writers[op - 1].phase == "idle":
        return []
    if violates_constraint(scope, state, op):
        return [turn.step("mutation.validate", "refused on its snapshot", Writer("failed"))]
    pins = state.manifest.pins
    first: WriterPhase = "stage" if scope.mutant == "side_after_stage" else "sidecar"
    return [turn.step("mutation.begin", f"pins {pins}", writer._replace(phase=first, pins=pins))]


def _put_sidecar(turn: WriterTurn) -> list[Step]:
    """Write the sidecar, or rewrite it for a retry: the floor of the first attempt stays."""
    scope, state, op, writer = turn
    floor = writer.pins
    if scope.mutant != "floor_moves":
        floor = next((s.floor for s in state.sidecars if s.op == op), floor)
    attempt = writer.attempt if scope.recomputes else 0
    sidecar = Sidecar(op, writer.pins, floor, attempt=attempt)
    if scope.mutant == "combine_kept_report":
        earlier = next((s.versions for s in state.sidecars if s.op == op), ())
        sidecar = sidecar._replace(versions=earlier)
    sidecars = without_sidecar(state.sidecars, op) | {sidecar}
    staged = scope.mutant == "side_after_stage" or (writer.attempt and scope.reuse_files)
    entered = turn.entering("tables" if staged else "stage")
    changed = state._replace(sidecars=sidecars)
    return [turn.step("mutation.post_sidecar", "put sidecar", entered, changed)]


def _stage_files(turn: WriterTurn) -> list[Step]:
    """Write the data files; a compaction that may heal writes its own when it knows its base."""
    scope, state, op, writer = turn
    entered = turn.entering("sidecar" if scope.mutant == "side_after_stage" else "tables")
    if not scope.is_maintenance(op) or scope.independent_maintenance:
        file = own_file(scope, COMPACTED + op if scope.is_maintenance(op) else op, writer.attempt)
        written = {(t, *file) for t in scope.write_sets[op]}
        for table in scope.write_sets[op]:
            if merge := turn.merge(table):
                written.add((table, *merge.file))
        state = state._replace(files=state.files | written)
    return [turn.step("mutation.post_stage", "data files written", entered, state)]


class _Resolved(NamedTuple):
    """The writer has read the manifest, and knows whether it has been decided."""

    state: State
    manifest: Manifest
    verdict: Verdict | None


def _resolve(turn: WriterTurn) -> _Resolved | Step:
    """Read what has become of this operation, or take the next step of that read."""
    scope, state, op, writer = turn
    view = read_manifest(scope, state, op, RESOLVE_READ, turn.actor)
    if isinstance(view, Step):
        return view
    history = state.history
    if scope.mutant == "fold_hist_first" and scope.folders:
        if writer.history_read is None:
            remembering = writer._replace(history_read=history)
            return turn.step("publish.resolve.history", "read history first", remembering)
        history = writer.history_read
    return _Resolved(view.state, view.manifest, verdict_on(scope, op, view.manifest, history))


def _report(turn: WriterTurn, state: State, verdict: Verdict) -> list[Step]:
    """Answer the caller: the decision row exists, so this is the truth for ever."""
    entered = turn.entering("acknowledge" if verdict == "committed" else "report_failure")
    return [turn.step("publish.resolve", f"op row says {verdict}", entered, state)]


def _publish(turn: WriterTurn) -> list[Step]:
    """Move the pins of all tables at once, unless decided already or overtaken."""
    scope, _, op, writer = turn
    if writer.phase == "answered" and scope.mutant == "ack_on_answer":
        entered = turn.entering("acknowledge")
        return [turn.step("publish.post_manifest", "answer ok, acknowledge", entered)]
    resolved = _resolve(turn)
    if isinstance(resolved, Step):
        return [resolved]
    state, manifest, verdict = resolved
    if verdict and (scope.mutant != "no_op_row" or verdict == "committed"):
        return _report(turn, state, verdict)
    pins = _pins_after(turn, manifest)
    if pins is None:
        overtaken = turn.entering("abort" if scope.is_independent(op) else "retry")
        return [turn.step("publish.pre_manifest", "pins moved", overtaken, state)]
    pins, decisions = with_members(turn, manifest, pins)
    following = manifest.deciding(decisions, pins)
    move = f"{manifest.pins}->{pins} for manifest v{following.version}"
    if not scope.in_flight:
        entered, applied = turn.entering("answered"), published(scope, state, following)
        return [turn.step("publish.post_manifest", move, entered, applied)]
    if scope.overwrite_publish:
        sent = state._replace(puts=state.puts | {Put("commit", op, op, following)})
    else:
        swap = Swap(op, manifest.version, pins, decisions[1:])
        sent = state._replace(swaps=state.swaps | {swap})
    return [turn.step("publish.pre_manifest", f"send {move}", turn.entering("waiting"), sent)]


def _combine(turn: WriterTurn) -> list[Step]:
    """Take others along before the publish, or find while waiting that another has published it."""
    writer = turn.writer
    if writer.phase == "publish":
        return combine_steps(turn) + (report_steps(turn) if turn.scope.report else [])
    if writer.phase != "tables" or not at_table_start(turn):
        return []
    resolved = _resolve(turn)
    assert not isinstance(resolved, Step), "a search with torn reads combines nothing"
    state, _, verdict = resolved
    return _report(turn, state, verdict) if verdict else []


def _pins_moved(turn: WriterTurn, manifest: Manifest) -> bool:
    scope, _, op, writer = turn
    if scope.mutant == "no_pin_check":
        return False
    tables = scope.write_sets[op] if scope.mutant == "no_read_set" else scope.dependencies[op]
    return any(manifest.pins[table] != writer.pins[table] for table in tables)


def _pins_after(turn: WriterTurn, manifest: Manifest) -> Pins | None:
    """The pins that a publish puts; None if it has been overtaken.

    Maintenance moves the tables that landed exactly and that nobody else has moved meanwhile.
    """
    scope, _, op, writer = turn
    if not scope.is_independent(op):
        moved = _pins_moved(turn, manifest)
        return None if moved else new_pins(manifest.pins, scope.write_sets[op], writer.versions)
    held = manifest.pins if scope.mutant == "maintenance_blind_pins" else writer.pins
    pins = moved_where_held(manifest.pins, held, scope.write_sets[op], writer.versions)
    return None if pins == manifest.pins else pins


def _join_maintenance(turn: WriterTurn) -> list[Step]:
    """All tables of an maintenance have moved or were dropped."""
    versions = turn.writer.versions
    entered = turn.entering("publish" if any(versions) else "abort")
    detail = f"exact versions {versions}"
    return [turn.step("optimize.post_phase_b_pre_manifest_commit", detail, entered)]


def _stop_waiting(turn: WriterTurn) -> list[Step]:
    entered = turn.entering("publish")
    return [turn.step("publish.ambiguous", "timeout or refusal, read again", entered)]


def _may_give_up(turn: WriterTurn) -> bool:
    if turn.writer.phase == "tables":
        return at_table_start(turn)
    return turn.writer.phase in ("publish", "waiting")


def _meet_deadline(turn: WriterTurn) -> Step:
    scope, state, op, writer = turn
    entered = turn.entering("abort")
    if writer.phase == "tables":
        entered = entered._replace(tables=turn.parallel_tables if turn.is_parallel else ())
    if scope.torn_reads:
        state = with_listing(state, op, None)
    return turn.step("mutation.deadline", "caller gives up", entered, state)


def _retry(turn: WriterTurn) -> list[Step]:
    """Start over on the new pins, with the same operation id and the same sidecar."""
    scope, before, op, writer = turn
    resolved = _resolve(turn)
    if isinstance(resolved, Step):
        return [resolved]
    state, manifest, verdict = resolved
    if verdict:
        return _report(turn, state, verdict)
    if writer.attempt + 1 >= scope.attempts or violates_constraint(scope, before, op):
        return [turn.step("mutation.give_up", "no attempt left", turn.entering("abort"), state)]
    if scope.mutant == "side_gap":
        state = state._replace(sidecars=without_sidecar(state.sidecars, op))
    again = Writer("sidecar", pins=manifest.pins, attempt=writer.attempt + 1)
    return [turn.step("mutation.retry", f"pins {manifest.pins}", again, state)]


def _abort(turn: WriterTurn) -> list[Step]:
    """Make the failure definite before reporting it: publish an aborting row."""
    scope, _, op, writer = turn
    if scope.mutant == "early_fail":
        entered = turn.entering("report_failure")
        return [turn.step("publish.abort", "report failure without a row", entered)]
    if writer.phase == "abort_answered" and scope.mutant == "abort_on_answer":
        entered = turn.entering("report_failure")
        return [turn.step("publish.post_abort", "answer ok, report failure", entered)]
    resolved = _resolve(turn)
    if isinstance(resolved, Step):
        return [resolved]
    state, manifest, verdict = resolved
    if verdict:
        return _report(turn, state, verdict)
    following = manifest.successor(decision=(op, "aborted"))
    if scope.overwrite_publish:
        entered = turn.entering("abort_waiting")._replace(versions=(), tables=())
        sent = state._replace(puts=state.puts | {Put("abort", op, op, following)})
        detail = f"send op row for slot v{following.version}"
        return [turn.step("publish.pre_abort", detail, entered, sent)]
    entered, applied = turn.entering("report_failure"), published(scope, state, following)
    return [turn.step("publish.post_abort", "op row says aborted", entered, applied)]


def _stop_waiting_for_abort(turn: WriterTurn) -> list[Step]:
    entered = turn.entering("abort")
    return [turn.step("publish.ambiguous", "timeout or refusal of the abort, read again", entered)]


def _delete_sidecar(turn: WriterTurn) -> list[Step]:
    ended = Writer("done" if turn.writer.phase == "acknowledge" else "failed")
    state = turn.state
    state = state._replace(sidecars=without_sidecar(state.sidecars, turn.op))
    return [turn.step("mutation.post_sidecar_delete", "the caller has its answer", ended, state)]


PHASES: dict[WriterPhase, Callable[[WriterTurn], list[Step]]] = {
    "idle": _begin,
    "sidecar": _put_sidecar,
    "stage": _stage_files,
    "tables": commit_tables,
    "joined": _join_maintenance,
    "publish": _publish,
    "waiting": _stop_waiting,
    "answered": _publish,
    "retry": _retry,
    "abort": _abort,
    "abort_waiting": _stop_waiting_for_abort,
    "abort_answered": _abort,
    "acknowledge": _delete_sidecar,
    "report_failure": _delete_sidecar,
}
