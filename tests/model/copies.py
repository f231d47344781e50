"""Backups beside writers, a model of its own: is the target one moment of its source, always?

The source has two branches; a version of one names content, and a cleanup may remove both as soon
as there is a newer version. The target has content, versions and records. Copiers may die or sleep
at every step, and any number of them may work on one target. What a reader of the target sees of a
branch is its newest version there.

- **C1** A moment is two listings of all branches with the same answer: versions are only added.
- **C2** Content comes before the record that decides on it; what is gone by then makes the copier
  take another moment.
- **C3** A record is put if its number is free. It holds everything that makes the moment visible,
  and only then versions are put, main as the last.
- **C4** A copier finishes the last record before it adds another one, and refuses a target that is
  newer than its moment.
- **C5** Once its record is put, a copier looks for records with higher numbers and withdraws its
  own if there is one. Records that were followed are deleted, so that a number may be free again
  which another copier had used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, NamedTuple, get_args

from tests.model.checker import Model
from tests.model.process_steps import ProcessSteps

CopyMutant = Literal[
    "one_listing", "content_late", "blind_record", "no_finish", "no_look", "no_record", "only_main"
]
COPY_MUTANTS: Final[dict[CopyMutant, str]] = {
    "one_listing": "C1: branches are listed once, one after the other",
    "content_late": "C2: the record is put before the content",
    "blind_record": "C3: a record replaces another one with its number",
    "no_record": "C3: versions are put without a record",
    "no_finish": "C4: a decided record is not finished by the next copier",
    "only_main": "C4: only main tells whether the target is newer",
    "no_look": "C5: a copier that put its record does not look for higher numbers",
}
assert set(get_args(CopyMutant)) == set(COPY_MUTANTS)

BRANCHES: Final = (1, 0)
"""In the order in which their versions are put: main is 0, and the last."""
Moment = tuple[int, int]
"""The newest version of each branch."""
Version = tuple[int, int]
"""A branch and a number; its content has the same name."""
Phase = Literal[
    "idle",
    "half",
    "listed",
    "half again",
    "taken",
    "finishing",
    "ready",
    "copied",
    "put",
    "deciding",
    "done",
    "refused",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyScope:
    """Who takes part: so many copiers, of which each copies once, writes and cleanups."""

    copiers: int
    writes: int
    written: tuple[int, ...] = (0, 1)
    """The branches that are written to."""
    cleanups: int = 0
    mutant: CopyMutant | None = None


class Record(NamedTuple):
    """A copy that was decided on: over which moment, and whether all of it is in its place."""

    number: int
    before: Moment
    moment: Moment
    is_finished: bool = False


class Copier(NamedTuple):
    """A process that copies; `missing` are versions that it still has to put."""

    phase: Phase = "idle"
    first: Moment = (0, 0)
    moment: Moment = (0, 0)
    last: Record | None = None
    missing: tuple[int, ...] = ()


class CopyState(NamedTuple):
    """The source, the target and the copiers."""

    history: tuple[Moment, ...]
    gone: frozenset[Version]
    content: frozenset[Version]
    versions: frozenset[Version]
    records: tuple[Record, ...]
    copiers: tuple[Copier, ...]
    cleanups_left: int


CopyStep = tuple[str, CopyState]
NOTHING: Final[Moment] = (0, 0)


def copy_protocol(scope: CopyScope) -> Model[CopyState]:
    """The model of one search."""
    nothing: frozenset[Version] = frozenset()
    initial = CopyState(
        history=((1, 1),),
        gone=nothing,
        content=nothing,
        versions=nothing,
        records=(),
        copiers=(Copier(),) * scope.copiers,
        cleanups_left=scope.cleanups,
    )
    return Model(initial=initial, steps=partial(_all_steps, scope), violation=_violation)


def _all_steps(scope: CopyScope, state: CopyState) -> Iterator[CopyStep]:
    for number in range(scope.copiers):
        yield from _copier_steps(scope, state, number)
    now = state.history[-1]
    if len(state.history) <= scope.writes:
        for branch in scope.written:
            written = (now[0] + (branch == 0), now[1] + (branch == 1))
            yield f"write branch {branch}", state._replace(history=(*state.history, written))
    if state.cleanups_left:
        for branch, newest in enumerate(now):
            older = {(branch, version) for version in range(1, newest)} - state.gone
            if older:
                cleaned = state._replace(
                    gone=state.gone | older, cleanups_left=state.cleanups_left - 1
                )
                yield f"clean up branch {branch}", cleaned


_To = ProcessSteps[CopyState, Phase]


def _copier_steps(scope: CopyScope, state: CopyState, number: int) -> Iterator[CopyStep]:
    copier, to = state.copiers[number], _To(state, "copiers", number)
    match copier.phase:
        case "idle" | "half" | "listed" | "half again":
            yield _list_step(scope, state.history[-1], copier, to)
        case "taken":
            yield from _ready_steps(scope, state, copier._replace(moment=copier.first), to)
        case "finishing":
            yield from _put_steps(state, copier, to, then="taken")
        case "ready":
            yield from _content_steps(scope, state, copier, to)
        case "copied":
            yield from _decide_steps(scope, state, copier, to)
        case "put":
            yield from _look_steps(scope, state, copier, to)
        case "deciding":
            yield from _put_steps(state, copier, to, then="done")
        case "done" | "refused":
            return


def _list_step(scope: CopyScope, now: Moment, copier: Copier, to: _To) -> CopyStep:
    if copier.phase == "idle":
        return to("list main", "half", first=(now[0], 0))
    if copier.phase == "half":
        is_taken = scope.mutant == "one_listing"
        first = (copier.first[0], now[1])
        return to("list the branch", "taken" if is_taken else "listed", first=first)
    if copier.phase == "listed":
        return to("list main again", "half again", moment=(now[0], 0))
    is_same = (copier.moment[0], now[1]) == copier.first
    return to("list the branch again", "taken" if is_same else "idle")


def _ready_steps(scope: CopyScope, state: CopyState, copier: Copier, to: _To) -> Iterator[CopyStep]:
    """Finish what was decided, and compare the target with the moment."""
    last = max(state.records, default=None)
    if last is not None and not last.is_finished and scope.mutant != "no_finish":
        yield to("find a record to finish", "finishing", last=last, missing=BRANCHES)
        return
    before = NOTHING if last is None else last.moment
    of_newer = any(old > new for old, new in zip(before, copier.moment, strict=True))
    if (scope.mutant == "only_main" and before[0] > copier.moment[0]) or (
        scope.mutant != "only_main" and of_newer
    ):
        yield to("refuse a target that is newer", "refused")
    elif before == copier.moment:
        yield to("there is nothing new", "done")
    else:
        phase: Phase = "copied" if scope.mutant == "content_late" else "ready"
        yield to("plan", phase, last=last, moment=copier.moment, missing=BRANCHES)


def _content_steps(
    scope: CopyScope, state: CopyState, copier: Copier, to: _To
) -> Iterator[CopyStep]:
    wanted = {(branch, copier.moment[branch]) for branch in BRANCHES} - state.content
    after: Phase = "put" if scope.mutant == "content_late" else "copied"
    if not wanted:
        yield to("everything is copied", after)
    for version in sorted(wanted):
        if version in state.gone:
            yield to(f"content {version} is gone", "idle")
        else:
            yield to("copy content", "ready", state._replace(content=state.content | {version}))


def _decide_steps(
    scope: CopyScope, state: CopyState, copier: Copier, to: _To
) -> Iterator[CopyStep]:
    number = 1 if copier.last is None else copier.last.number + 1
    before = NOTHING if copier.last is None else copier.last.moment
    record = Record(number, before, copier.moment)
    others = tuple(other for other in state.records if other.number != number)
    if scope.mutant == "no_record":
        yield to("no record", "deciding", last=record, missing=BRANCHES)
    elif len(others) == len(state.records) or scope.mutant == "blind_record":
        put = state._replace(records=tuple(sorted((*others, record))))
        after: Phase = "ready" if scope.mutant == "content_late" else "put"
        yield to(f"put record {number}", after, put, last=record)
    else:
        yield to(f"record {number} is another's", "refused")


def _look_steps(scope: CopyScope, state: CopyState, copier: Copier, to: _To) -> Iterator[CopyStep]:
    own = copier.last
    assert own is not None
    if scope.mutant == "no_look" or max(state.records).number <= own.number:
        yield to("no record is higher", "deciding", missing=BRANCHES)
    else:
        left = tuple(record for record in state.records if record.number != own.number)
        yield to("withdraw the record", "refused", state._replace(records=left))


def _put_steps(state: CopyState, copier: Copier, to: _To, *, then: Phase) -> Iterator[CopyStep]:
    record = copier.last
    assert record is not None
    if copier.missing:
        branch, *others = copier.missing
        put = state._replace(versions=state.versions | {(branch, record.moment[branch])})
        yield to(f"put version of branch {branch}", copier.phase, put, missing=tuple(others))
        return
    higher = tuple(other for other in state.records if other.number > record.number)
    finished = state._replace(records=(record._replace(is_finished=True), *higher))
    yield to("mark the record as finished, delete those before it", then, finished)


def newest(state: CopyState) -> Moment:
    """What a reader of the target sees."""
    main, branch = (
        max((version for of, version in state.versions if of == number), default=0)
        for number in (0, 1)
    )
    return main, branch


def _violation(state: CopyState) -> str | None:
    if not state.versions <= state.content:
        return f"UNREADABLE: {sorted(state.versions - state.content)} has no content"
    last = max(state.records, default=None)
    seen = newest(state)
    if last is None:
        return None if seen == NOTHING else f"UNDECIDED: {seen} is visible without a record"
    if last.moment not in state.history:
        return f"NO MOMENT: the source never was {last.moment}"
    if last.is_finished:
        return None if seen == last.moment else f"MIXED: {seen} is visible, not {last.moment}"
    mixed = [
        branch
        for branch in (0, 1)
        if seen[branch] not in (last.before[branch], last.moment[branch])
    ]
    return f"MIXED: branch {mixed} is neither before nor after record {last}" if mixed else None
