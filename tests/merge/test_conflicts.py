from __future__ import annotations

import datetime as dt
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph_lake.errors import InvalidInputError, NotFoundError
from omnigraph_lake.merge.conflicts import (
    Choice,
    MergeCounts,
    MergePolicy,
    Resolution,
    Side,
    TypeResolution,
    parse_resolution,
    row_texts,
    value_texts,
)
from tests.schema.compiling import compiled

pytestmark = pytest.mark.unit

CATALOG = compiled(
    """
    node Person { name: String @key  age: I32?  mail: String? }
    node Knows { name: String @key }
    edge Knows: Person -> Person { since: Date? }
    edge Likes: Person -> Person { weight: F64? }
    """
)
FULL = {
    "default": "ours",
    "types": {
        "Person": {"default": "theirs", "columns": {"mail": "ours", "age": "newest"}},
        "edge:Knows": {"columns": {"src": "theirs"}},
    },
}


def policy(resolution: Resolution, *, source_is_newer: bool = False) -> MergePolicy:
    return MergePolicy(resolution=resolution, source_is_newer=source_is_newer)


@pytest.mark.parametrize("word", list(Choice))
def test_one_word_decides_everything(word: Choice) -> None:
    assert parse_resolution(word.value, CATALOG) == Resolution(default=word)


@pytest.mark.parametrize("nothing", [None, {}, "{}"])
def test_without_a_resolution_every_conflict_stays_open(nothing: object) -> None:
    found = parse_resolution(nothing, CATALOG)

    assert found == Resolution()
    assert policy(found).side("node:Person", "age") is None
    assert policy(found).side("node:Person", None) is None


@pytest.mark.parametrize(
    ("table_key", "column", "newer", "expected"),
    [
        ("node:Person", "age", True, Side.THEIRS),
        ("node:Person", "age", False, Side.OURS),
        ("node:Person", "mail", True, Side.OURS),
        ("node:Person", "name", False, Side.THEIRS),
        ("node:Person", None, False, Side.THEIRS),
        ("edge:Knows", "src", False, Side.THEIRS),
        ("edge:Knows", "dst", False, Side.OURS),
        ("edge:Knows", None, False, Side.OURS),
        ("node:Knows", None, False, Side.OURS),
    ],
)
def test_the_closest_word_wins_and_whole_rows_follow_the_type(
    table_key: str, column: str | None, newer: bool, expected: Side
) -> None:
    found = policy(parse_resolution(FULL, CATALOG), source_is_newer=newer)

    assert found.side(table_key, column) is expected


def test_a_column_without_a_word_stays_open_if_nothing_else_decides() -> None:
    found = policy(parse_resolution({"types": {"Likes": {"columns": {"dst": "ours"}}}}, CATALOG))

    assert found.side("edge:Likes", "dst") is Side.OURS
    assert found.side("edge:Likes", "src") is None
    assert found.side("edge:Likes", None) is None


def test_mappings_texts_and_files_mean_the_same(tmp_path: Path) -> None:
    path = tmp_path / "resolve.json"
    path.write_text(json.dumps(FULL))

    found = [parse_resolution(each, CATALOG) for each in (FULL, json.dumps(FULL), path, str(path))]

    assert found == [found[0]] * 4
    assert found[0].types == (
        TypeResolution(
            table_key="node:Person",
            default=Choice.THEIRS,
            columns=(("age", Choice.NEWEST), ("mail", Choice.OURS)),
        ),
        TypeResolution(table_key="edge:Knows", columns=(("src", Choice.THEIRS),)),
    )


@pytest.mark.parametrize("given", [None, "newest", FULL, {"types": {"Likes": {}}}])
def test_a_resolution_survives_json_and_is_a_plain_value(given: object) -> None:
    found = parse_resolution(given, CATALOG)

    again = parse_resolution(json.loads(json.dumps(found.to_json())), CATALOG)

    assert again == found
    assert hash(again) == hash(found)


