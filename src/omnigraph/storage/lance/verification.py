"""Comparing files with their checksums before Lance reads them.

Lance has no checksums and decodes most damaged files without an error, so a table is opened at a
version only after the files that the graph asks to verify were compared with what was published.

Invariant: a file is compared once per process, for as long as it is the same file on disk. What was
never recorded, in formats before 7, is not compared; `status` counts it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, assert_never

from omnigraph.errors import DamagedGraphError
from omnigraph.storage.lance.checksums import (
    FileChecksum,
    is_deletion,
    is_key_index,
    is_version,
    read_list,
    recorded_files,
)
from omnigraph.storage.lance.datasets import open_dataset
from omnigraph.storage.objects.location import Scheme, Verify
from omnigraph.storage.objects.lru_cache import UsedLast
from omnigraph.storage.objects.store import ENTITY_TAG, stored_objects

if TYPE_CHECKING:
    from lance import LanceDataset

    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import ChecksumRef, TableEntry

_VERSIONS_KEPT: Final = 4096
_FILES_KEPT: Final = 1 << 16

_VERSIONS: Final[UsedLast[ChecksumRef]] = UsedLast(_VERSIONS_KEPT)
"""Versions of which every file that was to be compared was found as published."""
_FILES: Final[UsedLast[tuple[int, int, int]]] = UsedLast(_FILES_KEPT)
"""Files that were compared: their inodes, sizes and times of change."""


def verify_table(root: Root, entry: TableEntry, *, with_indexes: bool) -> None:
    """Compare what the graph asks to verify of a published version.

    Raises:
        DamagedGraphError: a file is missing or not what was published.
    """
    ref = entry.checksums
    if ref is None or _is_left_to_the_store(root):
        return
    key = (root.uri, root.verify, entry.location, with_indexes)
    if _VERSIONS.get((key, ref)):
        return
    stored = read_list(root, entry.location, ref)
    if stored is None:
        return
    files = stored.added
    if stored.previous is None or not _VERSIONS.get((key, stored.previous)):
        files = recorded_files(root, entry.location, ref)
    for name, checksum in files.items():
        if _is_verified(root.verify, name) and (with_indexes or not is_index(name)):
            _require_undamaged(root, entry, name, checksum)
    _VERSIONS.keep((key, ref), ref)


def damaged_indexes(root: Root, entry: TableEntry) -> frozenset[str]:
    """The identifiers of index segments with files that are missing or not what was published."""
    if _is_left_to_the_store(root):
        return frozenset()
    files = recorded_files(root, entry.location, entry.checksums)
    return frozenset(
        name.split("/")[1]
        for name, checksum in files.items()
        if is_index(name) and difference(root, entry.location, name, checksum) is not None
    )


def difference(
    root: Root, location: str, name: str, checksum: FileChecksum, *, again: bool = False
) -> str | None:
    """How a file differs from what was published; None if it does not.

    A file that this process has compared is not read again, unless that is requested.
    """
    path = checksum.path(location, name)
    identity = _identity(root, path)
    if identity is not None and not again and _FILES.get((root.uri, path)) == identity:
        return None
    stored = stored_objects(root).checksum(path)
    if stored is None:
        return "it is missing"
    size, digest = stored
    if size != checksum.size:
        return f"it has {size} bytes, expected {checksum.size}"
    if digest != checksum.digest and is_comparable(root, checksum):
        return f"its digest is {digest}, expected {checksum.digest}"
    if identity is not None:
        _FILES.keep((root.uri, path), identity)
    return None


def damage(
    root: Root, entry: TableEntry, name: str, checksum: FileChecksum, differs: str
) -> DamagedGraphError | None:
    """The error of a file that differs; None for an index that its version does not name.

    Lance drops an index by itself when a write leaves it without rows.
    """
    try:
        dataset = open_dataset(root, entry.location, fork=entry.fork, version=entry.version)
    except Exception:  # noqa: BLE001 - whatever damage does to Lance, it is reported below
        dataset = None
    if dataset is not None and is_index(name) and not _names_index(dataset, name):
        return None
    at_risk, way_out = _consequence(root, entry, dataset, name)
    return DamagedGraphError(
        f"{checksum.path(entry.location, name)} in {root} is damaged: {differs}. It belongs to "
        f"version {entry.version} of {entry.table_key}; {at_risk}",
        next_step=way_out,
    )


def _require_undamaged(root: Root, entry: TableEntry, name: str, checksum: FileChecksum) -> None:
    differs = difference(root, entry.location, name, checksum)
    if differs is None:
        return
    if (
        is_version(name)
        and stored_objects(root).checksum(checksum.path(entry.location, name)) is None
    ):
        return  # a cleanup may have removed the version: Lance finds no such version either
    error = damage(root, entry, name, checksum, differs)
    if error is not None:
        raise error


def is_comparable(root: Root, checksum: FileChecksum) -> bool:
    """Whether a store can make such a checksum: entity tags say nothing about a copy elsewhere."""
    return checksum.digest.startswith(ENTITY_TAG) == (root.scheme is not Scheme.LOCAL)


def _is_left_to_the_store(root: Root) -> bool:
    """An object store compares what it keeps by itself, and asking costs a request per file."""
    return root.scheme is not Scheme.LOCAL and root.verify is Verify.METADATA


def is_index(name: str) -> bool:
    return name.startswith("_indices/")


def _is_verified(verify: Verify, name: str) -> bool:
    match verify:
        case Verify.METADATA:
            return is_version(name) or is_deletion(name) or is_key_index(name)
        case Verify.FIRST_READ:
            return True
        case _:
            assert_never(verify)


def _identity(root: Root, path: str) -> tuple[int, int, int] | None:
    if root.scheme is not Scheme.LOCAL:
        return None
    try:
        facts = os.stat(root.child(path))  # noqa: PTH116 - asked for every file
    except OSError:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def _names_index(dataset: LanceDataset, name: str) -> bool:
    uuid = name.split("/")[1]
    segments = (segment for index in dataset.describe_indices() for segment in index.segments)
    return any(str(segment.uuid) == uuid for segment in segments)


def _consequence(
    root: Root, entry: TableEntry, dataset: LanceDataset | None, name: str
) -> tuple[str, str]:
    """What the damage of a file puts at risk, and the way out."""
    if is_index(name):
        way_out = "Restore the file, or read the type as a whole, which needs no index."
        if entry.branch is None:
            way_out = f"Run `omnigraph optimize {root}` to build it again."
        return "rows may not be found through this index, no row is lost", way_out
    restore = (
        "Restore the file from a backup, go back to an earlier version of the type with "
        f"`omnigraph commits {root}` and `--at`, or load its rows again with mode overwrite."
    )
    if is_deletion(name):
        return "rows that were deleted may come back", restore
    rows = entry.row_count
    if dataset is not None and name.startswith("data/"):
        stem = name.removeprefix("data/").split("/")[0].removesuffix(".lance")
        rows = sum(
            fragment.metadata.physical_rows
            for fragment in dataset.get_fragments()
            if any(file.path.removesuffix(".lance") == stem for file in fragment.metadata.files)
        )
    return f"up to {rows} rows are at risk", restore
