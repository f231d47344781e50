"""A folder beside the graph that nobody may touch, and what tells that somebody did.

Reading a file or listing a folder moves its time of access: these are set back to long before the
time of change, which is when a system that keeps such times lazily moves them too. Adding, removing
and renaming moves the time of change of a folder. To look at the times moves none of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LONG_AGO: Final = 10**18
"""In nanoseconds, in 2001."""
Mark = tuple[int, int, int, int, int]


class Tripwire:
    """Everything in a folder, as it was when the wire was laid."""

    def __init__(self, folder: Path) -> None:
        self._paths = [str(folder), *(str(path) for path in sorted(folder.rglob("*")))]
        self._marks: dict[str, Mark] = {}
        self.lay()

    def lay(self) -> None:
        self._paths = [path for path in self._paths if os.path.lexists(path)]
        for path in self._paths:
            os.utime(path, ns=(_LONG_AGO, os.stat(path).st_mtime_ns))  # noqa: PTH116 - thousands
        self._marks = {path: _mark(path) for path in self._paths}

    def tripped(self) -> Iterator[str]:
        """What was touched; the wire stays as it is."""
        for path, before in self._marks.items():
            try:
                now = _mark(path)
            except FileNotFoundError:
                yield f"{path} is gone"
                continue
            if now != before:
                was = "read" if now[:-1] == before[:-1] else "changed"
                yield f"{path} was {was}"


def _mark(path: str) -> Mark:
    facts = os.lstat(path)
    return facts.st_ino, facts.st_mode, facts.st_size, facts.st_mtime_ns, facts.st_atime_ns


def sees_reads(folder: Path) -> bool:
    """Whether this file system tells that a file was read."""
    probe = folder / "probe"
    probe.mkdir()
    (probe / "file").write_bytes(b"x")
    wire = Tripwire(probe)
    (probe / "file").read_bytes()
    return any(wire.tripped())
