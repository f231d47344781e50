"""Looks up rows by values of an indexed column without comparing every row id of a table.

A B-tree gives addresses of rows. Lance makes row ids of them and compares these with every row id
of every fragment whose row ids are no range: 10 to 35 ms per million rows, in every lookup. Rows
that were updated, and edges in the order of their sources, have no such ranges. In their fragments
rows are looked up here: the pages of the B-tree are read, and rows are taken by their places.

Invariants:

- The answer is that of Lance. That an index has an entry for every row of the fragments it covers
  is what Lance relies on, too. Rows are compared with the values after they were read, so an entry
  that is no longer true finds nothing.
- Lance itself reads every other fragment: those with ranges, small ones, those with overlays, and
  those that no index covers. An index in a layout that is not known here is left to Lance as well.
- Files of indexes have names of their own and are never changed, so what is kept of them belongs
  to no version. It is bounded.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from lance.file import LanceFileReader

from omnigraph_lake import names
from omnigraph_lake.storage.lance.base_paths import places_of_files
from omnigraph_lake.storage.lance.dataset_cache import cached_dataset, look_up
from omnigraph_lake.storage.lance.datasets import translated
from omnigraph_lake.storage.lance.deletion_files import read_deletions
from omnigraph_lake.storage.lance.row_lineage import row_id_file
from omnigraph_lake.storage.objects.lru_cache import LruCache
from omnigraph_lake.storage.objects.s3_options import for_one_request

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.fragment import FragmentMetadata
    from lance.lance.indices import IndexDescription, IndexSegmentDescription

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry

VALUES_MAX: Final = 512
"""With more values, what Lance compares is a small part of a lookup."""
ROWS_MIN: Final = 16_384
"""Lance compares the row ids of a smaller fragment in less time than a second read takes."""
ROWS_TAKEN_MAX: Final = 16_384
"""More rows are left to Lance."""
_PAGE_BYTES_KEPT: Final = 32 << 20
_BOUNDS_KEPT: Final = 1 << 18
_BOUNDS_OF_A_FILE: Final = 1 << 12
"""What an open file counts as, so that at most 64 are."""
BTREE: Final = "BTree"
"""The kind of an index that has row addresses, in Lance's words."""
_KNOWN_INDEXES: Final = (BTREE, "Inverted", "IVF_")
"""Those that Omnigraph builds. One of another kind may say where the rows of a B-tree are now."""
_BTREE_VERSION: Final = 1
"""The version of the layout in which an entry is a row address."""

_UNEXPECTED: Final = (OSError, ValueError, KeyError, TypeError, IndexError, RuntimeError)

_Numbers = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class OneOf:
    """The rows of which a column has one of these texts or integers."""

    column: str
    values: pa.Array

    @property
    def text(self) -> str:
        """The same as a filter of Lance."""
        if pat.is_integer(self.values.type):
            literals = [str(value) for value in self.values.to_pylist()]
        else:
            doubled = pc.replace_substring(self.values, pattern="'", replacement="''")
            literals = [f"'{text}'" for text in doubled.to_pylist()]
        return f"`{self.column}` IN ({', '.join(literals)})"


def look_up_values(
    root: Root, entry: TableEntry, columns: Sequence[str], wanted: OneOf
) -> pa.RecordBatchReader:
    """Stream some columns of the rows that have one of the values, in any order."""
    search = _search(root, entry, wanted)
    if search is None:
        return look_up(root, entry, columns, wanted.text)
    dataset = search.dataset
    read = list(dict.fromkeys((*columns, wanted.column)))
    with translated(root, f"read {entry.table_key}"):
        others = [part for part in dataset.get_fragments() if part.fragment_id in search.others]
        scanner = dataset.scanner(columns=read, filter=wanted.text, fragments=others or None)
        schema = scanner.projected_schema

    def batches() -> Iterator[pa.RecordBatch]:
        with translated(root, f"read {entry.table_key}"):
            if search.positions:
                rows = dataset.take(search.positions, columns=read)
                is_wanted = pc.is_in(rows.column(wanted.column), wanted.values)
                yield from rows.filter(is_wanted).select(list(columns)).to_batches()
            if others:
                for batch in scanner.to_batches():
                    yield batch.select(list(columns))

    fields = [schema.field(name) for name in columns]
    return pa.RecordBatchReader.from_batches(pa.schema(fields, schema.metadata), batches())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """Where rows with the values may be: at some positions, and in fragments that Lance reads."""

    dataset: LanceDataset
    positions: Sequence[int]
    others: frozenset[int]


