"""What differs between versions of Spark, and between classic sessions and Spark Connect.

| | classic, from 3.5 | Connect 3.5 | Connect, from 4.0 |
|---|---|---|---|
| description of a job | in the UI | as a tag | as a tag |
| cancelling one job | by tag | by tag | by tag |
| tasks done | asked of the status tracker | unknown | told by the server |
| address of the UI | if the UI is on | unknown | unknown |
| bytes spilled | in the status store | unknown | unknown |

| | 3.5 | 4.0 | 4.1 | from 4.2 |
|---|---|---|---|---|
| remainder and cast that give null | composed | yes | yes | yes |
| columns computed from Arrow | through pandas | through pandas | directly | directly |
| data sources in Python | none | yes | yes | yes |
| streams bound their batches | | no | no | yes |
| queries name frames | not through Connect | yes | yes | yes |
| computed rows are on two executors | not through Connect | yes | yes | yes |

Invariants:
- Spark is asked what it has, never for its number: platforms backport features.
- A job runs in a thread of its own, which inherits the properties or tags of the calling thread;
  those of the caller are never changed. A call to the JVM that is interrupted would lose its
  connection, and with it the calls of other threads.
- An interrupt cancels the job it arrives in, and no other job of the session.
- Nothing here decides about results: what a version lacks is not shown.
"""

from __future__ import annotations

import copy
import importlib
import signal
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import functions as sql

from omnigraph_lake.errors import InvalidInputError, SparkUnavailableError

