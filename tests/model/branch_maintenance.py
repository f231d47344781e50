"""The sweep of sidecars on graph branches, and reconciling: who may delete what nobody names?

The sweep deletes the forks of an operation once it has read that it was not published: its forks
have its name, so nobody else can publish them.

Reconciling lists what could be deleted first, then everything that protects. The logs are read
before the sidecars and again at the end: if they have changed, nothing is deleted. In between the
set of living branches stood still, so what a branch, a merge or a tag took over from a branch that
is dead by now was taken over before, and shows in what was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tests.model.branch_scope import MAIN_LINE, BranchScope
from tests.model.branch_state import (
    BranchReconciler,
    BranchState,
    BranchStep,
    BranchSweeper,
    Fork,
    ForkName,
    Line,
    Listing,
    Log,
    OpId,
    Pin,
    Sidecar,
    branch_label,
    fork_named,
    is_alive,
    living_in,
    swapped,
    with_line,
    without_sidecar_of,
)
from tests.model.branch_writer import following_line, is_placed
from tests.model.labels import BranchStepName, StepName

_SweeperStep = tuple[StepName | BranchStepName, str, BranchSweeper, BranchState]


def sweeper_steps(scope: BranchScope, state: BranchState) -> Iterator[BranchStep]:
    sweeper = state.sweeper
    if sweeper.phase == "idle":
        first: Literal["drop", "log"] = "drop" if scope.mutant == "sweep_drops_undecided" else "log"
        for sidecar in sorted(state.sidecars) if sweeper.runs_left else ():
            following = BranchSweeper(first, sweeper.runs_left - 1, sidecar)
            label = branch_label("recovery.post_list", f"sidecar of {sidecar.op}", "S0")
            yield label, state._replace(sweeper=following)
        return
    name, detail, following, changed = _sweep(scope, state)
    yield branch_label(name, detail, "S0"), changed._replace(sweeper=following)


def _sweep(scope: BranchScope, state: BranchState) -> _SweeperStep:
    sweeper = state.sweeper
    sidecar = sweeper.sidecar
    assert sidecar is not None
    match sweeper.phase:
        case "log":
            return _read_log(scope, state, sweeper, sidecar)
        case "source":
            alive = is_alive(scope, state, sidecar.source)
            following = sweeper._replace(phase="decide", verdict=None if alive else "rolled_back")
            return "recovery.post_source", f"the source lives: {alive}", following, state
        case "decide":
            return _decide(scope, state, sweeper, sidecar)
        case "swap":
            assert sweeper.held is not None
            return _send(scope, state, sweeper, sidecar)
        case "drop":
            return _drop(scope, state, sweeper, sidecar)
        case _:
            ended = BranchSweeper("idle", sweeper.runs_left)
            deleted = without_sidecar_of(state, sidecar.named)
            return "recovery.post_sidecar_delete", f"{sidecar.op}", ended, deleted


def _own_forks(state: BranchState, sidecar: Sidecar) -> list[ForkName]:
    return [fork.name for fork in state.forks if fork.listed and fork.name.op == sidecar.named]


def _drop(
    scope: BranchScope, state: BranchState, sweeper: BranchSweeper, sidecar: Sidecar
) -> _SweeperStep:
    """One fork after the other; what a writer that sleeps makes later is left to reconciling."""
    forks = _own_forks(state, sidecar)
    then: Literal["log", "delete"] = "log" if scope.mutant == "sweep_drops_undecided" else "delete"
    following = sweeper._replace(phase="drop" if len(forks) > 1 else then)
    dropped = without_fork(state, forks[0]) if forks else state
    return "recovery.post_drop", f"{forks[:1]}", following, dropped


def _read_log(
    scope: BranchScope, state: BranchState, sweeper: BranchSweeper, sidecar: Sidecar
) -> _SweeperStep:
    unread = scope.mutant in ("sweep_dead", "sweep_living")
    if not unread and not is_alive(scope, state, sidecar.op.incarnation):
        return "recovery.post_log", "discard", sweeper._replace(phase="delete"), state
    merges = sidecar.source >= 0 and scope.mutant != "sweep_merge_unverified"
    following = sweeper._replace(phase="source" if merges else "decide")
    return "recovery.post_log", "its branch lives", following, state


def _target_of(scope: BranchScope, state: BranchState, sidecar: Sidecar) -> int:
    """The incarnation whose manifest decides the operation."""
    incarnation = sidecar.op.incarnation
    if scope.mutant != "sweep_living" or incarnation == MAIN_LINE:
        return incarnation
    living = living_in(scope, state.logs[scope.name_of[incarnation]])
    return incarnation if living is None else living


def _decide(
    scope: BranchScope, state: BranchState, sweeper: BranchSweeper, sidecar: Sidecar
) -> _SweeperStep:
    line = state.lines[scope.line_of(_target_of(scope, state, sidecar))]
    if line is None:
        following = sweeper._replace(phase="delete", held=None)
        return "recovery.decided", "the manifest is gone", following, state
    if verdict := line.verdict(sidecar.op):
        keeps = verdict == "committed" and scope.mutant != "sweep_drops_published"
        drops = not keeps and scope.mutant != "sweep_drops_undecided"
        phase: Literal["drop", "delete"] = (
            "drop" if drops and _own_forks(state, sidecar) else "delete"
        )
        following = sweeper._replace(phase=phase, held=None)
        return "recovery.decided", f"op row says {verdict}", following, state
    following = sweeper._replace(phase="swap", held=line)
    return "recovery.pre_manifest", "send", following, state


def _send(
    scope: BranchScope, state: BranchState, sweeper: BranchSweeper, sidecar: Sidecar
) -> _SweeperStep:
    held = sweeper.held
    assert held is not None
    targets = sidecar.pointed or effects(state, sidecar)
    forward = targets is not None and held.pins == sidecar.pins and sweeper.verdict is None
    if forward:
        assert targets is not None
        after = following_line(held, sidecar.op, "committed", targets)
    else:
        after = following_line(held, sidecar.op, "rolled_back", held.pins)
    landed = swapped(scope, state, _target_of(scope, state, sidecar), held, after)
    again = sweeper._replace(phase="decide", held=None)
    if landed is None:
        return "publish.refused", "another version took the slot", again, state
    return ("recovery.post_rollforward" if forward else "recovery.post_fence"), "", again, landed


def effects(state: BranchState, sidecar: Sidecar) -> tuple[Pin, ...] | None:
    """Per table the version that is exactly the operation's effect; None if one has none."""
    found: list[Pin] = []
    for table, pin in enumerate(sidecar.pins):
        exact = [
            Pin(fork.name, number)
            for fork in state.forks
            if fork.listed and fork.name.table == table
            for number, made in enumerate(fork.versions, 1)
            if made.op == sidecar.op and _stands_on(state, fork, made.base, pin, sidecar.op)
        ]
        if not exact:
            return None
        found.append(exact[-1])
    return tuple(found)


