"""Groups and distinct rows of small results: without SQL, and as SQL makes them."""

from __future__ import annotations

from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake.engine import grouping
from omnigraph_lake.engine.expressions.statements import Statements
from omnigraph_lake.graph import Graph
from tests.engine.small_graphs import as_bag, rows
from tests.stores import root_at

pytestmark = [pytest.mark.unit]

SCHEMA = """
node City { name: String @key  land: String? }
node Person { name: String @key  age: I32?  big: I64?  weight: F64?  born: Date? }
edge LivesIn: Person -> City
edge Knows: Person -> Person
"""
LIVES = "$p: Person  $p livesIn $c"
GROUPED_HERE = [
    f"match {{ {LIVES} }} return {{ $c.land as land, count($p) as n }}",
    f"match {{ {LIVES} }} return {{ $c.name as city, count(*) as n, avg($p.age) as mean }}",
    f"match {{ {LIVES} }} return {{ $c.land as land, sum($p.age) as years, count($p.age) as n }}",
    f"match {{ {LIVES} }} return {{ $c.land as land, $p.born as born, count(*) as n }}",
    f"match {{ {LIVES} }} return {{ $c, count($p) as n }}",
    f"match {{ {LIVES} }} return {{ $c.id as id, $c.land as land, count(*) as n }}",
    "match { $p: Person  $p knows $q } return { $q.id as id, count($p) as n } "
    "order { n desc, id } limit 2",
    "match { $p: Person  $p knows $q } return { $q.id as id, count($p) as n } "
    "order { n, id desc } limit 2 offset 1",
    "match { $p: Person  $p knows $q  $q knows $r } "
    "return { $r.name as name, count(distinct $p) as n } order { n desc, name }",
    "match { $p: Person } return { avg($p.age) as mean, sum($p.age) as total, count(*) as n }",
    f"match {{ {LIVES} }} return distinct {{ $c.land as land, $c.name as city }}",
    "match { $p: Person  optional { $p livesIn $c } } return { $c.name as city, count(*) as n }",
]
LEFT_TO_SQL = [
    f"match {{ {LIVES} }} return {{ $c.land as land, avg($p.weight) as mean }}",
    f"match {{ {LIVES} }} return {{ $c.land as land, min($p.age) as least }}",
    f"match {{ {LIVES} }} return {{ $c.land as land, sum($p.big) as total }}",
    f"match {{ {LIVES} }} return {{ $p.weight as weight, count(*) as n }}",
    f"match {{ {LIVES} }} return {{ $p.age + 1 as next, count(*) as n }}",
    f"match {{ {LIVES} }} return distinct {{ 2 * 1 as two, $p.id as id }}",
    f"match {{ {LIVES} }} return {{ $c.land as land, count(*) as n }} order {{ land, n }}",
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = og.init(root_at(tmp_path_factory.mktemp("groups") / "graph"), schema=SCHEMA)
    names = [f"p{number}" for number in range(12)]
    graph.write(
        {
            "City": [
                {"name": "Bern", "land": "CH"},
                {"name": "Basel", "land": "CH"},
                {"name": "Ulm", "land": "DE"},
                {"name": "Atlantis"},
            ],
            "Person": [
                {
                    "name": name,
                    "age": None if number % 5 == 0 else 20 + number % 4,
                    "big": 2**62,
                    "weight": number / 3,
                    "born": None if number % 3 else "2001-02-03",
                }
                for number, name in enumerate(names)
            ],
            "LivesIn": [
                {"src": name, "dst": ("Bern", "Basel", "Ulm", "Atlantis")[number % 4]}
                for number, name in enumerate(names[:-1])
            ],
            "Knows": [
                {"src": one, "dst": other}
                for at, one in enumerate(names)
                for other in names[: at % 4 + 1]
            ],
        }
    )
    return graph


def answer(graph: Graph, body: str) -> Any:
    result = rows(graph, body)
    return result if " order " in body else as_bag(result)


def refuse(*_: object) -> None:
    raise AssertionError("a statement runs")


@pytest.mark.parametrize("body", GROUPED_HERE)
def test_groups_need_no_statement(graph: Graph, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Statements, "batches", refuse)
        here = answer(graph, body)
    monkeypatch.setattr(grouping, "ROWS_MOST", 0)

    assert here
    assert here == answer(graph, body)


@pytest.mark.parametrize(
    "result", ["distinct { $c.name as city }", "{ $c.name as c, count(*) as n }"]
)
@pytest.mark.parametrize("rows_most", [0, grouping.ROWS_MOST])
def test_an_offset_without_an_order_skips_groups(
    graph: Graph, result: str, rows_most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "ROWS_MOST", rows_most)
    body = f"match {{ {LIVES} }} return {result}"

    for tail, expected in [("offset 1", 3), ("offset 9", 0), ("limit 2 offset 3", 1)]:
        assert len(rows(graph, f"{body} {tail}")) == expected


@pytest.mark.parametrize("body", LEFT_TO_SQL)
def test_what_sql_computes_differently_is_left_to_it(
    graph: Graph, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "big" in body:
        with pytest.raises(og.QueryFailedError):
            answer(graph, body)
        return
    expected = answer(graph, body)
    assert expected
    monkeypatch.setattr(Statements, "batches", refuse)
    with pytest.raises(AssertionError, match="a statement runs"):
        answer(graph, body)


def test_memory_that_is_missing_is_not_taken(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "_BYTES_PER_ROW", 1 << 60)
    monkeypatch.setattr(Statements, "batches", refuse)
    with pytest.raises(AssertionError, match="a statement runs"):
        answer(graph, GROUPED_HERE[0])
