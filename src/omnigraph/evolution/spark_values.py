"""Values and checks of a schema change, computed by the tasks of Spark.

Invariant: the same change is staged and the same rows are found as by `omnigraph.evolution`,
whose functions run in every task. The driver receives descriptions of files, counts and a few ids,
never rows.

A task may run twice: each attempt writes files of its own, and only those are used whose task was
counted. What other attempts wrote is named by no version, and cleanup removes it.
"""

from __future__ import annotations

import json
import operator
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

import pyarrow as pa
from pyspark.sql import functions as f

from omnigraph.diff.spark_diff import run_tasks
from omnigraph.evolution.plan.columns import FutureColumn
from omnigraph.evolution.plan.data_checks import DataCheck, EdgesPerSource, TupleIsUnique
from omnigraph.evolution.run_checks import (
    EXAMPLES_MAX,
    GroupCheck,
    Offenders,
    TableChecks,
    in_order,
    is_group_check,
    key_names,
    key_rows,
    key_schema,
    row_checks,
    row_offenders,
)
from omnigraph.evolution.table_changes import future_values
from omnigraph.names import ID_COLUMN, SOURCE_COLUMN
from omnigraph.runner.job_failures import job_errors
from omnigraph.runner.scan import ROWS_PER_TASK, ArrowTask, data_frame, scan_plan
from omnigraph.runner.session import without_noise
from omnigraph.runner.types import carried_schema, spark_schema, to_spark
from omnigraph.storage.lance.tables import find_entry, grouped, plan_scan
from omnigraph.storage.objects.durability import make_durable
from omnigraph.storage.staging.column_changes import (
    ColumnFiles,
    column_files,
    fragments_to_compute,
    staged_from,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import Snapshot, TableEntry
    from omnigraph.storage.staging.changes import StagedChange
    from omnigraph.storage.staging.column_layout import ColumnChange

_Groups: TypeAlias = tuple[tuple[int, ...], ...]

# No column of a tuple has this name.
_ROWS: Final = "number of rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """Some fragments of a table, whose rows one task checks."""

    table: TableChecks
    fragments: tuple[int, ...] = field(repr=False)


def stage_columns_on_spark(
    spark: SparkSession,
    root: Root,
    entry: TableEntry,
    change: ColumnChange,
    computed: Sequence[FutureColumn],
    operation_id: str,
) -> StagedChange:
    """Stage a change of one table's columns; `computed` says what the computed ones hold.

    Fragments are computed as they are, some small ones by one task; rows are streamed, so a task
    needs no more memory for a large one. `operation_id` is the tag of the job.

    Raises:
        InvalidInputError: a column becomes required, and rows have no value in it; or blobs would
            have to be written again.
        SparkJobFailedError: the job failed.
    """
    wanted = fragments_to_compute(root, entry, change)
    files = column_files_on_spark(
        spark, root, entry, change, computed, wanted, operation_id=operation_id
    )
    return staged_from(root, entry, change, files)


def column_files_on_spark(  # noqa: PLR0913 - what `column_files` takes, and where
    spark: SparkSession,
    root: Root,
    entry: TableEntry,
    change: ColumnChange,
    computed: Sequence[FutureColumn],
    fragments: Sequence[int],
    *,
    operation_id: str,
) -> tuple[ColumnFiles, ...]:
    """Compute and write the new values of some fragments, as `column_files` does for one."""
    if not fragments:
        return ()
    compute = partial(future_values, columns=tuple(computed))
    wanted_fragments = frozenset(fragments)
    groups = (
        tuple(fragment for fragment in group if fragment in wanted_fragments)
        for group in _groups(root, entry)
    )

    def compute_group(group: tuple[int, ...]) -> list[tuple[int, bytes]]:
        files = [column_files(root, entry, fragment, change, compute) for fragment in group]
        make_durable(root)
        return [(file.fragment_id, _pack(file)) for file in files]

    with _job(spark, operation_id):
        work = [group for group in groups if group]
        packed_groups = run_tasks(spark, work, compute_group, list[tuple[int, bytes]])
    return tuple(_unpack(*packed_file) for group in packed_groups for packed_file in group)


def _pack(files: ColumnFiles) -> bytes:
    return zlib.compress(json.dumps([files.description, files.made_from]).encode())


def _unpack(fragment_id: int, packed: bytes) -> ColumnFiles:
    description, made_from = json.loads(zlib.decompress(packed))
    return ColumnFiles(fragment_id=fragment_id, description=description, made_from=made_from)


def failed_checks_on_spark(
    spark: SparkSession,
    root: Root,
    snapshot: Snapshot,
    checks: Sequence[DataCheck],
    *,
    operation_id: str | None = None,
) -> tuple[Offenders, ...]:
    """The checks that the rows of a snapshot fail, in the order given; none if all hold.

    All checks of single rows are one job; those that compare rows are one or two each.

    Raises:
        NotFoundError: the snapshot has no table that a check names.
        SparkJobFailedError: the job failed.
    """
    pieces = [
        _Piece(table=row_check, fragments=group)
        for row_check in row_checks(root, snapshot, checks)
        for group in _groups(root, row_check.entry)
    ]

    def judge(piece: _Piece) -> list[tuple[int, list[str]]]:
        piece_results = row_offenders(root, piece.table, piece.fragments)
        return [(result.rows, list(result.examples)) for result in piece_results]

    results: list[Offenders] = []
    with _job(spark, operation_id):
        answers_of_pieces = run_tasks(spark, pieces, judge, list[tuple[int, list[str]]])
        for piece, answers in zip(pieces, answers_of_pieces, strict=True):
            for check, (rows, examples) in zip(piece.table.checks, answers, strict=True):
                results.append(Offenders(check=check, rows=rows, examples=tuple(examples)))
        for grouping in dict.fromkeys(filter(is_group_check, checks)):
            entry = find_entry(root, snapshot, grouping.table)
            results.append(_group_offenders(spark, root, entry, grouping))
    return in_order(checks, results)


def _groups(root: Root, entry: TableEntry) -> _Groups:
    """The fragments of each task."""
    planned = plan_scan(root, entry, columns=(ID_COLUMN,), where=None)
    return grouped(planned.fragments, rows_max=ROWS_PER_TASK)


def _group_offenders(
    spark: SparkSession, root: Root, entry: TableEntry, check: GroupCheck
) -> Offenders:
    match check:
        case TupleIsUnique():
            rows, examples = _repeated(spark, root, entry, check)
        case EdgesPerSource():
            rows, examples = _out_of_bounds(spark, root, entry, check)
        case _:
            assert_never(check)
    return Offenders(check=check, rows=rows, examples=examples)


def _repeated(
    spark: SparkSession, root: Root, entry: TableEntry, check: TupleIsUnique
) -> tuple[int, tuple[str, ...]]:
    """Values are grouped as they are; for Spark too both zeros are one, and so is every NaN."""
    groups = _groups(root, entry)
    if not groups:
        return 0, ()
    keys = list(key_names(check))
    tuples = _tuples(spark, _key_task(root, entry, check, groups, with_id=False), check, groups)
    counted = tuples.groupBy(*keys).agg(f.count(f.lit(1)).alias(_ROWS))
    repeated = counted.where(f.col(_ROWS) > 1)
    rows = _first(repeated.agg(f.sum(_ROWS)))
    if not rows:
        return 0, ()
    task = _key_task(root, entry, check, groups, with_id=True)
    named = _tuples(spark, task, check, groups, with_id=True)
    offending = named.join(repeated.select(*keys), keys, "left_semi")
    return rows, _smallest(offending, ID_COLUMN)


def _tuples(
    spark: SparkSession,
    task: ArrowTask,
    check: TupleIsUnique,
    groups: _Groups,
    *,
    with_id: bool = False,
) -> DataFrame:
    numbers = spark.range(0, len(groups), 1, len(groups))
    return numbers.mapInArrow(task, spark_schema(key_schema(check, with_id=with_id)))


def _key_task(
    root: Root, entry: TableEntry, check: TupleIsUnique, groups: _Groups, *, with_id: bool
) -> ArrowTask:
    carried = carried_schema(key_schema(check, with_id=with_id))

    def read_keys(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for group in batch.column(0).to_pylist():
                for rows in key_rows(root, entry, groups[group], check, with_id=with_id):
                    yield to_spark(rows, carried)

    return read_keys


def _out_of_bounds(
    spark: SparkSession, root: Root, entry: TableEntry, check: EdgesPerSource
) -> tuple[int, tuple[str, ...]]:
    edges = data_frame(spark, scan_plan(root, entry, columns=(SOURCE_COLUMN,)))
    counted = edges.groupBy(SOURCE_COLUMN).agg(f.count(f.lit(1)).alias(_ROWS))
    count = f.col(_ROWS)
    bounds: list[Column] = [count < check.minimum]
    if check.maximum is not None:
        bounds.append(count > check.maximum)
    offending = counted.where(reduce(operator.or_, bounds))
    rows = _first(offending.agg(f.count(f.lit(1))))
    return rows, _smallest(offending, SOURCE_COLUMN) if rows else ()


def _first(summary: DataFrame) -> int:
    row = summary.first()
    assert row is not None
    return int(row[0] or 0)


def _smallest(rows: DataFrame, column: str) -> tuple[str, ...]:
    first = rows.select(column).orderBy(column).limit(EXAMPLES_MAX)
    return tuple(str(row[0]) for row in first.collect())


@contextmanager
def _job(spark: SparkSession, tag: str | None) -> Iterator[None]:
    """Jobs that are stopped when the driver is interrupted: by their tag, if they have one."""
    if tag is not None:
        spark.addTag(tag)
    try:
        with without_noise(), job_errors():
            yield
    except KeyboardInterrupt:
        with suppress(Exception):
            if tag is None:
                spark.interruptAll()
            else:
                spark.interruptTag(tag)
        raise
    finally:
        if tag is not None:
            spark.removeTag(tag)
