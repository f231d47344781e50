"""Scalar functions: every rule, every character, and that no function lacks an evaluator."""

from __future__ import annotations

import datetime as dt
import unicodedata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph_lake.engine.expressions import function_sql, letter_case
from omnigraph_lake.engine.expressions.kernels import KERNELS, Kernel
from omnigraph_lake.engine.expressions.sql import sql_of
from omnigraph_lake.engine.spark import function_columns
from omnigraph_lake.errors import InvalidInputError, QueryFailedError
from omnigraph_lake.graph import Graph
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import types as qt
from omnigraph_lake.query.binding import BoundParameters
from omnigraph_lake.query.functions import (
    DATE_UNITS,
    DECLARATIONS,
    MICROSECOND,
    TIME_UNITS,
    Evaluation,
    ScalarFunction,
)
from omnigraph_lake.query.text_patterns import PATTERN_CHARACTERS_MAX
from omnigraph_lake.runner.databases import open_database
from tests.query.answers import alike, plain
from tests.query.expression_values import EvaluationError
from tests.query.function_rules import (
    GIVEN,
    OF_RE2_ALONE,
    PARAMETERS,
    REFUSED,
    RULES,
    TOO_MANY_DIGITS,
)
from tests.query.function_values import (
    VALUES,
    WHITE_SPACE,
    function_value,
    simple_lower,
    simple_upper,
)
from tests.query.letter_case_runs import runs_of
from tests.query.people import ask
from tests.query.people_on_disk import people_on_disk

pytestmark = pytest.mark.unit

NO_PARAMETERS = BoundParameters(values={}, now=dt.datetime(2024, 1, 1, tzinfo=dt.UTC))
ONE_PERSON = '$p: Person { id: "ann" }'
CHARACTERS = [chr(code) for code in range(1, 0x20000) if not 0xD800 <= code < 0xE000]
"""All that have a case or are white space, and many that do not."""


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return people_on_disk(tmp_path_factory.mktemp("people"))


def _columns(texts: list[str]) -> str:
    return ", ".join(f"{text} as c{number}" for number, text in enumerate(texts))


def _wrong(rules: list[tuple[str, Any]], row: dict[str, Any]) -> list[Any]:
    return [
        (text, value, row[f"c{number}"])
        for number, (text, value) in enumerate(rules)
        if not alike(plain(row[f"c{number}"]), value)
    ]


def test_the_evaluator_defines_every_rule() -> None:
    rules = [rule for rule in RULES if rule[0] not in OF_RE2_ALONE]
    answer = ask(ONE_PERSON, _columns([text for text, _ in rules]), "", PARAMETERS, **GIVEN)

    assert _wrong(rules, answer.rows[0]) == []


def test_the_local_engine_has_every_rule(people: Graph) -> None:
    rules = list(RULES)
    columns = _columns([text for text, _ in rules])
    text = f"query q({PARAMETERS}) {{ match {{ {ONE_PERSON} }} return {{ {columns} }} }}"

    (row,) = people.query(text, dict(GIVEN)).to_pylist()

    assert _wrong(rules, row) == []


@pytest.mark.parametrize("text", REFUSED)
def test_a_value_that_is_refused_fails_the_query(people: Graph, text: str) -> None:
    with pytest.raises(EvaluationError):
        ask(ONE_PERSON, f"{text} as c", "", PARAMETERS, **GIVEN)
    query = f"query q({PARAMETERS}) {{ match {{ {ONE_PERSON} }} return {{ {text} as c }} }}"
    why = r"cannot be converted|does not fit into 64 bits|outside of the"
    if text in TOO_MANY_DIGITS:
        why = "a decimal does not fit into 38 digits"
    with pytest.raises(QueryFailedError, match=why):
        people.query(query, dict(GIVEN)).to_pylist()


def test_every_function_is_declared_and_has_each_evaluator_once() -> None:
    native = {
        function
        for function, declaration in DECLARATIONS.items()
        if declaration.evaluation is Evaluation.NATIVE
    }

    assert DECLARATIONS.keys() == VALUES.keys() == set(ScalarFunction)
    assert function_sql.NATIVE.keys() == function_columns.NATIVE.keys() == native
    assert function_sql.KERNEL_OF.keys() == set(ScalarFunction) - native
    assert KERNELS.keys() == set(Kernel)


def test_every_function_has_a_rule() -> None:
    for function in ScalarFunction:
        assert any(f"{function.value}(" in text for text, _ in RULES)


# Every character


def test_the_table_of_letter_case_is_that_of_unicode_14() -> None:
    """A newer Python has more letters with two cases; the table does not follow it."""
    for table, mapping in (
        (letter_case.lower_case(), simple_lower),
        (letter_case.upper_case(), simple_upper),
    ):
        changed = {ord(one): ord(mapping(one)) for one in CHARACTERS if mapping(one) != one}
        assert table.items() <= changed.items()
        if unicodedata.unidata_version == "14.0.0":
            assert table == changed


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="it prints another version")
def test_the_runs_of_the_table_are_those_that_are_printed() -> None:
    assert letter_case._LOWER.split() == runs_of(simple_lower).split()
    assert letter_case._UPPER.split() == runs_of(simple_upper).split()


