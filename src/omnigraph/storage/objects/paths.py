"""Paths that callers name: what no system can look for is refused before it is looked for.

Invariant: whatever is handed in, the answer is a path or an error of ours. Python has errors of its
own for a NUL, for half a character and for a name that is too long, and each looks different.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from omnigraph.errors import InvalidInputError, StorageUnavailableError
from omnigraph.storage.objects.disk_failures import DiskFailure, disk_failure_of, disk_step

_NAME_BYTES_MAX: Final = 255
_PATH_BYTES_MAX: Final = 4095
_SHORTEN: Final = disk_step(DiskFailure.NAME_TOO_LONG, "")


def checked_path(given: object, *, argument: str) -> Path:
    """A path that a caller gave as text or as a path.

    Raises:
        InvalidInputError: it is neither, or no file can have this name.
    """
    text: object = os.fspath(given) if isinstance(given, str | os.PathLike) else given
    if not isinstance(text, str) or not text:
        raise InvalidInputError(
            f"{argument} is {type(given).__name__}, expected a path"
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
