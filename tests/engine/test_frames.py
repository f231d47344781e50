"""Rows with weights and paths, cut, joined and merged."""

from __future__ import annotations

import collections
import random

import numpy as np
import pytest

from omnigraph_lake.engine.frames import (
    ABSENT,
    EntityColumn,
    Frame,
    PathColumn,
    joined,
    merged_equal,
    ranges,
)
from omnigraph_lake.errors import QueryFailedError
from tests.gate.seeds import case_seeds, examples

pytestmark = pytest.mark.unit


def numbers(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def of(positions: list[int], weights: list[int] | None = None) -> Frame:
    return Frame(
        rows=len(positions),
        entities={"p": EntityColumn(tables=("node:P",), positions=numbers(*positions))},
        weights=None if weights is None else numbers(*weights),
    )


def counted(frame: Frame) -> dict[int, int]:
    """What a frame stands for, by position."""
    weights = [1] * frame.rows if frame.weights is None else frame.weights.tolist()
    found: collections.Counter[int] = collections.Counter()
    for position, weight in zip(frame.entities["p"].positions.tolist(), weights, strict=True):
        found[position] += weight
    return dict(found)


@pytest.mark.random
@pytest.mark.parametrize("spread", [1, 1_000_000], ids=["dense", "sparse"])
@pytest.mark.parametrize("largest", [None, 3, 2**40, 2**57])
def test_equal_rows_become_one_with_their_exact_weight(spread: int, largest: int | None) -> None:
    for seed in case_seeds("frames", examples(5)):
        generator = random.Random(seed)
        positions = [generator.choice([ABSENT, *range(0, 9 * spread, spread)]) for _ in range(20)]
        weights = None if largest is None else [generator.randint(1, largest) for _ in positions]
        frame = of(positions, weights)

        merged = merged_equal(frame)

        assert counted(merged) == counted(frame), seed
        assert merged.rows == len(set(positions)), seed


def test_a_null_is_merged_with_nulls_only() -> None:
    merged = merged_equal(of([ABSENT, 0, ABSENT, 0, 0], [1, 1, 4, 1, 1]))

    assert counted(merged) == {ABSENT: 5, 0: 3}


def test_no_rows_stay_no_rows() -> None:
    assert merged_equal(of([])).rows == 0
    assert merged_equal(Frame(rows=0)).rows == 0


def test_rows_without_variables_become_one_number() -> None:
    merged = merged_equal(Frame(rows=3, weights=numbers(2, 3, 2**60)))

    assert (merged.rows, merged.count) == (1, 2**60 + 5)


def test_rows_of_several_variables_are_left_alone() -> None:
    frame = of([1, 1]).with_entity("q", EntityColumn(tables=("node:P",), positions=numbers(2, 2)))

    assert merged_equal(frame).count == 2


def test_weights_multiply_row_by_row() -> None:
    frame = of([1, 2], [2**50, 1]).weighted(numbers(1, 2**12))

    assert counted(frame) == {1: 2**50, 2: 2**12}


@pytest.mark.parametrize("power", [63, 64, 90])
def test_a_row_that_64_bits_cannot_count_is_refused(power: int) -> None:
    frame = of([1], [2 ** (power // 2)])

    with pytest.raises(QueryFailedError, match="64 bits"):
        frame.weighted(numbers(2 ** (power - power // 2)))


def test_a_sum_that_64_bits_cannot_count_is_refused() -> None:
    frame = of([1] * 4, [2**61] * 4)

    with pytest.raises(QueryFailedError, match="64 bits"):
        _ = frame.count
    with pytest.raises(QueryFailedError, match="64 bits"):
        merged_equal(frame)


def paths() -> PathColumn:
    """0-1 over edge 5, null, 2-3-4 over edges 6 and 7, null, 8-9 over edge 1."""
    return PathColumn(
        lengths=numbers(1, -1, 2, -1, 1),
        nodes=EntityColumn(tables=("node:P",), positions=numbers(0, 1, 2, 3, 4, 8, 9)),
        edges=EntityColumn(tables=("edge:Knows",), positions=numbers(5, 6, 7, 1)),
    )


@pytest.mark.parametrize(
    ("rows", "lengths", "nodes", "edges"),
    [
        ([2, 0], [2, 1], [2, 3, 4, 0, 1], [6, 7, 5]),
        ([1, 1], [-1, -1], [], []),
        ([3, 4, 4, 1, 2], [-1, 1, 1, -1, 2], [8, 9, 8, 9, 2, 3, 4], [1, 1, 6, 7]),
        ([], [], [], []),
    ],
)
def test_paths_are_taken_whole(
    rows: list[int], lengths: list[int], nodes: list[int], edges: list[int]
) -> None:
    taken = paths().take(numbers(*rows))

    assert taken.lengths.tolist() == lengths
    assert taken.nodes.positions.tolist() == nodes
    assert taken.edges.positions.tolist() == edges


def test_a_mask_takes_the_same_rows_as_their_numbers() -> None:
    frame = of([4, 5, 6, 7, 8], [1, 2, 3, 4, 5]).with_path("way", paths())
    mask = np.array([True, False, True, True, False])

    by_mask, by_number = frame.take(mask), frame.take(numbers(0, 2, 3))

    assert by_mask.rows == by_number.rows == 3
    assert counted(by_mask) == counted(by_number) == {4: 1, 6: 3, 7: 4}
    nodes = [taken.paths["way"].nodes.positions.tolist() for taken in (by_mask, by_number)]
    assert nodes[0] == nodes[1]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_parts_joined_are_the_whole(size: int) -> None:
    frame = of([4, 5, 6, 7, ABSENT], [1, 2, 3, 4, 5]).with_path("way", paths())

    parts = list(frame.parts(size))
    whole = joined(parts)

    assert whole is not None
    assert max(each.rows for each in parts) <= size
    assert whole.entities["p"].positions.tolist() == [4, 5, 6, 7, ABSENT]
    assert whole.paths["way"].lengths.tolist() == [1, -1, 2, -1, 1]
    assert whole.paths["way"].nodes.positions.tolist() == paths().nodes.positions.tolist()
    assert counted(whole) == counted(frame)


def test_frames_with_and_without_weights_join_as_what_they_stand_for() -> None:
    whole = joined([of([1, 1]), of([1, 2], [5, 6])])

    assert whole is not None
    assert counted(whole) == {1: 7, 2: 6}


def test_ranges_count_on_from_each_start() -> None:
    assert ranges(numbers(10, 3, 7), numbers(2, 0, 3)).tolist() == [10, 11, 7, 8, 9]
    assert ranges(numbers(10), numbers(0)).tolist() == []
    assert ranges(numbers(), numbers()).tolist() == []


def test_of_several_types_each_row_is_of_one() -> None:
    column = EntityColumn(
        tables=("node:A", "node:B"),
        positions=numbers(0, 0, ABSENT, 3),
        which=np.array([0, 1, 0, 1], dtype=np.int8),
    )

    assert column.of_table("node:A").tolist() == [True, False, False, False]
    assert column.of_table("node:B").tolist() == [False, True, False, True]
    assert column.of_table("node:C").tolist() == [False] * 4
