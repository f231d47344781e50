"""Evaluates conditions where it is cheap: by ids, as Lance filters, or with Arrow instead of SQL.

Invariants:
- Equality on a whole key is equality on the id, which is the spelling of the key's values. The
  original condition is dropped where two different values never have one spelling; a condition is
  rewritten only where a row counts if it is true, so nulls need no attention.
- Every row that meets a condition meets its Lance filter. The filter omits what is not certain to
  mean the same to Lance, so the condition itself is always evaluated over the rows that Lance
  returns.
- A condition evaluated by Arrow has the value that the language defines, nulls included. Anything
  that could differ (floats and NaN, numbers of different width, text functions) is left to SQL.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake.engine.frames import Column
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.ids import canonical_tuple
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query.ast import BinaryOperator
from omnigraph_lake.query.binding import BoundParameters, BoundValue, known_value
from omnigraph_lake.query.expressions import is_known
from omnigraph_lake.query.types import INTEGER_LIMITS, STRING, is_text, scalar_of
from omnigraph_lake.schema.catalog import DecimalType, ListType, Property, Scalar, join_decimals
from omnigraph_lake.schema.values import fits_decimal
from omnigraph_lake.validation.lookups import LITERAL_MAX, PROBE_VALUES_MAX

_TURNED: Final = {
    BinaryOperator.EQUAL: BinaryOperator.EQUAL,
    BinaryOperator.LESS: BinaryOperator.GREATER,
    BinaryOperator.LESS_EQUAL: BinaryOperator.GREATER_EQUAL,
    BinaryOperator.GREATER: BinaryOperator.LESS,
    BinaryOperator.GREATER_EQUAL: BinaryOperator.LESS_EQUAL,
}


def lance_filter(condition: ex.Expression, parameters: BoundParameters) -> str | None:
    """A filter that every matching row passes; None if there is none."""
    return _Filter(parameters).of(condition)


def exact_filter(condition: ex.Expression, parameters: BoundParameters) -> str | None:
    """A filter for exactly the matching rows; None if Lance cannot evaluate a part of it."""
    return lance_filter(condition, parameters) if _is_exact(condition, parameters) else None


def _is_exact(condition: ex.Expression, parameters: BoundParameters) -> bool:
    if isinstance(condition, ex.And | ex.Or):
        return all(_is_exact(operand, parameters) for operand in condition.operands)
    return lance_filter(condition, parameters) is not None


class _Filter:
    def __init__(self, parameters: BoundParameters) -> None:
        self._parameters = parameters

    def of(self, expression: ex.Expression) -> str | None:
        match expression:
            case ex.And():
                known = [part for part in map(self.of, expression.operands) if part is not None]
                return f"({' AND '.join(known)})" if known else None
            case ex.Or():
                parts = [self.of(operand) for operand in expression.operands]
                known = [part for part in parts if part is not None]
                return f"({' OR '.join(known)})" if len(known) == len(parts) else None
            case ex.Comparison():
                return self._comparison(expression)
            case ex.Membership():
                return self._membership(expression)
            case ex.IsNull(operand=ex.PropertyOf() as operand) if scalar_of(
                operand.type
            ) is not None or isinstance(operand.type, DecimalType):
                return f"{_column(operand)} IS {'NOT ' if expression.negated else ''}NULL"
            case _:
                return None

    def _comparison(self, comparison: ex.Comparison) -> str | None:
        if comparison.operator not in _TURNED:
            return None
        left, right, operator = comparison.left, comparison.right, comparison.operator
        if find_stored_property(right) is not None:
            left, right, operator = right, left, _TURNED[operator]
        column = find_stored_property(left)
        if column is None or not is_known(right):
            return None
        literal = _spelt(column, known_value(right, self._parameters))
        return None if literal is None else f"{_column(column)} {operator.value} {literal}"

    def _membership(self, membership: ex.Membership) -> str | None:
        item, collection = membership.item, membership.collection
        if not isinstance(item, ex.PropertyOf) or not is_known(collection):
            return None
        values = known_value(collection, self._parameters)
        if not isinstance(values, tuple) or not 0 < len(values) <= PROBE_VALUES_MAX:
            return None
        literals = [_spelt(item, value) for value in values if value is not None]
        known_literals = [literal for literal in literals if literal is not None]
        if not known_literals or len(known_literals) < len(literals):
            return None
        return f"{_column(item)} IN ({', '.join(known_literals)})"


def find_stored_property(expression: ex.Expression) -> ex.PropertyOf | None:
    """The property that an expression has the values of; a wider decimal has the same values."""
    match expression:
        case ex.PropertyOf():
            return expression
        case ex.Cast(
            operand=ex.PropertyOf(type=DecimalType() as stored) as operand,
            type=DecimalType() as wider,
        ):
            return operand if join_decimals((stored, wider)) == wider else None
        case _:
            return None


def _column(property_of: ex.PropertyOf) -> str:
    return f"`{property_of.name}`"


def _spelt(column: ex.PropertyOf, value: BoundValue) -> str | None:
    """A text, a time, or a number that the column can hold."""
    if isinstance(value, str) and is_text(column.type) and "\0" not in value:
        return _quote(value)
    if isinstance(column.type, DecimalType):
        # Lance takes a plain number for a float.
        kind = f"DECIMAL({column.type.precision}, {column.type.scale})"
        if not isinstance(value, Decimal) or not fits_decimal(value, column.type):
            return None
        return f"CAST('{value:f}' AS {kind})"
    scalar = scalar_of(column.type)
    if isinstance(value, dt.date):
        return _spelt_time(scalar, value)
    if not isinstance(value, int) or isinstance(value, bool) or scalar not in INTEGER_LIMITS:
        return None
    assert isinstance(scalar, Scalar)
    low, high = INTEGER_LIMITS[scalar]
    # Lance reads the smallest integer as a float: it takes the sign away first.
    return str(value) if max(low, -LITERAL_MAX) <= value <= min(high, LITERAL_MAX) else None


def _spelt_time(scalar: Scalar | None, value: dt.date) -> str | None:
    """Without a zone: Lance reads it as the time of the column, which is UTC."""
    match scalar, value:
        case Scalar.DATETIME, dt.datetime():
            plain = value.astimezone(dt.UTC).replace(tzinfo=None)
            return f"timestamp '{plain.isoformat(sep=' ')}'"
        case Scalar.DATE, dt.date() if not isinstance(value, dt.datetime):
            return f"date '{value.isoformat()}'"
        case _:
            return None


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


Leaf: TypeAlias = Callable[[ex.Expression], Column]
_COMPARE: Final = {
    BinaryOperator.EQUAL: pc.equal,
    BinaryOperator.NOT_EQUAL: pc.not_equal,
    BinaryOperator.LESS: pc.less,
    BinaryOperator.LESS_EQUAL: pc.less_equal,
    BinaryOperator.GREATER: pc.greater,
    BinaryOperator.GREATER_EQUAL: pc.greater_equal,
}
_MIRRORED: Final = {
    BinaryOperator.EQUAL: BinaryOperator.EQUAL,
    BinaryOperator.NOT_EQUAL: BinaryOperator.NOT_EQUAL,
    BinaryOperator.LESS: BinaryOperator.GREATER,
    BinaryOperator.LESS_EQUAL: BinaryOperator.GREATER_EQUAL,
    BinaryOperator.GREATER: BinaryOperator.LESS,
    BinaryOperator.GREATER_EQUAL: BinaryOperator.LESS_EQUAL,
}
_STRING_TESTS: Final = {
    BinaryOperator.CONTAINS: pc.match_substring,
    BinaryOperator.STARTS_WITH: pc.starts_with,
    BinaryOperator.ENDS_WITH: pc.ends_with,
}


_NAMED_MAX: Final = 256
"""Beyond this number of ids a pass over the column is as fast as looking each of them up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedIds:
    """The only ids that can meet a condition, and whether the condition says nothing else."""

    ids: tuple[str, ...]
    alone: bool


