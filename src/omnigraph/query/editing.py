"""What an editor knows of a query text while it is typed: its words, its end, what can follow.

Invariants:
- Total: any text gives an answer, however unfinished or wrong it is.
- Every character of a text is in at most one piece, and pieces are in order.
- A statement is never cut within a string, a comment or brackets, and nothing but separators and
  comments is between two of them.
- Suggestions are names of the schema and words of the language that the grammar can accept at that
  place; they are help, never a check.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from omnigraph.language.diagnostics import Diagnostic
from omnigraph.query.checks.calls import FUNCTIONS
from omnigraph.query.parser import parse_queries
from omnigraph.query.tokens import KEYWORDS
from omnigraph.schema import catalog as ct
from omnigraph.schema.show import show_type


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A word that can follow, and what it is."""

    text: str
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestions:
    """What can replace the last `length` characters in front of the cursor."""

    length: int
    all: tuple[Suggestion, ...] = ()


STARTS: Final = ("match", "insert", "upsert", "update", "delete")
"""The first words of a body, which a shell accepts without `query name() { ... }` around it."""
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
_SCALARS: Final = tuple(Suggestion(text=scalar.value, about="type") for scalar in ct.Scalar)


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
    return words[0] != "match" or "return" in words


def is_body(text: str) -> bool:
    """Whether a text is a body without `query name() { ... }` around it."""
    words = (piece.text for piece in pieces(text) if piece.kind is not PieceKind.COMMENT)
    return next(words, "") in STARTS


def is_complete(text: str) -> bool:
    """Whether a text holds whole statements only, right or wrong."""
    _, rest = split_statements(text)
    rest = rest.strip()
    if not rest or rest.startswith("\\"):
        return True
    if sum((piece.text in _OPENING) - (piece.text in _CLOSING) for piece in pieces(rest)) > 0:
        return False
    if not is_body(rest):
        return not rest.startswith("query")
    head = "query q() {"
    refusal = parse_queries(f"{head}{rest}\n}}")
    is_unfinished = isinstance(refusal, Diagnostic) and refusal.span.offset >= len(head + rest)
    return not is_unfinished


def suggest(text: str, catalog: ct.Catalog) -> Suggestions:
    """What can follow at the end of a text, or complete its last word."""
    match = _WORD.search(text)
    word = "" if match is None else match.group()
    before = pieces(text[: len(text) - len(word)])
    if before and (before[-1].kind is PieceKind.OPEN or _is_in_line_comment(text, before[-1])):
        return Suggestions(length=len(word))
    before = [piece for piece in before if piece.kind is not PieceKind.COMMENT]
    if not word and before and before[-1].end == len(text) and before[-1].text.isalnum():
        return Suggestions(length=0)
    candidates = _variables(before) if word.startswith("$") else _following(before, catalog)
    wanted = word.lower()
    unique = {candidate.text: candidate for candidate in candidates}
    return Suggestions(
        length=len(word),
        all=tuple(
            candidate
            for candidate in unique.values()
            if candidate.text.lower().startswith(wanted) and candidate.text != word
        ),
    )


def _is_in_line_comment(text: str, last: Piece) -> bool:
    is_line = last.kind is PieceKind.COMMENT and last.text.startswith("//")
    return is_line and "\n" not in text[last.end :]


def _variables(before: Iterable[Piece]) -> Iterator[Suggestion]:
    for piece in before:
        if piece.kind is PieceKind.VARIABLE and len(piece.text) > 1:
            yield Suggestion(text=piece.text, about="variable")


def _following(before: Sequence[Piece], catalog: ct.Catalog) -> Iterator[Suggestion]:
    """What can follow these words."""
    if not before:
        yield from _words("query", *STARTS)
        return
    last = before[-1]
    types = _types_of_variables(before, catalog)
    blocks = _open_blocks(before)
    if last.text == ".":
        variable = before[-2].text if len(before) > 1 else ""
        yield from _properties(catalog, types.get(variable))
    elif last.text in ("insert", "upsert", "update", "delete"):
        yield from _types(catalog, nodes_only=False)
    elif last.text == ":" and len(before) > 1 and before[-2].kind is PieceKind.VARIABLE:
        yield from _behind_colon(before, blocks, catalog, types)
    elif blocks:
        yield from _inside(before, blocks[-1], catalog, types)
    else:
        yield from _outside(before, catalog)


def _behind_colon(
    before: Sequence[Piece], blocks: Sequence[str], catalog: ct.Catalog, types: dict[str, str]
) -> Iterator[Suggestion]:
    """After `$x:`, the type of a parameter or a node, or the edge of a variable."""
    if blocks and blocks[-1] == "(":
        yield from _SCALARS
    elif len(before) > 2 and before[-3].kind is PieceKind.VARIABLE:
        yield from _edges(catalog, types.get(before[-3].text))
    else:
        yield from _types(catalog, nodes_only=True)


def _inside(
    before: Sequence[Piece], block: str, catalog: ct.Catalog, types: dict[str, str]
) -> Iterator[Suggestion]:
    """Within braces; `block` is the word in front of them."""
    last = before[-1]
    if block in catalog.nodes or block in catalog.edges:
        if last.text == ":":
            yield from _functions()
        else:
            yield from _assignable(catalog, block)
        return
    if block == "(":
        yield from _variables_of(types)
        yield from _functions()
        return
    end = before[-2] if last.text == "<" and len(before) > 1 else last
    if end.kind is PieceKind.VARIABLE and block != "return":
        yield from _edges(catalog, types.get(end.text))
    yield from _variables_of(types)
    yield from _functions()
    if block in ("match", "optional", "not"):
        yield from _words("optional", "not", "and", "or", "in", "is", "contains", "starts_with")
    elif block == "order":
        yield from _words("asc", "desc")
    else:
        yield from _words("as")


