"""Table forks of graph branches, a model of its own: who may delete a fork that nobody placed?

The first write of a table on a branch creates a fork of that table, commits in it, and publishes
the fork's name, its *place*, if the table has none yet. Reconciling lists refs, sidecars and the
manifest, and deletes the refs that are neither claimed by a sidecar nor placed. The sweep deletes
the fork of an operation after it has decided it. Deleting a ref is not conditional, so it is safe
only if the name contains the operation id, and only in these orders.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, NamedTuple

from tests.model.checker import Model
from tests.model.labels import StepName
from tests.model.state import Decision, Verdict, replaced

WRITERS: Final = 2

Listing = Literal["refs", "sides", "pins"]

LISTING_NAMES: Final[dict[Listing, StepName]] = {
    "refs": "reconcile.post_refs",
    "sides": "reconcile.post_sides",
    "pins": "reconcile.post_pins",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkScope:
    """Which rule of naming and which order of listing to search."""

    unique_names: bool = True  # otherwise all writers share one name, and adopt the fork they find
    listing_order: tuple[Listing, Listing, Listing] = ("refs", "sides", "pins")
    decides_first: bool = True  # otherwise the sweep drops a fork before it decides the operation

    def fork_of(self, op: int) -> int:
        return op if self.unique_names else 0


ForkWriterPhase = Literal[
    "idle", "sidecar", "ref", "commit", "publish", "acknowledge", "fail", "done"
]


SweeperPhase = Literal["idle", "decide", "drop", "delete"]


class ForkSweeper(NamedTuple):
    """Rolls one leftover sidecar back."""

    phase: SweeperPhase
    op: int
    runs_left: int


class Reconciler(NamedTuple):
    """What has been listed so far, then the refs to delete."""

    phase: Literal["idle", "refs", "sides", "pins", "delete"]
    runs_left: int
    refs: frozenset[int] = frozenset()
    claimed: frozenset[int] = frozenset()
    place: int | None = None
    victims: tuple[int, ...] = ()


class ForkState(NamedTuple):
    """One table on one branch."""

    refs: frozenset[int]
    place: int | None  # the fork that the manifest names
    decisions: tuple[Decision, ...]
    sidecars: frozenset[int]
    writers: tuple[ForkWriterPhase, ...]
    sweeper: ForkSweeper
    reconciler: Reconciler

    def verdict(self, op: int) -> Verdict | None:
        return dict(self.decisions).get(op)

    def decided(self, op: int, verdict: Verdict) -> ForkState:
        return self._replace(decisions=(*self.decisions, (op, verdict)))


ForkStep = tuple[str, ForkState]


def fork_protocol(scope: ForkScope) -> Model[ForkState]:
    """The model of one rule, ready to be searched."""
    initial = ForkState(
        refs=frozenset(),
        place=None,
        decisions=(),
        sidecars=frozenset(),
        writers=("idle",) * WRITERS,
        sweeper=ForkSweeper("idle", -1, 1),
        reconciler=Reconciler("idle", 1),
    )
    return Model(initial=initial, steps=partial(_all_steps, scope), violation=_violation)


def _all_steps(scope: ForkScope, state: ForkState) -> Iterator[ForkStep]:
    for op in range(WRITERS):
        yield from _writer_steps(scope, state, op)
    yield from _sweeper_steps(scope, state)
    yield from _reconciler_steps(scope, state)


def _label(name: StepName, detail: str, actor: str) -> str:
    return f"{name}: {detail} [{actor}]"


def _writer_steps(scope: ForkScope, state: ForkState, op: int) -> Iterator[ForkStep]:
    def to(
        phase: ForkWriterPhase, name: StepName, detail: str, changed: ForkState = state
    ) -> ForkStep:
        writers = replaced(changed.writers, op, phase)
        return _label(name, detail, f"W{op}"), changed._replace(writers=writers)

    fork = scope.fork_of(op)
    match state.writers[op]:
        case "idle":
            placed = state.place is not None
            yield to("done" if placed else "sidecar", "mutation.begin", f"placed: {placed}")
        case "sidecar":
            claimed = state._replace(sidecars=state.sidecars | {op})
            yield to("ref", "mutation.post_sidecar", "put sidecar", claimed)
        case "ref":
            forked = state._replace(refs=state.refs | {fork})
            yield to("commit", "fork.post_ref", "create or adopt", forked)
        case "commit":
            following: ForkWriterPhase = "publish" if fork in state.refs else "fail"
            yield to(following, "mutation.post_table_commit", "in the fork")
        case "publish":
            yield to(*_publish_place(state, op, fork))
        case "acknowledge" | "fail":
            deleted = state._replace(sidecars=state.sidecars - {op})
            yield to("done", "mutation.post_sidecar_delete", "the caller has its answer", deleted)
        case "done":
            return


def _publish_place(
    state: ForkState, op: int, fork: int
) -> tuple[ForkWriterPhase, StepName, str, ForkState]:
    """The one swap: it names the fork if nobody has decided or placed one before."""
    if verdict := state.verdict(op):
        following: ForkWriterPhase = "acknowledge" if verdict == "committed" else "fail"
        return following, "publish.resolve", f"op row says {verdict}", state
    if state.place is not None:
        return "fail", "publish.post_abort", "placed by another", state.decided(op, "aborted")
    placing = state.decided(op, "committed")._replace(place=fork)
    return "acknowledge", "publish.post_manifest", "place fork", placing


def _sweeper_steps(scope: ForkScope, state: ForkState) -> Iterator[ForkStep]:
    phase, op, runs_left = state.sweeper
    order: tuple[SweeperPhase, ...] = ("decide", "drop", "delete")
    if not scope.decides_first:
        order = ("drop", "decide", "delete")
    if phase == "idle" and runs_left:
        for claimed in sorted(state.sidecars):
            chosen = state._replace(sweeper=ForkSweeper(order[0], claimed, runs_left - 1))
            yield _label("recovery.post_list", f"sidecar of W{claimed}", "S0"), chosen
    elif phase == "decide":
        fenced = state if state.verdict(op) else state.decided(op, "rolled_back")
        following = order[order.index("decide") + 1]
        fenced = fenced._replace(sweeper=ForkSweeper(following, op, runs_left))
        yield _label("recovery.post_fence", f"W{op}", "S0"), fenced
    elif phase == "drop":
        following = order[order.index("drop") + 1]
        own = set() if state.verdict(op) == "committed" else {scope.fork_of(op)}
        dropped = state._replace(
            refs=state.refs - own, sweeper=ForkSweeper(following, op, runs_left)
        )
        yield _label("recovery.post_drop", f"forks {own}", "S0"), dropped
    elif phase == "delete":
        deleted = state._replace(
            sweeper=ForkSweeper("idle", -1, runs_left), sidecars=state.sidecars - {op}
        )
        yield _label("recovery.post_sidecar_delete", f"W{op}", "S0"), deleted


def _reconciler_steps(scope: ForkScope, state: ForkState) -> Iterator[ForkStep]:
    reconciler, order = state.reconciler, scope.listing_order
    phase = reconciler.phase
    if phase == "delete":
        deleted = state._replace(
            refs=state.refs - set(reconciler.victims), reconciler=Reconciler("idle", 0)
        )
        yield _label("reconcile.post_delete", f"{reconciler.victims}", "RC"), deleted
        return
    if phase == "idle":
        if not reconciler.runs_left:
            return
        phase = order[0]
    listed = _list(state, phase)
    if phase != order[-1]:
        following = order[order.index(phase) + 1]
        listed = listed._replace(phase=following)
        yield _label(LISTING_NAMES[phase], "done", "RC"), state._replace(reconciler=listed)
        return
    claimed_forks = {scope.fork_of(op) for op in listed.claimed}
    orphans = listed.refs - claimed_forks - {listed.place}
    doomed = Reconciler("delete", 0, victims=tuple(sorted(orphans)))
    label = _label(LISTING_NAMES[phase], f"victims {doomed.victims}", "RC")
    yield label, state._replace(reconciler=doomed)


def _list(state: ForkState, listing: Listing) -> Reconciler:
    reconciler = state.reconciler._replace(runs_left=0)
    if listing == "refs":
        return reconciler._replace(refs=state.refs)
    if listing == "sides":
        return reconciler._replace(claimed=state.sidecars)
    return reconciler._replace(place=state.place)


def _violation(state: ForkState) -> str | None:
    if state.place is not None and state.place not in state.refs:
        return "UNREADABLE: the fork the manifest points to was deleted"
    for op in range(WRITERS):
        if sum(decided == op for decided, _ in state.decisions) > 1:
            return f"TWO DECISIONS for W{op}"
    return None
