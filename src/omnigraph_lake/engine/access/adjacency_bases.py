"""Builds the adjacency of edge types once, and derives that of later versions from it.

A base has the slots of both ends of every edge of one version, and from these the arrays of each
direction. Another version differs from it by edges that were removed or added: they are found by
comparing fragments and deletion files, and only the ids of added edges are read.

Invariants:
- A base of edges with several node types at an end has the edges between two of these types.
- Slots mean the same nodes in the base and in the version that is asked for, or the base is not
  used.
- An edge without both of its nodes is skipped. Where that could depend on changes of nodes alone,
  in a damaged graph, a base of the very version is built.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from omnigraph_lake import names
from omnigraph_lake.engine.access.adjacency import (
    Adjacency,
    EdgeChanges,
    Numbers,
    Patch,
    Steps,
    adjacency_of,
    distinct_steps,
    narrow,
    patch_of,
    sorted_steps,
)
from omnigraph_lake.engine.access.slots import SlotChanges, TableSlots, changes_between
from omnigraph_lake.engine.access.stored_bases import (
    BaseDescription,
    Place,
    StoredBase,
    read_bases,
    store,
)
from omnigraph_lake.engine.frames import ABSENT, Positions, different, ranges, whole
from omnigraph_lake.engine.run import too_large
from omnigraph_lake.query.ast import EdgeDirection
from omnigraph_lake.storage.lance.tables import row_parts, rows_at
from omnigraph_lake.storage.objects.background import WORKER
from omnigraph_lake.storage.objects.lru_cache import LruCache

if TYPE_CHECKING:
    from pathlib import Path

    from omnigraph_lake.engine.access.column_cache import Arrays, ColumnCache
    from omnigraph_lake.engine.access.resident_tables import Check, NumberedTable
    from omnigraph_lake.engine.access.step_ends import StepEnd
    from omnigraph_lake.engine.frames import Column

_ENDS: Final = (names.SOURCE_COLUMN, names.TARGET_COLUMN)
_BASES_PER_TYPE: Final = 4
_TYPES_KEPT: Final = 256
_DERIVED_KEPT: Final = 64
_LOOKUP_ROWS: Final = 1 << 21
_BYTES_PER_EDGE: Final = 48
"""While the adjacency is built; 8 of them are kept, and 8 more for each direction."""
_SAME: Final = "same"
FOLD_LEAST: Final = 1 << 16
_FOLD_SHARE: Final = 100
STORED_LEAST: Final = 100_000
"""An adjacency of fewer edges is built faster than it is worth a file."""
_ONE_WAY: Final = (EdgeDirection.FORWARD, EdgeDirection.BACKWARD)
_NOTHING: Final = np.zeros(0, dtype=np.int64)
_NO_STEPS: Final = Steps(_NOTHING, _NOTHING, _NOTHING)


class BaseLost(Exception):  # noqa: N818 - a signal within this module, never an answer
    """The arrays of a base left the cache while it was used."""


@dataclass(frozen=True, eq=False, kw_only=True)
class EdgeTables:
    """One version of an edge table and of the tables of its nodes.

    Of edges with several node types at an end only those count that lead from and to these tables.
    """

    edges: NumberedTable
    sources: NumberedTable
    targets: NumberedTable
    typed_ends: tuple[StepEnd, ...] = ()
    """The ends at which the edges name the type of the node."""

    @property
    def version(self) -> tuple[Hashable, ...]:
        return self.edges.version, self.sources.version, self.targets.version

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns that say which nodes an edge joins."""
        return *_ENDS, *(names.END_TYPE_COLUMNS[end.column] for end in self.typed_ends)

    def between(self, rows: pa.Table, places: Positions) -> tuple[pa.Table, Positions]:
        """The edges that lead from and to nodes of these tables, and their places."""
        for end in self.typed_ends:
            has_type = end.has_type(rows)
            assert has_type is not None
            rows = rows.filter(has_type)
            places = places[whole(has_type).to_numpy(zero_copy_only=False)]
        return rows, places


