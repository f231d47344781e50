"""Reading the rows of one type at a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.storage.tables import find_entry, known_columns, scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from omnigraph.storage.location import Root
    from omnigraph.storage.snapshot import Snapshot


def read_type(
    root: Root, snapshot: Snapshot, table_key: str, *, columns: Sequence[str] | None
) -> pa.RecordBatchReader:
    """Stream a type's rows; the driver holds one batch at a time."""
    entry = find_entry(root, snapshot, table_key)
    return scan(root, entry, columns=known_columns(root, entry, columns))
