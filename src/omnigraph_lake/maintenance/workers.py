"""The heavy pieces of maintenance on a runner: compactions, indexes, comparisons of files.

An index over many rows is built in parts. A second step merges them to one segment, because that
takes much of the build time, and memory that the driver of a cluster may not have.

Invariants:
- Pieces write files that nothing names yet, and answer with texts or descriptions of them once the
  files are on stable storage. A piece may therefore run twice.
- Answers are in the order of the pieces. A typed error belongs to its piece, the others go on; if
  the work fails as a whole, all its pieces answer with that error.
"""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from omnigraph_lake.errors import InvalidInputError, OmnigraphError
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.runner.protocol import Runner, Stage, Task, attempt, require_answers
from omnigraph_lake.storage.indexes import segments
from omnigraph_lake.storage.lance.compaction import CompactionWork, execute_task
from omnigraph_lake.storage.lance.tables import grouped, plan_scan
from omnigraph_lake.storage.objects.durability import make_durable
from omnigraph_lake.storage.refs.stored_files import StoredFile, compare

if TYPE_CHECKING:
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry

ROWS_PER_PART: Final = {
    segments.Organisation.BTREE: 4_000_000,
    segments.Organisation.INVERTED: 1_000_000,
    segments.Organisation.IVF_FLAT: 1_000_000,
}
"""The number of rows that a task processes in a few seconds."""

_CONCURRENCY_VARIABLE: Final = "OMNIGRAPH_MAINTENANCE_CONCURRENCY"
_DEFAULT_CONCURRENCY: Final = 8
_FILES_PER_PIECE_MAX: Final = 16

