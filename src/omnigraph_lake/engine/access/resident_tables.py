"""Keeps versions of tables in memory: their slots, columns and ids.

A table has few layouts in a process, and its versions share them: a version is numbered by the
layout whose base it differs least from. Columns of the base are cached for the layout, so a commit
reads the rows it wrote and nothing else.

Invariants:
- A cached column is named by the files its values are in, so it is never stale, only unused.
- Values do not depend on the layout that numbers them. With `OMNIGRAPH_OVERLAY=off` every version
  has a layout of its own, as if nothing survived a commit; tests compare both.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake import names
from omnigraph_lake.engine.access.access import taken
from omnigraph_lake.engine.access.column_cache import (
    Arrays,
    ColumnCache,
    has_order,
    place_of,
    sort_places,
)
from omnigraph_lake.engine.access.slots import DuplicateRow, Layout, TableSlots
from omnigraph_lake.engine.access.stored_bases import TableDescription, read_bases
from omnigraph_lake.engine.frames import ABSENT, Column, Positions, different, whole
from omnigraph_lake.engine.run import too_large
from omnigraph_lake.storage.lance.fragments import Fragment, PinnedFragments, fragments_of
from omnigraph_lake.storage.lance.tables import rows_at
from omnigraph_lake.storage.objects.background import WORKER
from omnigraph_lake.storage.objects.location import Verify
from omnigraph_lake.storage.objects.lru_cache import LruCache

if TYPE_CHECKING:
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry

OVERLAY_VARIABLE: Final = "OMNIGRAPH_OVERLAY"
Check: TypeAlias = Callable[[], None]
"""Called between two portions: it ends a run that was cancelled."""

_VALUES: Final = "values"
_LAYOUTS_PER_TABLE: Final = 4
_TABLES_KEPT: Final = 256
_VERSIONS_KEPT: Final = 32
_SLICES_MOST: Final = 1024
"""A column with more gaps than this is copied, because Arrow works chunk by chunk."""
_SOUGHT_BY_SCANS: Final = 4
_SOUGHT_BY_ORDER: Final = 512
"""Up to so many ids are sought one by one; more of them are sought in one pass over all ids."""
_PLACES_KEPT: Final = 1 << 16
_LOOKED_UP_MOST: Final = 256
_WAITED_FOR_ROWS: Final = 1 << 17
"""A column of fewer rows is read at once by the query that needs it."""
_READ_TOGETHER: Final = 1 << 14
"""Of so many rows columns are read by one scan: planning one costs more than reading them."""
_ID: Final = names.ID_COLUMN
_ENDS: Final = (names.SOURCE_COLUMN, names.TARGET_COLUMN)
_EDGE_IDENTITY: Final = (_ID, *_ENDS, *names.END_TYPE_COLUMNS.values())


class LayoutUnreadable(Exception):  # noqa: N818 - a signal within this module, never an answer
    """The ids of a layout are not in memory, and the version lacks some of its files."""


def version_of(entry: TableEntry) -> tuple[Hashable, ...]:
    """Identifies a version of a table among all others of its root."""
    return entry.location, entry.fork, entry.version, entry.made_at


def shares_layouts() -> bool:
    """Whether versions of a table share what is in memory."""
    return os.environ.get(OVERLAY_VARIABLE) != "off"


@dataclass(frozen=True, eq=False, kw_only=True)
class _TableLayout:
    """A layout with its number in this process, which names it in the cache."""

    layout: Layout
    token: int
    cache: ColumnCache
    _known_places: dict[str, int] = field(default_factory=dict, repr=False)
    """The places of ids that were sought last: each commit asks for those of all changed edges."""

    def base_key(self, pinned: PinnedFragments, name: str) -> Hashable:
        """Names a column of the base in the cache, by the files that its values are in."""
        placements = pinned.placements(name)
        placed = tuple(
            None if fragment is None else placements[fragment.fragment_id]
            for fragment in self._find_present(pinned)
        )
        return ("column", self.token, name, placed)

    def base_column(
        self, pinned: PinnedFragments, name: str, key: Hashable, check: Check
    ) -> Column:
        """A column of the base, by place; null in fragments that the version has not."""
        return self.cache.get(
            key, lambda: self._read(pinned, self._find_present(pinned), (name,), check)[name]
        )[_VALUES]

    def _find_present(self, pinned: PinnedFragments) -> list[Fragment | None]:
        """The fragments of the base in a version."""
        by_files = {fragment.files: fragment for fragment in pinned.fragments}
        return [by_files.get(fragment.files) for fragment in self.layout.base]

    def base_ids(self, pinned: PinnedFragments, check: Check) -> Column:
        """The ids of the base; null where a row was deleted when the layout was made."""
        key = ("ids", self.token)
        arrays = self.cache.find(key)
        if arrays is None:
            known_files = {fragment.files for fragment in pinned.fragments}
            if any(fragment.files not in known_files for fragment in self.layout.base):
                raise LayoutUnreadable
            arrays = self.cache.get(key, lambda: self._read_ids(pinned, check))
        return arrays[_VALUES]

    def find(self, pinned: PinnedFragments, ids: Sequence[str], check: Check) -> Positions:
        """The places in the base that have some ids."""
        known_places = self._known_places
        places = {text: known_places.get(text) for text in ids}
        unknown = [text for text, place in places.items() if place is None]
        if unknown:
            new_places = self._search(pinned, unknown, check)
            places |= new_places
            if len(known_places) + len(new_places) > _PLACES_KEPT:
                known_places.clear()
            if len(new_places) <= _PLACES_KEPT:
                known_places.update(new_places)
        return np.array([places[text] for text in ids], dtype=np.int64)

    def _search(self, pinned: PinnedFragments, ids: Sequence[str], check: Check) -> dict[str, int]:
        base_ids, key = self.base_ids(pinned, check), ("ids", self.token)
        few = _SOUGHT_BY_ORDER if has_order(key, self.cache) else _SOUGHT_BY_SCANS
        if len(ids) <= few:
            places = {wanted: place_of(wanted, base_ids, key, self.cache) for wanted in ids}
            return {text: ABSENT if place is None else place for text, place in places.items()}
        which = whole(pc.index_in(base_ids, value_set=pa.array(ids, pa.string())))
        rows = np.flatnonzero(which.is_valid().to_numpy(zero_copy_only=False))
        texts = base_ids.take(pa.array(rows)).to_pylist()
        return dict.fromkeys(ids, ABSENT) | dict(zip(texts, rows.tolist(), strict=True))

    def _read_ids(self, pinned: PinnedFragments, check: Check) -> Arrays:
        ids = self.base_column(pinned, _ID, self.base_key(pinned, _ID), check)
        born_dead = [
            offsets + self.layout.extent_of(files)[0]
            for files, offsets in self.layout.born_dead.items()
        ]
        if sum(map(len, born_dead)):
            alive = np.ones(len(ids), dtype=np.bool_)
            alive[np.concatenate(born_dead)] = False
            ids = pc.if_else(pa.array(alive), ids, pa.scalar(None, ids.type))
        return {_VALUES: _contiguous(ids)}

    def read_together(
        self, pinned: PinnedFragments, keys: Mapping[str, Hashable], check: Check
    ) -> None:
        """Read columns of the base that are not in memory by one scan."""
        columns = self._read(pinned, self._find_present(pinned), tuple(keys), check)
        for name, arrays in columns.items():
            self.cache.put(keys[name], arrays, seconds=0.0)

    def _read(
        self,
        pinned: PinnedFragments,
        present: Sequence[Fragment | None],
        columns: Sequence[str],
        check: Check,
    ) -> dict[str, Arrays]:
        kinds = {name: pinned.column_type(name) for name in columns}
        chunks: dict[str, list[pa.Array]] = {name: [] for name in columns}
        size = 0
        for is_absent, group in itertools.groupby(
            zip(self.layout.base, present, strict=True), key=lambda pair: pair[1] is None
        ):
            fragments = [here or there for there, here in group]
            if is_absent:
                rows = sum(fragment.rows for fragment in fragments)
                for name, kind in kinds.items():
                    chunks[name].append(pa.nulls(rows, kind))
                continue
            for batch in pinned.values(fragments, columns):
                check()
                size += batch.nbytes
                if size > self.cache.limit_bytes:
                    what = f"column {columns[0]!r} of {pinned.entry.table_key}"
                    raise too_large(what, self.cache.limit_bytes)
                for name, values in zip(columns, batch.columns, strict=True):
                    chunks[name].append(values)
        return {
            name: {_VALUES: _contiguous(pa.chunked_array(chunks[name], type=kind))}
            for name, kind in kinds.items()
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class NumberedTable:
    """One version of a table, its rows numbered by slots."""

    pinned: PinnedFragments
    slots: TableSlots
    version: tuple[Hashable, ...]
    _table_layout: _TableLayout
    _tails: dict[str, Column] = field(default_factory=dict, repr=False)
    _base_keys: dict[str, Hashable] = field(default_factory=dict, repr=False)
    _expected: set[str] = field(default_factory=set, repr=False)

    def expect(self, columns: Iterable[str]) -> None:
        """Say which columns will be read next, so that those of a small table are read at once."""
        self._expected.update(columns)

    def column(self, name: str, check: Check) -> Column:
        """A column of all rows, in the order of their slots."""
        slots, base_rows = self.slots, self.slots.layout.base_rows
        base = self._base(name, check)
        if slots.rows == slots.size == base_rows and not len(slots.moved):
            return base
        inside = slots.moved < base_rows
        dead = np.flatnonzero(~slots.live[:base_rows])
        gaps = np.sort(np.concatenate([dead, slots.moved[inside]]))
        if len(gaps) > _SLICES_MOST:
            key = ("live column", self.version, self._table_layout.token, name, base.type)
            return self._table_layout.cache.get(
                key, lambda: {_VALUES: whole(self.values(name, slots.positions, check))}
            )[_VALUES]
        moved, places = slots.moved[inside].tolist(), slots.moved_places[inside].tolist()
        place_by_slot = dict(zip(moved, places, strict=True))
        chunks: list[pa.Array] = []
        begin = 0
        for gap in gaps.tolist():
            chunks += _chunks(base.slice(begin, gap - begin))
            if gap in place_by_slot:
                place = np.array([place_by_slot[gap]], dtype=np.int64)
                chunks += _chunks(self._at(name, place, check))
            begin = gap + 1
        chunks += _chunks(base.slice(begin))
        behind = np.flatnonzero(slots.live[base_rows:]) + base_rows
        chunks += _chunks(self._at(name, slots.places(behind), check))
        return pa.chunked_array([chunk for chunk in chunks if len(chunk)], type=base.type)

    def values(self, name: str, positions: Positions, check: Check) -> Column:
        """The values of a column at some slots; null at -1."""
        return self._at(name, self.slots.places(positions), check)

    def key_of(self, name: str) -> tuple[Hashable, ...]:
        """Names a column of this version in the order of its slots, which the layout decides."""
        return (*self.version, self._table_layout.token, name)

    @property
    def is_storable(self) -> bool:
        """Whether what is derived may be kept for other processes, which verify no more."""
        return self.pinned.root.verify is Verify.METADATA and shares_layouts()

    @property
    def description(self) -> TableDescription:
        """The version that its layout was made of."""
        first = self.slots.layout.first
        return TableDescription(
            location=self.pinned.entry.location,
            fragments=self.slots.layout.base,
            deleted=first.deleted,
        )

    def layout_of(self, described: TableDescription) -> Layout | None:
        """The layout that numbers this version, if it was made of the described one."""
        is_same = (
            described.location == self.pinned.entry.location
            and described.fragments == self.slots.layout.base
        )
        return self.slots.layout if is_same else None

    def has_column(self, name: str) -> bool:
        """Whether values of a column are found without reading them all."""
        key = ("ids", self._table_layout.token) if name == _ID else self._base_key(name)
        return key in self._table_layout.cache

    def read_ids(self, check: Check) -> None:
        """Have the ids of the base in memory and in order, if the version has all its files."""
        with suppress(LayoutUnreadable):
            base_ids = self._table_layout.base_ids(self.pinned, check)
            check()
            sort_places(base_ids, ("ids", self._table_layout.token), self._table_layout.cache)

    def positions_of(self, ids: Sequence[str], check: Check) -> Positions:
        """The slots of the rows that have some ids; -1 if there is none."""
        try:
            slots = self.slots.layout.slots_of(
                ids, lambda texts: self._table_layout.find(self.pinned, texts, check)
            )
        except LayoutUnreadable:
            return self._positions_among_own(pa.array(ids, pa.string()), check)
        return self._living(slots)

    def ends(self, ids: Column, check: Check) -> Positions:
        """The same for very many ids."""
        try:
            base_ids = self._table_layout.base_ids(self.pinned, check)
        except LayoutUnreadable:
            return self._positions_among_own(ids, check)
        places = pc.fill_null(pc.index_in(ids, value_set=base_ids), ABSENT)
        slots = whole(places).to_numpy().astype(np.int64)
        del places
        unknown = np.flatnonzero(slots == ABSENT)
        if len(unknown):
            texts = ids.take(pa.array(unknown)).to_pylist()
            slots[unknown] = self.slots.layout.later_slots_of(texts)
        return self._living(slots)

    def _positions_among_own(self, ids: Column, check: Check) -> Positions:
        """The same by the ids of the version alone, which can always be read."""
        own_ids = whole(self.column(_ID, check))
        rows = whole(pc.fill_null(pc.index_in(ids, value_set=own_ids), ABSENT)).to_numpy()
        positions: Positions = np.append(self.slots.positions, ABSENT)[rows]
        return positions

    def _living(self, slots: Positions) -> Positions:
        """The same slots, -1 for those that the version does not have."""
        there = (slots >= 0) & (slots < self.slots.size)
        there[there] = self.slots.live[slots[there]]
        return np.where(there, slots, ABSENT)

    def addresses(self, places: Positions) -> Positions:
        """The addresses of the rows at some places; -1 where the version has no fragment."""
        addresses = np.full(len(places), ABSENT, dtype=np.int64)
        for fragment in self.pinned.fragments:
            start, rows = self.slots.layout.extent_of(fragment.files)
            inside = (places >= start) & (places < start + rows)
            first = fragment.fragment_id << names.ADDRESS_BITS
            addresses[inside] = places[inside] - start + first
        return addresses

    def _base(self, name: str, check: Check) -> Column:
        key, cache = self._base_key(name), self._table_layout.cache
        if name in self._expected and key not in cache:
            self._expected.discard(name)
            if self.slots.layout.base_rows <= _READ_TOGETHER:
                # Other threads may add to the set meanwhile.
                others = {column: self._base_key(column) for column in tuple(self._expected)}
                unread = {column: k for column, k in others.items() if k not in cache}
                self._table_layout.read_together(self.pinned, {name: key, **unread}, check)
        return self._table_layout.base_column(self.pinned, name, key, check)

    def _base_key(self, name: str) -> Hashable:
        key = self._base_keys.get(name)
        if key is None:
            key = self._base_keys[name] = self._table_layout.base_key(self.pinned, name)
        return key

    def _base_values(self, name: str, places: Positions, check: Check) -> Column:
        """The values at places of the base; a few of them are no reason to wait for a column."""
        if (
            len(places) > _LOOKED_UP_MOST
            or self.slots.layout.base_rows < _WAITED_FOR_ROWS
            or not WORKER.is_allowed
            or self._base_key(name) in self._table_layout.cache
        ):
            return taken(self._base(name, check), places)
        kind, addresses = self.pinned.column_type(name), self.addresses(places)
        is_plain = pat.is_primitive(kind) or pat.is_string(kind)
        if not is_plain or (addresses == ABSENT).any():
            return taken(self._base(name, check), places)
        WORKER.submit(("read", self._table_layout.token, name), partial(self._base, name))
        rows = rows_at(self.pinned.root, self.pinned.entry, addresses, columns=[name])
        order = np.searchsorted(different(addresses), addresses)
        return whole(rows.column(name)).take(pa.array(order))

    def _at(self, name: str, places: Positions, check: Check) -> Column:
        base_rows = self.slots.layout.base_rows
        behind = places >= base_rows
        if not behind.any():
            return self._base_values(name, places, check)
        tail = self._tail(name, check)
        if behind.all():
            return taken(tail, places - base_rows)
        parts = [
            whole(self._base_values(name, places[~behind], check)),
            whole(taken(tail, places[behind] - base_rows)),
        ]
        order = np.empty(len(places), dtype=np.int64)
        order[~behind] = np.arange(len(parts[0]), dtype=np.int64)
        order[behind] = np.arange(len(parts[1]), dtype=np.int64) + len(parts[0])
        return pa.chunked_array(parts).take(pa.array(order))

    def _tail(self, name: str, check: Check) -> Column:
        """A column of the rows behind the base; null for rows that the version does not have."""
        tail = self._tails.get(name)
        if tail is None:
            tail = _contiguous(self._read_tail(name, check))
            self._tails[name] = tail
        return tail

    def _read_tail(self, name: str, check: Check) -> pa.ChunkedArray:
        layout, cache = self.slots.layout, self._table_layout.cache
        kind = self.pinned.column_type(name)
        placements = self.pinned.placements(name)
        starts = [
            (start, fragment)
            for fragment in self.pinned.fragments
            if (start := layout.extent_of(fragment.files)[0]) >= layout.base_rows
        ]
        root = self.pinned.root
        chunks: list[pa.Array] = []
        begin = layout.base_rows
        for start, fragment in sorted(starts, key=lambda pair: pair[0]):
            check()
            chunks.append(pa.nulls(start - begin, kind))
            placement = placements[fragment.fragment_id]
            values = cache.get(
                ("tail", root.uri, root.verify, fragment.files, placement),
                lambda fragment=fragment: self._read_fragment(name, fragment),  # type: ignore[misc]
            )[_VALUES]
            chunks += _chunks(values)
            begin = start + fragment.rows
        chunks.append(pa.nulls(self.slots.size - begin, kind))
        return pa.chunked_array(chunks, type=kind)

    def _read_fragment(self, name: str, fragment: Fragment) -> Arrays:
        """A column of a fragment; what is asked next, as the other end of edges, is read along."""
        columns: tuple[str, ...] = _ENDS if name in _ENDS else (name,)
        if name in self._expected and fragment.rows <= _READ_TOGETHER:
            columns = (name, *self._expected.difference(columns, self._tails))
        batches = list(self.pinned.values([fragment], columns))
        root, cache = self.pinned.root, self._table_layout.cache
        arrays: dict[str, Arrays] = {}
        for column in columns:
            chunks = [batch.column(column) for batch in batches]
            kind = self.pinned.column_type(column)
            arrays[column] = {_VALUES: _contiguous(pa.chunked_array(chunks, type=kind))}
            if column != name:
                placement = self.pinned.placements(column)[fragment.fragment_id]
                key = ("tail", root.uri, root.verify, fragment.files, placement)
                cache.put(key, arrays[column], seconds=0.0)
        return arrays[name]


@dataclass(slots=True)
class _Family:
    """The layouts of one table, the newest first."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    layouts: list[_TableLayout] = field(default_factory=list)


