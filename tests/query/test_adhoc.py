"""Texts without a name: what they mean with the values that are given."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph_lake.errors import InvalidInputError, QueryInvalidError
from omnigraph_lake.graph import Graph
from omnigraph_lake.query.checks.adhoc import names_without_declaration, parameters_of_values
from omnigraph_lake.query.parser import parse_queries
from omnigraph_lake.query.types import show
from tests.query.people_on_disk import people_on_disk

pytestmark = pytest.mark.unit

USES_X = "match { $p: Person  $p.name = $x } return { $p.id }"


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return people_on_disk(tmp_path_factory.mktemp("people"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", "String"),
        (True, "Bool"),
        (3, "I64"),
        (2**63, "U64"),
        (0.5, "F64"),
        (dt.date(2024, 5, 31), "Date"),
        (dt.datetime(2024, 5, 31, tzinfo=dt.UTC), "DateTime"),
        (b"x", "Blob"),
        (["a", None], "[String]"),
        ((1, 2.5), "[F64]"),
        ([1, 2**63], "[U64]"),
        (np.int32(3), "I64"),
        (np.array([1.5, 2.0]), "[F64]"),
        (np.datetime64("2024-05-31T00:00:00", "ns"), "DateTime"),
        (pa.scalar("a"), "String"),
    ],
)
def test_a_parameter_takes_the_type_of_its_value(value: object, expected: str) -> None:
    (parameter,) = parameters_of_values(parse_queries(USES_X), {"x": value, "unused": None})

    assert (parameter.name, show(parameter.type), parameter.nullable) == ("x", expected, False)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, r"is null, so its type is not known.*\n.*`\(\$x: String\?\) match"),
        ([], "a list without values"),
        ([None], "a list without values"),
        ([1, "a"], "a list of I64 and String"),
        ([-1, 2**63], "a list of I64 and U64"),
        (1j, "complex"),
        ([[1]], "list"),
        (2**64, "an integer beyond 64 bits"),
    ],
)
def test_a_value_without_a_type_is_refused(value: object, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        parameters_of_values(parse_queries(USES_X), {"x": value})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (USES_X, {"x"}),
        ("($x: String) " + USES_X, set()),
        ("query q() { " + USES_X + " }", set()),
        ("match { $p: T $p $e: knows $q as $w $a contains $q.name } return { $p } limit $n", "an"),
        ("match { $p: T $p knows{1,2} $q as $w } return { $w $e }", {"e"}),
        ("update T set { a: $a } where b = $b delete T where c = $b", "ab"),
        ("match {", set()),
    ],
)
def test_what_a_pattern_binds_is_no_parameter(text: str, expected: Any) -> None:
    assert names_without_declaration(parse_queries(text)) == set(expected)


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        ("match { $p: Person } return { count(*) as n }", {}, [{"n": 5}]),
        (
            "match { $p: Person  $p.age >= $least } return { $p.id } order { $p.id }",
            {"least": 20},
            [{"p.id": "ann"}, {"p.id": "bob"}, {"p.id": "dan"}],
        ),
        (
            "match { $p: Person  $p.age in $ages and $p.admin = $admin } return { $p.id }",
            {"ages": [30], "admin": True},
            [{"p.id": "ann"}],
        ),
        (
            "($least: I32?) match { $p: Person  $least is null } return { count(*) as n } limit $n",
            {"n": 3},
            [{"n": 5}],
        ),
        (
            "match { $n: Note } return { $n.id } order { nearest($n.vector, $v) } limit 1",
            {"v": np.array([1.0, 0.0], dtype=np.float32)},
            [{"n.id": "n3"}],
        ),
        (
            "match { $p: Person { name: $name } } return { $p.id }",
            {"name": "Ann"},
            [{"p.id": "ann"}],
        ),
    ],
)
def test_a_text_without_a_name_runs(
    people: Graph, text: str, given: dict[str, Any], expected: list[Any]
) -> None:
    assert people.query(text, given).to_pylist() == expected
    assert people.query(text, **given).to_pylist() == expected


def test_one_text_means_what_each_value_makes_of_it(people: Graph) -> None:
    text = "match { $p: Person { age: 30 } } return { $x as x }"

    assert [people.query(text, x=value).scalar() for value in (1, "a", 2.5)] == [1, "a", 2.5]
    assert people.explain(text, x=1).startswith("project x = $x")


@pytest.mark.parametrize(
    ("text", "given", "error", "said"),
    [
        (USES_X, {}, QueryInvalidError, r"neither bound.*\n.*\n.*\n.*give it a value, or declare"),
        (USES_X, {"x": "a", "y": 1}, InvalidInputError, r"the query has no parameter \$y"),
        (USES_X, {"x": "a", "p": 1}, InvalidInputError, r"the query has no parameter \$p"),
        (USES_X, {"x": 1}, QueryInvalidError, "no meaning for String and I64"),
        ("(x)", {}, QueryInvalidError, "expected a variable"),
        ("($x: I32) " + USES_X, {"x": "a"}, QueryInvalidError, "String and I32"),
        (
            "($a: I32) match { $p: Person { age: $a } } return { 1 }",
            {"a": "x"},
            InvalidInputError,
            r"parameter \$a of the query is str",
        ),
        (USES_X + " query q() { " + USES_X + " }", {}, QueryInvalidError, "found `query`"),
    ],
)
def test_a_text_that_does_not_fit_its_values_is_refused(
    people: Graph, text: str, given: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        people.query(text, given)


def test_a_mutation_needs_no_name(people: Graph) -> None:
    graph = people.branches.create("adhoc")

    graph.mutate(
        'insert Company { code: $code, name: "New", size: $size } '
        "update Person set { age: $age } where email = $who",
        code="new",
        size=3,
        age=31,
        who="ann",
    )

    assert graph.query('match { $c: Company { code: "new" } } return { $c.size }').scalar() == 3
    assert graph.query('match { $p: Person { id: "ann" } } return { $p.age }').scalar() == 31
    with pytest.raises(InvalidInputError, match="the query reads and changes nothing"):
        graph.mutate("match { $p: Person } return { $p.id }")


def test_a_stored_query_needs_a_name(people: Graph, tmp_path: Path) -> None:
    (tmp_path / "people.gq").write_text("match { $p: Person } return { $p.id }")

    with pytest.raises(InvalidInputError, match="has no name"):
        people.queries(tmp_path)


@pytest.mark.parametrize(
    ("match", "result", "expected"),
    [
        (
            '$c: Company { id: "acme" }',
            "$c.*",
            {"c.code": "acme", "c.city": "Oslo", "c.size": 10, "c.name": "Acme"},
        ),
        (
            '$p: Person $p $e: knows $q $e.id = "k3"',
            "$e.id, $e.*, $q.id as q",
            {
                "e.id": "k3",
                "e.since": None,
                "e.weight": 2,
                "e.comment": None,
                "q": "cat",
            },
        ),
        ('$x: Named $x.id = "bob"', "$x.*", {"x.name": "Bob"}),
        ('$x: Named $x.id = "bob"', "$x.* count(*) as n", {"x.name": "Bob", "n": 1}),
        (
            '$p: Person { id: "cat" } optional { $p worksAt $c }',
            "$c.*",
            {"c.code": None, "c.city": None, "c.size": None, "c.name": None},
        ),
    ],
)
def test_a_star_is_one_column_per_property(
    people: Graph, match: str, result: str, expected: dict[str, Any]
) -> None:
    text = f"match {{ {match} }} return {{ {result} }}"

    assert people.query(text).to_pylist() == [expected]
