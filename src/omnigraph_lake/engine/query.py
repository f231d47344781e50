"""Runs and explains a query on one snapshot, with one engine, within limits.

Invariants:
- The snapshot, the parameters and the meaning of `now()` are fixed before the first row is read.
- Which engine runs depends on what the caller says, never on the data.
- A result is pulled batch by batch; the resources of a run are released when it ends or fails.
- A run with index lookups is finished before its first batch is returned, so it can restart with
  the tables in memory if it reads too much.
- Explaining reads only the sizes of tables. Analysing runs the query to its end and discards its
  rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

import pyarrow as pa

from omnigraph_lake.arguments import one_of
from omnigraph_lake.derived import remember_derived
from omnigraph_lake.engine.access.access_path import (
    MET_MOST,
    SPENT,
    Access,
    Choice,
    Estimates,
    choose_access,
    keys_as_ids,
    prepare,
    prepare_keys,
)
from omnigraph_lake.engine.access.column_cache import shared_cache
from omnigraph_lake.engine.access.in_memory import InMemoryAccess
from omnigraph_lake.engine.access.index_access import IndexAccess, ProbeLimitExceeded
from omnigraph_lake.engine.access.streamed_rows import STREAMED_LEAST, RowScan, portions, row_scan
from omnigraph_lake.engine.expressions.known_parts import prepare_parts, with_known_parts
from omnigraph_lake.engine.expressions.scores import Scores
from omnigraph_lake.engine.expressions.statements import Statements
from omnigraph_lake.engine.expressions.values import Filters, Values
from omnigraph_lake.engine.patterns import Patterns
from omnigraph_lake.engine.query_result import Answer, QueryResult
from omnigraph_lake.engine.ranking import Ranker
from omnigraph_lake.engine.results import Results, result_plan
from omnigraph_lake.engine.run import Limits, Profile, Run
from omnigraph_lake.errors import InvalidInputError, SchemaChangedError
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.query.columns import arrow_schema
from omnigraph_lake.query.expressions import Distance, walk
from omnigraph_lake.query.plan import (
    PLANS_KNOWN,
    Aggregate,
    Distinct,
    Limit,
    Mutation,
    Order,
    Plan,
    Project,
)
from omnigraph_lake.query.plan_text import explain
from omnigraph_lake.query.rewrites import expressions_of, inputs_of
from omnigraph_lake.runner.memory import MEMORY_LEAST, bytes_in, half_of_this_machine
from omnigraph_lake.storage.objects.background import WORKER
from omnigraph_lake.storage.refs.kept import gone_if_removed, streamed_unless_removed

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame

    from omnigraph_lake.engine.access.access import GraphAccess
    from omnigraph_lake.engine.blobs import BlobColumns
    from omnigraph_lake.engine.query_text import ChosenQuery
    from omnigraph_lake.query.binding import BoundParameters
    from omnigraph_lake.runner.scan import SparkTables
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Snapshot
    from omnigraph_lake.view.elements import SnapshotElements


_MEMORY_MOST: Final = 1 << 60
_SECONDS_MOST: Final = 10**9


class QueryEngine(StrEnum):
    """Where a query runs; `auto` is Spark if a session is given, and this process if not."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


def chosen_engine(engine: str, *, spark: object | None) -> QueryEngine:
    """`local` or `spark`."""
    wanted = one_of(QueryEngine, engine, argument="engine")
    if wanted is QueryEngine.LOCAL and spark is not None:
        raise InvalidInputError(
            'engine is "local", but a Spark session is given', next_step="Give one of them."
        )
    if wanted is QueryEngine.AUTO:
        return QueryEngine.LOCAL if spark is None else QueryEngine.SPARK
    return wanted


def query_limits(memory: object, timeout: object) -> Limits:
    """The limits of a run: bytes or a text such as "2GB", and seconds."""
    return Limits(
        memory_bytes=half_of_this_machine() if memory is None else _bytes(memory),
        seconds=None if timeout is None else _seconds(timeout),
    )


