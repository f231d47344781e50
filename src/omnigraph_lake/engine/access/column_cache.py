"""A bounded cache of arrays, shared by all queries of the process.

`CostMeter` decides when a faster access method is prepared: once the time spent without it equals
its cost, so the total is at most twice the cost of the better choice.

Invariants:
- A cached array is immutable, and its key names everything its values depend on, so it is never
  stale, only unused.
- Memory stays below a limit. The least recently used entries are moved to files, which are
  memory-mapped when they are used again and removed when the process ends.
- The place of an id does not depend on how it is found. A column is scanned until the scans have
  taken as long as sorting it would; then it is sorted once and the order is kept, four bytes a row.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.engine.frames import Column, Positions, whole
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.storage.objects.background import WORKER
from omnigraph_lake.storage.objects.temporary_folders import make_folder, remove_folder

CACHE_VARIABLE: Final = "OMNIGRAPH_QUERY_CACHE"
_DEFAULT_SHARE: Final = 4
"""A quarter of the machine's memory, unless the variable says otherwise."""
_WORTH_A_FILE_SECONDS: Final = 0.01
_DISK_FACTOR: Final = 8
_ENTRIES_MOST: Final = 10_000
"""Bounds the number of small entries, which frequently changed tables leave."""

Arrays: TypeAlias = dict[str, pa.Array | pa.ChunkedArray]


@dataclass(slots=True, kw_only=True)
class _Entry:
    arrays: Arrays | None
    size: int
    seconds: float
    """The time to compute it: an entry that is cheap to compute is dropped instead of stored."""
    file: Path | None = None


