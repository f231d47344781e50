"""The HTML form of a graph in a notebook: one small table, no script, no style.

Invariant: everything that came from a schema or a path is escaped.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from omnigraph import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.snapshot import Snapshot


def graph_html(root: str, catalog: Catalog, snapshot: Snapshot) -> str:
    head = snapshot.head.commit_id if snapshot.head else "no commit yet"
    rows = "".join(_rows(catalog, snapshot))
    return (
        "<div>"
        f"<p><strong>Graph</strong> <code>{escape(root)}</code> · branch "
        f"<code>{escape(snapshot.branch_name)}</code> · commit <code>{escape(head)}</code></p>"
        "<table><thead><tr><th>Type</th><th>Kind</th><th>Properties</th>"
        "<th>Rows</th><th>Version</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
        "</div>"
    )


def _rows(catalog: Catalog, snapshot: Snapshot) -> Iterator[str]:
    for node in catalog.nodes.values():
        yield _row(
            snapshot,
            names.node_table_key(node.name),
            title=node.name,
            kind="node",
            properties=list(node.properties),
        )
    for edge in catalog.edges.values():
        yield _row(
            snapshot,
            names.edge_table_key(edge.name),
            title=f"{edge.source} → {edge.name} → {edge.target}",
            kind="edge",
            properties=list(edge.properties),
        )


def _row(
    snapshot: Snapshot, table_key: str, *, title: str, kind: str, properties: list[str]
) -> str:
    entry = snapshot.tables.get(table_key)
    cells = (
        title,
        kind,
        ", ".join(properties),
        f"{entry.row_count:,}" if entry else "-",
        str(entry.version) if entry else "-",
    )
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
