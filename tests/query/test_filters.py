"""Conditions and values: three-valued logic, comparisons, arithmetic, text and lists."""

from __future__ import annotations

import pytest

from tests.query.expression_values import EvaluationError
from tests.query.people import ask, values

pytestmark = pytest.mark.unit

EVERYBODY = ["ann", "bob", "cat", "dan", "eve"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("$p.age = 20", ["bob", "dan"]),
        ("$p.age != 20", ["ann", "eve"]),
        ("20 = $p.age", ["bob", "dan"]),
        ("$p.age >= 20 and $p.age < 30", ["bob", "dan"]),
        ("$p.age > 25 or $p.age < 0", ["ann", "eve"]),
        ("not ($p.age = 20)", ["ann", "eve"]),
        ("not $p.age = 20", ["ann", "eve"]),
        ("$p.age is null", ["cat"]),
        ("$p.age is not null", ["ann", "bob", "dan", "eve"]),
        ("$p.age = 20 or $p.age is null", ["bob", "cat", "dan"]),
        ("$p.age in [20, -5]", ["bob", "dan", "eve"]),
        ("not ($p.age in [20, -5])", ["ann"]),
        ("$p.age in []", []),
        ("not ($p.age in [])", ["ann", "bob", "dan", "eve"]),
        ("$p.age = 20.0", ["bob", "dan"]),
        ("$p.age = 20.5", []),
        ("$p.age > 19.5 and $p.age < 20.5", ["bob", "dan"]),
        ("$p.height = 1.7", ["cat"]),
        ("$p.height > 1.5", ["cat"]),
        ("$p.points = 9223372036854775808", ["ann"]),
        ("$p.points > 1", ["ann"]),
        ("$p.admin", ["ann"]),
        ("not $p.admin", ["cat"]),
        ("$p.admin = false", ["cat"]),
        ('$p.status = "away"', ["bob"]),
        ('$p.status in ["away", "left"]', ["bob", "eve"]),
        ('$p.name < "Bob"', ["ann"]),
        ('$p.name contains "a"', ["cat", "dan"]),
        ('$p.name contains "_100%"', ["eve"]),
        ('$p.name contains "%"', ["eve"]),
        ('$p.name starts_with "E"', ["eve"]),
        ('$p.name ends_with "n"', ["ann", "dan"]),
        ('$p.name starts_with ""', EVERYBODY),
        ('$p.tags contains "y"', ["ann", "cat"]),
        ('"x" in $p.tags', ["ann"]),
        ('not ($p.tags contains "x")', ["bob"]),
        ("$p.tags is null", ["dan", "eve"]),
        ('$p.born = date("2000-01-02")', ["bob"]),
        ('$p.joined < datetime("2020-01-01T01:00:00+01:00")', []),
        ('$p.joined = datetime("2020-01-01T01:00:00+01:00")', ["dan"]),
        ("$p.joined < now()", ["dan"]),
        ("$p.age + 1 = 21", ["bob", "dan"]),
        ("$p.age * 2 - 10 = 30", ["bob", "dan"]),
        ("$p.age / 8 = 2.5", ["bob", "dan"]),
        ("$p.age % 7 = 6", ["bob", "dan"]),
        ("$p.age % 3 = -2", ["eve"]),
        ("-$p.age = 5", ["eve"]),
        ("$p.age / 0 is null", EVERYBODY),
        ("$p.age % 0 is null", EVERYBODY),
        ('$p.id = "ann"', ["ann"]),
        ("1 < 2", EVERYBODY),
        ("true and false", []),
    ],
)
def test_a_condition_keeps_the_rows_for_which_it_is_true(
    condition: str, expected: list[str]
) -> None:
    assert values(f"$p: Person {condition}", "$p.id") == expected


def test_a_null_parameter_makes_a_comparison_unknown() -> None:
    parameters = "$age: I32?"

    assert values("$p: Person $p.age = $age", "$p.id", parameters=parameters, age=None) == []
    assert values("$p: Person $p.age != $age", "$p.id", parameters=parameters, age=None) == []
    either = values("$p: Person $age is null", "$p.id", parameters=parameters, age=None)
    assert either == EVERYBODY


def test_a_list_parameter_with_a_null_is_unknown_where_it_holds_no_match() -> None:
    parameters = "$ages: [I32]"

    inside = values("$p: Person $p.age in $ages", "$p.id", parameters=parameters, ages=(20, None))
    outside = values(
        "$p: Person not ($p.age in $ages)", "$p.id", parameters=parameters, ages=(20, None)
    )

    assert inside == ["bob", "dan"]
    assert outside == []


def test_a_condition_over_two_variables_compares_their_rows() -> None:
    found = values("$p: Person $p knows $q $p.age > $q.age", "$p.id, $q.id")

    assert found == [("ann", "bob")]


def test_integers_are_exact_and_an_overflow_is_refused() -> None:
    assert values("$c: Company $c.size > 10", "$c.size + 1") == [2**62 + 1, 2**62 + 1]
    with pytest.raises(EvaluationError):
        ask("$c: Company", "$c.size * 4")


def test_division_is_never_cut_to_an_integer() -> None:
    assert values('$p: Person { id: "ann" }', "$p.age / 4, $p.age % 4") == [(7.5, 2)]
