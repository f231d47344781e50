"""Reading the rows of one type at a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.storage.kept import gone_if_removed, streamed_unless_removed
from omnigraph.storage.tables import find_entry, known_columns, scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.storage.location import Root
    from omnigraph.storage.snapshot import Snapshot


def read_type(
    root: Root, snapshot: Snapshot, table_key: str, *, columns: Sequence[str] | None
) -> pa.RecordBatchReader:
    """Stream a type's rows; the driver holds one batch at a time.

    Raises:
        NoLongerKeptError: a cleanup removed the version, also while its rows are read.
    """
    entry = find_entry(root, snapshot, table_key)
    with gone_if_removed(root, entry):
        rows = scan(root, entry, columns=known_columns(root, entry, columns))
    return pa.RecordBatchReader.from_batches(
        rows.schema, streamed_unless_removed(rows, root, entry)
    )