def test_a_kernel_changes_the_case_of_every_character() -> None:
    texts = pa.array([*CHARACTERS, None, "", "aB\U00010428Ç"])

    for kernel, mapping in ((Kernel.LOWER, simple_lower), (Kernel.UPPER, simple_upper)):
        if unicodedata.unidata_version == "14.0.0":
            found = KERNELS[kernel].compute(texts).to_pylist()
            assert found[: len(CHARACTERS)] == [mapping(one) for one in CHARACTERS]
            assert found[len(CHARACTERS) :] == [None, "", "".join(map(mapping, "aB\U00010428Ç"))]


def test_white_space_is_trimmed_and_no_other_character_is() -> None:
    database = open_database()
    database.register("texts", pa.table({"t": [f"{one}a{one}" for one in CHARACTERS]}))
    call = function_sql.NATIVE[ScalarFunction.TRIM](["t"])

    found = database.sql(f"SELECT {call} FROM texts").fetchall()  # noqa: S608 - what is tested

    trimmed = {one for one, (text,) in zip(CHARACTERS, found, strict=True) if text == "a"}
    assert trimmed == WHITE_SPACE == set(function_sql.TRIMMED)
    assert all(len(text) == 3 for (text,) in found if text != "a")


def test_the_kernels_of_a_database_outlive_the_connection_that_added_them() -> None:
    database = open_database()
    function_sql.add_kernels(database.cursor())
    made = [[object() for _ in range(100)] for _ in range(100)]

    call = function_sql.kernel_call(Kernel.LOWER, ["chr(65) || i"])
    found = database.cursor().sql(f"SELECT {call} FROM range(3) AS t(i)").fetchall()  # noqa: S608

    assert found == [("a0",), ("a1",), ("a2",)]
    assert made


# Times


def _times() -> list[dt.datetime]:
    """Both ends of the range, days around every kind of boundary, and their last microseconds."""
    days = [dt.date(1, 1, 1), dt.date(9999, 12, 31)]
    for year in (4, 100, 400, 1582, 1900, 1969, 1970, 2000, 2023, 2024, 2026, 9996, 9998):
        start = dt.date(year, 1, 1) - dt.timedelta(days=8)
        days += [start + dt.timedelta(days=number) for number in range(0, 382, 3)]
        days += [start + dt.timedelta(days=number) for number in range(16)]
    midnights = [dt.datetime.combine(day, dt.time(), dt.UTC) for day in days]
    last = dt.timedelta(hours=23, minutes=59, seconds=59, microseconds=999_999)
    return [time + span for time in midnights for span in (dt.timedelta(0), last)]


def _value(call: str, arguments: list[Any]) -> Any:
    try:
        return function_value(ScalarFunction(call), arguments)
    except ValueError:
        return None


def test_functions_of_times_are_those_of_the_calendar() -> None:
    times = _times()
    database = open_database()
    function_sql.add_kernels(database)
    database.register(
        "times", pa.table({"t": times, "d": [time.date() for time in times]}, schema=_TIMES)
    )
    calls: list[tuple[str, list[str], qt.ExpressionType]] = [
        (part, [], kind)
        for part in ("year", "month", "day", "weekday", "week")
        for kind in (qt.DATE, qt.DATETIME)
    ]
    calls += [(part, [], qt.DATETIME) for part in ("hour", "minute", "second")]
    calls += [("truncate", [unit], qt.DATE) for unit in DATE_UNITS]
    calls += [("truncate", [unit], qt.DATETIME) for unit in TIME_UNITS]
    texts = [_time_call(*call) for call in calls]

    found = database.sql(f"SELECT {', '.join(texts)} FROM times").to_arrow_table()  # noqa: S608

    for (name, others, kind), column in zip(calls, found.columns, strict=True):
        values = [time.date() if kind == qt.DATE else time for time in times]
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", "UTC"))  # noqa: PLW2901 - as UTC
        assert column.to_pylist() == [_value(name, [value, *others]) for value in values]


_TIMES = pa.schema([("t", pa.timestamp("us", "UTC")), ("d", pa.date32())])


def _time_call(name: str, others: list[str], kind: qt.ExpressionType) -> str:
    function = ScalarFunction(name)
    time = ex.PropertyOf(variable="x", name="t", type=kind, nullable=False)
    call = ex.FunctionCall(
        function=function,
        arguments=(time, *(ex.Constant(value=unit, type=qt.STRING) for unit in others)),
        type=kind if others else qt.I64,
        nullable=False,
    )
    column = "d" if kind == qt.DATE else "t"
    return sql_of(call, column=lambda _: column, parameters=NO_PARAMETERS)


