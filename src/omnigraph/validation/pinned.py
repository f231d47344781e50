"""The published tables that a check may read, at the versions that a snapshot pins.

Invariant: rows are streamed; no call returns a table of the graph as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from omnigraph.errors import DamagedGraphError
from omnigraph.storage.lance.dataset_cache import look_up

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import Snapshot, TableEntry


class PinnedTables(Protocol):
    """What checks need of the published graph."""

    def scan(
        self, table_key: str, columns: Sequence[str], where: str | None = None
    ) -> pa.RecordBatchReader:
        """Stream these columns, in this order, of the rows that satisfy a Lance filter."""
        ...

    def row_count(self, table_key: str) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTables:
    """The tables of one snapshot below a root."""

    root: Root
    snapshot: Snapshot

    def scan(
        self, table_key: str, columns: Sequence[str], where: str | None = None
    ) -> pa.RecordBatchReader:
        return look_up(self.root, self._entry(table_key), columns, where)

    def row_count(self, table_key: str) -> int:
        return self._entry(table_key).row_count

    def _entry(self, table_key: str) -> TableEntry:
        entry = self.snapshot.tables.get(table_key)
        if entry is None:
            raise DamagedGraphError(
                f"the schema names {table_key}, but {self.root} has no published table for it",
                next_step=f"Run `omnigraph check {self.root}`.",
            )
        return entry
