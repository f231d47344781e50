"""Keep messages by partition until they are read: in memory, then in one temporary file.

Invariant: at most `held_bytes` of the messages are in memory. The file is removed by the system
when the process ends, however it ends.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Generator, Iterator
from typing import IO, TYPE_CHECKING

from omnigraph_lake.errors import StorageUnavailableError

if TYPE_CHECKING:
    from omnigraph_lake.runner.protocol import Sent, Task


class Mailboxes:
    """The messages of one hop by partition: in memory, then in one file."""

    def __init__(self, held_bytes: int) -> None:
        self._room = held_bytes
        self._lock = threading.Lock()
        self._messages: dict[int, list[bytes | tuple[int, int]]] = {}
        self._file: IO[bytes] | None = None
        self._end = 0

    def __enter__(self) -> Mailboxes:
        return self

    def __exit__(self, *_: object) -> None:
        self._messages.clear()
        if self._file is not None:
            self._file.close()

    def put(self, messages: Iterator[Sent], task: Task) -> None:
        try:
            for partition, content in messages:
                with self._lock:
                    place = self._keep(content)
                    self._messages.setdefault(partition, []).append(place)
                task.advance(spilled=0 if isinstance(place, bytes) else len(content))
        finally:
            if isinstance(messages, Generator):
                messages.close()  # what it has open is not needed while a failure is handled

    def partitions(self) -> list[int]:
        """The partitions that have messages, in order."""
        return sorted(self._messages)

    def take(self, partition: int) -> Iterator[bytes]:
        """The messages to one partition; they are forgotten as they are read."""
        messages = self._messages.pop(partition, [])
        messages.reverse()
        while messages:
            message = messages.pop()
            if isinstance(message, bytes):
                yield message
            else:
                assert self._file is not None
                start, size = message
                yield os.pread(self._file.fileno(), size, start)

    def _keep(self, content: bytes) -> bytes | tuple[int, int]:
        if len(content) <= self._room:
            self._room -= len(content)
            return content
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="omnigraph-exchange-")  # noqa: SIM115
            self._file.write(content)
            self._file.flush()
        except OSError as error:
            raise StorageUnavailableError(
                f"keys cannot be exchanged in the folder {tempfile.gettempdir()}: {error}",
                next_step="Free space there, or name another folder with TMPDIR.",
            ) from error
        place = (self._end, len(content))
        self._end += len(content)
        return place