class TableLayouts:
    """The layouts of a process; thread-safe."""

    def __init__(self, *, reads_stored: bool = True) -> None:
        self._reads_stored = reads_stored
        self._lock = threading.Lock()
        self._families: OrderedDict[Hashable, _Family] = OrderedDict()
        self._numbered: LruCache[NumberedTable] = LruCache(_VERSIONS_KEPT)
        self._tokens = itertools.count()

    def clear(self) -> None:
        with self._lock:
            self._families.clear()
            self._numbered.clear()

    def knows(self, root: Root, entry: TableEntry, cache: ColumnCache) -> bool:
        """Whether any version of a table was numbered."""
        return (id(cache), root.uri, root.verify, entry.location) in self._families

    def table(
        self, root: Root, entry: TableEntry, cache: ColumnCache, check: Check
    ) -> NumberedTable:
        """A version of a table, numbered like other versions of it where possible."""
        shared = shares_layouts()
        version = (id(cache), root.uri, root.verify, *version_of(entry), shared)
        numbered = self._numbered.get(version)
        if numbered is not None:
            return numbered
        is_node = entry.table_key.startswith(names.NODE_PREFIX)
        pinned = fragments_of(root, entry, (_ID,) if is_node else _EDGE_IDENTITY)
        family = self._family(root, entry, cache, shared=shared)
        with family.lock:
            numbered = self._number(family.layouts, pinned, cache, version, check)
        self._numbered.keep(version, numbered)
        return numbered

    def _number(
        self,
        layouts: list[_TableLayout],
        pinned: PinnedFragments,
        cache: ColumnCache,
        version: tuple[Hashable, ...],
        check: Check,
    ) -> NumberedTable:
        near = [one for one in layouts if one.layout.fits(pinned.fragments)]
        near.sort(key=lambda one: one.layout.distance(pinned.fragments))
        for table_layout in near or self._read_newer(layouts, pinned, cache):
            try:
                return _number_by(table_layout, pinned, version, check)
            except LayoutUnreadable:
                layouts.remove(table_layout)
            except DuplicateRow:
                continue
        layout = Layout(
            pinned.fragments,
            by_id=pinned.entry.table_key.startswith(names.NODE_PREFIX),
            born_dead={
                fragment.files: pinned.read_deletions(fragment)
                for fragment in pinned.fragments
                if fragment.deletions is not None
            },
        )
        table_layout = _TableLayout(layout=layout, token=next(self._tokens), cache=cache)
        layouts.insert(0, table_layout)
        del layouts[_LAYOUTS_PER_TABLE:]
        return _number_by(table_layout, pinned, version, check)

    def _family(
        self, root: Root, entry: TableEntry, cache: ColumnCache, *, shared: bool
    ) -> _Family:
        if not shared:
            return _Family()
        name = (id(cache), root.uri, root.verify, entry.location)
        with self._lock:
            family = self._families.get(name)
            if family is None:
                family = self._families[name] = _Family()
                if self._reads_stored and root.verify is Verify.METADATA:
                    family.layouts += self._read_stored(root, entry, cache)
            self._families.move_to_end(name)
            while len(self._families) > _TABLES_KEPT:
                self._families.popitem(last=False)
            return family

    def _read_newer(
        self, layouts: list[_TableLayout], pinned: PinnedFragments, cache: ColumnCache
    ) -> list[_TableLayout]:
        """Layouts of arrays that were stored since the first version of the table was read."""
        root = pinned.root
        if not self._reads_stored or not shares_layouts() or root.verify is not Verify.METADATA:
            return []
        newer = [
            stored
            for stored in self._read_stored(root, pinned.entry, cache)
            if stored.layout.fits(pinned.fragments)
        ]
        layouts[:0] = newer
        del layouts[_LAYOUTS_PER_TABLE:]
        return newer

    def _read_stored(self, root: Root, entry: TableEntry, cache: ColumnCache) -> list[_TableLayout]:
        """The layouts that other processes kept arrays of."""
        layouts: dict[tuple[Fragment, ...], _TableLayout] = {}
        for stored in read_bases(root):
            described = stored.description
            for table in (described.edges, described.sources, described.targets):
                if table.location != entry.location or table.fragments in layouts:
                    continue
                is_node = entry.table_key.startswith(names.NODE_PREFIX)
                layout = Layout(table.fragments, by_id=is_node, born_dead=table.deleted)
                layouts[table.fragments] = _TableLayout(
                    layout=layout, token=next(self._tokens), cache=cache
                )
        return list(layouts.values())[:_LAYOUTS_PER_TABLE]


def _number_by(
    table_layout: _TableLayout,
    pinned: PinnedFragments,
    version: tuple[Hashable, ...],
    check: Check,
) -> NumberedTable:
    slots = table_layout.layout.at(
        version, pinned, lambda ids: table_layout.find(pinned, ids, check)
    )
    return NumberedTable(pinned=pinned, slots=slots, version=version, _table_layout=table_layout)


LAYOUTS: Final = TableLayouts()
"""The layouts of this process."""


def _chunks(column: Column) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _contiguous(column: Column) -> Column:
    """The column as one array if possible, so that a row is found without its chunk."""
    try:
        return whole(column)
    except pa.ArrowInvalid:
        return column
