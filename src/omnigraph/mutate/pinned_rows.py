"""The pinned rows that a mutation reads.

Invariant: every table that was read is in `read_set`, whether or not a row was found, so that
nothing is published on rows that have changed since. Rows are streamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import names
from omnigraph.engine.access.conditions import one_of
from omnigraph.errors import DamagedGraphError
from omnigraph.mutate.overlay import joined
from omnigraph.schema.arrow import has_blob
from omnigraph.storage.lance.dataset_cache import kept_open
from omnigraph.storage.lance.datasets import translated
from omnigraph.storage.lance.tables import find_entry

if TYPE_CHECKING:
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import Snapshot

_BATCH_ROWS: Final = 1 << 17
_WHOLE_ROWS: Final = 4_096
_ROWS_WITH_BLOBS: Final = 32
_WHOLE_BYTES: Final = 8 << 20
# From this share of a table on, reading all of it costs less than taking some rows.
_SCAN_SHARE: Final = 1 / 8
_ADDRESS: Final = names.LANCE_COLUMNS[1]


class PinnedRows:
    """Reads of one snapshot, and the tables they touched."""

    def __init__(self, root: Root, snapshot: Snapshot) -> None:
        self._root = root
        self._snapshot = snapshot
        self._opened: dict[str, Any] = {}
        self._read: set[str] = set()

    @property
    def read_set(self) -> frozenset[str]:
        return frozenset(self._read)

    def candidates(
        self, table_key: str, columns: Sequence[str], where: str | None
    ) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """Rows that pass a filter, with `id` and these columns, and the addresses of the rows."""
        if not self._row_count(table_key):
            return
        wanted = list(dict.fromkeys([names.ID_COLUMN, *columns]))
        with translated(self._root, f"read {table_key}"):
            scanner = self._dataset(table_key).scanner(
                columns=[*wanted, _ADDRESS], filter=where, batch_size=_BATCH_ROWS
            )
            for batch in scanner.to_batches():
                if batch.num_rows:
                    rows = pa.Table.from_batches([batch])
                    yield rows.select(wanted), rows.column(_ADDRESS).to_numpy()

    def whole(self, table_key: str, addresses: np.ndarray, schema: pa.Schema) -> Iterator[pa.Table]:
        """The rows at these addresses with everything in them, blobs as their bytes."""
        found = 0
        if len(addresses) >= self._row_count(table_key) * _SCAN_SHARE:
            for rows, where in self._scan(table_key, None, schema):
                kept = rows.filter(pa.array(np.isin(where, addresses)))
                found += kept.num_rows
                yield kept
        else:
            for start in range(0, len(addresses), _WHOLE_ROWS):
                listed = ", ".join(map(str, addresses[start : start + _WHOLE_ROWS].tolist()))
                for rows, _ in self._scan(table_key, f"{_ADDRESS} IN ({listed})", schema):
                    found += rows.num_rows
                    yield rows
        if found != len(addresses):
            raise DamagedGraphError(
                f"{table_key} lists {len(addresses)} rows, of which {found} can be read",
                next_step=f"Run `omnigraph check {self._root}`.",
            )

    def existing(self, table_key: str, ids: pa.StringArray) -> pa.StringArray:
        """Those of the ids that a row has."""
        found = [
            rows.column(names.ID_COLUMN).combine_chunks()
            for rows, _ in self.candidates(table_key, (), one_of((names.ID_COLUMN,), ids))
        ]
        present = joined(*found)
        return ids.filter(pc.is_in(ids, present))

    def edges_at(
        self, edge_key: str, columns: Sequence[str], nodes: pa.StringArray
    ) -> Iterator[pa.StringArray]:
        """Ids of the edges that hold one of these nodes in one of these columns."""
        for rows, _ in self.candidates(edge_key, columns, one_of(columns, nodes)):
            touched = rows.filter(touching(rows, columns, nodes))
            yield touched.column(names.ID_COLUMN).combine_chunks()

    def _scan(
        self, table_key: str, where: str | None, schema: pa.Schema
    ) -> Iterator[tuple[pa.Table, np.ndarray]]:
        with translated(self._root, f"read {table_key}"):
            scanner = self._dataset(table_key).scanner(
                columns=[*schema.names, _ADDRESS],
                filter=where,
                blob_handling="all_binary",
                batch_size=_ROWS_WITH_BLOBS if any(map(has_blob, schema)) else _WHOLE_ROWS,
                batch_size_bytes=_WHOLE_BYTES,
                batch_readahead=2,
                fragment_readahead=2,
            )
            for batch in scanner.to_batches():
                *columns, addresses = batch.columns
                yield pa.Table.from_arrays(columns, schema=schema), addresses.to_numpy()

    def _row_count(self, table_key: str) -> int:
        self._read.add(table_key)
        return find_entry(self._root, self._snapshot, table_key).row_count

    def _dataset(self, table_key: str) -> Any:
        if table_key not in self._opened:
            entry = find_entry(self._root, self._snapshot, table_key)
            self._opened[table_key] = kept_open(self._root, entry)
        return self._opened[table_key]


def touching(rows: pa.Table, columns: Sequence[str], nodes: pa.StringArray) -> pa.ChunkedArray:
    """Whether an edge holds one of these nodes in one of these columns."""
    held = [pc.is_in(rows.column(column), nodes) for column in columns]
    return pc.or_(*held) if len(held) > 1 else held[0]
