"""The part of a condition that Lance can look up, as a filter.

Invariant: every row that meets the condition meets the filter. What is not certain to mean the
same to Lance is left out, so the condition itself is always evaluated over what comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from omnigraph.query.ast import BinaryOperator
from omnigraph.query.binding import BoundParameters, BoundValue, known_value
from omnigraph.query.expressions import (
    And,
    Comparison,
    Constant,
    Expression,
    IsNull,
    Membership,
    Or,
    Parameter,
    PropertyOf,
)
from omnigraph.query.types import INTEGER_LIMITS, is_text, scalar_of
from omnigraph.schema.catalog import Scalar
from omnigraph.validation.lookups import LITERAL_MAX, PROBE_VALUES_MAX

_TURNED: Final = {
    BinaryOperator.EQUAL: BinaryOperator.EQUAL,
    BinaryOperator.LESS: BinaryOperator.GREATER,
    BinaryOperator.LESS_EQUAL: BinaryOperator.GREATER_EQUAL,
    BinaryOperator.GREATER: BinaryOperator.LESS,
    BinaryOperator.GREATER_EQUAL: BinaryOperator.LESS_EQUAL,
}


def lance_filter(condition: Expression, parameters: BoundParameters) -> str | None:
    """A filter that every matching row passes; None if there is none."""
    return _Filter(parameters).of(condition)


def exact_filter(condition: Expression, parameters: BoundParameters) -> str | None:
    """A filter for exactly the matching rows; None if Lance cannot evaluate a part of it."""
    return lance_filter(condition, parameters) if _is_exact(condition, parameters) else None


def _is_exact(condition: Expression, parameters: BoundParameters) -> bool:
    if isinstance(condition, And | Or):
        return all(_is_exact(each, parameters) for each in condition.operands)
    return lance_filter(condition, parameters) is not None


def one_of(columns: Sequence[str], ids: pa.StringArray) -> str | None:
    """A filter for rows of which a column holds one of these ids; None if they are too many."""
    if len(ids) > PROBE_VALUES_MAX:
        return None
    listed = ", ".join(_quoted(each) for each in ids.to_pylist())
    return " OR ".join(f"`{column}` IN ({listed})" for column in columns)


class _Filter:
    def __init__(self, parameters: BoundParameters) -> None:
        self._parameters = parameters

    def of(self, each: Expression) -> str | None:
        match each:
            case And():
                known = [part for part in map(self.of, each.operands) if part is not None]
                return f"({' AND '.join(known)})" if known else None
            case Or():
                parts = [self.of(one) for one in each.operands]
                known = [part for part in parts if part is not None]
                return f"({' OR '.join(known)})" if len(known) == len(parts) else None
            case Comparison():
                return self._comparison(each)
            case Membership():
                return self._membership(each)
            case IsNull(operand=PropertyOf() as operand) if scalar_of(operand.type) is not None:
                return f"{_column(operand)} IS {'NOT ' if each.negated else ''}NULL"
            case _:
                return None

    def _comparison(self, each: Comparison) -> str | None:
        if each.operator not in _TURNED:
            return None
        left, right, operator = each.left, each.right, each.operator
        if isinstance(right, PropertyOf):
            left, right, operator = right, left, _TURNED[operator]
        if not isinstance(left, PropertyOf) or not isinstance(right, Constant | Parameter):
            return None
        spelt = _spelt(left, known_value(right, self._parameters))
        return None if spelt is None else f"{_column(left)} {operator.value} {spelt}"

    def _membership(self, each: Membership) -> str | None:
        item, collection = each.item, each.collection
        if not isinstance(item, PropertyOf) or not isinstance(collection, Constant | Parameter):
            return None
        values = known_value(collection, self._parameters)
        if not isinstance(values, tuple) or not 0 < len(values) <= PROBE_VALUES_MAX:
            return None
        spelt = [_spelt(item, value) for value in values if value is not None]
        known = [each for each in spelt if each is not None]
        if not known or len(known) < len(spelt):
            return None
        return f"{_column(item)} IN ({', '.join(known)})"


def _column(each: PropertyOf) -> str:
    return f"`{each.name}`"


def _spelt(column: PropertyOf, value: BoundValue) -> str | None:
    """A text, or an integer that the column can hold."""
    if isinstance(value, str) and is_text(column.type) and "\0" not in value:
        return _quoted(value)
    scalar = scalar_of(column.type)
    if not isinstance(value, int) or isinstance(value, bool) or scalar not in INTEGER_LIMITS:
        return None
    assert isinstance(scalar, Scalar)
    low, high = INTEGER_LIMITS[scalar]
    # Lance reads the smallest integer as a float: it takes the sign away first.
    return str(value) if max(low, -LITERAL_MAX) <= value <= min(high, LITERAL_MAX) else None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
