"""The progress of a load.

Invariant: progress never changes what a load does, and a load without an observer prints nothing.
On a terminal it is a bar with bytes, records per second and the time left; elsewhere, such as in a
log, one line every ten seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

HEARTBEAT_SECONDS: Final = 10.0
_MEBIBYTE: Final = 1 << 20


class Progress:
    """What an engine reports while it works, between entering and leaving; this one only counts."""

    def __init__(self) -> None:
        self.what = "starting"
        self.total_bytes = 0
        self.bytes_read = 0
        self.records = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        """No progress is shown."""

    def phase(self, what: str, *, total_bytes: int = 0) -> None:
        """Begin something of its own, such as reading so many bytes."""
        self.what = what
        self.total_bytes = total_bytes
        self.bytes_read = self.records = 0

    def advance(self, *, bytes_read: int = 0, records: int = 0) -> None:
        """So much more of the present phase is done."""
        self.bytes_read += bytes_read
        self.records += records


class Heartbeat(Progress):
    """One line at a steady pace, also while the engine is too busy to say anything."""

    def __init__(
        self, write: Callable[[str], object], *, every_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        super().__init__()
        self._write = write
        self._every = every_seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._since = time.monotonic()

    def __enter__(self) -> Self:
        self._since = time.monotonic()
        self._thread.start()
        return self

    def _end(self) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._over.wait(self._every):
            self._write(self._line())

    def _line(self) -> str:
        seconds = time.monotonic() - self._since
        parts = [f"{self.what}, {seconds:.0f} s"]
        if self.total_bytes:
            done, total = self.bytes_read / _MEBIBYTE, self.total_bytes / _MEBIBYTE
            parts.append(f"{done:,.1f} of {total:,.1f} MiB")
        if self.records:
            parts.append(f"{self.records:,} records")
        return ", ".join(parts)


class Bar(Progress):
    """A bar on a terminal; it leaves nothing behind."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._drawn = _rich_bar(stream)
        self._task: TaskID | None = None
        self._since = time.monotonic()

    def __enter__(self) -> Self:
        self._drawn.start()
        return self

    def _end(self) -> None:
        self._drawn.stop()

    def phase(self, what: str, *, total_bytes: int = 0) -> None:
        super().phase(what, total_bytes=total_bytes)
        if self._task is not None:
            self._drawn.remove_task(self._task)
        self._task = self._drawn.add_task(what, total=total_bytes or None, rate="")
        self._since = time.monotonic()

    def advance(self, *, bytes_read: int = 0, records: int = 0) -> None:
        super().advance(bytes_read=bytes_read, records=records)
        if self._task is not None:
            seconds = time.monotonic() - self._since
            rate = f"{self.records / seconds:,.0f} records/s" if self.records and seconds else ""
            self._drawn.update(self._task, completed=self.bytes_read, rate=rate)


def watching(stream: TextIO) -> Progress:
    """The kind of progress that suits a stream: a bar for a person, a heartbeat for a log."""
    if stream.isatty():
        return Bar(stream)

    def write(line: str) -> None:
        stream.write(f"{line}\n")
        stream.flush()

    return Heartbeat(write)


def _rich_bar(stream: TextIO) -> RichProgress:
    from rich.console import Console  # 60 ms that a silent load need not pay
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    return RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(file=stream),
        transient=True,
    )
