"""Parses query text to a syntax tree, which is built while the grammar reduces.

Invariants:

- Any text gives either a tree or exactly one diagnostic; nothing else is raised.
- A tree is shallow enough for every recursive function that comes after it.
- The builder has one method per rule of the grammar, and every node carries its source position.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput

from omnigraph_lake.language.diagnostics import REFUSED_CHARACTER, Diagnostic, Span, span_at
from omnigraph_lake.language.grammars import Grammar, Lexeme, lexemes_of, refused_at
from omnigraph_lake.query import ast
from omnigraph_lake.query.diagnostics import Rule, error
from omnigraph_lake.query.tokens import WordSorter, explain_character, explain_refusal

_DIRECTIONS: Final = {
    (False, False): None,
    (False, True): ast.EdgeDirection.FORWARD,
    (True, False): ast.EdgeDirection.BACKWARD,
    (True, True): ast.EdgeDirection.EITHER,
}
"""The direction of a traversal by whether `<` and `>` are written."""


def _between(first: Any, last: Any) -> Span:
    """From the first to the last of two tokens or nodes."""
    start = _place(first)
    return Span(offset=start.offset, line=start.line, column=start.column, end=_place(last).end)


def _place(item: Any) -> Span:
    if not isinstance(item, Token):
        span: Span = item.span
        return span
    token: Any = item
    return Span(offset=token.start_pos, line=token.line, column=token.column, end=token.end_pos)


def _name(token: Token) -> ast.Name:
    return ast.Name(text=token.value.lstrip("$@"), span=_between(token, token))


def _number(token: Token) -> ast.NumberLiteral:
    return ast.NumberLiteral(raw=token.value, span=_between(token, token))


def _left_to_right(items: list[Any]) -> ast.Expression:
    result: ast.Expression = items[0]
    for operator, right in zip(items[1::2], items[2::2], strict=True):
        result = ast.Binary(
            operator=ast.BinaryOperator(operator.value),
            left=result,
            right=right,
            span=_between(result, right),
        )
    return result


def _join(junction: ast.Junction, items: list[Any]) -> ast.Expression:
    operands = tuple(item for item in items if not isinstance(item, Token))
    if len(operands) == 1:
        only: ast.Expression = operands[0]
        return only
    return ast.Joined(
        junction=junction, operands=operands, span=_between(operands[0], operands[-1])
    )


class _Expressions(Transformer[Token, Any]):
    """The rules that give expressions; holds no state."""

    def disjunction(self, items: list[Any]) -> ast.Expression:
        return _join(ast.Junction.OR, items)

    def conjunction(self, items: list[Any]) -> ast.Expression:
        return _join(ast.Junction.AND, items)

    def not_expression(self, items: list[Any]) -> ast.Not:
        return ast.Not(operand=items[1], span=_between(items[0], items[1]))

    def comparison(self, items: list[Any]) -> ast.Expression:
        if len(items) > 3:
            return ast.ComparisonChain(second=_name(items[3]), span=_between(items[0], items[-1]))
        return _left_to_right(items)

    def null_test(self, items: list[Any]) -> ast.NullTest:
        return ast.NullTest(
            operand=items[0], negated=items[2] is not None, span=_between(items[0], items[3])
        )

    def sum(self, items: list[Any]) -> ast.Expression:
        return _left_to_right(items)

    def product(self, items: list[Any]) -> ast.Expression:
        return _left_to_right(items)

    def negative(self, items: list[Any]) -> ast.Negative:
        return ast.Negative(operand=items[1], span=_between(items[0], items[1]))

    def parenthesised(self, items: list[Any]) -> ast.Expression:
        inner: ast.Expression = items[1]
        return inner

    def property_use(self, items: list[Any]) -> ast.PropertyUse:
        return ast.PropertyUse(
            variable=_name(items[0]), property=_name(items[2]), span=_between(items[0], items[2])
        )

    def variable_use(self, items: list[Any]) -> ast.VariableUse:
        return ast.VariableUse(name=_name(items[0]), span=_between(items[0], items[0]))

    def call(self, items: list[Any]) -> ast.Call:
        return _call(items, arguments=items[2] or ())

    def star_call(self, items: list[Any]) -> ast.Call:
        return _call(items, star=True)

    def distinct_call(self, items: list[Any]) -> ast.Call:
        return _call(items, arguments=(items[3],), distinct=True)

    def cast(self, items: list[Any]) -> ast.Cast:
        inner = items[4:-1]
        listed = len(inner) == 3
        name, sizes, _ = inner[1] if listed else inner[0]
        return ast.Cast(
            function=_name(items[0]),
            operand=items[2],
            type=name,
            sizes=sizes,
            listed=listed,
            span=_between(items[0], items[-1]),
        )

    def node_reference(self, items: list[Any]) -> ast.NodeReference:
        return ast.NodeReference(
            function=_name(items[0]),
            type=_name(items[2]),
            id=items[3],
            span=_between(items[0], items[-1]),
        )

    def case(self, items: list[Any]) -> ast.Case:
        has_else = isinstance(items[-3], Token) and items[-3].type == "ELSE"
        return ast.Case(
            branches=tuple(item for item in items if isinstance(item, ast.CaseBranch)),
            otherwise=items[-2] if has_else else None,
            span=_between(items[0], items[-1]),
        )

    def branch(self, items: list[Any]) -> ast.CaseBranch:
        return ast.CaseBranch(condition=items[1], value=items[3], span=_between(items[0], items[3]))

    def call_by(self, items: list[Any]) -> ast.Call:
        return _call(items, arguments=(items[2],), by=items[4])

    def arguments(self, items: list[Any]) -> tuple[ast.Expression, ...]:
        return tuple(items)

    def word(self, items: list[Any]) -> ast.Word:
        return ast.Word(name=_name(items[0]), span=_between(items[0], items[0]))

    def string(self, items: list[Any]) -> ast.StringLiteral:
        return ast.StringLiteral(raw=items[0].value, span=_between(items[0], items[0]))

    def number(self, items: list[Any]) -> ast.NumberLiteral:
        return _number(items[0])

    def boolean(self, items: list[Any]) -> ast.BoolLiteral:
        return ast.BoolLiteral(value=items[0].type == "TRUE", span=_between(items[0], items[0]))

    def null(self, items: list[Any]) -> ast.NullLiteral:
        return ast.NullLiteral(span=_between(items[0], items[0]))

    def sub_pattern(self, items: list[Any]) -> ast.SubPattern:
        return ast.SubPattern(
            kind=ast.SubPatternKind(items[0].value),
            clauses=tuple(items[2:-1]),
            span=_between(items[0], items[-1]),
        )

    def list(self, items: list[Any]) -> ast.ListLiteral:
        inner = tuple(item for item in items[1:-1] if item is not None)
        return ast.ListLiteral(items=inner, span=_between(items[0], items[-1]))


def _call(
    items: list[Any],
    *,
    arguments: tuple[ast.Expression, ...] = (),
    star: bool = False,
    distinct: bool = False,
    by: ast.Expression | None = None,
) -> ast.Call:
    return ast.Call(
        function=_name(items[0]),
        arguments=arguments,
        distinct=distinct,
        star=star,
        span=_between(items[0], items[-1]),
        by=by,
    )


class TreeBuilder(_Expressions):
    """The rules that give queries, clauses and statements."""

    def start(self, items: list[Any]) -> ast.QueryFile:
        return ast.QueryFile(queries=tuple(items))

    def query(self, items: list[Any]) -> ast.QueryDeclaration:
        return ast.QueryDeclaration(
            name=_name(items[1]),
            parameters=items[3] or (),
            annotations=tuple(item for item in items if isinstance(item, ast.Annotation)),
            body=items[-2],
        )

    def adhoc(self, items: list[Any]) -> ast.QueryDeclaration:
        body: ast.ReadBody | ast.WriteBody = items[1]
        first = body.clauses[0] if isinstance(body, ast.ReadBody) else body.statements[0]
        return ast.QueryDeclaration(
            name=ast.Name(text=ast.ADHOC_NAME, span=first.span),
            parameters=items[0] or (),
            annotations=(),
            body=body,
            is_adhoc=True,
        )

    def declared(self, items: list[Any]) -> tuple[ast.ParameterDeclaration, ...]:
        return items[1] or ()

    def parameters(self, items: list[Any]) -> tuple[ast.ParameterDeclaration, ...]:
        return tuple(items)

    def parameter(self, items: list[Any]) -> ast.ParameterDeclaration:
        *inner, question = items[1:]
        listed = len(inner) == 3
        name, sizes, end = inner[1] if listed else inner[0]
        last = question or (inner[2] if listed else end)
        return ast.ParameterDeclaration(
            name=_name(items[0]),
            type=name,
            sizes=sizes,
            listed=listed,
            nullable=question is not None,
            span=_between(items[0], last),
        )

    def base(self, items: list[Any]) -> tuple[ast.Name, tuple[()], Token]:
        return _name(items[0]), (), items[0]

    def sized(self, items: list[Any]) -> tuple[ast.Name, tuple[ast.NumberLiteral, ...], Token]:
        return _name(items[0]), tuple(map(_number, items[1:-1])), items[-1]

    def annotation(self, items: list[Any]) -> ast.Annotation:
        return ast.Annotation(name=_name(items[0]), value=self.string([items[1]]))

    def read(self, items: list[Any]) -> ast.ReadBody:
        tails: dict[str, Any] = dict(item for item in items if isinstance(item, tuple))
        return ast.ReadBody(
            clauses=tuple(item for item in items if isinstance(item, ast.Clause)),
            distinct=any(isinstance(item, Token) and item.type == "DISTINCT" for item in items),
            projections=tuple(item for item in items if isinstance(item, ast.Projection)),
            orderings=tails.get("order", ()),
            limit=tails.get("limit"),
            offset=tails.get("offset"),
            having=tails.get("having"),
        )

    def having(self, items: list[Any]) -> tuple[str, ast.Expression]:
        return "having", items[1]

    def order(self, items: list[Any]) -> tuple[str, tuple[ast.Ordering, ...]]:
        return "order", tuple(item for item in items if isinstance(item, ast.Ordering))

    def limit(self, items: list[Any]) -> tuple[str, ast.Expression]:
        return "limit", items[1]

    def offset(self, items: list[Any]) -> tuple[str, ast.Expression]:
        return "offset", items[1]

    def write(self, items: list[Any]) -> ast.WriteBody:
        return ast.WriteBody(statements=tuple(items))

    def write_rows(self, items: list[Any]) -> ast.MatchedWriteBody:
        brace = next(
            position
            for position, item in enumerate(items)
            if isinstance(item, Token) and item.type == "RBRACE"
        )
        clauses, statements = items[2:brace], items[brace + 1 :]
        return ast.MatchedWriteBody(clauses=tuple(clauses), statements=tuple(statements))

    def row_statement(self, items: list[Any]) -> ast.MatchedStatement:
        only: ast.MatchedStatement = items[0]
        return only

    def row_update(self, items: list[Any]) -> ast.MatchedUpdate:
        return ast.MatchedUpdate(
            variable=_name(items[1]),
            assignments=tuple(item for item in items if isinstance(item, ast.Assignment)),
            span=_between(items[0], items[-1]),
        )

    def row_delete(self, items: list[Any]) -> ast.MatchedDelete:
        return ast.MatchedDelete(
            variables=tuple(
                _name(item) for item in items if isinstance(item, Token) and item.type == "VARIABLE"
            ),
            span=_between(items[0], items[-1]),
        )

    def clause(self, items: list[Any]) -> ast.Clause:
        only: ast.Clause = items[0]
        return only

    def statement(self, items: list[Any]) -> ast.Statement:
        only: ast.Statement = items[0]
        return only

    def binding(self, items: list[Any]) -> ast.Binding:
        types: tuple[ast.Name, ...] = items[2]
        matches, last = items[3] or ((), types[-1])
        return ast.Binding(
            variable=_name(items[0]),
            types=types,
            matches=matches,
            span=_between(items[0], last),
        )

    def types(self, items: list[Any]) -> tuple[ast.Name, ...]:
        return tuple(_name(item) for item in items if item.type != "PIPE")

    def matches(self, items: list[Any]) -> tuple[tuple[ast.Assignment, ...], Token]:
        return tuple(item for item in items if isinstance(item, ast.Assignment)), items[-1]

    def traversal(self, items: list[Any]) -> ast.Traversal:
        left, edge_variable, back, edges, on, bounds, right, path_and_weight = items
        path, weight = path_and_weight or (None, None)
        return ast.Traversal(
            left=_name(left),
            edge_variable=edge_variable,
            edges=edges,
            direction=_DIRECTIONS[back is not None, on is not None],
            bounds=bounds,
            right=_name(right),
            path=path,
            weight=weight,
            span=_between(left, weight or path or right),
        )

    def edge_variable(self, items: list[Any]) -> ast.Name:
        return _name(items[0])

    def edges(self, items: list[Any]) -> tuple[ast.Name, ...]:
        return tuple(_name(item) for item in items if item.type != "PIPE")

    def bounds(self, items: list[Any]) -> ast.Bounds:
        return ast.Bounds(
            minimum=_number(items[1]),
            maximum=None if items[2] is None else _number(items[2]),
            span=_between(items[0], items[3]),
        )

    def path(self, items: list[Any]) -> tuple[ast.Name, ast.Name | None]:
        return _name(items[1]), None if items[3] is None else _name(items[3])

    def filter(self, items: list[Any]) -> ast.Filter:
        return ast.Filter(condition=items[0], span=items[0].span)

    def not_block(self, items: list[Any]) -> ast.NotBlock:
        return ast.NotBlock(clauses=tuple(items[2:-1]), span=_between(items[0], items[-1]))

    def optional_block(self, items: list[Any]) -> ast.OptionalBlock:
        return ast.OptionalBlock(clauses=tuple(items[2:-1]), span=_between(items[0], items[-1]))

    def projection(self, items: list[Any]) -> ast.Projection:
        return ast.Projection(expression=items[0], alias=items[1])

    def all_of(self, items: list[Any]) -> ast.AllOf:
        return ast.AllOf(variable=_name(items[0]), span=_between(items[0], items[2]))

    def alias(self, items: list[Any]) -> ast.Name:
        return _name(items[1])

    def ordering(self, items: list[Any]) -> ast.Ordering:
        word = items[1]
        return ast.Ordering(
            expression=items[0],
            direction=None if word is None else ast.Direction(word.value),
            span=_between(items[0], word or items[0]),
        )

    def insert(self, items: list[Any]) -> ast.Insert:
        return ast.Insert(
            type=_name(items[1]),
            assignments=tuple(item for item in items if isinstance(item, ast.Assignment)),
            verb=ast.InsertVerb(items[0].value),
            span=_between(items[0], items[-1]),
        )

    def update(self, items: list[Any]) -> ast.Update:
        return ast.Update(
            type=_name(items[1]),
            assignments=tuple(item for item in items if isinstance(item, ast.Assignment)),
            condition=items[-1],
            span=_between(items[0], items[-1]),
        )

    def delete(self, items: list[Any]) -> ast.Delete:
        return ast.Delete(
            type=_name(items[1]), condition=items[-1], span=_between(items[0], items[-1])
        )

    def separated(self, items: list[Any]) -> ast.Assignment:
        only: ast.Assignment = items[0]
        return only

    def assignment(self, items: list[Any]) -> ast.Assignment:
        return ast.Assignment(name=_name(items[0]), value=items[2])


QUERY_BYTES_MAX: Final = 256 * 1024
NESTING_MAX: Final = 64
"""How deep expressions and blocks may nest; a sum of many terms nests once per term."""

CLAUSES_MAX: Final = 100
"""How many clauses a query may have, those of its blocks included: plans nest once per clause."""

NODES_MAX: Final = 20_000
"""How large a tree of a query may be; the items of lists of literals do not count."""

QUERIES_MAX: Final = 1000


def parse_queries(text: str) -> ast.QueryFile | Diagnostic:
    """The tree of a query text, or the diagnostic of its syntax error."""
    refusal = refuse_before_parsing(text)
    if refusal is not None:
        return refusal
    try:
        parsed = query_grammar().parse(text)
    except UnexpectedCharacters as unexpected:
        place: Any = unexpected.pos_in_stream
        return explain_character(text, place)
    except UnexpectedInput:
        return _explain(text)
    assert isinstance(parsed, ast.QueryFile)
    return refuse_too_complex(parsed) or parsed


def lexemes(text: str) -> tuple[Lexeme, ...] | Diagnostic:
    """Every token but white space and comments, or why the text does not parse."""
    refusal = refuse_before_parsing(text)
    if refusal is not None:
        return refusal
    tokens = lexemes_of(query_grammar(), text)
    return _explain(text) if tokens is None else tokens


def refuse_before_parsing(text: str) -> Diagnostic | None:
    """Why a text is not even read by the grammar: its size, or a character."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > QUERY_BYTES_MAX:
        return error(
            Rule.QUERY_TOO_LARGE,
            span_at(text, 0, 0),
            f"the text has {size} bytes, at most {QUERY_BYTES_MAX} are read",
            "pass long lists as parameters, or split the file",
        )
    refused = REFUSED_CHARACTER.search(text)
    if refused is not None:
        return error(
            Rule.INVALID_CHARACTER,
            span_at(text, refused.start(), refused.end()),
            f"the character U+{ord(refused.group()):04X} is not allowed in a query",
            "remove it; save the file as UTF-8 without a byte order mark",
        )
    return None


