"""The syntax tree of a query text, with source positions for diagnostics.

Invariant: nodes hold the source text only. Nothing is resolved, checked or defaulted.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Final, TypeAlias, assert_never

from omnigraph_lake.language.diagnostics import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """An identifier; of a variable without its `$`."""

    text: str
    span: Span


class BinaryOperator(enum.StrEnum):
    """Operators between two operands, by their spelling."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    REMAINDER = "%"
    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    CONTAINS = "contains"
    STARTS_WITH = "starts_with"
    ENDS_WITH = "ends_with"
    IN = "in"


class Junction(enum.StrEnum):
    """Logical operators."""

    AND = "and"
    OR = "or"


@dataclass(frozen=True, slots=True, kw_only=True)
class StringLiteral:
    """A string as written, quotes and escapes included."""

    raw: str
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberLiteral:
    """A number as written, without a sign."""

    raw: str
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class BoolLiteral:
    """`true` or `false`."""

    value: bool
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class NullLiteral:
    """`null`."""

    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class ListLiteral:
    """`[a, b]`."""

    items: tuple[Expression, ...]
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableUse:
    """`$name`: a parameter, or something the pattern binds."""

    name: Name
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyUse:
    """`$variable.property`."""

    variable: Name
    property: Name
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A bare name: an alias in `order`, an own property in a mutation."""

    name: Name
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """`function(argument, ...)`; `star` is `count(*)`, `by` the order of `first(x by y)`."""

    function: Name
    arguments: tuple[Expression, ...]
    distinct: bool
    star: bool
    span: Span
    by: Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """`function(operand as Type)`; only `cast` and `try_cast` are valid."""

    function: Name
    operand: Expression
    type: Name
    sizes: tuple[NumberLiteral, ...]
    listed: bool
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReference:
    """`function(Type, id)`; only `node` is valid, as an end of an edge that is inserted."""

    function: Name
    type: Name
    id: Expression
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseBranch:
    """`when condition then value`."""

    condition: Expression
    value: Expression
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`case when ... then ... else otherwise end`."""

    branches: tuple[CaseBranch, ...]
    otherwise: Expression | None
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Negative:
    """`-operand`."""

    operand: Expression
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """`not operand`."""

    operand: Expression
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """Two operands and the operator between them."""

    operator: BinaryOperator
    left: Expression
    right: Expression
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonChain:
    """`a < b < c`, which is invalid; `second` is the second operator."""

    second: Name
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Two or more conditions joined by the same operator."""

    junction: Junction
    operands: tuple[Expression, ...]
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class NullTest:
    """`operand is null`, `operand is not null`."""

    operand: Expression
    negated: bool
    span: Span


class SubPatternKind(enum.StrEnum):
    """What a sub-pattern is asked for."""

    EXISTS = "exists"
    COUNT = "count"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubPattern:
    """`exists { ... }`, `count { ... }`."""

    kind: SubPatternKind
    clauses: tuple[Clause, ...]
    span: Span


Expression: TypeAlias = (
    StringLiteral
    | NumberLiteral
    | BoolLiteral
    | NullLiteral
    | ListLiteral
    | VariableUse
    | PropertyUse
    | Word
    | Call
    | Cast
    | NodeReference
    | Case
    | Negative
    | Not
    | Binary
    | ComparisonChain
    | Joined
    | NullTest
    | SubPattern
)


def sub_patterns_of(node: object) -> Iterator[SubPattern]:
    """The sub-patterns in an expression, in source order, but not those inside of them."""
    if isinstance(node, SubPattern):
        yield node
    elif isinstance(node, tuple):
        for item in node:
            yield from sub_patterns_of(item)
    elif is_dataclass(node):
        for part in fields(node):
            yield from sub_patterns_of(getattr(node, part.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """`name: value`, in a binding, an insert or an update."""

    name: Name
    value: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """`$variable: Type|Other { property: value }`; `_` is a node of any type."""

    variable: Name
    types: tuple[Name, ...]
    matches: tuple[Assignment, ...]
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """`{minimum,maximum}` after an edge name."""

    minimum: NumberLiteral
    maximum: NumberLiteral | None
    span: Span


class EdgeDirection(enum.StrEnum):
    """How an edge is followed from the left end of a traversal."""

    FORWARD = "forward"
    BACKWARD = "backward"
    EITHER = "either"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traversal:
    """`$left $edge: name|other>{1,} $right as $path by weight`; `_` is any edge."""

    left: Name
    edge_variable: Name | None
    edges: tuple[Name, ...]
    direction: EdgeDirection | None
    """None if the text does not say it."""
    bounds: Bounds | None
    right: Name
    path: Name | None
    weight: Name | None
    span: Span

    @property
    def edges_text(self) -> str:
        """The edges as they are written, with their direction."""
        return write_edges("|".join(edge.text for edge in self.edges), self.direction)


def write_edges(edges: str, direction: EdgeDirection | None) -> str:
    """The text of edges that are followed in a direction."""
    match direction:
        case None:
            return edges
        case EdgeDirection.FORWARD:
            return f"{edges}>"
        case EdgeDirection.BACKWARD:
            return f"<{edges}"
        case EdgeDirection.EITHER:
            return f"<{edges}>"
        case _:
            assert_never(direction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A condition on a line of its own."""

    condition: Expression
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class NotBlock:
    """`not { ... }`."""

    clauses: tuple[Clause, ...]
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionalBlock:
    """`optional { ... }`."""

    clauses: tuple[Clause, ...]
    span: Span


