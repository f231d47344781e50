"""Applies one statement to more rows of a match than memory may hold, as one commit.

    insert, upsert, update    the rows of the match are the input of a load: checked, joined with
                              the pinned rows and written by its tasks
    delete                    the ids of the match meet those of all rows and the ends of all edges
                              in buckets; see `removal`

The match is read in this process and kept in temporary files, or by Spark if a session is given.

Invariants:
- The graph, the counts and what is refused are those of the same statement in memory.
- What is published was computed from exactly the pins it is published on; after a lost race the
  match is read again.
- This process holds batches and descriptions of files, never all new rows or ids. A match of one
  type alone is read as a stream; one with hops holds the adjacency and the columns that it reads.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from omnigraph_lake.commit.fork_on_write import writable_entry
from omnigraph_lake.engine.query import run_query
from omnigraph_lake.engine.run import Limits
from omnigraph_lake.errors import (
    HeadMovedError,
    InvalidInputError,
    LoadRefusedError,
    ValidationFailedError,
)
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.load.load import LoadRequest, load_graph
from omnigraph_lake.load.report import (
    ComputedInput,
    Engine,
    FaultPolicy,
    LoadReport,
    RepeatedRecords,
    type_labels,
)
from omnigraph_lake.load.write import merged_counts
from omnigraph_lake.mutate.matched import MatchedRows, rows_of
from omnigraph_lake.mutate.removal import Removal, Removed, TableToShrink
from omnigraph_lake.mutate.statements import (
    ReadyMutation,
    StatementCounts,
    insert_matched,
    refuse_missing_ids,
    refuse_repeats,
    slot_type,
)
from omnigraph_lake.names import ID_COLUMN, MAIN, SOURCE_COLUMN, edge_table_key
from omnigraph_lake.query import typed as tq
from omnigraph_lake.runner.memory import half_of_this_machine
from omnigraph_lake.runner.progress import Progress
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.storage.lance.tables import row_parts
from omnigraph_lake.storage.objects.temporary_folders import temporary_folder
from omnigraph_lake.storage.refs.kept import gone_if_removed
from omnigraph_lake.validation.constraints import (
    EdgeCount,
    EndpointExists,
    WriteMode,
    rules_of,
    type_text,
)
from omnigraph_lake.validation.input.columns import cast_column
from omnigraph_lake.validation.lookups import SnapshotTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph_lake.clock import Clock
    from omnigraph_lake.notes import CommitNote
    from omnigraph_lake.query.plan import Plan
    from omnigraph_lake.runner.protocol import Runner
    from omnigraph_lake.schema.catalog import EdgeType
    from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry

_ROWS_PER_FILE: Final = 1 << 20
_MODES: Final = {
    tq.MatchedVerb.INSERT: WriteMode.APPEND,
    tq.MatchedVerb.UPSERT: WriteMode.MERGE,
    tq.MatchedVerb.REPLACE: WriteMode.REPLACE,
    tq.MatchedVerb.UPDATE: WriteMode.MERGE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeMutation:
    """One statement with a match, its author, and the Spark that runs it, if any."""

    objects: Objects
    mutation: ReadyMutation
    actor: str
    note: CommitNote
    branch: BranchRef | None
    operation_id: str
    expect_head: str | None
    spark: object | None
    clock: Clock

    @property
    def statement(self) -> tq.MatchedStatement:
        (statement,) = self.mutation.statements
        assert isinstance(statement, tq.MatchedStatement)
        return statement

    @property
    def plan(self) -> Plan:
        (plan,) = self.mutation.reads
        assert plan is not None
        return plan

    @property
    def root(self) -> Root:
        return self.objects.root

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the match as the table of the statement names them."""
        columns = self.statement.columns
        return (ID_COLUMN, *columns) if self.is_of_entities else columns

    @property
    def is_of_entities(self) -> bool:
        """Whether rows of the match name entities that exist."""
        return self.statement.verb in (tq.MatchedVerb.UPDATE, tq.MatchedVerb.DELETE)

    @property
    def tables(self) -> frozenset[str]:
        """The tables that may change."""
        incident = map(edge_table_key, self.statement.incident)
        return frozenset({self.statement.table_key, *incident})

    def counts(self, nodes_or_edges: int, cascaded: int = 0) -> StatementCounts:
        statement = self.statement
        is_edge = statement.table_key == edge_table_key(statement.type)
        return StatementCounts(
            statement=f"{statement.verb.value} {statement.type}",
            nodes=0 if is_edge else nodes_or_edges,
            edges=nodes_or_edges if is_edge else cascaded,
        )


