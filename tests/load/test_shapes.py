"""Lines that look alike: what is learned from one, and that no line means something else by it.

Every line is read in three ways: with its neighbours by their shape, with a space before it, which
no shape has, by the decoder of records, and alone by the oracle.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.load.formats.json_record import wire_of
from omnigraph_lake.load.formats.json_shapes import Shape, ShapeReader, shape_of
from omnigraph_lake.load.formats.splits import BlockLines
from tests.drawing import drawn
from tests.load.broken_records import CATALOG
from tests.load.inputs import loaded
from tests.load.record_oracle import Expected, expected
from tests.load.test_decode import same
from tests.schema.compiling import compiled

pytestmark = pytest.mark.unit

WIRE = wire_of(CATALOG)

FITTING = {
    "id": ['"a"', '"é"', '"n1"'],
    "text": ['""', '"é 😀"', '"x:y,{}[]"', '"null"', r'"\"a\\\""', r'"\\"', r'"\u00e9\n"'],
    "blob": ['"base64:AAEC"', '"base64:"'],
    "yes": ["true", "false"],
    "i32": ["5", "-5", "0", "1000"],
    "i64": ["9223372036854775807", "-9223372036854775808", "0"],
    "u32": ["4294967295", "0"],
    "u64": ["18446744073709551615", "0"],
    "f32": ["0.5", "16777216.0", "3e38", "1"],
    "f64": ["0.1", "-0.0", "1E+20", "5e-324", "123456789012345678.0"],
    "day": ['"2024-02-29"', '"0001-01-01"'],
    "at": ['"2024-02-29T10:00:00+02:00"', '"2024-01-31 10:00"'],
    "kind": ['"a"', '"b"'],
    "numbers": ["[]", "[1]", "[1,null, 2]", "[ ]"],
    "bigs": ["[18446744073709551615]", "[0,1]"],
    "floats": ["[0.5, 1]", "[null]", "[-0.0]"],
    "vector": ["[1,0.5]", "[-1.5e3, 0]", "[ 2 , 3e0 ]"],
}
"""Texts of values for every column whose values have slots in shapes."""

ODD = [
    *(
        '"a\\u0062"',
        '"\\ud800"',
        '"\\udc00"',
        '"\\n"',
        '"\t"',
        '"\x00"',
        '"\x7f"',
        '"a\\"b"',
        "'x'",
    ),
    *(
        "+5",
        "-0",
        "007",
        "-01",
        "-",
        "--5",
        "0x1F",
        "1_0",
        "1.0",
        "1e3",
        "1.",
        ".5",
        "1e",
        "5 6",
        "٣",
    ),
    *("NaN", "Infinity", "-Infinity", "Inf", "-Inf", "inf", "nan", "True", "NULL", "none", "nul"),
    *("2147483648", "-2147483649", "4294967296", "9223372036854775808", "18446744073709551616"),
    *("-1", "1001", "16777217", "9007199254740993", "1e400", "-1e400", "1e-400", "3.5e38"),
    *("1" + "0" * 400, "0." + "1" * 400, "1" * 5000, "null", "true", '"true"', '"5"', "5", "0.5"),
    *("[1,,2]", "[1,]", "[,1]", "[1 2]", "[01]", "[-0]", "[NaN]", "[1e400]", "[16777217]", '["a"]'),
    *("[true]", "[[1]]", "[{}]", "[1", "[1]]", "[1,0.5,2]", "[9007199254740993,1]", "[]", "[null]"),
    *("{}", '{"x":1}', "", " ", "5/**/", "//", '"x" "y"', '"x', 'x"', '"2023-02-29"', '"20240131"'),
    *('"2024-01-31T10:00:00.1234567"', '"99999-01-01"', '"base64:A"', '"http://x"', '"a!b"', '"c"'),
    *(
        '"x","i64":1',
        '5,"i64":1',
        '5,"i32":6',
        '5,"nope":1',
        "5}",
        "5,",
        '5}}{"type":"Bare"',
        "5\r",
    ),
    '5}} {"type":"All","data":{"i32":5',
    *(
        r'"\x"',
        r'"\u12"',
        r'"a\"',
        r'"a\\"',
        r'"a\\"b"',
        r'"\ud83d\ude00"',
        r'"\/"',
        "5\\",
        r"\"x\"",
    ),
]
"""Texts that are no value, none of most columns, or one that is better read alone."""


def record(column: str, value: str) -> bytes:
    text = f'{{"type":"All", "data": {{"{column}":{value}, "kind": "a" }}}}'
    if column == "kind":
        text = f'{{"type":"All", "data": {{"kind":{value}}}}}'
    return text.encode()


def require_agreement(tmp_path: Path, lines: list[bytes], wanted: list[Expected]) -> None:
    for prefix in (b"", b" "):
        found = loaded(tmp_path / "a.jsonl", b"\n".join(prefix + line for line in lines), CATALOG)
        for place, (line, alone) in enumerate(zip(lines, wanted, strict=True)):
            assert found.reasons.get(place) == alone.reason, (prefix + line, found.refused)
            if alone.key is not None and alone.row is not None:
                assert same(found.rows[alone.key][place], alone.row), prefix + line


@pytest.mark.parametrize("column", FITTING)
def test_an_odd_value_among_regular_ones_means_what_it_means_alone(
    tmp_path: Path, column: str
) -> None:
    lines = [record(column, value) for value in [*FITTING[column] * 3, *ODD, *FITTING[column]]]

    require_agreement(tmp_path, lines, [expected(line) for line in lines])


@pytest.mark.parametrize("column", FITTING)
def test_regular_values_are_read_by_shape(tmp_path: Path, column: str) -> None:
    lines = [record(column, value) for value in FITTING[column] * 3]

    rows, others = ShapeReader(WIRE).read(BlockLines(b"\n".join(lines)))

    assert others.tolist() == []
    assert [part.lines.tolist() for part in rows] == [list(range(len(lines)))]
    require_agreement(tmp_path, lines, [expected(line) for line in lines])


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("i32", ["1", "2147483648", "-2147483649", "-0", "7"]),
        ("i32", ["1", "007"]),
        ("i64", ["1", "0x1F"]),
        ("u64", ["1", "18446744073709551616", "-1", "-0", "18446744073709551615"]),
        ("f32", ["1", "16777217", "16777217.0", "-0", "-0.0", "3.5e38", "0"]),
        ("f64", ["1", "9007199254740993", "9007199254740993.0", "-0", "-0.0", "1e400", "-1e400"]),
        ("numbers", ["[1,2]", "[2147483648,1]", "[-0,1]", "[3]"]),
        ("numbers", ["[1, 2]", "[2147483648, 1]", "[-0, 1]", "[3]"]),
        ("floats", ["[1,2]", "[16777217,0]", "[-0,1]", "[-0.0,1]", "[1e400,1]", "[16777217.0]"]),
        (
            "vector",
            ["[1, 2]", "[16777217, 0]", "[-0, 1]", "[-0.0, 1]", "[1e400, 1]", "[3.5e38, 1]"],
        ),
        ("vector", ["[1,2]", "[1]", "[1,2,3]"]),
    ],
)
def test_numbers_that_arrow_can_read_may_still_have_to_be_read_alone(
    tmp_path: Path, column: str, values: list[str]
) -> None:
    lines = [record(column, value) for value in values]

    require_agreement(tmp_path, lines, [expected(line) for line in lines])


def test_literals_do_not_overlap(tmp_path: Path) -> None:
    lines = [b'{"type":"All","data":{"i32": %s , "text":"x"}}' % value for value in (b"5", b"6")]
    lines.append(b'{"type":"All","data":{"i32": , "text":"x"}}')

    require_agreement(tmp_path, lines, [expected(line) for line in lines])


@pytest.mark.random
def test_lines_that_are_nearly_alike_mean_what_each_means_alone(tmp_path: Path) -> None:
    @drawn(6)
    @given(st.randoms(use_true_random=False))
    def agree(chance: random.Random) -> None:
        shapes = [drawn_shape(chance) for _ in range(3)]
        lines = [drawn_line(chance, chance.choice(shapes)) for _ in range(40)]
        require_agreement(tmp_path, lines, [expected(line) for line in lines])

    agree()


def drawn_shape(chance: random.Random) -> str:
    """A text with a brace pair for each value, and the names of their columns."""
    comma, colon = chance.choice([(",", ":"), (", ", ": "), (" , ", " : ")])
    names = chance.sample([*FITTING], chance.randint(0, 5))
    data = comma.join(f'"{name}"{colon}<{name}>' for name in names)
    members = [f'"type"{colon}"All"', f'"data"{colon}{{{data}}}']
    if chance.random() < 0.3:
        members = [f'"edge"{colon}"Plain"', f'"from"{colon}<id>', f'"to"{colon}<text>']
    if chance.random() < 0.3:
        members.reverse()
    return "{" + comma.join(members) + "}"


def drawn_line(chance: random.Random, shape: str) -> bytes:
    """A line of a shape, with a value that does not fit, or a byte too many or too few."""
    for name, values in FITTING.items():
        rare = chance.random() < 0.06
        shape = shape.replace(f"<{name}>", chance.choice(ODD if rare else values))
    line = shape.encode().replace(b"\n", b" ")
    at = chance.randrange(len(line))
    if chance.random() < 0.1:
        extra = chance.choice([b"", b"\xff", b"\x00", b'"', b":", b" ", b"}", b"{", b",", b"\\"])
        line = line[:at] + extra + line[at + chance.randint(0, 1) :]
    return line


def learned(line: bytes) -> Shape:
    shape = shape_of(line, WIRE)
    assert shape is not None, line
    return shape


def test_a_shape_is_what_a_line_says_besides_its_values() -> None:
    shape = learned(b'{"edge": "link", "from":"a", "data": {"note": "n", "weight": 1}, "to":"b"}')

    assert shape.wire.declared == CATALOG.edges["Link"]
    assert shape.literals == (
        b'{"edge": "link", "from":"',
        b'", "data": {"note": "',
        b'", "weight": ',
        b'}, "to":"',
        b'"}\n',
    )
    assert [column.name for column in shape.columns] == ["src", "note", "weight", "dst"]


@pytest.mark.parametrize(
    ("data", "mentioned"),
    [
        (b"", set()),
        (b'"text":null', {"text"}),
        (b'"text":"a","i32":null', {"text", "i32"}),
        (b'"words":null,"id":"x"', {"words", "id"}),
    ],
)
def test_a_shape_names_the_columns_that_are_mentioned(data: bytes, mentioned: set[str]) -> None:
    assert learned(b'{"type":"All","data":{%s}}' % data).mentioned == mentioned


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b'{"data":{}}',
        b'{"type":"Nope"}',
        b'{"type":"Plain"}',
        b'{"type":null}',
        b'{"type":"Bare","edge":"Plain"}',
        b'{"type":"Bare","type":"Bare"}',
        b'{"type":"Bare","data":null}',
        b'{"type":"Bare","data":{},"data":{}}',
        b'{"type":"Bare","data":{"type":"Bare"}}',
        b'{"type":"Bare","id":"x"}',
        b'{"type":"All","text":"x"}',
        b'{"type":"All","data":{"text":"a","text":"b"}}',
        b'{"type":"All","data":{"text":{}}}',
        b'{"type":"All","data":{"text":5}}',
        b'{"type":"All","data":{"i32":"5"}}',
        b'{"type":"All","data":{"words":["a"]}}',
        b'{"type":"All","data":{"numbers":5}}',
        b'{"type":"All","data":{"nope":1}}',
        b'{"type":"All","data":{"text":"a",}}',
        b'{"type":"All","data":{"text":"a"},}',
        b'{"type":"All","data":{"text":"a"}} ',
        b' {"type":"All","data":{"text":"a"}}',
        b'{"type":"All","data":{"text":"a"}}{"type":"Bare"}',
        b'{"type":"All","data":{"te\\u0078t":"a"}}',
        b'{"type":"All","data":{"text":"a\\"}}',
        b'{"type":"\\u0041ll"}',
        b'{"t\\u0079pe":"All"}',
        b'{"edge":"Plain","from":"a","to":"b","src":"a"}',
        b'{"edge":"lInK","from":"a","to":"b"}',
    ],
)
def test_nothing_is_learned_from_other_lines(line: bytes) -> None:
    assert shape_of(line, WIRE) is None


def test_lines_of_many_shapes_in_turns_keep_their_order(tmp_path: Path) -> None:
    lines = [
        b'{"type":"All","data":{"i32":%d}}',
        b'{"type":"All","data":{"text":"t","i32":%d}}',
        b'{"type":"All","data":{"i32": %d, "text": null}}',
        b'{"data":{"i32":%d},"type":"All"}',
    ]
    content = b"\n".join(lines[n % 4] % n for n in range(800))

    rows, others = ShapeReader(WIRE).read(BlockLines(content))
    found = loaded(tmp_path / "a.jsonl", content, CATALOG)

    assert others.tolist() == []
    assert rows[0].lines.tolist() == list(range(800))
    assert [row["i32"] for row in found.rows["node:All"].values()] == list(range(800))
    assert [row["text"] for row in found.rows["node:All"].values()] == [None, "t", None, None] * 200


def test_a_shape_that_is_not_learned_at_once_is_learned_later() -> None:
    lists, plain = b'{"type":"All","data":{"words":["a"]}}', b'{"type":"Bare"}'
    reader = ShapeReader(WIRE)

    blocks = [reader.read(BlockLines(b"\n".join([lists, plain] * 500))) for _ in range(3)]

    assert blocks[-1][1].tolist() == list(range(0, 1000, 2))


def test_lines_that_are_all_different_are_left_to_another_reading() -> None:
    names = [f"p{number}" for number in range(9)]
    catalog = compiled("node Wide { " + " ".join(f"{name}: I32?" for name in names) + " }")
    chance = random.Random(1)
    lines = [
        '{"type":"Wide","data":{'
        + ",".join(f'"{name}":1' for name in chance.sample(names, chance.randint(1, 9)))
        + "}}"
        for _ in range(1000)
    ]

    _, others = ShapeReader(wire_of(catalog)).read(BlockLines("\n".join(lines).encode()))

    assert len(others) == 1000


@pytest.mark.parametrize(
    "lines", [[], [b""], [b"", b"x"], [b"\xff"], [b"{"], [b'"'], [b'{"type":"Bare"']]
)
def test_a_block_without_records_has_no_rows(lines: list[bytes]) -> None:
    reader = ShapeReader(WIRE)
    reader.read(BlockLines(b'{"type":"Bare"}\n{"type":"Bare","data":{"id":"long"}}\n'))

    rows, others = reader.read(BlockLines(b"".join(line + b"\n" for line in lines)))

    assert (rows, others.tolist()) == ((), list(range(len(lines))))


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_the_end_of_a_line_is_no_part_of_its_shape(tmp_path: Path, end: bytes) -> None:
    lines = [b'{"type":"All","data":{"i32":%d}}' % number for number in range(9)]

    found = loaded(tmp_path / "a.jsonl", end.join(lines), CATALOG)

    assert [row["i32"] for row in found.rows["node:All"].values()] == list(range(9))
    assert ShapeReader(WIRE).read(BlockLines(end.join(lines)))[1].tolist() == []
