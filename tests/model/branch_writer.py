"""Writers on graph branches.

A writer names the incarnation it read in its sidecar, forks each table that has no fork of this
incarnation yet, publishes on this incarnation's manifest, and reads the log again before it
answers. If its branch was deleted concurrently, it can say neither that it wrote nor that it did
not: what it published before the deletion others may have read, merged or forked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Literal

from tests.model.branch_scope import BranchScope
from tests.model.branch_state import (
    BranchState,
    BranchStep,
    BranchWriter,
    Commit,
    Fork,
    ForkName,
    Line,
    OpId,
    Pin,
    Row,
    Sidecar,
    WriterPhase,
    branch_label,
    fork_named,
    is_alive,
    living_line,
    swapped,
    with_fork,
    without_sidecar_of,
)
from tests.model.labels import BranchStepName, StepName
from tests.model.state import Verdict, replaced

SHARED_FORK: Final = OpId(-2, -2)

_Name = StepName | BranchStepName
_WriterStep = tuple[_Name, str, BranchWriter, BranchState]


def writer_steps(scope: BranchScope, state: BranchState, number: int) -> Iterator[BranchStep]:
    """Everything that writer `number` can do next."""
    for name, detail, writer, changed in _writer_steps(scope, state, number):
        writers = replaced(changed.writers, number, writer)
        yield branch_label(name, detail, f"W{number}"), changed._replace(writers=writers)


def operation_of(scope: BranchScope, number: int, incarnation: int) -> OpId:
    return OpId(scope.key_of(number), incarnation)


def named_on_disk(scope: BranchScope, op: OpId) -> OpId:
    """The operation as the names of its sidecar and its forks spell it."""
    return op._replace(incarnation=-1) if scope.mutant == "op_without_incarnation" else op


def is_placed(state: BranchState, pin: Pin, incarnation: int) -> bool:
    """Whether the pin's fork is one that this incarnation made."""
    fork = fork_named(state, pin.fork)
    return fork is not None and fork.owner.incarnation == incarnation


def _writer_steps(scope: BranchScope, state: BranchState, number: int) -> Iterator[_WriterStep]:
    writer = state.writers[number]
    op = operation_of(scope, number, writer.incarnation)
    match writer.phase:
        case "idle":
            yield from _begin(scope, state, number)
        case "fork" | "fork_ref":
            yield from _fork(scope, state, writer, op)
        case "acked_done" | "failed_done" | "gone_done":
            return
        case phase:
            yield PHASES[phase](scope, state, writer, op)


def _verify(scope: BranchScope, state: BranchState, writer: BranchWriter, _op: OpId) -> _WriterStep:
    alive = is_alive(scope, state, writer.incarnation)
    following = _ended(writer, writer.answer if alive else "gone")
    return "branch.pre_verify", f"still lives: {alive}", following, state


def _delete_sidecar(
    scope: BranchScope, state: BranchState, writer: BranchWriter, op: OpId
) -> _WriterStep:
    done: dict[WriterPhase, WriterPhase] = {
        "acked": "acked_done",
        "failed": "failed_done",
        "gone": "gone_done",
    }
    deleted = without_sidecar_of(state, named_on_disk(scope, op))
    following = writer._replace(phase=done[writer.phase])
    return "mutation.post_sidecar_delete", "the caller knows", following, deleted


def _ended(writer: BranchWriter, phase: WriterPhase) -> BranchWriter:
    """The writer has its answer and forgets the rest."""
    return BranchWriter(phase, writer.incarnation, late=writer.late)


def _answering(
    scope: BranchScope, writer: BranchWriter, answer: Literal["acked", "failed"]
) -> BranchWriter:
    """Success or failure, the answer is true only if the branch still lives."""
    if scope.mutant == ("ack_no_log" if answer == "acked" else "fail_no_log"):
        return _ended(writer, answer)
    return _ended(writer, "verify")._replace(answer=answer)


def _begin(scope: BranchScope, state: BranchState, number: int) -> Iterator[_WriterStep]:
    found = living_line(scope, state, scope.writers[number])
    if found is None:
        return
    incarnation, line = found
    writer = BranchWriter("sidecar", incarnation, line.pins)
    if scope.mutant == "side_after_fork" and not is_placed(state, line.pins[0], incarnation):
        writer = writer._replace(phase="fork")
    yield "mutation.begin", f"on {incarnation}", writer, state


def _put_sidecar(
    scope: BranchScope, state: BranchState, writer: BranchWriter, op: OpId
) -> _WriterStep:
    named = named_on_disk(scope, op)
    if any(sidecar.named == named for sidecar in state.sidecars):
        return "mutation.post_sidecar", "under way already", BranchWriter("failed_done"), state
    put = state._replace(sidecars=state.sidecars | {Sidecar(named, op, writer.pins)})
    forked = scope.mutant == "side_after_fork"
    following = writer._replace(phase="commit") if forked else _next_table(scope, state, writer)
    return "mutation.post_sidecar", "put", following, put


def _next_table(scope: BranchScope, state: BranchState, writer: BranchWriter) -> BranchWriter:
    table = len(writer.targets)
    if table == scope.tables:
        return writer._replace(phase="resolve")
    placed = is_placed(state, writer.pins[table], writer.incarnation)
    return writer._replace(phase="commit" if placed else "fork")


def _fork_name(scope: BranchScope, writer: BranchWriter, op: OpId) -> ForkName:
    table = len(writer.targets)
    if scope.mutant == "forks_by_name":
        return ForkName(table, SHARED_FORK, 0)
    attempt = 0 if scope.mutant == "adopt_torn_fork" else writer.tries
    return ForkName(table, named_on_disk(scope, op), attempt)


