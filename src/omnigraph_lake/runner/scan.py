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
- Spark's optimizer takes a scan for about as many bytes as its rows have in memory, so that small
  types are broadcast in joins and large ones are not. A condition does not lower that estimate.
- When a DataFrame is read in this process, the driver holds the rows of one batch at a time, in the
  order of the frame. Values are transferred as Arrow, so none is rounded or converted to another
  time zone.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.types as pat

from omnigraph_lake import errors, names
from omnigraph_lake.language.diagnostics import did_you_mean
from omnigraph_lake.runner.job_failures import job_errors, task_errors
from omnigraph_lake.runner.session import without_noise
from omnigraph_lake.runner.spark_versions import explain_cost, sql_over_frames
from omnigraph_lake.runner.sql_use import TableUse, make_probes, read_use
from omnigraph_lake.runner.types import (
    ROW_BYTES,
    carried_schema,
    carried_type,
    constant_bytes,
    default_bytes,
    from_spark,
    spark_schema,
    to_spark,
)
from omnigraph_lake.runner.worker_tasks import tidy
from omnigraph_lake.schema.arrow import with_end_names
from omnigraph_lake.schema.ends import end_type_columns
from omnigraph_lake.storage.lance.tables import (
    PlannedScan,
    find_entry,
    grouped,
    known_columns,
    open_pinned,
    plan_scan,
    sample_column_bytes,
    scan_fragments,
)
from omnigraph_lake.storage.objects.location import Root
from omnigraph_lake.storage.refs.kept import gone_if_removed, streamed_unless_removed
from omnigraph_lake.storage.snapshot import Snapshot, TableEntry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from omnigraph_lake.schema.catalog import Catalog, EdgeType


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
            f"there is no type {wanted!r:.80} in the graph" + (f" ({hint})" if hint else ""),
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
    task; `row_count` and `row_bytes` are the rows of these fragments and about how large one is.
    With `declared`, rows have the names of the node types at their ends, and `stored` has these.
    """

    root: Root
    entry: TableEntry
    columns: tuple[str, ...]
    where: str | None
    stored: pa.Schema = field(repr=False)
    groups: tuple[tuple[int, ...], ...] = field(repr=False)
    row_count: int
    row_bytes: float
    declared: EdgeType | None = field(default=None, repr=False)

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
    declared: EdgeType | None = None,
) -> ScanPlan:
    """Plan the scan of one table at its pin; reads no rows.

    With `declared` the types of ends are names; otherwise they are numbers, as they are stored.

    Raises:
        InvalidInputError: a column that the table does not have, or a condition that Lance does
            not understand.
    """
    condition: object = where
    if condition is not None and not isinstance(condition, str):
        raise errors.InvalidInputError(f"where is {condition!r:.80}, expected a condition as text")
    _require_no_types(where, declared)
    with gone_if_removed(root, entry):
        wanted = known_columns(root, entry, columns)
        if wanted is None:
            wanted = tuple(open_pinned(root, entry).schema.names)
        planned = plan_scan(root, entry, columns=wanted, where=where)
        row_bytes = _estimate_row_bytes(root, entry, planned)
    return ScanPlan(
        root=root,
        entry=entry,
        columns=wanted,
        where=where,
        stored=_schema_with_end_names(planned.schema.remove_metadata(), declared),
        groups=grouped(planned.fragments, rows_max=rows_per_task),
        row_count=sum(fragment.rows for fragment in planned.fragments),
        row_bytes=row_bytes,
        declared=declared,
    )


def _schema_with_end_names(stored: pa.Schema, declared: EdgeType | None) -> pa.Schema:
    if declared is None:
        return stored
    return with_end_names(declared, stored.empty_table()).schema


def _require_no_types(where: str | None, declared: EdgeType | None) -> None:
    """Refuse a condition on the types of ends: Lance compares what is stored, their numbers."""
    for column in _types_in(where, declared):
        raise errors.InvalidInputError(
            f"the condition names {column}, which is stored as the number of a type",
            next_step="Filter the frame instead: rows there have the names of types.",
        )


def _types_in(where: str | None, declared: EdgeType | None) -> list[str]:
    """The columns with types of ends that a condition may be about."""
    if where is None or declared is None:
        return []
    return [column for column in end_type_columns(declared) if column in where]


_SAMPLE_BYTES: Final = 1 << 20
_SAMPLE_ROWS_MAX: Final = 256


def _estimate_row_bytes(root: Root, entry: TableEntry, planned: PlannedScan) -> float:
    """About how large a row of a scan is in memory.

    Values of variable size are taken to be as large as Spark assumes. Only if the data files have
    more bytes per row than that, some rows are read to find out; blobs, which may be huge, are not.
    """
    row_count = sum(fragment.rows for fragment in planned.fragments)
    fixed = {column.name: constant_bytes(column.type) for column in planned.schema}
    assumed = {
        column.name: fixed[column.name] or default_bytes(carried_type(column.type))
        for column in planned.schema
    }
    file_row_bytes = planned.file_bytes / max(1, row_count)
    variable = [name for name, size in fixed.items() if size is None]
    if not variable or file_row_bytes <= sum(assumed.values()):
        return float(ROW_BYTES + sum(assumed.values()))
    blobs = {name for name in variable if pat.is_large_binary(planned.schema.field(name).type)}
    sampled = [name for name in variable if name not in blobs]
    rows = max(1, min(_SAMPLE_ROWS_MAX, int(_SAMPLE_BYTES / file_row_bytes)))
    measured = dict.fromkeys(blobs, file_row_bytes)
    if sampled:
        measured |= sample_column_bytes(root, entry, sampled, rows=rows)
    return float(
        ROW_BYTES + sum(max(size, measured.get(name, 0)) for name, size in assumed.items())
    )


def read_group(plan: ScanPlan, group: int) -> Iterator[pa.RecordBatch]:
    """Stream the rows of one group of fragments, in the shape Spark takes."""
    carried = carried_schema(plan.stored)
    rows = scan_fragments(
        plan.root, plan.entry, plan.groups[group], columns=plan.columns, where=plan.where
    )
    for batch in streamed_unless_removed(rows, plan.root, plan.entry):
        named = batch if plan.declared is None else with_end_names(plan.declared, batch)
        yield to_spark(named, carried)


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
    with without_noise():
        return group_numbers(spark, plan).mapInArrow(tidy(scan_task(plan)), plan.schema)


_NUMBERS_MAX: Final = 1 << 32
"""About 2 TB by Spark's estimate; beyond, its plans do not change."""
_WEIGHT: Final = f"struct<{', '.join(f'w{number}: binary' for number in range(10))}>"
_NUMBER_BYTES: Final = 508
"""What Spark takes a number of a range to be, once a column of the type above was added."""