def _explain(text: str) -> Diagnostic:
    offset, expected = refused_at(query_grammar(), text)
    return explain_refusal(text, offset, expected)


def refuse_too_complex(parsed: ast.QueryFile) -> Diagnostic | None:
    """Why a tree is not used: its size or its depth.

    Iterative, because it detects nesting that is too deep for recursion.
    """
    for count, query in enumerate(parsed.queries, start=1):
        if count > QUERIES_MAX:
            return _too_complex(query.name, f"a file has at most {QUERIES_MAX} queries")
        clauses, nodes = 0, 0
        pending: list[tuple[Any, int]] = [(query, -2)]
        while pending:
            node, depth = pending.pop()
            clauses += isinstance(node, ast.Clause)
            nodes += 1
            if depth > NESTING_MAX:
                return error(
                    Rule.NESTING_TOO_DEEP,
                    node.span,
                    f"this is nested more than {NESTING_MAX} deep",
                    "split the condition, or pass a list as a parameter and use `in`",
                )
            if clauses > CLAUSES_MAX:
                return _too_complex(query.name, f"a query has at most {CLAUSES_MAX} clauses")
            if nodes > NODES_MAX:
                return _too_complex(query.name, f"a query has at most {NODES_MAX} words and signs")
            children = _children(node)
            if isinstance(node, ast.ListLiteral):
                nodes -= len(node.items)
            pending += [(child, depth + 1) for child in children]
    return None


def _too_complex(name: ast.Name, message: str) -> Diagnostic:
    hint = "split it; pass long lists of values as a parameter and use `in`"
    return error(Rule.QUERY_TOO_COMPLEX, name.span, message, hint)


def _children(node: Any) -> Iterator[Any]:
    for field in fields(node):
        value = getattr(node, field.name)
        for child in value if isinstance(value, tuple) else (value,):
            if is_dataclass(child) and not isinstance(child, Span):
                yield child


GRAMMAR: Final = Grammar(package="omnigraph_lake.query", lexer="basic", maybe_placeholders=True)


@functools.cache
def query_grammar() -> Lark:
    """The parser, which builds the tree while it reads."""
    return GRAMMAR.parser(TreeBuilder(), WordSorter())
