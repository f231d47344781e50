"""Checks the clauses of `match`: which variables they bind, to what, and how edges are followed.

Bindings are processed first, then traversals from any known end, then optional blocks, then filters
and `not` blocks. A traversal resolves to its edge, its direction, its bounds and the variables that
it binds.

Invariants:

- A variable has one type in a query.
- The order of lines in the text does not matter.
- A traversal has the direction that the text gives it, or else the only one that the types of its
  ends leave, for each of its edges.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

from omnigraph_lake.query import ast
from omnigraph_lake.query.checks.infer import (
    compare,
    infer_condition,
    infer_value,
    membership,
    unknown_property,
)
from omnigraph_lake.query.checks.literals import number_constant
from omnigraph_lake.query.checks.scope import (
    ANONYMOUS,
    Bound,
    ExpressionContext,
    Scope,
    edges_bound,
    interface_bound,
    node_bound,
    nodes_bound,
    path_bound,
)
from omnigraph_lake.query.checks.steps import StepsBetween, edge_steps, steps_between
from omnigraph_lake.query.diagnostics import Rule
from omnigraph_lake.query.expressions import (
    Entity,
    Expression,
    IsNull,
    MatchesOf,
    PropertyOf,
    variables_of,
)
from omnigraph_lake.query.typed import (
    Block,
    TypedBinding,
    TypedSubPattern,
    TypedTraversal,
    edges_of,
)
from omnigraph_lake.query.types import BLOB, NodeOf, is_number, show
from omnigraph_lake.schema.catalog import EdgeType, ListType

HOPS_MAX: Final = 1000
_LISTED_MAX: Final = 12
"""So many names an error lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTraversal:
    """A typed traversal and what it binds."""

    traversal: TypedTraversal
    bounds: Mapping[str, Bound]


def resolve_traversal(clause: ast.Traversal, scope: Scope) -> ResolvedTraversal | None:
    """The typed form of a traversal that has at least one known end."""
    edges = _edge_types(clause, scope)
    hops = _hops(clause, edges or (), scope)
    fresh = _fresh_names(clause, scope)
    ends_known = _end_is_node(clause.left, scope) and _end_is_node(clause.right, scope)
    if edges is None or hops is None or not fresh or not ends_known:
        return None
    minimum, maximum = hops
    between = _follow_edges(clause, edges, hops, scope)
    if not _all_followed(clause, edges, between, scope):
        return None
    edge_variable = None if clause.edge_variable is None else clause.edge_variable.text
    path_variable = None if clause.path is None else clause.path.text
    edge_names = edges_of(between.steps)
    weight = None
    if clause.weight is not None:
        followed_edges = [scope.catalog.edges[name] for name in edge_names]
        weight = _weight(clause, clause.weight, followed_edges, hops, scope)
        if weight is None:
            return None
    bounds = {
        clause.left.text: nodes_bound(scope.catalog, between.left_types),
        clause.right.text: nodes_bound(scope.catalog, between.right_types),
    }
    if edge_variable is not None:
        bounds[edge_variable] = edges_bound(scope.catalog, edge_names)
    if path_variable is not None:
        bounds[path_variable] = path_bound(edge_names, weight)
    typed = TypedTraversal(
        left=clause.left.text,
        right=clause.right.text,
        left_type=NodeOf(types=between.left_types),
        right_type=NodeOf(types=between.right_types),
        steps=between.steps,
        minimum=minimum,
        maximum=maximum,
        edge_variable=edge_variable,
        path_variable=path_variable,
        weight=weight,
    )
    return ResolvedTraversal(traversal=typed, bounds=bounds)


def _node_types(name: ast.Name, scope: Scope) -> frozenset[str] | None:
    """The types that a variable can have; None if it is not bound yet."""
    bound = scope.variables.get(name.text)
    if bound is None or not isinstance(bound.type, NodeOf):
        return None
    return frozenset(bound.type.types)


