"""Records how far back the versions of tables are kept, and removes versions below that.

Each line of versions has a floor that only ever rises. The floors are the last entry of a log of
small objects, each put only if it is not there yet.

Versions of a line are removed by their numbers. Lance itself keeps HEAD and every version that a
fork starts from, and does not touch files that are younger than seven days and unreferenced: a
writer may be about to commit them. Lance decides by its address whether a fork needs a file. In a
graph that was moved it would take the files as unreferenced, so there what forks start from is kept
as long as a fork names a former address.

Invariants:

- A removal of versions raises the floor above them first, and looks for references to them
  afterwards. A process that is about to rely on an old version claims it first, and reads the floor
  afterwards. So one of the two sees the other.
- A version below its floor counts only while a branch or a tag names it; whatever else is found in
  its place is not what was published there.
- A removal removes exactly the versions named, and the files that no remaining version needs.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from omnigraph_lake import names
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.storage.lance import datasets
from omnigraph_lake.storage.lance.checksums import BLOCK, lists_on_disk, place_of
from omnigraph_lake.storage.objects.containment import require_tree_inside
from omnigraph_lake.storage.objects.documents import MALFORMED, digest_of_values, parsed
from omnigraph_lake.storage.objects.durability import sync
from omnigraph_lake.storage.objects.location import Root, stored_path
from omnigraph_lake.storage.objects.store import Objects, stored_objects

if TYPE_CHECKING:
    from lance.lance import CleanupStats

    from omnigraph_lake.storage.snapshot import TableEntry


WHOLE_LINE: Final = 2**62
"""A floor that no version reaches."""


class Line(NamedTuple):
    """The versions of one table that one fork made; without a fork the table's own."""

    location: str
    fork: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The floors in force; entry 0 is a graph that was never cleaned."""

    entry: int
    floors: Mapping[Line, int]

    def is_below(self, entry: TableEntry) -> bool:
        """Whether a version may be gone, or be something else by now."""
        return entry.version < self.floors.get(line_of(entry), 0)


def line_of(entry: TableEntry) -> Line:
    return Line(entry.location, entry.fork)


def last_entry(objects: Objects) -> int | None:
    """The number of the entry that counts; None if nothing was ever cleaned."""
    return max(_entries(objects).values(), default=None)


def read_retention(objects: Objects) -> Retention:
    """The floors in force; entries that others replace meanwhile are looked for again."""
    while True:
        number = last_entry(objects)
        if number is None:
            return Retention(entry=0, floors={})
        content = objects.read(names.retention_entry(number))
        if content is not None:
            return Retention(entry=number, floors=_decode(number, content))


def raise_floors(objects: Objects, wanted: Mapping[Line, int]) -> Retention:
    """Put floors into force, each as high as wanted or as it is already.

    No put is believed: its number may have been used and freed before. Only what is read back is in
    force.
    """
    while True:
        now = read_retention(objects)
        floors = {line: max(floor, now.floors.get(line, 0)) for line, floor in wanted.items()}
        raised = {**now.floors, **floors}
        if raised == now.floors:
            _forget_before(objects, now.entry)
            return now
        objects.put_if_absent(names.retention_entry(now.entry + 1), _encode(raised))


def forget_lines(objects: Objects, lines: Collection[Line]) -> None:
    """Drop the floors of lines that are gone; their versions can no longer be opened."""
    while True:
        now = read_retention(objects)
        kept = {line: floor for line, floor in now.floors.items() if line not in lines}
        if kept == now.floors:
            return
        objects.put_if_absent(names.retention_entry(now.entry + 1), _encode(kept))
        _forget_before(objects, read_retention(objects).entry)


def _forget_before(objects: Objects, number: int) -> None:
    """Older entries say nothing any more; a late put of one changes nothing either."""
    for path, older in _entries(objects).items():
        if older < number:
            objects.delete(path)


def _entries(objects: Objects) -> Mapping[str, int]:
    """The numbers of the entries, by path; other files are none."""
    numbered = ((path, names.retention_number(path)) for path in objects.list(names.RETENTION_DIR))
    return {path: number for path, number in numbered if number is not None}


def _encode(floors: Mapping[Line, int]) -> bytes:
    rows = [[line.location, line.fork, floor] for line, floor in floors.items()]
    rows.sort(key=lambda row: (row[0], row[1] or ""))
    return json.dumps({"floors": rows, "digest": digest_of_values(rows)}).encode()


def _decode(number: int, content: bytes) -> dict[Line, int]:
    try:
        fields = parsed(content)
        rows, digest = fields["floors"], fields.get("digest")
        if digest not in (None, digest_of_values(rows)):  # entries before format 7 have none
            raise ValueError(f"their digest is {digest_of_values(rows)}, expected {digest!r:.80}")
        floors = {
            Line(str(location), None if fork is None else str(fork)): int(floor)
            for location, fork, floor in rows
        }
    except MALFORMED as error:
        raise DamagedGraphError(
            f"the floors of retention entry {number} cannot be parsed: {error!r}",
            next_step=f"Restore {names.retention_entry(number)} from a backup of the root.",
        ) from error
    for line in floors:
        for part in (line.location,) if line.fork is None else (line.location, line.fork):
            stored_path(part, said_by=names.retention_entry(number))
    return floors


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
    dataset = datasets.open_dataset(root, line.location, fork=line.fork)
    if dataset is None:
        return ()
    with datasets.translated(root, f"list the versions of {line.location}"):
        return tuple(sorted(int(version_ref["version"]) for version_ref in dataset.version_refs()))


def older_than(
    root: Root, line: Line, versions: Sequence[int], moment: datetime
) -> tuple[int, ...]:
    """Those of some versions, oldest first, that were made before a moment; opens a few of them."""
    return tuple(
        versions[: bisect_left(versions, moment, key=lambda version: _made_at(root, line, version))]
    )


def preview_removal(root: Root, line: Line, versions: Sequence[int]) -> Removal:
    dataset = datasets.open_dataset(root, line.location, fork=line.fork)
    versions = _not_shared(root, line, versions)
    if dataset is None or not versions:
        return Removal()
    require_tree_inside(root, line.location)
    with datasets.translated(root, f"look at old versions of {line.location}"):
        explained = dataset.explain_cleanup_old_versions(
            versions=list(versions), error_if_tagged_old_versions=False
        )
        return _removal(explained.stats)


def remove_versions(root: Root, line: Line, versions: Sequence[int]) -> Removal:
    dataset = datasets.open_dataset(root, line.location, fork=line.fork)
    versions = _not_shared(root, line, versions)
    if dataset is None or not versions:
        return Removal()
    require_tree_inside(root, line.location)
    sync(root)  # after a power cut the older ones would be needed again
    with datasets.translated(root, f"remove old versions of {line.location}"):
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
    main = datasets.open_dataset(root, line.location) if versions else None
    if main is None:
        return versions
    with datasets.translated(root, f"list the forks of {line.location}"):
        forks = datasets.lance_branches(main)
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
        datasets.is_moved(root, place_of(line.location, line.fork), version)
        for version in versions_of(root, line)
    )


def _made_at(root: Root, line: Line, version: int) -> datetime:
    dataset = datasets.open_dataset(root, line.location, fork=line.fork, version=version)
    if dataset is None:
        # Another process is removing it: it is as old as can be.
        return datetime.min.replace(tzinfo=UTC)
    return datetime.fromisoformat(datasets.made_at(dataset))


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
