"""Reads as much as possible of a query text that is being written.

Every query of the text is read on its own, so that one with an error does not hide the others.
Where the grammar refuses a token, missing tokens are supplied in front of it, or it is skipped.

Invariants:

- Any text is read; nothing is raised.
- Places are those of the text. A name that was supplied is empty.
- A query without a `refusal` has the tree that `parse_queries` gives it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from lark import Token
from lark.parsers.lalr_analysis import Shift

from omnigraph_lake.language.diagnostics import Diagnostic
from omnigraph_lake.language.grammars import Lexeme
from omnigraph_lake.query import ast
from omnigraph_lake.query.parser import (
    QUERIES_MAX,
    query_grammar,
    refuse_before_parsing,
    refuse_too_complex,
)
from omnigraph_lake.query.tokens import KEYWORDS, explain_character, explain_refusal

_LEXICAL: Final = re.compile(
    r"""(?P<comment>//[^\n]*+ | /\*[\s\S]*?\*/)
    | "(?:[^"\\\n]++|\\[^\n])*+"
    | [$@][a-z_][A-Za-z0-9_]*+ | [A-Za-z_][A-Za-z0-9_]*+
    | [0-9]++(?:\.[0-9]++)?(?![A-Za-z0-9_]|\.[0-9])
    | (?P<open_comment>/\*[\s\S]*+) | (?P<open_string>"[^\n]*+)
    | [<>!]= | [<>=+\-*/%:|.?()\[\]{},] | [ \t\r\n]++ | (?P<refused>.)""",
    re.VERBOSE,
)
_END: Final = "$END"
_SUPPLIED: Final = {
    "RPAR": ")",
    "RSQB": "]",
    "RBRACE": "}",
    "NULL": "null",
    "VARIABLE": "$",
    "NAME": "",
    "TYPE_NAME": "",
    "EDGE_NAME": "",
    "STRING": '""',
    "NUMBER": "0",
    "COLON": ":",
    "LBRACE": "{",
    "LPAR": "(",
    "RETURN": "return",
    "MATCH": "match",
    "WHERE": "where",
    "SET": "set",
}
"""Tokens that may be supplied, the more likely ones first."""
_SUPPLIED_MAX: Final = 3
_SUPPLIED_AT_END_MAX: Final = 16
_TRIALS_MAX: Final = 40_000
_TRIALS_FOR_TOKEN_MAX: Final = 400
"""How many sequences of supplied tokens are tried, in a text and in front of one token."""
_REPAIRS_MAX: Final = 50
"""After so many errors the rest of a query is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredQuery:
    """What was read of one query, or of the text in front of the first one.

    `tokens` are those of the text, classified; `refusal` is its syntax error.
    """

    tokens: tuple[Lexeme, ...]
    declaration: ast.QueryDeclaration | None
    refusal: Diagnostic | None


def recover_queries(text: str) -> tuple[RecoveredQuery, ...]:
    """Every query of a text, in source order."""
    if refuse_before_parsing(text) is not None:
        return ()
    readable, refused = _readable(text)
    pieces = list(islice(_pieces(_tokens(readable)), QUERIES_MAX))
    trials = _Trials()
    starts = [int(piece[0].start_pos or 0) for piece in pieces]
    queries: list[RecoveredQuery] = []
    for piece, start, end in zip(pieces, starts, [*starts[1:], len(text)], strict=bool(pieces)):
        reading = _Reading(end, trials)
        reading.feed_all(piece)
        character = next((offset for offset in refused if start <= offset < end), None)
        refusal: Diagnostic | None = None
        if character is not None:
            refusal = explain_character(text, character)
        elif reading.refused_at is not None:
            refusal = explain_refusal(text, *reading.refused_at)
        queries.append(
            RecoveredQuery(
                tokens=_lexemes(piece), declaration=reading.declaration(), refusal=refusal
            )
        )
    return tuple(queries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """What may follow a place of a text: kinds of tokens; and the tokens of its query before it."""

    expected: frozenset[str]
    before: tuple[Lexeme, ...]


def continuation_at(text: str, offset: int) -> Continuation:
    """What may follow a place that is not within a token or a comment."""
    readable, _ = _readable(text[:offset])
    # Whether a word is an edge depends on what follows it: here that can only be the other end.
    last_word = re.search(r"(?<![$@\w])[a-z_]\w*\s*$", readable)
    is_name = last_word is not None and last_word.group().strip() not in KEYWORDS
    tokens = _tokens(readable + " $_" if is_name else readable)
    pieces = list(_pieces(tokens[:-1] if is_name else tokens))
    before = pieces[-1] if pieces else []
    reading = _Reading(offset, _Trials())
    for token in before:
        reading.feed(token)
    return Continuation(expected=reading.accepts(), before=_lexemes(before))


def _readable(text: str) -> tuple[str, list[int]]:
    """The text with spaces in place of what no token contains, and where that is."""
    parts: list[str] = []
    refused: list[int] = []
    for lexical in _LEXICAL.finditer(text):
        word = lexical.group()
        match lexical.lastgroup:
            case "open_string" if len(word.rstrip("\r")) > 1:
                refused.append(lexical.start())
                closed = word.rstrip("\r")
                inner = closed[1:-1].replace("\\", " ").replace('"', " ")
                word = f'"{inner}"'.ljust(len(word))
            case "open_string" | "open_comment" | "refused":
                refused.append(lexical.start())
                word = " " * len(word)
            case _:
                pass
        parts.append(word)
    return "".join(parts), refused


def _tokens(readable: str) -> list[Token]:
    interactive: Any = query_grammar().parse_interactive(readable)
    return list(interactive.lexer_thread.lex(interactive.parser_state))


def _lexemes(tokens: Sequence[Token]) -> tuple[Lexeme, ...]:
    return tuple(
        Lexeme(
            kind=token.type,
            text=str(token),
            offset=int(token.start_pos or 0),
            end=int(token.end_pos or 0),
        )
        for token in tokens
    )


def _pieces(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """The tokens of each query; those in front of the first one are a piece as well."""
    piece: list[Token] = []
    for token in tokens:
        if token.type == "QUERY" and piece:
            yield piece
            piece = []
        piece.append(token)
    if piece:
        yield piece


class _Reading:
    """The state of the parser of one query, and the first token that it refused."""

    def __init__(self, end: int, trials: _Trials) -> None:
        self.refused_at: tuple[int, frozenset[str]] | None = None
        self._parser: Any = query_grammar().parse_interactive("")
        self._table: Any = self._parser.parser_state.parse_conf
        self._trials = trials
        self._end = end
        self._repairs = 0
        self._result: Any = None

    def feed_all(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            self.feed(token)
        self.feed(Token(_END, "", start_pos=self._end, line=1, column=1, end_pos=self._end))

    def feed(self, token: Token) -> None:
        if self._repairs > _REPAIRS_MAX and token.type != _END:
            return
        if not self._takes((token.type,)):
            self._repairs += 1
            if self.refused_at is None:
                offset = int(token.start_pos or 0)
                self.refused_at = offset, self.accepts()
            supplied = self._supply(token.type)
            if supplied is None:
                return
            for kind in supplied:
                self._parser.feed_token(_make_token(kind, token))
        self._result = self._parser.feed_token(token)

    def accepts(self) -> frozenset[str]:
        return frozenset(self._parser.accepts())

    def declaration(self) -> ast.QueryDeclaration | None:
        parsed = self._result
        if not isinstance(parsed, ast.QueryFile) or refuse_too_complex(parsed) is not None:
            return None
        return parsed.queries[0] if parsed.queries else None

    def _takes(self, kinds: Sequence[str]) -> bool:
        """Whether tokens of these kinds are accepted one after the other; changes nothing."""
        below: list[Any] = self._parser.parser_state.state_stack
        height, pushed = len(below), list[Any]()
        for kind in kinds:
            while True:
                state = pushed[-1] if pushed else below[height - 1]
                action, target = self._table.states[state].get(kind, (None, None))
                if action is None:
                    return False
                if action is Shift:
                    pushed.append(target)
                    break
                popped = min(len(target.expansion), len(pushed))
                del pushed[len(pushed) - popped :]
                height -= len(target.expansion) - popped
                state = pushed[-1] if pushed else below[height - 1]
                pushed.append(self._table.states[state][target.origin.name][1])
                if kind == _END and pushed[-1] == self._table.end_state:
                    break
        return True

    def _supply(self, wanted: str) -> tuple[str, ...] | None:
        """The tokens after which the wanted one is accepted; None if there are no likely ones."""
        self._trials.start()
        if wanted == _END:
            return self._search((), wanted, _SUPPLIED_AT_END_MAX)
        for count in range(1, _SUPPLIED_MAX + 1):
            supplied = self._search((), wanted, count)
            if supplied is not None:
                return supplied
        return None

    def _search(self, supplied: tuple[str, ...], wanted: str, left: int) -> tuple[str, ...] | None:
        if supplied and self._takes((*supplied, wanted)):
            return supplied
        if left == 0:
            return None
        for kind in _SUPPLIED:
            if not self._trials.spend():
                return None
            if self._takes((*supplied, kind)):
                longer = self._search((*supplied, kind), wanted, left - 1)
                if longer is not None:
                    return longer
        return None


class _Trials:
    """How many more sequences of supplied tokens may be tried: for a text, and for one token."""

    def __init__(self) -> None:
        self._left, self._left_for_token = _TRIALS_MAX, 0

    def start(self) -> None:
        """Begin the search in front of another token."""
        self._left_for_token = min(_TRIALS_FOR_TOKEN_MAX, self._left)

    def spend(self) -> bool:
        self._left -= 1
        self._left_for_token -= 1
        return self._left_for_token >= 0


def _make_token(kind: str, following: Token) -> Token:
    place = following.start_pos
    return Token(
        kind,
        _SUPPLIED[kind],
        start_pos=place,
        line=following.line,
        column=following.column,
        end_line=following.line,
        end_column=following.column,
        end_pos=place,
    )