def query_graph(
    root: Root, snapshot: Snapshot, chosen: ChosenQuery, *, limits: Limits, now: datetime
) -> QueryResult:
    """Run a query in this process; its rows are produced as they are read.

    Raises:
        InvalidInputError: the query is a mutation, or a parameter is invalid.
    """
    plan = _reading_plan(chosen, snapshot)
    with gone_if_removed(root, *snapshot.tables.values()):
        answer = run_query(
            plan,
            root=root,
            snapshot=snapshot,
            catalog=chosen.source.catalog,
            parameters=chosen.bound(now),
            limits=limits,
        )
    catalog = chosen.source.catalog
    guarded: Answer = _GuardedAnswer(answer, root, snapshot)
    blobs = None
    if any(column.blob is not None for column in chosen.typed.columns):
        from omnigraph_lake.engine.blobs import BlobColumns  # few results have blobs

        blobs = BlobColumns(root, snapshot, chosen.typed.columns)
        guarded = _AnswerWithBlobs(guarded, blobs, arrow_schema(chosen.typed.columns, catalog))
    return QueryResult(
        guarded,
        query=chosen.typed,
        catalog=catalog,
        commit_id=snapshot.commit_id,
        elements=partial(_elements, root, snapshot, catalog),
        blobs=blobs,
    )


def _elements(root: Root, snapshot: Snapshot, catalog: Catalog) -> SnapshotElements:
    from omnigraph_lake.view.elements import SnapshotElements  # most results are never drawn

    return SnapshotElements(root, snapshot, catalog)


class _GuardedAnswer:
    """A result that reports it if a cleanup removes what it still has to read."""

    def __init__(self, answer: Answer, root: Root, snapshot: Snapshot) -> None:
        self._answer = answer
        self._root = root
        self._snapshot = snapshot

    @property
    def schema(self) -> pa.Schema:
        return self._answer.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        entries = self._snapshot.tables.values()
        return streamed_unless_removed(self._answer.batches(), self._root, *entries)

    def cancel(self) -> None:
        self._answer.cancel()


class _AnswerWithBlobs:
    """A result with handles of Blobs in place of the ids of their owners."""

    def __init__(self, answer: Answer, blobs: BlobColumns, schema: pa.Schema) -> None:
        self._answer = answer
        self._blobs = blobs
        self.schema = schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._answer.batches():
            yield self._blobs.with_handles(batch, self.schema)

    def cancel(self) -> None:
        self._answer.cancel()


def explain_query(
    root: Root,
    snapshot: Snapshot,
    chosen: ChosenQuery,
    *,
    limits: Limits,
    now: datetime,
    analyze: bool,
) -> str:
    """How a query runs in this process: expected rows, and with `analyze` the real ones."""
    with gone_if_removed(root, *snapshot.tables.values()):
        return explain_run(
            _reading_plan(chosen, snapshot),
            root=root,
            snapshot=snapshot,
            catalog=chosen.source.catalog,
            parameters=chosen.bound(now),
            limits=limits,
            analyze=analyze,
        )


def query_on_spark(graph: SparkTables, chosen: ChosenQuery, *, now: datetime) -> DataFrame:
    """The query as a DataFrame of the session that the graph lives on.

    Raises:
        InvalidInputError: the query is a mutation, or a parameter is invalid.
    """
    from omnigraph_lake.engine.spark.execute import query_frame  # needs pyspark

    catalog, parameters = chosen.source.catalog, chosen.bound(now)
    plan = _reading_plan(chosen, graph.snapshot)
    frame = query_frame(graph, plan, catalog=catalog, parameters=parameters)
    if all(column.blob is None for column in chosen.typed.columns):
        return frame
    from omnigraph_lake.engine.spark.blob_columns import with_handles  # needs pyspark

    return with_handles(frame, graph, chosen.typed.columns)


def _reading_plan(chosen: ChosenQuery, snapshot: Snapshot) -> Plan:
    if snapshot.schema_hash not in (None, chosen.source.schema_hash):
        raise SchemaChangedError(
            snapshot.branch_name,
            expected=chosen.source.schema_hash,
            found=str(snapshot.schema_hash),
        )
    plan = chosen.plan(snapshot)
    if isinstance(plan, Mutation):
        raise InvalidInputError(
            f"{chosen.typed.title} is a mutation",
            next_step="Run it with `graph.mutate(...)`, or `omnigraph mutate`.",
        )
    for distance in _find_text_distances(plan):
        raise InvalidInputError(
            f"{chosen.typed.title} compares the vector {distance.field.name!r} with a "
            "string, and there is no model here to embed it",
            next_step=f"Embed the text and give ${distance.field.variable}."
            f"{distance.field.name} a `Vector` parameter to compare with.",
        )
    return plan


