"""Pinned tables that stay open between lookups, with what was read of their indexes.

Invariant: a table is kept as the version that its entry names, told by the moment it was made; one
whose moment is not known is opened anew every time. What is kept of indexes is bounded, and no two
versions share it: fragments of versions that were given up may have had the same numbers.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa

from omnigraph.storage.datasets import dataset_uri, is_not_found, made_at, translated
from omnigraph.storage.tables import open_pinned, streamed

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from lance import LanceDataset

    from omnigraph.storage.location import Root
    from omnigraph.storage.snapshot import TableEntry

_INDEX_BYTES_KEPT: Final = 48 << 20
_METADATA_BYTES_KEPT: Final = 16 << 20
_TABLES_KEPT: Final = 24


class _KeptTables:
    """The handles of this process, those used last."""

    def __init__(self) -> None:
        self._handles: OrderedDict[Hashable, LanceDataset] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> LanceDataset | None:
        with self._lock:
            found = self._handles.get(key)
            if found is not None:
                self._handles.move_to_end(key)
            return found

    def keep(self, key: Hashable, handle: LanceDataset) -> None:
        with self._lock:
            self._handles[key] = handle
            while len(self._handles) > _TABLES_KEPT:
                self._handles.popitem(last=False)


_KEPT: Final = _KeptTables()


def _session() -> Any:
    """Caches of one handle: Lance keys some of what it reads by numbers that versions share."""
    return lance.Session(  # type: ignore[attr-defined]
        index_cache_size_bytes=_INDEX_BYTES_KEPT, metadata_cache_size_bytes=_METADATA_BYTES_KEPT
    )


def kept_open(root: Root, entry: TableEntry) -> LanceDataset:
    """The table exactly as the snapshot pins it, opened once."""
    if entry.made_at is None:
        return open_pinned(root, entry)
    options = tuple(sorted(root.storage_options.items()))
    key = (root.uri, options, entry.location, entry.fork, entry.version, entry.made_at)
    found = _KEPT.get(key)
    if found is None:
        found = _opened(root, entry)
        _KEPT.keep(key, found)
    return found


def _opened(root: Root, entry: TableEntry) -> LanceDataset:
    try:
        dataset = lance.dataset(
            dataset_uri(root, entry.location, entry.fork),
            version=entry.version,
            storage_options=dict(root.storage_options) or None,
            session=_session(),
        )
    except (ValueError, OSError) as error:
        if is_not_found(error):
            return open_pinned(root, entry)
        with translated(root, f"open {entry.location}"):
            raise
    return dataset if made_at(dataset) == entry.made_at else open_pinned(root, entry)


def look_up(
    root: Root, entry: TableEntry, columns: Sequence[str], where: str | None
) -> pa.RecordBatchReader:
    """Stream some columns of the rows that satisfy a filter."""
    return streamed(root, entry, kept_open(root, entry), columns=list(columns), where=where)
