"""Lists every file of every version that a graph retains, with the checksum it was published with.

A version is retained if a branch or a tag pins it, or if its version file exists and no floor gave
it up: a cleanup that died may have removed a part of what is below.

Invariants:

- A file that several versions name is reported once.
- The files of one version are exact, wherever below the root they are: a version together with
  these files can be read anywhere.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omnigraph_lake import names
from omnigraph_lake.errors import DamagedGraphError, NotFoundError
from omnigraph_lake.storage.lance import checksums
from omnigraph_lake.storage.lance.base_paths import places_of_files, transaction_file
from omnigraph_lake.storage.lance.datasets import is_not_found, open_dataset, translated
from omnigraph_lake.storage.lance.forks import forks_of
from omnigraph_lake.storage.manifest.retention import Line, line_of, read_retention, versions_of
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.refs.branches import living_branches, read_branch_manifest
from omnigraph_lake.storage.refs.tags import all_tags
from omnigraph_lake.storage.snapshot import TableEntry, locations_of
from omnigraph_lake.storage.staging.checksum_recording import named_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lance import LanceDataset

    from omnigraph_lake.storage.manifest.state import ManifestState
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file as the newest retained version that names it was published with."""

    entry: TableEntry
    name: str
    checksum: checksums.FileChecksum

    @property
    def path(self) -> str:
        return self.checksum.path(self.entry.location, self.name)


@dataclass(slots=True, kw_only=True)
class StoredFiles:
    """The files by path, and the failures."""

    files: dict[str, StoredFile] = field(default_factory=dict)
    unrecorded: dict[str, TableEntry] = field(default_factory=dict)
    """Files of pinned versions that have no checksum, by table and name."""
    damaged_lists: list[tuple[TableEntry, DamagedGraphError]] = field(default_factory=list)
    versions: int = 0


def compare(root: Root, file: StoredFile) -> str | None:
    """How a file differs from what was published, read again whatever this process knows of it."""
    return checksums.difference(root, file.entry.location, file.name, file.checksum, again=True)


def manifest_states(objects: Objects) -> tuple[ManifestState, ...]:
    """The newest manifest of main and of every living branch.

    Raises:
        DamagedGraphError: a manifest is missing, or damaged.
    """
    states = [read_manifest(objects.root)]
    for ref in living_branches(objects).values():
        with suppress(NotFoundError):  # deleted concurrently
            states.append(read_branch_manifest(objects, ref))
    return tuple(states)


def pinned_entries(objects: Objects, states: Sequence[ManifestState]) -> tuple[TableEntry, ...]:
    """What branches and tags pin, each version once; main comes first."""
    snapshots = [
        *(state.snapshot() for state in states),
        *(tag.snapshot() for tag in all_tags(objects)),
    ]
    pinned: dict[tuple[Line, int], TableEntry] = {}
    for snapshot in snapshots:
        for entry in snapshot.tables.values():
            pinned.setdefault((line_of(entry), entry.version), entry)
    return tuple(pinned.values())


def stored_files(
    objects: Objects,
    states: Sequence[ManifestState],
    *,
    counts: Callable[[TableEntry], bool] = lambda _: True,
) -> StoredFiles:
    """The files of all versions that are pinned, and of retained ones that `counts` accepts."""
    checksums.forget_lists()  # what is on disk counts, not what this process has read of it before
    root = objects.root
    stored = StoredFiles()
    pinned = pinned_entries(objects, states)
    for entry in pinned:
        _add(root, stored, entry)
        _add_unrecorded(root, stored, entry)
    known = {(line_of(entry), entry.version) for entry in pinned}
    retention = read_retention(objects)
    for entry in _unpinned(root, states):
        is_known = (line_of(entry), entry.version) in known
        if not is_known and not retention.is_below(entry) and counts(entry):
            _add(root, stored, entry, with_indexes=False)
    return stored