def _outside(before: Sequence[Piece], catalog: ct.Catalog) -> Iterator[Suggestion]:
    """Outside of all braces, or directly within those of a query."""
    words = [piece.text for piece in before]
    changed = _find_changed_type(words)
    if changed is not None and words[-1] in ("where", "and", "or", "not"):
        yield from _assignable(catalog, changed)
        yield Suggestion(text="true", about="every row")
    elif changed is not None and words[-1] != "}":
        yield from _words("set", "where", "and", "or", "contains", "is", "in", *STARTS[1:])
    elif words[-1] == "{":
        yield from _words(*STARTS)
    elif "return" in words:
        yield from _words("distinct", "order", "limit", "offset")
    elif "match" in words:
        yield from _words("return")
    elif words[-1] == "}":
        yield from _words("where", *STARTS[1:])
    else:
        yield from _words("query", *STARTS)


def _find_changed_type(words: Sequence[str]) -> str | None:
    """The type that the last `update` or `delete` names."""
    for place in range(len(words) - 2, -1, -1):
        if words[place] in ("update", "delete"):
            return words[place + 1]
    return None


def _open_blocks(before: Sequence[Piece]) -> list[str]:
    """For every open bracket what it belongs to: the word in front of a brace, or `(`.

    The braces of a query itself are none of them.
    """
    blocks: list[str] = []
    previous = ""
    updated = ""
    for place, piece in enumerate(before):
        if piece.text in ("{", "["):
            blocks.append(updated if previous == "set" else previous)
        elif piece.text == "(":
            blocks.append("(")
        elif piece.text in _CLOSING and blocks:
            blocks.pop()
        elif place and before[place - 1].text == "update":
            updated = piece.text
        previous = piece.text
    is_query = bool(before) and before[0].text == "query" and blocks[:1] != ["("]
    return blocks[1:] if is_query else blocks


def _types_of_variables(before: Sequence[Piece], catalog: ct.Catalog) -> dict[str, str]:
    """The types of variables: `$p: Person`, and the ends of edges."""
    types: dict[str, str] = {}
    edges = {_spelling(edge): edge for edge in catalog.edges.values()}
    texts = [piece.text for piece in before]
    for place, piece in enumerate(before):
        if piece.kind is PieceKind.TYPE and place > 1 and texts[place - 1] == ":":
            types[texts[place - 2]] = piece.text
        edge = edges.get(piece.text)
        if edge is None or not place:
            continue
        source, variable = place - 1, ""
        if texts[source] == "<":
            source -= 1
        if texts[source] == ":" and source > 1:
            source, variable = source - 2, texts[source - 1]
        if before[source].kind is PieceKind.VARIABLE:
            types.setdefault(texts[source], edge.source)
            types[variable] = edge.name
            target = next(
                (later for later in before[place + 1 :] if later.kind is PieceKind.VARIABLE), None
            )
            if target is not None:
                types.setdefault(target.text, edge.target)
    return types


def _spelling(edge: ct.EdgeType) -> str:
    """An edge type as patterns spell it."""
    return edge.name[:1].lower() + edge.name[1:]


def _types(catalog: ct.Catalog, *, nodes_only: bool) -> Iterator[Suggestion]:
    yield from (Suggestion(text=name, about="node") for name in catalog.nodes)
    if nodes_only:
        yield from (Suggestion(text=name, about="interface") for name in catalog.interfaces)
        return
    for edge in catalog.edges.values():
        yield Suggestion(text=edge.name, about=f"{edge.source} -> {edge.target}")


def _edges(catalog: ct.Catalog, end: str | None) -> Iterator[Suggestion]:
    """Edges that touch a type first; all of them if it is not known."""
    edges = sorted(catalog.edges.values(), key=lambda edge: end is not None and end != edge.source)
    for edge in edges:
        if end is None or end not in catalog.nodes or end in (edge.source, edge.target):
            yield Suggestion(text=_spelling(edge), about=f"{edge.source} -> {edge.target}")


def _properties(catalog: ct.Catalog, type_name: str | None) -> Iterator[Suggestion]:
    known: dict[str, ct.NodeType | ct.EdgeType | ct.InterfaceType] = {
        **catalog.nodes,
        **catalog.edges,
        **catalog.interfaces,
    }
    declared = known.get(type_name or "")
    for entity in known.values() if declared is None else (declared,):
        for prop in entity.properties.values():
            yield _property(prop)
    yield Suggestion(text="id", about="String")


def _assignable(catalog: ct.Catalog, type_name: str) -> Iterator[Suggestion]:
    declared = catalog.nodes.get(type_name) or catalog.edges.get(type_name)
    if declared is None:
        return
    if isinstance(declared, ct.EdgeType):
        yield Suggestion(text="from", about=declared.source)
        yield Suggestion(text="to", about=declared.target)
    yield from map(_property, declared.properties.values())


def _property(prop: ct.Property) -> Suggestion:
    return Suggestion(text=prop.name, about=show_type(prop.type) + "?"[: prop.nullable])


def _variables_of(types: dict[str, str]) -> Iterator[Suggestion]:
    return (Suggestion(text=name, about=kind) for name, kind in types.items() if name)


def _functions() -> Iterator[Suggestion]:
    return (Suggestion(text=name, about=shape.usage) for name, shape in FUNCTIONS.items())


def _words(*words: str) -> Iterator[Suggestion]:
    return (Suggestion(text=word, about="") for word in words)
