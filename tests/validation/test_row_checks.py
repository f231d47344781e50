from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from omnigraph_lake.validation.constraints import (
    FiniteKey,
    FullVector,
    InEnum,
    InRange,
    Matches,
    ProperId,
    Required,
    RowRule,
    TypeRules,
)
from omnigraph_lake.validation.row_checks import check_rows
from omnigraph_lake.validation.violations import BadRows

pytestmark = pytest.mark.unit


def found(rule: RowRule, column: pa.Array, **more: pa.Array) -> list[BadRows]:
    columns = {"c": column, **more}
    ids = pa.array([f"r{row}" for row in range(len(column))])
    table = pa.table({"id": ids, **columns} if "id" not in columns else columns)
    rules = TypeRules(table_key="node:T", row_rules=(rule,), keyed_rules=())
    whole = check_rows(table, rules)
    # The same rows as one batch, as a cluster task sees them.
    batch = check_rows(table.combine_chunks().to_batches()[0], rules) if len(table) else whole
    assert whole == batch
    return list(whole)


def bad(rule: RowRule, column: pa.Array, **more: pa.Array) -> list[int]:
    return [row for each in found(rule, column, **more) for row in each.rows.to_pylist()]


def test_a_required_column_is_not_null() -> None:
    assert bad(Required(column="c"), pa.array([1, None, 0])) == [1]
    assert bad(Required(column="c"), pa.nulls(2, pa.string())) == [0, 1]


def test_a_required_vector_may_be_missing_while_its_text_is_there() -> None:
    rule = Required(column="c", unless_present="text")
    vectors = pa.array([None, None, [1.0]], pa.list_(pa.float32(), 1))

    assert bad(rule, vectors, text=pa.array(["t", None, None])) == [1]


def test_a_value_outside_the_set_is_named_with_the_set() -> None:
    (finding,) = found(InEnum(column="c", values=("a", "b")), pa.array(["a", None, "B"]))

    assert finding.rows.to_pylist() == [2]
    assert finding.kept[0].message == "found 'B', expected one of a, b"
    assert finding.kept[0].id == "r2"


TOP = 2**63 - 1


@pytest.mark.parametrize(
    ("low", "high", "column", "rows"),
    [
        (0, 150, pa.array([0, 150, -1, 151, None], pa.int32()), [2, 3]),
        (None, 10, pa.array([11, -(2**31)], pa.int32()), [0]),
        (10, None, pa.array([9, 10], pa.uint32()), [0]),
        (TOP - 1, TOP, pa.array([TOP, TOP - 1, TOP - 2], pa.int64()), [2]),
        (2**53, 2**53, pa.array([2**53 + 1, 2**53], pa.int64()), [0]),
        (2**64 - 1, None, pa.array([2**64 - 1, 2**64 - 2], pa.uint64()), [1]),
        (2**64, None, pa.array([2**64 - 1, None], pa.uint64()), [0]),
        (-5, None, pa.array([0], pa.uint64()), []),
        (None, -1, pa.array([0, None], pa.uint32()), [0]),
        (-(10**30), 10**30, pa.array([TOP, -TOP], pa.int64()), []),
        (Decimal("0.5"), Decimal("1.5"), pa.array([0, 1, 2], pa.int32()), [0, 2]),
        (Decimal("-0.5"), None, pa.array([-1, 0], pa.int32()), [0]),
        (Decimal("0.2"), Decimal("0.8"), pa.array([0, 1, None], pa.int32()), [0, 1]),
        (Decimal("9223372036854775806.5"), None, pa.array([TOP, TOP - 1], pa.int64()), [1]),
        (None, Decimal("0.1"), pa.array([0.1, 0.1000001, None], pa.float32()), [1]),
        (None, Decimal("0.1"), pa.array([0.1, math.nextafter(0.1, 1)], pa.float64()), [1]),
        (0, None, pa.array([-0.0, math.nan, math.inf, -math.inf], pa.float64()), [1, 3]),
        (None, None, pa.array([math.nan, 1.0]), [0]),
        (None, 10**400, pa.array([1e308, math.inf]), []),
        (-(10**400), None, pa.array([-1e308]), []),
        (0, 1, pa.nulls(2, pa.float32()), []),
        (0, 1, pa.array([], pa.int64()), []),
    ],
)
def test_ranges_are_inclusive_exact_and_refuse_nan(
    low: Any, high: Any, column: pa.Array, rows: list[int]
) -> None:
    assert bad(InRange(column="c", low=low, high=high), column) == rows


def test_a_pattern_matches_anywhere_and_null_is_exempt() -> None:
    texts = pa.array(["xay", "b", None, "", "ä"])

    assert bad(Matches(column="c", pattern="a"), texts) == [1, 3, 4]
    assert bad(Matches(column="c", pattern="^$|ä"), texts) == [0, 1]


def test_an_id_is_not_empty_not_long_and_has_no_control_characters() -> None:
    ids = pa.array(["a", "", "a\x00", "a\nb", "a\x85", "ü" * 2048, "ü" * 2049, "é 🦉", None])

    assert bad(ProperId(column="id"), ids, id=ids) == [1, 2, 3, 4, 6]


def test_a_number_in_a_key_is_finite() -> None:
    numbers = pa.array([1.0, math.nan, math.inf, -math.inf, -0.0, None])

    assert bad(FiniteKey(column="c"), numbers) == [1, 2, 3]


def test_a_vector_has_no_null_items() -> None:
    kind = pa.list_(pa.float32(), 2)
    vectors = pa.array([[1, 2], None, [None, 1], [1, 2], [1, None]], kind)

    assert bad(FullVector(column="c"), vectors) == [2, 4]
    assert bad(FullVector(column="c"), vectors.slice(2)) == [0, 2]
    assert bad(FullVector(column="c"), pa.chunked_array([vectors, vectors.slice(2)])) == [
        2,
        4,
        5,
        7,
    ]


def test_a_cell_that_was_refused_before_is_not_also_missing() -> None:
    table = pa.table({"id": ["a", "b"], "c": pa.nulls(2, pa.int32())})
    rules = TypeRules(table_key="node:T", row_rules=(Required(column="c"),), keyed_rules=())

    (finding,) = check_rows(table, rules, unreadable={"c": pa.array([0], pa.int64())})

    assert finding.rows.to_pylist() == [1]
    assert finding.kept[0].message == "found nothing, expected a value"