def of_type(name: str, content: object) -> dict[str, Any]:
    return {"types": {name: content}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("thiers", "'thiers' is not a known resolution; did you mean `theirs`?"),
        ("Ours", "did you mean `ours`?"),
        ("", "'' is not a known resolution"),
        (7, "the resolution is int, expected a word or a mapping"),
        ({"defualt": "ours"}, "member of the resolution; did you mean `default`?"),
        ({"default": "oldest"}, "word for default of the resolution"),
        ({"default": None}, "default of the resolution is None, expected one of ours, theirs"),
        ({"types": ["Person"]}, "types is ['Person'], expected a mapping"),
        ({1: "ours"}, "expected a mapping with text as names"),
        (of_type("Persn", {}), "'Persn' is not a known type; did you mean `Person`?"),
        (of_type("Knows", {}), "Knows, which is a node type and an edge type"),
        (of_type("Person", "ours"), "node:Person is 'ours', expected a mapping"),
        (of_type("Person", {"column": {}}), "member of node:Person; did you mean `columns`?"),
        (of_type("Person", {"columns": {"agee": "ours"}}), "node:Person; did you mean `age`?"),
        (of_type("Person", {"columns": {"src": "ours"}}), "'src' is not a known column"),
        (of_type("Person", {"columns": {"id": "ours"}}), "'id' is not a known column"),
        (of_type("Person", {"columns": {"age": "newst"}}), "node:Person.age; did you mean `newest"),
        ({"types": {"Person": {}, "node:Person": {}}}, "names node:Person twice"),
        ('{"default": "ours", "default": "theirs"}', "'default' occurs twice"),
        ('{"default": ', "the resolution is not valid JSON"),
        ("{" + '"a":{' * 100_000, "the resolution is not valid JSON"),
    ],
)
def test_what_is_not_known_is_refused_by_name(given: object, message: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_resolution(given, CATALOG)

    assert message in str(refused.value)


def test_files_that_cannot_be_read_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "bytes.json").write_bytes(b"\xff")
    (tmp_path / "list.json").write_text("[]")

    with pytest.raises(NotFoundError, match=r"gone\.json does not exist"):
        parse_resolution(str(tmp_path / "gone.json"), CATALOG)
    with pytest.raises(InvalidInputError, match=r"bytes\.json cannot be read"):
        parse_resolution(tmp_path / "bytes.json", CATALOG)
    with pytest.raises(InvalidInputError, match=r"the resolution is \[\], expected a mapping"):
        parse_resolution(tmp_path / "list.json", CATALOG)


FAR = pa.array([2_932_897], pa.date32())
SIGNED = pa.array([1.5, math.nan, math.inf, -math.inf, -0.0, None])
VECTORS = pa.array([[1.0, math.nan], None, [0.5, 2.0]], pa.list_(pa.float32(), 2))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array(["", 'a"b', None]), ['""', '"a\\"b"', "null"]),
        (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
        (SIGNED, ["1.5", '"NaN"', '"Infinity"', '"-Infinity"', "-0.0", "null"]),
        (FAR, ['"10000-01-01"']),
        (
            pa.array([dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)], pa.timestamp("us", tz="UTC")),
            ['"2026-01-02T03:00:00.000000Z"'],
        ),
        (pa.array([[], None, [None, "x"]]), ["[]", "null", '[null,"x"]']),
        (pa.array([[1], None, [2, 3]], pa.list_(pa.int64()))[1:], ["null", "[2,3]"]),
        (VECTORS, ['[1.0,"NaN"]', "null", "[0.5,2.0]"]),
        (pa.array([[2_932_897]], pa.list_(pa.date32())), ['["10000-01-01"]']),
        (
            pa.array([b"", None], pa.large_binary()),
            [
                '{"bytes":0,"sha256":'
                '"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}',
                "null",
            ],
        ),
    ],
)
def test_values_of_every_type_have_a_json_of_their_own(
    values: pa.Array, expected: list[str]
) -> None:
    assert value_texts(values) == expected


def test_rows_are_objects_and_absent_rows_are_null() -> None:
    rows = pa.record_batch({"id": ["a", None], "age": pa.array([None, None], pa.int32())})

    assert row_texts(pa.array([True, False]), rows) == ['{"id":"a","age":null}', None]


def test_counts_add_up() -> None:
    left = MergeCounts(inserted=1, open=2)
    right = MergeCounts(inserted=3, resolved=4)

    assert left + right == MergeCounts(inserted=4, open=2, resolved=4)
