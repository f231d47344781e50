"""Random typed expressions over a row of every kind of column, and random rows for them."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import pyarrow as pa
from hypothesis import strategies as st

from omnigraph_lake.query.ast import BinaryOperator
from omnigraph_lake.query.checks.choices import chain_casts
from omnigraph_lake.query.conversion_steps import cast_steps
from omnigraph_lake.query.expressions import (
    And,
    Arithmetic,
    Case,
    CaseBranch,
    Coalesce,
    Comparison,
    Constant,
    Expression,
    FunctionCall,
    IsNull,
    Membership,
    Negation,
    Not,
    Now,
    Or,
    Parameter,
    PropertyOf,
    StringTest,
)
from omnigraph_lake.query.functions import (
    DATE_UNITS,
    DECLARATIONS,
    Accepts,
    ScalarFunction,
    Signature,
)
from omnigraph_lake.query.types import BOOL, F64, I64, JSON, as_f32, is_integer
from omnigraph_lake.schema.arrow import arrow_type
from omnigraph_lake.schema.catalog import INTEGERS, WITHOUT_ORDER, ListType, Scalar, ScalarType
from omnigraph_lake.schema.json_text import WHOLE_PATH
from tests.query.random_expressions import JSON_PATHS, LIKE_PATTERNS, REGEXES, SEPARATORS

VARIABLE: Final = "v"
SCALARS: Final = tuple(each for each in Scalar if each not in WITHOUT_ORDER)
JSON_TEXTS: Final = ('{"a":1,"b":[0.5,null,"x"]}', '[["é"],{"a.b":true}]', '"a"', "7", "[]")
NUMBERS: Final = (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.F32, Scalar.F64)
COLUMNS: Final[dict[str, ScalarType | ListType]] = {
    **{f"one_{each.value}": ScalarType(scalar=each) for each in SCALARS},
    **{f"two_{each.value}": ScalarType(scalar=each) for each in SCALARS},
    **{f"many_{each.value}": ListType(item=each) for each in SCALARS},
}
SCHEMA: Final = pa.schema([pa.field(name, arrow_type(kind)) for name, kind in COLUMNS.items()])

_MOMENTS: Final = st.datetimes(
    min_value=dt.datetime(1, 1, 2),  # noqa: DTZ001 - the zone is the next argument
    max_value=dt.datetime(9999, 12, 30),  # noqa: DTZ001
    timezones=st.just(dt.UTC),
)
_TEXT: Final = st.text(
    alphabet=st.one_of(st.sampled_from("ab'\"\\%_\0é😀\uffee"), st.characters(codec="utf-8")),
    max_size=4,
)
VALUES: Final[dict[Scalar, st.SearchStrategy[Any]]] = {
    Scalar.STRING: _TEXT,
    Scalar.BOOL: st.booleans(),
    Scalar.I32: st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1),
    Scalar.I64: st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1),
    Scalar.U32: st.integers(0, 3) | st.integers(0, 2**32 - 1),
    Scalar.U64: st.integers(0, 3) | st.integers(0, 2**64 - 1),
    Scalar.F32: st.sampled_from([0.0, -0.0, 1.0, 0.1, 16777216.0]).map(as_f32)
    | st.floats(width=32),
    Scalar.F64: st.sampled_from([0.0, -0.0, 1.0, 0.1, 2.0**53, 2.0**63]) | st.floats(),
    Scalar.DATE: st.dates(),
    Scalar.DATETIME: _MOMENTS,
}


def rows() -> st.SearchStrategy[list[dict[str, Any]]]:
    """A few rows; a list is a tuple and may hold nulls."""
    return st.lists(st.fixed_dictionaries({n: _cell(k) for n, k in COLUMNS.items()}), max_size=6)


def _cell(kind: ScalarType | ListType) -> st.SearchStrategy[Any]:
    if isinstance(kind, ScalarType):
        return st.none() | VALUES[kind.scalar]
    items = st.lists(st.none() | VALUES[kind.item], max_size=4).map(tuple)
    return st.none() | items


class Parameters:
    """Collects the parameters that a drawn expression uses."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def add(self, value: Any, kind: ScalarType | ListType) -> Parameter:
        name = f"p{len(self.values)}"
        self.values[name] = value
        return Parameter(name=name, type=kind, nullable=True)


