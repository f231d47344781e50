"""A snapshot's tables as plain values that fit into a small object beside the manifest.

Invariant: what was written down is read back as the same entries, wherever the manifest has gone
since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omnigraph.storage.snapshot import TableEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from omnigraph.storage.snapshot import Snapshot

PinnedTables = tuple[tuple[str, str, int, str | None, int], ...]
"""Per table: its key, location, version, fork and number of rows."""


def written_down(snapshot: Snapshot) -> PinnedTables:
    return tuple(
        (entry.table_key, entry.location, entry.version, entry.fork, entry.row_count)
        for entry in snapshot.tables.values()
    )


def entries(tables: PinnedTables, *, branch: str | None) -> Mapping[str, TableEntry]:
    return {
        key: TableEntry(
            table_key=key,
            location=location,
            version=version,
            fork=fork,
            branch=branch,
            row_count=rows,
        )
        for key, location, version, fork, rows in tables
    }


def decoded(values: Iterable[Any]) -> PinnedTables:
    """The tables as JSON gives them back."""
    return tuple(
        (str(key), str(location), int(version), None if fork is None else str(fork), int(rows))
        for key, location, version, fork, rows in values
    )
