"""Checked expressions: every one has a type and says whether it can be null.

Invariant: values are immutable and hashable, and every name in them resolves. Logic has three
values: a condition that is neither true nor false is null, and a row stays only when it is true.
"""

from __future__ import annotations

import datetime as dt
import enum
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final, TypeAlias, TypeGuard, assert_never

from omnigraph_lake.query.ast import BinaryOperator, SubPatternKind
from omnigraph_lake.query.functions import ScalarFunction
from omnigraph_lake.query.types import BOOL, DATETIME, F64, I64, STRING, EntityType, ExpressionType
from omnigraph_lake.schema.catalog import DecimalType, ScalarType, VectorMetric

Value: TypeAlias = (
    str | int | float | Decimal | bool | dt.date | dt.datetime | tuple["Value", ...] | None
)

ROW: Final = "row"
"""The variable of the row of a mutation; only its own properties are readable."""
RESULT: Final = "result."
"""The variable of the row of a result, whose properties are its columns; no text can name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A constant; a list or vector is a tuple."""

    value: Value
    type: ExpressionType

    @property
    def nullable(self) -> bool:
        return self.value is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A value known when the query is bound."""

    name: str
    type: ExpressionType
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """The time of the run, the same everywhere in it."""

    type: ExpressionType = DATETIME
    nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyOf:
    """A property of a bound entity; `id`, `src` and `dst` are read the same way."""

    variable: str
    name: str
    type: ExpressionType
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeName:
    """The name of the type of a bound entity."""

    variable: str
    nullable: bool
    type: ExpressionType = STRING


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A node or edge as a whole: its id, type and properties."""

    variable: str
    type: EntityType
    nullable: bool


