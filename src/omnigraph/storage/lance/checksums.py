"""Checksums of the files that published versions of tables name.

Each published version has one small list: the files that it added, and the names that it no longer
uses. A list points at the list of the version before it, so a version costs as much as its change;
at every block of version numbers, and at the first version of a fork, a list is complete.

Invariant: a list is stored before the manifest row that carries its digest, and never changes: its
name holds that digest. It also holds the moment its version was made, so a list never speaks of
another version of the same number.

On a local disk a checksum is a digest of the content. An object store compares what it keeps by
itself: lists are made there only when asked for, of entity tags, and nothing is read back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from omnigraph import names
from omnigraph.errors import DamagedGraphError
from omnigraph.storage.objects.digests import digest_of
from omnigraph.storage.objects.documents import MALFORMED, parsed
from omnigraph.storage.objects.location import stored_path
from omnigraph.storage.objects.lru_cache import UsedLast
from omnigraph.storage.objects.store import stored_objects
from omnigraph.storage.snapshot import ChecksumRef

if TYPE_CHECKING:
    from omnigraph.storage.objects.location import Root

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


_LISTS: Final[UsedLast[ChecksumList]] = UsedLast(_LISTS_KEPT)
_COMPLETE: Final[UsedLast[Mapping[str, FileChecksum]]] = UsedLast(_COMPLETE_KEPT)


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


def recorded_digest(root: Root, location: str, *, version: int, made_at: str) -> str | None:
    """The digest of a whole list of a version on a table's main line; None if there is none."""
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


def _damaged_list(root: Root, path: str, found: str) -> DamagedGraphError:
    return DamagedGraphError(
        f"the list of checksums {path} is damaged: {found}",
        next_step=f"Restore it from a backup, or run `omnigraph scrub {root} --record` "
        "to trust the files that are there.",
    )
