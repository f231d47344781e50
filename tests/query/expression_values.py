"""The value of a typed expression for one row: the definition of every operator and function.

Three-valued logic is written out. A run-time refusal is an `EvaluationError`.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from functools import reduce
from typing import Any, assert_never

from omnigraph_lake.query.ast import BinaryOperator, SubPatternKind
from omnigraph_lake.query.columns import struct_properties
from omnigraph_lake.query.expressions import (
    RESULT,
    Aggregate,
    AggregateFunction,
    And,
    Arithmetic,
    Case,
    Cast,
    Coalesce,
    Comparison,
    Constant,
    Distance,
    Entity,
    Expression,
    FunctionCall,
    Fusion,
    IsNull,
    MatchesOf,
    Membership,
    Negation,
    Not,
    Now,
    Or,
    Parameter,
    PartOfPath,
    PathPart,
    PropertyOf,
    StringTest,
    TextScore,
    TextSearch,
    TextSearchKind,
    TypeName,
    map_operands,
)
from omnigraph_lake.query.types import EdgeOf, is_float, is_integer, scalar_of
from omnigraph_lake.schema.catalog import Catalog, DecimalType
from omnigraph_lake.schema.json_text import JsonText
from tests.query import text_search
from tests.query.function_values import cast_value, decimal_value, function_value


class EvaluationError(Exception):
    """A query that must fail while it runs."""


EXACT = Context(prec=200)
"""Decimals in all digits that sums and products of a test can have."""


@dataclass(frozen=True)
class Held:
    """A node or an edge in a row, identified by type and id."""

    type: str
    id: str
    properties: Mapping[str, Any] = field(compare=False, hash=False)


@dataclass(frozen=True)
class HeldPath:
    """Nodes and edges as pairs of id and type, so that paths compare by ids first."""

    nodes: tuple[tuple[str, str], ...]
    edges: tuple[tuple[str, str], ...]
    weight: int | float | None = None


Graph = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
"""`{"nodes": {type: [row]}, "edges": {type: [row]}}`; rows have `id`, edges `src` and `dst`."""
Row = Mapping[str, Held | HeldPath | int | None]
"""What variables hold; those of sub-patterns the number of matches."""


@dataclass(frozen=True)
class Run:
    """What is the same for all rows of a run."""

    catalog: Catalog
    graph: Graph
    parameters: Mapping[str, Any]
    now: dt.datetime
    ranks: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """The fused score of each ranked entity, when the query is ordered by `rrf`."""
    choices: Iterator[int] = field(default_factory=itertools.count)
    """Counts the nodes that nested loops have tried."""
    choices_most: int | None = None


def value_of(  # noqa: C901, PLR0911, PLR0912 - one case per kind
    each: Expression, row: Row, run: Run
) -> Any:
    match each:
        case Constant():
            return each.value
        case Parameter():
            given = run.parameters[each.name]
            return str(given) if isinstance(given, JsonText) else given
        case Now():
            return run.now
        case PropertyOf() | TypeName() | Entity() | PartOfPath():
            return _of_row(each, row, run)
        case MatchesOf():
            matches = row[each.variable]
            assert isinstance(matches, int)
            return matches > 0 if each.kind is SubPatternKind.EXISTS else matches
        case Arithmetic() | Negation():
            return _number(each, row, run)
        case Comparison() | StringTest() | Membership() | IsNull() | TextSearch():
            return _condition(each, row, run)
        case Not():
            inner = value_of(each.operand, row, run)
            return None if inner is None else not inner
        case And():
            values = [value_of(one, row, run) for one in each.operands]
            return False if False in values else None if None in values else True
        case Or():
            values = [value_of(one, row, run) for one in each.operands]
            return True if True in values else None if None in values else False
        case FunctionCall():
            return _call(each, [value_of(one, row, run) for one in each.arguments])
        case Case():
            for branch in each.branches:
                if value_of(branch.condition, row, run) is True:
                    return value_of(branch.value, row, run)
            return value_of(each.otherwise, row, run)
        case Coalesce():
            for operand in each.operands:
                found = value_of(operand, row, run)
                if found is not None:
                    return found
            return None
        case Cast():
            return _cast(each, value_of(each.operand, row, run))
        case Distance() | TextScore() | Fusion():
            return score(each, row, run)
        case Aggregate():
            raise AssertionError("an aggregate is a value of a group")
        case _:
            assert_never(each)


def _call(each: FunctionCall, arguments: Sequence[Any]) -> Any:
    if isinstance(each.type, DecimalType):
        return _fitting_decimal(each.type, decimal_value(each.function, arguments))
    try:
        return function_value(each.function, arguments)
    except ValueError as error:
        raise EvaluationError(f"{each.function.value}: {arguments!r}") from error


def _cast(each: Cast, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(each.type, DecimalType):
        return _as_decimal(each, each.type, value)
    if isinstance(each.operand.type, DecimalType):
        plain = f"{value:f}"
        return (plain.rstrip("0").rstrip(".") if "." in plain else plain) if value else "0"
    source = scalar_of(each.operand.type)
    assert source is not None
    try:
        return None if value is None else cast_value(value, source, each.type.scalar)
    except ValueError as error:
        if each.lenient:
            return None
        raise EvaluationError(f"no {each.type.scalar.value}: {value!r}") from error


def _as_decimal(each: Cast, kind: DecimalType, value: Any) -> Decimal | None:
    if not isinstance(value, str):
        return Decimal(value)
    fits = re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", value) and (
        _holds(kind, Fraction(value))
    )
    if fits:
        return Decimal(value)
    if each.lenient:
        return None
    raise EvaluationError(f"no {kind}: {value!r}")


def _fitting_decimal(kind: DecimalType, value: Fraction | None) -> Decimal | None:
    if value is None:
        return None
    if not _holds(kind, value):
        raise EvaluationError("a decimal overflows")
    return EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))


def _holds(kind: DecimalType, value: Fraction) -> bool:
    units = value * 10**kind.scale
    return bool(units.denominator == 1 and abs(units) < 10**kind.precision)


def _of_row(each: PropertyOf | TypeName | Entity | PartOfPath, row: Row, run: Run) -> Any:
    held = row[each.variable]
    if held is None:
        return None
    match each:
        case PropertyOf():
            assert isinstance(held, Held)
            return held.properties.get(each.name)
        case TypeName():
            assert isinstance(held, Held)
            return held.type
        case Entity():
            assert isinstance(held, Held)
            return struct_of(each, held, run)
        case PartOfPath():
            assert isinstance(held, HeldPath)
            return {
                PathPart.LENGTH: len(held.edges),
                PathPart.NODE_TYPES: tuple(node_type for _, node_type in held.nodes),
                PathPart.EDGE_TYPES: tuple(edge_type for _, edge_type in held.edges),
                PathPart.NODES: tuple(node_id for node_id, _ in held.nodes),
                PathPart.EDGES: tuple(edge_id for edge_id, _ in held.edges),
                PathPart.WEIGHT: _fitting_weight(held.weight),
            }[each.part]


def _fitting_weight(weight: int | float | None) -> int | float | None:
    if isinstance(weight, int) and weight >= 2**63:
        raise EvaluationError("the weight of a path does not fit into 64 bits")
    return weight


def struct_of(each: Entity, held: Held, run: Run) -> dict[str, Any]:
    ends = (
        {"src": held.properties["src"], "dst": held.properties["dst"]}
        if isinstance(each.type, EdgeOf)
        else {}
    )
    properties = {
        one.name: held.properties.get(one.name) for one in struct_properties(each.type, run.catalog)
    }
    return {"id": held.id, "type": held.type, **ends, "properties": properties}


def _number(  # noqa: PLR0911 - one per kind
    each: Arithmetic | Negation, row: Row, run: Run
) -> Any:
    if isinstance(each, Negation):
        inner = value_of(each.operand, row, run)
        if isinstance(inner, Decimal):
            return inner.copy_negate()
        return None if inner is None else _fitting(-inner)
    left, right = value_of(each.left, row, run), value_of(each.right, row, run)
    if left is None or right is None:
        return None
    match each.operator:
        case BinaryOperator.DIVIDE:
            return None if right == 0 else _float_division(float(left), float(right))
        case BinaryOperator.REMAINDER if isinstance(each.type, DecimalType):
            quotient = math.trunc(Fraction(left) / Fraction(right)) if right else None
            remainder = None if quotient is None else Fraction(left) - quotient * Fraction(right)
            return _fitting_decimal(each.type, remainder)
        case BinaryOperator.REMAINDER:
            return (
                None
                if right == 0
                else _fitting(int(math.copysign(1, left)) * (abs(left) % abs(right)))
            )
        case _:
            pass
    if isinstance(each.type, DecimalType):
        operations = {
            BinaryOperator.ADD: EXACT.add,
            BinaryOperator.SUBTRACT: EXACT.subtract,
            BinaryOperator.MULTIPLY: EXACT.multiply,
        }
        exact = operations[each.operator](left, right)
        if not _holds(each.type, Fraction(exact)):
            raise EvaluationError("a decimal overflows")
        return exact
    if is_float(each.type):
        left, right = float(left), float(right)
    compute: dict[BinaryOperator, Callable[[Any, Any], Any]] = {
        BinaryOperator.ADD: lambda a, b: a + b,
        BinaryOperator.SUBTRACT: lambda a, b: a - b,
        BinaryOperator.MULTIPLY: lambda a, b: a * b,
    }
    return _fitting(compute[each.operator](left, right))


def _float_division(left: float, right: float) -> float:
    try:
        return left / right
    except OverflowError:
        return math.copysign(math.inf, left) * math.copysign(1, right)


def _fitting(value: Any) -> Any:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise EvaluationError("integer overflow")
    return value


def _condition(  # noqa: PLR0911 - one per kind
    each: Comparison | StringTest | Membership | IsNull | TextSearch, row: Row, run: Run
) -> bool | None:
    match each:
        case Comparison():
            left, right = value_of(each.left, row, run), value_of(each.right, row, run)
            if left is None or right is None:
                return None
            return compared(each.operator, left, right)
        case StringTest():
            text, part = value_of(each.text, row, run), value_of(each.part, row, run)
            if text is None or part is None:
                return None
            tests: dict[BinaryOperator, bool] = {
                BinaryOperator.CONTAINS: part in text,
                BinaryOperator.STARTS_WITH: text.startswith(part),
                BinaryOperator.ENDS_WITH: text.endswith(part),
            }
            return tests[each.operator]
        case Membership():
            item, items = value_of(each.item, row, run), value_of(each.collection, row, run)
            if item is None or items is None:
                return None
            if any(one is not None and compared(BinaryOperator.EQUAL, item, one) for one in items):
                return True
            return None if None in items else False
        case IsNull():
            return (value_of(each.operand, row, run) is None) != each.negated
        case TextSearch():
            return _text_condition(each, row, run)


def _text_condition(each: TextSearch, row: Row, run: Run) -> bool | None:
    text, query = value_of(each.field, row, run), value_of(each.query, row, run)
    if text is None or query is None:
        return None
    match each.kind:
        case TextSearchKind.ANY_TOKEN:
            return text_search.any_token(text, query)
        case TextSearchKind.PHRASE:
            return text_search.has_phrase(text, query)
        case TextSearchKind.FUZZY:
            assert each.edits is not None
            return text_search.is_fuzzy(text, query, value_of(each.edits, row, run))


def compared(operator: BinaryOperator, left: Any, right: Any) -> bool:
    """An integer meets a float as a float; NaN equals itself and is above every number."""
    one, other = order_key(left), order_key(right)
    if isinstance(left, float) or isinstance(right, float):
        one, other = order_key(float(left)), order_key(float(right))
    results: dict[BinaryOperator, bool] = {
        BinaryOperator.EQUAL: one == other,
        BinaryOperator.NOT_EQUAL: one != other,
        BinaryOperator.LESS: one < other,
        BinaryOperator.LESS_EQUAL: one <= other,
        BinaryOperator.GREATER: one > other,
        BinaryOperator.GREATER_EQUAL: one >= other,
    }
    return results[operator]


def order_key(value: Any) -> Any:
    """Something Python can sort: nulls first, NaN last."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    if isinstance(value, dict):
        return (1, value["id"], value["type"])
    if isinstance(value, tuple | list):
        return (1, *(order_key(each) for each in value))
    return (1, value)