@pytest.mark.parametrize("unit", [*TIME_UNITS, MICROSECOND])
def test_times_are_added_as_the_calendar_does(unit: str) -> None:
    counts = [0, 1, -1, 11, -13, 59, -9998, 119_987, 2**40, 2**63 - 1, -(2**63)]
    rows = [(time, count) for time in _times()[::7] for count in counts]
    micros = pa.array([time for time, _ in rows], _TIMES.field("t").type).cast(pa.int64())
    units = pa.array([unit] * len(rows))

    added = KERNELS[Kernel.ADD_TIME].compute(micros, pa.array([n for _, n in rows]), units)

    found = added.cast(_TIMES.field("t").type).to_pylist()
    assert found == [_value("add", [time, count, unit]) for time, count in rows]
    assert any(value is None for value in found)


# Patterns that are given


@pytest.mark.parametrize(
    ("call", "value", "reason"),
    [
        ("matches($p.name, $x)", "a(?=b)", "look-around"),
        ("matches($p.name, $x)", "(", "not an RE2 regular expression"),
        ("matches($p.name, $x)", "a" * (PATTERN_CHARACTERS_MAX + 1), "at most 1000 characters"),
        ("like($p.name, $x)", "a\\b", "is followed by"),
        ("like($p.name, $x)", "a\\", "is followed by"),
        ("split($p.name, $x) is null", "", "cannot be empty"),
        ("truncate($p.born, $x) is null", "hour", "a Date has no hour; dates have year"),
        ("add($p.joined, 1, $x) is null", "microsecond", "is no unit; the units are year"),
    ],
)
def test_a_pattern_that_is_given_is_checked_before_anything_is_read(
    people: Graph, call: str, value: str, reason: str
) -> None:
    texts = [
        f"query q($x: String) {{ match {{ $p: Person {call} }} return {{ $p.id }} }}",
        f"query q($x: String) {{ match {{ $p: Person }} return {{ {call} as c }} }}",
    ]
    for text in texts:
        with pytest.raises(InvalidInputError, match=reason):
            people.query(text, {"x": value})


def test_a_deep_call_stays_small(people: Graph) -> None:
    deep = "$p.name"
    for _ in range(20):
        deep = f"substring($p.name, 0, length({deep}))"
    text = f"query q() {{ match {{ {ONE_PERSON} }} return {{ {deep} as c }} }}"

    assert people.query(text).to_pylist() == [{"c": "Ann"}]


def test_a_constant_is_collected(people: Graph) -> None:
    columns = "collect(distinct true) as one, collect(false) as all, collect($x) as none"
    text = f"query q($x: Bool?) {{ match {{ $p: Person }} return {{ {columns} }} }}"

    assert people.query(text, {"x": None}).to_pylist() == [
        {"one": [True], "all": [False] * 5, "none": []}
    ]


def test_a_nested_divisor_is_computed_once(people: Graph) -> None:
    deep = "$p.age"
    for _ in range(24):
        deep = f"(1 / {deep})"
    text = f"query q() {{ match {{ {ONE_PERSON} }} return {{ {deep} as c }} }}"

    assert people.query(text).to_pylist() == [{"c": 30.0}]


def test_mutations_and_groups_compute_with_times_and_lists(tmp_path: Path) -> None:
    graph = people_on_disk(tmp_path)
    graph.mutate(
        'query m() { update Person set { born: add(date("2024-01-31"), age, "month"),'
        ' joined: date("2024-01-01") + duration("PT1H") * age } where length(tags) >= 0 }'
    )
    graph.mutate(
        "query m() { match { $p: Person  $p.born is not null  year($p.born) = 2026 }"
        ' update $p set { tags: slice(["a", "b", "c"], 1, month($p.born)) } }'
    )

    rows = graph.query(
        "query q() { match { $p: Person  $p.age is not null }"
        ' return { truncate($p.born, "year") as year, max($p.joined - $p.born) as longest,'
        " count(*) as n, collect(day($p.born)) as days, max(length($p.tags)) as tags }"
        " having year(year) > 2000 order { year } }"
    ).to_pylist()
    start, hour = dt.date(2024, 1, 1), 3_600_000_000
    bob, ann = (start - dt.date(2025, 9, 30)).days, (start - dt.date(2026, 7, 31)).days
    assert [tuple(row.values()) for row in rows] == [
        (dt.date(2025, 1, 1), (bob * 24 + 20) * hour, 1, [30], 0),
        (dt.date(2026, 1, 1), (ann * 24 + 30) * hour, 1, [31], 2),
    ]


def test_a_mutation_computes_with_functions(tmp_path: Path) -> None:
    graph = people_on_disk(tmp_path)
    graph.mutate(
        'query m() { update Person set { name: concat(upper(name), "!") }'
        ' where like(name, "%a%") or length(name) > 4 }'
    )
    graph.mutate(
        "query m($n: String)"
        ' { insert Person { email: lower($n), name: trim($n), status: "left" } }',
        {"n": " ZOE "},
    )

    found = {row["id"]: row["name"] for row in graph.query(
        "query q() { match { $p: Person } return { $p.id as id, $p.name as name } }"
    ).to_pylist()}  # fmt: skip
    assert found == {
        "ann": "Ann",
        "bob": "Bob",
        "cat": "CAT!",
        "dan": "DAN!",
        "eve": "EVE_100%!",
        " zoe ": "ZOE",
    }
