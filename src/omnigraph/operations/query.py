"""Running a query: on one snapshot, by one engine, within a budget.

Invariant: the snapshot, the parameters and the meaning of `now()` are fixed before the first row is
read. Which engine runs depends on what the caller says, never on the data.
"""

from __future__ import annotations

import functools
import math
import os
import re
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from omnigraph.errors import InvalidInputError, SchemaChangedError
from omnigraph.local.queries.run import Limits
from omnigraph.operations.arguments import one_of
from omnigraph.operations.query_result import QueryResult
from omnigraph.query.expressions import Distance, walk
from omnigraph.query.plan import Mutation
from omnigraph.query.rewrites import expressions_of, inputs_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from pyspark.sql import DataFrame

    from omnigraph.operations.query_text import ChosenQuery
    from omnigraph.query.plan import Plan
    from omnigraph.spark.scan import SparkGraph
    from omnigraph.storage.location import Root
    from omnigraph.storage.snapshot import Snapshot

_MEMORY_LEAST: Final = 16 << 20
_MEMORY_UNKNOWN: Final = 2 << 30
_MEMORY_SHARE: Final = 2
"""A query may use one in so many bytes of the machine, unless told."""
_SIZE: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[a-zA-Z]*)", re.ASCII)
_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", start=1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", start=1)},
}
_GROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


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
    """What a caller allows: bytes or a text such as "2GB", and seconds."""
    return Limits(
        memory_bytes=_half_of_this_machine() if memory is None else _bytes(memory),
        seconds=None if timeout is None else _seconds(timeout),
    )


def query_graph(
    root: Root, snapshot: Snapshot, chosen: ChosenQuery, *, limits: Limits, now: datetime
) -> QueryResult:
    """Run a query in this process; its rows are made as they are read.

    Raises:
        InvalidInputError: the query is a mutation, or a parameter does not fit.
    """
    from omnigraph.local.queries.execute import run_query  # DuckDB, as in `check`

    plan = _reading_plan(chosen, snapshot)
    answer = run_query(
        plan,
        root=root,
        snapshot=snapshot,
        catalog=chosen.source.catalog,
        parameters=chosen.bound(now),
        limits=limits,
    )
    return QueryResult(
        answer, query=chosen.typed, catalog=chosen.source.catalog, commit_id=snapshot.commit_id
    )


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
    from omnigraph.local.queries.explaining import explain_run  # DuckDB, as in `check`

    return explain_run(
        _reading_plan(chosen, snapshot),
        root=root,
        snapshot=snapshot,
        catalog=chosen.source.catalog,
        parameters=chosen.bound(now),
        limits=limits,
        analyze=analyze,
    )


def query_on_spark(graph: SparkGraph, chosen: ChosenQuery, *, now: datetime) -> DataFrame:
    """The query as a DataFrame of the session that the graph lives on.

    Raises:
        InvalidInputError: the query is a mutation, or a parameter does not fit.
    """
    from omnigraph.spark.queries.execute import query_frame  # needs pyspark

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
                f"query {chosen.typed.name} compares the vector {each.field.name!r} with a text, "
                "and there is no model here to embed it",
                next_step=f"Embed the text and give ${each.field.variable}.{each.field.name} a "
                "`Vector` parameter to be compared with.",
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
        found = _SIZE.fullmatch(given.strip())
        factor = _UNITS.get(found["unit"].lower()) if found else None
        size = int(float(found["number"]) * factor) if found and factor else None
    if not isinstance(size, int) or isinstance(size, bool) or size < _MEMORY_LEAST:
        raise InvalidInputError(
            f"memory is {given!r:.80}, expected bytes from {_MEMORY_LEAST:,} on",
            next_step='Give a number of bytes, or a text such as "2GB" or "512MiB".',
        )
    return size


def _seconds(given: object) -> float:
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if (
        not isinstance(seconds, int | float)
        or isinstance(seconds, bool)
        or not (math.isfinite(seconds) and seconds > 0)
    ):
        raise InvalidInputError(
            f"timeout is {given!r:.80}, expected a number of seconds above 0",
            next_step="Leave it out for no limit.",
        )
    return float(seconds)


@functools.cache
def _half_of_this_machine() -> int:
    """Half of the memory of the machine, or of the container if that is less."""
    try:
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return _MEMORY_UNKNOWN
    try:
        group = _GROUP_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        group = ""
    if group.isdecimal():
        available = min(available, int(group))
    return max(_MEMORY_LEAST, available // _MEMORY_SHARE)