def _follow_edges(
    clause: ast.Traversal,
    edges: Sequence[EdgeType],
    hops: tuple[int, int | None],
    scope: Scope,
) -> StepsBetween:
    is_choice = len(edges) > 1 or is_any(clause.edges) or any(map(_joins_several_types, edges))
    return steps_between(
        edges,
        left=_node_types(clause.left, scope),
        right=_node_types(clause.right, scope),
        hops=hops if is_choice else (1, 1),
        direction=clause.direction,
    )


def _joins_several_types(edge: EdgeType) -> bool:
    return edge.source.is_polymorphic or edge.target.is_polymorphic


def _shares_types(edge: EdgeType) -> bool:
    return not set(edge.source.names).isdisjoint(edge.target.names)


def _joins_one_type(edge: EdgeType) -> bool:
    return set(edge.source.names) == set(edge.target.names)


def _all_followed(
    clause: ast.Traversal, edges: Sequence[EdgeType], between: StepsBetween, scope: Scope
) -> bool:
    """Reports edges that no step follows, of any edge (`_`) only all; and ambiguous ones."""
    if between.ambiguous:
        _report_direction(clause, between.ambiguous, scope)
        return False
    if is_any(clause.edges):
        if not between.steps:
            scope.findings.error(
                Rule.EDGE_ENDPOINT,
                clause.edges[0].span,
                f"no edge leads from {_describe_end(clause.left, scope)} "
                f"to {_describe_end(clause.right, scope)}",
            )
        return bool(between.steps)
    undirected = clause.direction is ast.EdgeDirection.EITHER
    if undirected and len(edges) == 1 and not _shares_types(edges[0]):
        edge = edges[0]
        scope.findings.error(
            Rule.UNDIRECTED_EDGE,
            clause.edges[0].span,
            f"{edge.name} joins {edge.source} and {edge.target}, so it has one direction only",
            f"write it without `<` and `>`: `{clause.edges[0].text}`",
        )
        return False
    missing = {edge.name for edge in edges} - set(edges_of(between.steps))
    if len(edges) == 1 and missing:
        _report_endpoint(clause, edges[0], scope)
        return False
    for name in clause.edges:
        named_edge = _edge_named(name, scope)
        if named_edge is not None and named_edge.name in missing:
            scope.findings.error(
                Rule.EDGE_ENDPOINT,
                name.span,
                f"{_describe_edge(named_edge, clause.direction)}, it is never followed from "
                f"{_describe_end(clause.left, scope)} to {_describe_end(clause.right, scope)}",
                "remove it from the alternatives",
            )
    return not missing


def _report_direction(clause: ast.Traversal, ambiguous: Sequence[str], scope: Scope) -> None:
    """Reports edges that the types of both ends allow to follow in both directions."""
    written = "|".join(edge.text for edge in clause.edges)
    edge = scope.catalog.edges[ambiguous[0]]
    scope.findings.error(
        Rule.EDGE_DIRECTION,
        clause.edges[0].span,
        f"{edge.name} joins {edge.source} and {edge.target}, "
        f"so it can be followed in both directions from {_describe_end(clause.left, scope)} "
        f"to {_describe_end(clause.right, scope)}",
        f"write `{ast.write_edges(written, ast.EdgeDirection.FORWARD)}` for forward, "
        f"or `{ast.write_edges(written, ast.EdgeDirection.BACKWARD)}` for backward",
    )


def _describe_end(name: ast.Name, scope: Scope) -> str:
    bound = scope.variables.get(name.text)
    return "any node" if bound is None else bound.shown


def unbound_end(clause: ast.Traversal, scope: Scope, *, optional: frozenset[str]) -> None:
    """Reports a traversal neither of whose ends is known."""
    edges = _edge_types(clause, scope)
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
    left = "Type" if not edges else ANONYMOUS if is_any(clause.edges) else edges[0].source.names[0]
    scope.findings.error(
        Rule.UNBOUND_TRAVERSAL,
        clause.span,
        "neither end of this traversal is bound",
        f"bind one of them: `${clause.left.text}: {left}`"
        if "." not in clause.left.text
        else "bind one of them to a type",
    )


def is_any(names: Sequence[ast.Name]) -> bool:
    """Whether the text says `_`: every edge, or every node."""
    return [name.text for name in names] == [ANONYMOUS]


