"""Reads pinned tables during one check: few values are pushed down to an index.

A check reads the published tables at the versions that a snapshot pins.

Invariants:

- Every table whose pinned content an answer depends on is in `read_set`, also when it is empty.
- Rows are streamed; no call returns a table of the graph as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake import names
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.storage.lance.dataset_cache import cached_dataset, look_up
from omnigraph_lake.storage.lance.tables import (
    grouped,
    plan_scan,
    rows_at,
    scan_fragments,
    take_rows,
)
from omnigraph_lake.storage.lance.value_lookups import OneOf, look_up_values

if TYPE_CHECKING:
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry


class PinnedTables(Protocol):
    """What checks need of the published graph."""

    def scan(
        self, table_key: str, columns: Sequence[str], where: OneOf | None = None
    ) -> pa.RecordBatchReader:
        """Stream these columns, in this order, of all rows, or of those with some values."""
        ...

    def groups(self, table_key: str, *, rows_max: int) -> tuple[tuple[int, ...], ...]:
        """Fragments of a table, in groups of about so many rows."""
        ...

    def scan_group(
        self, table_key: str, fragments: Sequence[int], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Stream these columns of the rows of some fragments."""
        ...

    def rows_at(self, table_key: str, addresses: np.ndarray, columns: Sequence[str]) -> pa.Table:
        """A few rows by their addresses, in the order of these."""
        ...

    def take(
        self, table_key: str, ids: pa.StringArray, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Stream these columns of the rows with one of these ids, blobs as their bytes."""
        ...

    def row_count(self, table_key: str) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTables:
    """The tables of one snapshot below a root."""

    root: Root
    snapshot: Snapshot

    def scan(
        self, table_key: str, columns: Sequence[str], where: OneOf | None = None
    ) -> pa.RecordBatchReader:
        entry = self._entry(table_key)
        if where is None:
            return look_up(self.root, entry, columns, None)
        return look_up_values(self.root, entry, columns, where)

    def groups(self, table_key: str, *, rows_max: int) -> tuple[tuple[int, ...], ...]:
        entry = self._entry(table_key)
        scan = plan_scan(self.root, entry, columns=[names.ID_COLUMN], where=None)
        return grouped(scan.fragments, rows_max=rows_max)

    def scan_group(
        self, table_key: str, fragments: Sequence[int], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        return scan_fragments(
            self.root, self._entry(table_key), fragments, columns=columns, where=None
        )

    def rows_at(self, table_key: str, addresses: np.ndarray, columns: Sequence[str]) -> pa.Table:
        return rows_at(self.root, self._entry(table_key), addresses, columns=columns)

    def take(
        self, table_key: str, ids: pa.StringArray, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        from omnigraph_lake.storage.staging.edits import locate  # queries need none

        entry = self._entry(table_key)
        located = locate(self.root, entry, ids)
        if len(located.ids):
            dataset = cached_dataset(self.root, entry)
            yield from take_rows(self.root, entry, dataset, located.addresses, columns)

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


PROBE_VALUES_MAX: Final = 2_000
"""Up to this many values are looked up by a filter, which an index can serve; more by one scan."""
LITERAL_MAX: Final = 2**63 - 1
"""Lance parses a number without its sign, so a larger magnitude may not fit."""


class PinnedReads:
    """The reads of one check, and the set of tables they touched."""

    def __init__(self, pinned: PinnedTables) -> None:
        self._pinned = pinned
        self._read: set[str] = set()

    @property
    def read_set(self) -> frozenset[str]:
        return frozenset(self._read)

    def depend_on(self, table_key: str) -> None:
        """Record that the result depends on this table."""
        self._read.add(table_key)

    def rows(
        self, table_key: str, columns: Sequence[str], *, within: OneOf | None = None
    ) -> pa.RecordBatchReader | None:
        """Stream pinned rows, at least those within; None if there is nothing to read."""
        self.depend_on(table_key)
        if not self._pinned.row_count(table_key) or (within and not len(within.values)):
            return None
        return self._pinned.scan(table_key, columns, as_filter(within))


def count_existing(pinned: PinnedTables, table_key: str, ids: pa.Array) -> int:
    """How many of these ids the table has."""
    within = OneOf(column=names.ID_COLUMN, values=ids)
    batches = PinnedReads(pinned).rows(table_key, [names.ID_COLUMN], within=within)
    if batches is None:
        return 0
    return sum(pc.sum(pc.is_in(batch.column(0), ids)).as_py() or 0 for batch in batches)


def can_probe(kind: pa.DataType) -> bool:
    """Whether values of this type can be written unambiguously in a filter."""
    return bool(pat.is_string(kind) or pat.is_integer(kind))


def as_filter(within: OneOf | None) -> OneOf | None:
    """These values if Lance can filter by them; None if they are too many, or ambiguous."""
    if within is None or len(within.values) > PROBE_VALUES_MAX:
        return None
    assert can_probe(within.values.type)
    if pat.is_integer(within.values.type) and any(
        abs(value) > LITERAL_MAX for value in within.values.to_pylist()
    ):
        return None
    return within
