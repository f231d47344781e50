"""Checksums of the files that published versions of tables name.

Each published version has one small list: the files that it added, and the names that it no longer
uses. A list points at the list of the version before it, so a version costs as much as its change;
at every block of version numbers, and at the first version of a fork, a list is complete.

Invariant: a list is stored before the manifest row that carries its digest. Its name holds the
moment its version was made, so a list never speaks of another version of the same number.

On a local disk a checksum is a digest of the content. An object store compares what it keeps by
itself: lists are made there only when asked for, of entity tags, and nothing is read back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from omnigraph import names
from omnigraph.errors import DamagedGraphError
from omnigraph.storage.digests import digest_of
from omnigraph.storage.objects import stored_objects
from omnigraph.storage.snapshot import ChecksumRef
from omnigraph.storage.used_last import UsedLast

if TYPE_CHECKING:
    from omnigraph.storage.location import Root

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
        fields = json.loads(content)
        previous = fields["previous"]
        return cls(
            previous=None if previous is None else ChecksumRef(*previous),
            added={name: FileChecksum(*values) for name, values in fields["added"].items()},
            removed=tuple(fields["removed"]),
        )


_LISTS: Final[UsedLast[ChecksumList]] = UsedLast(_LISTS_KEPT)
_COMPLETE: Final[UsedLast[Mapping[str, FileChecksum]]] = UsedLast(_COMPLETE_KEPT)


def read_list(root: Root, location: str, ref: ChecksumRef) -> ChecksumList | None:
    """A stored list; None if there is none, and nothing says that there must be one.

    Raises:
        DamagedGraphError: it is gone although the manifest knows its digest, or it is not what was
            stored.
    """
    path = names.checksum_list(place_of(location, ref.fork), ref.version, ref.made_at)
    key = (root.uri, path, ref.digest)
    stored = _LISTS.get(key)
    if stored is not None:
        return stored
    content = stored_objects(root).read(path)
    if content is None:
        if ref.digest is None:
            return None
        raise _damaged_list(root, path, "it is missing")
    body, _, own = content.rpartition(b"\n")
    expected = ref.digest or own.decode(errors="replace")
    if digest_of(body) != expected:
        raise _damaged_list(root, path, f"its digest is {digest_of(body)}, expected {expected}")
    stored = ChecksumList.from_bytes(body)
    if ref.digest is not None:
        _LISTS.keep(key, stored)
    return stored


def forget_lists() -> None:
    """Read lists again that this process has read before."""
    _LISTS.clear()
    _COMPLETE.clear()


def recorded_digest(root: Root, location: str, *, version: int, made_at: str) -> str | None:
    """The digest of the list of a version on a table's main line; None if there is no whole one."""
    path = names.checksum_list(location, version, made_at)
    body, _, own = (stored_objects(root).read(path) or b"").rpartition(b"\n")
    return digest_of(body) if digest_of(body) == own.decode(errors="replace") else None


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
    files: dict[str, FileChecksum] = {}
    for stored in reversed(chain):
        for name in stored.removed:
            files.pop(name, None)
        files = {**without_versions(files), **stored.added}
    return files


def lists_on_disk(root: Root, location: str, fork: str | None) -> tuple[ChecksumRef, ...]:
    """Every list of one line of a table, oldest version first; their digests are not known."""
    paths = stored_objects(root).list(names.checksum_lists(place_of(location, fork)))
    versions = (names.checksum_list_at(path) for path in paths)
    return tuple(ChecksumRef(fork, *version, None) for version in sorted(versions))


def is_version(name: str) -> bool:
    return name.startswith("_versions/")


def is_deletion(name: str) -> bool:
    return name.startswith("_deletions/")


def is_key_index(name: str) -> bool:
    """Whether a file belongs to an index that finds rows by a value: these decide keys."""
    return name.startswith("_indices/") and name.rpartition("/")[2].startswith("page_")


def without_versions(files: Mapping[str, FileChecksum]) -> dict[str, FileChecksum]:
    return {name: checksum for name, checksum in files.items() if not is_version(name)}


def keep_list(root: Root, path: str, digest: str, stored: ChecksumList) -> None:
    """Remember a list that this process has just stored."""
    _LISTS.keep((root.uri, path, digest), stored)


def place_of(location: str, fork: str | None) -> str:
    return location if fork is None else names.fork_location(location, fork)


def _damaged_list(root: Root, path: str, found: str) -> DamagedGraphError:
    return DamagedGraphError(
        f"the list of checksums {path} is damaged: {found}",
        next_step=f"Restore it from a backup, or run `omnigraph scrub {root} --record` "
        "to trust the files that are there.",
    )
