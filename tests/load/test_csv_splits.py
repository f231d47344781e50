"""A CSV file that is cut between records is read as the whole file is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from omnigraph_lake.load.formats.csv_files import read_csv
from omnigraph_lake.load.formats.records import FileFormat, SourceFile, Split
from omnigraph_lake.load.formats.splits import csv_ranges, cut_records, plan_splits, scan_range

pytestmark = pytest.mark.random

Record = tuple[int, tuple[object, ...]]


def file_of(path: Path, content: bytes, *, delimiter: str = ",") -> SourceFile:
    path.write_bytes(content)
    return SourceFile(path=str(path), format=FileFormat.CSV, size=len(content), delimiter=delimiter)


def cut(file: SourceFile, split_bytes: int, *, block_bytes: int = 1 << 20) -> tuple[Split, ...]:
    splits = plan_splits([file])
    ranges = csv_ranges(splits, split_bytes)
    scans = [scan_range(part, block_bytes=block_bytes) for part in ranges]
    return cut_records(splits, ranges, scans)


def read(splits: tuple[Split, ...]) -> tuple[list[Record], int]:
    """All records with their places in the file, and the number of its lines."""
    records: list[Record] = []
    lines_before = 0
    for split in splits:
        lines = 0
        for batch in read_csv(split):
            cells = zip(*(column.to_pylist() for column in batch.cells.columns), strict=True)
            places = (batch.places + lines_before).tolist()
            records += zip(places, cells, strict=True)
            records += [(bad.place + lines_before, (bad.raw, bad.found)) for bad in batch.ragged]
            lines = batch.lines
        lines_before += lines
    return sorted(records, key=lambda record: record[0]), lines_before


def cell(draw: random.Random, *, regular: bool) -> str:
    words = ["", "a", "bc", "007", "\u00e9"]
    match draw.randrange(5):
        case 0:
            inner = draw.choice(["x", "x,y", "x\ny", "\r\n", '""', 'a""b', "\n\n", ""])
            return f'"{inner}"'
        case 1 if not regular and draw.random() < 0.1:
            return draw.choice(['5" disk', ' "x"', '"x" ', 'a"', '"a"b'])
        case _:
            return draw.choice(words)


def content_of(draw: random.Random, *, regular: bool) -> bytes:
    end = draw.choice(["\n", "\r\n"])
    header = draw.choice(["a,b", '"a",b', '"a\nz",b'])
    lines = [header]
    for _ in range(draw.randrange(40)):
        width = 2 if draw.random() < 0.9 else draw.choice([1, 3])
        lines.append(",".join(cell(draw, regular=regular) for _ in range(width)))
    text = end.join(lines) + draw.choice(["", end, end * 2])
    return draw.choice([b"", b"\xef\xbb\xbf"]) + text.encode()


@pytest.mark.parametrize("regular", [True, False], ids=["regular", "stray quotes"])
def test_every_record_of_a_file_is_read_once_at_its_place(regular: bool, tmp_path: Path) -> None:
    cuts = 0
    for seed in range(60):
        draw = random.Random(seed)
        file = file_of(tmp_path / "a.csv", content_of(draw, regular=regular))
        whole = plan_splits([file])
        try:
            expected = read(whole)
        except Exception as error:  # noqa: BLE001 - both must fail alike
            with pytest.raises(type(error)):
                read(cut(file, draw.randrange(1, 60)))
            continue

        splits = cut(file, draw.randrange(1, 60), block_bytes=draw.choice([1, 7, 1 << 20]))

        assert read(splits) == expected, (seed, splits)
        assert [split.number for split in splits] == list(range(len(splits)))
        cuts += len(splits) - 1
    assert cuts > (250 if regular else 20)


@pytest.mark.parametrize(
    "content",
    [
        b'a,b\n1,5" disk\n' + b"2,x\n" * 20,
        b'a,b\n1, "x\n"\n' + b"2,x\n" * 20,
        b'a,b\n1,"x"y\n' + b"2,x\n" * 20,
        b"a,b\n" + b"2,x\n" * 20 + b'1,"x\n',
    ],
    ids=["inside a value", "after a space", "before a text", "never closed"],
)
def test_a_file_with_a_quote_that_does_not_enclose_a_value_is_one_split(
    content: bytes, tmp_path: Path
) -> None:
    file = file_of(tmp_path / "a.csv", content)

    assert [(split.start, split.end) for split in cut(file, 10)] == [(0, len(content))]


def test_a_header_that_ends_in_a_carriage_return_is_read_alone(tmp_path: Path) -> None:
    file = file_of(tmp_path / "a.csv", b"a,b\r1,2\r3,4\n5,6\n7,8\n")

    splits = cut(file, 8)

    assert len(splits) > 1
    assert [cells for _, cells in read(splits)[0]] == [
        ("1", "2"),
        ("3", "4"),
        ("5", "6"),
        ("7", "8"),
    ]


def test_cells_are_texts_whatever_the_delimiter(tmp_path: Path) -> None:
    file = file_of(tmp_path / "a.csv", b"zip;n\n007;1\n010;2\n", delimiter=";")

    assert [cells for _, cells in read(cut(file, 8))[0]] == [("007", "1"), ("010", "2")]
