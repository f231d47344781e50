"""The SQL statements of one run.

Invariant: a statement reads only its input, keeps the order of its input where it computes row by
row, and is interrupted when the run times out or is cancelled. An error of DuckDB becomes an error
of the run.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from omnigraph_lake.engine.expressions.function_sql import add_kernels
from omnigraph_lake.engine.expressions.kernels import next_step_after
from omnigraph_lake.engine.expressions.sql import refusal
from omnigraph_lake.engine.frames import Column
from omnigraph_lake.engine.run import Run, out_of_memory, out_of_time
from omnigraph_lake.errors import QueryFailedError
from omnigraph_lake.runner.databases import open_database

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")
_INPUT: Final = "rows_of_the_pattern"
_INTERRUPTED: Final = "Query interrupted"
_BATCH_ROWS: Final = 1 << 16
_MEMORY_STEP: Final = 1 << 26
_MEMORY_PER_THREAD: Final = 1 << 27
_SPARE_MAX: Final = 8
_ENGINES_MAX: Final = 4


class Statements:
    """Connections, opened on demand; a stream keeps its own until its end."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._memory = max(_MEMORY_STEP, run.limits.memory_bytes // _MEMORY_STEP * _MEMORY_STEP)
        self._idle: list[duckdb.DuckDBPyConnection] = []
        self._busy: list[duckdb.DuckDBPyConnection] = []
        self._failure: BaseException | None = None

    def row_wise(
        self, texts: Sequence[str], columns: Mapping[str, Column], rows: int
    ) -> list[Column]:
        """Values computed from the columns of the same row."""
        table = pa.table(dict(columns)) if columns else pa.table({"none": pa.nulls(rows)})
        selected = ", ".join(f"{text} AS v{at}" for at, text in enumerate(texts))
        result = self.table(f"SELECT {selected} FROM {_INPUT}", table)  # noqa: S608 - our own text
        return list(result.columns)

    def table(self, text: str, rows: pa.Table | pa.RecordBatchReader) -> pa.Table:
        """The whole result of a statement over `rows_of_the_pattern`."""
        with self._watched(rows) as connection:
            result: pa.Table = self._guarded(
                connection, lambda: connection.sql(text).to_arrow_table()
            )
            return result

    def batches(self, text: str, rows: pa.Table | pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """The result of a statement, batch by batch."""
        with self._watched(rows) as connection:
            yield from self._read(connection, text)

    def _read(self, connection: duckdb.DuckDBPyConnection, text: str) -> Iterator[pa.RecordBatch]:
        """Held here, because DuckDB frees a connection when its result is garbage-collected."""
        reader: pa.RecordBatchReader = self._guarded(
            connection, lambda: connection.sql(text).to_arrow_reader(_BATCH_ROWS)
        )
        with reader:
            while (batch := self._guarded(connection, lambda: next(reader, None))) is not None:
                self._run.check()
                yield batch

    def streamed(
        self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
    ) -> pa.RecordBatchReader:
        """A stream that DuckDB can read; an error of its source is raised unchanged."""

        def watched() -> Iterator[pa.RecordBatch]:
            try:
                yield from batches
            except BaseException as error:
                self._failure = error
                raise

        return pa.RecordBatchReader.from_batches(schema, watched())

    def close(self) -> None:
        for connection in self._busy:
            connection.close()
        _ENGINES.give_back(self._memory, self._idle)
        self._idle, self._busy = [], []

    def interrupt(self) -> None:
        """Stop the statements that are running, from another thread."""
        for connection in tuple(self._busy):
            connection.interrupt()

    @contextmanager
    def _watched(
        self, rows: pa.Table | pa.RecordBatchReader
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        import duckdb  # a query without expressions starts without it

        self._run.check()
        self._failure = None
        connection = self._idle.pop() if self._idle else _ENGINES.connection(self._memory)
        self._busy.append(connection)
        left = self._run.seconds_left
        timer = None
        if left is not None:
            timer = threading.Timer(max(left, 0), connection.interrupt)
            timer.daemon = True
            timer.start()
        try:
            self._guarded(connection, lambda: connection.register(_INPUT, rows))
            yield connection
        except RuntimeError as error:
            # Ctrl-C between two steps, which DuckDB noticed while it was handed the rows.
            if str(error) == _INTERRUPTED:
                raise KeyboardInterrupt from error
            raise
        except (duckdb.Error, OSError) as error:
            # While its rows are read, DuckDB's errors come as Arrow's, with the same words.
            raise self._explain(error) from error
        finally:
            if timer is not None:
                timer.cancel()
            if connection in self._busy:
                self._busy.remove(connection)
                self._give_back(connection)

    def _give_back(self, connection: duckdb.DuckDBPyConnection) -> None:
        try:
            self._guarded(connection, lambda: connection.unregister(_INPUT))
        except BaseException as error:
            connection.close()
            if str(error) != _INTERRUPTED:
                raise
            raise KeyboardInterrupt from error
        self._idle.append(connection)

    def _guarded(self, connection: duckdb.DuckDBPyConnection, step: Callable[[], T]) -> T:
        """Run DuckDB; Ctrl-C interrupts it and is raised when it has stopped.

        DuckDB would otherwise notice the signal itself, and may then wait for ever for a task that
        reads from Python.
        """
        if (
            threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        ):
            return step()
        pressed = False

        def interrupt(number: int, frame: object) -> None:  # noqa: ARG001 - what a handler gets
            nonlocal pressed
            pressed = True
            self._run.cancel()
            connection.interrupt()

        signal.signal(signal.SIGINT, interrupt)
        try:
            return step()
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if pressed:
                raise KeyboardInterrupt

    def _explain(self, error: Exception) -> BaseException:
        import duckdb  # imported by what failed

        if self._failure is not None:
            return self._failure
        if isinstance(error, duckdb.InterruptException) or _says(error, "INTERRUPT Error"):
            self._run.check()
            return out_of_time(self._run.limits)
        if isinstance(error, duckdb.OutOfMemoryException) or _says(error, "Out of Memory Error"):
            return out_of_memory(self._run.limits, str(error).splitlines()[0])
        refused = refusal(error)
        if refused is not None:
            return QueryFailedError(refused, next_step=next_step_after(refused))
        return error


def _says(error: Exception, what: str) -> bool:
    return isinstance(error, OSError) and str(error).startswith(what)


class _Engines:
    """One DuckDB per memory limit, beyond which it spills, and a pool of its connections.

    Starting one costs 30 ms.
    """

    def __init__(self) -> None:
        # A collected result may give its connection back while this thread takes one.
        self._lock = threading.RLock()
        self._engines: OrderedDict[int, duckdb.DuckDBPyConnection] = OrderedDict()
        self._spare: dict[int, list[duckdb.DuckDBPyConnection]] = {}

    def connection(self, memory: int) -> duckdb.DuckDBPyConnection:
        with self._lock:
            spare = self._spare.get(memory)
            if spare:
                return spare.pop()
            return self._engine(memory).cursor()

    def give_back(self, memory: int, connections: list[duckdb.DuckDBPyConnection]) -> None:
        with self._lock:
            if memory in self._engines:
                self._spare[memory] = (self._spare.get(memory, []) + connections)[:_SPARE_MAX]

    def _engine(self, memory: int) -> duckdb.DuckDBPyConnection:
        if memory not in self._engines:
            opened = open_database(
                settings={
                    "memory_limit": f"{memory}B",
                    # Each holds blocks of its own: with little memory few of them can work at all.
                    "threads": str(max(1, min(os.cpu_count() or 1, memory // _MEMORY_PER_THREAD))),
                }
            )
            self._engines[memory] = add_kernels(opened)
        self._engines.move_to_end(memory)
        while len(self._engines) > _ENGINES_MAX:
            oldest, _ = self._engines.popitem(last=False)
            self._spare.pop(oldest, None)
        return self._engines[memory]


_ENGINES: Final = _Engines()