def require_head(expected: str | None, state: ManifestState) -> None:
    """Refuse a mutation of a branch that is at another commit than the caller expects."""
    if expected is not None and expected != state.head.commit_id:
        raise HeadMovedError(state.branch or MAIN, expected=expected, found=state.head.commit_id)


def require_single(mutation: ReadyMutation) -> None:
    """Refuse a mutation that cannot run in parts.

    Raises:
        InvalidInputError: it has other statements besides one with a match.
    """
    if mutation.is_single_match:
        return
    types = [
        statement.type
        for statement in mutation.statements
        if isinstance(statement, tq.MatchedStatement) and statement.of_several
    ]
    if len(types) == len(mutation.statements):
        raise InvalidInputError(
            f"the mutation changes entities of {len(types)} types ({', '.join(types)}), expected "
            "one type on Spark",
            next_step="Bind the variable to one type and run the mutation for each, or leave "
            "`spark` out.",
        )
    raise InvalidInputError(
        f"the mutation has {len(mutation.statements)} statements, expected one with a match",
        next_step="Run each statement as a mutation of its own, or leave `spark` out.",
    )


def read_rows(large: LargeMutation, snapshot: Snapshot) -> Generator[pa.RecordBatch, None, None]:
    """The rows of the match, read in this process; one without an entity is none."""
    mutation, plan = large.mutation, large.plan
    with gone_if_removed(large.root, *snapshot.tables.values()):
        answer = run_query(
            plan,
            root=large.root,
            snapshot=snapshot,
            catalog=mutation.catalog,
            parameters=mutation.values.parameters,
            limits=Limits(memory_bytes=half_of_this_machine()),
            keeps_tables=False,
        )
        for batch in answer.batches():
            yield _with_entity(large, batch)


def _with_entity(large: LargeMutation, batch: pa.RecordBatch) -> pa.RecordBatch:
    if ID_COLUMN not in large.names:
        return batch
    ids = batch.column(large.names.index(ID_COLUMN))
    if not ids.null_count:
        return batch
    if not large.is_of_entities:
        refuse_missing_ids(large.statement)
    return batch.filter(pc.is_valid(ids))


def first_rows(large: LargeMutation, snapshot: Snapshot, count: int) -> MatchedRows:
    """So many rows of the match, for samples."""
    batches: list[pa.RecordBatch] = []
    rows = read_rows(large, snapshot)
    for batch in rows:
        batches.append(batch)
        if sum(part.num_rows for part in batches) >= count:
            break
    rows.close()
    return rows_of(large.statement, pa.Table.from_batches(batches).slice(0, count))


def count_updated(large: LargeMutation, snapshot: Snapshot, rows: int) -> int:
    """How many of the rows that a statement writes are in the graph already."""
    statement = large.statement
    if statement.verb not in (tq.MatchedVerb.UPSERT, tq.MatchedVerb.REPLACE):
        return rows if statement.verb is tq.MatchedVerb.UPDATE else 0
    declared = large.mutation.catalog.tables()[statement.table_key]
    pinned = SnapshotTables(root=large.root, snapshot=snapshot)
    updated = 0
    for part in row_parts(read_rows(large, snapshot), rows_max=_ROWS_PER_FILE):
        new = insert_matched(
            statement,
            declared,
            rows_of(statement, part),
            large.mutation.values,
            new_id=large.mutation.new_id,
        )
        ids = new.table.column(ID_COLUMN)
        updated += merged_counts(pinned, statement.table_key, ids).updated
    return updated


def match_frame(large: LargeMutation, session: SparkSession, snapshot: Snapshot) -> DataFrame:
    """The rows of the match as a frame of a session, with the columns of the table."""
    from pyspark.sql import functions as sf

    from omnigraph_lake.engine.spark.execute import query_frame
    from omnigraph_lake.runner.scan import SparkTables

    mutation = large.mutation
    parameters = mutation.values.parameters
    tables = SparkTables(session, large.root, snapshot, mutation.catalog)
    frame = query_frame(tables, large.plan, catalog=mutation.catalog, parameters=parameters)
    if not large.names:
        return frame
    frame = frame.toDF(*large.names)
    if ID_COLUMN not in large.names:
        return frame
    if not large.is_of_entities and not frame.filter(sf.col(ID_COLUMN).isNull()).isEmpty():
        refuse_missing_ids(large.statement)
    return frame.filter(sf.col(ID_COLUMN).isNotNull())


