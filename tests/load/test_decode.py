from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.drawing import drawn
from tests.load.broken_records import CATALOG, line_texts
from tests.load.inputs import loaded
from tests.load.record_oracle import expected
from tests.schema.compiling import compiled

pytestmark = pytest.mark.unit


@pytest.mark.random
def test_a_block_of_records_comes_to_what_each_record_comes_to_alone(tmp_path: Path) -> None:
    @drawn(12)
    @given(st.lists(line_texts(), max_size=12))
    def agree(lines: list[bytes]) -> None:
        # The blank line keeps a byte order mark away from the start, where it would be none.
        found = loaded(tmp_path / "records.jsonl", b"\n".join([b"", *lines]), CATALOG)

        for place, line in enumerate(lines, start=1):
            if not line.strip(b" \t\r"):
                continue
            wanted = expected(line.removesuffix(b"\r"))
            assert found.reasons.get(place) == wanted.reason, (line, found.refused.get(place))
            if wanted.key is not None and wanted.row is not None:
                assert same(found.rows[wanted.key][place], wanted.row), line

    agree()


def same(found: dict[str, object], wanted: dict[str, object]) -> bool:
    """Equal, but for ids that were made up; zeros have signs."""
    made = isinstance(wanted["id"], str) and wanted["id"].startswith("new")
    ignored = {"id"} if made else set()
    return repr({k: v for k, v in found.items() if k not in ignored}) == repr(
        {k: v for k, v in wanted.items() if k not in ignored}
    )


def refusal(tmp_path: Path, line: bytes) -> tuple[str, str]:
    """Reason and message of a record that is refused, between two that are not."""
    good = b'{"type":"Bare"}'
    found = loaded(tmp_path / "a.jsonl", b"\n".join([good, line, good]), CATALOG)
    assert list(found.rows["node:Bare"]) == [0, 2]
    assert found.refused[1]["raw"] == line
    return found.refused[1]["reason"], found.refused[1]["message"]