@remember_derived(most=PLANS_KNOWN)
def _find_text_distances(plan: Plan) -> tuple[Distance, ...]:
    return tuple(distance for distance in _distances(plan) if distance.embed)


def _distances(plan: Plan) -> Iterator[Distance]:
    for expression in expressions_of(plan):
        yield from (part for part in walk(expression) if isinstance(part, Distance))
    for below in inputs_of(plan):
        yield from _distances(below)


def _bytes(memory: object) -> int:
    size = memory
    if isinstance(memory, str):
        size = bytes_in(memory)
    if type(size) is not int or not MEMORY_LEAST <= size <= _MEMORY_MOST:
        raise InvalidInputError(
            f"memory is {shown(memory)}, expected bytes from {MEMORY_LEAST:,} on",
            next_step='Give a number of bytes, or a text such as "2GB" or "512MiB".',
        )
    return size


def _seconds(timeout: object) -> float:
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if (
        not isinstance(seconds, int | float)
        or isinstance(seconds, bool)
        or not 0 < seconds <= _SECONDS_MOST
    ):
        raise InvalidInputError(
            f"timeout is {shown(timeout)}, expected a number of seconds above 0",
            next_step="Leave it out for no limit.",
        )
    return float(seconds)


_TOO_MUCH: Final = f"lookups read more than {MET_MOST:,} entities"


