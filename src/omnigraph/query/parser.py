"""Query text to syntax tree.

Invariant: any text gives either a tree or exactly one diagnostic; nothing else is raised.
A tree is shallow enough for every recursive function that comes after it.

Builds the syntax tree while the grammar reduces.

Invariant: one method per rule of the grammar; every node carries the place it came from.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import resources
from typing import Any, Final

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput

from omnigraph.language.diagnostics import REFUSED_CHARACTER, Diagnostic, Span, span_at
from omnigraph.language.grammars import refused_at
from omnigraph.query.ast import (
    Annotation,
    Assignment,
    Binary,
    BinaryOperator,
    Binding,
    BoolLiteral,
    Bounds,
    Call,
    Clause,
    ComparisonChain,
    Delete,
    Direction,
    Expression,
    Filter,
    Insert,
    Joined,
    Junction,
    ListLiteral,
    Name,
    Negative,
    Not,
    NotBlock,
    NullLiteral,
    NullTest,
    NumberLiteral,
    OptionalBlock,
    Ordering,
    ParameterDeclaration,
    Projection,
    PropertyUse,
    QueryDeclaration,
    QueryFile,
    ReadBody,
    Statement,
    StringLiteral,
    Traversal,
    Update,
    VariableUse,
    Word,
    WriteBody,
)
from omnigraph.query.diagnostics import Rule, error
from omnigraph.query.tokens import WordSorter, explain_character, explain_refusal

_UNDIRECTED: Final = "undirected"


def _between(first: Any, last: Any) -> Span:
    """From the first to the last of two tokens or nodes."""
    start = _place(first)
    return Span(offset=start.offset, line=start.line, column=start.column, end=_place(last).end)


def _place(each: Any) -> Span:
    if not isinstance(each, Token):
        span: Span = each.span
        return span
    token: Any = each
    return Span(offset=token.start_pos, line=token.line, column=token.column, end=token.end_pos)


def _name(token: Token) -> Name:
    return Name(text=token.value.lstrip("$@"), span=_between(token, token))


def _number(token: Token) -> NumberLiteral:
    return NumberLiteral(raw=token.value, span=_between(token, token))


def _left_to_right(items: list[Any]) -> Expression:
    result: Expression = items[0]
    for operator, right in zip(items[1::2], items[2::2], strict=True):
        result = Binary(
            operator=BinaryOperator(operator.value),
            left=result,
            right=right,
            span=_between(result, right),
        )
    return result


def _joined(junction: Junction, items: list[Any]) -> Expression:
    operands = tuple(each for each in items if not isinstance(each, Token))
    if len(operands) == 1:
        only: Expression = operands[0]
        return only
    return Joined(junction=junction, operands=operands, span=_between(operands[0], operands[-1]))


class _Expressions(Transformer[Token, Any]):
    """The rules that give expressions; holds no state."""

    def disjunction(self, items: list[Any]) -> Expression:
        return _joined(Junction.OR, items)

    def conjunction(self, items: list[Any]) -> Expression:
        return _joined(Junction.AND, items)

    def not_expression(self, items: list[Any]) -> Not:
        return Not(operand=items[1], span=_between(items[0], items[1]))

    def comparison(self, items: list[Any]) -> Expression:
        if len(items) > 3:
            return ComparisonChain(second=_name(items[3]), span=_between(items[0], items[-1]))
        return _left_to_right(items)

    def null_test(self, items: list[Any]) -> NullTest:
        return NullTest(
            operand=items[0], negated=items[2] is not None, span=_between(items[0], items[3])
        )

    def sum(self, items: list[Any]) -> Expression:
        return _left_to_right(items)

    def product(self, items: list[Any]) -> Expression:
        return _left_to_right(items)

    def negative(self, items: list[Any]) -> Negative:
        return Negative(operand=items[1], span=_between(items[0], items[1]))

    def parenthesised(self, items: list[Any]) -> Expression:
        inner: Expression = items[1]
        return inner

    def property_use(self, items: list[Any]) -> PropertyUse:
        return PropertyUse(
            variable=_name(items[0]), property=_name(items[2]), span=_between(items[0], items[2])
        )

    def variable_use(self, items: list[Any]) -> VariableUse:
        return VariableUse(name=_name(items[0]), span=_between(items[0], items[0]))

    def call(self, items: list[Any]) -> Call:
        return _call(items, arguments=items[2] or ())

    def star_call(self, items: list[Any]) -> Call:
        return _call(items, star=True)

    def distinct_call(self, items: list[Any]) -> Call:
        return _call(items, arguments=(items[3],), distinct=True)

    def arguments(self, items: list[Any]) -> tuple[Expression, ...]:
        return tuple(items)

    def word(self, items: list[Any]) -> Word:
        return Word(name=_name(items[0]), span=_between(items[0], items[0]))

    def string(self, items: list[Any]) -> StringLiteral:
        return StringLiteral(raw=items[0].value, span=_between(items[0], items[0]))

    def number(self, items: list[Any]) -> NumberLiteral:
        return _number(items[0])

    def boolean(self, items: list[Any]) -> BoolLiteral:
        return BoolLiteral(value=items[0].type == "TRUE", span=_between(items[0], items[0]))

    def null(self, items: list[Any]) -> NullLiteral:
        return NullLiteral(span=_between(items[0], items[0]))

    def list(self, items: list[Any]) -> ListLiteral:
        inner = tuple(each for each in items[1:-1] if each is not None)
        return ListLiteral(items=inner, span=_between(items[0], items[-1]))


def _call(
    items: list[Any],
    *,
    arguments: tuple[Expression, ...] = (),
    star: bool = False,
    distinct: bool = False,
) -> Call:
    return Call(
        function=_name(items[0]),
        arguments=arguments,
        distinct=distinct,
        star=star,
        span=_between(items[0], items[-1]),
    )


class TreeBuilder(_Expressions):
    """The rules that give queries, clauses and statements."""

    def start(self, items: list[Any]) -> QueryFile:
        return QueryFile(queries=tuple(items))

    def query(self, items: list[Any]) -> QueryDeclaration:
        return QueryDeclaration(
            name=_name(items[1]),
            parameters=items[3] or (),
            annotations=tuple(each for each in items if isinstance(each, Annotation)),
            body=items[-2],
        )

    def parameters(self, items: list[Any]) -> tuple[ParameterDeclaration, ...]:
        return tuple(items)

    def parameter(self, items: list[Any]) -> ParameterDeclaration:
        *inner, question = items[1:]
        listed = len(inner) == 3
        name, size = inner[1] if listed else inner[0]
        last = question or (inner[2] if listed else size or name)
        return ParameterDeclaration(
            name=_name(items[0]),
            type=name,
            size=size,
            listed=listed,
            nullable=question is not None,
            span=_between(items[0], last),
        )

    def base(self, items: list[Any]) -> tuple[Name, None]:
        return _name(items[0]), None

    def sized(self, items: list[Any]) -> tuple[Name, NumberLiteral]:
        return _name(items[0]), _number(items[1])

    def annotation(self, items: list[Any]) -> Annotation:
        return Annotation(name=_name(items[0]), value=self.string([items[1]]))

    def read(self, items: list[Any]) -> ReadBody:
        tails: dict[str, Any] = dict(each for each in items if isinstance(each, tuple))
        return ReadBody(
            clauses=tuple(each for each in items if isinstance(each, Clause)),
            distinct=any(isinstance(each, Token) and each.type == "DISTINCT" for each in items),
            projections=tuple(each for each in items if isinstance(each, Projection)),
            orderings=tails.get("order", ()),
            limit=tails.get("limit"),
            offset=tails.get("offset"),
        )

    def order(self, items: list[Any]) -> tuple[str, tuple[Ordering, ...]]:
        return "order", tuple(each for each in items if isinstance(each, Ordering))

    def limit(self, items: list[Any]) -> tuple[str, Expression]:
        return "limit", items[1]

    def offset(self, items: list[Any]) -> tuple[str, Expression]:
        return "offset", items[1]

    def write(self, items: list[Any]) -> WriteBody:
        return WriteBody(statements=tuple(items))

    def clause(self, items: list[Any]) -> Clause:
        only: Clause = items[0]
        return only

    def statement(self, items: list[Any]) -> Statement:
        only: Statement = items[0]
        return only

    def binding(self, items: list[Any]) -> Binding:
        matches, last = items[3] or ((), items[2])
        return Binding(
            variable=_name(items[0]),
            type=_name(items[2]),
            matches=matches,
            span=_between(items[0], last),
        )

    def matches(self, items: list[Any]) -> tuple[tuple[Assignment, ...], Token]:
        return tuple(each for each in items if isinstance(each, Assignment)), items[-1]

    def traversal(self, items: list[Any]) -> Traversal:
        left, edge_variable, edge, bounds, right, path = items
        undirected = isinstance(edge, tuple)
        return Traversal(
            left=_name(left),
            edge_variable=edge_variable,
            edge=edge[1] if isinstance(edge, tuple) else _name(edge),
            undirected=undirected,
            bounds=bounds,
            right=_name(right),
            path=path,
            span=_between(left, path or right),
        )

    def edge_variable(self, items: list[Any]) -> Name:
        return _name(items[0])

    def undirected(self, items: list[Any]) -> tuple[str, Name]:
        return _UNDIRECTED, _name(items[1])

    def bounds(self, items: list[Any]) -> Bounds:
        return Bounds(
            minimum=_number(items[1]),
            maximum=None if items[2] is None else _number(items[2]),
            span=_between(items[0], items[3]),
        )

    def path(self, items: list[Any]) -> Name:
        return _name(items[1])

    def filter(self, items: list[Any]) -> Filter:
        return Filter(condition=items[0], span=items[0].span)

    def not_block(self, items: list[Any]) -> NotBlock:
        return NotBlock(clauses=tuple(items[2:-1]), span=_between(items[0], items[-1]))

    def optional_block(self, items: list[Any]) -> OptionalBlock:
        return OptionalBlock(clauses=tuple(items[2:-1]), span=_between(items[0], items[-1]))

    def projection(self, items: list[Any]) -> Projection:
        return Projection(expression=items[0], alias=items[1])

    def alias(self, items: list[Any]) -> Name:
        return _name(items[1])

    def ordering(self, items: list[Any]) -> Ordering:
        word = items[1]
        return Ordering(
            expression=items[0],
            direction=None if word is None else Direction(word.value),
            span=_between(items[0], word or items[0]),
        )

    def insert(self, items: list[Any]) -> Insert:
        return Insert(
            type=_name(items[1]),
            assignments=tuple(each for each in items if isinstance(each, Assignment)),
            replacing=items[0].type == "UPSERT",
            span=_between(items[0], items[-1]),
        )

    def update(self, items: list[Any]) -> Update:
        return Update(
            type=_name(items[1]),
            assignments=tuple(each for each in items if isinstance(each, Assignment)),
            condition=items[-1],
            span=_between(items[0], items[-1]),
        )

    def delete(self, items: list[Any]) -> Delete:
        return Delete(type=_name(items[1]), condition=items[-1], span=_between(items[0], items[-1]))

    def separated(self, items: list[Any]) -> Assignment:
        only: Assignment = items[0]
        return only

    def assignment(self, items: list[Any]) -> Assignment:
        return Assignment(name=_name(items[0]), value=items[2])


QUERY_BYTES_MAX: Final = 256 * 1024
NESTING_MAX: Final = 64
"""How deep expressions and blocks may nest; a sum of many terms nests once per term."""

CLAUSES_MAX: Final = 100
"""How many clauses a query may have, those of its blocks included: plans nest once per clause."""

NODES_MAX: Final = 20_000
"""How large a tree of a query may be; the items of lists of literals do not count."""

QUERIES_MAX: Final = 1000


def parse_queries(text: str) -> QueryFile | Diagnostic:
    """The tree of a query text, or the diagnostic of its syntax error."""
    refusal = _refuse_before_parsing(text)
    if refusal is not None:
        return refusal
    try:
        parsed = _grammar().parse(text)
    except UnexpectedCharacters as unexpected:
        place: Any = unexpected.pos_in_stream
        return explain_character(text, place)
    except UnexpectedInput:
        return _explain(text)
    assert isinstance(parsed, QueryFile)
    return _refuse_too_complex(parsed) or parsed


def _refuse_before_parsing(text: str) -> Diagnostic | None:
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
    offset, expected = refused_at(_grammar(), text)
    return explain_refusal(text, offset, expected)


def _refuse_too_complex(parsed: QueryFile) -> Diagnostic | None:
    """Iterative, because it detects nesting that is too deep for recursion."""
    for count, query in enumerate(parsed.queries, start=1):
        if count > QUERIES_MAX:
            return _too_complex(query.name, f"a file has at most {QUERIES_MAX} queries")
        clauses, nodes = 0, 0
        pending: list[tuple[Any, int]] = [(query, -2)]
        while pending:
            node, depth = pending.pop()
            clauses += isinstance(node, Clause)
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
            if isinstance(node, ListLiteral):
                nodes -= len(node.items)
            pending += [(each, depth + 1) for each in children]
    return None


def _too_complex(name: Name, message: str) -> Diagnostic:
    hint = "split it; pass long lists of values as a parameter and use `in`"
    return error(Rule.QUERY_TOO_COMPLEX, name.span, message, hint)


def _children(node: Any) -> Iterator[Any]:
    for field in fields(node):
        value = getattr(node, field.name)
        for each in value if isinstance(value, tuple) else (value,):
            if is_dataclass(each) and not isinstance(each, Span):
                yield each


@functools.cache
def _grammar() -> Lark:
    source = resources.files("omnigraph.query").joinpath("grammar.lark").read_text("utf-8")
    return Lark(
        source,
        parser="lalr",
        lexer="basic",
        postlex=WordSorter(),
        transformer=TreeBuilder(),
        maybe_placeholders=True,
    )
