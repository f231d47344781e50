"""Hashes of keys: equal for equal keys, however their arrays are made, and spread evenly."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pytest

from omnigraph_lake.runner.key_hash import hash_keys
from omnigraph_lake.validation.hashed_keys import Hashing, KeyBuckets, decode_keys, incoming_rows

pytestmark = pytest.mark.unit

SEED = b"a seed of these tests"
TEXTS = ["", "a", "a\0", "Zürich", "x" * 7, "x" * 8, "x" * 9, "y" * 300, "z" * 4096, "z" * 9000]


def hashed(*columns: pa.Array | pa.ChunkedArray, seed: bytes = SEED) -> list[tuple[int, int]]:
    hashes = hash_keys(columns, seed)
    assert hashes.present is None
    return list(zip(hashes.first.tolist(), hashes.second.tolist(), strict=True))


def one(value: object, kind: pa.DataType) -> tuple[int, int]:
    (key,) = hashed(pa.array([value], kind))
    return key


def test_hashes_are_the_same_in_every_process_and_on_every_platform() -> None:
    """Relied on by: keys that tasks hash meet in one bucket.

    The numbers were computed by the plain arithmetic of `test_random_keys`.
    """
    assert hashed(pa.array(["", "ann", "x" * 5000])) == [
        (13846752975720477738, 2469971306),
        (6981033664774403948, 195956209),
        (592620642360202860, 1415916234),
    ]
    assert hashed(pa.array([1, -1]), pa.array(["a", "b"])) == [
        (5101669694447481478, 1535349841),
        (8909752595708806775, 331842871),
    ]


@pytest.mark.parametrize(
    "kind",
    [pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view(), pa.binary_view()],
    ids=str,
)
def test_every_form_of_a_text_has_one_hash(kind: pa.DataType) -> None:
    assert hashed(pa.array(TEXTS).cast(kind)) == hashed(pa.array(TEXTS))


def test_chunks_slices_and_dictionaries_do_not_matter() -> None:
    expected = hashed(pa.array(TEXTS))
    around = pa.array(["before", *TEXTS, "after"])

    chunks = pa.chunked_array([TEXTS[:3], [], TEXTS[3:4], TEXTS[4:]], pa.string())

    assert hashed(around.slice(1, len(TEXTS))) == expected
    assert hashed(chunks) == expected
    assert hashed(around.dictionary_encode().slice(1, len(TEXTS))) == expected
    assert hashed(pa.array(range(9)).slice(4)) == hashed(pa.array(range(4, 9)))
    assert hashed(chunks, pa.array(range(10)).cast(pa.int16())) == hashed(
        pa.array(TEXTS), pa.chunked_array([range(9), [9]])
    )


def test_the_company_of_a_text_does_not_matter() -> None:
    """Texts are hashed in blocks, and long ones apart from short ones."""
    chance = random.Random(5)
    texts = ["k" * chance.choice([0, 1, 8, 20, 31, 500, 4095, 4097]) + str(n) for n in range(2000)]
    texts += [f"short-{number}" for number in range(40_000)]
    chance.shuffle(texts)

    together = hashed(pa.array(texts))

    chosen = chance.sample(range(len(texts)), 200)
    assert [together[number] for number in chosen] == [
        one(texts[number], pa.string()) for number in chosen
    ]


@pytest.mark.parametrize("size", [1, 7, 8, 26, 4096, 5000])
def test_texts_of_one_length_have_the_hashes_they_have_among_others(size: int) -> None:
    texts = [f"{number}".rjust(size, "é" if size % 2 else "x")[:size] for number in range(9)]

    alike = hashed(pa.array([*texts, *texts]))

    assert alike == [one(text, pa.string()) for text in texts] * 2
    assert hashed(pa.array([*texts, *texts, "é" * 100]))[:-1] == alike


def test_no_keys_have_no_hashes() -> None:
    assert hashed(pa.array([], pa.string())) == []
    assert hashed(pa.chunked_array([], pa.string()), pa.array([], pa.int64())) == []


def test_a_null_in_any_column_is_told_and_changes_no_other_key() -> None:
    names = pa.array(["a", None, "c", "d"])
    numbers = pa.array([1, 2, None, 4])

    hashes = hash_keys([names, numbers], SEED)

    assert hashes.present is not None
    assert hashes.present.tolist() == [True, False, False, True]
    kept = list(zip(hashes.first.tolist(), hashes.second.tolist(), strict=True))
    assert [kept[0], kept[3]] == hashed(pa.array(["a", "d"]), pa.array([1, 4]))


def test_both_zeros_are_one_value_and_so_is_every_nan() -> None:
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001], np.uint64)
    nans = hashed(pa.array(bits.view(np.float64)))

    assert len(set(nans)) == 1
    assert one(0.0, pa.float64()) == one(-0.0, pa.float64()) == one(-0.0, pa.float32())
    assert one(0.0, pa.float64()) != nans[0]


@pytest.mark.parametrize(
    ("value", "narrow", "wide"),
    [
        (-7, pa.int8(), pa.int64()),
        (200, pa.uint8(), pa.uint64()),
        (2.5, pa.float32(), pa.float64()),
        (2.5, pa.float16(), pa.float64()),
        (date(2024, 2, 29), pa.date32(), pa.date32()),
    ],
    ids=str,
)
def test_the_width_of_a_number_does_not_matter(
    value: object, narrow: pa.DataType, wide: pa.DataType
) -> None:
    assert one(value, narrow) == one(value, wide)


def test_different_keys_have_different_hashes() -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    columns: list[Sequence[pa.Array]] = [
        [pa.array(TEXTS)],
        [pa.array(["z" * 8999 + "y", "z" * 9001])],
        [pa.array([-(2**63), -1, 0, 1, 2**63 - 1])],
        [pa.array([2**63, 2**64 - 2], pa.uint64())],
        [pa.array([True, False])],
        [pa.array([1.5, -1.5, float("inf"), 5e-324])],
        [pa.array([at], pa.timestamp("us", tz="UTC"))],
        [pa.array(["ab", "a", "b", "a"]), pa.array(["c", "bc", "a", "b"])],
    ]

    for keys in columns:
        assert len(set(hashed(*keys))) == len(keys[0])


def test_another_seed_makes_other_hashes() -> None:
    values = pa.array([f"person-{number}" for number in range(1000)])

    assert not set(hashed(values)) & set(hashed(values, seed=b"another"))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([f"person-{number}" for number in range(100_000)]),
        pa.array(np.arange(100_000)),
        pa.array(np.arange(100_000) * 2**40),
        pa.array(np.linspace(0, 1, 100_000)),
    ],
    ids=["texts", "numbers", "upper-halves", "floats"],
)
def test_similar_keys_are_spread_over_all_bits(values: pa.Array) -> None:
    hashes = hash_keys([values], SEED)

    bits = [hashes.first >> np.uint64(bit) for bit in (0, 21, 32, 58)]
    for sixteenth in [*bits, hashes.second.astype(np.uint64), hashes.first % np.uint64(48)]:
        counts = np.bincount((sixteenth & np.uint64(15)).astype(np.intp), minlength=16)
        assert 5600 < counts.min() <= counts.max() < 6900  # 6250 and eight standard deviations
    assert len(np.unique(hashes.first)) == len(values)
    assert len(np.unique(hashes.second)) > len(values) - 25
    # The three parts are independent of each other.
    upper, lower = hashes.first >> np.uint64(32), hashes.first & np.uint64(2**32 - 1)
    for left, right in [(upper, lower), (upper, hashes.second), (lower, hashes.second)]:
        assert np.count_nonzero((left ^ right) & np.uint64(0xFFFF) == 0) < 20


def test_keys_of_a_bucket_are_in_the_order_of_rows_however_they_arrive() -> None:
    blobs: list[bytes] = []
    ids = pa.array([f"{number}" for number in range(20_000)])
    ranks = np.arange(len(ids), dtype=np.uint64)
    for split in (3, 1, 2):
        buckets = KeyBuckets(Hashing(seed=SEED, buckets=1))
        for start in range(0, len(ids), 6000):
            part = ids.slice(start, 6000)
            rows = incoming_rows(split, start, len(part))
            buckets.add(0, [part], rows, extras=(ranks[start : start + 6000],))
        blobs += [blob for _, blob in buckets.buckets()]
    random.Random(1).shuffle(blobs)

    keys = decode_keys(blobs)[0]

    assert keys.rows.tolist() == [split << 32 | row for split in (1, 2, 3) for row in range(20_000)]
    assert keys.extras[0].tolist() == [*ranks.tolist()] * 3
    assert list(zip(keys.first.tolist(), keys.second.tolist(), strict=True)) == hashed(ids) * 3


def test_rows_that_a_task_sends_in_another_order_are_sorted() -> None:
    buckets = KeyBuckets(Hashing(seed=SEED, buckets=1))
    buckets.add(0, [pa.array(["a", "b", "c"])], np.array([7, 1, 1 << 40], np.uint64))
    ((_, blob),) = buckets.buckets()

    keys = decode_keys([blob])[0]

    assert keys.rows.tolist() == [1, 7, 1 << 40]
    first = [key for key, _ in hashed(pa.array(["b", "a", "c"]))]
    assert keys.first.tolist() == first
