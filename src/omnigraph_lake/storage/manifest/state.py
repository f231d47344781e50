"""Holds what one version of a manifest says, and caches the versions that this process knows.

A `BranchRef` identifies a branch: its name, its incarnation, and what it was forked from.

The cache holds versions that this process read or wrote, so that it reads none of them twice. Two
versions of the same number are told apart by the moment they were made, which Lance tells with each
handle that it opens; and on a disk, without opening anything, by the file of the version. Such a
file is written once under its name, so whatever is there later has another mark.

Invariant: a cached version is believed only after the store named its version as the latest one,
and only if that is the very version that was read: its number alone does not tell, because a graph
can be made again at the same place.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

from omnigraph_lake import names
from omnigraph_lake.derived import remember_derived
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.storage.lance.datasets import dataset_uri, made_at
from omnigraph_lake.storage.manifest_rows import GraphHead, ManifestFacts, ManifestRow, Operation
from omnigraph_lake.storage.objects.location import Root, Scheme
from omnigraph_lake.storage.objects.lru_cache import LruCache
from omnigraph_lake.storage.snapshot import PinnedTables, Snapshot, take_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance import LanceDataset

_MANIFESTS_KNOWN: Final = 16


@dataclass(frozen=True, kw_only=True)
class ManifestState:
    """One version of a branch's manifest, read whole."""

    ref: BranchRef | None
    """The incarnation of the branch; None is main."""
    version: int
    facts: ManifestFacts
    rows: tuple[ManifestRow, ...] = field(repr=False)
    """What is stored; a swap is made from these."""
    handle: LanceDataset = field(repr=False, compare=False)
    root: Root = field(repr=False, compare=False)
    assumed: tuple[ManifestRow, ...] = field(default=(), repr=False)
    """Substitutes for a head and a commit in a format that has none."""

    @property
    def known_rows(self) -> tuple[ManifestRow, ...]:
        return (*self.rows, *self.assumed) if self.assumed else self.rows

    @property
    def stamp(self) -> int:
        """The internal format."""
        return self.facts.stamp

    @property
    def branch(self) -> str | None:
        return None if self.ref is None else self.ref.branch

    @property
    def head(self) -> GraphHead:
        """The branch's own head.

        Raises:
            DamagedGraphError: it has none.
        """
        head = _rows_by_kind(self.rows).heads.get(self.branch)
        for row in self.assumed:
            if head is None and isinstance(row, GraphHead) and row.branch == self.branch:
                head = row
        if head is not None:
            return head
        raise DamagedGraphError(
            f"{names.MANIFEST} of {self.root} has no head of branch {self.branch or names.MAIN!r}",
            next_step=f"Run `omnigraph check {self.root} --deep` to see what else is damaged.",
        )

    @property
    def schema_hash(self) -> str | None:
        """The accepted schema; manifests without a head do not say."""
        head = _rows_by_kind(self.rows).heads.get(self.branch)
        return None if head is None else head.schema_hash

    def operation(self, operation_id: str) -> Operation | None:
        """The decision about an operation that the manifest still has."""
        return _rows_by_kind(self.rows).operations.get(operation_id)

    def snapshot(self) -> Snapshot:
        """What a reader of the branch sees."""
        return self._snapshot

    @cached_property
    def _snapshot(self) -> Snapshot:
        if not self.assumed:
            return _snapshot_of(self.rows, self.branch, self.version)
        snapshot = take_snapshot(self.known_rows, branch=self.branch, manifest_version=self.version)
        # A manifest without heads does not say which schema it belongs to.
        return replace(snapshot, schema_hash=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowsByKind:
    """Where to find rows that every publish asks for; the first counts, as in a search."""

    heads: Mapping[str | None, GraphHead]
    operations: Mapping[str, Operation]


@remember_derived(most=_MANIFESTS_KNOWN)
def _rows_by_kind(rows: tuple[ManifestRow, ...]) -> _RowsByKind:
    heads: dict[str | None, GraphHead] = {}
    operations: dict[str, Operation] = {}
    for row in rows:
        if isinstance(row, GraphHead):
            heads.setdefault(row.branch, row)
        elif isinstance(row, Operation):
            operations.setdefault(row.operation_id, row)
    return _RowsByKind(heads=heads, operations=operations)


@remember_derived(most=_MANIFESTS_KNOWN)
def _snapshot_of(rows: tuple[ManifestRow, ...], branch: str | None, version: int) -> Snapshot:
    return take_snapshot(rows, branch=branch, manifest_version=version)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkPoint:
    """What a branch was forked from: a version of a branch's manifest, and a commit.

    `tables` is what the commit left, and `schema_hash` the schema it belongs to, unless it is the
    one that made the manifest version.
    """

    branch: str | None
    lance_branch: str | None
    manifest_version: int
    commit_id: str
    tables: PinnedTables | None = None
    schema_hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRef:
    """One incarnation of a branch: who it is, and where its manifest lives.

    `creates` lists the tables an initialisation is about to create, so that a later one may remove
    what a dead one left; it is empty for every branch but main. Branches older than the log share
    their name with their Lance branch and have no `forked_from`.
    """

    branch: str
    incarnation: str
    claimed_at: str
    creates: tuple[str, ...] = ()
    forked_from: ForkPoint | None = None
    owner: str | None = None
    """Who it was made for, if that was said."""
    expires_at: str | None = None
    """When it is considered abandoned unless it is still written to; None is never."""

    @property
    def lance_branch(self) -> str:
        if self.forked_from is None:
            return self.branch
        return names.manifest_fork(self.branch, self.incarnation)


_VERSION_MOST: Final = 2**64 - 1
_SUFFIX: Final = ".manifest"

Mark: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    made: str
    state: ManifestState
    mark: Mark | None = None
    """Of the version's file; None until a second read has shown that it belongs to the state."""


KNOWN: Final[LruCache[_Known]] = LruCache(_MANIFESTS_KNOWN)
"""By the address of the manifest."""


def remember(state: ManifestState) -> None:
    KNOWN.keep(state.handle.uri, _Known(made=made_at(state.handle), state=state))


def unchanged(root: Root, branch: BranchRef | None) -> ManifestState | None:
    """The state that was read last, if it is the latest still and that can be told by its file."""
    known = _found(root, branch)
    if known is None or known.mark is None:
        return None
    try:
        latest = _newest_listed(known.state.handle.uri) or known.state.handle.latest_version
    except (ValueError, OSError):
        return None  # opening it reports the reason
    same = latest == known.state.version and known.mark == _mark(known.state)
    return known.state if same else None


def _newest_listed(uri: str) -> int | None:
    """The newest version by a listing, as Lance finds it; None if a name is not as expected.

    The numbers in the names fall, so the newest version is the first one.
    """
    folder = names.lance_versions(uri)
    listed = [name for name in os.listdir(folder) if name.endswith(_SUFFIX)]  # noqa: PTH208 - asked by every read
    return names.lance_version_at(f"{folder}/{min(listed)}") if listed else None


def mark_before_opening(root: Root, branch: BranchRef | None) -> Mark | None:
    """What the file of the known version looks like, if there is one; for `known_at`."""
    known = _found(root, branch)
    return None if known is None else _mark(known.state)


def known_at(
    handle: LanceDataset, branch: BranchRef | None, mark: Mark | None
) -> ManifestState | None:
    """What a handle on the latest version would read, if that is known.

    The mark was taken before the handle was opened: the state that was the latest before that and
    is the latest after it has a file with this mark.
    """
    known = KNOWN.get(handle.uri)
    if known is None:
        return None
    identity = (known.state.version, known.state.ref, known.made)
    if identity != (handle.version, branch, made_at(handle)):
        return None
    state = replace(known.state, handle=handle)
    KNOWN.keep(handle.uri, replace(known, state=state, mark=mark))
    return state


def state_before(handle: LanceDataset, branch: BranchRef | None) -> ManifestState | None:
    """The state of an earlier version of the same line, if one is known."""
    known = KNOWN.get(handle.uri)
    if known is None or known.state.ref != branch or known.state.version >= handle.version:
        return None
    return known.state


def _found(root: Root, branch: BranchRef | None) -> _Known | None:
    if root.scheme is not Scheme.LOCAL:
        return None
    fork = None if branch is None else branch.lance_branch
    known = KNOWN.get(dataset_uri(root, names.MANIFEST, fork))
    return known if known is not None and known.state.ref == branch else None


def _mark(state: ManifestState) -> Mark | None:
    name = f"{_VERSION_MOST - state.version:020}{_SUFFIX}"
    try:
        file = os.stat(f"{state.handle.uri}/_versions/{name}")  # noqa: PTH116 - asked by every read
    except OSError:
        return None
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, file.st_ctime_ns
