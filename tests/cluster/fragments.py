"""A graph of many small fragments, and what must be true of it after an optimize."""

from __future__ import annotations

from collections.abc import Mapping
from unittest import mock

import pyarrow as pa

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.lance.tables import table_health
from omnigraph_lake.storage.staging import tail_merge
from tests.behaviours.histories import row_ids

SCHEMA = """
node Person { name: String @key  words: String @index }
edge Knows: Person -> Person { since: I32? }
"""
ROWS = 200
"""Rows of each table in each fragment."""
TARGET = 400
"""Rows of a fragment after an optimize."""

RowIds = dict[str, Mapping[str, int]]


def fragmented(root: str, *, fragments: int) -> Graph:
    """Two tables of so many small fragments each."""
    graph = og.init(root, schema=SCHEMA)
    # Writes join their small fragments, which leaves little to compact.
    with mock.patch.object(tail_merge, "FRAGMENTS_KEPT", 2 * fragments):
        for number in range(fragments):
            names = [f"p{number * ROWS + row}" for row in range(ROWS)]
            people = pa.table({"name": names, "words": [f"word{name} all" for name in names]})
            friends = pa.table(
                {"id": names, "src": names, "dst": ["p0"] * ROWS, "since": pa.array(range(ROWS))}
            )
            graph.write({"Person": people, "Knows": friends})
    return graph


def row_ids_of(graph: Graph) -> RowIds:
    return {key: row_ids(graph, key) for key in graph.snapshot().tables}


def require_optimized(root: str, before: RowIds, *, fragments: int) -> None:
    """Nothing is lost, nothing twice, fewer files, and every row in every index."""
    graph = og.open(root)
    assert row_ids_of(graph) == before
    assert graph.scan("Person").read_all().num_rows == fragments * ROWS
    for entry in graph.snapshot().tables.values():
        health = table_health(graph._objects.root, entry)
        assert health.fragments == fragments * ROWS // TARGET
        assert health.indexes
        assert all(index.unindexed_rows == 0 for index in health.indexes)
    report = graph.maintenance.check()
    assert report.ok, report.findings
    assert not report.pending_operations