def load_matched(large: LargeMutation, state: ManifestState, *, dry_run: bool) -> LoadReport:
    """Insert, upsert or update the rows of a match, as a load of them.

    Raises:
        HeadMovedError: the branch is at another commit than the caller expects.
        InvalidInputError: several rows give one entity.
        ValidationFailedError: the graph would violate a rule; nothing was written.
    """
    with ExitStack() as stack:

        def read(state: ManifestState) -> tuple[object, ComputedInput]:
            require_head(large.expect_head, state)
            snapshot = state.snapshot()
            stack.close()  # of what an earlier state gave
            source = stack.enter_context(_source(large, snapshot))
            keys = {*large.mutation.read_tables, large.statement.table_key}
            pins = {key: snapshot.tables[key].pin for key in sorted(keys)}
            return source, ComputedInput(pins=pins, read=read, commit_id=large.expect_head)

        source, computed = read(state)
        if source == []:
            return _nothing(large)
        request = _request(large, source, computed, dry_run=dry_run)
        try:
            return load_graph(large.objects, large.mutation.catalog, request, large.clock)
        except RepeatedRecords as repeated:
            refuse_repeats(large.statement, repeated.ids)
            raise
        except LoadRefusedError as error:
            raise _refusal_of(large.statement, error) from error


def _nothing(large: LargeMutation) -> LoadReport:
    """The account of a match whose rows have no entities."""
    return LoadReport(
        read=0,
        written={},
        quarantined={},
        operation_id=large.operation_id,
        engine=Engine.LOCAL,
        mode=_MODES[large.statement.verb],
    )


@contextmanager
def _source(large: LargeMutation, snapshot: Snapshot) -> Iterator[object]:
    """The rows of the match as the source of a load: files, or a frame of Spark."""
    if large.spark is None:
        with temporary_folder(large.operation_id) as folder:
            yield list(_spool(large, read_rows(large, snapshot), folder))
        return
    from omnigraph_lake.runner.session import given_spark, without_noise

    with without_noise(), given_spark(large.spark) as session:
        frame = match_frame(large, session, snapshot)
        for name, column in _constants(large).items():
            from pyspark.sql import functions as sf

            frame = frame.withColumn(name, sf.lit(column[0].as_py()))
        yield {type_labels(large.mutation.catalog)[large.statement.table_key]: frame}


def _constants(large: LargeMutation) -> dict[str, pa.ChunkedArray]:
    """The columns, of one row, whose values are known before the match.

    Raises:
        ValidationFailedError: a value does not fit its property.
    """
    statement, values = large.statement, large.mutation.values
    declared = large.mutation.catalog.tables()[statement.table_key]
    columns: dict[str, pa.ChunkedArray] = {}
    for assignment in statement.assignments:
        known = values.known(assignment.value)
        assert known is not None
        kind = slot_type(declared, assignment.property)
        columns[assignment.property], faults = cast_column([known[0]], kind)
        if faults:
            raise ValidationFailedError(
                f"{statement.type}.{assignment.property}: found {shown(known[0])}, expected "
                f"{type_text(kind)}",
                report=None,
                next_step="Fix the values or conditions and retry.",
            )
    return columns


def _spool(large: LargeMutation, batches: Iterator[pa.RecordBatch], folder: Path) -> Iterator[str]:
    """Write rows to Parquet files of a bounded size; their paths."""
    constants = _constants(large)
    writer: pq.ParquetWriter | None = None
    written = number = 0
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = _with_constants(large.names, batch, constants)
            if writer is None:
                path = folder / f"rows-{number:05}.parquet"
                writer = pq.ParquetWriter(path, rows.schema)
                number, written = number + 1, 0
                yield str(path)
            writer.write_table(rows)
            written += rows.num_rows
            if written >= _ROWS_PER_FILE:
                writer.close()
                writer = None
    finally:
        if writer is not None:
            writer.close()


def _with_constants(
    names: tuple[str, ...], batch: pa.RecordBatch, constants: Mapping[str, pa.ChunkedArray]
) -> pa.Table:
    columns = dict(zip(names, batch.columns, strict=False)) if names else {}
    first = pa.array(np.zeros(batch.num_rows, np.int64))
    columns |= {name: column.take(first) for name, column in constants.items()}
    return pa.table(columns)


