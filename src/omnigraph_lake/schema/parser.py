"""Schema text to syntax tree, and schema text to lexemes for the formatter.

Invariant: any text gives either a tree or exactly one diagnostic; nothing else is raised.
Limits on size and characters are enforced before the grammar sees the text.

Translates a syntax error of the grammar to a message for the author of a schema.

Invariant: exactly one diagnostic per refusal, never a token name of the grammar in its text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection
from typing import Any, Final, TypeAlias

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput

from omnigraph_lake.language.diagnostics import (
    REFUSED_CHARACTER,
    Diagnostic,
    Refusal,
    Span,
    did_you_mean,
    span_at,
)
from omnigraph_lake.language.grammars import Grammar, Lexeme, lexemes_of, refused_at
from omnigraph_lake.schema import ast
from omnigraph_lake.schema.catalog import VectorMetric
from omnigraph_lake.schema.diagnostics import Rule, error

DECLARATION_WORDS: Final = ("interface", "node", "edge")
BASE_TYPE_NAMES: Final = (
    *("String", "Blob", "Bool", "I32", "I64", "U32", "U64"),
    *("F32", "F64", "Date", "DateTime", "Json"),
)

METRICS: Final = tuple(metric.value for metric in VectorMetric)

_OTHER_LANGUAGES: Final = {
    **dict.fromkeys(("int", "integer", "long", "bigint", "int64"), "I64"),
    "int32": "I32",
    **dict.fromkeys(("float", "double", "real", "number", "float64"), "F64"),
    **dict.fromkeys(("decimal", "numeric", "money"), "Decimal(12, 2)"),
    "float32": "F32",
    **dict.fromkeys(("text", "str", "varchar", "uuid"), "String"),
    **dict.fromkeys(("json", "jsonb", "object", "map", "struct"), "Json"),
    **dict.fromkeys(("timestamp", "time"), "DateTime"),
    **dict.fromkeys(("bytes", "binary"), "Blob"),
}
_OTHER_METRICS: Final = {
    **dict.fromkeys(("euclidean", "euclid", "norm"), VectorMetric.L2),
    **dict.fromkeys(("inner_product", "inner", "ip", "product"), VectorMetric.DOT),
    **dict.fromkeys(("angle", "angular"), VectorMetric.COSINE),
}
_IN_WORDS: Final = {
    "INTERFACE": "`interface`",
    "NODE": "`node`",
    "EDGE": "`edge`",
    "IMPLEMENTS": "`implements`",
    "TYPE_NAME": "a type name",
    "NAME": "a property name",
    "ENUM": "`enum(...)`",
    "ENUM_VALUE": "an enum value",
    "ANNOTATION": "an annotation",
    "STRING": "a string",
    "NUMBER": "a number",
    "DOTS": "`..`",
    "_ARROW": "`->`",
    "QUESTION": "`?`",
    "COLON": "`:`",
    "COMMA": "`,`",
    "EQUAL": "`=`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "VBAR": "`|`",
    "$END": "the end of the file",
}
_SITUATIONS: Final = (
    (frozenset({"TYPE_NAME", "ENUM", "LSQB"}), "a type such as `String` or `[I64]`"),
    (frozenset({"NAME", "ANNOTATION", "RBRACE"}), "a property, a constraint or `}`"),
    (frozenset({"STRING", "NUMBER", "DOTS", "NAME"}), "an argument"),
    (frozenset({"STRING", "NUMBER", "NAME"}), "a string, a number, `true` or `false`"),
)
_HEADER_ANNOTATION_HINT: Final = (
    "a node takes annotations before `implements`; an interface takes none"
)
_WORD: Final = re.compile(r"@?\w[\w-]*")
_METRIC_EXPECTED: Final = re.compile(r"@index\s*\([^()@]*\bmetric\s*=\s*$")
_LAST_WORDS: Final = re.compile(r"([^\s{}()\[\],:?]+)\s*$")


class _Refusal(Refusal):
    def diagnostic(self, rule: Rule, message: str, hint: str = "") -> Diagnostic:
        return error(rule, self.span, message, hint)


def explain_refusal(text: str, offset: int, expected: Collection[str]) -> Diagnostic:
    """Why the grammar, which expects `expected`, does not accept the text at `offset`."""
    refusal = _Refusal.at(text, offset, expected, word=_WORD)
    for explanation in _EXPLANATIONS:
        diagnostic = explanation(refusal)
        if diagnostic is not None:
            return diagnostic
    return refusal.diagnostic(Rule.SYNTAX, _sentence(refusal), _general_hint(refusal))


def _unterminated_comment(refusal: _Refusal) -> Diagnostic | None:
    if not refusal.text.startswith("/*", refusal.offset):
        return None
    return error(
        Rule.UNTERMINATED_COMMENT,
        span_at(refusal.text, refusal.offset, refusal.offset + 2),
        "this comment is never closed",
        "close it with `*/`; comments do not nest",
    )


def _string(refusal: _Refusal) -> Diagnostic | None:
    if refusal.found != '"':
        return None
    line_end = refusal.text.find("\n", refusal.offset)
    line_end = len(refusal.text) if line_end < 0 else line_end
    line = refusal.text[refusal.offset : line_end]
    closed_string = re.match(r'"(?:[^"\\]++|\\.)*+"', line)
    if closed_string is not None:
        hint = "only annotations take strings" if "LPAR" not in refusal.expected else ""
        return error(
            Rule.SYNTAX,
            span_at(refusal.text, refusal.offset, refusal.offset + closed_string.end()),
            f"found a string, expected {_expected_words(refusal)}",
            hint,
        )
    return error(
        Rule.UNTERMINATED_STRING,
        span_at(refusal.text, refusal.offset, refusal.offset + len(line.rstrip("\r"))),
        "this string is not closed on its line",
        'close it with `"`; write `\\n` for a line break and `\\\\` for a backslash',
    )


def _comma(refusal: _Refusal) -> Diagnostic | None:
    if refusal.found != "," or not {"NAME", "RBRACE"} <= refusal.expected:
        return None
    return refusal.diagnostic(
        Rule.COMMA_BETWEEN_PROPERTIES,
        "properties are separated by white space, not by commas",
        "remove the comma",
    )


def _open_range_star(refusal: _Refusal) -> Diagnostic | None:
    if refusal.found != "*" or not refusal.text[: refusal.offset].rstrip().endswith(".."):
        return None
    return refusal.diagnostic(
        Rule.SYNTAX,
        "found `*`, an open upper bound is written by leaving it out",
        "write `0..` instead of `0..*`",
    )


def _lower_case_type(refusal: _Refusal) -> Diagnostic | None:
    if not {"TYPE_NAME", "ENUM"} <= refusal.expected or not refusal.found[:1].isalpha():
        return None
    return refusal.diagnostic(
        Rule.UNKNOWN_TYPE,
        f"`{_short(refusal.found)}` is not a type",
        type_hint(refusal.found),
    )


def _list_item(refusal: _Refusal) -> Diagnostic | None:
    before = refusal.text[: refusal.offset].rstrip()
    if refusal.expected == {"TYPE_NAME"} and before.endswith("["):
        return refusal.diagnostic(
            Rule.LIST_ITEM,
            "a list holds one base type",
            "write a base type such as `[String]`; lists of lists and enums do not exist",
        )
    if refusal.found == "?" and "RSQB" in refusal.expected:
        return refusal.diagnostic(
            Rule.LIST_ITEM,
            "`?` belongs after the closing `]`",
            "write `[String]?`; items may always be null",
        )
    return None


def _misspelt_declaration(refusal: _Refusal) -> Diagnostic | None:
    if "NODE" not in refusal.expected or not refusal.found[:1].isalpha():
        return None
    if refusal.found == "implements":
        return None
    return refusal.diagnostic(
        Rule.SYNTAX,
        f"found `{_short(refusal.found)}`, expected {_expected_words(refusal)}",
        did_you_mean(refusal.found, DECLARATION_WORDS)
        or "a schema is a list of `node`, `edge` and `interface` declarations",
    )


def _missing_colon(refusal: _Refusal) -> Diagnostic | None:
    if refusal.expected != {"COLON"}:
        return None
    before = _LAST_WORDS.search(refusal.text[max(0, refusal.offset - 300) : refusal.offset])
    name = before.group(1) if before else "name"
    right = refusal.found if refusal.found[:1].isalpha() else "..."
    return refusal.diagnostic(
        Rule.SYNTAX,
        f"{_found_words(refusal)}, expected `:` after `{_short(name)}`",
        f"write `{_short(name)}: {_short(right)}`",
    )


def _metric(refusal: _Refusal) -> Diagnostic | None:
    before = refusal.text[max(0, refusal.offset - 600) : refusal.offset]
    if not _METRIC_EXPECTED.search(before):
        return None
    if refusal.found[:1].isalpha():
        message = f"`{_short(refusal.found)}` is not a metric"
        return refusal.diagnostic(Rule.INDEX_METRIC, message, metric_hint(refusal.found))
    return refusal.diagnostic(
        Rule.SYNTAX, f"{_found_words(refusal)}, expected a metric", metric_hint("")
    )


def metric_hint(word: str) -> str:
    """The metric an author most likely meant by an unknown word."""
    usual = _OTHER_METRICS.get(word.casefold())
    if usual is not None:
        return f"did you mean `{usual}`?"
    return (
        did_you_mean(word, METRICS)
        or f"the metrics are {', '.join(METRICS[:-1])} and {METRICS[-1]}"
    )


def type_hint(word: str) -> str:
    """The type an author most likely meant by an unknown word."""
    usual = _OTHER_LANGUAGES.get(word.casefold())
    if usual is not None:
        return f"did you mean `{usual}`?"
    return (
        did_you_mean(word, (*BASE_TYPE_NAMES, "Decimal", "Vector", "enum"))
        or f"the base types are {', '.join(BASE_TYPE_NAMES)} and Decimal(p, s); "
        "edges join node types"
    )


_EXPLANATIONS: Final[tuple[Callable[[_Refusal], Diagnostic | None], ...]] = (
    _unterminated_comment,
    _string,
    _metric,
    _comma,
    _open_range_star,
    _list_item,
    _lower_case_type,
    _misspelt_declaration,
    _missing_colon,
)


def _sentence(refusal: _Refusal) -> str:
    return f"{_found_words(refusal)}, expected {_expected_words(refusal)}"


def _found_words(refusal: _Refusal) -> str:
    if not refusal.found:
        return "the file ends here"
    return f"found `{_short(refusal.found)}`"


def _short(word: str) -> str:
    return word if len(word) <= 40 else word[:37] + "..."


def _expected_words(refusal: _Refusal) -> str:
    left = set(refusal.expected)
    if "RBRACE" in left:
        # What could follow the last type is never what the author meant.
        left -= {"QUESTION", "LPAR", "EQUAL"}
    parts: list[str] = []
    for terminals, words in _SITUATIONS:
        if terminals <= left:
            parts.append(words)
            left -= terminals
    parts += [words for terminal, words in _IN_WORDS.items() if terminal in left]
    if not parts:
        return "something else"
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"


def _behind_digit(refusal: _Refusal) -> bool:
    return refusal.text[refusal.offset - 1 : refusal.offset].isdigit()


def _general_hint(refusal: _Refusal) -> str:
    word, expected = refusal.found, refusal.expected
    if word and not word.isascii():
        return "names use ASCII letters, digits and `_` only"
    for condition, hint in (
        ("TYPE_NAME" in expected and word[:1].islower(), "type names start with a capital letter"),
        (
            "NAME" in expected and "STRING" not in expected and word[:1].isupper(),
            "property names start with a small letter or `_`",
        ),
        (
            "STRING" in expected and word[:1].isupper(),
            f'write it as a string: `"{_short(word)}"`',
        ),
        ("IMPLEMENTS" in expected and word[:1].isalpha(), did_you_mean(word, ("implements",))),
        (word == "@", "the name follows `@` at once, in small letters: `@key`"),
        (word.startswith("@") and "LBRACE" in expected, _HEADER_ANNOTATION_HINT),
        (word == "implements", "only a node implements interfaces"),
        (word == ".", "a number has digits on both sides of its point: `0.5`"),
        (_behind_digit(refusal) and word[:1] in "eE", "numbers are written without an exponent"),
        (not word and "RBRACE" in expected, "close the body with `}`"),
        (not word and "RPAR" in expected, "close the parenthesis with `)`"),
    ):
        if condition and hint:
            return hint
    return ""


SCHEMA_BYTES_MAX: Final = 16 * 1024 * 1024

CONSTRAINT_WORDS: Final = frozenset({"key", "unique", "index", "range", "check"})
INDEX_WORD: Final = "index"


def parse_schema(text: str) -> ast.Schema | Diagnostic:
    """The tree of a schema text, or the diagnostic of its syntax error."""
    refusal = _refuse_before_parsing(text)
    if refusal is not None:
        return refusal
    try:
        schema = schema_grammar().parse(text)
    except UnexpectedInput:
        return _explain(text)
    assert isinstance(schema, ast.Schema)
    return schema


def lexemes(text: str) -> tuple[Lexeme, ...] | Diagnostic:
    """Every token but white space and comments, or why the text does not parse."""
    refusal = _refuse_before_parsing(text)
    if refusal is not None:
        return refusal
    tokens = lexemes_of(schema_grammar(), text)
    return _explain(text) if tokens is None else tokens


def belongs_to_body(annotation: ast.Annotation) -> bool:
    """Whether this is a constraint of the type, wherever in the body it is written.

    `@index(metric=...)` names no property, so it is about the one in front of it.
    """
    if annotation.arguments is None or annotation.name not in CONSTRAINT_WORDS:
        return False
    return annotation.name != INDEX_WORD or not isinstance(annotation.arguments[0], ast.Keyword)


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
    offset, expected = refused_at(schema_grammar(), text)
    return explain_refusal(text, offset, expected)


GRAMMAR: Final = Grammar(
    package="omnigraph_lake.schema", lexer="contextual", maybe_placeholders=False
)


@functools.cache
def schema_grammar() -> Lark:
    """The parser, which builds the tree while it reads."""
    return GRAMMAR.parser(_TreeBuilder())


def _between(first: Any, last: Any) -> Span:
    return Span(offset=first.start_pos, line=first.line, column=first.column, end=last.end_pos)


def _name(token: Token) -> ast.Name:
    return ast.Name(text=token.value, span=_between(token, token))


_Head: TypeAlias = tuple[ast.Name, ast.TypeExpression, ast.Literal | None]


def _members(items: list[Any]) -> tuple[ast.Member, ...]:
    """Attach every annotation to the preceding property, unless a constraint is in between."""
    members: list[ast.Member] = []
    pending: _Head | None = None
    annotations: list[ast.Annotation] = []
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


def _property(head: _Head, annotations: list[ast.Annotation]) -> ast.PropertyDeclaration:
    name, type_expression, default = head
    return ast.PropertyDeclaration(
        name=name, type=type_expression, annotations=tuple(annotations), default=default
    )


class _TreeBuilder(Transformer[Token, Any]):
    """Builds nodes while the grammar reduces; holds no state, so one instance serves all."""

    def start(self, items: list[Any]) -> ast.Schema:
        return ast.Schema(declarations=tuple(items))

    def interface(self, items: list[Any]) -> ast.InterfaceDeclaration:
        return ast.InterfaceDeclaration(name=_name(items[1]), body=items[2])

    def node(self, items: list[Any]) -> ast.NodeDeclaration:
        implements = items[-2] if items[-2].__class__ is tuple else ()
        return ast.NodeDeclaration(
            name=_name(items[1]),
            annotations=tuple(item for item in items[2:-1] if item.__class__ is ast.Annotation),
            implements=implements,
            body=items[-1],
        )

    def implements(self, items: list[Any]) -> tuple[ast.Name, ...]:
        return tuple(_name(token) for token in items[1:])

    def edge(self, items: list[Any]) -> ast.EdgeDeclaration:
        return ast.EdgeDeclaration(
            name=_name(items[1]),
            sources=items[2],
            targets=items[3],
            annotations=tuple(item for item in items[4:] if item.__class__ is ast.Annotation),
            body=items[-1] if len(items) > 4 and items[-1].__class__ is tuple else None,
        )

    def ends(self, items: list[Any]) -> tuple[ast.Name, ...]:
        return tuple(_name(token) for token in items)

    def body(self, items: list[Any]) -> tuple[ast.Member, ...]:
        return _members(items[:-1])

    def property_head(self, items: list[Any]) -> _Head:
        return _name(items[0]), items[1], items[2] if len(items) > 2 else None

    def default(self, items: list[Any]) -> ast.Literal:
        literal: ast.Literal = items[0]
        return literal

    def type_expression(self, items: list[Any]) -> ast.TypeExpression:
        return ast.TypeExpression(core=items[0], nullable=len(items) > 1)

    def base(self, items: list[Any]) -> ast.BaseType:
        return ast.BaseType(name=items[0].value, sizes=(), span=_between(items[0], items[0]))

    def sized(self, items: list[Any]) -> ast.BaseType:
        return ast.BaseType(
            name=items[0].value,
            sizes=tuple(self.number([token]) for token in items[1:-1]),
            span=_between(items[0], items[-1]),
        )

    def list_of(self, items: list[Any]) -> ast.ListOf:
        return ast.ListOf(item=items[1], span=_between(items[0], items[2]))

    def enum_of(self, items: list[Any]) -> ast.EnumOf:
        values = tuple(_name(token) for token in items[1:-1])
        return ast.EnumOf(values=values, span=_between(items[0], items[-1]))

    def annotation(self, items: list[Any]) -> ast.Annotation:
        token = items[0]
        return ast.Annotation(name=token.value[1:], arguments=None, span=_between(token, token))

    def annotation_with_arguments(self, items: list[Any]) -> ast.Annotation:
        return ast.Annotation(
            name=items[0].value[1:],
            arguments=tuple(items[1:-1]),
            span=_between(items[0], items[-1]),
        )

    def string(self, items: list[Any]) -> ast.StringLiteral:
        return ast.StringLiteral(raw=items[0].value, span=_between(items[0], items[0]))

    def number(self, items: list[Any]) -> ast.NumberLiteral:
        return ast.NumberLiteral(raw=items[0].value, span=_between(items[0], items[0]))

    def word(self, items: list[Any]) -> ast.Word:
        return ast.Word(text=items[0].value, span=_between(items[0], items[0]))

    def range_literal(self, items: list[Any]) -> ast.RangeLiteral:
        high = self.number(items[2:]) if len(items) > 2 else None
        return ast.RangeLiteral(
            low=self.number(items[:1]), high=high, span=_between(items[0], items[-1])
        )

    def range_without_low(self, items: list[Any]) -> ast.RangeLiteral:
        return ast.RangeLiteral(
            low=None, high=self.number(items[1:]), span=_between(items[0], items[-1])
        )

    def keyword(self, items: list[Any]) -> ast.Keyword:
        value = items[1]
        span = Span(
            offset=items[0].start_pos,
            line=items[0].line,
            column=items[0].column,
            end=value.span.end,
        )
        return ast.Keyword(name=_name(items[0]), value=value, span=span)
