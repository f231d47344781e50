"""Parameters: what is accepted for each type, and what is refused before anything runs."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.query.binding import bind
from omnigraph_lake.query.types import as_f32
from tests.query.evaluator import EPOCH
from tests.query.people import query

pytestmark = pytest.mark.unit


def bound(declared: str, given: dict[str, Any]) -> Any:
    typed = query(f"query q({declared}) {{ match {{ $node: Person }} return {{ $node.id }} }}")
    return bind(typed, given, now=EPOCH).values


@pytest.mark.parametrize(
    ("declared", "given", "expected"),
    [
        ("String", "text", "text"),
        ("Blob", "base64:aGk=", "base64:aGk="),
        ("Blob", b"raw", b"raw"),
        ("I32", -(2**31), -(2**31)),
        ("I32", "12", 12),
        ("I64", "-9223372036854775808", -(2**63)),
        ("U32", 2**32 - 1, 2**32 - 1),
        ("U64", str(2**64 - 1), 2**64 - 1),
        ("F32", 0.1, as_f32(0.1)),
        ("F64", 1, 1.0),
        ("Bool", True, True),
        ("Date", "2024-02-29", dt.date(2024, 2, 29)),
        ("Date", dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
        ("DateTime", "2024-02-29T01:00:00+01:00", dt.datetime(2024, 2, 29, tzinfo=dt.UTC)),
        ("DateTime", "2024-02-29T00:00:00Z", dt.datetime(2024, 2, 29, tzinfo=dt.UTC)),
        ("DateTime", "2024-02-29T00:00:00", dt.datetime(2024, 2, 29, tzinfo=dt.UTC)),
        ("[I32]", [1, None, "3"], (1, None, 3)),
        ("[String]", (), ()),
        ("Vector(2)", [1, 0.5], (1.0, 0.5)),
        ("I32?", None, None),
        ("I32", np.int64(7), 7),
        ("F32", np.float32(0.1), as_f32(0.1)),
        ("Bool", np.bool_(True), True),
        ("String", np.str_("text"), "text"),
        ("Date", np.datetime64("2024-02-29"), dt.date(2024, 2, 29)),
        *(
            ("DateTime", np.datetime64("2024-02-29", unit), dt.datetime(2024, 2, 29, tzinfo=dt.UTC))
            for unit in ("ns", "us", "s")
        ),
        ("[I32]", np.array([1, 2]), (1, 2)),
        ("[I32]", pa.array([1, None]), (1, None)),
        ("Vector(2)", np.array([1, 0.5], dtype="float32"), (1.0, 0.5)),
        ("Vector(2)", pa.array([1, 0.5]), (1.0, 0.5)),
        ("I32?", pa.scalar(None, pa.int32()), None),
    ],
)
def test_a_value_of_the_declared_type_is_accepted(declared: str, given: Any, expected: Any) -> None:
    assert bound(f"$x: {declared}", {"x": given}) == {"x": expected}


@pytest.mark.parametrize(
    ("declared", "given"),
    [
        *(("String", 3), ("String", None), ("String", "\ud800"), ("Blob", 3)),
        *(("I32", 2**31), ("I32", 1.0), ("I32", True), ("I32", "1.5"), ("I32", "x"), ("U32", -1)),
        *(("I64", 2**63), ("U64", 2**64), ("U64", "1" * 50), ("I64", "\uff11")),
        *(
            ("F32", 1e39),
            ("F64", float("nan")),
            ("F64", float("inf")),
            ("F64", "1.5"),
            ("F64", 10**400),
        ),
        *(("Bool", 1), ("Bool", "true"), ("Date", "2024-02-30"), ("Date", dt.datetime(2024, 1, 1))),  # noqa: DTZ001
        *(("DateTime", "soon"), ("DateTime", 3), ("DateTime", "0001-01-01T00:00:00+10:00")),
        *(("[I32]", 3), ("[I32]", "12"), ("[I32]", ["x"]), ("[I32]", {"a": 1})),
        *(
            ("Vector(2)", [1]),
            ("Vector(2)", [1, "x"]),
            ("Vector(2)", [1, None]),
            ("Vector(1)", [1e39]),
            ("Vector(1)", np.zeros((1, 1))),
            ("I32", np.float64(1.0)),
            ("I32", np.int64(2**31)),
            ("F64", np.float32("nan")),
        ),
    ],
)
def test_any_other_value_is_refused_with_the_declaration(declared: str, given: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        bound(f"$x: {declared}", {"x": given})

    assert "$x" in str(caught.value)
    assert f"$x: {declared}" in str(caught.value)


def test_every_missing_parameter_is_named_before_anything_else() -> None:
    with pytest.raises(InvalidInputError) as caught:
        bound("$a: I32, $b: String, $c: Bool?", {"zzz": 1})

    assert "is missing $a, $b" in str(caught.value)


def test_a_nullable_parameter_may_be_left_out() -> None:
    assert bound("$a: I32?", {}) == {"a": None}


def test_an_unknown_parameter_is_refused_with_the_closest_name() -> None:
    with pytest.raises(InvalidInputError) as caught:
        bound("$name: String", {"name": "x", "nmae": "y"})

    assert "no parameter $nmae" in str(caught.value)
    assert "`name`" in str(caught.value)


@pytest.mark.parametrize(
    ("tail", "parameter"),
    [("limit $k", "$k: I32"), ("limit 3 offset $k", "$k: I64")],
)
def test_a_negative_limit_is_refused(tail: str, parameter: str) -> None:
    typed = query(f"query q({parameter}) {{ match {{ $p: Person }} return {{ $p.id }} {tail} }}")
    with pytest.raises(InvalidInputError, match="at least 0"):
        bind(typed, {"k": -1}, now=EPOCH)
    assert bind(typed, {"k": 0}, now=EPOCH).values == {"k": 0}


def test_edits_and_the_constant_of_a_fusion_have_limits_too() -> None:
    fuzzy = query(
        'query q($k: I32) { match { $p: Person fuzzy($p.name, "x", $k) } return { $p.id } }'
    )
    fused = query(
        "query q($k: I32) { match { $n: Note } return { $n.id } "
        'order { rrf(bm25($n.title, "x"), bm25($n.body, "x"), $k) } limit 1 }'
    )

    changed = query('query q($k: I32) { delete Note where fuzzy(title, "x", $k) }')

    for typed in (fuzzy, changed):
        with pytest.raises(InvalidInputError, match="0 to 2"):
            bind(typed, {"k": 3}, now=EPOCH)
    with pytest.raises(InvalidInputError, match="at least 1"):
        bind(fused, {"k": 0}, now=EPOCH)


def test_the_time_of_a_run_is_in_utc() -> None:
    typed = query("query q() { match { $p: Person $p.joined < now() } return { $p.id } }")
    zone = dt.timezone(dt.timedelta(hours=2))

    found = bind(typed, {}, now=dt.datetime(2024, 1, 1, 2, tzinfo=zone)).now

    assert found == dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert found.tzinfo is dt.UTC
