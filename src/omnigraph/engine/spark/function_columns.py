"""Scalar functions as columns of Spark: native functions, and kernels that tasks compute.

Invariants:
- An argument occurs once in the column of a call, so that nested calls stay small.
- Spark computes a kernel for all rows, also for those of which a `case` does not need it, so a
  kernel in a task never raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as sql

from omnigraph.engine.expressions.function_sql import INDEX_MAX, KERNEL_OF, TRIMMED
from omnigraph.engine.expressions.kernels import KERNELS, Kernel
from omnigraph.query import expressions as ex
from omnigraph.query.binding import BoundParameters, known_value
from omnigraph.query.functions import ScalarFunction
from omnigraph.query.text_patterns import like_regex
from omnigraph.runner.session import without_noise
from omnigraph.runner.spark_versions import arrow_column, once

if TYPE_CHECKING:
    from pyspark.sql import Column

_Build: TypeAlias = Callable[[Sequence["Column"]], "Column"]
_SPARK_TYPES: Final[Mapping[pa.DataType, str]] = {
    pa.string(): "string",
    pa.bool_(): "boolean",
}


def function_column(
    call: ex.FunctionCall, arguments: Sequence[Column], parameters: BoundParameters
) -> Column:
    """The value of a call in each row."""
    columns = list(arguments)
    match call.function:
        case ScalarFunction.LIKE | ScalarFunction.SPLIT:
            known = known_value(call.arguments[1], parameters)
            spell = like_regex if call.function is ScalarFunction.LIKE else _quote_regex
            columns[1] = sql.lit(spell(known) if isinstance(known, str) else None).cast("string")
        case _:
            pass
    kernel = KERNEL_OF.get(call.function)
    return NATIVE[call.function](columns) if kernel is None else kernel_column(kernel, columns)


def kernel_column(kernel: Kernel, columns: Sequence[Column]) -> Column:
    """What a kernel computes from columns."""
    function = KERNELS[kernel]
    with without_noise():
        return arrow_column(
            function.compute, columns, takes=function.takes, gives=_SPARK_TYPES[function.gives]
        )


def _quote_regex(text: str) -> str:
    """A regular expression of Java that matches the text itself."""
    return re.sub(r"[\\^$.|?*+()\[\]{}]", r"\\\g<0>", text)


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
    ScalarFunction.SPLIT: lambda columns: sql.call_function("split", *columns, sql.lit(-1)),
}
"""The column of a call, from the columns of its arguments."""