def score(each: Distance | TextScore | Fusion, row: Row, run: Run) -> float | None:
    """The distance or score of one row; that of a fusion is known for ranked entities only."""
    if isinstance(each, Fusion):
        held = row[each.first.field.variable]
        return run.ranks.get((held.type, held.id)) if isinstance(held, Held) else None
    held_value, query = value_of(each.field, row, run), value_of(each.query, row, run)
    if held_value is None or query is None:
        return None
    if isinstance(each, Distance):
        assert not each.embed, "no model is at hand"
        return text_search.distance(each.metric, held_value, query)
    held = row[each.field.variable]
    assert isinstance(held, Held)
    return text_search.bm25(held_value, query, _corpus(each, held, run))


def _corpus(each: TextScore, held: Held, run: Run) -> list[str]:
    kind = "nodes" if held.type in run.graph["nodes"] else "edges"
    return [
        text for one in run.graph[kind][held.type] if (text := one.get(each.field.name)) is not None
    ]


def aggregate(  # noqa: C901, PLR0911, PLR0912 - one per function
    each: Aggregate, rows: Sequence[Row], run: Run
) -> Any:
    """The value of a group."""
    if each.argument is None:
        return len(rows)
    argument = each.argument
    values = [one for row in rows if (one := value_of(argument, row, run)) is not None]
    if each.distinct:
        values = list({order_key(one): one for one in values}.values())
    match each.function:
        case AggregateFunction.COUNT:
            return len(values)
        case AggregateFunction.COLLECT:
            return tuple(sorted(values, key=order_key))
        case AggregateFunction.SUM:
            return _sum(each, values) if values else None
        case AggregateFunction.AVERAGE:
            return float(_total(values)) / len(values) if values else None
        case AggregateFunction.MINIMUM:
            return min(values, key=order_key, default=None)
        case AggregateFunction.MAXIMUM:
            return max(values, key=order_key, default=None)
        case AggregateFunction.DEVIATION:
            return deviation([float(one) for one in values])
        case AggregateFunction.PERCENTILE:
            assert each.fraction is not None
            return percentile([float(one) for one in values], value_of(each.fraction, {}, run))
        case AggregateFunction.FIRST | AggregateFunction.LAST:
            return _choose_row(each, rows, run)
        case _:
            assert_never(each.function)


