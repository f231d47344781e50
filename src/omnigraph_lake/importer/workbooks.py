"""Read the sheets of an Excel workbook into files of JSON lines, for an import.

A line is a row of its sheet, so that a report names the row that a person sees. Cells keep their
kinds: numbers, booleans, and texts, which are never read as numbers. Needs openpyxl, an extra.

Invariants:
- Every row with a value becomes a record or is quoted in a warning; rows and cells that lost
  something on the way are counted.
- Rows are read and written one by one. What grows in memory is the texts of the workbook, and some
  bytes for each row; what is looked at to find the header is bounded.
- A sheet is a table with a header, unless the first rows show that it has none.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import json
import math
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

from omnigraph_lake.display.cells import counted
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.importer.text_forms import has_header, name_columns
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.load.formats.document_files import LOOKED_AT
from omnigraph_lake.load.formats.mapping import TextForm
from omnigraph_lake.load.formats.raw_batches import cell_text, require_distinct
from omnigraph_lake.load.formats.records import SourceFile
from omnigraph_lake.load.formats.splits import opened

ENDINGS: Final = (".xlsx", ".xlsm")
_QUOTED_MAX: Final = 3
_EXACT_BELOW: Final = 2**53
_UNITS: Final = re.compile(r"\[\$([^\]-]+)|([$\u20ac\u00a3\u00a5%])")
_LOCALE: Final = re.compile(r"\[\$-[^\]]*\]")
_NO_CODES: Final = re.compile(r"\"[^\"]*\"|\\.|\[\$?[^\]]*\]")
_NUMBER: Final = re.compile("[0-9]+")
_UNREADABLE: Final = (
    *(zipfile.BadZipFile, ET.ParseError, OSError, EOFError),
    *(ValueError, LookupError, TypeError, AttributeError, NotImplementedError),
)
"""What openpyxl raises for a file that is no workbook, or a damaged one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledSheet:
    """A sheet, and the file that its rows are in; None if it has no records.

    `units` has what it shows beside numbers, `warnings` what was left out or may mean something
    else.
    """

    name: str
    path: Path | None
    units: Mapping[str, str]
    warnings: tuple[str, ...]


def spool_sheets(file: SourceFile, folder: Path, form: TextForm) -> tuple[SpooledSheet, ...]:
    """Write the rows of every sheet to a file of a folder.

    Raises:
        InvalidInputError: openpyxl is not installed, the file is not a workbook, or has no records.
    """
    sheets: list[SpooledSheet] = []
    with _workbook(file) as (book, archive):
        for sheet in book.worksheets:
            path = folder / f"sheet-{len(list(folder.iterdir()))}.jsonl"
            spooled = _Spooled(sheet=sheet)
            spooled.write(path, form)
            where = f"{Path(file.path).name}#{sheet.title}"
            units = spooled.units.items()
            sheets.append(
                SpooledSheet(
                    name=sheet.title,
                    path=path if spooled.records else None,
                    units={name: min(counts) for name, counts in units if len(counts) == 1},
                    warnings=tuple(f"{where}: {what}" for what in spooled.describe(archive)),
                )
            )
    if not any(sheet.path for sheet in sheets):
        raise InvalidInputError(
            f"{file.path} has no sheet with records",
            next_step="Write the names of the columns into a row of a sheet, and records below it.",
        )
    return tuple(sheets)


@contextmanager
def _workbook(file: SourceFile) -> Iterator[tuple[Any, zipfile.ZipFile]]:
    try:
        import openpyxl
    except ModuleNotFoundError:
        raise InvalidInputError(
            f"reading {file.path} needs openpyxl, which is not installed",
            next_step="Run `pip install 'omnigraph-lake[excel]'`.",
        ) from None
    with opened(file) as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parts that have no values, such as drop-down lists
        try:
            book = openpyxl.load_workbook(stream, read_only=True, data_only=True)
            yield book, zipfile.ZipFile(stream)
        except _UNREADABLE as error:
            raise InvalidInputError(
                f"{file.path} cannot be read as an Excel workbook: {error!s:.200}",
                next_step="Open it in Excel or LibreOffice, and save it as .xlsx without a "
                "password.",
            ) from error


