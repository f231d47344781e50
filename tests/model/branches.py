"""Graph branches that come and go, as a model of its own: two branches never mix, none is lost.

A branch is a log of small objects, decided by put-if-absent; each incarnation has a manifest of its
own, a Lance branch. Writers, merges, tags, the sweep and reconciling meet in these. The main model
searches how one manifest and its tables move; this one searches what happens when whole branches
are made, deleted and made again meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from tests.model.branch_invariants import branch_violation
from tests.model.branch_liveness import BranchLiveness
from tests.model.branch_lives import creator_steps, deleter_steps, reader_steps, tagger_steps
from tests.model.branch_maintenance import reconciler_steps, sweeper_steps
from tests.model.branch_merge import merger_steps
from tests.model.branch_scope import MAIN_LINE, BranchScope
from tests.model.branch_state import (
    BranchReconciler,
    BranchState,
    BranchStep,
    BranchSweeper,
    BranchWriter,
    Commit,
    Creator,
    Deleter,
    Entry,
    Fork,
    ForkName,
    Line,
    Log,
    Merger,
    OpId,
    Pin,
    Reader,
    Row,
    Tagger,
)
from tests.model.branch_writer import writer_steps
from tests.model.checker import Model

FIRST_KEYS: Final = 90
"""The key of the operation that wrote a branch before the start."""


def branch_protocol(scope: BranchScope) -> Model[BranchState]:
    """The model of one scope, ready to be searched."""
    liveness = BranchLiveness(scope)

    def violation(state: BranchState) -> str | None:
        return branch_violation(scope, state) or liveness.violation(state)

    return Model(
        initial=initial_branches(scope), steps=partial(_all_steps, scope), violation=violation
    )


def initial_branches(scope: BranchScope) -> BranchState:
    """Main at its first version, and every living branch with one write in forks of its own."""
    empty = (Pin(None, 0),) * scope.tables
    lines: list[Line | None] = [None] * scope.incarnations
    lines[MAIN_LINE] = Line(1, empty, (), -1, own=True)
    logs: list[Log] = [()] * len(scope.parents)
    forks: list[Fork] = []
    for incarnation, name in enumerate(scope.living, 1):
        if logs[name]:
            earlier = logs[name][-1].incarnation
            logs[name] = (*logs[name], Entry("deleted", earlier, aimed_at=earlier))
        logs[name] = (*logs[name], Entry("creating", incarnation, MAIN_LINE))
        if not scope.finishing:
            logs[name] = (*logs[name], Entry("ready", incarnation))
        lines[incarnation] = Line(1, empty, (), MAIN_LINE, own=True)
        if scope.written:
            op = OpId(FIRST_KEYS, incarnation)
            names = [ForkName(table, op, 0) for table in range(scope.tables)]
            forks += [Fork(fork, op, Pin(None, 0), (Commit(op, 0),)) for fork in names]
            pins = tuple(Pin(fork, 1) for fork in names)
            rows = (Row(op, "committed", late=False),)
            lines[incarnation] = Line(2, pins, rows, MAIN_LINE, own=True)
    return BranchState(
        logs=tuple(logs),
        lines=tuple(lines),
        forks=tuple(sorted(forks)),
        sidecars=frozenset(),
        tags=((),) * len(scope.taggers),
        creators=(Creator("idle"),) * len(scope.creators),
        deleters=(Deleter("idle"),) * len(scope.deleters),
        writers=_first_writers(scope, lines),
        mergers=(Merger("idle"),) * len(scope.mergers),
        taggers=(Tagger("idle"),) * len(scope.taggers),
        readers=(Reader("idle"),) * len(scope.readers),
        sweeper=BranchSweeper("idle", scope.sweeps),
        reconciler=BranchReconciler("idle", scope.reconciles),
    )


def _first_writers(scope: BranchScope, lines: list[Line | None]) -> tuple[BranchWriter, ...]:
    begun = [lines[incarnation] for incarnation in scope.begun]
    zombies = [
        BranchWriter("sidecar", incarnation, line.pins)
        for incarnation, line in zip(scope.begun, begun, strict=True)
        if line is not None
    ]
    rest = len(scope.writers) - len(zombies)
    return (*zombies, *(BranchWriter("idle"),) * rest)


def _all_steps(scope: BranchScope, state: BranchState) -> Iterator[BranchStep]:
    for number in range(len(scope.creators)):
        yield from creator_steps(scope, state, number)
    for number in range(len(scope.deleters)):
        yield from deleter_steps(scope, state, number)
    for number in range(len(scope.writers)):
        yield from writer_steps(scope, state, number)
    for number in range(len(scope.mergers)):
        yield from merger_steps(scope, state, number)
    for number in range(len(scope.taggers)):
        yield from tagger_steps(scope, state, number)
    for number in range(len(scope.readers)):
        yield from reader_steps(scope, state, number)
    yield from sweeper_steps(scope, state)
    yield from reconciler_steps(scope, state)