def _stands_on(state: BranchState, fork: Fork, base: int, pin: Pin, op: OpId) -> bool:
    if is_placed(state, pin, op.incarnation):
        return Pin(fork.name, base) == pin
    return base == 0 and fork.origin == pin


def reconciler_steps(scope: BranchScope, state: BranchState) -> Iterator[BranchStep]:
    reconciler = state.reconciler
    if reconciler.phase == "idle" and not reconciler.runs_left:
        return
    name, detail, following, changed = _reconcile(scope, state)
    yield branch_label(name, detail, "RC"), changed._replace(reconciler=following)


_ReconcilerStep = tuple[BranchStepName | StepName, str, BranchReconciler, BranchState]


def _reconcile(scope: BranchScope, state: BranchState) -> _ReconcilerStep:
    reconciler = state.reconciler
    match reconciler.phase:
        case "idle":
            begun = reconciler._replace(runs_left=reconciler.runs_left - 1)
            return _list(scope, state, begun, _order(scope)[0])
        case "check":
            return _check(state, reconciler)
        case "delete":
            return _delete(state, reconciler)
        case "verify":
            return _verify(scope, state, reconciler)
        case listing:
            return _list(scope, state, reconciler, listing)


def _order(scope: BranchScope) -> tuple[Listing, ...]:
    order: dict[str, tuple[Listing, ...]] = {
        "reconcile_sides_first": ("sides", "refs", "logs", "pins", "verify"),
        "reconcile_pins_first": ("logs", "pins", "refs", "sides", "verify"),
        "reconcile_no_sides": ("refs", "logs", "pins", "verify"),
        "reconcile_logs_late": ("refs", "sides", "logs", "pins", "verify"),
        "reconcile_logs_once": ("refs", "logs", "sides", "pins"),
    }
    return order.get(scope.mutant or "", ("refs", "logs", "sides", "pins", "verify"))


def _list(
    scope: BranchScope, state: BranchState, reconciler: BranchReconciler, listing: Listing
) -> _ReconcilerStep:
    names: dict[Listing, BranchStepName | StepName] = {
        "refs": "reconcile.post_refs",
        "logs": "reconcile.post_logs",
        "sides": "reconcile.post_sides",
        "pins": "reconcile.post_pins",
    }
    order = _order(scope)
    listed = _listed(scope, state, reconciler, listing)
    if listing == "logs" and len(listed.logs) < len(state.logs):
        return names[listing], "one more", listed._replace(phase="logs"), state
    if listing == order[-1]:
        return names[listing], "", _doom(scope, listed), state
    following = order[order.index(listing) + 1]
    return names[listing], "", listed._replace(phase=following), state


def _verify(
    scope: BranchScope, state: BranchState, reconciler: BranchReconciler
) -> _ReconcilerStep:
    """Read the logs again, one after the other like the first time."""
    position = reconciler.verified
    if state.logs[len(state.logs) - position - 1] != reconciler.logs[position]:
        ended = BranchReconciler("idle", reconciler.runs_left)
        return "reconcile.verify", "a log moved, give up", ended, state
    if position + 1 < len(state.logs):
        following = reconciler._replace(verified=position + 1)
        return "reconcile.verify", "one more", following, state
    return "reconcile.verify", "the logs stand", _doom(scope, reconciler), state


