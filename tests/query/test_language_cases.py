"""The language as it is executed: every rule with rows written by hand, over real graphs."""

from __future__ import annotations

import datetime as dt
import math
import re
from pathlib import Path
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import QueryFailedError
from omnigraph_lake.graph import Graph
from omnigraph_lake.query.compile import compile_queries
from omnigraph_lake.query.typed import TypedParameter
from omnigraph_lake.query.types import show
from omnigraph_lake.schema.catalog import VectorType
from tests.query import test_filters, test_search
from tests.query.people_on_disk import people_on_disk, rows
from tests.stores import root_at

pytestmark = pytest.mark.unit

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "query.md"


def cases_of(test: Any) -> list[Any]:
    """The table of a test that asks the evaluator."""
    (table,) = [each for each in test.pytestmark if each.name == "parametrize"]
    return list(table.args[1])


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return people_on_disk(tmp_path_factory.mktemp("people"))


# Conditions and searches that the evaluator is tested by


@pytest.mark.parametrize(
    ("condition", "expected"),
    cases_of(test_filters.test_a_condition_keeps_the_rows_for_which_it_is_true),
)
def test_a_condition_keeps_the_rows_for_which_it_is_true(
    people: Graph, condition: str, expected: list[str]
) -> None:
    assert rows(people, f"$p: Person {condition}", "$p.id") == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    cases_of(test_search.test_a_text_condition_compares_tokens),
)
def test_a_text_condition_compares_tokens(
    people: Graph, condition: str, expected: list[str]
) -> None:
    assert rows(people, f"$n: Note {condition}", "$n.id") == expected


# Patterns


@pytest.mark.parametrize(
    ("match", "result", "expected"),
    [
        ('$p: Person { tags: "y" }', "$p.id", ["ann", "cat"]),
        ('$p: Person { age: 20, status: "away" }', "$p.id", ["bob"]),
        ("$p: Person { age: 20 } $c: Company", "count(*)", [6]),
        ("$p: Person $p: Person { age: 30 }", "$p.id", ["ann"]),
        ("$x: Named", "count(*)", [8]),
        ('$x: Named $x.id = "ann"', "type($x)", ["Company", "Person"]),
        ("$x: Lonely", "$x.id", []),
        ("$c: Company $c worksAt $p", "$p.id", ["ann", "bob", "eve"]),
        (
            "$p: Person $p WORKSAT $c".replace("WORKSAT", "worksat"),
            "$c.id",
            ["acme", "acme", "ann"],
        ),
        ('$p: Person { id: "ann" } $p knows $q', "$q.id", ["bob", "cat"]),
        (
            '$p: Person { id: "ann" } $p $e: knows $q',
            "$q.id, $e.id",
            [("bob", "k1"), ("bob", "k2"), ("cat", "k5")],
        ),
        ('$p: Person { id: "ann" } $q knows $p', "$q.id", ["dan"]),
        ('$p: Person { id: "cat" } $p <knows> $q', "$q.id", ["ann", "bob", "cat", "dan"]),
        ('$p: Person { id: "cat" } $p $e: <knows> $p', "$e.id", ["k6"]),
        ("$p: Person $p knows $p", "$p.id", ["cat"]),
        ("$p: Person $q: Person $p knows $q $q knows $p", "$p.id, $q.id", [("cat", "cat")]),
        ("$p: Person $p knows $_ $p wrote $_", "$p.id", ["ann"] * 4 + ["bob"] + ["cat"] * 2),
        ("$x: Named $x worksAt> $c", "$x.name", ["Ann", "Bob", "Eve_100%"]),
        ("$a: Company $a contains $b", "$a.id, $b.id", [("acme", "ann"), ("ann", "zeta")]),
        ("$q.age > 25 $p knows $q $p: Person", "$p.id", ["dan"]),
        (
            "$p: Person $p $e: knows $q $e.weight > 2",
            "$e.src, $e.dst",
            [("ann", "bob"), ("ann", "cat")],
        ),
    ],
)
def test_a_pattern_binds_its_variables(
    people: Graph, match: str, result: str, expected: list[Any]
) -> None:
    assert rows(people, match, result) == expected