def group_numbers(spark: SparkSession, plan: ScanPlan) -> DataFrame:
    """The number of every group of fragments, each in a task of its own.

    Spark takes a `mapInArrow` to give as many bytes as it gets. So its input is made large in the
    eyes of the optimizer: by numbers that a filter removes, since Spark does not guess how many
    these are, and by a wide column without values, which makes it 60 times cheaper to count them.
    """
    count = len(plan.groups)
    numbers = min(_NUMBERS_MAX, plan.row_count * plan.row_bytes / _NUMBER_BYTES)
    stride = max(1, round(numbers / max(1, count)))
    # Spark divides this range evenly, so that each task has exactly one multiple of the stride.
    return (
        spark.range(0, count * stride, 1, max(1, count))
        .where(f"id % {stride} = 0")
        .selectExpr(f"id div {stride} AS id", f"CAST(NULL AS {_WEIGHT}) AS weight")
    )


SqlArguments = Mapping[str, object] | Sequence[object] | None


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
        return spark.range(0, count, 1, max(1, count)).mapInArrow(tidy(task), spark_schema(stored))


class SparkTables:
    """The tables of one snapshot on Spark. Commits that are published later are invisible."""

    def __init__(
        self, spark: SparkSession, root: Root, snapshot: Snapshot, catalog: Catalog
    ) -> None:
        self.root = root
        self.catalog = catalog
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
        return data_frame(self.spark, self._plan(table_key, columns=columns, where=where))

    def stored_table(
        self, table_key: str, *, columns: Sequence[str] | None = None, where: str | None = None
    ) -> DataFrame:
        """The same with the types of ends as they are stored, by number."""
        entry = find_entry(self.root, self.snapshot, table_key)
        return data_frame(self.spark, scan_plan(self.root, entry, columns=columns, where=where))

    def _plan(
        self, table_key: str, *, columns: Sequence[str] | None = None, where: str | None = None
    ) -> ScanPlan:
        entry = find_entry(self.root, self.snapshot, table_key)
        is_edge = table_key.startswith(names.EDGE_PREFIX)
        declared = self.catalog.edges[_type_name(table_key)] if is_edge else None
        return scan_plan(self.root, entry, columns=columns, where=where, declared=declared)

    def count(self, type: str) -> int:  # noqa: A002 - the conventional name
        """The number of rows of a type, by its name or table key; reads no table, runs no job.

        Raises:
            InvalidInputError: there is no such type, or a node and an edge type of this name.
        """
        keys = chosen_keys(self.snapshot.tables, [type])
        if len(keys) > 1:
            raise errors.InvalidInputError(
                f"{type!r:.80} is the name of two types", next_step=f"Say {' or '.join(keys)}."
            )
        return self.snapshot.tables[keys[0]].row_count

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

    def sql(self, text: str, args: SqlArguments = None) -> DataFrame:
        """Run a query of Spark SQL in which types are called as in `views`; no view is created.

        Reads only the columns that the query needs. Simple comparisons of texts, integers and
        dates in it are also evaluated by Lance, and rows are counted without reading them.

        Args:
            text: One query, which may also name other tables and views of the session.
            args: Values of its parameters, as for `spark.sql`.

        Raises:
            InvalidInputError: two types that the query may name differ only in case.
        """
        keys = {
            key: name
            for key, name in view_names(self.snapshot.tables).items()
            if re.search(rf"\b{re.escape(name)}\b", text, re.IGNORECASE)
        }
        plans = {key: self._plan(key) for key in keys}
        with without_noise():
            use = self._learn_use(text, args, keys, plans) if plans else {}
            frames = {keys[key]: self._rows_for(plan, use[key]) for key, plan in plans.items()}
            return run_sql(self.spark, text, args, frames)

    def _learn_use(
        self, text: str, args: SqlArguments, keys: Mapping[str, str], plans: Mapping[str, ScanPlan]
    ) -> Mapping[str, TableUse]:
        probes = make_probes({key: plan.stored for key, plan in plans.items()})
        frames = {
            keys[key]: self.spark.range(probe.start, probe.end).selectExpr(*probe.expressions())
            for key, probe in probes.items()
        }
        return read_use(explain_cost(run_sql(self.spark, text, args, frames)), probes)

    def _rows_for(self, plan: ScanPlan, use: TableUse) -> DataFrame:
        """The rows of a table with all its columns, of which those that are not needed are null."""
        if not use.columns:
            rows = self.spark.range(0, plan.row_count)
        elif use == TableUse(columns=plan.columns):
            return data_frame(self.spark, plan)
        else:
            rows = data_frame(self.spark, _narrow(plan, use))
        return rows.selectExpr(
            *(
                f"`{column.name}`"
                if column.name in use.columns
                else f"CAST(NULL AS {column.dataType.simpleString()}) AS `{column.name}`"
                for column in plan.schema
            )
        )

    def __repr__(self) -> str:
        version = self.snapshot.manifest_version
        return f"<{type(self).__name__} {self.root} at manifest version {version}>"


