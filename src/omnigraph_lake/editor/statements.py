"""Statements as they are typed into a shell: their words, their end, and what can follow.

A statement is a query, or the body of one without `query name` around it, which is ad hoc.

Invariants:
- Total: any text gives an answer, however unfinished or wrong it is.
- Every character of a text is in at most one piece, and pieces are in order.
- A statement is never cut within a string, a comment or brackets, and nothing but separators and
  comments is between two of them.
- What can follow is what an editor of query files offers.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from omnigraph_lake.editor.content import Completions, TextRange
from omnigraph_lake.editor.query_document import QueryDocument
from omnigraph_lake.language.diagnostics import Diagnostic
from omnigraph_lake.query.parser import parse_queries
from omnigraph_lake.query.tokens import KEYWORDS
from omnigraph_lake.schema import catalog as ct


class PieceKind(enum.StrEnum):
    """The kinds of words, as an editor colours them."""

    COMMENT = "comment"
    STRING = "string"
    OPEN = "open"
    """A string or a comment that is not closed."""
    NUMBER = "number"
    VARIABLE = "variable"
    ANNOTATION = "annotation"
    TYPE = "type"
    KEYWORD = "keyword"
    NAME = "name"
    SYMBOL = "symbol"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A word, a literal, a comment or a symbol of a text."""

    kind: PieceKind
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


_BODIES: Final = ("match", "insert", "upsert", "replace", "update", "delete")
_STARTS: Final = (*_BODIES, "(")
"""The first words of an ad-hoc text."""
_PIECE: Final = re.compile(
    r"""
      (?P<comment>//[^\n]*|/\*[\s\S]*?\*/)
    | (?P<string>"(?:[^"\\\n]++|\\[^\n])*+")
    | (?P<open>"[^\n]*|/\*[\s\S]*)
    | (?P<number>[0-9]+(?:\.[0-9]+)?)
    | (?P<variable>\$\w*)
    | (?P<annotation>@\w*)
    | (?P<type>[A-Z]\w*)
    | (?P<name>[a-z_]\w*)
    | (?P<symbol>\S)
    """,
    re.VERBOSE | re.ASCII,
)
_WORD: Final = re.compile(r"\$?\w*\Z", re.ASCII)
_OPENING: Final = frozenset("{([")
_CLOSING: Final = frozenset("})]")
_EMPTY_LINE: Final = re.compile(r"\n[ \t\r]*\n")


def pieces(text: str) -> list[Piece]:
    """The words of a text; white space is between them."""
    unsorted = [_piece(match) for match in _PIECE.finditer(text)]
    return [_classify(unsorted, place) for place in range(len(unsorted))]


def _piece(match: re.Match[str]) -> Piece:
    return Piece(kind=PieceKind(str(match.lastgroup)), text=match.group(), start=match.start())


def _classify(unsorted: Sequence[Piece], place: int) -> Piece:
    """Tell keywords from properties that are called like one."""
    piece = unsorted[place]
    if piece.kind is not PieceKind.NAME or piece.text not in KEYWORDS:
        return piece
    if place and unsorted[place - 1].text == ".":
        return piece
    if place + 1 < len(unsorted) and unsorted[place + 1].text == ":":
        return piece
    return Piece(kind=PieceKind.KEYWORD, text=piece.text, start=piece.start)


def split_statements(text: str) -> tuple[list[str], str]:
    """The statements and commands that are complete, and the rest of the text.

    A statement ends with `;` or an empty line, `query name() { ... }` with its last brace, and a
    command, which starts with a backslash, with its line.
    """
    cutter = _Cutter(text)
    match = _PIECE.search(text)
    while match is not None:
        cutter.take(_piece(match))
        match = _PIECE.search(text, max(match.end(), cutter.start))
    cutter.take_gap(len(text))
    statements = [statement.strip() for statement in cutter.statements]
    return [statement for statement in statements if statement], text[cutter.start :]


class _Cutter:
    """Cuts a text into statements, piece by piece."""

    def __init__(self, text: str) -> None:
        self.statements: list[str] = []
        self.start = 0
        """Where the statement begins that is not complete yet."""
        self._text = text
        self._depth = 0
        self._words: list[str] = []
        self._end = 0

    def take(self, piece: Piece) -> None:
        self.take_gap(piece.start)
        self._end = piece.end
        if not self._words and piece.text == "\\":
            self._take_command(piece)
        elif piece.kind is not PieceKind.COMMENT:
            self._take_word(piece)

    def take_gap(self, end: int) -> None:
        """Look for an empty line between the last piece and the next."""
        is_over = self._depth <= 0 and _can_end(self._words)
        if is_over and _EMPTY_LINE.search(self._text, self._end, end):
            self._cut(self._end, following=end)

    def _take_command(self, piece: Piece) -> None:
        self.start = piece.start  # comments in front of it belong to nothing
        line_end = self._text.find("\n", piece.start)
        if line_end < 0:
            self._words = [piece.text]
        else:
            self._cut(line_end, following=line_end + 1)

    def _take_word(self, piece: Piece) -> None:
        self._depth += (piece.text in _OPENING) - (piece.text in _CLOSING)
        is_closed = self._depth <= 0
        if is_closed and piece.text == ";":
            self._cut(piece.start, following=piece.end)
            return
        self._words.append(piece.text)
        if is_closed and piece.text == "}" and self._words[0] == "query":
            self._cut(piece.end, following=piece.end)

    def _cut(self, end: int, *, following: int) -> None:
        self.statements.append(self._text[self.start : end])
        self.start = self._end = following
        self._depth, self._words = 0, []


def _can_end(words: Sequence[str]) -> bool:
    """Whether an empty line ends a statement of these words."""
    if not words or words[0] == "query":
        return False
    body = words[0]
    if body == "(":  # parameters in front of a body
        body = next((word for word in words if word in _BODIES), "match")
    return body != "match" or "return" in words


def is_complete(text: str) -> bool:
    """Whether a text holds whole statements only, right or wrong."""
    _, rest = split_statements(text)
    rest = rest.strip()
    if not rest or rest.startswith("\\"):
        return True
    words = [piece for piece in pieces(rest) if piece.kind is not PieceKind.COMMENT]
    if sum((word.text in _OPENING) - (word.text in _CLOSING) for word in words) > 0:
        return False
    if not words or words[0].text not in _STARTS:
        return not rest.startswith("query")
    refusal = parse_queries(rest)
    is_unfinished = isinstance(refusal, Diagnostic) and refusal.span.offset >= words[-1].end
    return not is_unfinished


def complete_statement(text: str, catalog: ct.Catalog) -> Completions:
    """What can follow at the end of a text, or complete its last word."""
    _, rest = split_statements(text)
    completed = QueryDocument(rest, catalog).completions(len(rest))
    shift = len(text) - len(rest)
    start, end = completed.range.start + shift, completed.range.end + shift
    word = text[start:end]
    return Completions(
        range=TextRange(start=start, end=end),
        items=tuple(
            item
            for item in completed.items
            if item.text.lower().startswith(word.lower()) and item.text != word
        ),
    )
