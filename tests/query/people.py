"""A small schema with every kind of type, and a small graph that has every special case."""

from __future__ import annotations

import datetime as dt
from typing import Any

from omnigraph_lake.query.binding import bind
from omnigraph_lake.query.compile import compile_queries, diagnose_queries
from omnigraph_lake.query.typed import TypedQuery
from omnigraph_lake.query.types import as_f32
from omnigraph_lake.schema.catalog import Catalog
from tests.query.evaluator import EPOCH, Answer, evaluate
from tests.query.expression_values import Graph
from tests.query.mutation_evaluator import Outcome, mutate
from tests.schema.compiling import compiled

SCHEMA = """
interface Named {
    name: String
}

interface Lonely {
    mood: String?
}

node Person implements Named {
    email: String @key
    age: I32?
    height: F32?
    status: enum(active, away, left)
    tags: [String]?
    joined: DateTime?
    born: Date?
    admin: Bool?
    points: U64?
    photo: Blob?
}

node Company implements Named {
    code: String @key
    city: String? @unique
    size: I64?
}

node Note {
    title: String @index
    body: String?
    vector: Vector(2)? @index(metric=l2)
    meaning: Vector(3)? @embed("title", model="m")
}

node Seat {
    row: I32
    place: I32

    @key(row, place)
}

edge Knows: Person -> Person {
    since: Date?
    weight: I32?
    comment: String?
}

edge WorksAt: Person -> Company @card(0..1) {
    role: String
}

edge Wrote: Person -> Note

edge Contains: Company -> Company
"""


def catalog() -> Catalog:
    return CATALOG


CATALOG = compiled(SCHEMA)


def person(key: str, name: str, **properties: Any) -> dict[str, Any]:
    empty = dict.fromkeys(CATALOG.nodes["Person"].properties)
    return {**empty, "id": key, "email": key, "name": name, "status": "active", **properties}


def company(key: str, name: str, **properties: Any) -> dict[str, Any]:
    empty = dict.fromkeys(CATALOG.nodes["Company"].properties)
    return {**empty, "id": key, "code": key, "name": name, **properties}


def note(key: str, title: str, **properties: Any) -> dict[str, Any]:
    return {
        **dict.fromkeys(CATALOG.nodes["Note"].properties),
        "id": key,
        "title": title,
        **properties,
    }


def edge(name: str, key: str, src: str, dst: str, **properties: Any) -> dict[str, Any]:
    empty = dict.fromkeys(CATALOG.edges[name].properties)
    return {**empty, "id": key, "src": src, "dst": dst, **properties}


def small_graph() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Five people in a chain with a shortcut, parallel edges, a self-loop and a loner.

    ann -> bob -> cat -> dan; ann -> cat; ann -> bob a second time; cat -> cat; dan -> ann.
    """
    return {
        "nodes": {
            "Person": [
                person("ann", "Ann", age=30, height=1.5, tags=("x", "y"), admin=True, points=2**63),
                person("bob", "Bob", age=20, status="away", tags=(), born=dt.date(2000, 1, 2)),
                person("cat", "Cat", age=None, height=as_f32(1.7), tags=("y", None), admin=False),
                person("dan", "Dan", age=20, joined=dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
                person("eve", "Eve_100%", age=-5, status="left", points=1),
            ],
            "Company": [
                company("acme", "Acme", city="Oslo", size=10),
                company("ann", "Ann", size=2**62),
                company("zeta", "Zeta", size=2**62),
            ],
            "Note": [
                note("n1", "Graphs and tables", body="about graphs", vector=(0.0, 0.0)),
                note("n2", "Tables, graphs: GRAPHS", vector=(3.0, 4.0)),
                note("n3", "Trees", body="no match here", vector=(1.0, 0.0)),
                note("n4", "graph theory", body=None),
            ],
        },
        "edges": {
            "Knows": [
                edge("Knows", "k1", "ann", "bob", since=dt.date(2020, 1, 1), weight=1),
                edge("Knows", "k2", "ann", "bob", weight=5, comment="old graphs"),
                edge("Knows", "k3", "bob", "cat", weight=2),
                edge("Knows", "k4", "cat", "dan"),
                edge("Knows", "k5", "ann", "cat", weight=7),
                edge("Knows", "k6", "cat", "cat"),
                edge("Knows", "k7", "dan", "ann"),
            ],
            "WorksAt": [
                edge("WorksAt", "w1", "ann", "acme", role="boss"),
                edge("WorksAt", "w2", "bob", "acme", role="cook"),
                edge("WorksAt", "w3", "eve", "ann", role="cook"),
            ],
            "Wrote": [
                edge("Wrote", "o1", "ann", "n1"),
                edge("Wrote", "o2", "ann", "n2"),
                edge("Wrote", "o3", "bob", "n2"),
                edge("Wrote", "o4", "cat", "n3"),
            ],
            "Contains": [
                edge("Contains", "c1", "acme", "ann"),
                edge("Contains", "c2", "ann", "zeta"),
            ],
        },
    }


def query(text: str) -> TypedQuery:
    """The one query of a text."""
    (found,) = compile_queries(text, catalog=CATALOG, filename="test.gq").values()
    return found


def read(match: str, result: str, tail: str = "", parameters: str = "") -> TypedQuery:
    return query(f"query q({parameters}) {{ match {{ {match} }} return {{ {result} }} {tail} }}")


def ask(
    match: str,
    result: str,
    tail: str = "",
    parameters: str = "",
    graph: Graph | None = None,
    **given: Any,
) -> Answer:
    """The answer of a small query over the small graph."""
    typed = read(match, result, tail, parameters)
    bound = bind(typed, given, now=EPOCH)
    return evaluate(typed, CATALOG, graph or small_graph(), bound.values)


def values(
    match: str, result: str, tail: str = "", parameters: str = "", **given: Any
) -> list[Any]:
    """The rows of an answer as tuples, or as plain values of one column; sorted if unordered."""
    found = ask(match, result, tail, parameters, **given)
    rows = [tuple(row.values()) for row in found.rows]
    plain = [row[0] if len(row) == 1 else row for row in rows]
    return plain if found.ordered else sorted(plain, key=repr)


def change(body: str, parameters: str = "", graph: Graph | None = None, **given: Any) -> Outcome:
    """The effect of a mutation on the small graph."""
    typed = query(f"query q({parameters}) {{ {body} }}")
    return mutate(typed, CATALOG, graph or small_graph(), given)


def rules(text: str) -> list[str]:
    """The rules a text breaks, in source order."""
    return [each.rule for each in diagnose_queries(text, catalog=CATALOG)]
