"""Holds the tables of a snapshot in memory, column by column and edge type by edge type.

`ColumnCache` shares columns and adjacency among all queries of the process as long as it has room
for them. `CostMeter` decides when a faster access method is prepared: once the time spent without
it equals its cost, so the total is at most twice the cost of the better choice.

Invariants:
- A position is the place of a row in the order in which its pinned version is scanned, so columns
  that are read at different times agree.
- A cached array is immutable and named by exactly the version it was read from, so it is never
  stale, only unused.
- Memory stays below a limit. The least recently used entries are moved to files, which are
  memory-mapped when they are used again and removed when the process ends.
- The position of an id does not depend on how it is found. A column is scanned until the scans have
  taken as long as sorting it would; then it is sorted once and the order is kept, four bytes a row.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
import weakref
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import names
from omnigraph.engine.access.access import Adjacency, Candidates, adjacency_of, sorted_steps
from omnigraph.engine.access.conditions import as_scalar, find_ids, find_value
from omnigraph.engine.frames import Column, Positions, whole
from omnigraph.engine.run import Run, too_large
from omnigraph.engine.search import Corpus, TextCounts, count_holders, count_texts
from omnigraph.errors import InvalidInputError
from omnigraph.query.typed import EdgeDirection
from omnigraph.storage.lance.tables import find_entry, scan

if TYPE_CHECKING:
    from omnigraph.query.expressions import Expression, Ranking
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import Snapshot, TableEntry


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
            base = self._given_directory
            self._directory = Path(tempfile.mkdtemp(prefix="omnigraph-cache-", dir=base))
            weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
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
    ordered = (_ORDER, *key)
    sorting = len(column) * _SORTING_SECONDS_PER_ROW
    if len(column) > _ROWS_MOST or SPENT.of(ordered) < sorting:
        began = time.perf_counter()
        index = pc.index(column, wanted).as_py()
        SPENT.add(ordered, time.perf_counter() - began)
        return None if index < 0 else int(index)
    order = whole(cache.get(ordered, lambda: _sort(column))[_ORDER]).to_numpy()
    at = bisect_left(order, wanted, key=lambda place: column[int(place)].as_py())
    if at == len(order):
        return None
    place = int(order[at])
    return place if column[place].as_py() == wanted else None


_FEW_SHARE: Final = 16
"""A value of more rows than one in this many is found as fast by a pass over the column."""


def places_of(
    value: pa.Scalar, column: Column, key: tuple[Hashable, ...], cache: ColumnCache
) -> Positions | None:
    """The rows that have a value, in order; None if they are many. `key` is as for `place_of`."""
    ordered = (_ORDER, *key)
    most = len(column) // _FEW_SHARE
    if len(column) > _ROWS_MOST or SPENT.of(ordered) < len(column) * _SORTING_SECONDS_PER_ROW:
        began = time.perf_counter()
        positions: Positions = np.asarray(
            pc.indices_nonzero(pc.equal(column, value)).to_numpy(), dtype=np.int64
        )
        if len(positions) > most:
            return None
        SPENT.add(ordered, time.perf_counter() - began)
        return positions
    order = whole(cache.get(ordered, lambda: _sort(column))[_ORDER]).to_numpy()
    known = order[: len(order) - column.null_count]
    wanted = value.as_py()
    begin = bisect_left(known, wanted, key=lambda place: column[int(place)].as_py())
    end = bisect_right(known, wanted, lo=begin, key=lambda place: column[int(place)].as_py())
    return None if end - begin > most else np.sort(np.asarray(known[begin:end], dtype=np.int64))


def _sort(column: Column) -> Arrays:
    """Arrow orders texts by their bytes, which is how Python compares them; nulls are last."""
    return {_ORDER: pc.sort_indices(column).cast(pa.int32())}


_VALUES = "values"
_LOOKUP_ROWS = 1 << 20
_BYTES_PER_EDGE = 48
"""While the adjacency is built; 16 of them are kept."""


class InMemoryAccess:
    """Reads whole columns and edge types through the cache."""

    def __init__(self, run: Run, root: Root, snapshot: Snapshot, cache: ColumnCache) -> None:
        self._run = run
        self._root = root
        self._snapshot = snapshot
        self._cache = cache
        self._columns: dict[tuple[str, str], Column] = {}
        self._adjacencies: dict[tuple[str, EdgeDirection, bool], Adjacency] = {}

    def size(self, table: str) -> int:
        return self._entry(table).row_count

    def column(self, table: str, name: str) -> Column:
        column = self._columns.get((table, name))
        if column is None:
            key = ("column", *column_key_parts(self._root, self._entry(table), name))
            column = self._cache.get(key, lambda: self._read(table, name))[_VALUES]
            self._columns[table, name] = column
        return column

    def candidates(
        self,
        table: str,
        predicate: Expression | None,
        columns: Sequence[str],  # noqa: ARG002 - all of a table is at hand
    ) -> Candidates | None:
        if predicate is None:
            return None
        wanted = find_ids(predicate, self._run.parameters)
        if wanted is None:
            return self._having(table, predicate)
        ids = self.column(table, names.ID_COLUMN)
        key = column_key_parts(self._root, self._entry(table), names.ID_COLUMN)
        places = [place_of(entity_id, ids, key, self._cache) for entity_id in wanted.ids]
        positions = np.array(sorted(place for place in places if place is not None), dtype=np.int64)
        return Candidates(positions=positions, exact=wanted.alone)

    def _having(self, table: str, predicate: Expression) -> Candidates | None:
        """The entities with the value that a condition asks a property for, if they are few."""
        wanted = find_value(predicate, self._run.parameters)
        if wanted is None:
            return None
        column = self.column(table, wanted.property)
        value = as_scalar(wanted.value, column.type)
        if value is None:
            return None
        key = column_key_parts(self._root, self._entry(table), wanted.property)
        positions = places_of(value, column, key, self._cache)
        return None if positions is None else Candidates(positions=positions, exact=wanted.alone)

    def ranked_candidates(
        self,
        table: str,  # noqa: ARG002 - everything is looked at
        predicate: Expression | None,  # noqa: ARG002
        by: Ranking,  # noqa: ARG002
        rows: int | None,  # noqa: ARG002
        columns: Sequence[str],  # noqa: ARG002
    ) -> Candidates | None:
        return None

    def corpus(self, table: str, field: str, query: str) -> Corpus:
        texts = self.column(table, field)
        counts = text_counts(
            self._cache, self._root, self._entry(table), field, lambda: count_texts([texts])
        )
        return Corpus(counts=counts, holders=count_holders([texts], query))

    def adjacency(
        self,
        edge: str,
        direction: EdgeDirection,
        *,
        distinct: bool,
        frontier: Positions,  # noqa: ARG002 - steps from everywhere are at hand
    ) -> Adjacency:
        wanted = (edge, direction, distinct)
        adjacency = self._adjacencies.get(wanted)
        if adjacency is None:
            pins = edge_pins(self._root, self._snapshot, self._run, edge)
            key = ("adjacency", *pins, direction, distinct)
            arrays = self._cache.get(key, lambda: self._joined(edge, direction, distinct=distinct))
            adjacency = Adjacency(
                offsets=_numbers(arrays["offsets"]),
                ends=_numbers(arrays["ends"]),
                edges=_numbers(arrays["edges"]),
                arrivals=_numbers(arrays["arrivals"]),
            )
            self._adjacencies[wanted] = adjacency
        return adjacency

    def _entry(self, table: str) -> TableEntry:
        return find_entry(self._root, self._snapshot, table)

    def _read(self, table: str, name: str) -> Arrays:
        batches: list[pa.Array] = []
        reader = scan(self._root, self._entry(table), columns=(name,))
        size = 0
        for batch in reader:
            self._run.check()
            batches.append(batch.column(0))
            size += batch.nbytes
            self._require_room(f"column {name!r} of {table}", size)
        column = pa.chunked_array(batches, type=reader.schema.field(0).type)
        return {_VALUES: _contiguous(column)}

    def _joined(self, edge: str, direction: EdgeDirection, *, distinct: bool) -> Arrays:
        source, target = end_tables(self._run, edge)
        key = ("ends", *edge_pins(self._root, self._snapshot, self._run, edge))
        ends = self._cache.get(key, lambda: self._ends(edge, source, target))
        sources, targets = (_numbers(ends[name]).astype(np.int64) for name in ("src", "dst"))
        steps = sorted_steps(sources, targets, direction)
        self._run.check()
        backward = direction is EdgeDirection.BACKWARD
        start, end = (target, source) if backward else (source, target)
        adjacency = adjacency_of(*steps, nodes=self.size(start), distinct=distinct)
        arrivals = np.bincount(adjacency.ends, minlength=self.size(end))
        return {
            "offsets": pa.array(adjacency.offsets),
            "ends": pa.array(adjacency.ends),
            "edges": pa.array(adjacency.edges),
            "arrivals": pa.array(arrivals),
        }

    def _require_room(self, what: str, size: int) -> None:
        if size > self._cache.limit_bytes:
            raise too_large(what, self._cache.limit_bytes)

    def _ends(self, edge: str, source: str, target: str) -> Arrays:
        """The positions of the endpoints of every edge; -1 for a missing node."""
        table = names.edge_table_key(edge)
        self._require_room(f"the adjacency of {edge}", self.size(table) * _BYTES_PER_EDGE)
        columns = {names.SOURCE_COLUMN: source, names.TARGET_COLUMN: target}
        position_chunks: dict[str, list[pa.Array]] = {column: [] for column in columns}
        ids_by_table = {
            node_table: self.column(node_table, names.ID_COLUMN) for node_table in {source, target}
        }
        for portion in self._portions(table, tuple(columns)):
            for name, nodes in columns.items():
                places = pc.index_in(portion.column(name), value_set=ids_by_table[nodes])
                position_chunks[name] += pc.fill_null(places, -1).chunks
        return {
            column: _contiguous(pa.chunked_array(chunks, type=pa.int32()))
            for column, chunks in position_chunks.items()
        }

    def _portions(self, table: str, columns: tuple[str, ...]) -> Iterator[pa.Table]:
        """Several batches at once: a lookup of ids has a fixed cost."""
        batches: list[pa.RecordBatch] = []
        for batch in scan(self._root, self._entry(table), columns=columns):
            self._run.check()
            batches.append(batch)
            if sum(part.num_rows for part in batches) >= _LOOKUP_ROWS:
                yield pa.Table.from_batches(batches)
                batches = []
        if batches:
            yield pa.Table.from_batches(batches)


def end_tables(run: Run, edge: str) -> tuple[str, str]:
    """The tables of the nodes an edge type leads from and to."""
    declared = run.catalog.edges[edge]
    return names.node_table_key(declared.source), names.node_table_key(declared.target)


def column_key_parts(root: Root, entry: TableEntry, name: str) -> tuple[Hashable, ...]:
    return (root.uri, root.verify, *version_of(entry), name)


def edge_pins(root: Root, snapshot: Snapshot, run: Run, edge: str) -> tuple[Hashable, ...]:
    """Everything the positions of an edge type's ends depend on."""
    tables = (names.edge_table_key(edge), *end_tables(run, edge))
    pins = tuple(version_of(find_entry(root, snapshot, table)) for table in tables)
    return root.uri, root.verify, pins


def text_counts(
    cache: ColumnCache,
    root: Root,
    entry: TableEntry,
    field: str,
    count: Callable[[], TextCounts],
) -> TextCounts:
    """How many texts and tokens a column of a version has; counted once."""

    def made() -> Arrays:
        counted = count()
        return {_VALUES: pa.array([counted.documents, counted.tokens], pa.int64())}

    key = ("text counts", *column_key_parts(root, entry, field))
    documents, tokens = cache.get(key, made)[_VALUES].to_pylist()
    return TextCounts(documents=documents, tokens=tokens)


def version_of(entry: TableEntry) -> tuple[Hashable, ...]:
    """Identifies a version of a table among all others of its root."""
    return entry.location, entry.fork, entry.version, entry.made_at


def _contiguous(column: pa.ChunkedArray) -> Column:
    """The column as one array if possible, so that a row is found without its chunk."""
    try:
        return whole(column)
    except pa.ArrowInvalid:
        return column


def _numbers(array: Column) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = whole(array).to_numpy(zero_copy_only=True)
    return numbers
