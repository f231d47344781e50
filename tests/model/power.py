"""Power cuts, a model of its own: what is on the disk when the machine starts again?

A write is in the cache of the operating system until a sync. At a power cut every write that is
not synced survives, vanishes, or is torn, each by itself: a file system keeps no order between the
files of a commit. Every process dies, and processes that start later find what is left.

Manifest versions are slots, filled by put-if-absent. A slot that was torn blocks its number, so
writers set it aside. A slot holds all rows, so it needs no older slot; but it names tables and a
schema, which may be lost; `tables` stands for all that an operation wrote. A slot is *sound* if
everything it names was synced before it was put; only of others do readers look for what they name.

- **S1** A durable writer syncs after it has read the state it publishes on, and before it puts:
  then its slot is sound, whoever wrote what it builds on.
- **S2** It syncs again before it acknowledges.
- **S3** A reader steps back over slots that are torn, and over slots that are not sound and name
  something that is lost.
- **S4** A slot that readers step back over is set aside while a lock is held that all who set aside
  take, and only after it was looked at again under the lock.
- **S5** Nothing is forgotten before a sync of what is newer, by writers of either kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Final, Literal, NamedTuple, get_args

from tests.model.checker import Model
from tests.model.process_steps import ProcessSteps
from tests.model.state import replaced

Durability = Literal["commit", "os"]
PowerMutant = Literal[
    "no_sync_before", "no_sync_after", "sync_first", "believe", "no_lock", "forget_unsynced"
]
POWER_MUTANTS: Final[dict[PowerMutant, str]] = {
    "no_sync_before": "S1: a durable writer puts its slot without a sync",
    "no_sync_after": "S2: a durable writer acknowledges what is only in the cache",
    "sync_first": "S1: a writer that was refused reads again and puts without another sync",
    "believe": "S3: readers believe a slot that is not sound without a look at what it names",
    "no_lock": "S4: a slot is set aside that was looked at before",
    "forget_unsynced": "S5: old slots are forgotten while newer ones are only in the cache",
}
assert set(get_args(PowerMutant)) == set(POWER_MUTANTS)

FileState = Literal["cached", "synced", "torn"]
TableState = Literal["absent", "cached", "synced", "lost"]
PowerPhase = Literal["idle", "staged", "read", "judged", "synced", "put", "acknowledged", "dead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerScope:
    """Who takes part: one writer for each entry of `modes`."""

    modes: tuple[Durability, ...]
    forgets: int = 0
    cuts: int = 1
    mutant: PowerMutant | None = None


class Slot(NamedTuple):
    """A manifest version: the operations whose tables it names."""

    file: FileState
    ops: frozenset[int]
    sound: bool


class PowerWriter(NamedTuple):
    """A writer; `base` is the slot it publishes on."""

    phase: PowerPhase = "idle"
    base: int = 0
    seen: frozenset[int] = frozenset()
    is_synced: bool = False


class Forgetter(NamedTuple):
    """Removes all slots but the newest that it read."""

    phase: Literal["idle", "read", "synced"]
    newest: int
    runs_left: int


class PowerState(NamedTuple):
    """The disk, the cache above it, and the processes."""

    slots: tuple[Slot | None, ...]
    tables: tuple[TableState, ...]
    writers: tuple[PowerWriter, ...]
    forgetter: Forgetter
    cuts_left: int


PowerStep = tuple[str, PowerState]


def power_protocol(scope: PowerScope) -> Model[PowerState]:
    """The model of one search."""
    count = len(scope.modes)
    absent: TableState = "absent"
    initial = PowerState(
        slots=(Slot("synced", frozenset(), True), *(None,) * (count + 1)),
        tables=(absent,) * count,
        writers=(PowerWriter(),) * count,
        forgetter=Forgetter("idle", 0, scope.forgets),
        cuts_left=scope.cuts,
    )
    return Model(
        initial=initial,
        steps=partial(_all_steps, scope),
        violation=partial(_violation, scope),
    )


def _all_steps(scope: PowerScope, state: PowerState) -> Iterator[PowerStep]:
    for op in range(len(scope.modes)):
        yield from _writer_steps(scope, state, op)
    yield from _forgetter_steps(scope, state)
    if state.cuts_left:
        yield from _cut(state)


def newest(scope: PowerScope, state: PowerState) -> int | None:
    """The slot that a reader believes."""
    for number in reversed(range(len(state.slots))):
        if _is_believed(scope, state, number):
            return number
    return None


def _is_believed(scope: PowerScope, state: PowerState, number: int) -> bool:
    slot = state.slots[number]
    if slot is None or slot.file == "torn":
        return False
    if slot.sound or scope.mutant == "believe":
        return True
    return all(state.tables[op] != "lost" for op in slot.ops)


_To = ProcessSteps[PowerState, PowerPhase]


def _writer_steps(scope: PowerScope, state: PowerState, op: int) -> Iterator[PowerStep]:
    to = _To(state, "writers", op)
    match state.writers[op].phase:
        case "idle":
            staged = state._replace(tables=replaced(state.tables, op, "cached"))
            yield to("stage and commit the table", "staged", staged)
        case "staged":
            yield from _read_steps(scope, state, op, to)
        case "read" if scope.mutant == "no_sync_before":
            yield to("no sync", "synced")
        case "read":
            yield to("sync", "synced", _synced(state), is_synced=True)
        case "judged":
            number = state.writers[op].base + 1
            yield to(f"set slot {number} aside", "synced", _freed(state, number))
        case "synced":
            yield from _put_steps(scope, state, op, to)
        case "put":
            yield from _acknowledge_steps(scope, state, op, to)
        case "acknowledged" | "dead":
            return


def _read_steps(scope: PowerScope, state: PowerState, op: int, to: _To) -> Iterator[PowerStep]:
    base = newest(scope, state)
    slot = None if base is None else state.slots[base]
    if base is None or slot is None:
        return
    is_synced = scope.mutant == "sync_first" and state.writers[op].is_synced
    needs_sync = scope.modes[op] == "commit" and not is_synced
    phase: PowerPhase = "read" if needs_sync else "synced"
    yield to(f"read slot {base}", phase, base=base, seen=slot.ops)


def _put_steps(scope: PowerScope, state: PowerState, op: int, to: _To) -> Iterator[PowerStep]:
    writer = state.writers[op]
    number = writer.base + 1
    if state.slots[number] is None:
        made = Slot("cached", writer.seen | {op}, scope.modes[op] == "commit")
        put = state._replace(slots=replaced(state.slots, number, made))
        yield to(f"put slot {number}", "put", put)
    elif _is_believed(scope, state, number):
        yield to(f"refused: slot {number} is taken", "staged")
    elif scope.mutant == "no_lock":
        yield to(f"slot {number} is torn", "judged")
    else:
        detail = f"look at slot {number} and set it aside, locked"
        yield to(detail, "synced", _freed(state, number))


def _acknowledge_steps(
    scope: PowerScope, state: PowerState, op: int, to: _To
) -> Iterator[PowerStep]:
    found = newest(scope, state)
    slot = None if found is None else state.slots[found]
    if slot is None or op not in slot.ops:
        yield to("not found: the slot was a freed one", "staged")
    elif scope.modes[op] == "commit" and scope.mutant != "no_sync_after":
        yield to("read back, sync and acknowledge", "acknowledged", _synced(state))
    else:
        yield to("acknowledge", "acknowledged")


def _freed(state: PowerState, number: int) -> PowerState:
    return state._replace(slots=replaced(state.slots, number, None))


def _forgetter_steps(scope: PowerScope, state: PowerState) -> Iterator[PowerStep]:
    forgetter = state.forgetter
    match forgetter.phase:
        case "idle":
            found = newest(scope, state)
            if forgetter.runs_left and found:
                read = Forgetter("read", found, forgetter.runs_left - 1)
                yield f"read slot {found} [forget]", state._replace(forgetter=read)
        case "read":
            changed = state if scope.mutant == "forget_unsynced" else _synced(state)
            synced = forgetter._replace(phase="synced")
            yield "sync [forget]", changed._replace(forgetter=synced)
        case "synced":
            kept = (None,) * forgetter.newest + state.slots[forgetter.newest :]
            idle = forgetter._replace(phase="idle", newest=0)
            yield "remove older slots [forget]", state._replace(slots=kept, forgetter=idle)


def _synced(state: PowerState) -> PowerState:
    """One sync of the file system makes everything durable that was written before it."""
    slots = tuple(
        slot._replace(file="synced") if slot is not None and slot.file == "cached" else slot
        for slot in state.slots
    )
    tables: tuple[TableState, ...] = tuple(
        "synced" if table == "cached" else table for table in state.tables
    )
    return state._replace(slots=slots, tables=tables)


def _cut(state: PowerState) -> Iterator[PowerStep]:
    writers = tuple(
        writer if writer.phase in ("idle", "acknowledged") else PowerWriter("dead")
        for writer in state.writers
    )
    dark = state._replace(
        writers=writers,
        forgetter=state.forgetter._replace(phase="idle", newest=0),
        cuts_left=state.cuts_left - 1,
    )
    slots = product(*map(_slots_after, state.slots))
    for left in slots:
        for tables in product(*map(_tables_after, state.tables)):
            detail = " ".join("-" if slot is None else slot.file for slot in left)
            yield (
                f"power cut: slots {detail}, tables {' '.join(tables)} [world]",
                dark._replace(slots=left, tables=tables),
            )


def _slots_after(slot: Slot | None) -> tuple[Slot | None, ...]:
    if slot is None or slot.file != "cached":
        return (slot,)
    return (slot._replace(file="synced"), slot._replace(file="torn"), None)


def _tables_after(table: TableState) -> tuple[TableState, ...]:
    return ("synced", "lost") if table == "cached" else (table,)


def _violation(scope: PowerScope, state: PowerState) -> str | None:
    number = newest(scope, state)
    if number is None:
        return "UNOPENABLE: no slot is left that a reader believes"
    slot = state.slots[number]
    assert slot is not None
    for op in sorted(slot.ops):
        if state.tables[op] == "lost":
            return f"UNREADABLE: slot {number} names the table of W{op}, which is lost"
    for op, writer in enumerate(state.writers):
        is_promised = scope.modes[op] == "commit" and writer.phase == "acknowledged"
        if is_promised and op not in slot.ops:
            return f"LOST: W{op} was acknowledged, and slot {number} does not name it"
    return None