try:
    from pyspark.sql.streaming.datasource import (
        ReadLimit,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before Spark 4.2

    class ReadLimit:  # type: ignore[no-redef]
        """How much a batch may have."""

    class ReadMaxFiles(ReadLimit):  # type: ignore[no-redef]
        """A number of files."""

        def __init__(self, max_files: int) -> None:
            self.max_files = max_files

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Nothing: Spark asks once for the end of what is available."""


if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "ReadLimit",
    "ReadMaxFiles",
    "SupportsTriggerAvailableNow",
    "arrow_column",
    "arrow_schema",
    "explain_cost",
    "parallel_tasks",
    "require_data_sources",
    "require_read_limits",
    "run_job",
    "sql_over_frames",
    "try_long",
    "try_remainder",
    "ui_address",
]

Result = TypeVar("Result")

_DESCRIPTION: Final = "spark.job.description"
_POLL_SECONDS: Final = 0.5
_CANCEL_SECONDS: Final = 0.2
_STATUS_MILLISECONDS: Final = 1000
_LONG: Final = "bigint"
_LONG_MIN: Final = -(1 << 63)
_LONG_MAX: Final = (1 << 63) - 1


def sql_over_frames(
    spark: SparkSession, text: str, args: Any, frames: Mapping[str, DataFrame]
) -> DataFrame:
    """Run a query that names frames in braces; elsewhere its braces are doubled.

    Where Spark takes no frames, they become views, which the result needs as long as it is used.
    """
    run: Callable[..., DataFrame] = spark.sql
    parameters = signature(run).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return run(text, args, **frames)
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    return run(text.format(**{name: name for name in frames}), args)


def explain_cost(frame: DataFrame) -> str:
    """What `frame.explain(mode="cost")` prints, without the output of the process being moved."""
    shown: Any = frame
    if hasattr(shown, "_explain_string"):
        return str(shown._explain_string(mode="cost"))  # noqa: SLF001
    utils = shown.sparkSession.sparkContext._jvm.PythonSQLUtils  # noqa: SLF001
    return str(utils.explainString(shown._jdf.queryExecution(), "cost"))  # noqa: SLF001


def require_data_sources() -> None:
    """Refuse what needs a data source in Python, before a module is imported that has one.

    Raises:
        SparkUnavailableError: this Spark has none.
    """
    if find_spec("pyspark.sql.datasource") is None:
        raise SparkUnavailableError(
            f'format("omnigraph") needs Spark 4.0 or newer, and this is Spark '
            f"{pyspark.__version__}, which has no data sources in Python",
            next_step="Read with `graph.spark(session).nodes(...)` or `.edges(...)`, write with "
            "`graph.load({TYPE: frame})`.",
        )


def require_read_limits() -> None:
    """Refuse to promise batches of a bounded size to a stream.

    Raises:
        SparkUnavailableError: this Spark reads in one batch all that is available.
    """
    if find_spec("pyspark.sql.streaming.datasource") is None:
        raise SparkUnavailableError(
            f"maxCommitsPerBatch needs Spark 4.2 or newer, and this is Spark "
            f"{pyspark.__version__}, where every batch of a stream has all commits that there are",
            next_step="Remove the option.",
        )


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns of a frame as tasks get them.

    Raises:
        InvalidInputError: a column has a type that Arrow does not have.
    """
    from pyspark.sql.pandas.types import to_arrow_type  # pandas

    convert: Callable[..., pa.DataType] = to_arrow_type
    # Before Spark 4.2 a point in time is in UTC without being asked for it.
    zone = {"timezone": "UTC"} if "timezone" in signature(convert).parameters else {}
    columns: list[pa.Field] = []
    for column in schema.fields:
        try:
            columns.append(pa.field(column.name, convert(column.dataType, **zone)))
        except TypeError as error:
            raise InvalidInputError(
                f"the frame has a column {column.name!r:.80} of the type "
                f"{column.dataType.simpleString()}, which Arrow does not have",
                next_step="Cast the column, or leave it out.",
            ) from error
    return pa.schema(columns)


def arrow_column(
    function: Callable[..., pa.Array],
    columns: Sequence[Column],
    *,
    takes: Sequence[pa.DataType],
    gives: str,
) -> Column:
    """A column that tasks compute from Arrow arrays of others.

    `takes` are single values, or lists in which no item is null; `gives` is a type whose values
    Spark can read from text.
    """
    functions: Any = sql
    if hasattr(functions, "arrow_udf"):
        from_arrow: Column = functions.arrow_udf(function, gives)(*columns)
        return from_arrow

    # To pandas moments are nanoseconds, from 1677 to 2262 only, and a NaN is a missing value.
    passed = [
        sql.unix_micros(column).cast("string")
        if pat.is_timestamp(kind)
        else column.cast("string")
        if pat.is_floating(kind)
        else column
        for column, kind in zip(columns, takes, strict=True)
    ]

    def array_of(values: Any, kind: pa.DataType) -> pa.Array:
        is_text = pat.is_timestamp(kind) or pat.is_floating(kind)
        missing = values.isna().to_numpy(bool)
        given = pa.string() if is_text else kind
        array = pa.array(values.to_numpy(object), given, mask=missing, from_pandas=False)
        return array.cast(pa.int64()).cast(kind) if pat.is_timestamp(kind) else array.cast(kind)

    def compute(*series: Any) -> Any:
        arrays = [array_of(values, kind) for values, kind in zip(series, takes, strict=True)]
        # As text, because to pandas a NaN is a missing value.
        return function(*arrays).cast(pa.string()).to_pandas()

    pandas = importlib.import_module("pandas")  # PySpark needs it, this package does not
    compute.__annotations__ = {"series": pandas.Series, "return": pandas.Series}
    text: Column = functions.pandas_udf(compute, "string")(*passed)
    return text.cast(gives)


def arrow_column_or_refusal(
    function: Callable[..., pa.Array],
    columns: Sequence[Column],
    *,
    takes: Sequence[pa.DataType],
    gives: str,
    refused: Column,
) -> Column:
    """As `arrow_column`; where the value is null although no argument is, `refused` instead."""

    def mark(*arrays: pa.Array) -> tuple[pa.Array, pa.Array]:
        result = function(*arrays)
        is_refused = pc.is_null(result)
        for array in arrays:
            is_refused = pc.and_(is_refused, pc.is_valid(array))
        return result, is_refused

    functions: Any = sql
    if hasattr(functions, "arrow_udf"):

        def pair(*arrays: pa.Array) -> pa.Array:
            return pa.StructArray.from_arrays([*mark(*arrays)], names=["value", "refused"])

        struct = functions.arrow_udf(pair, f"struct<value: {gives}, refused: boolean>")(*columns)
        return once(struct, lambda both: sql.when(both.refused, refused).otherwise(both.value))

    def spell(*arrays: pa.Array) -> pa.Array:
        result, is_refused = mark(*arrays)
        return pc.if_else(
            is_refused, "!", pc.binary_join_element_wise("=", result.cast(pa.string()), "")
        )

    text = arrow_column(spell, columns, takes=takes, gives="string")
    return once(
        text,
        lambda spelt: sql.when(spelt == "!", refused).otherwise(
            sql.substr(spelt, sql.lit(2)).cast(gives)
        ),
    )


def compute_once(frame: DataFrame) -> DataFrame:
    """The rows of a frame, computed now and kept for what is made of them, on two executors.

    A checkpoint forgets how its rows were made, so a query, and its result as long as it is used,
    fails once they are lost. To keep how they were made instead costs a driver hundreds of
    megabytes after 30 rounds: the broadcasts of every join on the way are part of it.
    """
    checkpoint: Callable[..., DataFrame] = frame.localCheckpoint
    session: Any = frame.sparkSession
    master = session.conf.get("spark.master", "")
    if master.startswith("local") and not master.startswith("local-cluster"):
        return checkpoint()  # there is one process
    if "storageLevel" in signature(checkpoint).parameters:
        return checkpoint(storageLevel=StorageLevel.MEMORY_AND_DISK_2)
    if _context(session) is None:
        return checkpoint()
    made: Any = frame
    leaf = made._jdf.localCheckpoint(False)  # noqa: FBT003, SLF001 - computed by the first job
    rows = leaf.queryExecution().logical().rdd()
    two = session.sparkContext._getJavaStorageLevel(StorageLevel.MEMORY_AND_DISK_2)  # noqa: SLF001
    rows.persist(two).count()
    computed: DataFrame = type(made)(leaf, session)
    return computed


def try_remainder(dividend: Column, divisor: Column) -> Column:
    """The remainder of integers; null if the divisor is zero."""
    if hasattr(sql, "try_mod"):
        return sql.try_mod(dividend, divisor)
    return dividend % once(divisor, lambda value: sql.when(value != 0, value))


def try_long(number: Column) -> Column:
    """A decimal as a long; null if it does not fit."""
    if hasattr(type(number), "try_cast"):
        return number.try_cast(_LONG)
    return once(
        number, lambda value: sql.when(value.between(_LONG_MIN, _LONG_MAX), value.cast(_LONG))
    )


def once(column: Column, function: Callable[[Column], Column]) -> Column:
    """What a function makes of a value that occurs in it more than once, but is computed once."""
    return sql.transform(sql.array(column), function)[0]


def parallel_tasks(spark: SparkSession) -> int | None:
    """How many tasks run at once; None if the session does not know."""
    context = _context(spark)
    return None if context is None else max(1, context.defaultParallelism)


def ui_address(spark: SparkSession) -> str | None:
    """Where the UI of the session is, if it has one that this process knows."""
    context = _context(spark)
    return None if context is None else context.uiWebUrl


def run_job(
    spark: SparkSession,
    description: str,
    action: Callable[[], Result],
    *,
    observe: Callable[[int], None] | None = None,
) -> tuple[Result, int | None]:
    """The result of an action of Spark, and the bytes that its stages spilled to disk, if known.

    `observe` learns how many of its tasks are done.

    Raises:
        KeyboardInterrupt: the job was cancelled.
    """
    context = _context(spark)
    job: _Job = (
        _ConnectJob(spark, description) if context is None else _ClassicJob(context, description)
    )
    with _own_interrupts(), ThreadPoolExecutor(1, "omnigraph-spark-job") as pool:
        future = pool.submit(job.run, action)
        try:
            while wait([future], _POLL_SECONDS if observe else None).not_done:
                if observe is not None:
                    observe(job.tasks_done())
        except BaseException:  # an interrupt, or what else a signal handler raises
            # What is not submitted yet cannot be cancelled, so once is not enough.
            while wait([future], _CANCEL_SECONDS).not_done:
                with suppress(Exception):
                    job.cancel()
            raise
        return future.result(), job.bytes_spilled()


class _Job(Protocol):
    """One action of Spark and what is known of it."""

    def run(self, action: Callable[[], Result]) -> Result:
        """Run the action in this thread, as this job."""
        ...

    def tasks_done(self) -> int: ...

    def bytes_spilled(self) -> int | None:
        """What stages wrote to disk for want of memory, once the job is done."""
        ...

    def cancel(self) -> None: ...


class _ClassicJob:
    """Jobs of a Spark context, which are known by their tag."""

    def __init__(self, context: SparkContext, description: str) -> None:
        self._context = context
        self._description = description
        self._tag = _new_tag()
        self._properties = self._scala_context().getLocalProperties().clone()

    def run(self, action: Callable[[], Result]) -> Result:
        self._scala_context().setLocalProperties(self._properties)
        self._context.setLocalProperty(_DESCRIPTION, self._description)
        self._context.addJobTag(self._tag)
        return action()

    def tasks_done(self) -> int:
        tracker = self._context.statusTracker()
        try:
            infos = [tracker.getStageInfo(stage) for stage in self._stages()]
        except Py4JError:
            return 0
        return sum(info.numCompletedTasks for info in infos if info is not None)

    def bytes_spilled(self) -> int | None:
        try:
            # What executors reported last may still be on its way to the store.
            self._scala_context().listenerBus().waitUntilEmpty(_STATUS_MILLISECONDS)
            store = self._scala_context().statusStore()
            stages = map(store.lastStageAttempt, self._stages())
            return sum(int(stage.diskBytesSpilled()) for stage in stages)
        except Py4JError:
            return None

    def _stages(self) -> set[int]:
        tracker = self._context.statusTracker()
        # PySpark's own tracker does not know tags.
        numbers = self._scala_context().statusTracker().getJobIdsForTag(self._tag)
        jobs = [tracker.getJobInfo(number) for number in numbers]
        return {stage for job in jobs if job is not None for stage in job.stageIds}

    def cancel(self) -> None:
        self._context.cancelJobsWithTag(self._tag)

    def _scala_context(self) -> Any:
        return self._context._jsc.sc()  # noqa: SLF001


class _ConnectJob:
    """An operation of a Connect session."""

    def __init__(self, spark: SparkSession, description: str) -> None:
        self._spark = spark
        self._description = description
        self._tag = _new_tag()
        self._tasks: dict[int, int] = {}
        self._thread: int | None = None
        self._inherited = copy.deepcopy(vars(self._thread_locals()))

    def run(self, action: Callable[[], Result]) -> Result:
        vars(self._thread_locals()).update(self._inherited)
        self._thread = threading.get_ident()
        self._spark.addTag(self._tag)
        self._spark.addTag(self._description.replace(",", ";"))  # tags are separated by commas
        with self._progress_handler():
            return action()

    def tasks_done(self) -> int:
        return sum(self._tasks.values())

    def bytes_spilled(self) -> int | None:
        return None

    def cancel(self) -> None:
        self._spark.interruptTag(self._tag)

    @contextmanager
    def _progress_handler(self) -> Iterator[None]:
        session: Any = self._spark
        if not hasattr(session, "registerProgressHandler"):  # Spark 3.5
            yield
            return
        session.registerProgressHandler(self._advance)
        try:
            yield
        finally:
            session.removeProgressHandler(self._advance)

    def _advance(self, stages: Iterable[Any] | None, **_: object) -> None:
        # A session tells every handler of all its operations, each in its own thread.
        if threading.get_ident() == self._thread:
            for stage in stages or ():
                self._tasks[stage.stage_id] = stage.num_completed_tasks

    def _thread_locals(self) -> threading.local:
        client: Any = self._spark.client
        local: threading.local = client.thread_local
        return local


def _context(spark: SparkSession) -> SparkContext | None:
    """The context of a classic session; a Connect session has none."""
    return getattr(spark, "_sc", None)


def _new_tag() -> str:
    return f"omnigraph-{uuid.uuid4().hex}"


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Replace the signal handler of PySpark, which cancels every job of the context."""
    handler = signal.getsignal(signal.SIGINT)
    is_of_pyspark = getattr(handler, "__module__", "").startswith("pyspark.")
    if not is_of_pyspark or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
