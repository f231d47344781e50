"""The status of a graph: types, versions, rows, fragments, index coverage, drift.

Invariant: read-only. Costs one look at every table, several tables at a time.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

from omnigraph_lake.commit.sidecar import recovery_folder
from omnigraph_lake.display.cells import Cell, Either, counted, short_id
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.schema.indexes import DeclaredIndex, IndexKind, declared_indexes
from omnigraph_lake.storage.indexes.segments import has_values
from omnigraph_lake.storage.lance.dataset_cache import dataset_for_scan
from omnigraph_lake.storage.lance.tables import IndexCoverage, table_health
from omnigraph_lake.storage.objects.location import Root, Scheme
from omnigraph_lake.storage.refs.holds import Hold, list_holds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry

_TABLES_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus(Displayed):
    """One table at its pin; `head_version` above `version` is drift.

    `missing_indexes` are the columns whose declared index has not been built; a full-text index,
    which exists next to another one of its column, is marked as such.
    """

    table_key: str
    version: int
    head_version: int
    rows: int
    fragments: int
    deleted_rows: int
    indexes: tuple[IndexCoverage, ...]
    missing_indexes: tuple[str, ...]
    waiting_indexes: tuple[str, ...] = ()
    """Those of them that cannot be built yet: no row has a vector."""
    data_bytes: int = 0
    """Size of its data files, without indexes and old versions."""

    @property
    def kind(self) -> str:
        return self.table_key.partition(":")[0]

    @property
    def type_name(self) -> str:
        return self.table_key.partition(":")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphStatus(Displayed):
    """The whole graph on one branch; `pending_sidecars` are operations that have not finished."""

    root: str
    branch: str
    commit_id: str | None
    manifest_version: int
    format_stamp: int
    pending_sidecars: tuple[str, ...]
    tables: tuple[TableStatus, ...]
    durability: str
    """What an acknowledged write of this handle survives."""
    without_checksums: tuple[str, ...] = ()
    """Tables on a local disk whose published versions are older than checksums."""
    stray_files: tuple[str, ...] = ()
    """Files among the sidecars that are none; nothing reads them."""
    holds: tuple[Hold, ...] = ()
    """What readers hold."""

    def _page(self) -> Page:
        rows = [
            (
                table.type_name,
                table.kind,
                str(table.version),
                f"{table.rows:,}",
                f"{table.fragments:,}",
                f"{table.deleted_rows:,}",
                _coverage(table),
            )
            for table in self.tables
        ]
        count = sum(table.rows for table in self.tables)
        head = "(none yet)" if self.commit_id is None else short_id(self.commit_id)
        return Page(
            summary=f"{self.root}, branch {self.branch} at commit {head}: "
            f"{counted(len(rows), 'type')}, {counted(count, 'row')}",
            facts=[
                ("graph", self.root),
                ("branch", f"{self.branch} at commit {self.commit_id or '(none yet)'}"),
                ("manifest", f"version {self.manifest_version}, format {self.format_stamp}"),
                ("writes", f"durability {self.durability}"),
            ],
            tables=[
                TableView(
                    header=("type", "kind", "version", "rows", "fragments", "deleted", "indexes"),
                    rows=rows,
                    numbers=(2, 3, 4, 5),
                )
            ],
        )


def _coverage(table: TableStatus) -> Cell:
    """How many declared indexes are built, and which of them do not know every row."""
    built = len(table.indexes)
    short = f"{built} of {built + len(table.missing_indexes)}"
    partial = [
        f"{index.name} {index.indexed_rows / (index.indexed_rows + index.unindexed_rows):.0%}"
        for index in table.indexes
        if index.unindexed_rows
    ]
    return (
        Either(", ".join([short, *partial]), f"{short}, {len(partial)} partial")
        if partial
        else short
    )


def graph_status(
    objects: Objects, catalog: Catalog, snapshot: Snapshot, *, stamp: int
) -> GraphStatus:
    recovery = recovery_folder(objects)
    declared = {key: declared_indexes(entity) for key, entity in catalog.tables().items()}
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
            pending_sidecars=recovery.operations,
            stray_files=recovery.strays,
            tables=tuple(sorted(tables, key=lambda table: (table.kind != "node", table.type_name))),
            durability=objects.root.durability.value,
            holds=list_holds(objects),
            without_checksums=tuple(
                entry.table_key
                for entry in snapshot.tables.values()
                if objects.root.scheme is Scheme.LOCAL and not _has_checksums(entry)
            ),
        )


def _has_checksums(entry: TableEntry) -> bool:
    return entry.checksums is not None and entry.checksums.digest is not None


def _table(root: Root, entry: TableEntry, declared: Sequence[DeclaredIndex]) -> TableStatus:
    health = table_health(root, entry)
    built = {(index.name, index.columns) for index in health.indexes}
    missing = [index for index in declared if (index.name, (index.column,)) not in built]
    return TableStatus(
        table_key=entry.table_key,
        version=entry.version,
        head_version=health.head_version,
        rows=entry.row_count,
        fragments=health.fragments,
        deleted_rows=health.deleted_rows,
        data_bytes=health.data_bytes,
        indexes=health.indexes,
        missing_indexes=tuple(map(_shown, missing)),
        waiting_indexes=tuple(
            _shown(index)
            for index in missing
            if index.kind is IndexKind.VECTOR and entry.row_count
            if _is_without_values(root, entry, index.column)
        ),
    )


def _is_without_values(root: Root, entry: TableEntry, column: str) -> bool:
    try:
        return not has_values(dataset_for_scan(root, entry), column)
    except (OmnigraphError, ValueError, OSError):
        return False  # a damaged table has a status, too; `check` says what is wrong with it


def _shown(index: DeclaredIndex) -> str:
    match index.kind:
        case IndexKind.BTREE | IndexKind.VECTOR:
            return index.column
        case IndexKind.INVERTED:
            return f"{index.column} (full text)"
        case _:
            assert_never(index.kind)
