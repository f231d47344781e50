"""Canonical texts of Json: one per value, exact, and within limits whatever comes in."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omnigraph_lake.schema.json_text import (
    ABSENT,
    BYTES_MAX,
    DEPTH_MAX,
    InvalidJson,
    JsonText,
    canonical_text,
    canonical_value,
    kind_of,
    large_integers_as_text,
    parse_path,
    python_value,
    value_at,
)

pytestmark = pytest.mark.unit

decimals = st.decimals(
    min_value=Decimal("-1e300"), max_value=Decimal("1e300"), allow_nan=False, places=None
).filter(lambda number: number == 0 or (abs(number.adjusted()) <= 307 and len(str(number)) <= 300))
values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**40), 10**40),
        st.floats(allow_nan=False, allow_infinity=False).filter(
            lambda number: number == 0 or 1e-307 <= abs(number) < 1e308
        ),
        decimals,
        st.text(max_size=5),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (' { "b" : 1 , "a" : [ ] } ', '{"a":[],"b":1}'),
        ('{"é":1,"z":2,"Z":3}', '{"Z":3,"z":2,"é":1}'),
        ('"\\u00e9\\/\\u0000"', '"é/\\u0000"'),
        ("-0", "0"),
        ("-0.0e5", "0"),
        ("1.0", "1"),
        ("1.50", "1.5"),
        ("1e2", "100"),
        ("100000000000000000000", "100000000000000000000"),
        ("1E+21", "1e21"),
        ("1000000000000000000000", "1e21"),
        ("0.000001", "0.000001"),
        ("0.00000010", "1e-7"),
        ("-12345678901234567890.10", "-12345678901234567890.1"),
        ("12.5e-307", "1.25e-306"),
        ("9" * 308, "9" * 308),
        ("true", "true"),
    ],
)
def test_equal_values_have_one_text(text: str, canonical: str) -> None:
    assert canonical_text(text) == canonical
    assert canonical_text(canonical) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "nul",
        "[1,]",
        "{1:2}",
        "'a'",
        "01",
        "+1",
        ".5",
        "NaN",
        "-Infinity",
        "[1] 2",
        '{"a":1,"a":1}',
        '[{"a":{"b":1,"b":2}}]',
        '"\x00"',
        '"\n"',
        '"\\ud800"',
        '{"\\udc00":1}',
        "\ufeff1",
        "1e308",
        "1e400",
        "-1e-308",
        "1e99999999999999999999",
        "9" * 309,
        f"0.1{'0' * 308}1",
        "[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1),
        '{"a":' * (DEPTH_MAX + 1) + "1" + "}" * (DEPTH_MAX + 1),
        "[" * 100_000,
        f'"{"a" * BYTES_MAX}"',
        f'"{"é" * (BYTES_MAX // 2)}"',
        " " * (8 * BYTES_MAX) + "1",
    ],
    ids=lambda text: repr(text[:20]),
)
def test_what_is_no_json_or_beyond_a_limit_is_refused(text: str) -> None:
    with pytest.raises(InvalidJson):
        canonical_text(text)


def test_the_limits_themselves_are_allowed() -> None:
    deepest = "[" * DEPTH_MAX + "]" * DEPTH_MAX
    largest = f'"{"a" * (BYTES_MAX - 2)}"'

    assert canonical_text(deepest) == deepest
    assert canonical_text(largest) == largest
    assert canonical_value(json.loads(deepest)) == deepest


def _endless(copies: int) -> list[Any]:
    items: list[Any] = []
    items += [items] * copies
    return items


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        Decimal("NaN"),
        Decimal("1e400"),
        10**400,
        -(10**100_000),
        b"bytes",
        {1: 2},
        {"a": {None: 1}},
        {1, 2},
        object(),
        "\ud800",
        {"\udfff": 1},
        _endless(1),
        _endless(2),
        "a" * BYTES_MAX,
    ],
    ids=lambda value: type(value).__name__,
)
def test_python_values_that_json_does_not_have_are_refused(value: object) -> None:
    with pytest.raises(InvalidJson):
        canonical_value(value)


def test_null_is_the_null_of_the_column_and_a_str_is_a_json_string() -> None:
    assert canonical_text(" null ") is None
    assert canonical_value(None) is None
    assert canonical_value("null") == '"null"'
    assert canonical_value(JsonText("null")) is None
    assert canonical_value(JsonText(' {"a": 1.0}')) == '{"a":1}'


@given(values)
@example([10**21, 1e21, 1e22, 1e-7, 5e-7, Decimal("1e23"), Decimal("0.1000")])
def test_a_value_comes_back_equal_and_its_text_stays(value: Any) -> None:
    text = canonical_value(value)

    if text is None:
        assert value is None
        return
    assert _with_decimals(python_value(text)) == _with_decimals(value)
    assert canonical_text(text) == text


def _with_decimals(value: Any) -> Any:
    """The same value; a float is the number that it spells."""
    if isinstance(value, dict):
        return {name: _with_decimals(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_decimals(item) for item in value]
    return Decimal(repr(value)) if isinstance(value, float) else value


def test_a_path_has_names_indexes_and_quoted_names() -> None:
    assert parse_path("a.b[0][12].c") == ("a", "b", 0, 12, "c")
    assert parse_path('["a.b"].é["\\"[\\u00e9"]') == ("a.b", "é", '"[é')
    for text in ("", ".a", "a.", "a..b", "a[", "a[-1]", "a[01]", "a b", "a[0]b", "a.[0]", '["]'):
        with pytest.raises(ValueError, match="is no path"):
            parse_path(text)


def test_what_is_at_a_path_is_a_text_null_or_nothing() -> None:
    text = '{"a":{"b":[1.5,null,"x"]},"n":null}'

    assert value_at(text, ("a", "b")) == '[1.5,null,"x"]'
    assert value_at(text, ("a", "b", 1)) == "null"
    assert value_at(text, ("n",)) == "null"
    for path in (("b",), ("a", 0), ("a", "b", 3), ("a", "b", "x"), ("n", "x")):
        assert value_at(text, path) is ABSENT


def test_the_first_character_says_the_kind() -> None:
    texts = ["{}", "[]", '""', "-1", "0", "true", "false", "null"]

    assert " ".join(map(kind_of, texts)) == (
        "object array string number number boolean boolean null"
    )


def test_only_large_whole_numbers_become_text() -> None:
    text = '{"a":[9007199254740993,-9007199254740993,5,1e21,0.1,1234567890.123456789]}'

    assert large_integers_as_text(text, 2**53) == (
        '{"a":["9007199254740993","-9007199254740993",5,"1000000000000000000000",0.1,'
        "1234567890.123456789]}"
    )
