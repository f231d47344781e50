"""Pages that translate other languages: both sides of every pair give the same rows."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from tests.docs.test_pages import HOME
from tests.stores import root_at

pytestmark = [pytest.mark.unit, pytest.mark.sampled(3)]

PEOPLE: list[dict[str, Any]] = [
    {"email": "ann@x.org", "name": "Ann", "age": 41, "city": "Oslo"},
    {"email": "bob@x.org", "name": "Bob", "age": 25, "city": "Oslo"},
    {"email": "cat@y.org", "name": "Cat", "age": 33, "city": "Rome"},
    {"email": "dan@y.org", "name": "Dan", "age": None, "city": None},
    {"email": "eve@y.org", "name": "Eve", "age": 30, "city": "Rome"},
]
COMPANIES: list[dict[str, Any]] = [
    {"code": "acme", "name": "Acme", "size": 200},
    {"code": "zeta", "name": "Zeta", "size": None},
]
KNOWS: list[dict[str, Any]] = [
    {"src": "ann@x.org", "dst": "bob@x.org", "since": dt.date(2020, 1, 1), "weight": 3},
    {"src": "bob@x.org", "dst": "cat@y.org", "since": dt.date(2021, 5, 1), "weight": 1},
    {"src": "cat@y.org", "dst": "dan@y.org", "since": None, "weight": None},
    {"src": "dan@y.org", "dst": "ann@x.org", "since": dt.date(2023, 1, 1), "weight": 2},
    {"src": "ann@x.org", "dst": "bob@x.org", "since": dt.date(2022, 8, 1), "weight": 5},
]
WORKS_AT: list[dict[str, Any]] = [
    {"src": "ann@x.org", "dst": "acme", "role": "boss", "salary": 90},
    {"src": "bob@x.org", "dst": "acme", "role": "cook", "salary": 50},
    {"src": "cat@y.org", "dst": "zeta", "role": "cook", "salary": None},
    {"src": "bob@x.org", "dst": "acme", "role": "host", "salary": 20},
]


def pairs(page: str, language: str) -> list[tuple[str, str, str]]:
    """The title, the foreign text and ours of every section that has both."""
    text = (HOME / "docs/how-to" / page).read_text()
    pattern = rf"### ([^\n]+)\n\n```{language}\n(.*?)```\n\n```gq\n(.*?)```"
    return re.findall(pattern, text, re.DOTALL)


def schema_of(page: str) -> str:
    (schema,) = re.findall(r"```pg\n(.*?)```", (HOME / "docs/how-to" / page).read_text(), re.DOTALL)
    return str(schema)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    root = root_at(Path(tmp_path_factory.mktemp("translations"), "g"))
    graph = og.init(root, schema=schema_of("from-sql.md"))
    graph.write({"Person": PEOPLE, "Company": COMPANIES, "Knows": KNOWS, "WorksAt": WORKS_AT})
    return graph


def tables(graph: Graph) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for table, name in (
        ("person", "Person"),
        ("company", "Company"),
        ("knows", "Knows"),
        ("works_at", "WorksAt"),
    ):
        rows = graph.scan(name).read_all()
        connection.register("rows", rows)
        connection.execute(f"CREATE TABLE {table} AS SELECT * FROM rows")  # noqa: S608
        connection.unregister("rows")
    return connection


@pytest.fixture(scope="module")
def read_tables(graph: Graph) -> duckdb.DuckDBPyConnection:
    return tables(graph)


def ordered(rows: Iterable[Iterable[Any]]) -> list[str]:
    """Rows that can be compared; an exact sum may be a decimal number in another engine."""
    return sorted(
        repr(tuple(int(value) if isinstance(value, Decimal) else value for value in row))
        for row in rows
    )


SQL = pairs("from-sql.md", "sql")


def test_there_are_thirty_translations_of_sql() -> None:
    assert len(SQL) >= 30


@pytest.mark.parametrize(("sql", "text"), [pair[1:] for pair in SQL], ids=[p[0] for p in SQL])
def test_sql_and_its_translation_agree(
    graph: Graph, read_tables: duckdb.DuckDBPyConnection, sql: str, text: str
) -> None:
    is_query = sql.lstrip().startswith(("SELECT", "WITH"))
    connection = read_tables if is_query else tables(graph)
    if is_query:
        expected = connection.execute(sql).fetchall()
        rows = graph.query(text).to_arrow().to_pylist()

        assert rows, "an example shows something"
        assert ordered(row.values() for row in rows) == ordered(expected)
        return
    branch = graph.branches.create(f"b{abs(hash(sql))}")
    connection.execute(sql)
    branch.mutate(text)
    for table, name, columns in (
        ("person", "Person", ("email", "name", "age", "friends")),
        ("knows", "Knows", ("src", "dst")),
    ):
        stored = [[row[c] for c in columns] for row in branch.scan(name).read_all().to_pylist()]
        selecting = f"SELECT {', '.join(columns)} FROM {table}"  # noqa: S608
        selected = connection.execute(selecting).fetchall()
        deleted_node = sql.startswith("DELETE") and name == "Knows"  # edges go with their nodes
        assert deleted_node or ordered(stored) == ordered(selected)


def test_parallel_edges_count_once_unless_the_edge_is_named(graph: Graph) -> None:
    def rows(pattern: str) -> int:
        return len(graph.query(f"match {{ $p: Person  {pattern} }} return {{ $p.id }}").to_pylist())

    pairs_of_nodes = {(row["src"], row["dst"]) for row in WORKS_AT}

    assert rows("$p worksAt $c") == len(pairs_of_nodes) < len(WORKS_AT)
    assert rows("$p $w: worksAt $c") == len(WORKS_AT)


CYPHER = pairs("from-cypher.md", "cypher")


def test_there_are_thirty_translations_of_cypher() -> None:
    assert len(CYPHER) >= 30


@pytest.fixture(scope="module")
def read_database() -> Any:
    return cypher_database()


def cypher_database() -> Any:
    ladybug = pytest.importorskip("ladybug", reason="Cypher is run by Ladybug")
    connection = ladybug.Connection(ladybug.Database(":memory:"))
    connection.execute(
        "CREATE NODE TABLE Person(email STRING PRIMARY KEY, name STRING, age INT64, city STRING,"
        " friends INT64)"
    )
    connection.execute("CREATE NODE TABLE Company(code STRING PRIMARY KEY, name STRING)")
    connection.execute("CREATE REL TABLE Knows(FROM Person TO Person, since DATE, weight INT64)")
    connection.execute(
        "CREATE REL TABLE WorksAt(FROM Person TO Company, role STRING, salary INT64)"
    )
    for row in PEOPLE:
        connection.execute(
            "CREATE (:Person {email: $email, name: $name, age: $age, city: $city})", row
        )
    for row in ({"code": row["code"], "name": row["name"]} for row in COMPANIES):
        connection.execute("CREATE (:Company {code: $code, name: $name})", row)
    for row in KNOWS:
        connection.execute(
            "MATCH (a:Person {email: $src}), (b:Person {email: $dst})"
            " CREATE (a)-[:Knows {since: $since, weight: $weight}]->(b)",
            row,
        )
    for row in WORKS_AT:
        connection.execute(
            "MATCH (a:Person {email: $src}), (b:Company {code: $dst})"
            " CREATE (a)-[:WorksAt {role: $role, salary: $salary}]->(b)",
            row,
        )
    return connection


@pytest.mark.parametrize(
    ("cypher", "text"), [pair[1:] for pair in CYPHER], ids=[pair[0] for pair in CYPHER]
)
def test_cypher_and_its_translation_agree(
    graph: Graph, read_database: Any, cypher: str, text: str
) -> None:
    connection = read_database if "RETURN" in cypher else cypher_database()
    if "RETURN" in cypher:
        expected = connection.execute(cypher).get_all()
        rows = graph.query(text).to_arrow().to_pylist()

        assert rows, "an example shows something"
        assert ordered(row.values() for row in rows) == ordered(expected)
        return
    branch = graph.branches.create(f"c{abs(hash(cypher))}")
    connection.execute(cypher)
    branch.mutate(text)
    knows = [(row["src"], row["dst"]) for row in branch.scan("Knows").read_all().to_pylist()]
    people = {row["email"]: row["name"] for row in branch.scan("Person").read_all().to_pylist()}
    asked = connection.execute("MATCH (a:Person)-[:Knows]->(b:Person) RETURN a.email, b.email")
    assert ordered(knows) == ordered(asked.get_all())
    found = connection.execute("MATCH (p:Person) RETURN p.email, p.name").get_all()
    assert people == dict(found)
