"""Holds: what readers asked to be kept for a while, each a small object that says until when.

Invariant: every stored hold is respected by all removals of versions, and no one but its holder
relies on it. A holder stops relying on it at the end of its time by its own clock; others remove it
only `CLOCK_MARGIN` later by theirs, so clocks may differ by so much. No hold lasts longer than
`HOLD_MAX` from when it was made, however often it is renewed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from omnigraph import names
from omnigraph.display.cells import Moment, short_id
from omnigraph.display.pages import Displayed, Listing, Page, page_of
from omnigraph.display.tables import TableView
from omnigraph.errors import DamagedGraphError
from omnigraph.storage.manifest.retention import Line, line_of
from omnigraph.storage.objects.digests import digest_of_values
from omnigraph.storage.objects.documents import MALFORMED, moment, parsed, typed
from omnigraph.storage.objects.store import read_all

if TYPE_CHECKING:
    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.snapshot import TableEntry

HOLD_MAX: Final = timedelta(days=7)
CLOCK_MARGIN: Final = timedelta(minutes=5)
_DIGEST: Final = "digest"


class HeldVersions(NamedTuple):
    """The versions of one line from the first to the last, both included."""

    location: str
    fork: str | None
    first: int
    last: int

    @property
    def line(self) -> Line:
        return Line(self.location, self.fork)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold(Displayed):
    """What a reader holds: which versions, until when, who and what for."""

    hold_id: str
    commit_id: str | None
    """The commit that is read, or the last of several."""
    versions: tuple[HeldVersions, ...]
    made_at: str
    expires_at: str
    actor: str
    purpose: str

    @property
    def ends(self) -> datetime:
        """When its holder stops to rely on it."""
        return min(moment(self.expires_at), moment(self.made_at) + HOLD_MAX)

    def is_over(self, now: datetime) -> bool:
        """Whether others may remove it."""
        return now - CLOCK_MARGIN > self.ends

    def _page(self) -> Page:
        told = f"hold {short_id(self.hold_id)} of {self.actor} for {self.purpose}"
        return replace(page_of(HoldListing([self])), summary=f"{told} until {self.expires_at[:16]}")


class HoldListing(Listing[Hold]):
    """Holds, as a table."""

    __slots__ = ()

    def _page(self) -> Page:
        rows = [
            (
                hold.hold_id,
                hold.actor,
                hold.purpose,
                short_id(hold.commit_id or ""),
                Moment(hold.made_at),
                Moment(hold.expires_at),
            )
            for hold in self
        ]
        header = ("hold", "by", "for", "commit", "since", "until")
        return Page(tables=[TableView(header=header, rows=rows, empty="no holds")])


def held_versions(entries: Iterable[TableEntry]) -> tuple[HeldVersions, ...]:
    """One range per line that has all of these versions in it."""
    ranges: dict[Line, tuple[int, int]] = {}
    for entry in entries:
        first, last = ranges.get(line_of(entry), (entry.version, entry.version))
        ranges[line_of(entry)] = (min(first, entry.version), max(last, entry.version))
    return tuple(HeldVersions(*line, *ends) for line, ends in ranges.items())


def put_hold(objects: Objects, hold: Hold) -> None:
    """Store a hold, or what it was renewed to; a concurrent reader sees one of the two."""
    path = names.hold(hold.hold_id)
    fields = asdict(hold)
    content = {**fields, _DIGEST: digest_of_values([path, fields])}
    objects.replace(path, json.dumps(content, sort_keys=True).encode())


def remove_hold(objects: Objects, hold_id: str) -> None:
    objects.delete(names.hold(hold_id))


def is_stored(objects: Objects, hold_id: str) -> bool:
    return objects.read(names.hold(hold_id)) is not None


def stored_holds(objects: Objects) -> tuple[Hold, ...]:
    """Every hold, also those whose time is over, oldest first.

    Raises:
        DamagedGraphError: one cannot be parsed, so what it keeps is unknown.
    """
    holds = []
    for hold_id, content in _contents(objects):
        hold = decoded(hold_id, content)
        if not content:
            continue  # a power cut left it empty: its holder went, too
        if hold is None:
            raise DamagedGraphError(
                f"hold {hold_id} cannot be parsed, so what it keeps is unknown",
                next_step=f"Run `omnigraph hold release {objects.root} {hold_id}` if its reader "
                "has ended.",
            )
        holds.append(hold)
    return tuple(holds)


def readable_holds(objects: Objects) -> Iterator[tuple[str, Hold | None]]:
    """Every hold by id, for reports; None is one that cannot be parsed."""
    for hold_id, content in _contents(objects):
        yield hold_id, decoded(hold_id, content)


def _contents(objects: Objects) -> Iterator[tuple[str, bytes]]:
    for path, content in read_all(objects, objects.list(names.HOLDS_DIR)).items():
        hold_id = names.hold_at(path)
        if hold_id is not None and content is not None:
            yield hold_id, content


def decoded(hold_id: str, content: bytes) -> Hold | None:
    """A hold as it was stored; None if it cannot be parsed."""
    try:
        fields = dict(parsed(content))
        if fields.pop(_DIGEST) != digest_of_values([names.hold(hold_id), fields]):
            return None
        hold = typed(Hold, fields)
        _ = hold.ends
    except MALFORMED:
        return None
    return hold if hold.hold_id == hold_id else None
