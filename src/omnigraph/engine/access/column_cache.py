"""Arrays that many queries share: columns of tables and adjacency, by the version they are of.

Invariant: what is cached is immutable and named by exactly the version it was read from, so it is
never stale, only unused. Memory stays below a limit: the least recently used entries are moved to
files, which are memory-mapped when they are used again and removed when the process ends.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa

from omnigraph.errors import InvalidInputError

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

    def __init__(self, limit_bytes: int, *, directory: Path | None = None) -> None:
        self.limit_bytes = limit_bytes
        self._given_directory = directory
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
        found = self._found(key)
        if found is not None:
            return found
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        try:
            with making:
                found = self._found(key)
                if found is not None:
                    return found
                started = time.perf_counter()
                arrays = make()
                self._keep(key, arrays, time.perf_counter() - started)
                return arrays
        finally:
            with self._lock:
                self._making.pop(key, None)

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
                entry.arrays = _mapped(entry.file)
            return entry.arrays

    def _keep(self, key: Hashable, arrays: Arrays, seconds: float) -> None:
        size = sum(each.nbytes for each in arrays.values())
        with self._lock:
            self._entries[key] = _Entry(arrays=arrays, size=size, seconds=seconds)
            self._memory_bytes += size
            self._shrink(spared=key)

    def _shrink(self, spared: Hashable) -> None:
        while len(self._entries) > _ENTRIES_MOST:
            self._drop(next(iter(self._entries)))
        while self._memory_bytes > self.limit_bytes:
            held = (key for key, each in self._entries.items() if each.file is None)
            key = next((each for each in held if each != spared), None)
            if key is None:
                break
            entry = self._entries[key]
            if entry.seconds < _WORTH_A_FILE_SECONDS or not self._store(entry):
                self._drop(key)
        while self._disk_bytes > self.limit_bytes * _DISK_FACTOR:
            self._drop(next(key for key, each in self._entries.items() if each.file is not None))

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
            base = self._given_directory
            self._directory = Path(tempfile.mkdtemp(prefix="omnigraph-cache-", dir=base))
            weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
        return self._directory


def _write(path: Path, array: pa.Array | pa.ChunkedArray) -> None:
    table = pa.table({"values": array})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _mapped(path: Path) -> Arrays:
    found: Arrays = {}
    for each in sorted(path.parent.glob(f"{path.stem}.*.arrow")):
        column = pa.ipc.open_file(pa.memory_map(str(each))).read_all().column("values")
        name = each.name.split(".")[1]
        found[name] = column.chunk(0) if column.num_chunks == 1 else column
    return found


def _remove_files(path: Path) -> None:
    for each in path.parent.glob(f"{path.stem}.*.arrow"):
        each.unlink(missing_ok=True)


def default_limit() -> int:
    """The bytes a process may cache: `OMNIGRAPH_QUERY_CACHE`, or a quarter of the memory."""
    given = os.environ.get(CACHE_VARIABLE)
    if given is None:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _DEFAULT_SHARE
    if not given.isdecimal():
        raise InvalidInputError(
            f"{CACHE_VARIABLE} is {given!r:.40}, expected a number of bytes",
            next_step=f"Set it like {CACHE_VARIABLE}={2 * 2**30}, or unset it.",
        )
    return int(given)


_shared: ColumnCache | None = None
_shared_lock = threading.Lock()


def shared_cache() -> ColumnCache:
    """The cache of this process."""
    global _shared  # noqa: PLW0603 - one per process, made at first use
    with _shared_lock:
        if _shared is None:
            _shared = ColumnCache(default_limit())
        return _shared
