"""The lines of a split, in blocks of whole lines.

Invariant: every line of a file belongs to one split of it, the one in which it begins, so that the
blocks of all splits in order are the file. Memory is bounded by a block and one longest line.

A line ends at a newline; a carriage return before it belongs to the end. A byte order mark at the
start of a file is no part of its first line. The last line may have no end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, TypeAlias

from omnigraph.load.formats.records import Split
from omnigraph.load.formats.streams import opened, shrunk

BLOCK_BYTES: Final = 1 << 20
LINE_BYTES_MAX: Final = 32 << 20
HEAD_BYTES: Final = 4096
"""How much of a line that is too long is kept to show it."""

_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineBlock:
    """Whole lines; `first` is the place of the first of them within the split."""

    first: int
    data: bytes

    def lines(self) -> list[bytes]:
        """The lines without their ends."""
        lines = self.data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        if b"\r" in self.data:
            return [line[:-1] if line.endswith(b"\r") else line for line in lines]
        return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class LongLine:
    """A line beyond the limit: its beginning, and how many bytes it has."""

    place: int
    head: bytes
    size: int


Lines: TypeAlias = LineBlock | LongLine


def read_lines(
    split: Split, *, block_bytes: int = BLOCK_BYTES, line_bytes_max: int = LINE_BYTES_MAX
) -> Iterator[Lines]:
    """Every line that begins in the split, in order."""
    assert 0 < block_bytes <= line_bytes_max
    with opened(split.file) as stream:
        if split.file.gzipped:
            pieces = iter(lambda: stream.read(block_bytes), b"")
        else:
            pieces = _owned(stream, split, block_bytes)
        yield from _in_lines(_without_mark(pieces, split), line_bytes_max)


def _owned(stream: BinaryIO, split: Split, block_bytes: int) -> Iterator[bytes]:
    """The bytes of the lines that begin in the split."""
    position = _first_line(stream, split, block_bytes)
    ended = True
    while position < split.end:
        piece = stream.read(min(block_bytes, split.end - position))
        if not piece:
            raise shrunk(split.file, found=stream.seek(0, os.SEEK_END))
        position += len(piece)
        ended = piece.endswith(b"\n")
        yield piece
    while not ended and (piece := stream.read(block_bytes)):
        end = piece.find(b"\n") + 1
        ended = end > 0
        yield piece[:end] if ended else piece


def _first_line(stream: BinaryIO, split: Split, block_bytes: int) -> int:
    """Go to where the first line of the split begins: after a newline, or at the file's start."""
    if split.start == 0:
        return 0
    position = split.start - 1
    stream.seek(position)
    while piece := stream.read(block_bytes):
        end = piece.find(b"\n") + 1
        if end:
            stream.seek(position + end)
            return position + end
        position += len(piece)
    if position < split.file.size:
        raise shrunk(split.file, found=stream.seek(0, os.SEEK_END))
    return position


def _without_mark(pieces: Iterator[bytes], split: Split) -> Iterator[bytes]:
    if split.start == 0:
        head = b""
        for piece in pieces:
            head += piece
            if len(head) >= len(_MARK):
                break
        yield head.removeprefix(_MARK)
    yield from pieces


def _in_lines(pieces: Iterator[bytes], line_bytes_max: int) -> Iterator[Lines]:
    held: list[bytes] = []
    held_bytes = place = 0
    for piece in pieces:
        start, end = 0, piece.rfind(b"\n") + 1
        if end:
            length = held_bytes + piece.index(b"\n")
            if length > line_bytes_max:
                start = piece.index(b"\n") + 1
                yield _long_line([*held, piece[:start]], length, place)
                held, place = [], place + 1
            if start < end:
                block = LineBlock(first=place, data=b"".join([*held, piece[start:end]]))
                place += block.data.count(b"\n")
                yield block
            held, held_bytes = [], 0
        if end < len(piece):
            held.append(piece[end:])
            held_bytes += len(piece) - end
        if held_bytes > line_bytes_max:
            # Only the beginning is shown, however long the line turns out to be.
            held = [b"".join(held)[:HEAD_BYTES]]
    if held_bytes > line_bytes_max:
        yield _long_line(held, held_bytes, place)
    elif held:
        yield LineBlock(first=place, data=b"".join(held))


def _long_line(held: list[bytes], size: int, place: int) -> LongLine:
    return LongLine(place=place, head=b"".join(held)[:HEAD_BYTES].rstrip(b"\r\n"), size=size)
