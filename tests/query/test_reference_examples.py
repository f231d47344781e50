"""Every example of the language reference runs, and means what the definition says."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from omnigraph_lake.query.compile import compile_queries
from omnigraph_lake.query.typed import TypedQuery
from tests.query.answers import disagreement
from tests.query.evaluator import evaluate
from tests.query.mutation_evaluator import mutate
from tests.query.random_graphs import plain_graph
from tests.query.test_reference_page import CATALOG, SCHEMA, blocks
from tests.stores import root_at

pytestmark = pytest.mark.unit

GIVEN: dict[str, Any] = {
    "email": "ann@x",
    "limit": 5,
    "name": "New",
    "code": "acme",
    "word": "A",
    "from": "ann@x",
    "to": "dan@x",
    "cities": ["Oslo", "Rome"],
    "least": 1,
    "words": "graph tables",
    "query": [1.0, 0.0, 0.0, 0.5],
    "bonus": 2,
    "city": None,
    "pattern": "%@x",
    "months": 1200,
}
ROWS: dict[str, list[dict[str, Any]]] = {
    "Person": [
        {
            "email": f"{name}@x",
            "name": name.title(),
            "age": age,
            "status": status,
            "tags": tags,
            "joined": dt.datetime(2024, 1, age or 1, tzinfo=dt.UTC),
        }
        for name, age, status, tags in (
            ("ann", 30, "active", ["urgent"]),
            ("bob", 20, "active", []),
            ("cat", None, "away", None),
            ("dan", 28, "active", ["x", None]),
            ("eve graph", 21, "left", None),
            ("fay", 22, "active", None),
        )
    ],
    "Company": [
        {"code": "acme", "name": "Acme", "city": "Oslo", "size": 200},
        {"code": "zeta", "name": "Zeta", "city": "Rome", "size": None},
    ],
    "Note": [
        {"id": "n1", "title": "Graph tables", "body": "keep", "meaning": [1.0, 0.0, 0.0, 0.5]},
        {"id": "n2", "title": "draft graphs", "body": "graph tables", "meaning": None},
        {"id": "n3", "title": "Tables", "body": None, "meaning": [0.0, 1.0, 0.0, 0.0]},
    ],
    "Knows": [
        {"id": "k1", "src": "ann@x", "dst": "bob@x", "since": dt.date(2021, 1, 1), "weight": 3},
        {"id": "k2", "src": "bob@x", "dst": "cat@x", "since": None, "weight": 2},
        {"id": "k3", "src": "cat@x", "dst": "dan@x", "since": None, "weight": 1},
        {"id": "k4", "src": "dan@x", "dst": "eve graph@x", "since": None, "weight": 1},
    ],
    "WorksAt": [
        {"id": "w1", "src": "ann@x", "dst": "acme", "role": "boss"},
        {"id": "w2", "src": "bob@x", "dst": "acme", "role": "cook"},
        {"id": "w3", "src": "cat@x", "dst": "zeta", "role": "cook"},
    ],
    "Wrote": [
        {"id": "o1", "src": "ann@x", "dst": "n1"},
        {"id": "o2", "src": "bob@x", "dst": "n2"},
        {"id": "o3", "src": "dan@x", "dst": "n3"},
    ],
    "Contains": [{"id": "c1", "src": "acme", "dst": "zeta"}],
}
QUERIES = [
    (each.name, text)
    for text in blocks("gq")
    for each in compile_queries(text, catalog=CATALOG, filename="page.gq").values()
]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = og.init(root_at(tmp_path / "page"), schema=SCHEMA)
    made.write(ROWS)
    return made


def _given(query: TypedQuery) -> dict[str, Any]:
    given = {each.name: GIVEN[each.name] for each in query.parameters}
    if query.name == "hire":
        given["email"] = "new@x"
    return given


def _comparable(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows without what every run makes anew: ids of edges and the time."""
    made = {"id", "joined"}
    return sorted(
        repr(sorted((key, value) for key, value in row.items() if key not in made)) for row in rows
    )


@pytest.mark.parametrize(("name", "text"), QUERIES, ids=[name for name, _ in QUERIES])
def test_an_example_of_the_reference_runs_as_defined(graph: Graph, name: str, text: str) -> None:
    query = compile_queries(text, catalog=graph.schema.catalog, filename="page.gq")[name]
    given = _given(query)
    before = plain_graph(graph)
    held = {key: tuple(each) if isinstance(each, list) else each for key, each in given.items()}
    if query.is_mutation:
        expected = mutate(query, graph.schema.catalog, before, held)
        result = graph.mutate(text, given, name=name)

        assert result.commit_id is not None
        after = plain_graph(graph)
        for kind in ("nodes", "edges"):
            for type_name, rows in after[kind].items():
                assert _comparable(rows) == _comparable(expected.graph[kind][type_name])
        return
    found = graph.query(text, given, name=name).to_arrow()

    assert found.num_rows, "an example shows something"
    assert (
        disagreement(
            query, graph.schema.catalog, evaluate(query, graph.schema.catalog, before, held), found
        )
        is None
    )
