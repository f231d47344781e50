"""Numbers the rows of a table by slots, which stay the same from commit to commit.

A `Layout` gives every row of the fragments it has met a place: the rows of its first fragments, the
base, and then those of fragments met later. A node has a slot, the place where its id was met
first. An update or a re-insertion writes the node to another place, but its slot stays, so what was
computed of slots is true of later versions too. A `TableSlots` tells which slots one version has
and at which places their values are.

Invariants:
- A place means the same row of the same file for as long as the layout exists.
- A slot of a node table means the same id, on every branch and in every version. Rows of edge
  tables have no identity beyond their place.
- No version has two rows of one slot: a table with such rows is damaged, and has no slots here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph_lake import names
from omnigraph_lake.engine.frames import Mask, Positions
from omnigraph_lake.storage.objects.lru_cache import LruCache

if TYPE_CHECKING:
    from omnigraph_lake.storage.lance.fragments import Fragment, Offsets, PinnedFragments

FindPlaces: TypeAlias = Callable[[Sequence[str]], Positions]
"""The places in the base that have some ids; -1 for an id that is not there."""

CHANGES_LEAST: Final = 1 << 10
CHANGES_CHEAP: Final = 1 << 16
_CHANGED_SHARE: Final = 10
_VERSIONS_KEPT: Final = 4
_DELETIONS_KEPT: Final = 256
_NOTHING: Final = np.zeros(0, dtype=np.int64)


class DuplicateRow(Exception):  # noqa: N818 - a signal between two modules, never an answer
    """Two rows of one version have the same id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extent:
    """The places of a fragment; `slots` is None if each of its rows has the slot of its place."""

    start: int
    rows: int
    slots: Positions | None


