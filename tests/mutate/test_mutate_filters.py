"""What of a condition is looked up in Lance: never less than what meets it."""

from __future__ import annotations

import datetime as dt

import pytest

from omnigraph_lake.engine.access.conditions import lance_filter
from omnigraph_lake.engine.expressions.known_parts import with_known_condition
from omnigraph_lake.query.binding import BoundParameters
from omnigraph_lake.query.plan import Mutation
from omnigraph_lake.query.planning import plan_query
from omnigraph_lake.query.typed import DeleteStatement
from tests.query.people import CATALOG, query

pytestmark = pytest.mark.unit

PARAMETERS = BoundParameters(
    values={"word": "it's", "many": ("a", None, "b"), "far": 2**40, "none": None},
    now=dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
)
DECLARED = "$word: String, $many: [String], $far: I64, $none: I32?"


def found(condition: str, kind: str = "Person") -> str | None:
    typed = query(f"query q({DECLARED}) {{ delete {kind} where {condition} }}")
    plan = plan_query(typed, CATALOG)
    assert isinstance(plan, Mutation)
    (statement,) = plan.statements
    assert isinstance(statement, DeleteStatement)
    return lance_filter(with_known_condition(statement.condition, PARAMETERS), PARAMETERS)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ('email = "a"', "`email` = 'a'"),
        ("$word = id", "`id` = 'it''s'"),
        ('status = "away"', "`status` = 'away'"),
        ("age > -3", "`age` > -3"),
        ("3 > age", "`age` < 3"),
        ("age is null", "`age` IS NULL"),
        ("age is not null", "`age` IS NOT NULL"),
        ("email in $many", "`email` IN ('a', 'b')"),
        ("age in [1, 2]", "`age` IN (1, 2)"),
        ('age = 1 and name contains "x"', "(`age` = 1)"),
        ("age = 1 or age = 2", "(`age` = 1 OR `age` = 2)"),
        ("email = lower($word)", "`email` = 'it''s'"),
        ('email in split("a,b", ",")', "`email` IN ('a', 'b')"),
        ("age < 2 * 3 + length($word)", "`age` < 10"),
        ('born = date("0001-01-02")', "`born` = date '0001-01-02'"),
        ("joined <= now()", "`joined` <= timestamp '2024-01-01 00:00:00'"),
        (
            'joined > now() - duration("PT0.000001S")',
            "`joined` > timestamp '2023-12-31 23:59:59.999999'",
        ),
        ('name = "a" and (age = 1 or age = 2)', "(`name` = 'a' AND (`age` = 1 OR `age` = 2))"),
    ],
)
def test_what_lance_means_alike_is_looked_up(condition: str, expected: str) -> None:
    assert found(condition) == expected


@pytest.mark.parametrize(
    "condition",
    [
        "age = $far",
        "age = $none",
        "age = 1.0",
        "age != 1",
        "not (age = 1)",
        'age = 1 or name contains "x"',
        "points > 9223372036854775808",
        "height = 1.5",
        "age + 1 = 2",
        "age = age",
        "email = name",
        'tags contains "x"',
        "email in tags",
        "tags is null",
        "true",
    ],
)
def test_everything_else_is_left_to_the_condition(condition: str) -> None:
    assert found(condition) is None


def test_ends_of_edges_are_looked_up() -> None:
    assert found('from = "a" or to = "a"', "Knows") == "(`src` = 'a' OR `dst` = 'a')"
