"""Define what runs the data-heavy verbs: pieces of work, and exchanges of messages between them.

A verb is a plan, a list of pieces, and at most two exchanges by key. Threads of this process or the
tasks of Spark run the pieces; the verb does not know which.

Contract for work:
- It is deterministic in its piece, except for names of files and generated ids.
- It may run several times, also at once; only what the counted attempt answered or sent exists.
- The order in which messages arrive has no meaning: whatever it is, a task sends the same messages,
  byte for byte. From 4.2 on, Spark gives up a job whose repeated tasks send others (SPARK-53575).

Invariants:
- Answers of `map` are in the order of the pieces. A typed error of a piece is its answer; the other
  pieces are run. Any failure ends an exchange as a whole.
- A task counts rows and bytes in a tally that travels with its answer, so an attempt that did not
  count is not counted. A stage that runs several times is one entry of the metrics, and a figure
  that a runner cannot know is None.
- Work that was cancelled, by an interrupt or because another piece failed, stops at its next
  `Task.advance`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from omnigraph_lake.display.pages import Displayed
from omnigraph_lake.errors import OmnigraphError, StorageUnavailableError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from omnigraph_lake.runner.shuffle import Scratch

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMetrics(Displayed):
    """What one stage of a verb cost, all its runs together.

    `read_bytes` are those of input files, `written_bytes` those of files of tables. Messages of
    tasks to each other are counted before they are compressed. Task seconds are those that the
    longest task took.
    """

    name: str
    type: str | None
    runs: int
    tasks: int
    rows: int
    read_bytes: int
    written_bytes: int
    shuffled_bytes: int
    spilled_bytes: int | None
    """To disk, for want of memory; None if Spark does not say."""
    seconds: float
    longest_task_seconds: float

    def __str__(self) -> str:
        return f"{self.name} {self.type}" if self.type else self.name


class Tally(msgspec.Struct, array_like=True):
    """What some tasks of a stage have counted; `seconds` are those of the longest."""

    tasks: int = 0
    rows: int = 0
    read: int = 0
    written: int = 0
    shuffled: int = 0
    spilled: int = 0
    seconds: float = 0.0

    @classmethod
    def decode(cls, content: bytes) -> Tally:
        return msgspec.msgpack.decode(content, type=cls)

    def add(self, other: Tally) -> None:
        self.tasks += other.tasks
        self.rows += other.rows
        self.read += other.read
        self.written += other.written
        self.shuffled += other.shuffled
        self.spilled += other.spilled
        self.seconds = max(self.seconds, other.seconds)

    def repeatable(self) -> Tally:
        """What every run of the same tasks counts: not their time, nor what they spilled."""
        return msgspec.structs.replace(self, spilled=0, seconds=0.0)

    def end_task(self, seconds: float) -> None:
        """Count a task that has ended."""
        self.tasks += 1
        self.seconds = max(self.seconds, seconds)


class StageRun:
    """One run of a stage; any thread may add tallies."""

    def __init__(self) -> None:
        self.total = Tally()
        self.spill_is_known = True
        self._adding = threading.Lock()

    def add(self, tally: Tally) -> None:
        with self._adding:
            self.total.add(tally)


class StageLog:
    """The stages of one runner, in the order in which they began."""

    def __init__(self) -> None:
        self._stages: dict[tuple[str, str | None], StageMetrics] = {}
        self._recording = threading.Lock()

    @contextmanager
    def run(self, stage: Stage) -> Iterator[StageRun]:
        """Record what is counted in the body, also if it fails."""
        began = time.perf_counter()
        stage_run = StageRun()
        key = (stage.name, stage.type)
        with self._recording:
            self._stages.setdefault(key, _nothing(stage))
        try:
            yield stage_run
        finally:
            seconds = time.perf_counter() - began
            with self._recording:
                self._stages[key] = _with_run(self._stages[key], stage_run, seconds)

    def metrics(self) -> tuple[StageMetrics, ...]:
        with self._recording:
            return tuple(self._stages.values())


def _nothing(stage: Stage) -> StageMetrics:
    return StageMetrics(
        name=stage.name,
        type=stage.type,
        runs=0,
        tasks=0,
        rows=0,
        read_bytes=0,
        written_bytes=0,
        shuffled_bytes=0,
        spilled_bytes=0,
        seconds=0.0,
        longest_task_seconds=0.0,
    )


def _with_run(earlier: StageMetrics, run: StageRun, seconds: float) -> StageMetrics:
    total = run.total
    is_spill_known = run.spill_is_known and earlier.spilled_bytes is not None
    return StageMetrics(
        name=earlier.name,
        type=earlier.type,
        runs=earlier.runs + 1,
        tasks=earlier.tasks + total.tasks,
        rows=earlier.rows + total.rows,
        read_bytes=earlier.read_bytes + total.read,
        written_bytes=earlier.written_bytes + total.written,
        shuffled_bytes=earlier.shuffled_bytes + total.shuffled,
        spilled_bytes=(earlier.spilled_bytes or 0) + total.spilled if is_spill_known else None,
        seconds=round(earlier.seconds + seconds, 3),
        longest_task_seconds=round(max(earlier.longest_task_seconds, total.seconds), 3),
    )


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
        self.tally = Tally()
        self._observe = observe
        self._cancelled = cancelled

    def anew(self) -> Task:
        """This task for another attempt: what an earlier one counted is forgotten."""
        self.tally = Tally()
        return self

    def advance(self, *, rows: int = 0, size: int = 0, written: int = 0, spilled: int = 0) -> None:
        """So much more of the stage is done; stops work that was cancelled.

        `size` is what was read of the input, `written` the size of files of tables, and `spilled`
        what went to disk for want of memory.
        """
        self.tally.rows += rows
        self.tally.read += size
        self.tally.written += written
        self.tally.spilled += spilled
        if self._cancelled is not None and self._cancelled.is_set():
            raise WorkCancelled
        if self._observe is not None:
            self._observe(rows, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class FramePart:
    """A part of a frame as a piece: a partition of a DataFrame, or some rows of an Arrow table."""

    number: int
    """Numbers grow through all frames, in their order; on Spark there are gaps."""
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

    @property
    def stages(self) -> tuple[StageMetrics, ...]:
        """What the stages so far cost, in the order in which they began."""
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