def _edge_types(clause: ast.Traversal, scope: Scope) -> tuple[EdgeType, ...] | None:
    """The edges that a traversal names, each once."""
    if is_any(clause.edges):
        if not scope.catalog.edges:
            scope.findings.error(
                Rule.UNKNOWN_EDGE, clause.edges[0].span, "the schema has no edges to follow"
            )
            return None
        return tuple(scope.catalog.edges.values())
    edges = [_edge_type(name, scope) for name in clause.edges]
    known_edges = {edge.name: edge for edge in edges if edge is not None}
    return None if None in edges else tuple(known_edges.values())


def _edge_named(name: ast.Name, scope: Scope) -> EdgeType | None:
    return next(
        (
            edge
            for edge in scope.catalog.edges.values()
            if edge.name.casefold() == name.text.casefold()
        ),
        None,
    )


def _edge_type(name: ast.Name, scope: Scope) -> EdgeType | None:
    edge = _edge_named(name, scope)
    if edge is not None:
        return edge
    if name.text == ANONYMOUS:
        scope.findings.error(
            Rule.UNKNOWN_EDGE,
            name.span,
            "`_` is any edge, it has no alternatives",
            "write `_` alone, or name the edges",
        )
        return None
    known_edges = {edge_name[:1].lower() + edge_name[1:] for edge_name in scope.catalog.edges}
    scope.findings.error(
        Rule.UNKNOWN_EDGE,
        name.span,
        f"there is no edge `{name.text}`",
        scope.findings.suggestions.closest(name.text, known_edges)
        or (
            f"the edges are {', '.join(sorted(known_edges)[:12])}"
            if known_edges
            else "the schema has none"
        ),
    )
    return None


def _hops(
    clause: ast.Traversal, edges: Sequence[EdgeType], scope: Scope
) -> tuple[int, int | None] | None:
    bounds = clause.bounds
    if bounds is None:
        return 1, 1
    low = number_constant(bounds.minimum, scope.findings)
    high = None if bounds.maximum is None else number_constant(bounds.maximum, scope.findings)
    if low is None or (high is None and bounds.maximum is not None):
        return None
    minimum, maximum = low.value, None if high is None else high.value
    highest = HOPS_MAX if high is None else maximum
    whole = isinstance(minimum, int) and isinstance(highest, int)
    if not whole or not 0 <= minimum <= highest <= HOPS_MAX or highest == 0:  # type: ignore[operator]
        scope.findings.error(
            Rule.HOP_BOUNDS,
            bounds.span,
            f"the bounds are whole numbers up to {HOPS_MAX}, the smaller one first; the smaller "
            "one can be 0, the larger one can be omitted",
        )
        return None
    edge = edges[0] if len(edges) == 1 and not is_any(clause.edges) else None
    if minimum == 0 and edge is not None and not _joins_one_type(edge):
        scope.findings.error(
            Rule.HOP_BOUNDS,
            bounds.span,
            f"{edge.name} joins {edge.source} and {edge.target}, so no node is its own other end",
            "a minimum of 0 needs an edge between nodes of one type",
        )
        return None
    assert isinstance(minimum, int)
    assert maximum is None or isinstance(maximum, int)
    return minimum, maximum


def _weight(
    clause: ast.Traversal,
    name: ast.Name,
    edges: Sequence[EdgeType],
    hops: tuple[int, int | None],
    scope: Scope,
) -> str | None:
    """The property that a path is weighted by, which all its edges have."""
    if not _is_weight(name, edges, scope):
        return None
    minimum, maximum = hops
    if clause.bounds is None or maximum is not None or minimum > 1:
        scope.findings.error(
            Rule.PATH_WEIGHT,
            name.span if clause.bounds is None else clause.bounds.span,
            "a weighted path can have any number of edges",
            "write `{1,}`, or `{0,}` to include the path without edges",
        )
        return None
    return name.text


