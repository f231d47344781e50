"""The schema that is inferred from an input takes all of its records."""

from __future__ import annotations

import csv
import datetime as dt
import json
import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph_lake as og
from tests.drawing import seeds

pytestmark = pytest.mark.random

TEXTS: Sequence[Sequence[str]] = (
    ("0", "7", "-12", "999999999999999999"),
    ("007", "-0", "+5", "9223372036854775807", "9223372036854775808", "1" * 40),
    ("1.5", ".5", "5.", "1e5", "6.02e23", "1e400", "-0.0", "inf", "9007199254740993"),
    ("1,234", "1,234.5", "1.234,5", "1 234,5", "1\u00a0234", "1'234.5", "(1,234)", "5 %", "$5"),
    ("2024-01-31", "2024-02-30", "0000-01-01", "9999-12-31", "10000-01-01", "2024-1-5"),
    ("2024-01-31T10:00:00Z", "9999-12-31T23:59:59-05:00", "2024-01-31 10:00:00.1234567"),
    ("31.12.2024", "31.04.2024", "12/31/2024", "01/02/2024", "1-Jan-45", "Jan 5, 1999", "20240131"),
    ("12/31/2024 10:30 PM", "12/31/2024 23:30", "01.02.2024 09:00:00"),
    ("true", "False", "YES", "no", "y", "T", "on", "1"),
    ("NA", "NULL", "nan", "\\N", "N/A", ".", "-", "?", "*", "..."),
    ("A", "B", "NA", "M", "F"),
    ("A", "B"),
    ("", " ", "x", "a b", "a|b", "a;b;c", "\u00e4\u6f22\U0001f600", 'q"q', "a,b", "{}", "[1]", "#"),
    ("base64:AAAA", "base64:!", "x" * 70_000, "0x1F", "1_000"),
)
JSON: Sequence[Sequence[object]] = (
    (1, -1, 2**53 + 1),
    (2**63, 2**64, -(2**63) - 1, 10**40),
    (1.5, 1e300, -0.0, 5e-324),
    (True, False),
    ("a", "1", "", "NA", "2024-01-31"),
    ({"a": 1}, {"a": "x"}, {"a": None, "b": [1]}, {}),
    ([1, 2], [None, 1], [2**63], []),
    ([1.5, 2], [None, 0.5], [1e300]),
    ([0.5] * 8, [1, *[0.5] * 7], [None, *[0.5] * 7], [1e300] * 8),
    (["a", None], ["b"], [""]),
    ([True], [None]),
    ([[1], [2]], [{"a": 1}, 5], [1, "x"]),
    ([{"a": 1}, {"a": 2}], [{"a": None}], [{"b": 0.5}]),
)
ARROW: Sequence[tuple[pa.DataType, Sequence[object]]] = (
    (pa.uint64(), (0, 2**64 - 1)),
    (pa.int8(), (-128, 127)),
    (pa.float16(), (0.5, float("inf"), float("nan"))),
    (pa.float64(), (0.5, float("inf"), float("nan"), 1e300, 2.0**60)),
    (pa.decimal128(38, 2), (Decimal("0.01"), Decimal(10) ** 35)),
    (pa.decimal256(60, 5), (Decimal("0.00001"), Decimal(10) ** 50)),
    (pa.date32(), (dt.date(1, 1, 1), dt.date(9999, 12, 31))),
    (pa.date32(), (-(10**6), 10**7)),
    (pa.timestamp("ns"), (1, 1_000_000_001)),
    (pa.timestamp("ns", "UTC"), (1, 1_000_000_001)),
    (pa.timestamp("s"), (-(10**11), 10**12)),
    (pa.time64("us"), (dt.time(1, 2, 3),)),
    (pa.duration("ms"), (dt.timedelta(days=1),)),
    (pa.binary(), (b"\xff", b"")),
    (pa.binary(4), (b"\xff\x00\x01\x02",)),
    (pa.large_string(), ("a", "", "NA")),
    (pa.dictionary(pa.int8(), pa.string()), ("a", "b")),
    (pa.dictionary(pa.int8(), pa.int64()), (1, 2)),
    (pa.null(), ()),
    (pa.list_(pa.int64()), ([1, None], [], [2])),
    (pa.list_(pa.uint64()), ([2**64 - 1], [0])),
    (pa.list_(pa.float64()), ([1.5], [float("nan")], [None])),
    (pa.list_(pa.date32()), ([dt.date(2024, 1, 31)], [None])),
    (pa.list_(pa.timestamp("ns")), ([1000], [None])),
    (pa.list_(pa.float32()), ([0.5] * 8, [None] * 8, [float("nan")] * 8)),
    (pa.list_(pa.float64()), ([0.5] * 8, [1e300] * 8)),
    (pa.list_(pa.decimal128(10, 2)), ([Decimal("0.01")],)),
    (pa.list_(pa.string(), 2), (["a", "b"],)),
    (pa.list_(pa.list_(pa.int64())), ([[1]], [])),
    (pa.struct({"a": pa.int64(), "b": pa.string()}), ({"a": 1, "b": None},)),
    (pa.list_(pa.struct({"a": pa.int64()})), ([{"a": 1}, {"a": None}], [])),
    (pa.map_(pa.string(), pa.int64()), ([("a", 1)], [])),
)


