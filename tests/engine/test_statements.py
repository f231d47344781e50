"""Statements of a run: their order, their errors, and connections that are always given back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from omnigraph_lake.engine.expressions import statements as module
from omnigraph_lake.engine.expressions.statements import Statements
from omnigraph_lake.engine.run import Limits, Run
from omnigraph_lake.errors import (
    NotFoundError,
    QueryBudgetError,
    QueryCancelledError,
    QueryFailedError,
)
from omnigraph_lake.query.binding import BoundParameters
from omnigraph_lake.schema.compile import compile_schema
from tests.query.evaluator import EPOCH

pytestmark = pytest.mark.unit

CATALOG = compile_schema("node P { k: String @key }", filename="p.pg", identity_domain="test")
SCHEMA = pa.schema({"n": pa.int64()})
SORTED = "SELECT n FROM rows_of_the_pattern ORDER BY n"
TOO_LARGE = "SELECT n + 9223372036854775800 AS n FROM rows_of_the_pattern"
FOREVER = """SELECT count(*) AS n FROM range(1000000000000) t(a), rows_of_the_pattern
    WHERE a % 7 = 9"""
LIMITS = Limits(memory_bytes=1 << 28)


def run_with(limits: Limits = LIMITS) -> Run:
    parameters = BoundParameters(values={}, now=EPOCH)
    return Run(catalog=CATALOG, parameters=parameters, limits=limits)


def table(count: int = 10) -> pa.Table:
    return pa.table({"n": np.arange(count)})


def portions(count: int, size: int = 1000) -> Iterator[pa.RecordBatch]:
    for start in range(0, count, size):
        yield pa.record_batch([pa.array(np.arange(start, start + size))], schema=SCHEMA)


@pytest.fixture
def run() -> Run:
    return run_with()


@pytest.fixture
def statements(run: Run) -> Iterator[Statements]:
    opened = Statements(run)
    yield opened
    opened.close()


def test_values_belong_to_the_row_at_their_place(statements: Statements) -> None:
    numbers = pa.array(np.random.default_rng(1).integers(0, 1000, 300_000))

    doubled, odd = statements.row_wise(["c0 * 2", "c0 % 2 = 1"], {"c0": numbers}, len(numbers))

    assert np.array_equal(doubled.to_numpy(), numbers.to_numpy() * 2)
    assert odd.to_pylist() == [each % 2 == 1 for each in numbers.to_pylist()]


def test_values_without_columns_are_one_per_row(statements: Statements) -> None:
    (found,) = statements.row_wise(["1 + 1"], {}, 5)

    assert found.to_pylist() == [2] * 5


def test_an_answer_comes_in_batches(statements: Statements) -> None:
    reader = statements.streamed(SCHEMA, portions(200_000))

    batches = list(statements.batches(SORTED.replace("n FROM", "n + 1 AS n FROM"), reader))

    assert len(batches) > 1
    assert pa.Table.from_batches(batches)["n"].to_pylist() == list(range(1, 200_001))


def test_a_statement_can_be_run_while_another_streams(statements: Statements) -> None:
    """Conditions of the pattern are evaluated while its rows are sorted."""

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in portions(5000):
            (kept,) = statements.row_wise(["c0 + 1"], {"c0": batch.column(0)}, batch.num_rows)
            yield pa.record_batch([pa.chunked_array(kept).combine_chunks()], schema=SCHEMA)

    found = list(statements.batches(SORTED, statements.streamed(SCHEMA, batches())))

    assert pa.Table.from_batches(found)["n"].to_pylist() == list(range(1, 5001))


@pytest.mark.parametrize("error", [NotFoundError("gone", next_step="Look."), KeyError("pattern")])
def test_an_error_of_the_pattern_is_raised_as_itself(
    statements: Statements, error: Exception
) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from portions(3000)
        raise error

    with pytest.raises(type(error)) as caught:
        list(statements.batches(SORTED, statements.streamed(SCHEMA, batches())))

    assert caught.value is error
    assert statements.table(SORTED, table())["n"].to_pylist() == list(range(10))


def test_an_integer_that_does_not_fit_is_an_error_of_the_query(statements: Statements) -> None:
    with pytest.raises(QueryFailedError, match="64 bits"):
        statements.table(TOO_LARGE, table())


def test_an_older_error_is_not_told_again(statements: Statements) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from portions(3000)
        raise KeyError("first")

    with pytest.raises(KeyError):
        list(statements.batches(SORTED, statements.streamed(SCHEMA, batches())))

    with pytest.raises(QueryFailedError):
        statements.table(TOO_LARGE, table())


def test_a_statement_ends_when_its_time_is_over() -> None:
    statements = Statements(run_with(Limits(memory_bytes=1 << 28, seconds=0.5)))

    with pytest.raises(QueryBudgetError, match=r"after 0\.5 seconds"):
        statements.table(FOREVER, table())

    statements.close()


def test_no_statement_begins_after_its_time() -> None:
    statements = Statements(run_with(Limits(memory_bytes=1 << 28, seconds=0.01)))
    time.sleep(0.05)

    with pytest.raises(QueryBudgetError):
        statements.table(SORTED, table())
    statements.close()


def test_a_cancelled_statement_says_so(run: Run, statements: Statements) -> None:
    def cancel() -> None:
        run.cancel()
        statements.interrupt()

    timer = threading.Timer(0.3, cancel)
    timer.start()

    with pytest.raises(QueryCancelledError):
        statements.table(FOREVER, table())

    timer.join()


def test_too_little_memory_is_told_with_the_budget() -> None:
    statements = Statements(run_with(Limits(memory_bytes=16 << 20)))
    text = "SELECT list(n) AS l, list(n + 1) AS m FROM rows_of_the_pattern"

    with pytest.raises(QueryBudgetError, match="16,777,216 bytes of memory"):
        statements.table(text, statements.streamed(SCHEMA, portions(20_000_000, 100_000)))

    assert statements.table(SORTED, table())["n"].to_pylist() == list(range(10))
    statements.close()


def test_a_sort_beyond_the_memory_goes_to_disk() -> None:
    statements = Statements(run_with(Limits(memory_bytes=16 << 20)))
    text = "SELECT md5(n::VARCHAR) AS h, n FROM rows_of_the_pattern ORDER BY h DESC"
    rows = 0
    before = "g"

    reader = statements.streamed(SCHEMA, portions(1_500_000, 50_000))
    for batch in statements.batches(text, reader):
        assert batch.column(0)[0].as_py() < before
        before = batch.column(0)[-1].as_py()
        rows += batch.num_rows

    assert rows == 1_500_000
    statements.close()


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_an_answer_that_is_left_half_way_leaves_its_connection_usable(
    statements: Statements, taken: int
) -> None:
    batches = statements.batches(SORTED, table(500_000))
    for _ in range(taken):
        next(batches)

    batches.close()  # type: ignore[attr-defined]

    assert statements._busy == []
    assert statements.table(SORTED, table())["n"].to_pylist() == list(range(10))


def test_connections_are_used_again_by_later_runs() -> None:
    memory = 3 << 26
    for _ in range(5):
        statements = Statements(run_with(Limits(memory_bytes=memory)))
        statements.table(SORTED, table())
        statements.close()

    assert len(module._ENGINES._spare[memory]) == 1


def test_many_budgets_keep_few_engines() -> None:
    """A run whose engine was given up meanwhile still ends well."""
    early = Statements(run_with(Limits(memory_bytes=2 << 26)))
    early.table(SORTED, table())
    for size in range(3, 12):
        statements = Statements(run_with(Limits(memory_bytes=size << 26)))
        assert statements.table(SORTED, table())["n"].to_pylist() == list(range(10))
        statements.close()

    assert early.table(SORTED, table())["n"].to_pylist() == list(range(10))
    early.close()
    assert len(module._ENGINES._engines) <= 4
    assert len(module._ENGINES._spare) <= 4


def test_runs_in_threads_do_not_see_each_other() -> None:
    answers: dict[int, list[int]] = {}

    def work(number: int) -> None:
        statements = Statements(run_with())
        for _ in range(10):
            rows = pa.table({"n": [number, number + 1]})
            answers.setdefault(number, []).extend(statements.table(SORTED, rows)["n"].to_pylist())
        statements.close()

    threads = [threading.Thread(target=work, args=(each,)) for each in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert answers == {each: [each, each + 1] * 10 for each in range(6)}
