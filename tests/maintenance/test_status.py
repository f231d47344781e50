from __future__ import annotations

import lance
import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.manifest.swap import read_manifest, swap_manifest
from omnigraph_lake.storage.manifest_rows import TableVersion
from omnigraph_lake.storage.objects.location import parse_root
from tests.stores import put_file

pytestmark = pytest.mark.unit

SCHEMA = """
node Person { name: String @key }
node Company { name: String @key }
edge WorksAt: Person -> Company
"""

INDEXED = """
node Note { text: String @key at: Date @index meaning: Vector(4)? @index(metric=l2) }
edge Cites: Note -> Note { page: I32 @index(src, page) }
"""


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return og.init(graph_root, schema=SCHEMA)


def test_status_of_a_new_graph_lists_every_type_nodes_first(graph: Graph) -> None:
    status = graph.maintenance.status()

    kinds = [table.kind for table in status.tables]
    assert kinds == sorted(kinds, reverse=True)
    assert {t.type_name for t in status.tables if t.kind == "node"} == set(
        graph.schema.catalog.nodes
    )
    assert status.format_stamp == names.STAMP
    assert status.pending_sidecars == ()
    assert all(table.version == table.head_version == 1 for table in status.tables)


def test_status_counts_rows_fragments_and_index_coverage_at_the_pin(graph: Graph) -> None:
    entry = graph.snapshot().tables["node:Company"]
    uri = f"{graph.root}/{entry.location}"
    schema = lance.dataset(uri).schema

    def companies(*ids: str) -> pa.Table:
        rows = [{"id": each, "name": each} for each in ids]
        return pa.Table.from_pylist(rows, schema=schema)

    lance.write_dataset(companies("a", "b"), uri, mode="append")
    dataset = lance.dataset(uri)
    dataset.create_scalar_index("id", "BTREE", name=names.index_name("id", "btree"))
    lance.write_dataset(companies("c"), uri, mode="append")
    _publish(graph, "node:Company", version=4, rows=3)

    (company,) = [t for t in graph.maintenance.status().tables if t.type_name == "Company"]

    assert (company.rows, company.fragments, company.version, company.head_version) == (3, 2, 4, 4)
    (index,) = company.indexes
    assert (index.columns, index.indexed_rows, index.unindexed_rows) == (("id",), 2, 1)


def test_status_lists_every_declared_index_that_is_not_built(graph_root: str) -> None:
    graph = og.init(graph_root, schema=INDEXED)
    entry = graph.snapshot().tables["node:Note"]
    dataset = lance.dataset(f"{graph.root}/{entry.location}")
    (empty, _) = graph.maintenance.status().tables
    dataset.create_scalar_index("text", "INVERTED", name="text_inverted")
    dataset.create_scalar_index("at", "BTREE", name="somebody_elses")
    _publish(graph, "node:Note", version=3, rows=0)

    (built, cites) = graph.maintenance.status().tables

    assert empty.missing_indexes == ("id", "text", "text (full text)", "at", "meaning")
    assert built.missing_indexes == ("id", "text", "at", "meaning")
    assert cites.missing_indexes == ("id", "src", "dst", "page")


def test_status_shows_a_head_that_ran_ahead_of_the_manifest(graph: Graph) -> None:
    entry = graph.snapshot().tables["node:Company"]
    dataset = lance.dataset(f"{graph.root}/{entry.location}")
    lance.write_dataset(
        pa.Table.from_pylist([{"id": "x", "name": "x"}], schema=dataset.schema),
        dataset.uri,
        mode="append",
    )

    (company,) = [t for t in graph.maintenance.status().tables if t.type_name == "Company"]

    assert (company.version, company.head_version, company.rows, company.fragments) == (1, 2, 0, 0)


def test_status_names_the_operations_that_have_not_finished(graph: Graph) -> None:
    first, second = "01J00000000000000000000001", "01J00000000000000000000002"
    put_file(graph.root, names.sidecar(first), b"{}")
    put_file(graph.root, names.sidecar(second, "01J0000000000000000000000X"), b"{}")

    assert graph.maintenance.status().pending_sidecars == (first, second)


def _publish(graph: Graph, table_key: str, *, version: int, rows: int) -> None:
    state = read_manifest(parse_root(graph.root))
    kept = [
        row
        for row in state.rows
        if not (isinstance(row, TableVersion) and row.table_key == table_key)
    ]
    swap_manifest(
        state,
        [*kept, TableVersion(table_key=table_key, version=version, row_count=rows)],
        operation_id="test",
    )