def _request(
    large: LargeMutation, source: object, computed: ComputedInput, *, dry_run: bool
) -> LoadRequest:
    on_spark = large.spark is not None
    type_name = type_labels(large.mutation.catalog)[large.statement.table_key]
    return LoadRequest(
        source=source,
        type_name=None if on_spark else type_name,
        columns=None,
        mode=_MODES[large.statement.verb].value,
        order_by=None,
        end_type=None,
        on_error=FaultPolicy.FAIL.value,
        max_bad=None,
        engine=(Engine.SPARK if on_spark else Engine.LOCAL).value,
        spark=large.spark,
        dry_run=dry_run,
        branch=None if large.branch is None else large.branch.branch,
        actor=large.actor,
        operation_id=large.operation_id,
        quarantine=None,
        progress=Progress(),
        note=large.note,
        computed=computed,
    )


def _refusal_of(statement: tq.MatchedStatement, error: LoadRefusedError) -> ValidationFailedError:
    """The same violations without the temporary files that the rows were read from."""
    report = error.report
    assert isinstance(report, LoadReport)
    lines = [f"{record.message} [{record.reason}]" for record in report.rejected]
    lines += [f"left invalid: {violation}" for violation in report.broken]
    listed = "".join(f"\n  {line}" for line in lines)
    return ValidationFailedError(
        f"{statement.verb.value} {statement.type}: {report.faults:,} of {report.read:,} rows of "
        f"the match violate the schema{listed}",
        report=report,
        next_step="Fix the values or conditions and retry.",
    )


def delete_matched(
    large: LargeMutation, snapshot: Snapshot, *, counts_only: bool
) -> tuple[list[Removed], StatementCounts]:
    """Delete the entities of a match with the edges of nodes; without writing, only count them.

    Raises:
        InvalidInputError: edges of a type with a minimum number per node would be deleted.
    """
    tables = list(_tables_to_shrink(large, snapshot))

    def writable(entry: TableEntry) -> TableEntry:
        return writable_entry(
            large.root, entry, branch=large.branch, operation_id=large.operation_id
        )

    with ExitStack() as stack:
        if large.spark is None:
            runner: Runner = ThreadRunner()
            scratch = stack.enter_context(runner.scratch(large.operation_id))
            removal = Removal(large.objects, runner, scratch, tables)
            deleted = removal.scatter(read_rows(large, snapshot))
        else:
            from omnigraph_lake.runner.session import given_spark, without_noise

            stack.enter_context(without_noise())
            session = stack.enter_context(given_spark(large.spark))
            from omnigraph_lake.runner.spark import SparkRunner  # needs pyspark

            runner = SparkRunner(session, large.root, Progress())
            scratch = stack.enter_context(runner.scratch(large.operation_id))
            removal = Removal(large.objects, runner, scratch, tables)
            deleted = removal.scatter_frame(match_frame(large, session, snapshot))
        removed = removal.run(deleted, writable=writable, counts_only=counts_only)
    rows = {table.table_key: table.rows for table in removed}
    own = rows.pop(large.statement.table_key, 0)
    return removed, large.counts(own, cascaded=sum(rows.values()))


def _tables_to_shrink(large: LargeMutation, snapshot: Snapshot) -> Iterator[TableToShrink]:
    statement, edges = large.statement, large.mutation.catalog.edges
    is_edge = statement.table_key == edge_table_key(statement.type)
    if is_edge:
        _require_no_minimum(statement, edges[statement.type], SOURCE_COLUMN)
    yield TableToShrink.plan(0, large.root, snapshot.tables[statement.table_key], ())
    number = 1
    for edge_type in statement.incident:
        ends = [
            rule
            for rule in rules_of(edges[edge_type]).keyed_rules
            if isinstance(rule, EndpointExists) and rule.node_key == statement.table_key
        ]
        for end in ends:
            _require_no_minimum(statement, edges[edge_type], end.column)
        entry = snapshot.tables[edge_table_key(edge_type)]
        if entry.row_count:
            yield TableToShrink.plan(number, large.root, entry, ends)
            number += 1


def _require_no_minimum(statement: tq.MatchedStatement, edge: EdgeType, column: str) -> None:
    """Refuse to delete edges of nodes that stay and must have some: these are counted in memory."""
    is_deleted_with_its_node = column == SOURCE_COLUMN and edge.name != statement.type
    minimum = max(
        (rule.minimum for rule in rules_of(edge).keyed_rules if isinstance(rule, EdgeCount)),
        default=0,
    )
    if minimum and not is_deleted_with_its_node:
        raise InvalidInputError(
            f"delete {statement.type} changes more rows than memory may hold, and {edge.name} "
            f"needs at least {minimum} edges per node, which cannot be checked for so many",
            next_step="Narrow the match, for example by ranges of a key, and run it for each "
            "range.",
        )