@pytest.mark.parametrize(
    ("start", "step", "expected"),
    [
        ("ann", "$p knows{1,1} $q", ["bob", "cat"]),
        ("ann", "$p knows{1,2} $q", ["bob", "cat", "dan"]),
        ("ann", "$p knows{2,2} $q", ["dan"]),
        ("ann", "$p knows{3,3} $q", []),
        ("ann", "$p knows{1,1000} $q", ["bob", "cat", "dan"]),
        ("cat", "$p knows{1,3} $q", ["ann", "bob", "cat", "dan"]),
        ("cat", "$p knows{2,3} $q", ["ann", "bob"]),
        ("bob", "$p <knows>{2,2} $q", ["dan"]),
        ("eve", "$p <knows>{1,9} $q", []),
        ("ann", "$p knows{1,3} $q $q.age is not null", ["bob", "dan"]),
        ("dan", "$q knows{2,3} $p", ["ann", "bob"]),
        ("ann", "$p worksAt{1,5} $q", ["acme"]),
        ("ann", "$p worksAt{2,5} $q", []),
    ],
)
def test_hops_report_nodes_at_their_smallest_distance(
    people: Graph, start: str, step: str, expected: list[str]
) -> None:
    assert rows(people, f'$p: Person {{ id: "{start}" }} {step}', "$q.id") == expected


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (
            '$p: Person { id: "ann" } $p knows{1,3} $q as $way',
            [
                (1, ("ann", "bob"), ("k1",)),
                (1, ("ann", "cat"), ("k5",)),
                (2, ("ann", "cat", "dan"), ("k5", "k4")),
            ],
        ),
        (
            '$q: Person { id: "dan" } $p knows{2,2} $q as $way',
            [(2, ("ann", "cat", "dan"), ("k5", "k4")), (2, ("bob", "cat", "dan"), ("k3", "k4"))],
        ),
        (
            '$p: Person { id: "bob" } $q: Person { id: "dan" } $p <knows>{1,4} $q as $way',
            [(2, ("bob", "ann", "dan"), ("k1", "k7"))],
        ),
        (
            '$p: Person { id: "ann" } $p knows{1,3} $q as $way length($way) > 1',
            [(2, ("ann", "cat", "dan"), ("k5", "k4"))],
        ),
        (
            '$p: Person { id: "ann" } $p knows{1,3} $q as $way nodes($way) contains "bob"',
            [(1, ("ann", "bob"), ("k1",))],
        ),
        ("$p: Person $p knows{1,1} $p as $way", [(1, ("cat", "cat"), ("k6",))]),
    ],
)
def test_a_path_is_a_shortest_one_with_the_smallest_ids(
    people: Graph, match: str, expected: list[Any]
) -> None:
    assert rows(people, match, "length($way), nodes($way), edges($way)") == expected


@pytest.mark.parametrize(
    ("match", "result", "expected"),
    [
        ("$p: Person not { $p knows $q }", "$p.id", ["eve"]),
        ("$c: Company not { $c worksAt $p }", "$c.id", ["zeta"]),
        ("$p: Person not { $p knows $q $q.age < 30 }", "$p.id", ["bob", "dan", "eve"]),
        ("$p: Person not { $p knows $q not { $q worksAt $c } }", "$p.id", ["dan", "eve"]),
        ("$p: Person not { $p.age > 0 }", "$p.id", ["cat", "eve"]),
        (
            "$p: Person optional { $p worksAt $c }",
            "$p.id, $c.name",
            [("ann", "Acme"), ("bob", "Acme"), ("cat", None), ("dan", None), ("eve", "Ann")],
        ),
        (
            '$p: Person optional { $p worksAt $c $c.name = "Acme" }',
            "count($c), count(*)",
            [(2, 5)],
        ),
        ('$p: Person optional { $p worksAt $c } $c.name = "Acme"', "$p.id", ["ann", "bob"]),
        ("$p: Person optional { $p worksAt $c } $c is null", "$p.id", ["cat", "dan"]),
        (
            "$p: Person optional { $p worksAt $c } optional { $c contains $d }",
            "$p.id, $d.id",
            [("ann", "ann"), ("bob", "ann"), ("cat", None), ("dan", None), ("eve", "zeta")],
        ),
        ("$p: Person optional { $p worksAt $c } not { $c: Company }", "$p.id", ["cat", "dan"]),
        ("$p: Person optional { $p worksAt $c optional { $c contains $d } }", "count($d)", [3]),
        (
            '$p: Person { id: "eve" } optional { $p $e: knows $q }'
            " optional { $p knows{1,2} $r as $w }",
            "$e, length($w), $e.weight, type($q)",
            [(None, None, None, None)],
        ),
    ],
)
def test_blocks_keep_rows_by_what_is_in_them(
    people: Graph, match: str, result: str, expected: list[Any]
) -> None:
    assert rows(people, match, result) == expected


