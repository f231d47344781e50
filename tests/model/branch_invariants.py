"""What must hold in every reachable state of graph branches.

- UNREADABLE: the manifest of a living branch exists, is protected by a ref, and so is everything it
  pins. The same holds for main and for every tag that was acknowledged.
- EXACTNESS: a living branch shows exactly the operations its rows call committed.
- ISOLATION: what one incarnation wrote shows in no other, but for those forked from it.
- TWO DECISIONS: there is at most one per operation.
- WRONG BRANCH: a delete ends the incarnation it was asked to delete, and no other.
- CREATED, DELETED: an acknowledged creation lives until it is deleted, and then no more.
- DURABILITY: an acknowledged write was published while its branch lived, and shows while it lives.
- PHANTOM: a write reported as failed shows nowhere: not to readers, not in branches forked, tagged
  or merged meanwhile.
- STALE: a reader that was answered saw every write acknowledged before it began.
- LIVENESS: if everybody died here, a sweep, a creation and a new writer would succeed
  (`branch_liveness.py`).
"""

from __future__ import annotations

from tests.model.branch_merge import MERGE
from tests.model.branch_scope import MAIN_LINE, BranchScope
from tests.model.branch_state import (
    BranchState,
    BranchWriter,
    Entry,
    Line,
    Log,
    OpId,
    Pin,
    content,
    fork_named,
    is_alive,
    living_in,
    readable,
)
from tests.model.branch_writer import operation_of


def branch_violation(scope: BranchScope, state: BranchState) -> str | None:
    """The first rule that this state breaks, as a sentence."""
    living = [MAIN_LINE]
    for log in state.logs:
        incarnation = living_in(scope, log)
        if incarnation is not None:
            living.append(incarnation)
        if sentence := _log_violation(log):
            return sentence
    for incarnation in living:
        if sentence := _branch_violation(scope, state, incarnation):
            return sentence
    return _promise_violation(scope, state, living)


def _log_violation(log: Log) -> str | None:
    for entry in log:
        if entry.kind == "deleted" and entry.aimed_at != entry.incarnation:
            return f"WRONG BRANCH: {entry.incarnation} deleted instead of {entry.aimed_at}"
    return None


def _branch_violation(scope: BranchScope, state: BranchState, incarnation: int) -> str | None:
    line = state.lines[scope.line_of(incarnation)]
    if line is None or not line.listed:
        # By the rule of finishing a branch without its Lance branch does not exist yet.
        return None if scope.finishing else f"UNREADABLE: manifest of {incarnation} is missing"
    if line.broken:
        return f"UNREADABLE: files of the manifest of {incarnation} went with its parent"
    for pin in line.pins:
        if sentence := _pin_violation(state, pin):
            return f"{sentence}, pinned by {incarnation}"
    if incarnation == MAIN_LINE:
        return None
    return _rows_violation(state, incarnation, line)


def _pin_violation(state: BranchState, pin: Pin) -> str | None:
    if not readable(state, pin):
        return f"UNREADABLE: {pin}"
    fork = fork_named(state, pin.fork)
    if fork is not None and not fork.listed:
        return f"UNREADABLE: no ref protects {pin}"
    return None


def _rows_violation(state: BranchState, incarnation: int, line: Line) -> str | None:
    ops = [row.op for row in line.rows]
    if len(set(ops)) < len(ops):
        return f"TWO DECISIONS on {incarnation}: {line.rows}"
    committed = frozenset(row.op for row in line.rows if row.verdict == "committed")
    if MERGE in committed:
        return None  # it was forked from main after a merge, and shows what the source showed
    for pin in line.pins:
        if content(state, pin) != committed:
            shown = sorted(content(state, pin))
            return f"EXACTNESS: {incarnation} shows {shown}, committed is {sorted(committed)}"
    lineage = _lineage(state, incarnation)
    for op in committed:
        if op.incarnation not in lineage:
            return f"ISOLATION: {op} shows on {incarnation}"
    return None


def _lineage(state: BranchState, incarnation: int) -> set[int]:
    """The incarnation and those it was forked from, directly or not."""
    parents = {e.incarnation: e.parent for log in state.logs for e in log if e.kind == "creating"}
    lineage = {incarnation}
    while incarnation in parents:
        incarnation = parents[incarnation]
        lineage.add(incarnation)
    return lineage


def _promise_violation(scope: BranchScope, state: BranchState, living: list[int]) -> str | None:
    """Every answer that somebody was given is true."""
    return (
        _lives_violation(scope, state)
        or _readers_violation(state)
        or _writers_violation(scope, state, living)
    )


def _lives_violation(scope: BranchScope, state: BranchState) -> str | None:
    for name, creator in zip(scope.creators, state.creators, strict=True):
        incarnation = creator.incarnation
        if creator.phase != "acked" or is_alive(scope, state, incarnation):
            continue
        if Entry("deleted", incarnation, aimed_at=incarnation) not in state.logs[name]:
            return f"CREATED: {incarnation} was acknowledged and nobody deleted it"
    for deleter in state.deleters:
        if deleter.phase == "acked" and is_alive(scope, state, deleter.incarnation):
            return f"DELETED: {deleter.incarnation} still lives"
    return None


def _readers_violation(state: BranchState) -> str | None:
    for reader in state.readers:
        if reader.phase == "answered" and not reader.promised <= reader.seen:
            return f"STALE: a reader missed {sorted(reader.promised - reader.seen)}"
    for pin in _tagged(state):
        if sentence := _pin_violation(state, pin):
            return f"{sentence}, tagged"
    return None


def _tagged(state: BranchState) -> list[Pin]:
    tags = zip(state.tags, state.taggers, strict=True)
    return [pin for tag, tagger in tags if tagger.phase == "acked" for pin in tag]


def _writers_violation(scope: BranchScope, state: BranchState, living: list[int]) -> str | None:
    for number, writer in enumerate(state.writers):
        if writer.phase in ("acked", "acked_done"):
            if sentence := _durability(scope, state, number):
                return sentence
        elif _says_failed(scope, writer):
            op = operation_of(scope, number, writer.incarnation)
            if op in _visible(scope, state, living):
                return f"PHANTOM: {op} was reported as failed"
    return None


def _says_failed(scope: BranchScope, writer: BranchWriter) -> bool:
    if writer.phase in ("gone", "gone_done"):
        return scope.mutant == "definite_gone"
    return writer.phase in ("failed", "failed_done")


def _durability(scope: BranchScope, state: BranchState, number: int) -> str | None:
    writer = state.writers[number]
    op = operation_of(scope, number, writer.incarnation)
    if writer.late:
        return f"DURABILITY: {op} acknowledged, but its branch was dead when it was published"
    line = state.lines[scope.line_of(writer.incarnation)]
    if is_alive(scope, state, writer.incarnation) and (
        line is None or line.verdict(op) != "committed"
    ):
        return f"DURABILITY: {op} acknowledged, but its branch does not show it"
    return None


def _visible(scope: BranchScope, state: BranchState, living: list[int]) -> frozenset[OpId]:
    """Every operation that a reader was shown, or that a living branch or a tag shows."""
    lines = (state.lines[scope.line_of(incarnation)] for incarnation in living)
    pins = [pin for line in lines if line is not None for pin in line.pins]
    pins += _tagged(state)
    seen = (reader.seen for reader in state.readers if reader.phase == "answered")
    return frozenset[OpId]().union(*(content(state, pin) for pin in pins), *seen)
