"""Conditions and values of a mutation over rows of one type, in Arrow and DuckDB.

Invariant: a value depends on its own row, the parameters and the instant of the run alone. Blobs
are copied and never read, so only Arrow handles them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from omnigraph_lake.engine.expressions.function_sql import connect_with_kernels, quoted
from omnigraph_lake.engine.expressions.sql import name, refusal, sql_of
from omnigraph_lake.engine.search import matches
from omnigraph_lake.errors import QueryFailedError
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query.binding import BoundParameters, BoundValue
from omnigraph_lake.query.types import BLOB

if TYPE_CHECKING:
    import duckdb

# No property can have these names.
_POSITION: Final = "#row"
_FOUND: Final = "#text"

_MATCHING: Final = 'SELECT "#row" FROM rows WHERE CONDITION ORDER BY 1'
_COMPUTED: Final = 'SELECT "#row", VALUES FROM rows ORDER BY 1'


def columns_of(*expressions: ex.Expression) -> tuple[str, ...]:
    """The columns that expressions read, each once."""
    property_names = (
        subexpression.name
        for expression in expressions
        for subexpression in ex.walk(expression)
        if isinstance(subexpression, ex.PropertyOf)
    )
    return tuple(dict.fromkeys(property_names))


class RowValues:
    """The expressions of one run; `type_name` says whose rows they are about."""

    def __init__(
        self, parameters: BoundParameters, *, blob_bytes: Callable[[str], bytes | None]
    ) -> None:
        self.parameters = parameters
        self._blob_bytes = blob_bytes
        self._opened: duckdb.DuckDBPyConnection | None = None
        self._searches: dict[ex.TextSearch, str] = {}

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def known(self, expression: ex.Expression) -> tuple[BoundValue] | None:
        """The value of an expression that is the same for every row."""
        match expression:
            case ex.Constant():
                return (self._content(expression, expression.value),)
            case ex.Parameter():
                return (self._content(expression, self.parameters.values[expression.name]),)
            case ex.Now():
                return (self.parameters.now,)
            case _:
                return None

    def _content(self, expression: ex.Expression, value: BoundValue) -> BoundValue:
        """Bytes in place of a text that encodes bytes; another text is refused when stored."""
        if expression.type != BLOB or not isinstance(value, str):
            return value
        content = self._blob_bytes(value)
        return value if content is None else content

    def matching(self, rows: pa.Table, condition: ex.Expression, type_name: str) -> pa.Table:
        """The rows for which the condition is true."""
        known = self.known(condition)
        if known is not None:
            return rows if known[0] is True else rows.slice(0, 0)
        if not rows.num_rows:
            return rows
        text = _MATCHING.replace("CONDITION", self._sql(condition, type_name))
        match_positions = self._query(text, rows, (condition,))
        return rows.take(match_positions.column(0).combine_chunks())

    def computed(
        self, rows: pa.Table, expressions: Sequence[ex.Expression], type_name: str
    ) -> list[pa.ChunkedArray]:
        """The values of expressions, row by row."""
        listed = ", ".join(self._sql(expression, type_name) for expression in expressions)
        answer = self._query(_COMPUTED.replace("VALUES", listed), rows, expressions)
        return list(answer.columns[1:])

    def _sql(self, expression: ex.Expression, type_name: str) -> str:
        def column(leaf: ex.Expression) -> str:
            match leaf:
                case ex.PropertyOf():
                    return name(leaf.name)
                case ex.TypeName():
                    return quoted(type_name)
                case ex.TextSearch():
                    return name(self._found(leaf))
                case _:
                    raise AssertionError(f"no row of a mutation has {type(leaf).__name__}")

        return sql_of(expression, column=column, parameters=self.parameters)

    def _query(self, text: str, rows: pa.Table, expressions: Sequence[ex.Expression]) -> pa.Table:
        columns = {column: rows.column(column) for column in columns_of(*expressions)}
        for expression in expressions:
            for subexpression in ex.walk(expression):
                if isinstance(subexpression, ex.TextSearch):
                    columns[self._found(subexpression)] = self._text_matches(subexpression, rows)
        columns[_POSITION] = pa.array(np.arange(rows.num_rows))
        connection = self._connection()
        connection.register("rows", pa.table(columns))
        try:
            with _refusals():
                return connection.sql(text).to_arrow_table()
        finally:
            connection.unregister("rows")

    def _text_matches(self, text_search: ex.TextSearch, rows: pa.Table) -> pa.Array:
        texts = rows.column(text_search.field.name)
        query = self.known(text_search.query)
        edits = None if text_search.edits is None else self.known(text_search.edits)
        assert query is not None
        if query[0] is None:
            return pa.nulls(rows.num_rows, pa.bool_())
        wanted, distance = query[0], 0 if edits is None else edits[0]
        assert isinstance(wanted, str)
        assert isinstance(distance, int)
        return matches(texts, text_search.kind, wanted, distance)

    def _found(self, text_search: ex.TextSearch) -> str:
        """The column that says where a search found something."""
        return self._searches.setdefault(text_search, f"{_FOUND}{len(self._searches)}")

    def _connection(self) -> duckdb.DuckDBPyConnection:
        if self._opened is None:
            self._opened = connect_with_kernels()
        return self._opened


@contextmanager
def _refusals() -> Iterator[None]:
    import duckdb  # loaded by now: a mutation that computes nothing does without

    try:
        yield
    except duckdb.Error as error:
        why = refusal(error)
        if why is None:
            raise
        raise QueryFailedError(
            f"the mutation failed: {why}",
            next_step="Narrow the condition, or compute with floats: `x * 1.0`.",
        ) from error
