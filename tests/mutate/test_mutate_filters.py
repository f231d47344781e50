"""What of a condition is looked up in Lance: never less than what meets it."""

from __future__ import annotations

import datetime as dt

import pytest

from omnigraph.engine.access.conditions import lance_filter
from omnigraph.query.binding import BoundParameters
from omnigraph.query.plan import Mutation
from omnigraph.query.planning import plan_query
from omnigraph.query.typed import DeleteStatement
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
    return lance_filter(statement.condition, PARAMETERS)


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
