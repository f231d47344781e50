"""The meaning of names at one place of a query, and the collection of findings.

Invariant: a name that was reported once is marked, so that one mistake gives one finding.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from omnigraph_lake.language.diagnostics import Diagnostic, Span, Suggestions
from omnigraph_lake.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph_lake.query.diagnostics import Rule, error, warning
from omnigraph_lake.query.typed import TypedParameter, TypedProjection
from omnigraph_lake.query.types import STRING, EdgeOf, NodeOf, PathOf, properties_in_common
from omnigraph_lake.schema import catalog as ct

if TYPE_CHECKING:
    from omnigraph_lake.query import ast
    from omnigraph_lake.query import expressions as ex

ANONYMOUS: Final = "_"
SYSTEM_COLUMNS: Final = frozenset({ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN})
"""Readable columns that are no properties."""


class Findings:
    """The findings of one query; the only mutable state of a check."""

    def __init__(self, suggestions: Suggestions) -> None:
        self.suggestions = suggestions
        self._found: dict[Diagnostic, None] = {}

    def error(self, rule: Rule, span: Span, message: str, hint: str = "") -> None:
        self._found[error(rule, span, message, hint)] = None

    def warning(self, rule: Rule, span: Span, message: str, hint: str = "") -> None:
        self._found[warning(rule, span, message, hint)] = None

    def in_source_order(self) -> tuple[Diagnostic, ...]:
        return tuple(sorted(self._found, key=lambda finding: (finding.span.offset, finding.rule)))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProperty:
    """A readable property of a bound entity."""

    type: ct.PropertyType
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What the pattern binds to a variable; `nullable` if only an optional block does."""

    type: NodeOf | EdgeOf | PathOf
    properties: Mapping[str, KnownProperty]
    shown: str
    nullable: bool = False


class ExpressionContext(enum.Enum):
    """The context of an expression, which decides what may be called there."""

    CONDITION = "a condition"
    RESULT = "`return`"
    ORDER = "`order`"
    VALUE = "a value"
    INSIDE = "another expression"


class SubPatterns(Protocol):
    """Collects the patterns that the expressions of one block or result ask about."""

    def matches_of(self, sub_pattern: ast.SubPattern, scope: Scope) -> ex.MatchesOf | None:
        """What an expression reads of a sub-pattern."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """What `having` reads: columns; `rows` is the scope in which they are written."""

    rows: Scope
    projections: tuple[TypedProjection, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Everything an expression can refer to.

    A variable that is None was reported already. `own` is the type a mutation statement is
    about; `row_readable` says whether a row of it exists yet. Without `sub_patterns` an expression
    cannot ask about one. Where it `may_aggregate`, aggregates can be parts of expressions. The
    parameters of an ad-hoc text need no declaration.
    """

    catalog: ct.Catalog
    findings: Findings
    parameters: Mapping[str, TypedParameter | None]
    variables: Mapping[str, Bound | None] = field(default_factory=dict)
    own: ct.NodeType | ct.EdgeType | None = None
    row_readable: bool = False
    sub_patterns: SubPatterns | None = None
    is_adhoc: bool = False
    groups: Groups | None = None
    may_aggregate: bool = False

    def with_variables(self, more: Mapping[str, Bound | None]) -> Scope:
        return replace(self, variables={**self.variables, **more})


def node_bound(catalog: ct.Catalog, type_name: str) -> Bound:
    """A variable of one node type."""
    return nodes_bound(catalog, (type_name,))


def interface_bound(catalog: ct.Catalog, interface: ct.InterfaceType) -> Bound:
    """A variable of every node type that implements an interface."""
    nodes = [node for node in catalog.nodes.values() if interface.name in node.implements]
    properties = {
        name: KnownProperty(
            type=prop.type,
            nullable=_can_be_null(prop)
            or any(_can_be_null(node.properties[name]) for node in nodes),
        )
        for name, prop in interface.properties.items()
    }
    properties[ID_COLUMN] = KnownProperty(type=STRING, nullable=False)
    return Bound(
        type=NodeOf(types=tuple(sorted(node.name for node in nodes)), interface=interface.name),
        properties=properties,
        shown=interface.name,
    )


def nodes_bound(catalog: ct.Catalog, type_names: Iterable[str]) -> Bound:
    """A variable of one of several node types."""
    types = tuple(sorted(type_names))
    nodes = [catalog.nodes[name] for name in types]
    return Bound(
        type=NodeOf(types=types),
        properties=_properties_of_all(nodes, (ID_COLUMN,)),
        shown=" or ".join(types) or "a node",
    )


def edges_bound(catalog: ct.Catalog, type_names: Iterable[str]) -> Bound:
    """A variable of one of several edge types."""
    types = tuple(sorted(type_names))
    edges = [catalog.edges[name] for name in types]
    return Bound(
        type=EdgeOf(types=types),
        properties=_properties_of_all(edges, (ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN)),
        shown=" or ".join(types),
    )


def path_bound(type_names: Iterable[str], weight: str | None) -> Bound:
    path = PathOf(edges=tuple(sorted(type_names)), weight=weight)
    return Bound(type=path, properties={}, shown="a path")


def _properties_of_all(
    declared_types: Sequence[ct.NodeType | ct.EdgeType], system: tuple[str, ...]
) -> dict[str, KnownProperty]:
    """What is readable of an entity of any of these types."""
    return {
        **{name: KnownProperty(type=STRING, nullable=False) for name in system},
        **{
            name: KnownProperty(
                type=prop.type,
                nullable=any(
                    _can_be_null(declared.properties[name]) for declared in declared_types
                ),
            )
            for name, prop in properties_in_common(declared_types).items()
        },
    }


def readable_properties(declared: ct.NodeType | ct.EdgeType) -> dict[str, KnownProperty]:
    """The properties of a type and its system columns."""
    system = (
        (ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN)
        if isinstance(declared, ct.EdgeType)
        else (ID_COLUMN,)
    )
    return _properties_of_all((declared,), system)


def _can_be_null(prop: ct.Property) -> bool:
    # An embedding may be missing while its text is there.
    return prop.nullable or prop.embed is not None
