"""How texts are read: what could be meant otherwise stays a text."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.importer.profile import ColumnProfile, count_distinct, count_missing, mix_hashes
from omnigraph.importer.property_types import property_type
from omnigraph.runner.key_hash import hash_keys

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


def test_distinct_and_missing_values_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the hashes do not fit into one partition."""
    monkeypatch.setattr("omnigraph.importer.profile.PARTITION_BYTES", 256)
    draw = random.Random(5)
    for _ in range(20):
        own = [draw.choice([None, *map(str, range(80))]) for _ in range(draw.randrange(1, 200))]
        known = [str(draw.randrange(60)) for _ in range(draw.randrange(1, 200))]
        hashes, others = (hashes_of(values) for values in (own, known))
        distinct = {value for value in own if value is not None}

        assert count_distinct(hashes) == len(distinct)
        assert count_missing(hashes, others) == (len(distinct), len(distinct - set(known)))
        pairs = {pair for pair in zip(own, own[::-1], strict=True) if None not in pair}
        assert count_distinct(mix_hashes([hashes, hashes[::-1]])) == len(pairs)


def hashes_of(values: Sequence[str | None]) -> np.ndarray:
    hashed = hash_keys([pa.array(values, pa.string())], bytes(range(32)))
    first = hashed.first.copy()
    if hashed.present is not None:
        first[~hashed.present] = 0
    return first
