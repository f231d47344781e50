"""Reads which rows of a fragment are deleted from its deletion file.

Lance itself tells that only by what a scan of the whole fragment leaves out.

Invariant: a file that does not hold as many rows as its version says is not used.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.names import ADDRESS_BITS
from omnigraph_lake.storage.lance.base_paths import places_of_files
from omnigraph_lake.storage.objects.lru_cache import LruCache
from omnigraph_lake.storage.objects.store import stored_objects

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.fragment import DeletionFile, FragmentMetadata

    from omnigraph_lake.storage.objects.location import Root

_KEPT_ROWS_MAX: Final = 65_536
_READ: Final[LruCache[np.ndarray]] = LruCache(64)

# Lance's bitmaps of deleted rows have the portable format of Roaring
# (https://github.com/RoaringBitmap/RoaringFormatSpec).
_RUNS_COOKIE: Final = 12_347
_PLAIN_COOKIE: Final = 12_346
_NO_OFFSETS_BELOW: Final = 4
_ARRAY_MAX: Final = 4_096
_BITMAP_BYTES: Final = 8_192


def read_deletions(
    root: Root, dataset: LanceDataset, fragment_ids: Collection[int]
) -> np.ndarray | None:
    """The row addresses of deleted rows, ascending; None if a deletion file cannot be read here."""
    places = places_of_files(root, dataset)
    parts = [np.empty(0, np.uint64)]
    for number in sorted(fragment_ids):
        fragment = dataset.get_fragment(number)
        assert fragment is not None
        file = fragment.metadata.deletion_file
        if file is None:
            continue
        offsets = _read_listed(root, places, number, file)
        if offsets is None:
            return None
        parts.append(
            (np.uint64(number) << np.uint64(ADDRESS_BITS)) | np.sort(offsets).astype(np.uint64)
        )
    return np.concatenate(parts)


def read_staged_deletions(
    root: Root, dataset: LanceDataset, fragment: FragmentMetadata
) -> np.ndarray:
    """The offsets that the deletion file of a fragment lists which no version of the table has yet.

    Raises:
        DamagedGraphError: it is not there as it was written.
    """
    assert fragment.deletion_file is not None
    places = places_of_files(root, dataset)
    offsets = _read_listed(root, places, fragment.id, fragment.deletion_file)
    if offsets is None:
        raise DamagedGraphError(
            f"a deletion file of fragment {fragment.id} of {dataset.uri} is not there as it was "
            "written a moment ago",
            next_step=f"Run `omnigraph check {root}`, and repeat the change.",
        )
    return offsets


def _read_listed(
    root: Root, places: Mapping[int | None, str], number: int, file: DeletionFile
) -> np.ndarray | None:
    offsets = _read_offsets(root, f"{places[file.base_id]}/{file.path(number)}", file.file_type)
    return None if offsets is None or len(offsets) != file.num_deleted_rows else offsets


def _read_offsets(root: Root, path: str, file_type: str) -> np.ndarray | None:
    """What a deletion file lists; a version names another file for other content."""
    offsets = _READ.get((root.uri, path))
    if offsets is None:
        content = stored_objects(root).read(path)
        offsets = None if content is None else _decode(file_type, content)
        if offsets is not None and len(offsets) <= _KEPT_ROWS_MAX:
            _READ.keep((root.uri, path), offsets)
    return offsets


def _decode(file_type: str, content: bytes) -> np.ndarray | None:
    try:
        match file_type:
            case "array":
                (column,) = pa.ipc.open_file(content).read_all().columns
                offsets: np.ndarray = column.to_numpy()
                return offsets
            case "bitmap":
                return np.concatenate([np.empty(0, np.uint32), *read_roaring(content)])
            case _:
                return None
    except (ValueError, IndexError, OSError, struct.error):
        return None


def read_roaring(content: bytes) -> Iterator[np.ndarray]:
    """The members of a bitmap, container by container, ascending.

    Raises:
        ValueError: it is cut off, or no such bitmap.
    """
    (cookie,) = struct.unpack_from("<I", content)
    if cookie & 0xFFFF == _RUNS_COOKIE:
        size, at = (cookie >> 16) + 1, 4
        flags = np.frombuffer(content, np.uint8, -(-size // 8), at)
        is_run = np.unpackbits(flags, bitorder="little")[:size].astype(bool)
        at += len(flags)
    elif cookie == _PLAIN_COOKIE:
        (size,) = struct.unpack_from("<I", content, 4)
        is_run, at = np.zeros(size, bool), 8
    else:
        raise ValueError(f"cookie {cookie}")
    heads = np.frombuffer(content, "<u2", 2 * size, at).reshape(size, 2).astype(np.uint32)
    at += 4 * size
    if cookie == _PLAIN_COOKIE or size >= _NO_OFFSETS_BELOW:
        at += 4 * size
    for (key, highest), run in zip(heads, is_run, strict=True):
        low, at = _container(content, at, int(highest) + 1, is_run=bool(run))
        yield (key << np.uint32(16)) | low.astype(np.uint32)


def _container(content: bytes, at: int, members: int, *, is_run: bool) -> tuple[np.ndarray, int]:
    """The lower halves of one container's members, and where the next one starts."""
    if is_run:
        (count,) = struct.unpack_from("<H", content, at)
        runs: Any = np.frombuffer(content, "<u2", 2 * count, at + 2).reshape(count, 2)
        ranges = [np.arange(start, start + more + 1) for start, more in runs.tolist()]
        return np.concatenate([np.empty(0, np.int64), *ranges]), at + 2 + 4 * count
    if members <= _ARRAY_MAX:
        return np.frombuffer(content, "<u2", members, at), at + 2 * members
    bits = np.frombuffer(content, np.uint8, _BITMAP_BYTES, at)
    return np.flatnonzero(np.unpackbits(bits, bitorder="little")), at + _BITMAP_BYTES
