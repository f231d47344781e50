from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.load.formats import csv_files
from omnigraph_lake.load.formats.parse import parse_split
from omnigraph_lake.validation.input.intake import id_source
from tests.drawing import drawn
from tests.load.broken_records import CATALOG, FITTING, anything
from tests.load.inputs import Outcome, loaded, outcome, whole, written
from tests.validation.graphs import counting_ids

pytestmark = pytest.mark.unit


def parsed(tmp_path: Path, text: str | bytes, *, type_name: str = "All", **more: Any) -> Outcome:
    content = text.encode() if isinstance(text, str) else text
    return loaded(tmp_path / "a.csv", content, CATALOG, type_name=type_name, **more)


def cell(tmp_path: Path, column: str, text: str) -> object:
    """The value that a cell comes to, or the reason why there is none."""
    quoted = '"' + text.replace('"', '""') + '"'
    found = parsed(tmp_path, f"id,{column}\nx,{quoted}\n")
    if found.refused:
        return found.reasons[1]
    return found.rows["node:All"][1][column]


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("text", "x", "x"),
        ("text", "", ""),
        ("text", "null", "null"),
        ("text", "1", "1"),
        ("kind", "a", "a"),
        ("kind", "c", "not_in_enum"),
        ("blob", "base64:AAE=", b"\x00\x01"),
        ("blob", "AAE=", "wrong_type"),
        ("yes", "true", True),
        ("yes", "false", False),
        ("yes", "True", "wrong_type"),
        ("yes", "1", "wrong_type"),
        ("yes", "", "wrong_type"),
        ("i32", "-5", -5),
        ("i32", "007", "wrong_type"),
        ("i32", "+7", "wrong_type"),
        ("i32", "7.0", 7),
        ("i32", "7.5", "does_not_fit"),
        ("i32", "2147483648", "does_not_fit"),
        ("i32", "null", "wrong_type"),
        ("i32", "true", "wrong_type"),
        ("i32", '"7"', "wrong_type"),
        ("i32", " 7", 7),
        ("i32", "1001", "out_of_range"),
        ("i64", "-9223372036854775808", -(2**63)),
        ("u32", "-1", "does_not_fit"),
        ("u64", "18446744073709551615", 2**64 - 1),
        ("u64", "18446744073709551616", "wrong_type"),
        ("f32", "0.5", 0.5),
        ("f32", "16777217", "does_not_fit"),
        ("f64", "1e3", 1000.0),
        ("f64", "-0.0", -0.0),
        ("f64", "1e400", "wrong_type"),
        ("f64", "NaN", "wrong_type"),
        ("f64", ".5", "wrong_type"),
        ("f64", "0x10", "wrong_type"),
        ("day", "2024-02-29", "2024-02-29"),
        ("day", "20240229", "2024-02-29"),
        ("day", "29.02.2024", "wrong_type"),
        ("at", "2024-02-29T10:00", "2024-02-29 10:00:00.000000Z"),
        ("at", "soon", "wrong_type"),
        ("words", '["a", null]', ["a", None]),
        ("words", "a", "wrong_type"),
        ("numbers", "[1, 2.0]", [1, 2]),
        ("numbers", "[1, 2.5]", "does_not_fit"),
        ("numbers", "{}", "wrong_type"),
        ("days", '["2024-02-29"]', ["2024-02-29"]),
        ("vector", "[1, 0.5]", [1.0, 0.5]),
        ("vector", "[1]", "vector_size"),
        ("vector", "[1, null]", "vector_item"),
    ],
)
def test_a_cell_is_the_value_that_it_spells(
    tmp_path: Path, column: str, text: str, value: object
) -> None:
    found = cell(tmp_path, column, text)

    assert (found, str(found)) == (value, str(value))


@pytest.mark.random
def test_a_cell_says_what_the_same_json_value_says(tmp_path: Path) -> None:
    """Whatever a JSON record accepts or refuses in a column, its spelling as a cell does too."""
    names = [name for name in FITTING if name in CATALOG.nodes["All"].properties]

    @drawn(20)
    @given(st.sampled_from(names), st.data())
    def agree(name: str, data: st.DataObject) -> None:
        value = data.draw(st.one_of(FITTING[name], anything))
        text = value if isinstance(value, str) else json.dumps(value)
        is_text = name in ("text", "kind", "blob", "day", "at")
        if isinstance(value, str) != is_text or value is None or "\x00" in text:
            return
        record = json.dumps({"type": "All", "data": {name: value}}).encode()
        lines = loaded(tmp_path / "a.jsonl", record, CATALOG)

        found = cell(tmp_path, name, text)

        wanted = lines.reasons.get(0) or lines.rows["node:All"][0][name]
        alike = {"does_not_fit", "wrong_type"}
        assert repr(found) == repr(wanted) or {str(found), str(wanted)} <= alike, text

    agree()


def test_nothing_between_two_commas_is_null_and_quotes_make_it_a_text(tmp_path: Path) -> None:
    found = parsed(tmp_path, 'id,text,i32\na,,\nb,"",1\n')

    rows = {row["id"]: (row["text"], row["i32"]) for row in found.rows["node:All"].values()}
    assert rows == {"a": (None, None), "b": ("", 1)}


def test_the_header_is_line_one_and_a_record_is_one_line_whatever_it_contains(
    tmp_path: Path,
) -> None:
    found = parsed(tmp_path, 'id,text\na,"x\ny\n"\n\nb,z\nc,no!\n')

    assert found.rows["node:All"][1]["text"] == "x\ny\n"
    assert (list(found.rows["node:All"]), list(found.refused)) == ([1, 3], [4])
    assert (found.lines, found.records) == (5, 3)


