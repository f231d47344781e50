"""A checked query: every name is resolved; independent of how it runs.

Invariant: a typed query has no errors, and its columns are exactly those of a run.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from omnigraph_lake.query.ast import EdgeDirection, InsertVerb, SubPatternKind
from omnigraph_lake.query.expressions import Expression, Ranking
from omnigraph_lake.query.types import ColumnType, NodeOf, ParameterType


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedParameter:
    """A declared parameter."""

    name: str
    type: ParameterType
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedBinding:
    """A node of some types that meets conditions, which read no variable but this one."""

    variable: str
    type: NodeOf
    conditions: tuple[Expression, ...] = ()


_TURNED: Final = {
    EdgeDirection.FORWARD: EdgeDirection.BACKWARD,
    EdgeDirection.BACKWARD: EdgeDirection.FORWARD,
    EdgeDirection.EITHER: EdgeDirection.EITHER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeStep:
    """A step over one edge type, from nodes of one type to nodes of one type.

    Several steps are the edges that a traversal may follow: alternatives, or one edge type between
    several node types. `EITHER` is for equal types only; an edge from a node to itself is then one
    step. Steps between different pairs of types never lead to the same pair of nodes.
    """

    edge: str
    direction: EdgeDirection
    start_type: str
    end_type: str

    def turn(self) -> EdgeStep:
        """The same edges, followed from their other end."""
        return EdgeStep(
            edge=self.edge,
            direction=_TURNED[self.direction],
            start_type=self.end_type,
            end_type=self.start_type,
        )


def edges_of(steps: Iterable[EdgeStep]) -> tuple[str, ...]:
    """The edge types of steps, each once, sorted."""
    return tuple(sorted({step.edge for step in steps}))


def can_chain(steps: Sequence[EdgeStep]) -> bool:
    """Whether a step can follow another one."""
    starts = {step.start_type for step in steps}
    return any(step.end_type in starts for step in steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedTraversal:
    """Two nodes joined by one edge, or by a chain of `minimum` to `maximum` edges.

    `steps` lead from left to right. A chain is any sequence of them in which each step starts at a
    node of the type that the one before it led to. `left_type` and `right_type` are the types that
    the nodes at its ends can have. Without a maximum a chain can have any length. With a minimum of
    0 a node is joined to itself. Without `edge_variable` a pair counts once, however many edges or
    paths join it.
    """

    left: str
    right: str
    left_type: NodeOf
    right_type: NodeOf
    steps: tuple[EdgeStep, ...]
    minimum: int = 1
    maximum: int | None = 1
    edge_variable: str | None = None
    path_variable: str | None = None
    weight: str | None = None
    """The property of the edge whose sum is the smallest along the path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedSubPattern:
    """A pattern that expressions ask about: `variable` says whether, or how often, it matches."""

    variable: str
    kind: SubPatternKind
    block: Block


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A pattern.

    Bindings and traversals must hold together; then what is optional joins; then filters and
    `not` blocks remove rows. Filters can read the matches of `sub_patterns`.
    `introduced` lists the variables that are new here, `outer` those that it reads from outside.
    """

    bindings: tuple[TypedBinding, ...]
    traversals: tuple[TypedTraversal, ...]
    optionals: tuple[Block, ...]
    filters: tuple[Expression, ...]
    negations: tuple[Block, ...]
    introduced: tuple[str, ...]
    outer: tuple[str, ...]
    sub_patterns: tuple[TypedSubPattern, ...] = ()

    @property
    def inner_blocks(self) -> tuple[Block, ...]:
        """The blocks directly inside."""
        asked = tuple(sub_pattern.block for sub_pattern in self.sub_patterns)
        return *self.optionals, *self.negations, *asked


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobSource:
    """Whose Blobs a column holds; engines give the ids of their owners."""

    type: str
    table_key: str
    property: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of the result; `blob` is set if it holds handles of Blobs."""

    name: str
    type: ColumnType
    nullable: bool
    blob: BlobSource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedProjection:
    """A column and what it holds."""

    column: Column
    expression: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderKey:
    """One key of the order; `column` is set when it is a column of the result."""

    expression: Expression
    descending: bool
    column: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedRead:
    """The meaning of `match ... return ...`.

    With `ranking`, only rows that have a rank stay, best first, in front of every key of `order`.
    `grouped` means that projections without an aggregate are the keys of groups; those of which
    `having` is true stay. Projections and keys of the order can read the matches of `sub_patterns`.
    """

    block: Block
    projections: tuple[TypedProjection, ...]
    distinct: bool
    grouped: bool
    ranking: Ranking | None
    order: tuple[OrderKey, ...]
    limit: Expression | None
    offset: Expression | None
    sub_patterns: tuple[TypedSubPattern, ...] = ()
    having: Expression | None = None

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The pattern, and those that the result asks about."""
        return self.block, *(sub_pattern.block for sub_pattern in self.sub_patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedAssignment:
    """A property and its new value; in an update the value may read the old row."""

    property: str
    value: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertStatement:
    """One entity with the properties that are assigned."""

    verb: InsertVerb
    table_key: str
    type: str
    assignments: tuple[TypedAssignment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStatement:
    """New values for every entity that meets the condition."""

    table_key: str
    type: str
    assignments: tuple[TypedAssignment, ...]
    condition: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteStatement:
    """Every entity that meets the condition; of nodes also each edge of `incident` at them."""

    table_key: str
    type: str
    condition: Expression
    incident: tuple[str, ...]


class MatchedVerb(enum.StrEnum):
    """What a statement does with every row of a match."""

    INSERT = "insert"
    UPSERT = "upsert"
    REPLACE = "replace"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedStatement:
    """A statement for every row of a match.

    `read` gives the values of `columns`, after the id of the entity for an update or a deletion.
    `assignments` are the values that are known before the run. A deletion of nodes deletes the
    edges of `incident` at them, too.
    """

    verb: MatchedVerb
    table_key: str
    type: str
    read: TypedRead
    columns: tuple[str, ...] = ()
    assignments: tuple[TypedAssignment, ...] = ()
    incident: tuple[str, ...] = ()
    of_several: bool = False
    """Whether it is one of several that were made of one, for each type of its variable."""


TypedStatement: TypeAlias = InsertStatement | UpdateStatement | DeleteStatement | MatchedStatement


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedWrite:
    """Statements in order; each sees the effects of the earlier ones."""

    statements: tuple[TypedStatement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedQuery:
    """One query of a file; `reads` and `writes` are sorted table keys."""

    name: str
    parameters: tuple[TypedParameter, ...]
    description: str | None
    instruction: str | None
    body: TypedRead | TypedWrite
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    is_adhoc: bool = False

    @property
    def title(self) -> str:
        """How messages call it."""
        return "the query" if self.is_adhoc else f"query {self.name}"

    @property
    def is_mutation(self) -> bool:
        return isinstance(self.body, TypedWrite)

    @property
    def columns(self) -> tuple[Column, ...]:
        if isinstance(self.body, TypedWrite):
            return ()
        return tuple(projection.column for projection in self.body.projections)
