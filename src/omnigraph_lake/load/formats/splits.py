"""Divide source files into splits of about equal work, and read the lines of a split in blocks.

Compressed files are decompressed while they are read, and texts in other encodings become UTF-8.
Files are on a disk of this machine or on an object store, of which ranges of bytes are read.

A line ends at a newline; a carriage return before it belongs to the end. A byte order mark at the
start of a file is not part of its first line. The last line may have no end.

A value in a CSV file may contain newlines, so that whether one ends a record depends on all quotes
before it. Ranges of bytes of such a file are scanned in any order, each for both cases: it begins
outside or inside of quotes. The quotes of the ranges before it then tell which case it is.

Invariants:
- The splits of a file cover it without a gap or an overlap, in order, and every file has at least
  one. Their numbers are consecutive over the whole input.
- Planning splits reads no content except the footer of a Parquet file, and large CSV files.
- A CSV file is cut only if every quote in it begins or ends a value, or is one of two that mean a
  quote. Then quotes that open and close alternate for every parser, and a cut is the end of a
  record. A file with any other quote is one split.
- Every line of a file belongs to the split in which it begins, so that the blocks of all splits in
  order are the file. A block holds whole lines.
- Memory is bounded by a block and one longest line.
- An error while a file is read names the file.
"""

from __future__ import annotations

import codecs
import gzip
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias, assert_never, cast, overload

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph_lake.errors import InvalidInputError, NotFoundError, StorageUnavailableError
from omnigraph_lake.load.formats.records import FileFormat, SourceFile, Split
from omnigraph_lake.storage.objects.input_objects import InputObject, open_object


@contextmanager
def opened(file: SourceFile, *, until: int | None = None) -> Iterator[BinaryIO]:
    """The bytes of a file; what is raised inside is raised as an error about this file.

    `until` says that they are read in order, and where the reader most likely stops.

    Raises:
        NotFoundError: the file is gone, or was never on this machine.
        InvalidInputError: the file is packed, and damaged or cut off.
        StorageUnavailableError: the file cannot be read.
    """
    try:
        with _plain(file, until) as plain, ExitStack() as unpacking:
            stream = plain
            if file.gzipped:
                unpacked = unpacking.enter_context(gzip.GzipFile(fileobj=plain))
                stream = cast("BinaryIO", unpacked)
            yield cast("BinaryIO", _Transcoded(stream, file)) if file.encoding else stream
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{file.path} does not exist{' on this machine' if file.bucket is None else ''}",
            next_step="Name a file that every machine of the load can read.",
        ) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidInputError(
            f"{file.path} is not a complete gzip file: {error!s:.200}",
            next_step=f"Test it with `gzip --test {file.path}`, then make or copy it again.",
        ) from error
    except OSError as error:
        raise StorageUnavailableError(
            f"{file.path} cannot be read: {error.strerror or error!s:.200}",
            next_step="Make the file readable and load again.",
        ) from error


class _Transcoded:
    """The text of a file as UTF-8, from its start to its end."""

    closed = False

    def __init__(self, stream: BinaryIO, file: SourceFile) -> None:
        self._stream = stream
        self._file = file
        self._decode = codecs.getincrementaldecoder(file.encoding)().decode
        self._ready = b""
        self._is_ended = False

    def read(self, size: int) -> bytes:
        while len(self._ready) < size and not self._is_ended:
            piece = self._stream.read(max(size, _DECODED_AT_ONCE))
            self._is_ended = not piece
            try:
                self._ready += self._decode(piece, final=not piece).encode()
            except UnicodeError as error:
                raise InvalidInputError(
                    f"{self._file.path} is not {self._file.encoding}: {error!s:.200}",
                    next_step="Name the encoding of the file with `--encoding`.",
                ) from error
        data, self._ready = self._ready[:size], self._ready[size:]
        return data


_MARKS: Final = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_WESTERN: Final = "cp1252"
_NOT_WESTERN: Final = (b"\x81", b"\x8d", b"\x8f", b"\x90", b"\x9d")
_LOOKED_AT: Final = 16 << 20
"""Of a file so many bytes tell its encoding: about 100,000 records."""


