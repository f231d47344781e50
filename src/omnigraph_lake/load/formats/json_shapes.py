"""Read JSON lines that look alike, many at once, as columns.

Programs write all records of a type with the same names in the same order. The shape of such
records is what they share: literal bytes, with values between them. A shape is learned from one
line. Then the literals are compared and the values are cut out in all lines together: no Python
object is made for a line, and the work is done by NumPy and Arrow, block by block.

Why a line that has a shape is a record of its type with these values: the line that the shape was
learned from is one JSON object whose names are known and occur once. Another line of the shape
differs only in its values. A value between quotes is valid UTF-8 and has no control character and
no quote that is not escaped, so it is a JSON string; if it has escapes, it is decoded as such.
Every other value is compared with the grammar of its column's type.

Invariants:
- A row means what the slow reading would make of its line. A line without a row is not refused: it
  is read in another way.
- A shape says which columns its records mention, so null is distinguished from absent.
- What is learned is bounded: a shape that few lines of a block have is not used, and forgotten.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph_lake.load.formats import json_record
from omnigraph_lake.load.formats.json_record import DecodedRows, WireColumn, WireType
from omnigraph_lake.load.formats.splits import BlockLines
from omnigraph_lake.load.formats.values import (
    Mask,
    Spelling,
    spelled_column,
    spelling_of,
    unescape,
)
from omnigraph_lake.names import ID_COLUMN

Indexes: TypeAlias = npt.NDArray[np.int64]
Span: TypeAlias = tuple[Indexes, Indexes]
"""Where values begin and end in a block, one per row."""

# In one block: lines that shapes are learned from, and shapes that few lines turned out to have.
_LEARNED_MAX: Final = 24
_RARE_MAX: Final = 3
_RARE_SHARE: Final = 1 / 64
# Lines to learn from are taken from all over the block, because neighbours are often alike.
_STRIDE: Final = 0.618
# In a longer block most bytes are in a few lines, and quotes take eight times their size.
_BYTES_MAX: Final = 8 << 20

_NEWLINE, _BACKSLASH, _SPACE, _QUOTE = b'\n\\ "'
_NULL: Final = b"null"
_TEXT: Final = rb'"(?P<text>[^"\\]*(?:\\.[^"\\]*)*)"'
_LIST: Final = rb'\[(?P<list>[^"\\\[\]{}]*)\]'
_BARE: Final = rb"(?P<bare>[-+.\w]+)"
_NAME: Final = rb'"(?P<name>[^"\\]*)" *: *'
_TOKEN: Final = re.compile(rb"%s(?:%s|%s|%s|\{)|(?P<end>\})" % (_NAME, _TEXT, _LIST, _BARE))


def _record_pattern() -> re.Pattern[bytes]:
    """Objects of two levels, whose values are texts, bare words or numbers, and plain lists."""
    value = rb"(?:%s|%s|%s)" % (_TEXT, _LIST, _BARE)
    inner = rb" *%s%s *" % (_NAME, value)
    data = rb"\{(?: *|%s(?:,%s)*)\}" % (inner, inner)
    outer = rb" *%s(?:%s|%s) *" % (_NAME, value, data)
    return re.compile(re.sub(rb"\?P<\w+>", b"?:", rb"\{%s(?:,%s)*\}" % (outer, outer)))


_RECORD: Final = _record_pattern()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What lines of one type share: `literals`, one more than the columns of the values between.

    `mentioned` are these columns, and those whose null is part of a literal.
    """

    wire: WireType
    literals: tuple[bytes, ...]
    columns: tuple[WireColumn, ...]
    mentioned: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """A member of a record, and where its value is in the line, without quotes or brackets."""

    name: str
    inside_data: bool
    spelling: Spelling | None
    """None is an object."""
    start: int
    end: int


def shape_of(line: bytes, wire: json_record.Wire) -> Shape | None:
    """The shape of a line of UTF-8 without control characters, or None if it has none."""
    if not _RECORD.fullmatch(line):
        return None
    members = list(_members(line))
    if len({(member.inside_data, member.name) for member in members}) < len(members):
        return None
    wire_type = _type_of(line, members, wire)
    if wire_type is None:
        return None
    columns = {(column.inside_data, column.member): column for column in wire_type.columns}
    literals: list[bytes] = []
    slots: list[WireColumn] = []
    mentioned: set[str] = set()
    behind = 0
    for member in members:
        if _is_outer(member, wire_type):
            continue
        column = columns.get((member.inside_data, member.name))
        if column is None:
            return None
        mentioned.add(column.name)
        if member.spelling is not None and member.spelling is spelling_of(column.kind):
            literals.append(line[behind : member.start])
            behind = member.end
            slots.append(column)
        elif member.spelling is not Spelling.BARE or line[member.start : member.end] != _NULL:
            return None
    literals.append(line[behind:] + b"\n")
    return Shape(
        wire=wire_type,
        literals=tuple(literals),
        columns=tuple(slots),
        mentioned=frozenset(mentioned),
    )


