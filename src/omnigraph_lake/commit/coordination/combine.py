"""Publishing other writers with our own: which of them, and on top of what.

A writer offers what it has staged, or reports to which versions it has moved its tables. One that
is about to publish commits offers for its own table above its version, each as a version of its
own, and takes reports as they are. One swap publishes all of them.

Invariant: nothing here decides. Each companion was validated on the pins in its own sidecar, and
the swap compares these, what its versions are based on, and that it has no decision, in the rows
that it is made from. What is wrong about a companion costs it a retry.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import repeat
from typing import TYPE_CHECKING, Final

from omnigraph_lake import names
from omnigraph_lake.commit.phases import Companion, Moved
from omnigraph_lake.commit.sidecar import (
    Offer,
    Sidecar,
    SidecarState,
    WriterKind,
    pending_sidecars,
    read_sidecars,
    replace_sidecar,
)
from omnigraph_lake.commit.table_moves import move_companions
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage.objects.documents import moment
from omnigraph_lake.storage.objects.location import Scheme
from omnigraph_lake.storage.objects.lru_cache import LruCache
from omnigraph_lake.storage.snapshot import Pin
from omnigraph_lake.storage.staging.changes import fragments_of_append

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from omnigraph_lake.commit.phases import Prepared, Staged, WriteRequest

_COMPANIONS_MAX: Final = 63
_LOOKS_AT_STORE_MAX: Final = 4
_LOOK_SECONDS: Final = 0.005
_PATIENCE_SECONDS_MAX: Final = 0.1
_YOUNG_PER_PATIENCE: Final = 4.0
_TABLES_KNOWN: Final = 256

_OWN: Final[LruCache[int]] = LruCache(_TABLES_KNOWN)
"""The version of a table that this process published last, if it did so alone."""


def offer_of(prepared: Prepared) -> Offer | None:
    """What another writer needs to publish the operation with its own; None if it cannot."""
    if prepared.inserted is None or len(prepared.changes) != 1 or prepared.pointed:
        return None
    change = prepared.changes[0]
    fragments = fragments_of_append(change)
    if fragments is None:
        return None
    return Offer(rows=change.rows_inserted, fragments=fragments, ids=prepared.inserted)


def is_shared(write: WriteRequest, staged: Staged) -> bool:
    """Whether others seem to write a table too: its pin is not what this process published last."""
    return any(
        _OWN.get(_own_key(write, change.table_key)) != change.entry.version
        for change in staged.prepared.changes
    )


def remember_own(write: WriteRequest, moved: Moved, company: Company | None) -> None:
    """Remember what was published, for `is_shared`, unless other writers of the table were seen."""
    rivals = set[str]() if company is None else company.rivals
    for row in moved.versions:
        is_own = row.table_key not in rivals
        _OWN.keep(_own_key(write, row.table_key), row.version if is_own else 0)


def _own_key(write: WriteRequest, table_key: str) -> Hashable:
    incarnation = None if write.branch is None else write.branch.incarnation
    return (write.objects.root.uri, incarnation, table_key)


def report(write: WriteRequest, moved: Moved) -> None:
    """Tell other writers to which versions our tables were moved, so that they may publish them.

    Steps: combine.post_report
    """
    own = moved.armed.sidecar
    with suppress(OmnigraphError):  # then no other writer publishes it
        replace_sidecar(write.objects, replace(own, made=moved.versions, offer=None))
    reach("combine.post_report")


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """The other writers of a branch, as one that is about to publish sees them."""

    write: WriteRequest
    own: Sidecar
    settled: set[str] = field(default_factory=set)
    """Paths of offers for our table, and of reports: each was taken, or cannot be."""
    rivals: set[str] = field(default_factory=set)
    """Tables that others write, too."""

    def take_offers(self, moved: Moved) -> Moved:
        """Commit what other writers of the table offer on top of our version.

        Each must have been validated on the pins that we were, and insert other ids than those
        before it. Those that are staging for the table are waited for a little while: without us
        they would be staged again.

        Steps: combine.post_collect, combine.post_commit
        """
        ids = moved.armed.staged.prepared.inserted
        if ids is None or len(moved.versions) != 1:
            return moved
        for _ in self._looks():
            sidecars = self.look()
            joining: list[Sidecar] = []
            for sidecar in sidecars:
                room = _COMPANIONS_MAX - len(moved.companions) - len(joining)
                if room and sidecar.offer is not None and _may_join(sidecar, self.own, ids):
                    joining.append(sidecar)
                    ids |= sidecar.offer.ids
            if joining:
                reach("combine.post_collect")
                stacked = self._stack(moved, joining)
                is_short = len(stacked.companions) < len(moved.companions) + len(joining)
                moved = stacked
                if is_short:
                    break
            if not any(
                _is_about_to_offer(sidecar, self.own) and self._is_young(sidecar)
                for sidecar in sidecars
            ):
                break
        return moved

    def take_reports(self, moved: Moved, others: tuple[Sidecar, ...] | None) -> Moved:
        """Add writers of other tables that have moved these, and wait to be published.

        A change of the schema takes none: they were validated against the schema before it.
        `others` are the sidecars that were seen just now. Otherwise those that are about to report
        are waited for a little while: they would need another swap.

        Steps: combine.post_collect
        """
        if self.own.schema_move is not None:
            return moved
        reports: dict[str, Sidecar] = {}
        for _ in self._looks() if others is None else range(1):
            sidecars = self.look() if others is None else others
            reports |= {sidecar.path: sidecar for sidecar in sidecars if _is_report(sidecar)}
            self.settled.update(reports)
            if not any(
                _is_about_to_report(sidecar, self.own) and self._is_young(sidecar)
                for sidecar in sidecars
            ):
                break
        joining = [
            Companion(sidecar=sidecar, versions=sidecar.made, expected=sidecar.pins)
            for sidecar in reports.values()
            if _is_plain(sidecar) and _is_of_branch(sidecar, self.own)
        ]
        if not joining:
            return moved
        reach("combine.post_collect")
        room = max(0, _COMPANIONS_MAX - len(moved.companions))
        return replace(moved, companions=(*moved.companions, *joining[:room]))

    def _looks(self) -> Iterator[None]:
        """Times to look at the others."""
        clock = self.write.clock
        if self.write.objects.root.scheme is not Scheme.LOCAL:
            yield from repeat(None, _LOOKS_AT_STORE_MAX)
            return
        end = clock.now() + timedelta(seconds=self._patience)
        yield
        while clock.now() < end:
            clock.sleep(_LOOK_SECONDS)
            yield

    @property
    def _patience(self) -> float:
        """How long others may need to come as far as we have: as long as we took."""
        took = moment(self.own.beat_at) - moment(self.own.started_at)
        return min(took.total_seconds(), _PATIENCE_SECONDS_MAX)

    def _is_young(self, sidecar: Sidecar) -> bool:
        """Whether it began so short a time ago that it is worth waiting for."""
        if self.write.objects.root.scheme is not Scheme.LOCAL:
            return True
        age = (self.write.clock.now() - moment(sidecar.started_at)).total_seconds()
        return age < _YOUNG_PER_PATIENCE * self._patience

    def look(self) -> tuple[Sidecar, ...]:
        """The sidecars of others on the branch that may still join.

        On a file system only those of this host: our sync covers what it wrote, and nothing else.
        """
        paths = [
            path
            for path in pending_sidecars(self.write.objects)
            if path != self.own.path
            and path not in self.settled
            and names.sidecar_owner(path)[1] == self.own.incarnation
        ]
        is_local = self.write.objects.root.scheme is Scheme.LOCAL
        try:
            sidecars = read_sidecars(self.write.objects, paths)
        except OmnigraphError:
            return ()  # the sweep reports one that cannot be read
        for sidecar in sidecars:
            self.rivals.update(() if sidecar.touched is None else sidecar.touched.written)
        self.settled.update(
            sidecar.path
            for sidecar in sidecars
            if sidecar.offer is not None and sidecar.tables == self.own.tables
        )
        return tuple(
            sidecar for sidecar in sidecars if not is_local or sidecar.host == self.own.host
        )

    def _stack(self, moved: Moved, joining: Iterable[Sidecar]) -> Moved:
        """Commit offers above the newest version that we made, one above the other."""
        (change,) = moved.armed.staged.prepared.changes
        (below,) = moved.companions[-1].versions if moved.companions else moved.versions
        companions = list(moved.companions)
        for sidecar, version in move_companions(self.write.objects.root, change, below, joining):
            pin = Pin(below.version, below.fork)
            expected = {**sidecar.pins, version.table_key: pin}
            companions.append(Companion(sidecar=sidecar, versions=(version,), expected=expected))
            below = version
        return replace(moved, companions=tuple(companions))


def _is_about_to_offer(sidecar: Sidecar, own: Sidecar) -> bool:
    """Whether a writer of the same table has begun and is not armed yet."""
    written = frozenset(table.table_key for table in own.tables)
    return (
        sidecar.state is SidecarState.STAGING
        and sidecar.kind is WriterKind.WRITE
        and sidecar.touched is not None
        and sidecar.touched.written == written
    )


def _is_about_to_report(sidecar: Sidecar, own: Sidecar) -> bool:
    """Whether a small write to other tables is at work."""
    touched = sidecar.touched
    return (
        sidecar.kind in {WriterKind.WRITE, WriterKind.DELETE}
        and not sidecar.made
        and touched is not None
        and own.touched is not None
        and not touched.meets(own.touched)
    )


def _may_join(sidecar: Sidecar, own: Sidecar, ids: frozenset[str]) -> bool:
    """Whether an offer is valid on top of our rows and of those taken along, with these ids."""
    assert sidecar.offer is not None
    return (
        sidecar.state is SidecarState.ARMED
        and sidecar.tables == own.tables
        and _is_of_branch(sidecar, own)
        and _is_plain(sidecar)
        and not sidecar.offer.ids & ids
    )


def _is_report(sidecar: Sidecar) -> bool:
    """Whether it tells of a version for each of its tables, above the pin of that."""
    pins = {table.table_key: Pin(table.pin, table.fork) for table in sidecar.tables}
    return (
        bool(sidecar.made)
        and sidecar.state is SidecarState.ARMED
        and [row.table_key for row in sidecar.made] == list(pins)
        and all(
            row.branch == sidecar.branch
            and row.fork == pins[row.table_key].fork
            and row.version > pins[row.table_key].version
            for row in sidecar.made
        )
    )


def _is_of_branch(sidecar: Sidecar, own: Sidecar) -> bool:
    """Whether it is of the same branch, and was validated against the same schema."""
    theirs = (sidecar.branch, sidecar.incarnation, sidecar.schema_hash)
    return theirs == (own.branch, own.incarnation, own.schema_hash)


def _is_plain(sidecar: Sidecar) -> bool:
    """Whether it publishes rows alone: a merge or a change of the schema does more."""
    return not (
        sidecar.pointed
        or sidecar.merged is not None
        or sidecar.schema_move is not None
        or sidecar.kind.is_maintenance
    )
