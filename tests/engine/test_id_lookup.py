"""Ids are found alike by looking through a column and by its order."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from omnigraph.engine.access import in_memory
from omnigraph.engine.access.in_memory import ColumnCache, place_of
from tests.drawing import seeds

pytestmark = pytest.mark.unit

IDS = ["", "a", "ab", "b", "ä", "€", "z", "𝄞", "Z", "0", "\uffff", "same", "same again"]
KEY = ("column", "of", "a test")


@pytest.fixture(autouse=True)
def _nothing_spent() -> Iterator[None]:
    in_memory.SPENT.__init__()  # type: ignore[misc]
    yield
    in_memory.SPENT.__init__()  # type: ignore[misc]


def shuffled(seed: str) -> list[str]:
    ids = list(IDS)
    random.Random(seed).shuffle(ids)
    return ids


@pytest.mark.random
@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize("spent", [0.0, 1.0])
@pytest.mark.parametrize("seed", seeds("ids", 3))
def test_every_id_is_found_where_it_stands(seed: str, spent: float, chunks: int) -> None:
    ids = shuffled(seed)
    parts = [ids[at::chunks] for at in range(chunks)]
    column = pa.chunked_array([pa.array(each, pa.string()) for each in parts])
    held = [each for part in parts for each in part]
    in_memory.SPENT.add(("order", *KEY), spent)

    found = {each: place_of(each, column, KEY, ColumnCache(1 << 20)) for each in [*ids, "no", "~"]}

    assert found == {**{each: held.index(each) for each in ids}, "no": None, "~": None}


@pytest.mark.parametrize("spent", [0.0, 1.0])
def test_nothing_is_found_in_an_empty_column(spent: float) -> None:
    in_memory.SPENT.add(("order", *KEY), spent)

    assert place_of("a", pa.array([], pa.string()), KEY, ColumnCache(1 << 20)) is None


def test_a_column_is_sorted_once_looking_through_it_took_as_long() -> None:
    column = pa.array([f"{each:07}" for each in range(200_000)])
    cache = ColumnCache(1 << 24)
    asked = 0

    assert place_of("0199999", column, KEY, cache) == 199_999
    assert ("order", *KEY) not in cache, "one question is no reason to sort"
    while ("order", *KEY) not in cache and asked < 100_000:
        asked += 1
        assert place_of("0150000", column, KEY, cache) == 150_000

    assert ("order", *KEY) in cache
    assert cache.memory_bytes == 4 * len(column)
