"""Stored tables of a catalog with given rows, and what a schema change makes of them."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from omnigraph_lake.evolution.column_work import write_columns
from omnigraph_lake.evolution.table_changes import TableChange, future_values
from omnigraph_lake.runner.protocol import Runner
from omnigraph_lake.schema.arrow import arrow_type, table_schema
from omnigraph_lake.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph_lake.storage.lance.tables import create_table, open_pinned, whole_rows
from omnigraph_lake.storage.objects.location import Root, parse_root
from omnigraph_lake.storage.snapshot import Snapshot, TableEntry
from omnigraph_lake.storage.staging.changes import StagedChange, stage_append, stage_delete
from omnigraph_lake.storage.staging.column_changes import fragments_to_compute, staged_from
from omnigraph_lake.storage.staging.table_versions import commit_staged
from tests.evolution.plan.rows import Row
from tests.storage.whole_changes import stage_columns

DELETED = "deleted"


def stored(
    root: str, catalog: Catalog, rows: Mapping[str, Sequence[Row]], *, parts: int = 2
) -> tuple[Root, Snapshot]:
    """A table per type; each part is a fragment, and each lost a row full of nothing."""
    where = parse_root(root)
    tables: dict[str, TableEntry] = {}
    for number, (key, declared) in enumerate(catalog.tables().items()):
        location = f"tables/{number}"
        version = create_table(where, location, table_schema(declared), operation_id="made")
        entry = TableEntry(
            table_key=key, location=location, version=version, fork=None, branch=None, row_count=0
        )
        tables[key] = _filled(where, entry, declared, rows.get(key, ()), parts)
    return where, Snapshot(branch=None, manifest_version=1, head=None, tables=tables)


def _filled(
    root: Root,
    entry: TableEntry,
    declared: NodeType | EdgeType,
    rows: Sequence[Row],
    parts: int,
) -> TableEntry:
    """Ids are made of the order of rows, unless they are given."""
    if not rows:
        return entry
    named = [{"id": f"r{number:04}", **row} for number, row in enumerate(rows)]
    for part in range(min(parts, len(named))):
        few = named[part::parts]
        gone = [{**few[0], "id": DELETED}]
        entry = committed(root, stage_append(root, entry, in_arrow([*gone, *few], declared)))
        entry = committed(root, stage_delete(root, entry, pa.table({"id": [DELETED]})))
    return entry


def in_arrow(rows: Sequence[Row], declared: NodeType | EdgeType) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=table_schema(declared))


def committed(root: Root, staged: StagedChange) -> TableEntry:
    made = commit_staged(root, staged, on_version=staged.entry.version, operation_id="operation")
    assert made is not None
    return replace(
        staged.entry, version=made.version, made_at=made.made_at, row_count=staged.row_count
    )


def changed(root: Root, entry: TableEntry, change: TableChange) -> TableEntry:
    """Apply a change in this process."""
    if change.columns is None:
        return entry
    compute = functools.partial(future_values, columns=change.computed)
    return committed(root, stage_columns(root, entry, change.columns, compute))


def changed_by(runner: Runner, root: Root, entry: TableEntry, change: TableChange) -> StagedChange:
    """Stage a change as `schema.apply` does."""
    assert change.columns is not None
    fragments = dict.fromkeys(fragments_to_compute(root, entry, change.columns))
    compute = functools.partial(future_values, columns=change.computed)
    files = write_columns(runner, root, entry, change.columns, compute, fragments)
    return staged_from(root, entry, change.columns, files)


def rows_in(root: Root, entry: TableEntry) -> dict[str, Row]:
    """Every row by its id, without it; NaN as a text, so that rows can be compared."""
    open_pinned(root, entry).validate()  # type: ignore[no-untyped-call]
    batches = whole_rows(root, entry, batch_rows=100)
    return {
        row["id"]: {name: comparable(value) for name, value in row.items() if name != "id"}
        for batch in batches
        for row in batch.to_pylist()
    }


def comparable(value: Any) -> Any:
    if isinstance(value, list):
        return [comparable(each) for each in value]
    return "nan" if value != value else value  # noqa: PLR0124 - NaN


def as_stored_in(rows: Sequence[Row], declared: NodeType | EdgeType) -> list[Row]:
    """Rows of plain Python as a table of this type gives them back."""
    kinds = {each.name: arrow_type(each.type) for each in declared.properties.values()}
    return [
        {name: comparable(_typed(value, kinds.get(name))) for name, value in row.items()}
        for row in rows
    ]


def _typed(value: Any, kind: pa.DataType | None) -> Any:
    if kind is None:
        return value
    if kind == pa.date32() and isinstance(value, str):
        return dt.date.fromisoformat(value)
    if pa.types.is_timestamp(kind) and isinstance(value, str):
        return dt.datetime.fromisoformat(value)
    return pa.scalar(value, kind).as_py()