def find_ids(condition: ex.Expression, parameters: BoundParameters) -> NamedIds | None:
    """The ids that a condition asks for, if it asks for some; none for a null."""
    for conjunct in ex.conjuncts(condition):
        values = _values_asked(conjunct, ID_COLUMN, parameters)
        if values is not None and len(values) <= _NAMED_MAX:
            ids = tuple(dict.fromkeys(value for value in values if isinstance(value, str)))
            return NamedIds(ids=ids, alone=conjunct is condition)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedValue:
    """The value that a property must have to meet a condition; `alone` as for ids."""

    property: str
    value: BoundValue
    alone: bool


def find_value(condition: ex.Expression, parameters: BoundParameters) -> NamedValue | None:
    """The first value that a condition asks a property for, if it asks for one."""
    for conjunct in ex.conjuncts(condition):
        if not isinstance(conjunct, ex.Comparison) or conjunct.operator is not BinaryOperator.EQUAL:
            continue
        for side, other in ((conjunct.left, conjunct.right), (conjunct.right, conjunct.left)):
            column = find_stored_property(side)
            if column is not None and is_known(other):
                value = known_value(other, parameters)
                return NamedValue(property=column.name, value=value, alone=conjunct is condition)
    return None


def _values_asked(
    conjunct: ex.Expression, name: str, parameters: BoundParameters
) -> tuple[BoundValue, ...] | None:
    """The values of which a property must have one; None if the condition is of another kind."""
    match conjunct:
        case ex.Comparison():
            value = _find_equal_value(conjunct, name)
            return None if value is None else (known_value(value, parameters),)
        case ex.Membership(item=ex.PropertyOf() as item) if item.name == name and is_known(
            conjunct.collection
        ):
            values = known_value(conjunct.collection, parameters)
            return values if isinstance(values, tuple) else () if values is None else None
        case _:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeKey:
    """Equalities of a condition that give every property of a key one known value."""

    members: tuple[Property, ...]
    equalities: tuple[ex.Expression, ...]
    values: tuple[ex.Expression, ...]

    def node_id(self, parameters: BoundParameters) -> str | None:
        """The id of the node with these values; None for a null, or one that no node can have."""
        values = tuple((known_value(value, parameters),) for value in self.values)
        ids = _ids_of(self.members, values)
        return ids[0] if ids else None

    def as_id_condition(
        self, condition: ex.Expression, variable: str, parameter: str
    ) -> ex.Expression:
        """The condition with the id, which a parameter has, instead of the key."""
        wanted = ex.Parameter(name=parameter, type=STRING, nullable=False)
        return _with_id(condition, _id_equals(variable, wanted), self.members, self.equalities)


