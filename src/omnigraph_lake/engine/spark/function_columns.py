"""Scalar functions as columns of Spark: native functions, and kernels that tasks compute.

Invariants:
- An argument occurs once in the column of a call, so that nested calls stay small.
- Spark computes a kernel for all rows, also for those of which a `case` does not need it, so a
  kernel in a task never raises.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as sql

from omnigraph_lake.engine.expressions.decimal_values import drop_signs
from omnigraph_lake.engine.expressions.function_sql import (
    INDEX_MAX,
    TRIMMED,
    is_rounded_natively,
    kernel_of,
)
from omnigraph_lake.engine.expressions.kernels import CAST_KERNELS, KERNELS, Kernel
from omnigraph_lake.engine.spark.rows import cannot_cast, out_of_range, refuse
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import types as qt
from omnigraph_lake.query.binding import BoundParameters, known_value
from omnigraph_lake.query.functions import ScalarFunction
from omnigraph_lake.query.text_patterns import like_regex
from omnigraph_lake.query.types import INTEGER_LIMITS
from omnigraph_lake.runner.session import without_noise
from omnigraph_lake.runner.spark_versions import arrow_column, arrow_column_or_refusal, once
from omnigraph_lake.runner.types import property_spark_type
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.arrow import arrow_type

if TYPE_CHECKING:
    from pyspark.sql import Column

_LEAST: Final = -(2**63)
_DAY: Final = 86_400_000_000
_SIGNED_DIGITS_MAX: Final = 34
_Build: TypeAlias = Callable[[Sequence["Column"]], "Column"]
_SPARK_TYPES: Final[Mapping[pa.DataType, str]] = {
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.int64(): "bigint",
    pa.uint64(): "decimal(20,0)",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
}


def function_column(  # noqa: PLR0911 - one per kind
    call: ex.FunctionCall, arguments: Sequence[Column], parameters: BoundParameters
) -> Column:
    """The value of a call in each row."""
    columns = list(arguments)
    match call.function:
        case ScalarFunction.LIKE | ScalarFunction.SPLIT:
            known = known_value(call.arguments[1], parameters)
            spell = like_regex if call.function is ScalarFunction.LIKE else _quote_regex
            columns[1] = sql.lit(spell(known) if isinstance(known, str) else None).cast("string")
        case ScalarFunction.ABS if qt.is_integer(call.type):
            return once(columns[0], _abs_integer)
        case ScalarFunction.LENGTH if isinstance(call.arguments[0].type, ct.ListType):
            return sql.array_size(columns[0]).cast("bigint")
        case ScalarFunction.TRUNCATE:
            return _truncate(columns[0], call.type, known_value(call.arguments[1], parameters))
        case ScalarFunction.ADD:
            columns[0] = _microseconds(columns[0], call.type)
            return _time(kernel_column(Kernel.ADD_TIME, columns, strict=True), call.type)
        case ScalarFunction.BETWEEN_DAYS | ScalarFunction.BETWEEN_MICROSECONDS:
            columns = [
                _microseconds(column, argument.type)
                for column, argument in zip(columns, call.arguments, strict=True)
            ]
        case function if function in _OF_DAYS:
            columns[0] = _date(columns[0], call.arguments[0].type)
        case _ if isinstance(call.type, ct.DecimalType):
            return _of_decimal(call, columns).cast(property_spark_type(call.type))
        case _:
            pass
    kernel = kernel_of(call)
    if kernel is None:
        return NATIVE[call.function](columns)
    return kernel_column(kernel, columns, strict=KERNELS[kernel].can_fail)


def _of_decimal(call: ex.FunctionCall, columns: Sequence[Column]) -> Column:
    """A function of decimals, before its value is cast to its type."""
    assert isinstance(call.type, ct.DecimalType)
    number, *others = columns
    match call.function:
        case ScalarFunction.DIV:
            divisor = once(others[0], lambda value: sql.when(value != 0, value))
            spellings = [number.cast("string"), divisor.cast("string")]
            return kernel_column(Kernel.DIVIDE_DECIMALS, spellings, strict=True)
        case ScalarFunction.ROUND if is_rounded_natively(call):
            return sql.round(number, call.type.scale)
        case ScalarFunction.ROUND:
            scale = sql.lit(call.type.scale).cast("bigint")
            arguments = [number.cast("string"), *others, scale]
            return kernel_column(Kernel.ROUND_DECIMAL, arguments, strict=True)
        case ScalarFunction.FLOOR:
            return sql.floor(number)
        case ScalarFunction.CEIL:
            return sql.ceil(number)
        case _:
            assert call.function is ScalarFunction.ABS
            return change_sign(number, call.type, sql.abs, drop_signs)


def change_sign(
    number: Column,
    kind: ct.DecimalType,
    native: Callable[[Column], Column],
    compute: Callable[[pa.Array], pa.Array],
) -> Column:
    """Decimals whose sign changes: Spark rounds them to 34 digits, so more are left to tasks."""
    if kind.precision <= _SIGNED_DIGITS_MAX:
        return native(number)
    gives = property_spark_type(kind).simpleString()
    with without_noise():
        return arrow_column(compute, [number], takes=[arrow_type(kind)], gives=gives)


def kernel_column(kernel: Kernel, columns: Sequence[Column], *, strict: bool = False) -> Column:
    """What a kernel computes from columns; a strict one fails the job where it refuses a value."""
    function = KERNELS[kernel]
    compute, takes, gives = function.compute, function.takes, _SPARK_TYPES[function.gives]
    if function.gives == pa.uint64():
        compute = _as_decimals(compute)
    with without_noise():
        if not strict:
            return arrow_column(compute, columns, takes=takes, gives=gives)
        return arrow_column_or_refusal(
            compute, columns, takes=takes, gives=gives, refused=refuse(function.refusal)
        )


def _as_decimals(compute: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
    """Spark has no unsigned integers."""

    def compute_decimals(*arrays: pa.Array) -> pa.Array:
        return compute(*arrays).cast(pa.decimal128(20, 0))

    return compute_decimals


def step_column(column: Column, source: ct.Scalar, target: ct.Scalar, *, lenient: bool) -> Column:
    """A step of a conversion."""
    kernel = CAST_KERNELS.get((source, target))
    if kernel is not None:
        strict = KERNELS[kernel].can_fail and not lenient
        return kernel_column(kernel, [column], strict=strict)
    refused = sql.lit(None) if lenient else None
    if source in ct.INTEGERS and target in ct.INTEGERS:
        return _fit_integer(column, target, refused)
    match source, target:
        case ct.Scalar.DATETIME, ct.Scalar.DATE:
            # Not by a cast, which depends on the time zone of the session.
            days = once(
                sql.unix_micros(column),
                lambda at: (at - sql.pmod(at, sql.lit(_DAY))) / sql.lit(_DAY),
            )
            return sql.date_from_unix_date(days.cast("int"))
        case ct.Scalar.DATE, ct.Scalar.DATETIME:
            return sql.timestamp_micros(sql.unix_date(column).cast("bigint") * sql.lit(_DAY))
        case ct.Scalar.F64, ct.Scalar.F32:
            return once(column, lambda value: _narrow(value, refused))
        case _:
            return column.cast(property_spark_type(ct.ScalarType(scalar=target)))


def _fit_integer(column: Column, target: ct.Scalar, refused: Column | None) -> Column:
    low, high = INTEGER_LIMITS[target]
    kind = property_spark_type(ct.ScalarType(scalar=target))

    def fit(value: Column) -> Column:
        wide = value.cast("decimal(20,0)")
        is_outside = (wide < Decimal(low)) | (wide > Decimal(high))
        wrong = cannot_cast() if refused is None else refused
        return sql.when(is_outside, wrong).otherwise(value).cast(kind)

    return once(column, fit)


def _narrow(value: Column, refused: Column | None) -> Column:
    is_finite = sql.abs(value) < sql.lit(math.inf)
    is_lost = is_finite & (sql.abs(value.cast("float").cast("double")) == sql.lit(math.inf))
    wrong = cannot_cast() if refused is None else refused
    return sql.when(is_lost, wrong).otherwise(value).cast("float")


def _quote_regex(text: str) -> str:
    """A regular expression of Java that matches the text itself."""
    return re.sub(r"[\\^$.|?*+()\[\]{}]", r"\\\g<0>", text)


def _abs_integer(value: Column) -> Column:
    return sql.when(value == _LEAST, out_of_range()).otherwise(sql.abs(value))


def _div(columns: Sequence[Column]) -> Column:
    def divide(both: Column) -> Column:
        overflows = (both.dividend == _LEAST) & (both.divisor == -1)
        quotient = sql.call_function("div", both.dividend, both.divisor)
        return (
            sql.when(both.divisor == 0, sql.lit(None))
            .when(overflows, out_of_range())
            .otherwise(quotient)
        )

    dividend, divisor = columns
    return once(sql.struct(dividend.alias("dividend"), divisor.alias("divisor")), divide)


_UNITS: Final[Mapping[str, int]] = {
    "day": _DAY,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
}
"""Microseconds."""
_OF_DAYS: Final = frozenset(
    {
        ScalarFunction.YEAR,
        ScalarFunction.MONTH,
        ScalarFunction.DAY,
        ScalarFunction.WEEKDAY,
        ScalarFunction.WEEK,
    }
)


def _microseconds(column: Column, kind: qt.ExpressionType) -> Column:
    """The microseconds from 1970 to a time, in UTC whatever the session is set to."""
    if kind == qt.DATE:
        return sql.unix_date(column).cast("bigint") * sql.lit(_DAY)
    return sql.unix_micros(column)


def _time(microseconds: Column, kind: qt.ExpressionType) -> Column:
    """The time so many microseconds after 1970."""
    if kind == qt.DATE:
        return sql.date_from_unix_date(_div_floor(microseconds, _DAY).cast("int"))
    return sql.timestamp_micros(microseconds)


def _date(column: Column, kind: qt.ExpressionType) -> Column:
    return column if kind == qt.DATE else _time(sql.unix_micros(column), qt.DATE)


def _div_floor(number: Column, unit: int) -> Column:
    return once(
        number,
        lambda value: sql.call_function(
            "div", value - sql.pmod(value, sql.lit(unit).cast("bigint")), sql.lit(unit)
        ),
    )


def _truncate(column: Column, kind: qt.ExpressionType, unit: object) -> Column:
    if not isinstance(unit, str):
        return sql.lit(None).cast("date" if kind == qt.DATE else "timestamp")
    if unit in _UNITS:
        length = sql.lit(_UNITS[unit]).cast("bigint")
        start = once(_microseconds(column, kind), lambda at: at - sql.pmod(at, length))
        return _time(start, kind)
    first_day = NATIVE[ScalarFunction.TRUNCATE]([_date(column, kind), sql.lit(unit)])
    return first_day if kind == qt.DATE else _time(_microseconds(first_day, qt.DATE), kind)


def _part_of_day(unit: str, count: int) -> _Build:
    """The whole units since the start of a day, an hour or a minute that has so many of them."""

    def build(columns: Sequence[Column]) -> Column:
        whole = sql.lit(_UNITS[unit] * count).cast("bigint")
        return _div_floor(sql.pmod(sql.unix_micros(columns[0]), whole), _UNITS[unit])

    return build


def _slice(columns: Sequence[Column]) -> Column:
    items, start, *end = columns
    last = _index(end[0]) if end else sql.lit(INDEX_MAX)

    def cut(first: Column) -> Column:
        # Not by `greatest`, which skips nulls.
        return once(
            last - first,
            lambda count: sql.slice(items, first + 1, sql.when(count < 0, 0).otherwise(count)),
        )

    return once(_index(start), cut)


def _index(column: Column) -> Column:
    """An index that is null if it is negative, and not beyond every text."""
    return once(
        column,
        lambda value: sql.when(value >= 0, sql.least(value, sql.lit(INDEX_MAX)).cast("int")),
    )


def _substring(columns: Sequence[Column]) -> Column:
    text, start, *count = columns
    length = _index(count[0]) if count else sql.lit(INDEX_MAX)
    return sql.substr(text, _index(start) + 1, length)


NATIVE: Final[Mapping[ScalarFunction, _Build]] = {
    ScalarFunction.TRIM: lambda columns: sql.btrim(columns[0], sql.lit(TRIMMED)),
    ScalarFunction.LENGTH: lambda columns: sql.length(columns[0]).cast("bigint"),
    ScalarFunction.CONCAT: lambda columns: sql.concat(*columns),
    ScalarFunction.SUBSTRING: _substring,
    ScalarFunction.REPLACE: lambda columns: sql.replace(*columns),
    ScalarFunction.ABS: lambda columns: sql.abs(columns[0]),
    ScalarFunction.SQRT: lambda columns: once(
        columns[0], lambda value: sql.when(value >= 0, sql.sqrt(value))
    ),
    ScalarFunction.DIV: _div,
    ScalarFunction.SPLIT: lambda columns: sql.call_function("split", *columns, sql.lit(-1)),
    ScalarFunction.YEAR: lambda columns: sql.year(columns[0]).cast("bigint"),
    ScalarFunction.MONTH: lambda columns: sql.month(columns[0]).cast("bigint"),
    ScalarFunction.DAY: lambda columns: sql.dayofmonth(columns[0]).cast("bigint"),
    ScalarFunction.HOUR: _part_of_day("hour", 24),
    ScalarFunction.MINUTE: _part_of_day("minute", 60),
    ScalarFunction.SECOND: _part_of_day("second", 60),
    ScalarFunction.WEEKDAY: lambda columns: (sql.weekday(columns[0]) + 1).cast("bigint"),
    ScalarFunction.WEEK: lambda columns: sql.weekofyear(columns[0]).cast("bigint"),
    ScalarFunction.TRUNCATE: lambda columns: sql.call_function("trunc", *columns),
    ScalarFunction.BETWEEN_DAYS: lambda columns: sql.call_function(
        "div", columns[1] - columns[0], sql.lit(_DAY)
    ),
    ScalarFunction.BETWEEN_MICROSECONDS: lambda columns: columns[1] - columns[0],
    ScalarFunction.SLICE: _slice,
    # `exists` of Spark has two or three values, as the session is set to.
    ScalarFunction.ANY: lambda columns: sql.array_contains(columns[0], sql.lit(True)),  # noqa: FBT003
    ScalarFunction.ALL: lambda columns: ~sql.array_contains(columns[0], sql.lit(False)),  # noqa: FBT003
}
"""The column of a call, from the columns of its arguments."""
