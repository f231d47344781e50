"""What Arrow and NumPy do with texts, as the reading of JSON lines by their shape relies on it.

Relied on in: `load/formats/values.py`, `load/formats/json_shapes.py`, `load/formats/csv_files.py`,
`load/formats/raw_batches.py`.
"""

from __future__ import annotations

import math
import random
import struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.drawing import drawn

pytestmark = pytest.mark.unit


def as_float(text: str) -> float:
    value: float = pa.array([text]).cast(pa.float64())[0].as_py()
    return value


@pytest.mark.random
@drawn(300)
@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 40))
def test_arrow_reads_a_float_as_python_does(value: float, digits: int) -> None:
    for text in (repr(value), f"{value:.{digits}e}", f"{value:.{digits}f}"):
        assert struct.pack("<d", as_float(text)) == struct.pack("<d", float(text)), text


@pytest.mark.parametrize(
    "text",
    [
        "9007199254740993.0",
        "1.00000000000000011102230246251565404236316680908203125",
        "1.0000000000000001110223024625156540423631668090820312" + "4" * 500,
        "1.0000000000000001110223024625156540423631668090820312" + "6" * 500,
        "2.4703282292062327e-324",
        "2.4703282292062328e-324",
        "1.7976931348623157e308",
        "-1e-400",
        "0." + "0" * 400 + "1e400",
    ],
)
def test_arrow_rounds_to_the_nearest_float(text: str) -> None:
    assert struct.pack("<d", as_float(text)) == struct.pack("<d", float(text))


@pytest.mark.parametrize("text", ["1e400", "-1e400", "1" + "0" * 400, "1.7976931348623159e308"])
def test_arrow_reads_what_no_float_holds_as_infinite(text: str) -> None:
    assert math.isinf(as_float(text))


@pytest.mark.parametrize("text", ["007", "-007", "-0", "0x1F", "0xff"])
def test_arrow_reads_integers_in_other_forms_than_it_writes(text: str) -> None:
    assert pa.array([text]).cast(pa.int32()).cast(pa.string())[0].as_py() != text


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.uint32(), pa.uint64()])
def test_arrow_writes_integers_as_python_does_and_refuses_others(kind: pa.DataType) -> None:
    signed = pa.types.is_signed_integer(kind)
    low = -(2 ** (kind.bit_width - 1)) if signed else 0
    high = 2 ** (kind.bit_width - signed) - 1
    chance = random.Random(1)
    values = [low, low + 1, 0, 1, high - 1, high, *(chance.randint(low, high) for _ in range(500))]

    assert pa.array(values, kind).cast(pa.string()).to_pylist() == [str(value) for value in values]
    assert pa.array([str(value) for value in values]).cast(kind).to_pylist() == values
    for text in (
        str(low - 1),
        str(high + 1),
        "",
        "-",
        "1.0",
        "1e3",
        " 1",
        "1 ",
        "+1",
        "1_0",
        "null",
    ):
        with pytest.raises(pa.ArrowInvalid):
            pa.array([text]).cast(kind)


def test_a_pattern_ends_at_the_end_of_the_text() -> None:
    texts = pa.array(["5", "5\n", "5\nx", "x\n5", ""])

    assert pc.match_substring_regex(texts, pattern="^[0-9]$").to_pylist() == [True, *[False] * 4]


def test_a_text_is_split_at_every_comma() -> None:
    lists = pc.split_pattern(pa.array(["", "1", "1,2", "1,,2", "1,", ","]), pattern=",")

    assert lists.to_pylist() == [[""], ["1"], ["1", "2"], ["1", "", "2"], ["1", ""], ["", ""]]
    assert pc.ascii_trim(pa.array(["  1 2 ", " ", ""]), characters=" ").to_pylist() == [
        "1 2",
        "",
        "",
    ]


def test_windows_of_bytes_are_equal_only_if_all_bytes_are() -> None:
    data = b"abc" + bytes(range(256)) + b"abc\0\0abcabd\xff"
    windows = np.ndarray((len(data) - 2,), "S3", data, 0, (1,))

    assert np.flatnonzero(windows == b"abc").tolist() == [
        place for place in range(len(data)) if data[place : place + 3] == b"abc"
    ]


def test_values_between_offsets_can_be_taken_without_those_that_separate_them() -> None:
    data = b"<one><two><><three>"
    offsets = np.array([1, 4, 6, 9, 11, 11, 13, 18], np.int32)

    pieces = pa.StringArray.from_buffers(7, pa.py_buffer(offsets), pa.py_buffer(data))

    assert pieces.take(pa.array([0, 2, 4, 6])).to_pylist() == ["one", "two", "", "three"]