@pytest.mark.parametrize(
    ("line", "reason", "message"),
    [
        (
            b'{"type":"Bare"',
            "malformed",
            "found a fault (expecting ',' delimiter) at character 15, expected one JSON object",
        ),
        (
            b'{"type":"Bare"} {"type":"Bare"}',
            "malformed",
            "found more text after the value at character 17, expected one JSON object",
        ),
        (
            b'{"type":"Bar',
            "malformed",
            "found an unterminated string at character 9, expected one JSON object",
        ),
        (
            b'{"type":"\xff"}',
            "malformed",
            "found bytes that are not UTF-8 at byte 10, expected one JSON object",
        ),
        (
            b'{"type":"All","data":{"f64":NaN}}',
            "malformed",
            "found NaN, which JSON does not allow, expected one JSON object",
        ),
        (
            b"[" * 100_000,
            "malformed",
            "found values that are nested too deeply, expected one JSON object",
        ),
        (b"[1]", "malformed", "found [1], expected one JSON object"),
        (b"null", "malformed", "found None, expected one JSON object"),
        (b"{}", "malformed", "found [], expected either type or edge"),
        (
            b'{"type":"Bare","edge":"Plain"}',
            "malformed",
            "found both type and edge, expected either type or edge",
        ),
        (
            b'{"type":"Bare","id":"x"}',
            "malformed",
            "found the member 'id', expected only type, data",
        ),
        (
            b'{"edge":"Plain","src":"x"}',
            "malformed",
            "found the member 'src', expected only edge, from, to, data",
        ),
        (b'{"type":5}', "malformed", "type: found 5, expected the name of a type"),
        (b'{"type":"Bare","data":null}', "malformed", "data: found None, expected an object"),
        (
            b'{"type":"All","data":{"i32":1,"i32":2}}',
            "duplicate_member",
            "the name 'i32' occurs more than once in an object",
        ),
        (
            b'{"type":"Bare","type":"Bare"}',
            "duplicate_member",
            "the name 'type' occurs more than once in an object",
        ),
        (
            b'{"type":"All","data":{"i32":{"x":1,"x":2}}}',
            "duplicate_member",
            "the name 'x' occurs more than once in an object",
        ),
        (b'{"type":"Bear"}', "unknown_type", "there is no node type 'Bear'; did you mean `Bare`?"),
        (
            b'{"type":"Plain"}',
            "unknown_type",
            'Plain is an edge type, expected a node type; an edge record uses "edge", not "type"',
        ),
        (
            b'{"edge":"Bare","from":"a","to":"b"}',
            "unknown_type",
            'Bare is a node type, expected an edge type; a node record uses "type", not "edge"',
        ),
        (
            b'{"edge":"Plane","from":"a","to":"b"}',
            "unknown_type",
            "there is no edge type 'Plane'; did you mean `Plain`?",
        ),
        (
            b'{"type":"All","data":{"texd":"x"}}',
            "unknown_column",
            "there is no column 'texd'; did you mean `text`?",
        ),
        (
            b'{"edge":"Plain","from":"a","to":"b","data":{"src":"a"}}',
            "unknown_column",
            "there is no column 'src' in data; from is next to it",
        ),
        (b'{"type":"All","data":{"i32":true}}', "wrong_type", "i32: found True, expected I32"),
        (b'{"type":"All","data":{"i32":1.5}}', "does_not_fit", "i32: found 1.5, expected I32"),
        (b'{"type":"All","data":{"f64":1e400}}', "wrong_type", "f64: found 1e400, expected F64"),
        (
            b'{"type":"All","data":{"f64":9007199254740993}}',
            "does_not_fit",
            "f64: found 9007199254740993, expected F64",
        ),
        (
            b'{"type":"All","data":{"text":"\\ud800"}}',
            "wrong_type",
            "text: found '\\ud800', expected String",
        ),
        (
            b'{"type":"All","data":{"day":"2023-02-29"}}',
            "wrong_type",
            "day: found '2023-02-29', expected Date",
        ),
        (
            b'{"type":"All","data":{"blob":"http://x"}}',
            "wrong_type",
            "blob: found 'http://x', expected Blob",
        ),
        (
            b'{"type":"All","data":{"blob":"base64:A"}}',
            "wrong_type",
            "blob: found 'base64:A', expected Blob",
        ),
        (
            b'{"type":"All","data":{"vector":[1]}}',
            "vector_size",
            "vector: found [1], expected Vector(2)",
        ),
        (
            b'{"type":"All","data":{"vector":[1,null]}}',
            "vector_item",
            "vector: found [1.0, None], expected a vector without null items",
        ),
        (
            b'{"type":"All","data":{"i32":1001}}',
            "out_of_range",
            "i32: found 1001, expected -5 to 1000",
        ),
        (
            b'{"type":"All","data":{"kind":"c"}}',
            "not_in_enum",
            "kind: found 'c', expected one of a, b",
        ),
        (
            b'{"type":"All","data":{"text":"a!"}}',
            "pattern_mismatch",
            "text: found 'a!', expected a match of '^[^!]*$'",
        ),
        (
            b'{"type":"All","data":{"id":""}}',
            "bad_id",
            "id: found '', expected 1 to 4096 bytes without control characters",
        ),
        (
            b'{"type":"Keyed","data":{"id":"x","a":"a","b":1}}',
            "bad_id",
            "id: found 'x', expected '[\"a\",\"1\"]', which is derived from the key",
        ),
        (
            b'{"edge":"Plain","from":"a"}',
            "missing_required",
            "dst: found nothing, expected a value",
        ),
        (b'{"edge":"Plain","from":1,"to":"b"}', "wrong_type", "src: found 1, expected String"),
        (
            b'{"edge":"Link","from":"a","to":"b"}',
            "missing_required",
            "note: found nothing, expected a value",
        ),
    ],
)
def test_a_refusal_names_the_first_fault_what_was_found_and_what_was_expected(
    tmp_path: Path, line: bytes, reason: str, message: str
) -> None:
    assert refusal(tmp_path, line) == (reason, message)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"type":"Nope","type":"All"', "malformed"),
        (b'{"type":"Nope","x":1,"x":1}', "malformed"),
        (b'{"type":"Nope","type":"Nope"}', "duplicate_member"),
        (b'{"type":"Nope","data":{"nope":1}}', "unknown_type"),
        (b'{"type":"All","data":{"i32":"x","nope":1}}', "unknown_column"),
        (b'{"type":"All","data":{"kind":"c","i32":"x"}}', "wrong_type"),
        (b'{"type":"All","data":{"i32":2000,"kind":"c"}}', "not_in_enum"),
    ],
)
def test_the_first_fault_counts(tmp_path: Path, line: bytes, reason: str) -> None:
    assert refusal(tmp_path, line)[0] == reason


@pytest.mark.parametrize(
    "line",
    [
        b'{"edge":"Link","from":"a","to":"b","data":{"note":"n","weight":1}}',
        b'{"edge":"link","from":"a","to":"b","data":{"note":"n","weight":1.0}}',
        b'{"edge":"lINK","from":"a","to":"b","data":{"weight":1,"note":"n"}}',
        b' { "to" : "b" , "data" : { "note" : "n" , "weight" : 1 }, "from":"a", "edge":"LINK" } \t',
        b'{"data":{"note":"n","weight":1,"id":null},"edge":"Link","from":"a","to":"b"}\r',
        b'{"\\u0065dge":"Link","from":"a","to":"b","data":{"n\\u006fte":"n","weight":1}}',
    ],
)
def test_a_record_means_the_same_in_any_order_spacing_and_case(tmp_path: Path, line: bytes) -> None:
    found = loaded(tmp_path / "a.jsonl", line, CATALOG)

    assert found.rows["edge:Link"] == {
        0: {"id": "new1", "src": "a", "dst": "b", "note": "n", "weight": 1.0}
    }