def _is_weight(name: ast.Name, edges: Sequence[EdgeType], scope: Scope) -> bool:
    """Whether all edges have a property of one numeric type; reports what they have instead."""
    lacking = [edge for edge in edges if name.text not in edge.properties]
    if lacking and len(edges) == 1:
        unknown_property(name, lacking[0].name, list(lacking[0].properties), scope)
        return False
    if lacking:
        scope.findings.error(
            Rule.PATH_WEIGHT,
            name.span,
            f"{lacking[0].name} has no property `{name.text}`, by which the path is weighted",
            f"follow only edges that have it; without are {_enumerate(lacking)}",
        )
        return False
    first = edges[0].properties[name.text]
    for edge in edges:
        declared = edge.properties[name.text]
        if not is_number(declared.type):
            scope.findings.error(
                Rule.PATH_WEIGHT,
                name.span,
                f"`{name.text}` of {edge.name} is {show(declared.type)}, expected a number",
                "weights are integers or floats, 0 or more",
            )
            return False
        if declared.type != first.type:
            scope.findings.error(
                Rule.PATH_WEIGHT,
                name.span,
                f"`{name.text}` is {show(first.type)} in {edges[0].name} and "
                f"{show(declared.type)} in {edge.name}, expected one type",
                "the weights of a path are added up as numbers of one type",
            )
            return False
    return True


def _enumerate(edges: Sequence[EdgeType]) -> str:
    listed = ", ".join(edge.name for edge in edges[:_LISTED_MAX])
    return listed + (", ..." if len(edges) > _LISTED_MAX else "")


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


def _report_endpoint(clause: ast.Traversal, edge: EdgeType, scope: Scope) -> None:
    """Reports the end of a traversal that is not of a type that its edge joins."""
    left = _node_types(clause.left, scope)
    steps = edge_steps(edge, clause.direction or ast.EdgeDirection.EITHER)
    fits_left = left is None or any(step.start_type in left for step in steps)
    wrong = clause.right if fits_left else clause.left
    joins = _describe_edge(edge, clause.direction)
    scope.findings.error(
        Rule.EDGE_ENDPOINT,
        wrong.span,
        f"{joins}, `${wrong.text}` is {_describe_end(wrong, scope)}",
    )


def _describe_edge(edge: EdgeType, direction: ast.EdgeDirection | None) -> str:
    """What an edge joins, in the direction that the text gives it."""
    match direction:
        case None | ast.EdgeDirection.EITHER:
            return f"{edge.name} joins {edge.source} and {edge.target}"
        case ast.EdgeDirection.FORWARD:
            return f"{edge.name} leads forward from {edge.source} to {edge.target}"
        case ast.EdgeDirection.BACKWARD:
            return f"{edge.name} leads backward from {edge.target} to {edge.source}"
        case _:
            assert_never(direction)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedBlock:
    """A block and the scope after it: its own variables and those of its optional blocks."""

    block: Block
    scope: Scope


@dataclass(slots=True, kw_only=True)
class _Draft:
    """The state of a block while its clauses are processed."""

    scope: Scope
    introduced: dict[str, None] = field(default_factory=dict)
    bindings: list[TypedBinding] = field(default_factory=list)
    traversals: list[TypedTraversal] = field(default_factory=list)

    def introduce(self, name: str, bound: Bound | None) -> None:
        self.scope = self.scope.with_variables({name: bound})
        self.introduced[name] = None


class SubPatternChecks:
    """The sub-patterns of the expressions of one block, or of one result.

    `numbers` are those of the whole query, so that every sub-pattern has a variable of its own.
    """

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._checked: list[TypedSubPattern] = []

    @property
    def checked(self) -> tuple[TypedSubPattern, ...]:
        return tuple(self._checked)

    def matches_of(self, sub_pattern: ast.SubPattern, scope: Scope) -> MatchesOf | None:
        block = check_block(sub_pattern.clauses, scope, self._numbers).block
        _must_touch_outside(sub_pattern, block, scope)
        same = (
            known.variable
            for known in self._checked
            if (known.kind, known.block) == (sub_pattern.kind, block)
        )
        variable = next(same, None)
        if variable is None:
            variable = f"{ANONYMOUS}.{next(self._numbers)}"
            typed = TypedSubPattern(variable=variable, kind=sub_pattern.kind, block=block)
            self._checked.append(typed)
        return MatchesOf(kind=sub_pattern.kind, variable=variable)