class PathPart(enum.StrEnum):
    """The functions of a path."""

    LENGTH = "length"
    NODES = "nodes"
    EDGES = "edges"
    NODE_TYPES = "types"
    EDGE_TYPES = "edge_types"
    WEIGHT = "weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOfPath:
    """The number of edges, the ids or types of the nodes or the edges, or the weight of a path.

    The weight is the sum of `property` of the edges, from the first to the last.
    """

    part: PathPart
    variable: str
    type: ExpressionType
    nullable: bool
    property: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchesOf:
    """Whether a sub-pattern has a match for the row, or how many; never null.

    The block or the result around it says which pattern has this variable.
    """

    kind: SubPatternKind
    variable: str
    nullable: bool = False

    @property
    def type(self) -> ExpressionType:
        return BOOL if self.kind is SubPatternKind.EXISTS else I64


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """Exact I64 for integers, F64 otherwise; `/` is always F64; a zero divisor gives null."""

    operator: BinaryOperator
    left: Expression
    right: Expression
    type: ExpressionType
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Negation:
    """Unary minus."""

    operand: Expression
    type: ExpressionType
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`=`, `!=`, `<`, `<=`, `>`, `>=`; null when an operand is."""

    operator: BinaryOperator
    left: Expression
    right: Expression
    nullable: bool
    type: ExpressionType = BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class StringTest:
    """`contains`, `starts_with`, `ends_with` of two strings: exact, no wild cards."""

    operator: BinaryOperator
    text: Expression
    part: Expression
    nullable: bool
    type: ExpressionType = BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Whether `item` is in `collection`; null if it is not found and a null is."""

    item: Expression
    collection: Expression
    nullable: bool
    type: ExpressionType = BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class IsNull:
    """`is null`, or `is not null` when negated; never null itself."""

    operand: Expression
    negated: bool
    type: ExpressionType = BOOL
    nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """Logical negation; null stays null."""

    operand: Expression
    nullable: bool
    type: ExpressionType = BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class And:
    """False if one is false, else null if one is null."""

    operands: tuple[Expression, ...]
    nullable: bool
    type: ExpressionType = BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Or:
    """True if one is true, else null if one is null."""

    operands: tuple[Expression, ...]
    nullable: bool
    type: ExpressionType = BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """A scalar function of values of the same row; null if an argument is."""

    function: ScalarFunction
    arguments: tuple[Expression, ...]
    type: ExpressionType
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The value of the first branch whose condition is true, else `otherwise`.

    Conditions are asked in order, and only the value that is chosen is needed. All values have the
    type of the whole.
    """

    branches: tuple[CaseBranch, ...]
    otherwise: Expression
    type: ExpressionType
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseBranch:
    """A condition and the value that it chooses."""

    condition: Expression
    value: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Coalesce:
    """The first operand that is not null; those after it are not needed."""

    operands: tuple[Expression, ...]
    type: ExpressionType
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """A step of a conversion, see `conversion_steps`; a lenient one gives null, no error."""

    operand: Expression
    type: ScalarType | DecimalType
    lenient: bool
    nullable: bool


class TextSearchKind(enum.StrEnum):
    """The text conditions, by their function."""

    ANY_TOKEN = "search"  # noqa: S105 - a word of a text, no secret
    PHRASE = "match_text"
    FUZZY = "fuzzy"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSearch:
    """Whether the tokens of a field match those of a query; `edits` is for `fuzzy`."""

    kind: TextSearchKind
    field: PropertyOf
    query: Expression
    edits: Expression | None
    nullable: bool
    type: ExpressionType = BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """The distance of a vector from a query, by the metric of the property; smaller is better.

    `embed` says that the query is text, which the model of the property embeds. An `exact` search
    compares every vector; another may miss a few of the nearest that an index does not find.
    """

    field: PropertyOf
    query: Expression
    metric: VectorMetric
    embed: bool
    exact: bool = False
    nullable: bool = True
    type: ExpressionType = F64


@dataclass(frozen=True, slots=True, kw_only=True)
class TextScore:
    """How relevant a text is to a query, BM25; greater is better; null if no token matches."""

    field: PropertyOf
    query: Expression
    nullable: bool = True
    type: ExpressionType = F64


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """The sum of 1 / (k + rank) over both arms; greater is better."""

    first: Distance | TextScore
    second: Distance | TextScore
    k: Expression
    nullable: bool = True
    type: ExpressionType = F64


class AggregateFunction(enum.StrEnum):
    """The aggregate functions."""

    COUNT = "count"
    SUM = "sum"
    AVERAGE = "avg"
    MINIMUM = "min"
    MAXIMUM = "max"
    COLLECT = "collect"
    DEVIATION = "stddev"
    PERCENTILE = "percentile"
    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """A value of a whole group; without an argument it counts rows.

    `by` is the order of `first` and `last`: the key, then what breaks ties. `fraction` is the
    second argument of `percentile`, known before the run.
    """

    function: AggregateFunction
    argument: Expression | None
    distinct: bool
    type: ExpressionType
    nullable: bool
    by: tuple[Expression, ...] = ()
    fraction: Expression | None = None


Ranking: TypeAlias = Distance | TextScore | Fusion
Expression: TypeAlias = (
    Constant
    | Parameter
    | Now
    | PropertyOf
    | TypeName
    | Entity
    | PartOfPath
    | MatchesOf
    | Arithmetic
    | Negation
    | Comparison
    | StringTest
    | Membership
    | IsNull
    | Not
    | And
    | Or
    | FunctionCall
    | Case
    | Coalesce
    | Cast
    | TextSearch
    | Distance
    | TextScore
    | Fusion
    | Aggregate
)


def operands(expression: Expression) -> tuple[Expression, ...]:  # noqa: C901, PLR0911, PLR0912
    """The expressions directly inside another."""
    match expression:
        case Constant() | Parameter() | Now():
            return ()
        case PropertyOf() | TypeName() | Entity() | PartOfPath() | MatchesOf():
            return ()
        case Arithmetic() | Comparison():
            return expression.left, expression.right
        case Negation() | Not() | IsNull() | Cast():
            return (expression.operand,)
        case StringTest():
            return expression.text, expression.part
        case Membership():
            return expression.item, expression.collection
        case And() | Or() | Coalesce():
            return expression.operands
        case Case():
            branches = [(branch.condition, branch.value) for branch in expression.branches]
            return (*itertools.chain.from_iterable(branches), expression.otherwise)
        case FunctionCall():
            return expression.arguments
        case TextSearch():
            return (
                expression.field,
                expression.query,
                *(() if expression.edits is None else (expression.edits,)),
            )
        case Distance() | TextScore():
            return expression.field, expression.query
        case Fusion():
            return expression.first, expression.second, expression.k
        case Aggregate():
            arguments = (expression.argument, *expression.by, expression.fraction)
            return tuple(argument for argument in arguments if argument is not None)
        case _:
            assert_never(expression)


def map_operands(  # noqa: C901, PLR0911, PLR0912 - one per kind
    expression: Expression, change: Callable[[Expression], Expression]
) -> Expression:
    """The expression with a function applied to what is directly inside it.

    Searches and rankings are unchanged: what they search for is known before the run.
    """
    match expression:
        case Constant() | Parameter() | Now():
            return expression
        case PropertyOf() | TypeName() | Entity() | PartOfPath() | MatchesOf():
            return expression
        case TextSearch() | Distance() | TextScore() | Fusion():
            return expression
        case Arithmetic() | Comparison():
            return replace(expression, left=change(expression.left), right=change(expression.right))
        case Negation() | Not() | IsNull() | Cast():
            return replace(expression, operand=change(expression.operand))
        case StringTest():
            return replace(expression, text=change(expression.text), part=change(expression.part))
        case Membership():
            item, collection = change(expression.item), change(expression.collection)
            return replace(expression, item=item, collection=collection)
        case And() | Or() | Coalesce():
            return replace(expression, operands=tuple(map(change, expression.operands)))
        case Case():
            branches = tuple(
                CaseBranch(condition=change(branch.condition), value=change(branch.value))
                for branch in expression.branches
            )
            return replace(expression, branches=branches, otherwise=change(expression.otherwise))
        case FunctionCall():
            return replace(expression, arguments=tuple(map(change, expression.arguments)))
        case Aggregate():
            argument = None if expression.argument is None else change(expression.argument)
            return replace(expression, argument=argument, by=tuple(map(change, expression.by)))
        case _:
            assert_never(expression)


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything inside it, outer ones first."""
    yield expression
    for inner in operands(expression):
        yield from walk(inner)


