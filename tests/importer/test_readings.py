"""How texts are read: what could be meant otherwise stays a text."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from omnigraph_lake.importer.draft import property_type
from omnigraph_lake.importer.profile import ColumnProfile, HashedColumn, find_distinct

pytestmark = pytest.mark.unit


def type_of(*texts: str | None, quoted: bool = False) -> str:
    profile = ColumnProfile(path="values")
    # In two batches: what is inferred does not depend on where they end.
    for part in (texts[:1], texts[1:]):
        profile.add(pa.array(part, pa.string()), quoted=quoted)
    return property_type(profile)[0]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("1", "-2", "0"), "I64"),
        (("1", "007"), "String"),
        (("1", "2.5", "1e3"), "F64"),
        (("1", ""), "I64"),
        (("1,234.50", "5"), "F64"),
        (("1.234,50", "5"), "F64"),
        (("1,234", "5,678"), "String"),
        (("true", "false"), "Bool"),
        (("yes", "no"), "Bool"),
        (("yes", "maybe"), "String"),
        (("2024-02-29", "2023-01-01"), "Date"),
        (("2023-02-29",), "String"),
        (("2024-02-29T10:00:00Z", "2024-02-29 10:00:00"), "DateTime"),
        (("31/12/2024", "01/02/2024"), "Date"),
        (("12/31/2024", "01/02/2024"), "Date"),
        (("01/02/2024", "03/04/2024"), "String"),
        (("17.05.2024",), "Date"),
        ((None, None), "String"),
        (("", ""), "String"),
        (("99999999999999999999",), "String"),
    ],
)
def test_texts_are_read_as_the_most_specific_type(texts: tuple[str], expected: str) -> None:
    assert type_of(*texts) == expected


def test_numbers_in_quotes_are_texts() -> None:
    assert type_of("1", "2", quoted=True) == "String"
    assert type_of("2024-01-01", quoted=True) == "Date"


@pytest.mark.parametrize("block", [7, 1 << 18], ids=["many blocks", "one block"])
def test_distinct_and_missing_values_are_exact(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph_lake.importer.profile.BLOCK", block)
    draw = random.Random(5)
    for number in range(4):
        own = [draw.choice([None, *map(str, range(80))]) for _ in range(draw.randrange(1, 200))]
        known = [str(draw.randrange(60)) for _ in range(draw.randrange(1, 200))]
        folder = tmp_path / str(number)
        folder.mkdir()
        columns = [
            hashed(folder / name, values)
            for name, values in (("own", own), ("known", known), ("reversed", own[::-1]))
        ]
        distinct = {value for value in own if value is not None}
        pairs = {pair for pair in zip(own, own[::-1], strict=True) if None not in pair}

        own_hashes = find_distinct([columns[0]], len(own), folder / "d0")
        known_hashes = find_distinct([columns[1]], len(known), folder / "d1")
        pair_hashes = find_distinct([columns[0], columns[2]], len(own), folder / "d2")

        assert own_hashes.count == len(distinct)
        assert own_hashes.count_missing(known_hashes) == len(distinct - set(known))
        assert pair_hashes.count == len(pairs)


def test_records_that_lack_a_column_have_no_value_in_it(tmp_path: Path) -> None:
    column = HashedColumn(path=tmp_path / "column")
    column.append(pa.array(["a", "b"]), before=3)

    hashes = np.concatenate(list(column.blocks(7)))

    assert (hashes != 0).tolist() == [False, False, False, True, True, False, False]


def hashed(path: Path, values: Sequence[str | None]) -> HashedColumn:
    """In two batches."""
    column = HashedColumn(path=path)
    column.append(pa.array(values[:50], pa.string()), before=0)
    column.append(pa.array(values[50:], pa.string()), before=len(values[:50]))
    return column
