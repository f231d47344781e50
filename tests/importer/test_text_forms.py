"""Texts are read as they are written: without a header, with other delimiters and encodings."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake import ImportOptions, ImportReport, InvalidInputError
from omnigraph_lake.importer.text_forms import find_delimiter, has_header, name_columns
from omnigraph_lake.load.formats.parse import read_raw
from omnigraph_lake.load.formats.records import FileFormat, SourceFile, Split
from tests.importer.shapes import write_csv

pytestmark = pytest.mark.unit

NATIONS = [
    "netherlands\tmilitaryalliance\tuk",
    "egypt\tintergovorgs\tindia",
    "uk\tmilitaryalliance\tusa",
    "usa\tintergovorgs\tnetherlands",
    "netherlands\tintergovorgs\tegypt",
    "uk\tintergovorgs\tindia",
]
AIRPORTS = [
    '1,"Goroka","Goroka","GKA","AYGA",-6.081689,145.391881,5282,10,"U","Port_Moresby"',
    '2,"Madang","Madang","MAG","AYMD",-5.207079,145.788700,20,10,"U","Port_Moresby"',
    '3,"Akureyri, E","Akureyri",\\N,"BIAR",65.659994,-18.072703,6,0,"N",\\N',
]


def imported(root: Path, path: object, **options: object) -> ImportReport:
    report = og.import_data(str(root / "g"), path, options=ImportOptions(**options))  # type: ignore[arg-type]
    assert report.load is not None
    load = report.load
    counts = (load.written, load.already_there, load.quarantined)
    assert load.read == sum(sum(count.values()) for count in counts)
    return report


def test_statements_without_a_header_are_edges_and_none_is_lost(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "nations.txt", "\n".join(NATIONS))

    report = imported(tmp_path, path)
    again = imported(tmp_path, path)

    assert dict(report.load.written) == {"Nations": 6, "Node": 5}  # type: ignore[union-attr]
    assert 'header = ["subject", "predicate", "object"]' in report.mapping
    assert "nations: the first record is data" in report.schema
    graph = og.open(str(tmp_path / "g"))
    assert graph.count("Nations") == 6
    assert not any(again.load.inserted.values())  # type: ignore[union-attr]


def test_a_mapping_reads_a_file_of_one_line_without_a_header(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "airports.dat", "\n".join(AIRPORTS))
    first = imported(tmp_path, path)
    write_csv(tmp_path / "airports.dat", '4,"X","Y","Z","Q",1.5,2.5,7,1,"U","Port_Moresby"')

    again = imported(tmp_path, path)

    assert dict(first.load.written) == {"Airport": 3}  # type: ignore[union-attr]
    assert "header = false" in first.mapping
    assert dict(again.load.inserted) == {"Airport": 1}  # type: ignore[union-attr]


def test_a_weighted_edge_list_keeps_its_first_edge(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "links.csv", "0,1,0.5\n0,2,1.5\n1,2,0.25\n2,0,3.5")

    report = imported(tmp_path, path)

    assert dict(report.load.written) == {"Links": 4, "Node": 3}  # type: ignore[union-attr]
    assert "weight: F64" in report.schema


def test_a_header_is_a_choice_of_the_caller(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "words.csv", "red,rot\nblue,blau\ngreen,grün")

    report = imported(tmp_path, path, header=False)

    assert dict(report.load.written) == {"Word": 3}  # type: ignore[union-attr]
    assert "column_1" in report.schema


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["id,name", "1,Ann", "2,Bob"], True),
        (["1,Ann", "2,Bob"], False),
        (["name,city", "Ann,Ulm", "Bob,Bonn"], None),
        (["country,1990,1991", "AD,1,2", "AE,3,4"], None),
        (["country,1990", "AD,1", "AE,3"], None),
        ([",0,1,2,3", "a,5,6,7,8", "b,6,7,8,9"], True),
        (["0,1,2,3", "5,6,7,8", "6,7,8,9"], None),
        ([",5,5", "1,6,7", "2,8,9"], False),
        ([",1850,1860,1990,2000,2001", "0,0.5,1,2,3,4", "1,2,3,4,5,6"], True),
        ([",x", ",y", "1,z"], None),
        (["0,1", "0,2", "1,3"], False),
        (["State,Lat,1/22/20", "x,1.5,4", "y,2.5,5"], True),
        (["name,kind", *[f"p{n},{'ab'[n % 2]}" for n in range(30)]], True),
        (["2024-01-01,a", "2024-01-02,b"], False),
        (["id,word", "word,x", "id,y"], False),
        (["a,\\N", "b,c"], False),
        (["a,b"], None),
    ],
)
def test_the_first_row_is_data_only_if_the_others_say_so(
    lines: list[str], expected: bool | None
) -> None:
    assert has_header([line.split(",") for line in lines]) is expected


@pytest.mark.parametrize(
    ("lines", "is_table", "expected"),
    [
        (["a,b", "1,2"], True, ","),
        (["a;b", "1,5;2", "1,5;2"], True, ";"),
        (["1,5;2,5", "1,5;2,5"], True, ";"),
        (["note, long;x", "1;2", "3;4"], True, ";"),
        (["m,title,genres", "1,A,x|y|z", "2,B,x|y|z", "3,C,x"], True, ","),
        (['a|"b,c,d"', '1|"e,f,g"'], True, "|"),
        (["0 1", "0 2"], False, " "),
        (["a:b:c", "1:2:3"], False, ":"),
        (["full name", "Ann Lee", "Bob Ray"], True, None),
        (["Dear all", "this is no table of anything"], False, None),
    ],
)
def test_the_delimiter_cuts_most_lines_alike(
    lines: list[str], is_table: bool, expected: str | None
) -> None:
    assert find_delimiter("\n".join(lines), is_table=is_table) == expected


def test_rows_of_entities_are_no_statements() -> None:
    rows = [["Ann", "teacher", "Ulm"], ["Bob", "teacher", "Bonn"], ["Cyd", "cook", "Ulm"]]

    assert name_columns(rows) == ("column_1", "column_2", "column_3")


@pytest.mark.parametrize("form", ["cp1252", "utf-16"])
@pytest.mark.parametrize("ending", ["csv", "json", "jsonl", "csv.gz"])
def test_texts_that_are_not_utf_8_are_read_whole(tmp_path: Path, form: str, ending: str) -> None:
    names = ["Zoë", "Jürgen", "Sacré “cœur”", "Ann"]
    if "csv" in ending:
        text = "id,name\n" + "".join(f"{n},{name}\n" for n, name in enumerate(names))
    else:
        lines = [f'{{"id": {n}, "name": "{name}"}}' for n, name in enumerate(names)]
        text = "\n".join(lines) if ending == "jsonl" else f"[{', '.join(lines)}]"
    path = tmp_path / f"people.{ending}"
    content = text.encode(form)
    path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)

    report = imported(tmp_path, str(path))

    assert dict(report.load.written) == {"Person": 4}  # type: ignore[union-attr]
    assert f"people: read as {form}" in report.schema
    assert "encoding" not in report.mapping
    stored = og.open(str(tmp_path / "g")).scan("Person").read_all()
    assert sorted(stored["name"].to_pylist()) == sorted(names)


def test_a_damaged_record_does_not_change_the_encoding_of_the_others(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    good = "".join(f"{n},Zoë {n}\n" for n in range(30)).encode()
    path.write_bytes(b"id,name\n" + good + b"99,Zo\xeb\n")

    report = imported(tmp_path, str(path))

    assert dict(report.load.written) == {"Person": 30}  # type: ignore[union-attr]
    (cause,) = report.causes
    assert (cause.count, cause.line) == (1, 32)
    assert "--encoding" in cause.fix


def test_an_encoding_that_is_given_is_used_and_written_into_the_mapping(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes("id;name\n1;Łódź\n2;Žižkov\n".encode("iso8859-2"))

    report = imported(tmp_path, str(path), encoding="latin2", delimiter=";")
    again = imported(tmp_path, str(path))

    stored = og.open(str(tmp_path / "g")).scan("Person").read_all()
    assert sorted(stored["name"].to_pylist()) == ["Łódź", "Žižkov"]
    assert 'delimiter = ";"\nencoding = "latin2"' in report.mapping
    assert not any(again.load.inserted.values())  # type: ignore[union-attr]


def test_a_cell_of_sqlite_that_is_not_utf_8_rejects_its_record(tmp_path: Path) -> None:
    path = tmp_path / "people.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, photo BLOB)")
        rows = [(n, f"Zoë {n}", b"\xe9") for n in range(20)]
        database.executemany("INSERT INTO people VALUES (?, ?, ?)", rows)
        database.execute("UPDATE people SET name = CAST(x'e9' AS TEXT) WHERE id = 7")

    report = imported(tmp_path, str(path), format="sqlite")

    assert dict(report.load.written) == {"Person": 19}  # type: ignore[union-attr]
    (cause,) = report.causes
    assert (cause.reason, cause.column, cause.line) == ("malformed", "name", 8)
    assert cause.source.endswith("people.db#people")
    stored = og.open(str(tmp_path / "g")).scan("Person").read_all()
    assert "Zoë 8" in stored["name"].to_pylist()


@pytest.mark.parametrize("option", [{"encoding": "base64"}, {"delimiter": "::"}])
def test_what_is_no_form_of_a_text_is_refused(tmp_path: Path, option: dict[str, str]) -> None:
    path = write_csv(tmp_path / "people.csv", "id,name\n1,Ann")

    with pytest.raises(InvalidInputError, match=f"{next(iter(option))} is "):
        imported(tmp_path, path, **option)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_parts_of_a_file_without_a_header_have_its_lines_and_columns(
    tmp_path: Path, mark: bytes
) -> None:
    path = tmp_path / "edges.csv"
    lines = [b"%d,%d\n" % (n, n + 1) for n in range(9)]
    lines[4] = b"1,2,3\n"
    path.write_bytes(mark + b"".join(lines))
    size = path.stat().st_size
    cut = len(mark) + len(b"".join(lines[:4]))
    file = SourceFile(
        path=str(path), format=FileFormat.CSV, size=size, column_names=("source", "target")
    )

    parts = [
        list(read_raw(Split(number=0, file=file, start=start, end=end)))
        for start, end in ((0, cut), (cut, size))
    ]

    first, second = ([raw for raw in part if len(raw.batch)] for part in parts)
    assert first[0].batch.column("source").to_pylist() == ["0", "1", "2", "3"]
    assert first[0].batch.places.tolist() == [0, 1, 2, 3]
    assert second[0].batch.places.tolist() == [1, 2, 3, 4]
    assert [(r.place, r.raw) for raw in parts[1] for r in raw.refusals] == [(0, b"1,2,3")]
    assert parts[1][-1].lines == 5
