"""Define what runs the data-heavy verbs: pieces of work, and exchanges of messages between them.

A verb is a plan, a list of pieces, and at most two exchanges by key. Threads of this process or the
tasks of Spark run the pieces; the verb does not know which.

Contract for work:
- It is deterministic in its piece, except for names of files and generated ids.
- It may run several times, also at once; only what the counted attempt answered or sent exists.
- The order in which messages arrive has no meaning.

Invariants:
- Answers of `map` are in the order of the pieces. A typed error of a piece is its answer; the other
  pieces are run. Any failure ends an exchange as a whole.
- Work that was cancelled, by an interrupt or because another piece failed, stops at its next
  `Task.advance`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from omnigraph.errors import OmnigraphError, StorageUnavailableError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from omnigraph.runner.shuffle import Scratch

Piece = TypeVar("Piece")
Answer = TypeVar("Answer")

Sent = tuple[int, bytes]
"""A message: the number of the partition that receives it, and its content."""

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One step of a verb, as progress and the Spark UI show it; `size` is what it will read."""

    verb: str
    name: str
    type: str | None = None
    size: int = 0

    def __str__(self) -> str:
        return f"{self.verb} {self.type}: {self.name}" if self.type else f"{self.verb}: {self.name}"


class WorkCancelled(Exception):  # noqa: N818 - no caller of a runner sees it
    """Ends work whose result nothing waits for."""


class Task:
    """One attempt at a piece or a partition."""

    def __init__(
        self,
        number: int,
        *,
        observe: Callable[[int, int], None] | None = None,
        cancelled: threading.Event | None = None,
    ) -> None:
        self.number = number
        """Of the piece or the partition; the same in every attempt."""
        self._observe = observe
        self._cancelled = cancelled

    def advance(self, *, rows: int = 0, size: int = 0) -> None:
        """So much more of the stage is done; stops work that was cancelled."""
        if self._cancelled is not None and self._cancelled.is_set():
            raise WorkCancelled
        if self._observe is not None:
            self._observe(rows, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class FramePart:
    """A part of a frame as a piece: a partition of a DataFrame, or some rows of an Arrow table."""

    number: int
    """Parts are numbered through all frames, in their order."""
    frame: str
    batches: Iterable[pa.RecordBatch]


Send = Callable[[Piece, Task], Iterator[Sent]]
Receive = Callable[[Iterator[bytes], Task], Iterator[Sent]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """The receiving side of an exchange: what each partition makes of the messages sent to it."""

    partitions: int
    receive: Receive


class Observer(Protocol):
    """What learns how far a verb is."""

    def begin(self, stage: Stage, *, pieces: int) -> None: ...

    def advance(self, *, pieces: int = 0, rows: int = 0, size: int = 0) -> None: ...

    def watch_at(self, address: str) -> None:
        """A page shows the work in detail."""
        ...


class Runner(Protocol):
    """Runs pieces of work; see the contract of this module."""

    @property
    def parallel(self) -> int:
        """How many tasks run at once: for sizing only, never for results."""
        ...

    def map(
        self,
        stage: Stage,
        pieces: Sequence[Piece],
        work: Callable[[Piece, Task], Answer],
        answer: type[Answer],
    ) -> Sequence[Answer | OmnigraphError]:
        """Run every piece."""
        ...

    def map_frames(
        self,
        stage: Stage,
        frames: Mapping[str, object],
        work: Callable[[FramePart, Task], Answer],
        answer: type[Answer],
    ) -> Sequence[Answer | OmnigraphError]:
        """Run every part of every frame; answers are in the order of their numbers."""
        ...

    def exchange(
        self, stage: Stage, pieces: Sequence[Piece], send: Send[Piece], *hops: Hop
    ) -> list[Sent]:
        """Send messages of every piece through the hops; returns what the last of them sends."""
        ...

    def scratch(self, operation_id: str) -> AbstractContextManager[Scratch]:
        """A place for files that all tasks reach, removed afterwards."""
        ...


def require_answers(answers: Iterable[Answer | OmnigraphError]) -> list[Answer]:
    """The answers, if no piece failed.

    Raises:
        OmnigraphError: the error of the first piece that failed.
    """
    complete: list[Answer] = []
    for answer in answers:
        if isinstance(answer, OmnigraphError):
            raise answer
        complete.append(answer)
    return complete


def attempt(work: Callable[[], Answer]) -> Answer | OmnigraphError:
    """The result of a piece or its typed error; a store that does not respond is asked again."""
    for number in range(1, _ATTEMPTS + 1):
        try:
            return work()
        except StorageUnavailableError as error:
            if number == _ATTEMPTS:
                return error
        except OmnigraphError as error:
            return error
    raise AssertionError("the last attempt returns")
