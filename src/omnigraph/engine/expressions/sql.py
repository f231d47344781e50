"""Typed expressions as DuckDB SQL.

Invariant: the text has, for every row, the value that the language defines and the declared type;
an integer or a sum that does not fit is an error of the language and of DuckDB, and `refusal`
recognises it. DuckDB skips operands that cannot change the value, so the error may be missing where
the value is known without them, but it is never raised without a row.

Values of the query language as DuckDB spells them.

Invariant: a literal has exactly the SQL type of its declared type and exactly its value, whatever
the session is set to: every one carries its cast, and no number goes through a decimal.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Final, TypeAlias, assert_never

import duckdb

from omnigraph.query.ast import BinaryOperator
from omnigraph.query.binding import BoundParameters, BoundValue
from omnigraph.query.expressions import (
    Aggregate,
    AggregateFunction,
    And,
    Arithmetic,
    Comparison,
    Constant,
    Distance,
    Entity,
    Expression,
    Fusion,
    IsNull,
    Membership,
    Negation,
    Not,
    Now,
    Or,
    Parameter,
    PartOfPath,
    PropertyOf,
    StringTest,
    TextScore,
    TextSearch,
    TypeName,
)
from omnigraph.query.types import (
    DATETIME,
    I64,
    INTEGER_LIMITS,
    EdgeOf,
    ExpressionType,
    NodeOf,
    NullType,
    PathOf,
    is_integer,
    is_number,
    scalar_of,
)
from omnigraph.schema.catalog import (
    FLOATS,
    INTEGERS,
    EnumType,
    ListType,
    Scalar,
    ScalarType,
    VectorType,
)

_SQL_TYPES: Final = {
    Scalar.STRING: "VARCHAR",
    Scalar.BLOB: "BLOB",
    Scalar.BOOL: "BOOLEAN",
    Scalar.I32: "INTEGER",
    Scalar.I64: "BIGINT",
    Scalar.U32: "UINTEGER",
    Scalar.U64: "UBIGINT",
    Scalar.F32: "FLOAT",
    Scalar.F64: "DOUBLE",
    Scalar.DATE: "DATE",
    Scalar.DATETIME: "TIMESTAMPTZ",
}


def sql_type(each: ExpressionType) -> str:
    """The type of a column that holds such values."""
    match each:
        case ScalarType():
            return _SQL_TYPES[each.scalar]
        case EnumType():
            return "VARCHAR"
        case ListType():
            return f"{_SQL_TYPES[each.item]}[]"
        case VectorType():
            return f"FLOAT[{each.size}]"
        case NullType():
            return '"NULL"'
        case NodeOf() | EdgeOf() | PathOf():
            raise AssertionError("an entity or a path is columns, never one value")
        case _:
            assert_never(each)


def literal(value: BoundValue, declared: ExpressionType) -> str:
    """A value of a type as SQL text; null is a null of that type."""
    if value is None:
        return "NULL" if isinstance(declared, NullType) else f"CAST(NULL AS {sql_type(declared)})"
    match declared:
        case ScalarType():
            return scalar_literal(value, declared.scalar)
        case EnumType():
            return scalar_literal(value, Scalar.STRING)
        case ListType():
            return f"CAST([{_items(value, declared.item)}] AS {sql_type(declared)})"
        case VectorType():
            return f"CAST([{_items(value, Scalar.F32)}] AS {sql_type(declared)})"
        case NullType():
            assert value == ()
            return "[]"
        case NodeOf() | EdgeOf() | PathOf():
            raise AssertionError("no literal is an entity or a path")
        case _:
            assert_never(declared)


def scalar_literal(  # noqa: PLR0911 - one per type
    value: BoundValue, scalar: Scalar
) -> str:
    """A single value; None is a null of the type."""
    if value is None:
        return f"CAST(NULL AS {_SQL_TYPES[scalar]})"
    match scalar:
        case Scalar.STRING:
            assert isinstance(value, str)
            return f"CAST({quoted(value)} AS VARCHAR)"
        case Scalar.BLOB:
            return _blob(value)
        case Scalar.BOOL:
            return "true" if value else "false"
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            assert isinstance(value, int)
            return f"CAST({value} AS {_SQL_TYPES[scalar]})"
        case Scalar.F32 | Scalar.F64:
            assert isinstance(value, int | float)
            return f"CAST('{_number(float(value))}' AS {_SQL_TYPES[scalar]})"
        case Scalar.DATE:
            assert isinstance(value, dt.date)
            return f"CAST('{value.isoformat()}' AS DATE)"
        case Scalar.DATETIME:
            assert isinstance(value, dt.datetime)
            plain = value.astimezone(dt.UTC).replace(tzinfo=None)
            return f"CAST('{plain.isoformat(sep=' ')}+00' AS TIMESTAMPTZ)"
        case _:
            assert_never(scalar)


def quoted(text: str) -> str:
    """A string as SQL spells it; only the quote is escaped."""
    return "'" + text.replace("'", "''") + "'"


def name(text: str) -> str:
    """A column or table as SQL spells it."""
    return '"' + text.replace('"', '""') + '"'


def _items(value: BoundValue, item: Scalar) -> str:
    assert isinstance(value, tuple)
    return ", ".join(scalar_literal(each, item) for each in value)


def _blob(value: BoundValue) -> str:
    """Bytes are a blob; text names one, so it stays text for the caller that fetches it."""
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    assert isinstance(value, str)
    return f"CAST({quoted(value)} AS VARCHAR)"


def _number(value: float) -> str:
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)


ColumnText: TypeAlias = Callable[[Expression], str]
"""The SQL of a leaf that only the executor knows: a property, a score, a part."""
IdentityText: TypeAlias = Callable[[Entity], tuple[str, str]]
"""The texts of the columns of the type and of the id of an entity."""

_STRING_TESTS: Final = {
    BinaryOperator.CONTAINS: "contains",
    BinaryOperator.STARTS_WITH: "starts_with",
    BinaryOperator.ENDS_WITH: "ends_with",
}


def refusal(error: Exception) -> str | None:
    """The error of the language that an error of DuckDB means; None if it means another."""
    # While rows are read, the same text is in an error of Arrow.
    too_large = (
        isinstance(error, duckdb.OutOfRangeException)
        or str(error).startswith("Out of Range Error")
        or (isinstance(error, duckdb.ConversionException | OSError) and "INT128" in str(error))
    )
    return "an integer or a sum does not fit into 64 bits" if too_large else None


def sql_of(expression: Expression, *, column: ColumnText, parameters: BoundParameters) -> str:
    """The text of an expression, safe to embed in another."""
    return _Sql(column, parameters).of(expression)


class _Sql:
    def __init__(self, column: ColumnText, parameters: BoundParameters) -> None:
        self._column = column
        self._parameters = parameters

    def of(  # noqa: C901, PLR0911, PLR0912 - one case per kind
        self, each: Expression
    ) -> str:
        match each:
            case Constant():
                return literal(each.value, each.type)
            case Parameter():
                return literal(self._parameters.values[each.name], each.type)
            case Now():
                return literal(self._parameters.now, DATETIME)
            case PropertyOf() | TypeName() | Entity() | PartOfPath():
                return self._column(each)
            case TextSearch() | Distance() | TextScore() | Fusion():
                return self._column(each)
            case Arithmetic():
                return self._arithmetic(each)
            case Negation():
                return self._negation(each)
            case Comparison():
                return self._comparison(each)
            case StringTest():
                text, part = self.of(each.text), self.of(each.part)
                return f"{_STRING_TESTS[each.operator]}({text}, {part})"
            case Membership():
                return self._membership(each)
            case IsNull():
                word = "IS NOT NULL" if each.negated else "IS NULL"
                return f"({self.of(each.operand)} {word})"
            case Not():
                return f"(NOT {self.of(each.operand)})"
            case And():
                return "(" + " AND ".join(map(self.of, each.operands)) + ")"
            case Or():
                return "(" + " OR ".join(map(self.of, each.operands)) + ")"
            case Aggregate():
                raise AssertionError("an aggregate is a value of a group")
            case _:
                assert_never(each)

    def _arithmetic(self, each: Arithmetic) -> str:
        operator = each.operator
        if each.operator is BinaryOperator.DIVIDE or not is_integer(each.type):
            left, right = self._double(each.left), self._double(each.right)
            if operator is BinaryOperator.DIVIDE:
                right = f"nullif({right}, CAST('0' AS DOUBLE))"
            return f"({left} {operator.value} {right})"
        # The remainder of the smallest BIGINT by -1 is 0, but DuckDB divides first.
        wide = operator is BinaryOperator.REMAINDER or Scalar.U64 in (
            scalar_of(each.left.type),
            scalar_of(each.right.type),
        )
        kind = "HUGEINT" if wide else "BIGINT"
        left, right = (f"CAST({self.of(side)} AS {kind})" for side in (each.left, each.right))
        if operator is BinaryOperator.REMAINDER:
            right = f"nullif({right}, 0)"
        result = f"({left} {operator.value} {right})"
        return f"CAST({result} AS BIGINT)" if wide else result

    def _negation(self, each: Negation) -> str:
        inner = self.of(each.operand)
        if is_integer(each.type):
            # Beyond BIGINT first: the negative of an unsigned integer is unsigned to DuckDB.
            return f"CAST((0 - CAST({inner} AS HUGEINT)) AS BIGINT)"
        return f"(-CAST({inner} AS DOUBLE))"

    def _double(self, each: Expression) -> str:
        text = self.of(each)
        return text if scalar_of(each.type) is Scalar.F64 else f"CAST({text} AS DOUBLE)"

    def _comparison(self, each: Comparison) -> str:
        left, right = self._alike(each.left, each.right)
        sign = "<>" if each.operator is BinaryOperator.NOT_EQUAL else each.operator.value
        return f"({left} {sign} {right})"

    def _alike(self, left: Expression, right: Expression) -> tuple[str, str]:
        """Both sides in a type that holds either; an integer meets a float as a float."""
        left_type, right_type = scalar_of(left.type), scalar_of(right.type)
        common = _common(left_type, right_type)
        if common is None:
            return self.of(left), self.of(right)
        for one, other, kind in ((left, right, right_type), (right, left, left_type)):
            value = self._known(one)
            if kind in INTEGERS and _fits(value, kind) and is_integer(one.type):
                # The other side is a column as it is stored: comparing it needs no cast.
                assert kind is not None
                spelt = scalar_literal(value, kind)
                return (spelt, self.of(other)) if one is left else (self.of(other), spelt)
        return f"CAST({self.of(left)} AS {common})", f"CAST({self.of(right)} AS {common})"

    def _known(self, each: Expression) -> BoundValue:
        if isinstance(each, Constant):
            return each.value
        return self._parameters.values[each.name] if isinstance(each, Parameter) else None

    def _membership(self, each: Membership) -> str:
        item, items = each.item, self._known(each.collection)
        if isinstance(items, tuple):
            return self._in_known(item, items, each.collection.type)
        assert isinstance(each.collection.type, ListType)
        common = _common(scalar_of(item.type), each.collection.type.item)
        wanted, held = self.of(item), self.of(each.collection)
        if common is not None:
            wanted, held = f"CAST({wanted} AS {common})", f"CAST({held} AS {common}[])"
        return (
            f"CASE WHEN list_contains({held}, {wanted}) THEN true"
            f" WHEN {wanted} IS NULL OR len({held}) IS NULL OR list_count({held}) < len({held})"
            " THEN NULL ELSE false END"
        )

    def _in_known(
        self, item: Expression, items: tuple[BoundValue, ...], declared: ExpressionType
    ) -> str:
        wanted = self.of(item)
        if not items:
            return f"CASE WHEN {wanted} IS NULL THEN NULL ELSE false END"
        assert isinstance(declared, ListType)
        kind = scalar_of(item.type)
        if kind in INTEGERS and declared.item in INTEGERS:
            # What the item cannot hold is not equal to it; one that it can hold needs no cast.
            assert kind is not None
            fitting = [one for one in items if one is None or _fits(one, kind)]
            spelt = [scalar_literal(one, kind) for one in fitting]
        else:
            common = _common(kind, declared.item)
            wanted = wanted if common is None else f"CAST({wanted} AS {common})"
            texts = [scalar_literal(one, declared.item) for one in items]
            spelt = texts if common is None else [f"CAST({one} AS {common})" for one in texts]
        if not spelt:
            return f"CASE WHEN {wanted} IS NULL THEN NULL ELSE false END"
        return f"({wanted} IN ({', '.join(spelt)}))"


def _fits(value: BoundValue, kind: Scalar | None) -> bool:
    if not isinstance(value, int) or isinstance(value, bool) or kind not in INTEGER_LIMITS:
        return False
    low, high = INTEGER_LIMITS[kind]
    return low <= value <= high


def _common(left: Scalar | None, right: Scalar | None) -> str | None:
    """The type in which two numbers are compared; None if they can be as they are."""
    if left is right:
        return None
    if left in FLOATS or right in FLOATS:
        return "DOUBLE"
    if left in INTEGERS and right in INTEGERS:
        return "HUGEINT" if Scalar.U64 in (left, right) else "BIGINT"
    return None


# Aggregates


def aggregate_sql(  # noqa: PLR0911 - one per function
    aggregate: Aggregate,
    *,
    column: ColumnText,
    parameters: BoundParameters,
    identity: IdentityText,
    weight: str | None = None,
) -> str:
    """The text of a value of a group, in its declared type.

    `weight` is a column that says how many rows each row represents; `collect` cannot have one.
    """
    argument = aggregate.argument
    if argument is None:
        return _counted("count(*)" if weight is None else f"sum({weight})")
    if isinstance(argument, Entity):
        return _entities(aggregate, argument, identity, weight)
    text = sql_of(argument, column=column, parameters=parameters)
    match aggregate.function:
        case AggregateFunction.COUNT if aggregate.distinct:
            return f"count(DISTINCT {text})"
        case AggregateFunction.COUNT:
            return _count_present(text, weight)
        case AggregateFunction.SUM:
            return _sum(aggregate, text, weight)
        case AggregateFunction.AVERAGE:
            return _average(argument.type, text, weight)
        case AggregateFunction.MINIMUM | AggregateFunction.MAXIMUM:
            return f"{aggregate.function.value}({text})"
        case AggregateFunction.COLLECT:
            assert weight is None or aggregate.distinct, "collect sees every row"
            word = "DISTINCT " if aggregate.distinct else ""
            listed = f"list({word}{text} ORDER BY {text}) FILTER (WHERE {text} IS NOT NULL)"
            return f"CAST(coalesce({listed}, []) AS {sql_type(aggregate.type)})"
        case _:
            assert_never(aggregate.function)


def _entities(
    aggregate: Aggregate, entity: Entity, identity: IdentityText, weight: str | None
) -> str:
    assert aggregate.function is AggregateFunction.COUNT
    kind, key = identity(entity)
    if not aggregate.distinct:
        return _count_present(key, weight)
    if isinstance(entity.type, NodeOf) and len(entity.type.types) > 1:
        return f"count(DISTINCT row({kind}, {key})) FILTER (WHERE {key} IS NOT NULL)"
    return f"count(DISTINCT {key})"


def _count_present(text: str, weight: str | None) -> str:
    if weight is None:
        return f"count({text})"
    return _counted(f"sum({weight}) FILTER (WHERE {text} IS NOT NULL)")


def _counted(total: str) -> str:
    if total == "count(*)":
        return total
    return _checked(f"coalesce({total}, 0)", I64)


def _sum(aggregate: Aggregate, text: str, weight: str | None) -> str:
    if not is_integer(aggregate.type):
        return _float_sum(text, weight)
    return _checked(_integer_sum(text, weight), aggregate.type)


def _integer_sum(text: str, weight: str | None) -> str:
    return f"sum({text})" if weight is None else f"sum(CAST({text} AS HUGEINT) * {weight})"


def _float_sum(text: str, weight: str | None) -> str:
    double = f"CAST({text} AS DOUBLE)"
    return f"sum({double})" if weight is None else f"sum({double} * {weight})"


def _average(kind: ExpressionType, text: str, weight: str | None) -> str:
    assert is_number(kind)
    count = (
        f"count({text})" if weight is None else f"sum({weight}) FILTER (WHERE {text} IS NOT NULL)"
    )
    divisor = f"nullif(CAST({count} AS DOUBLE), CAST('0' AS DOUBLE))"
    if not is_integer(kind):
        return f"({_float_sum(text, weight)} / {divisor})"
    total = _integer_sum(text, weight)
    # DuckDB rounds twice when it makes a double of a HUGEINT; its text is rounded once.
    double = (
        f"coalesce(CAST(TRY_CAST({total} AS BIGINT) AS DOUBLE),"
        f" CAST(CAST({total} AS VARCHAR) AS DOUBLE))"
    )
    return f"({double} / {divisor})"


def _checked(total: str, kind: ExpressionType) -> str:
    """A sum as 64 bits; the cast refuses what does not fit."""
    return f"CAST({total} AS {sql_type(kind)})"