class Approximate(float):
    """A float whose last digits depend on the order of additions; `slack` is by how much."""

    slack: float = 0.0


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of a sample, from exact sums."""
    if len(values) < 2:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    exact = [Fraction(one) for one in values]
    mean = sum(exact, Fraction(0)) / len(exact)
    squares = sum(((one - mean) * (one - mean) for one in exact), Fraction(0))
    variance = squares / (len(exact) - 1)
    scale = 2**1100  # the root of a fraction as that of an integer
    root = Fraction(math.isqrt(variance.numerator * scale**2 // variance.denominator), scale)
    try:
        found = Approximate(root)
    except OverflowError:
        return math.inf
    found.slack = 1e-14 * len(values) * max(map(abs, values))
    return found


def percentile(values: Sequence[float], fraction: float) -> float | None:
    if not values:
        return None
    ordered = sorted(values, key=order_key)
    place = (len(ordered) - 1) * float(fraction)
    lower, upper = ordered[math.floor(place)], ordered[math.ceil(place)]
    if order_key(lower) == order_key(upper):
        return lower
    share = place - math.floor(place)
    return lower * (1.0 - share) + upper * share


def _choose_row(each: Aggregate, rows: Sequence[Row], run: Run) -> Any:
    """The value of the first or last row that has a value and a key."""
    assert each.argument is not None
    found: list[tuple[Any, Any]] = []
    for row in rows:
        value, *keys = (value_of(one, row, run) for one in (each.argument, *each.by))
        if value is not None and keys[0] is not None:
            found.append(([order_key(one) for one in keys], value))
    if not found:
        return None
    choose = min if each.function is AggregateFunction.FIRST else max
    return choose(found, key=lambda pair: pair[0])[1]


def value_of_group(each: Expression, rows: Sequence[Row], run: Run) -> Any:
    """The value of an expression with aggregates of a group; else that of any of its rows."""

    def with_values(part: Expression) -> Expression:
        if isinstance(part, Aggregate):
            return Constant(value=aggregate(part, rows, run), type=part.type)
        return map_operands(part, with_values)

    return value_of(with_values(each), rows[0] if rows else {}, run)


def having(condition: Expression | None, result: Mapping[str, Any], run: Run) -> bool:
    """Whether a group stays."""
    row = {RESULT: Held(type="", id="", properties=result)}
    return condition is None or value_of(condition, row, run) is True


def _total(values: Sequence[Any]) -> Any:
    """The exact sum; Python would round decimals."""
    if not values or not isinstance(values[0], Decimal):
        return sum(values)
    return reduce(EXACT.add, values)


def _sum(each: Aggregate, values: Sequence[Any]) -> Any:
    total = _total(values)
    if is_integer(each.type):
        unsigned = each.type.scalar.value.startswith("U")  # type: ignore[union-attr]
        low, high = (0, 2**64) if unsigned else (-(2**63), 2**63)
        if not low <= total < high:
            raise EvaluationError("the sum does not fit into 64 bits")
    return total
