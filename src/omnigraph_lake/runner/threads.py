"""Run pieces of work in threads of this process; an exchange that does not fit memory is spilled.

Invariants:
- Memory is bounded by what the running pieces hold, and by one partition of an exchange per thread:
  messages beyond a fixed size are in one temporary file until their partition is read.
- A single piece runs in the calling thread.
- After an interrupt or a failure no thread of the runner is left working.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, nullcontext
from itertools import pairwise
from typing import Final, TypeVar

import pyarrow as pa

from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.runner.mailboxes import Mailboxes
from omnigraph_lake.runner.memory import release_unused_memory
from omnigraph_lake.runner.protocol import (
    FramePart,
    Hop,
    Observer,
    Send,
    Sent,
    Stage,
    StageLog,
    StageMetrics,
    StageRun,
    Tally,
    Task,
    attempt,
)
from omnigraph_lake.runner.shuffle import LocalScratch, Scratch
from omnigraph_lake.storage.objects.temporary_folders import temporary_folder

Piece = TypeVar("Piece")
Answer = TypeVar("Answer")

PARALLEL: Final = min(8, os.cpu_count() or 1)
HELD_BYTES: Final = 64 << 20
"""Messages of one exchange that stay in memory."""
FRAME_BYTES: Final = 64 << 20
"""About so much of an Arrow table is one piece."""
_RELEASED_SECONDS: Final = 1.0
"""Memory that tasks leave for reuse is given back this often: each leaves some in other arenas."""


class Unobserved:
    """An observer that does nothing."""

    def begin(self, stage: Stage, *, pieces: int) -> None:
        pass

    def advance(self, *, pieces: int = 0, rows: int = 0, size: int = 0) -> None:
        pass

    def watch_at(self, address: str) -> None:
        pass


class ThreadRunner:
    """Threads of this process."""

    def __init__(
        self,
        observer: Observer | None = None,
        *,
        parallel: int = PARALLEL,
        held_bytes: int = HELD_BYTES,
        frame_bytes: int = FRAME_BYTES,
    ) -> None:
        self._observer = observer or Unobserved()
        self._held_bytes = held_bytes
        self._frame_bytes = frame_bytes
        self._log = StageLog()
        self._released_at = time.monotonic()
        self.parallel = parallel

    @property
    def stages(self) -> tuple[StageMetrics, ...]:
        return self._log.metrics()

    def map(
        self,
        stage: Stage,
        pieces: Sequence[Piece],
        work: Callable[[Piece, Task], Answer],
        answer: type[Answer],  # noqa: ARG002 - nothing is encoded here
    ) -> list[Answer | OmnigraphError]:
        def run(piece: Piece, task: Task) -> Answer | OmnigraphError:
            return attempt(lambda: work(piece, task.anew()))

        self._observer.begin(stage, pieces=len(pieces))
        with self._log.run(stage) as stage_run:
            return self._run(pieces, run, stage_run)

    def map_frames(
        self,
        stage: Stage,
        frames: Mapping[str, object],
        work: Callable[[FramePart, Task], Answer],
        answer: type[Answer],
    ) -> list[Answer | OmnigraphError]:
        parts: list[FramePart] = []
        for name, frame in frames.items():
            assert isinstance(frame, pa.Table)
            for rows in _slices(frame, self._frame_bytes):
                parts.append(FramePart(number=len(parts), frame=name, batches=rows.to_batches()))
        return self.map(stage, parts, work, answer)

    def exchange(
        self, stage: Stage, pieces: Sequence[Piece], send: Send[Piece], *hops: Hop
    ) -> list[Sent]:
        self._observer.begin(stage, pieces=len(pieces) + sum(hop.partitions for hop in hops))
        with self._log.run(stage) as stage_run, Mailboxes(self._held_bytes) as mailboxes:
            self._run(
                pieces,
                lambda piece, task: mailboxes.put(_count_sent(send(piece, task), task.tally), task),
                stage_run,
            )
            return self._receive(stage_run, mailboxes, *hops)

    def _receive(
        self, stage_run: StageRun, mailboxes: Mailboxes, hop: Hop, *later: Hop
    ) -> list[Sent]:
        def receive(partition: int, task: Task) -> list[Sent]:
            return list(hop.receive(mailboxes.take(partition), task))

        numbers = range(hop.partitions)
        if not later:
            return [sent for answers in self._run(numbers, receive, stage_run) for sent in answers]
        with Mailboxes(self._held_bytes) as following:

            def forward(number: int, task: Task) -> None:
                received = hop.receive(mailboxes.take(number), task)
                following.put(_count_sent(received, task.tally), task)

            self._run(numbers, forward, stage_run)
            return self._receive(stage_run, following, *later)

    @contextmanager
    def scratch(self, operation_id: str) -> Iterator[Scratch]:
        with temporary_folder(operation_id) as folder:
            yield LocalScratch(folder=str(folder))

    def _run(
        self,
        pieces: Sequence[Piece],
        work: Callable[[Piece, Task], Answer],
        stage_run: StageRun,
    ) -> list[Answer]:
        """The results in order; the first exception cancels what is not finished and is raised."""
        cancelled = threading.Event()

        def run(number: int) -> Answer:
            task = Task(number, observe=self._advance, cancelled=cancelled)
            task.advance()
            began = time.perf_counter()
            result = work(pieces[number], task)
            task.tally.end_task(time.perf_counter() - began)
            stage_run.add(task.tally)
            self._observer.advance(pieces=1)
            self._release_memory()
            return result

        if len(pieces) <= 1 or self.parallel == 1:
            return [run(number) for number in range(len(pieces))]
        with ThreadPoolExecutor(min(self.parallel, len(pieces))) as pool:
            futures = [pool.submit(run, number) for number in range(len(pieces))]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
                return _results(futures)
            finally:
                cancelled.set()
                pool.shutdown(wait=True, cancel_futures=True)

    def _release_memory(self) -> None:
        now = time.monotonic()
        if now - self._released_at >= _RELEASED_SECONDS:
            self._released_at = now
            release_unused_memory()

    def _advance(self, rows: int, size: int) -> None:
        self._observer.advance(rows=rows, size=size)


def _count_sent(messages: Iterator[Sent], tally: Tally) -> Iterator[Sent]:
    """Messages to other tasks; closing closes their source."""
    with closing(messages) if isinstance(messages, Generator) else nullcontext():
        for partition, content in messages:
            tally.shuffled += len(content)
            yield partition, content


def _results(futures: Sequence[Future[Answer]]) -> list[Answer]:
    for future in futures:
        if future.done() and (error := future.exception()):
            raise error
    return [future.result() for future in futures]


def _slices(rows: pa.Table, size: int) -> Iterator[pa.Table]:
    """Parts of about equal size; one, without rows, of an empty table."""
    count = min(max(1, -(-rows.nbytes // size)), max(1, len(rows)))
    bounds = [len(rows) * number // count for number in range(count + 1)]
    for start, end in pairwise(bounds):
        yield rows.slice(start, end - start)
