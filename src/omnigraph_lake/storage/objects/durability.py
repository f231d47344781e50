"""Making what was written survive a power cut: one sync of the file system, shared by threads.

Invariant: when `make_durable` returns, everything that was written below the root before the call
is on stable storage: by this process or another one of this host, files and directories alike. One
`syncfs` is fewer and cheaper calls than an fsync of every file and directory of a commit, and it
cannot miss a file that Lance wrote.

An object store acknowledges what is durable, so nothing is done there. On a network file system the
sync covers what this host wrote; tasks on other hosts sync what they wrote themselves.
"""

from __future__ import annotations

import ctypes
import os
import stat
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from omnigraph_lake.storage.objects.failures import unavailable
from omnigraph_lake.storage.objects.location import Durability, Root, Scheme

if TYPE_CHECKING:
    from collections.abc import Callable


def make_durable(root: Root) -> None:
    """Sync what was written, unless the graph leaves that to the operating system."""
    if root.durability == Durability.COMMIT:
        sync(root)


def sync(root: Root) -> None:
    """Sync what was written, whatever the graph asks for."""
    if root.scheme is not Scheme.LOCAL or not Path(root.uri).exists():
        return
    try:
        for device, folder in _file_systems(root.uri).items():
            _shared_sync(device).run(folder)
    except OSError as error:
        raise unavailable(root, "sync the file system", error) from error


@cache
def boot_id() -> str:
    """Identifies this boot of the machine; "" where the system does not provide it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def syncs_made() -> int:
    """How many syncs this process has made, for benchmarks."""
    return sum(shared.made for shared in _SHARED.values())


class _SharedSync:
    """The syncs of one file system: threads that wait at the same time share the next one."""

    def __init__(self) -> None:
        self.made = 0
        self._changed = threading.Condition()
        self._started = 0
        self._finished = 0
        self._is_busy = False

    def run(self, folder: str) -> None:
        with self._changed:
            wanted = self._started + 1
            while self._is_busy and self._finished < wanted:
                self._changed.wait()
            if self._finished >= wanted:
                return
            self._is_busy = True
            self._started += 1
            number = self._started
        is_synced = False
        try:
            _syncfs(folder)
            is_synced = True
        finally:
            with self._changed:
                self._is_busy = False
                self.made += 1
                if is_synced:
                    self._finished = number
                self._changed.notify_all()


_SHARED: Final[dict[int, _SharedSync]] = {}


def _shared_sync(device: int) -> _SharedSync:
    return _SHARED.setdefault(device, _SharedSync())


# A fork must not wait for a sync of a thread that it does not have.
os.register_at_fork(after_in_child=_SHARED.clear)


def _file_systems(root: str) -> dict[int, str]:
    """The file systems that hold the root and the folders in it, by device."""
    devices = {os.stat(root).st_dev: root}  # noqa: PTH116 - asked by every commit
    with os.scandir(root) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # removed meanwhile
                # A link is not followed: nothing that it leads to was written.
                facts = entry.stat(follow_symlinks=False)
                if not stat.S_ISLNK(facts.st_mode):
                    devices.setdefault(facts.st_dev, entry.path)
    return devices


def _syncfs(folder: str) -> None:
    syncfs = _libc_syncfs()
    if syncfs is None:
        os.sync()
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        if syncfs(opened):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), folder)
    finally:
        os.close(opened)


@cache
def _libc_syncfs() -> Callable[[int], int] | None:
    """The call, on systems that have it; ctypes releases the lock of the interpreter meanwhile."""
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
