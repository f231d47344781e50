"""Running a query: on one snapshot, by one engine, within limits.

Invariant: the snapshot, the parameters and the meaning of `now()` are fixed before the first row is
read. Which engine runs depends on what the caller says, never on the data.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from omnigraph.arguments import one_of
from omnigraph.engine.query_result import QueryResult
from omnigraph.engine.run import Limits
from omnigraph.errors import InvalidInputError, SchemaChangedError
from omnigraph.language.diagnostics import shown
from omnigraph.query.expressions import Distance, walk
from omnigraph.query.plan import Mutation
from omnigraph.query.rewrites import expressions_of, inputs_of
from omnigraph.runner.memory import MEMORY_LEAST, bytes_in, half_of_this_machine
from omnigraph.storage.refs.kept import gone_if_removed, streamed_unless_removed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from omnigraph.engine.query_result import Answer
    from omnigraph.engine.query_text import ChosenQuery
    from omnigraph.query.plan import Plan
    from omnigraph.runner.scan import SparkTables
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import Snapshot


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
    from omnigraph.engine.execute import run_query  # DuckDB, as in `check`

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
    return QueryResult(
        _Told(answer, root, snapshot),
        query=chosen.typed,
        catalog=chosen.source.catalog,
        commit_id=snapshot.commit_id,
    )


class _Told:
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
    from omnigraph.engine.explaining import explain_run  # DuckDB, as in `check`

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
    from omnigraph.engine.spark.execute import query_frame  # needs pyspark

    return query_frame(
        graph,
        _reading_plan(chosen, graph.snapshot),
        catalog=chosen.source.catalog,
        parameters=chosen.bound(now),
    )


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
            f"query {chosen.typed.name} is a mutation",
            next_step="Run it with `graph.mutate(...)`, or `omnigraph mutate`.",
        )
    for each in _distances(plan):
        if each.embed:
            raise InvalidInputError(
                f"query {chosen.typed.name} compares the vector {each.field.name!r} with a "
                "string, and there is no model here to embed it",
                next_step=f"Embed the text and give ${each.field.variable}.{each.field.name} a "
                "`Vector` parameter to compare with.",
            )
    return plan


def _distances(plan: Plan) -> Iterator[Distance]:
    for expression in expressions_of(plan):
        yield from (each for each in walk(expression) if isinstance(each, Distance))
    for below in inputs_of(plan):
        yield from _distances(below)


def _bytes(given: object) -> int:
    size = given
    if isinstance(given, str):
        size = bytes_in(given)
    if type(size) is not int or not MEMORY_LEAST <= size <= _MEMORY_MOST:
        raise InvalidInputError(
            f"memory is {shown(given)}, expected bytes from {MEMORY_LEAST:,} on",
            next_step='Give a number of bytes, or a text such as "2GB" or "512MiB".',
        )
    return size


def _seconds(given: object) -> float:
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if (
        not isinstance(seconds, int | float)
        or isinstance(seconds, bool)
        or not 0 < seconds <= _SECONDS_MOST
    ):
        raise InvalidInputError(
            f"timeout is {shown(given)}, expected a number of seconds above 0",
            next_step="Leave it out for no limit.",
        )
    return float(seconds)
