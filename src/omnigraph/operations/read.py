"""Reading the rows of one type at a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.errors import NotFoundError
from omnigraph.storage.tables import scan
from omnigraph.syntax import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from omnigraph.storage.location import Root
    from omnigraph.storage.snapshot import Snapshot


def read_type(
    root: Root, snapshot: Snapshot, table_key: str, *, columns: Sequence[str] | None
) -> pa.RecordBatchReader:
    """Stream a type's rows; the driver holds one batch at a time."""
    entry = snapshot.tables.get(table_key)
    if entry is None:
        kind, _, type_name = table_key.partition(":")
        known = [key.partition(":")[2] for key in snapshot.tables if key.startswith(f"{kind}:")]
        hint = did_you_mean(type_name, known)
        raise NotFoundError(
            f"{root} has no {kind} type {type_name!r}" + (f" ({hint})" if hint else ""),
            next_step=f"Run `omnigraph schema show {root}` to see the types.",
        )
    return scan(root, entry, columns=columns)
