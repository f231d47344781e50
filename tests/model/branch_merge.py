"""A merge that writes nothing: it points main at versions that another branch published.

From the moment it has read the source until main names them, these versions are named by the
merge's sidecar only. The sidecar protects them if the source still lived after it was put, so the
merge reads the source's log once more; and so does a sweep before it rolls the merge forward.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.model.branch_scope import MAIN_LINE, BranchScope
from tests.model.branch_state import (
    BranchState,
    BranchStep,
    Line,
    Merger,
    OpId,
    Sidecar,
    branch_label,
    is_alive,
    living_line,
    swapped,
    with_line,
    without_sidecar_of,
)
from tests.model.branch_writer import following_line
from tests.model.labels import BranchStepName, StepName
from tests.model.state import replaced

MERGE: Final = OpId(50, MAIN_LINE)
"""The operation of the one merge."""

_MergerStep = tuple[StepName | BranchStepName, str, Merger, BranchState]


def merger_steps(scope: BranchScope, state: BranchState, number: int) -> Iterator[BranchStep]:
    """Everything that the merge can do next."""
    for name, detail, merger, changed in _merger_steps(scope, state, number):
        mergers = replaced(changed.mergers, number, merger)
        yield branch_label(name, detail, f"M{number}"), changed._replace(mergers=mergers)


def _merger_steps(scope: BranchScope, state: BranchState, number: int) -> Iterator[_MergerStep]:
    merger, main = state.mergers[number], state.lines[MAIN_LINE]
    assert main is not None
    match merger.phase:
        case "idle":
            found = living_line(scope, state, scope.mergers[number])
            if found is not None:
                following = Merger("sidecar", found[0], main.pins, found[1].pins)
                yield "merge.begin", f"from {found[0]}", following, state
        case "sidecar":
            yield _put_sidecar(scope, state, merger)
        case "verify":
            alive = is_alive(scope, state, merger.source)
            following = merger._replace(phase="resolve" if alive else "abort")
            yield "merge.verify", f"the source lives: {alive}", following, state
        case "resolve":
            yield _resolve(state, merger, main)
        case "swap":
            yield _swap(scope, state, merger)
        case "abort":
            yield _abort(state, merger, main)
        case "acked" | "failed":
            done = Merger("acked_done" if merger.phase == "acked" else "failed_done")
            deleted = without_sidecar_of(state, MERGE)
            yield "mutation.post_sidecar_delete", "the caller knows", done, deleted
        case "acked_done" | "failed_done":
            return


def _put_sidecar(scope: BranchScope, state: BranchState, merger: Merger) -> _MergerStep:
    sidecar = Sidecar(MERGE, MERGE, merger.pins, merger.source, merger.pointed)
    put = state._replace(sidecars=state.sidecars | {sidecar})
    unverified = scope.mutant == "merge_unverified"
    following = merger._replace(phase="resolve" if unverified else "verify")
    return "mutation.post_sidecar", "put", following, put


def _resolve(state: BranchState, merger: Merger, main: Line) -> _MergerStep:
    if verdict := main.verdict(MERGE):
        ended = Merger("acked" if verdict == "committed" else "failed")
        return "publish.resolve", f"op row says {verdict}", ended, state
    if main.pins != merger.pins:
        return "publish.refused", "pins moved", merger._replace(phase="abort"), state
    return "publish.pre_manifest", "send", merger._replace(phase="swap", held=main), state


def _swap(scope: BranchScope, state: BranchState, merger: Merger) -> _MergerStep:
    assert merger.held is not None
    following = following_line(merger.held, MERGE, "committed", merger.pointed)
    landed = swapped(scope, state, MAIN_LINE, merger.held, following)
    again = merger._replace(phase="resolve", held=None)
    if landed is None:
        return "publish.refused", "another version took the slot", again, state
    return "publish.post_manifest", "main points there", again, landed


def _abort(state: BranchState, merger: Merger, main: Line) -> _MergerStep:
    if main.verdict(MERGE):
        return "publish.pre_abort", "look again", merger._replace(phase="resolve"), state
    fenced = with_line(state, MAIN_LINE, following_line(main, MERGE, "aborted", main.pins))
    return "publish.post_abort", "op row says aborted", Merger("failed"), fenced
