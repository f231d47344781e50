"""When a query looks things up, and when it has its tables in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.engine import query
from omnigraph_lake.engine.access import access_path
from omnigraph_lake.engine.access.access_path import Access, Choice, choose_access
from omnigraph_lake.engine.access.column_cache import shared_cache
from omnigraph_lake.engine.access.in_memory import InMemoryAccess
from omnigraph_lake.engine.run import Run
from omnigraph_lake.graph import Graph
from omnigraph_lake.query.binding import bind
from omnigraph_lake.query.compile import compile_queries
from omnigraph_lake.query.plan import Mutation
from omnigraph_lake.query.planning import plan_query
from omnigraph_lake.storage.objects.background import WORKER
from omnigraph_lake.storage.objects.location import parse_root
from tests.engine.small_graphs import asked, rows, rows_of
from tests.query.differential import LIMITS
from tests.query.evaluator import EPOCH
from tests.stores import root_at

pytestmark = pytest.mark.unit

SCHEMA = """
node P { k: String @key  n: I32?  about: String? @index }
node Q { k: String @key }
edge Knows: P -> P
edge Owns: P -> Q
"""
NAMED = 'match { $a: P { k: "1" } $a knows $b } return { $b.k }'


def graph_at(folder: Path) -> Graph:
    graph = og.init(root_at(folder), schema=SCHEMA)
    graph.write(
        {
            "node:P": [{"k": str(each), "n": each, "about": "a word"} for each in range(30)],
            "node:Q": [{"k": str(each)} for each in range(5)],
            "edge:Knows": [{"src": str(each), "dst": str(each + 1)} for each in range(29)],
            "edge:Owns": [{"src": str(each), "dst": "0"} for each in range(5)],
        }
    )
    return graph


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return graph_at(tmp_path / "graph")


@pytest.fixture(autouse=True)
def fresh_account() -> Iterator[None]:
    access_path.SPENT.__init__()  # type: ignore[misc]
    yield
    access_path.SPENT.__init__()  # type: ignore[misc]


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table counts as a large one."""
    monkeypatch.setattr(access_path, "_SMALL_ROWS", 0)


def chosen(graph: Graph, text: str) -> Choice:
    (typed,) = compile_queries(
        f"query q() {{ {text} }}", catalog=graph.schema.catalog, filename="test.gq"
    ).values()
    plan = plan_query(typed, graph.schema.catalog)
    assert not isinstance(plan, Mutation)
    run = Run(catalog=graph.schema.catalog, parameters=bind(typed, {}, now=EPOCH), limits=LIMITS)
    root, snapshot = parse_root(graph.root), graph.snapshot().pinned
    tables = InMemoryAccess(run, root, snapshot, shared_cache())
    return choose_access(plan, graph.schema.catalog, root, snapshot, tables)


def test_small_tables_are_held_in_memory(graph: Graph) -> None:
    choice = chosen(graph, NAMED)

    assert choice.access is Access.RESIDENT
    assert "59 rows" in choice.why


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    ("text", "access", "why"),
    [
        (NAMED, Access.PROBE, "starts from indexed values"),
        ('match { $a: P { k: "1" } } return { $a.n }', Access.PROBE, "indexed values"),
        ('match { $a: P  $a.k in ["1", "2"] } return { $a.n }', Access.PROBE, "indexed values"),
        ('match { $a: P { n: 3 } $a.k != "1" } return { $a.n }', Access.PROBE, "indexed values"),
        ("match { $a: P } return { $a.n }", Access.RESIDENT, "no index applies"),
        ("match { $a: P  $a.n > 3 } return { $a.n }", Access.RESIDENT, "no index applies"),
        (
            'match { $a: P  $a.k = "1" or $a.n = 2 } return { $a.n }',
            Access.RESIDENT,
            "no index applies",
        ),
        (
            'match { $a: P { k: "1" }  $b: P  $a.n < $b.n } return { $b.n }',
            Access.RESIDENT,
            "no index applies",
        ),
        (
            'match { $a: P } return { $a.n } order { bm25($a.about, "word") }',
            Access.PROBE,
            "with a search index",
        ),
        (
            'match { $a: P { k: "1" } $a knows $b } return { $b.n } '
            'order { bm25($b.about, "word") }',
            Access.RESIDENT,
            "a ranking reads all",
        ),
        (
            'match { $a: P { k: "1" } } return { $a.n, bm25($a.about, "word") }',
            Access.RESIDENT,
            "a ranking reads all",
        ),
    ],
)
def test_a_large_table_is_looked_up_if_the_start_is_named(
    graph: Graph, text: str, access: Access, why: str
) -> None:
    choice = chosen(graph, text)

    assert choice.access is access
    assert why in choice.why


