from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from ulid import ULID

from omnigraph_lake.schema.arrow import edge_schema, node_schema
from omnigraph_lake.ulids import new_ulid
from omnigraph_lake.validation.input.intake import TakenIn, id_source, take_in
from tests.schema.compiling import compiled
from tests.validation.graphs import counting_ids

HALVES = [np.float16(number) for number in (9, 9, 1, 2, 3, 4)]
"""Older versions of Arrow make no such numbers of others."""

pytestmark = pytest.mark.unit

CATALOG = compiled(
    """
    node All {
        text: String?  blob: Blob?  yes: Bool?  i32: I32?  i64: I64?  u32: U32?  u64: U64?
        f32: F32?  f64: F64?  day: Date?  at: DateTime?  kind: enum(a, b)?
        words: [String]?  numbers: [I32]?  vector: Vector(2)?
    }
    node Keyed { a: String  b: F64  @key(a, b) }
    node Single { a: F64 @key }
    edge Link: All -> All { note: String? }
    """
)
ALL, LINK = CATALOG.nodes["All"], CATALOG.edges["Link"]


def taken(source: object) -> TakenIn:
    return take_in(ALL, source, new_ids=id_source(counting_ids()))


def column(name: str, values: object) -> list[object]:
    """The stored values of one column; what was refused shows as its reason."""
    source = pa.table({name: values}) if isinstance(values, pa.Array | pa.ChunkedArray) else None
    if source is None:
        assert isinstance(values, list)
        source = [{name: value} for value in values]
    result = taken(source)
    stored: list[object] = result.table.column(name).to_pylist()
    for finding in result.findings:
        for row in finding.rows.to_pylist():
            stored[row] = finding.reason.value
    return stored


def test_the_table_has_exactly_the_columns_of_the_type_in_order() -> None:
    table = taken([{"i64": 1, "text": "x"}]).table

    assert table.schema.equals(node_schema(ALL), check_metadata=True)
    assert table.to_pylist()[0]["i64"] == 1


def test_an_edge_table_starts_with_id_and_both_ends() -> None:
    source = [{"dst": "b", "src": "a"}]

    table = take_in(LINK, source, new_ids=id_source(counting_ids())).table

    assert table.schema.equals(edge_schema(LINK), check_metadata=True)
    assert table.to_pylist() == [{"id": "new1", "src": "a", "dst": "b", "note": None}]


def test_many_edges_get_ids_that_are_new_ordered_and_valid() -> None:
    source = pa.table({"src": ["a"] * 5_000, "dst": ["b"] * 5_000})
    new_ids = id_source(new_ulid)

    first, second = (
        take_in(LINK, source, new_ids=new_ids).table.column("id").to_pylist() for _ in range(2)
    )

    assert len({*first, *second}) == 10_000
    assert first == sorted(first)
    assert {str(ULID.from_str(first[number])) for number in (0, 31, 32, 4_999)} <= {*first}


