"""Maintenance on Spark: the pieces of all tables as one job, one piece per task.

Invariant: tasks write unreferenced files, so one may run twice. The driver receives texts and
descriptions of files, in the order of the pieces. A piece that fails returns its error and does not
affect the others; if a job fails, all of its pieces return that error.

An index over many rows is built in parts by several tasks. A second job merges them to one segment,
because that takes much of the build time, and memory that the driver may not have.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec

from omnigraph.diff.spark_diff import run_tasks
from omnigraph.errors import (
    DamagedGraphError,
    IndexPendingError,
    OmnigraphError,
    StorageUnavailableError,
)
from omnigraph.runner.scan import job_errors
from omnigraph.runner.session import without_noise
from omnigraph.storage.indexes.segments import (
    IndexTask,
    Organisation,
    Segment,
    build_part,
    build_segment,
    merge_segments,
)
from omnigraph.storage.lance.compaction import CompactionWork, execute_task
from omnigraph.storage.lance.tables import grouped, plan_scan
from omnigraph.storage.objects.durability import make_durable
from omnigraph.storage.refs.stored_files import StoredFile, compare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import TableEntry

ROWS_PER_PART: Final = {
    Organisation.BTREE: 4_000_000,
    Organisation.INVERTED: 1_000_000,
    Organisation.IVF_FLAT: 1_000_000,
}
"""The number of rows that a task processes in a few seconds."""

_FILES_PER_TASK: Final = 16
_TYPED: Final[dict[str, type[OmnigraphError]]] = {
    each.__name__: each for each in (DamagedGraphError, IndexPendingError, StorageUnavailableError)
}
_Piece = TypeVar("_Piece")
_Parts = tuple[IndexTask, ...]


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The result of a task: the outcome, or an error that has a type."""

    outcome: bytes = b""
    error: str = ""
    what: str = ""
    next_step: str = ""

    @classmethod
    def of(cls, error: OmnigraphError) -> Self:
        return cls(error=type(error).__name__, what=error.what, next_step=error.next_step)

    def value(self) -> bytes | OmnigraphError:
        if not self.error:
            return self.outcome
        return _TYPED.get(self.error, StorageUnavailableError)(self.what, next_step=self.next_step)


def run_compactions(
    spark: SparkSession, root: Root, pieces: Sequence[CompactionWork]
) -> list[str | OmnigraphError]:
    """Rewrite the files of every piece; the text of each result, or why there is none."""
    # A task describes each of its fragments, and every task receives the work of all.
    packed = [(each.entry, zlib.compress(each.task.encode())) for each in pieces]

    def compact(piece: tuple[TableEntry, bytes]) -> bytes:
        entry, task = piece
        work = CompactionWork(entry=entry, task=zlib.decompress(task).decode())
        return _durable(root, execute_task(root, work).encode())

    return [
        each if isinstance(each, OmnigraphError) else each.decode()
        for each in _answers(spark, packed, compact)
    ]


def _durable(root: Root, answer: bytes) -> bytes:
    """The result of a task, once its files are on stable storage."""
    make_durable(root)
    return answer


def build_segments(
    spark: SparkSession, root: Root, tasks: Sequence[IndexTask]
) -> list[Segment | OmnigraphError]:
    """Build every index, large ones in parts; one segment for each, or why there is none."""
    split = [_parts(root, task) for task in tasks]

    def build(piece: tuple[IndexTask, bool]) -> bytes:
        task, is_part = piece
        built = build_part(root, task) if is_part else build_segment(root, task)
        return _durable(root, pickle.dumps(built))

    pieces = [(part, len(parts) > 1) for parts in split for part in parts]
    built = iter(_segments(_answers(spark, pieces, build)))
    return _merged(spark, root, tasks, [[next(built) for _ in parts] for parts in split])


def _merged(
    spark: SparkSession,
    root: Root,
    tasks: Sequence[IndexTask],
    built: Sequence[Sequence[Segment | OmnigraphError]],
) -> list[Segment | OmnigraphError]:
    """One segment of the parts of each task; the first error of a part is the error of its task."""
    found: list[Segment | OmnigraphError] = []
    to_merge: dict[int, tuple[TableEntry, bytes]] = {}
    for number, (task, parts) in enumerate(zip(tasks, built, strict=True)):
        failed = [part for part in parts if isinstance(part, OmnigraphError)]
        found.append(failed[0] if failed else parts[0])
        if not failed and len(parts) > 1:
            to_merge[number] = (task.entry, pickle.dumps(list(parts)))

    def merge(piece: tuple[TableEntry, bytes]) -> bytes:
        entry, parts = piece
        return _durable(root, pickle.dumps(merge_segments(root, entry, _unpickled(parts))))

    merged = _segments(_answers(spark, list(to_merge.values()), merge))
    for number, segment in zip(to_merge, merged, strict=True):
        found[number] = segment
    return found


def _parts(root: Root, task: IndexTask) -> _Parts:
    """The same index over fewer fragments each; vectors only where all share their centroids."""
    rows_max = ROWS_PER_PART[task.wish.organisation]
    is_trained = task.wish.organisation is not Organisation.IVF_FLAT or task.centroids is not None
    if not is_trained or len(task.fragments) == 1 or task.entry.row_count <= rows_max:
        return (task,)
    try:
        scan = plan_scan(root, task.entry, columns=[task.wish.column], where=None)
    except OmnigraphError:
        return (task,)  # The builder gets the same error.
    wanted = set(task.fragments)
    groups = grouped(
        (each for each in scan.fragments if each.fragment_id in wanted), rows_max=rows_max
    )
    return tuple(replace(task, fragments=group) for group in groups)


def compare_files(spark: SparkSession, root: Root, files: Sequence[StoredFile]) -> list[str | None]:
    """How each file differs from the published one."""
    tasks = -(-len(files) // _FILES_PER_TASK)
    pieces = [tuple(files[number::tasks]) for number in range(tasks)]

    def compare_piece(piece: tuple[StoredFile, ...]) -> list[str | None]:
        return [compare(root, file) for file in piece]

    with _job(spark):
        answers = run_tasks(spark, pieces, compare_piece, list[str | None])
    differences: list[str | None] = [None] * len(files)
    for number, answer in enumerate(answers):
        differences[number::tasks] = answer
    return differences


def _answers(
    spark: SparkSession, pieces: Sequence[_Piece], do: Callable[[_Piece], bytes]
) -> list[bytes | OmnigraphError]:
    def answer(piece: _Piece) -> Answer:
        try:
            return Answer(outcome=do(piece))
        except OmnigraphError as error:
            return Answer.of(error)

    try:
        with _job(spark):
            return [each.value() for each in run_tasks(spark, pieces, answer, Answer)]
    except OmnigraphError as error:
        return [error for _ in pieces]


def _segments(
    answers: Sequence[bytes | OmnigraphError],
) -> Iterator[Segment | OmnigraphError]:
    for each in answers:
        yield each if isinstance(each, OmnigraphError) else _unpickled(each)


def _unpickled(content: bytes) -> Any:
    # From a task of ours, which Spark brought there in the same way.
    return pickle.loads(content)  # noqa: S301


@contextmanager
def _job(spark: SparkSession) -> Iterator[None]:
    try:
        with without_noise(), job_errors():
            yield
    except KeyboardInterrupt:
        with suppress(Exception):
            spark.interruptAll()
        raise
