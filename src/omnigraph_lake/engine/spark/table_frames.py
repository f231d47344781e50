"""Frames of tables for queries: rows, edges per node, and whether pairs of nodes are unique.

A task counts edges per node while it reads them, so that a node reaches Spark once per task and not
once per edge. Whether two edges can join the same nodes follows from the schema, or is found out
once per version of a table.

Invariants:
- Pairs are called unique only if no two edges of the pinned version have the same source and
  target. Hashes decide that in one direction only: different hashes are of different pairs. Equal
  hashes, also by chance, make pairs not unique, which is only slower.
- The driver hashes the pairs of tables up to a limit; those of larger ones stay in the tasks.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from omnigraph_lake.engine.spark.rows import query_errors
from omnigraph_lake.names import SOURCE_COLUMN, TARGET_COLUMN, edge_table_key
from omnigraph_lake.runner.job_failures import task_errors
from omnigraph_lake.runner.key_hash import SEED_BYTES, hash_keys
from omnigraph_lake.runner.scan import (
    ArrowTask,
    ScanPlan,
    SparkTables,
    group_numbers,
    read_group,
    scan_plan,
)
from omnigraph_lake.runner.session import without_noise
from omnigraph_lake.runner.worker_tasks import tidy
from omnigraph_lake.storage.lance.tables import find_entry, scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from omnigraph_lake.schema.catalog import EdgeType
    from omnigraph_lake.storage.snapshot import TableEntry


_PAIR: Final = (SOURCE_COLUMN, TARGET_COLUMN)
_DRIVER_ROWS_MAX: Final = 1 << 23
"""Of so many pairs the driver holds 64 MiB of hashes."""
_COUNTED_ROWS: Final = 1 << 22
"""Edges that a task counts at once, which bounds its memory if a fragment holds more."""
_FRAMES_MAX: Final = 256
_COUNTS_DDL: Final = "node string, count long"
_HASHES_DDL: Final = "first long, second int"
_VERSIONS_MAX: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class EndCounts:
    """How many edges each node has at one end; `once` if every node is at most one row."""

    frame: DataFrame
    once: bool


class _Frames:
    """The frames of one graph: analyzing them costs as much as the rest of a small query."""

    def __init__(self) -> None:
        self.of_tables: dict[tuple[str, tuple[str, ...], str | None], DataFrame] = {}
        self.of_counts: dict[tuple[str, str], EndCounts] = {}


_FRAMES: Final[WeakKeyDictionary[SparkTables, _Frames]] = WeakKeyDictionary()


def table_frame(
    graph: SparkTables, table_key: str, columns: Sequence[str], where: str | None
) -> DataFrame:
    """Some columns of a table; the same frame whenever the same is asked for."""
    frames = _FRAMES.setdefault(graph, _Frames()).of_tables
    key = (table_key, tuple(columns), where)
    if key not in frames:
        if len(frames) >= _FRAMES_MAX:
            frames.clear()
        frames[key] = graph.stored_table(table_key, columns=columns, where=where)
    return frames[key]


def counts_by_end(graph: SparkTables, edge: str, column: str) -> EndCounts:
    """The edges of each node that is their source or their target, counted by every task.

    Its columns are a node and a count; the same frame whenever the same is asked for.
    """
    counts = _FRAMES.setdefault(graph, _Frames()).of_counts
    if (edge, column) not in counts:
        counts[edge, column] = _count_edges(graph, edge, column)
    return counts[edge, column]


def _count_edges(graph: SparkTables, edge: str, column: str) -> EndCounts:
    entry = find_entry(graph.root, graph.snapshot, edge_table_key(edge))
    plan = scan_plan(graph.root, entry, columns=[column])
    with without_noise():
        numbers = group_numbers(graph.spark, plan)
        frame = numbers.mapInArrow(tidy(_count_task(plan)), _COUNTS_DDL)
    once = len(plan.groups) <= 1 and entry.row_count < _COUNTED_ROWS
    return EndCounts(frame=frame, once=once)


def _count_task(plan: ScanPlan) -> ArrowTask:
    def count_on_executor(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for group in batch.column(0).to_pylist():
                with task_errors():
                    yield from _count_batches(read_group(plan, group))

    return count_on_executor


def _count_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    chunks: list[pa.Array] = []
    for batch in batches:
        chunks.append(batch.column(0))
        if sum(map(len, chunks)) >= _COUNTED_ROWS:
            yield _value_counts(chunks)
            chunks = []
    if chunks:
        yield _value_counts(chunks)


def _value_counts(chunks: list[pa.Array]) -> pa.RecordBatch:
    counts = pa.chunked_array(chunks).value_counts()
    return pa.RecordBatch.from_arrays(counts.flatten(), names=["node", "count"])


class UniquePairs:
    """Which versions of edge tables have no two edges between the same nodes, once found out."""

    def __init__(self, *, driver_rows_max: int = _DRIVER_ROWS_MAX) -> None:
        self._driver_rows_max = driver_rows_max
        self._by_version: dict[tuple[str, TableEntry, str], bool] = {}

    def holds(self, graph: SparkTables, edge: EdgeType) -> bool:
        """Whether all pairs of source and target are different; may run a job, once."""
        if _declares_unique_pairs(edge):
            return True
        entry = find_entry(graph.root, graph.snapshot, edge_table_key(edge.name))
        if entry.made_at is None:
            return False  # another version could have its number
        key = (graph.root.uri, entry, entry.made_at)
        if key not in self._by_version:
            if len(self._by_version) >= _VERSIONS_MAX:
                self._by_version.clear()
            self._by_version[key] = self._measure(graph, entry)
        return self._by_version[key]

    def _measure(self, graph: SparkTables, entry: TableEntry) -> bool:
        if entry.row_count <= self._driver_rows_max:
            return _differ(scan(graph.root, entry, columns=_PAIR))
        plan = scan_plan(graph.root, entry, columns=_PAIR)
        with without_noise(), query_errors():
            numbers = group_numbers(graph.spark, plan)
            hashes = numbers.mapInArrow(tidy(_hash_task(plan)), _HASHES_DDL)
            repeated = hashes.groupBy("first", "second").count().where("count > 1")
            return repeated.isEmpty()


UNIQUE_PAIRS: Final = UniquePairs()
"""Of this process: a version of a table never changes."""


def _declares_unique_pairs(edge: EdgeType) -> bool:
    return edge.cardinality.maximum == 1 or any(
        set(unique.properties) <= set(_PAIR) for unique in edge.uniques
    )


def _differ(batches: Iterable[pa.RecordBatch]) -> bool:
    """Whether all pairs have different hashes."""
    seed = secrets.token_bytes(SEED_BYTES)
    hashes = [hash_keys(batch.columns, seed).first for batch in batches]
    ordered = np.sort(np.concatenate(hashes)) if hashes else np.zeros(0, np.uint64)
    return not bool((ordered[1:] == ordered[:-1]).any())


def _hash_task(plan: ScanPlan) -> ArrowTask:
    seed = secrets.token_bytes(SEED_BYTES)

    def hash_on_executor(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for group in batch.column(0).to_pylist():
                with task_errors():
                    for pairs in read_group(plan, group):
                        yield _hashes(pairs, seed)

    return hash_on_executor


def _hashes(pairs: pa.RecordBatch, seed: bytes) -> pa.RecordBatch:
    hashes = hash_keys(pairs.columns, seed)
    columns = [
        pa.array(hashes.first.view(np.int64)),
        pa.array(hashes.second.view(np.int32)),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["first", "second"])