@pytest.mark.parametrize(
    ("name", "values", "stored"),
    [
        ("i32", [1, 2**31 - 1, 2**31, -(2**31) - 1], [1, 2**31 - 1, *["does_not_fit"] * 2]),
        ("i64", [2**63 - 1, 2**63, -(2**63)], [2**63 - 1, "does_not_fit", -(2**63)]),
        ("u32", [0, -1, 2**32 - 1, 2**32], [0, "does_not_fit", 2**32 - 1, "does_not_fit"]),
        ("u64", [2**64 - 1, 2**63, -1, 2**64], [2**64 - 1, 2**63, "does_not_fit", "wrong_type"]),
        ("i64", [1.0, 1.5, math.nan, 2.0**63], [1, *["does_not_fit"] * 3]),
        ("i64", [Decimal("7.00"), Decimal("7.5")], [7, "does_not_fit"]),
        ("i64", ["1", True, b"1"], ["wrong_type"] * 3),
        ("f64", [2**53 + 1, 2**53 + 2, 3, 2**64], ["does_not_fit", 2.0**53 + 2, 3.0, "wrong_type"]),
        ("f32", [2**24 + 1, 0.5, 1e300, math.inf], ["does_not_fit", 0.5, "does_not_fit", math.inf]),
        ("f64", ["1", Decimal("0.5")], ["wrong_type"] * 2),
        ("yes", [True, False, 1, "true"], [True, False, "wrong_type", "wrong_type"]),
        ("text", ["x", 1, b"x", "a\ud800"], ["x", *["wrong_type"] * 3]),
        ("kind", ["a", "zzz", 1], ["a", "zzz", "wrong_type"]),
        ("blob", [b"", b"x", "x"], [b"", b"x", "wrong_type"]),
        (
            "words",
            [["a", None], [], None, ["a", 1], "a"],
            [["a", None], [], None, *["wrong_type"] * 2],
        ),
        ("numbers", [[1], [2**40], [1.0]], [[1], "does_not_fit", [1]]),
        ("vector", [[1, 2], [1.5, 2], None], [[1.0, 2.0], [1.5, 2.0], None]),
        ("vector", [[1], [], [1, 2, 3], [1, "x"]], [*["vector_size"] * 3, "wrong_type"]),
        ("vector", [[1e300, 1], [0.5, 1]], ["does_not_fit", [0.5, 1.0]]),
    ],
)
def test_python_values_are_taken_over_exactly_or_refused_one_by_one(
    name: str, values: list[object], stored: list[object]
) -> None:
    assert column(name, values) == stored


DAY = dt.date(2024, 1, 31)
TEN = dt.datetime(2024, 1, 31, 10, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (DAY, DAY),
        ("2024-01-31", DAY),
        ("20240131", DAY),
        (dt.datetime(2024, 1, 31), DAY),  # noqa: DTZ001 - naive on purpose
        (TEN, "does_not_fit"),
        ("2024-1-31", "wrong_type"),
        ("31.01.2024", "wrong_type"),
        ("2024-02-30", "wrong_type"),
        (19753, "wrong_type"),
    ],
)
def test_dates_are_dates_or_iso_texts(value: object, stored: object) -> None:
    assert column("day", [value]) == [stored]


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (TEN, TEN),
        (TEN.replace(tzinfo=None), TEN),
        ("2024-01-31T10:00:00Z", TEN),
        ("2024-01-31T12:00:00+02:00", TEN),
        ("2024-01-31 10:00", TEN),
        ("2024-01-31T10", TEN),
        ("2024-01-31T10:00:00.000001", TEN.replace(microsecond=1)),
        ("2024-01-31T10:00:00.0000001", "wrong_type"),
        ("2024-01-31", TEN.replace(hour=0)),
        (DAY, TEN.replace(hour=0)),
        ("noon", "wrong_type"),
        (1, "wrong_type"),
    ],
)
def test_points_in_time_without_a_zone_are_utc(value: object, stored: object) -> None:
    assert column("at", [value]) == [stored]


def test_naive_and_zoned_values_mix_in_one_column() -> None:
    east = dt.timezone(dt.timedelta(hours=2))

    assert column("at", [TEN.replace(tzinfo=None), TEN.astimezone(east)]) == [TEN, TEN]
    assert column("at", ["2024-01-31T10:00", "2024-01-31T12:00+02", "x"]) == [
        TEN,
        TEN,
        "wrong_type",
    ]


