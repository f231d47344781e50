"""Pinned tables that stay open between lookups, with what was read of their indexes.

Invariant: a table is kept as the version that its entry names, told by the moment it was made; one
whose time of writing is not known is opened again every time, and one that was verified less than
a graph asks for is verified again. What is kept of indexes is bounded,
and no two versions share it unless one was made right from the other: fragments of versions that
were given up may have had the same numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa

from omnigraph_lake.storage.lance.base_paths import below_root, names_former_root
from omnigraph_lake.storage.lance.checksums import verify_table
from omnigraph_lake.storage.lance.datasets import dataset_uri, is_not_found, made_at, translated
from omnigraph_lake.storage.lance.legacy_types import as_declared
from omnigraph_lake.storage.lance.tables import open_pinned, streamed
from omnigraph_lake.storage.objects.lru_cache import LruCache
from omnigraph_lake.storage.objects.processes import use_storage
from omnigraph_lake.storage.objects.s3_options import for_one_request

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from lance import LanceDataset

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry

_INDEX_BYTES_KEPT: Final = 48 << 20
_METADATA_BYTES_KEPT: Final = 16 << 20
_TABLES_KEPT: Final = 24


_SCANNED: Final = "scanned"
_KEPT: Final[LruCache[LanceDataset]] = LruCache(_TABLES_KEPT)


def _session() -> Any:
    """Caches of one handle: Lance keys some of what it reads by numbers that versions share."""
    return lance.Session(  # type: ignore[attr-defined]
        index_cache_size_bytes=_INDEX_BYTES_KEPT, metadata_cache_size_bytes=_METADATA_BYTES_KEPT
    )


def cached_dataset(root: Root, entry: TableEntry) -> LanceDataset:
    """The table exactly as the snapshot pins it, opened once."""
    use_storage()
    if entry.made_at is None:
        return open_pinned(root, entry)
    key = _key(root, entry, entry.version, entry.made_at)
    dataset = _KEPT.get(key)
    if dataset is None:
        dataset = _open(root, entry)
        _KEPT.keep(key, dataset)
    return dataset


def dataset_for_scan(root: Root, entry: TableEntry) -> LanceDataset:
    """The same for a scan without a filter, to which a damaged index does not matter."""
    use_storage()
    if entry.made_at is None:
        return open_pinned(root, entry)
    key = _key(root, entry, entry.version, entry.made_at)
    dataset = _KEPT.get(key)
    if dataset is None:
        dataset = _KEPT.get((_SCANNED, key))
    if dataset is None:
        dataset = open_pinned(root, entry)
        _KEPT.keep((_SCANNED, key), dataset)
    return dataset


def keep_next(root: Root, entry: TableEntry, dataset: LanceDataset) -> None:
    """Keep the version that was committed right on top of a kept one: a write may start from it.

    It shares the caches of the version it was made from, all of whose fragments it has or replaced
    by some with numbers of their own.
    """
    if not names_former_root(root, dataset):
        _KEPT.keep(_key(root, entry, int(dataset.version), made_at(dataset)), dataset)


def _key(root: Root, entry: TableEntry, version: int, timestamp: str) -> Hashable:
    options = tuple(sorted(root.storage_options.items()))
    return (root.uri, root.verify, options, entry.location, entry.fork, version, timestamp)


def _open(root: Root, entry: TableEntry) -> LanceDataset:
    verify_table(root, entry, with_indexes=True)
    session = _session()
    try:
        dataset = lance.dataset(
            dataset_uri(root, entry.location, entry.fork),
            version=entry.version,
            storage_options=for_one_request(root.storage_options) or None,
            session=session,
        )
    except (ValueError, OSError) as error:
        if is_not_found(error):
            return open_pinned(root, entry)
        with translated(root, f"open {entry.location}"):
            raise
    if made_at(dataset) != entry.made_at:
        return open_pinned(root, entry)
    return as_declared(below_root(root, dataset, session=session))


def look_up(
    root: Root, entry: TableEntry, columns: Sequence[str], where: str | None
) -> pa.RecordBatchReader:
    """Stream some columns of the rows that satisfy a filter."""
    return streamed(root, entry, cached_dataset(root, entry), columns=list(columns), where=where)