def _fork(
    scope: BranchScope, state: BranchState, writer: BranchWriter, op: OpId
) -> Iterator[_WriterStep]:
    """Lance makes a directory, then a ref; it may fail between the two, and both are steps."""
    name = _fork_name(scope, writer, op)
    late_sidecar = scope.mutant == "side_after_fork"
    forked = writer._replace(phase="sidecar" if late_sidecar else "commit")
    fork = fork_named(state, name)
    if writer.phase == "fork_ref":
        assert fork is not None, "an unlisted directory is never deleted"
        yield "branch.post_fork", "ref", forked, with_fork(state, fork._replace(listed=True))
        if writer.tries + 1 < scope.fork_tries:
            again = writer._replace(phase="fork", tries=writer.tries + 1)
            yield "branch.post_fork", "Lance failed, once more", again, state
        return
    if fork is not None:
        following = forked
        if scope.mutant not in ("forks_by_name", "adopt_torn_fork"):
            following = writer._replace(phase="abort")
        yield "branch.post_fork", "exists already", following, state
        return
    origin = writer.pins[len(writer.targets)]
    below = fork_named(state, origin.fork)
    if origin.fork is not None and (below is None or below.broken):
        yield "branch.post_fork", "the pin is gone", writer._replace(phase="abort"), state
        return
    torn = scope.torn_create and scope.fork_tries > 1
    made = with_fork(state, Fork(name, op, origin, listed=not torn))
    if torn:
        yield "branch.fork_clone", "directory", writer._replace(phase="fork_ref"), made
    else:
        yield "branch.post_fork", "made", forked, made


def _commit(scope: BranchScope, state: BranchState, writer: BranchWriter, op: OpId) -> _WriterStep:
    """One version past the pin; in a fork deleted meanwhile it lands where nobody looks."""
    pin = writer.pins[len(writer.targets)]
    placed = is_placed(state, pin, writer.incarnation)
    name = pin.fork if placed else _fork_name(scope, writer, op)
    fork = fork_named(state, name)
    target = Pin(name, 1)
    if fork is not None:
        made = Commit(op, pin.version if placed else 0)
        fork = fork._replace(versions=(*fork.versions, made))
        target, state = Pin(name, len(fork.versions)), with_fork(state, fork)
    committed = writer._replace(targets=(*writer.targets, target))
    detail = f"table{target.fork.table if target.fork else 0} v{target.version}"
    return "mutation.post_table_commit", detail, _next_table(scope, state, committed), state


def _resolve(scope: BranchScope, state: BranchState, writer: BranchWriter, op: OpId) -> _WriterStep:
    """Read the manifest: what has become of the operation, and may it be published now?"""
    line = state.lines[scope.line_of(writer.incarnation)]
    if line is None:
        following = _ended(writer, "verify")._replace(answer="failed")
        return "publish.resolve", "the manifest is gone", following, state
    row = next((row for row in line.rows if row.op == op), None)
    if row is not None:
        known = writer._replace(late=row.late)
        following = _answering(scope, known, "acked" if row.verdict == "committed" else "failed")
        return "publish.resolve", f"op row says {row.verdict}", following, state
    if line.pins == writer.pins:
        return "publish.pre_manifest", "send", writer._replace(phase="swap", held=line), state
    if writer.attempt + 1 == scope.attempts:
        return "publish.refused", "pins moved", writer._replace(phase="abort"), state
    again = BranchWriter(
        "commit", writer.incarnation, line.pins, tries=writer.tries + 1, attempt=writer.attempt + 1
    )
    named = named_on_disk(scope, op)
    rewritten = without_sidecar_of(state, named)
    rewritten = rewritten._replace(sidecars=rewritten.sidecars | {Sidecar(named, op, line.pins)})
    return "mutation.retry", "pins moved", _next_table(scope, state, again), rewritten


def following_line(line: Line, op: OpId, verdict: Verdict, pins: tuple[Pin, ...]) -> Line:
    rows = (*line.rows, Row(op, verdict, late=False))
    return line._replace(version=line.version + 1, pins=pins, rows=rows)


def _swap(scope: BranchScope, state: BranchState, writer: BranchWriter, op: OpId) -> _WriterStep:
    held = writer.held
    assert held is not None
    following = following_line(held, op, "committed", writer.targets)
    landed = swapped(scope, state, writer.incarnation, held, following)
    again = writer._replace(phase="resolve", held=None)
    if landed is None:
        return "publish.refused", "another version took the slot", again, state
    return "publish.post_manifest", f"v{following.version}", again, landed


def _abort(scope: BranchScope, state: BranchState, writer: BranchWriter, op: OpId) -> _WriterStep:
    """Fence the operation, so that a failure is true for ever."""
    line = state.lines[scope.line_of(writer.incarnation)]
    if line is None or line.verdict(op):
        return "publish.pre_abort", "look again", writer._replace(phase="resolve"), state
    following = following_line(line, op, "aborted", line.pins)
    landed = swapped(scope, state, writer.incarnation, line, following)
    assert landed is not None, "it follows the version just read"
    failing = _answering(scope, writer, "failed")
    return "publish.post_abort", "op row says aborted", failing, landed


PHASES: dict[WriterPhase, Callable[[BranchScope, BranchState, BranchWriter, OpId], _WriterStep]] = {
    "sidecar": _put_sidecar,
    "commit": _commit,
    "resolve": _resolve,
    "swap": _swap,
    "verify": _verify,
    "abort": _abort,
    "acked": _delete_sidecar,
    "failed": _delete_sidecar,
    "gone": _delete_sidecar,
}
