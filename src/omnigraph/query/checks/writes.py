"""The statements of a mutation.

Invariant: a valid statement assigns every required property once, with a value that can be stored.
Rules about existing rows are checked by the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from omnigraph.names import (
    ID_COLUMN,
    SOURCE_COLUMN,
    TARGET_COLUMN,
    edge_table_key,
    node_table_key,
)
from omnigraph.query import ast
from omnigraph.query import typed as tq
from omnigraph.query.checks.infer import infer_condition, infer_value, unknown_property
from omnigraph.query.checks.literals import fit
from omnigraph.query.checks.scope import ExpressionContext, Scope
from omnigraph.query.diagnostics import Rule
from omnigraph.query.expressions import Expression
from omnigraph.query.types import STRING
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, PropertyType

FROM: Final = "from"
TO: Final = "to"


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
    key = own.key.properties if isinstance(own, NodeType) and own.key is not None else ()
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
        for word, column in ((FROM, SOURCE_COLUMN), (TO, TARGET_COLUMN)):
            fixed = "the endpoints of an edge cannot change"
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
    value = infer_value(assignment.value, scope, ExpressionContext.VALUE)
    if value is None:
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
    assignments = _assignments(statement.assignments, slots, scope, updating=False)
    assigned_names = {assignment.name.text for assignment in statement.assignments}
    missing_names = list(_missing(own, assigned_names))
    if statement.replacing and ID_COLUMN in slots and ID_COLUMN not in assigned_names:
        missing_names.insert(0, ID_COLUMN)
    if missing_names:
        listed = ", ".join(f"`{name}`" for name in missing_names)
        word = "upsert" if statement.replacing else "insert"
        scope.findings.error(
            Rule.MISSING_ASSIGNMENT,
            statement.type.span,
            f"this {word} of {own.name} lacks {listed}",
            "an upsert of a type without a key names the id"
            if missing_names[0] == ID_COLUMN
            else "every property without `?` needs a value",
        )
        return None
    if assignments is None:
        return None
    return tq.InsertStatement(
        table_key=_table_key(own),
        type=own.name,
        presence=tq.Presence.ANY if statement.replacing else tq.Presence.NEW,
        assignments=assignments,
    )


def _missing(own: NodeType | EdgeType, assigned_names: set[str]) -> Iterator[str]:
    if isinstance(own, EdgeType):
        yield from (name for name in (FROM, TO) if name not in assigned_names)
    for prop in own.properties.values():
        embedded = prop.embed is not None and prop.embed.source in assigned_names
        if not prop.nullable and not embedded and prop.name not in assigned_names:
            yield prop.name
