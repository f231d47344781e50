"""Cleanup of old published versions.

The floor is put before anybody is asked what they pin: whoever claims a version later reads it.
The logs are read again at the end: whoever claimed a version in between may have had it from a tag
that was gone when tags were read. Holds are read after the tags for the same reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.model.labels import RetentionName
from tests.model.retention_holds import STORED
from tests.model.retention_scope import RetentionMutant, RetentionScope
from tests.model.retention_state import (
    Cleaner,
    CleanerPhase,
    RetentionState,
    RetentionStep,
    label,
)
from tests.model.state import replaced

ORDER: Final[tuple[CleanerPhase, ...]] = (
    "list",
    "floor",
    "logs",
    "sides",
    "pins",
    "tags",
    "holds",
    "verify",
    "choose",
)
OTHER_ORDERS: Final[dict[RetentionMutant, tuple[CleanerPhase, ...]]] = {
    "claims_first": ("list", "logs", "sides", "pins", "tags", "verify", "floor", "choose"),
    "sides_first": ("sides", "list", "floor", "logs", "pins", "tags", "verify", "choose"),
    "tags_first": ("list", "floor", "tags", "logs", "sides", "pins", "verify", "choose"),
    "holds_first": ("holds", "list", "floor", "logs", "sides", "pins", "tags", "verify", "choose"),
    "holds_early": ("list", "floor", "logs", "sides", "pins", "holds", "tags", "verify", "choose"),
    "list_late": ("floor", "logs", "sides", "pins", "tags", "verify", "list", "choose"),
}


READ_NAMES: Final[dict[CleanerPhase, RetentionName]] = {
    "list": "cleanup.post_list",
    "logs": "retention.post_logs",
    "sides": "cleanup.post_sides",
    "pins": "cleanup.post_pins",
    "tags": "retention.post_tags",
    "holds": "retention.post_holds",
}


def cleaner_steps(
    scope: RetentionScope, state: RetentionState, number: int
) -> Iterator[RetentionStep]:
    """Everything that a cleaner can do next."""
    cleaner = state.cleaners[number]
    order = ORDER if scope.mutant is None else OTHER_ORDERS.get(scope.mutant, ORDER)
    if not scope.holders:
        order = tuple(phase for phase in order if phase != "holds")
    phase = cleaner.phase
    if phase == "idle":
        if not cleaner.runs_left:
            return
        cleaner, phase = Cleaner("idle", cleaner.runs_left - 1), order[0]
    following: CleanerPhase = order[order.index(phase) + 1] if phase in order[:-1] else "delete"
    then = cleaner._replace(phase=following)
    if phase == "floor":
        for floor in _floors(scope, state):
            put = state._replace(floor=floor)
            yield _step(put, number, then._replace(floor=floor), "retention.post_floor", f"{floor}")
    elif phase in READ_NAMES:
        read, detail = _read(scope, state, then, phase)
        yield _step(state, number, read, READ_NAMES[phase], detail)
    elif phase == "verify":
        steady = state.branches == cleaner.logs or scope.mutant == "logs_once"
        ended = then if steady else Cleaner("idle", cleaner.runs_left)
        yield _step(state, number, ended, "retention.verify", f"steady: {steady}")
    elif phase == "choose":
        victims = _victims(scope, cleaner)
        yield _step(state, number, _left(cleaner, victims), "cleanup.table_gc", f"{victims}")
    else:
        first, *rest = cleaner.victims
        kept = frozenset(each for each in state.versions if each[0] != first)
        deleted, left = state._replace(versions=kept), _left(cleaner, tuple(rest))
        yield _step(deleted, number, left, "cleanup.post_delete", f"v{first}")


def _step(
    state: RetentionState, number: int, following: Cleaner, name: RetentionName, detail: str
) -> RetentionStep:
    cleaners = replaced(state.cleaners, number, following)
    return label(name, detail, f"CL{number}"), state._replace(cleaners=cleaners)


def _left(cleaner: Cleaner, victims: tuple[int, ...]) -> Cleaner:
    """What it has read is forgotten once the victims are chosen."""
    return Cleaner("delete" if victims else "idle", cleaner.runs_left, victims=victims)


def _read(
    scope: RetentionScope, state: RetentionState, cleaner: Cleaner, phase: CleanerPhase
) -> tuple[Cleaner, str]:
    """Take one of the readings."""
    if phase == "list":
        listed = frozenset(version for version, _ in state.versions)
        return cleaner._replace(listed=listed), f"{sorted(listed)}"
    if phase == "logs":
        return cleaner._replace(logs=state.branches), "read"
    if phase == "sides":
        sides = tuple(floor for floor in state.sidecars if floor)
        return cleaner._replace(sides=sides), f"floors {sides}"
    if phase == "pins":
        pinned = _pinned(scope, state, cleaner)
        return cleaner._replace(pinned=pinned), f"{sorted(pinned)}"
    if phase == "holds":
        held = frozenset(hold.version for hold in state.holds if hold.state in STORED)
        return cleaner._replace(held=held), f"{sorted(held)}"
    tagged = _tagged(scope, state)
    return cleaner._replace(tagged=tagged), f"{sorted(tagged)}"


def _floors(scope: RetentionScope, state: RetentionState) -> range:
    """What the next entry may hold; an entry is made from the last one, else it is refused."""
    lowest = 1 if scope.mutant == "floor_falls" else state.floor
    return range(lowest, state.pin + (3 if scope.mutant == "floor_above_pin" else 1))


def _pinned(scope: RetentionScope, state: RetentionState, cleaner: Cleaner) -> frozenset[int]:
    """The pins of main and of all branches in the logs; a creating entry names its own version."""
    found = {state.pin}
    for branch, logged in zip(state.branches, cleaner.logs, strict=True):
        if logged.state == "creating" and scope.mutant != "no_creating":
            found.add(logged.version)
        if logged.state == "ready" and not branch.forked:
            found.add(logged.version)
    return frozenset(found)


def _tagged(scope: RetentionScope, state: RetentionState) -> frozenset[int]:
    if scope.mutant == "no_tags":
        return frozenset()
    counted = ("ready",) if scope.mutant == "no_creating_tags" else ("ready", "creating")
    return frozenset(tag.version for tag in state.tags if tag.state in counted)


def _victims(scope: RetentionScope, cleaner: Cleaner) -> tuple[int, ...]:
    sides = () if scope.mutant == "no_sides" else cleaner.sides
    held = frozenset() if scope.mutant == "no_holds" else cleaner.held
    return tuple(
        version
        for version in sorted(cleaner.listed - cleaner.pinned - cleaner.tagged - held)
        if version < cleaner.floor and all(version < floor for floor in sides)
    )
