"""Read a graph as Spark DataFrames: every scan is pinned to one snapshot and read by equal tasks.

The driver plans and tasks read. Columns and conditions are pushed down to Lance, and the driver
reports errors in them before a job runs. Storage options are part of the task and are stored
nowhere else.

In Spark SQL, a type is called by its own name. Where a node type and an edge type would have the
same name, both get their kind as a prefix: `node_Person` and `edge_Person`. Types of one kind that
differ only in case cannot both have a view.

Invariants:
- All tasks of all scans of one `SparkTables` read the same published commit, regardless of
  concurrent writes.
- No two types share a name, ignoring case as Spark does.
- When a DataFrame is read in this process, the driver holds the rows of one batch at a time, in the
  order of the frame. Values are transferred as Arrow, so none is rounded or converted to another
  time zone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from omnigraph import errors, names
from omnigraph.language.diagnostics import did_you_mean
from omnigraph.runner.job_failures import job_errors, task_errors
from omnigraph.runner.session import without_noise
from omnigraph.runner.types import carried_schema, from_spark, spark_schema, to_spark
from omnigraph.storage.lance.tables import (
    find_entry,
    grouped,
    known_columns,
    open_pinned,
    plan_scan,
    scan_fragments,
)
from omnigraph.storage.objects.location import Root
from omnigraph.storage.refs.kept import gone_if_removed, streamed_unless_removed
from omnigraph.storage.snapshot import Snapshot, TableEntry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


_KIND_END: Final = ":"


def view_names(table_keys: Iterable[str]) -> Mapping[str, str]:
    """The name of the view of every table, by table key, in the given order."""
    keys = tuple(table_keys)
    bare = Counter(_type_name(key).casefold() for key in keys)
    named = {
        key: _type_name(key) if bare[_type_name(key).casefold()] == 1 else _with_kind(key)
        for key in keys
    }
    taken: dict[str, str] = {}
    for key, name in named.items():
        other = taken.setdefault(name.casefold(), key)
        if other != key:
            raise errors.InvalidInputError(
                f"{other} and {key} would both be the view {name!r}, because Spark ignores case",
                next_step="Name the types to create views of, with only one of the two.",
            )
    return named


def chosen_keys(table_keys: Iterable[str], types: Sequence[str] | None) -> tuple[str, ...]:
    """The tables of the types a caller named, by type name or table key; None names all."""
    keys = tuple(table_keys)
    if types is None:
        return keys
    return tuple(dict.fromkeys(key for name in types for key in _keys_of(name, keys)))


def columns_by_key(
    table_keys: Iterable[str], columns: Mapping[str, Sequence[str]] | None
) -> Mapping[str, Sequence[str]]:
    """The columns a caller chose per type, by table key; types left out keep all of theirs."""
    keys = tuple(table_keys)
    return {key: chosen for name, chosen in (columns or {}).items() for key in _keys_of(name, keys)}


def _keys_of(wanted: str, keys: tuple[str, ...]) -> tuple[str, ...]:
    matching_keys = tuple(key for key in keys if wanted in (key, _type_name(key)))
    if not matching_keys:
        hint = did_you_mean(str(wanted), map(_type_name, keys))
        raise errors.InvalidInputError(
            f"there is no type {wanted!r:.80} to create a view of" + (f" ({hint})" if hint else ""),
            next_step=f"The types are {', '.join(keys)}.",
        )
    return matching_keys


def _type_name(table_key: str) -> str:
    return table_key.partition(_KIND_END)[2]


def _with_kind(table_key: str) -> str:
    kind, _, name = table_key.partition(_KIND_END)
    return f"{kind}_{name}"


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
        raise errors.InvalidInputError(f"where is {condition!r:.80}, expected a condition as text")
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
                with task_errors():
                    yield from read_group(plan, group)

    return scan_on_executor


def data_frame(spark: SparkSession, plan: ScanPlan) -> DataFrame:
    """The planned rows as a DataFrame, one task per group of fragments."""
    count = len(plan.groups)
    with without_noise():
        numbers = spark.range(0, count, 1, max(1, count))
        return numbers.mapInArrow(scan_task(plan), plan.schema)


def rows_on_spark(
    spark: SparkSession,
    count: int,
    read: Callable[[int], Iterable[pa.RecordBatch]],
    stored: pa.Schema,
) -> DataFrame:
    """The rows of some numbered parts as a DataFrame, one task per part."""
    carried = carried_schema(stored)

    def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                with task_errors():
                    for rows in read(number):
                        yield to_spark(rows, carried)

    with without_noise():
        return spark.range(0, count, 1, max(1, count)).mapInArrow(task, spark_schema(stored))


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


_PACKED: Final = "rows"
_PACKED_DDL: Final = f"{_PACKED} binary"


class FrameRows:
    """A DataFrame as Arrow batches of a given schema."""

    def __init__(self, frame: DataFrame, schema: pa.Schema) -> None:
        self.schema = schema
        self._frame = frame

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        with without_noise(), job_errors():
            # A name with a dot in it, such as `p.age`, would be looked for inside of a column.
            plain = self._frame.toDF(*(f"c{at}" for at in range(len(self.schema))))
            packed = plain.mapInArrow(pack, _PACKED_DDL)
            for row in packed.toLocalIterator():
                with pa.ipc.open_stream(bytes(row[0])) as reader:
                    for batch in reader:
                        yield from_spark(batch.rename_columns(self.schema.names), self.schema)


def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch of a task as the bytes of a stream of its own."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        content = pa.array([sink.getvalue().to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_arrays([content], names=[_PACKED])