def find_whole_key(condition: ex.Expression, members: tuple[Property, ...]) -> WholeKey | None:
    """The equalities on a whole key that a condition contains; `members` in its order."""
    equalities: list[ex.Expression] = []
    values: list[ex.Expression] = []
    for member in members:
        for conjunct in ex.conjuncts(condition):
            value = _find_equal_value(conjunct, member.name)
            if value is not None:
                equalities.append(conjunct)
                values.append(value)
                break
        else:
            return None
    return WholeKey(members=members, equalities=tuple(equalities), values=tuple(values))


def asks_for_lists(condition: ex.Expression, members: tuple[Property, ...]) -> bool:
    """Whether a condition asks a property of a key for one of several values."""
    properties = {member.name for member in members}
    return any(
        isinstance(conjunct, ex.Membership)
        and isinstance(conjunct.item, ex.PropertyOf)
        and conjunct.item.name in properties
        for conjunct in ex.conjuncts(condition)
    )


def _find_equal_value(conjunct: ex.Expression, name: str) -> ex.Expression | None:
    if isinstance(conjunct, ex.Comparison) and conjunct.operator is BinaryOperator.EQUAL:
        for side, other in ((conjunct.left, conjunct.right), (conjunct.right, conjunct.left)):
            if isinstance(side, ex.PropertyOf) and side.name == name and is_known(other):
                return other
    return None


def by_id(
    condition: ex.Expression,
    variable: str,
    members: Sequence[Property],
    parameters: BoundParameters,
) -> ex.Expression:
    """The condition with equality on a whole key as equality on the id; `members` in its order."""
    conjuncts = ex.conjuncts(condition)
    asked: list[tuple[ex.Expression, tuple[BoundValue, ...]]] = []
    for member in members:
        values_asked = (
            (conjunct, _values_asked(conjunct, member.name, parameters)) for conjunct in conjuncts
        )
        known = [(conjunct, values) for conjunct, values in values_asked if values is not None]
        single = [pair for pair in known if len(members) == 1 or len(pair[1]) == 1]
        if not single:
            return condition
        asked.append(single[0])
    ids = _ids_of(members, [values for _, values in asked])
    if ids is None:
        return condition
    dropped = tuple(conjunct for conjunct, _ in asked)
    return _with_id(condition, _id_condition(variable, ids), members, dropped)


def _with_id(
    condition: ex.Expression,
    id_condition: ex.Expression,
    members: Sequence[Property],
    dropped: Sequence[ex.Expression],
) -> ex.Expression:
    """A condition on the id instead of some on its key; those on an F32 stay, as it is rounded."""
    is_rounded = any(scalar_of(member.type) is Scalar.F32 for member in members)
    rest = tuple(
        conjunct
        for conjunct in ex.conjuncts(condition)
        if is_rounded or all(conjunct is not other for other in dropped)
    )
    rewritten = ex.all_of((id_condition, *rest))
    assert rewritten is not None
    return rewritten


