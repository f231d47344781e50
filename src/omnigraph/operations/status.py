"""What a graph looks like now: types, versions, rows, fragments, index coverage, drift.

Invariant: read-only. Costs one look at every table, several tables at a time.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.schema.indexes import DeclaredIndex, declared_indexes
from omnigraph.storage.tables import IndexCoverage, table_health

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.location import Root
    from omnigraph.storage.objects import Objects
    from omnigraph.storage.snapshot import Snapshot, TableEntry

_TABLES_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """One table at its pin; `head_version` above `version` is drift.

    `missing_indexes` are the columns whose declared index has not been built.
    """

    table_key: str
    version: int
    head_version: int
    rows: int
    fragments: int
    deleted_rows: int
    indexes: tuple[IndexCoverage, ...]
    missing_indexes: tuple[str, ...]

    @property
    def kind(self) -> str:
        return self.table_key.partition(":")[0]

    @property
    def type_name(self) -> str:
        return self.table_key.partition(":")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphStatus:
    """The whole graph on one branch."""

    root: str
    branch: str
    commit_id: str | None
    manifest_version: int
    format_stamp: int
    pending_sidecars: tuple[str, ...]
    tables: tuple[TableStatus, ...]


def graph_status(
    objects: Objects, catalog: Catalog, snapshot: Snapshot, *, stamp: int
) -> GraphStatus:
    declared = {
        **{
            names.node_table_key(node.name): declared_indexes(node)
            for node in catalog.nodes.values()
        },
        **{
            names.edge_table_key(edge.name): declared_indexes(edge)
            for edge in catalog.edges.values()
        },
    }
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        tables = pool.map(
            lambda entry: _table(objects.root, entry, declared.get(entry.table_key, ())),
            snapshot.tables.values(),
        )
        return GraphStatus(
            root=objects.root.uri,
            branch=snapshot.branch_name,
            commit_id=snapshot.head.commit_id if snapshot.head else None,
            manifest_version=snapshot.manifest_version,
            format_stamp=stamp,
            pending_sidecars=pending_sidecars(objects),
            tables=tuple(sorted(tables, key=lambda table: (table.kind != "node", table.type_name))),
        )


def pending_sidecars(objects: Objects) -> tuple[str, ...]:
    """The operations whose writers have not finished, or died."""
    return tuple(
        path.removeprefix(f"{names.RECOVERY_DIR}/").removesuffix(".json")
        for path in objects.list(names.RECOVERY_DIR)
    )


def _table(root: Root, entry: TableEntry, declared: Sequence[DeclaredIndex]) -> TableStatus:
    health = table_health(root, entry)
    built = {index.columns for index in health.indexes}
    return TableStatus(
        table_key=entry.table_key,
        version=entry.version,
        head_version=health.head_version,
        rows=entry.row_count,
        fragments=health.fragments,
        deleted_rows=health.deleted_rows,
        indexes=health.indexes,
        missing_indexes=tuple(
            ",".join(index.columns) for index in declared if index.columns not in built
        ),
    )