def _search(root: Root, entry: TableEntry, wanted: OneOf) -> _Search | None:
    """None if Lance answers the whole lookup."""
    if entry.row_count < ROWS_MIN or not _is_supported(wanted.values):
        return None
    dataset = cached_dataset(root, entry)
    indexed = _describe_column(root, entry, dataset, wanted.column)
    addresses = None if indexed is None else _find_addresses(root, indexed, wanted.values)
    if indexed is None or addresses is None or len(addresses) > ROWS_TAKEN_MAX:
        return None
    with translated(root, f"look up {wanted.column} of {entry.table_key}"):
        positions = _find_positions(root, dataset, indexed, addresses)
    if positions is None:
        return None
    return _Search(dataset=dataset, positions=positions, others=indexed.others)


def _is_supported(values: pa.Array) -> bool:
    return (
        bool(pat.is_string(values.type))
        and 0 < len(values) <= VALUES_MAX
        and values.null_count == 0
    )


def _find_addresses(root: Root, indexed: _IndexedColumn, values: pa.Array) -> _Numbers | None:
    """The entries of all parts of the index; None if one is not laid out as known here."""
    ascending = sorted(set(values.to_pylist()))
    addresses = [np.zeros(0, np.uint64)]
    try:
        for folder in indexed.folders:
            addresses += _tree_at(root, folder).find(ascending)
    except _UNEXPECTED:
        return None
    return np.unique(np.concatenate(addresses))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScatteredFragment:
    """A fragment whose row ids are no range: its rows, and where the living ones begin."""

    rows: int
    first_position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _IndexedColumn:
    """The fragments of a version that are looked up here, and all others."""

    folders: tuple[str, ...]
    scattered: Mapping[int, _ScatteredFragment] = field(repr=False)
    others: frozenset[int] = field(repr=False)


def _find_positions(
    root: Root,
    dataset: LanceDataset,
    indexed: _IndexedColumn,
    addresses: _Numbers,
) -> list[int] | None:
    """Where living rows are among all of a version; None if a deletion file cannot be read."""
    positions = [np.zeros(0, np.uint64)]
    numbers = addresses >> np.uint64(names.ADDRESS_BITS)
    for number in np.unique(numbers).tolist():
        fragment = indexed.scattered.get(number)
        if fragment is None:
            continue
        first = np.uint64(number << names.ADDRESS_BITS)
        here = addresses[numbers == number]
        here = here[here < first + np.uint64(fragment.rows)]
        deleted = read_deletions(root, dataset, [number])
        if deleted is None:
            return None
        living = here[~np.isin(here, deleted)]
        deleted_before = np.searchsorted(deleted, living).astype(np.uint64)
        positions.append(living - first - deleted_before + np.uint64(fragment.first_position))
    ascending: list[int] = np.unique(np.concatenate(positions)).tolist()
    return ascending


_INDEXED: Final[LruCache[tuple[_IndexedColumn | None]]] = LruCache(64)


def _describe_column(
    root: Root, entry: TableEntry, dataset: LanceDataset, column: str
) -> _IndexedColumn | None:
    """What is known of a column of a version, looked at once; None if Lance is to be asked."""
    version = (entry.location, entry.fork, entry.version, entry.made_at)
    key = (root.uri, root.verify, *_access(root), *version, column)
    kept = None if entry.made_at is None else _INDEXED.get(key)
    if kept is None:
        with translated(root, f"look at the index of {column} of {entry.table_key}"):
            kept = (_inspect(root, dataset, column),)
        if entry.made_at is not None:
            _INDEXED.keep(key, kept)
    return kept[0]


def _inspect(root: Root, dataset: LanceDataset, column: str) -> _IndexedColumn | None:
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    if not any(map(_is_scattered, fragments)):
        return None
    segments = _segments(dataset, column)
    known = {fragment_id for segment in segments for fragment_id in segment.fragment_ids}
    scattered: dict[int, _ScatteredFragment] = {}
    others: list[int] = []
    position = 0
    for fragment in fragments:
        if fragment.id in known and _is_scattered(fragment):
            scattered[fragment.id] = _ScatteredFragment(
                rows=int(fragment.physical_rows), first_position=position
            )
        else:
            others.append(fragment.id)
        position += int(fragment.num_rows)
    if not scattered:
        return None
    places = places_of_files(root, dataset)
    folders = (f"{places[segment.base_id]}/_indices/{segment.uuid}" for segment in segments)
    return _IndexedColumn(
        folders=tuple(map(root.child, folders)), scattered=scattered, others=frozenset(others)
    )


def _is_scattered(fragment: FragmentMetadata) -> bool:
    return (
        row_id_file(fragment) is not None
        and int(fragment.physical_rows) >= ROWS_MIN
        and not fragment.overlays
    )


