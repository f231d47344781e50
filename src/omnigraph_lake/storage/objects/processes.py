"""Which process may use Lance: never a fork of one that has used it, nor one before 1970.

Invariant: the threads that Lance works with do not survive a fork, so a fork would wait for them
for ever, in a new handle as in an inherited one. It raises an error immediately instead, reads
included.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Final

from omnigraph_lake import names
from omnigraph_lake.errors import ForkedProcessError, WrongClockError


@dataclass(slots=True)
class _Process:
    has_used_storage: bool = False
    is_fork: bool = False
    changed_root: str | None = None
    """Whether it is a fork of a process that had used storage."""


_PROCESS: Final = _Process()
_DECIDING: Final = (
    names.BRANCH_REFS_DIR,
    names.TAG_REFS_DIR,
    names.RETENTION_DIR,
    names.REBUILDS_DIR,
)
"""What changes a graph by itself; everything else waits for a manifest that names it."""


def use_storage() -> None:
    """Say that this process reads or writes a graph.

    Raises:
        ForkedProcessError: it is a fork of a process that did so before.
        WrongClockError: its clock is before 1970.
    """
    if _PROCESS.is_fork:
        raise ForkedProcessError(os.getpid())
    if time.time() < 0:
        # Lance panics, and what it could not read would pass for damaged.
        raise WrongClockError
    _PROCESS.has_used_storage = True


def note_change(root: str, path: str) -> None:
    """Say that an object was written; some change the graph without a commit."""
    if path.startswith(_DECIDING):
        _PROCESS.changed_root = root


def changed_root() -> str | None:
    """The root of the graph that this process changed last in such a way."""
    return _PROCESS.changed_root


def _notice_fork() -> None:
    _PROCESS.is_fork = _PROCESS.has_used_storage


os.register_at_fork(after_in_child=_notice_fork)