@pytest.mark.usefixtures("large")
def test_edges_that_are_in_memory_are_used(graph: Graph) -> None:
    assert rows(graph, NAMED, access="resident") == [("2",)]

    choice = chosen(graph, NAMED)

    assert (choice.access, choice.why) == (Access.RESIDENT, "the edges are already in memory")


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(("overlay", "access"), [("on", Access.RESIDENT), ("off", Access.PROBE)])
def test_edges_in_memory_survive_a_commit(
    graph: Graph, overlay: str, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_OVERLAY", overlay)
    assert rows(graph, NAMED, access="resident") == [("2",)]

    graph.write({"edge:Knows": [{"src": "1", "dst": "9"}]})

    assert chosen(graph, NAMED).access is access
    assert sorted(rows(graph, NAMED)) == [("2",), ("9",)]


@pytest.mark.usefixtures("large")
def test_lookups_that_took_as_long_as_reading_are_enough(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never more than twice what the better way would have taken."""
    monkeypatch.setenv("OMNIGRAPH_BACKGROUND", "off")
    choice = chosen(graph, NAMED)

    access_path.SPENT.add(choice.spender, 0.04)
    assert chosen(graph, NAMED).access is Access.PROBE

    access_path.SPENT.add(choice.spender, 0.04)
    assert chosen(graph, NAMED).access is Access.RESIDENT
    assert "lookups would cost as much" in chosen(graph, NAMED).why


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("text", [NAMED, 'match { $a: P { k: "1" } } return { $a.k }'])
def test_tables_are_read_in_the_background_while_queries_look_up(graph: Graph, text: str) -> None:
    access_path.SPENT.add(chosen(graph, text).spender, 10)
    shared_cache().clear()
    first = asked(graph, text)

    expected = rows_of(first)

    assert first.choice is not None
    assert (first.choice.access, first.choice.prepares) == (Access.PROBE, True)
    assert WORKER.wait(60)
    second = asked(graph, text)
    assert rows_of(second) == expected
    assert second.choice is not None
    assert (second.choice.access, second.choice.prepares) == (Access.RESIDENT, False)


@pytest.mark.usefixtures("large")
def test_the_time_of_lookups_is_remembered(graph: Graph) -> None:
    spender = chosen(graph, NAMED).spender
    assert access_path.SPENT.of(spender) == 0

    assert rows(graph, NAMED) == [("2",)]

    assert access_path.SPENT.of(spender) > 0


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (NAMED, 'match { $a: P { k: "1" } $a owns $b } return { $b.k }'),
        (
            'match { $a: P { k: "1" } } return { $a.n }',
            'match { $a: Q { k: "1" } } return { $a.k }',
        ),
    ],
    ids=["edges", "nodes"],
)
def test_lookups_in_one_table_do_not_count_against_another(
    graph: Graph, one: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_BACKGROUND", "off")
    access_path.SPENT.add(chosen(graph, one).spender, 10)

    assert chosen(graph, one).access is Access.RESIDENT
    assert chosen(graph, other).access is Access.PROBE


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("text", [NAMED, 'match { $a: P { k: "1" } } return { $a.n }'])
def test_lookups_in_one_graph_do_not_count_against_another(
    graph: Graph, tmp_path: Path, text: str
) -> None:
    other = graph_at(tmp_path / "other")

    access_path.SPENT.add(chosen(graph, text).spender, 10)

    assert chosen(other, text).access is Access.PROBE


def test_the_account_is_bounded() -> None:
    for each in range(5000):
        access_path.SPENT.add(("pins", each), 1.0)

    assert len(access_path.SPENT._seconds) <= 1024


# A run that meets too much begins anew

FALLING_BACK = [
    'match { $a: P { k: "1" } $a knows{1,20} $b } return { $b.k }',
    'match { $a: P { k: "1" } $a knows{1,20} $b } return { $b.k } order { $b.n }',
    'match { $a: P { k: "1" } $a knows{1,20} $b } return { $b.n, count(*) } order { $b.n }',
    'match { $a: P { k: "1" } $a knows{1,20} $b } return distinct { $b.n }',
    'match { $a: P { k: "1" } $a knows{1,20} $b } return { count(*) }',
    'match { $a: P { k: "1" } $a knows{1,20} $b as $way } return { nodes($way) }',
]


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("most", [1, 3, 19])
@pytest.mark.parametrize("text", FALLING_BACK)
def test_a_run_that_meets_too_much_gives_the_whole_answer_once(
    graph: Graph, text: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "MET_MOST", most)
    assert chosen(graph, text).access is Access.PROBE
    spender = chosen(graph, text).spender

    found = rows(graph, text)

    assert access_path.SPENT.of(spender) > 0, "it was not looked up"
    assert sorted(found, key=repr) == sorted(rows(graph, text, access="resident"), key=repr)


@pytest.mark.usefixtures("large")
def test_a_query_that_met_too_much_does_not_look_up_again(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts from a property, so the run in memory reads no ids."""
    monkeypatch.setattr(query, "MET_MOST", 1)
    text = 'match { $a: P { about: "a word" } $a knows $b } return { count($b) as n }'
    assert chosen(graph, text).access is Access.PROBE

    assert rows(graph, text) == [(29,)]

    assert chosen(graph, text).access is Access.RESIDENT