def _unpinned(root: Root, states: Sequence[ManifestState]) -> Iterator[TableEntry]:
    """Retained versions, newest first, from their lists on disk.

    Most were published once; some belong to operations that were decided against.
    """
    keys = {
        location: key
        for state in states
        for key, locations in locations_of(state.rows).items()
        for location in locations
    }
    for location, table_key in sorted(keys.items()):
        for fork in (None, *forks_of(root, location)):
            lists = checksums.lists_on_disk(root, location, fork)
            versions = set(versions_of(root, Line(location, fork)))
            for ref in reversed(lists):
                if ref.version in versions:
                    yield TableEntry(
                        table_key=table_key,
                        location=location,
                        version=ref.version,
                        fork=fork,
                        branch=None,
                        row_count=0,
                        checksums=ref,
                    )


def _add(root: Root, stored: StoredFiles, entry: TableEntry, *, with_indexes: bool = True) -> None:
    """Time travel needs no index, and `optimize` leaves damaged ones in old versions."""
    try:
        files = checksums.recorded_files(root, entry.location, entry.checksums)
    except DamagedGraphError as error:
        stored.damaged_lists.append((entry, error))
        return
    stored.versions += 1
    for name, checksum in files.items():
        if checksums.is_index(name) and not with_indexes:
            continue
        file = StoredFile(entry=entry, name=name, checksum=checksum)
        stored.files.setdefault(file.path, file)


def _add_unrecorded(root: Root, stored: StoredFiles, entry: TableEntry) -> None:
    try:
        recorded = checksums.recorded_files(root, entry.location, entry.checksums)
        dataset = open_dataset(root, entry.location, fork=entry.fork, version=entry.version)
        if dataset is not None:
            for name in named_files(root, entry, dataset):
                if name not in recorded or not checksums.is_comparable(root, recorded[name]):
                    stored.unrecorded[f"{entry.location}/{name}"] = entry
    except DamagedGraphError:
        return  # reported by its list or its version file


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFiles:
    """Paths of a version's own file and of what it names; `missing` are not where it says."""

    version_file: str
    content: frozenset[str]
    missing: frozenset[str]


class Listing:
    """The files below one dataset: their sizes, and which of them are in a folder."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self._in_folder: defaultdict[str, list[str]] = defaultdict(list)
        for path in sizes:
            self._in_folder[path.rpartition("/")[0]].append(path)

    def folder(self, path: str) -> Sequence[str]:
        """What is right in a folder."""
        return self._in_folder.get(path, ())

    def versions(self, line: Line) -> dict[int, str]:
        """The files of a line's versions, by their numbers."""
        paths = self.folder(names.lance_versions(checksums.place_of(line.location, line.fork)))
        numbered = ((names.lance_version_at(path), path) for path in paths)
        return {version: path for version, path in numbered if version is not None}


def files_of_version(root: Root, line: Line, version: int, listing: Listing) -> VersionFiles | None:
    """What a version needs, among the files that are listed below its dataset; None if gone."""
    dataset = open_dataset(root, line.location, fork=line.fork, version=version)
    if dataset is None:
        return None
    place = checksums.place_of(line.location, line.fork)
    with translated(root, f"list the files of {place}"):
        try:
            wanted = set(_named(root, place, dataset, listing))
        except (ValueError, OSError) as error:
            if is_not_found(error):
                return None  # removed while it was looked at
            raise
    return VersionFiles(
        version_file=f"{place}/{names.lance_version(version)}",
        content=frozenset(wanted & listing.sizes.keys()),
        missing=frozenset(wanted - listing.sizes.keys()),
    )


def _named(root: Root, place: str, dataset: LanceDataset, listing: Listing) -> Iterator[str]:
    places = places_of_files(root, dataset)
    transaction = transaction_file(dataset)
    if transaction is not None:
        path = names.lance_transactions(place) + transaction
        if path in listing.sizes:  # a version holds its transaction as well
            yield path
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        for file in metadata.files:
            path = names.lance_data(places[file.base_id], file.path)
            yield path
            yield from listing.folder(path.removesuffix(".lance"))  # blobs too large for it
        deletion = metadata.deletion_file
        if deletion is not None:
            yield f"{places[deletion.base_id]}/{deletion.path(metadata.id)}"
    for index in dataset.describe_indices():
        for segment in index.segments:
            folder = f"{places[segment.base_id]}/_indices/{segment.uuid}"
            yield from listing.folder(folder) or (folder,)  # which is missing then
