"""Row rules over an Arrow table or batch, one kernel per rule.

Invariant: pure. The same rows and rules give the same findings, in a loop here or in a cluster
task; a row's findings do not depend on any other row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.schema.arrow import find_true
from omnigraph_lake.schema.catalog import Number
from omnigraph_lake.schema.json_text import is_canonical
from omnigraph_lake.schema.python_values import outside_the_years
from omnigraph_lake.validation import constraints
from omnigraph_lake.validation.input.mentions import Mentions
from omnigraph_lake.validation.violations import BadRows, bad_rows, shown_scalar

_CONTROL: Final = r"\p{Cc}"


def check_rows(
    rows: pa.Table | pa.RecordBatch,
    rules: constraints.TypeRules,
    *,
    unreadable: Mapping[str, pa.Int64Array] | None = None,
    mentions: Mentions | None = None,
) -> tuple[BadRows, ...]:
    """Every row that breaks a row rule.

    `unreadable` names cells that are null because they were refused already: they are not reported
    a second time as missing. `mentions` are those of partial records: a value that such a record
    does not mention is not missing if the record has an id, because a published row may have it.
    """
    findings = []
    for rule in rules.row_rules:
        broken = _broken(rule, rows)
        if mentions is not None and isinstance(rule, constraints.Required):
            broken = pc.and_(broken, _is_final(rule, rows, mentions))
        bad = find_true(broken).cast(pa.int64())
        refused = (unreadable or {}).get(rule.column)
        if refused is not None and len(bad):
            bad = bad.filter(pc.invert(pc.is_in(bad, refused)))
        if len(bad):
            findings.append(_finding(rule, rules.table_key, rows, bad))
    return tuple(findings)


def _broken(  # noqa: C901, PLR0912 - one per rule
    rule: constraints.RowRule, rows: pa.Table | pa.RecordBatch
) -> pa.Array | pa.ChunkedArray:
    """True where the rule is broken; null counts as false."""
    column = rows.column(rule.column)
    match rule:
        case constraints.Required():
            broken = column.is_null()
            if rule.unless_present is not None:
                broken = pc.and_(broken, rows.column(rule.unless_present).is_null())
        case constraints.ProperId():
            broken = _improper(column, rule)
        case constraints.FiniteKey():
            broken = pc.invert(pc.is_finite(column))
        case constraints.FullVector():
            broken = _with_null_items(column)
        case constraints.InEnum():
            allowed = pa.array(rule.values, column.type)
            broken = pc.and_(column.is_valid(), pc.invert(pc.is_in(column, allowed)))
        case constraints.InRange():
            broken = _outside(column, rule)
        case constraints.InYears():
            broken = _with_odd_times(column)
        case constraints.Matches():
            broken = pc.invert(pc.match_substring_regex(column, pattern=rule.pattern))
        case constraints.CanonicalJson():
            texts = column.to_pylist()
            flags = [text is not None and not is_canonical(text) for text in texts]
            broken = pa.array(flags, pa.bool_())
        case _:
            assert_never(rule)
    return broken


def _is_final(
    rule: constraints.Required, rows: pa.Table | pa.RecordBatch, mentions: Mentions
) -> pa.BooleanArray:
    """The rows whose value is missing whatever is published."""
    final = mentions.mask(rule.column, rows.num_rows)
    if rule.unless_present is not None:
        final = pc.and_(final, mentions.mask(rule.unless_present, rows.num_rows))
    return pc.or_(final, rows.column(ID_COLUMN).is_null())


def _improper(
    column: pa.Array | pa.ChunkedArray, rule: constraints.ProperId
) -> pa.Array | pa.ChunkedArray:
    size = pc.binary_length(column)
    wrong_size = pc.or_(pc.equal(size, 0), pc.greater(size, rule.bytes_max))
    return pc.or_(wrong_size, pc.match_substring_regex(column, pattern=_CONTROL))


def _with_null_items(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_with_null_items(chunk) for chunk in column.chunks], pa.bool_())
    items = column.flatten()
    broken = np.zeros(len(column), dtype=np.bool_)
    if items.null_count:
        present = find_true(column.is_valid()).to_numpy()
        holes = find_true(items.is_null()).to_numpy()
        broken[present[holes // column.type.list_size]] = True
    return pa.array(broken)


def _outside(
    column: pa.Array | pa.ChunkedArray, rule: constraints.InRange
) -> pa.Array | pa.ChunkedArray:
    if pat.is_floating(column.type):
        low, high = _float_bound(rule.low, column.type), _float_bound(rule.high, column.type)
        broken = pc.is_nan(column)
    else:
        low, high, impossible = _exact_bounds(rule, column.type)
        broken = column.is_valid() if impossible else pc.and_(column.is_valid(), pa.scalar(False))  # noqa: FBT003
    if low is not None:
        broken = pc.or_(broken, pc.less(column, low))
    if high is not None:
        broken = pc.or_(broken, pc.greater(column, high))
    return broken


def _with_odd_times(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if not pat.is_list(column.type):
        return outside_the_years(column)
    odd = outside_the_years(pc.list_flatten(column)).fill_null(fill_value=False)
    lists = pc.list_parent_indices(column).filter(odd)
    return pc.is_in(pa.array(range(len(column)), lists.type), lists)


def _float_bound(bound: Number | None, kind: pa.DataType) -> pa.Scalar | None:
    if bound is None:
        return None
    try:
        nearest = float(bound)
    except OverflowError:
        nearest = math.inf if bound > 0 else -math.inf
    return pa.scalar(nearest, pa.float64()).cast(kind)


def _exact_bounds(
    rule: constraints.InRange, kind: pa.DataType
) -> tuple[pa.Scalar | None, pa.Scalar | None, bool]:
    """The bounds as values of the column, None where every value passes; or nothing can pass."""
    scale = kind.scale if pat.is_decimal(kind) else 0
    least, most = _limits(kind)
    low = least if rule.low is None else math.ceil(Fraction(rule.low) * 10**scale)
    high = most if rule.high is None else math.floor(Fraction(rule.high) * 10**scale)
    if low > most or high < least or low > high:
        return None, None, True
    return (
        _scalar_of_units(low, kind) if low > least else None,
        _scalar_of_units(high, kind) if high < most else None,
        False,
    )


def _limits(kind: pa.DataType) -> tuple[int, int]:
    """The least and the greatest value of a column, in units of its last digit."""
    if pat.is_decimal(kind):
        return 1 - 10**kind.precision, 10**kind.precision - 1
    signed = pat.is_signed_integer(kind)
    least = -(2 ** (kind.bit_width - 1)) if signed else 0
    return least, 2 ** (kind.bit_width - signed) - 1


def _scalar_of_units(units: int, kind: pa.DataType) -> pa.Scalar:
    exact = (
        Decimal((units < 0, tuple(map(int, str(abs(units)))), -kind.scale))
        if (pat.is_decimal(kind))
        else units
    )
    return pa.scalar(exact, kind)


def _finding(
    rule: constraints.RowRule, table_key: str, rows: pa.Table | pa.RecordBatch, bad: pa.Int64Array
) -> BadRows:
    column = rows.column(rule.column)
    expected = constraints.expectation(rule)
    return bad_rows(
        table_key,
        rule.reason,
        (rule.column,),
        bad,
        ids=rows.column(ID_COLUMN),
        message=lambda row: f"found {_found(column[row])}, expected {expected}",
    )


def _found(value: pa.Scalar) -> str:
    return shown_scalar(value) if value.is_valid else "nothing"
