"""Query text to syntax tree.

Invariant: any text gives either a tree or exactly one diagnostic; nothing else is raised.
A tree is shallow enough for every recursive function that comes after it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import resources
from typing import Any, Final

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedInput

from omnigraph.language.diagnostics import REFUSED_CHARACTER, Diagnostic, Span, span_at
from omnigraph.language.grammars import refused_at
from omnigraph.query.ast import Clause, ListLiteral, Name, QueryFile
from omnigraph.query.diagnostics import Rule, error
from omnigraph.query.refusals import explain_character, explain_refusal
from omnigraph.query.tokens import WordSorter
from omnigraph.query.tree_building import TreeBuilder

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