Clause: TypeAlias = Binding | Traversal | Filter | NotBlock | OptionalBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOf:
    """`$variable.*`: one column per property."""

    variable: Name
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """`expression as alias`."""

    expression: Expression | AllOf
    alias: Name | None


class Direction(enum.StrEnum):
    """A direction word of `order`."""

    ASCENDING = "asc"
    DESCENDING = "desc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """One key of `order`."""

    expression: Expression
    direction: Direction | None
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBody:
    """`match`, `return` and what follows."""

    clauses: tuple[Clause, ...]
    distinct: bool
    projections: tuple[Projection, ...]
    orderings: tuple[Ordering, ...]
    limit: Expression | None
    offset: Expression | None
    having: Expression | None = None


class InsertVerb(enum.StrEnum):
    """What a statement does with an entity that exists."""

    INSERT = "insert"
    """It is refused."""
    UPSERT = "upsert"
    """It keeps the properties that are not assigned."""
    REPLACE = "replace"
    """It becomes what is assigned alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """`insert Type { ... }`, `upsert Type { ... }` or `replace Type { ... }`."""

    verb: InsertVerb
    type: Name
    assignments: tuple[Assignment, ...]
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """`update Type set { ... } where condition`."""

    type: Name
    assignments: tuple[Assignment, ...]
    condition: Expression
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """`delete Type where condition`."""

    type: Name
    condition: Expression
    span: Span


Statement: TypeAlias = Insert | Update | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedUpdate:
    """`update $variable set { ... }` after a `match`."""

    variable: Name
    assignments: tuple[Assignment, ...]
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedDelete:
    """`delete $variable, $variable` after a `match`."""

    variables: tuple[Name, ...]
    span: Span


MatchedStatement: TypeAlias = Insert | MatchedUpdate | MatchedDelete


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBody:
    """The statements of a mutation, in order."""

    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedWriteBody:
    """`match` and the statements that are applied to its rows, in order."""

    clauses: tuple[Clause, ...]
    statements: tuple[MatchedStatement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterDeclaration:
    """`$name: [Type]?`; `sizes` are the numbers after `Vector` or `Decimal`."""

    name: Name
    type: Name
    sizes: tuple[NumberLiteral, ...]
    listed: bool
    nullable: bool
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """`@description("...")`; `name` has no `@`."""

    name: Name
    value: StringLiteral


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDeclaration:
    """One `query name(...) { ... }`, or the body of an ad-hoc text.

    The name of an ad-hoc text is `ADHOC_NAME`, at the place of its first clause or statement.
    """

    name: Name
    parameters: tuple[ParameterDeclaration, ...]
    annotations: tuple[Annotation, ...]
    body: ReadBody | WriteBody | MatchedWriteBody
    is_adhoc: bool = False


ADHOC_NAME: Final = "query"
"""What a query without a name is called in results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFile:
    """All queries of one text, in source order; an ad-hoc text is a single one."""

    queries: tuple[QueryDeclaration, ...]
