"""Values of existing rows after a change, against a plain retelling of what a column says."""

from __future__ import annotations

import datetime as dt
import functools
import math
import pickle
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.evolution.lifting import TableLift
from omnigraph_lake.evolution.plan.columns import (
    CopyFill,
    Fill,
    FutureColumn,
    LiteralFill,
    StoredColumn,
    ValueMapping,
    copies,
)
from omnigraph_lake.evolution.table_changes import columns_read, future_values
from omnigraph_lake.schema.arrow import arrow_type
from omnigraph_lake.schema.catalog import (
    FLOATS,
    INTEGERS,
    WITHOUT_ORDER,
    DecimalType,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
)
from tests.drawing import drawn

pytestmark = pytest.mark.unit

VALUES = ("a", "b", "c", "ä")
LIMITS = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}
TYPES: list[PropertyType] = [
    *(ScalarType(scalar=each) for each in Scalar if each not in WITHOUT_ORDER),
    EnumType(values=("a", "b")),
    EnumType(values=VALUES),
    ListType(item=Scalar.I64),
    ListType(item=Scalar.STRING),
    VectorType(size=2),
]
moments = st.datetimes(
    dt.datetime(1, 1, 2),  # noqa: DTZ001 - a zone is given below
    dt.datetime(9999, 12, 30),  # noqa: DTZ001
    timezones=st.just(dt.UTC),
)


def values(kind: PropertyType) -> st.SearchStrategy[Any]:
    """Whatever a column of this type can hold, but null."""
    match kind:
        case ScalarType(scalar=scalar):
            return scalars(scalar)
        case DecimalType():
            most = 10**kind.precision - 1
            units = st.integers(-most, most)
            return units.map(lambda number: Decimal(f"{number}e-{kind.scale}"))
        case EnumType(values=allowed):
            return st.sampled_from(allowed)
        case ListType(item=item):
            return st.lists(st.none() | scalars(item), max_size=3)
        case VectorType(size=size):
            return st.lists(st.floats(width=32), min_size=size, max_size=size)


def scalars(scalar: Scalar) -> st.SearchStrategy[Any]:
    if scalar in INTEGERS:
        low, high = LIMITS[scalar]
        return st.integers(low, high)
    if scalar in FLOATS:
        return st.floats(width=32 if scalar is Scalar.F32 else 64)
    others: dict[Scalar, st.SearchStrategy[Any]] = {
        Scalar.STRING: st.sampled_from(VALUES) | st.text(max_size=4),
        Scalar.BOOL: st.booleans(),
        Scalar.DATE: st.dates(),
        Scalar.DATETIME: moments,
    }
    return others[scalar]


def literals(kind: PropertyType) -> st.SearchStrategy[Any]:
    match kind:
        case ScalarType(scalar=scalar) if scalar in FLOATS:
            finite = st.decimals(-(10**9), 10**9, allow_nan=False, places=9)
            return finite | st.integers(-(2**70), 2**70)
        case ScalarType(scalar=Scalar.DATE):
            return st.dates().map(dt.date.isoformat)
        case ScalarType(scalar=Scalar.DATETIME):
            return moments.map(lambda each: each.isoformat(timespec="microseconds"))
        case _:
            return values(kind)


@st.composite
def columns(draw: st.DrawFn) -> FutureColumn:
    stored = draw(st.none() | st.sampled_from(TYPES))
    texts = [EnumType(values=VALUES), ScalarType(scalar=Scalar.STRING)]
    wider = [each for each in TYPES if stored is not None and copies(stored, each)]
    kind = draw(st.sampled_from(TYPES if stored is None else wider))
    mapping: tuple[ValueMapping, ...] = ()
    if stored in texts and kind in texts and draw(st.booleans()):
        pairs = draw(st.dictionaries(st.sampled_from(VALUES), st.sampled_from(VALUES)))
        mapping = tuple(ValueMapping(old=old, new=new) for old, new in pairs.items())
    return FutureColumn(
        name="new",
        type=kind,
        stored=None if stored is None else StoredColumn(name="old", type=stored),
        mapping=mapping,
        fill=draw(fills(kind)),
    )