def test_values_of_every_type_arrive_as_they_are(tmp_path: Path) -> None:
    line = (
        b'{"type":"All","data":{"id":"x","text":"\\u00e9\\n","blob":"base64:AAE=","yes":true,"i32":-5,'
        b'"i64":-9223372036854775808,"u32":4294967295,"u64":18446744073709551615,"f32":0.5,'
        b'"f64":1e-300,"day":"2024-02-29","at":"2024-02-29T10:00:00+02:00","kind":"a",'
        b'"words":["a",null],"numbers":[],"bigs":[18446744073709551615],"floats":[0.5,null],'
        b'"days":["2024-02-29",null],"vector":[1,0.5],'
        b'"json":{"b":[1.50,12345678901234567890.10],"a":{"x":null}}}}'
    )

    found = loaded(tmp_path / "a.jsonl", line, CATALOG)

    assert found.rows["node:All"][0] == {
        "id": "x",
        "text": "é\n",
        "blob": b"\x00\x01",
        "yes": True,
        "i32": -5,
        "i64": -(2**63),
        "u32": 2**32 - 1,
        "u64": 2**64 - 1,
        "f32": 0.5,
        "f64": 1e-300,
        "day": "2024-02-29",
        "at": "2024-02-29 08:00:00.000000Z",
        "kind": "a",
        "words": ["a", None],
        "numbers": [],
        "bigs": [2**64 - 1],
        "floats": [0.5, None],
        "days": ["2024-02-29", None],
        "vector": [1.0, 0.5],
        "json": '{"a":{"x":null},"b":[1.5,12345678901234567890.1]}',
    }


def test_blank_lines_are_lines_and_no_records(tmp_path: Path) -> None:
    found = loaded(tmp_path / "a.jsonl", b'\n \t\n{"type":"Bare"}\r\n\r\n', CATALOG)

    assert (found.lines, found.records, list(found.rows["node:Bare"])) == (4, 1, [2])


def test_names_are_counted_line_by_line_before_a_blank_end(tmp_path: Path) -> None:
    lines = [b' {"type":"All","data":{"text":"a\\":"}}', b' {"type":"Bare"}', b"", b""]

    found = loaded(tmp_path / "a.jsonl", b"\n".join([*lines, b" "]), CATALOG)

    assert (found.lines, found.records, found.refused) == (5, 2, {})
    assert found.rows["node:All"][0]["text"] == 'a":'


def test_two_halves_of_a_record_and_a_double_one_do_not_pass_for_three(tmp_path: Path) -> None:
    half = [b'{"type":"Keyed","data":', b'{"type":"x","a":"a","b":1}}']
    double = b'{"type":"Bare"}{"type":"Bare"}'

    found = loaded(tmp_path / "a.jsonl", b"\n".join([*half, double]), CATALOG)

    assert found.reasons == dict.fromkeys(range(3), "malformed")


@pytest.mark.parametrize("count", [1, 255, 256, 1000])
def test_one_bad_line_among_many_does_not_touch_the_others(tmp_path: Path, count: int) -> None:
    lines = [b'{"type":"All","data":{"i32":%d}}' % (each % 900) for each in range(count)]
    lines[count // 2] = b'{"type":"All","data":{"i32":"x"}}'

    found = loaded(tmp_path / "a.jsonl", b"\n".join(lines), CATALOG)

    assert found.reasons == {count // 2: "wrong_type"}
    rows = found.rows.get("node:All", {})
    assert {place: row["i32"] for place, row in rows.items()} == {
        each: each % 900 for each in range(count) if each != count // 2
    }


def test_every_one_of_many_bad_lines_has_its_own_message(tmp_path: Path) -> None:
    lines = [b'{"type":"All","data":{"day":"day %d"}}' % each for each in range(333)]

    found = loaded(tmp_path / "a.jsonl", b"\n".join(lines), CATALOG)

    assert found.messages() == [f"day: found 'day {each}', expected Date" for each in range(333)]


def test_a_schema_without_edges_refuses_edges(tmp_path: Path) -> None:
    catalog = compiled("node Only { }")
    lines = b'{"type":"Only"}\n{"edge":"Knows","from":"a","to":"b"}'

    found = loaded(tmp_path / "a.jsonl", lines, catalog)

    assert found.reasons == {1: "unknown_type"}


def test_claimed_names_can_always_be_stored(tmp_path: Path) -> None:
    found = loaded(tmp_path / "a.jsonl", b'{"type":"\\ud800' + b"x" * 500 + b'"}', CATALOG)

    assert found.refused[0]["type"] == "?" + "x" * 127
    assert found.refused[0]["reason"] == "unknown_type"