def cells(draw: random.Random, pools: Sequence[Sequence[Any]], count: int) -> list[Any]:
    """Values of one kind, of a kind but for a few, or of any kinds; some are null."""
    main = draw.choice(pools)
    others = draw.choice([main, main, draw.choice(pools), [v for pool in pools for v in pool]])
    odd, null = draw.choice([0, 0.1, 0.5]), draw.choice([0, 0, 0.2, 0.9])
    first = draw.choice([0, 0, 15])
    return [
        None
        if row < first or draw.random() < null
        else draw.choice(others if draw.random() < odd else main)
        for row in range(count)
    ]


def columns(
    draw: random.Random, pools: Sequence[Sequence[Any]], source: str
) -> dict[str, list[Any]]:
    """Columns, of which the last one tells records apart; none is named after another source."""
    count = draw.choice([1, 3, 30])
    names = ["code", "order_date", "tags", "v1", "v2", "v3"]
    drawn = {f"{source}{name}": cells(draw, pools, count) for name in names}
    return drawn | {"number": list(range(count))}


def write_csv(draw: random.Random, path: Path) -> int:
    drawn = columns(draw, TEXTS, path.stem)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
        writer.writerow(drawn)
        writer.writerows(zip(*drawn.values(), strict=True))
    return len(drawn["number"])


def write_json(draw: random.Random, path: Path) -> int:
    drawn = columns(draw, JSON, path.stem)
    records = [
        dict(zip(drawn, values, strict=True)) for values in zip(*drawn.values(), strict=True)
    ]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return len(records)


def write_sqlite(draw: random.Random, path: Path) -> int:
    numbers = ((1, 2, -(2**63)), (0.5, float("inf"), 1e300), (b"\x00\xff",))
    drawn = columns(draw, [*TEXTS, *numbers], path.stem)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"create table {path.stem} ({', '.join(drawn)})")
        places = ", ".join("?" * len(drawn))
        database.executemany(
            f"insert into {path.stem} values ({places})",  # noqa: S608 - our own names
            zip(*drawn.values(), strict=True),
        )
    return len(drawn["number"])


WRITERS: Sequence[tuple[str, Callable[[random.Random, Path], int]]] = (
    (".csv", write_csv),
    (".jsonl", write_json),
    (".sqlite", write_sqlite),
)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is inferred from a batch has to hold for those after it."""
    monkeypatch.setattr("omnigraph_lake.load.formats.csv_files._RAW_ROWS", 7)
    monkeypatch.setattr("omnigraph_lake.load.formats.table_files._ROWS", 7)


@pytest.mark.parametrize("seed", seeds("inferred from files", 2))
def test_no_record_of_a_file_is_rejected(seed: str, tmp_path: Path) -> None:
    draw = random.Random(seed)
    counts: dict[str, int] = {}
    for number in range(6):
        ending, write = WRITERS[number % len(WRITERS)]
        path = tmp_path / f"{'abcdef'[number]}{ending}"
        counts[path.stem] = write(draw, path)

    # Sources are called as the ends of some columns, so that these are references by name.
    report = og.import_data(
        str(tmp_path / "g"),
        [*map(str, sorted(tmp_path.glob("*.*")))],
        options=og.ImportOptions(max_rejected="100%"),
    )

    require_all(report, counts)


@pytest.mark.parametrize("seed", seeds("inferred from frames", 2))
def test_no_record_of_a_frame_is_rejected(seed: str, tmp_path: Path) -> None:
    draw = random.Random(seed)
    frames: dict[str, pa.Table] = {}
    for name in "abc":
        chosen = draw.sample(ARROW, 6)
        count = draw.choice([1, 3, 30])
        values = {
            f"{name}v{at}": pa.array(cells(draw, [pool or (None,)], count), kind)
            for at, (kind, pool) in enumerate(chosen)
        }
        frames[name] = pa.table({**values, "number": list(range(count))})

    report = og.import_data(str(tmp_path / "g"), frames)

    require_all(report, {name: len(frame) for name, frame in frames.items()})


def require_all(report: og.ImportReport, counts: dict[str, int]) -> None:
    assert report.load is not None
    # What is mostly a key of another source is a reference, whose other values have no node.
    missing = report.load.quarantined.get("missing_endpoint", 0)
    assert report.load.faults == missing, [*map(str, report.causes), report.schema]
    assert {source.name: source.records for source in report.sources} == counts
    assert report.load.read == sum(report.load.written.values()) + missing