@dataclass(frozen=True, eq=False, kw_only=True)
class _Base:
    """The versions that arrays in the cache were built from; `token` names the arrays."""

    token: int
    edges: TableSlots
    sources: TableSlots
    targets: TableSlots
    has_dangling: bool
    """Whether the version had edges without both of their nodes."""
    stored: StoredBase | None
    """Where its arrays are kept between processes."""

    def numbers_like(self, tables: EdgeTables) -> bool:
        return (
            self.edges.layout is tables.edges.slots.layout
            and self.sources.layout is tables.sources.slots.layout
            and self.targets.layout is tables.targets.slots.layout
        )

    def is_here(self, cache: ColumnCache) -> bool:
        """Whether its arrays can be had."""
        return self.stored is not None or ("ends", self.token) in cache

    def ends(self, cache: ColumnCache) -> Arrays:
        """The slots of both ends of every edge.

        Raises:
            BaseLost: they left the cache.
        """
        key = ("ends", self.token)
        arrays = cache.find(key)
        if arrays is None:
            arrays = None if self.stored is None else self.stored.read("ends")
            if arrays is None:
                raise BaseLost
            cache.put(key, arrays, seconds=0.0)
        return arrays

    def adjacency(
        self, cache: ColumnCache, direction: EdgeDirection, *, distinct: bool
    ) -> Adjacency:
        """The steps of the base itself."""
        start, end = self.sources, self.targets
        if direction is EdgeDirection.BACKWARD:
            start, end = end, start

        def make() -> Arrays:
            ends = self.ends(cache)
            steps = sorted_steps(_numbers(ends["src"]), _numbers(ends["dst"]), direction)
            return _arrays(steps, start.size, end.size)

        def make_distinct() -> Arrays:
            adjacency = self.adjacency(cache, direction, distinct=False)
            if not adjacency.has_parallels:
                return {_SAME: pa.array([True])}
            return _arrays(distinct_steps(adjacency.all_steps()), start.size, end.size)

        if distinct:
            once = self._group(cache, "distinct", direction, make_distinct)
            if _SAME not in once:
                return _adjacency(once)
        return _adjacency(self._group(cache, "steps", direction, make))

    def _group(
        self, cache: ColumnCache, kind: str, direction: EdgeDirection, make: Callable[[], Arrays]
    ) -> Arrays:
        def read_or_make() -> Arrays:
            if self.stored is None:
                return make()
            group = f"{kind}-{direction.value}"
            arrays = self.stored.read(group)
            if arrays is None:
                arrays = make()
                self.stored.write(group, arrays)
            return arrays

        return cache.get((kind, self.token, direction), read_or_make)

    def edge_changes(
        self,
        tables: EdgeTables,
        changes: SlotChanges,
        cache: ColumnCache,
        check: Check,
    ) -> EdgeChanges | None:
        """Changes of edges with their nodes; None if changes of nodes count too."""
        removed = _NO_STEPS
        if len(changes.removed):
            ends = self.ends(cache)
            starts, targets = (
                _numbers(ends[name])[changes.removed].astype(np.int64) for name in ("src", "dst")
            )
            joined = (starts >= 0) & (targets >= 0)
            removed = Steps(starts[joined], targets[joined], changes.removed[joined])
        added = _read_steps(tables, changes.added, check)
        if (added.starts < 0).any() or (added.ends < 0).any():
            return None
        edge_changes = EdgeChanges(removed=removed, added=added)
        return None if self._leaves_dangling(tables, edge_changes, cache) else edge_changes

    def _leaves_dangling(
        self, tables: EdgeTables, changes: EdgeChanges, cache: ColumnCache
    ) -> bool:
        """Whether nodes that left had edges that stayed, or a node came that an edge missed."""
        gone_sources, new_sources = _find_gone(self.sources, tables.sources.slots)
        gone_targets, new_targets = _find_gone(self.targets, tables.targets.slots)
        if self.has_dangling and (new_sources or new_targets):
            return True
        if not len(gone_sources) and not len(gone_targets):
            return False
        forward = self.adjacency(cache, EdgeDirection.FORWARD, distinct=False)
        assert forward.arrivals is not None
        lost_starts = np.isin(changes.removed.starts, gone_sources)
        lost_ends = np.isin(changes.removed.ends, gone_targets)
        departures = forward.degrees(gone_sources[gone_sources < self.sources.size])
        arrivals = forward.arrivals[gone_targets[gone_targets < self.targets.size]]
        return bool(
            departures.sum() != np.count_nonzero(lost_starts)
            or arrivals.sum() != np.count_nonzero(lost_ends)
        )

    def leave(self, cache: ColumnCache) -> None:
        """Free the arrays of a base that is not used any more."""
        cache.discard(("ends", self.token))
        for direction in EdgeDirection:
            cache.discard(("steps", self.token, direction))
            cache.discard(("distinct", self.token, direction))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Derived:
    """A base and what changes of it make another version."""

    base: _Base
    changes: EdgeChanges

    @property
    def is_large(self) -> bool:
        """Whether a new base would pay."""
        return self.changes.count > max(FOLD_LEAST, self.base.edges.rows // _FOLD_SHARE)


@dataclass(slots=True)
class _Family:
    """The bases of one edge type, the newest first."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    bases: list[_Base] = field(default_factory=list)


class AdjacencyBases:
    """The bases of a process; thread-safe."""

    def __init__(self, place: Place = Place.CACHE) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._families: OrderedDict[Hashable, _Family] = OrderedDict()
        self._derived: LruCache[_Derived] = LruCache(_DERIVED_KEPT)
        self._patches: LruCache[tuple[Patch | None]] = LruCache(_DERIVED_KEPT)
        self._tokens = itertools.count()
        self._lost: set[Path] = set()
        """Stored bases that turned out to be damaged."""

    def clear(self) -> None:
        with self._lock:
            self._lost.clear()
            self._families.clear()
            self._derived.clear()
            self._patches.clear()

    def knows(self, name: Hashable, cache: ColumnCache) -> bool:
        """Whether any version of an edge type is in memory."""
        family = self._families.get(name)
        return family is not None and any(base.is_here(cache) for base in family.bases)

    def is_ready(
        self, name: Hashable, tables: EdgeTables, cache: ColumnCache, check: Check
    ) -> bool:
        """Whether an adjacency can be had without reading all edges."""
        try:
            return self._derive(name, tables, cache, check) is not None
        except BaseLost:
            return False

    def adjacency(
        self,
        name: Hashable,
        tables: EdgeTables,
        cache: ColumnCache,
        direction: EdgeDirection,
        *,
        distinct: bool,
        check: Check,
    ) -> Adjacency:
        """The steps over an edge type; its versions share `name`."""
        while True:
            try:
                return self._adjacency(name, tables, cache, direction, distinct, check)
            except BaseLost:
                self._forget_lost(name, tables, cache)

    def _forget_lost(self, name: Hashable, tables: EdgeTables, cache: ColumnCache) -> None:
        """Use no base any more whose arrays are neither in the cache nor in a file."""
        family = self._family(name, tables)
        with family.lock:
            for base in tuple(family.bases):
                try:
                    base.ends(cache)
                except BaseLost:
                    family.bases.remove(base)
                    if base.stored is not None:
                        self._lost.add(base.stored.folder)
        self._derived.clear()

    def _adjacency(
        self,
        name: Hashable,
        tables: EdgeTables,
        cache: ColumnCache,
        direction: EdgeDirection,
        distinct: bool,  # noqa: FBT001
        check: Check,
    ) -> Adjacency:
        derived = self._derive(name, tables, cache, check)
        if derived is None:
            family = self._family(name, tables)
            with family.lock:
                if not any(base.numbers_like(tables) for base in family.bases):
                    # Maintenance, or another process, may have stored one since.
                    family.bases += self._read_stored(tables)
                derived = self._derive(name, tables, cache, check)
                if derived is None:
                    derived = self._build(family, tables, cache, check)
        if derived.is_large and WORKER.is_allowed:
            large = derived
            WORKER.submit(
                ("fold", name), lambda check: self._fold(name, large, tables, cache, check)
            )
        base, changes = derived.base, derived.changes
        chosen = base.adjacency(cache, direction, distinct=distinct)
        key = (base.token, tables.version, direction, distinct)
        patched = self._patches.get(key) if changes.count else (None,)
        if patched is None:
            every = base.adjacency(cache, direction, distinct=False) if distinct else chosen
            patched = (patch_of(every, changes, direction, distinct=chosen if distinct else None),)
            self._patches.keep(key, patched)
        check()
        start, end = tables.sources, tables.targets
        if direction is EdgeDirection.BACKWARD:
            start, end = end, start
        return replace(
            chosen,
            patch=patched[0],
            starts_live=start.slots.rows,
            start_size=start.slots.size,
            end_size=end.slots.size,
        )

    def _derive(
        self, name: Hashable, tables: EdgeTables, cache: ColumnCache, check: Check
    ) -> _Derived | None:
        """The base that needs the fewest changes, with these; None if no base can be used."""
        derived = self._derived.get((name, tables.version))
        if (
            derived is not None
            and derived.base.numbers_like(tables)
            and derived.base.is_here(cache)
        ):
            return derived
        family = self._family(name, tables)
        nearest: tuple[int, _Base, SlotChanges] | None = None
        for base in tuple(family.bases):
            if not base.numbers_like(tables) or not base.is_here(cache):
                continue
            changes = changes_between(base.edges, tables.edges.slots)
            if changes.count > base.edges.layout.changes_most:
                continue
            if nearest is None or changes.count < nearest[0]:
                nearest = changes.count, base, changes
        if nearest is None:
            return None
        _, base, changes = nearest
        edge_changes = base.edge_changes(tables, changes, cache, check)
        if edge_changes is None:
            return None
        derived = _Derived(base=base, changes=edge_changes)
        self._derived.keep((name, tables.version), derived)
        return derived

    def _build(
        self, family: _Family, tables: EdgeTables, cache: ColumnCache, check: Check
    ) -> _Derived:
        began = time.perf_counter()
        ends = _resolve(tables, cache, check)
        seconds = time.perf_counter() - began
        base = self._make(tables, ends, cache, seconds)
        _insert(family, base, cache)
        return _Derived(base=base, changes=EdgeChanges(removed=_NO_STEPS, added=_NO_STEPS))

    def _make(
        self,
        tables: EdgeTables,
        slots: _SlotsOfEnds,
        cache: ColumnCache,
        seconds: float,
    ) -> _Base:
        """A base of slots of ends, which are put into the cache."""
        ends: Arrays = {
            "src": pa.array(narrow(slots.sources)),
            "dst": pa.array(narrow(slots.targets)),
        }
        base = _Base(
            token=next(self._tokens),
            edges=tables.edges.slots,
            sources=tables.sources.slots,
            targets=tables.targets.slots,
            has_dangling=slots.has_dangling,
            stored=self._store(tables, has_dangling=slots.has_dangling),
        )
        if base.stored is not None:
            base.stored.write("ends", ends)
        cache.put(("ends", base.token), ends, seconds=seconds)
        return base

    def _fold(
        self,
        name: Hashable,
        derived: _Derived,
        tables: EdgeTables,
        cache: ColumnCache,
        check: Check,
    ) -> None:
        """Make a base of a version from an older base and its changes; no id is read."""
        began = time.perf_counter()
        ends = derived.base.ends(cache)
        sources, targets = (
            _extend(_numbers(ends[end]), tables.edges.slots.size) for end in ("src", "dst")
        )
        gone, new = derived.changes.removed.edges, derived.changes.added
        sources[gone], targets[gone] = ABSENT, ABSENT
        sources[new.edges], targets[new.edges] = new.starts, new.ends
        check()
        slots = _SlotsOfEnds(
            sources=sources, targets=targets, has_dangling=derived.base.has_dangling
        )
        base = self._make(tables, slots, cache, time.perf_counter() - began)
        for direction in EdgeDirection:
            if ("steps", derived.base.token, direction) in cache:
                check()
                base.adjacency(cache, direction, distinct=True)
        family = self._family(name, tables)
        with family.lock:
            _insert(family, base, cache)

    def keep(self, tables: EdgeTables, cache: ColumnCache, check: Check) -> None:
        """Build and store a base of these versions, in both directions, unless one is stored."""
        stored = self._store(tables, has_dangling=False)
        groups = ("ends", *(f"distinct-{way.value}" for way in _ONE_WAY))
        if stored is None or all(stored.read(group) is not None for group in groups):
            return
        base = self._build(_Family(), tables, cache, check).base
        for direction in _ONE_WAY:
            base.adjacency(cache, direction, distinct=True)
        base.leave(cache)

    def _store(self, tables: EdgeTables, *, has_dangling: bool) -> StoredBase | None:
        """Where a base is kept, if that pays and the versions are those of their layouts."""
        numbered = (tables.edges, tables.sources, tables.targets)
        if tables.edges.slots.rows < STORED_LEAST or not all(
            table.is_storable and table.slots.is_base for table in numbered
        ):
            return None
        edges, sources, targets = (table.description for table in numbered)
        description = BaseDescription(
            edges=edges, sources=sources, targets=targets, has_dangling=has_dangling
        )
        return store(description, tables.edges.pinned.root, self._place)

    def _read_stored(self, tables: EdgeTables) -> Iterator[_Base]:
        """Bases that other processes kept, of layouts that these tables were given from them."""
        if not tables.edges.is_storable:
            return
        for stored in read_bases(tables.edges.pinned.root):
            if stored.folder in self._lost:
                continue
            described = stored.description
            layouts = (
                tables.edges.layout_of(described.edges),
                tables.sources.layout_of(described.sources),
                tables.targets.layout_of(described.targets),
            )
            if None not in layouts:
                edges, sources, targets = (layout.first for layout in layouts if layout)
                yield _Base(
                    token=next(self._tokens),
                    edges=edges,
                    sources=sources,
                    targets=targets,
                    has_dangling=described.has_dangling,
                    stored=stored,
                )

    def _family(self, name: Hashable, tables: EdgeTables) -> _Family:
        with self._lock:
            family = self._families.get(name)
            if family is None:
                family = self._families[name] = _Family()
                family.bases += self._read_stored(tables)
            self._families.move_to_end(name)
            while len(self._families) > _TYPES_KEPT:
                self._families.popitem(last=False)
            return family


def _insert(family: _Family, base: _Base, cache: ColumnCache) -> None:
    family.bases.insert(0, base)
    for old in family.bases[_BASES_PER_TYPE:]:
        old.leave(cache)
    del family.bases[_BASES_PER_TYPE:]


def _extend(numbers: Numbers, size: int) -> Positions:
    """The numbers and -1 behind them."""
    extended = np.full(size, ABSENT, dtype=np.int64)
    extended[: len(numbers)] = numbers
    return extended


BASES: Final = AdjacencyBases()
"""The bases of this process."""


def _arrays(steps: Steps, nodes: int, ends: int) -> Arrays:
    adjacency = adjacency_of(*steps, nodes=nodes, distinct=False)
    arrivals = np.bincount(adjacency.ends, minlength=ends)
    return {
        "offsets": pa.array(adjacency.offsets),
        "ends": pa.array(adjacency.ends),
        "edges": pa.array(adjacency.edges),
        "arrivals": pa.array(narrow(arrivals)),
    }


def _adjacency(arrays: Arrays) -> Adjacency:
    return Adjacency(
        offsets=_numbers(arrays["offsets"]),
        ends=_numbers(arrays["ends"]),
        edges=_numbers(arrays["edges"]),
        arrivals=_numbers(arrays["arrivals"]),
    )


def _numbers(array: Column) -> Numbers:
    numbers: Numbers = whole(array).to_numpy(zero_copy_only=True)
    return numbers


@dataclass(frozen=True, eq=False, kw_only=True)
class _SlotsOfEnds:
    """The slots of both ends of every edge, by place; -1 for a missing node or edge.

    An edge between other node types counts as missing.
    """

    sources: Numbers
    targets: Numbers
    has_dangling: bool


def _resolve(tables: EdgeTables, cache: ColumnCache, check: Check) -> _SlotsOfEnds:
    table = tables.edges
    layout, pinned = table.slots.layout, table.pinned
    size = table.slots.size * _BYTES_PER_EDGE
    if size > cache.limit_bytes:
        _, _, edge = pinned.entry.table_key.partition(":")
        raise too_large(f"the adjacency of {edge}", cache.limit_bytes)
    fragments = sorted(pinned.fragments, key=lambda fragment: layout.extent_of(fragment.files)[0])
    starts = [layout.extent_of(fragment.files)[0] for fragment in fragments]
    places = ranges(
        np.array(starts, dtype=np.int64),
        np.array([fragment.rows for fragment in fragments], dtype=np.int64),
    )
    most = max(tables.sources.slots.size, tables.targets.slots.size)
    kind: type[np.int32 | np.int64] = np.int32
    if most > np.iinfo(np.int32).max:
        kind = np.int64
    sources: Any
    targets: Any
    sources, targets = (np.full(table.slots.size, ABSENT, dtype=kind) for _ in _ENDS)
    is_known = np.zeros(table.slots.size, dtype=np.bool_)
    begin = 0
    for portion in _portions(pinned.values(fragments, tables.read_columns), check):
        rows, here = tables.between(portion, places[begin : begin + portion.num_rows])
        begin += portion.num_rows
        is_known[here] = True
        sources[here], targets[here] = _slots_of_ends(tables, rows, check)
    for fragment, start in zip(fragments, starts, strict=True):
        gone = table.slots.deleted[fragment.files] + start
        is_known[gone] = False
        sources[gone] = ABSENT
        targets[gone] = ABSENT
    has_dangling = bool((is_known & ((sources < 0) | (targets < 0))).any())
    return _SlotsOfEnds(sources=sources, targets=targets, has_dangling=has_dangling)


def _slots_of_ends(
    tables: EdgeTables, portion: pa.Table, check: Check
) -> tuple[Positions, Positions]:
    source_ids, target_ids = (portion.column(name) for name in _ENDS)
    if tables.sources is not tables.targets:
        return tables.sources.ends(source_ids, check), tables.targets.ends(target_ids, check)
    # One lookup for both: a lookup begins by hashing the ids of all nodes.
    both = pa.chunked_array([*source_ids.chunks, *target_ids.chunks], type=source_ids.type)
    slots = tables.sources.ends(both, check)
    return slots[: len(source_ids)], slots[len(source_ids) :]


def _portions(batches: Iterator[pa.RecordBatch], check: Check) -> Iterator[pa.Table]:
    """Many batches at once, but not so many that the texts of all edges are in memory."""

    def read() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            check()
            yield batch

    return row_parts(read(), rows_max=_LOOKUP_ROWS)


def _read_steps(tables: EdgeTables, places: Positions, check: Check) -> Steps:
    """The edges at some places with the slots of their ends; -1 for a missing node."""
    if not len(places):
        return _NO_STEPS
    rows, places = tables.between(_rows_at_places(tables, places, check), places)
    source_ids, target_ids = (rows.column(name).to_pylist() for name in _ENDS)
    return Steps(
        tables.sources.positions_of(source_ids, check),
        tables.targets.positions_of(target_ids, check),
        places,
    )


def _rows_at_places(tables: EdgeTables, places: Positions, check: Check) -> pa.Table:
    """What the edges at some places say about their ends."""
    table, columns = tables.edges, tables.read_columns
    behind = places >= table.slots.layout.base_rows
    if behind.all():
        return pa.table({name: table.values(name, places, check) for name in columns})
    # Rows of the base that an older version has: reading its whole columns would take longer.
    addresses = table.addresses(places)
    rows_in_order = rows_at(table.pinned.root, table.pinned.entry, addresses, columns=columns)
    order = pa.array(np.argsort(np.argsort(addresses)))
    return rows_in_order.select(list(columns)).take(order)


def _find_gone(before: TableSlots, after: TableSlots) -> tuple[Positions, int]:
    """The slots that only the first version has, and how many only the second has."""
    changes = changes_between(before, after)
    removed = different(before.layout.slots_at(changes.removed))
    added = different(before.layout.slots_at(changes.added))
    there = removed < after.size
    there[there] = after.live[removed[there]]
    known = added < before.size
    known[known] = before.live[added[known]]
    return removed[~there], int(np.count_nonzero(~known))
