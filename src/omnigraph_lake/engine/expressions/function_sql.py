"""Scalar functions as SQL of DuckDB: native functions as text, kernels as functions of a database.

Invariants:
- An argument occurs once in the text of a call, so that nested calls stay small.
- A database has all kernels or none. A strict kernel raises where a value is refused; the other
  form of it gives null.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.engine.expressions.kernels import (
    CANNOT_CAST,
    CAST_KERNELS,
    KERNELS,
    Kernel,
    find_refusals,
)
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import types as qt
from omnigraph_lake.query.functions import ScalarFunction
from omnigraph_lake.runner.databases import shared_database
from omnigraph_lake.schema import catalog as ct

if TYPE_CHECKING:
    import duckdb

TRIMMED: Final = "".join(
    map(
        chr,
        (
            *range(0x9, 0xE),
            *(0x20, 0x85, 0xA0, 0x1680),
            *range(0x2000, 0x200B),
            *(0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
        ),
    )
)
"""The code points with the property White_Space."""
INDEX_MAX: Final = 2**31 - 2
"""No text has more characters."""
REFUSED: Final = "omnigraph refuses a value: "
"""How an error begins that a call in SQL raises; what follows says why."""

_ADDING: Final = threading.Lock()
_Text: TypeAlias = Callable[[Sequence[str]], str]


def quoted(text: str) -> str:
    """A string as SQL spells it; only the quote is escaped."""
    return "'" + text.replace("'", "''") + "'"


def once(text: str, body: Callable[[str], str], *, simple: bool) -> str:
    """A body that mentions a value more than once; one that is not simple is computed once."""
    return body(text) if simple else f"list_transform([{text}], lambda v: {body('v')})[1]"


def index_text(text: str, *, simple: bool) -> str:
    """An index that is null if it is negative, and not beyond every text."""

    def body(value: str) -> str:
        return (
            f"CASE WHEN {value} < 0 THEN NULL WHEN {value} > {INDEX_MAX} THEN {INDEX_MAX}"
            f" ELSE CAST({value} AS BIGINT) END"
        )

    return once(text, body, simple=simple)


def _substring(arguments: Sequence[str]) -> str:
    text, start, *count = arguments
    return f"substring({', '.join([text, f'({start}) + 1', *(f'({item})' for item in count)])})"


def utc_text(text: str, kind: qt.ExpressionType) -> str:
    """A time as a timestamp without a zone, which is in UTC whatever the session is set to."""
    return f"make_timestamp(epoch_us({text}))" if kind == qt.DATETIME else text


def microseconds_text(text: str, kind: qt.ExpressionType) -> str:
    """The microseconds from 1970 to a time."""
    return f"epoch_us({text})" if kind == qt.DATETIME else f"epoch_us(CAST({text} AS TIMESTAMP))"


def time_text(microseconds: str, kind: qt.ExpressionType) -> str:
    """The time so many microseconds after 1970."""
    if kind == qt.DATETIME:
        return f"make_timestamptz({microseconds})"
    return f"CAST(make_timestamp({microseconds}) AS DATE)"


_DAY: Final = 86_400_000_000
"""Microseconds."""


def _slice(arguments: Sequence[str]) -> str:
    items, start, *end = arguments
    return f"({items})[({start}) + 1:({end[0] if end else INDEX_MAX})]"


def _quantify(decisive: str, other: str) -> _Text:
    """A value that decides if an item has it; else null if an item is, else the other value."""

    def body(items: str) -> str:
        return (
            f"CASE WHEN list_contains({items}, {decisive}) THEN {decisive}"
            f" WHEN list_count({items}) < len({items}) THEN NULL"
            f" WHEN {items} IS NOT NULL THEN {other} END"
        )

    return lambda arguments: once(arguments[0], body, simple=False)


NATIVE: Final[Mapping[ScalarFunction, _Text]] = {
    ScalarFunction.TRIM: lambda arguments: f"trim({arguments[0]}, {quoted(TRIMMED)})",
    ScalarFunction.LENGTH: lambda arguments: f"length({arguments[0]})",
    ScalarFunction.CONCAT: lambda arguments: f"({' || '.join(arguments)})",
    ScalarFunction.SUBSTRING: _substring,
    ScalarFunction.REPLACE: lambda arguments: f"replace({', '.join(arguments)})",
    ScalarFunction.ABS: lambda arguments: f"abs({arguments[0]})",
    ScalarFunction.SQRT: lambda arguments: f"sqrt({arguments[0]})",
    ScalarFunction.DIV: lambda arguments: (
        f"CAST((CAST({arguments[0]} AS HUGEINT) // CAST({arguments[1]} AS HUGEINT)) AS BIGINT)"
    ),
    ScalarFunction.SPLIT: lambda arguments: f"string_split({', '.join(arguments)})",
    ScalarFunction.YEAR: lambda arguments: f"year({arguments[0]})",
    ScalarFunction.MONTH: lambda arguments: f"month({arguments[0]})",
    ScalarFunction.DAY: lambda arguments: f"day({arguments[0]})",
    ScalarFunction.HOUR: lambda arguments: f"hour({arguments[0]})",
    ScalarFunction.MINUTE: lambda arguments: f"minute({arguments[0]})",
    ScalarFunction.SECOND: lambda arguments: f"second({arguments[0]})",
    ScalarFunction.WEEKDAY: lambda arguments: f"isodow({arguments[0]})",
    ScalarFunction.WEEK: lambda arguments: f"weekofyear({arguments[0]})",
    ScalarFunction.TRUNCATE: lambda arguments: f"date_trunc({arguments[1]}, {arguments[0]})",
    ScalarFunction.BETWEEN_DAYS: lambda arguments: f"(({arguments[1]} - {arguments[0]}) // {_DAY})",
    ScalarFunction.BETWEEN_MICROSECONDS: lambda arguments: f"({arguments[1]} - {arguments[0]})",
    ScalarFunction.SLICE: _slice,
    ScalarFunction.ANY: _quantify("true", "false"),
    ScalarFunction.ALL: _quantify("false", "true"),
}
"""The text of a call, from the texts of its arguments; times are timestamps without a zone, or
microseconds for the functions between two of them."""

KERNEL_OF: Final[Mapping[ScalarFunction, Kernel]] = {
    ScalarFunction.LOWER: Kernel.LOWER,
    ScalarFunction.UPPER: Kernel.UPPER,
    ScalarFunction.LIKE: Kernel.MATCHES,
    ScalarFunction.MATCHES: Kernel.MATCHES,
    ScalarFunction.ROUND: Kernel.ROUND_F64,
    ScalarFunction.FLOOR: Kernel.FLOOR,
    ScalarFunction.CEIL: Kernel.CEIL,
    ScalarFunction.ADD: Kernel.ADD_TIME,
    ScalarFunction.JSON: Kernel.JSON_AT,
    ScalarFunction.JSON_TYPE: Kernel.JSON_TYPE,
}


def kernel_of(call: ex.FunctionCall) -> Kernel | None:
    """The kernel of a call; None if the function is native."""
    if call.function is ScalarFunction.ROUND and qt.is_integer(call.type):
        return Kernel.ROUND_I64
    if call.function is ScalarFunction.JSON and len(call.arguments) == 1:
        return Kernel.TEXT_TO_JSON
    return KERNEL_OF.get(call.function)


def is_rounded_natively(call: ex.FunctionCall) -> bool:
    """Whether engines round a decimal as the language does: to a scale that the text names."""
    assert isinstance(call.type, ct.DecimalType)
    digits = call.arguments[1]
    return isinstance(digits, ex.Constant) and digits.value == call.type.scale


def decimal_text(call: ex.FunctionCall, texts: Sequence[str]) -> str:
    """A function of decimals, before its value is cast to its type; no divisor is zero."""
    assert isinstance(call.type, ct.DecimalType)
    number, *others = texts
    match call.function:
        case ScalarFunction.DIV:
            spellings = [f"CAST({text} AS VARCHAR)" for text in texts]
            return kernel_call(Kernel.DIVIDE_DECIMALS, spellings, strict=True)
        case ScalarFunction.ROUND if is_rounded_natively(call):
            return f"round({number}, {call.type.scale})"
        case ScalarFunction.ROUND:
            arguments = [f"CAST({number} AS VARCHAR)", *others, str(call.type.scale)]
            return kernel_call(Kernel.ROUND_DECIMAL, arguments, strict=True)
        case _:
            return f"{call.function.value}({number})"


_SQL_TYPES: Final[Mapping[pa.DataType, str]] = {
    pa.string(): "VARCHAR",
    pa.bool_(): "BOOLEAN",
    pa.int64(): "BIGINT",
    pa.uint64(): "UBIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
    pa.timestamp("us", "UTC"): "TIMESTAMPTZ",
}


def kernel_call(kernel: Kernel, arguments: Sequence[str], *, strict: bool = False) -> str:
    """The text of a call of a kernel; a strict one raises where it would give null."""
    return f"{_name(kernel, strict=strict)}({', '.join(arguments)})"


def add_kernels(database: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """The database, with every kernel as a function of all its connections."""
    from duckdb.func import FunctionNullHandling, PythonUDFType  # imported by what has a database

    for kernel, function in KERNELS.items():
        for strict in (False, True) if function.can_fail else (False,):
            database.create_function(
                _name(kernel, strict=strict),
                _callable(kernel, strict=strict),
                [_SQL_TYPES[kind] for kind in function.takes],
                _SQL_TYPES[function.gives],
                type=PythonUDFType.ARROW,
                null_handling=FunctionNullHandling.SPECIAL,
                # DuckDB 2.0 may compute a call with constants while it plans, also where there is
                # no row; it does not with one that it takes to have effects.
                side_effects=strict,
            )
    return database


def connect_with_kernels() -> duckdb.DuckDBPyConnection:
    """A new connection to the database of this process, which has the kernels."""
    with _ADDING:
        _add_to_shared_database()
    return shared_database()


@functools.cache
def _add_to_shared_database() -> None:
    add_kernels(shared_database())


def _name(kernel: Kernel, *, strict: bool) -> str:
    return f"omnigraph_{'strict_' if strict else ''}{kernel.value}"


@functools.cache  # DuckDB does not keep it: without a reference a call crashes the process
def _callable(kernel: Kernel, *, strict: bool) -> Callable[..., pa.Array]:
    function = KERNELS[kernel]

    @functools.wraps(function.compute)  # DuckDB counts the parameters
    def compute(*columns: pa.ChunkedArray) -> pa.Array:
        arrays = [column.combine_chunks() for column in columns]
        result = function.compute(*arrays)
        if strict:
            _require_none_refused(result, arrays, function.refusal)
        return result

    return compute


def _require_none_refused(result: pa.Array, arguments: Sequence[pa.Array], why: str) -> None:
    refused = find_refusals(result, arguments)
    if pc.any(refused, min_count=0).as_py():
        at = pc.index(refused, True).as_py()
        value = f": {arguments[0][at].as_py()!r:.80}" if why == CANNOT_CAST else ""
        raise ValueError(f"{REFUSED}{why}{value}")


def step_text(text: str, source: ct.Scalar, target: ct.Scalar, kind: str, *, lenient: bool) -> str:
    """A step of a conversion; `kind` is the SQL type of the target."""
    kernel = CAST_KERNELS.get((source, target))
    if kernel is not None:
        return kernel_call(kernel, [text], strict=KERNELS[kernel].can_fail and not lenient)
    word = "TRY_CAST" if lenient else "CAST"
    if source in ct.INTEGERS and target in ct.INTEGERS:
        # Through the widest type, so that the error is one that `refusal` knows.
        return f"{word}(CAST({text} AS HUGEINT) AS {kind})"
    match source, target:
        case ct.Scalar.DATETIME, ct.Scalar.DATE:
            # Not by a cast, which depends on the time zone of the session.
            return f"CAST(make_timestamp(epoch_us({text})) AS DATE)"
        case ct.Scalar.DATE, ct.Scalar.DATETIME:
            return f"to_timestamp(epoch({text}))"
        case _:
            return f"{word}({text} AS {kind})"
