"""Recording the checksums of a version before it is published.

A write knows which files it added and dropped, so its list costs as much as its change. Whatever
else makes versions is compared with what was recorded before it: compaction, index builds, schema
changes, recovery.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from lance import LanceOperation
from lance.blob import BlobType

from omnigraph_lake import names
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.storage.lance import checksums
from omnigraph_lake.storage.lance.datasets import NewVersion, made_at, open_dataset, translated
from omnigraph_lake.storage.objects.documents import digest_of
from omnigraph_lake.storage.objects.location import Root, Scheme
from omnigraph_lake.storage.objects.store import stored_objects
from omnigraph_lake.storage.snapshot import ChecksumRef, TableEntry

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.fragment import FragmentMetadata

    from omnigraph_lake.storage.staging.changes import Checksums, StagedChange

_LOOKED_UP_MOST: Final = 64


class _ChangedFiles(NamedTuple):
    added: tuple[str, ...]
    removed: tuple[str, ...]


def record_change(root: Root, change: StagedChange, new_version: NewVersion) -> ChecksumRef | None:
    """Store the list of a version that a write just made; none on an object store.

    There it would cost a request for every file, and the store compares what it keeps by itself.
    """
    if root.scheme is not Scheme.LOCAL:
        return None
    entry, version = change.entry, new_version.version
    changed = _changed_files(root, change)
    ready = change.make_checksums()
    if changed is None:
        return record_version(root, entry, version, ready=ready)
    added = {
        name: _ready_or_read(root, entry, name, ready)
        for name in (*changed.added, names.lance_version(version))
    }
    before = entry.checksums
    if before is not None and before.fork == entry.fork and _same_block(before.version, version):
        stored = checksums.ChecksumList(previous=before, added=added, removed=changed.removed)
    else:
        known = dict(checksums.recorded_files(root, entry.location, before))
        for name in changed.removed:
            known.pop(name, None)
        stored = checksums.ChecksumList(
            previous=None, added={**checksums.without_versions(known), **added}
        )
    return _store(root, entry, stored, new_version)


def staged_checksums(root: Root, entry: TableEntry, fragment: FragmentMetadata) -> Checksums:
    """The checksums of the data files that a task has just written, by name; runs anywhere."""
    if root.scheme is not Scheme.LOCAL:
        return {}
    files = _fragment_files(root, entry, fragment, has_blobs=True)
    return {name: _checksum(root, entry, name)[1:] for name in files}


def record_version(
    root: Root, entry: TableEntry, version: int, *, ready: Checksums | None = None
) -> ChecksumRef | None:
    """The same for a version of which nothing is known but its number; None if there is none.

    Every file that it names is read, except those that `entry` has checksums of, or `ready`.
    """
    dataset = open_dataset(root, entry.location, fork=entry.fork, version=version)
    if dataset is None:
        return None
    known = checksums.recorded_files(root, entry.location, entry.checksums)
    files = {
        name: known.get(name) or _ready_or_read(root, entry, name, ready or {})
        for name in (*named_files(root, entry, dataset), names.lance_version(version))
    }
    stored = checksums.ChecksumList(previous=None, added=files)
    return _store(root, entry, stored, NewVersion(version, made_at(dataset)))


def named_files(root: Root, entry: TableEntry, dataset: LanceDataset) -> Iterator[str]:
    """The data, deletion, blob and index files of a version, without the folder they are in."""
    with translated(root, f"list the files of {entry.table_key}"):
        with_blobs = has_blobs(dataset)
        fragments = [fragment.metadata for fragment in dataset.get_fragments()]
        indexes = dataset.describe_indices()
        segments = [segment for index in indexes for segment in index.segments]
    for fragment in fragments:
        yield from _fragment_files(root, entry, fragment, has_blobs=with_blobs)
    for segment in segments:
        yield from _files_below(root, entry, f"_indices/{segment.uuid}")


def _changed_files(root: Root, change: StagedChange) -> _ChangedFiles | None:
    """What a write added and dropped; None if the whole version must be compared."""
    operation = change.operation
    new: Iterable[FragmentMetadata] = ()
    updated: list[FragmentMetadata] = []
    removed_ids: Iterable[int] = ()
    match operation:
        case LanceOperation.Append():
            new = operation.fragments
        case LanceOperation.Update():
            new, updated = operation.new_fragments, list(operation.updated_fragments)
            removed_ids = operation.removed_fragment_ids
        case LanceOperation.Delete():
            updated, removed_ids = list(operation.updated_fragments), operation.deleted_fragment_ids
        case _:
            return None
    numbers = [*removed_ids, *(fragment.id for fragment in updated)]
    if len(numbers) > _LOOKED_UP_MOST:
        return None
    with_blobs = has_blobs(change.base)

    def files(fragments: Iterable[FragmentMetadata]) -> set[str]:
        return {
            name
            for fragment in fragments
            for name in _fragment_files(root, change.entry, fragment, has_blobs=with_blobs)
        }

    pinned = [change.base.get_fragment(number) for number in numbers]
    before = files(fragment.metadata for fragment in pinned if fragment is not None)
    after = files((*new, *updated))
    return _ChangedFiles(tuple(sorted(after - before)), tuple(sorted(before - after)))


def _fragment_files(
    root: Root, entry: TableEntry, fragment: FragmentMetadata, *, has_blobs: bool
) -> Iterator[str]:
    for file in fragment.files:
        yield f"data/{file.path}"
        if has_blobs:
            yield from _files_below(root, entry, f"data/{file.path.removesuffix('.lance')}")
    if fragment.deletion_file is not None:
        yield str(fragment.deletion_file.path(fragment.id))


def _files_below(root: Root, entry: TableEntry, folder: str) -> Iterator[str]:
    """The files in a folder of the table, or of a fork that it shares files with."""
    for fork in _forks(root, entry):
        place = checksums.place_of(entry.location, fork)
        paths = stored_objects(root).list(f"{place}/{folder}")
        if paths:
            yield from (path.removeprefix(f"{place}/") for path in paths)
            return


def _ready_or_read(
    root: Root, entry: TableEntry, name: str, ready: Checksums
) -> checksums.FileChecksum:
    if name in ready:
        return checksums.FileChecksum(entry.fork, *ready[name])
    return _checksum(root, entry, name)


def _checksum(root: Root, entry: TableEntry, name: str) -> checksums.FileChecksum:
    """The checksum of a file that is stored, wherever it is."""
    objects = stored_objects(root)
    for fork in _forks(root, entry):
        content = objects.checksum(f"{checksums.place_of(entry.location, fork)}/{name}")
        if content is not None:
            return checksums.FileChecksum(fork, *content)
    raise DamagedGraphError(f"{name} of {entry.table_key} is gone before its version was published")


def _forks(root: Root, entry: TableEntry) -> Iterator[str | None]:
    """The folders that may hold a file of a table: its own first, then those it was forked from."""
    yield entry.fork
    if entry.fork is None:
        return
    yield None
    folder = names.forks_folder(entry.location)
    for path in stored_objects(root).folders(folder):
        fork = path.removeprefix(f"{folder}/").strip("/")
        if fork != entry.fork:
            yield fork


def _store(
    root: Root, entry: TableEntry, stored: checksums.ChecksumList, new_version: NewVersion
) -> ChecksumRef:
    body = stored.to_bytes()
    digest = digest_of(body)
    place = checksums.place_of(entry.location, entry.fork)
    path = names.checksum_list(place, new_version.version, new_version.made_at, digest)
    stored_objects(root).replace(path, body)
    checksums.keep_list(root, path, stored)
    return ChecksumRef(entry.fork, new_version.version, new_version.made_at, digest)


def _same_block(before: int, version: int) -> bool:
    return before // checksums.BLOCK == version // checksums.BLOCK


def has_blobs(dataset: LanceDataset) -> bool:
    return any(isinstance(field.type, BlobType) for field in dataset.schema)
