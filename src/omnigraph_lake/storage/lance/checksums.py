"""Stores checksums of the files of published versions, and verifies files before Lance reads them.

Each published version has one small list: the files that it added, and the names that it no longer
uses. A list points at the list of the version before it, so a version costs as much as its change;
at every block of version numbers, and at the first version of a fork, a list is complete.

Lance has no checksums and decodes most damaged files without an error, so a table is opened at a
version only after the files that the graph asks to verify were compared with what was published.

On a local disk a checksum is a digest of the content. An object store compares what it keeps by
itself: lists are made there only when asked for, of entity tags, and nothing is read back.

Invariants:

- A list is stored before the manifest row that carries its digest, and never changes: its name
  holds that digest.
- A list also holds the moment its version was made, so it never speaks of another version of the
  same number.
- A file is compared once per process, for as long as it is the same file on disk.
- What was never recorded, in formats before 7, is not compared; `status` counts it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

from omnigraph_lake import names
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.storage.lance.datasets import open_dataset
from omnigraph_lake.storage.objects.documents import MALFORMED, digest_of, parsed
from omnigraph_lake.storage.objects.location import Root, Scheme, Verify, stored_path
from omnigraph_lake.storage.objects.lru_cache import LruCache
from omnigraph_lake.storage.objects.store import ENTITY_TAG, stored_objects
from omnigraph_lake.storage.snapshot import ChecksumRef, TableEntry

if TYPE_CHECKING:
    from lance import LanceDataset


BLOCK: Final = 32
"""A list is complete where version numbers enter a new block, so no chain is longer."""
_LISTS_KEPT: Final = 512
_COMPLETE_KEPT: Final = 32


class FileChecksum(NamedTuple):
    """What a file was when its version was published, and the fork whose folder holds it."""

    fork: str | None
    size: int
    digest: str

    def path(self, location: str, name: str) -> str:
        return f"{place_of(location, self.fork)}/{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksumList:
    """What one version added and no longer names; complete if it follows no other list."""

    previous: ChecksumRef | None
    added: Mapping[str, FileChecksum]
    removed: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        return json.dumps(
            {"previous": self.previous, "added": self.added, "removed": self.removed},
            sort_keys=True,
            separators=(",", ":"),
        ).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> ChecksumList:
        """What a list says.

        Raises:
            ValueError: it is not what `to_bytes` writes.
        """
        try:
            fields = parsed(content)
            previous = fields["previous"]
            return cls(
                previous=None if previous is None else ChecksumRef(*previous),
                added={name: _checksum(*values) for name, values in fields["added"].items()},
                removed=tuple(fields["removed"]),
            )
        except MALFORMED as error:
            raise ValueError(f"it cannot be understood: {error!r:.120}") from error


def _checksum(fork: object, size: object, digest: object) -> FileChecksum:
    if isinstance(fork, str | None) and isinstance(size, int) and isinstance(digest, str):
        return FileChecksum(fork, size, digest)
    raise TypeError(f"a checksum is {(fork, size, digest)!r:.80}")


_LISTS: Final[LruCache[ChecksumList]] = LruCache(_LISTS_KEPT)
_COMPLETE: Final[LruCache[Mapping[str, FileChecksum]]] = LruCache(_COMPLETE_KEPT)


def read_list(root: Root, location: str, ref: ChecksumRef) -> ChecksumList | None:
    """A whole list of a version; None if there is none, and nothing says that there must be one.

    Raises:
        DamagedGraphError: it is gone although the manifest knows its digest, or it is not what was
            stored, and there is no other of the same version.
    """
    damage: DamagedGraphError | None = None
    for digest in _digests(root, location, ref):
        try:
            return _read_whole(root, location, ref, digest)
        except DamagedGraphError as error:
            damage = damage or error
    if damage is not None:
        raise damage
    return None


def _digests(root: Root, location: str, ref: ChecksumRef) -> Iterator[str]:
    """The list that is asked for, then others of the same version: any is as good as another."""
    if ref.digest is not None:
        yield ref.digest
    moment = names.checksum_moment(ref.made_at)
    for listed in lists_on_disk(root, location, ref.fork):
        is_of_version = (listed.version, listed.made_at) == (ref.version, moment)
        if is_of_version and listed.digest is not None and listed.digest != ref.digest:
            yield listed.digest


def _read_whole(root: Root, location: str, ref: ChecksumRef, digest: str) -> ChecksumList:
    path = names.checksum_list(place_of(location, ref.fork), ref.version, ref.made_at, digest)
    stored = _LISTS.get((root.uri, path))
    if stored is not None:
        return stored
    content = stored_objects(root).read(path)
    if content is None:
        raise _damaged_list(root, path, "it is missing")
    if digest_of(content) != digest:
        raise _damaged_list(root, path, f"its digest is {digest_of(content)}")
    try:
        stored = ChecksumList.from_bytes(content)
    except ValueError as error:
        raise _damaged_list(root, path, str(error)) from error
    for name, checksum in stored.added.items():
        stored_path(checksum.path(location, name), said_by=path)
    keep_list(root, path, stored)
    return stored


def forget_lists() -> None:
    """Read lists again that this process has read before."""
    _LISTS.clear()
    _COMPLETE.clear()


def recorded_digest(root: Root, location: str, *, version: int, made_at: str | None) -> str | None:
    """The digest of a whole list of a version on a table's main line; None if there is none."""
    if made_at is None:
        return None
    ref = ChecksumRef(None, version, made_at, None)
    for digest in _digests(root, location, ref):
        with suppress(DamagedGraphError):
            _read_whole(root, location, ref, digest)
            return digest
    return None


