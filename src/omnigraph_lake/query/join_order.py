"""Join order: where the plan of a pattern starts, and in which order edges are followed.

Invariant: the rows of the plan are those of the pattern, for any start. Conditions stay
above everything they could read; moving them down is a rewrite of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query.ast import BinaryOperator, SubPatternKind
from omnigraph_lake.query.plan import (
    Anti,
    Apply,
    Cross,
    Expand,
    Filter,
    Optional,
    Outer,
    Plan,
    Scan,
    Semi,
)
from omnigraph_lake.query.typed import Block, TypedBinding, TypedSubPattern, TypedTraversal
from omnigraph_lake.schema.catalog import Catalog

ChooseStart: TypeAlias = Callable[[Sequence[str], Block, Catalog], str]

_BY_ID, _BY_UNIQUE, _BY_VALUE, _BY_CONDITION, _BY_NOTHING = range(5)
_ROWS_LEFT: Final = {
    _BY_ID: 2.0,
    _BY_UNIQUE: 2.0,
    _BY_VALUE: 0.1,
    _BY_CONDITION: 0.4,
    _BY_NOTHING: 1.0,
}
"""Above one the number of rows, otherwise the fraction of rows."""


def merge_bindings(block: Block) -> Block:
    """A variable that is bound several times is bound once, with all its conditions."""
    merged: dict[str, TypedBinding] = {}
    for binding in block.bindings:
        earlier = merged.get(binding.variable)
        conditions = () if earlier is None else earlier.conditions
        together = tuple(dict.fromkeys((*conditions, *binding.conditions)))
        merged[binding.variable] = replace(binding, conditions=together)
    return replace(
        block,
        bindings=tuple(merged.values()),
        filters=tuple(dict.fromkeys(block.filters)),
        optionals=tuple(merge_bindings(optional) for optional in block.optionals),
        negations=tuple(merge_bindings(negation) for negation in block.negations),
        sub_patterns=merge_in_sub_patterns(block.sub_patterns),
    )


def merge_in_sub_patterns(
    sub_patterns: tuple[TypedSubPattern, ...],
) -> tuple[TypedSubPattern, ...]:
    return tuple(
        replace(sub_pattern, block=merge_bindings(sub_pattern.block))
        for sub_pattern in sub_patterns
    )


def first_declared(candidates: Sequence[str], block: Block, catalog: Catalog) -> str:  # noqa: ARG001
    """Starts at the first binding of the text."""
    return candidates[0]


def most_selective(candidates: Sequence[str], block: Block, catalog: Catalog) -> str:
    """Starts where the fewest rows are expected: an id or a key first, then a unique value."""
    return min(candidates, key=lambda candidate: _selectivity(candidate, block, catalog))


def fewest_rows(sizes: Mapping[str, int]) -> ChooseStart:
    """Starts where the fewest rows are expected, knowing how many nodes each type has.

    The selectivity of a condition is an estimate, the same for all conditions of one kind, so that
    sizes decide between them.
    """

    def chosen(candidates: Sequence[str], block: Block, catalog: Catalog) -> str:
        def expected(variable: str) -> float:
            rows = sum(sizes.get(type_name, 0) for type_name in _types_of(variable, block))
            most = _ROWS_LEFT[_selectivity(variable, block, catalog)]
            return min(rows, most) if most > 1 else rows * most

        return min(
            candidates, key=lambda candidate: (expected(candidate), candidates.index(candidate))
        )

    return chosen


def order_joins(block: Block, catalog: Catalog, choose_start: ChooseStart) -> Plan:
    """The plan of a pattern; that of a nested pattern starts from the rows around it."""
    plan: Plan | None = None
    if block.outer:
        plan = _follow(Outer(variables=block.outer), set(block.outer), block)
    reached_variables = _reached_from_outside(block)
    remaining_variables = [
        required_variable
        for required_variable in _required_variables(block)
        if required_variable not in reached_variables
    ]
    while remaining_variables:
        group = _connected(remaining_variables[0], block.traversals)
        start = choose_start(
            [variable for variable in remaining_variables if variable in group], block, catalog
        )
        scan = Scan(variable=start, types=_types_of(start, block))
        part = _follow(scan, {start}, block)
        plan = part if plan is None else Cross(left=plan, right=part)
        remaining_variables = [
            variable for variable in remaining_variables if variable not in group
        ]
    assert plan is not None
    conditions = [part for binding in block.bindings for part in binding.conditions]
    plan = _filter(plan, conditions)
    for inner in block.optionals:
        plan = Optional(
            input=plan,
            inner=order_joins(inner, catalog, choose_start),
            introduced=inner.introduced,
        )
    asked = {sub_pattern.variable for sub_pattern in block.sub_patterns}
    plain = [condition for condition in block.filters if not ex.variables_of(condition) & asked]
    plan = _filter(plan, plain)
    for inner in block.negations:
        plan = Anti(input=plan, inner=order_joins(inner, catalog, choose_start))
    conditions = [
        conjunct
        for condition in block.filters
        if ex.variables_of(condition) & asked
        for conjunct in ex.conjuncts(condition)
    ]
    for sub_pattern in block.sub_patterns:
        plan, conditions = _join_sub_pattern(plan, sub_pattern, conditions, catalog, choose_start)
    return _filter(plan, conditions)


def _join_sub_pattern(
    plan: Plan,
    sub_pattern: TypedSubPattern,
    conditions: list[ex.Expression],
    catalog: Catalog,
    choose_start: ChooseStart,
) -> tuple[Plan, list[ex.Expression]]:
    """The rows that meet the conditions about a sub-pattern, and the conditions that are left.

    Whether there is a match, as a whole condition, needs no value.
    """
    matches = ex.MatchesOf(kind=sub_pattern.kind, variable=sub_pattern.variable)
    reading = [
        condition for condition in conditions if sub_pattern.variable in ex.variables_of(condition)
    ]
    if sub_pattern.kind is SubPatternKind.EXISTS and len(reading) == 1:
        remaining = [condition for condition in conditions if condition not in reading]
        if reading[0] == matches:
            inner = order_joins(sub_pattern.block, catalog, choose_start)
            return Semi(input=plan, inner=inner), remaining
        if isinstance(reading[0], ex.Not) and reading[0].operand == matches:
            inner = order_joins(sub_pattern.block, catalog, choose_start)
            return Anti(input=plan, inner=inner), remaining
    return count_matches(plan, sub_pattern, catalog, choose_start), conditions


def count_matches(
    plan: Plan, sub_pattern: TypedSubPattern, catalog: Catalog, choose_start: ChooseStart
) -> Apply:
    """The rows with what expressions ask about a sub-pattern."""
    return Apply(
        input=plan,
        inner=order_joins(sub_pattern.block, catalog, choose_start),
        kind=sub_pattern.kind,
        variable=sub_pattern.variable,
    )


def _follow(plan: Plan, known: set[str], block: Block) -> Plan:
    """Follows every edge that can be reached from what is known."""
    waiting = list(block.traversals)
    while True:
        while (following := _next_traversal(waiting, known)) is not None:
            waiting.remove(following)
            plan = _expand(plan, following, known)
            known = known | {following.left, following.right}
        weighted = next((traversal for traversal in waiting if traversal.right in known), None)
        if weighted is None:
            return plan
        # Weights are added up from the left end, so the search starts there.
        scan = Scan(variable=weighted.left, types=_types_of(weighted.left, block))
        plan = Cross(left=plan, right=scan)
        known = known | {weighted.left}


def _filter(plan: Plan, conditions: Iterable[ex.Expression]) -> Plan:
    predicate = ex.all_of(tuple(conditions))
    return plan if predicate is None else Filter(input=plan, predicate=predicate)


def _required_variables(block: Block) -> list[str]:
    """The nodes that the pattern itself binds, bindings first."""
    names = dict.fromkeys(binding.variable for binding in block.bindings)
    for traversal in block.traversals:
        names.update(dict.fromkeys((traversal.left, traversal.right)))
    return list(names)


def _next_traversal(traversals: Sequence[TypedTraversal], known: set[str]) -> TypedTraversal | None:
    """One between known nodes if there is one, because it only removes rows."""
    reachable_traversals = [
        traversal
        for traversal in traversals
        if traversal.left in known or (traversal.right in known and traversal.weight is None)
    ]
    return next(
        (
            traversal
            for traversal in reachable_traversals
            if {traversal.left, traversal.right} <= known
        ),
        reachable_traversals[0] if reachable_traversals else None,
    )


def _connected(variable: str, traversals: Sequence[TypedTraversal]) -> frozenset[str]:
    """The variable and all variables that edges join to it."""
    group = {variable}
    grown = True
    while grown:
        grown = False
        for traversal in traversals:
            ends = {traversal.left, traversal.right}
            if ends & group and not ends <= group:
                group |= ends
                grown = True
    return frozenset(group)


def _reached_from_outside(block: Block) -> frozenset[str]:
    return frozenset().union(*(_connected(variable, block.traversals) for variable in block.outer))


def _types_of(variable: str, block: Block) -> tuple[str, ...]:
    """The node types that a variable can have by everything the pattern says about it."""
    possible: set[str] | None = None
    said = [binding.type.types for binding in block.bindings if binding.variable == variable]
    for traversal in block.traversals:
        said += [traversal.left_type.types] if traversal.left == variable else []
        said += [traversal.right_type.types] if traversal.right == variable else []
    for types in said:
        possible = set(types) if possible is None else possible & set(types)
    assert possible is not None
    return tuple(sorted(possible))


def _expand(plan: Plan, traversal: TypedTraversal, known: set[str]) -> Expand:
    forward = traversal.left in known
    start, end = traversal.left, traversal.right
    start_type, end_type = traversal.left_type, traversal.right_type
    steps = traversal.steps
    if not forward:
        start, end = end, start
        start_type, end_type = end_type, start_type
        steps = tuple(step.turn() for step in steps)
    return Expand(
        input=plan,
        start=start,
        end=end,
        start_types=start_type.types,
        end_types=end_type.types,
        steps=steps,
        minimum=traversal.minimum,
        maximum=traversal.maximum,
        end_bound=end in known,
        turned=not forward,
        edge_variable=traversal.edge_variable,
        path_variable=traversal.path_variable,
        weight=traversal.weight,
    )


def _selectivity(variable: str, block: Block, catalog: Catalog) -> int:
    conditions = [
        part
        for condition in (
            *(
                condition
                for binding in block.bindings
                if binding.variable == variable
                for condition in binding.conditions
            ),
            *block.filters,
        )
        for part in ex.conjuncts(condition)
        if ex.variables_of(part) == {variable}
    ]
    equated_properties = {
        name for condition in conditions if (name := _equated_property(condition)) is not None
    }
    types = _types_of(variable, block)
    if ID_COLUMN in equated_properties or _covers(equated_properties, types, catalog, unique=False):
        return _BY_ID
    if _covers(equated_properties, types, catalog, unique=True):
        return _BY_UNIQUE
    if equated_properties or any(isinstance(condition, ex.Membership) for condition in conditions):
        return _BY_VALUE
    return _BY_CONDITION if conditions else _BY_NOTHING


def _equated_property(condition: ex.Expression) -> str | None:
    if not isinstance(condition, ex.Comparison) or condition.operator is not BinaryOperator.EQUAL:
        return None
    for operand, other in (
        (condition.left, condition.right),
        (condition.right, condition.left),
    ):
        if isinstance(operand, ex.PropertyOf) and not ex.reads_rows(other):
            return operand.name
    return None


def _covers(
    properties: set[str], types: tuple[str, ...], catalog: Catalog, *, unique: bool
) -> bool:
    """Whether the given properties hold a key, or a unique tuple, of every type."""
    for name in types:
        node = catalog.nodes[name]
        key = () if node.key is None else (node.key.properties,)
        tuples = [constraint.properties for constraint in node.uniques] if unique else key
        if not any(set(names) <= properties for names in tuples):
            return False
    return bool(types)