def _ids_of(
    members: Sequence[Property], values: Sequence[tuple[BoundValue, ...]]
) -> tuple[str, ...] | None:
    """The ids of nodes with these key values; None if a value is not spelt like those stored."""
    names = [member.name for member in members]
    rows = [row for row in zip(*values, strict=True) if None not in row]
    try:
        ids = [canonical_tuple(members, dict(zip(names, row, strict=True))) for row in rows]
    except InvalidInputError:
        return None
    return tuple(dict.fromkeys(ids))


def _id_condition(variable: str, ids: tuple[str, ...]) -> ex.Expression:
    if len(ids) == 1:
        return _id_equals(variable, ex.Constant(value=ids[0], type=STRING))
    collection = ex.Constant(value=ids, type=ListType(item=Scalar.STRING))
    return ex.Membership(item=_id_of(variable), collection=collection, nullable=False)


def _id_equals(variable: str, wanted: ex.Constant | ex.Parameter) -> ex.Expression:
    return ex.Comparison(
        operator=BinaryOperator.EQUAL, left=_id_of(variable), right=wanted, nullable=False
    )


def _id_of(variable: str) -> ex.PropertyOf:
    return ex.PropertyOf(variable=variable, name=ID_COLUMN, type=STRING, nullable=False)


def simple_condition(  # noqa: PLR0911 - one per kind
    condition: ex.Expression, leaf: Leaf, parameters: BoundParameters
) -> Column | None:
    """The values of a condition, or None if it is not simple enough."""
    match condition:
        case ex.Comparison():
            return _comparison(condition, leaf, parameters)
        case ex.StringTest():
            return _string_test(condition, leaf, parameters)
        case ex.Membership():
            return _membership(condition, leaf, parameters)
        case ex.IsNull() if isinstance(condition.operand, ex.PropertyOf):
            operand = leaf(condition.operand)
            return pc.is_valid(operand) if condition.negated else pc.is_null(operand)
        case ex.Not():
            inner = simple_condition(condition.operand, leaf, parameters)
            return None if inner is None else pc.invert(inner)
        case ex.And() | ex.Or():
            combine = pc.and_kleene if isinstance(condition, ex.And) else pc.or_kleene
            result: Column | None = None
            for part in condition.operands:
                value = simple_condition(part, leaf, parameters)
                if value is None:
                    return None
                result = value if result is None else combine(result, value)
            return result
        case _:
            return None


def _comparison(condition: ex.Comparison, leaf: Leaf, parameters: BoundParameters) -> Column | None:
    for side, other, operator in (
        (condition.left, condition.right, condition.operator),
        (condition.right, condition.left, _MIRRORED[condition.operator]),
    ):
        stored = side if isinstance(side, ex.TypeName) else find_stored_property(side)
        if is_known(other) and stored is not None:
            column = leaf(stored)
            scalar = as_scalar(known_value(other, parameters), column.type)
            return None if scalar is None else _COMPARE[operator](column, scalar)
    return None


def _string_test(
    condition: ex.StringTest, leaf: Leaf, parameters: BoundParameters
) -> Column | None:
    if not is_known(condition.part) or not isinstance(condition.text, ex.PropertyOf):
        return None
    part = known_value(condition.part, parameters)
    if not isinstance(part, str):
        return None
    return _STRING_TESTS[condition.operator](leaf(condition.text), part)


def _membership(condition: ex.Membership, leaf: Leaf, parameters: BoundParameters) -> Column | None:
    if not is_known(condition.collection) or not isinstance(condition.item, ex.PropertyOf):
        return None
    items = known_value(condition.collection, parameters)
    if not isinstance(items, tuple):
        return None
    column = leaf(condition.item)
    scalars = [as_scalar(item, column.type) for item in items]
    if not items or any(scalar is None for scalar in scalars):
        return None
    is_member = pc.is_in(column, value_set=pa.array(items, type=column.type))
    return pc.if_else(pc.is_valid(column), is_member, pa.scalar(None, pa.bool_()))


def as_scalar(value: BoundValue, kind: pa.DataType) -> pa.Scalar | None:
    """A value as one of a column's type, if nothing about it has to be decided."""
    exact = (
        (pat.is_string(kind) and isinstance(value, str))
        or (pat.is_boolean(kind) and isinstance(value, bool))
        or (pat.is_integer(kind) and isinstance(value, int) and not isinstance(value, bool))
        or (pat.is_decimal(kind) and isinstance(value, Decimal))
        or (pat.is_timestamp(kind) and isinstance(value, dt.datetime))
        or (pat.is_date(kind) and type(value) is dt.date)
    )
    if not exact:
        return None
    try:
        return pa.scalar(value, type=kind)
    except (pa.ArrowInvalid, OverflowError):
        return None  # outside of what the column can hold
