"""Find out how a text is written: its encoding, the delimiter of CSV, and whether it has a header.

Invariant: what the caller or the mapping says is not guessed. Otherwise a text is UTF-8 and its
first record is the header, unless the text shows beyond doubt that it is not.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.load.formats.document_files import LOOKED_AT
from omnigraph_lake.load.formats.mapping import TextForm
from omnigraph_lake.load.formats.raw_batches import cell_text
from omnigraph_lake.load.formats.records import FileFormat, SourceFile
from omnigraph_lake.load.formats.splits import find_encoding, opened

TEXTS: Final = frozenset({FileFormat.CSV, FileFormat.JSON, FileFormat.JSONL})
PACKED: Final = ".gz"
_HEAD: Final = 64 << 10
_MARKS: Final = ("\t", ";", "|", ",")
_WEAK_MARKS: Final = (" ", ":")
_SPELT_MARKS: Final = {"\\t": "\t", "tab": "\t", "space": " "}
_QUOTED: Final = re.compile(r'"[^"]*"')
_NULL_WORDS: Final = frozenset(
    {"", "\\N", "NA", "N/A", "n/a", "NULL", "null", "NaN", "nan", "-", "?", "."}
)
_NUMBER: Final = re.compile(r"[+-]?\.?\d[\d.,]*([eE][+-]?\d+)?%?")
_FRACTION: Final = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_DATE: Final = re.compile(
    r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([T ][\d:.]+ ?\S{0,6})?|\d{1,2}:\d{2}(:\d{2})?"
)
_VALUES: Final = (_NUMBER, _DATE)
_FEW_VALUES: Final = 20
"""A column has few values if each of so many rows or more has one that occurs four times."""
_STEPS_MIN: Final = 4


def read_head(file: SourceFile) -> bytes:
    """The first bytes of a text."""
    with opened(file) as stream:
        return _read(stream)


def _read(stream: BinaryIO) -> bytes:
    pieces = []
    size = 0
    while size < _HEAD and (piece := stream.read(_HEAD - size)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def with_form(file: SourceFile, form: TextForm, *, is_mapped: bool = False) -> SourceFile:
    """A text as it is written, as far as nothing else is given.

    With `is_mapped` the form is that of a mapping, so that the header is not guessed.

    Raises:
        InvalidInputError: the delimiter or the encoding is none.
    """
    if file.format not in TEXTS:
        return file
    encoding = _require_encoding(form.encoding) if form.encoding else find_encoding(file)
    file = replace(file, encoding=encoding)
    header = form.header
    if header is None and is_mapped:
        header = True
    if file.format is not FileFormat.CSV:
        names = header or number_columns(len(file.column_names))
        key_column = form.key_column or ""
        return replace(file, column_names=() if names is True else names, key_column=key_column)
    text = read_head(file).decode(errors="replace").removeprefix("\ufeff")
    ending = Path(file.path.lower().removesuffix(PACKED)).suffix
    delimiter = _require_delimiter(form.delimiter) or (
        "\t" if ending == ".tsv" else find_delimiter(text, is_table=ending == ".csv") or ","
    )
    rows = _first_rows(text, delimiter)
    if header is None:
        header = has_header(rows) is not False
    if isinstance(header, bool):
        header = () if header else number_columns(_width(rows)) if is_mapped else name_columns(rows)
    return replace(file, delimiter=delimiter, column_names=header)


def names_of_arrays(arrays: Sequence[Sequence[Any]], form: TextForm) -> tuple[str, ...]:
    """The names of the columns of arrays; none if the first array has them.

    Arrays of JSON are mostly without a header, other than lines of CSV, so that one that could
    be data is data.
    """
    rows = [[cell_text(cell) or "" for cell in row] for row in arrays]
    header = form.header
    if header is None:
        are_texts = all(isinstance(cell, str) for row in arrays[:1] for cell in row)
        header = are_texts and has_header(rows) is True
    if isinstance(header, bool):
        return () if header or not rows else name_columns(rows)
    return header


def _require_encoding(name: str) -> str:
    try:
        info = codecs.lookup(name)
        "".encode(name)
    except (LookupError, TypeError):
        raise InvalidInputError(
            f"encoding is {shown(name)}, expected the name of an encoding of texts",
            next_step="Write one as in `--encoding cp1252`, utf-16, shift_jis or koi8-r.",
        ) from None
    return "" if info.name == "utf-8" else info.name


def _require_delimiter(mark: str | None) -> str | None:
    mark = _SPELT_MARKS.get(mark or "", mark)
    if mark is not None and (len(mark) != 1 or not mark.isascii() or mark in '"\r\n'):
        raise InvalidInputError(
            f"delimiter is {shown(mark)}, expected one ASCII character",
            next_step="Write it as in `--delimiter ';'`; a tab is `--delimiter tab`.",
        )
    return mark


def _first_rows(text: str, delimiter: str) -> list[list[str]]:
    """The first records that are complete and not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    rows = [row for row in itertools.islice(reader, LOOKED_AT) if any(row)]
    return rows[:-1] if len(text) >= _HEAD // 4 and len(rows) > 1 else rows