def check_block(
    clauses: tuple[ast.Clause, ...], outer: Scope, fresh: Iterator[int] | None = None
) -> CheckedBlock:
    """The typed form of a list of clauses; parts with findings are left out of it."""
    numbers = itertools.count(1) if fresh is None else fresh
    clauses = tuple(_with_fresh_names(clause, numbers) for clause in clauses)
    sub_patterns = SubPatternChecks(numbers)
    draft = _Draft(scope=replace(outer, sub_patterns=sub_patterns))
    for clause in clauses:
        if isinstance(clause, ast.Binding):
            _binding(clause, draft)
    _traversals(clauses, draft)
    optionals: list[Block] = []
    for clause in clauses:
        if isinstance(clause, ast.OptionalBlock):
            inner = check_block(clause.clauses, draft.scope, numbers)
            _must_touch_outside(clause, inner.block, draft.scope)
            optionals.append(inner.block)
            for name in inner.block.introduced:
                bound = inner.scope.variables[name]
                draft.introduce(name, None if bound is None else replace(bound, nullable=True))
    filters = [
        condition
        for clause in clauses
        if isinstance(clause, ast.Filter)
        and (condition := infer_condition(clause.condition, draft.scope)) is not None
    ]
    negations: list[Block] = []
    for clause in clauses:
        if isinstance(clause, ast.NotBlock):
            negated = check_block(clause.clauses, draft.scope, numbers).block
            _must_touch_outside(clause, negated, draft.scope)
            negations.append(negated)
    block = Block(
        bindings=tuple(draft.bindings),
        traversals=tuple(draft.traversals),
        optionals=tuple(optionals),
        filters=tuple(filters),
        negations=tuple(negations),
        introduced=tuple(draft.introduced),
        outer=(),
        sub_patterns=sub_patterns.checked,
    )
    mentioned_variables = _mentioned(block)
    outer_variables = tuple(
        sorted(variable for variable in mentioned_variables if variable not in draft.introduced)
    )
    return CheckedBlock(block=replace(block, outer=outer_variables), scope=draft.scope)


def _with_fresh_names(clause: ast.Clause, numbers: Iterator[int]) -> ast.Clause:
    """Every `$_` is a variable of its own, with a name that no text can spell."""

    def named(name: ast.Name) -> ast.Name:
        if name.text != ANONYMOUS:
            return name
        return ast.Name(text=f"{ANONYMOUS}.{next(numbers)}", span=name.span)

    if isinstance(clause, ast.Binding):
        return replace(clause, variable=named(clause.variable))
    if isinstance(clause, ast.Traversal):
        edge = clause.edge_variable
        path = clause.path
        return replace(
            clause,
            left=named(clause.left),
            right=named(clause.right),
            edge_variable=None if edge is None else named(edge),
            path=None if path is None or path.text == ANONYMOUS else path,
        )
    return clause


def _binding(clause: ast.Binding, draft: _Draft) -> None:
    name, scope = clause.variable, draft.scope
    bound = _bind_types(clause.types, scope)
    if name.text in scope.parameters:
        scope.findings.error(
            Rule.VARIABLE_CLASH,
            name.span,
            f"`${name.text}` is a parameter",
            "give the node another name",
        )
        return
    earlier: Bound | None = None
    if name.text not in scope.variables:
        draft.introduce(name.text, bound)
    else:
        earlier = scope.variables[name.text]
        if earlier is None or bound is None:
            return
        if not isinstance(earlier.type, NodeOf) or earlier.type != bound.type:
            scope.findings.error(
                Rule.VARIABLE_CLASH,
                clause.types[0].span,
                f"`${name.text}` is bound to {earlier.shown} already",
                "give one of the two another name",
            )
            return
    if bound is None:
        return
    conditions = tuple(_matches(clause, bound, draft.scope))
    assert isinstance(bound.type, NodeOf)
    if earlier is not None and earlier.nullable:
        # An outer optional block may have made it null, and null is not a node.
        entity = Entity(variable=name.text, type=bound.type, nullable=True)
        conditions = (IsNull(operand=entity, negated=True), *conditions)
    draft.bindings.append(TypedBinding(variable=name.text, type=bound.type, conditions=conditions))


