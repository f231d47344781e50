"""Cleanup of table versions: only what lies below the current pin and below every sidecar's floor.

The order of the three readings matters: versions and files first, then sidecars, then pins.
Whatever is deleted was listed before, so a sidecar that is missing from the second list belongs
to an operation that was decided, or had not begun, when the first was made.
"""

from __future__ import annotations

from typing import Final, Literal

from tests.model.labels import CLEANUP_READ, StepName
from tests.model.manifest import cleaner_reader, read_manifest
from tests.model.scope import TABLES, Scope
from tests.model.state import COMPACTED, Cleaner, Pins, State, Step, StoredFile, step
from tests.model.tables import version_at

ACTOR = "CL"

Reading = Literal["list", "sides", "pins"]

READ_NAMES: Final[dict[Reading, StepName]] = {
    "list": "cleanup.post_list",
    "sides": "cleanup.post_sides",
    "pins": "cleanup.post_pins",
}


def cleaner_steps(scope: Scope, state: State) -> list[Step]:
    """Everything that the cleaner can do next."""
    cleaner = state.cleaner
    phase = cleaner.phase
    if phase == "idle":
        if not cleaner.runs_left:
            return []
        fresh = Cleaner("idle", cleaner.runs_left - 1)
        return _read(scope, state._replace(cleaner=fresh), _reading_order(scope)[0])
    if phase == "scan":
        return _scan(state)
    if phase == "delete":
        return _delete(state)
    return _read(scope, state, phase)


def _reading_order(scope: Scope) -> tuple[Reading, Reading, Reading]:
    if scope.mutant == "cl_sidecars_first":
        return ("sides", "list", "pins")
    if scope.mutant == "cl_pins_first":
        return ("list", "pins", "sides")
    return ("list", "sides", "pins")


def _read(scope: Scope, state: State, reading: Reading) -> list[Step]:
    """Take one of the three readings; after the last one, choose the victims."""
    cleaner, name = state.cleaner, READ_NAMES[reading]
    if reading == "list":
        numbers = tuple(tuple(v.number for v in state.tables[table]) for table in TABLES)
        cleaner = cleaner._replace(versions=numbers, files=state.files)
    elif reading == "sides":
        floors = tuple(sorted((sidecar.op, sidecar.floor) for sidecar in state.sidecars))
        cleaner = cleaner._replace(floors=floors)
    else:
        reader, trusting = cleaner_reader(scope), scope.mutant == "cl_no_verify"
        view = read_manifest(scope, state, reader, CLEANUP_READ, ACTOR, trusting=trusting)
        if isinstance(view, Step):
            return [view]
        state, manifest = view
        cleaner = cleaner._replace(pins=manifest.pins)
    order = _reading_order(scope)
    if reading != order[-1]:
        following = order[order.index(reading) + 1]
        cleaner = cleaner._replace(phase=following)
        return [step(name, "done", ACTOR, state._replace(cleaner=cleaner))]
    cleaner = _choose(scope, cleaner)
    return [step(name, f"victims {cleaner.victims}", ACTOR, state._replace(cleaner=cleaner))]


def _choose(scope: Scope, cleaner: Cleaner) -> Cleaner:
    blind = scope.mutant in ("cl_no_sidecars", "cl_above_pin")
    floors = () if blind else cleaner.floors
    protected = {op for op, _ in floors}
    victims = tuple(
        (table, number)
        for table in TABLES
        for number in cleaner.versions[table]
        if all(number < floor[table] for _, floor in floors)
        and _is_expendable(scope, number, cleaner.pins[table])
    )
    # A sidecar protects the files of its operation, even those that no version names yet.
    old = tuple(sorted(file for file in cleaner.files if file[1] % COMPACTED not in protected))
    return Cleaner("scan", cleaner.runs_left, victims=victims, doomed=old)


def _is_expendable(scope: Scope, number: int, pin: int) -> bool:
    if scope.cleanup_rule == "unpinned" or scope.mutant == "cl_above_pin":
        return number != pin
    return number < pin


def _scan(state: State) -> list[Step]:
    """Lance keeps HEAD, and every file that a version it keeps still names.

    It also deletes old files that no version names at all; here every file listed at the start of
    the run and not protected by a sidecar counts as old.
    """
    cleaner, heads = state.cleaner, _heads(state)
    victims = tuple(
        (table, number)
        for table, number in cleaner.victims
        if number != heads[table] and version_at(state.tables[table], number)
    )
    kept, freed = set[StoredFile](), set[StoredFile]()
    for table in TABLES:
        for version in state.tables[table]:
            named = freed if (table, version.number) in victims else kept
            named.update((table, *file) for file in version.files)
    unnamed = {file for file in cleaner.doomed if file not in kept and file not in freed}
    doomed = tuple(sorted(((freed - kept) | unnamed) & state.files))
    following = Cleaner("delete", cleaner.runs_left, victims=victims, doomed=doomed)
    return [step("cleanup.post_scan", f"files {doomed}", ACTOR, state._replace(cleaner=following))]


def _heads(state: State) -> Pins:
    return tuple(versions[-1].number for versions in state.tables)


def _delete(state: State) -> list[Step]:
    cleaner = state.cleaner
    tables = tuple(
        tuple(v for v in state.tables[table] if (table, v.number) not in cleaner.victims)
        for table in TABLES
    )
    changed = state._replace(
        tables=tables,
        files=state.files - set(cleaner.doomed),
        cleaner=Cleaner("idle", cleaner.runs_left),
    )
    detail = f"versions {cleaner.victims} files {cleaner.doomed}"
    return [step("cleanup.post_delete", detail, ACTOR, changed)]