def value(  # noqa: PLR0911 - one per kind
    draw: st.DrawFn, kind: Scalar, depth: int, given: Parameters
) -> Expression:
    """An expression of a base type."""
    declared = ScalarType(scalar=kind)
    if depth > 0 and draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(_COMPUTED))(draw, kind, depth - 1, given)
    computed = depth > 0 and kind in (Scalar.I64, Scalar.F64)
    choice = draw(st.integers(0, 5 if computed else 3))
    if kind is Scalar.BOOL and depth > 0 and choice >= 2:
        return condition(draw, depth - 1, given)
    match choice:
        case 0 | 1:
            which = "one" if choice else "two"
            return PropertyOf(
                variable=VARIABLE, name=f"{which}_{kind.value}", type=declared, nullable=True
            )
        case 2:
            return Constant(value=draw(VALUES[kind]), type=declared)
        case 3:
            if kind is Scalar.DATETIME and draw(st.booleans()):
                return Now()
            return given.add(draw(st.none() | VALUES[kind]), declared)
        case 4:
            return _negation(draw, kind, depth - 1, given)
        case _:
            return _arithmetic(draw, kind, depth - 1, given)


def _number(
    draw: st.DrawFn, kinds: tuple[Scalar, ...], depth: int, given: Parameters
) -> Expression:
    return value(draw, draw(st.sampled_from(kinds)), depth, given)


def _negation(draw: st.DrawFn, kind: Scalar, depth: int, given: Parameters) -> Negation:
    kinds = tuple(each for each in NUMBERS if (each in INTEGERS) == (kind is Scalar.I64))
    operand = _number(draw, kinds, depth, given)
    return Negation(operand=operand, type=ScalarType(scalar=kind), nullable=True)


def _arithmetic(draw: st.DrawFn, kind: Scalar, depth: int, given: Parameters) -> Arithmetic:
    whole = kind is Scalar.I64
    words = [BinaryOperator.ADD, BinaryOperator.SUBTRACT, BinaryOperator.MULTIPLY]
    operator = draw(
        st.sampled_from([*words, BinaryOperator.REMAINDER if whole else BinaryOperator.DIVIDE])
    )
    kinds = tuple(each for each in NUMBERS if each in INTEGERS) if whole else NUMBERS
    left, right = (_number(draw, kinds, depth, given) for _ in range(2))
    both_whole = is_integer(left.type) and is_integer(right.type)
    result = I64 if both_whole and operator is not BinaryOperator.DIVIDE else F64
    return Arithmetic(operator=operator, left=left, right=right, type=result, nullable=True)


def _choice(draw: st.DrawFn, kind: Scalar, depth: int, given: Parameters) -> Expression:
    """One of several values, of which not all are computed."""
    count, declared = draw(st.integers(1, 3)), ScalarType(scalar=kind)
    operands = tuple(value(draw, kind, depth, given) for _ in range(count))
    if draw(st.booleans()):
        return Coalesce(operands=operands, type=declared, nullable=True)
    return Case(
        branches=tuple(
            CaseBranch(condition=condition(draw, depth, given), value=operand)
            for operand in operands
        ),
        otherwise=value(draw, kind, depth, given),
        type=declared,
        nullable=True,
    )


def _cast(draw: st.DrawFn, kind: Scalar, depth: int, given: Parameters) -> Expression:
    """A conversion from any type that has one."""
    sources = [source for source in SCALARS if cast_steps(source, kind) is not None]
    source = draw(st.sampled_from(sources))
    operand = value(draw, source, depth, given)
    return chain_casts(operand, source, kind, lenient=draw(st.booleans()))


def _call(draw: st.DrawFn, kind: Scalar, depth: int, given: Parameters) -> Expression:
    """A function that gives this type; any other expression if there is none."""
    calls = [
        (function, signature)
        for function, declaration in DECLARATIONS.items()
        for signature in declaration.signatures
        if signature.result == ScalarType(scalar=kind)
    ]
    if not calls:
        return _choice(draw, kind, depth, given)
    function, signature = draw(st.sampled_from(calls))
    return call(draw, function, signature, depth, given)


def call(
    draw: st.DrawFn, function: ScalarFunction, signature: Signature, depth: int, given: Parameters
) -> FunctionCall:
    """A function with arguments in the types that a compiled call has."""
    assert signature.result is not None
    count = draw(st.integers(signature.fewest, min(signature.most, 3)))
    arguments = [_argument(draw, signature, position, depth, given) for position in range(count)]
    if function is ScalarFunction.ROUND and count == 1:
        arguments.append(Constant(value=0, type=I64))
    if function is ScalarFunction.JSON_TYPE and count == 1:
        arguments.append(Constant(value=WHOLE_PATH, type=ScalarType(scalar=Scalar.STRING)))
    return FunctionCall(
        function=function, arguments=tuple(arguments), type=signature.result, nullable=True
    )


