"""The files that one version of a dataset names, wherever below the root they are.

Invariant: exact. A version together with these files can be read anywhere.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph import names
from omnigraph.storage.lance.base_paths import places_of_files, transaction_file
from omnigraph.storage.lance.checksums import place_of
from omnigraph.storage.lance.datasets import is_not_found, open_dataset, translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lance import LanceDataset

    from omnigraph.storage.manifest.retention import Line
    from omnigraph.storage.objects.location import Root


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
        paths = self.folder(names.lance_versions(place_of(line.location, line.fork)))
        numbered = ((names.lance_version_at(path), path) for path in paths)
        return {version: path for version, path in numbered if version is not None}


def files_of_version(root: Root, line: Line, version: int, listing: Listing) -> VersionFiles | None:
    """What a version needs, among the files that are listed below its dataset; None if gone."""
    dataset = open_dataset(root, line.location, fork=line.fork, version=version)
    if dataset is None:
        return None
    place = place_of(line.location, line.fork)
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