def find_delimiter(text: str, *, is_table: bool) -> str | None:
    """The mark that cuts the most lines into the same number of cells, at least two.

    On a tie a comma is the last choice: it is the decimal sign of many numbers. Spaces and colons
    are in texts of any kind: they cut if there is no other mark, all lines have the same number
    of them, and the file is not one that is called CSV.
    """
    lines = [line for line in _QUOTED.sub("", text).splitlines()[:LOOKED_AT] if line.strip()]
    if len(lines) > 1 and len(text) >= _HEAD // 4:
        lines.pop()
    counts = {mark: Counter(line.count(mark) for line in lines) for mark in _MARKS + _WEAK_MARKS}
    best: tuple[int, int, str] = (0, 0, "")
    for mark in _MARKS:
        del counts[mark][0]
        ((cuts, times),) = counts[mark].most_common(1) or [(0, 0)]
        if (times, cuts if len(lines) == 1 else 0) > best[:2]:
            best = (times, cuts if len(lines) == 1 else 0, mark)
    weak = [mark for mark in _WEAK_MARKS if len(counts[mark]) == 1 and not counts[mark][0]]
    if 2 * best[0] < len(lines) and weak and len(lines) > 1 and not is_table:
        return weak[0]
    return best[2] if best[2] and (is_table or best[2] in lines[0]) else None


def _width(rows: Sequence[Sequence[str]]) -> int:
    """How many cells most of the rows have."""
    widths = Counter(map(len, rows)).most_common(1)
    return widths[0][0] if widths else 0


def number_columns(count: int) -> tuple[str, ...]:
    """The names of columns that have none."""
    return tuple(f"column_{number}" for number in range(1, count + 1))


def has_header(rows: Sequence[Sequence[str]]) -> bool | None:
    """Whether the first row has the names of the columns; None if that cannot be told.

    It is data if the columns say so that tell it apart: those of numbers or dates, in which it has
    one too, and those of texts, in which its text occurs again. A text in a column of numbers is
    always a header, and so is one that does not occur in a column of few values. Years and numbers
    in equal steps head the columns of a pivot table, so that they say nothing. Only above the names
    of the rows a header has no text: above different ones in every other row.
    """
    if len(rows) < 2 or len(rows[0]) != _width(rows):
        return None
    first = rows[0]
    below = [row for row in rows[1:] if len(row) == len(first) and row != first]
    if "\\N" in first:
        return False
    filled = list(filter(None, first))
    score = int(len(set(filled)) < len(filled))
    names = {row[0] for row in below}
    if not score and filled == first[1:] and "" not in names and len(names) == len(rows) - 1:
        return True
    numbers: list[tuple[str, list[str]]] = []
    for at, cell in enumerate(first):
        cells = [row[at] for row in below if row[at] not in _NULL_WORDS]
        if not cell or not cells:
            continue
        pattern = next((p for p in _VALUES if all(map(p.fullmatch, cells))), None)
        if pattern is not None and not pattern.fullmatch(cell):
            return True
        if pattern is _NUMBER:
            numbers.append((cell, cells))
        else:
            score += 1 if pattern is _DATE else _count_for_text(cell, cells)
    if not _are_headings([cell for cell, _ in numbers]):
        score += sum(not _is_year(cell) or all(map(_is_year, cells)) for cell, cells in numbers)
    return None if score == 0 else score < 0


def _count_for_text(cell: str, cells: Sequence[str]) -> int:
    """What a text in the first row says: 1 that it is data, -1 that it is the name of a column."""
    if cell in cells:
        return 1
    return -1 if len(cells) >= max(_FEW_VALUES, 4 * len(set(cells))) else 0


def _is_year(cell: str) -> bool:
    return cell.isdigit() and 1900 <= int(cell) <= 2100


def _are_headings(cells: Sequence[str]) -> bool:
    """Whether numbers grow by equal steps."""
    try:
        numbers = [float(cell) for cell in cells]
    except ValueError:
        return False
    steps = {round(after - before, 6) for before, after in itertools.pairwise(numbers)}
    return len(numbers) >= _STEPS_MIN and len(steps) == 1 and steps != {0}


def name_columns(rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Names for the columns of records without a header: numbers, or the ends of edges.

    Two columns that share their values are the ends of edges, with or without a weight. Three
    columns are statements if the predicates repeat and so do the subjects, which a table of
    entities would have once.
    """
    width = _width(rows)
    columns = [list(column) for column in zip(*(r for r in rows if len(r) == width), strict=True)]
    if width not in {2, 3} or len(set(columns[0])) == len(columns[0]):
        return number_columns(width)
    texts = [not any(map(_FRACTION.fullmatch, column)) for column in columns]
    values = [set(column) for column in columns]
    are_words = all(texts) and not any(map(_NUMBER.fullmatch, columns[1]))
    if width == 3 and are_words and 2 * len(values[1]) <= len(columns[1]):
        return ("subject", "predicate", "object")
    shared = len(values[0] & values[1])
    are_ends = all(texts[:2]) and 2 * shared >= min(len(values[0]), len(values[1]))
    if are_ends and (width == 2 or all(map(_NUMBER.fullmatch, columns[2]))):
        return ("source", "target", "weight")[:width]
    return number_columns(width)
