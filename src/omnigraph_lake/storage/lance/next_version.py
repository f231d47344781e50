"""Commits a transaction as exactly the version after the one it was made from, or not at all.

Before every commit Lance lists all versions of a dataset, to rebase the transaction on those that
are newer. On a local disk it looks at the file of each one, so a commit costs more the longer the
history is. A transaction that may follow one version only need not know of any other: Lance makes
it in a folder that shows it that version alone, and the file that it makes there gets its name
among the versions of the dataset if no other file has it.

Invariants:

- A version is put under the number right after the one that the transaction read, if that number
  is free; nothing is rebased. A file has its whole content when it gets its name.
- What Lance makes is what it would have made in place: the folder has links to everything that the
  dataset has but its other versions, and the transaction is stored with those of the dataset.
- The folder is outside of the graph, and removed after the commit.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import lance
from lance import LanceDataset

from omnigraph_lake import names
from omnigraph_lake.storage.lance.base_paths import handle_of, message_of
from omnigraph_lake.storage.lance.checksums import place_of
from omnigraph_lake.storage.objects.location import Root, Scheme
from omnigraph_lake.storage.objects.temporary_folders import temporary_folder

if TYPE_CHECKING:
    from lance import Transaction

    from omnigraph_lake.storage.snapshot import TableEntry

_VARIABLE: Final = "OMNIGRAPH_COMMIT_IN_PLACE"
"""If it is "on", Lance commits in place on a disk as well: for comparison."""
_TRANSACTIONS: Final = "_transactions"
_SHARED: Final = (_TRANSACTIONS, "data", "_deletions", "_indices")
_METADATA_BYTES_KEPT: Final = 1 << 20


def head_of(root: Root, entry: TableEntry, pinned: LanceDataset) -> int:
    """The newest version on the line of a table, asked of a handle on an entry's version.

    On a disk the versions are not listed if there is none right after that one: only what is below
    a pin is ever removed, so there is none at all above it.
    """
    next_file = _version_file(_place(root, entry), entry.version + 1)
    if root.scheme is Scheme.LOCAL and not os.path.lexists(next_file):
        return entry.version
    return int(pinned.latest_version)


def commit_next(
    root: Root, entry: TableEntry, base: LanceDataset, transaction: Transaction
) -> LanceDataset | None:
    """Commit a transaction as the version after `base`, which it read; None if there is one.

    An object store lists the newest versions first. There, and where no folder can be used, Lance
    commits in place and may rebase: compare the numbers.
    """
    assert transaction.read_version == base.version
    if root.scheme is not Scheme.LOCAL or os.environ.get(_VARIABLE) == "on":
        return LanceDataset.commit(base, transaction, max_retries=0)
    place, version = _place(root, entry), base.version + 1
    try:
        content, message = _make_apart(place, entry.fork, base, transaction)
    except OSError:  # as on a full disk
        return LanceDataset.commit(base, transaction, max_retries=0)
    if not _put_if_absent(_version_file(place, version), content):
        return None
    return handle_of(base, version, message, session=base.session())


def _make_apart(
    place: Path, fork: str | None, base: LanceDataset, transaction: Transaction
) -> tuple[bytes, bytes]:
    """The file of the version after `base`, made where there is no other, and its description."""
    with temporary_folder("commit") as folder:
        table = Path(place_of(f"{folder}/table", fork))
        pinned = _version_file(table, base.version)
        pinned.parent.mkdir(parents=True)
        (place / _TRANSACTIONS).mkdir(exist_ok=True)
        for name in _SHARED:
            (table / name).symlink_to(place / name)
        pinned.symlink_to(_version_file(place, base.version))
        # A session of its own: Lance keys some of what it reads by numbers that versions share.
        session = lance.Session(  # type: ignore[attr-defined]
            index_cache_size_bytes=0, metadata_cache_size_bytes=_METADATA_BYTES_KEPT
        )
        shown = handle_of(base, base.version, message_of(base), session=session, uri=str(table))
        made = LanceDataset.commit(shown, transaction, max_retries=0)
        assert made.version == base.version + 1, "there was nothing to rebase on"
        return _version_file(table, made.version).read_bytes(), message_of(made)


def _put_if_absent(path: Path, content: bytes) -> bool:
    """Give a whole file its name; False if another one has it."""
    # Names that end like this are those of Lance's own unfinished files: no listing shows them.
    unnamed = path.with_name(f"{path.name}#{uuid4().int}")
    try:
        unnamed.write_bytes(content)
        os.link(unnamed, path)
    except FileExistsError:
        return False
    finally:
        unnamed.unlink(missing_ok=True)
    return True


def _place(root: Root, entry: TableEntry) -> Path:
    return Path(root.child(place_of(entry.location, entry.fork)))


def _version_file(place: Path, version: int) -> Path:
    return place / names.lance_version(version)
