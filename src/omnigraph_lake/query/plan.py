"""The logical plan: what a query computes, as a tree of a few kinds of nodes.

Invariant: a plan has the same meaning for every executor. Rows have variables until `Project` or
`Aggregate`, and columns above them. A node is identified by its type and its id together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from omnigraph_lake.query import typed as tq
from omnigraph_lake.query.ast import SubPatternKind
from omnigraph_lake.query.expressions import Expression, Ranking

PLANS_KNOWN: Final = 512
"""So many plans, and what follows from each of them, a process remembers."""
VECTOR_ARM_LEAST: Final = 100
VECTOR_ARM_FACTOR: Final = 10


def vector_arm_depth(rows: int) -> int:
    """How many entities the vector arm of a fusion ranks when `rows` rows are asked for."""
    return max(VECTOR_ARM_LEAST, VECTOR_ARM_FACTOR * rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """All nodes of some types that meet a condition.

    `columns` are the properties that are read later, beside the id; None means all of them.
    """

    variable: str
    types: tuple[str, ...]
    predicate: Expression | None = None
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """The rows around a block; the leaf of the plan inside a `BlockJoin`."""

    variables: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """No rows."""

    variables: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expand:
    """For each row, the nodes reached from `start` over the edges of `steps`.

    Without `edge_variable` a reached node counts once per row: a breadth-first search reports it
    at its smallest distance, if that is within the bounds; without a maximum until no more nodes
    are found. The start is reported at distance zero if `minimum` is 0, otherwise only by an edge
    from itself to itself, at distance one. With `edge_variable` every edge is a row. If
    `end_bound`, only rows stay whose reached node is the one that `end` holds. A null `start`, or
    one of another type than `start_types`, reaches nothing. Nodes on the way can be of any type
    that the steps lead to, the reached node only of `end_types`.

    A path runs from `start` to `end`, or from `end` to `start` if `turned`. It is a shortest one;
    of several the one with the smallest list of nodes, then of edges, as it runs. Nodes and edges
    compare by their id, then by the name of their type.

    With `weight`, a property of the edge, it is a path with the smallest sum, added up from
    `start`, which is never turned; of several the one with the fewest edges, then as above. Every
    part of it that begins at `start` is such a path, too. An edge without a weight is not followed.

    `predicate` is about the node that is reached, never about those on the way to it.
    """

    input: Plan
    start: str
    end: str
    start_types: tuple[str, ...]
    end_types: tuple[str, ...]
    steps: tuple[tq.EdgeStep, ...]
    minimum: int
    maximum: int | None
    end_bound: bool
    turned: bool = False
    edge_variable: str | None = None
    path_variable: str | None = None
    weight: str | None = None
    predicate: Expression | None = None
    edge_predicate: Expression | None = None
    columns: tuple[str, ...] | None = None
    edge_columns: tuple[str, ...] | None = None

    @property
    def edges(self) -> tuple[str, ...]:
        """The edge types that it follows, sorted by name."""
        return tq.edges_of(self.steps)

    @property
    def single_steps(self) -> tuple[tq.EdgeStep, ...]:
        """The steps that lead from a start to an end at once."""
        return tuple(
            step
            for step in self.steps
            if step.start_type in self.start_types and step.end_type in self.end_types
        )

    @property
    def chains(self) -> bool:
        """Whether an edge can follow another."""
        return tq.can_chain(self.steps)

    @property
    def searches(self) -> bool:
        """Whether nodes at other distances than one can be reported."""
        return self.minimum == 0 or (self.chains and self.maximum != 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cross:
    """Every row of one side with every row of the other."""

    left: Plan
    right: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The rows for which the condition is true."""

    input: Plan
    predicate: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Anti:
    """The rows for which `inner`, started from that row, gives none."""

    input: Plan
    inner: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Semi:
    """The rows for which `inner`, started from that row, gives one or more."""

    input: Plan
    inner: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """Each row with how many rows `inner` gives for it, or whether it gives one, as `variable`."""

    input: Plan
    inner: Plan
    kind: SubPatternKind
    variable: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Optional:
    """Each row with every row that `inner` gives for it, or once with `introduced` null."""

    input: Plan
    inner: Plan
    introduced: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """The rows whose entity has a rank, with its distance or score.

    `limit` and `offset` say how many rows will be asked for, best first; a limit of None asks
    for all.
    """

    input: Plan
    by: Ranking
    limit: Expression | None
    offset: Expression | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """One column per projection."""

    input: Plan
    projections: tuple[tq.TypedProjection, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """One row per group; without keys one row, also when there is no input.

    A whole entity as a key groups by its type and id. Nulls are one group. `having` is about the
    columns, and only rows stay of which it is true.
    """

    input: Plan
    projections: tuple[tq.TypedProjection, ...]
    keys: tuple[str, ...]
    having: Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct:
    """Every row of columns once."""

    input: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A total order of rows: the ranking, the keys, then the ties, ascending.

    Nulls are first ascending and last descending. Ties are variables, by id and then type, or
    above `Project` and `Aggregate` columns.
    """

    input: Plan
    ranking: Ranking | None
    keys: tuple[tq.OrderKey, ...]
    ties: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """At most `limit` rows after the first `offset`."""

    input: Plan
    limit: Expression | None
    offset: Expression | None


BlockJoin: TypeAlias = Anti | Semi | Apply | Optional
"""The plans that join a block to the rows around it."""
WithoutExpressions: TypeAlias = Outer | Empty | Cross | BlockJoin | Distinct | Limit
"""The plans that compute nothing of a row; the counts of a limit are known before the run."""
Plan: TypeAlias = (
    Scan
    | Outer
    | Empty
    | Expand
    | Cross
    | Filter
    | BlockJoin
    | Rank
    | Project
    | Aggregate
    | Distinct
    | Order
    | Limit
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """The statements of a mutation, in order, as one commit."""

    statements: tuple[tq.TypedStatement, ...]
    reads: tuple[Plan | None, ...]
    """How the rows of each statement are read; None for a statement without a match."""


def variables_bound(plan: Plan) -> frozenset[str]:  # noqa: PLR0911 - one per kind
    """The variables that rows of a plan carry; none above `Project` and `Aggregate`."""
    match plan:
        case Scan():
            return frozenset({plan.variable})
        case Outer() | Empty():
            return frozenset(plan.variables)
        case Expand():
            new_variables = {plan.end, plan.edge_variable, plan.path_variable} - {None}
            return variables_bound(plan.input) | {
                variable for variable in new_variables if variable is not None
            }
        case Cross():
            return variables_bound(plan.left) | variables_bound(plan.right)
        case Optional():
            return variables_bound(plan.input) | frozenset(plan.introduced)
        case Apply():
            return variables_bound(plan.input) | {plan.variable}
        case Filter() | Anti() | Semi() | Rank() | Order() | Limit():
            return variables_bound(plan.input)
        case Project() | Aggregate() | Distinct():
            return frozenset()
        case _:
            assert_never(plan)
