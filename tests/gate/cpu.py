"""CPU seconds of this process and of everything it started.

Budgets are stated in CPU seconds: a limit in seconds on the wall would fail on a busy machine and
pass on a fast one.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36


def seconds_of_tree(pid: int) -> float:
    """CPU of a process, of its living descendants and of those that they have waited for."""
    return sum(map(_seconds_of, (pid, *descendants(pid))))


def tree_seconds() -> float:
    """CPU of this process, of its living descendants and of those it has waited for.

    The sum never falls while every parent waits for its children: what a process has used moves to
    its parent when the parent reaps it.
    """
    own = os.times()
    seconds = own.user + own.system + own.children_user + own.children_system
    return seconds + sum(map(_seconds_of, descendants(os.getpid())))


@dataclass(slots=True)
class Shared:
    """What one test used and many need, such as a process that the others start from."""

    seconds: float = 0.0
    _is_open: bool = False

    @contextmanager
    def charged(self) -> Iterator[None]:
        """Charge what happens inside; a fixture may need another, and is charged once."""
        if self._is_open:
            yield
            return
        before, self._is_open = tree_seconds(), True
        try:
            yield
        finally:
            self.seconds += tree_seconds() - before
            self._is_open = False


SHARED: Final = Shared()


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent ends before them.

    Without this, a JVM that outlives the Python process that started it is counted nowhere.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def stolen_seconds() -> float:
    """CPU that the host gave to other machines since it started, over all cores."""
    return _machine_times()[7]


def _machine_times() -> tuple[float, ...]:
    """User, nice, system, idle, waiting for disks, two kinds of interrupts, stolen."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return tuple(int(field) / TICKS_PER_SECOND for field in fields[1:9])


def descendants(pid: int) -> list[int]:
    """The living processes that a process has started, and those that they have."""
    found: list[int] = []
    parents = [pid]
    while parents:
        children = _children(parents.pop())
        found += children
        parents += children
    return found


def _children(pid: int) -> list[int]:
    """Children are listed by the thread that started them."""
    children: list[int] = []
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return children
    for thread in threads:
        try:
            listed = (thread / "children").read_text()
        except OSError:
            continue
        children += map(int, listed.split())
    return children


def _seconds_of(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS_PER_SECOND
