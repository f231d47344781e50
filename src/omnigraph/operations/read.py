"""Reading the rows of one type at a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from omnigraph.errors import InvalidInputError, NotFoundError
from omnigraph.storage.tables import open_pinned, scan
from omnigraph.syntax import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.storage.location import Root
    from omnigraph.storage.snapshot import Snapshot, TableEntry


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
    return scan(root, entry, columns=_known_columns(root, entry, columns))


def _known_columns(
    root: Root, entry: TableEntry, columns: Sequence[str] | None
) -> Sequence[str] | None:
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise InvalidInputError(f"columns are {columns!r:.80}, expected a list of column names")
    known = open_pinned(root, entry).schema.names
    for column in columns:
        if column not in known:
            hint = did_you_mean(str(column), known)
            raise InvalidInputError(
                f"{entry.table_key} has no column {column!r:.80}" + (f" ({hint})" if hint else ""),
                next_step=f"Its columns are {', '.join(known)}.",
            )
    if not columns:
        raise InvalidInputError("no columns were asked for", next_step="Leave `columns` out.")
    return columns
