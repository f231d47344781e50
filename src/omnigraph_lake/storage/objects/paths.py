"""Checks paths that callers name, and classifies the failures of a disk.

Python has errors of its own for a NUL, for half a character and for a name that is too long, and
each looks different. Lance and obstore pass on the error number of the operating system in their
text only, so it is looked for there, too.

Invariants:

- The answer to any argument is a path or an error of Omnigraph, before any file is looked for.
- Every kind of disk failure has a next step of its own.
"""

from __future__ import annotations

import errno
import os
import re
from enum import StrEnum
from pathlib import Path
from typing import Final, assert_never

from omnigraph_lake.errors import InvalidInputError, StorageUnavailableError

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


def is_disk_full(error: BaseException | None) -> bool:
    """Whether a full disk is behind an error."""
    while error is not None:
        if disk_failure_of(error) is DiskFailure.FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


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


_NAME_BYTES_MAX: Final = 255
_PATH_BYTES_MAX: Final = 4095
_SHORTEN: Final = disk_step(DiskFailure.NAME_TOO_LONG, "")


def checked_path(path: object, *, argument: str) -> Path:
    """A path that a caller gave as text or as a path.

    Raises:
        InvalidInputError: it is neither, or no file can have this name.
    """
    text: object = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str) or not text:
        raise InvalidInputError(
            f"{argument} is {type(path).__name__}, expected a path"
            if not isinstance(text, str)
            else f"{argument} is empty, expected a path"
        )
    require_path(text, argument=argument)
    return Path(text)


def require_path(text: str, *, argument: str) -> None:
    """Refuse a text that no file can be called."""
    try:
        spelled = os.fsencode(text)
    except UnicodeEncodeError:
        raise InvalidInputError(
            f"{argument} is {text!r:.80}, which is not valid Unicode",
            next_step="Use a valid path.",
        ) from None
    if b"\0" in spelled:
        raise InvalidInputError(
            f"{argument} is {text!r:.80}, and a path cannot contain NUL",
            next_step="Use a valid path.",
        )
    if len(spelled) > _PATH_BYTES_MAX or max(map(len, spelled.split(b"/"))) > _NAME_BYTES_MAX:
        raise InvalidInputError(
            f"{argument} is {text!r:.80}... and has {len(spelled):,} bytes", next_step=_SHORTEN
        )


def cannot_write(target: Path, error: OSError) -> StorageUnavailableError:
    """The error of a target, outside of any graph, that could not be written."""
    kind = disk_failure_of(error)
    reason = error.strerror or str(error)
    return StorageUnavailableError(
        f"cannot write {target}: {reason if kind is None else f'{kind.value} ({reason})'}",
        next_step="Check the path." if kind is None else disk_step(kind, str(target.parent)),
    )
