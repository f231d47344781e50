"""Values on Spark: every operator, whatever the session says about overflow and time zones."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from omnigraph_lake.engine.spark.rows import query_errors, refusal_of
from omnigraph_lake.errors import QueryFailedError
from omnigraph_lake.query.binding import bind
from omnigraph_lake.query.typed import TypedQuery
from omnigraph_lake.query.types import as_f32
from tests.gate.selection import for_gate
from tests.query import function_rules
from tests.query.evaluator import EPOCH, evaluate
from tests.query.expression_values import EvaluationError
from tests.spark.query_answers import World, world

pytestmark = pytest.mark.spark

SCHEMA = """
node Thing {
    name: String @key
    small: I32?
    long: I64?
    short: U32?
    large: U64?
    single: F32?
    double: F64?
    flag: Bool?
    day: Date?
    at: DateTime?
    words: [String]?
    longs: [I64]?
    doubles: [F64]?
}
"""
NUMBERS = ("small", "long", "short", "large", "single", "double")
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")


def thing(name: str, *values: Any, **others: Any) -> dict[str, Any]:
    empty = dict.fromkeys([*NUMBERS, "flag", "day", "at", "words", "longs", "doubles"], None)
    return {**empty, "id": name, "name": name, **dict(zip(NUMBERS, values, strict=False)), **others}


THINGS = [
    thing("a", 7, 2, 3, 5, 1.5, 2.5, flag=True, words=("x", "y"), longs=(1, 2), doubles=()),
    thing("b", -7, 2**62, 2**32 - 1, 2**64 - 1, as_f32(1.7), math.nan, flag=False, longs=()),
    thing("c", 0, 0, 0, 0, 0.0, -0.0, words=(), longs=(0, None), doubles=(math.nan, 2.0)),
    thing("d"),
    thing("e", 2**31 - 1, -(2**62), 1, 2**63, -1.5, math.inf, words=(None, "y"), doubles=(0.0,)),
    thing("Z", -1, 1, at=dt.datetime(2020, 2, 29, 23, 30, 1, 7, tzinfo=dt.UTC)),
    thing("é\U0001f600", day=dt.date(1, 1, 1), at=dt.datetime(1000, 1, 1, tzinfo=dt.UTC)),
    thing("\uffee", day=dt.date(9999, 12, 31), at=dt.datetime(1969, 12, 31, tzinfo=dt.UTC)),
]
VALUES = [
    "$t.small + 1",
    "$t.small - $t.short",
    "$t.small * $t.short",
    "$t.small / $t.short",
    "$t.small % 3",
    "7 % $t.small",
    "-7 % $t.small",
    "$t.short % $t.small + 1",
    "($t.small + 1) % ($t.short - 3)",
    "-$t.small",
    "-$t.double",
    "-$t.single * 2",
    "$t.double + $t.single",
    "$t.double * $t.small - 0.5",
    "$t.double / $t.single",
    "$t.large / 2",
    "$t.large % 10",
    "$t.large - $t.large",
    "$t.flag",
    "$t.flag = false",
    "not $t.flag",
    "$t.flag and $t.small > 0",
    "$t.flag or $t.small > 0",
    "$t.flag is null",
    "$t.small / 0 is null",
    '$t.words contains "y"',
    '"x" in $t.words',
    "$t.small in [7, -1]",
    "$t.small in []",
    "$t.double in [2.5, 0.0]",
    "$t.small in $t.longs",
    "$t.longs contains $t.double",
    "$t.doubles contains $t.double",
    "$t.small in $t.doubles",
    "$t.small in $some",
    "$t.name in $names",
    '$t.name < "b"',
    '$t.name contains "\\\\"',
    '$t.name starts_with ""',
    "$t.name ends_with $text",
    "$t.name = $text",
    "$t.words is null",
    "$t.single = 1.7",
    "$t.double = $float",
    "$t.large = 18446744073709551615",
    "$t.large > 9223372036854775807",
    "$t.large < $t.double",
    '$t.day < date("1970-01-01")',
    '$t.day = date("9999-12-31")',
    '$t.at = datetime("2020-03-01T00:30:01.000007+01:00")',
    '$t.at < datetime("1582-10-15T00:00:00Z")',
    "$t.at < now()",
    "$t.at < $moment",
    "$t.day",
    "$t.at",
    "$t.words",
    "$t.doubles",
    "$t.large",
    "$null",
    "$null is null",
    "$t.small = $null",
    "now()",
    "$moment",
    "1",
    "2.5",
    '"text"',
    "type($t)",
    "lower($t.name)",
    "upper($t.name)",
    "substring($t.name, $t.small, $t.short)",
    "substring($t.name, $t.long)",
    "substring($t.name, 0, $t.large)",
    "length($t.name)",
    'concat($t.name, "-", $t.name)',
    "replace($t.name, $t.name, $text)",
    *(text for text, _ in function_rules.RULES if text not in function_rules.OF_RE2_ALONE),
]
PARAMETERS = (
    "$some: [I32], $names: [String], $text: String, $float: F64, $null: I32?, $moment: DateTime, "
    f"{function_rules.PARAMETERS}"
)
GIVEN = {
    **function_rules.GIVEN,
    "some": (7, None),
    "names": ("a", "é\U0001f600"),
    "text": "\U0001f600",
    "float": 2.5,
    "null": None,
    "moment": dt.datetime(1000, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC),
}
TOO_LARGE = [
    ('$t: Thing { id: "b" }', "$t.long * 4"),
    ('$t: Thing { id: "b" }', "$t.long + $t.long"),
    ('$t: Thing { id: "e" }', "$t.long - $t.long * -1 - 1"),
    ('$t: Thing { id: "b" }', "$t.large + 0"),
    ('$t: Thing { id: "b" }', "$t.large * $t.large"),
    ('$t: Thing { id: "b" }', "-$t.large"),
    ('$t: Thing { id: "e" }', "$t.large % 18446744073709551615 - 1"),
    ('$t: Thing { id: "e" }', "($t.long * 2 - 1) % 0"),
    ('$t: Thing { id: "e" }', "5 % ($t.long * 2 - 1)"),
    ("$t: Thing", "sum($t.large)"),
    ("$t: Thing $u: Thing $t.long > 2", "sum($t.long)"),
    ("$t: Thing $t.long * 4 > 0", "$t.id"),
]
TOO_LARGE_IN_GATE = [TOO_LARGE[number] for number in (2, 9)]
LENIENT = [TOO_LARGE[number] for number in (0, 4, 9)]
MODES = [("true", "UTC"), ("false", "Asia/Kolkata")]


def all_things(spark: SparkSession, folder: Path) -> World:
    return world(spark, folder, {"nodes": {"Thing": THINGS}, "edges": {}}, SCHEMA)


def all_values(things: World) -> TypedQuery:
    """Every expression as a column of one query."""
    columns = ", ".join(f"{text} as c{number}" for number, text in enumerate(VALUES))
    return things.query("$t: Thing", f"$t.id, {columns}", "order { $t.id }", PARAMETERS)


def all_comparisons(things: World) -> TypedQuery:
    """Numbers of every two types, compared in every way."""
    tests = [
        f"$t.{one} {sign} $u.{other}"
        for one, other in itertools.combinations_with_replacement(NUMBERS, 2)
        for sign in for_gate(COMPARISONS, lambda sign: sign in ("=", "<"))
    ]
    columns = ", ".join(f"{text} as c{number}" for number, text in enumerate(tests))
    return things.query("$t: Thing $u: Thing", f"$t.id, $u.id, {columns}", "order { $t.id, $u.id }")


@pytest.fixture(scope="module")
def things(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    return all_things(spark, tmp_path_factory.mktemp("things"))


@pytest.fixture(params=MODES, ids=["strict", "lenient"])
def mode(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways to treat overflow, each with another time zone."""
    settings = ("spark.sql.ansi.enabled", "spark.sql.session.timeZone")
    kept = [spark.conf.get(name) for name in settings]
    for name, value in zip(settings, request.param, strict=True):
        spark.conf.set(name, value)
    yield
    for name, value in zip(settings, kept, strict=True):
        assert value is not None
        spark.conf.set(name, value)


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("mode")
def test_every_expression_has_the_value_that_it_means(things: World) -> None:
    assert len(things.same(all_values(things), GIVEN)) == len(THINGS)