def test_finer_times_than_microseconds_are_refused() -> None:
    nanoseconds = pa.array([1_000, 1_001], pa.timestamp("ns"))

    stored = column("at", nanoseconds)

    assert stored == [dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC), "does_not_fit"]


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", None, "b"], pa.large_string()),
        pa.array(["a", None, "b"], pa.string_view()),
        pa.array(["a", None, "b"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(
            pa.array([0, None, 1], pa.uint32()), pa.array(["a", "b"], pa.string_view())
        ),
        pc.run_end_encode(pa.array(["a", None, "b"])),
        pa.chunked_array([["a"], [], [None, "b"]]),
        pa.array(["z", "a", None, "b", "z"]).slice(1, 3),
        pa.array(["z", "a", None, "b", "z"]).dictionary_encode().slice(1, 3),
    ],
    ids=[
        "large",
        "view",
        "dictionary",
        "dictionary_of_views",
        "runs",
        "chunked",
        "sliced",
        "sliced_dictionary",
    ],
)
def test_texts_arrive_from_every_arrow_encoding(array: pa.Array) -> None:
    assert column("text", array) == ["a", None, "b"]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[9, 9], [1, 2], None, [3, 4]], pa.list_(pa.float64())),
        pa.array([[9, 9], [1, 2], None, [3, 4]], pa.large_list(pa.int64())),
        pa.array([[9, 9], [1, 2], None, [3, 4]], pa.list_(pa.float32(), 2)),
        pa.array([[*HALVES[:2]], [*HALVES[2:4]], None, [*HALVES[4:]]], pa.list_view(pa.float16())),
    ],
    ids=["list", "large", "fixed", "view"],
)
def test_vectors_arrive_from_every_kind_of_list_also_sliced(array: pa.Array) -> None:
    assert column("vector", array.slice(1)) == [[1.0, 2.0], None, [3.0, 4.0]]
    assert column("numbers", array.slice(1)) == [[1, 2], None, [3, 4]]


def test_lists_of_views_and_dictionaries_become_lists_of_texts() -> None:
    views = pa.array([["a", None], None, ["b"]], pa.list_(pa.string_view()))
    encoded = pa.array(["a", None, "b"]).dictionary_encode()
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), encoded)

    assert column("words", views) == [["a", None], None, ["b"]]
    assert column("words", lists) == [["a", None], [], ["b"]]


def test_bad_rows_are_found_in_later_chunks_and_slices() -> None:
    chunks = pa.chunked_array([[1, 2], [2**40], [3, 2**41]])

    assert column("i32", chunks) == [1, 2, "does_not_fit", 3, "does_not_fit"]
    assert column("i32", chunks.slice(2)) == ["does_not_fit", 3, "does_not_fit"]


def test_columns_of_nulls_fit_every_type() -> None:
    names = ALL.properties
    table = pa.table({name: pa.nulls(2) for name in names})

    assert taken(table).findings == ()
    assert taken([dict.fromkeys(names), {}]).findings == ()
    assert taken(table).table.drop_columns(["id"]).to_pylist() == [dict.fromkeys(names)] * 2


@pytest.mark.parametrize("source", [[], pa.table({}), node_schema(ALL).empty_table()])
def test_an_empty_input_is_an_empty_table_without_faults(source: object) -> None:
    result = taken(source)

    assert result.table.schema == node_schema(ALL)
    assert len(result.table) == 0
    assert result.findings == ()


def test_an_unknown_column_is_one_fault_with_a_suggestion() -> None:
    (finding,) = taken([{"txet": "x"}, {"txet": "y"}]).findings

    assert finding.reason == "unknown_column"
    assert finding.count == 1
    assert finding.kept[0].row is None
    assert "did you mean `text`?" in finding.kept[0].message


def test_a_repeated_column_is_one_fault() -> None:
    (finding,) = taken(pa.table([["a"], ["b"]], names=["text", "text"])).findings

    assert finding.reason == "duplicate_column"


def test_a_message_names_the_value_and_the_type() -> None:
    (finding,) = taken([{"i32": "many"}]).findings

    assert finding.kept[0].message == "found 'many', expected I32"
    assert finding.kept[0].row == 0


def keyed(rows: Sequence[object]) -> TakenIn:
    return take_in(CATALOG.nodes["Keyed"], rows, new_ids=id_source(counting_ids()))