def recorded_files(
    root: Root, location: str, ref: ChecksumRef | None
) -> Mapping[str, FileChecksum]:
    """Every file that a version names, as far as checksums were recorded."""
    if ref is None:
        return {}
    key = (root.uri, location, ref)
    complete = _COMPLETE.get(key)
    if complete is None:
        complete = _complete(root, location, ref)
        if ref.digest is not None:
            _COMPLETE.keep(key, complete)
    return complete


def _complete(root: Root, location: str, ref: ChecksumRef) -> Mapping[str, FileChecksum]:
    chain: list[ChecksumList] = []
    wanted: ChecksumRef | None = ref
    while wanted is not None:
        stored = read_list(root, location, wanted)
        if stored is None:
            break
        chain.append(stored)
        wanted = stored.previous
    return _files_after(chain)


def _files_after(chain: Sequence[ChecksumList]) -> dict[str, FileChecksum]:
    """The files that a version names and that were added by lists of a chain, the newest first."""
    files: dict[str, FileChecksum] = {}
    for stored in reversed(chain):
        for name in stored.removed:
            files.pop(name, None)
        files = {**without_versions(files), **stored.added}
    return files


def lists_on_disk(root: Root, location: str, fork: str | None) -> tuple[ChecksumRef, ...]:
    """Every list of one line of a table, oldest version first."""
    paths = stored_objects(root).list(names.checksum_lists(place_of(location, fork)))
    listed = [named for named in map(names.checksum_list_at, paths) if named is not None]
    return tuple(ChecksumRef(fork, *named) for named in sorted(listed))


def is_version(name: str) -> bool:
    return name.startswith("_versions/")


def is_deletion(name: str) -> bool:
    return name.startswith("_deletions/")


def is_key_index(name: str) -> bool:
    """Whether a file belongs to an index that finds rows by a value: these decide keys."""
    return name.startswith("_indices/") and name.rpartition("/")[2].startswith("page_")


def without_versions(files: Mapping[str, FileChecksum]) -> dict[str, FileChecksum]:
    return {name: checksum for name, checksum in files.items() if not is_version(name)}


def keep_list(root: Root, path: str, stored: ChecksumList) -> None:
    """Remember a list that this process has just stored."""
    _LISTS.keep((root.uri, path), stored)


def place_of(location: str, fork: str | None) -> str:
    return location if fork is None else names.fork_location(location, fork)


def _damaged_list(root: Root, path: str, problem: str) -> DamagedGraphError:
    return DamagedGraphError(
        f"the list of checksums {path} is damaged: {problem}",
        next_step=f"Restore it from a backup, or run `omnigraph scrub {root} --record` "
        "to trust the files that are there.",
    )


_VERSIONS_KEPT: Final = 4096
_FILES_KEPT: Final = 1 << 16

_VERSIONS: Final[LruCache[ChecksumRef]] = LruCache(_VERSIONS_KEPT)
"""Versions of which every file that was to be compared was found as published."""
_FILES: Final[LruCache[tuple[int, int, int]]] = LruCache(_FILES_KEPT)
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
    chain: list[ChecksumList] = []
    wanted: ChecksumRef | None = ref
    while wanted is not None and not _VERSIONS.get((key, wanted)):
        stored = read_list(root, entry.location, wanted)
        if stored is None:
            break
        chain.append(stored)
        wanted = stored.previous
    if not chain:
        return
    for name, checksum in _files_after(chain).items():
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
        f"`omnigraph commit list {root}` and `--at`, or load its rows again with mode overwrite."
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
