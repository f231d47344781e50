"""Canonical key values and node ids, one by one and as columns."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.ids import (
    canonical_column,
    canonical_tuples,
    canonical_value,
    node_id,
    node_ids,
)
from omnigraph_lake.schema.arrow import arrow_type
from omnigraph_lake.schema.catalog import NodeType, Property
from tests.drawing import drawn
from tests.schema.compiling import compiled

pytestmark = pytest.mark.unit


def member(spelling: str) -> Property:
    return compiled(f"node A {{ x: {spelling} }}").nodes["A"].properties["x"]


def keyed(body: str) -> NodeType:
    return compiled(f"node A {{ {body} }}").nodes["A"]


def f32(value: float) -> float:
    narrowed: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return narrowed


@pytest.mark.parametrize(
    ("spelling", "value", "expected"),
    [
        ("String", "", ""),
        ("String", 'a "b" \\ ü 😀', 'a "b" \\ ü 😀'),
        ("enum(a, b)", "a", "a"),
        ("Bool", True, "true"),
        ("Bool", False, "false"),
        ("I32", -5, "-5"),
        ("U64", 2**64 - 1, "18446744073709551615"),
        ("Date", dt.date(1970, 1, 2), "1"),
        ("Date", dt.date(1969, 12, 31), "-1"),
        ("DateTime", dt.datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=dt.UTC), "1000005"),
        ("DateTime", dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC), "-1"),
        ("F64", 0.1, "0.1"),
        ("F64", 3.0, "3"),
        ("F64", 7, "7"),
        ("F64", 0.0, "0"),
        ("F64", -0.0, "0"),
        ("F64", 1e16, "1e+16"),
        ("F64", 1e-7, "1e-07"),
        ("F64", 5e-324, "5e-324"),
        ("F32", 0.1, "0.1"),
        ("F32", -0.0, "0"),
        ("F32", 16777216.0, "16777216"),
        ("F32", 3.4028234663852886e38, "3.4028235e+38"),
        ("F32", 1e-45, "1e-45"),
    ],
)
def test_a_value_has_one_spelling_alone_and_in_a_column(
    spelling: str, value: object, expected: str
) -> None:
    one = member(spelling)
    column = pa.array([value], arrow_type(one.type))

    assert canonical_value(one, value) == expected
    assert canonical_column(one, column).to_pylist() == [expected]


def test_the_instant_decides_and_not_its_time_zone() -> None:
    zone = dt.timezone(dt.timedelta(hours=5, minutes=30))

    assert canonical_value(
        member("DateTime"), dt.datetime(1970, 1, 1, 5, 30, tzinfo=zone)
    ) == canonical_value(member("DateTime"), dt.datetime(1970, 1, 1, tzinfo=dt.UTC))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("spelling", ["F32", "F64"])
def test_numbers_that_are_not_finite_are_refused(spelling: str, value: float) -> None:
    one = member(spelling)

    with pytest.raises(InvalidInputError, match="finite"):
        canonical_value(one, value)
    with pytest.raises(InvalidInputError, match="finite"):
        canonical_column(one, pa.array([1.0, value], arrow_type(one.type)))


@pytest.mark.parametrize(
    ("spelling", "value"),
    [
        *(("String", None), ("String", 5), ("String", "\ud800"), ("I32", True), ("I32", 1.0)),
        *(("Bool", 1), ("F64", True), ("F64", "1"), ("F32", 1e39), ("F64", 10**400)),
        ("Date", dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        ("DateTime", dt.datetime(1970, 1, 1)),  # noqa: DTZ001 - a time without zone is refused
        ("DateTime", dt.date(1970, 1, 1)),
        *(("[I32]", [1]), ("Vector(1)", [1.0]), ("Blob", b"x")),
    ],
)
def test_a_value_of_another_type_is_refused(spelling: str, value: object) -> None:
    with pytest.raises(InvalidInputError):
        canonical_value(member(spelling), value)


def test_a_null_in_a_key_column_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="null"):
        canonical_column(member("String"), pa.array(["a", None]))


def test_a_single_key_is_its_own_id() -> None:
    node = keyed("x: I32 @key y: String")

    assert node_id(node, {"x": 5, "y": "ignored"}) == "5"
    assert node_ids(node, pa.record_batch({"x": pa.array([5, 6], pa.int32())})).to_pylist() == [
        "5",
        "6",
    ]


def test_a_composite_id_is_ordered_by_property_number_not_by_the_key() -> None:
    node = keyed("b: String a: I32 @key(a, b)")

    assert node_id(node, {"a": 1, "b": "ü\n"}) == '["ü\\n","1"]'


def test_a_node_without_key_has_no_canonical_id() -> None:
    with pytest.raises(InvalidInputError, match="no key"):
        node_id(keyed("x: I32"), {"x": 1})


def test_a_table_gives_one_chunk_of_ids_per_batch() -> None:
    node = keyed("x: String y: I32 @key(x, y)")
    batch = pa.record_batch({"x": ["a", "b"], "y": pa.array([1, 2], pa.int32())})

    ids = node_ids(node, pa.Table.from_batches([batch, batch]))

    assert ids.type == pa.string()
    assert ids.to_pylist() == ['["a","1"]', '["b","2"]'] * 2
    assert node_ids(node, batch.slice(0, 0)).to_pylist() == []
    assert len(node_ids(node, pa.Table.from_batches([], batch.schema))) == 0


def test_other_arrow_spellings_of_a_column_are_accepted() -> None:
    one = member("String")
    column = pa.array(["a", "b", "a"])

    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        assert canonical_column(one, column.cast(kind)).to_pylist() == ["a", "b", "a"]


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "String": st.text(st.characters(codec="utf-8"), max_size=8),
    "I64": st.integers(-(2**63), 2**63 - 1),
    "U64": st.integers(0, 2**64 - 1),
    "F64": st.floats(allow_nan=False, allow_infinity=False),
    "F32": st.floats(allow_nan=False, allow_infinity=False, width=32),
    "Bool": st.booleans(),
    "Date": st.dates(),
    "DateTime": st.datetimes(timezones=st.just(dt.UTC)),
}
NODE = keyed(
    " ".join(f"p{i}: {spelling}" for i, spelling in enumerate(VALUES))
    + f" @key({', '.join(f'p{i}' for i in range(len(VALUES)))})"
)
ROWS = st.lists(st.tuples(*VALUES.values()), max_size=5)


@pytest.mark.random
@drawn(15)
@given(ROWS)
def test_rows_and_columns_agree_on_every_id(rows: list[tuple[Any, ...]]) -> None:
    members = tuple(NODE.properties.values())
    batch = pa.record_batch(
        [
            pa.array([row[i] for row in rows], arrow_type(each.type))
            for i, each in enumerate(members)
        ],
        names=[each.name for each in members],
    )

    one_by_one = [node_id(NODE, {f"p{i}": value for i, value in enumerate(row)}) for row in rows]

    assert canonical_tuples(members, batch).to_pylist() == one_by_one
    assert all(len(json.loads(each)) == len(members) for each in one_by_one)


@pytest.mark.random
@drawn(50)
@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_a_32_bit_spelling_reads_back_as_the_same_number(value: float) -> None:
    spelt = canonical_value(member_f32, value)

    assert f32(float(spelt)) == value
    assert len(Decimal(spelt).normalize().as_tuple().digits) <= 9


member_f32 = member("F32")
