"""Computes the parts of expressions that read no row, once per run and before anything is read.

`name = lower($x)` then reads rows as `name = $y` does: by an id, an index or a filter of Lance.

Invariants:
- A part is computed by the SQL of every other expression, so it has the same value.
- A part that cannot be computed stays in the expression. So it fails where a row needs it, and
  nowhere else.
- In a result only what is inside of a value is computed. A whole column, key of a group or key of
  the order stays an expression, as engines treat literals there differently.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from omnigraph_lake.derived import remember_derived
from omnigraph_lake.engine.expressions.function_sql import connect_with_kernels
from omnigraph_lake.engine.expressions.sql import sql_of
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import types as qt
from omnigraph_lake.query.binding import BoundParameters
from omnigraph_lake.query.plan import PLANS_KNOWN, Plan
from omnigraph_lake.query.rewrites import map_expressions
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.arrow import arrow_type
from omnigraph_lake.schema.json_text import JsonText

_PREFIX: Final = "#known"
"""No parameter of a text has such a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedParts:
    """A plan for all values of its parameters: the parts that read no row are parameters, too."""

    plan: Plan
    parts: tuple[ex.Expression, ...]

    def bind(self, parameters: BoundParameters) -> BoundParameters | None:
        """The parameters with the values of the parts; None if one cannot be computed."""
        if not self.parts:
            return parameters
        constants = _compute_all(self.parts, parameters)
        if constants is None:
            return None
        values = {_name(at): constant.value for at, constant in enumerate(constants)}
        return replace(parameters, values={**parameters.values, **values})


@remember_derived(most=PLANS_KNOWN)
def prepare_parts(plan: Plan) -> PreparedParts:
    """The plan with parameters for the parts that read no row, made once."""
    numbers: dict[str, int] = {}
    parts: list[ex.Expression] = []

    def as_parameter(part: ex.Expression) -> ex.Expression:
        # Not by equality: 0.0 equals -0.0.
        number = numbers.setdefault(repr(part), len(parts))
        if number == len(parts):
            parts.append(part)
        return ex.Parameter(name=_name(number), type=part.type, nullable=part.nullable)

    rewritten = _map_parts(plan, as_parameter)
    return PreparedParts(plan=rewritten if parts else plan, parts=tuple(parts))


def with_known_parts(plan: Plan, parameters: BoundParameters) -> Plan:
    """The plan with constants for the parts that read no row and can be computed."""
    return _map_parts(plan, lambda part: _constant_or_part(part, parameters))


def with_known_condition(condition: ex.Expression, parameters: BoundParameters) -> ex.Expression:
    """A condition with constants for the parts that read no row and can be computed."""
    return _replace_parts(condition, lambda part: _constant_or_part(part, parameters))


def _map_parts(plan: Plan, change: Callable[[ex.Expression], ex.Expression]) -> Plan:
    return map_expressions(
        plan,
        condition=lambda condition: _replace_parts(condition, change),
        value=lambda value: _replace_inside(value, change),
    )


def _replace_parts(
    expression: ex.Expression, change: Callable[[ex.Expression], ex.Expression]
) -> ex.Expression:
    """The largest parts that can be computed, replaced."""
    if ex.is_known(expression):
        return expression
    if _has_values(expression.type) and not ex.reads_rows(expression):
        return change(expression)
    return ex.map_operands(expression, lambda inner: _replace_parts(inner, change))


def _replace_inside(
    value: ex.Expression, change: Callable[[ex.Expression], ex.Expression]
) -> ex.Expression:
    if isinstance(value, ex.Aggregate):
        return ex.map_operands(value, lambda inner: _replace_inside(inner, change))
    return ex.map_operands(value, lambda inner: _replace_parts(inner, change))


def _has_values(kind: qt.ExpressionType) -> bool:
    """Whether a column of Arrow holds such values; Blobs are never computed."""
    match kind:
        case ct.ScalarType():
            return kind.scalar is not ct.Scalar.BLOB
        case ct.DecimalType() | ct.ListType() | ct.EnumType():
            return True
        case _:
            return False


def _name(number: int) -> str:
    return f"{_PREFIX}{number}"


def _constant_or_part(part: ex.Expression, parameters: BoundParameters) -> ex.Expression:
    constants = _compute_all((part,), parameters)
    return part if constants is None else constants[0]


def _compute_all(
    parts: Sequence[ex.Expression], parameters: BoundParameters
) -> tuple[ex.Constant, ...] | None:
    """The values of parts; None if one of them has none."""
    import duckdb  # most queries have no such parts

    texts = [sql_of(part, column=_no_column, parameters=parameters) for part in parts]
    connection = connect_with_kernels()
    try:
        selected = ", ".join(f"{text} AS v{at}" for at, text in enumerate(texts))
        answer: pa.Table = connection.sql(f"SELECT {selected}").to_arrow_table()
        return tuple(_constants(parts, answer))
    except (duckdb.Error, pa.ArrowInvalid, OSError, ValueError, OverflowError):
        # The run raises the error if a row needs the value.
        return None
    finally:
        connection.close()


def _no_column(expression: ex.Expression) -> str:
    raise AssertionError(f"{type(expression).__name__} reads a row")


def _constants(parts: Sequence[ex.Expression], answer: pa.Table) -> Iterator[ex.Constant]:
    for part, column in zip(parts, answer.columns, strict=True):
        (value,) = column.cast(arrow_type(part.type)).to_pylist()  # type: ignore[arg-type]
        yield ex.Constant(value=_value(value, part.type), type=part.type)


def _value(value: object, kind: qt.ExpressionType) -> ex.Value:
    match value:
        case list():
            return tuple(_value(item, kind) for item in value)
        case dt.datetime():
            return value.astimezone(dt.UTC)
        case str() if kind == qt.JSON:
            return JsonText(value)
        case _:
            return value  # type: ignore[return-value]