def _segments(dataset: LanceDataset, column: str) -> list[IndexSegmentDescription]:
    """The parts of the B-tree of a column, if it has one in the layout that is known here."""
    indexes: list[IndexDescription] = dataset.describe_indices()
    if not all(index.index_type.startswith(_KNOWN_INDEXES) for index in indexes):
        return []
    segments = [
        segment
        for index in indexes
        if index.index_type == BTREE and index.field_names == [column]
        for segment in index.segments
    ]
    is_known = all(segment.index_version == _BTREE_VERSION for segment in segments)
    return segments if is_known else []


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """Values in order, with the addresses of their rows."""

    values: pa.Array
    addresses: _Numbers

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes + self.addresses.nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tree:
    """A B-tree of texts: the lowest and the highest value of each page, in order.

    Nulls come before all values. They count as empty texts here, which finds pages to read.
    """

    folder: str
    reader: LanceFileReader = field(repr=False)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    """Lance's reader refuses a second thread."""
    rows: int
    rows_per_page: int
    lowest: Sequence[str] = field(repr=False)
    highest: Sequence[str] = field(repr=False)

    @property
    def weight(self) -> int:
        return _BOUNDS_OF_A_FILE + len(self.lowest)

    def find(self, values: Sequence[str]) -> list[_Numbers]:
        """The addresses of the rows with one of these values.

        Raises:
            ValueError: a page is not what its bounds say.
        """
        numbers: set[int] = set()
        for value in values:
            numbers.update(
                range(bisect_left(self.highest, value), bisect_right(self.lowest, value))
            )
        wanted = pa.array(values, pa.string())
        addresses: list[_Numbers] = []
        for number in sorted(numbers):
            page = self._page(number)
            is_wanted = pc.is_in(page.values, wanted).to_numpy(zero_copy_only=False)
            addresses.append(page.addresses[is_wanted])
        return addresses

    def _page(self, number: int) -> _Page:
        page = _PAGES.get((self.folder, number))
        if page is None:
            start = number * self.rows_per_page
            count = min(self.rows_per_page, self.rows - start)
            with self.lock:
                entries = self.reader.read_range(start, count, batch_size=count)
            rows = entries.to_table()
            values, addresses = (column.combine_chunks() for column in rows.columns)
            bounds = (values[0].as_py() or "", values[-1].as_py() or "")
            if len(values) != count or bounds != (self.lowest[number], self.highest[number]):
                raise ValueError(f"page {number} of {self.folder}")
            page = _Page(values=values, addresses=addresses.to_numpy())
            _PAGES.keep((self.folder, number), page)
        return page


_PAGES: Final[LruCache[_Page]] = LruCache(_PAGE_BYTES_KEPT, weigh=lambda page: page.nbytes)
_TREES: Final[LruCache[_Tree]] = LruCache(_BOUNDS_KEPT, weigh=lambda tree: tree.weight)


def _tree_at(root: Root, folder: str) -> _Tree:
    """The B-tree in a folder, opened once.

    Raises:
        ValueError: it is not laid out as known here.
    """
    key: Hashable = (folder, *_access(root))
    tree = _TREES.get(key)
    if tree is None:
        tree = _open_tree(root, folder)
        _TREES.keep(key, tree)
    return tree


def _open_tree(root: Root, folder: str) -> _Tree:
    options = for_one_request(root.storage_options) or None
    lookup = LanceFileReader(f"{folder}/page_lookup.lance", storage_options=options)
    reader = LanceFileReader(f"{folder}/page_data.lance", storage_options=options)
    schema = reader.metadata().schema
    rows = reader.num_rows()
    rows_per_page = int(lookup.metadata().schema.metadata[b"batch_size"])
    pages = lookup.read_all().to_table()
    lowest = pages.column("min").fill_null("").to_pylist()
    highest = pages.column("max").fill_null("").to_pylist()
    bounds = [bound for page in zip(lowest, highest, strict=True) for bound in page]
    if (
        (schema.names, schema.types) != (["values", "ids"], [pa.string(), pa.uint64()])
        or pages.column("page_idx").to_pylist() != list(range(len(pages)))
        or len(pages) != -(-rows // rows_per_page)
        or any(one > two for one, two in pairwise(bounds))
    ):
        raise ValueError(f"layout of {folder}")
    return _Tree(
        folder=folder,
        reader=reader,
        rows=rows,
        rows_per_page=rows_per_page,
        lowest=lowest,
        highest=highest,
    )


def _access(root: Root) -> tuple[Hashable, ...]:
    """The options of a store: a reader lasts as long as they do."""
    return tuple(sorted(root.storage_options.items()))
