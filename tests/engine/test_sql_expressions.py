"""Expressions as SQL have the values that the language defines."""

from __future__ import annotations

import datetime as dt
import functools
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.engine.expressions.function_sql import add_kernels
from omnigraph_lake.engine.expressions.sql import (
    aggregate_sql,
    literal,
    name,
    refusal,
    sql_of,
    sql_type,
)
from omnigraph_lake.query.binding import BoundParameters
from omnigraph_lake.query.expressions import (
    Aggregate,
    AggregateFunction,
    Constant,
    Entity,
    Expression,
    PropertyOf,
)
from omnigraph_lake.query.types import F64, I64, U64, NodeOf, is_float, is_integer
from omnigraph_lake.runner.databases import open_database, shared_database
from omnigraph_lake.schema.catalog import ListType, Scalar, ScalarType, VectorType
from tests.drawing import drawn
from tests.engine.typed_expressions import (
    COLUMNS,
    NUMBERS,
    SCALARS,
    SCHEMA,
    VALUES,
    VARIABLE,
    expressions,
    rows,
)
from tests.query.evaluator import EPOCH
from tests.query.expression_values import (
    Approximate,
    EvaluationError,
    Held,
    Row,
    Run,
    aggregate,
    order_key,
    value_of,
)
from tests.query.people import CATALOG

pytestmark = pytest.mark.unit

REFUSED = "refused"


def column(leaf: Expression) -> str:
    assert isinstance(leaf, PropertyOf)
    return f"t.{name(leaf.name)}"


def bound(values: dict[str, Any]) -> BoundParameters:
    return BoundParameters(values=values, now=EPOCH)


def run_of(values: dict[str, Any]) -> Run:
    return Run(catalog=CATALOG, graph={}, parameters=values, now=EPOCH)


def held(row: dict[str, Any]) -> Row:
    return {VARIABLE: Held(type="Person", id="x", properties=row)}


@functools.cache
def database() -> duckdb.DuckDBPyConnection:
    return add_kernels(open_database())


def answers(text: str, table: pa.Table, tail: str = "") -> list[Any] | str:
    """The column that a text gives, or that it is refused."""
    connection = database().cursor()
    connection.register("t", table)
    try:
        question = f"SELECT {text} AS a FROM t {tail}"  # noqa: S608 - it is what is tested
        found = connection.sql(question).to_arrow_table()
        return [_plain(each) for each in found.column("a").to_pylist()]
    except duckdb.Error as error:
        if refusal(error) is None:
            raise
        return REFUSED
    finally:
        connection.close()


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_plain, value))
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value


def expected_of(each: Expression, row: dict[str, Any], run: Run) -> Any:
    try:
        return value_of(each, held(row), run)
    except EvaluationError:
        return REFUSED


@pytest.mark.random
@drawn(12)
@given(drawn=expressions(), held_rows=rows())
def test_an_expression_has_the_value_that_the_language_defines(
    drawn: tuple[Expression, dict[str, Any]], held_rows: list[dict[str, Any]]
) -> None:
    expression, values = drawn
    wanted = [expected_of(expression, row, run_of(values)) for row in held_rows]

    text = sql_of(expression, column=column, parameters=bound(values))
    found = answers(text, pa.Table.from_pylist(held_rows, schema=SCHEMA))

    if found == REFUSED:
        assert REFUSED in wanted
        return
    assert isinstance(found, list)
    for one, other in zip(found, wanted, strict=True):
        assert other == REFUSED or order_key(one) == order_key(other)


@pytest.mark.unit
def test_a_constant_that_cannot_be_computed_is_not_refused_where_there_is_no_row() -> None:
    text = 'omnigraph_strict_text_to_bool(\'\') IS NOT NULL AND t."two_String" = t."two_String"'

    assert answers(text, SCHEMA.empty_table()) == []
    assert answers(text, pa.Table.from_pylist([{"two_String": "a"}], schema=SCHEMA)) == REFUSED


@pytest.mark.random
@drawn(12)
@given(drawn=expressions())
def test_no_row_is_refused_where_there_is_none(
    drawn: tuple[Expression, dict[str, Any]],
) -> None:
    expression, values = drawn

    text = sql_of(expression, column=column, parameters=bound(values))

    assert answers(text, SCHEMA.empty_table()) == []


@pytest.mark.random
@drawn(12)
@given(drawn=expressions(), data=st.data())
def test_a_filter_keeps_the_rows_of_which_a_condition_is_true(
    drawn: tuple[Expression, dict[str, Any]], data: st.DataObject
) -> None:
    expression, values = drawn
    if expression.type != ScalarType(scalar=Scalar.BOOL):
        return
    held_rows = data.draw(rows())
    wanted = [expected_of(expression, row, run_of(values)) for row in held_rows]
    table = pa.Table.from_pylist(held_rows, schema=SCHEMA)

    text = sql_of(expression, column=column, parameters=bound(values))
    numbered = table.append_column("n", pa.array(range(len(table)), pa.int64()))
    found = answers("n", numbered, f"WHERE {text} ORDER BY n")

    if REFUSED not in wanted:
        assert found == [at for at, each in enumerate(wanted) if each is True]


