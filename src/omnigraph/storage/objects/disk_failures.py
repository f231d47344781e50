"""What the operating system says about a disk, and what to do about each of it.

Invariant: every kind has a step of its own. Lance and obstore hand the number on in their text
only, so it is looked for there, too.
"""

from __future__ import annotations

import errno
import re
from enum import StrEnum
from typing import Final, assert_never

_NUMBER: Final = re.compile(r"\(os error (\d+)\)|\[Errno (\d+)\]")


class DiskFailure(StrEnum):
    """The kinds of failure of a disk that call for different steps."""

    FULL = "the disk is full"
    FORBIDDEN = "this user lacks permission"
    READ_ONLY = "the disk is mounted for reading only"
    TOO_MANY_FILES = "too many files are open"
    NAME_TOO_LONG = "the path is longer than the system allows"


_KINDS: Final = {
    errno.ENOSPC: DiskFailure.FULL,
    errno.EDQUOT: DiskFailure.FULL,
    errno.EACCES: DiskFailure.FORBIDDEN,
    errno.EPERM: DiskFailure.FORBIDDEN,
    errno.EROFS: DiskFailure.READ_ONLY,
    errno.EMFILE: DiskFailure.TOO_MANY_FILES,
    errno.ENFILE: DiskFailure.TOO_MANY_FILES,
    errno.ENAMETOOLONG: DiskFailure.NAME_TOO_LONG,
}


def disk_failure_of(error: BaseException) -> DiskFailure | None:
    """The kind of a failure, None if it is another one."""
    if isinstance(error, OSError) and error.errno in _KINDS:
        return _KINDS[error.errno]
    for number in _NUMBER.finditer(str(error)):
        kind = _KINDS.get(int(number[1] or number[2]))
        if kind is not None:
            return kind
    return None


def disk_step(kind: DiskFailure, place: str) -> str:
    """What to do about a failure at a place, which is a path."""
    match kind:
        case DiskFailure.FULL:
            return f"Free space on that disk (`df -h {place}` shows it), then run it again."
        case DiskFailure.FORBIDDEN:
            return (
                f"Run it as a user with permission (`ls -ld {place}` shows who), or change the "
                "permissions; with read permission only, open the graph with read_only=True."
            )
        case DiskFailure.READ_ONLY:
            return "Mount it for writing, or only read: open the graph with read_only=True."
        case DiskFailure.TOO_MANY_FILES:
            return (
                "Raise the limit of open files (`ulimit -n 4096`, or LimitNOFILE= of a service), "
                "then run it again."
            )
        case DiskFailure.NAME_TOO_LONG:
            return "Choose a shorter path; one name has at most 255 bytes, a path 4,095."
        case _:
            assert_never(kind)
