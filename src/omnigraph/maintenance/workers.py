"""Workers of maintenance: threads of this process, or the tasks of a cluster.

Invariant: workers write files that nothing names yet and return texts or descriptions of them. A
failure belongs to its own piece of work; the others go on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from omnigraph.errors import OmnigraphError
from omnigraph.storage.indexes.segments import IndexTask, Segment, build_segment
from omnigraph.storage.lance.compaction import CompactionWork, execute_task
from omnigraph.storage.refs.stored_files import StoredFile, compare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import TableEntry

_CONCURRENCY_VARIABLE: Final = "OMNIGRAPH_MAINTENANCE_CONCURRENCY"
_DEFAULT_CONCURRENCY: Final = 8

Work = TypeVar("Work")
Done = TypeVar("Done")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """How the pieces of maintenance are executed; results are in the order of the pieces."""

    compact: Callable[[Sequence[CompactionWork]], list[str | OmnigraphError]]
    index: Callable[[Sequence[IndexTask]], list[Segment | OmnigraphError]]
    compare: Callable[[Sequence[StoredFile]], list[str | None]]
    """How each file differs from what was published."""


def maintenance_concurrency() -> int:
    """How many tables are worked on at once; what is no number from 1 counts as not set."""
    text = os.environ.get(_CONCURRENCY_VARIABLE, "").strip()
    return int(text) if text.isdecimal() and int(text) > 0 else _DEFAULT_CONCURRENCY


def in_process(root: Root, *, at_once: int) -> Workers:
    """Threads of this process."""

    def compact(work: CompactionWork) -> str:
        return execute_task(root, work)

    def index(task: IndexTask) -> Segment:
        return build_segment(root, task)

    return Workers(
        compact=lambda pieces: _each(compact, pieces, at_once),
        index=lambda tasks: _each(index, tasks, at_once),
        compare=lambda files: _compare(root, files, at_once),
    )


def by_table(
    do: Callable[[TableEntry], Done], entries: Iterable[TableEntry]
) -> tuple[dict[str, Done], dict[str, OmnigraphError]]:
    """The same for every table, several at a time: what came of it, and what went wrong."""
    tables = list(entries)
    results: dict[str, Done] = {}
    failed: dict[str, OmnigraphError] = {}
    for entry, result in zip(tables, _each(do, tables, maintenance_concurrency()), strict=True):
        if isinstance(result, OmnigraphError):
            failed[entry.table_key] = result
        else:
            results[entry.table_key] = result
    return results, failed


def on_spark(spark: SparkSession, root: Root) -> Workers:
    """The tasks of a Spark session: all pieces of all tables as one job."""
    from omnigraph.maintenance.spark_job import (  # need pyspark
        build_segments,
        compare_files,
        run_compactions,
    )

    return Workers(
        compact=partial(run_compactions, spark, root),
        index=partial(build_segments, spark, root),
        compare=partial(compare_files, spark, root),
    )


def _compare(root: Root, files: Sequence[StoredFile], at_once: int) -> list[str | None]:
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(partial(compare, root), files))


def _each(
    do: Callable[[Work], Done], pieces: Sequence[Work], at_once: int
) -> list[Done | OmnigraphError]:
    def isolated(piece: Work) -> Done | OmnigraphError:
        try:
            return do(piece)
        except OmnigraphError as error:
            return error

    if not pieces:
        return []
    with ThreadPoolExecutor(min(at_once, len(pieces))) as pool:
        return list(pool.map(isolated, pieces))
