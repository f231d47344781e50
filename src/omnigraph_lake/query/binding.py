"""The parameters of a run: the caller's values as values of the declared types.

Invariant: a query runs only with every parameter bound and nothing else given; a value that
does not fit is refused before anything is read.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NoReturn, TypeAlias, assert_never

from omnigraph_lake.derived import remember_derived
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.language.diagnostics import did_you_mean, shown
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import typed as tq
from omnigraph_lake.query.functions import KNOWN, Accepts, signature_of
from omnigraph_lake.query.text_patterns import refuse_known
from omnigraph_lake.query.types import (
    INTEGER_LIMITS,
    DecimalList,
    ParameterType,
    as_f32,
    show,
    show_with_null,
)
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.json_text import InvalidJson, JsonText, canonical_value
from omnigraph_lake.schema.values import SpeltFloat, decimal_of_text

BoundValue: TypeAlias = (
    str
    | int
    | float
    | Decimal
    | bool
    | bytes
    | dt.date
    | dt.datetime
    | tuple["BoundValue", ...]
    | None
)
_QUERIES_KNOWN: Final = 512
_MISSING_IN_PANDAS: Final = frozenset({"NAType", "NaTType"})
_INTEGER: Final = re.compile(r"-?[0-9]{1,20}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundParameters:
    """One value per declared parameter, and the instant that `now()` means in this run."""

    values: Mapping[str, BoundValue]
    now: dt.datetime


def known_value(expression: ex.Expression, parameters: BoundParameters) -> BoundValue:
    """The value of an expression that reads no row."""
    match expression:
        case ex.Constant():
            return expression.value
        case ex.Parameter():
            return parameters.values[expression.name]
        case ex.Now():
            return parameters.now
        case _:
            raise AssertionError(f"{type(expression).__name__} is not known before the run")


def known_count(expression: ex.Expression, parameters: BoundParameters) -> int:
    """A `limit`, an `offset` or another number that binding has checked."""
    value = known_value(expression, parameters)
    assert isinstance(value, int)
    return value


def known_vector(
    expression: ex.Expression, parameters: BoundParameters
) -> tuple[float, ...] | None:
    """The vector of a vector search; None if it is null."""
    value = known_value(expression, parameters)
    if value is None:
        return None
    assert isinstance(value, tuple)
    return tuple(float(number) for number in value if isinstance(number, int | float))


def bind(
    query: tq.TypedQuery, arguments: Mapping[str, object], *, now: dt.datetime
) -> BoundParameters:
    """The values of a run.

    Raises:
        InvalidInputError: a parameter is missing, unknown, null or of another type.
    """
    declared_parameters = {parameter.name: parameter for parameter in query.parameters}
    missing_parameters = [
        parameter
        for parameter in query.parameters
        if not parameter.nullable and parameter.name not in arguments
    ]
    if missing_parameters:
        listed = ", ".join(f"${parameter.name}" for parameter in missing_parameters)
        raise InvalidInputError(
            f"{query.title} is missing {listed}",
            next_step=f"Pass {', '.join(_shown(parameter) for parameter in missing_parameters)}; "
            f"on the command line with `--param {missing_parameters[0].name}=VALUE`.",
        )
    for name in arguments:
        if name not in declared_parameters:
            raise InvalidInputError(
                f"{query.title} has no parameter ${str(name)[:80]}",
                next_step=(
                    did_you_mean(str(name), declared_parameters) or _listed(query)
                ).capitalize(),
            )
    values = {
        name: _bound(query, parameter, arguments.get(name))
        for name, parameter in declared_parameters.items()
    }
    _check_counts(query, values)
    _check_known_arguments(query, values)
    return BoundParameters(values=values, now=now.astimezone(dt.UTC))


def _shown(parameter: tq.TypedParameter) -> str:
    return f"${parameter.name}: {show_with_null(parameter.type, nullable=parameter.nullable)}"


def _listed(query: tq.TypedQuery) -> str:
    if not query.parameters:
        return "it has none."
    return f"it has {', '.join(_shown(parameter) for parameter in query.parameters)}."


def _bound(query: tq.TypedQuery, declared: tq.TypedParameter, value: object) -> BoundValue:
    plain = plain_value(value)
    if plain is None:
        if declared.nullable:
            return None
        _refuse(query, declared, "is null")
    try:
        return _convert(declared.type, plain)
    except (TypeError, ValueError) as error:
        _refuse(query, declared, str(error))


def _refuse(query: tq.TypedQuery, declared: tq.TypedParameter, why: str) -> NoReturn:
    raise InvalidInputError(
        f"parameter ${declared.name} of {query.title} {why}",
        next_step=f"Give it as {_shown(declared)}.",
    )


def _convert(target: ParameterType, value: object) -> BoundValue:
    match target:
        case DecimalList():
            numbers = map(plain_value, list_items(value))
            return tuple(
                None if number is None else _decimal(target.item, number) for number in numbers
            )
        case ct.ScalarType():
            return _scalar(target.scalar, value)
        case ct.ListType():
            items = list_items(value)
            plain_items = map(plain_value, items)
            return tuple(
                None if item is None else _scalar(target.item, item) for item in plain_items
            )
        case ct.DecimalType():
            return _decimal(target, value)
        case ct.VectorType():
            return _vector(target, value)
        case ct.EnumType():
            return _text(value)
        case _:
            assert_never(target)


def list_items(value: object) -> Sequence[object]:
    """The items of a value for a list.

    Raises:
        ValueError: it is a single value.
    """
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        raise ValueError(f"is {_kind(value)}, expected a list")
    return tuple(value)


def plain_value(value: object) -> object:
    """The Python value of a scalar of numpy, pandas or Arrow, such as an item of an embedding."""
    package = type(value).__module__.partition(".")[0]
    if package == "pandas" and type(value).__name__ in _MISSING_IN_PANDAS:
        return None
    if package == "pyarrow" and hasattr(value, "as_py"):
        return value.as_py()
    if package != "numpy" or not hasattr(value, "item") or getattr(value, "shape", None) != ():
        return value
    item: object = value.item()
    # Python has no times of nanoseconds, so numpy gives their number.
    if isinstance(item, int) and type(value).__name__ == "datetime64" and hasattr(value, "astype"):
        return value.astype("datetime64[us]").item()
    return item


def _vector(target: ct.VectorType, value: object) -> tuple[float, ...]:
    items = list_items(value)
    numbers = _packed(items) or tuple(_float(ct.Scalar.F32, plain_value(item)) for item in items)
    if len(numbers) != target.size:
        raise ValueError(f"has {len(numbers)} numbers, expected {target.size}")
    return numbers


def _packed(items: Sequence[object]) -> tuple[float, ...] | None:
    """Plain floats as 32-bit ones, all at once; None if one needs a closer look."""
    floats = [item for item in items if type(item) is float]
    if len(floats) < len(items):
        return None
    layout = f"<{len(floats)}f"
    try:
        numbers: tuple[float, ...] = struct.unpack(layout, struct.pack(layout, *floats))
    except OverflowError:
        return None
    return numbers if all(map(math.isfinite, numbers)) else None


def _scalar(scalar: ct.Scalar, value: object) -> BoundValue:  # noqa: PLR0911 - one per kind
    match scalar:
        case ct.Scalar.STRING:
            return _text(value)
        case ct.Scalar.BLOB:
            return value if isinstance(value, bytes) else _text(value)
        case ct.Scalar.BOOL:
            if not isinstance(value, bool):
                raise TypeError(f"is {_kind(value)}, expected true or false")
            return value
        case ct.Scalar.I32 | ct.Scalar.I64 | ct.Scalar.U32 | ct.Scalar.U64:
            return _integer(scalar, value)
        case ct.Scalar.F32 | ct.Scalar.F64:
            return _float(scalar, value)
        case ct.Scalar.DATE | ct.Scalar.DATETIME:
            return _date(scalar, value)
        case ct.Scalar.JSON:
            return _json(value)
        case _:
            assert_never(scalar)


def _kind(value: object) -> str:
    return "null" if value is None else f"{type(value).__name__} {shown(value, 40)}"


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"is {_kind(value)}, expected text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("is not valid Unicode") from None
    return value


def _integer(scalar: ct.Scalar, value: object) -> int:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"is {_kind(value)}, expected an integer")
    low, high = INTEGER_LIMITS[scalar]
    if not low <= value <= high:
        raise ValueError(f"is {shown(value, 40)}, {scalar.value} holds {low} to {high}")
    return value


def _decimal(target: ct.DecimalType, value: object) -> Decimal:
    """An exact number, a text of one, or a float that means the number it is spelt as."""
    if not isinstance(value, int | float | Decimal | str) or isinstance(value, bool):
        raise TypeError(f"is {_kind(value)}, expected a number")
    match value:
        case str():
            text = value
        case SpeltFloat():
            text = value.text
        case float():
            text = repr(value)
        case _:
            text = str(Decimal(value))
    try:
        number = decimal_of_text(text, target)
    except ValueError:
        raise ValueError(f"is {_kind(value)}, expected a number") from None
    if number is None:
        raise ValueError(f"is {shown(value, 40)}, which {show(target)} does not hold exactly")
    return number


def _float(scalar: ct.Scalar, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"is {_kind(value)}, expected a number")
    try:
        number = as_f32(value) if scalar is ct.Scalar.F32 else float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"is {shown(value, 40)}, expected a finite {scalar.value}")
    return number


def _json(value: object) -> JsonText:
    """The canonical text of a Python value; a `str` is a JSON string."""
    try:
        text = canonical_value(value)
    except InvalidJson as error:
        raise ValueError(f"has {error}, expected a value of JSON") from None
    if text is None:
        raise ValueError("is the JSON value null, which is null")
    return JsonText(text)


def _date(scalar: ct.Scalar, value: object) -> dt.date | dt.datetime:
    if scalar is ct.Scalar.DATE:
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            return value
        try:
            return dt.date.fromisoformat(_text(value))
        except (TypeError, ValueError):
            raise ValueError(f"is {_kind(value)}, expected a date like 2024-05-31") from None
    try:
        instant = (
            value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(_text(value))
        )
        aware = instant.replace(tzinfo=dt.UTC) if instant.tzinfo is None else instant
        return aware.astimezone(dt.UTC)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"is {_kind(value)}, expected an instant like 2024-05-31T12:30:00Z"
        ) from None


@remember_derived(most=_QUERIES_KNOWN)
def _bounds_of(query: tq.TypedQuery) -> Mapping[str, tuple[int, int | None]]:
    """Parameters with a lower bound: `limit`, `offset`, edits, k of `rrf`, a percentile."""
    bounds: dict[str, tuple[int, int | None]] = {}
    if isinstance(query.body, tq.TypedRead):
        for count in (query.body.limit, query.body.offset):
            if isinstance(count, ex.Parameter):
                bounds[count.name] = (0, None)
    for expression in _expressions(query.body):
        for part in ex.walk(expression):
            if isinstance(part, ex.Fusion) and isinstance(part.k, ex.Parameter):
                bounds[part.k.name] = (1, None)
            elif isinstance(part, ex.Aggregate) and isinstance(part.fraction, ex.Parameter):
                bounds[part.fraction.name] = (0, 1)
            elif isinstance(part, ex.TextSearch) and isinstance(part.edits, ex.Parameter):
                bounds[part.edits.name] = (0, 2)
    return bounds


def _check_counts(query: tq.TypedQuery, values: Mapping[str, BoundValue]) -> None:
    for name, (low, high) in _bounds_of(query).items():
        value = values[name]
        assert isinstance(value, int | float)
        if value < low or (high is not None and value > high):
            wanted = f"at least {low}" if high is None else f"{low} to {high}"
            raise InvalidInputError(
                f"parameter ${name} of {query.title} is {value}, expected {wanted}",
                next_step=f"Give it {wanted}.",
            )


@remember_derived(most=_QUERIES_KNOWN)
def _list_known_arguments(query: tq.TypedQuery) -> tuple[tuple[str, Accepts], ...]:
    """Parameters that are patterns or separators of functions."""
    return tuple(
        dict.fromkeys(
            (argument.name, accepts)
            for expression in _expressions(query.body)
            for part in ex.walk(expression)
            if isinstance(part, ex.FunctionCall)
            for argument, accepts in _parameters_of(part)
            if isinstance(argument, ex.Parameter) and accepts in KNOWN
        )
    )


def _parameters_of(call: ex.FunctionCall) -> Iterator[tuple[ex.Expression, Accepts]]:
    signature = signature_of(call.function, [argument.type for argument in call.arguments])
    if signature is None:
        return  # its arguments were converted, so none is a parameter of its own
    for position, argument in enumerate(call.arguments):
        yield argument, signature.parameter(position)


def _check_known_arguments(query: tq.TypedQuery, values: Mapping[str, BoundValue]) -> None:
    for name, accepts in _list_known_arguments(query):
        value = values[name]
        problem = refuse_known(accepts, value) if isinstance(value, str) else None
        if problem is not None:
            raise InvalidInputError(
                f"parameter ${name} of {query.title} is not valid: {problem}",
                next_step=f"Give it {accepts.value.partition(',')[0]}.",
            )


def _expressions(body: tq.TypedRead | tq.TypedWrite) -> list[ex.Expression]:
    if isinstance(body, tq.TypedWrite):
        return [
            expression
            for statement in body.statements
            for expression in _expressions_of_statement(statement)
        ]
    expressions = [projection.expression for projection in body.projections]
    expressions += [key.expression for key in body.order]
    expressions += [part for part in (body.ranking, body.having) if part is not None]
    pending: list[tq.Block] = [*body.blocks]
    while pending:
        block = pending.pop()
        expressions += block.filters
        expressions += [condition for binding in block.bindings for condition in binding.conditions]
        pending += block.inner_blocks
    return expressions


def _expressions_of_statement(statement: tq.TypedStatement) -> list[ex.Expression]:
    if isinstance(statement, tq.MatchedStatement):
        values = [assignment.value for assignment in statement.assignments]
        return [*values, *_expressions(statement.read)]
    assigned = [] if isinstance(statement, tq.DeleteStatement) else [*statement.assignments]
    values = [assignment.value for assignment in assigned]
    return values if isinstance(statement, tq.InsertStatement) else [*values, statement.condition]