def test_numbers_of_all_types_compare_as_the_language_says(things: World) -> None:
    assert len(things.same(all_comparisons(things))) == len(THINGS) ** 2


@pytest.mark.parametrize(("match", "result"), for_gate(TOO_LARGE, TOO_LARGE_IN_GATE.__contains__))
def test_an_integer_that_is_too_large_fails(things: World, match: str, result: str) -> None:
    require_failure(things, match, result)


@pytest.mark.parametrize("mode", MODES[1:], ids=["lenient"], indirect=True)
@pytest.mark.parametrize(("match", "result"), for_gate(LENIENT, lambda case: case is LENIENT[1]))
def test_it_fails_too_where_spark_would_let_it_pass(
    things: World, mode: None, match: str, result: str
) -> None:
    require_failure(things, match, result)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("text", function_rules.REFUSED)
def test_a_value_that_a_function_refuses_fails_the_query(things: World, text: str) -> None:
    require_failure(things, '$t: Thing { id: "a" }', f"{text} as c", function_rules.GIVEN)


def require_failure(
    things: World, match: str, result: str, given: Mapping[str, Any] | None = None
) -> None:
    parameters = "" if given is None else function_rules.PARAMETERS
    typed = things.query(match, result, parameters=parameters)
    values = bind(typed, given or {}, now=EPOCH).values
    with pytest.raises(EvaluationError):
        evaluate(typed, things.catalog, things.rows, values)
    frame = things.frame(typed, given)

    with pytest.raises((PySparkException, Py4JError)) as failed:
        frame.collect()
    refusal = refusal_of(failed.value)
    assert refusal is not None
    is_decimal = result.removesuffix(" as c") in function_rules.TOO_MANY_DIGITS
    assert ("a decimal does not fit into 38 digits" in str(refusal)) == is_decimal


def test_a_failure_of_the_query_is_known_by_its_words(things: World) -> None:
    frame = things.frame(things.query('$t: Thing { id: "b" }', "$t.long * 4"))

    with pytest.raises(QueryFailedError, match="does not fit"), query_errors():
        frame.collect()


def test_no_row_is_no_failure(things: World) -> None:
    assert things.ask('$t: Thing { id: "b" } $t.small > 99', "9223372036854775807 + 1") == []


def test_a_deep_expression_stays_small(things: World) -> None:
    deep = "$t.small" + " + 1" * 40
    remainders = "$t.small" + " % 90 + 1" * 12

    assert len(things.ask("$t: Thing", f"$t.id, {deep} as s, {remainders} as r")) == len(THINGS)


@pytest.mark.nightly("plans three hundred conditions; the gate has an expression of forty levels")
def test_many_conditions_join_without_depth(things: World) -> None:
    either = " or ".join(f"$t.small = {number}" for number in range(300))

    assert len(things.ask(f"$t: Thing {either}", "$t.id")) == 2
