"""One traversal: its edge, its direction, its bounds and the variables that it binds.

Invariant: the direction follows from the types of the ends alone. Where both directions fit,
the edge is followed forward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from omnigraph.query import ast
from omnigraph.query.checks.literals import number_constant
from omnigraph.query.checks.scope import Bound, Scope, edge_bound, node_bound, path_bound
from omnigraph.query.diagnostics import Rule
from omnigraph.query.typed import EdgeDirection, TypedTraversal
from omnigraph.query.types import NodeOf
from omnigraph.schema.catalog import EdgeType

HOPS_MAX: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTraversal:
    """A typed traversal and what it binds."""

    traversal: TypedTraversal
    bounds: Mapping[str, Bound]


def resolve_traversal(clause: ast.Traversal, scope: Scope) -> ResolvedTraversal | None:
    """The typed form of a traversal that has at least one known end."""
    edge = _edge_type(clause.edge, scope)
    hops = _hops(clause, scope)
    fresh = _fresh_names(clause, scope)
    ends_known = _end_is_node(clause.left, scope) and _end_is_node(clause.right, scope)
    if edge is None or hops is None or not fresh or not ends_known:
        return None
    direction = _direction(clause, edge, scope)
    if direction is None:
        return None
    left, right = edge.source, edge.target
    if direction is EdgeDirection.BACKWARD:
        left, right = right, left
    minimum, maximum = hops
    edge_variable = None if clause.edge_variable is None else clause.edge_variable.text
    path_variable = None if clause.path is None else clause.path.text
    bounds = {
        clause.left.text: node_bound(scope.catalog, left),
        clause.right.text: node_bound(scope.catalog, right),
    }
    if edge_variable is not None:
        bounds[edge_variable] = edge_bound(edge)
    if path_variable is not None:
        bounds[path_variable] = path_bound(edge)
    typed = TypedTraversal(
        left=clause.left.text,
        right=clause.right.text,
        left_type=NodeOf(types=(left,)),
        right_type=NodeOf(types=(right,)),
        edge=edge.name,
        direction=direction,
        minimum=minimum,
        maximum=maximum,
        edge_variable=edge_variable,
        path_variable=path_variable,
    )
    return ResolvedTraversal(traversal=typed, bounds=bounds)


def unbound_end(clause: ast.Traversal, scope: Scope, *, optional: frozenset[str]) -> None:
    """Reports a traversal neither of whose ends is known."""
    edge = _edge_type(clause.edge, scope)
    for name in (clause.left, clause.right):
        if not _end_is_node(name, scope):
            return
        if name.text in optional:
            scope.findings.error(
                Rule.OPTIONAL_VARIABLE,
                name.span,
                f"`${name.text}` comes from an optional block, so it may be missing here",
                "move this line into the optional block",
            )
            return
    left = "Type" if edge is None else edge.source
    scope.findings.error(
        Rule.UNBOUND_TRAVERSAL,
        clause.span,
        "neither end of this traversal is bound",
        f"bind one of them: `${clause.left.text}: {left}`"
        if "." not in clause.left.text
        else "bind one of them to a type",
    )


def _edge_type(name: ast.Name, scope: Scope) -> EdgeType | None:
    for edge in scope.catalog.edges.values():
        if edge.name.casefold() == name.text.casefold():
            return edge
    known = {each[:1].lower() + each[1:] for each in scope.catalog.edges}
    scope.findings.error(
        Rule.UNKNOWN_EDGE,
        name.span,
        f"there is no edge `{name.text}`",
        scope.findings.suggestions.closest(name.text, known)
        or (f"the edges are {', '.join(sorted(known)[:12])}" if known else "the schema has none"),
    )
    return None


def _hops(clause: ast.Traversal, scope: Scope) -> tuple[int, int] | None:
    bounds = clause.bounds
    if bounds is None:
        return 1, 1
    low = number_constant(bounds.minimum, scope.findings)
    if bounds.maximum is None:
        scope.findings.error(
            Rule.HOP_BOUNDS,
            bounds.span,
            "hops need a maximum",
            f"write `{{{bounds.minimum.raw},3}}`",
        )
        return None
    high = number_constant(bounds.maximum, scope.findings)
    if low is None or high is None:
        return None
    minimum, maximum = low.value, high.value
    whole = isinstance(minimum, int) and isinstance(maximum, int)
    if not whole or not 1 <= minimum <= maximum <= HOPS_MAX:  # type: ignore[operator]
        scope.findings.error(
            Rule.HOP_BOUNDS,
            bounds.span,
            f"the bounds are whole numbers from 1 to {HOPS_MAX}, the smaller one first",
        )
        return None
    assert isinstance(minimum, int)
    assert isinstance(maximum, int)
    return minimum, maximum


def _fresh_names(clause: ast.Traversal, scope: Scope) -> bool:
    edge, path = clause.edge_variable, clause.path
    ends = {clause.left.text, clause.right.text}
    for rule, word, name in (
        (Rule.EDGE_VARIABLE, "edge", edge),
        (Rule.PATH_VARIABLE, "path", path),
    ):
        if name is None:
            continue
        if name.text in ends or name.text in scope.variables or name.text in scope.parameters:
            scope.findings.error(
                rule, name.span, f"`${name.text}` is already used; the {word} needs another name"
            )
            return False
    if edge is not None and (clause.bounds is not None or path is not None):
        rule = Rule.EDGE_VARIABLE if path is None else Rule.PATH_VARIABLE
        scope.findings.error(
            rule,
            edge.span if path is None else path.span,
            "only a single hop without bounds and path can have a variable for the edge",
            "leave it out, and read the edges from a path: `as $path`",
        )
        return False
    return True


def _end_is_node(name: ast.Name, scope: Scope) -> bool:
    if name.text in scope.parameters:
        scope.findings.error(
            Rule.VARIABLE_CLASH,
            name.span,
            f"`${name.text}` is a parameter, an edge joins nodes",
            f"bind a node and compare: `$node.id = ${name.text}`",
        )
        return False
    if name.text not in scope.variables:
        return True
    bound = scope.variables[name.text]
    if bound is None:
        return False
    if not isinstance(bound.type, NodeOf):
        scope.findings.error(
            Rule.VARIABLE_CLASH, name.span, f"`${name.text}` is not a node, an edge joins nodes"
        )
        return False
    return True


def _direction(clause: ast.Traversal, edge: EdgeType, scope: Scope) -> EdgeDirection | None:
    def fits(name: ast.Name, endpoint: str) -> bool:
        bound = scope.variables.get(name.text)
        return bound is None or (isinstance(bound.type, NodeOf) and endpoint in bound.type.types)

    if clause.undirected and edge.source != edge.target:
        scope.findings.error(
            Rule.UNDIRECTED_EDGE,
            clause.edge.span,
            f"{edge.name} joins {edge.source} and {edge.target}, so it has one direction only",
            f"write it without `<` and `>`: `{clause.edge.text}`",
        )
        return None
    if fits(clause.left, edge.source) and fits(clause.right, edge.target):
        return EdgeDirection.EITHER if clause.undirected else EdgeDirection.FORWARD
    if fits(clause.left, edge.target) and fits(clause.right, edge.source):
        return EdgeDirection.BACKWARD
    wrong = clause.right if _can_be_left(clause, edge, scope) else clause.left
    bound = scope.variables.get(wrong.text)
    shown = "?" if bound is None else bound.shown
    scope.findings.error(
        Rule.EDGE_ENDPOINT,
        wrong.span,
        f"{edge.name} joins {edge.source} and {edge.target}, `${wrong.text}` is {shown}",
    )
    return None


def _can_be_left(clause: ast.Traversal, edge: EdgeType, scope: Scope) -> bool:
    bound = scope.variables.get(clause.left.text)
    return bound is None or (
        isinstance(bound.type, NodeOf) and bool({edge.source, edge.target} & set(bound.type.types))
    )
