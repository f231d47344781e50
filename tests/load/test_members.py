from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.load.formats.json_record import (
    JsonReader,
    JsonValue,
    NotJson,
    Unheld,
    names_at_most,
)
from tests.drawing import drawn

pytestmark = pytest.mark.unit

names = st.text(alphabet="ab_é", max_size=3)
texts = st.text(alphabet='a":\\ \t{}[],é', max_size=6)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=8,
)


def count_names(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(count_names, value.values()))
    return sum(map(count_names, value)) if isinstance(value, list) else 0


@pytest.mark.random
@drawn(20)
@given(st.lists(st.tuples(values, st.sampled_from([":", ": ", " :", "\t: "]))), st.booleans())
def test_the_names_of_a_line_are_never_undercounted(
    lines: list[tuple[Any, str]], ended: bool
) -> None:
    data = "\n".join(
        json.dumps(value, separators=(",", colon), ensure_ascii=False) for value, colon in lines
    ).encode()

    counted = names_at_most(data + b"\n" if ended and lines else data).tolist()

    assert len(counted) == max(len(lines), 1)
    for at_most, (value, _) in zip(counted, lines, strict=False):
        assert at_most >= count_names(value)


def test_the_names_of_common_records_are_counted_exactly() -> None:
    lines = b'{"a": "12:30", "b": "say \\"x\\": y"}\n{"a":1,"a":2}\n\n{"url":"http://x"}'

    assert names_at_most(lines).tolist() == [2, 2, 0, 1]


def read(text: str) -> JsonValue | NotJson:
    return JsonReader().read(text.encode())


def test_the_first_repeated_name_is_told_however_deep_it_is() -> None:
    found = read('{"a":{"b":1,"c":[{"d":1,"d":2}]},"a":1}')

    assert isinstance(found, JsonValue)
    assert found.repeated == "d"
    assert read('{"a":{"a":1}}') == JsonValue(value={"a": {"a": 1}}, repeated=None)


def test_one_reader_forgets_the_names_of_earlier_texts() -> None:
    reader = JsonReader()
    reader.read(b'{"a":1,"a":2}')

    found = reader.read(b"{}")

    assert isinstance(found, JsonValue)
    assert found.repeated is None


@pytest.mark.parametrize("text", ["1e400", "-1E999", "1" * 30, "-" + "9" * 5000])
def test_a_number_beyond_64_bits_stays_as_it_is_written(text: str) -> None:
    found = read(text)

    assert isinstance(found, JsonValue)
    assert isinstance(found.value, Unheld)
    assert repr(found.value) == text


@pytest.mark.parametrize(
    "text", ["", " ", "NaN", "-Infinity", "01", "'a'", "{a:1}", "[1,]", "1 2", '"\t"', "\ufeff1"]
)
def test_what_is_no_json_is_refused(text: str) -> None:
    assert isinstance(read(text), NotJson)