def _bind_types(type_names: Sequence[ast.Name], scope: Scope) -> Bound | None:
    """The node of one of some types; an interface is all types that implement it."""
    if is_any(type_names):
        return nodes_bound(scope.catalog, scope.catalog.nodes)
    bounds = [_bound_type(name, scope) for name in type_names]
    if len(bounds) == 1:
        return bounds[0]
    types: set[str] = set()
    for bound in bounds:
        if bound is None:
            return None
        assert isinstance(bound.type, NodeOf)
        types.update(bound.type.types)
    return nodes_bound(scope.catalog, types)


def _bound_type(name: ast.Name, scope: Scope) -> Bound | None:
    catalog = scope.catalog
    if name.text in catalog.nodes:
        return node_bound(catalog, name.text)
    if name.text in catalog.interfaces:
        return interface_bound(catalog, catalog.interfaces[name.text])
    known = (*catalog.nodes, *catalog.interfaces)
    hint = scope.findings.suggestions.closest(name.text, known)
    if name.text in catalog.edges:
        edge = name.text[:1].lower() + name.text[1:]
        hint = f"{name.text} is an edge; follow it: `$a {edge} $b`"
    scope.findings.error(
        Rule.UNKNOWN_TYPE, name.span, f"there is no node type or interface `{name.text}`", hint
    )
    return None


def _matches(clause: ast.Binding, bound: Bound, scope: Scope) -> Iterator[Expression]:
    seen: set[str] = set()
    for match in clause.matches:
        name = match.name
        known = bound.properties.get(name.text)
        if known is None:
            unknown_property(name, bound.shown, list(bound.properties), scope)
            continue
        if name.text in seen:
            scope.findings.error(
                Rule.DUPLICATE_ASSIGNMENT, name.span, f"`{name.text}` is given twice"
            )
            continue
        seen.add(name.text)
        value = infer_value(match.value, scope, ExpressionContext.CONDITION)
        if value is None:
            continue
        condition = _match_condition(clause, match, value, scope)
        if condition is not None:
            yield condition


def _match_condition(
    clause: ast.Binding, match: ast.Assignment, value: Expression, scope: Scope
) -> Expression | None:
    if variables_of(value):
        scope.findings.error(
            Rule.VALUE_TYPE,
            match.value.span,
            "a value in braces cannot read the pattern",
            f"write a filter: `${clause.variable.text}.{match.name.text} = ...`",
        )
        return None
    bound = scope.variables[clause.variable.text]
    assert bound is not None
    known = bound.properties[match.name.text]
    if known.type == BLOB:
        scope.findings.error(
            Rule.BLOB_PLACE, match.name.span, "a Blob cannot be compared or tested"
        )
        return None
    matched_property = PropertyOf(
        variable=clause.variable.text,
        name=match.name.text,
        type=known.type,
        nullable=known.nullable,
    )
    if isinstance(known.type, ListType) and not isinstance(value.type, ListType):
        return membership(matched_property, value, match.value.span, "contains", scope)
    return compare(ast.BinaryOperator.EQUAL, matched_property, value, match.value.span, scope)


def _traversals(clauses: tuple[ast.Clause, ...], draft: _Draft) -> None:
    pending_clauses = [clause for clause in clauses if isinstance(clause, ast.Traversal)]
    traversals_by_offset: dict[int, TypedTraversal] = {}
    while ready_clauses := _next_clauses(pending_clauses, draft.scope):
        _share_ends(ready_clauses, draft)
        for clause in ready_clauses:
            resolved_traversal = resolve_traversal(clause, draft.scope)
            _introduce(clause, resolved_traversal, draft)
            if resolved_traversal is not None:
                traversals_by_offset[clause.span.offset] = resolved_traversal.traversal
            pending_clauses.remove(clause)
    for clause in pending_clauses:
        unbound_end(clause, draft.scope, optional=_names_in_optionals(clauses))
        _introduce(clause, None, draft)
    draft.traversals += [traversals_by_offset[offset] for offset in sorted(traversals_by_offset)]


