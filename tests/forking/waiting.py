"""Waiting until a process, which need not be a child of this one, stands still or has ended."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

from tests.gate.cpu import seconds_of_tree

_LOOK_SECONDS = 1.0
_LEAST_SHARE = 0.02
"""Of a core: what a process needs that only waits for something is less."""


class Patience:
    """How long a process may still take: so many CPU seconds, with all that it started.

    A process that does next to nothing for as many seconds has lost it as well. On a machine whose
    cores are given to others an honest process takes long, but it goes on.
    """

    def __init__(self, pid: int, seconds: float) -> None:
        self._pid = pid
        self._seconds = seconds
        self._first = self._noted = seconds_of_tree(pid)
        self._noted_at = time.monotonic()

    def is_lost(self) -> bool:
        used = seconds_of_tree(self._pid)
        # It falls when a process that was started ends and nobody waits for it.
        if abs(used - self._noted) > _LEAST_SHARE * self._seconds:
            self._noted, self._noted_at = used, time.monotonic()
        is_idle = time.monotonic() - self._noted_at > self._seconds
        return is_idle or used - self._first > self._seconds


def ends(pid: int, seconds: float) -> bool:
    """Whether a process ends before patience with it is lost."""
    patience = Patience(pid, seconds)
    while not wait_for_end(pid, _LOOK_SECONDS):
        if patience.is_lost():
            return False
    return True


def wait_for_end(pid: int, seconds: float | None = None) -> bool:
    """Whether a process ends, within so many seconds if they are given."""
    handle = os.pidfd_open(pid)
    try:
        ended, _, _ = select.select([handle], [], [], seconds)
    finally:
        os.close(handle)
    return bool(ended)


def wait_for_stop(pid: int, seconds: float) -> bool:
    """Whether a process was stopped by a signal; False if it ended instead."""
    deadline = time.monotonic() + seconds
    while (state := _state(pid)) != "T":
        if state in "ZX":
            return False
        assert time.monotonic() < deadline, "never reached the point it should stop at"
        time.sleep(0.002)
    return True


def has_ended(pid: int) -> bool:
    return _state(pid) in "ZX"


def _state(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    return text.rpartition(")")[2].split()[0]