@pytest.mark.random
@pytest.mark.parametrize("scalar", SCALARS)
@drawn(2, one_in=10)
@given(data=st.data())
def test_a_literal_is_the_value_in_the_type(scalar: Scalar, data: st.DataObject) -> None:
    kinds: list[ScalarType | ListType] = [ScalarType(scalar=scalar), ListType(item=scalar)]
    declared = data.draw(st.sampled_from(kinds), label="type")
    one = st.none() | VALUES[scalar]
    value = data.draw(
        one if isinstance(declared, ScalarType) else st.lists(one, max_size=3).map(tuple)
    )

    found = shared_database().sql(f"SELECT {literal(value, declared)} AS a, typeof(a) AS k")
    table = found.to_arrow_table()

    assert order_key(_plain(table["a"][0].as_py())) == order_key(value)
    named = sql_type(declared).replace("TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE")
    assert table["k"][0].as_py() == named


def test_a_vector_literal_has_its_size() -> None:
    text = literal((1.5, 0.25, -2.0), VectorType(size=3))

    found = shared_database().sql(f"SELECT {text} AS a, typeof(a) AS k").to_arrow_table()

    assert found.to_pylist() == [{"a": [1.5, 0.25, -2.0], "k": "FLOAT[3]"}]


# Aggregates


OF_NUMBERS = (
    AggregateFunction.SUM,
    AggregateFunction.AVERAGE,
    AggregateFunction.DEVIATION,
    AggregateFunction.PERCENTILE,
)
OF_EVERY_ROW = (
    AggregateFunction.COLLECT,
    AggregateFunction.DEVIATION,
    AggregateFunction.PERCENTILE,
)
ORDERED = (AggregateFunction.FIRST, AggregateFunction.LAST)
TIE = "tie"
TIE_FIELD = pa.field(TIE, pa.string())


def _property(column_name: str, kind: Scalar) -> PropertyOf:
    declared = ScalarType(scalar=kind)
    return PropertyOf(variable=VARIABLE, name=column_name, type=declared, nullable=True)


def _aggregate(
    function: AggregateFunction,
    kind: Scalar,
    *,
    distinct: bool,
    key: Scalar = Scalar.I64,
    fraction: float = 0.5,
) -> Aggregate:
    declared = ScalarType(scalar=kind)
    unsigned = kind in (Scalar.U32, Scalar.U64)
    result: Any = {
        AggregateFunction.COUNT: I64,
        AggregateFunction.SUM: U64 if unsigned else I64 if is_integer(declared) else F64,
        AggregateFunction.AVERAGE: F64,
        AggregateFunction.DEVIATION: F64,
        AggregateFunction.PERCENTILE: F64,
        AggregateFunction.COLLECT: ListType(item=kind),
    }.get(function, declared)
    order = (_property(f"two_{key.value}", key), _property(TIE, Scalar.STRING))
    percentile = function is AggregateFunction.PERCENTILE
    return Aggregate(
        function=function,
        argument=_property(f"one_{kind.value}", kind),
        distinct=distinct,
        type=result,
        nullable=True,
        by=order if function in ORDERED else (),
        fraction=Constant(value=fraction, type=F64) if percentile else None,
    )


def no_identity(_: Entity) -> tuple[str, str]:
    raise AssertionError


@st.composite
def aggregates(draw: st.DrawFn) -> Aggregate:
    function = draw(st.sampled_from(list(AggregateFunction)))
    kind = draw(st.sampled_from(NUMBERS if function in OF_NUMBERS else SCALARS))
    can_be_distinct = function in (AggregateFunction.COUNT, AggregateFunction.COLLECT)
    return _aggregate(
        function,
        kind,
        distinct=can_be_distinct and draw(st.booleans()),
        key=draw(st.sampled_from(SCALARS)),
        fraction=draw(st.sampled_from([0.0, 0.5, 1.0]) | st.floats(0, 1)),
    )


def _same(one: Any, other: Any, *, approximately: bool) -> bool:
    if approximately and isinstance(one, float) and isinstance(other, float):
        # The squares of tiny deviations are zero.
        slack = max(other.slack, 1e-150) if isinstance(other, Approximate) else 1e-300
        return bool(one == pytest.approx(float(other), rel=1e-9, abs=slack, nan_ok=True))
    return bool(order_key(one) == order_key(other))


