"""The result of a query: streamed once, or kept.

Invariant: a result never has fewer rows than the query. Streamed rows cannot be read again, which
is an error; kept rows can be read any number of times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
import pyarrow.types as pat

from omnigraph.arguments import count_from
from omnigraph.display.cells import counted, value
from omnigraph.display.pages import Displayed, Page
from omnigraph.display.tables import TableView
from omnigraph.engine.optional_packages import optional_package
from omnigraph.errors import InvalidInputError, QueryCancelledError

if TYPE_CHECKING:
    import polars as pl

    from omnigraph.query.typed import TypedQuery
    from omnigraph.schema.catalog import Catalog

_ROWS_OF_TEXT: Final = 10
_ROWS_OF_HTML: Final = 20


class Answer(Protocol):
    """The output of an engine: the columns immediately, the rows as they are produced."""

    @property
    def schema(self) -> pa.Schema: ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows; asked for once."""

    def cancel(self) -> None:
        """End the run soon, from any thread."""


class QueryResult(Displayed):
    """The result of a query.

    Nothing has been read when it is created. Iterating over it, or passing it to a consumer of an
    Arrow stream, streams the rows once, batch by batch. `to_arrow` and every other conversion keeps
    them.
    """

    def __init__(
        self, answer: Answer, *, query: TypedQuery, catalog: Catalog, commit_id: str | None
    ) -> None:
        self.query_name = query.name
        self.commit_id = commit_id
        self._answer = answer
        self._query = query
        self._catalog = catalog
        self._rest: Iterator[pa.RecordBatch] | None = None
        self._ahead: deque[pa.RecordBatch] = deque()
        self._kept: pa.Table | None = None
        self._streamed = False
        self._failure: Exception | None = None
        self._cancelled = False

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns, known before anything runs."""
        return self._answer.schema

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Stream the rows as Arrow record batches."""
        if self._kept is not None:
            return iter(self._kept.to_batches())
        self._require_rows()
        self._streamed = True
        return self._pulled()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows for consumers of Arrow streams: polars, DuckDB, pyarrow, Lance."""
        reader = pa.RecordBatchReader.from_batches(self.schema, iter(self))
        return reader.__arrow_c_stream__(requested_schema)

    def reader(self) -> pa.RecordBatchReader:
        """The rows as an Arrow reader."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_arrow(self) -> pa.Table:
        """All rows, kept in this result."""
        if self._kept is None:
            batches = [batch for batch in self if batch.num_rows]
            self._kept = pa.Table.from_batches(batches, schema=self.schema)
        return self._kept

    def to_pylist(self) -> list[dict[str, Any]]:
        """All rows as dicts."""
        rows: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return rows

    def to_pandas(self) -> Any:
        """All rows as a `pandas.DataFrame`.

        Integers and Booleans that can be null have pandas' nullable types, so that no number is
        rounded; nodes, edges and lists are dicts and lists.
        """
        pandas = optional_package("pandas")
        table = self.to_arrow()
        nullable = {
            pa.bool_(): pandas.BooleanDtype(),
            pa.int32(): pandas.Int32Dtype(),
            pa.int64(): pandas.Int64Dtype(),
            pa.uint32(): pandas.UInt32Dtype(),
            pa.uint64(): pandas.UInt64Dtype(),
        }
        columns = {}
        for field, column in zip(table.schema, table.columns, strict=True):
            if pat.is_nested(field.type):
                columns[field.name] = pandas.Series(column.to_pylist(), dtype=object)
            else:
                mapper = nullable.get if field.nullable else None
                columns[field.name] = column.to_pandas(types_mapper=mapper)
        return pandas.DataFrame(columns)

    def to_polars(self) -> pl.DataFrame:
        """All rows as a `polars.DataFrame`."""
        frame: pl.DataFrame = optional_package("polars").from_arrow(self.to_arrow())
        return frame

    def to_networkx(self) -> Any:
        """The nodes, edges and paths of all rows as one `networkx.MultiDiGraph`.

        A node is `(type, id)`, the key of an edge too, and properties are attributes. See the
        reference for paths.

        Raises:
            InvalidInputError: no column holds nodes, edges or the nodes of a path.
        """
        # Only this form of a result looks at the pattern of its query again.
        from omnigraph.engine.query_elements import element_columns, networkx_graph

        columns = element_columns(self._query, self._catalog)
        return networkx_graph(columns, self.to_arrow().to_batches())

    def first(self, count: int) -> list[dict[str, Any]]:
        """The first rows as dicts, fewer if there are no more; they stay part of the result."""
        count_from(0, count, argument="count")
        if self._kept is not None:
            found: list[dict[str, Any]] = self._kept.slice(0, count).to_pylist()
            return found
        self._require_rows()
        while sum(each.num_rows for each in self._ahead) < count:
            batch = self._next()
            if batch is None:
                break
            self._ahead.append(batch)
        rows: list[dict[str, Any]] = []
        for each in self._ahead:
            rows += each.slice(0, count - len(rows)).to_pylist()
        return rows

    def scalar(self) -> Any:
        """The value of a result with one row and one column."""
        rows = self.first(2)
        if len(self.columns) == 1 and len(rows) == 1:
            return rows[0][self.columns[0]]
        found = "more rows" if len(rows) > 1 else f"{len(rows)} row{'s'[: len(rows) != 1]}"
        raise InvalidInputError(
            f"query {self.query_name} gave {found} of {len(self.columns)} "
            f"column{'s'[: len(self.columns) != 1]}, expected one value",
            next_step="Return one column, or read the rows with `to_pylist()`.",
        )

    def cancel(self) -> None:
        """Stop the run; a reader of its rows gets `QueryCancelledError`."""
        self._cancelled = True
        self._answer.cancel()

    def __repr__(self) -> str:
        columns = ", ".join(f"{each.name}: {_short(each.type)}" for each in self.schema)
        return f"<QueryResult of {self.query_name} ({columns})>"

    def __str__(self) -> str:
        return str(self._first_page(_ROWS_OF_TEXT))

    def _page(self) -> Page:
        return self._first_page(_ROWS_OF_HTML)

    def _first_page(self, count: int) -> Page:
        facts = [("query", self.query_name)]
        if self._kept is None and self._streamed:
            return Page(facts=facts, lines=["Its rows were already streamed."])
        rows = self.first(count + 1)
        table = TableView(
            header=self.columns,
            rows=[[value(row[name]) for name in self.columns] for row in rows[:count]],
            numbers=[place for place, field in enumerate(self.schema) if is_number(field.type)],
            whole=(),
        )
        told = counted(len(rows), "row")
        if len(rows) > count:
            told = f"the first {count} rows; there are more"
        return Page(facts=facts, tables=[table], lines=[told])

    def _pulled(self) -> Iterator[pa.RecordBatch]:
        while True:
            batch = self._ahead.popleft() if self._ahead else self._next()
            if batch is None:
                return
            yield batch

    def _next(self) -> pa.RecordBatch | None:
        if self._cancelled:
            raise QueryCancelledError(
                f"query {self.query_name} was cancelled", next_step="Run it again."
            )
        if self._failure is not None:
            raise self._failure
        try:
            if self._rest is None:
                self._rest = self._answer.batches()
            return next(self._rest, None)
        except KeyboardInterrupt:
            self.cancel()
            raise
        except Exception as failure:
            self._failure = failure
            raise

    def _require_rows(self) -> None:
        if self._streamed:
            raise InvalidInputError(
                f"the rows of query {self.query_name} were already streamed",
                next_step="Run it again, or call `to_arrow()` first, which keeps them.",
            )


def is_number(kind: pa.DataType) -> bool:
    return bool(pat.is_integer(kind) or pat.is_floating(kind))


def _short(kind: pa.DataType) -> str:
    return "struct" if pat.is_struct(kind) else str(kind)
