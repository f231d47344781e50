"""Syntax trees back to text, to compare what parsers read.

The text of a tree parses to the same tree. Comments are not part of a tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, assert_never

from omnigraph_lake.query import ast
from omnigraph_lake.query.checks.results import expression_text

_INDENT: Final = "    "


def print_queries(parsed: ast.QueryFile) -> str:
    """A whole file in canonical spelling; comments are not part of a tree."""
    return "\n".join("\n".join(_query(query)) + "\n" for query in parsed.queries)


def _query(query: ast.QueryDeclaration) -> Iterator[str]:
    parameters = ", ".join(_parameter(parameter) for parameter in query.parameters)
    if query.is_adhoc:
        yield f"({parameters})"
        yield from _body(query.body)
        return
    yield f"query {query.name.text}({parameters})"
    for annotation in query.annotations:
        yield f"{_INDENT}@{annotation.name.text}({annotation.value.raw})"
    yield "{"
    yield from _indented(_body(query.body))
    yield "}"


def _body(body: ast.ReadBody | ast.WriteBody | ast.MatchedWriteBody) -> Iterator[str]:
    match body:
        case ast.ReadBody():
            yield from _read(body)
        case ast.WriteBody():
            for statement in body.statements:
                yield from _statement(statement)
        case ast.MatchedWriteBody():
            yield "match {"
            yield from _clauses(body.clauses)
            yield "}"
            for matched_statement in body.statements:
                yield from _matched_statement(matched_statement)
        case _:
            assert_never(body)


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"{_INDENT}{line}" for line in lines)


def _parameter(each: ast.ParameterDeclaration) -> str:
    size = f"({', '.join(one.raw for one in each.sizes)})" if each.sizes else ""
    core = f"[{each.type.text}{size}]" if each.listed else f"{each.type.text}{size}"
    return f"${each.name.text}: {core}{'?' if each.nullable else ''}"


def _read(body: ast.ReadBody) -> Iterator[str]:
    yield "match {"
    yield from _clauses(body.clauses)
    yield "}"
    yield f"return {'distinct ' if body.distinct else ''}{{"
    for projection in body.projections:
        alias = "" if projection.alias is None else f" as {projection.alias.text}"
        if isinstance(projection.expression, ast.AllOf):
            yield f"{_INDENT}${projection.expression.variable.text}.*{alias},"
            continue
        yield f"{_INDENT}{expression_text(projection.expression)}{alias},"
    yield "}"
    if body.having is not None:
        yield f"having {expression_text(body.having)}"
    if body.orderings:
        keys = ", ".join(
            expression_text(ordering.expression)
            + ("" if ordering.direction is None else f" {ordering.direction.value}")
            for ordering in body.orderings
        )
        yield f"order {{ {keys} }}"
    if body.limit is not None:
        yield f"limit {expression_text(body.limit)}"
    if body.offset is not None:
        yield f"offset {expression_text(body.offset)}"


def _clauses(clauses: tuple[ast.Clause, ...]) -> Iterator[str]:
    for clause in clauses:
        yield from _indented(_clause(clause))


def _clause(clause: ast.Clause) -> Iterator[str]:
    match clause:
        case ast.Binding():
            matches = ", ".join(_assignment(match) for match in clause.matches)
            braces = f" {{ {matches} }}" if matches else ""
            yield f"${clause.variable.text}: {_choice(clause.types)}{braces}"
        case ast.Traversal():
            yield _traversal(clause)
        case ast.Filter():
            text = expression_text(clause.condition)
            # A minus sign would continue the clause in front of it, names alone would make a step,
            # and a word in front of a parenthesis would be a call.
            is_name = isinstance(clause.condition, ast.VariableUse)
            is_ambiguous = is_name or text.startswith("-") or _ends_with_word(clause.condition)
            yield f"({text})" if is_ambiguous else text
        case ast.NotBlock() | ast.OptionalBlock():
            yield "not {" if isinstance(clause, ast.NotBlock) else "optional {"
            yield from _clauses(clause.clauses)
            yield "}"
        case _:
            assert_never(clause)


def _ends_with_word(expression: ast.Expression) -> bool:
    match expression:
        case ast.Word():
            return True
        case ast.Binary(right=last) | ast.Not(operand=last) | ast.Negative(operand=last):
            return _ends_with_word(last)
        case ast.Joined(operands=operands):
            return _ends_with_word(operands[-1])
        case _:
            return False


def _traversal(traversal: ast.Traversal) -> str:
    variable = "" if traversal.edge_variable is None else f"${traversal.edge_variable.text}: "
    edges = _choice(traversal.edges)
    back = traversal.direction in (ast.EdgeDirection.BACKWARD, ast.EdgeDirection.EITHER)
    on = traversal.direction in (ast.EdgeDirection.FORWARD, ast.EdgeDirection.EITHER)
    edge = f"{'<' * back}{edges}{'>' * on}"
    bounds = ""
    if traversal.bounds is not None:
        maximum = "" if traversal.bounds.maximum is None else traversal.bounds.maximum.raw
        bounds = f"{{{traversal.bounds.minimum.raw},{maximum}}}"
    path = "" if traversal.path is None else f" as ${traversal.path.text}"
    path += "" if traversal.weight is None else f" by {traversal.weight.text}"
    return f"${traversal.left.text} {variable}{edge}{bounds} ${traversal.right.text}{path}"


def _choice(names: tuple[ast.Name, ...]) -> str:
    return "|".join(name.text for name in names)


def _assignment(assignment: ast.Assignment) -> str:
    return f"{assignment.name.text}: {expression_text(assignment.value)}"


def _matched_statement(statement: ast.MatchedStatement) -> Iterator[str]:
    match statement:
        case ast.Insert():
            yield from _statement(statement)
        case ast.MatchedUpdate():
            inner = ", ".join(_assignment(assignment) for assignment in statement.assignments)
            yield f"update ${statement.variable.text} set {{ {inner} }}"  # noqa: S608
        case ast.MatchedDelete():
            names = ", ".join(f"${variable.text}" for variable in statement.variables)
            yield f"delete {names}"
        case _:
            assert_never(statement)


def _statement(statement: ast.Statement) -> Iterator[str]:
    match statement:
        case ast.Insert():
            inner = ", ".join(_assignment(assignment) for assignment in statement.assignments)
            yield f"{statement.verb} {statement.type.text} {{ {inner} }}"
        case ast.Update():
            inner = ", ".join(_assignment(assignment) for assignment in statement.assignments)
            where = expression_text(statement.condition)
            yield f"update {statement.type.text} set {{ {inner} }} where {where}"  # noqa: S608
        case ast.Delete():
            yield f"delete {statement.type.text} where {expression_text(statement.condition)}"
        case _:
            assert_never(statement)
