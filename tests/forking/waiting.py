"""Waiting until a process, which need not be a child of this one, stands still or has ended."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path


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
