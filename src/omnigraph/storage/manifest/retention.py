"""How far back tables are kept: per line of versions a floor that only ever rises.

Invariant: a removal of versions raises the floor above them first, and looks for references to them
afterwards. A process that is about to rely on an old version claims it first, and reads the floor
afterwards. So one of the two sees the other. A version below its floor counts only while a branch
or a tag names it; whatever else is found in its place is not what was published there.

The floors are the last entry of a log of small objects, each put only if it is not there yet.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from omnigraph import names
from omnigraph.errors import DamagedGraphError
from omnigraph.storage.objects.digests import digest_of_values
from omnigraph.storage.objects.documents import MALFORMED, parsed
from omnigraph.storage.objects.location import stored_path
from omnigraph.storage.objects.store import Objects

if TYPE_CHECKING:
    from omnigraph.storage.snapshot import TableEntry


WHOLE_LINE: Final = 2**62
"""A floor that no version reaches."""


class Line(NamedTuple):
    """The versions of one table that one fork made; without a fork the table's own."""

    location: str
    fork: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The floors in force; entry 0 is a graph that was never cleaned."""

    entry: int
    floors: Mapping[Line, int]

    def is_below(self, entry: TableEntry) -> bool:
        """Whether a version may be gone, or be something else by now."""
        return entry.version < self.floors.get(line_of(entry), 0)


def line_of(entry: TableEntry) -> Line:
    return Line(entry.location, entry.fork)


def last_entry(objects: Objects) -> int | None:
    """The number of the entry that counts; None if nothing was ever cleaned."""
    return max(_entries(objects).values(), default=None)


def read_retention(objects: Objects) -> Retention:
    """The floors in force; entries that others replace meanwhile are looked for again."""
    while True:
        number = last_entry(objects)
        if number is None:
            return Retention(entry=0, floors={})
        content = objects.read(names.retention_entry(number))
        if content is not None:
            return Retention(entry=number, floors=_decoded(number, content))


def raise_floors(objects: Objects, wanted: Mapping[Line, int]) -> Retention:
    """Put floors into force, each as high as wanted or as it is already.

    No put is believed: its number may have been used and freed before. Only what is read back is in
    force.
    """
    while True:
        now = read_retention(objects)
        floors = {line: max(floor, now.floors.get(line, 0)) for line, floor in wanted.items()}
        raised = {**now.floors, **floors}
        if raised == now.floors:
            _forget_before(objects, now.entry)
            return now
        objects.put_if_absent(names.retention_entry(now.entry + 1), _encoded(raised))


def forget_lines(objects: Objects, lines: Collection[Line]) -> None:
    """Drop the floors of lines that are gone; their versions can no longer be opened."""
    while True:
        now = read_retention(objects)
        kept = {line: floor for line, floor in now.floors.items() if line not in lines}
        if kept == now.floors:
            return
        objects.put_if_absent(names.retention_entry(now.entry + 1), _encoded(kept))
        _forget_before(objects, read_retention(objects).entry)


def _forget_before(objects: Objects, number: int) -> None:
    """Older entries say nothing any more; a late put of one changes nothing either."""
    for path, older in _entries(objects).items():
        if older < number:
            objects.delete(path)


def _entries(objects: Objects) -> Mapping[str, int]:
    """The numbers of the entries, by path; other files are none."""
    numbered = ((path, names.retention_number(path)) for path in objects.list(names.RETENTION_DIR))
    return {path: number for path, number in numbered if number is not None}


def _encoded(floors: Mapping[Line, int]) -> bytes:
    rows = [[line.location, line.fork, floor] for line, floor in floors.items()]
    rows.sort(key=lambda row: (row[0], row[1] or ""))
    return json.dumps({"floors": rows, "digest": digest_of_values(rows)}).encode()


def _decoded(number: int, content: bytes) -> dict[Line, int]:
    try:
        fields = parsed(content)
        rows, digest = fields["floors"], fields.get("digest")
        if digest not in (None, digest_of_values(rows)):  # entries before format 7 have none
            raise ValueError(f"their digest is {digest_of_values(rows)}, expected {digest!r:.80}")
        floors = {
            Line(str(location), None if fork is None else str(fork)): int(floor)
            for location, fork, floor in rows
        }
    except MALFORMED as error:
        raise DamagedGraphError(
            f"the floors of retention entry {number} cannot be parsed: {error!r}",
            next_step=f"Restore {names.retention_entry(number)} from a backup of the root.",
        ) from error
    for line in floors:
        for part in (line.location,) if line.fork is None else (line.location, line.fork):
            stored_path(part, said_by=names.retention_entry(number))
    return floors
