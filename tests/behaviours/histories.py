"""Small graphs with a history, and plain views of what they hold."""

from __future__ import annotations

from typing import Any

import omnigraph_lake as og
from omnigraph_lake.errors import MergeConflictError
from omnigraph_lake.graph import Graph, GraphView
from tests.behaviours.copies import made_once
from tests.behind import data_files as data_files
from tests.behind import row_ids as row_ids

Row = dict[str, Any]
Content = dict[str, dict[str, Row]]

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    city: String?
    nick: String? @unique
    first: String?
    last: String?
    @unique(first, last)
}
node Pet { name: String @key  kind: String? }
edge Knows: Person -> Person { since: I32? }
edge Owns: Person -> Pet @card(0..2)
"""
TYPES = ("Person", "Pet", "Knows", "Owns")


@made_once
def small_graph(root: str) -> None:
    """Three people, of whom ann knows bob, and a pet that belongs to ann."""
    og.init(root, schema=SCHEMA).write(
        {
            "Person": [person("ann", age=1), person("bob", age=2), person("cyd", age=3)],
            "Pet": [{"name": "rex"}],
            "Knows": [knows("ann-bob", "ann", "bob")],
            "Owns": [owns("ann-rex", "ann", "rex")],
        }
    )


def person(name: str, **values: Any) -> Row:
    return {"name": name, **values}


def knows(name: str, source: str, target: str, **values: Any) -> Row:
    return {"id": name, "src": source, "dst": target, **values}


def owns(name: str, source: str, target: str) -> Row:
    return {"id": name, "src": source, "dst": target}


def put(graph: Graph, **rows: list[Row]) -> str:
    """Insert or replace rows by type name, as one commit; returns its id."""
    commit_id = graph.write(rows, mode="replace").commit_id
    assert commit_id is not None
    return commit_id


def content(graph: Graph | GraphView) -> Content:
    """Every row by type name and id; columns that are null are left out."""
    found: Content = {}
    for table_key in graph.snapshot().tables:
        type_name = table_key.partition(":")[2]
        rows = graph.scan(table_key).read_all().to_pylist()
        found[type_name] = {row["id"]: _present(row) for row in rows}
        assert len(found[type_name]) == len(rows), f"an id of {type_name} comes twice"
    return found


def people(graph: Graph | GraphView) -> dict[str, int | None]:
    """The age of everybody."""
    return {row["id"]: row.get("age") for row in content(graph)["Person"].values()}


def conflicts_of(graph: Graph, source: str, **wishes: Any) -> list[Row]:
    """What a merge that must fail says; it must leave the target as it was."""
    before = (graph.snapshot(), content(graph))
    try:
        graph.merge(source, **wishes)
    except MergeConflictError as error:
        assert (graph.snapshot(), content(graph)) == before
        rows: list[Row] = error.conflicts.to_pylist()  # type: ignore[attr-defined]
        return rows
    raise AssertionError(f"merging {source} met no conflict")


def kinds(conflicts: list[Row]) -> set[tuple[str, str, str | None, str]]:
    """Conflicts without their values: type, id, column, kind."""
    return {(row["type"], row["id"], row["column"], row["kind"]) for row in conflicts}


def forks(graph: Graph) -> set[str]:
    """The types that the branch has written to a line of its own."""
    return {
        key.partition(":")[2]
        for key, entry in graph.snapshot().tables.items()
        if entry.fork is not None
    }


def pins(graph: Graph | GraphView) -> dict[str, object]:
    return {key: entry.pin for key, entry in graph.snapshot().tables.items()}


def _present(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}
