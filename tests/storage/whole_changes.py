"""A change of a table's columns, staged as a whole: what an apply does fragment by fragment."""

from __future__ import annotations

from omnigraph_lake.storage.objects.location import Root
from omnigraph_lake.storage.snapshot import TableEntry
from omnigraph_lake.storage.staging.changes import StagedChange
from omnigraph_lake.storage.staging.column_changes import (
    Compute,
    column_files,
    fragments_to_compute,
    staged_from,
)
from omnigraph_lake.storage.staging.column_layout import ColumnChange


def stage_columns(
    root: Root, entry: TableEntry, change: ColumnChange, compute: Compute | None = None
) -> StagedChange:
    files = []
    for fragment in fragments_to_compute(root, entry, change):
        assert compute is not None, "computed columns need a computation"
        files.append(column_files(root, entry, fragment, change, compute))
    return staged_from(root, entry, change, files)
