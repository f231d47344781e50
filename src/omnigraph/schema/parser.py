"""Schema text to syntax tree, and schema text to lexemes for the formatter.

Invariant: any text gives either a tree or exactly one diagnostic; nothing else is raised.
Limits on size and characters are enforced before the grammar sees the text.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput

from omnigraph.language.diagnostics import REFUSED_CHARACTER, Diagnostic, Span, span_at
from omnigraph.language.grammars import refused_at
from omnigraph.schema.ast import (
    Annotation,
    BaseType,
    EdgeDeclaration,
    EnumOf,
    InterfaceDeclaration,
    Keyword,
    ListOf,
    Member,
    Name,
    NodeDeclaration,
    NumberLiteral,
    PropertyDeclaration,
    RangeLiteral,
    Schema,
    StringLiteral,
    TypeExpression,
    Word,
)
from omnigraph.schema.diagnostics import Rule, error
from omnigraph.schema.explain import explain_refusal

SCHEMA_BYTES_MAX: Final = 16 * 1024 * 1024

CONSTRAINT_WORDS: Final = frozenset({"key", "unique", "index", "range", "check"})
INDEX_WORD: Final = "index"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lexeme:
    """One token of a valid schema text, as the grammar named it."""

    kind: str
    text: str
    offset: int
    end: int


def parse_schema(text: str) -> Schema | Diagnostic:
    """The tree of a schema text, or the diagnostic of its syntax error."""
    refusal = _refuse_before_parsing(text)
    if refusal is not None:
        return refusal
    try:
        schema = _grammar().parse(text)
    except UnexpectedInput:
        return _explain(text)
    assert isinstance(schema, Schema)
    return schema


def lexemes(text: str) -> tuple[Lexeme, ...] | Diagnostic:
    """Every token but white space and comments, or why the text does not parse."""
    refusal = _refuse_before_parsing(text)
    if refusal is not None:
        return refusal
    try:
        interactive: Any = _grammar().parse_interactive(text)
        tokens: list[Token] = interactive.exhaust_lexer()
        interactive.feed_eof()
    except UnexpectedInput:
        return _explain(text)
    return tuple(
        Lexeme(kind=each.type, text=str(each), offset=_start(each), end=_end(each))
        for each in tokens
    )


def belongs_to_body(annotation: Annotation) -> bool:
    """Whether this is a constraint of the type, wherever in the body it is written.

    `@index(metric=...)` names no property, so it is about the one in front of it.
    """
    if annotation.arguments is None or annotation.name not in CONSTRAINT_WORDS:
        return False
    return annotation.name != INDEX_WORD or not isinstance(annotation.arguments[0], Keyword)


def _refuse_before_parsing(text: str) -> Diagnostic | None:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > SCHEMA_BYTES_MAX:
        return error(
            Rule.SCHEMA_TOO_LARGE,
            span_at(text, 0, 0),
            f"the schema has {size} bytes, at most {SCHEMA_BYTES_MAX} are read",
            "split the graph, or move long descriptions elsewhere",
        )
    refused = REFUSED_CHARACTER.search(text)
    if refused is not None:
        return error(
            Rule.INVALID_CHARACTER,
            span_at(text, refused.start(), refused.end()),
            f"the character U+{ord(refused.group()):04X} is not allowed in a schema",
            "remove it; save the file as UTF-8 without a byte order mark",
        )
    return None


def _explain(text: str) -> Diagnostic:
    offset, expected = refused_at(_grammar(), text)
    return explain_refusal(text, offset, expected)


@functools.cache
def _grammar() -> Lark:
    source = resources.files("omnigraph.schema").joinpath("grammar.lark").read_text("utf-8")
    return Lark(
        source,
        parser="lalr",
        lexer="contextual",
        transformer=_TreeBuilder(),
        maybe_placeholders=False,
    )


def _start(token: Token) -> int:
    assert token.start_pos is not None
    return token.start_pos


def _end(token: Token) -> int:
    assert token.end_pos is not None
    return token.end_pos


def _between(first: Any, last: Any) -> Span:
    return Span(offset=first.start_pos, line=first.line, column=first.column, end=last.end_pos)


def _name(token: Token) -> Name:
    return Name(text=token.value, span=_between(token, token))


def _members(items: list[Any]) -> tuple[Member, ...]:
    """Attach every annotation to the preceding property, unless a constraint is in between."""
    members: list[Member] = []
    pending: tuple[Name, TypeExpression] | None = None
    annotations: list[Annotation] = []
    for item in items:
        is_property = item.__class__ is tuple
        if pending is not None and (is_property or belongs_to_body(item)):
            members.append(_property(pending, annotations))
            pending, annotations = None, []
        if is_property:
            pending = item
        elif pending is not None:
            annotations.append(item)
        else:
            members.append(item)
    if pending is not None:
        members.append(_property(pending, annotations))
    return tuple(members)


def _property(
    head: tuple[Name, TypeExpression], annotations: list[Annotation]
) -> PropertyDeclaration:
    return PropertyDeclaration(name=head[0], type=head[1], annotations=tuple(annotations))


class _TreeBuilder(Transformer[Token, Any]):
    """Builds nodes while the grammar reduces; holds no state, so one instance serves all."""

    def start(self, items: list[Any]) -> Schema:
        return Schema(declarations=tuple(items))

    def interface(self, items: list[Any]) -> InterfaceDeclaration:
        return InterfaceDeclaration(name=_name(items[1]), body=items[2])

    def node(self, items: list[Any]) -> NodeDeclaration:
        implements = items[-2] if items[-2].__class__ is tuple else ()
        return NodeDeclaration(
            name=_name(items[1]),
            annotations=tuple(each for each in items[2:-1] if each.__class__ is Annotation),
            implements=implements,
            body=items[-1],
        )

    def implements(self, items: list[Any]) -> tuple[Name, ...]:
        return tuple(_name(each) for each in items[1:])

    def edge(self, items: list[Any]) -> EdgeDeclaration:
        return EdgeDeclaration(
            name=_name(items[1]),
            source=_name(items[2]),
            target=_name(items[3]),
            annotations=tuple(each for each in items[4:] if each.__class__ is Annotation),
            body=items[-1] if items[-1].__class__ is tuple else None,
        )

    def body(self, items: list[Any]) -> tuple[Member, ...]:
        return _members(items[:-1])

    def property_head(self, items: list[Any]) -> tuple[Name, TypeExpression]:
        return _name(items[0]), items[1]

    def type_expression(self, items: list[Any]) -> TypeExpression:
        return TypeExpression(core=items[0], nullable=len(items) > 1)

    def base(self, items: list[Any]) -> BaseType:
        return BaseType(name=items[0].value, size=None, span=_between(items[0], items[0]))

    def sized(self, items: list[Any]) -> BaseType:
        return BaseType(
            name=items[0].value,
            size=self.number(items[1:2]),
            span=_between(items[0], items[2]),
        )

    def list_of(self, items: list[Any]) -> ListOf:
        return ListOf(item=items[1], span=_between(items[0], items[2]))

    def enum_of(self, items: list[Any]) -> EnumOf:
        values = tuple(_name(each) for each in items[1:-1])
        return EnumOf(values=values, span=_between(items[0], items[-1]))

    def annotation(self, items: list[Any]) -> Annotation:
        token = items[0]
        return Annotation(name=token.value[1:], arguments=None, span=_between(token, token))

    def annotation_with_arguments(self, items: list[Any]) -> Annotation:
        return Annotation(
            name=items[0].value[1:],
            arguments=tuple(items[1:-1]),
            span=_between(items[0], items[-1]),
        )

    def string(self, items: list[Any]) -> StringLiteral:
        return StringLiteral(raw=items[0].value, span=_between(items[0], items[0]))

    def number(self, items: list[Any]) -> NumberLiteral:
        return NumberLiteral(raw=items[0].value, span=_between(items[0], items[0]))

    def word(self, items: list[Any]) -> Word:
        return Word(text=items[0].value, span=_between(items[0], items[0]))

    def range_literal(self, items: list[Any]) -> RangeLiteral:
        high = self.number(items[2:]) if len(items) > 2 else None
        return RangeLiteral(
            low=self.number(items[:1]), high=high, span=_between(items[0], items[-1])
        )

    def range_without_low(self, items: list[Any]) -> RangeLiteral:
        return RangeLiteral(
            low=None, high=self.number(items[1:]), span=_between(items[0], items[-1])
        )

    def keyword(self, items: list[Any]) -> Keyword:
        value = items[1]
        span = Span(
            offset=items[0].start_pos,
            line=items[0].line,
            column=items[0].column,
            end=value.span.end,
        )
        return Keyword(name=_name(items[0]), value=value, span=span)