class ColumnCache:
    """A bounded, thread-safe cache of arrays; no entry is computed twice at the same time."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._memory_bytes = 0
        self._disk_bytes = 0
        self._lock = threading.RLock()
        self._making: dict[Hashable, threading.Lock] = {}
        self._directory: Path | None = None

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._entries

    @property
    def memory_bytes(self) -> int:
        return self._memory_bytes

    @property
    def disk_bytes(self) -> int:
        return self._disk_bytes

    def get(self, key: Hashable, make: Callable[[], Arrays]) -> Arrays:
        """The arrays of a key, computed at most once."""
        cached_arrays = self._found(key)
        if cached_arrays is not None:
            return cached_arrays
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        try:
            with making:
                cached_arrays = self._found(key)
                if cached_arrays is not None:
                    return cached_arrays
                started = time.perf_counter()
                arrays = make()
                self._keep(key, arrays, time.perf_counter() - started)
                return arrays
        finally:
            with self._lock:
                self._making.pop(key, None)

    def find(self, key: Hashable) -> Arrays | None:
        """The arrays of a key if they are here."""
        return self._found(key)

    def put(self, key: Hashable, arrays: Arrays, *, seconds: float) -> None:
        """Keep arrays that took this long to compute."""
        self._keep(key, arrays, seconds)

    def discard(self, key: Hashable) -> None:
        """Remove an entry if it is here."""
        with self._lock:
            if key in self._entries:
                self._drop(key)

    def clear(self) -> None:
        """Remove all entries, in memory and on disk."""
        with self._lock:
            for key in list(self._entries):
                self._drop(key)

    def _found(self, key: Hashable) -> Arrays | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            if entry.arrays is None:
                assert entry.file is not None
                entry.arrays = _map(entry.file)
            return entry.arrays

    def _keep(self, key: Hashable, arrays: Arrays, seconds: float) -> None:
        size = sum(array.nbytes for array in arrays.values())
        with self._lock:
            if key in self._entries:
                self._drop(key)
            self._entries[key] = _Entry(arrays=arrays, size=size, seconds=seconds)
            self._memory_bytes += size
            self._shrink(spared=key)

    def _shrink(self, spared: Hashable) -> None:
        while len(self._entries) > _ENTRIES_MOST:
            self._drop(next(iter(self._entries)))
        while self._memory_bytes > self.limit_bytes:
            memory_keys = (key for key, entry in self._entries.items() if entry.file is None)
            key = next((candidate for candidate in memory_keys if candidate != spared), None)
            if key is None:
                break
            entry = self._entries[key]
            if entry.seconds < _WORTH_A_FILE_SECONDS or not self._store(entry):
                self._drop(key)
        while self._disk_bytes > self.limit_bytes * _DISK_FACTOR:
            self._drop(next(key for key, entry in self._entries.items() if entry.file is not None))

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key)
        if entry.file is None:
            self._memory_bytes -= entry.size
        else:
            self._disk_bytes -= entry.size
            _remove_files(entry.file)

    def _store(self, entry: _Entry) -> bool:
        """Move an entry to a file; False if there is no room for it."""
        assert entry.arrays is not None
        path = self._file_directory() / f"{time.monotonic_ns()}.arrow"
        try:
            for name, array in entry.arrays.items():
                _write(path.with_suffix(f".{name}.arrow"), array)
        except OSError:
            _remove_files(path)
            return False
        entry.file = path
        entry.arrays = None
        self._memory_bytes -= entry.size
        self._disk_bytes += entry.size
        return True

    def _file_directory(self) -> Path:
        if self._directory is None:
            self._directory = make_folder("cache")
            weakref.finalize(self, remove_folder, self._directory)
        return self._directory


def _write(path: Path, array: pa.Array | pa.ChunkedArray) -> None:
    table = pa.table({"values": array})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _map(path: Path) -> Arrays:
    arrays: Arrays = {}
    for file in sorted(path.parent.glob(f"{path.stem}.*.arrow")):
        column = pa.ipc.open_file(pa.memory_map(str(file))).read_all().column("values")
        name = file.name.split(".")[1]
        arrays[name] = column.chunk(0) if column.num_chunks == 1 else column
    return arrays


def _remove_files(path: Path) -> None:
    for file in path.parent.glob(f"{path.stem}.*.arrow"):
        file.unlink(missing_ok=True)


def default_limit() -> int:
    """The bytes a process may cache: `OMNIGRAPH_QUERY_CACHE`, or a quarter of the memory."""
    limit_text = os.environ.get(CACHE_VARIABLE)
    if limit_text is None:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _DEFAULT_SHARE
    if not limit_text.isdecimal():
        raise InvalidInputError(
            f"{CACHE_VARIABLE} is {limit_text!r:.40}, expected a number of bytes",
            next_step=f"Set it like {CACHE_VARIABLE}={2 * 2**30}, or unset it.",
        )
    return int(limit_text)


_shared: ColumnCache | None = None
_shared_lock = threading.Lock()


def shared_cache() -> ColumnCache:
    """The cache of this process."""
    global _shared  # noqa: PLW0603 - one per process, made at first use
    with _shared_lock:
        if _shared is None:
            _shared = ColumnCache(default_limit())
        return _shared


_KEPT: Final = 1024


class CostMeter:
    """Seconds spent in this process, by key; thread-safe."""

    def __init__(self) -> None:
        self._seconds: dict[Hashable, float] = {}
        self._lock = threading.Lock()

    def of(self, what: Hashable) -> float:
        with self._lock:
            return self._seconds.get(what, 0.0)

    def add(self, what: Hashable, seconds: float) -> None:
        with self._lock:
            if len(self._seconds) >= _KEPT:
                self._seconds.clear()
            self._seconds[what] = self._seconds.get(what, 0.0) + seconds


_ORDER = "order"
_SORTING_SECONDS_PER_ROW: Final = 0.2e-6
_ROWS_MOST: Final = int(np.iinfo(np.int32).max)
SPENT: Final = CostMeter()


def place_of(
    wanted: str, column: Column, key: tuple[Hashable, ...], cache: ColumnCache
) -> int | None:
    """The row that has an id, or None; `key` names the column in the cache."""
    if not _may_use_order(column, key, cache):
        return _scan(wanted, column, (_ORDER, *key))
    order = whole(sort_places(column, key, cache)).to_numpy()
    at = bisect_left(order, wanted, key=lambda place: column[int(place)].as_py())
    if at == len(order):
        return None
    place = int(order[at])
    return place if column[place].as_py() == wanted else None


def has_order(key: tuple[Hashable, ...], cache: ColumnCache) -> bool:
    """Whether a column was sorted."""
    return (_ORDER, *key) in cache


def _may_use_order(column: Column, key: tuple[Hashable, ...], cache: ColumnCache) -> bool:
    """Whether a value is found by the order of a column: it is sorted, or worth sorting now."""
    ordered = (_ORDER, *key)
    if has_order(key, cache):
        return True
    sorting = len(column) * _SORTING_SECONDS_PER_ROW
    if len(column) > _ROWS_MOST or SPENT.of(ordered) < sorting:
        return False
    if WORKER.is_allowed:
        # The query that finds it worth sorting would wait for what later ones profit from.
        WORKER.submit(ordered, lambda _: sort_places(column, key, cache))
        return False
    return True


def _scan(wanted: str, column: Column, ordered: Hashable) -> int | None:
    began = time.perf_counter()
    index = pc.index(column, wanted).as_py()
    SPENT.add(ordered, time.perf_counter() - began)
    return None if index < 0 else int(index)


_FEW_SHARE: Final = 16
"""A value of more rows than one in this many is found as fast by a pass over the column."""


def places_of(
    value: pa.Scalar, column: Column, key: tuple[Hashable, ...], cache: ColumnCache
) -> Positions | None:
    """The rows that have a value, in order; None if they are many. `key` is as for `place_of`."""
    ordered = (_ORDER, *key)
    most = len(column) // _FEW_SHARE
    if not _may_use_order(column, key, cache):
        began = time.perf_counter()
        positions: Positions = np.asarray(
            pc.indices_nonzero(pc.equal(column, value)).to_numpy(), dtype=np.int64
        )
        if len(positions) > most:
            return None
        SPENT.add(ordered, time.perf_counter() - began)
        return positions
    known = whole(sort_places(column, key, cache)).to_numpy()
    wanted = value.as_py()
    begin = bisect_left(known, wanted, key=lambda place: column[int(place)].as_py())
    end = bisect_right(known, wanted, lo=begin, key=lambda place: column[int(place)].as_py())
    return None if end - begin > most else np.sort(np.asarray(known[begin:end], dtype=np.int64))


def sort_places(column: Column, key: tuple[Hashable, ...], cache: ColumnCache) -> Column:
    """The places of a column in the order of its values, sorted once."""
    return cache.get((_ORDER, *key), lambda: _sort(column))[_ORDER]


def _sort(column: Column) -> Arrays:
    """Arrow orders texts by their bytes, which is how Python compares them; nulls come last."""
    order = pc.sort_indices(column).cast(pa.int32())
    return {_ORDER: order.slice(0, len(column) - column.null_count)}
