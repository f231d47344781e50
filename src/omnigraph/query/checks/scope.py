"""The meaning of names at one place of a query, and the collection of findings.

Invariant: a name that was reported once is marked, so that one mistake gives one finding.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from omnigraph.language.diagnostics import Diagnostic, Span, Suggestions
from omnigraph.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph.query.diagnostics import Rule, error, warning
from omnigraph.query.typed import TypedParameter
from omnigraph.query.types import STRING, EdgeOf, NodeOf, PathOf
from omnigraph.schema import catalog as ct

if TYPE_CHECKING:
    from omnigraph.query import ast
    from omnigraph.query import expressions as ex

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
class Scope:
    """Everything an expression can refer to.

    A variable that is None was reported already. `own` is the type a mutation statement is
    about; `row_readable` says whether a row of it exists yet. Without `sub_patterns` an expression
    cannot ask about one. The parameters of an ad-hoc text need no declaration.
    """

    catalog: ct.Catalog
    findings: Findings
    parameters: Mapping[str, TypedParameter | None]
    variables: Mapping[str, Bound | None] = field(default_factory=dict)
    own: ct.NodeType | ct.EdgeType | None = None
    row_readable: bool = False
    sub_patterns: SubPatterns | None = None
    is_adhoc: bool = False

    def with_variables(self, more: Mapping[str, Bound | None]) -> Scope:
        return replace(self, variables={**self.variables, **more})


def node_bound(catalog: ct.Catalog, type_name: str) -> Bound:
    """A variable of one node type."""
    node = catalog.nodes[type_name]
    return Bound(
        type=NodeOf(types=(type_name,)), properties=readable_properties(node), shown=type_name
    )


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


def edge_bound(edge: ct.EdgeType) -> Bound:
    """A variable of one edge type."""
    return Bound(type=EdgeOf(type=edge.name), properties=readable_properties(edge), shown=edge.name)


def path_bound(edge: ct.EdgeType) -> Bound:
    return Bound(type=PathOf(edge=edge.name), properties={}, shown="a path")


def readable_properties(declared: ct.NodeType | ct.EdgeType) -> dict[str, KnownProperty]:
    """The properties of a type and its system columns."""
    system = (
        (ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN)
        if isinstance(declared, ct.EdgeType)
        else (ID_COLUMN,)
    )
    return {
        **{name: KnownProperty(type=STRING, nullable=False) for name in system},
        **{
            prop.name: KnownProperty(type=prop.type, nullable=_can_be_null(prop))
            for prop in declared.properties.values()
        },
    }


def _can_be_null(prop: ct.Property) -> bool:
    # An embedding may be missing while its text is there.
    return prop.nullable or prop.embed is not None