def _members(line: bytes) -> Iterator[_Member]:
    inside_data = False
    for token in _TOKEN.finditer(line):
        if token["end"]:
            inside_data = False
            continue
        spelling = next((s for s in Spelling if token[s.value] is not None), None)
        start, end = token.span(spelling.value) if spelling else (token.end(), token.end())
        yield _Member(
            name=token["name"].decode(),
            inside_data=inside_data,
            spelling=spelling,
            start=start,
            end=end,
        )
        inside_data = inside_data or spelling is None


def _type_of(line: bytes, members: Sequence[_Member], wire: json_record.Wire) -> WireType | None:
    forms = {json_record.NODE_FORM: wire.nodes, json_record.EDGE_FORM: wire.edges}
    for member in members:
        form = None if member.inside_data else forms.get(member.name)
        if form is not None and member.spelling is Spelling.QUOTED:
            return form.spellings.get(line[member.start : member.end].decode())
    return None


def _is_outer(member: _Member, wire_type: WireType) -> bool:
    """Whether a member is no column, but says the type or holds the data."""
    if member.inside_data:
        return False
    if member.spelling is None:
        return member.name == json_record.DATA
    return member.name == wire_type.form and member.spelling is Spelling.QUOTED


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    """The lines that have a shape, and where the values of each slot are in them."""

    shape: Shape
    lines: Indexes
    spans: tuple[Span, ...]


class ShapeReader:
    """Reads blocks of lines of one schema; remembers the shapes of the last block."""

    def __init__(self, wire: json_record.Wire) -> None:
        self._wire = wire
        self._known: list[Shape] = []

    def read(self, lines: BlockLines) -> tuple[tuple[DecodedRows, ...], Indexes]:
        """The rows of one type each, and the indexes of the lines that are in none of them."""
        matches = self._matches(lines)
        self._known = [match.shape for match in matches]
        by_type: dict[str, list[DecodedRows]] = defaultdict(list)
        others = np.ones(len(lines), np.bool_)
        for match in matches:
            rows = _rows(match, lines)
            others[rows.lines] = False
            by_type[rows.wire.table_key].append(rows)
        return tuple(map(_merge, by_type.values())), np.flatnonzero(others)

    def _matches(self, lines: BlockLines) -> list[_Match]:
        matches: list[_Match] = []
        unread = _plain_lines(lines)
        if not unread.any():
            return matches
        quotes = _quotes(lines)
        rare = 0
        for shape in self._shapes(lines, unread):
            match = _match(shape, lines, quotes, np.flatnonzero(unread))
            if len(match.lines) > len(lines) * _RARE_SHARE:
                matches.append(match)
                unread[match.lines] = False
            elif shape not in self._known:
                rare += 1
                if rare == _RARE_MAX:
                    break
        return matches

    def _shapes(self, lines: BlockLines, unread: Mask) -> Iterator[Shape]:
        """Known shapes, then those of lines that are still unread when the next one is needed."""
        yield from self._known
        for number in range(_LEARNED_MAX):
            rest = np.flatnonzero(unread)
            if not len(rest):
                return
            learned = shape_of(lines[rest[int(number * _STRIDE % 1 * len(rest))]], self._wire)
            if learned is not None:
                yield learned


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quotes:
    """Where quotes without escape are; each line has `count` of them, from index `first` on."""

    places: Indexes
    first: Indexes
    count: Indexes


def _quotes(lines: BlockLines) -> _Quotes:
    places = np.flatnonzero(lines.codes == _QUOTE)
    if lines.has_backslashes:
        places = places[~_escaped(lines.codes, places)]
    first = np.searchsorted(places, lines.starts)
    return _Quotes(places=places, first=first, count=np.diff(first, append=len(places)))


def _escaped(codes: npt.NDArray[np.uint8], places: Indexes) -> Mask:
    """Which bytes follow an odd number of backslashes."""
    backslashes = np.flatnonzero(codes == _BACKSLASH)
    begins = np.diff(backslashes, prepend=-2) > 1
    run_starts = np.maximum.accumulate(np.where(begins, backslashes, 0))
    escaped: Mask = codes[places - 1] == _BACKSLASH
    runs = np.searchsorted(backslashes, places[escaped] - 1)
    escaped[escaped] = (places[escaped] - run_starts[runs]) % 2 == 1
    return escaped


def _plain_lines(lines: BlockLines) -> Mask:
    """The lines of UTF-8 without control characters."""
    is_short = len(lines.data) <= _BYTES_MAX
    if not is_short or not (lines.data.isascii() or _is_utf8(lines.data)):
        return np.zeros(len(lines), np.bool_)
    plain = np.ones(len(lines), np.bool_)
    controls = lines.codes < _SPACE
    if np.count_nonzero(controls) > len(lines):
        odd = np.flatnonzero(controls & (lines.codes != _NEWLINE))
        plain[np.searchsorted(lines.ends, odd)] = False
    return plain