def _narrow(plan: ScanPlan, use: TableUse) -> ScanPlan:
    narrowed = partial(
        scan_plan, plan.root, plan.entry, columns=use.columns, declared=plan.declared
    )
    try:
        return narrowed(where=use.where)
    except errors.InvalidInputError:
        # Lance does not know every comparison that Spark knows, nor the names of types of ends.
        return narrowed()


def run_sql(
    spark: SparkSession, text: str, args: SqlArguments, frames: Mapping[str, DataFrame]
) -> DataFrame:
    """Run a query over frames by name. Its text is put in brackets, so it can only be a query."""
    query = text.strip().removesuffix(";")
    if not frames:
        wrapped = f"SELECT * FROM (\n{query}\n)"  # noqa: S608 - the caller's own query
        run: Callable[..., DataFrame] = spark.sql  # its stub takes lists and dictionaries alone
        return run(wrapped, args)
    aliases = {name: f"omnigraph_{uuid.uuid4().hex}" for name in frames}
    named = ", ".join(f"`{name}` AS (TABLE {{{alias}}})" for name, alias in aliases.items())
    escaped = query.replace("{", "{{").replace("}", "}}")
    wrapped = f"WITH {named} SELECT * FROM (\n{escaped}\n)"  # noqa: S608 - as above
    by_alias = {aliases[name]: frame for name, frame in frames.items()}
    return sql_over_frames(spark, wrapped, args, by_alias)


_PACKED: Final = "rows"
_PACKED_DDL: Final = f"{_PACKED} binary"


class FrameRows:
    """A DataFrame as Arrow batches of a given schema; `errors` translates those of its jobs."""

    def __init__(
        self,
        frame: DataFrame,
        schema: pa.Schema,
        *,
        errors: Callable[[], AbstractContextManager[None]] = job_errors,
    ) -> None:
        self.schema = schema
        self._frame = frame
        self._errors = errors

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        with without_noise(), self._errors():
            # A name with a dot in it, such as `p.age`, would be looked for inside of a column.
            plain = self._frame.toDF(*(f"c{at}" for at in range(len(self.schema))))
            packed = plain.mapInArrow(tidy(pack), _PACKED_DDL)
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