def test_records_with_too_few_or_too_many_cells_are_refused_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_files, "RECORD_BYTES_MAX", 40)
    good = "".join(f"a{n},t\nshort{n}\nb{n},t,more\n" for n in range(20))

    found = parsed(tmp_path, f"id,text\n{good}last\n")

    assert found.refused.pop(61)["raw"] == b"last"
    assert [each["message"] for each in found.refused.values()] == [
        "found 1 cells, expected 2",
        "found 3 cells, expected 2",
    ] * 20
    assert list(found.refused) == [n for n in range(1, 61) if n % 3 != 1]
    names = {place: row["id"] for place, row in found.rows["node:All"].items()}
    assert names == {3 * n + 1: f"a{n}" for n in range(20)}
    assert (found.lines, found.records) == (62, 61)


def test_a_refused_record_is_shown_as_an_object_of_its_cells(tmp_path: Path) -> None:
    found = parsed(tmp_path, "key,age\nx,7.5\n", columns={"id": "key", "i32": "age"})

    assert json.loads(found.refused[1]["raw"]) == {"key": "x", "age": "7.5"}
    assert found.refused[1]["type"] == "All"
    assert found.refused[1]["message"] == "i32: found 7.5, expected I32"


def test_a_record_that_is_not_utf8_is_refused_alone(tmp_path: Path) -> None:
    found = parsed(tmp_path, b"id,text\na,x\nb,\xff\nc,y\n")

    assert list(found.rows["node:All"]) == [1, 3]
    assert found.refused[2]["message"] == "found bytes that are not UTF-8, expected text"


@pytest.mark.parametrize("content", ["", "id,text", "id,text\n", "\ufeffid,text\r\n\r\n"])
def test_a_file_without_records_is_nothing_special(tmp_path: Path, content: str) -> None:
    found = parsed(tmp_path, content)

    assert (found.records, found.rows, found.refused) == (0, {}, {})


@pytest.mark.parametrize("content", ["\ufeffid,text\r\na,x\r\n", "id,text\na,x"])
def test_marks_and_ends_of_lines_are_no_part_of_a_cell(tmp_path: Path, content: str) -> None:
    assert parsed(tmp_path, content).rows["node:All"][1]["text"] == "x"


@pytest.mark.parametrize("content", ['"id","text"\na,01', 'id,text\r\na,"01"', "id,text\ra,01\r"])
def test_every_column_is_read_as_text(tmp_path: Path, content: str) -> None:
    assert parsed(tmp_path, content).rows["node:All"][1]["text"] == "01"


@pytest.mark.parametrize(("header", "name"), [('id,"te\nxt"', r"te\\nxt"), ('id,te"xt', 'te"xt')])
def test_a_name_in_the_header_may_contain_newlines_and_quotes(
    tmp_path: Path, header: str, name: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"has a column for '{name}'"):
        parsed(tmp_path, header + "\na,01\nb\n")


def test_a_quote_that_is_not_closed_refuses_the_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"a\.csv cannot be read as CSV: a quote is not"):
        parsed(tmp_path, 'id,text\na,x\nb,"y\nc,z\n')


def test_a_record_beyond_the_limit_refuses_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_files, "RECORD_BYTES_MAX", 30)

    with pytest.raises(InvalidInputError, match=r"a\.csv cannot be read as CSV"):
        parsed(tmp_path, f"id,text\na,{'x' * 100}\n")


def position_in(path: Path) -> int:
    """How far this process has read an open file."""
    (number,) = (fd.name for fd in Path("/proc/self/fd").iterdir() if fd.resolve() == path)
    return int(Path("/proc/self/fdinfo", number).read_text().split()[1])


def test_a_file_is_read_two_blocks_ahead_of_its_records_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = 1 << 16
    monkeypatch.setattr(csv_files, "RECORD_BYTES_MAX", block)
    line = b"some id,some text\n"
    content = b"id,text\n" + line * (40 * block // len(line))
    split = whole(written(tmp_path / "a.csv", content, type_name="All"))

    leads = [
        position_in(tmp_path / "a.csv") - batch.lines * len(line)
        for batch in csv_files.read_csv(split)
    ]

    assert len(leads) > 40
    assert max(leads) <= 3 * block


def test_an_unknown_column_refuses_the_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"a\.csv has a column for 'texd'.*`text`"):
        parsed(tmp_path, "id,texd\n")


def test_a_packed_file_reads_like_a_plain_one_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    content = b"id,text\n" + b"".join(b"%d,x\n" % n for n in range(5000))
    path = tmp_path / "a.csv.gz"

    found = loaded(path, content, CATALOG, type_name="All")

    assert found.records == 5000
    split = whole(written(path, content, type_name="All"))
    path.write_bytes(gzip.compress(content)[:-20])
    with pytest.raises(InvalidInputError, match=r"a\.csv\.gz is not a complete gzip file"):
        outcome(parse_split(split, CATALOG, new_ids=id_source(counting_ids())))


def test_edges_have_their_ends_as_columns(tmp_path: Path) -> None:
    found = parsed(tmp_path, "src,dst,note\na,b,n\n,b,n\n", type_name="Link")

    assert found.rows["edge:Link"][1]["src"] == "a"
    assert found.reasons == {2: "missing_required"}
