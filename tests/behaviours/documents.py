"""Documents with every kind of index, stored in many small pieces, and what `status` says of them.

All of it goes through the public API.
"""

from __future__ import annotations

from typing import Any

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from tests.behaviours.copies import made_once

SCHEMA = """
node Doc {
    name: String @key
    kind: enum(a, b)? @index
    n: I64 @index
    text: String? @index
    place: Vector(2)? @index(metric=l2)
}
node Tag { name: String @key }
node Quiet { name: String @key }
edge Cites: Doc -> Doc { weight: I64? @index }
"""
DOC, CITES = "node:Doc", "edge:Cites"
TABLES_WITH_ROWS = (CITES, DOC, "node:Tag")


def doc(number: int, n: int | None = None) -> dict[str, Any]:
    """A document whose number is also its words and its place."""
    value = number if n is None else n
    return {
        "name": f"d{number}",
        "kind": "ab"[number % 2],
        "n": value,
        "text": f"word{value % 3} only{value}",
        "place": [float(value), 0.0],
    }


def cites(source: int, target: int, weight: int | None = None) -> dict[str, Any]:
    return {
        "id": f"{source}-{target}",
        "src": f"d{source}",
        "dst": f"d{target}",
        "weight": weight,
    }


@made_once
def scattered_graph(root: str) -> None:
    """Nine documents in three fragments, a tag, nothing that is quiet, citations in two."""
    graph = og.init(root, schema=SCHEMA)
    for start in (0, 3, 6):
        graph.write({"Doc": [doc(number) for number in range(start, start + 3)]})
    graph.write({"Tag": [{"name": "t"}]})
    graph.write({"Cites": [cites(0, 1, 5)]})
    graph.write({"Cites": [cites(1, 2, 6)]})


def coverage(graph: Graph, key: str) -> dict[str, tuple[int, int]]:
    """By index: the numbers of rows that it covers and does not cover."""
    (table,) = (table for table in graph.maintenance.status().tables if table.table_key == key)
    return {index.name: (index.indexed_rows, index.unindexed_rows) for index in table.indexes}


def heads_equal_pins(graph: Graph) -> bool:
    """Whether no table has a version that is not published."""
    return all(table.head_version == table.version for table in graph.maintenance.status().tables)