def _next_clauses(clauses: Sequence[ast.Traversal], scope: Scope) -> list[ast.Traversal]:
    """The traversals with a known end that say most about the types of their other end.

    One edge says more than alternatives, and these say more than any edge. Traversals that say
    equally much are taken together, so that their order in the text does not matter.
    """
    ready_clauses = [
        clause
        for clause in clauses
        if clause.left.text in scope.variables or clause.right.text in scope.variables
    ]
    if not ready_clauses:
        return []
    ranks = [_vagueness(clause) for clause in ready_clauses]
    least = min(ranks)
    return [clause for clause, rank in zip(ready_clauses, ranks, strict=True) if rank == least]


def _vagueness(clause: ast.Traversal) -> int:
    return 2 if is_any(clause.edges) else 1 if len(clause.edges) > 1 else 0


def _share_ends(clauses: Sequence[ast.Traversal], draft: _Draft) -> None:
    """Binds the unknown ends that several traversals share to the types that all of them allow."""
    scope = draft.scope
    types_by_end: dict[str, list[frozenset[str]]] = {}
    for clause in clauses:
        edges = tuple(
            edge for name in clause.edges if (edge := _edge_named(name, scope)) is not None
        )
        edges = tuple(scope.catalog.edges.values()) if is_any(clause.edges) else edges
        hops = _hops(clause, edges, scope)
        if hops is None:
            continue
        between = _follow_edges(clause, edges, hops, scope)
        for name, types in (
            (clause.left, between.left_types),
            (clause.right, between.right_types),
        ):
            if name.text not in scope.variables and name.text not in scope.parameters:
                types_by_end.setdefault(name.text, []).append(frozenset(types))
    for end, types_of_end in types_by_end.items():
        shared = frozenset.intersection(*types_of_end)
        if len(types_of_end) > 1 and shared:
            draft.introduce(end, nodes_bound(scope.catalog, shared))


def _introduce(
    clause: ast.Traversal, resolved_traversal: ResolvedTraversal | None, draft: _Draft
) -> None:
    """New variables of a traversal; those of a faulty one are marked as reported."""
    for name in (clause.left, clause.right, clause.edge_variable, clause.path):
        if name is None or name.text in draft.scope.variables:
            continue
        if name.text not in draft.scope.parameters:
            draft.introduce(
                name.text,
                None if resolved_traversal is None else resolved_traversal.bounds[name.text],
            )


def _names_in_optionals(clauses: Iterable[ast.Clause]) -> frozenset[str]:
    names: set[str] = set()
    for clause in clauses:
        if isinstance(clause, ast.OptionalBlock):
            for nested_clause in clause.clauses:
                if isinstance(nested_clause, ast.Binding):
                    names.add(nested_clause.variable.text)
                elif isinstance(nested_clause, ast.Traversal):
                    names |= {nested_clause.left.text, nested_clause.right.text}
            names |= _names_in_optionals(clause.clauses)
    return frozenset(names)


def _mentioned(block: Block) -> frozenset[str]:
    """Every variable that a block mentions, nested blocks included."""
    names: set[str] = {binding.variable for binding in block.bindings}
    for traversal in block.traversals:
        names |= {traversal.left, traversal.right}
    for condition in block.filters:
        names |= variables_of(condition)
    for inner in block.inner_blocks:
        names |= set(inner.outer)
    return frozenset(names - {sub_pattern.variable for sub_pattern in block.sub_patterns})


def _must_touch_outside(
    clause: ast.NotBlock | ast.OptionalBlock | ast.SubPattern, block: Block, outside: Scope
) -> None:
    if any(variable in outside.variables for variable in block.outer):
        return
    if any(bound is None for bound in outside.variables.values()):
        return
    match clause:
        case ast.NotBlock():
            word = "not"
        case ast.OptionalBlock():
            word = "optional"
        case ast.SubPattern():
            word = clause.kind.value
        case _:
            assert_never(clause)
    outside.findings.error(
        Rule.DISCONNECTED_BLOCK,
        replace(clause.span, end=clause.span.offset + len(word)),
        f"this `{word}` block mentions no variable from outside of it",
        "a block refers to variables of the rows around it",
    )
