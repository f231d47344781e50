"""The ends of edges that a mutation inserts: variables, `node(Type, id)`, or ids.

Invariant: after this every polymorphic end of a valid insert has an id and the type of that node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from omnigraph_lake.names import (
    END_TYPE_COLUMNS,
    END_TYPE_WORDS,
    ID_COLUMN,
    SOURCE_COLUMN,
    TARGET_COLUMN,
)
from omnigraph_lake.query import ast
from omnigraph_lake.query.checks.calls import refuse_function_of_type
from omnigraph_lake.query.checks.scope import Scope
from omnigraph_lake.query.diagnostics import Rule
from omnigraph_lake.query.functions import NODE
from omnigraph_lake.query.types import NodeOf
from omnigraph_lake.schema.catalog import EdgeEnd, EdgeType, NodeType

END_WORDS: Final = {"from": SOURCE_COLUMN, "to": TARGET_COLUMN}


def with_end_types(statement: ast.Insert, own: NodeType | EdgeType, scope: Scope) -> ast.Insert:
    """The insert with an id for every end, and with the type of a polymorphic one."""
    if isinstance(own, NodeType):
        return statement
    assigned = {assignment.name.text for assignment in statement.assignments}
    assignments = [
        written
        for assignment in statement.assignments
        for written in _assignments_of(assignment, own, assigned, scope)
    ]
    return replace(statement, assignments=tuple(assignments))


def _assignments_of(
    assignment: ast.Assignment, own: EdgeType, assigned: set[str], scope: Scope
) -> Iterator[ast.Assignment]:
    column = END_WORDS.get(assignment.name.text)
    if column is None:
        yield assignment
        return
    end = own.source if column == SOURCE_COLUMN else own.target
    node_id, node_type = _id_and_type(assignment, own, end, scope)
    yield replace(assignment, value=node_id)
    if not end.is_polymorphic:
        return
    word = END_TYPE_WORDS[END_TYPE_COLUMNS[column]]
    if node_type is not None and word not in assigned:
        yield ast.Assignment(name=replace(assignment.name, text=word), value=node_type)
    elif node_type is None and word not in assigned and not _is_call_of_node(assignment.value):
        scope.findings.error(
            Rule.MISSING_ASSIGNMENT,
            assignment.value.span,
            f"`{assignment.name.text}` of {own.name} is {end}, so an id alone names no node",
            f"write the type, too: `{assignment.name.text}: {NODE}({end.names[0]}, ...)`",
        )
    elif isinstance(assignment.value, ast.NodeReference):
        scope.findings.error(
            Rule.DUPLICATE_ASSIGNMENT,
            assignment.value.span,
            f"`{assignment.name.text}` names a type, and so does `{word}`",
            f"remove `{word}`",
        )


def _id_and_type(
    assignment: ast.Assignment, own: EdgeType, end: EdgeEnd, scope: Scope
) -> tuple[ast.Expression, ast.Expression | None]:
    """What gives the id of the node at an end, and what gives its type, if anything does."""
    value = assignment.value
    match value:
        case ast.NodeReference():
            _check_reference(value, assignment.name.text, own, end, scope)
            name = ast.StringLiteral(raw=f'"{value.type.text}"', span=value.type.span)
            return value.id, name
        case ast.VariableUse():
            bound = scope.variables.get(value.name.text)
            if bound is None or not isinstance(bound.type, NodeOf):
                return value, None
            if not set(bound.type.types) <= set(end.names):
                scope.findings.error(
                    Rule.VALUE_TYPE,
                    value.span,
                    f"`${value.name.text}` is {bound.shown}, expected {' or '.join(end.names)}",
                )
            return _id_of(value), type_of(value)
        case _:
            return value, None


def _check_reference(
    reference: ast.NodeReference, word: str, own: EdgeType, end: EdgeEnd, scope: Scope
) -> None:
    if reference.function.text != NODE:
        refuse_function_of_type(reference, scope)
    elif reference.type.text not in scope.catalog.nodes:
        hint = scope.findings.suggestions.closest(reference.type.text, end.names)
        if reference.type.text in scope.catalog.interfaces:
            hint = f"it is an interface; name one of its types: {', '.join(end.names)}"
        scope.findings.error(
            Rule.UNKNOWN_TYPE,
            reference.type.span,
            f"there is no node type `{reference.type.text}`",
            hint,
        )
    elif reference.type.text not in end.names:
        scope.findings.error(
            Rule.VALUE_TYPE,
            reference.type.span,
            f"`{word}` of {own.name} is {reference.type.text}, expected {' or '.join(end.names)}",
        )


def _is_call_of_node(value: ast.Expression) -> bool:
    """Whether it is `node(...)` without a type, which is refused as a call."""
    return isinstance(value, ast.Call) and value.function.text == NODE


def _id_of(variable: ast.VariableUse) -> ast.PropertyUse:
    name = variable.name
    return ast.PropertyUse(
        variable=name, property=replace(name, text=ID_COLUMN), span=variable.span
    )


def type_of(variable: ast.VariableUse) -> ast.Call:
    """The expression `type($variable)`."""
    return ast.Call(
        function=replace(variable.name, text="type"),
        arguments=(variable,),
        distinct=False,
        star=False,
        span=variable.span,
    )