_Piece = TypeVar("_Piece")
_Result = TypeVar("_Result")
_Built = segments.Segment | OmnigraphError


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """What executes the pieces of all tables at once."""

    root: Root
    runner: Runner

    def compact(self, pieces: Sequence[CompactionWork]) -> Sequence[str | OmnigraphError]:
        """Rewrite the files of every piece; the text of each result, or why there is none."""
        root = self.root

        def work(piece: tuple[TableEntry, bytes], _: Task) -> str:
            entry, text = piece
            rewrite = CompactionWork(entry=entry, task=zlib.decompress(text).decode())
            result = execute_task(root, rewrite)
            make_durable(root)
            return result

        # A task describes each of its fragments, and every task receives the work of all.
        packed = [(piece.entry, zlib.compress(piece.task.encode())) for piece in pieces]
        return self._map("compact", packed, work, str)

    def index(self, tasks: Sequence[segments.IndexTask]) -> list[_Built]:
        """Build every index, large ones in parts; one segment for each, or why there is none."""
        root = self.root

        def work(piece: tuple[segments.IndexTask, bool], _: Task) -> bytes:
            task, is_part = piece
            build = segments.build_part if is_part else segments.build_segment
            return _describe(root, build(root, task))

        parts = [_parts(root, task) for task in tasks]
        pieces = [(part, len(of_task) > 1) for of_task in parts for part in of_task]
        built = iter(_segments(self._map("build indexes", pieces, work, bytes)))
        return self._merge(tasks, [[next(built) for _ in of_task] for of_task in parts])

    def _merge(
        self, tasks: Sequence[segments.IndexTask], parts: Sequence[Sequence[_Built]]
    ) -> list[_Built]:
        """One segment of the parts of each task, or the first error of a part."""
        root = self.root

        def work(piece: tuple[TableEntry, bytes], _: Task) -> bytes:
            entry, described = piece
            return _describe(root, segments.merge_segments(root, entry, _load(described)))

        results: list[_Built] = []
        pieces: dict[int, tuple[TableEntry, bytes]] = {}
        for number, (task, built) in enumerate(zip(tasks, parts, strict=True)):
            failed = [part for part in built if isinstance(part, OmnigraphError)]
            results.append(failed[0] if failed else built[0])
            if not failed and len(built) > 1:
                pieces[number] = (task.entry, pickle.dumps(list(built)))
        merged = _segments(self._map("merge indexes", list(pieces.values()), work, bytes))
        for number, segment in zip(pieces, merged, strict=True):
            results[number] = segment
        return results

    def compare(self, files: Sequence[StoredFile], *, pass_bytes: int = 0) -> list[str | None]:
        """How each file differs from what was published; they are a part of so many bytes.

        Raises:
            OmnigraphError: a file cannot be read, or the work failed as a whole.
        """
        root = self.root

        def work(piece: tuple[StoredFile, ...], task: Task) -> list[str | None]:
            differences: list[str | None] = []
            for file in piece:
                differences.append(compare(root, file))
                task.advance(size=file.checksum.size)
            return differences

        count = max(-(-len(files) // _FILES_PER_PIECE_MAX), min(len(files), self.runner.parallel))
        pieces = [tuple(files[number::count]) for number in range(count)]
        stage = Stage(verb="scrub", name="compare files", size=pass_bytes)
        answers = require_answers(self.runner.map(stage, pieces, work, list[str | None]))
        differences: list[str | None] = [None] * len(files)
        for number, answer in enumerate(answers):
            differences[number::count] = answer
        return differences

    def _map(
        self,
        name: str,
        pieces: Sequence[_Piece],
        work: Callable[[_Piece, Task], _Result],
        answer: type[_Result],
    ) -> Sequence[_Result | OmnigraphError]:
        if not pieces:
            return []
        try:
            return self.runner.map(Stage(verb="optimize", name=name), pieces, work, answer)
        except OmnigraphError as error:
            return [error for _ in pieces]


def maintenance_concurrency() -> int:
    """How many tables are worked on at once.

    Raises:
        InvalidInputError: the variable is set to something else than a number from 1.
    """
    text = os.environ.get(_CONCURRENCY_VARIABLE, "").strip()
    if text and not (text.isdecimal() and int(text) > 0):
        raise InvalidInputError(
            f"{_CONCURRENCY_VARIABLE} is {shown(text, 40)}, expected a number from 1",
            next_step=f"Set it like {_CONCURRENCY_VARIABLE}={_DEFAULT_CONCURRENCY}, or unset it.",
        )
    return int(text) if text else _DEFAULT_CONCURRENCY


def by_table(
    work: Callable[[TableEntry], _Result], entries: Iterable[TableEntry]
) -> tuple[dict[str, _Result], dict[str, OmnigraphError]]:
    """The same for every table, several at a time in this process: results, and failures."""
    tables = list(entries)
    with ThreadPoolExecutor(maintenance_concurrency()) as pool:
        answers = list(pool.map(lambda entry: attempt(partial(work, entry)), tables))
    results: dict[str, _Result] = {}
    failed: dict[str, OmnigraphError] = {}
    for entry, result in zip(tables, answers, strict=True):
        if isinstance(result, OmnigraphError):
            failed[entry.table_key] = result
        else:
            results[entry.table_key] = result
    return results, failed


def _parts(root: Root, task: segments.IndexTask) -> tuple[segments.IndexTask, ...]:
    """The same index over fewer fragments each; vectors only where all share their centroids."""
    rows_max = ROWS_PER_PART[task.wish.organisation]
    is_trained = (
        task.wish.organisation is not segments.Organisation.IVF_FLAT or task.centroids is not None
    )
    if not is_trained or len(task.fragments) == 1 or task.entry.row_count <= rows_max:
        return (task,)
    try:
        scan = plan_scan(root, task.entry, columns=[task.wish.column], where=None)
    except OmnigraphError:
        return (task,)  # The builder gets the same error.
    wanted = set(task.fragments)
    groups = grouped(
        (fragment for fragment in scan.fragments if fragment.fragment_id in wanted),
        rows_max=rows_max,
    )
    return tuple(replace(task, fragments=group) for group in groups)


def _describe(root: Root, segment: segments.Segment) -> bytes:
    """A segment for the driver, once its files are on stable storage."""
    make_durable(root)
    return pickle.dumps(segment)


def _segments(answers: Iterable[bytes | OmnigraphError]) -> list[_Built]:
    return [answer if isinstance(answer, OmnigraphError) else _load(answer) for answer in answers]


def _load(content: bytes) -> Any:
    # From a piece of ours; on Spark it came as the pieces themselves do.
    return pickle.loads(content)  # noqa: S301