def find_encoding(file: SourceFile) -> str:
    """The encoding of a text; empty if it is UTF-8, or cannot be told.

    Bytes that are not UTF-8 are windows-1252, of which Latin-1 is a part, if they are more than
    those of characters in UTF-8: in a text in UTF-8 with a damaged record they are fewer. Other
    encodings of 8 bits are told apart only as far as they have bytes that windows-1252 does not.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")
    read = characters = garbled = 0
    is_western = True
    with opened(file, until=min(file.size, _LOOKED_AT)) as stream:
        while read < _LOOKED_AT and (piece := stream.read(1 << 20)):
            if not read and piece[:2] in _MARKS:
                return _MARKS[piece[:2]]
            read += len(piece)
            if piece.isascii():
                continue
            text = decoder.decode(piece)
            size = len(text.encode())
            characters += size - len(text)
            garbled += len(piece) - size
            is_western &= not any(byte in piece for byte in _NOT_WESTERN)
    return _WESTERN if is_western and garbled > characters else ""


def _plain(file: SourceFile, until: int | None) -> BinaryIO:
    if file.bucket is None:
        return Path(file.path).open("rb")
    path = file.path.removeprefix(f"{file.bucket}/")
    wanted = InputObject(path=path, size=file.size, tag=file.tag)
    return cast("BinaryIO", open_object(file.bucket, wanted, until=until))


def shrunk(file: SourceFile, *, found: int) -> InvalidInputError:
    """The error of a file that lost bytes between planning and reading."""
    return InvalidInputError(
        f"{file.path} changed while it was loaded: expected {file.size} bytes, found {found}",
        next_step="Load files that are not being written to.",
    )


SPLIT_BYTES: Final = 32 << 20
_DECODED_AT_ONCE: Final = 1 << 16
_MARK: Final = b"\xef\xbb\xbf"
_NEWLINE: Final = ord("\n")
_QUOTE: Final = ord('"')
_NO_QUOTES: Final = np.array([], np.int64)
_FOOTERS_AT_ONCE: Final = 16
_PLANNED_TOGETHER: Final = 1024
_SPLITS_SMALL: Final = 2048


def split_bytes_for(size: int, *, least: int = SPLIT_BYTES) -> int:
    """How much of an input of this size is one split: between `least` and eight times as much.

    Keys are exchanged between all splits and all buckets, so very many small splits are worse than
    large ones; up to a few thousand keep a cluster busy.
    """
    return min(8 * least, max(least, size // _SPLITS_SMALL))


def plan_splits(
    files: Iterable[SourceFile], *, split_bytes: int = SPLIT_BYTES
) -> tuple[Split, ...]:
    """Cut every file into splits of at most about `split_bytes`, where its format allows it.

    Lines are cut anywhere. Parquet is cut between row groups, counted with their unpacked size. A
    file that is packed or not UTF-8 is read from its start and cannot be cut, nor are documents and
    databases. A CSV file is cut later, see `cut_records`.

    Raises:
        InvalidInputError: a Parquet file has no readable footer.
    """
    assert split_bytes > 0
    listed = tuple(files)
    cuts = (
        (file, start, end)
        for first in range(0, len(listed), _PLANNED_TOGETHER)
        for file, ranges in _ranges_of_all(listed[first : first + _PLANNED_TOGETHER], split_bytes)
        for start, end in ranges
    )
    return tuple(
        Split(number=number, file=file, start=start, end=end)
        for number, (file, start, end) in enumerate(cuts)
    )


def _ranges_of_all(
    files: Sequence[SourceFile], split_bytes: int
) -> Iterator[tuple[SourceFile, list[tuple[int, int]]]]:
    """The ranges of every file; footers are read at the same time."""
    cut = partial(_ranges, split_bytes=split_bytes)
    if not any(file.format is FileFormat.PARQUET for file in files):
        yield from zip(files, map(cut, files), strict=True)
        return
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as beside:
        yield from zip(files, beside.map(cut, files), strict=True)


def _ranges(file: SourceFile, split_bytes: int) -> list[tuple[int, int]]:
    match file.format:
        case FileFormat.JSONL | FileFormat.JSONL_OF_0_7:
            return _equal_ranges(file.size, split_bytes) if file.is_plain else [(0, file.size)]
        case FileFormat.PARQUET:
            return list(_group(_row_group_bytes(file), split_bytes))
        case (
            FileFormat.CSV
            | FileFormat.JSON
            | FileFormat.ARROW
            | FileFormat.SQLITE
            | FileFormat.DUCKDB
            | FileFormat.GRAPHML
        ):
            return [(0, file.size)]
        case _:
            assert_never(file.format)


def _equal_ranges(size: int, split_bytes: int) -> list[tuple[int, int]]:
    parts = max(1, -(-size // split_bytes))
    return list(pairwise(size * part // parts for part in range(parts + 1)))


def _group(sizes: list[int], split_bytes: int) -> Iterator[tuple[int, int]]:
    """Neighbouring row groups, as many as fit; a larger one is alone."""
    start = group_bytes = 0
    for number, size in enumerate(sizes):
        if number > start and group_bytes + size > split_bytes:
            yield start, number
            start, group_bytes = number, 0
        group_bytes += size
    yield start, len(sizes)


def _row_group_bytes(file: SourceFile) -> list[int]:
    with opened(file) as stream:
        try:
            footer = pq.read_metadata(stream)
        except pa.ArrowException as error:
            raise not_parquet(file, error) from error
    return [footer.row_group(number).total_byte_size for number in range(footer.num_row_groups)]


def not_parquet(file: SourceFile, error: Exception) -> InvalidInputError:
    """The error of a file that is called Parquet and cannot be read as such."""
    return InvalidInputError(
        f"{file.path} cannot be read as Parquet: {error!s:.200}",
        next_step="Write the file again, or leave it out.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvRange:
    """A range of bytes of the CSV file of a split; it may begin within a record."""

    split: Split
    start: int
    end: int


class RangeScan(msgspec.Struct, frozen=True, array_like=True):
    """What a range says about its records if it begins outside, and if it begins inside of quotes.

    `first_record` is where the first record begins after the start of the range; -1 if none does.
    """

    has_odd_quotes: bool
    is_regular: tuple[bool, bool]
    first_record: tuple[int, int]


def csv_ranges(splits: Iterable[Split], split_bytes: int) -> list[CsvRange]:
    """The ranges to scan of the CSV files that are larger than a split."""
    return [
        CsvRange(split=split, start=start, end=end)
        for split in splits
        if split.file.format is FileFormat.CSV
        and split.file.is_plain
        and split.file.size > split_bytes
        for start, end in _equal_ranges(split.file.size, split_bytes)
    ]


def scan_range(part: CsvRange, *, block_bytes: int = 1 << 20) -> RangeScan:
    """Find out where records of a CSV file can be told apart in a range."""
    neighbours = np.zeros(256, np.bool_)
    neighbours[[_QUOTE, _NEWLINE, ord("\r"), *part.split.file.delimiter.encode()]] = True
    is_odd = False
    is_regular = [True, True]
    first = [-1, -1]
    for position, window in _windows(part, block_bytes):
        codes = np.frombuffer(window, np.uint8)
        quotes = np.flatnonzero(codes[1:-1] == _QUOTE) if b'"' in window else _NO_QUOTES
        opens_if_outside = (np.arange(len(quotes)) + is_odd) % 2 == 0
        follows, precedes = neighbours[codes[quotes]], neighbours[codes[quotes + 2]]
        for begins_inside in (False, True):
            opens = opens_if_outside ^ begins_inside
            is_regular[begins_inside] &= bool(np.where(opens, follows, precedes).all())
            if first[begins_inside] < 0:
                end = _record_end(codes[1:-1], quotes, is_inside=is_odd ^ begins_inside)
                first[begins_inside] = -1 if end < 0 else position + end
        is_odd ^= len(quotes) % 2 == 1
    return RangeScan(is_odd, (is_regular[0], is_regular[1]), (first[0], first[1]))


def _record_end(codes: np.ndarray, quotes: np.ndarray, *, is_inside: bool) -> int:
    """Where the first record ends of which a block has the last byte; -1 if there is none."""
    if not len(quotes) and is_inside:
        return -1
    newlines = np.flatnonzero(codes == _NEWLINE)
    ends = newlines[(np.searchsorted(quotes, newlines) + is_inside) % 2 == 0]
    return int(ends[0]) + 1 if len(ends) else -1


def _windows(part: CsvRange, block_bytes: int) -> Iterator[tuple[int, bytes]]:
    """The blocks of a range with the byte before and the byte after each, and their positions.

    Before and after a file there is a newline, and a byte order mark is not part of it.
    """
    position = part.start
    with opened(part.split.file, until=min(part.end + 1, part.split.file.size)) as stream:
        before = b"\n"
        if position:
            stream.seek(position - 1)
            before = stream.read(1)
        ahead = b""
        while position < part.end:
            size = min(block_bytes, part.end - position)
            data = ahead + _read_fully(stream, size + 1 - len(ahead))
            block, ahead = data[:size], data[size:]
            if len(block) < size:
                raise shrunk(part.split.file, found=position + len(block))
            mark = len(_MARK) if position == 0 and block.startswith(_MARK) else 0
            yield position + mark, before + block[mark:] + (ahead or b"\n")
            before = block[-1:]
            position += size


def _read_fully(stream: BinaryIO, size: int) -> bytes:
    pieces: list[bytes] = []
    while size and (piece := stream.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def cut_records(
    splits: Iterable[Split], ranges: Sequence[CsvRange], scans: Sequence[RangeScan]
) -> tuple[Split, ...]:
    """The splits with CSV files cut between records, as far as their quotes allow it."""
    scanned: dict[int, list[tuple[CsvRange, RangeScan]]] = {}
    for part, scan in zip(ranges, scans, strict=True):
        scanned.setdefault(part.split.number, []).append((part, scan))
    cuts = (
        (split.file, start, end)
        for split in splits
        for start, end in (
            _record_ranges(scanned[split.number])
            if split.number in scanned
            else [(split.start, split.end)]
        )
    )
    return tuple(
        Split(number=number, file=file, start=start, end=end)
        for number, (file, start, end) in enumerate(cuts)
    )


def _record_ranges(scanned: Sequence[tuple[CsvRange, RangeScan]]) -> list[tuple[int, int]]:
    size = scanned[0][0].split.file.size
    starts = [0]
    is_inside = False
    for part, scan in scanned:
        if not scan.is_regular[is_inside]:
            return [(0, size)]
        first = scan.first_record[is_inside]
        if part.start and 0 < first < size:
            starts.append(first)
        is_inside ^= scan.has_odd_quotes
    # A quote that is not closed is reported by the reader of the whole file.
    return [(0, size)] if is_inside else list(pairwise([*starts, size]))


BLOCK_BYTES: Final = 1 << 20
LINE_BYTES_MAX: Final = 32 << 20
HEAD_BYTES: Final = 4096
"""How much of a line that is too long is kept to show it."""


class BlockLines(Sequence[bytes]):
    """The lines of a block without their ends; none is cut out before it is asked for.

    Line `i` is `data[starts[i]:ends[i]]`, and one newline follows it, with no carriage return.
    """

    def __init__(self, data: bytes) -> None:
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        if data and not data.endswith(b"\n"):
            data = data.removesuffix(b"\r") + b"\n"
        self.data: Final = data
        self.codes: Final = np.frombuffer(data, np.uint8)
        self.ends: Final = np.flatnonzero(self.codes == _NEWLINE)
        self.starts: Final = np.zeros_like(self.ends)
        self.starts[1:] = self.ends[:-1] + 1
        self.has_backslashes: Final = b"\\" in data

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return [self[line] for line in range(*at.indices(len(self)))]
        return self.data[self.starts[at] : self.ends[at]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineBlock:
    """Whole lines; `first` is the place of the first of them within the split."""

    first: int
    lines: BlockLines


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
    until = split.end if split.file.is_plain else split.file.size
    with opened(split.file, until=until) as stream:
        if split.file.is_plain:
            pieces = _owned(stream, split, block_bytes)
        else:
            pieces = iter(lambda: stream.read(block_bytes), b"")
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
    pending_pieces: list[bytes] = []
    pending_bytes = place = 0
    for piece in pieces:
        start, end = 0, piece.rfind(b"\n") + 1
        if end:
            length = pending_bytes + piece.index(b"\n")
            if length > line_bytes_max:
                start = piece.index(b"\n") + 1
                yield _long_line([*pending_pieces, piece[:start]], length, place)
                pending_pieces, place = [], place + 1
            if start < end:
                data = b"".join([*pending_pieces, memoryview(piece)[start:end]])
                block = LineBlock(first=place, lines=BlockLines(data))
                place += len(block.lines)
                yield block
            pending_pieces, pending_bytes = [], 0
        if end < len(piece):
            pending_pieces.append(piece[end:])
            pending_bytes += len(piece) - end
        if pending_bytes > line_bytes_max:
            # Only the beginning is shown, however long the line turns out to be.
            pending_pieces = [b"".join(pending_pieces)[:HEAD_BYTES]]
    if pending_bytes > line_bytes_max:
        yield _long_line(pending_pieces, pending_bytes, place)
    elif pending_pieces:
        yield LineBlock(first=place, lines=BlockLines(b"".join(pending_pieces)))


def _long_line(pieces: list[bytes], size: int, place: int) -> LongLine:
    return LongLine(place=place, head=b"".join(pieces)[:HEAD_BYTES].rstrip(b"\r\n"), size=size)
