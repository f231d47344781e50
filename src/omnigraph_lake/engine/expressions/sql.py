"""Translates typed expressions and values of the query language into DuckDB SQL.

Invariants:
- The SQL has, for every row, the value that the language defines and the declared type.
- An integer or a sum that does not fit is an error of the language and of DuckDB, and `refusal`
  recognises it. DuckDB skips operands that cannot change the value, so the error may be missing
  where the value is known without them, but it is never raised without a row.
- A literal has exactly the SQL type of its declared type and exactly its value, whatever the
  session is set to: every literal carries its cast, and no number goes through a decimal.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final, TypeAlias, assert_never

from omnigraph_lake.engine.expressions.function_sql import (
    NATIVE,
    REFUSED,
    decimal_text,
    index_text,
    kernel_call,
    kernel_of,
    microseconds_text,
    once,
    quoted,
    step_text,
    time_text,
    utc_text,
)
from omnigraph_lake.engine.expressions.kernels import (
    CANNOT_CAST,
    KERNELS,
    TOO_MANY_DIGITS,
    Kernel,
)
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import types as qt
from omnigraph_lake.query.ast import BinaryOperator
from omnigraph_lake.query.binding import BoundParameters, BoundValue, known_value
from omnigraph_lake.query.functions import ScalarFunction
from omnigraph_lake.query.text_patterns import like_regex
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.values import spell_decimal

_SQL_TYPES: Final = {
    ct.Scalar.STRING: "VARCHAR",
    ct.Scalar.BLOB: "BLOB",
    ct.Scalar.BOOL: "BOOLEAN",
    ct.Scalar.I32: "INTEGER",
    ct.Scalar.I64: "BIGINT",
    ct.Scalar.U32: "UINTEGER",
    ct.Scalar.U64: "UBIGINT",
    ct.Scalar.F32: "FLOAT",
    ct.Scalar.F64: "DOUBLE",
    ct.Scalar.DATE: "DATE",
    ct.Scalar.DATETIME: "TIMESTAMPTZ",
    ct.Scalar.JSON: "VARCHAR",
}


def sql_type(  # noqa: PLR0911 - one per type
    expression_type: qt.ExpressionType,
) -> str:
    """The type of a column that holds such values."""
    match expression_type:
        case ct.ScalarType():
            return _SQL_TYPES[expression_type.scalar]
        case ct.DecimalType():
            return f"DECIMAL({expression_type.precision}, {expression_type.scale})"
        case ct.EnumType():
            return "VARCHAR"
        case ct.ListType():
            return f"{_SQL_TYPES[expression_type.item]}[]"
        case qt.DecimalList():
            return f"{sql_type(expression_type.item)}[]"
        case ct.VectorType():
            return f"FLOAT[{expression_type.size}]"
        case qt.NullType():
            return '"NULL"'
        case qt.NodeOf() | qt.EdgeOf() | qt.PathOf():
            raise AssertionError("an entity or a path is columns, never one value")
        case _:
            assert_never(expression_type)


def literal(  # noqa: PLR0911 - one per type
    value: BoundValue, declared: qt.ExpressionType
) -> str:
    """A value of a type as SQL text; null is a null of that type."""
    if value is None:
        return (
            "NULL" if isinstance(declared, qt.NullType) else f"CAST(NULL AS {sql_type(declared)})"
        )
    match declared:
        case ct.ScalarType():
            return scalar_literal(value, declared.scalar)
        case ct.DecimalType():
            assert isinstance(value, Decimal)
            return f"CAST('{spell_decimal(value)}' AS {sql_type(declared)})"
        case ct.EnumType():
            return scalar_literal(value, ct.Scalar.STRING)
        case ct.ListType():
            return f"CAST([{_items(value, declared.item)}] AS {sql_type(declared)})"
        case qt.DecimalList():
            assert isinstance(value, tuple)
            items = ", ".join(literal(item, declared.item) for item in value)
            return f"CAST([{items}] AS {sql_type(declared)})"
        case ct.VectorType():
            return f"CAST([{_items(value, ct.Scalar.F32)}] AS {sql_type(declared)})"
        case qt.NullType():
            assert value == ()
            return "[]"
        case qt.NodeOf() | qt.EdgeOf() | qt.PathOf():
            raise AssertionError("no literal is an entity or a path")
        case _:
            assert_never(declared)


def scalar_literal(  # noqa: PLR0911 - one per type
    value: BoundValue, scalar: ct.Scalar
) -> str:
    """A single value; None is a null of the type."""
    if value is None:
        return f"CAST(NULL AS {_SQL_TYPES[scalar]})"
    match scalar:
        case ct.Scalar.STRING | ct.Scalar.JSON:
            assert isinstance(value, str)
            return f"CAST({quoted(value)} AS VARCHAR)"
        case ct.Scalar.BLOB:
            return _blob(value)
        case ct.Scalar.BOOL:
            return "true" if value else "false"
        case ct.Scalar.I32 | ct.Scalar.I64 | ct.Scalar.U32 | ct.Scalar.U64:
            assert isinstance(value, int)
            return f"CAST({value} AS {_SQL_TYPES[scalar]})"
        case ct.Scalar.F32 | ct.Scalar.F64:
            assert isinstance(value, int | float)
            return f"CAST('{_number(float(value))}' AS {_SQL_TYPES[scalar]})"
        case ct.Scalar.DATE:
            assert isinstance(value, dt.date)
            return f"CAST('{value.isoformat()}' AS DATE)"
        case ct.Scalar.DATETIME:
            assert isinstance(value, dt.datetime)
            plain = value.astimezone(dt.UTC).replace(tzinfo=None)
            return f"CAST('{plain.isoformat(sep=' ')}+00' AS TIMESTAMPTZ)"
        case _:
            assert_never(scalar)


def name(text: str) -> str:
    """A column or table as SQL spells it."""
    return '"' + text.replace('"', '""') + '"'


def _items(value: BoundValue, item: ct.Scalar) -> str:
    assert isinstance(value, tuple)
    return ", ".join(scalar_literal(element, item) for element in value)


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


ColumnText: TypeAlias = Callable[[ex.Expression], str]
"""The SQL of a leaf that only the executor knows: a property, a score, a part."""
IdentityText: TypeAlias = Callable[[ex.Entity], tuple[str, str]]
"""The texts of the columns of the type and of the id of an entity."""

_STRING_TESTS: Final = {
    BinaryOperator.CONTAINS: "contains",
    BinaryOperator.STARTS_WITH: "starts_with",
    BinaryOperator.ENDS_WITH: "ends_with",
}


TOO_LARGE: Final = "an integer or a sum does not fit into 64 bits"


def refusal(error: Exception) -> str | None:
    """The error of the language that an error of DuckDB means; None if it means another."""
    import duckdb  # imported by what failed; a query without expressions does not need it

    # While rows are read, the same text is in an error of Arrow.
    text = str(error)
    if REFUSED in text:
        return text[text.index(REFUSED) + len(REFUSED) :].splitlines()[0]
    if isinstance(error, duckdb.ConversionException | OSError) and "DOUBLE" in text:
        return CANNOT_CAST
    too_large = (
        isinstance(error, duckdb.OutOfRangeException)
        or str(error).startswith("Out of Range Error")
        or (isinstance(error, duckdb.ConversionException | OSError) and "INT128" in str(error))
    )
    if too_large and "DECIMAL" in text:
        return TOO_MANY_DIGITS
    return TOO_LARGE if too_large else None


def sql_of(expression: ex.Expression, *, column: ColumnText, parameters: BoundParameters) -> str:
    """The text of an expression, safe to embed in another."""
    return _Sql(column, parameters).of(expression)


class _Sql:
    def __init__(self, column: ColumnText, parameters: BoundParameters) -> None:
        self._column = column
        self._parameters = parameters

    def of(  # noqa: C901, PLR0911, PLR0912 - one case per kind
        self, expression: ex.Expression
    ) -> str:
        match expression:
            case ex.Constant():
                return literal(expression.value, expression.type)
            case ex.Parameter():
                return literal(self._parameters.values[expression.name], expression.type)
            case ex.Now():
                return literal(self._parameters.now, qt.DATETIME)
            case ex.PropertyOf() | ex.TypeName() | ex.Entity() | ex.PartOfPath():
                return self._column(expression)
            case ex.MatchesOf() | ex.TextSearch() | ex.Distance() | ex.TextScore() | ex.Fusion():
                return self._column(expression)
            case ex.Arithmetic():
                return self._arithmetic(expression)
            case ex.Negation():
                return self._negation(expression)
            case ex.Comparison():
                return self._comparison(expression)
            case ex.StringTest():
                text, part = self.of(expression.text), self.of(expression.part)
                return f"{_STRING_TESTS[expression.operator]}({text}, {part})"
            case ex.Membership():
                return self._membership(expression)
            case ex.IsNull():
                word = "IS NOT NULL" if expression.negated else "IS NULL"
                return f"({self.of(expression.operand)} {word})"
            case ex.Not():
                return f"(NOT {self.of(expression.operand)})"
            case ex.And():
                return "(" + " AND ".join(map(self.of, expression.operands)) + ")"
            case ex.Or():
                return "(" + " OR ".join(map(self.of, expression.operands)) + ")"
            case ex.FunctionCall():
                return self._call(expression)
            case ex.Case():
                branches = [
                    f"WHEN {self.of(branch.condition)} THEN {self.of(branch.value)}"
                    for branch in expression.branches
                ]
                return f"(CASE {' '.join(branches)} ELSE {self.of(expression.otherwise)} END)"
            case ex.Coalesce():
                return f"coalesce({', '.join(map(self.of, expression.operands))})"
            case ex.Cast():
                return self._cast(expression)
            case ex.Aggregate():
                raise AssertionError("an aggregate is a value of a group")
            case _:
                assert_never(expression)

    def _cast(self, cast: ex.Cast) -> str:
        if isinstance(cast.type, ct.DecimalType):
            text = self.of(cast.operand)
            if qt.is_text(cast.operand.type):
                sizes = [str(cast.type.precision), str(cast.type.scale)]
                text = kernel_call(Kernel.TEXT_TO_DECIMAL, [text, *sizes], strict=not cast.lenient)
            return f"CAST({text} AS {sql_type(cast.type)})"
        if isinstance(cast.operand.type, ct.DecimalType):
            spelling = f"CAST({self.of(cast.operand)} AS VARCHAR)"
            return kernel_call(Kernel.DECIMAL_TO_TEXT, [spelling], strict=False)
        source = qt.scalar_of(cast.operand.type)
        assert source is not None
        return step_text(
            self.of(cast.operand),
            source,
            cast.type.scalar,
            sql_type(cast.type),
            lenient=cast.lenient,
        )

    def _call(self, call: ex.FunctionCall) -> str:
        texts = [self.of(argument) for argument in call.arguments]
        match call.function:
            case ScalarFunction.SUBSTRING | ScalarFunction.SLICE:
                texts[1:] = [
                    index_text(text, simple=_is_simple(argument))
                    for text, argument in zip(texts[1:], call.arguments[1:], strict=True)
                ]
            case ScalarFunction.SPLIT | ScalarFunction.TRUNCATE if (
                self._known(call.arguments[1]) is None
            ):
                return literal(None, call.type)
            case _ if qt.is_time(call.arguments[0].type):
                return _of_time(call, texts)
            case _ if isinstance(call.type, ct.DecimalType):
                if call.function is ScalarFunction.DIV:
                    texts[1] = _not_zero(texts[1], "0", call.arguments[1])
                return f"CAST({decimal_text(call, texts)} AS {sql_type(call.type)})"
            case ScalarFunction.SQRT:
                simple = _is_simple(call.arguments[0])
                texts[0] = once(
                    texts[0],
                    lambda value: f"CASE WHEN {value} >= 0 THEN {value} END",
                    simple=simple,
                )
            case ScalarFunction.DIV:
                texts[1] = _not_zero(texts[1], "0", call.arguments[1])
            case ScalarFunction.LIKE:
                pattern = self._known(call.arguments[1])
                regex = like_regex(pattern) if isinstance(pattern, str) else None
                texts[1] = literal(regex, qt.STRING)
            case _:
                pass
        kernel = kernel_of(call)
        if kernel is None:
            return NATIVE[call.function](texts)
        return kernel_call(kernel, texts, strict=KERNELS[kernel].can_fail)

    def _arithmetic(self, arithmetic: ex.Arithmetic) -> str:
        operator = arithmetic.operator
        if isinstance(arithmetic.type, ct.DecimalType):
            return self._decimal(arithmetic, arithmetic.type)
        if arithmetic.operator is BinaryOperator.DIVIDE or not qt.is_integer(arithmetic.type):
            left, right = self._double(arithmetic.left), self._double(arithmetic.right)
            if operator is BinaryOperator.DIVIDE:
                right = _not_zero(right, "CAST('0' AS DOUBLE)", arithmetic.right)
            return f"({left} {operator.value} {right})"
        # The remainder of the smallest BIGINT by -1 is 0, but DuckDB divides first.
        wide = operator is BinaryOperator.REMAINDER or ct.Scalar.U64 in (
            qt.scalar_of(arithmetic.left.type),
            qt.scalar_of(arithmetic.right.type),
        )
        kind = "HUGEINT" if wide else "BIGINT"
        left, right = (
            f"CAST({self.of(side)} AS {kind})" for side in (arithmetic.left, arithmetic.right)
        )
        if operator is BinaryOperator.REMAINDER:
            right = _not_zero(right, "0", arithmetic.right)
        result = f"({left} {operator.value} {right})"
        return f"CAST({result} AS BIGINT)" if wide else result

    def _decimal(self, arithmetic: ex.Arithmetic, kind: ct.DecimalType) -> str:
        """In the widest type: DuckDB computes products in the width of the operands."""
        sides: list[str] = []
        for side in (arithmetic.left, arithmetic.right):
            assert isinstance(side.type, ct.DecimalType)
            wide = replace(side.type, precision=ct.DECIMAL_DIGITS_MAX)
            sides.append(f"CAST({self.of(side)} AS {sql_type(wide)})")
        if arithmetic.operator is BinaryOperator.REMAINDER:
            sides[1] = _not_zero(sides[1], "0", arithmetic.right)
        return f"CAST(({sides[0]} {arithmetic.operator.value} {sides[1]}) AS {sql_type(kind)})"

    def _negation(self, negation: ex.Negation) -> str:
        inner = self.of(negation.operand)
        if isinstance(negation.type, ct.DecimalType):
            return f"(-{inner})"
        if qt.is_integer(negation.type):
            # Beyond BIGINT first: the negative of an unsigned integer is unsigned to DuckDB.
            return f"CAST((0 - CAST({inner} AS HUGEINT)) AS BIGINT)"
        return f"(-CAST({inner} AS DOUBLE))"

    def _double(self, expression: ex.Expression) -> str:
        text = self.of(expression)
        return text if qt.scalar_of(expression.type) is ct.Scalar.F64 else f"CAST({text} AS DOUBLE)"

    def _comparison(self, comparison: ex.Comparison) -> str:
        left, right = self._alike(comparison.left, comparison.right)
        sign = (
            "<>" if comparison.operator is BinaryOperator.NOT_EQUAL else comparison.operator.value
        )
        return f"({left} {sign} {right})"

    def _alike(self, left: ex.Expression, right: ex.Expression) -> tuple[str, str]:
        """Both sides in a type that holds either; an integer meets a float as a float."""
        left_type, right_type = qt.scalar_of(left.type), qt.scalar_of(right.type)
        common = _common(left_type, right_type)
        if common is None:
            return self.of(left), self.of(right)
        for side, other, kind in ((left, right, right_type), (right, left, left_type)):
            value = self._known(side)
            if kind in ct.INTEGERS and _fits(value, kind) and qt.is_integer(side.type):
                # The other side is a column as it is stored: comparing it needs no cast.
                assert kind is not None
                literal_text = scalar_literal(value, kind)
                return (
                    (literal_text, self.of(other))
                    if side is left
                    else (self.of(other), literal_text)
                )
        return f"CAST({self.of(left)} AS {common})", f"CAST({self.of(right)} AS {common})"

    def _known(self, expression: ex.Expression) -> BoundValue:
        if isinstance(expression, ex.Constant):
            return expression.value
        return (
            self._parameters.values[expression.name]
            if isinstance(expression, ex.Parameter)
            else None
        )

    def _membership(self, membership: ex.Membership) -> str:
        item, items = membership.item, self._known(membership.collection)
        if isinstance(items, tuple):
            return self._in_known(item, items, membership.collection.type)
        if isinstance(item.type, ct.DecimalType):
            # The compiler gave the item a type that holds the items of the list, too.
            common: str | None = sql_type(item.type)
        else:
            assert isinstance(membership.collection.type, ct.ListType)
            common = _common(qt.scalar_of(item.type), membership.collection.type.item)
        wanted, collection = self.of(item), self.of(membership.collection)
        if common is not None:
            wanted, collection = f"CAST({wanted} AS {common})", f"CAST({collection} AS {common}[])"
        return (
            f"CASE WHEN list_contains({collection}, {wanted}) THEN true"
            f" WHEN {wanted} IS NULL OR len({collection}) IS NULL"
            f" OR list_count({collection}) < len({collection})"
            " THEN NULL ELSE false END"
        )

    def _in_known(
        self, item: ex.Expression, items: tuple[BoundValue, ...], declared: qt.ExpressionType
    ) -> str:
        wanted = self.of(item)
        if not items:
            return f"CASE WHEN {wanted} IS NULL THEN NULL ELSE false END"
        if isinstance(item.type, ct.DecimalType):
            item_type = item.type
            exact = [Decimal(value) if isinstance(value, int) else value for value in items]
            return f"({wanted} IN ({', '.join(literal(value, item_type) for value in exact)}))"
        assert isinstance(declared, ct.ListType)
        kind = qt.scalar_of(item.type)
        if kind in ct.INTEGERS and declared.item in ct.INTEGERS:
            # What the item cannot hold is not equal to it; one that it can hold needs no cast.
            assert kind is not None
            fitting_values = [value for value in items if value is None or _fits(value, kind)]
            literals = [scalar_literal(value, kind) for value in fitting_values]
        else:
            common = _common(kind, declared.item)
            wanted = wanted if common is None else f"CAST({wanted} AS {common})"
            texts = [scalar_literal(value, declared.item) for value in items]
            literals = texts if common is None else [f"CAST({text} AS {common})" for text in texts]
        if not literals:
            return f"CASE WHEN {wanted} IS NULL THEN NULL ELSE false END"
        return f"({wanted} IN ({', '.join(literals)}))"


def _of_time(call: ex.FunctionCall, texts: list[str]) -> str:
    """A function of dates and points in time."""
    kinds = [argument.type for argument in call.arguments]
    match call.function:
        case ScalarFunction.TRUNCATE:
            start = NATIVE[call.function]([utc_text(texts[0], kinds[0]), texts[1]])
            return time_text(f"epoch_us({start})", call.type)
        case ScalarFunction.ADD:
            at, *by = texts
            added = kernel_call(
                Kernel.ADD_TIME, [microseconds_text(at, kinds[0]), *by], strict=True
            )
            return time_text(added, call.type)
        case ScalarFunction.BETWEEN_DAYS | ScalarFunction.BETWEEN_MICROSECONDS:
            return NATIVE[call.function]([*map(microseconds_text, texts, kinds)])
        case _:
            return NATIVE[call.function]([utc_text(texts[0], kinds[0])])


def _is_simple(expression: ex.Expression) -> bool:
    """Whether the text of an expression may be repeated."""
    if isinstance(expression, ex.Cast):
        return _is_simple(expression.operand)
    return isinstance(
        expression, ex.Constant | ex.Parameter | ex.PropertyOf | ex.TypeName | ex.PartOfPath
    )


def _not_zero(text: str, zero: str, divisor: ex.Expression) -> str:
    """A divisor that is null instead of zero; DuckDB computes the operand of `nullif` twice."""
    return once(text, lambda value: f"nullif({value}, {zero})", simple=_is_simple(divisor))


def _not_negative(text: str, operand: ex.Expression) -> str:
    """A number that is null instead of negative."""
    return once(
        text,
        lambda value: f"CASE WHEN {value} >= 0 THEN {value} END",
        simple=_is_simple(operand),
    )


def _fits(value: BoundValue, kind: ct.Scalar | None) -> bool:
    if not isinstance(value, int) or isinstance(value, bool) or kind not in qt.INTEGER_LIMITS:
        return False
    low, high = qt.INTEGER_LIMITS[kind]
    return low <= value <= high


def _common(left: ct.Scalar | None, right: ct.Scalar | None) -> str | None:
    """The type in which two numbers are compared; None if they can be as they are."""
    if left is right:
        return None
    if left in ct.FLOATS or right in ct.FLOATS:
        return "DOUBLE"
    if left in ct.INTEGERS and right in ct.INTEGERS:
        return "HUGEINT" if ct.Scalar.U64 in (left, right) else "BIGINT"
    return None


# Aggregates


def aggregate_sql(  # noqa: C901, PLR0911, PLR0912 - one per function
    aggregate: ex.Aggregate,
    *,
    column: ColumnText,
    parameters: BoundParameters,
    identity: IdentityText,
    weight: str | None = None,
) -> str:
    """The text of a value of a group, in its declared type.

    `weight` is a column that says how many rows each row represents; aggregates that see every row
    cannot have one.
    """
    argument = aggregate.argument
    if argument is None:
        return _count("count(*)" if weight is None else f"sum({weight})")
    if isinstance(argument, ex.Entity):
        return _entities(aggregate, argument, identity, weight)
    text = sql_of(argument, column=column, parameters=parameters)
    match aggregate.function:
        case ex.AggregateFunction.COUNT if aggregate.distinct:
            return f"count(DISTINCT {text})"
        case ex.AggregateFunction.COUNT:
            return _count_present(text, weight)
        case ex.AggregateFunction.SUM:
            return _sum(aggregate, text, weight)
        case ex.AggregateFunction.AVERAGE:
            return _average(argument.type, text, weight)
        case ex.AggregateFunction.MINIMUM | ex.AggregateFunction.MAXIMUM:
            return f"{aggregate.function.value}({text})"
        case ex.AggregateFunction.COLLECT:
            assert weight is None or aggregate.distinct, "collect sees every row"
            word = "DISTINCT " if aggregate.distinct else ""
            # DuckDB refuses to order by a literal, and equal values need no order.
            is_constant = isinstance(argument, ex.Constant | ex.Parameter | ex.Now)
            order = "" if is_constant else f" ORDER BY {text}"
            listed = f"list({word}{text}{order}) FILTER (WHERE {text} IS NOT NULL)"
            return f"CAST(coalesce({listed}, []) AS {sql_type(aggregate.type)})"
        case ex.AggregateFunction.DEVIATION:
            assert weight is None, "a deviation sees every row"
            return _deviation(text)
        case ex.AggregateFunction.PERCENTILE:
            assert weight is None, "a percentile sees every row"
            assert aggregate.fraction is not None
            return _percentile(text, known_value(aggregate.fraction, parameters))
        case ex.AggregateFunction.FIRST | ex.AggregateFunction.LAST:
            keys = [sql_of(key, column=column, parameters=parameters) for key in aggregate.by]
            return _choose_row(aggregate, text, keys)
        case _:
            assert_never(aggregate.function)


_SQUARE_FITS: Final = "CAST('1e150' AS DOUBLE)"
"""Below it squares and sums of them are finite."""
_SCALED_DOWN: Final = f"CAST('{2.0**-560!r}' AS DOUBLE)"


def _deviation(text: str) -> str:
    """The standard deviation of a sample; NaN if a value is not finite."""
    double = f"CAST({text} AS DOUBLE)"
    plain = f"stddev_samp({double}) FILTER (WHERE abs({double}) < {_SQUARE_FITS})"
    scaled = f"stddev_samp({double} * {_SCALED_DOWN}) FILTER (WHERE isfinite({double}))"
    return (
        f"CASE WHEN count({text}) < 2 THEN CAST(NULL AS DOUBLE)"
        f" WHEN count(*) FILTER (WHERE NOT isfinite({double})) > 0 THEN CAST('nan' AS DOUBLE)"
        f" WHEN count(*) FILTER (WHERE abs({double}) >= {_SQUARE_FITS}) = 0 THEN {plain}"
        f" ELSE {scaled} / {_SCALED_DOWN} END"
    )


def _percentile(text: str, fraction: BoundValue) -> str:
    """The value at a fraction of the sorted ones, between two of them in proportion."""
    assert isinstance(fraction, int | float)
    double = f"CAST({text} AS DOUBLE)"
    listed = f"(list({double} ORDER BY {double}) FILTER (WHERE {text} IS NOT NULL))"
    place = f"(CAST(count({text}) - 1 AS DOUBLE) * {scalar_literal(fraction, ct.Scalar.F64)})"
    lower = f"{listed}[CAST(floor({place}) AS BIGINT) + 1]"
    upper = f"{listed}[CAST(ceil({place}) AS BIGINT) + 1]"
    share = f"({place} - floor({place}))"
    one = "CAST('1' AS DOUBLE)"
    return (
        f"CASE WHEN count({text}) = 0 THEN CAST(NULL AS DOUBLE)"
        f" WHEN {lower} = {upper} THEN {lower}"
        f" ELSE {lower} * ({one} - {share}) + {upper} * {share} END"
    )


def _choose_row(aggregate: ex.Aggregate, text: str, keys: Sequence[str]) -> str:
    """The value of the first or last row that has a value and a key."""
    function = "arg_min" if aggregate.function is ex.AggregateFunction.FIRST else "arg_max"
    key, *ties = keys
    first = key
    if qt.is_float(aggregate.by[0].type):
        # Both zeros are equal, and a row compares them by their bits.
        zero = f"CAST('0' AS {sql_type(aggregate.by[0].type)})"
        first = f"CASE WHEN {key} = {zero} THEN {zero} ELSE {key} END"
    others = [f"({tie} IS NOT NULL), coalesce({tie}, '')" for tie in ties]
    present = f"{text} IS NOT NULL AND {key} IS NOT NULL"
    row = ", ".join([first, *others])
    return f"{function}({text}, row({row})) FILTER (WHERE {present})"


def _entities(
    aggregate: ex.Aggregate, entity: ex.Entity, identity: IdentityText, weight: str | None
) -> str:
    assert aggregate.function is ex.AggregateFunction.COUNT
    kind, key = identity(entity)
    if not aggregate.distinct:
        return _count_present(key, weight)
    if len(entity.type.types) > 1:
        return f"count(DISTINCT row({kind}, {key})) FILTER (WHERE {key} IS NOT NULL)"
    return f"count(DISTINCT {key})"


def _count_present(text: str, weight: str | None) -> str:
    if weight is None:
        return f"count({text})"
    return _count(f"sum({weight}) FILTER (WHERE {text} IS NOT NULL)")


def _count(total: str) -> str:
    if total == "count(*)":
        return total
    return _check(f"coalesce({total}, 0)", qt.I64)


def _decimal_sum(kind: ct.DecimalType, text: str, weight: str | None) -> str:
    if weight is None:
        return f"sum({text})"
    # DuckDB multiplies in the width of the operands.
    return f"sum(CAST({text} AS {sql_type(kind)}) * CAST({weight} AS DECIMAL(10, 0)))"


def _sum(aggregate: ex.Aggregate, text: str, weight: str | None) -> str:
    if isinstance(aggregate.type, ct.DecimalType):
        return f"CAST({_decimal_sum(aggregate.type, text, weight)} AS {sql_type(aggregate.type)})"
    if not qt.is_integer(aggregate.type):
        return _float_sum(text, weight)
    return _check(_integer_sum(text, weight), aggregate.type)


def _integer_sum(text: str, weight: str | None) -> str:
    return f"sum({text})" if weight is None else f"sum(CAST({text} AS HUGEINT) * {weight})"


def _float_sum(text: str, weight: str | None) -> str:
    double = f"CAST({text} AS DOUBLE)"
    return f"sum({double})" if weight is None else f"sum({double} * {weight})"


def _average(kind: qt.ExpressionType, text: str, weight: str | None) -> str:
    assert qt.is_number(kind) or isinstance(kind, ct.DecimalType)
    count = (
        f"count({text})" if weight is None else f"sum({weight}) FILTER (WHERE {text} IS NOT NULL)"
    )
    divisor = f"nullif(CAST({count} AS DOUBLE), CAST('0' AS DOUBLE))"
    if isinstance(kind, ct.DecimalType):
        total = _decimal_sum(replace(kind, precision=ct.DECIMAL_DIGITS_MAX), text, weight)
        return f"(CAST(CAST({total} AS VARCHAR) AS DOUBLE) / {divisor})"
    if not qt.is_integer(kind):
        return f"({_float_sum(text, weight)} / {divisor})"
    total = _integer_sum(text, weight)
    # DuckDB rounds twice when it makes a double of a HUGEINT; its text is rounded once.
    double = (
        f"coalesce(CAST(TRY_CAST({total} AS BIGINT) AS DOUBLE),"
        f" CAST(CAST({total} AS VARCHAR) AS DOUBLE))"
    )
    return f"({double} / {divisor})"


def _check(total: str, kind: qt.ExpressionType) -> str:
    """A sum as 64 bits; the cast refuses what does not fit."""
    return f"CAST({total} AS {sql_type(kind)})"
