"""Classifies the words of a query text as keyword, name or edge, by their neighbours.

Invariant: tokens are returned in order, each once; only their kind can change.
An edge may be called like an operator and a property like a keyword, so one word alone is
ambiguous, and the grammar has one token of lookahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from lark import Token

KEYWORDS: Final = frozenset(
    {
        *("query", "match", "return", "distinct", "order", "limit", "offset", "optional"),
        *("not", "and", "or", "in", "is", "null", "true", "false"),
        *("contains", "starts_with", "ends_with", "as", "asc", "desc"),
        *("insert", "upsert", "update", "delete", "set", "where"),
    }
)
_NEVER_EDGES: Final = frozenset({"and", "or", "in", "is", "as", "not"})
_OPERATOR_WORDS: Final = frozenset({"contains", "starts_with", "ends_with"})
_NEVER_OPERANDS: Final = frozenset(
    {*_NEVER_EDGES, *_OPERATOR_WORDS, "null", "true", "false", "where", "return"}
)
_COMPARISONS: Final = frozenset(
    {"EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"}
)
_BEFORE_A_NAME: Final = frozenset({"LBRACE", "COMMA", "COLON"})
_BEHIND_A_NAME: Final = frozenset({"RBRACE", "COMMA"})
_NAME: Final = "NAME"
_VARIABLE: Final = "VARIABLE"


class WordSorter:
    """The step between lexer and parser; holds no state, so one instance serves all."""

    always_accept = ()

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """The same tokens, words classified."""
        return iter(sort_words(list(stream)))


def sort_words(tokens: Sequence[Token]) -> list[Token]:
    """Every token with the kind its neighbours give it."""
    parameters: frozenset[str] = frozenset()
    kinds = [str(each.type) for each in tokens]
    for index, token in enumerate(tokens):
        if kinds[index] != _NAME:
            continue
        if token.value == "query" and _kind(tokens, index + 2) == "LPAR":
            parameters = _declared(tokens, index + 3)
        _sort_word(tokens, index, kinds, parameters)
    return [
        token if token.type == kind else token.update(type=kind)
        for token, kind in zip(tokens, kinds, strict=True)
    ]


def _sort_word(
    tokens: Sequence[Token], index: int, kinds: list[str], parameters: frozenset[str]
) -> None:
    undirected = _kind(tokens, index - 1) == "LESS" and _kind(tokens, index + 1) == "GREATER"
    start = index - 1 if undirected else index
    named = _follows_edge_variable(tokens, start)
    if named:
        kinds[start - 2] = "EDGE_VARIABLE"
    if undirected and (named or _kind(tokens, start - 1) == _VARIABLE):
        kinds[index - 1 : index + 2] = ["OPEN_UNDIRECTED", "EDGE_NAME", "CLOSE_UNDIRECTED"]
    elif named or _stands_between_ends(tokens, index, parameters):
        kinds[index] = "EDGE_NAME"
    elif tokens[index].value in KEYWORDS and not _is_plain_name(tokens, index):
        kinds[index] = tokens[index].value.upper()


def _kind(tokens: Sequence[Token], index: int) -> str:
    return str(tokens[index].type) if 0 <= index < len(tokens) else ""


def _value(tokens: Sequence[Token], index: int) -> str:
    return str(tokens[index].value) if 0 <= index < len(tokens) else ""


def _declared(tokens: Sequence[Token], index: int) -> frozenset[str]:
    """The parameters between the parentheses that open in front of `index`."""
    found: set[str] = set()
    depth = 1
    while depth > 0 and index < len(tokens) and _kind(tokens, index) != "LBRACE":
        kind = _kind(tokens, index)
        depth += (kind == "LPAR") - (kind == "RPAR")
        if kind == _VARIABLE:
            found.add(_value(tokens, index))
        index += 1
    return frozenset(found)


def _opens_bounds(tokens: Sequence[Token], index: int) -> bool:
    return _kind(tokens, index) == "LBRACE" and _kind(tokens, index + 1) == "NUMBER"


def _follows_edge_variable(tokens: Sequence[Token], index: int) -> bool:
    return (
        _kind(tokens, index - 1) == "COLON"
        and _kind(tokens, index - 2) == _VARIABLE
        and _kind(tokens, index - 3) == _VARIABLE
    )


def _stands_between_ends(tokens: Sequence[Token], index: int, parameters: frozenset[str]) -> bool:
    word, left = tokens[index].value, _value(tokens, index - 1)
    if _kind(tokens, index - 1) != _VARIABLE or word in _NEVER_EDGES:
        return False
    if _value(tokens, index - 2) == "limit" or (word in _OPERATOR_WORDS and left in parameters):
        return False
    if _kind(tokens, index + 1) == _VARIABLE:
        return True
    # A block may begin with a number: `optional { 1 < $x.age }` has no bounds.
    certain = word not in KEYWORDS or _kind(tokens, index + 3) == "COMMA"
    return certain and _opens_bounds(tokens, index + 1)


def _is_plain_name(tokens: Sequence[Token], index: int) -> bool:
    """Whether a keyword is where only a name can be: a property, an alias, a query."""
    before, after = _value(tokens, index - 1), _kind(tokens, index + 1)
    if _kind(tokens, index - 1) == "DOT" or after == "COLON":
        return True
    alias = before == "as" and _kind(tokens, index - 2) != "DOT"
    if alias or (before == "query" and after == "LPAR"):
        return True
    if tokens[index].value in _NEVER_OPERANDS:
        return False
    closed = after in _BEHIND_A_NAME or _value(tokens, index + 1) in ("asc", "desc")
    alone = closed and _kind(tokens, index - 1) in _BEFORE_A_NAME
    return alone or after in _COMPARISONS