def _argument(  # noqa: C901, PLR0911, PLR0912 - one per kind
    draw: st.DrawFn, signature: Signature, position: int, depth: int, given: Parameters
) -> Expression:
    text = ScalarType(scalar=Scalar.STRING)
    match signature.parameter(position):
        case Accepts.TEXT:
            return value(draw, Scalar.STRING, depth, given)
        case Accepts.INTEGER | Accepts.INDEX:
            return value(draw, Scalar.I64, depth, given)
        case Accepts.FLOAT | Accepts.NUMBER:
            return value(draw, Scalar.F64, depth, given)
        case Accepts.DECIMAL:
            raise AssertionError("no expression here is a decimal")
        case Accepts.SEPARATOR:
            return Constant(value=draw(st.sampled_from(SEPARATORS)), type=text)
        case Accepts.LIKE_PATTERN:
            return Constant(value=draw(st.sampled_from(LIKE_PATTERNS)), type=text)
        case Accepts.REGEX:
            return Constant(value=draw(st.sampled_from(REGEXES)), type=text)
        case Accepts.DATE_UNIT | Accepts.TIME_UNIT:
            return Constant(value=draw(st.sampled_from(DATE_UNITS)), type=text)
        case Accepts.DATE:
            return value(draw, Scalar.DATE, depth, given)
        case Accepts.DATETIME:
            return value(draw, Scalar.DATETIME, depth, given)
        case Accepts.TIME:
            kind = draw(st.sampled_from([Scalar.DATE, Scalar.DATETIME]))
            return value(draw, kind, depth, given)
        case Accepts.LIST | Accepts.BOOLS:
            flags = draw(st.lists(st.booleans(), max_size=3))
            return Constant(value=tuple(flags), type=ListType(item=Scalar.BOOL))
        case Accepts.JSON:
            return Constant(value=draw(st.sampled_from(JSON_TEXTS)), type=JSON)
        case Accepts.JSON_TEXT:
            return Constant(value=draw(st.sampled_from([*JSON_TEXTS, "[1,]", " 1.0"])), type=text)
        case Accepts.JSON_PATH:
            return Constant(value=draw(st.sampled_from(JSON_PATHS)), type=text)


_COMPUTED: Final = (_choice, _cast, _call, _call)


def condition(draw: st.DrawFn, depth: int, given: Parameters) -> Expression:
    """An expression that is true, false or null."""
    match draw(st.integers(0, 7 if depth > 0 else 4)):
        case 0 | 1:
            return _comparison(draw, depth, given)
        case 2:
            return _membership(draw, depth, given)
        case 3:
            tests = [BinaryOperator.CONTAINS, BinaryOperator.STARTS_WITH, BinaryOperator.ENDS_WITH]
            text, part = (value(draw, Scalar.STRING, depth, given) for _ in range(2))
            return StringTest(
                operator=draw(st.sampled_from(tests)), text=text, part=part, nullable=True
            )
        case 4:
            operand = value(draw, draw(st.sampled_from(SCALARS)), depth, given)
            return IsNull(operand=operand, negated=draw(st.booleans()))
        case 5:
            return Not(operand=condition(draw, depth - 1, given), nullable=True)
        case junction:
            count = draw(st.integers(2, 3))
            inner = tuple(condition(draw, depth - 1, given) for _ in range(count))
            return (And if junction == 6 else Or)(operands=inner, nullable=True)


def _pair(draw: st.DrawFn) -> tuple[Scalar, Scalar]:
    """Two types that can be compared."""
    left = draw(st.sampled_from(SCALARS))
    return (left, draw(st.sampled_from(NUMBERS))) if left in NUMBERS else (left, left)


def _comparison(draw: st.DrawFn, depth: int, given: Parameters) -> Comparison:
    words = [
        *(BinaryOperator.EQUAL, BinaryOperator.NOT_EQUAL, BinaryOperator.LESS),
        *(BinaryOperator.LESS_EQUAL, BinaryOperator.GREATER, BinaryOperator.GREATER_EQUAL),
    ]
    left, right = (value(draw, each, depth, given) for each in _pair(draw))
    if left.type == BOOL:
        words = words[:2]
    return Comparison(operator=draw(st.sampled_from(words)), left=left, right=right, nullable=True)


def _membership(draw: st.DrawFn, depth: int, given: Parameters) -> Membership:
    one, many = _pair(draw)
    item, declared = value(draw, one, depth, given), ListType(item=many)
    match draw(st.integers(0, 2)):
        case 0:
            held: Expression = PropertyOf(
                variable=VARIABLE, name=f"many_{many.value}", type=declared, nullable=True
            )
        case 1:
            items = draw(st.lists(VALUES[many], max_size=12))
            held = Constant(value=tuple(items), type=declared)
        case _:
            listed = st.lists(st.none() | VALUES[many], max_size=12).map(tuple)
            held = given.add(draw(st.none() | listed), declared)
    return Membership(item=item, collection=held, nullable=True)


@st.composite
def expressions(draw: st.DrawFn) -> tuple[Expression, dict[str, Any]]:
    """An expression and the parameters that it reads."""
    given = Parameters()
    depth = draw(st.integers(0, 3))
    if draw(st.booleans()):
        return condition(draw, depth, given), given.values
    return value(draw, draw(st.sampled_from(SCALARS)), depth, given), given.values