@dataclass(slots=True, kw_only=True)
class _Spooled:
    """What is noticed of a sheet while its rows are written."""

    sheet: Any
    columns: tuple[str, ...] = ()
    begin: int = 0
    """The rows above the first that can be a record."""
    records: int = 0
    empty: int = 0
    titles: list[str] = field(default_factory=list)
    units: dict[str, Counter[str]] = field(default_factory=dict)

    def write(self, path: Path, form: TextForm) -> None:
        # Programs declare sizes that are wrong, of a million rows or of one.
        self.sheet.reset_dimensions()
        stream = self.sheet.iter_rows()
        first = list(itertools.islice(stream, LOOKED_AT))
        self._find_header([[_value(cell) for cell in row] for row in first], form)
        with path.open("w", encoding="utf-8") as lines:
            lines.write("\n" * self.begin)
            empty = 0
            for row in itertools.chain(first[self.begin :], stream):
                record = self._record(row)
                if record is None:
                    empty += 1
                    lines.write("\n")
                    continue
                self.records, self.empty, empty = self.records + 1, self.empty + empty, 0
                lines.write(json.dumps(record) + "\n")

    def _find_header(self, rows: list[list[Any]], form: TextForm) -> None:
        top = _find_top(rows)
        self.titles = [_quote(row) for row in rows[:top] if any(map(_is_filled, row))]
        texts = [[cell_text(value) or "" for value in row] for row in rows[top:]]
        width = max((at + 1 for row in texts for at, text in enumerate(row) if text), default=0)
        filled = [[*row[:width], *[""] * (width - len(row))] for row in texts if any(row)]
        header = form.header
        if header is None:
            header = has_header(filled) is not False
        self.begin = min(top + (header is True), len(rows))
        if isinstance(header, bool):
            header = () if not filled else tuple(filled[0]) if header else name_columns(filled)
        self.columns = header
        require_distinct(filter(None, header), f"sheet {self.sheet.title}")

    def _record(self, row: Sequence[Any]) -> dict[str, Any] | None:
        """A row as a member per column that has a name or a value; None if all cells are empty."""
        record: dict[str, Any] = {}
        is_empty = True
        for at, cell in enumerate(row):
            value = _value(cell)
            name = self.columns[at] if at < len(self.columns) else ""
            if _is_filled(value):
                is_empty = False
                name = name or f"column_{at + 1}" + "_" * (f"column_{at + 1}" in self.columns)
                if isinstance(value, int | float) and not isinstance(value, bool):
                    self.units.setdefault(name, Counter())[_unit(cell.number_format)] += 1
            if name:
                record[name] = value
        return None if is_empty else dict.fromkeys(filter(None, self.columns)) | record

    def describe(self, archive: zipfile.ZipFile) -> Iterator[str]:
        """What a person has to know who sees the sheet and not its records."""
        if self.sheet.sheet_state != "visible" and self.records:
            yield "is hidden, and imported"
        if self.titles:
            more = f" and {len(self.titles) - _QUOTED_MAX} more" * (len(self.titles) > _QUOTED_MAX)
            yield f"not imported, above the header: {', '.join(self.titles[:_QUOTED_MAX])}{more}"
        if any(self.columns) and not self.records:
            yield "has no records below its header"
        if self.empty:
            yield f"{counted(self.empty, 'empty row')} left out"
        for name, units in self.units.items():
            if len(units) > 1:
                shown_in = [f"{unit or 'no unit'} in {n:,}" for unit, n in units.most_common()]
                yield f"{name} has numbers of several units: {', '.join(shown_in)}"
        # The path of a sheet has no public name.
        merged, formulas = _find_losses(archive, self.sheet._worksheet_path)  # noqa: SLF001
        merged = [ref for ref in merged if int(_NUMBER.findall(ref)[-1]) > self.begin]
        if merged:
            yield (
                f"of {counted(len(merged), 'merged range')} only the first cell has a value, as in "
                f"{merged[0]}"
            )
        if formulas:
            yield (
                f"{counted(len(formulas), 'formula')} without a result, as in "
                f"{formulas[0]}: save the workbook in Excel or LibreOffice, which calculate"
            )


def _find_losses(archive: zipfile.ZipFile, path: str) -> tuple[list[str], list[str]]:
    """Merged ranges and formulas without a result, which openpyxl reads as empty cells."""
    merged: list[str] = []
    formulas: list[str] = []
    with archive.open(path) as stream:
        for _, element in ET.iterparse(stream):  # noqa: S314 - expat bounds entities
            space, brace, tag = element.tag.rpartition("}")
            if tag == "row":
                element.clear()
            elif tag == "mergeCell":
                merged.append(element.get("ref", ""))
            elif (
                tag == "c"
                and element.find(f"{space}{brace}f") is not None
                and not element.findtext(f"{space}{brace}v")
                and element.get("t") != "str"  # an empty text is a result
            ):
                formulas.append(element.get("r", "a cell"))
    return merged, formulas


def _find_top(rows: Sequence[Sequence[Any]]) -> int:
    """The number of rows above the table: titles, of which a cell or a few are filled."""
    counts = [sum(map(_is_filled, row)) for row in rows]
    usual, _ = max(
        Counter(filter(None, counts)).items(), key=lambda item: item[::-1], default=(0, 0)
    )
    for at, row in enumerate(rows):
        is_title = counts[at] == 1 and usual > 1 and _is_filled(row[0])
        if counts[at] and not is_title and 2 * counts[at] >= usual:
            return at
    return len(rows)


def _is_filled(value: Any) -> bool:
    return value is not None and value != ""


def _quote(row: Sequence[Any]) -> str:
    return shown(" ".join(str(value) for value in row if _is_filled(value)))


def _value(cell: Any) -> Any:
    """The value of a cell as one of JSON."""
    value = cell.value
    if isinstance(value, dt.datetime):
        is_day = value.time() == dt.time() and not _has_time(cell.number_format)
        return (value.date() if is_day else value).isoformat()
    if isinstance(value, dt.timedelta):
        seconds = round(value.total_seconds())
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT_BELOW:
        return int(value)  # a number of Excel has one kind: some programs write 5 as 5.0
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bool | int | float | str | None):
        return value
    return value.isoformat() if isinstance(value, dt.date | dt.time) else str(value)


@functools.cache
def _has_time(number_format: str) -> bool:
    return re.search("[hHsS]", _NO_CODES.sub("", number_format)) is not None


@functools.cache
def _unit(number_format: str) -> str:
    """The currency or the percent sign that a format shows beside numbers."""
    unit = _UNITS.search(_LOCALE.sub("", number_format))
    return "".join(filter(None, unit.groups())) if unit else ""
