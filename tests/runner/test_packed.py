from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Sequence

import msgspec
import pytest

from omnigraph_lake.packed import Joined, Mapped, Packed

pytestmark = pytest.mark.unit

COUNT = 200


def packed(items: Sequence[int]) -> Packed[int]:
    return Packed(map(msgspec.msgpack.encode, items), int)


MAKERS: dict[str, Callable[[list[int]], Sequence[int]]] = {
    "packed": packed,
    "mapped": lambda items: Mapped(packed([-item for item in items]), lambda item: -item),
    "joined": lambda items: Joined(packed(items[:70]), items[70:]),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_items_are_those_of_a_list(make: Callable[[list[int]], Sequence[int]]) -> None:
    items = list(range(COUNT))
    sequence = make(items)

    assert len(sequence) == COUNT
    assert list(sequence) == items
    for index in (0, 63, 64, 69, 70, COUNT - 1, -1, -COUNT):
        assert sequence[index] == items[index]
    for chosen in (slice(60, 130), slice(None, None, 50), slice(190, 999)):
        assert list(sequence[chosen]) == items[chosen]
    for outside in (COUNT, -COUNT - 1):
        with pytest.raises(IndexError):
            sequence[outside]


def test_a_text_like_its_neighbours_takes_a_tenth_of_its_size() -> None:
    gc.collect()
    tracemalloc.start()
    texts = (f"{number:08}" + "the same for all " * 50 for number in range(2_000))
    sequence = Packed(map(msgspec.msgpack.encode, texts), str)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(sequence) == 2_000
    assert size < 2_000 * 85
