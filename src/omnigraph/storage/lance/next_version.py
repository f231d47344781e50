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
- The folder is outside of the graph, and used by one commit at a time. It stays for the next one;
  a process that is killed leaves it, with one version file.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import lance
from lance import LanceDataset

from omnigraph import names
from omnigraph.storage.lance.base_paths import handle_of, message_of
from omnigraph.storage.lance.checksums import place_of
from omnigraph.storage.objects.location import Root, Scheme

if TYPE_CHECKING:
    from lance import Transaction

    from omnigraph.storage.snapshot import TableEntry

_VARIABLE: Final = "OMNIGRAPH_COMMIT_IN_PLACE"
"""If it is "on", Lance commits in place on a disk as well: for comparison."""
_TRANSACTIONS: Final = "_transactions"
_SHARED: Final = (_TRANSACTIONS, "data", "_deletions", "_indices")
_VIEWS_KEPT: Final = 24
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
    place, version = _place(root, entry), base.version + 1
    is_strict = root.scheme is Scheme.LOCAL and os.environ.get(_VARIABLE) != "on"
    view = _VIEWS.take(place, entry.fork) if is_strict else None
    made = None if view is None else view.commit(base, transaction)
    if view is None or made is None:
        return LanceDataset.commit(base, transaction, max_retries=0)
    try:
        if not _put_if_absent(_version_file(place, version), view.content_of(version)):
            view.discard()
            return None
        next_base = handle_of(base, version, message_of(made), session=base.session())
    except BaseException:
        view.discard()
        raise
    view.keep_only(made, as_base=next_base)
    _VIEWS.give_back(view)
    return next_base


class _View:
    """A folder in which a table has one version."""

    def __init__(self, place: Path, fork: str | None) -> None:
        self._folder = tempfile.mkdtemp(prefix="omnigraph-commit-")
        self.place = place
        self._table = Path(place_of(f"{self._folder}/table", fork))
        self._made: LanceDataset | None = None
        self._base: LanceDataset | None = None
        try:
            _version_file(self._table, 1).parent.mkdir(parents=True)
            (place / _TRANSACTIONS).mkdir(exist_ok=True)
            for name in _SHARED:
                (self._table / name).symlink_to(place / name)
        except OSError:
            self.discard()
            raise

    def commit(self, base: LanceDataset, transaction: Transaction) -> LanceDataset | None:
        """The version after `base`; None if it cannot be made here, as on a full disk."""
        try:
            made = LanceDataset.commit(self._handle_on(base), transaction, max_retries=0)
        except OSError:
            self.discard()
            return None
        except BaseException:
            self.discard()
            raise
        assert made.version == base.version + 1, "there was nothing to rebase on"
        return made

    def _handle_on(self, base: LanceDataset) -> LanceDataset:
        """A handle on the version of `base`, which becomes the only one in the folder."""
        if self._made is not None and self._base is base:
            return self._made  # the commit before this one made it here
        self._remove_version()
        pinned = _version_file(self._table, base.version)
        pinned.symlink_to(_version_file(self.place, base.version))
        # A session of its own: Lance keys some of what it reads by numbers that versions share.
        session = lance.Session(  # type: ignore[attr-defined]
            index_cache_size_bytes=0, metadata_cache_size_bytes=_METADATA_BYTES_KEPT
        )
        self._made = handle_of(
            base, base.version, message_of(base), session=session, uri=str(self._table)
        )
        return self._made

    @property
    def is_intact(self) -> bool:
        """Whether nothing was taken away from the folder, as programs do that tidy up old files."""
        paths = [self._table / name for name in _SHARED]
        if self._made is not None:
            paths.append(_version_file(self._table, self._made.version))
        return all(map(os.path.lexists, paths))

    def content_of(self, version: int) -> bytes:
        return _version_file(self._table, version).read_bytes()

    def keep_only(self, made: LanceDataset, *, as_base: LanceDataset) -> None:
        """Have the version that was just made, which `as_base` is in the table itself."""
        self._remove_version()
        self._made, self._base = made, as_base

    def discard(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _remove_version(self) -> None:
        if self._made is not None:
            _version_file(self._table, self._made.version).unlink(missing_ok=True)
            self._made = self._base = None


class _Views:
    """The folders of this process that no commit uses at the moment; thread-safe."""

    def __init__(self) -> None:
        self.start_anew()
        atexit.register(self._discard_all)

    def start_anew(self) -> None:
        """Have no folders: those of a forked process belong to the process it was forked from."""
        self._lock = threading.Lock()
        self._free: OrderedDict[Path, _View] = OrderedDict()

    def take(self, place: Path, fork: str | None) -> _View | None:
        """A folder for a table; None if none can be made."""
        with self._lock:
            view = self._free.pop(place, None)
        if view is not None and view.is_intact:
            return view
        if view is not None:
            view.discard()
        try:
            return _View(place, fork)
        except OSError:
            return None

    def give_back(self, view: _View) -> None:
        discarded: list[_View] = []
        with self._lock:
            if view.place in self._free:
                discarded.append(self._free.pop(view.place))
            self._free[view.place] = view
            while len(self._free) > _VIEWS_KEPT:
                discarded.append(self._free.popitem(last=False)[1])
        for unused in discarded:
            unused.discard()

    def _discard_all(self) -> None:
        with self._lock:
            views, self._free = list(self._free.values()), OrderedDict()
        for view in views:
            view.discard()


_VIEWS: Final = _Views()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_VIEWS.start_anew)


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
