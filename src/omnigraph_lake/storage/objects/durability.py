"""Making what was written survive a power cut, and a full disk writable again.

One sync of the file system is shared by threads. Recovery and cleanup write small files before they
delete large ones, so on a full disk neither could begin: writers put a file aside while the disk
still has space, though little, and it is given back when it is needed.

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
from typing import TYPE_CHECKING, Final, TypeVar

from omnigraph_lake import names
from omnigraph_lake.errors import OmnigraphError, OutcomeUnknownError
from omnigraph_lake.storage.objects.containment import require_inside
from omnigraph_lake.storage.objects.failures import unavailable
from omnigraph_lake.storage.objects.location import Durability, Root, Scheme
from omnigraph_lake.storage.objects.paths import is_disk_full

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

_LOW_BYTES: Final = 64 << 20
"""With more space than this nothing is put aside: most graphs never have the file."""
_RESERVE_BYTES: Final = 512 << 10
"""A recovery and a cleanup of a small graph write about 100 KB before the first deletion."""
_RESERVE_LEAST: Final = 64 << 10


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


def keep_reserve(root: Root) -> None:
    """Put space aside if the disk of a graph has little left and nothing is put aside yet."""
    if root.scheme is not Scheme.LOCAL:
        return
    with suppress(OSError, OmnigraphError):  # what is put aside is a help, not a promise
        free = _free_bytes(root)
        size = min(_RESERVE_BYTES, free // 2)
        path = _reserve(root)
        if free < _LOW_BYTES and size >= _RESERVE_LEAST and not path.exists():
            path.parent.mkdir(exist_ok=True)
            # Zeros would take no space on a file system that compresses.
            path.write_bytes(os.urandom(size))


def with_reserve(root: Root, run: Callable[[], _T]) -> _T:
    """Run a recovery or a cleanup; on a full disk again, with what is put aside."""
    try:
        return run()
    except OmnigraphError as error:
        if root.scheme is not Scheme.LOCAL or not _is_full(root, error) or not _release(root):
            raise
    result = run()
    keep_reserve(root)
    return result


def _is_full(root: Root, error: OmnigraphError) -> bool:
    """Whether the disk is why it failed: a publish with an unknown outcome does not say so."""
    return is_disk_full(error) or (isinstance(error, OutcomeUnknownError) and has_full_disk(root))


def has_full_disk(root: Root) -> bool:
    """Whether a graph is on a disk with no space for a commit."""
    return root.scheme is Scheme.LOCAL and _free_bytes(root) < _RESERVE_LEAST


def _free_bytes(root: Root) -> int:
    disk = os.statvfs(root.uri)
    return disk.f_bavail * disk.f_frsize


def _release(root: Root) -> bool:
    """Whether something was put aside, which is free now."""
    try:
        _reserve(root).unlink()
    except (OSError, OmnigraphError):
        return False
    return True


def _reserve(root: Root) -> Path:
    require_inside(root, names.DISK_RESERVE)
    return Path(root.uri) / names.DISK_RESERVE
