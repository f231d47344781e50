"""Published rows that no check has seen: appended with bare Lance, then put into the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import lance
import pyarrow as pa

from omnigraph_lake import names
from omnigraph_lake.graph import Graph
from omnigraph_lake.schema.arrow import edge_schema, node_schema
from omnigraph_lake.storage.manifest.swap import SwapAnswer, read_manifest, swap_manifest
from omnigraph_lake.storage.manifest_rows import TableVersion
from omnigraph_lake.storage.objects.location import parse_root


def publish_unchecked(graph: Graph, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Append rows by table key, ids spelt out, and publish the versions they make."""
    root = parse_root(graph.root)
    state = read_manifest(root)
    tables = state.snapshot().tables
    moved: dict[str, tuple[int, int]] = {}
    for key, given in rows.items():
        dataset = lance.write_dataset(
            pa.Table.from_pylist([dict(each) for each in given], schema=_schema(graph, key)),
            root.child(tables[key].location),
            mode="append",
            transaction_properties={names.OPERATION_PROPERTY: "unchecked"},
            storage_options=dict(root.storage_options) or None,
        )
        moved[key] = dataset.version, dataset.count_rows()
    changed = [
        replace(
            row,
            version=moved[row.table_key][0],
            row_count=moved[row.table_key][1],
            made_at=None,
            checksums=None,
        )
        if isinstance(row, TableVersion) and row.table_key in moved
        else row
        for row in state.rows
    ]
    assert swap_manifest(state, changed, operation_id="unchecked") is SwapAnswer.ACCEPTED


def _schema(graph: Graph, table_key: str) -> pa.Schema:
    kind, _, name = table_key.partition(":")
    catalog = graph.schema.catalog
    return node_schema(catalog.nodes[name]) if kind == "node" else edge_schema(catalog.edges[name])
