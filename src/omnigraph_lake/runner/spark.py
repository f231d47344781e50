"""Run pieces of work as tasks of Spark, with calls that Spark 3.5 and Spark Connect have.

A piece is a row of a range with one row per partition. Messages of an exchange are bytes with the
number of their partition; the shuffle sees nothing else of them.

Invariants:
- The driver receives answers, never rows.
- `Hop.receive` gets exactly the messages of one partition: each partition has a route, an integer
  that Spark's hash partitioning maps to it, and messages with another route are refused.
- Interrupting an operation cancels its own jobs and no other job of the session.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from omnigraph_lake.errors import InvalidInputError, OmnigraphError, SparkJobFailedError
from omnigraph_lake.packed import Packed
from omnigraph_lake.runner import spark_versions
from omnigraph_lake.runner.job_failures import decode_error, encode_error, job_errors, task_errors
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
from omnigraph_lake.runner.session import without_noise
from omnigraph_lake.runner.shuffle import Scratch, StoredScratch
from omnigraph_lake.runner.stored_pieces import PIECES_SENT_MAX, StoredPieces, store_pieces
from omnigraph_lake.runner.threads import Unobserved
from omnigraph_lake.runner.worker_tasks import ArrowTask, tidy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from omnigraph_lake.storage.objects.location import Root

Piece = TypeVar("Piece")
Answer = TypeVar("Answer")

_ANSWERS: Final = "number long, failed boolean, blob binary, tally binary"
_ANSWERS_SCHEMA: Final = pa.schema(
    [("number", pa.int64()), ("failed", pa.bool_()), ("blob", pa.binary()), ("tally", pa.binary())]
)
# The last row of every task has its tally instead of a message, with those that it received.
_MESSAGES: Final = "route int, blob binary, tally binary"
_MESSAGES_SCHEMA: Final = pa.schema(
    [("route", pa.int32()), ("blob", pa.binary()), ("tally", pa.binary())]
)
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
        self._log = StageLog()
        if address := spark_versions.ui_address(spark):
            self._observer.watch_at(address)

    @property
    def parallel(self) -> int:
        return spark_versions.parallel_tasks(self._spark) or _PARALLEL_UNKNOWN

    @property
    def stages(self) -> tuple[StageMetrics, ...]:
        return self._log.metrics()

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

        def run(task: Task) -> Answer:
            return work(handed[task.number], task)

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in _numbers(batches):
                yield _answered(Task(number), run)

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
                _data_frame(name, frame).mapInArrow(
                    tidy(_frame_task(name, work, place=place, frames=len(frames))), _ANSWERS
                )
                for place, (name, frame) in enumerate(frames.items())
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
                sender = Task(number)
                with task_errors():
                    sent = send(handed[number], sender)
                    yield from _messages(sent, hops[0].partitions, sender.tally)
                yield _tally_row(hops[0].partitions, sender.tally)

        with without_noise():
            frame = self._range(len(pieces)).mapInArrow(tidy(task), _MESSAGES)
            for hop, following in zip(hops, [*hops[1:], None], strict=True):
                receive = _receiving(hop, following.partitions if following else None)
                frame = frame.repartition(hop.partitions, "route").mapInArrow(
                    tidy(receive), _MESSAGES
                )
        rows = self._collect(stage, frame, pieces=tasks)
        return [(row.route, bytes(row.blob)) for row in rows if row.blob is not None]

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
        answered, expected = len(set(numbers)), max(len(numbers), pieces)
        if answered < expected:
            raise SparkJobFailedError(
                f"{stage} has answers of {answered} tasks, expected {expected}",
                next_step="Report it with the version of Spark and the plan of the frames.",
            )
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
        with without_noise(), job_errors(), self._log.run(stage) as stage_run:
            rows, spilled = spark_versions.run_job(
                self._spark, str(stage), frame.collect, observe=observe if is_observed else None
            )
            _tally(stage_run, rows, spilled)
        observe(pieces or len(rows))
        return rows


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _tally(stage_run: StageRun, rows: Iterable[Row], spilled: int | None) -> None:
    """Add up what the tasks counted, and what Spark itself spilled."""
    for row in rows:
        if row.tally is not None:
            stage_run.add(Tally.decode(bytes(row.tally)))
    stage_run.spill_is_known = spilled is not None
    stage_run.add(Tally(spilled=spilled or 0))


def _answered(task: Task, work: Callable[[Task], Any]) -> pa.RecordBatch:
    began = time.perf_counter()
    result = attempt(lambda: work(task.anew()))
    task.tally.end_task(time.perf_counter() - began)
    failed = isinstance(result, OmnigraphError)
    blob = encode_error(result) if failed else msgspec.msgpack.encode(result)
    return _answer_row(task, blob, failed=failed)


def _answer_row(task: Task, blob: bytes, *, failed: bool) -> pa.RecordBatch:
    tally = msgspec.msgpack.encode(task.tally)
    return pa.RecordBatch.from_pydict(
        {"number": [task.number], "failed": [failed], "blob": [blob], "tally": [tally]},
        schema=_ANSWERS_SCHEMA,
    )


def _frame_task(
    name: str, work: Callable[[FramePart, Task], Any], *, place: int, frames: int
) -> ArrowTask:
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        # The partitions of a union are those of its frames, one after the other; from Spark 4.1 on,
        # frames of one partition each share that, and their tasks its number.
        frame_task = Task(context.partitionId() * frames + place)
        part = FramePart(number=frame_task.number, frame=name, batches=batches)
        # A stream can be read once, so only Spark can repeat the work.
        began = time.perf_counter()
        with task_errors():
            result = work(part, frame_task)
        frame_task.tally.end_task(time.perf_counter() - began)
        yield _answer_row(frame_task, msgspec.msgpack.encode(result), failed=False)

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
        receiver = Task(context.partitionId())
        received = Tally()

        def contents() -> Iterator[bytes]:
            for batch in batches:
                _require_own(batch, receiver.number, hop.partitions)
                for blob, tally in zip(*(batch.column(n).to_pylist() for n in (1, 2)), strict=True):
                    if tally is None:
                        yield blob
                    else:
                        received.add(Tally.decode(tally))

        with task_errors():
            messages = contents()
            yield from _messages(hop.receive(messages, receiver), following, receiver.tally)
            for _ in messages:
                pass  # a receiver need not read all of them, and tallies are among them
        receiver.tally.add(received)
        yield _tally_row(following, receiver.tally)

    return task


def _require_own(batch: pa.RecordBatch, partition: int, partitions: int) -> None:
    """Refuse messages of another partition: a shuffle that is not Spark's may have its own hash.

    Raises:
        SparkJobFailedError: the shuffle of the session places rows otherwise than Spark.
    """
    if (batch.column(0).to_numpy() == routes(partitions)[partition]).all():
        return
    raise SparkJobFailedError(
        "the shuffle of this Spark session places rows differently from Spark's own: partition "
        f"{partition} of {partitions} received rows of another one",
        next_step="Switch off what replaces Spark's shuffle, such as Comet or RAPIDS, for this "
        "session, or run it in this process.",
    )


def _messages(
    sent: Iterator[Sent], partitions: int | None, tally: Tally
) -> Iterator[pa.RecordBatch]:
    """One batch per message: they may be large. Answers to the driver keep their numbers."""
    numbers = None if partitions is None else routes(partitions)
    began = time.perf_counter()
    for number, blob in sent:
        route = number if numbers is None else int(numbers[number])
        tally.shuffled += 0 if numbers is None else len(blob)
        yield _message_row(route, blob=blob)
    tally.end_task(time.perf_counter() - began)


def _tally_row(partitions: int | None, tally: Tally) -> pa.RecordBatch:
    """What a task counted, for the first partition of the next hop, or for the driver.

    What differs from one run of a task to the next crosses no shuffle.
    """
    if partitions is None:
        return _message_row(0, tally=msgspec.msgpack.encode(tally))
    route = int(routes(partitions)[0])
    return _message_row(route, tally=msgspec.msgpack.encode(tally.repeatable()))


def _message_row(
    route: int, *, blob: bytes | None = None, tally: bytes | None = None
) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"route": [route], "blob": [blob], "tally": [tally]}, schema=_MESSAGES_SCHEMA
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