@pytest.mark.random
@drawn(12)
@given(each=aggregates(), data=st.data())
def test_an_aggregate_has_the_value_that_the_language_defines(
    each: Aggregate, data: st.DataObject
) -> None:
    assert isinstance(each.argument, PropertyOf)
    column_name = each.argument.name
    kind = COLUMNS[column_name]
    assert isinstance(kind, ScalarType)
    one = VALUES[kind.scalar]
    summed = each.function in (AggregateFunction.SUM, AggregateFunction.AVERAGE)
    if summed and is_float(kind):
        # The order of a sum is free, so only numbers that do not cancel can be compared.
        one = st.floats(0, 2.0**90, width=32)
    values = data.draw(st.lists(st.none() | one, max_size=8))
    columns = {column_name: values}
    if each.function in ORDERED:
        columns |= data.draw(_orders(len(values), each))
    sees_every_row = each.function in OF_EVERY_ROW
    weights = None if sees_every_row else data.draw(st.none() | _weights(len(values)))
    times = weights or [1] * len(values)
    repeated = [
        held({each_name: cells[at] for each_name, cells in columns.items()})
        for at, count in enumerate(times)
        for _ in range(count)
    ]
    try:
        wanted = aggregate(each, repeated, run_of({}))
    except EvaluationError:
        wanted = REFUSED

    fields = [TIE_FIELD if each_name == TIE else SCHEMA.field(each_name) for each_name in columns]
    schema = pa.schema([*fields, pa.field("w", pa.int64())])
    table = pa.table({**columns, "w": times}, schema=schema)
    text = aggregate_sql(
        each,
        column=column,
        parameters=bound({}),
        identity=no_identity,
        weight=None if weights is None else "t.w",
    )
    found = answers(text, table)

    if wanted == REFUSED:
        assert found == REFUSED
    else:
        assert isinstance(found, list)
        computed = each.function in (AggregateFunction.DEVIATION, AggregateFunction.PERCENTILE)
        assert _same(found[0], wanted, approximately=computed or is_float(kind))


@st.composite
def _orders(draw: st.DrawFn, count: int, each: Aggregate) -> dict[str, list[Any]]:
    """The key of each row, often an equal one, and what breaks ties; one of them is null."""
    key, tie = each.by
    assert isinstance(key, PropertyOf)
    assert isinstance(tie, PropertyOf)
    assert isinstance(key.type, ScalarType)
    some = draw(st.lists(st.none() | VALUES[key.type.scalar], min_size=1, max_size=3))
    keys = draw(st.lists(st.sampled_from(some), min_size=count, max_size=count))
    ties = draw(st.permutations([None, *"abcdefg"][:count]))
    return {key.name: keys, tie.name: ties}


def _weights(count: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, 4), min_size=count, max_size=count)


@pytest.mark.parametrize("weight", [None, "t.w"])
def test_aggregates_have_their_declared_type(weight: str | None) -> None:
    found = {}
    table = SCHEMA.append(TIE_FIELD).append(pa.field("w", pa.int64())).empty_table()
    for function in AggregateFunction:
        if function in OF_EVERY_ROW and weight is not None:
            continue
        for kind in NUMBERS:
            each = _aggregate(function, kind, distinct=False)
            text = aggregate_sql(
                each, column=column, parameters=bound({}), identity=no_identity, weight=weight
            )
            found[function, kind] = answers(f"typeof({text})", table) == [sql_type(each.type)]

    assert all(found.values()), found


@pytest.mark.parametrize(
    ("types", "distinct", "wanted"),
    [
        (("A",), False, 4),
        (("A", "B"), False, 4),
        (("A",), True, 2),
        (("A", "B"), True, 3),
    ],
)
def test_entities_are_counted_by_type_and_id(
    types: tuple[str, ...], distinct: bool, wanted: int
) -> None:
    table = pa.table({"kind": ["A", "A", "A", "B", "B"], "key": ["x", "x", "y", "x", None]})
    each = Aggregate(
        function=AggregateFunction.COUNT,
        argument=Entity(variable="x", type=NodeOf(types=types), nullable=True),
        distinct=distinct,
        type=I64,
        nullable=False,
    )

    text = aggregate_sql(
        each, column=column, parameters=bound({}), identity=lambda _: ("kind", "key")
    )

    assert answers(text, table) == [wanted]


def test_a_weighted_count_counts_every_row_that_a_row_stands_for() -> None:
    table = pa.table({"w": pa.array([2, 3], pa.int64())})
    each = Aggregate(
        function=AggregateFunction.COUNT, argument=None, distinct=False, type=I64, nullable=False
    )

    text = aggregate_sql(
        each, column=column, parameters=bound({}), identity=no_identity, weight="w"
    )

    assert answers(text, table) == [5]
    assert answers(text, table.slice(0, 0)) == [0]
