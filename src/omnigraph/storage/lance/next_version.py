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

from lance import LanceDataset

from omnigraph import names
from omnigraph.storage.lance.base_paths import handle_of, message_of
from omnigraph.storage.lance.checksums import place_of
from omnigraph.storage.objects.location import Root, Scheme

if TYPE_CHECKING:
    from lance import Transaction

    from omnigraph.storage.snapshot import TableEntry

_TRANSACTIONS: Final = "_transactions"
_SHARED: Final = (_TRANSACTIONS, "data", "_deletions", "_indices")
_UNNAMED: Final = ".omnigraph-"
"""How the name of a version's file begins until it has its own; it makes no version."""
_VIEWS_KEPT: Final = 24


def is_next_free(root: Root, entry: TableEntry) -> bool:
    """Whether there is no version right after an entry's, on a local disk."""
    return not os.path.lexists(_version_file(_place(root, entry), entry.version + 1))


def commit_next(
    root: Root, entry: TableEntry, base: LanceDataset, transaction: Transaction
) -> LanceDataset | None:
    """Commit a transaction as the version after `base`, which it read; None if there is one.

    An object store lists the newest versions first. There, and where no folder can be made, Lance
    commits in place and may rebase: compare the numbers.
    """
    assert transaction.read_version == base.version
    place = _place(root, entry)
    view = _VIEWS.take(place, entry.fork) if root.scheme is Scheme.LOCAL else None
    if view is None:
        return LanceDataset.commit(base, transaction, max_retries=0)
    try:
        made = LanceDataset.commit(view.handle_on(base), transaction, max_retries=0)
        version = base.version + 1
        assert made.version == version, "there was nothing to rebase on"
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
        _version_file(self._table, 1).parent.mkdir(parents=True)
        (place / _TRANSACTIONS).mkdir(exist_ok=True)
        for name in _SHARED:
            (self._table / name).symlink_to(place / name)

    def handle_on(self, base: LanceDataset) -> LanceDataset:
        """A handle on the version of `base`, which becomes the only one in the folder."""
        if self._made is not None and self._base is base:
            return self._made  # the commit before this one made it here
        self._remove_version()
        pinned = _version_file(self._table, base.version)
        pinned.symlink_to(_version_file(self.place, base.version))
        self._made = handle_of(base, base.version, message_of(base), uri=str(self._table))
        return self._made

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
            _version_file(self._table, self._made.version).unlink()
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
        try:
            return view or _View(place, fork)
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
    unnamed = path.with_name(f"{_UNNAMED}{uuid4().hex}")
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
