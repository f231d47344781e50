"""Holds: what readers asked to be kept for a while, each a small object that says until when.

Invariant: every stored hold is respected by all removals of versions, and no one but its holder
relies on it. A holder stops relying on it at the end of its time by its own clock; others remove it
only `CLOCK_MARGIN` later by theirs, so clocks may differ by so much. No hold lasts longer than
`HOLD_MAX` from when it was made, however often it is renewed.

Placing holds: a hold is put, then what it keeps is verified, then it is valid.

Invariant: what a hold keeps is readable until the hold is released or expires by the holder's
clock. A hold blocks nothing and causes no refusal.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from omnigraph_lake import errors, names
from omnigraph_lake.arguments import parse_age
from omnigraph_lake.display.cells import Moment, short_id
from omnigraph_lake.display.pages import Displayed, Listing, Page, page_of
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.failpoints import reach
from omnigraph_lake.language.diagnostics import did_you_mean, shown
from omnigraph_lake.storage.manifest.retention import Line, line_of
from omnigraph_lake.storage.objects.documents import (
    MALFORMED,
    digest_of_values,
    moment,
    parsed,
    typed,
)
from omnigraph_lake.storage.objects.store import Objects, read_all
from omnigraph_lake.storage.refs.kept import no_longer_kept, require_versions_retained
from omnigraph_lake.storage.staging.table_versions import facts_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph_lake.clock import Clock
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry


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
        title = f"hold {short_id(self.hold_id)} of {self.actor} for {self.purpose}"
        return replace(
            page_of(HoldListing([self])), summary=f"{title} until {self.expires_at[:16]}"
        )


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
            raise errors.DamagedGraphError(
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


RENEWED_FOR: Final = timedelta(minutes=30)
"""How long a renewed hold outlasts a reader that dies."""


class LiveHold(Displayed):
    """A hold of this process. Releasing it twice is fine."""

    def __init__(self, objects: Objects, clock: Clock, hold: Hold) -> None:
        self.objects = objects
        self._clock = clock
        self._hold = hold
        self._released = threading.Event()
        self._left = threading.Event()
        # A collected reader may release it in the midst of a renewal of the same thread.
        self._changing = threading.RLock()

    def _page(self) -> Page:
        return page_of(self._hold)

    @property
    def hold(self) -> Hold:
        return self._hold

    @property
    def expires_at(self) -> datetime:
        """Until when what is held stays readable, by the clock of this machine."""
        return self._hold.ends

    @property
    def is_held(self) -> bool:
        """Whether it has neither been released nor expired."""
        return not self._released.is_set() and self._clock.now() < self._hold.ends

    def renew(self, time: timedelta) -> bool:
        """Extend the hold to this long from now; False if it had already expired.

        A renewal may arrive after a cleanup removed the hold and what it kept. Only one that is
        stored before the old end counts.
        """
        with self._changing:
            old = self._hold
            if not self.is_held or not is_stored(self.objects, old.hold_id):
                return False
            ends = max(self._clock.now() + time, old.ends)
            renewed = replace(old, expires_at=ends.isoformat(timespec="microseconds"))
            put_hold(self.objects, renewed)
            reach("hold.post_renew")
            if self._clock.now() >= old.ends:
                remove_hold(self.objects, old.hold_id)
                return False
            self._hold = renewed
            return True

    def release(self) -> None:
        """Release it; what only this hold kept may be cleaned up from now on."""
        with self._changing:
            if self._released.is_set():
                return
            self._released.set()
            self._left.set()
            with suppress(errors.OmnigraphError):
                # A hold that stays behind ends by itself.
                remove_hold(self.objects, self._hold.hold_id)
            reach("hold.post_release")

    def leave(self) -> None:
        """Renew it no more; it ends by itself."""
        self._left.set()

    def wait(self, seconds: float) -> bool:
        """Wait that long; True as soon as it is left or released."""
        return self._left.wait(seconds)


def hold_versions(  # noqa: PLR0913 - every word of a hold is one
    objects: Objects,
    entries: Sequence[TableEntry],
    clock: Clock,
    *,
    time: timedelta,
    thing: str,
    actor: str,
    purpose: str,
    commit_id: str | None = None,
) -> LiveHold:
    """Keep versions readable for some time.

    Raises:
        NoLongerKeptError: a version is no longer kept.
    """
    now = clock.now()
    hold = Hold(
        hold_id=clock.new_id(),
        commit_id=commit_id,
        versions=held_versions(entries),
        made_at=now.isoformat(timespec="microseconds"),
        expires_at=(now + time).isoformat(timespec="microseconds"),
        actor=actor,
        purpose=purpose,
    )
    live = LiveHold(objects, clock, hold)
    reach("hold.begin")
    put_hold(objects, hold)
    reach("hold.post_put")
    try:
        _require_held(live, entries, thing=thing)
    except BaseException:
        live.release()
        raise
    reach("hold.verify")
    return live


def _require_held(live: LiveHold, entries: Sequence[TableEntry], *, thing: str) -> None:
    """Verify everything that is held, while the hold protects it."""
    objects = live.objects
    require_versions_retained(objects, entries, thing=thing)
    for entry in entries:
        # The floor of a fork that was dropped is forgotten with it.
        if entry.fork is not None and facts_at(objects.root, entry, entry.version) is None:
            raise no_longer_kept([entry], thing=thing)
    if not live.is_held:
        raise errors.NoLongerKeptError(
            f"the hold of {thing} expired before it was placed",
            next_step="Use a longer duration.",
        )


def renewed_while_alive(live: LiveHold, reader: object) -> LiveHold:
    """Renew a hold in the background until it is released, or its reader is no longer in use.

    What the reader made may still be read for a while: then the hold ends by itself.
    """
    weakref.finalize(reader, live.leave)
    _renew_in_background(live)
    return live


def _renew_in_background(live: LiveHold) -> None:
    """Renew a hold until it is left or released."""

    def renew() -> None:
        while not live.wait(RENEWED_FOR.total_seconds() / 3):
            with suppress(errors.OmnigraphError):
                if not live.renew(RENEWED_FOR):
                    return

    threading.Thread(target=renew, name="omnigraph-hold", daemon=True).start()


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """How readers hold what they read while they are in use."""

    objects: Objects
    clock: Clock
    actor: str

    def for_reader(
        self,
        reader: object,
        entries: Sequence[TableEntry],
        *,
        purpose: str,
        commit_id: str | None,
    ) -> LiveHold | None:
        """A hold that is renewed while the reader is in use; None if there is nothing to hold.

        Raises:
            NoLongerKeptError: a version is no longer kept.
        """
        if not entries:
            return None
        return renewed_while_alive(self._place(entries, purpose, commit_id), reader)

    @contextmanager
    def during(self, snapshot: Snapshot, *, purpose: str) -> Iterator[None]:
        """Hold a snapshot while the body runs.

        Raises:
            NoLongerKeptError: a version is no longer kept.
        """
        entries = tuple(snapshot.tables.values())
        if not entries:
            yield
            return
        live = self._place(entries, purpose, snapshot.commit_id)
        try:
            _renew_in_background(live)
            yield
        finally:
            live.release()

    def _place(
        self, entries: Sequence[TableEntry], purpose: str, commit_id: str | None
    ) -> LiveHold:
        return hold_versions(
            self.objects,
            entries,
            self.clock,
            time=RENEWED_FOR,
            thing=f"commit {commit_id}",
            actor=self.actor,
            purpose=purpose,
            commit_id=commit_id,
        )


def checked_time(value: object, *, argument: str = "hold") -> timedelta:
    """How long a caller wants to hold something: `30m`, `1h`, `2d`, or a timedelta."""
    time = parse_age(value) if isinstance(value, str) else value
    if not isinstance(time, timedelta) or time <= timedelta(0):
        raise errors.InvalidInputError(
            f"{argument} is {shown(value)}, expected a time such as 30m, 1h or 2d",
            next_step="Write it as 45s, 30m, 12h or 7d, or give a timedelta.",
        )
    if time > HOLD_MAX:
        raise errors.InvalidInputError(
            f"{argument} is {shown(value)}, and a hold lasts at most {HOLD_MAX.days} days",
            next_step="Use a tag to keep a commit for longer: it is kept until the tag is deleted.",
        )
    return time


def list_holds(objects: Objects) -> Listing[Hold]:
    """Every hold that is stored and can be understood, oldest first."""
    return HoldListing(hold for _, hold in readable_holds(objects) if hold is not None)


def release_hold(objects: Objects, hold_id: str) -> None:
    """Release any hold; what only it kept may be cleaned up from now on.

    Raises:
        NotFoundError: there is no such hold.
    """
    known = [stored for stored, _ in readable_holds(objects)]
    if hold_id not in known:
        hint = did_you_mean(hold_id, known)
        raise errors.NotFoundError(
            f"{objects.root} has no hold {shown(hold_id)}" + (f" ({hint})" if hint else ""),
            next_step=f"Run `omnigraph hold list {objects.root}`.",
        )
    remove_hold(objects, hold_id)
    reach("hold.post_release")
