"""Removing versions of one line of a table, chosen by their numbers.

Invariant: exactly the versions named go, and the files that no version left needs. Lance itself
keeps HEAD and every version that a fork starts from, and leaves alone files that are younger than
seven days and unreferenced: a writer may be about to commit them.

Lance decides by its address whether a fork needs a file. In a graph that was moved it would take
the files as unreferenced, so there what forks start from is kept as long as a fork names a former
address.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from omnigraph import names
from omnigraph.storage.lance.checksums import BLOCK, lists_on_disk, place_of
from omnigraph.storage.lance.connections import is_moved
from omnigraph.storage.lance.datasets import lance_branches, made_at, open_dataset, translated
from omnigraph.storage.manifest.retention import Line
from omnigraph.storage.objects.containment import require_tree_inside
from omnigraph.storage.objects.durability import sync
from omnigraph.storage.objects.store import stored_objects

if TYPE_CHECKING:
    from lance.lance import CleanupStats

    from omnigraph.storage.objects.location import Root


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What removing versions takes away, or took."""

    versions: int = 0
    files: int = 0
    bytes: int = 0

    def __add__(self, other: Removal) -> Removal:
        return Removal(
            versions=self.versions + other.versions,
            files=self.files + other.files,
            bytes=self.bytes + other.bytes,
        )


def versions_of(root: Root, line: Line) -> tuple[int, ...]:
    """The versions that exist on a line, oldest first."""
    dataset = open_dataset(root, line.location, fork=line.fork)
    if dataset is None:
        return ()
    with translated(root, f"list the versions of {line.location}"):
        return tuple(sorted(int(each["version"]) for each in dataset.version_refs()))


def older_than(
    root: Root, line: Line, versions: Sequence[int], moment: datetime
) -> tuple[int, ...]:
    """Those of some versions, oldest first, that were made before a moment; opens a few of them."""
    return tuple(
        versions[: bisect_left(versions, moment, key=lambda each: _made_at(root, line, each))]
    )


def preview_removal(root: Root, line: Line, versions: Sequence[int]) -> Removal:
    dataset = open_dataset(root, line.location, fork=line.fork)
    versions = _not_shared(root, line, versions)
    if dataset is None or not versions:
        return Removal()
    require_tree_inside(root, line.location)
    with translated(root, f"look at old versions of {line.location}"):
        explained = dataset.explain_cleanup_old_versions(
            versions=list(versions), error_if_tagged_old_versions=False
        )
        return _removal(explained.stats)


def remove_versions(root: Root, line: Line, versions: Sequence[int]) -> Removal:
    dataset = open_dataset(root, line.location, fork=line.fork)
    versions = _not_shared(root, line, versions)
    if dataset is None or not versions:
        return Removal()
    require_tree_inside(root, line.location)
    sync(root)  # after a power cut the older ones would be needed again
    with translated(root, f"remove old versions of {line.location}"):
        return _removal(
            dataset.cleanup_old_versions(
                versions=list(versions), error_if_tagged_old_versions=False
            )
        )


def remove_checksums(root: Root, line: Line) -> None:
    """Delete the lists of checksums that no version of a line needs any more."""
    # Versions are listed last: a list is younger than its version, so none is taken for old.
    lists = lists_on_disk(root, line.location, line.fork)
    blocks = {version // BLOCK for version in versions_of(root, line)}
    for ref in lists:
        if ref.version // BLOCK not in blocks and ref.digest is not None:
            place = place_of(line.location, line.fork)
            path = names.checksum_list(place, ref.version, ref.made_at, ref.digest)
            stored_objects(root).delete(path)


def _not_shared(root: Root, line: Line, versions: Sequence[int]) -> Sequence[int]:
    """The versions without those that forks start from, if Lance would not see that they do.

    A fork shares with its line only what the version had that it started from, and so do forks of
    that fork.
    """
    main = open_dataset(root, line.location) if versions else None
    if main is None:
        return versions
    with translated(root, f"list the forks of {line.location}"):
        forks = lance_branches(main)
    starts = {
        fork["parent_version"] for fork in forks.values() if fork["parent_branch"] == line.fork
    }
    if starts.isdisjoint(versions) or not any(
        _names_former_root(root, Line(line.location, fork)) for fork in forks
    ):
        return versions
    return [version for version in versions if version not in starts]


def _names_former_root(root: Root, line: Line) -> bool:
    """Whether any version of a fork names files at an address that the graph had before."""
    return any(
        is_moved(root, place_of(line.location, line.fork), version)
        for version in versions_of(root, line)
    )


def _made_at(root: Root, line: Line, version: int) -> datetime:
    dataset = open_dataset(root, line.location, fork=line.fork, version=version)
    if dataset is None:
        # Another process is removing it: it is as old as can be.
        return datetime.min.replace(tzinfo=UTC)
    return datetime.fromisoformat(made_at(dataset))


def _removal(stats: CleanupStats) -> Removal:
    return Removal(
        versions=int(stats.old_versions),
        files=int(
            stats.data_files_removed
            + stats.transaction_files_removed
            + stats.index_files_removed
            + stats.deletion_files_removed
        ),
        bytes=int(stats.bytes_removed),
    )
