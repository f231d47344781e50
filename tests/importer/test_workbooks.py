"""Imports of Excel workbooks: sheets are sources, and what a sheet shows is not lost silently."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import openpyxl
import pytest

import omnigraph_lake as og
from omnigraph_lake import ImportOptions, ImportReport, InvalidInputError
from omnigraph_lake.importer.workbooks import spool_sheets
from omnigraph_lake.load.formats.mapping import TextForm
from omnigraph_lake.load.formats.records import FileFormat, SourceFile

pytestmark = pytest.mark.unit


def write_workbook(path: Path, *sheets: tuple[str, Sequence[Sequence[Any]]]) -> openpyxl.Workbook:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets:
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return book


def spooled(
    tmp_path: Path, edit: Callable[[Any], object], *, header: bool | None = None
) -> tuple[list[str], list[str]]:
    """What is said about a workbook, and the lines that the rows of its first sheet become."""
    book = openpyxl.Workbook()
    edit(book.active)
    path = tmp_path / "book.xlsx"
    book.save(path)
    folder = tmp_path / "spool"
    folder.mkdir()
    file = SourceFile(path=str(path), format=FileFormat.JSONL, size=path.stat().st_size)
    sheets = spool_sheets(file, folder, TextForm(header=header))
    assert sheets[0].path is not None
    lines = sheets[0].path.read_text().split("\n")[:-1]
    return [warning for sheet in sheets for warning in sheet.warnings], lines


def rows(root: str, type_name: str) -> list[dict[str, Any]]:
    table = og.open(root, read_only=True).scan(type_name).read_all()
    return sorted(table.to_pylist(), key=lambda row: str(row["id"]))


def accounted(report: ImportReport) -> tuple[int, int]:
    assert report.load is not None
    load = report.load
    return sum(load.written.values()) + sum(load.already_there.values()), load.faults


def test_sheets_are_sources_and_the_mapping_applies_to_the_workbook_again(tmp_path: Path) -> None:
    root, path = str(tmp_path / "g"), tmp_path / "shop.xlsx"
    stores: list[list[Any]] = [["store_id", "name"], [1, "Ann's"], [2, "Bob's"]]
    orders: list[list[Any]] = [
        ["order_id", "store_id", "paid"],
        [7, 1, True],
        [8, 2, False],
        [9, 2, True],
    ]
    write_workbook(path, ("Stores", stores), ("Orders", orders), ("Empty", []))

    first = og.import_data(root, str(path))
    second = og.import_data(root, str(path))

    assert first.load is not None
    assert dict(first.load.written) == {"Store": 2, "Order": 3, "HasStore": 3}
    assert [row["paid"] for row in rows(root, "Order")] == [True, False, True]
    assert accounted(second) == (8, 0)
    commit = og.open(root).commits(limit=1)[0]
    assert commit.message == "import shop.xlsx"


def test_one_sheet_is_called_after_its_file_and_a_rejected_row_by_its_number(
    tmp_path: Path,
) -> None:
    root, path = str(tmp_path / "g"), tmp_path / "people.xlsx"
    write_workbook(path, ("Sheet1", [["Report"], [], ["id", "age"], [1, 30], [2, 31]]))
    og.import_data(root, str(path))
    write_workbook(path, ("Sheet1", [["Report"], [], ["id", "age"], [3, 32], [4, "old"]]))

    report = og.import_data(root, str(path), options=ImportOptions(max_rejected="50%"))

    assert accounted(report) == (1, 1)
    (cause,) = report.causes
    assert (cause.source, cause.line, cause.type) == (f"{path}#Sheet1", 5, "Person")


def test_cells_keep_their_kinds_and_errors_are_words_for_no_value(tmp_path: Path) -> None:
    def edit(sheet: Any) -> None:
        sheet.append(["number", "text", "day", "time", "clock", "span", "error", "flag", "whole"])
        sheet.append(
            [
                1.5,
                "007",
                dt.date(2020, 1, 2),
                dt.datetime.fromisoformat("2020-01-02T03:04"),
                dt.time(5, 6),
                dt.timedelta(hours=30),
                "#DIV/0!",
                True,
                5.0,
            ]
        )
        sheet["C2"].number_format = "dd.mm.yyyy"
        sheet["D2"].number_format = "yyyy-mm-dd hh:mm"

    _, lines = spooled(tmp_path, edit)

    assert lines == [
        "",
        '{"number": 1.5, "text": "007", "day": "2020-01-02", "time": "2020-01-02T03:04:00", '
        '"clock": "05:06:00", "span": "30:00:00", "error": "#DIV/0!", "flag": true, "whole": 5}',
    ]


def test_what_a_sheet_loses_is_said(tmp_path: Path) -> None:
    def edit(sheet: Any) -> None:
        for row in (
            ["Sales"],
            ["region", "amount", ""],
            ["North", 1],
            [],
            [None, "=B3*2"],
            ["S", 2],
        ):
            sheet.append(row)
        sheet["C3"] = "aside"
        sheet["B3"].number_format = '"$"#,##0.00'
        sheet["B6"].number_format = "[$\N{EURO SIGN}-407]#,##0.00"
        sheet.merge_cells("A1:C1")
        sheet.merge_cells("A3:A5")
        sheet.sheet_state = "hidden"
        sheet.parent.create_sheet("Heads").append(["a", "b"])

    warnings, lines = spooled(tmp_path, edit)

    assert lines == [
        *("", ""),
        '{"region": "North", "amount": 1, "column_3": "aside"}',
        *("", ""),
        '{"region": "S", "amount": 2}',
    ]
    assert warnings == [
        "book.xlsx#Sheet: is hidden, and imported",
        "book.xlsx#Sheet: not imported, above the header: 'Sales'",
        "book.xlsx#Sheet: 2 empty rows left out",
        "book.xlsx#Sheet: amount has numbers of several units: $ in 1, \N{EURO SIGN} in 1",
        "book.xlsx#Sheet: of 1 merged range only the first cell has a value, as in A3:A5",
        "book.xlsx#Sheet: 1 formula without a result, as in B5: save the workbook in Excel or "
        "LibreOffice, which calculate",
        "book.xlsx#Heads: has no records below its header",
    ]


def test_units_that_a_sheet_shows_are_in_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "prices.xlsx"
    book = openpyxl.Workbook()
    book.active.append(["name", "price", "discount"])
    book.active.append(["pen", 1.5, 0.125])
    book.active["B2"].number_format = '#,##0.00\\ "\N{EURO SIGN}"'
    book.active["C2"].number_format = "0.0%"
    book.save(path)

    report = og.import_data(str(tmp_path / "g"), str(path), dry_run=True)

    assert "price: F64         // in \N{EURO SIGN}" in report.schema
    assert "discount: F64      // the sheet shows percent: 0.125 as 12.5 %" in report.schema


@pytest.mark.parametrize(
    ("first", "header", "expected"),
    [
        ([["id", "n"], [1, 2]], None, ["", '{"id": 1, "n": 2}']),
        ([["a", 1], ["a", 2], ["b", 5]], None, ['{"column_1": "a", "column_2": 1}']),
        ([["a", "b"], ["c", "d"]], False, ['{"column_1": "a", "column_2": "b"}']),
        ([[None, "n"], ["x", 1]], None, ["", '{"n": 1, "column_1": "x"}']),
        (
            [["column_3", "b", None], ["x", "y", 1]],
            None,
            ["", '{"column_3": "x", "b": "y", "column_3_": 1}'],
        ),
    ],
)
def test_a_header_is_found_or_said(
    tmp_path: Path, first: list[list[Any]], header: bool | None, expected: list[str]
) -> None:
    _, lines = spooled(tmp_path, lambda sheet: [sheet.append(r) for r in first], header=header)

    assert lines[: len(expected)] == expected


def test_a_file_that_is_no_workbook_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "locked.xlsx"
    path.write_bytes(b"\xd0\xcf\x11\xe0")

    with pytest.raises(InvalidInputError, match="cannot be read as an Excel workbook") as refused:
        og.import_data(str(tmp_path / "g"), str(path))

    assert "without a password" in str(refused.value.next_step)


def test_the_extra_is_named_where_openpyxl_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.xlsx"
    write_workbook(path, ("S", [["a"], [1]]))
    monkeypatch.setitem(sys.modules, "openpyxl", None)

    with pytest.raises(InvalidInputError, match="openpyxl, which is not installed") as refused:
        og.import_data(str(tmp_path / "g"), str(path))

    assert "omnigraph-lake[excel]" in str(refused.value.next_step)