@dataclass(frozen=True, kw_only=True)
class TableSlots:
    """The rows of one version of a table."""

    layout: Layout
    size: int
    """How many slots the layout had given; those of later rows are not in this version."""
    rows: int
    moved: Positions = field(repr=False)
    """Slots whose values are at another place, in order."""
    moved_places: Positions = field(repr=False)
    deleted: Mapping[tuple[Hashable, ...], Offsets] = field(repr=False)
    """The deleted offsets of every fragment of the version."""
    deletions: Mapping[tuple[Hashable, ...], Hashable] = field(repr=False)

    @cached_property
    def live(self) -> Mask:
        """Which slots have a row."""
        return self.layout.live(self.deleted, self.size)

    @property
    def is_base(self) -> bool:
        """Whether it is the version that the layout was made of."""
        base = {fragment.files: fragment.deletions for fragment in self.layout.base}
        return self.size == self.layout.base_rows and self.deletions == base

    @property
    def positions(self) -> Positions:
        """The slots that have a row, in order."""
        if self.rows == self.size:
            return np.arange(self.size, dtype=np.int64)
        return np.flatnonzero(self.live)

    def places(self, slots: Positions) -> Positions:
        """Where the values of these slots are."""
        if not len(self.moved):
            return slots
        at = np.minimum(np.searchsorted(self.moved, slots), len(self.moved) - 1)
        return np.where(self.moved[at] == slots, self.moved_places[at], slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotChanges:
    """Places that one version has and another does not."""

    removed: Positions
    added: Positions

    @property
    def count(self) -> int:
        return len(self.removed) + len(self.added)


class Layout:
    """The places and slots of a table; thread-safe.

    `by_id` says that rows with the same id share a slot. `born_dead` are deleted rows of the base,
    whose ids another row of the base may have.
    """

    def __init__(
        self,
        base: Sequence[Fragment],
        *,
        by_id: bool,
        born_dead: Mapping[tuple[Hashable, ...], Offsets],
    ) -> None:
        self.base = tuple(base)
        self.by_id = by_id
        self.born_dead = born_dead
        self._lock = threading.RLock()
        self._extents: dict[tuple[Hashable, ...], _Extent] = {}
        self._slots_by_id: dict[str, int] = {}
        self._versions: LruCache[TableSlots] = LruCache(_VERSIONS_KEPT)
        self._deleted: LruCache[Offsets] = LruCache(_DELETIONS_KEPT)
        self.size = 0
        for fragment in base:
            self._append(fragment, None)
        self.base_rows = self.size
        self.changes_most = changes_most(self.base_rows)

    @property
    def first(self) -> TableSlots:
        """The version that the layout was made of."""
        return TableSlots(
            layout=self,
            size=self.base_rows,
            rows=sum(fragment.rows - fragment.deleted_rows for fragment in self.base),
            moved=_NOTHING,
            moved_places=_NOTHING,
            deleted={
                fragment.files: self.born_dead.get(fragment.files, _NOTHING)
                for fragment in self.base
            },
            deletions={fragment.files: fragment.deletions for fragment in self.base},
        )

    def distance(self, fragments: Sequence[Fragment]) -> int:
        """How many rows of some fragments, and of the base, are not in the other."""
        base = {fragment.files: fragment.rows for fragment in self.base}
        strange = sum(fragment.rows for fragment in fragments if fragment.files not in base)
        common = sum(fragment.rows for fragment in fragments if fragment.files in base)
        return strange + self.base_rows - common

    def fits(self, fragments: Sequence[Fragment]) -> bool:
        """Whether a version is near enough to the base to be numbered by this layout."""
        unmet = sum(fragment.rows for fragment in fragments if fragment.files not in self._extents)
        room = self.base_rows + 2 * self.changes_most - self.size
        return self.distance(fragments) <= self.changes_most and unmet <= room

    def slots_of(self, ids: Sequence[str], find: FindPlaces) -> Positions:
        """The slots of ids, whether or not a version has them; -1 for an id that was never met."""
        return self._find(ids, find)

    def later_slots_of(self, ids: Sequence[str]) -> Positions:
        """The same of ids that are not in the base."""
        return np.array([self._slots_by_id.get(text, -1) for text in ids], dtype=np.int64)

    def at(self, version: Hashable, pinned: PinnedFragments, find: FindPlaces) -> TableSlots:
        """The slots of a version.

        Raises:
            DuplicateRow: the version has two rows with one id.
        """
        known_slots = self._versions.get(version)
        if known_slots is None:
            with self._lock:
                known_slots = self._number(pinned, find)
            self._versions.keep(version, known_slots)
        return known_slots

    def extent_of(self, files: tuple[Hashable, ...]) -> tuple[int, int]:
        """The first place of a fragment, and how many it has."""
        extent = self._extents[files]
        return extent.start, extent.rows

    def slots_at(self, places: Positions) -> Positions:
        """The slots of the rows at some places."""
        if not self.by_id:
            return places
        slots = places.copy()
        with self._lock:
            extents = list(self._extents.values())
        for extent in extents:
            if extent.slots is not None:
                inside = (places >= extent.start) & (places < extent.start + extent.rows)
                slots[inside] = extent.slots[places[inside] - extent.start]
        return slots

    def live(self, deleted: Mapping[tuple[Hashable, ...], Offsets], size: int) -> Mask:
        """Which slots have a row, in a version with these fragments."""
        mask = np.zeros(size, dtype=np.bool_)
        extents = [(self._extents[files], offsets) for files, offsets in deleted.items()]
        for extent, offsets in extents:
            if extent.slots is None:
                mask[extent.start : extent.start + extent.rows] = True
                mask[extent.start + offsets] = False
        for extent, offsets in extents:
            if extent.slots is not None:
                mask[extent.slots[_others(offsets, extent.rows)]] = True
        return mask

    def _number(self, pinned: PinnedFragments, find: FindPlaces) -> TableSlots:
        unmet = [fragment for fragment in pinned.fragments if fragment.files not in self._extents]
        if unmet:
            self._meet(pinned, unmet, find)
        deleted = {fragment.files: self._offsets(pinned, fragment) for fragment in pinned.fragments}
        self._name_revived(pinned, deleted, find)
        moved: list[Positions] = [_NOTHING]
        moved_places: list[Positions] = [_NOTHING]
        for files, gone in deleted.items():
            extent = self._extents[files]
            if extent.slots is not None:
                offsets = _others(gone, extent.rows)
                slots, places = extent.slots[offsets], offsets + extent.start
                moved.append(slots[slots != places])
                moved_places.append(places[slots != places])
        slots, places = np.concatenate(moved), np.concatenate(moved_places)
        order = np.argsort(slots)
        numbered = TableSlots(
            layout=self,
            size=self.size,
            rows=sum(fragment.rows - fragment.deleted_rows for fragment in pinned.fragments),
            moved=slots[order],
            moved_places=places[order],
            deleted=deleted,
            deletions={fragment.files: fragment.deletions for fragment in pinned.fragments},
        )
        if self.by_id and int(np.count_nonzero(numbered.live)) != numbered.rows:
            raise DuplicateRow
        return numbered

    def _offsets(self, pinned: PinnedFragments, fragment: Fragment) -> Offsets:
        if fragment.deletions is None:
            return _NOTHING
        key = (fragment.files, fragment.deletions)
        offsets = self._deleted.get(key)
        if offsets is None:
            offsets = pinned.read_deletions(fragment)
            self._deleted.keep(key, offsets)
        return offsets

    def _meet(self, pinned: PinnedFragments, unmet: Sequence[Fragment], find: FindPlaces) -> None:
        if not self.by_id:
            for fragment in unmet:
                self._append(fragment, None)
            return
        batches = list(pinned.values(unmet, [names.ID_COLUMN]))
        ids = pa.chunked_array([batch.column(0) for batch in batches], pa.string()).combine_chunks()
        begin = 0
        for fragment in unmet:
            fragment_ids = ids.slice(begin, fragment.rows)
            begin += fragment.rows
            slots = self._name_rows(fragment_ids.to_pylist(), self.size, find)
            own = np.array_equal(slots, np.arange(self.size, self.size + fragment.rows))
            self._append(fragment, None if own else slots)

    def _name_rows(self, ids: Sequence[str], start: int, find: FindPlaces) -> Positions:
        """The slots of rows at the places from `start` on; new ids get those of their places."""
        slots = self._find(ids, find)
        for offset in np.flatnonzero(slots < 0).tolist():
            slots[offset] = self._slots_by_id.setdefault(ids[offset], start + offset)
        return slots

    def _find(self, ids: Sequence[str], find: FindPlaces) -> Positions:
        slots = self.later_slots_of(ids)
        unknown = np.flatnonzero(slots < 0)
        if len(unknown):
            slots[unknown] = find([ids[place] for place in unknown.tolist()])
        return slots

    def _name_revived(
        self,
        pinned: PinnedFragments,
        deleted: Mapping[tuple[Hashable, ...], Offsets],
        find: FindPlaces,
    ) -> None:
        """Rows of the base that were deleted when it was made, and that an older version has.

        A later row of the base may have their id, so they are numbered by it, like a new row.
        """
        if not self.by_id:
            return
        for fragment in pinned.fragments:
            born_dead = self.born_dead.get(fragment.files, _NOTHING)
            extent = self._extents[fragment.files]
            if extent.slots is not None or not len(born_dead):
                continue
            if np.isin(born_dead, deleted[fragment.files], assume_unique=True).all():
                continue
            batches = pinned.values([fragment], [names.ID_COLUMN])
            ids = pa.chunked_array([batch.column(0) for batch in batches]).combine_chunks()
            slots = np.arange(extent.start, extent.start + extent.rows, dtype=np.int64)
            dead_ids = ids.take(pa.array(born_dead)).to_pylist()
            known_slots = self._find(dead_ids, find)
            for place, offset in enumerate(born_dead.tolist()):
                own = int(extent.start + offset)
                slot = int(known_slots[place])
                if slot < 0:
                    slot = self._slots_by_id.setdefault(dead_ids[place], own)
                slots[offset] = slot
            self._extents[fragment.files] = _Extent(
                start=extent.start, rows=extent.rows, slots=slots
            )

    def _append(self, fragment: Fragment, slots: Positions | None) -> None:
        self._extents[fragment.files] = _Extent(start=self.size, rows=fragment.rows, slots=slots)
        self.size += fragment.rows


def changes_most(rows: int) -> int:
    """How many rows may differ from a base of this size before a new one is made."""
    return max(CHANGES_LEAST, min(CHANGES_CHEAP, rows), rows // _CHANGED_SHARE)


def changes_between(before: TableSlots, after: TableSlots) -> SlotChanges:
    """The places that two versions in one layout do not share, found without their values."""
    layout = before.layout
    assert layout is after.layout
    removed: list[Positions] = [_NOTHING]
    added: list[Positions] = [_NOTHING]
    for files, deletions in before.deletions.items():
        start, rows = layout.extent_of(files)
        if files not in after.deletions:
            removed.append(_others(before.deleted[files], rows) + start)
        elif after.deletions[files] != deletions:
            gone, there = after.deleted[files], before.deleted[files]
            removed.append(np.setdiff1d(gone, there, assume_unique=True) + start)
            added.append(np.setdiff1d(there, gone, assume_unique=True) + start)
    for files in after.deletions:
        if files not in before.deletions:
            start, rows = layout.extent_of(files)
            added.append(_others(after.deleted[files], rows) + start)
    return SlotChanges(removed=np.concatenate(removed), added=np.concatenate(added))


def _others(offsets: Offsets, rows: int) -> Positions:
    """The offsets of a fragment that are not among these."""
    if not len(offsets):
        return np.arange(rows, dtype=np.int64)
    kept = np.ones(rows, dtype=np.bool_)
    kept[offsets] = False
    return np.flatnonzero(kept)
