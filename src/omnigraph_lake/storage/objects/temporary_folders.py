"""Folders for temporary files, which do not outlast their process for long, however it ends.

A process has one private folder in the directory for temporary files, and in it a folder for each
use. It removes its folder when it exits. One that is killed leaves it to the next process of the
same user, which looks for such folders once, when it makes its own.

Invariants:
- A process holds a lock on a file in its folder while it lives, and the system releases the lock
  when the process is gone. A folder is removed by its process, or under that lock; one without the
  file is not touched.
- A fork does not hold the lock, and removes nothing that its parent made.
- No link is followed, and nothing of other users is removed.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from omnigraph_lake.storage.objects.background import WORKER

_LOCK: Final = "lock"
_NOT_YET_LOCKED: Final = "new"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Home:
    """The folder of this process, and its locked file."""

    path: Path
    descriptor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    homes: dict[str, _Home] = field(default_factory=dict)
    """By the directory for temporary files, which a process may change."""
    making: threading.Lock = field(default_factory=threading.Lock)


_PROCESS: Final = _Process()


@contextmanager
def temporary_folder(use: str) -> Iterator[Path]:
    """A folder whose name starts with its use, removed at the end."""
    folder = make_folder(use)
    try:
        yield folder
    finally:
        remove_folder(folder)


def make_folder(use: str) -> Path:
    """Make a folder whose name starts with its use; it is removed when the process exits.

    Raises:
        OSError: there is no directory for temporary files, or no space in it.
    """
    directory = tempfile.gettempdir()
    with _PROCESS.making:
        home = _PROCESS.homes.get(directory)
        if home is not None:
            with suppress(FileNotFoundError):  # removed by what clears the directory of old files
                return _make_within(home, use)
            os.close(_PROCESS.homes.pop(directory).descriptor)
        home = _PROCESS.homes[directory] = _make_home(directory)
    if any(leftover_folders()):
        # It takes up to a second per GB, and the caller has something else to do.
        if WORKER.is_allowed:
            WORKER.submit(_remove_leftovers, _remove_leftovers)
        else:
            _remove_leftovers(lambda: None)
    return _make_within(home, use)


def remove_folder(folder: Path) -> None:
    """Remove a folder of this process; a fork leaves what its parent made."""
    if any(home.path == folder.parent for home in list(_PROCESS.homes.values())):
        shutil.rmtree(folder, ignore_errors=True)


def leftover_folders() -> Iterator[Path]:
    """The folders that killed processes of this user left, each locked while it is looked at."""
    prefix = _prefix()
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if not entry.name.startswith(prefix) or not entry.is_dir(follow_symlinks=False):
                continue
            with suppress(OSError):  # its process lives, or another one is removing it
                if entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                    with _lock(Path(entry.path, _LOCK)):
                        yield Path(entry.path)


def _prefix() -> str:
    return f"omnigraph-{os.geteuid()}-"


def _make_home(directory: str) -> _Home:
    path = Path(tempfile.mkdtemp(prefix=f"{_prefix()}{os.getpid()}-", dir=directory))
    try:
        descriptor = os.open(path / _NOT_YET_LOCKED, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with suppress(OSError):  # without locks nothing can say that the process is gone
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (path / _NOT_YET_LOCKED).rename(path / _LOCK)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return _Home(path=path, descriptor=descriptor)


def _make_within(home: _Home, use: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"{use}-", dir=home.path))


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _remove_leftovers(check: Callable[[], None]) -> None:
    for folder in leftover_folders():
        _remove(folder)
        check()


def _remove(home: Path) -> None:
    """Remove the folder of a process, its lock last: if this one is killed, the rest is found."""
    with suppress(OSError):
        folders = [entry for entry in home.iterdir() if entry.is_dir()]
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        if not any(folder.exists() for folder in folders):
            shutil.rmtree(home, ignore_errors=True)


def _end() -> None:
    for home in _PROCESS.homes.values():
        _remove(home.path)


def _begin_anew() -> None:
    """Leave the folders to the parent of this fork, and its locks with their descriptors."""
    for home in _PROCESS.homes.values():
        os.close(home.descriptor)
    _PROCESS.homes.clear()
    _PROCESS.making.release()


atexit.register(_end)
# Not while another thread makes a folder: the fork would keep a lock that it does not know.
os.register_at_fork(
    before=_PROCESS.making.acquire,
    after_in_parent=_PROCESS.making.release,
    after_in_child=_begin_anew,
)
