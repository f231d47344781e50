"""The files that one version of a dataset names, wherever below the root they are.

Invariant: exact. A version together with these files can be read anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph import names
from omnigraph.storage.base_paths import place_of_base, transaction_file
from omnigraph.storage.checksums import place_of
from omnigraph.storage.datasets import open_dataset, translated

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from lance import LanceDataset

    from omnigraph.storage.location import Root
    from omnigraph.storage.retention import Line


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFiles:
    """Paths of a version's own file and of what it names; `missing` are not where it says."""

    version_file: str
    content: frozenset[str]
    missing: frozenset[str]


def files_of_version(
    root: Root, line: Line, version: int, listed: Mapping[str, int]
) -> VersionFiles | None:
    """What a version needs, among the files that are listed below its dataset; None if gone."""
    dataset = open_dataset(root, line.location, fork=line.fork, version=version)
    if dataset is None:
        return None
    place = place_of(line.location, line.fork)
    with translated(root, f"list the files of {place}"):
        wanted = set(_named(root, place, dataset, listed))
    return VersionFiles(
        version_file=f"{place}/{names.lance_version(version)}",
        content=frozenset(wanted & listed.keys()),
        missing=frozenset(wanted - listed.keys()),
    )


def _named(root: Root, place: str, dataset: LanceDataset, listed: Collection[str]) -> Iterator[str]:
    transaction = transaction_file(dataset)
    if transaction is not None:
        path = names.lance_transactions(place) + transaction
        if path in listed:  # a version holds its transaction as well
            yield path
    folders: set[str] = set()
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        for file in metadata.files:
            path = names.lance_data(place_of_base(root, dataset, file.base_id), file.path)
            yield path
            folders.add(path.removesuffix(".lance"))  # blobs that were too large for it
        deletion = metadata.deletion_file
        if deletion is not None:
            base = place_of_base(root, dataset, deletion.base_id)
            yield f"{base}/{deletion.path(metadata.id)}"
    for index in dataset.describe_indices():
        for segment in index.segments:
            folders.add(f"{place_of_base(root, dataset, segment.base_id)}/_indices/{segment.uuid}")
    yield from (path for path in listed if path.rpartition("/")[0] in folders)
