"""Handing a folder of a local disk from one process of this host to the next.

A process that is about to put a file into the folder takes it. Others wait until a file has
appeared there, or until it is free again, without asking all the time.

Invariant: this decides nothing. A lock on a folder ends with its process. Where none can be had, or
a process that has taken the folder sleeps, others go on without it after a while, as those on other
hosts do. So whatever is put must be decided by the put itself.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import time
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_CREATED: Final = 0x100
_MOVED_HERE: Final = 0x80
_EVENT: Final = struct.Struct("iIII")
_EVENTS_BYTES: Final = 1 << 16
_NAP_SECONDS: Final = 0.004
"""How long to wait at most where the system does not tell what appears in a folder."""


class Handover:
    """A folder as one process, or one thread, sees it: taken by itself or by another."""

    def __init__(self, folder: int, watch: int | None, suffix: bytes) -> None:
        self._folder = folder
        self._watch = watch
        self._suffix = suffix

    def take(self) -> bool:
        """Take the folder if it is free; a system that cannot tell says that it is."""
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def give_back(self) -> None:
        """Let others take it: at once, though a fork of this process may have the folder open."""
        with suppress(OSError):
            fcntl.flock(self._folder, fcntl.LOCK_UN)

    def wait(self, seconds: float) -> bool:
        """Wait until a file has appeared since the folder was opened or waited for, or so long.

        Whether one may have.
        """
        if self._watch is None:
            time.sleep(min(seconds, _NAP_SECONDS))
            return True
        poll = select.poll()
        poll.register(self._watch, select.POLLIN)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and poll.poll(1e3 * left):
            if any(name.endswith(self._suffix) for name in _new_names(self._watch)):
                return True
        return False


@contextmanager
def open_handover(folder: str, *, suffix: str) -> Iterator[Handover]:
    """A folder to take, or to wait for files in it whose names end so.

    Raises:
        OSError: there is no such folder.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        watch = _watch(folder)
        handover = Handover(opened, watch, suffix.encode())
        try:
            yield handover
        finally:
            handover.give_back()
            if watch is not None:
                os.close(watch)
    finally:
        os.close(opened)


def _watch(folder: str) -> int | None:
    """A descriptor that tells which files appear in a folder, on systems that have one."""
    libc = _libc()
    if libc is None:
        return None
    watch: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if watch < 0:
        return None  # there are as many as the user may have
    if libc.inotify_add_watch(watch, os.fsencode(folder), _CREATED | _MOVED_HERE) < 0:
        os.close(watch)
        return None
    return watch


def _new_names(watch: int) -> Iterator[bytes]:
    try:
        events = os.read(watch, _EVENTS_BYTES)
    except BlockingIOError:
        return
    place = 0
    while place < len(events):
        *_, size = _EVENT.unpack_from(events, place)
        place += _EVENT.size
        yield events[place : place + size].rstrip(b"\0")
        place += size


@cache
def _libc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None, use_errno=True)
    return libc if hasattr(libc, "inotify_init1") else None
