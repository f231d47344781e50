"""Ids are found alike by looking through a column and by its order."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from omnigraph_lake.engine.access import column_cache
from omnigraph_lake.engine.access.column_cache import ColumnCache, place_of
from omnigraph_lake.storage.objects.background import WORKER
from tests.drawing import seeds

pytestmark = pytest.mark.unit

IDS = ["", "a", "ab", "b", "ä", "€", "z", "𝄞", "Z", "0", "\uffff", "same", "same again"]
KEY = ("column", "of", "a test")


@pytest.fixture(autouse=True)
def _nothing_spent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OMNIGRAPH_BACKGROUND", "off")
    column_cache.SPENT.__init__()  # type: ignore[misc]
    yield
    column_cache.SPENT.__init__()  # type: ignore[misc]


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
    column_cache.SPENT.add(("order", *KEY), spent)

    found = {each: place_of(each, column, KEY, ColumnCache(1 << 20)) for each in [*ids, "no", "~"]}

    assert found == {**{each: held.index(each) for each in ids}, "no": None, "~": None}


@pytest.mark.parametrize("spent", [0.0, 1.0])
def test_nothing_is_found_in_an_empty_column(spent: float) -> None:
    column_cache.SPENT.add(("order", *KEY), spent)

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


def test_no_lookup_waits_for_the_sorting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMNIGRAPH_BACKGROUND")
    column = pa.array([f"{each:07}" for each in range(1000)])
    cache = ColumnCache(1 << 24)
    key = ("a column that is sorted in the background",)
    column_cache.SPENT.add(("order", *key), 1.0)

    assert place_of("0000999", column, key, cache) == 999

    assert WORKER.wait(60)
    assert ("order", *key) in cache
    assert place_of("0000998", column, key, cache) == 998
    assert place_of("0000999 ", column, key, cache) is None
