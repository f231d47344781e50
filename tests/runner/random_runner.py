"""A runner for tests: random order, repeated and aborted attempts, shuffled arrival of messages."""

from __future__ import annotations

import functools
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.runner.protocol import (
    FramePart,
    Hop,
    Send,
    Sent,
    Stage,
    StageMetrics,
    Task,
    attempt,
)
from omnigraph_lake.runner.shuffle import LocalScratch, Scratch, StoredScratch
from omnigraph_lake.storage.objects.location import Root

Piece = TypeVar("Piece")
Answer = TypeVar("Answer")


class RandomRunner:
    """Runs every piece one to three times; one attempt counts, others are cut short or ignored."""

    def __init__(self, seed: int, *, root: Root | None = None) -> None:
        """With a root, files are exchanged in the staging area of that graph, as on a cluster."""
        self._root = root
        self._random = random.Random(seed)
        self.attempts = 0
        self.aborted = 0
        self.stages: tuple[StageMetrics, ...] = ()
        self.parallel = self._random.randint(1, 7)

    def map(
        self,
        stage: Stage,
        pieces: Sequence[Piece],
        work: Callable[[Piece, Task], Answer],
        answer: type[Answer],
    ) -> list[Answer | OmnigraphError]:
        del stage
        answers: dict[int, Answer | OmnigraphError] = {}
        for number in self._shuffled(range(len(pieces))):
            for _ in range(self._random.randint(0, 2)):
                self._waste(functools.partial(work, pieces[number]), number)
            self.attempts += 1
            result = attempt(functools.partial(work, pieces[number], Task(number)))
            if not isinstance(result, OmnigraphError):
                result = msgspec.msgpack.decode(msgspec.msgpack.encode(result), type=answer)
            answers[number] = result
        return [answers[number] for number in range(len(pieces))]

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
            cuts = sorted(self._random.randint(0, len(frame)) for _ in range(self.parallel - 1))
            for start, end in zip([0, *cuts], [*cuts, len(frame)], strict=True):
                batches = frame.slice(start, end - start).to_batches(max_chunksize=7)
                parts.append(FramePart(number=len(parts), frame=name, batches=batches))
        return self.map(stage, parts, work, answer)

    def exchange(
        self, stage: Stage, pieces: Sequence[Piece], send: Send[Piece], *hops: Hop
    ) -> list[Sent]:
        del stage
        messages: list[Sent] = []
        for number in self._shuffled(range(len(pieces))):
            for _ in range(self._random.randint(0, 2)):
                self._waste(functools.partial(send, pieces[number]), number)
            self.attempts += 1
            messages += send(pieces[number], Task(number))
        for hop in hops:
            received = self._shuffled(messages)
            messages = []
            for partition in self._shuffled(range(hop.partitions)):
                contents = [content for target, content in received if target == partition]
                for _ in range(self._random.randint(0, 1)):
                    self._waste(functools.partial(hop.receive, iter(contents)), partition)
                self.attempts += 1
                messages += hop.receive(iter(self._shuffled(contents)), Task(partition))
        return messages

    @contextmanager
    def scratch(self, operation_id: str) -> Iterator[Scratch]:
        if self._root is not None:
            place = StoredScratch(root=self._root, operation_id=operation_id)
            place.open()
            try:
                yield place
            finally:
                place.close()
            return
        folder = Path(tempfile.mkdtemp(prefix=f"omnigraph-{operation_id}-"))
        try:
            yield LocalScratch(folder=str(folder))
        finally:
            shutil.rmtree(folder)

    def _shuffled(self, things: Sequence[Any] | range) -> list[Any]:
        return self._random.sample(list(things), len(things))

    def _waste(self, work: Callable[[Task], Any], number: int) -> None:
        """An attempt that does not count; it ends at a call of `advance`, or runs through."""
        self.attempts += 1
        try:
            outcome = work(_Doomed(number, self._random.randint(0, 3)))
            if isinstance(outcome, Iterator):
                for _ in range(self._random.randint(0, 3)):
                    next(outcome, None)
        except (_AbortedError, OmnigraphError):
            self.aborted += 1


class _AbortedError(Exception):
    pass


class _Doomed(Task):
    def __init__(self, number: int, calls: int) -> None:
        super().__init__(number)
        self._calls = calls

    def advance(self, *, rows: int = 0, size: int = 0, written: int = 0, spilled: int = 0) -> None:
        del rows, size, written, spilled
        self._calls -= 1
        if self._calls < 0:
            raise _AbortedError
