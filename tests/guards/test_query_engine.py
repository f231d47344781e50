"""What DuckDB, NumPy and Arrow do, as the executor of queries relies on it.

Relied on in: `engine/expressions/statements.py`, `engine/results.py`, `runner/databases.py`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

pytestmark = pytest.mark.unit

MILLION = 1_000_000


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    opened = duckdb.connect(config={"python_enable_replacements": "false"})
    opened.sql("SET enable_progress_bar = false")
    yield opened
    opened.close()


def test_a_projection_keeps_the_order_of_a_million_rows(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """Relied on by: values that are computed row by row (statements.row_wise)."""
    table = pa.table({"n": pa.array(np.arange(MILLION))})
    chunked = pa.Table.from_batches(table.to_batches(max_chunksize=7001))
    for rows in (table, chunked):
        connection.register("given", rows)

        found = connection.sql("SELECT n * 2 + 1 AS v0, n % 7 = 3 AS v1 FROM given")
        answer = found.to_arrow_table()

        assert np.array_equal(answer["v0"].to_numpy(), np.arange(MILLION) * 2 + 1)
        assert np.array_equal(
            answer["v1"].combine_chunks().to_numpy(zero_copy_only=False),
            np.arange(MILLION) % 7 == 3,
        )


def test_a_stream_keeps_its_order_in_a_projection(connection: duckdb.DuckDBPyConnection) -> None:
    schema = pa.schema({"n": pa.int64()})
    batches = (
        pa.record_batch([pa.array(np.arange(at, at + 1000))], schema=schema)
        for at in range(0, 300_000, 1000)
    )
    connection.register("given", pa.RecordBatchReader.from_batches(schema, batches))

    found = connection.sql("SELECT n + 1 AS v FROM given").to_arrow_table()

    assert np.array_equal(found["v"].to_numpy(), np.arange(1, 300_001))


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        ("ASC NULLS FIRST", [None, -math.inf, 0.5, math.inf, "nan"]),
        ("DESC NULLS LAST", ["nan", math.inf, 0.5, -math.inf, None]),
    ],
)
def test_nan_is_above_all_numbers(
    connection: duckdb.DuckDBPyConnection, direction: str, expected: list[object]
) -> None:
    """Relied on by: order, and comparisons in SQL."""
    values = pa.array([0.5, math.nan, None, math.inf, -math.inf], pa.float64())
    connection.register("given", pa.table({"x": values}))

    text = f"SELECT x FROM given ORDER BY x {direction}"  # noqa: S608
    found = [each for (each,) in connection.sql(text).fetchall()]

    shown = ["nan" if each is not None and math.isnan(each) else each for each in found]
    assert shown == expected


def test_nan_equals_nan_and_is_one_group(connection: duckdb.DuckDBPyConnection) -> None:
    connection.register("given", pa.table({"x": [math.nan, math.nan, 1.0]}))

    compared = connection.sql("SELECT x = x, x > 5, x IS NULL FROM given LIMIT 1").fetchall()
    groups = connection.sql("SELECT count(*) AS c FROM given GROUP BY x ORDER BY c").fetchall()

    assert compared == [(True, True, False)]
    assert groups == [(1,), (2,)]


def test_strings_compare_by_code_point(connection: duckdb.DuckDBPyConnection) -> None:
    """UTF-8 keeps the order of code points; Arrow sorts the same way, and so do paths."""
    values = ["\U0001f600", "\ufffd", "a", "Z", "é", "", "10", "9"]
    connection.register("given", pa.table({"s": values}))

    found = [each for (each,) in connection.sql("SELECT s FROM given ORDER BY s").fetchall()]
    by_arrow = pa.array(values).take(pc.sort_indices(pa.array(values))).to_pylist()

    assert found == by_arrow == sorted(values)


@pytest.mark.parametrize(
    ("one", "other"),
    [([], [1]), ([1], [1, 0]), ([1, 2], [2]), ([None], [0]), ([1, None], [1, 0])],
    ids=str,
)
def test_lists_compare_element_by_element_with_nulls_first(
    connection: duckdb.DuckDBPyConnection, one: list[int | None], other: list[int | None]
) -> None:
    """Relied on by: order by a list; DuckDB alone would put a null inside of a list last."""
    connection.register("given", pa.table({"x": pa.array([other, one], pa.list_(pa.int64()))}))
    key = "list_transform(x, lambda e: row(e IS NOT NULL, e))"

    text = f"SELECT x FROM given ORDER BY {key} ASC NULLS FIRST"  # noqa: S608
    found = [each for (each,) in connection.sql(text).fetchall()]

    assert found == [one, other]


def test_an_interrupt_ends_a_statement_by_its_own_error(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """Relied on by: timeouts and `cancel`."""
    timer = threading.Timer(0.3, connection.interrupt)
    timer.start()

    with pytest.raises(duckdb.InterruptException):
        connection.sql("SELECT count(*) FROM range(100000000000) a WHERE a % 7 = 9").fetchall()

    assert connection.sql("SELECT 1").fetchall() == [(1,)]


def test_an_interrupt_of_nothing_does_not_end_the_next_statement(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """Relied on by: connections that are given back and used again after a late timer."""
    connection.interrupt()

    assert connection.sql("SELECT 1").fetchall() == [(1,)]


def test_too_little_memory_is_an_error_of_its_own() -> None:
    """Relied on by: `QueryBudgetError`. Without a place to spill, so that memory must be enough."""
    connection = duckdb.connect(config={"memory_limit": "20MB", "temp_directory": ""})

    with pytest.raises(duckdb.OutOfMemoryException):
        connection.sql("SELECT list(range) FROM range(20000000)").fetchall()

    connection.close()


def test_an_error_of_a_stream_ends_the_statement(connection: duckdb.DuckDBPyConnection) -> None:
    """Relied on by: an error of the pattern inside of a statement, which is then raised itself."""
    schema = pa.schema({"n": pa.int64()})

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([1])], schema=schema)
        raise KeyError("the pattern broke")

    connection.register("given", pa.RecordBatchReader.from_batches(schema, batches()))

    with pytest.raises(duckdb.Error, match="the pattern broke"):
        connection.sql("SELECT n FROM given ORDER BY n").fetchall()


def test_sums_do_not_wrap_around(connection: duckdb.DuckDBPyConnection) -> None:
    """Relied on by: counts with weights; what does not fit is refused when it is cast."""
    connection.register("given", pa.table({"w": pa.array([2**62, 2**62], pa.int64())}))

    assert connection.sql("SELECT sum(w) FROM given").fetchall() == [(2**63,)]
    with pytest.raises(duckdb.ConversionException):
        connection.sql("SELECT sum(w)::BIGINT FROM given").fetchall()


def test_a_stable_sort_of_numbers_keeps_equal_ones_in_order() -> None:
    """Relied on by: the steps of an adjacency.

    Relied on in `engine/expansion.py`.
    """
    values = np.array([3, 1, 3, 1, 2] * 1000)

    order = np.argsort(values, kind="stable")

    assert all(np.all(np.diff(order[values[order] == each]) > 0) for each in (1, 2, 3))


def test_counting_with_weights_is_exact_below_2_to_the_53() -> None:
    """Relied on by: merged rows (frames.py), which count in another way above that.

    Relied on in `engine/frames.py`, `engine/grouping.py`.
    """
    weights = np.array([2**52, 1, 2**52 - 2], dtype=np.int64)

    assert np.bincount([0, 0, 0], weights=weights).astype(np.int64).tolist() == [2**53 - 1]
    assert np.bincount([0, 0], weights=[2**53, 1]).astype(np.int64).tolist() == [2**53]


def test_places_in_a_column_are_found_whatever_its_chunks_are() -> None:
    """Relied on by: ends of edges as positions of nodes.

    Relied on in `engine/access/resident_tables.py`.
    """
    known = pa.chunked_array([["a", "b"], ["c"], []], pa.string())

    found = pc.index_in(pa.chunked_array([["c", "x"], ["a"]]), value_set=known)

    assert found.to_pylist() == [2, None, 0]
    assert found.type == pa.int32()


def test_an_empty_column_of_chunks_becomes_an_array() -> None:
    """Relied on by: columns of empty tables that come back from a file.

    Relied on in `engine/frames.py`.
    """
    combined = pa.chunked_array([], pa.int64()).combine_chunks()

    assert len(combined) == 0
    assert combined.type == pa.int64()
