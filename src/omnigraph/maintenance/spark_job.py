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

from omnigraph import errors
from omnigraph.diff.spark_diff import run_tasks
from omnigraph.runner.job_failures import job_errors
from omnigraph.runner.session import without_noise
from omnigraph.storage.indexes import segments
from omnigraph.storage.lance.compaction import CompactionWork, execute_task
from omnigraph.storage.lance.tables import grouped, plan_scan
from omnigraph.storage.objects.durability import make_durable
from omnigraph.storage.refs.stored_files import StoredFile, compare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import TableEntry

ROWS_PER_PART: Final = {
    segments.Organisation.BTREE: 4_000_000,
    segments.Organisation.INVERTED: 1_000_000,
    segments.Organisation.IVF_FLAT: 1_000_000,
}
"""The number of rows that a task processes in a few seconds."""

_FILES_PER_TASK: Final = 16
_TYPED: Final[dict[str, type[errors.OmnigraphError]]] = {
    error_type.__name__: error_type
    for error_type in (
        errors.DamagedGraphError,
        errors.IndexPendingError,
        errors.StorageUnavailableError,
    )
}
_Piece = TypeVar("_Piece")
_Parts = tuple[segments.IndexTask, ...]


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The result of a task: the outcome, or an error that has a type."""

    outcome: bytes = b""
    error: str = ""
    what: str = ""
    next_step: str = ""

    @classmethod
    def of(cls, error: errors.OmnigraphError) -> Self:
        return cls(error=type(error).__name__, what=error.what, next_step=error.next_step)

    def value(self) -> bytes | errors.OmnigraphError:
        if not self.error:
            return self.outcome
        return _TYPED.get(self.error, errors.StorageUnavailableError)(
            self.what, next_step=self.next_step
        )


def run_compactions(
    spark: SparkSession, root: Root, pieces: Sequence[CompactionWork]
) -> list[str | errors.OmnigraphError]:
    """Rewrite the files of every piece; the text of each result, or why there is none."""
    # A task describes each of its fragments, and every task receives the work of all.
    packed = [(piece.entry, zlib.compress(piece.task.encode())) for piece in pieces]

    def compact(piece: tuple[TableEntry, bytes]) -> bytes:
        entry, task = piece
        work = CompactionWork(entry=entry, task=zlib.decompress(task).decode())
        return _durable(root, execute_task(root, work).encode())

    return [
        answer if isinstance(answer, errors.OmnigraphError) else answer.decode()
        for answer in _answers(spark, packed, compact)
    ]


def _durable(root: Root, answer: bytes) -> bytes:
    """The result of a task, once its files are on stable storage."""
    make_durable(root)
    return answer


def build_segments(
    spark: SparkSession, root: Root, tasks: Sequence[segments.IndexTask]
) -> list[segments.Segment | errors.OmnigraphError]:
    """Build every index, large ones in parts; one segment for each, or why there is none."""
    split = [_parts(root, task) for task in tasks]

    def build(piece: tuple[segments.IndexTask, bool]) -> bytes:
        task, is_part = piece
        built = segments.build_part(root, task) if is_part else segments.build_segment(root, task)
        return _durable(root, pickle.dumps(built))

    pieces = [(part, len(parts) > 1) for parts in split for part in parts]
    built = iter(_segments(_answers(spark, pieces, build)))
    return _merged(spark, root, tasks, [[next(built) for _ in parts] for parts in split])


def _merged(
    spark: SparkSession,
    root: Root,
    tasks: Sequence[segments.IndexTask],
    built: Sequence[Sequence[segments.Segment | errors.OmnigraphError]],
) -> list[segments.Segment | errors.OmnigraphError]:
    """One segment of the parts of each task; the first error of a part is the error of its task."""
    results: list[segments.Segment | errors.OmnigraphError] = []
    to_merge: dict[int, tuple[TableEntry, bytes]] = {}
    for number, (task, parts) in enumerate(zip(tasks, built, strict=True)):
        failed = [part for part in parts if isinstance(part, errors.OmnigraphError)]
        results.append(failed[0] if failed else parts[0])
        if not failed and len(parts) > 1:
            to_merge[number] = (task.entry, pickle.dumps(list(parts)))

    def merge(piece: tuple[TableEntry, bytes]) -> bytes:
        entry, parts = piece
        return _durable(root, pickle.dumps(segments.merge_segments(root, entry, _unpickled(parts))))

    merged = _segments(_answers(spark, list(to_merge.values()), merge))
    for number, segment in zip(to_merge, merged, strict=True):
        results[number] = segment
    return results


def _parts(root: Root, task: segments.IndexTask) -> _Parts:
    """The same index over fewer fragments each; vectors only where all share their centroids."""
    rows_max = ROWS_PER_PART[task.wish.organisation]
    is_trained = (
        task.wish.organisation is not segments.Organisation.IVF_FLAT or task.centroids is not None
    )
    if not is_trained or len(task.fragments) == 1 or task.entry.row_count <= rows_max:
        return (task,)
    try:
        scan = plan_scan(root, task.entry, columns=[task.wish.column], where=None)
    except errors.OmnigraphError:
        return (task,)  # The builder gets the same error.
    wanted = set(task.fragments)
    groups = grouped(
        (fragment for fragment in scan.fragments if fragment.fragment_id in wanted),
        rows_max=rows_max,
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
) -> list[bytes | errors.OmnigraphError]:
    def answer(piece: _Piece) -> Answer:
        try:
            return Answer(outcome=do(piece))
        except errors.OmnigraphError as error:
            return Answer.of(error)

    try:
        with _job(spark):
            return [run_task.value() for run_task in run_tasks(spark, pieces, answer, Answer)]
    except errors.OmnigraphError as error:
        return [error for _ in pieces]


def _segments(
    answers: Sequence[bytes | errors.OmnigraphError],
) -> Iterator[segments.Segment | errors.OmnigraphError]:
    for answer in answers:
        yield answer if isinstance(answer, errors.OmnigraphError) else _unpickled(answer)


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
