"""Columns, aggregates, order, limit and distinct rows."""

from __future__ import annotations

import pytest

from omnigraph_lake.query.types import show_with_null
from tests.query.evaluator import evaluate
from tests.query.expression_values import EvaluationError
from tests.query.people import CATALOG, ask, query, read, small_graph, values

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("projection", "name", "shown"),
    [
        ("$p.age as years", "years", "I32?"),
        ("$p.age", "p.age", "I32?"),
        ("$p.id", "p.id", "String"),
        ("$p", "p", "Person"),
        ("$x", "x", "String"),
        ("type($p)", "type(p)", "String"),
        ("count(*)", "count(*)", "I64"),
        ("count(distinct $p.age)", "count(distinct p.age)", "I64"),
        ("sum($p.age)", "sum(p.age)", "I64?"),
        ("sum($p.points)", "sum(p.points)", "U64?"),
        ("sum($p.height)", "sum(p.height)", "F64?"),
        ("avg($p.age)", "avg(p.age)", "F64?"),
        ("min($p.status)", "min(p.status)", "enum(active, away, left)?"),
        ("collect($p.name)", "collect(p.name)", "[String]"),
        ("$p.age + 2 * 3", "p.age + 2 * 3", "I64?"),
        ("($p.age + 2) * 3", "(p.age + 2) * 3", "I64?"),
        ("$p.age / 2", "p.age / 2", "F64?"),
        ("$p.age > 3", "p.age > 3", "Bool?"),
        ('$p.name contains "a"', 'p.name contains "a"', "Bool"),
        ("1", "1", "I64"),
        ("now()", "now()", "DateTime"),
    ],
)
def test_a_column_has_one_name_and_type(projection: str, name: str, shown: str) -> None:
    (column,) = read("$p: Person", projection, parameters="$x: String").columns

    assert column.name == name
    assert show_with_null(column.type, nullable=column.nullable) == shown


def test_the_names_of_a_run_are_those_of_the_descriptor() -> None:
    text = "$p.age, count(*), min($p.name) as least"
    typed = read("$p: Person", text)

    rows = ask("$p: Person", text).rows

    assert [column.name for column in typed.columns] == list(rows[0])


def test_a_whole_node_is_a_struct_without_blobs() -> None:
    (row,) = ask('$p: Person { id: "bob" }', "$p").rows

    assert row["p"]["id"] == "bob"
    assert row["p"]["type"] == "Person"
    assert row["p"]["properties"]["name"] == "Bob"
    assert "photo" not in row["p"]["properties"]


def test_a_whole_node_of_an_interface_has_the_properties_of_the_interface() -> None:
    rows = ask('$x: Named $x.id = "ann"', "$x").rows

    assert {tuple(row["x"]["properties"]) for row in rows} == {("name",)}


def test_a_whole_edge_also_has_its_ends() -> None:
    (row,) = ask('$p: Person $p $e: knows $q $e.id = "k3"', "$e").rows

    assert (row["e"]["src"], row["e"]["dst"]) == ("bob", "cat")
    assert row["e"]["properties"]["weight"] == 2


def test_groups_are_the_other_columns_and_nulls_are_one_group() -> None:
    found = values("$p: Person", "$p.age, count(*), collect($p.id)")

    assert found == [
        (-5, 1, ("eve",)),
        (20, 2, ("bob", "dan")),
        (30, 1, ("ann",)),
        (None, 1, ("cat",)),
    ]


def test_a_group_can_be_a_whole_node() -> None:
    found = ask("$c: Company optional { $c worksAt $p }", "$c, count($p) as n", "order { n desc }")

    assert [(row["c"]["id"], row["n"]) for row in found.rows] == [
        ("acme", 2),
        ("ann", 1),
        ("zeta", 0),
    ]


def test_aggregates_skip_nulls_and_without_rows_give_one_row() -> None:
    everything = "count(*), count($p.age), sum($p.age), avg($p.age), min($p.age), max($p.name)"

    assert values("$p: Person", everything) == [(5, 4, 65, 16.25, -5, "Eve_100%")]
    assert values("$p: Person $p.age > 99", everything) == [(0, 0, None, None, None, None)]
    assert values("$p: Person $p.age > 99", "$p.age, count(*)") == []


def test_distinct_values_are_counted_once() -> None:
    assert values("$p: Person", "count(distinct $p.age)") == [3]
    assert values("$p: Person $p knows $q", "count(distinct $q)") == [4]


def test_sums_are_exact_and_an_overflow_is_refused() -> None:
    assert values("$p: Person", "sum($p.points)") == [2**63 + 1]
    assert values('$c: Company { id: "zeta" }', "sum($c.size)") == [2**62]
    graph = small_graph()
    graph["nodes"]["Company"].append({**graph["nodes"]["Company"][1], "id": "x", "code": "x"})
    with pytest.raises(EvaluationError):
        ask("$c: Company", "sum($c.size)", graph=graph)


def test_order_puts_nulls_first_ascending_and_last_descending() -> None:
    assert values("$p: Person", "$p.id", "order { $p.age }") == ["cat", "eve", "bob", "dan", "ann"]
    descending = values("$p: Person", "$p.id", "order { $p.age desc }")
    assert descending == ["ann", "bob", "dan", "eve", "cat"]


def test_ties_are_broken_by_the_ids_of_all_variables_by_name() -> None:
    found = values(
        "$z: Person { age: 20 } $a: Person { age: 20 }", "$z.id, $a.id", "order { $z.age }"
    )

    assert found == [("bob", "bob"), ("dan", "bob"), ("bob", "dan"), ("dan", "dan")]


def test_groups_are_ordered_by_alias_and_then_by_their_keys() -> None:
    found = values("$p: Person", "$p.age, count(*) as n", "order { n desc }")

    assert found == [(20, 2), (None, 1), (-5, 1), (30, 1)]


def test_an_aggregate_can_be_ordered_by_its_text() -> None:
    found = values("$p: Person", "$p.status, count(*)", "order { count(*) desc } limit 1")

    assert found == [("active", 3)]


def test_an_expression_can_be_a_key_of_the_order() -> None:
    assert values("$p: Person $p.age is not null", "$p.id", "order { -$p.age, $p.name }") == [
        "ann",
        "bob",
        "dan",
        "eve",
    ]


def test_limit_and_offset_cut_the_ordered_rows() -> None:
    assert values("$p: Person", "$p.id", "order { $p.id } limit 2 offset 1") == ["bob", "cat"]
    cut = values(
        "$p: Person",
        "$p.id",
        "order { $p.id } limit $n offset $m",
        parameters="$n: I32, $m: U64",
        n=2,
        m=3,
    )
    assert cut == ["dan", "eve"]
    assert values("$p: Person", "$p.id", "order { $p.id } offset 4") == ["eve"]
    assert values("$p: Person", "$p.id", "limit 0") == []


def test_without_an_order_a_limit_chooses_any_rows() -> None:
    found = ask("$p: Person", "$p.id", "limit 2")

    assert not found.ordered
    assert len(found.rows) == 2
    assert len(found.all_rows) == 5


def test_distinct_rows_come_once() -> None:
    text = (
        "query q() { match { $p: Person $p knows $q } return distinct { $q.age } order { $q.age } }"
    )

    rows = evaluate(query(text), CATALOG, small_graph()).rows

    assert [row["q.age"] for row in rows] == [None, 20, 30]


def test_distinct_nodes_are_told_apart_by_type_and_id() -> None:
    text = 'query q() { match { $x: Named $y: Named $x.id = "ann" } return distinct { $x } }'

    assert len(evaluate(query(text), CATALOG, small_graph()).rows) == 2