def test_keyed_nodes_get_the_id_their_key_spells() -> None:
    result = keyed([{"a": "x", "b": -0.0}, {"a": "ü", "b": 1}, {"a": "y", "b": 2.5, "id": None}])

    assert result.table["id"].to_pylist() == ['["x","0"]', '["ü","1"]', '["y","2.5"]']
    assert result.findings == ()


def test_an_explicit_id_must_be_the_canonical_one() -> None:
    rows = [{"a": 1.0, "id": "1"}, {"a": 1.5, "id": "1.50"}]

    result = take_in(CATALOG.nodes["Single"], rows, new_ids=id_source(counting_ids()))

    assert result.table["id"].to_pylist() == ["1", "1.5"]
    (finding,) = result.findings
    assert (finding.reason, finding.rows.to_pylist()) == ("bad_id", [1])
    assert finding.kept[0].message == "found '1.50', expected '1.5', which is derived from the key"


def test_a_key_that_spells_no_id_leaves_it_null() -> None:
    rows = [
        {"a": "x", "b": math.nan},
        {"a": None, "b": 1},
        {"a": "x", "b": math.inf},
        {"a": "x", "b": 1},
    ]

    assert keyed(rows).table["id"].to_pylist() == [None, None, None, '["x","1"]']


def test_given_ids_are_kept_and_missing_ones_made() -> None:
    rows = [{"id": "ä"}, {"id": None}, {}, {"id": "z"}]

    assert taken(rows).table["id"].to_pylist() == ["ä", "new1", "new2", "z"]


def test_an_unreadable_id_is_not_replaced_by_a_new_one() -> None:
    result = taken([{"id": 5}, {"id": None}])

    assert result.table["id"].to_pylist() == [None, "new1"]
    assert [each.reason for each in result.findings] == ["wrong_type"]


ANY_ARROW = [
    pa.array([1, None, -1], pa.int8()),
    pa.array([1, None, 2**64 - 1], pa.uint64()),
    pa.array([1.5, math.nan, -math.inf], pa.float64()),
    pa.array([HALVES[2], None, HALVES[0]], pa.float16()),
    pa.array([Decimal("1.50"), None], pa.decimal128(38, 2)),
    pa.array([Decimal("1.50"), None], pa.decimal256(76, 2)),
    pa.array([True, None]),
    pa.array(["1", None, "\x00", "2024-01-01", ""]),
    pa.array([b"\xff", None, b""]),
    pa.array([b"ab", None], pa.binary(2)),
    pa.array([b"ab", None], pa.binary_view()),
    pa.array([0, None, 2**31 - 1, -(2**31)], pa.date32()),
    pa.array([0, None, 86_400_000], pa.date64()),
    pa.array([2**62, None, -(2**62)], pa.timestamp("s")),
    pa.array([2**62, None, -(2**62)], pa.timestamp("ns", "Asia/Tokyo")),
    pa.array([1, None], pa.time64("us")),
    pa.array([1, None], pa.duration("s")),
    pa.array([{"x": 1}, None]),
    pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    pa.array([[[1]], None, []], pa.list_(pa.list_(pa.int64()))),
    pa.array([[{"x": 1}], None, []]),
    pa.array([["x", "y"], None, [None, None]]),
    pa.array([[1.5, 2], None, [None, 1]], pa.list_(pa.float64(), 2)),
    pa.array([None, None]),
]


@pytest.mark.parametrize("array", ANY_ARROW, ids=lambda array: str(array.type))
def test_no_arrow_type_makes_a_cast_fail_as_a_whole(array: pa.Array) -> None:
    for source in (array, array.slice(1), array.slice(0, 0), pa.chunked_array([array, array])):
        result = taken(pa.table(dict.fromkeys(ALL.properties, source)))

        given = source.is_valid().to_pylist()
        refused = {
            (finding.columns[0], row)
            for finding in result.findings
            for row in finding.rows.to_pylist()
        }
        for name in ALL.properties:
            assert result.table[name].is_valid().to_pylist() == [
                valid and (name, row) not in refused for row, valid in enumerate(given)
            ]
        result.table.validate(full=True)
