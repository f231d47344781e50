"""The small graph of people as a real one, and what queries answer there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from tests.query.answers import plain
from tests.query.people import SCHEMA, small_graph
from tests.stores import root_at


def people_on_disk(folder: Path) -> Graph:
    graph = og.init(root_at(folder / "graph"), schema=SCHEMA)
    tables = small_graph()
    graph.write(
        {
            **{f"node:{name}": rows for name, rows in tables["nodes"].items()},
            **{f"edge:{name}": rows for name, rows in tables["edges"].items()},
        }
    )
    return graph


def rows(
    graph: Graph, match: str, result: str, tail: str = "", parameters: str = "", **given: Any
) -> list[Any]:
    """The rows as tuples, or plain values of one column; sorted if the query does not say how."""
    text = f"query q({parameters}) {{ match {{ {match} }} return {{ {result} }} {tail} }}"
    return ran(graph, text, given, ordered="order" in tail)


def ran(graph: Graph, text: str, given: dict[str, Any], *, ordered: bool) -> list[Any]:
    found = [tuple(plain(row).values()) for row in graph.query(text, given).to_pylist()]
    values = [row[0] if len(row) == 1 else row for row in found]
    return values if ordered else sorted(values, key=repr)
