"""The canonical layout of a schema text.

Invariant: only white space changes. Every token and every comment keeps its order, so the
formatted text means the same, and formatting it again changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from omnigraph_lake.errors import SchemaInvalidError
from omnigraph_lake.language.diagnostics import Diagnostic
from omnigraph_lake.language.grammars import Lexeme
from omnigraph_lake.schema.parser import CONSTRAINT_WORDS, INDEX_WORD, lexemes

_INDENT: Final = "    "
_COMMENT: Final = re.compile(r"//[^\n]*|/\*[\s\S]*?\*/")
_TIGHT_BEFORE: Final = frozenset(
    {"COLON", "COMMA", "LPAR", "RPAR", "QUESTION", "RSQB", "DOTS", "EQUAL"}
)
_TIGHT_AFTER: Final = frozenset({"LPAR", "LSQB", "DOTS", "EQUAL"})
_DEFAULT: Final = "DEFAULT"
_DECLARATIONS: Final = frozenset({"INTERFACE", "NODE", "EDGE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """A token or a comment with the number of line breaks in front of it.

    `kind` is the grammar's name of the token, `//` or `/*`. `starts_line` marks what begins a
    line of its own; a comment takes it over from the token that follows.
    """

    kind: str
    text: str
    breaks: int
    starts_line: bool


def format_schema(text: str, *, filename: str = "schema") -> str:
    """The text in canonical layout.

    Raises:
        SchemaInvalidError: if the text does not parse; other errors do not matter here.
    """
    tokens = lexemes(text)
    if isinstance(tokens, Diagnostic):
        raise SchemaInvalidError(filename, (tokens,), text=text)
    layout = _Layout()
    for piece in _pieces(text, tokens):
        layout.add(piece)
    return layout.text()


def _pieces(text: str, tokens: Sequence[Lexeme]) -> Iterator[_Piece]:
    starts = _line_starts(tokens)
    end = 0
    in_parentheses = False
    for token, starts_line in zip(tokens, starts, strict=True):
        in_parentheses = token.kind != "RPAR" and (in_parentheses or token.kind == "LPAR")
        for comment in _COMMENT.finditer(text, end, token.offset):
            yield _comment_piece(text, end, comment, starts_line=starts_line)
            end = comment.end()
        yield _Piece(
            kind=_DEFAULT if token.kind == "EQUAL" and not in_parentheses else token.kind,
            text=token.text,
            breaks=text.count("\n", end, token.offset),
            starts_line=starts_line,
        )
        end = token.end
    for comment in _COMMENT.finditer(text, end):
        yield _comment_piece(text, end, comment, starts_line=True)
        end = comment.end()


def _comment_piece(
    text: str, previous_end: int, comment: re.Match[str], *, starts_line: bool
) -> _Piece:
    lines = comment.group().split("\n")
    return _Piece(
        kind=comment.group()[:2],
        text="\n".join(line.rstrip() for line in lines),
        breaks=text.count("\n", previous_end, comment.start()),
        starts_line=starts_line,
    )


def _line_starts(tokens: Sequence[Lexeme]) -> list[bool]:
    """Which tokens begin a declaration, a property or a body constraint, or close a body."""
    starts: list[bool] = []
    in_body = in_parentheses = in_property = False
    for place, token in enumerate(tokens):
        first = token.kind in _DECLARATIONS or token.kind == "RBRACE"
        if in_body and not in_parentheses:
            if token.kind == "NAME" and tokens[place - 1].kind != "EQUAL":
                first = in_property = True
            elif token.kind == "ANNOTATION" and (
                not in_property or _is_body_constraint(token, tokens[place + 1 : place + 4])
            ):
                first, in_property = True, False
        in_body = token.kind == "LBRACE" or (in_body and token.kind != "RBRACE")
        in_property = in_property and in_body
        in_parentheses = token.kind == "LPAR" or (in_parentheses and token.kind != "RPAR")
        starts.append(first)
    return starts


def _is_body_constraint(annotation: Lexeme, following: Sequence[Lexeme]) -> bool:
    kinds = [lexeme.kind for lexeme in following]
    word = annotation.text[1:]
    if word not in CONSTRAINT_WORDS or kinds[:1] != ["LPAR"]:
        return False
    return word != INDEX_WORD or kinds != ["LPAR", "NAME", "EQUAL"]


class _Layout:
    """The lines written so far and the state that the next piece needs."""

    def __init__(self) -> None:
        self._written: list[str] = []
        self._previous: _Piece | None = None
        self._depth = 0
        self._only_comments_on_line = True
        self._after_body = False

    def add(self, piece: _Piece) -> None:
        is_comment = piece.kind in ("//", "/*")
        if piece.kind == "RBRACE":
            self._depth -= 1
        breaks = self._comment_breaks(piece) if is_comment else self._token_breaks(piece)
        if breaks:
            self._break_line(piece)
        elif self._previous is not None and not _tight(self._previous, piece):
            self._written.append(" ")
        self._written.append(piece.text)
        self._only_comments_on_line = is_comment and (breaks or self._only_comments_on_line)
        if piece.kind == "LBRACE":
            self._depth += 1
        if piece.kind == "RBRACE":
            self._after_body = breaks
        self._previous = piece

    def text(self) -> str:
        return "".join(self._written) + "\n" if self._written else ""

    def _comment_breaks(self, piece: _Piece) -> bool:
        assert self._previous is not None or not self._written
        return self._previous is not None and (piece.breaks > 0 or self._previous.kind == "//")

    def _token_breaks(self, piece: _Piece) -> bool:
        previous = self._previous
        if previous is None:
            return False
        if previous.kind == "//":
            return True
        if piece.kind == "RBRACE":
            return previous.kind != "LBRACE"
        shares_line = self._only_comments_on_line and piece.breaks == 0
        return piece.starts_line and not shares_line

    def _break_line(self, piece: _Piece) -> None:
        assert self._previous is not None
        at_edge = self._previous.kind == "LBRACE" or piece.kind == "RBRACE"
        blank = (piece.breaks > 1 and not at_edge) or self._after_body
        self._after_body = False
        depth = self._depth if piece.starts_line else self._depth + 1
        self._written.append(("\n\n" if blank else "\n") + _INDENT * depth)


def _tight(previous: _Piece, piece: _Piece) -> bool:
    if previous.kind == "LBRACE" and piece.kind == "RBRACE":
        return True
    if piece.kind in ("//", "/*") or previous.kind == "/*":
        return False
    if previous.kind == "COMMA":
        return False
    return piece.kind in _TIGHT_BEFORE or previous.kind in _TIGHT_AFTER
