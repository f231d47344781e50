"""Rebuilding a damaged manifest, a model of its own: does any crash put an older state in force?

Manifest versions are slots, filled by put-if-absent; the newest one decides. Slot 1 was
acknowledged and is damaged since; slot 0 below it is whole and older. Readers report damage, and
step back only over slots that a power cut tore. Beside two rebuilds there are writers who read a
slot before it was damaged, and a power cut that takes what is not synced: puts and moves alike.

There is no lock here: that only one process rebuilds at a time is politeness.

- **M1** A rebuild puts its slot right above the newest that is stored, whole or not, if that is
  absent.
- **M2** It moves damaged slots aside after it has read its own rows back.
- **M3** It syncs in between.
- **M4** It writes down which slots are damaged, and syncs, before it puts: after a power cut they
  are not taken for torn by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Final, Literal, NamedTuple, get_args

from tests.model.checker import Model
from tests.model.labels import RebuildName
from tests.model.process_steps import ProcessSteps
from tests.model.state import replaced

RebuildMutant = Literal["aside_first", "put_over", "aside_unread", "aside_unsynced", "unrecorded"]
REBUILD_MUTANTS: Final[dict[RebuildMutant, str]] = {
    "aside_first": "M1: damaged slots are moved aside first, and the newest whole one is built on",
    "put_over": "M1: the slot is put whether it is absent or not",
    "aside_unread": "M2: the answer of the put is believed",
    "aside_unsynced": "M3: damaged slots are moved aside while the new one is only in the cache",
    "unrecorded": "M4: nothing tells damage that looks torn from what a power cut tore",
}
assert set(get_args(RebuildMutant)) == set(REBUILD_MUTANTS)

PUBLISHED: Final = "A"
"""The operation of the damaged slot: it was acknowledged."""
SLOTS: Final = 7

FileState = Literal["cached", "synced", "torn"]
Phase = Literal["idle", "begun", "planned", "put", "read", "moving", "ended", "dead"]
WriterPhase = Literal["late", "put", "acknowledged", "failed", "dead"]
Damage = Literal["garbage", "torn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildScope:
    """Who takes part: one writer for each entry of `bases`, the slot that it read long ago."""

    rebuilders: int = 2
    bases: tuple[int, ...] = ()
    salvage: bool = True
    """Whether the rows of the damaged slot can be read all the same."""
    damage: Damage = "garbage"
    cuts: int = 0
    lost_puts: int = 0
    mutant: RebuildMutant | None = None


class Slot(NamedTuple):
    """A manifest version; `is_aside` while its move is only in the cache."""

    file: FileState
    ops: frozenset[str]
    is_damaged: bool = False
    is_aside: bool = False


class Rebuilder(NamedTuple):
    """A rebuild; `newest` is the highest slot that it saw, and `ops` what it brings back."""

    phase: Phase = "idle"
    newest: int = 0
    whole: int = 0
    ops: frozenset[str] = frozenset()
    damaged: tuple[int, ...] = ()


class LateWriter(NamedTuple):
    """A writer that publishes on `base`, and tries once more if it is refused."""

    base: int
    seen: frozenset[str]
    phase: WriterPhase = "late"
    tries_left: int = 1


class RebuildState(NamedTuple):
    """The slots, what is written down about them, and the processes."""

    slots: tuple[Slot | None, ...]
    recorded: frozenset[int]
    rebuilders: tuple[Rebuilder, ...]
    writers: tuple[LateWriter, ...]
    lost_puts_left: int
    cuts_left: int
    was_cut: bool = False


RebuildStep = tuple[str, RebuildState]


def rebuild_protocol(scope: RebuildScope) -> Model[RebuildState]:
    """The model of one search."""
    older = Slot("synced", frozenset())
    damaged = Slot("synced", frozenset({PUBLISHED}), is_damaged=True)
    seen = (older.ops, damaged.ops)
    initial = RebuildState(
        slots=(older, damaged, *(None,) * (SLOTS - 2)),
        recorded=frozenset(),
        rebuilders=(Rebuilder(),) * scope.rebuilders,
        writers=tuple(LateWriter(base, seen[base]) for base in scope.bases),
        lost_puts_left=scope.lost_puts,
        cuts_left=scope.cuts,
    )
    return Model(
        initial=initial,
        steps=partial(_all_steps, scope),
        violation=partial(_violation, scope),
    )


def _all_steps(scope: RebuildScope, state: RebuildState) -> Iterator[RebuildStep]:
    for number in range(len(state.rebuilders)):
        yield from _rebuild_steps(scope, state, number)
    for number in range(len(state.writers)):
        yield from _writer_steps(scope, state, number)
    if state.was_cut:
        yield from _open_steps(scope, state)
    # Before a rebuild has begun, damage that looks torn cannot be told from what a cut tore.
    if state.cuts_left and any(rebuilder.phase != "idle" for rebuilder in state.rebuilders):
        yield from _cut(state)


def _stored(state: RebuildState) -> list[int]:
    """The slots that a listing shows, newest first."""
    numbered = [(number, slot) for number, slot in enumerate(state.slots) if slot is not None]
    return [number for number, slot in reversed(numbered) if not slot.is_aside]


def _is_stepped_over(scope: RebuildScope, state: RebuildState, number: int) -> bool:
    slot = state.slots[number]
    if slot is None or not state.was_cut:
        return False
    looks_torn = slot.file == "torn" or (slot.is_damaged and scope.damage == "torn")
    return looks_torn and number not in state.recorded


def _in_force(scope: RebuildScope, state: RebuildState) -> Slot | None:
    """What a reader sees; None if it reports damage, or finds nothing at all."""
    for number in _stored(state):
        if not _is_stepped_over(scope, state, number):
            slot = state.slots[number]
            return None if slot is None or slot.is_damaged or slot.file == "torn" else slot
    return None


def _planned(scope: RebuildScope, state: RebuildState) -> Rebuilder | None:
    """What a rebuild that looks now would do; None if the newest slot is whole."""
    damaged: list[int] = []
    salvaged: frozenset[str] | None = None
    stored = _stored(state)
    for number in stored:
        slot = state.slots[number]
        assert slot is not None
        if not slot.is_damaged and slot.file != "torn":
            if not damaged:
                return None
            ops = slot.ops if salvaged is None else salvaged
            return Rebuilder("planned", stored[0], number, ops, tuple(damaged))
        damaged.append(number)
        if scope.salvage and slot.is_damaged and salvaged is None:
            salvaged = slot.ops
    newest = stored[0] if stored else -1
    return Rebuilder("planned", newest, -1, salvaged or frozenset(), tuple(damaged))


_To = ProcessSteps[RebuildState, Phase]


def _label(name: RebuildName, detail: str) -> str:
    return f"{name}: {detail}"


def _rebuild_steps(scope: RebuildScope, state: RebuildState, number: int) -> Iterator[RebuildStep]:
    to = _To(state, "rebuilders", number)
    match state.rebuilders[number].phase:
        case "idle" | "begun":
            yield from _look_steps(scope, state, number, to)
        case "planned":
            yield from _put_steps(scope, state, number, to)
        case "put":
            synced = state if scope.mutant == "aside_unsynced" else _synced(state)
            yield to(_label("rebuild.synced", "sync"), "read", synced)
        case "read":
            slot = _in_force(scope, state)
            is_mine = slot is not None and _mark(number) in slot.ops
            if is_mine or scope.mutant == "aside_unread":
                yield to(_label("rebuild.published", "read back"), "moving")
            else:
                yield to(_label("rebuild.refused", "another one was faster"), "ended")
        case "moving":
            yield _move_step(scope, state, number, to)
        case "ended" | "dead":
            return


def _look_steps(
    scope: RebuildScope, state: RebuildState, number: int, to: _To
) -> Iterator[RebuildStep]:
    plan = _planned(scope, state)
    has_begun = state.rebuilders[number].phase == "begun"
    if not has_begun:
        if plan is not None:
            damaged = () if scope.mutant == "unrecorded" else plan.damaged
            recorded = _synced(state._replace(recorded=state.recorded.union(damaged)))
            yield to(_label("rebuild.begun", "write down what is damaged"), "begun", recorded)
    elif plan is None or not (
        scope.mutant == "unrecorded" or state.recorded.issuperset(plan.damaged)
    ):
        yield to(_label("rebuild.refused", "it has changed"), "ended")
    else:
        phase: Phase = "moving" if scope.mutant == "aside_first" else "planned"
        yield to(
            _label("rebuild.planned", "look at all slots"), **plan._replace(phase=phase)._asdict()
        )


def _move_step(scope: RebuildScope, state: RebuildState, number: int, to: _To) -> RebuildStep:
    damaged = state.rebuilders[number].damaged
    if damaged:
        *rest, oldest = damaged
        moved = _moved(state, oldest)
        return to(
            _label("rebuild.post_move", f"slot {oldest}"), "moving", moved, damaged=tuple(rest)
        )
    phase: Phase = "planned" if scope.mutant == "aside_first" else "ended"
    return to(_label("rebuild.post_moves", "sync"), phase, _synced(state))


def _put_steps(
    scope: RebuildScope, state: RebuildState, number: int, to: _To
) -> Iterator[RebuildStep]:
    rebuilder = state.rebuilders[number]
    is_first = scope.mutant == "aside_first"
    target = (rebuilder.whole if is_first else rebuilder.newest) + 1
    phase: Phase = "ended" if is_first else "put"
    if _is_free(state, target) or scope.mutant == "put_over":
        made = Slot("cached", rebuilder.ops | {_mark(number)})
        put = state._replace(slots=replaced(state.slots, target, made))
        yield to(_label("rebuild.post_manifest", f"put slot {target}"), phase, put)
    else:
        yield to(_label("rebuild.post_manifest", f"slot {target} is taken"), phase)
    if state.lost_puts_left:
        lost = state._replace(lost_puts_left=state.lost_puts_left - 1)
        yield to(_label("rebuild.post_manifest", "the put is lost"), phase, lost)


def _mark(number: int) -> str:
    return f"R{number}"


def _is_free(state: RebuildState, number: int) -> bool:
    slot = state.slots[number]
    return slot is None or slot.is_aside


def _moved(state: RebuildState, number: int) -> RebuildState:
    slot = state.slots[number]
    if slot is None:
        return state
    return state._replace(slots=replaced(state.slots, number, slot._replace(is_aside=True)))


def _writer_steps(scope: RebuildScope, state: RebuildState, number: int) -> Iterator[RebuildStep]:
    writer, mark = state.writers[number], f"W{number}"
    to = ProcessSteps[RebuildState, WriterPhase](state, "writers", number)
    slot = _in_force(scope, state)
    match writer.phase:
        case "late" if _is_free(state, writer.base + 1):
            made = Slot("cached", writer.seen | {mark})
            put = state._replace(slots=replaced(state.slots, writer.base + 1, made))
            yield to(f"env: put slot {writer.base + 1}", "put", put)
        case "late" | "put" if slot is not None and mark in slot.ops:
            yield to("env: read back, sync and acknowledge", "acknowledged", _synced(state))
        case "late" | "put" if slot is not None and writer.tries_left:
            base = next(at for at in _stored(state) if state.slots[at] == slot)
            again: dict[str, Any] = {"base": base, "seen": slot.ops, "tries_left": 0}
            yield to(f"env: not there: read slot {base}", "late", **again)
        case "late" | "put":
            yield to("env: fail", "failed")
        case "acknowledged" | "failed" | "dead":
            return


def _open_steps(scope: RebuildScope, state: RebuildState) -> Iterator[RebuildStep]:
    """The first open for writing after a cut sets aside what readers step over."""
    for number in _stored(state):
        if not _is_stepped_over(scope, state, number):
            return
        free = state._replace(slots=replaced(state.slots, number, None))
        yield f"env: set slot {number} aside, torn [world]", free
        return


def _synced(state: RebuildState) -> RebuildState:
    return state._replace(
        slots=tuple(
            None
            if slot is None or slot.is_aside
            else slot._replace(file="synced" if slot.file == "cached" else slot.file)
            for slot in state.slots
        )
    )


def _cut(state: RebuildState) -> Iterator[RebuildStep]:
    rebuilders = tuple(
        rebuilder if rebuilder.phase in ("idle", "ended") else Rebuilder("dead")
        for rebuilder in state.rebuilders
    )
    writers = tuple(
        writer if writer.phase in ("acknowledged", "failed") else writer._replace(phase="dead")
        for writer in state.writers
    )
    dark = state._replace(
        rebuilders=rebuilders, writers=writers, cuts_left=state.cuts_left - 1, was_cut=True
    )
    for left in product(*map(_slots_after, state.slots)):
        detail = " ".join("-" if slot is None else slot.file for slot in left)
        yield f"env: power cut, slots {detail} [world]", dark._replace(slots=left)


def _slots_after(slot: Slot | None) -> tuple[Slot | None, ...]:
    if slot is not None and slot.is_aside:
        return (None, slot._replace(is_aside=False))
    if slot is None or slot.file != "cached":
        return (slot,)
    return (slot._replace(file="synced"), slot._replace(file="torn"), None)


def _violation(scope: RebuildScope, state: RebuildState) -> str | None:
    slot = _in_force(scope, state)
    if slot is not None:
        missing = _missing(scope, state, slot.ops)
        return missing and f"LOST: {missing} is not in force, and nothing is reported"
    plan = _planned(scope, state)
    if plan is None:
        return "STUCK: damage is reported, and there is nothing to rebuild"
    missing = _missing(scope, state, plan.ops | {_mark(0)})
    return missing and f"LOST: {missing} does not come back by another rebuild"


def _missing(scope: RebuildScope, state: RebuildState, ops: frozenset[str]) -> str | None:
    """An acknowledged operation that is not among these, and that no rebuild has given up."""
    is_told = not scope.salvage and any(op.startswith("R") for op in ops)
    if PUBLISHED not in ops and not is_told:
        return "what the damaged slot said"
    for number, writer in enumerate(state.writers):
        if writer.phase == "acknowledged" and f"W{number}" not in ops:
            return f"W{number}"
    return None
