"""Run pieces of work as tasks of Spark, with calls that Spark 3.5 and Spark Connect have.

A piece is a row of a range with one row per partition. Messages of an exchange are bytes with the
number of their partition; the shuffle sees nothing else of them.

Invariants:
- The driver receives answers, never rows.
- `Hop.receive` gets exactly the messages of one partition: each partition has a route, an integer
  that Spark's hash partitioning maps to it.
- Interrupting an operation cancels its own jobs and no other job of the session.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from omnigraph.errors import InvalidInputError, OmnigraphError
from omnigraph.packed import Packed
from omnigraph.runner import spark_versions
from omnigraph.runner.job_failures import decode_error, encode_error, job_errors, task_errors
from omnigraph.runner.protocol import FramePart, Hop, Observer, Send, Sent, Stage, Task, attempt
from omnigraph.runner.session import without_noise
from omnigraph.runner.shuffle import Scratch, StoredScratch
from omnigraph.runner.stored_pieces import PIECES_SENT_MAX, StoredPieces, store_pieces
from omnigraph.runner.threads import Unobserved
from omnigraph.runner.worker_tasks import ArrowTask, tidy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from omnigraph.storage.objects.location import Root

Piece = TypeVar("Piece")
Answer = TypeVar("Answer")

_ANSWERS: Final = "number long, failed boolean, blob binary"
_ANSWERS_SCHEMA: Final = pa.schema(
    [("number", pa.int64()), ("failed", pa.bool_()), ("blob", pa.binary())]
)
_MESSAGES: Final = "route int, blob binary"
_MESSAGES_SCHEMA: Final = pa.schema([("route", pa.int32()), ("blob", pa.binary())])
# The seed of Spark's `hash`, which decides the partition of a row.
_SEED: Final = 42
_PARALLEL_UNKNOWN: Final = 8


class SparkRunner:
    """The tasks of one Spark session, for the graph at one root."""

    def __init__(self, spark: SparkSession, root: Root, observer: Observer | None = None) -> None:
        self._spark = spark
        self._root = root
        self._observer = observer or Unobserved()
        self._scratch: StoredScratch | None = None
        if address := spark_versions.ui_address(spark):
            self._observer.watch_at(address)

    @property
    def parallel(self) -> int:
        return spark_versions.parallel_tasks(self._spark) or _PARALLEL_UNKNOWN

    def map(
        self,
        stage: Stage,
        pieces: Sequence[Piece],
        work: Callable[[Piece, Task], Answer],
        answer: type[Answer],
    ) -> Sequence[Answer | OmnigraphError]:
        if not pieces:
            return []
        self._observer.begin(stage, pieces=len(pieces))
        handed = self._hand_over(pieces)

        def run(number: int) -> Answer:
            return work(handed[number], Task(number))

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in _numbers(batches):
                yield _answered(number, functools.partial(run, number))

        with without_noise():
            frame = self._range(len(pieces)).mapInArrow(tidy(task), _ANSWERS)
        return self._answers(stage, frame, answer, pieces=len(pieces))

    def map_frames(
        self,
        stage: Stage,
        frames: Mapping[str, object],
        work: Callable[[FramePart, Task], Answer],
        answer: type[Answer],
    ) -> Sequence[Answer | OmnigraphError]:
        self._observer.begin(stage, pieces=0)
        with without_noise():
            parts = [
                _data_frame(name, frame).mapInArrow(tidy(_frame_task(name, work)), _ANSWERS)
                for name, frame in frames.items()
            ]
            union = functools.reduce(lambda left, right: left.unionAll(right), parts)
        return self._answers(stage, union, answer, pieces=0)

    def exchange(
        self, stage: Stage, pieces: Sequence[Piece], send: Send[Piece], *hops: Hop
    ) -> list[Sent]:
        if not pieces:
            return []
        tasks = len(pieces) + sum(hop.partitions for hop in hops)
        self._observer.begin(stage, pieces=tasks)
        handed = self._hand_over(pieces)

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in _numbers(batches):
                with task_errors():
                    yield from _messages(send(handed[number], Task(number)), hops[0].partitions)

        with without_noise():
            frame = self._range(len(pieces)).mapInArrow(tidy(task), _MESSAGES)
            for hop, following in zip(hops, [*hops[1:], None], strict=True):
                receive = _receiving(hop, following.partitions if following else None)
                frame = frame.repartition(hop.partitions, "route").mapInArrow(
                    tidy(receive), _MESSAGES
                )
        return [(row.route, bytes(row.blob)) for row in self._collect(stage, frame, pieces=tasks)]

    @contextmanager
    def scratch(self, operation_id: str) -> Iterator[Scratch]:
        place = StoredScratch(root=self._root, operation_id=operation_id)
        place.open()
        self._scratch = place
        try:
            yield place
        finally:
            self._scratch = None
            with suppress(OmnigraphError):
                place.close()

    def _hand_over(self, pieces: Sequence[Piece]) -> Sequence[Piece] | StoredPieces[Piece]:
        """The pieces as tasks get them: in the closure, or through the scratch area if many."""
        if self._scratch is None or len(pieces) <= PIECES_SENT_MAX:
            return tuple(pieces)
        return store_pieces(self._scratch, pieces)

    def _range(self, count: int) -> DataFrame:
        return self._spark.range(0, count, 1, count)

    def _answers(
        self, stage: Stage, frame: DataFrame, answer: type[Answer], *, pieces: int
    ) -> Sequence[Answer | OmnigraphError]:
        rows = sorted(self._collect(stage, frame, pieces=pieces), key=lambda row: row.number)
        numbers = [row.number for row in rows]
        assert len(set(numbers)) == len(numbers), "every piece answers once"
        assert not pieces or len(numbers) == pieces, "every piece answers"
        if not any(row.failed for row in rows):
            return Packed((bytes(row.blob) for row in rows), answer)
        decoder = msgspec.msgpack.Decoder(answer)
        return [
            decode_error(bytes(row.blob)) if row.failed else decoder.decode(bytes(row.blob))
            for row in rows
        ]

    def _collect(self, stage: Stage, frame: DataFrame, *, pieces: int) -> list[Row]:
        """The rows of a frame, computed by a job that is named after the stage, which has begun."""
        reported = 0

        def observe(tasks: int) -> None:
            nonlocal reported
            done = max(reported, min(tasks, pieces) if pieces else tasks)
            self._observer.advance(pieces=done - reported)
            reported = done

        is_observed = not isinstance(self._observer, Unobserved)
        with without_noise(), job_errors():
            rows = spark_versions.run_job(
                self._spark, str(stage), frame.collect, observe=observe if is_observed else None
            )
        observe(pieces or len(rows))
        return rows


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _answered(number: int, work: Callable[[], Any]) -> pa.RecordBatch:
    result = attempt(work)
    failed = isinstance(result, OmnigraphError)
    blob = encode_error(result) if failed else msgspec.msgpack.encode(result)
    return pa.RecordBatch.from_pydict(
        {"number": [number], "failed": [failed], "blob": [blob]}, schema=_ANSWERS_SCHEMA
    )


def _frame_task(name: str, work: Callable[[FramePart, Task], Any]) -> ArrowTask:
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        # The partitions of a union are those of its frames, one after the other.
        number = context.partitionId()
        part = FramePart(number=number, frame=name, batches=batches)
        # A stream can be read once, so only Spark can repeat the work.
        with task_errors():
            result = work(part, Task(number))
        yield pa.RecordBatch.from_pydict(
            {"number": [number], "failed": [False], "blob": [msgspec.msgpack.encode(result)]},
            schema=_ANSWERS_SCHEMA,
        )

    return task


def _data_frame(name: str, frame: object) -> DataFrame:
    if not hasattr(frame, "mapInArrow"):
        raise InvalidInputError(
            f"the input for {name} is {type(frame).__name__}, expected a Spark DataFrame"
        )
    return frame  # type: ignore[return-value]


def _receiving(hop: Hop, following: int | None) -> ArrowTask:
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        contents = (blob for batch in batches for blob in batch.column("blob").to_pylist())
        with task_errors():
            yield from _messages(hop.receive(contents, Task(context.partitionId())), following)

    return task


def _messages(sent: Iterable[Sent], partitions: int | None) -> Iterator[pa.RecordBatch]:
    """One batch per message: they may be large. Answers to the driver keep their numbers."""
    numbers = None if partitions is None else routes(partitions)
    for number, blob in sent:
        route = number if numbers is None else int(numbers[number])
        yield pa.RecordBatch.from_pydict(
            {"route": [route], "blob": [blob]}, schema=_MESSAGES_SCHEMA
        )


@functools.lru_cache(maxsize=8)
def routes(partitions: int) -> np.ndarray:
    """For every partition, the smallest integer that `repartition` sends there.

    Spark takes Murmur3 of the integer, modulo the number of partitions. With plain numbers a third
    of the partitions would be empty, and some would have many.
    """
    numbers = np.full(partitions, -1, np.int64)
    start, block = 0, max(1024, 4 * partitions)
    while (numbers < 0).any():
        candidates = np.arange(start, start + block, dtype=np.int64)
        targets = _murmur3(candidates.astype(np.uint32)).astype(np.int64) % partitions
        first, where = np.unique(targets, return_index=True)
        unset = numbers[first] < 0
        numbers[first[unset]] = candidates[where[unset]]
        start += block
    return numbers


def _murmur3(values: np.ndarray) -> np.ndarray:
    """Spark's hash of 32-bit integers, as signed numbers."""
    with np.errstate(over="ignore"):
        mixed = values * np.uint32(0xCC9E2D51)
        mixed = (mixed << np.uint32(15)) | (mixed >> np.uint32(17))
        mixed = mixed * np.uint32(0x1B873593)
        hashed = np.uint32(_SEED) ^ mixed
        hashed = (hashed << np.uint32(13)) | (hashed >> np.uint32(19))
        hashed = hashed * np.uint32(5) + np.uint32(0xE6546B64)
        hashed = hashed ^ np.uint32(4)
        hashed = hashed ^ (hashed >> np.uint32(16))
        hashed = hashed * np.uint32(0x85EBCA6B)
        hashed = hashed ^ (hashed >> np.uint32(13))
        hashed = hashed * np.uint32(0xC2B2AE35)
        hashed = hashed ^ (hashed >> np.uint32(16))
    return hashed.view(np.int32)