def _listed(
    scope: BranchScope, state: BranchState, reconciler: BranchReconciler, listing: Listing
) -> BranchReconciler:
    match listing:
        case "refs":
            return reconciler._replace(
                forks=frozenset(fork.name for fork in state.forks if fork.listed),
                lines=tuple(i for i, line in enumerate(state.lines) if line and line.listed),
            )
        case "logs":
            unread = len(state.logs) - len(reconciler.logs) - 1
            return reconciler._replace(logs=(*reconciler.logs, state.logs[unread]))
        case "sides":
            claims = scope.mutant != "merge_unclaimed"
            pointed = (pin.fork for side in state.sidecars for pin in side.pointed if claims)
            return reconciler._replace(
                claimed=frozenset(side.named for side in state.sidecars),
                pointed=frozenset(fork for fork in pointed if fork),
            )
        case _:
            return reconciler._replace(named=_named_forks(scope, state, reconciler.logs))


def _named_forks(
    scope: BranchScope, state: BranchState, logs: tuple[Log, ...]
) -> frozenset[ForkName]:
    """The forks that main, a living branch, an unfinished one or a tag names."""
    kept = [MAIN_LINE]
    for log in logs:
        kinds = (
            ("ready",) if scope.mutant == "reconcile_unfinished_unread" else ("ready", "creating")
        )
        if log and log[-1].kind in kinds:
            kept.append(log[-1].incarnation)
    lines = [state.lines[scope.line_of(incarnation)] for incarnation in kept]
    pins = [pin for line in lines if line for pin in line.pins]
    if scope.mutant != "reconcile_no_tags":
        pins += [pin for tag in state.tags for pin in tag]
    return frozenset(pin.fork for pin in pins if pin.fork)


def _doom(scope: BranchScope, reconciler: BranchReconciler) -> BranchReconciler:
    """Everything that was listed, less everything that protects."""
    forks = sorted(
        name
        for name in reconciler.forks - reconciler.named - reconciler.pointed
        if name.op not in reconciler.claimed
    )
    kinds = ("ready",) if scope.mutant == "reconcile_unfinished" else ("ready", "creating")
    kept = {
        scope.line_of(log[-1].incarnation)
        for log in reconciler.logs
        if log and log[-1].kind in kinds
    }
    lines = tuple(i for i in reconciler.lines if i != MAIN_LINE and i not in kept)
    # What was forked later goes first, because Lance keeps what others were forked from.
    return _next_victim(reconciler.runs_left, tuple(reversed(forks)), tuple(reversed(lines)))


def _next_victim(
    runs_left: int, forks: tuple[ForkName, ...], lines: tuple[int, ...]
) -> BranchReconciler:
    if not forks and not lines:
        return BranchReconciler("idle", runs_left)
    return BranchReconciler("check", runs_left, doomed_forks=forks, doomed_lines=lines)


def _check(state: BranchState, reconciler: BranchReconciler) -> _ReconcilerStep:
    """Lance looks for children, then deletes: two requests, and a child may come in between."""
    forks, lines = reconciler.doomed_forks, reconciler.doomed_lines
    if lines:
        wanted = any(line and line.listed and line.parent == lines[0] for line in state.lines)
        spared = _next_victim(reconciler.runs_left, forks, lines[1:])
    else:
        wanted = any(f.listed and f.origin.fork == forks[0] for f in state.forks)
        spared = _next_victim(reconciler.runs_left, forks[1:], lines)
    following = spared if wanted else reconciler._replace(phase="delete")
    return "reconcile.check", f"has children: {wanted}", following, state


def _delete(state: BranchState, reconciler: BranchReconciler) -> _ReconcilerStep:
    forks, lines = reconciler.doomed_forks, reconciler.doomed_lines
    if lines:
        following = _next_victim(reconciler.runs_left, forks, lines[1:])
        deleted = without_line(state, lines[0])
        return "reconcile.post_delete", f"manifest {lines[0]}", following, deleted
    following = _next_victim(reconciler.runs_left, forks[1:], lines)
    return "reconcile.post_delete", f"{forks[0]}", following, without_fork(state, forks[0])


def without_fork(state: BranchState, name: ForkName) -> BranchState:
    """Lance deletes a fork by its ref: what was forked from it loses its files."""
    fork = fork_named(state, name)
    if fork is None or not fork.listed:
        return state
    kept = (each for each in state.forks if each.name != name)
    return state._replace(
        forks=tuple(
            each._replace(broken=True) if each.origin.fork == name else each for each in kept
        )
    )


def without_line(state: BranchState, index: int) -> BranchState:
    """Lance deletes a branch of the manifest: what was cloned from it loses its files."""
    current = state.lines[index]
    if current is None or not current.listed:
        return state
    lines = tuple(_orphaned(line, index) for line in state.lines)
    return with_line(state._replace(lines=lines), index, None)


def _orphaned(line: Line | None, parent: int) -> Line | None:
    if line is None or line.parent != parent or line.own:
        return line
    return line._replace(broken=True)