# Values


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("$p.age + 1", 31),
        ("$p.age / 4", 7.5),
        ("-$p.age % 7", -2),
        ("$p.age / 0", None),
        ("$p.age % 0", None),
        ("$p.points - 1", 2**63 - 1),
        ("$p.age * 0.5", 15.0),
        ("$p.age > $p.height", True),
        ("$p.born = $p.born", None),
        ("not ($p.born is null)", False),
        ("null_test", None),
        ('$p.name contains "nn" or $p.born is null', True),
        ('"x" in $p.tags', True),
        ("$p.age in [1, 2]", False),
        ("type($p)", "Person"),
        ('datetime("2024-05-31T12:30:00+02:00")', dt.datetime(2024, 5, 31, 10, 30, tzinfo=dt.UTC)),
        ('date("2024-05-31")', dt.date(2024, 5, 31)),
        ("9223372036854775807", 2**63 - 1),
        ('"tab\\t\\"quote\\" \\\\"', 'tab\t"quote" \\'),
        ("[1, 2]", (1, 2)),
    ],
)
def test_an_expression_has_its_value(people: Graph, expression: str, expected: Any) -> None:
    text = "$p.age = $p.points / 0" if expression == "null_test" else expression

    assert rows(people, '$p: Person { id: "ann" }', f"{text} as value") == [expected]


@pytest.mark.parametrize(
    ("match", "result"),
    [
        ("$c: Company", "$c.size * 4"),
        ("$c: Company", "sum($c.size)"),
        ("$p: Person", "$p.points + 0"),
        ("$p: Person", "-$p.points * 2"),
    ],
)
def test_an_integer_that_does_not_fit_is_an_error_of_the_run(
    people: Graph, match: str, result: str
) -> None:
    graph = people
    if "sum" in result:
        graph = people.branches.create("sums")
        graph.write({"node:Company": [{"code": "more", "name": "More", "size": 2**62}]})

    with pytest.raises(QueryFailedError):
        rows(graph, match, result)


def test_a_list_with_a_null_is_unknown_where_it_holds_no_match(people: Graph) -> None:
    ages: Any = {"parameters": "$ages: [I32]", "ages": [20, None]}

    assert rows(people, "$p: Person $p.age in $ages", "$p.id", **ages) == ["bob", "dan"]
    assert rows(people, "$p: Person not ($p.age in $ages)", "$p.id", **ages) == []