def fills(kind: PropertyType) -> st.SearchStrategy[Fill | None]:
    found: list[st.SearchStrategy[Fill | None]] = [st.none()]
    if not isinstance(kind, ListType | VectorType):
        found.append(literals(kind).map(lambda each: LiteralFill(value=each)))
    sources = [each for each in TYPES if copies(each, kind)]
    found.append(
        st.sampled_from(sources).map(
            lambda each: CopyFill(source=StoredColumn(name="other", type=each))
        )
    )
    return st.one_of(found)


def expected(column: FutureColumn, row: dict[str, Any]) -> Any:
    value = None if column.stored is None else row["old"]
    for pair in column.mapping:
        if value is not None and row["old"] == pair.old:
            value = pair.new
    if value is None:
        match column.fill:
            case LiteralFill(value=literal):
                return typed(literal, column.type)
            case CopyFill():
                value = row["other"]
            case None:
                return None
    return typed(value, column.type)


def typed(value: Any, kind: PropertyType) -> Any:
    if value is None or not isinstance(kind, ScalarType):
        return value
    match kind.scalar:
        case Scalar.F64:
            return float(value)
        case Scalar.F32:
            return struct.unpack("<f", struct.pack("<f", float(value)))[0]
        case Scalar.DATE if isinstance(value, str):
            return dt.date.fromisoformat(value)
        case Scalar.DATETIME if isinstance(value, str):
            return dt.datetime.fromisoformat(value)
        case _:
            return value


def spelt(value: Any) -> Any:
    """Equal exactly if two values are the same: NaN is, and the zeros are not."""
    if isinstance(value, list):
        return [spelt(each) for each in value]
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat()
    return (type(value), repr(value))


@pytest.mark.random
@drawn(30)
@given(st.data(), columns())
def test_values_are_what_the_column_says(data: st.DataObject, column: FutureColumn) -> None:
    kinds = {} if column.stored is None else {"old": column.stored.type}
    if isinstance(column.fill, CopyFill):
        kinds["other"] = column.fill.source.type
    rows = data.draw(
        st.lists(st.fixed_dictionaries({n: st.none() | values(k) for n, k in kinds.items()}))
    )
    stored = {
        name: pa.array([row[name] for row in rows], arrow_type(kind))
        for name, kind in kinds.items()
    }
    batch = pa.record_batch({**stored, "_rowaddr": pa.array(range(len(rows)), pa.uint64())})
    first = data.draw(st.integers(0, len(rows)))

    found = future_values(batch, (column,))
    later = future_values(batch.slice(first), (column,))

    assert set(columns_read([column])) == set(kinds)
    assert found.schema.names == ["new"]
    assert found.column(0).type == arrow_type(column.type)
    assert list(map(spelt, found.column(0).to_pylist())) == [
        spelt(expected(column, row)) for row in rows
    ]
    assert list(map(spelt, later.column(0).to_pylist())) == [
        spelt(expected(column, row)) for row in rows[first:]
    ]


EXACT = [
    (Scalar.U64, 2**64 - 1, 2**64 - 1),
    (Scalar.I64, -(2**63), -(2**63)),
    (Scalar.I64, 2**53 + 1, 2**53 + 1),
    (Scalar.F64, Decimal("0.1"), 0.1),
    (Scalar.F32, Decimal("0.1"), struct.unpack("<f", struct.pack("<f", 0.1))[0]),
    (Scalar.F32, 16_777_217, 16_777_216.0),
    (Scalar.F64, 2**53 + 1, float(2**53)),
    (Scalar.BOOL, False, False),
    (Scalar.STRING, "", ""),
    (Scalar.STRING, "2026-01-31", "2026-01-31"),
    (Scalar.DATE, "2026-01-31", dt.date(2026, 1, 31)),
    (Scalar.DATE, "0001-01-01", dt.date(1, 1, 1)),
    (
        Scalar.DATETIME,
        "2026-01-31T10:00:00.000001+00:00",
        dt.datetime(2026, 1, 31, 10, 0, 0, 1, tzinfo=dt.UTC),
    ),
]