class InProcessAnswer:
    """The columns of a query, and its rows as they are made."""

    def __init__(
        self,
        plan: Plan,
        run: Run,
        root: Root,
        snapshot: Snapshot,
        access: Access,
        *,
        keeps_tables: bool = True,
    ) -> None:
        self.plan = plan
        self._keeps_tables = keeps_tables
        self._result_plan = result_plan(plan, run.catalog)
        self._run = run
        self._root = root
        self._snapshot = snapshot
        self._access = access
        self._statements = Statements(run)
        self.profile: Profile | None = None
        self.choice: Choice | None = None
        self.schema = self._result_plan.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Runs the query; once."""
        try:
            match self._access:
                case Access.RESIDENT:
                    yield from self._results(self._resident()).batches()
                case Access.PROBE:
                    probing = IndexAccess(self._run, self._root, self._snapshot)
                    yield from self._results(probing).batches()
                case Access.AUTO:
                    yield from self._chosen()
                case _:
                    assert_never(self._access)
        finally:
            self._statements.close()

    def cancel(self) -> None:
        """Ends the run soon, from any thread."""
        self._run.cancel()
        self._statements.interrupt()

    def _chosen(self) -> Iterator[pa.RecordBatch]:
        tables = self._resident()
        choice = choose_access(self.plan, self._run.catalog, self._root, self._snapshot, tables)
        self.choice = choice
        if choice.prepares:
            self._prepare(choice)
        looked_up = self._look_up(choice) if choice.access is Access.PROBE else None
        if looked_up is not None:
            yield from looked_up
            return
        scan = None if self._keeps_tables else self._find_streamed_scan()
        if scan is None:
            yield from self._results(tables).batches()
            return
        self._result_plan = result_plan(scan.plan, self._run.catalog)
        for portion in portions(self._root, self._snapshot, scan):
            yield from self._results(portion).batches()

    def _find_streamed_scan(self) -> RowScan | None:
        """How the plan reads one large table without keeping it, if it can."""
        scan = row_scan(self.plan)
        if scan is None or self._snapshot.tables[scan.table].row_count < STREAMED_LEAST:
            return None
        return scan

    def _look_up(self, choice: Choice) -> list[pa.RecordBatch] | None:
        """The whole result, or None if it needs too many lookups."""
        began = time.perf_counter()
        probing = IndexAccess(self._run, self._root, self._snapshot, most=MET_MOST)
        try:
            return list(self._results(probing).batches())
        except ProbeLimitExceeded:
            self.choice = replace(choice, access=Access.RESIDENT, why=_TOO_MUCH)
            if self.profile is not None:
                self.profile = Profile()
            return None
        finally:
            SPENT.add(choice.spender, time.perf_counter() - began)

    def _prepare(self, choice: Choice) -> None:
        """Read the tables in the background."""
        plan, root, snapshot, run = self.plan, self._root, self._snapshot, self._run

        def job(check: Callable[[], None]) -> None:
            prepare(plan, InMemoryAccess(run, root, snapshot, shared_cache(), check=check))

        WORKER.submit(choice.spender, job)

    def _resident(self) -> InMemoryAccess:
        return InMemoryAccess(self._run, self._root, self._snapshot, shared_cache())

    def _results(self, graph: GraphAccess) -> Results:
        run = self._run
        scores = Scores(run, graph)
        values = Values(run, graph, self._statements, scores)
        patterns = Patterns(
            run=run,
            access=graph,
            values=values,
            filters=Filters(graph, values),
            ranker=Ranker(run, graph, values, scores),
            profile=self.profile,
        )
        return Results(self._result_plan, patterns, self._statements)


def run_query(  # noqa: PLR0913 - what a run depends on
    plan: Plan,
    *,
    root: Root,
    snapshot: Snapshot,
    catalog: Catalog,
    parameters: BoundParameters,
    limits: Limits,
    access: str = Access.AUTO,
    keeps_tables: bool = True,
) -> InProcessAnswer:
    """The result of a plan over one snapshot; nothing is read before its first batch.

    Without `keeps_tables`, a large table is read as a stream if the plan looks at each row alone.
    """
    prepared = prepare_parts(plan)
    known = prepared.bind(parameters)
    if known is None:
        plan = with_known_parts(plan, parameters)
    else:
        plan, parameters = prepared.plan, known
    keyed = prepare_keys(plan, catalog)
    bound = keyed.bind(parameters)
    if bound is None:
        plan = keys_as_ids(plan, catalog, parameters)
    else:
        plan, parameters = keyed.plan, bound
    run = Run(catalog=catalog, parameters=parameters, limits=limits)
    return InProcessAnswer(plan, run, root, snapshot, Access(access), keeps_tables=keeps_tables)


_RESULT = (Project, Aggregate, Distinct, Order, Limit)
_STRATEGIES = {
    Access.PROBE: "strategy: index lookup",
    Access.RESIDENT: "strategy: in-memory scan",
}


def explain_run(  # noqa: PLR0913 - what a run depends on
    plan: Plan,
    *,
    root: Root,
    snapshot: Snapshot,
    catalog: Catalog,
    parameters: BoundParameters,
    limits: Limits,
    analyze: bool,
) -> str:
    """How the plan would run in this process, or with `analyze` how it ran."""
    sizes = {key: entry.row_count for key, entry in snapshot.tables.items()}
    estimates = Estimates(catalog, sizes)
    run = Run(catalog=catalog, parameters=parameters, limits=limits)
    plan = keys_as_ids(with_known_parts(plan, parameters), catalog, parameters)
    if not analyze:
        tables = InMemoryAccess(run, root, snapshot, shared_cache())
        choice = choose_access(plan, catalog, root, snapshot, tables)
        head = f"{_STRATEGIES[choice.access]} ({choice.why})\n"
        return head + explain(
            plan, note=lambda plan_node: f"about {_rows(estimates.of(plan_node))}"
        )
    answer = InProcessAnswer(plan, run, root, snapshot, Access.AUTO)
    answer.profile = Profile()
    began = time.perf_counter()
    rows = sum(batch.num_rows for batch in answer.batches())
    seconds = time.perf_counter() - began
    assert answer.choice is not None
    profile = answer.profile

    def note(plan_node: Plan) -> str:
        if plan_node is plan:
            return f"{_rows(rows)} in {seconds * 1e3:.1f} ms"
        step = profile.of(plan_node)
        if isinstance(plan_node, _RESULT) or step is None:
            return ""
        held_text = "" if step.held == step.rows else f" as {step.held:,}"
        return (
            f"about {_rows(estimates.of(plan_node))}, found {step.rows:,}{held_text} "
            f"in {step.seconds * 1e3:.1f} ms"
        )

    return f"{_STRATEGIES[answer.choice.access]} ({answer.choice.why})\n" + explain(plan, note=note)


def _rows(count: float) -> str:
    row_count = round(count)
    return "1 row" if row_count == 1 else f"{row_count:,} rows"