def _is_utf8(data: bytes) -> bool:
    offsets = pa.py_buffer(np.array([0, len(data)], np.int32))
    try:
        pa.StringArray.from_buffers(1, offsets, pa.py_buffer(data)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _match(shape: Shape, lines: BlockLines, quotes: _Quotes, chosen: Indexes) -> _Match:
    """Compare the literals from left to right, in all chosen lines.

    All quotes of a shape are in its literals. So a line has the same number of them, its quotes say
    where each literal has to be, and there are none between literals. The last literal has the end
    of the line, so nothing follows it.
    """
    chosen = chosen[quotes.count[chosen] == sum(literal.count(b'"') for literal in shape.literals)]
    behind = starts = lines.starts[chosen]
    first, ends = quotes.first[chosen], lines.ends[chosen] + 1
    spans: list[Span] = []
    for number, literal in enumerate(shape.literals):
        if number:
            quote = literal.find(b'"')
            starts = ends - len(literal) if quote < 0 else quotes.places[first] - quote
            spans.append((behind, starts))
        same = _same(lines, starts, literal) & (behind <= starts)
        behind, first = starts + len(literal), first + literal.count(b'"')
        if not same.all():
            chosen, behind, first, ends = chosen[same], behind[same], first[same], ends[same]
            spans = [(start[same], end[same]) for start, end in spans]
    return _Match(shape=shape, lines=chosen, spans=tuple(spans))


def _same(lines: BlockLines, at: Indexes, literal: bytes) -> Mask:
    """Which of these places, in ascending order, the literal is at."""
    size = len(literal)
    last = len(lines.data) - size
    low, high = np.searchsorted(at, [0, last + 1])
    windows = np.ndarray((max(last + 1, 0),), f"S{size}", lines.data, 0, (1,))
    compared = windows[at[low:high]]
    same = np.zeros(len(at), np.bool_)
    if compared.tobytes() == literal * len(compared):
        same[low:high] = True
    else:
        same[low:high] = compared == literal
    return same


def _texts(lines: BlockLines, span: Span) -> pa.StringArray:
    """The values of one column, cut out of the block."""
    starts, ends = span
    size = int(ends[0] - starts[0])
    if size and ((ends - starts) == size).all():
        windows = np.ndarray((len(lines.data) - size + 1,), f"V{size}", lines.data, 0, (1,))
        offsets = np.arange(0, (len(starts) + 1) * size, size, dtype=np.int32)
        return pa.StringArray.from_buffers(
            len(starts), pa.py_buffer(offsets), pa.py_buffer(windows[starts])
        )
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2], offsets[1::2] = starts, ends
    # Between the values are the bytes that follow each of them.
    pieces = pa.StringArray.from_buffers(
        len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(lines.data)
    )
    return pieces.take(pa.array(np.arange(0, len(offsets), 2)))


def _rows(match: _Match, lines: BlockLines) -> DecodedRows:
    # The id is always there, because a table without columns has no rows.
    columns = {ID_COLUMN: pa.nulls(len(match.lines), pa.string())}
    certain = np.ones(len(match.lines), np.bool_)
    for wired, span in zip(match.shape.columns, match.spans, strict=True):
        texts = _texts(lines, span)
        if lines.has_backslashes and spelling_of(wired.kind) is Spelling.QUOTED:
            texts, broken = unescape(texts)
            certain &= ~broken
        column = spelled_column(texts, wired.kind)
        columns[wired.name] = column.values
        if column.doubted is not None:
            certain &= ~column.doubted
    for name in match.shape.mentioned - columns.keys():
        columns[name] = pa.nulls(len(match.lines))
    chosen = match.lines
    if not certain.all():
        mask = pa.array(certain)
        columns = {name: values.filter(mask) for name, values in columns.items()}
        chosen = chosen[certain]
    return DecodedRows(wire=match.shape.wire, columns=columns, lines=chosen, present={})


def _merge(parts: Sequence[DecodedRows]) -> DecodedRows:
    """Rows of one type, of several shapes, in the order of their lines."""
    if len(parts) == 1:
        return parts[0]
    lines = np.concatenate([part.lines for part in parts])
    order = np.argsort(lines)
    tables = [pa.table(part.columns) for part in parts]
    rows = pa.concat_tables(tables, promote_options="default").take(pa.array(order))
    columns = {name: rows.column(name).combine_chunks() for name in rows.column_names}
    present: dict[str, pa.BooleanArray] = {}
    for name in columns:
        mentions = [name in part.columns for part in parts]
        if not all(mentions):
            flags = np.repeat(mentions, [len(part.lines) for part in parts])
            present[name] = pa.array(flags[order])
    return DecodedRows(wire=parts[0].wire, columns=columns, lines=lines[order], present=present)
