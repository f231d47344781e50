"""Syntax trees back to text, in one canonical spelling.

Invariant: the text of a tree parses to the same tree. The name of a column without an alias is
the text of its expression without `$`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, assert_never

from omnigraph.query import ast
from omnigraph.query.ast import BinaryOperator, Expression

_INDENT: Final = "    "
_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _SIGN, _PRIMARY = range(8)
_BINDS: Final = {
    BinaryOperator.ADD: _SUM,
    BinaryOperator.SUBTRACT: _SUM,
    BinaryOperator.MULTIPLY: _PRODUCT,
    BinaryOperator.DIVIDE: _PRODUCT,
    BinaryOperator.REMAINDER: _PRODUCT,
}


def column_text(expression: Expression) -> str:
    """The name of a column that has no alias."""
    return _text(expression, _OR, sigil="")


def expression_text(expression: Expression) -> str:
    return _text(expression, _OR, sigil="$")


def _text(each: Expression, binds: int, *, sigil: str) -> str:
    """The text of an operand, in parentheses if it binds less than its place asks for."""
    level, text = _leveled(each, sigil)
    return f"({text})" if level < binds else text


def _leveled(  # noqa: C901, PLR0911, PLR0912 - one case per kind of expression
    each: Expression, sigil: str
) -> tuple[int, str]:
    match each:
        case ast.StringLiteral() | ast.NumberLiteral():
            return _PRIMARY, each.raw
        case ast.BoolLiteral():
            return _PRIMARY, "true" if each.value else "false"
        case ast.NullLiteral():
            return _PRIMARY, "null"
        case ast.ListLiteral():
            return _PRIMARY, f"[{_listed(each.items, sigil)}]"
        case ast.VariableUse():
            return _PRIMARY, f"{sigil}{each.name.text}"
        case ast.PropertyUse():
            return _PRIMARY, f"{sigil}{each.variable.text}.{each.property.text}"
        case ast.Word():
            return _PRIMARY, each.name.text
        case ast.Call():
            distinct = "distinct " if each.distinct else ""
            inner = "*" if each.star else distinct + _listed(each.arguments, sigil)
            return _PRIMARY, f"{each.function.text}({inner})"
        case ast.Negative():
            return _SIGN, f"-{_text(each.operand, _PRIMARY, sigil=sigil)}"
        case ast.Not():
            return _NOT, f"not {_text(each.operand, _COMPARE, sigil=sigil)}"
        case ast.NullTest():
            negated = "not " if each.negated else ""
            return _COMPARE, f"{_text(each.operand, _SUM, sigil=sigil)} is {negated}null"
        case ast.Binary():
            return _binary(each, sigil)
        case ast.Joined():
            level = _AND if each.junction is ast.Junction.AND else _OR
            parts = [_text(inner, level + 1, sigil=sigil) for inner in each.operands]
            return level, f" {each.junction.value} ".join(parts)
        case ast.ComparisonChain():
            return _COMPARE, each.second.text
        case _:
            assert_never(each)


def _binary(each: ast.Binary, sigil: str) -> tuple[int, str]:
    level = _BINDS.get(each.operator, _COMPARE)
    left = _text(each.left, level if level > _COMPARE else _SUM, sigil=sigil)
    right = _text(each.right, level + 1, sigil=sigil)
    return level, f"{left} {each.operator.value} {right}"


def _listed(items: tuple[Expression, ...], sigil: str) -> str:
    return ", ".join(_text(each, _OR, sigil=sigil) for each in items)


def print_queries(parsed: ast.QueryFile) -> str:
    """A whole file in canonical spelling; comments are not part of a tree."""
    return "\n".join("\n".join(_query(each)) + "\n" for each in parsed.queries)


def _query(query: ast.QueryDeclaration) -> Iterator[str]:
    parameters = ", ".join(_parameter(each) for each in query.parameters)
    yield f"query {query.name.text}({parameters})"
    for annotation in query.annotations:
        yield f"{_INDENT}@{annotation.name.text}({annotation.value.raw})"
    yield "{"
    match query.body:
        case ast.ReadBody():
            yield from _indented(_read(query.body))
        case ast.WriteBody():
            for statement in query.body.statements:
                yield from _indented(_statement(statement))
        case _:
            assert_never(query.body)
    yield "}"


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"{_INDENT}{line}" for line in lines)


def _parameter(each: ast.ParameterDeclaration) -> str:
    size = "" if each.size is None else f"({each.size.raw})"
    core = f"[{each.type.text}{size}]" if each.listed else f"{each.type.text}{size}"
    return f"${each.name.text}: {core}{'?' if each.nullable else ''}"


def _read(body: ast.ReadBody) -> Iterator[str]:
    yield "match {"
    yield from _clauses(body.clauses)
    yield "}"
    yield f"return {'distinct ' if body.distinct else ''}{{"
    for each in body.projections:
        alias = "" if each.alias is None else f" as {each.alias.text}"
        yield f"{_INDENT}{expression_text(each.expression)}{alias},"
    yield "}"
    if body.orderings:
        keys = ", ".join(
            expression_text(each.expression)
            + ("" if each.direction is None else f" {each.direction.value}")
            for each in body.orderings
        )
        yield f"order {{ {keys} }}"
    if body.limit is not None:
        yield f"limit {expression_text(body.limit)}"
    if body.offset is not None:
        yield f"offset {expression_text(body.offset)}"


def _clauses(clauses: tuple[ast.Clause, ...]) -> Iterator[str]:
    for each in clauses:
        yield from _indented(_clause(each))


def _clause(each: ast.Clause) -> Iterator[str]:
    match each:
        case ast.Binding():
            matches = ", ".join(_assignment(match) for match in each.matches)
            braces = f" {{ {matches} }}" if matches else ""
            yield f"${each.variable.text}: {each.type.text}{braces}"
        case ast.Traversal():
            yield _traversal(each)
        case ast.Filter():
            text = expression_text(each.condition)
            # A minus sign would continue the clause in front of it; names alone would make a step.
            is_name = isinstance(each.condition, ast.VariableUse | ast.Word)
            yield f"({text})" if is_name or text.startswith("-") else text
        case ast.NotBlock() | ast.OptionalBlock():
            yield "not {" if isinstance(each, ast.NotBlock) else "optional {"
            yield from _clauses(each.clauses)
            yield "}"
        case _:
            assert_never(each)


def _traversal(each: ast.Traversal) -> str:
    variable = "" if each.edge_variable is None else f"${each.edge_variable.text}: "
    edge = f"<{each.edge.text}>" if each.undirected else each.edge.text
    bounds = ""
    if each.bounds is not None:
        maximum = "" if each.bounds.maximum is None else each.bounds.maximum.raw
        bounds = f"{{{each.bounds.minimum.raw},{maximum}}}"
    path = "" if each.path is None else f" as ${each.path.text}"
    return f"${each.left.text} {variable}{edge}{bounds} ${each.right.text}{path}"


def _assignment(each: ast.Assignment) -> str:
    return f"{each.name.text}: {expression_text(each.value)}"


def _statement(each: ast.Statement) -> Iterator[str]:
    match each:
        case ast.Insert():
            word = "upsert" if each.replacing else "insert"
            inner = ", ".join(_assignment(one) for one in each.assignments)
            yield f"{word} {each.type.text} {{ {inner} }}"
        case ast.Update():
            inner = ", ".join(_assignment(one) for one in each.assignments)
            where = expression_text(each.condition)
            yield f"update {each.type.text} set {{ {inner} }} where {where}"  # noqa: S608
        case ast.Delete():
            yield f"delete {each.type.text} where {expression_text(each.condition)}"
        case _:
            assert_never(each)