def is_known(expression: Expression) -> TypeGuard[Constant | Parameter | Now]:
    """Whether an expression has its value before anything is read."""
    return isinstance(expression, Constant | Parameter | Now)


def reads_rows(expression: Expression) -> bool:
    """Whether the value of an expression depends on a row or a group."""
    return any(
        isinstance(
            part,
            PropertyOf
            | TypeName
            | Entity
            | PartOfPath
            | MatchesOf
            | TextSearch
            | Distance
            | TextScore
            | Fusion
            | Aggregate,
        )
        for part in walk(expression)
    )


def is_same(projected: Expression, other: Expression) -> bool:
    """Whether an expression has the value of a column."""
    if isinstance(projected, Aggregate) and isinstance(other, Aggregate):
        return replace(projected, nullable=other.nullable) == other
    return projected == other


def has_aggregate(expression: Expression) -> bool:
    """Whether an expression is, or is computed from, values of a group."""
    return any(isinstance(part, Aggregate) for part in walk(expression))


def variables_of(expression: Expression) -> frozenset[str]:
    """The variables of the pattern that an expression reads."""
    return frozenset(
        inner.variable
        for inner in walk(expression)
        if isinstance(inner, PropertyOf | TypeName | Entity | PartOfPath | MatchesOf)
    )


def conjuncts(condition: Expression) -> tuple[Expression, ...]:
    """The conditions that must all be true for the whole to be true."""
    if isinstance(condition, And):
        return tuple(part for operand in condition.operands for part in conjuncts(operand))
    return (condition,)


def all_of(conditions: tuple[Expression, ...]) -> Expression | None:
    """One condition out of several, or none."""
    if not conditions:
        return None
    if len(conditions) == 1:
        return conditions[0]
    return And(operands=conditions, nullable=any(condition.nullable for condition in conditions))
