"""Reading and replacing `__manifest`, the only authority over what is visible.

Invariant: a swap is one strict overwrite. It writes all rows as the version right after the one
they were made from, or nothing; Lance neither rebases nor retries it. No answer of a swap is
believed: whoever swaps reads again.

A read is believed only while its version is among the newest `MANIFEST_VERSIONS_KEPT`: older slots
may have been cleaned and taken by a late write between finding the version and reading it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from lance import LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError
from lance.fragment import write_fragments

from omnigraph import names
from omnigraph.errors import NotFoundError, StorageUnavailableError
from omnigraph.failpoints import left_out, reach
from omnigraph.storage.datasets import create_dataset, is_not_found, open_dataset, translated
from omnigraph.storage.manifest_rows import ManifestRow, decode, encode, stamp_of
from omnigraph.storage.snapshot import Snapshot, take_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lance.dataset import Branch

    from omnigraph.storage.location import Root

_READ_ATTEMPTS: Final = 20


class SwapAnswer(Enum):
    """What the store said; read the manifest again to learn what is true."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestState:
    """One version of a branch's manifest, read whole."""

    branch: str | None
    version: int
    stamp: int
    rows: tuple[ManifestRow, ...] = field(repr=False)
    handle: LanceDataset = field(repr=False, compare=False)

    def snapshot(self) -> Snapshot:
        """What a reader of the branch sees."""
        return take_snapshot(self.rows, branch=self.branch, manifest_version=self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchOrigin:
    """Where a branch of the manifest was forked (parent None = main)."""

    parent: str | None
    manifest_version: int


def manifest_exists(root: Root) -> bool:
    return open_dataset(root, names.MANIFEST) is not None


def read_manifest(
    root: Root, *, branch: str | None = None, point: str | None = None
) -> ManifestState:
    """The latest version of a branch's manifest.

    Finding a version, reading it and asking again for the latest are separate requests; `point`
    names the failpoints between them.
    """
    for _ in range(_READ_ATTEMPTS):
        handle = open_dataset(root, names.MANIFEST, fork=branch)
        if handle is None:
            raise _no_graph(root, branch)
        if point is not None:
            reach(f"{point}.list")
        state = _read_whole(root, branch, handle, point)
        if state is not None:
            return state
    raise StorageUnavailableError(
        f"the manifest of {root} moved {_READ_ATTEMPTS} times while it was being read",
        next_step="Run it again.",
    )


def read_manifest_version(root: Root, version: int, *, branch: str | None = None) -> ManifestState:
    """One version of a branch's manifest, while it is among those that a reader may believe."""
    handle = open_dataset(root, names.MANIFEST, fork=branch, version=version)
    state = None if handle is None else _read_whole(root, branch, handle, None)
    if state is not None:
        return state
    latest = read_manifest(root, branch=branch).version
    oldest = max(1, latest - names.MANIFEST_VERSIONS_KEPT + 1)
    raise NotFoundError(
        f"manifest version {version} of {root} "
        + ("does not exist yet" if version > latest else "is not kept any more"),
        next_step=f"Versions {oldest} to {latest} can be read.",
    )


def create_manifest(
    root: Root, rows: Iterable[ManifestRow], *, operation_id: str, stamp: int = names.STAMP
) -> None:
    """Make the graph visible: one version that holds every row and the stamp."""
    create_dataset(root, names.MANIFEST, encode(rows, stamp=stamp), operation_id=operation_id)


def swap_manifest(
    base: ManifestState,
    rows: Iterable[ManifestRow],
    *,
    operation_id: str,
    stamp: int = names.STAMP,
) -> SwapAnswer:
    """Try to put `rows` as the version right after `base`."""
    content = encode(rows, stamp=stamp)
    try:
        fragments = write_fragments(content, base.handle, mode="overwrite")
        LanceDataset.commit(
            base.handle,
            Transaction(
                read_version=base.version,
                operation=LanceOperation.Overwrite(content.schema, fragments),
                transaction_properties={names.OPERATION_PROPERTY: operation_id},
            ),
            max_retries=0,
        )
    except CommitConflictError:
        return SwapAnswer.REFUSED
    except OSError:
        return SwapAnswer.UNKNOWN
    return SwapAnswer.ACCEPTED


def forget_old_versions(root: Root, *, branch: str | None = None) -> int:
    """Delete manifest versions that no reader may believe any more; returns how many."""
    state = read_manifest(root, branch=branch)
    with translated(root, f"clean {names.MANIFEST}"):
        versions = [ref["version"] for ref in state.handle.version_refs()]
        latest = max(versions, default=state.version)
        old = [v for v in versions if v <= latest - names.MANIFEST_VERSIONS_KEPT]
        if old:
            state.handle.cleanup_old_versions(versions=old, error_if_tagged_old_versions=False)
    return len(old)


def manifest_branches(root: Root) -> Mapping[str, BranchOrigin]:
    """Every Lance branch of the manifest and where it was forked.

    Lance finds the names first and reads each one after that; a branch deleted in between fails
    its whole listing, which is then made again.
    """
    with translated(root, f"list the branches of {names.MANIFEST}"):
        return {
            name: BranchOrigin(
                parent=branch["parent_branch"], manifest_version=branch["parent_version"]
            )
            for name, branch in _branches(_open_main(root), _READ_ATTEMPTS).items()
        }


def drop_manifest_branch(root: Root, name: str) -> None:
    """Try to delete a Lance branch of the manifest; list again to learn whether it is gone.

    Lance refuses while another branch was forked from it, and fails when a third branch
    disappears while it looks for such forks.
    """
    handle = _open_main(root)
    with translated(root, f"delete branch {name} of {names.MANIFEST}"):
        try:
            handle.branches.delete(name)
        except (ValueError, OSError) as error:
            if not is_not_found(error) and "is referenced by" not in str(error):
                raise


def _branches(handle: LanceDataset, attempts: int) -> Mapping[str, Branch]:
    try:
        return handle.branches.list()
    except (ValueError, OSError) as error:
        if attempts == 1 or not is_not_found(error):
            raise
        return _branches(handle, attempts - 1)


def _open_main(root: Root) -> LanceDataset:
    handle = open_dataset(root, names.MANIFEST)
    if handle is None:
        raise _no_graph(root, None)
    return handle


def _read_whole(
    root: Root, branch: str | None, handle: LanceDataset, point: str | None
) -> ManifestState | None:
    with translated(root, f"read {names.MANIFEST}"):
        try:
            table = handle.to_table()
            if point is not None:
                reach(f"{point}.verify")
            latest = handle.latest_version
        except (ValueError, OSError) as error:
            if is_not_found(error):
                return None
            raise
    too_old = handle.version <= latest - names.MANIFEST_VERSIONS_KEPT
    if too_old and not left_out("no_verify"):
        return None
    return ManifestState(
        branch=branch,
        version=handle.version,
        stamp=stamp_of(handle.schema),
        rows=decode(table),
        handle=handle,
    )


def _no_graph(root: Root, branch: str | None) -> NotFoundError:
    if branch is None:
        return NotFoundError(
            f"there is no graph at {root}",
            next_step=f"Run `omnigraph init {root} --schema FILE` to create one.",
        )
    return NotFoundError(
        f"branch {branch!r} does not exist in {root}",
        next_step=f"Run `omnigraph branch list {root}`.",
    )