def test_a_null_parameter_makes_a_comparison_unknown(people: Graph) -> None:
    assert rows(people, "$p: Person $p.age != $a", "$p.id", parameters="$a: I32?") == []
    assert len(rows(people, "$p: Person $a is null", "$p.id", parameters="$a: I32?")) == 5


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Values that engines like to see differently, and vectors of every metric."""
    schema = """
    node Thing {
        name: String  x: F64?  n: I64?  cos: Vector(2)?  dot: Vector(2)? @index(metric=dot)
    }
    node Same { code: String @key }
    interface Same { code: String }
    node Other implements Same { title: String }
    """
    graph = og.init(root_at(tmp_path_factory.mktemp("odd") / "graph"), schema=schema)
    graph.write(
        {
            "node:Thing": [
                {"id": "nan", "name": "\uffff", "x": math.nan, "n": 2**53 + 1, "cos": [0.0, 0.0]},
                {"id": "inf", "name": "\U0001f600", "x": math.inf, "n": None, "cos": [2.0, 0.0]},
                {"id": "one", "name": "é", "x": 1.0, "n": 1, "cos": [0.0, 3.0], "dot": [1.0, 2.0]},
                {"id": "zero", "name": "z", "x": -0.0, "n": 0, "dot": [3.0, 0.0]},
                {"id": "none", "name": "Z", "x": None, "n": 2**53},
            ],
            "node:Same": [{"code": "a"}],
            "node:Other": [{"id": "o", "code": "b", "title": "t"}],
        }
    )
    return graph


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("$t.x = $t.x", ["inf", "nan", "one", "zero"]),
        ("$t.x > 5.0", ["inf", "nan"]),
        ("$t.x = 0", ["zero"]),
        ("$t.n = 9007199254740992.0", ["nan", "none"]),
        ("$t.n = 9007199254740992", ["none"]),
        ('$t.name > "z"', ["inf", "nan", "one"]),
        ('$t.name < "a"', ["none"]),
    ],
)
def test_numbers_and_texts_have_one_order(odd: Graph, condition: str, expected: list[str]) -> None:
    assert rows(odd, f"$t: Thing {condition}", "$t.id") == expected


def test_nan_is_the_greatest_number_and_code_points_order_texts(odd: Graph) -> None:
    by_number = rows(odd, "$t: Thing", "$t.id", "order { $t.x }")
    by_text = rows(odd, "$t: Thing", "$t.id", "order { $t.name desc }")
    highest = rows(odd, "$t: Thing", "max($t.x), min($t.x), max($t.name)")

    assert by_number == ["none", "zero", "one", "inf", "nan"]
    assert by_text == ["inf", "nan", "one", "zero", "none"]
    assert math.isnan(highest[0][0])
    assert highest[0][1:] == (0.0, "\U0001f600")


def test_deviations_of_extreme_numbers_do_not_overflow(odd: Graph) -> None:
    graph = odd.branches.create("extreme")
    graph.write({"node:Thing": [{"id": "a", "name": "big", "x": 1e300}]})
    graph.write({"node:Thing": [{"id": "b", "name": "big", "x": -1e300}]})

    (spread, middle) = rows(graph, '$t: Thing { name: "big" }', "stddev($t.x), min($t.x)")[0]
    assert math.isclose(spread, math.sqrt(2) * 1e300)
    assert middle == -1e300
    (spread, highest) = rows(odd, "$t: Thing", "stddev($t.x), percentile($t.x, 0.9)")[0]
    assert math.isnan(spread)
    assert math.isnan(highest)
    assert rows(odd, "$t: Thing $t.x = 0", "first($t.id by $t.x)") == ["zero"]


def test_the_type_counts_where_an_interface_has_its_name(odd: Graph) -> None:
    assert rows(odd, "$x: Same", "type($x), $x.code") == [("Same", "a")]


@pytest.mark.parametrize(
    ("ranking", "expected"),
    [
        ("nearest($t.cos, [1, 0])", [("inf", 0.0), ("one", 1.0)]),
        ("nearest($t.dot, [1, 1])", [("one", -2.0), ("zero", -2.0)]),
        ("nearest($t.dot, [1, 0])", [("zero", -2.0), ("one", 0.0)]),
    ],
)
def test_the_metric_is_that_of_the_index(odd: Graph, ranking: str, expected: list[Any]) -> None:
    found = rows(odd, "$t: Thing", f"$t.id, {ranking} as far", "order { far } limit 9")

    assert found == expected


# The reference page


def page_queries() -> list[tuple[str, str]]:
    """The schema of the page, and each of its files of queries that are no mistakes."""
    text = PAGE.read_text()
    (schema,) = re.findall(r"```pg\n(.*?)```", text, re.DOTALL)
    return [(schema, each) for each in re.findall(r"```gq\n(.*?)```", text, re.DOTALL)]


def sample(parameter: TypedParameter) -> Any:
    if isinstance(parameter.type, VectorType):
        return [1.0] * parameter.type.size
    shown = show(parameter.type)
    known = {"String": "Oslo", "[String]": ["Oslo", "x"], "I32": 3, "I64": 1}
    return known[shown]


@pytest.mark.parametrize(("schema", "text"), page_queries())
def test_every_query_of_the_reference_page_runs(schema: str, text: str, tmp_path: Path) -> None:
    graph = og.init(root_at(tmp_path / "graph"), schema=schema)
    graph.write(
        {
            "node:Person": [
                {"email": "Oslo", "name": "Ann Oslo", "age": 20, "status": "active", "tags": ["x"]},
                {"email": "b", "name": "Benson", "age": None, "status": "active"},
            ],
            "node:Company": [
                {"code": "hq", "name": "Oslo works", "city": "Oslo", "size": 200},
            ],
            "node:Note": [{"id": "n", "title": "Oslo", "meaning": [1.0, 0.0, 0.0, 0.0]}],
            "edge:Knows": [{"src": "Oslo", "dst": "b", "since": dt.date(2021, 1, 1)}],
            "edge:WorksAt": [
                {"src": "Oslo", "dst": "hq", "role": "boss"},
                {"src": "b", "dst": "hq", "role": "cook"},
            ],
            "edge:Wrote": [{"src": "Oslo", "dst": "n"}],
        }
    )
    queries = compile_queries(text, catalog=graph.schema.catalog, filename="page.gq")

    for each in queries.values():
        given = {one.name: sample(one) for one in each.parameters}
        if not each.is_mutation:
            found = graph.query(text, given, name=each.name).to_arrow()
            assert found.schema.names == [column.name for column in each.columns]
