"""The graph as DataFrames: every scan pinned to one snapshot, read by tasks of equal size.

Invariant: the driver plans, tasks read. All tasks of all scans of one `SparkTables` read the same
published commit, regardless of concurrent writes. Columns and conditions are pushed down to Lance,
and the driver reports errors in them before a job runs.

Storage options are part of the task, and are stored nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from omnigraph import names
from omnigraph.errors import InvalidInputError
from omnigraph.runner.session import without_noise
from omnigraph.runner.types import carried_schema, spark_schema, to_spark
from omnigraph.runner.views import chosen_keys, columns_by_key, view_names
from omnigraph.storage.lance.fragments import grouped, plan_scan, scan_fragments
from omnigraph.storage.lance.tables import find_entry, known_columns, open_pinned
from omnigraph.storage.objects.location import Root
from omnigraph.storage.refs.kept import gone_if_removed, streamed_unless_removed
from omnigraph.storage.snapshot import Snapshot, TableEntry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ROWS_PER_TASK: Final = 1 << 18
"""Rows one task reads, unless a single fragment holds more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """Everything a task needs to read its part of a table; picklable, opens no dataset itself.

    `stored` is the table's own shape of the columns asked for; `groups` are the fragments of each
    task.
    """

    root: Root
    entry: TableEntry
    columns: tuple[str, ...]
    where: str | None
    stored: pa.Schema = field(repr=False)
    groups: tuple[tuple[int, ...], ...] = field(repr=False)

    @property
    def schema(self) -> StructType:
        return spark_schema(self.stored)


ArrowTask = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def scan_plan(
    root: Root,
    entry: TableEntry,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    rows_per_task: int = ROWS_PER_TASK,
) -> ScanPlan:
    """Plan the scan of one table at its pin; reads no rows.

    Raises:
        InvalidInputError: a column that the table does not have, or a condition that Lance does
            not understand.
    """
    condition: object = where
    if condition is not None and not isinstance(condition, str):
        raise InvalidInputError(f"where is {condition!r:.80}, expected a condition as text")
    with gone_if_removed(root, entry):
        wanted = known_columns(root, entry, columns)
        if wanted is None:
            wanted = tuple(open_pinned(root, entry).schema.names)
        planned = plan_scan(root, entry, columns=wanted, where=where)
    return ScanPlan(
        root=root,
        entry=entry,
        columns=wanted,
        where=where,
        stored=planned.schema.remove_metadata(),
        groups=grouped(planned.fragments, rows_max=rows_per_task),
    )


def read_group(plan: ScanPlan, group: int) -> Iterator[pa.RecordBatch]:
    """Stream the rows of one group of fragments, in the shape Spark takes."""
    carried = carried_schema(plan.stored)
    rows = scan_fragments(
        plan.root, plan.entry, plan.groups[group], columns=plan.columns, where=plan.where
    )
    for batch in streamed_unless_removed(rows, plan.root, plan.entry):
        yield to_spark(batch, carried)


def scan_task(plan: ScanPlan) -> ArrowTask:
    """The function for `mapInArrow` over numbers of groups."""

    def scan_on_executor(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for group in batch.column(0).to_pylist():
                yield from read_group(plan, group)

    return scan_on_executor


def data_frame(spark: SparkSession, plan: ScanPlan) -> DataFrame:
    """The planned rows as a DataFrame, one task per group of fragments."""
    count = len(plan.groups)
    with without_noise():
        numbers = spark.range(0, count, 1, max(1, count))
        return numbers.mapInArrow(scan_task(plan), plan.schema)


class SparkTables:
    """The tables of one snapshot on Spark. Commits that are published later are invisible."""

    def __init__(self, spark: SparkSession, root: Root, snapshot: Snapshot) -> None:
        self.root = root
        self.spark = spark
        self.snapshot = snapshot

    def nodes(
        self,
        type: str,  # noqa: A002 - the conventional name
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> DataFrame:
        """The nodes of a type.

        Args:
            type: A node type of the schema.
            columns: The columns to read; all by default. Spark itself cannot tell Lance which
                columns a query uses, so name them for wide types.
            where: A condition in SQL that Lance evaluates while it reads, such as `"age > 3"`.

        Raises:
            NotFoundError: there is no such type.
            InvalidInputError: there is no such column, or the condition is invalid.
        """
        return self.table(names.node_table_key(type), columns=columns, where=where)

    def edges(
        self,
        type: str,  # noqa: A002 - the conventional name
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> DataFrame:
        """The edges of a type, with `id`, `src` and `dst`; arguments as for `nodes`."""
        return self.table(names.edge_table_key(type), columns=columns, where=where)

    def table(
        self, table_key: str, *, columns: Sequence[str] | None = None, where: str | None = None
    ) -> DataFrame:
        """The rows of a type by its table key, `node:Person` or `edge:Knows`."""
        entry = find_entry(self.root, self.snapshot, table_key)
        return data_frame(self.spark, scan_plan(self.root, entry, columns=columns, where=where))

    def views(
        self,
        *,
        types: Sequence[str] | None = None,
        columns: Mapping[str, Sequence[str]] | None = None,
    ) -> tuple[str, ...]:
        """Create a temporary view of every type, for `spark.sql`; returns their names.

        Views always read this snapshot; calling this on a newer one replaces them. A view has the
        name of its type; where a node and an edge type share a name, or Spark cannot tell two apart
        because it ignores case, they are called `node_Name` and `edge_Name`.

        Args:
            types: The types to create views of; all by default.
            columns: Columns per type; types that are not named get all of theirs.
        """
        keys = chosen_keys(self.snapshot.tables, types)
        chosen = columns_by_key(keys, columns)
        frames = {
            name: self.table(key, columns=chosen.get(key)) for key, name in view_names(keys).items()
        }
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        return tuple(frames)

    def __repr__(self) -> str:
        version = self.snapshot.manifest_version
        return f"<{type(self).__name__} {self.root} at manifest version {version}>"
