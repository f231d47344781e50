"""The canonical layout of a query text.

The body of a query, and an ad-hoc text, has one part on each line. A block, and a list of
arguments, is written on one line if it fits there; `match` with several clauses never is. A
condition that is too long is divided in front of its `and` or `or`.

Invariant: only white space changes. Every token and every comment keeps its order, so the
formatted text means the same, and formatting it again changes nothing.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from omnigraph_lake.errors import QueryInvalidError
from omnigraph_lake.language.diagnostics import Diagnostic
from omnigraph_lake.language.grammars import Lexeme
from omnigraph_lake.query import ast
from omnigraph_lake.query.parser import lexemes, parse_queries

WIDTH_MAX: Final = 100
_INDENT: Final = "    "
_COMMENT: Final = re.compile(r"//[^\n]*|/\*[\s\S]*?\*/")
_PARTS: Final = frozenset({"MATCH", "RETURN", "HAVING", "ORDER", "LIMIT", "OFFSET"})
_OPENING: Final = frozenset({"LBRACE", "LPAR", "LSQB"})
_CLOSING: Final = frozenset({"RBRACE", "RPAR", "RSQB"})
_TIGHT_BEFORE: Final = frozenset(
    {"COMMA", "COLON", "DOT", "PIPE", "QUESTION", "RPAR", "RSQB", "FORWARD"}
)
_TIGHT_AFTER: Final = frozenset({"DOT", "PIPE", "LPAR", "LSQB", "BACKWARD"})
_CALLED: Final = frozenset({"NAME", "TYPE_NAME", "ANNOTATION"})
_EDGE_ENDS: Final = frozenset({"EDGE_NAME", "FORWARD"})
_OPERAND_ENDS: Final = frozenset(
    {
        "NAME",
        "VARIABLE",
        "NUMBER",
        "STRING",
        "TRUE",
        "FALSE",
        "NULL",
        "RPAR",
        "RSQB",
        "RBRACE",
        "END",
    }
)


def format_queries(text: str, *, filename: str = "query") -> str:
    """The text in canonical layout.

    Raises:
        QueryInvalidError: if the text does not parse; other errors do not matter here.
    """
    parsed = parse_queries(text)
    tokens = parsed if isinstance(parsed, Diagnostic) else lexemes(text)
    if isinstance(tokens, Diagnostic):
        raise QueryInvalidError(filename, (tokens,), text=text)
    assert isinstance(parsed, ast.QueryFile)
    gaps = _gaps(text, tokens)
    structure = _Structure(tokens, gaps, items=_item_starts(parsed, tokens))
    return _Printer(tokens, gaps, structure).text()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comment:
    """A comment and the number of line breaks in front of it."""

    text: str
    breaks: int

    @property
    def ends_line(self) -> bool:
        return self.text.startswith("//")

    @property
    def divides(self) -> bool:
        """Whether what it is in cannot be one line."""
        return self.breaks > 0 or self.ends_line or "\n" in self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gap:
    """What is in front of a token; `breaks` are those between it and the last comment."""

    comments: tuple[_Comment, ...]
    breaks: int


def _gaps(text: str, tokens: Sequence[Lexeme]) -> list[_Gap]:
    """The gap in front of each token, and the one at the end of the text."""
    gaps: list[_Gap] = []
    end = 0
    for offset, next_end in [*((token.offset, token.end) for token in tokens), (len(text), 0)]:
        comments: list[_Comment] = []
        for comment in _COMMENT.finditer(text, end, offset):
            shown = "\n".join(line.rstrip() for line in comment.group().split("\n"))
            breaks = text.count("\n", end, comment.start())
            comments.append(_Comment(text=shown, breaks=breaks))
            end = comment.end()
        gaps.append(_Gap(comments=tuple(comments), breaks=text.count("\n", end, offset)))
        end = next_end
    return gaps


def _item_starts(parsed: ast.QueryFile, tokens: Sequence[Lexeme]) -> frozenset[int]:
    """The tokens that begin a clause, a column, a key, an assignment, a statement or a part."""
    place_of = {token.offset: place for place, token in enumerate(tokens)}
    starts = {place for place, token in enumerate(tokens) if token.kind in _PARTS}
    for query in parsed.queries:
        for offset in _item_offsets(query.body):
            place = place_of[offset]
            # The place of an expression is that of what its parentheses contain.
            while tokens[place - 1].kind == "LPAR":
                place -= 1
            starts.add(place)
    return frozenset(starts)


def _item_offsets(body: ast.ReadBody | ast.WriteBody | ast.MatchedWriteBody) -> Iterator[int]:
    if isinstance(body, ast.MatchedWriteBody):
        yield from _clause_offsets(body.clauses)
    if isinstance(body, ast.ReadBody):
        yield from _clause_offsets(body.clauses)
        for projection in body.projections:
            yield projection.expression.span.offset
            yield from _offsets_within(projection.expression)
        for ordering in body.orderings:
            yield ordering.span.offset
            yield from _offsets_within(ordering.expression)
        return
    for statement in body.statements:
        yield statement.span.offset
        if not isinstance(statement, ast.Delete | ast.MatchedDelete):
            yield from (assignment.name.span.offset for assignment in statement.assignments)


def _clause_offsets(clauses: Sequence[ast.Clause]) -> Iterator[int]:
    for clause in clauses:
        yield clause.span.offset
        if isinstance(clause, ast.Binding):
            yield from (match.name.span.offset for match in clause.matches)
        elif isinstance(clause, ast.NotBlock | ast.OptionalBlock):
            yield from _clause_offsets(clause.clauses)
        elif isinstance(clause, ast.Filter):
            yield from _offsets_within(clause.condition)


def _offsets_within(expression: ast.Expression | ast.AllOf) -> Iterator[int]:
    """The clauses of the sub-patterns of an expression."""
    for sub_pattern in ast.sub_patterns_of(expression):
        yield from _clause_offsets(sub_pattern.clauses)


class _Shape(enum.Enum):
    """What a group of tokens is."""

    FILE = "queries"
    HEADER = "annotations, between the parameters and the body of a query"
    BLOCK = "items in braces"
    LIST = "arguments in parentheses or brackets"
    CONDITION = "operands of `and` or `or`"


_KEEPS_BLANK_LINES: Final = frozenset({_Shape.FILE, _Shape.BLOCK})


@dataclass(slots=True, kw_only=True)
class _Group:
    """Tokens that are on one line, or on several; `broken` is None until that is decided."""

    shape: _Shape
    first: int
    last: int = -1
    broken: bool | None = None


@dataclass(slots=True, kw_only=True)
class _Frame:
    """A bracket that is open, and the part of a condition that is read in it."""

    group: _Group
    items: list[int] = field(default_factory=list)
    item_start: int
    junctions: list[int] = field(default_factory=list)
    item_divided: bool = False


class _Structure:
    """The groups of a text: which begin at a token, and which one breaks the line before it."""

    def __init__(
        self, tokens: Sequence[Lexeme], gaps: Sequence[_Gap], *, items: frozenset[int]
    ) -> None:
        self.items = items
        self.bounds = _bounds(tokens)
        self.groups: dict[int, list[_Group]] = {}
        self.breakers: dict[int, _Group] = {}
        self._tokens = tokens
        self._frames: list[_Frame] = []
        self._header: _Group | None = None
        self._file = _Group(shape=_Shape.FILE, first=-2, last=len(tokens), broken=True)
        self.breakers[len(tokens)] = self._file
        is_adhoc = bool(tokens) and tokens[0].kind != "QUERY"
        if is_adhoc:
            self._open_adhoc(len(tokens))
        for place, token in enumerate(tokens):
            self._read(place, token, divides=any(map(_divides, gaps[place].comments)))
        if is_adhoc:
            self._close_adhoc(len(tokens))

    def _open_adhoc(self, end: int) -> None:
        """Begin a body that has no braces around it."""
        group = _Group(shape=_Shape.BLOCK, first=-2, last=end, broken=True)
        self._frames.append(_Frame(group=group, item_start=0))
        self.breakers[0] = group

    def _close_adhoc(self, end: int) -> None:
        self._end_condition(end)
        (frame,) = self._frames
        for item in frame.items:
            self.breakers.setdefault(item, frame.group)

    def _read(self, place: int, token: Lexeme, *, divides: bool) -> None:
        if token.kind == "QUERY":
            self.breakers[place] = self._file
        if place in self.items or token.kind in _CLOSING:
            self._end_condition(place)
        if divides:
            self._divide()
        if place in self.items:
            frame = self._frames[-1]
            frame.items.append(place)
            frame.item_start, frame.item_divided = place, False
        if place not in self.bounds:
            self._read_kind(place, token)

    def _read_kind(self, place: int, token: Lexeme) -> None:
        if token.kind in _OPENING:
            self._open(place, token)
        elif token.kind in _CLOSING:
            self._close(place)
        elif not self._frames:
            self._read_header(place, token)
        elif token.kind in ("AND", "OR"):
            self._frames[-1].junctions.append(place)
        elif token.kind == "COMMA" and self._frames[-1].group.shape is _Shape.LIST:
            self._end_condition(place)
            self._frames[-1].items.append(place + 1)
            self._frames[-1].item_start = place + 1

    def _read_header(self, place: int, token: Lexeme) -> None:
        if token.kind == "ANNOTATION" and self._header is not None:
            self._header.broken = True
            self.breakers[place] = self._header

    def _divide(self) -> None:
        for frame in self._frames:
            frame.group.broken = True
            frame.item_divided = True
        if not self._frames and self._header is not None:
            self._header.broken = True

    def _open(self, place: int, token: Lexeme) -> None:
        is_body = not self._frames and token.kind == "LBRACE"
        if is_body and self._header is not None:
            self._header.last = place - 1
            self._header.broken = bool(self._header.broken)
            self._add(self._header)
            self.breakers[place] = self._header
            self._header = None
        shape = _Shape.BLOCK if token.kind == "LBRACE" else _Shape.LIST
        group = _Group(shape=shape, first=place, broken=True if is_body else None)
        frame = _Frame(group=group, item_start=place + 1)
        if shape is _Shape.LIST:
            frame.items.append(place + 1)
        self._frames.append(frame)

    def _close(self, place: int) -> None:
        frame = self._frames.pop()
        group, opening = frame.group, frame.group.first
        group.last = place
        before = self._tokens[opening - 1].kind if opening else "NAME"
        if not self._frames and group.shape is _Shape.LIST and before == "NAME":
            self._header = _Group(shape=_Shape.HEADER, first=place)
        if place == opening + 1 or not self._can_break(group, before):
            return
        if before == "MATCH" and len(frame.items) > 1:
            group.broken = True
        self._add(group)
        for item in (*frame.items, place):
            self.breakers.setdefault(item, group)

    def _can_break(self, group: _Group, before: str) -> bool:
        """Parentheses around an expression stay with it, as do those of types and annotations."""
        if self._tokens[group.first].kind != "LPAR":
            return True
        return before == "NAME" and group.first not in self.items

    def _end_condition(self, place: int) -> None:
        """Make a group of the condition that ends before a token, if it has operands."""
        if not self._frames:
            return
        frame = self._frames[-1]
        kinds = {self._tokens[junction].kind for junction in frame.junctions}
        if kinds:
            group = _Group(
                shape=_Shape.CONDITION,
                first=frame.item_start,
                last=place - 1,
                broken=True if frame.item_divided else None,
            )
            self._add(group)
            outermost = "OR" if "OR" in kinds else "AND"
            for junction in frame.junctions:
                if self._tokens[junction].kind == outermost:
                    self.breakers[junction] = group
        frame.junctions, frame.item_divided = [], False

    def _add(self, group: _Group) -> None:
        self.groups.setdefault(group.first, []).append(group)


def _divides(comment: _Comment) -> bool:
    return comment.divides


def _bounds(tokens: Sequence[Lexeme]) -> frozenset[int]:
    """The tokens of bounds of hops, such as `{1,3}`."""
    bounds: set[int] = set()
    for place, token in enumerate(tokens):
        if token.kind == "LBRACE" and tokens[place - 1].kind in _EDGE_ENDS:
            end = place
            while tokens[end].kind != "RBRACE":
                end += 1
            bounds.update(range(place, end + 1))
    return frozenset(bounds)


class _Printer:
    """The text written so far and the state that the next token needs."""

    def __init__(
        self, tokens: Sequence[Lexeme], gaps: Sequence[_Gap], structure: _Structure
    ) -> None:
        self._tokens = tokens
        self._gaps = gaps
        self._structure = structure
        self._written: list[str] = []
        self._column = 0
        self._open: list[_Group] = []

    def text(self) -> str:
        for place, token in enumerate(self._tokens):
            self._open = [group for group in self._open if group.last >= place]
            self._write_gap(place)
            for group in sorted(self._structure.groups.get(place, ()), key=_outermost_first):
                self._decide(group)
                self._open.append(group)
            self._write(token.text)
        self._open.clear()
        self._write_gap(len(self._tokens))
        return "".join(self._written) + "\n" if self._written else ""

    def _write(self, text: str) -> None:
        self._written.append(text)
        last_line = text.rpartition("\n")[2]
        self._column = len(last_line) + (0 if "\n" in text else self._column)

    def _write_gap(self, place: int) -> None:
        """Write the comments in front of a token, and the line break or the spaces."""
        gap, breaker = self._gaps[place], self._structure.breakers.get(place)
        starts_line = breaker is not None and breaker.broken is True
        closes = starts_line and breaker is not None and breaker.last == place
        inside = sum(group.broken is True for group in self._open)
        depth = inside if starts_line else inside + 1
        blank_lines = _BlankLines(breaker, place) if starts_line else None
        for comment in gap.comments:
            if self._written and comment.breaks == 0:
                self._write(" ")
            elif self._written:
                self._break_line(depth, blank=_allows(blank_lines, comment.breaks))
            self._write(comment.text)
        if place == len(self._tokens) or not self._written:
            return
        last = gap.comments[-1] if gap.comments else None
        begins_line = last is not None and (last.breaks > 0 or len(self._written) == 1)
        if begins_line and gap.breaks == 0 and not closes:
            self._write(" ")
        elif starts_line or begins_line or (last is not None and last.ends_line):
            is_blank = _allows(blank_lines, gap.breaks) and not closes
            self._break_line(depth - 1 if closes else depth, blank=is_blank)
        else:
            self._write(" " * (self._spaces(place) if last is None else 1))

    def _break_line(self, depth: int, *, blank: bool) -> None:
        self._write(("\n\n" if blank else "\n") + _INDENT * depth)

    def _decide(self, group: _Group) -> None:
        if group.broken is not None:
            return
        is_inside_line = bool(self._open) and self._open[-1].broken is False
        group.broken = not (is_inside_line or self._fits(group))

    def _fits(self, group: _Group) -> bool:
        """Whether the group, and what follows it on its line, ends before the line is too long."""
        width = self._column
        for place in range(group.first, len(self._tokens)):
            if place > group.first:
                breaker = self._structure.breakers.get(place)
                if place > group.last and breaker is not None and breaker.broken is True:
                    break
                comments = self._gaps[place].comments
                width += sum(len(comment.text) + 1 for comment in comments if not comment.divides)
                width += 1 if comments else self._spaces(place)
            width += len(self._tokens[place].text)
            if width > WIDTH_MAX:
                return False
        return True

    def _spaces(self, place: int) -> int:
        """How many spaces are in front of a token that does not begin a line."""
        before, kind = self._tokens[place - 1].kind, self._tokens[place].kind
        if place in self._structure.bounds:
            return 0
        if place in self._structure.items:
            return 1 if before in ("LBRACE", "COMMA") else 2
        is_tight = (
            kind in _TIGHT_BEFORE
            or before in _TIGHT_AFTER
            or (before == "LBRACE" and kind == "RBRACE")
            or (kind == "LPAR" and before in _CALLED)
            or (before == "MINUS" and self._is_sign(place - 1))
        )
        return 0 if is_tight else 1

    def _is_sign(self, place: int) -> bool:
        is_item = place in self._structure.items
        return is_item or self._tokens[place - 1].kind not in _OPERAND_ENDS


class _BlankLines:
    """Which line breaks in front of a token are followed by an empty line.

    Queries are divided by one. Elsewhere one that was written stays, between items of a block.
    """

    def __init__(self, breaker: _Group | None, place: int) -> None:
        shape = None if breaker is None else breaker.shape
        self._stay = shape in _KEEPS_BLANK_LINES
        self._divides_queries = shape is _Shape.FILE and place > 0
        self._follows_opening = breaker is not None and breaker.first + 1 == place
        self._is_first = True

    def allow(self, breaks: int) -> bool:
        is_first, self._is_first = self._is_first, False
        if is_first and (self._divides_queries or self._follows_opening):
            return self._divides_queries
        return self._stay and breaks > 1


def _allows(blank_lines: _BlankLines | None, breaks: int) -> bool:
    return blank_lines is not None and blank_lines.allow(breaks)


def _outermost_first(group: _Group) -> int:
    return -group.last
