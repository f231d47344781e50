"""Versions of manifests that this process read or wrote, so that it reads none of them twice.

Invariant: what is known is believed only after the store named its version as the latest one, and
only if that is the very version that was read: its number alone does not tell, because a graph can
be made again at the same place.

How the two are told apart: by the moment they were made, which Lance tells with each handle that it
opens; and on a disk, without opening anything, by the file of the version. Such a file is written
once under its name, so whatever is there later has another mark.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from omnigraph import names
from omnigraph.storage.lance.datasets import dataset_uri, made_at
from omnigraph.storage.objects.location import Scheme
from omnigraph.storage.objects.lru_cache import UsedLast

if TYPE_CHECKING:
    from lance import LanceDataset

    from omnigraph.storage.manifest.branch_identity import BranchRef
    from omnigraph.storage.manifest.state import ManifestState
    from omnigraph.storage.objects.location import Root

_MANIFESTS_KNOWN: Final = 16
_VERSION_MOST: Final = 2**64 - 1

Mark: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    made: str
    state: ManifestState
    mark: Mark | None = None
    """Of the version's file; None until a second read has shown that it belongs to the state."""


KNOWN: Final[UsedLast[_Known]] = UsedLast(_MANIFESTS_KNOWN)
"""By the address of the manifest."""


def remember(state: ManifestState) -> None:
    KNOWN.keep(state.handle.uri, _Known(made=made_at(state.handle), state=state))


def unchanged(root: Root, branch: BranchRef | None) -> ManifestState | None:
    """The state that was read last, if it is the latest still and that can be told by its file."""
    found = _found(root, branch)
    if found is None or found.mark is None:
        return None
    try:
        latest = found.state.handle.latest_version
    except (ValueError, OSError):
        return None  # opening it reports the reason
    same = latest == found.state.version and found.mark == _mark(found.state)
    return found.state if same else None


def mark_before_opening(root: Root, branch: BranchRef | None) -> Mark | None:
    """What the file of the known version looks like, if there is one; for `known_at`."""
    found = _found(root, branch)
    return None if found is None else _mark(found.state)


def known_at(
    handle: LanceDataset, branch: BranchRef | None, mark: Mark | None
) -> ManifestState | None:
    """What a handle on the latest version would read, if that is known.

    The mark was taken before the handle was opened: the state that was the latest before that and
    is the latest after it has a file with this mark.
    """
    found = KNOWN.get(handle.uri)
    if found is None:
        return None
    known = (found.state.version, found.state.ref, found.made)
    if known != (handle.version, branch, made_at(handle)):
        return None
    state = replace(found.state, handle=handle)
    KNOWN.keep(handle.uri, replace(found, state=state, mark=mark))
    return state


def _found(root: Root, branch: BranchRef | None) -> _Known | None:
    if root.scheme is not Scheme.LOCAL:
        return None
    fork = None if branch is None else branch.lance_branch
    found = KNOWN.get(dataset_uri(root, names.MANIFEST, fork))
    return found if found is not None and found.state.ref == branch else None


def _mark(state: ManifestState) -> Mark | None:
    name = f"{_VERSION_MOST - state.version:020}.manifest"
    try:
        file = os.stat(f"{state.handle.uri}/_versions/{name}")  # noqa: PTH116 - asked by every read
    except OSError:
        return None
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, file.st_ctime_ns