@pytest.mark.parametrize(("scalar", "literal", "value"), EXACT)
def test_literals_are_exact_in_new_columns_and_where_nothing_is(
    scalar: Scalar, literal: Any, value: Any
) -> None:
    kind = ScalarType(scalar=scalar)
    held = StoredColumn(name="old", type=kind)
    fill = LiteralFill(value=literal)
    batch = pa.record_batch({"old": pa.nulls(2, arrow_type(kind))})

    found = future_values(
        batch,
        (
            FutureColumn(name="new", type=kind, stored=None, fill=fill),
            FutureColumn(name="filled", type=kind, stored=held, fill=fill),
        ),
    )

    assert found.to_pylist() == [{"new": value, "filled": value}] * 2


def test_mapped_values_are_replaced_all_at_once() -> None:
    column = FutureColumn(
        name="s",
        type=EnumType(values=("a", "b")),
        stored=StoredColumn(name="s", type=EnumType(values=("a", "b"))),
        mapping=(ValueMapping(old="a", new="b"), ValueMapping(old="b", new="a")),
    )

    found = future_values(pa.record_batch({"s": ["a", None, "b"]}), (column,))

    assert found.column(0).to_pylist() == ["b", None, "a"]


def test_columns_are_computed_from_what_was_stored_and_not_from_each_other() -> None:
    kind = ScalarType(scalar=Scalar.I32)
    x, y = (StoredColumn(name=name, type=kind) for name in "xy")
    columns = (
        FutureColumn(name="x", type=kind, stored=x, fill=CopyFill(source=y)),
        FutureColumn(name="y", type=kind, stored=y, fill=CopyFill(source=x)),
    )
    batch = pa.record_batch({"x": pa.array([1, None, None]), "y": pa.array([None, 2, None])})

    found = future_values(batch, columns)

    assert found.to_pylist() == [{"x": 1, "y": 1}, {"x": 2, "y": 2}, {"x": None, "y": None}]


def test_a_computation_can_be_sent_to_another_process() -> None:
    kind = ScalarType(scalar=Scalar.F64)
    column = FutureColumn(name="n", type=kind, stored=None, fill=LiteralFill(value=Decimal("1.5")))
    compute = functools.partial(future_values, columns=(column,))

    again = pickle.loads(pickle.dumps(compute))  # noqa: S301

    assert again(pa.record_batch({"_rowaddr": [1, 2]})).to_pylist() == [{"n": 1.5}] * 2


def test_values_that_are_no_numbers_stay_so_in_wider_columns() -> None:
    narrow, wide = ScalarType(scalar=Scalar.F32), ScalarType(scalar=Scalar.F64)
    column = FutureColumn(
        name="n",
        type=wide,
        stored=StoredColumn(name="n", type=narrow),
        fill=LiteralFill(value=0),
    )
    batch = pa.record_batch({"n": pa.array([math.nan, math.inf, -0.0, None], pa.float32())})

    found = future_values(batch, (column,)).column(0).to_pylist()

    assert list(map(repr, found)) == ["nan", "inf", "-0.0", "0.0"]


def test_rows_of_which_no_column_is_computed_keep_their_number() -> None:
    """A table that only gets columns of nulls asks for none."""
    rows = pa.record_batch({"id": ["a", "b"], "n": [1, None]})
    lift = TableLift(steps=((),), stored=rows.schema, schema=rows.schema, is_known=True)

    assert lift.lift(rows, ()).num_rows == 2
