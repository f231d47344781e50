"""The statements of a mutation, on their own or for every row of a match.

Invariant: a valid statement assigns every required property once, with a value that can be stored.
Rules about existing rows are checked by the run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, assert_never

from omnigraph_lake.names import (
    END_TYPE_WORDS,
    ID_COLUMN,
    edge_table_key,
    node_table_key,
)
from omnigraph_lake.query import ast
from omnigraph_lake.query import typed as tq
from omnigraph_lake.query.checks.infer import (
    infer_condition,
    infer_value,
    look_up,
    unknown_property,
)
from omnigraph_lake.query.checks.inserted_ends import END_WORDS, type_of, with_end_types
from omnigraph_lake.query.checks.literals import fit
from omnigraph_lake.query.checks.pattern import CheckedBlock, SubPatternChecks, check_block
from omnigraph_lake.query.checks.results import require_keys
from omnigraph_lake.query.checks.scope import ExpressionContext, Scope
from omnigraph_lake.query.diagnostics import Rule
from omnigraph_lake.query.expressions import (
    ROW,
    Constant,
    Expression,
    PropertyOf,
    has_aggregate,
    is_known,
)
from omnigraph_lake.query.types import BLOB, BOOL, STRING, EdgeOf, NodeOf, NullType, PathOf
from omnigraph_lake.schema.catalog import Catalog, EdgeType, NodeType, PropertyType
from omnigraph_lake.schema.ends import end_type_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slot:
    """What can be assigned under a name; `fixed` says why an update cannot."""

    column: str
    type: PropertyType
    nullable: bool
    fixed: str = ""


def check_statement(statement: ast.Statement, scope: Scope) -> tq.TypedStatement | None:
    """The typed form of a statement, or None after a finding."""
    own = _own_type(statement.type, scope)
    if own is None:
        return None
    row = replace(scope, own=own, row_readable=True)
    if isinstance(statement, ast.Insert):
        return _insert(statement, own, replace(row, row_readable=False))
    condition = infer_condition(statement.condition, row)
    if isinstance(statement, ast.Delete):
        if condition is None:
            return None
        return tq.DeleteStatement(
            table_key=_table_key(own),
            type=own.name,
            condition=condition,
            incident=incident_edges(own, scope.catalog),
        )
    assignments = _assignments(statement.assignments, _slots(own), row, updating=True)
    if not statement.assignments:
        scope.findings.error(
            Rule.EMPTY_ASSIGNMENT, statement.type.span, "this update sets no properties"
        )
    if condition is None or assignments is None or not assignments:
        return None
    return tq.UpdateStatement(
        table_key=_table_key(own), type=own.name, assignments=assignments, condition=condition
    )


def incident_edges(own: NodeType | EdgeType, catalog: Catalog) -> tuple[str, ...]:
    """The edge types that can touch a node of this type, sorted; none for an edge."""
    if isinstance(own, EdgeType):
        return ()
    return tuple(
        sorted(
            edge.name
            for edge in catalog.edges.values()
            if own.name in (*edge.source.names, *edge.target.names)
        )
    )


def _table_key(own: NodeType | EdgeType) -> str:
    return edge_table_key(own.name) if isinstance(own, EdgeType) else node_table_key(own.name)


def _own_type(name: ast.Name, scope: Scope) -> NodeType | EdgeType | None:
    catalog = scope.catalog
    node, edge = catalog.nodes.get(name.text), catalog.edges.get(name.text)
    if node is not None and edge is not None:
        scope.findings.error(
            Rule.UNKNOWN_TYPE,
            name.span,
            f"`{name.text}` is a node type and an edge type, so a mutation is ambiguous",
            "rename one of them in the schema",
        )
        return None
    own_type = node or edge
    if own_type is None:
        hint = scope.findings.suggestions.closest(name.text, (*catalog.nodes, *catalog.edges))
        if name.text in catalog.interfaces:
            hint = "it is an interface; write to the types that implement it"
        scope.findings.error(
            Rule.UNKNOWN_TYPE, name.span, f"there is no node or edge type `{name.text}`", hint
        )
    return own_type


def _slots(own: NodeType | EdgeType) -> dict[str, _Slot]:
    key = _key_of(own)
    slots = {
        prop.name: _Slot(
            column=prop.name,
            type=prop.type,
            nullable=prop.nullable or prop.embed is not None,
            fixed="it is part of the key" if prop.name in key else "",
        )
        for prop in own.properties.values()
    }
    if not key:
        slots[ID_COLUMN] = _Slot(
            column=ID_COLUMN, type=STRING, nullable=False, fixed="it is the identity"
        )
    if isinstance(own, EdgeType):
        fixed = "the endpoints of an edge cannot change"
        for word, column in END_WORDS.items():
            slots[word] = _Slot(column=column, type=STRING, nullable=False, fixed=fixed)
        for column in end_type_columns(own):
            word = END_TYPE_WORDS[column]
            slots[word] = _Slot(column=column, type=STRING, nullable=False, fixed=fixed)
    return slots


def assignable_names(own: NodeType | EdgeType) -> tuple[str, ...]:
    """What an insert of a type can assign."""
    return tuple(_slots(own))


def _assignments(
    assignments: tuple[ast.Assignment, ...],
    slots: dict[str, _Slot],
    scope: Scope,
    *,
    updating: bool,
) -> tuple[tq.TypedAssignment, ...] | None:
    assert scope.own is not None
    typed_assignments: dict[str, tq.TypedAssignment | None] = {}
    for assignment in assignments:
        name = assignment.name
        slot = slots.get(name.text)
        if slot is None:
            _no_slot(name, slots, scope)
            typed_assignments[name.text] = None
            continue
        if name.text in typed_assignments:
            scope.findings.error(
                Rule.DUPLICATE_ASSIGNMENT, name.span, f"`{name.text}` is assigned twice"
            )
            typed_assignments[name.text] = None
            continue
        if updating and slot.fixed:
            scope.findings.error(
                Rule.IDENTITY_ASSIGNMENT,
                name.span,
                f"`{name.text}` cannot be set by an update: {slot.fixed}",
                "delete the entity and insert another one",
            )
        value = _assign(assignment, slot, scope)
        typed_assignments[name.text] = (
            None if value is None else tq.TypedAssignment(property=slot.column, value=value)
        )
    valid_assignments = tuple(
        assignment for assignment in typed_assignments.values() if assignment is not None
    )
    return valid_assignments if len(valid_assignments) == len(typed_assignments) else None


def _key_of(own: NodeType | EdgeType) -> tuple[str, ...]:
    return own.key.properties if isinstance(own, NodeType) and own.key is not None else ()


def _no_slot(name: ast.Name, slots: dict[str, _Slot], scope: Scope) -> None:
    assert scope.own is not None
    if name.text == ID_COLUMN:
        scope.findings.error(
            Rule.IDENTITY_ASSIGNMENT,
            name.span,
            f"the id of {scope.own.name} is made from its key",
            "assign the key instead",
        )
    else:
        unknown_property(name, scope.own.name, list(slots), scope)


def _assign(assignment: ast.Assignment, slot: _Slot, scope: Scope) -> Expression | None:
    # Variables are those of a match: what can be returned of them can be assigned.
    is_literal = isinstance(assignment.value, ast.NullLiteral) or not scope.variables
    place = ExpressionContext.VALUE if is_literal else ExpressionContext.RESULT
    value = infer_value(assignment.value, scope, place)
    if value is None:
        return None
    if value.type == BLOB and isinstance(value, PropertyOf) and value.variable != ROW:
        scope.findings.error(
            Rule.BLOB_PLACE,
            assignment.value.span,
            "a match cannot copy a Blob",
            "read it with `graph.blob`, and give the bytes as a parameter",
        )
        return None
    return fit(
        value,
        slot.type,
        nullable=slot.nullable,
        span=assignment.value.span,
        name=assignment.name.text,
        findings=scope.findings,
    )


def _insert(
    statement: ast.Insert, own: NodeType | EdgeType, scope: Scope
) -> tq.InsertStatement | None:
    slots = _slots(own)
    statement = with_end_types(statement, own, scope)
    assignments = _assignments(statement.assignments, slots, scope, updating=False)
    assigned_names = {assignment.name.text for assignment in statement.assignments}
    missing_names = list(_missing(own, assigned_names))
    may_exist = statement.verb is not ast.InsertVerb.INSERT
    if statement.verb is ast.InsertVerb.UPSERT:
        # An entity that exists keeps the others; of a new one the run refuses what it lacks.
        missing_names = [name for name in missing_names if name in _key_of(own)]
    if may_exist and ID_COLUMN in slots and ID_COLUMN not in assigned_names:
        missing_names.insert(0, ID_COLUMN)
    if missing_names:
        listed = ", ".join(f"`{name}`" for name in missing_names)
        scope.findings.error(
            Rule.MISSING_ASSIGNMENT,
            statement.type.span,
            f"this {statement.verb.value} of {own.name} lacks {listed}",
            "what may exist is named by its id, if its type has no key"
            if missing_names[0] == ID_COLUMN
            else "every property without `?` needs a value",
        )
        return None
    if assignments is None:
        return None
    return tq.InsertStatement(
        table_key=_table_key(own),
        type=own.name,
        verb=statement.verb,
        assignments=assignments,
    )


def _missing(own: NodeType | EdgeType, assigned_names: set[str]) -> Iterator[str]:
    if isinstance(own, EdgeType):
        yield from (word for word in END_WORDS if word not in assigned_names)
    for prop in own.properties.values():
        embedded = prop.embed is not None and prop.embed.source in assigned_names
        is_given = prop.name in assigned_names or prop.default is not None
        if not prop.nullable and not embedded and not is_given:
            yield prop.name


def check_matched_write(body: ast.MatchedWriteBody, scope: Scope) -> tq.TypedWrite | None:
    """The statements for every row of a match, or None after a finding.

    Every statement reads the same pattern, so what may be written in `return` may be assigned:
    functions, sub-patterns, and aggregates, which make one row of each group.
    """
    numbers = itertools.count(1)
    checked = check_block(body.clauses, scope, numbers)
    checked_statements = [
        typed
        for statement in body.statements
        for typed in _check_matched(statement, checked, numbers)
    ]
    statements = tuple(statement for statement in checked_statements if statement is not None)
    if len(statements) < len(checked_statements):
        return None
    return tq.TypedWrite(statements=statements)


def _check_matched(
    statement: ast.MatchedStatement, checked: CheckedBlock, numbers: Iterator[int]
) -> Iterator[tq.MatchedStatement | None]:
    match statement:
        case ast.Insert():
            own = _own_type(statement.type, checked.scope)
            yield None if own is None else _check_insert(statement, own, checked, numbers)
        case ast.MatchedUpdate():
            types = _variable_types(statement.variable, checked.scope)
            if not types or not _require_assignable(statement, types, checked.scope):
                yield None
                return
            for own in types:
                typed = _check_update(statement, own, checked, numbers, of_several=len(types) > 1)
                yield typed
                if typed is None:
                    # The other types would report the same values again.
                    return
        case ast.MatchedDelete():
            for variable in statement.variables:
                types = _variable_types(variable, checked.scope)
                if not types:
                    yield None
                for own in types:
                    yield _check_delete(variable, own, checked, of_several=len(types) > 1)
        case _:
            assert_never(statement)


def _variable_types(variable: ast.Name, scope: Scope) -> tuple[NodeType | EdgeType, ...]:
    """The types whose entities a variable is bound to; none after a finding."""
    bound = look_up(variable, scope)
    if bound is None:
        return ()
    match bound.type:
        case NodeOf(types=types) if types:
            return tuple(scope.catalog.nodes[name] for name in types)
        case EdgeOf(types=types) if types:
            return tuple(scope.catalog.edges[name] for name in types)
        case _:
            scope.findings.error(
                Rule.VALUE_TYPE,
                variable.span,
                f"`${variable.text}` is {bound.shown}; a statement changes nodes or edges",
                "name a node, or the edge: `$a $e: knows $b`",
            )
            return ()


def _require_assignable(
    statement: ast.MatchedUpdate, types: tuple[NodeType | EdgeType, ...], scope: Scope
) -> bool:
    """Report properties that only some of the types of a variable have."""
    complete = True
    for assignment in statement.assignments if len(types) > 1 else ():
        name = assignment.name.text
        lacking = [own.name for own in types if name not in _slots(own)]
        if lacking and len(lacking) < len(types):
            complete = False
            scope.findings.error(
                Rule.UNKNOWN_PROPERTY,
                assignment.name.span,
                f"{', '.join(lacking)} of `${statement.variable.text}` "
                f"{'has' if len(lacking) == 1 else 'have'} no property `{name}`",
                "an update sets properties that all types of its variable have",
            )
    return complete


def _check_delete(
    variable: ast.Name, own: NodeType | EdgeType, checked: CheckedBlock, *, of_several: bool
) -> tq.MatchedStatement:
    if of_several:
        checked = _narrow(checked, variable, own)
    return tq.MatchedStatement(
        verb=tq.MatchedVerb.DELETE,
        table_key=_table_key(own),
        type=own.name,
        read=_read_of(checked.block, [_id_projection(variable, checked.scope)]),
        incident=incident_edges(own, checked.scope.catalog),
        of_several=of_several,
    )


def _narrow(checked: CheckedBlock, variable: ast.Name, own: NodeType | EdgeType) -> CheckedBlock:
    """The matches in which a variable of several types has this one."""
    condition = ast.Binary(
        operator=ast.BinaryOperator.EQUAL,
        left=type_of(ast.VariableUse(name=variable, span=variable.span)),
        right=ast.StringLiteral(raw=f'"{own.name}"', span=variable.span),
        span=variable.span,
    )
    narrowing = infer_condition(condition, checked.scope)
    assert narrowing is not None, "every node and edge has a type"
    filters = (*checked.block.filters, narrowing)
    return replace(checked, block=replace(checked.block, filters=filters))


def _check_update(
    statement: ast.MatchedUpdate,
    own: NodeType | EdgeType,
    checked: CheckedBlock,
    numbers: Iterator[int],
    *,
    of_several: bool,
) -> tq.MatchedStatement | None:
    if not statement.assignments:
        checked.scope.findings.error(
            Rule.EMPTY_ASSIGNMENT, statement.span, "this update sets no properties"
        )
        return None
    if of_several:
        checked = _narrow(checked, statement.variable, own)
    sub_patterns = SubPatternChecks(numbers)
    scope = replace(checked.scope, own=own, sub_patterns=sub_patterns, may_aggregate=True)
    assignments = _assignments(statement.assignments, _slots(own), scope, updating=True)
    if assignments is None or not _require_keys(statement, assignments, scope):
        return None
    typed = _statement_of(
        tq.MatchedVerb.UPDATE,
        own,
        assignments,
        checked,
        sub_patterns,
        first=[_id_projection(statement.variable, checked.scope)],
    )
    return replace(typed, of_several=of_several)


def _check_insert(
    statement: ast.Insert,
    own: NodeType | EdgeType,
    checked: CheckedBlock,
    numbers: Iterator[int],
) -> tq.MatchedStatement | None:
    sub_patterns = SubPatternChecks(numbers)
    scope = replace(checked.scope, sub_patterns=sub_patterns, may_aggregate=True)
    typed = _insert(statement, own, replace(scope, own=own))
    if typed is None or not _require_keys(statement, typed.assignments, scope):
        return None
    verb = tq.MatchedVerb(statement.verb.value)
    return _statement_of(verb, own, typed.assignments, checked, sub_patterns, first=[])


def _require_keys(
    statement: ast.Insert | ast.MatchedUpdate,
    assignments: tuple[tq.TypedAssignment, ...],
    scope: Scope,
) -> bool:
    """Whether values of groups are computed from aggregates and keys alone, or a finding.

    The keys are the other values and, of an update, what it updates.
    """
    values = [assignment.value for assignment in assignments]
    keys = [value for value in values if not has_aggregate(value)]
    updated = statement.variable.text if isinstance(statement, ast.MatchedUpdate) else None
    return all(
        require_keys(value, keys, statement.span, scope, updated=updated)
        for value in values
        if has_aggregate(value)
    )


def _statement_of(
    verb: tq.MatchedVerb,
    own: NodeType | EdgeType,
    assignments: tuple[tq.TypedAssignment, ...],
    checked: CheckedBlock,
    sub_patterns: SubPatternChecks,
    *,
    first: list[tq.TypedProjection],
) -> tq.MatchedStatement:
    computed = [assignment for assignment in assignments if not is_known(assignment.value)]
    projections = [*first, *map(_projection, computed)]
    return tq.MatchedStatement(
        verb=verb,
        table_key=_table_key(own),
        type=own.name,
        read=_read_of(
            checked.block,
            projections or [_ONE],
            distinct=verb is not tq.MatchedVerb.INSERT,
            sub_patterns=sub_patterns,
        ),
        columns=tuple(assignment.property for assignment in computed),
        assignments=tuple(assignment for assignment in assignments if is_known(assignment.value)),
    )


_ONE: Final = tq.TypedProjection(
    column=tq.Column(name="one", type=BOOL, nullable=False),
    expression=Constant(value=True, type=BOOL),
)
"""What is read of a match whose rows are only counted."""


def _projection(assignment: tq.TypedAssignment) -> tq.TypedProjection:
    value = assignment.value
    assert not isinstance(value.type, PathOf | NullType)
    column = tq.Column(name=assignment.property, type=value.type, nullable=value.nullable)
    return tq.TypedProjection(column=column, expression=value)


def _id_projection(variable: ast.Name, scope: Scope) -> tq.TypedProjection:
    use = ast.PropertyUse(
        variable=variable, property=replace(variable, text=ID_COLUMN), span=variable.span
    )
    expression = infer_value(use, scope, ExpressionContext.RESULT)
    assert expression is not None, "every entity has an id"
    column = tq.Column(name=_MATCHED_ID, type=STRING, nullable=expression.nullable)
    return tq.TypedProjection(column=column, expression=expression)


_MATCHED_ID: Final = "#id"  # no property has this name


def match_of(statement: tq.DeleteStatement) -> tq.MatchedStatement:
    """The same deletion of nodes as one of what a match finds, whose rows may be any number."""
    block = tq.Block(
        bindings=(tq.TypedBinding(variable=ROW, type=NodeOf(types=(statement.type,))),),
        traversals=(),
        optionals=(),
        filters=(statement.condition,),
        negations=(),
        introduced=(ROW,),
        outer=(),
    )
    entity_id = PropertyOf(variable=ROW, name=ID_COLUMN, type=STRING, nullable=False)
    column = tq.Column(name=_MATCHED_ID, type=STRING, nullable=False)
    return tq.MatchedStatement(
        verb=tq.MatchedVerb.DELETE,
        table_key=statement.table_key,
        type=statement.type,
        read=_read_of(block, [tq.TypedProjection(column=column, expression=entity_id)]),
        incident=statement.incident,
    )


def _read_of(
    block: tq.Block,
    projections: list[tq.TypedProjection],
    *,
    distinct: bool = True,
    sub_patterns: SubPatternChecks | None = None,
) -> tq.TypedRead:
    grouped = any(has_aggregate(projection.expression) for projection in projections)
    return tq.TypedRead(
        block=block,
        projections=tuple(projections),
        distinct=distinct and not grouped,
        grouped=grouped,
        ranking=None,
        order=(),
        limit=None,
        offset=None,
        sub_patterns=() if sub_patterns is None else sub_patterns.checked,
    )
